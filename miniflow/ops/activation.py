"""Activation functions. The first-order gradient is one fused kernel; with `create_graph` it is the formula in ops."""

from __future__ import annotations

import math

from miniflow.dispatch import Op, call
from miniflow.dtype import get_default_dtype
from miniflow.errors import ArgumentError, DTypeError
from miniflow.operands import takes_tensors
from miniflow.ops.comparison import gt
from miniflow.ops.elementwise import add, exp, mul, neg, sub, tanh, where
from miniflow.ops.promotion import cast
from miniflow.tape import is_grad_enabled
from miniflow.tensor import Tensor

SQRT_TWO_OVER_PI = math.sqrt(2 / math.pi)
CUBIC = 0.044715


class Activation(Op):
    """An op on one floating tensor of any shape."""

    kernel_checks = False

    @classmethod
    def infer(cls, x, **attrs):
        if x.dtype.kind in "biu":
            raise DTypeError(f"{cls.function_name}: got {x.dtype}; expected a floating dtype: use x.float()")
        return x.shape, x.dtype


class ActivationGrad(Op):
    """The fused gradient of an activation: from the cotangent and what was saved."""

    def infer(dy, saved, **attrs):
        return saved.shape, saved.dtype


class Relu(Op):
    """y = max(x, 0); NaN stays NaN."""

    saves = ("y",)

    def infer(x):
        if x.dtype.kind == "b":
            raise DTypeError("relu: got bool; expected a floating or integer dtype: use x.float()")
        return x.shape, x.dtype

    def backward(ctx, dy):
        (y,) = ctx.saved
        return call(ReluGrad, dy, y)


class ReluGrad(ActivationGrad):
    """dx = dy where y > 0, else 0; linear in dy, so that it is its own gradient."""

    saves = ("saved",)

    def backward(ctx, g):
        (y,) = ctx.saved
        return call(ReluGrad, g, y), None


class Sigmoid(Activation):
    """y = 1 / (1 + exp(-x))"""

    saves = ("y",)

    def backward(ctx, dy):
        (y,) = ctx.saved
        return mul(dy, mul(y, sub(1.0, y))) if is_grad_enabled() else call(SigmoidGrad, dy, y)


class SigmoidGrad(ActivationGrad):
    """dx = dy y (1 - y)"""


class Erf(Activation):
    """y = 2 / sqrt(pi) * integral from 0 to x of exp(-t^2) dt"""

    saves = ("x",)

    def backward(ctx, dy):
        (x,) = ctx.saved
        if is_grad_enabled():
            return mul(dy, mul(exp(neg(mul(x, x))), 2 / math.sqrt(math.pi)))
        return call(ErfGrad, dy, x)


class ErfGrad(ActivationGrad):
    """dx = dy * 2 / sqrt(pi) * exp(-x^2)"""


class Gelu(Activation):
    """y = x Phi(x), Phi the normal distribution function, or its approximation by tanh."""

    saves = ("x",)

    def backward(ctx, dy):
        (x,) = ctx.saved
        if is_grad_enabled():
            return mul(dy, gelu_slope(x, ctx.attrs["approximate"]))
        return call(GeluGrad, dy, x, approximate=ctx.attrs["approximate"])


class GeluGrad(ActivationGrad):
    """dx = dy (Phi(x) + x Phi'(x))"""


def gelu_slope(x: Tensor, approximate: str) -> Tensor:
    """The derivative of gelu at x, in differentiable ops."""
    square = mul(x, x)
    if approximate == "tanh":
        t = tanh(mul(mul(x, add(mul(square, CUBIC), 1.0)), SQRT_TWO_OVER_PI))
        inner = mul(add(mul(square, 3 * CUBIC), 1.0), SQRT_TWO_OVER_PI)
        return mul(add(add(t, 1.0), mul(mul(x, sub(1.0, mul(t, t))), inner)), 0.5)
    cdf = mul(add(erf(mul(x, math.sqrt(0.5))), 1.0), 0.5)
    density = mul(exp(mul(square, -0.5)), 1 / math.sqrt(2 * math.pi))
    return add(cdf, mul(x, density))


class Silu(Activation):
    """y = x sigmoid(x)"""

    saves = ("x",)

    def backward(ctx, dy):
        (x,) = ctx.saved
        if is_grad_enabled():
            s = sigmoid(x)
            return mul(dy, mul(s, add(mul(x, sub(1.0, s)), 1.0)))
        return call(SiluGrad, dy, x)


class SiluGrad(ActivationGrad):
    """dx = dy s (1 + x (1 - s)) with s = sigmoid(x)"""


class Softplus(Activation):
    """y = log(1 + exp(beta x)) / beta; y = x where beta x > threshold."""

    saves = ("x",)

    def backward(ctx, dy):
        (x,) = ctx.saved
        beta, threshold = ctx.attrs["beta"], ctx.attrs["threshold"]
        if is_grad_enabled():
            z = mul(x, beta)
            return where(gt(z, threshold), dy, mul(dy, sigmoid(z)))
        return call(SoftplusGrad, dy, x, beta=beta, threshold=threshold)


class SoftplusGrad(ActivationGrad):
    """dx = dy sigmoid(beta x); dx = dy where beta x > threshold."""


def relu(x: Tensor) -> Tensor:
    """max(x, 0), elementwise; NaN stays NaN. The gradient at 0 is 0.

    Args:
        x: any shape, floating or integer.

    Raises:
        DTypeError: for bool.

    >>> import miniflow as flow
    >>> flow.relu(flow.tensor([-1.0, 2.0])).tolist()
    [0.0, 2.0]

    Source: `torch.relu`.
    """
    return call(Relu, x)


@takes_tensors
def sigmoid(x: Tensor) -> Tensor:
    """1 / (1 + exp(-x)), elementwise. Integers are computed in the default floating dtype.

    >>> import miniflow as flow
    >>> flow.sigmoid(flow.tensor(0.0)).item()
    0.5

    Source: `torch.sigmoid`.
    """
    return call(Sigmoid, _floating(x))


@takes_tensors
def erf(x: Tensor) -> Tensor:
    """The error function 2 / sqrt(pi) * integral from 0 to x of exp(-t^2) dt, elementwise.

    Integers are computed in the default floating dtype.

    >>> import miniflow as flow
    >>> round(flow.erf(flow.tensor(0.5)).item(), 5)
    0.5205

    Source: `torch.erf`.
    """
    return call(Erf, _floating(x))


def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    """The Gaussian error linear unit x Phi(x), Phi(x) = (1 + erf(x / sqrt 2)) / 2.

    Args:
        x: any shape, floating.
        approximate: "none", or "tanh" for x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2.

    Raises:
        DTypeError: for integers and bool.
        ArgumentError: for another `approximate`.

    >>> import miniflow as flow
    >>> [round(v, 4) for v in flow.gelu(flow.tensor([-1.0, 1.0])).tolist()]
    [-0.1587, 0.8413]

    Source: Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016; `torch.nn.functional.gelu`.
    """
    if approximate not in ("none", "tanh"):
        raise ArgumentError(f"gelu: got approximate={approximate!r}; expected 'none' or 'tanh'")
    return call(Gelu, x, approximate=approximate)


def silu(x: Tensor) -> Tensor:
    """x sigmoid(x), elementwise; also called swish.

    Args:
        x: any shape, floating.

    Raises:
        DTypeError: for integers and bool.

    >>> import miniflow as flow
    >>> round(flow.silu(flow.tensor(1.0)).item(), 4)
    0.7311

    Source: Elfwing, Uchibe, Doya, "Sigmoid-Weighted Linear Units", 2017; `torch.nn.functional.silu`.
    """
    return call(Silu, x)


def softplus(x: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """log(1 + exp(beta x)) / beta, elementwise: a smooth relu.

    Args:
        x: any shape, floating.
        beta: the steepness of the bend, not 0.
        threshold: where beta x lies above it, the result is x itself.

    Raises:
        DTypeError: for integers and bool.
        ArgumentError: for beta 0.

    >>> import miniflow as flow
    >>> round(flow.softplus(flow.tensor(0.0)).item(), 4)
    0.6931

    Source: `torch.nn.functional.softplus`.
    """
    if beta == 0:
        raise ArgumentError("softplus: got beta=0, by which the result is divided; expected another number, e.g. 1.0")
    return call(Softplus, x, beta=float(beta), threshold=float(threshold))


def _floating(x: Tensor) -> Tensor:
    return cast(x, get_default_dtype()) if x._array.dtype.kind in "biu" else x
