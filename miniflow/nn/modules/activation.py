"""Activations as layers."""

from __future__ import annotations

from miniflow.errors import ArgumentError
from miniflow.inplace import write
from miniflow.nn.modules.module import Module
from miniflow.ops.activation import gelu, relu, sigmoid, silu, softplus
from miniflow.ops.elementwise import tanh
from miniflow.ops.softmax import log_softmax, softmax
from miniflow.tensor import Tensor


class ReLU(Module):
    """max(x, 0)

    Args:
        inplace: write the result into the memory of the input.

    >>> import miniflow as flow
    >>> flow.nn.ReLU()(flow.tensor([-1.0, 2.0])).tolist()
    [0.0, 2.0]

    Source: `torch.nn.ReLU`.
    """

    def __init__(self, inplace: bool = False):
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return input.relu_() if self.inplace else relu(input)

    def extra_repr(self) -> str:
        return "inplace=True" if self.inplace else ""


class GELU(Module):
    """x * Phi(x), with Phi the distribution function of the standard normal distribution.

    Args:
        approximate: "none", or "tanh" for 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))).

    Source: `torch.nn.GELU`; Hendrycks and Gimpel 2016, "Gaussian Error Linear Units".
    """

    def __init__(self, approximate: str = "none"):
        super().__init__()
        self.approximate = approximate

    def forward(self, input: Tensor) -> Tensor:
        return gelu(input, self.approximate)

    def extra_repr(self) -> str:
        return f"approximate={self.approximate!r}"


class SiLU(Module):
    """x * sigmoid(x)

    Args:
        inplace: write the result into the memory of the input.

    Source: `torch.nn.SiLU`; Elfwing et al. 2017.
    """

    def __init__(self, inplace: bool = False):
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return write(input, "silu_", lambda: silu(input)) if self.inplace else silu(input)

    def extra_repr(self) -> str:
        return "inplace=True" if self.inplace else ""


class Softplus(Module):
    """log(1 + exp(beta * x)) / beta

    Args:
        beta: how sharp the bend at 0 is.
        threshold: where beta * x is above it, the result is x.

    Source: `torch.nn.Softplus`.
    """

    def __init__(self, beta: float = 1.0, threshold: float = 20.0):
        super().__init__()
        self.beta = beta
        self.threshold = threshold

    def forward(self, input: Tensor) -> Tensor:
        return softplus(input, self.beta, self.threshold)

    def extra_repr(self) -> str:
        return f"beta={self.beta}, threshold={self.threshold}"


class Sigmoid(Module):
    """1 / (1 + exp(-x)). Source: `torch.nn.Sigmoid`."""

    def forward(self, input: Tensor) -> Tensor:
        return sigmoid(input)


class Tanh(Module):
    """(exp(x) - exp(-x)) / (exp(x) + exp(-x)). Source: `torch.nn.Tanh`."""

    def forward(self, input: Tensor) -> Tensor:
        return tanh(input)


class Softmax(Module):
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

    function = staticmethod(softmax)

    def __init__(self, dim: int | None = None):
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        if self.dim is None:
            name = type(self).__name__
            raise ArgumentError(
                f"{name}: dim is None; expected the dim to normalise over: {name}(dim=-1) for the last one"
            )
        return self.function(input, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class LogSoftmax(Softmax):
    """log(exp(x_i) / sum_j exp(x_j)) along `dim`, without overflow.

    Args:
        dim: along which the exponentials of the results sum to 1; it must be given.

    Source: `torch.nn.LogSoftmax`.
    """

    function = staticmethod(log_softmax)
