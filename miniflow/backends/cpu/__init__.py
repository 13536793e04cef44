"""The CPU kernels: NumPy where it is fast, numba where it is not. Importing this package registers them all."""

import importlib
import pkgutil

import miniflow.hostcuda.cache  # noqa: F401  (says where numba keeps machine code: before the first function is compiled)

for module in pkgutil.iter_modules(__path__, f"{__name__}."):
    importlib.import_module(module.name)
