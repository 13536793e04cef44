"""The backend of the cuda device: it launches the kernels of `miniflow.kernels` on `DeviceArray`s.

Importing it registers its kernels; that happens when the first tensor on a cuda device is made.
"""

import importlib
import pkgutil

for module in pkgutil.iter_modules(__path__, f"{__name__}."):
    importlib.import_module(module.name)
