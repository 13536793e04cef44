"""Linear layers."""

from __future__ import annotations

import math
from typing import Any

from miniflow.errors import ShapeError
from miniflow.nn import init
from miniflow.nn.modules.layer import Layer
from miniflow.nn.modules.module import Module
from miniflow.ops.matmul import linear
from miniflow.tensor import Tensor


class Linear(Layer, in_features=..., out_features=..., bias=True, device=None, dtype=None):
    """y = x W^T + b

    Args:
        in_features: the size of the last dim of the input.
        out_features: the size of the last dim of the output.
        bias: whether to add b.
        device, dtype: of the parameters.

    Attributes:
        weight: (out_features, in_features), drawn uniformly from -k to k, k = 1 / sqrt(in_features).
        bias: (out_features,), drawn from the same range; None without bias.

    Shapes: (*, in_features) -> (*, out_features).

    Raises:
        ShapeError: for negative sizes, or an input whose last dim is not in_features.

    >>> import miniflow as flow
    >>> flow.nn.Linear(20, 30)(flow.zeros(5, 20)).shape
    miniflow.Size([5, 30])

    Source: `torch.nn.Linear`.
    """

    shown = "in_features={in_features}, out_features={out_features}, bias={bias}"

    def set_up(self, bias: bool, place: dict[str, Any]) -> None:
        inputs, outputs = self.in_features, self.out_features
        if inputs < 0 or outputs < 0:
            raise ShapeError(f"Linear: got in_features={inputs}, out_features={outputs}; expected at least 0")
        self.add_parameters(place, weight=(outputs, inputs), bias=(outputs,) if bias else None)

    def reset_parameters(self) -> None:
        """Initialize the parameters again, at random."""
        init_weight_and_bias(self.weight, self.bias, self.in_features)

    def forward(self, input: Tensor) -> Tensor:
        return linear(input, self.weight, self.bias)


class Identity(Module):
    """Returns its input; takes and ignores any arguments, so that it can stand in for another layer.

    Source: `torch.nn.Identity`.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__()

    def forward(self, input: Any) -> Any:
        return input


def init_weight_and_bias(weight: Tensor, bias: Tensor | None, fan_in: int) -> None:
    """PyTorch's initialization of linear and convolution layers: both uniform within 1 / sqrt(fan_in).

    For the weight that is `kaiming_uniform_(a=sqrt(5))`: sqrt(3) * sqrt(2 / (1 + 5)) / sqrt(fan_in).
    """
    bound = 1 / math.sqrt(fan_in) if fan_in > 0 else 0.0
    init.uniform_(weight, -bound, bound)
    if bias is not None:
        init.uniform_(bias, -bound, bound)
