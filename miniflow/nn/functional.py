"""The functions that layers call: the same function objects as in `miniflow.ops`, under PyTorch's names."""

from miniflow.ops.activation import glu, prelu, rrelu
from miniflow.ops.attention import scaled_dot_product_attention
from miniflow.ops.conv import conv2d
from miniflow.ops.dropout import dropout
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
from miniflow.ops.pointwise import OPERATORS
from miniflow.ops.pool import adaptive_avg_pool2d, avg_pool2d, max_pool2d
from miniflow.ops.softmax import log_softmax, softmax, softmin
from miniflow.tensor import Tensor

globals().update({name: function for name, function in OPERATORS.items() if function.op.nn})
for _name in ("celu_", "elu_", "hardtanh_", "leaky_relu_", "relu_", "selu_", "threshold_"):
    globals()[_name] = getattr(Tensor, _name)
