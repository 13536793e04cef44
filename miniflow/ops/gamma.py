"""The logarithm of the gamma function and its derivatives of all orders."""

from __future__ import annotations

import math

from miniflow import scalar
from miniflow.errors import ArgumentError, AutogradError
from miniflow.ops.method import method
from miniflow.ops.pointwise import called_as, pointwise
from miniflow.ops.promotion import Number, floating_binary
from miniflow.tensor import Tensor


@pointwise(accepts="f", integers="float")
def lgamma(x):
    """log |gamma(x)|, elementwise; inf at 0, -1, -2, ... Integers are computed in the default floating dtype.

    >>> import miniflow as flow
    >>> round(flow.lgamma(flow.tensor(5.0)).exp().item(), 3)
    24.0

    Source: `torch.lgamma`.
    """
    return scalar.lgamma(x)


lgamma.gradient(lambda dy, x: dy * scalar.digamma(x))


@pointwise(accepts="f", integers="float")
def digamma(x):
    """The derivative of `lgamma`, elementwise; NaN at -1, -2, ..., infinite at 0. `torch.digamma`."""
    return scalar.digamma(x)


digamma.gradient(lambda dy, x: dy * scalar.zeta(2, x))


@pointwise(accepts="f", integers="float", in_place=False)
def zeta(x, y):
    """The Hurwitz zeta function"""
    return scalar.zeta(x, y)


zeta.gradient("y")(lambda dy, x, y: dy * (-x * scalar.zeta(x + 1, y)))


@called_as(zeta)
def zeta(input: Tensor | Number, other: Tensor | Number) -> Tensor:
    """The Hurwitz zeta function: the sum of (other + k)^-input over k = 0, 1, ..., elementwise.

    inf for input = 1 and where `other` is 0, -1, ...; NaN for input < 1, and for other < 0 unless `input` is whole.

    Raises:
        AutogradError: for an `input` that requires grad; there is a gradient for `other` alone.

    Source: `torch.special.zeta`.
    """
    if isinstance(input, Tensor) and input.requires_grad:
        raise AutogradError("zeta: got an input that requires grad; expected only `other` to: use input.detach()")
    return floating_binary(zeta.op, input, other)


def polygamma(n: int, input: Tensor) -> Tensor:
    """The n-th derivative of `digamma`: (-1)^(n + 1) n! zeta(n + 1, input).

    >>> import miniflow as flow
    >>> round(flow.polygamma(1, flow.tensor(1.0)).item() * 6 / flow.pi**2, 5)
    1.0

    Raises:
        ArgumentError: for a negative n.

    n! is infinite for n > 170, and so is the result.

    Source: `torch.polygamma`.
    """
    if n < 0:
        raise ArgumentError(f"polygamma: got n={n}; expected 0 or more")
    if n == 0:
        return digamma(input)
    factorial = float(math.factorial(n)) if n <= 170 else math.inf  # float64 ends there
    return zeta(n + 1, input) * (factorial if n % 2 else -factorial)


@method(in_place=True)
def mvlgamma(input: Tensor, p: int) -> Tensor:
    """The logarithm of the multivariate gamma function: p (p - 1) / 4 log pi + the sum of lgamma(x - k / 2), k < p.

    Raises:
        ArgumentError: for p below 1.

    Source: `torch.mvlgamma`.
    """
    if p < 1:
        raise ArgumentError(f"mvlgamma: got p={p}; expected 1 or more")
    terms = [lgamma(input - k / 2 if k else input) for k in range(p)]
    return sum(terms[1:], terms[0]) + p * (p - 1) / 4 * math.log(math.pi)
