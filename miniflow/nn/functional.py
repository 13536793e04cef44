"""The functions behind the layers: the very function objects of `miniflow.ops`, under PyTorch's names."""

from miniflow.ops.activation import gelu, relu, sigmoid, silu, softplus
from miniflow.ops.conv import conv2d
from miniflow.ops.dropout import dropout
from miniflow.ops.elementwise import tanh
from miniflow.ops.embedding import embedding
from miniflow.ops.loss import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    cross_entropy,
    l1_loss,
    mse_loss,
    nll_loss,
)
from miniflow.ops.matmul import linear
from miniflow.ops.norm import batch_norm, layer_norm
from miniflow.ops.pad import one_hot, pad
from miniflow.ops.pool import adaptive_avg_pool2d, avg_pool2d, max_pool2d
from miniflow.ops.softmax import log_softmax, softmax

__all__ = [
    "adaptive_avg_pool2d",
    "avg_pool2d",
    "batch_norm",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "conv2d",
    "cross_entropy",
    "dropout",
    "embedding",
    "gelu",
    "l1_loss",
    "layer_norm",
    "linear",
    "log_softmax",
    "max_pool2d",
    "mse_loss",
    "nll_loss",
    "one_hot",
    "pad",
    "relu",
    "sigmoid",
    "silu",
    "softmax",
    "softplus",
    "tanh",
]
