"""Linear layers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

from miniflow.errors import ArgumentError, ShapeError
from miniflow.nn import functional as F
from miniflow.nn import init
from miniflow.nn.modules.layer import Layer
from miniflow.nn.modules.module import Module
from miniflow.tensor import Tensor


class Linear(Layer):
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

    def __init__(self, in_features: int, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None):
        super().__init__()
        if in_features < 0 or out_features < 0:
            raise ShapeError(f"Linear: got in_features={in_features}, out_features={out_features}; expected at least 0")
        self.in_features, self.out_features = in_features, out_features
        shapes = {"weight": (out_features, in_features), "bias": (out_features,) if bias else None}
        self.add_parameters(device, dtype, **shapes)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize the parameters again, at random."""
        init_weight_and_bias(self.weight, self.bias, self.in_features)

    def forward(self, input: Tensor) -> Tensor:
        return F.linear(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class FusedMLP(Layer):
    """A multilayer perceptron: linear layers, each followed by relu and dropout.

    Args:
        in_features: the size of the last dim of the input.
        hidden_features: the sizes after all layers but the last; may be empty.
        out_features: the size of the last dim of the output.
        hidden_dropout_rate: the probability of dropout after each of these layers; None for no dropout.
        out_dropout_rate: that after the last layer.
        skip_final_activation: whether the last layer has no relu.
        device, dtype: of the parameters.

    Attributes:
        weight_0, bias_0, weight_1, bias_1 ...: of the layers, drawn as in `Linear`.

    Shapes: (*, in_features) -> (*, out_features).

    Raises:
        ArgumentError: if there are not as many rates as hidden layers.

    >>> import miniflow as flow
    >>> flow.nn.FusedMLP(8, [32, 16], 4, skip_final_activation=True)(flow.zeros(5, 8)).shape
    miniflow.Size([5, 4])

    Source: `oneflow.nn.FusedMLP`.
    """

    def __init__(
        self, in_features: int, hidden_features: Sequence[int], out_features: int,
        hidden_dropout_rate: Sequence[float] | None = None, out_dropout_rate: float = 0.0,
        skip_final_activation: bool = False, device: Any = None, dtype: Any = None,
    ):  # fmt: skip
        super().__init__()
        self.in_features, self.hidden_features, self.out_features = in_features, hidden_features, out_features
        self.hidden_dropout_rate, self.out_dropout_rate = hidden_dropout_rate, out_dropout_rate
        self.skip_final_activation = skip_final_activation
        hidden, rates = list(hidden_features), hidden_dropout_rate
        self.rates = [*([0.0] * len(hidden) if rates is None else rates), out_dropout_rate]
        if len(self.rates) != len(hidden) + 1:
            raise ArgumentError(f"FusedMLP: got hidden_dropout_rate={rates}; expected {len(hidden)} rates or None")
        for k, (inputs, outputs) in enumerate(itertools.pairwise([in_features, *hidden, out_features])):
            self.add_parameters(device, dtype, **{f"weight_{k}": (outputs, inputs), f"bias_{k}": (outputs,)})
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize the parameters again, at random."""
        for k in range(len(self.rates)):
            weight = self.get_parameter(f"weight_{k}")
            init_weight_and_bias(weight, self.get_parameter(f"bias_{k}"), weight.shape[1])

    def forward(self, input: Tensor) -> Tensor:
        for k, rate in enumerate(self.rates):
            input = F.linear(input, self.get_parameter(f"weight_{k}"), self.get_parameter(f"bias_{k}"))
            if not self.skip_final_activation or k < len(self.rates) - 1:
                input = F.relu(input)
            input = F.dropout(input, rate, self.training)
        return input

    def extra_repr(self) -> str:
        sizes = f"hidden_features={self.hidden_features}, out_features={self.out_features}"
        return f"in_features={self.in_features}, {sizes}"


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
