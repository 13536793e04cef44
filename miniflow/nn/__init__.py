"""Networks: modules with parameters, the layers, and how they are initialised."""

from miniflow.nn import functional, init, utils
from miniflow.nn.modules.activation import GELU, LogSoftmax, ReLU, Sigmoid, SiLU, Softmax, Softplus, Tanh
from miniflow.nn.modules.container import ModuleDict, ModuleList, ParameterDict, ParameterList, Sequential
from miniflow.nn.modules.conv import Conv2d
from miniflow.nn.modules.dropout import Dropout
from miniflow.nn.modules.embedding import Embedding
from miniflow.nn.modules.linear import Identity, Linear
from miniflow.nn.modules.loss import BCELoss, BCEWithLogitsLoss, CrossEntropyLoss, L1Loss, MSELoss, NLLLoss
from miniflow.nn.modules.module import Module
from miniflow.nn.modules.norm import BatchNorm1d, BatchNorm2d, LayerNorm
from miniflow.nn.modules.pool import AdaptiveAvgPool2d, AvgPool2d, MaxPool2d
from miniflow.nn.modules.shape import ConstantPad2d, Flatten, Unflatten, ZeroPad2d
from miniflow.nn.parameter import Parameter

__all__ = [
    "AdaptiveAvgPool2d",
    "AvgPool2d",
    "BCELoss",
    "BCEWithLogitsLoss",
    "BatchNorm1d",
    "BatchNorm2d",
    "ConstantPad2d",
    "Conv2d",
    "CrossEntropyLoss",
    "Dropout",
    "Embedding",
    "Flatten",
    "GELU",
    "Identity",
    "L1Loss",
    "LayerNorm",
    "Linear",
    "LogSoftmax",
    "MSELoss",
    "MaxPool2d",
    "Module",
    "ModuleDict",
    "ModuleList",
    "NLLLoss",
    "Parameter",
    "ParameterDict",
    "ParameterList",
    "ReLU",
    "Sequential",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Softplus",
    "Tanh",
    "Unflatten",
    "ZeroPad2d",
    "functional",
    "init",
    "utils",
]
