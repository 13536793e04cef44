"""Distances and bilinear forms as layers."""

from __future__ import annotations

from typing import Any

from miniflow.nn.modules.function_module import FunctionModule
from miniflow.nn.modules.layer import Layer
from miniflow.nn.modules.linear import init_weight_and_bias
from miniflow.ops.distance import bilinear, cosine_similarity, pairwise_distance
from miniflow.tensor import Tensor


class CosineSimilarity(FunctionModule, function=cosine_similarity, dim=1, eps=1e-8):
    """x1 . x2 / (|x1| |x2|) over `dim`. `torch.nn.CosineSimilarity`."""


class PairwiseDistance(FunctionModule, function=pairwise_distance, p=2.0, eps=1e-6, keepdim=False):
    """The p-norm of x1 - x2 + eps over the last dim. `torch.nn.PairwiseDistance`."""


class Bilinear(Layer, in1_features=..., in2_features=..., out_features=..., bias=True, device=None, dtype=None):
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

    shown = "in1_features={in1_features}, in2_features={in2_features}, out_features={out_features}, bias={bias}"

    def set_up(self, bias: bool, place: dict[str, Any]) -> None:
        shape = (self.out_features, self.in1_features, self.in2_features)
        self.add_parameters(place, weight=shape, bias=shape[:1] if bias else None)

    def reset_parameters(self) -> None:
        """Initialize the parameters again, at random."""
        init_weight_and_bias(self.weight, self.bias, self.in1_features)

    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        return bilinear(input1, input2, self.weight, self.bias)
