"""Activations as layers."""

from __future__ import annotations

from miniflow.errors import ArgumentError
from miniflow.nn.modules.function_module import FunctionModule
from miniflow.ops.activation import gelu, relu, sigmoid, silu, softplus
from miniflow.ops.elementwise import tanh
from miniflow.ops.softmax import log_softmax, softmax
from miniflow.tensor import Tensor


class ReLU(FunctionModule, function=relu, inplace=False):
    """max(x, 0)

    Args:
        inplace: write the result into the memory of the input.

    >>> import miniflow as flow
    >>> flow.nn.ReLU()(flow.tensor([-1.0, 2.0])).tolist()
    [0.0, 2.0]

    Source: `torch.nn.ReLU`.
    """


class GELU(FunctionModule, function=gelu, approximate="none"):
    """x * Phi(x), with Phi the distribution function of the standard normal distribution.

    Args:
        approximate: "none", or "tanh" for 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))).

    Source: `torch.nn.GELU`; Hendrycks and Gimpel 2016, "Gaussian Error Linear Units".
    """


class SiLU(FunctionModule, function=silu, inplace=False):
    """x * sigmoid(x)

    Args:
        inplace: write the result into the memory of the input.

    Source: `torch.nn.SiLU`; Elfwing et al. 2017.
    """


class Softplus(FunctionModule, function=softplus, beta=1.0, threshold=20.0):
    """log(1 + exp(beta * x)) / beta

    Args:
        beta: how sharp the bend at 0 is.
        threshold: where beta * x is above it, the result is x.

    Source: `torch.nn.Softplus`.
    """


class Sigmoid(FunctionModule, function=sigmoid):
    """1 / (1 + exp(-x)). Source: `torch.nn.Sigmoid`."""


class Tanh(FunctionModule, function=tanh):
    """(exp(x) - exp(-x)) / (exp(x) + exp(-x)). Source: `torch.nn.Tanh`."""


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
