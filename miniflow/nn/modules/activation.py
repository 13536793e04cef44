"""Activations as layers."""

from __future__ import annotations

from miniflow.nn.modules.function_module import FunctionModule
from miniflow.ops.pointwise import OPERATORS
from miniflow.ops.softmax import log_softmax, softmax

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
