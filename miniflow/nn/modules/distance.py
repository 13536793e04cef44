"""Distances and bilinear forms as layers."""

from __future__ import annotations

from typing import Any

from miniflow.nn import functional as F
from miniflow.nn.modules.layer import FunctionModule, Layer
from miniflow.nn.modules.linear import init_weight_and_bias
from miniflow.tensor import Tensor


class CosineSimilarity(FunctionModule):
    """x1 . x2 / (|x1| |x2|) over `dim`. `torch.nn.CosineSimilarity`."""

    def __init__(self, dim: int = 1, eps: float = 1e-8):
        super().__init__()
        self.dim, self.eps = dim, eps

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return F.cosine_similarity(x1, x2, self.dim, self.eps)


class PairwiseDistance(FunctionModule):
    """The p-norm of x1 - x2 + eps over the last dim. `torch.nn.PairwiseDistance`."""

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False):
        super().__init__()
        self.p, self.eps, self.keepdim = p, eps, keepdim

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return F.pairwise_distance(x1, x2, self.p, self.eps, self.keepdim)


class Bilinear(Layer):
    """y = x1 W x2 + b

    Args:
        in1_features, in2_features, out_features: the sizes of x1, x2 and y.
        bias: whether there is b.
        device, dtype: of the parameters.

    Attributes:
        weight: W, (out_features, in1_features, in2_features), drawn uniformly from -k to k, k = 1 / sqrt(in1_features).
        bias: b, (out_features,), drawn from the same range; None without bias.

    Source: `torch.nn.Bilinear`.
    """

    def __init__(
        self, in1_features: int, in2_features: int, out_features: int, bias: bool = True, device: Any = None,
        dtype: Any = None,
    ):  # fmt: skip
        super().__init__()
        self.in1_features, self.in2_features, self.out_features = in1_features, in2_features, out_features
        shape = (out_features, in1_features, in2_features)
        self.add_parameters(device, dtype, weight=shape, bias=shape[:1] if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize the parameters again, at random."""
        init_weight_and_bias(self.weight, self.bias, self.in1_features)

    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        return F.bilinear(input1, input2, self.weight, self.bias)

    def extra_repr(self) -> str:
        inputs = f"in1_features={self.in1_features}, in2_features={self.in2_features}"
        return f"{inputs}, out_features={self.out_features}, bias={self.bias is not None}"
