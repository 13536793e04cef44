"""Activations as layers."""

from __future__ import annotations

from typing import Any

from miniflow.errors import ShapeError
from miniflow.nn.modules.function_module import FunctionModule
from miniflow.nn.modules.module import Module
from miniflow.nn.parameter import Parameter
from miniflow.ops.activation import glu, prelu, rrelu
from miniflow.ops.creation import full
from miniflow.ops.pointwise import OPERATORS
from miniflow.ops.softmax import log_softmax, softmax, softmin
from miniflow.tensor import Tensor

# The layers of pointwise operators, such as ReLU: each is named in the definition of its operator.
POINTWISE = {
    f.op.nn: type(
        f.op.nn, (FunctionModule,), {"__doc__": f.__doc__, "__module__": __name__},
        function=f, **f.op.formula.attributes, inplace=False,
    )
    for f in OPERATORS.values() if f.op.nn
}  # fmt: skip
globals().update(POINTWISE)


class Softmax(FunctionModule, function=softmax, dim=...):
    """exp(x_i) / sum_j exp(x_j) along `dim`.

    Args:
        dim: along which the results sum to 1. It must be given: PyTorch's guess from the number of dims is deprecated.

    >>> import miniflow as flow
    >>> flow.nn.Softmax(dim=-1)(flow.zeros(4)).tolist()
    [0.25, 0.25, 0.25, 0.25]

    Source: `torch.nn.Softmax`.
    """


class LogSoftmax(Softmax, function=log_softmax):
    """log(exp(x_i) / sum_j exp(x_j)) along `dim`, without overflow.

    Args:
        dim: along which the exponentials of the results sum to 1; it must be given.

    Source: `torch.nn.LogSoftmax`.
    """


class Softmin(Softmax, function=softmin):
    """softmax(-x) along `dim`. `torch.nn.Softmin`."""


class Softmax2d(FunctionModule, function=softmax):
    """Softmax over the channels at each place of images [N, C, H, W]. `torch.nn.Softmax2d`."""

    def forward(self, input: Tensor) -> Tensor:
        if input.ndim not in (3, 4):
            raise ShapeError(f"Softmax2d: got {tuple(input.shape)}; expected [N, C, H, W] or [C, H, W]")
        return softmax(input, -3)


class GLU(FunctionModule, function=glu, dim=-1):
    """The first half along `dim`, times the sigmoid of the second. `torch.nn.GLU`."""


class RReLU(FunctionModule, function=rrelu, lower=1 / 8, upper=1 / 3, inplace=False):
    """`LeakyReLU` with a random slope for each element in training, and their mean in evaluation. `torch.nn.RReLU`."""

    def forward(self, input: Tensor) -> Tensor:
        return rrelu(input, self.lower, self.upper, self.training, self.inplace)


class PReLU(Module):
    """x where x > 0, else weight * x, with a learned slope.

    Args:
        num_parameters: 1, or the number of channels: a slope for each of them.
        init: the first value of the slopes.
        device, dtype: of the slopes.

    Attributes:
        weight: (num_parameters,).

    Source: `torch.nn.PReLU`.
    """

    def __init__(self, num_parameters: int = 1, init: float = 0.25, **options: Any):
        super().__init__()
        self.num_parameters = num_parameters
        self.weight = Parameter(full((num_parameters,), init, **options))

    def forward(self, input: Tensor) -> Tensor:
        return prelu(input, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"
