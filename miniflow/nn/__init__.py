"""Networks: modules with parameters, the layers, and how they are initialised.

The layers are the classes that the files of `nn.modules` define, but for the bases of several of them.
"""

import importlib
import pkgutil

from miniflow.nn import functional, image, init, modules, parameter, utils
from miniflow.nn.parameter import Parameter

_BASES = {
    "Activation", "BatchNorm", "Convolution", "FunctionModule", "InstanceNorm", "Layer", "Loss", "Norm", "Padding",
    "Pool", "Quantizing", "RNNBase", "RNNCellBase", "RecurrentBase", "TransformerLayer", "WeightedLoss",
}  # fmt: skip
_FILES = [importlib.import_module(f"{modules.__name__}.{file.name}") for file in pkgutil.iter_modules(modules.__path__)]
_LAYERS = {
    name: layer
    for file in _FILES
    for name, layer in vars(file).items()
    if isinstance(layer, type) and issubclass(layer, modules.module.Module) and layer.__module__ == file.__name__
    if name == layer.__name__ and not name.startswith("_") and name not in _BASES
}
globals().update(_LAYERS)
__all__ = [*_LAYERS, "Parameter", "functional", "image", "init", "modules", "parameter", "utils"]
