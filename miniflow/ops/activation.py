"""Activation functions. See `pointwise` for how an operator is written."""

from __future__ import annotations

import math

from miniflow import scalar
from miniflow.errors import ArgumentError
from miniflow.ops.piecewise import abs, maximum, minimum
from miniflow.ops.pointwise import pointwise
from miniflow.scalar import exp, where

SQRT_TWO_OVER_PI = math.sqrt(2 / math.pi)
CUBIC = 0.044715


@pointwise(accepts="fi", amp="clear", nn="ReLU")
def relu(x):
    """max(x, 0), elementwise; NaN stays NaN. The gradient at 0 is 0.

    Args:
        input: any shape, floating or integer.
        inplace: write the result into the memory of `input`.

    Raises:
        DTypeError: for bool.

    >>> import miniflow as flow
    >>> flow.relu(flow.tensor([-1.0, 2.0])).tolist()
    [0.0, 2.0]

    Source: `torch.relu`.
    """
    return where(x <= 0, 0, x)


@relu.gradient
def relu_grad(dy, out):
    return where(out <= 0, 0, dy)


Relu, ReluGrad = relu.op, relu.op.gradients["x"].op  # op classes, for passes over graphs


@pointwise(accepts="f", integers="float", amp="gray", nn="Sigmoid")
def sigmoid(x):
    """1 / (1 + exp(-x)), elementwise. Integers are computed in the default floating dtype.

    >>> import miniflow as flow
    >>> flow.sigmoid(flow.tensor(0.0)).item()
    0.5

    Source: `torch.sigmoid`.
    """
    return 1 / (1 + exp(-x))


@sigmoid.gradient
def sigmoid_grad(dy, out):
    return dy * out * (1 - out)


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


@erf.gradient
def erf_grad(dy, x):
    return dy * (2 / math.sqrt(math.pi)) * exp(-x * x)


@pointwise(accepts="f", amp="gray", nn="GELU")
def gelu(x, approximate="none"):
    """The Gaussian error linear unit x Phi(x), Phi(x) = (1 + erf(x / sqrt 2)) / 2.

    Args:
        input: any shape, floating.
        approximate: "none", or "tanh" for x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2.

    Raises:
        DTypeError: for integers and bool.
        ArgumentError: for another `approximate`.

    >>> import miniflow as flow
    >>> [round(v, 4) for v in flow.gelu(flow.tensor([-1.0, 1.0])).tolist()]
    [-0.1587, 0.8413]

    Source: Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016; `torch.nn.functional.gelu`.
    """
    if approximate == "tanh":
        return 0.5 * x * (1 + scalar.tanh(SQRT_TWO_OVER_PI * (x + CUBIC * x * x * x)))
    if approximate != "none":
        raise ArgumentError(f"gelu: got approximate={approximate!r}; expected 'none' or 'tanh'")
    return 0.5 * x * (1 + scalar.erf(math.sqrt(0.5) * x))


@gelu.gradient
def gelu_grad(dy, x, approximate):
    if approximate == "tanh":
        t = scalar.tanh(SQRT_TWO_OVER_PI * (x + CUBIC * x * x * x))
        slope = SQRT_TWO_OVER_PI * (1 + 3 * CUBIC * x * x)
        return dy * 0.5 * ((1 + t) + x * (1 - t * t) * slope)
    cdf = 0.5 * (1 + scalar.erf(math.sqrt(0.5) * x))
    density = 1 / math.sqrt(2 * math.pi) * exp(-0.5 * x * x)
    return dy * (cdf + x * density)


@pointwise(accepts="f", amp="gray", nn="SiLU")
def silu(x):
    """x sigmoid(x), elementwise; also called swish.

    Args:
        input: any shape, floating.

    Raises:
        DTypeError: for integers and bool.

    >>> import miniflow as flow
    >>> round(flow.silu(flow.tensor(1.0)).item(), 4)
    0.7311

    Source: Elfwing, Uchibe, Doya, "Sigmoid-Weighted Linear Units", 2017; `torch.nn.functional.silu`.
    """
    return x * sigmoid(x)


@silu.gradient
def silu_grad(dy, x):
    s = sigmoid(x)
    return dy * s * (1 + x * (1 - s))


@pointwise(accepts="f", nn="Softplus")
def softplus(x, beta=1.0, threshold=20.0):
    """log(1 + exp(beta x)) / beta, elementwise: a smooth relu.

    Args:
        input: any shape, floating.
        beta: the steepness of the bend.
        threshold: where beta x lies above it, the result is x itself.

    Raises:
        DTypeError: for integers and bool.

    >>> import miniflow as flow
    >>> round(flow.softplus(flow.tensor(0.0)).item(), 4)
    0.6931

    Source: `torch.nn.functional.softplus`.
    """
    z = beta * x
    return where(z > threshold, x, (maximum(z, 0) + scalar.log1p(exp(-abs(z)))) / beta)


@softplus.gradient
def softplus_grad(dy, x, beta, threshold):
    z = beta * x
    return where(z > threshold, dy, dy * sigmoid(z))


@pointwise(accepts="f", amp="clear", nn="Hardshrink")
def hardshrink(x, lambd=0.5):
    """x where |x| > lambd, else 0, elementwise.

    Source: `torch.nn.functional.hardshrink`.
    """
    return where(abs(x) <= lambd, 0, x)


@hardshrink.gradient
def hardshrink_grad(dy, x, lambd):
    return where(abs(x) > lambd, dy, 0)


@pointwise(accepts="f", amp="gray", nn="LeakyReLU")
def leaky_relu(x, negative_slope=0.01):
    """x where x > 0, else negative_slope * x, elementwise.

    Source: Maas, Hannun, Ng, "Rectifier Nonlinearities Improve Neural Network Acoustic Models", 2013;
    `torch.nn.functional.leaky_relu`.
    """
    return where(x > 0, x, negative_slope * x)


@leaky_relu.gradient
def leaky_relu_grad(dy, x, negative_slope):
    return where(x > 0, dy, negative_slope * dy)


@pointwise(accepts="f", amp="gray", nn="Hardswish")
def hardswish(x):
    """x min(max(x + 3, 0), 6) / 6, elementwise: silu in straight lines.

    Source: Howard et al., "Searching for MobileNetV3", 2019; `torch.nn.functional.hardswish`.
    """
    return where(x <= -3, 0, where(x >= 3, x, x * (x + 3) * (1 / 6)))


@hardswish.gradient
def hardswish_grad(dy, x):
    return where(x <= -3, 0, where(x >= 3, dy, dy * (x * (1 / 3) + 0.5)))


@pointwise(accepts="f", amp="gray", nn="ELU")
def elu(x, alpha=1.0):
    """x where x > 0, else alpha (e^x - 1), elementwise.

    Source: Clevert, Unterthiner, Hochreiter, "Exponential Linear Units", 2016; `torch.nn.functional.elu`.
    """
    return where(x > 0, x, alpha * scalar.expm1(x))


@elu.gradient
def elu_grad(dy, x, alpha):
    return where(x <= 0, dy * (alpha * exp(x)), dy)


@pointwise(accepts="f", integers="float")
def logit(x, eps=None):
    """log(x / (1 - x)), elementwise; x is first kept within [eps, 1 - eps] if `eps` is given.

    Source: `torch.logit`.
    """
    if eps is not None:
        x = maximum(minimum(x, 1 - eps), eps)
    return scalar.log(x / (1 - x))


@logit.gradient
def logit_grad(dy, x, eps):
    slope = dy / (x * (1 - x))
    return slope if eps is None else where((x < eps) | (x > 1 - eps), 0, slope)
