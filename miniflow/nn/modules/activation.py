"""Activations as layers."""

from __future__ import annotations

from miniflow.errors import ArgumentError
from miniflow.nn.modules.function_module import FunctionModule, function_module
from miniflow.ops.pointwise import OPERATORS
from miniflow.ops.softmax import log_softmax, softmax
from miniflow.tensor import Tensor

# The layers of pointwise operators, such as ReLU: each is named in the definition of its operator.
POINTWISE = {
    function.op.nn: function_module(function.op.nn, function, **function.op.formula.attributes, inplace=False)
    for function in OPERATORS.values()
    if function.op.nn
}
globals().update(POINTWISE)


class Softmax(FunctionModule, function=softmax, dim=None):
    """exp(x_i) / sum_j exp(x_j) along `dim`.

    Args:
        dim: along which the results sum to 1. It must be given: PyTorch's guess from the number of dims is deprecated.

    Raises:
        ArgumentError: when called without a dim.

    >>> import miniflow as flow
    >>> flow.nn.Softmax(dim=-1)(flow.zeros(4)).tolist()
    [0.25, 0.25, 0.25, 0.25]

    Source: `torch.nn.Softmax`.
    """

    def forward(self, input: Tensor) -> Tensor:
        if self.dim is None:
            name = type(self).__name__
            raise ArgumentError(
                f"{name}: dim is None; expected the dim to normalise over: {name}(dim=-1) for the last one"
            )
        return super().forward(input)


class LogSoftmax(Softmax, function=log_softmax):
    """log(exp(x_i) / sum_j exp(x_j)) along `dim`, without overflow.

    Args:
        dim: along which the exponentials of the results sum to 1; it must be given.

    Source: `torch.nn.LogSoftmax`.
    """
