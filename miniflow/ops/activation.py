"""Activation functions. See `pointwise` for how an operator is written."""

from __future__ import annotations

import math

import numpy as np

from miniflow.dispatch.call_errors import takes_tensors
from miniflow.errors import ArgumentError, ShapeError
from miniflow.formulas import scalar
from miniflow.formulas.scalar import exp, where
from miniflow.ops.arithmetic import abs
from miniflow.ops.comparison import maximum, minimum
from miniflow.ops.creation import empty_like
from miniflow.ops.joining import chunk
from miniflow.ops.pointwise import pointwise, public_function_of
from miniflow.ops.promotion import binary
from miniflow.ops.views import wrap_dim
from miniflow.tensor import Tensor


@pointwise(accepts="f", integers="float", amp="gray", nn="Sigmoid")
def sigmoid(x):
    """1 / (1 + exp(-x)), elementwise. Integers are computed in the default floating dtype.

    >>> import miniflow as flow
    >>> flow.sigmoid(flow.tensor(0.0)).item()
    0.5

    Source: `torch.sigmoid`.
    """
    return 1 / (1 + scalar.exp(-x))


sigmoid.gradient(lambda dy, out: dy * out * (1 - out))


@pointwise(cpu=np.tanh, accepts="f", integers="float", amp="gray", nn="Tanh")
def tanh(x):
    """The hyperbolic tangent, elementwise. `torch.tanh`."""
    return scalar.tanh(x)


tanh.gradient(lambda dy, out: dy * (1 - out * out))


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


relu.gradient(lambda dy, out: where(out <= 0, 0, dy))


Relu, ReluGrad = relu.op, relu.op.gradients["x"].op  # op classes, for passes over graphs


SQRT_TWO_OVER_PI = math.sqrt(2 / math.pi)
CUBIC = 0.044715


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


hardshrink.gradient(lambda dy, x, lambd: where(abs(x) > lambd, dy, 0))


@pointwise(accepts="f", amp="gray", nn="LeakyReLU")
def leaky_relu(x, negative_slope=0.01):
    """x where x > 0, else negative_slope * x, elementwise.

    Source: Maas, Hannun, Ng, "Rectifier Nonlinearities Improve Neural Network Acoustic Models", 2013;
    `torch.nn.functional.leaky_relu`.
    """
    return where(x > 0, x, negative_slope * x)


leaky_relu.gradient(lambda dy, x, negative_slope: where(x > 0, dy, negative_slope * dy))


@pointwise(accepts="f", amp="gray", nn="Hardswish")
def hardswish(x):
    """x min(max(x + 3, 0), 6) / 6, elementwise: silu in straight lines.

    Source: Howard et al., "Searching for MobileNetV3", 2019; `torch.nn.functional.hardswish`.
    """
    return where(x <= -3, 0, where(x >= 3, x, x * (x + 3) * (1 / 6)))


hardswish.gradient(lambda dy, x: where(x <= -3, 0, where(x >= 3, dy, dy * (x * (1 / 3) + 0.5))))


@pointwise(accepts="f", amp="gray", nn="ELU")
def elu(x, alpha=1.0):
    """x where x > 0, else alpha (e^x - 1), elementwise.

    Source: Clevert, Unterthiner, Hochreiter, "Exponential Linear Units", 2016; `torch.nn.functional.elu`.
    """
    return where(x > 0, x, alpha * scalar.expm1(x))


elu.gradient(lambda dy, x, alpha: where(x <= 0, dy * (alpha * exp(x)), dy))


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
    if eps is None:
        return slope * where((x < 0) | (x > 1), math.nan, 1)
    return where((x < eps) | (x > 1 - eps), 0, slope)


@pointwise(accepts="fi", amp="clear", nn="Hardtanh")
def hardtanh(x, min_val=-1.0, max_val=1.0):
    """x kept within [min_val, max_val], elementwise; the gradient at both ends is 0. `torch.nn.functional.hardtanh`."""
    return where(x <= min_val, min_val, where(x >= max_val, max_val, x))


hardtanh.gradient(lambda dy, x, min_val, max_val: where((x > min_val) & (x < max_val), dy, 0))


@pointwise(accepts="fi", amp="clear", nn="ReLU6")
def relu6(x):
    """min(max(x, 0), 6), elementwise.

    Source: Howard et al., "MobileNets", 2017; `torch.nn.functional.relu6`.
    """
    return where(x <= 0, 0, where(x >= 6, 6, x))


relu6.gradient(lambda dy, out: where((out > 0) & (out < 6), dy, 0))


@pointwise(accepts="f", amp="gray", nn="Hardsigmoid")
def hardsigmoid(x):
    """min(max(x + 3, 0), 6) / 6, elementwise: sigmoid in straight lines. `torch.nn.functional.hardsigmoid`."""
    return where(x <= -3, 0, where(x >= 3, 1, (x + 3) * (1 / 6)))


hardsigmoid.gradient(lambda dy, out: where((out > 0) & (out < 1), dy * (1 / 6), 0))


@pointwise(accepts="f", amp="gray", nn="CELU")
def celu(x, alpha=1.0):
    """x where x > 0, else alpha (e^(x / alpha) - 1), elementwise: its slope is 1 at 0 for every alpha.

    Source: Barron, "Continuously Differentiable Exponential Linear Units", 2017; `torch.nn.functional.celu`.
    """
    return where(x > 0, x, alpha * scalar.expm1(x / alpha))


celu.gradient(lambda dy, x, alpha: where(x <= 0, dy * exp(x / alpha), dy))


SELU_SCALE, SELU_ALPHA = 1.0507009873554805, 1.6732632423543772


@pointwise(accepts="f", amp="gray", nn="SELU")
def selu(x):
    """1.0507 (x where x > 0, else 1.6733 (e^x - 1)), elementwise: it keeps mean 0 and variance 1.

    Source: Klambauer et al., "Self-Normalizing Neural Networks", 2017; `torch.nn.functional.selu`.
    """
    return SELU_SCALE * where(x > 0, x, SELU_ALPHA * scalar.expm1(x))


selu.gradient(lambda dy, x: dy * SELU_SCALE * where(x <= 0, SELU_ALPHA * exp(x), 1))


@pointwise(accepts="f", amp="gray", nn="Mish")
def mish(x):
    """x tanh(softplus(x)), elementwise.

    Source: Misra, "Mish: A Self Regularized Non-Monotonic Activation Function", 2019; `torch.nn.functional.mish`.
    """
    return x * scalar.tanh(softplus(x))


@mish.gradient
def mish_grad(dy, x):
    t = scalar.tanh(softplus(x))
    return dy * (t + x * (1 - t * t) * sigmoid(x))


@pointwise(accepts="f", amp="gray", nn="LogSigmoid")
def logsigmoid(x):
    """log(sigmoid(x)), elementwise, without overflow. `torch.nn.functional.logsigmoid`."""
    return minimum(x, 0) - scalar.log1p(exp(-abs(x)))


logsigmoid.gradient(lambda dy, x: dy * sigmoid(-x))


@pointwise(accepts="f", integers="float", amp="gray", nn="Softsign")
def softsign(x):
    """x / (1 + |x|), elementwise. `torch.nn.functional.softsign`."""
    return x / (1 + abs(x))


softsign.gradient(lambda dy, x: dy / ((1 + abs(x)) * (1 + abs(x))))


@pointwise(accepts="f", integers="float", amp="gray", nn="Tanhshrink")
def tanhshrink(x):
    """x - tanh x, elementwise. `torch.nn.functional.tanhshrink`."""
    return x - scalar.tanh(x)


@tanhshrink.gradient
def tanhshrink_grad(dy, x):
    t = scalar.tanh(x)
    return dy * t * t


@pointwise(accepts="f", amp="clear", nn="Softshrink")
def softshrink(x, lambd=0.5):
    """x moved by `lambd` towards 0, and 0 where |x| <= lambd, elementwise. `torch.nn.functional.softshrink`."""
    return where(x > lambd, x - lambd, where(x < -lambd, x + lambd, x * 0))


softshrink.gradient(lambda dy, x, lambd: where(abs(x) > lambd, dy, 0))


@pointwise(accepts="fi", amp="clear", nn="Threshold")
def threshold(x, threshold=0.0, value=0.0):
    """x where x > threshold, else `value`, elementwise. `torch.nn.functional.threshold`."""
    return where(x <= threshold, value, x)


threshold.gradient(lambda dy, x, threshold: where(x <= threshold, 0, dy))


@pointwise(accepts="f", amp="gray", in_place=False)
def prelu(x, weight):
    """x where x > 0, else weight * x"""
    return where(x > 0, x, weight * x)


prelu.gradient("x")(lambda dy, x, weight: where(x > 0, dy, weight * dy))
prelu.gradient("weight")(lambda dy, x: where(x > 0, 0, dy * x))


@public_function_of(prelu)
def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """x where x > 0, else weight * x: `leaky_relu` whose slope is learned.

    Args:
        input: [N, C, ...], or of any shape.
        weight: [1], or [C] with a slope for each channel.

    Raises:
        ShapeError: for another number of slopes.

    Source: He et al., "Delving Deep into Rectifiers", 2015; `torch.nn.functional.prelu`.
    """
    channels = input.shape[1] if input.ndim > 1 else 1
    if weight.ndim > 1 or weight.numel() not in (1, channels):
        raise ShapeError(f"prelu: got a weight {tuple(weight.shape)}; expected one slope, or {channels}: [C]")
    shape = [1, weight.numel(), *[1] * (input.ndim - 2)] if input.ndim > 1 else [1] * input.ndim
    return binary(prelu.op, input, weight.reshape(shape))


@takes_tensors
def glu(input: Tensor, dim: int = -1) -> Tensor:
    """The first half along `dim`, times the sigmoid of the second.

    Raises:
        ShapeError: if the size of the dim is odd, or there is no dim.
        DimError: for a dim that does not exist.

    Source: Dauphin et al., "Language Modeling with Gated Convolutional Networks", 2017; `torch.nn.functional.glu`.
    """
    dim = wrap_dim("glu", dim, input.ndim)
    if not input.ndim or input.shape[dim] % 2:
        raise ShapeError(f"glu: got shape {tuple(input.shape)} and dim {dim}; expected an even size of that dim")
    values, gates = chunk(input, 2, dim)
    return values * sigmoid(gates)


def rrelu(
    input: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, inplace: bool = False
) -> Tensor:
    """`leaky_relu` with a random slope in [lower, upper] for each element in training, else with the mean of both.

    Source: Xu et al., "Empirical Evaluation of Rectified Activations", 2015; `torch.nn.functional.rrelu`.
    """
    slope = empty_like(input).uniform_(lower, upper) if training else (lower + upper) / 2
    result = where(input > 0, input, slope * input)
    return input.copy_(result) if inplace else result
