"""The error function, the logarithm of the gamma function and its derivatives of all orders, and sin(x) / x."""

from __future__ import annotations

import math

from miniflow.errors import ArgumentError, AutogradError
from miniflow.formulas import scalar
from miniflow.formulas.scalar import where as select
from miniflow.ops.method import method
from miniflow.ops.pointwise import pointwise, public_function_of
from miniflow.ops.promotion import Number, floating_binary
from miniflow.tensor import Tensor


@pointwise(accepts="f", integers="float")
def sinc(x):
    """sin(pi x) / (pi x), elementwise; 1 for x = 0. `torch.sinc`."""
    angle = math.pi * select(x == 0, 1, x)
    return select(x == 0, 1, scalar.sin(angle) / angle)


sinc.gradient(lambda dy, x, out: select(x == 0, 0, dy * (scalar.cos(math.pi * x) - out) / select(x == 0, 1, x)))


# the error function

SLOPE_OF_ERF = 2 / math.sqrt(math.pi)  # at 0


@pointwise(accepts="f", integers="float")
def erf(x):
    """The error function 2 / sqrt(pi) * integral from 0 to x of exp(-t^2) dt, elementwise.

    Integers are computed in the default floating dtype.

    >>> import miniflow as flow
    >>> round(flow.erf(flow.tensor(0.5)).item(), 5)
    0.5205

    Source: `torch.erf`.
    """
    return scalar.erf(x)


erf.gradient(lambda dy, x: dy * (SLOPE_OF_ERF * scalar.exp(-x * x)))


@pointwise(accepts="f", integers="float")
def erfc(x):
    """1 - erf(x), elementwise, exact to the last digits for large x. `torch.erfc`."""
    return scalar.erfc(x)


erfc.gradient(lambda dy, x: dy * (-SLOPE_OF_ERF * scalar.exp(-x * x)))


# erfinv(x) / x in w - 4 where w = -log(1 - x^2) is below 8, else in sqrt(w) - 4.3; the highest power first. They were
# fitted at Chebyshev nodes to 50 digits, and are right to 1e-14.
ERFINV_CENTRAL = (
    -2.7222011718118042e-23, -5.1688132829484927e-22, 8.5298263567687979e-21, 3.4182414864640801e-20,
    -8.9545207587082562e-19, 2.0990562062984467e-18, 3.7949740341596897e-17, -3.5199181894555753e-16,
    6.3701685757854887e-16, 1.4034903117685083e-14, -1.5359705108475676e-13, 4.6404390109484729e-13,
    5.2408095281229282e-12, -7.175419170009617e-11, 2.9099809751595262e-10, 1.8500217130089542e-09,
    -3.3436465064400678e-08, 1.7724378503211534e-07, 4.8654244847817874e-07, -1.5515141247174784e-05,
    0.0001188777891244367, -0.00020397201746794386, -0.0072210599518373235, 0.22835468533768488, 1.8587791124269735
)  # fmt: skip
ERFINV_TAIL = (
    -6.6267900887104321e-14, 7.947420803535732e-13, -3.3824955087775944e-12, 2.2930717415781053e-12,
    3.5354591604260168e-11, -1.6351585561441729e-10, 3.0614874140483319e-10, 1.7349092695582192e-10,
    -3.0917000809861527e-09, 1.0936795923473892e-08, -2.0958874246040064e-08, 7.8400885325540399e-09,
    1.0377522348193948e-07, -4.5555654160316876e-07, 1.2229368587271812e-06, -2.5342295204550801e-06,
    4.5195663285132763e-06, -8.1424434738268234e-06, 1.8785622373308269e-05, -5.8322854474719566e-05,
    0.00019685383435960089, -0.00056701636138415236, 0.00062466999072998048, 1.0100450970686856, 4.142724044720679
)  # fmt: skip


@pointwise(accepts="f", integers="float")
def erfinv(x):
    """The number whose error function is x, elementwise; NaN outside [-1, 1].

    Source: Giles, "Approximating the erfinv function", GPU Computing Gems, 2010; `torch.erfinv`.
    """
    w = -scalar.log((1 - x) * (1 + x))
    central, tail = w - 4, scalar.sqrt(w) - 4.3
    p, q = ERFINV_CENTRAL[0], ERFINV_TAIL[0]
    for c, d in zip(ERFINV_CENTRAL[1:], ERFINV_TAIL[1:], strict=True):
        p, q = p * central + c, q * tail + d
    return x * select(x * x == 1, math.inf, select(w < 8, p, q))


erfinv.gradient(lambda dy, out: dy * (scalar.exp(out * out) / SLOPE_OF_ERF))


# the gamma function


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


@public_function_of(zeta)
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
