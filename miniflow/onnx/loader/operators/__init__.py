"""The operators of ONNX, one family a file. Importing it registers them; see `registry`."""

import importlib
import pkgutil

for module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{module.name}")
