"""Activation kernels: one compiled loop each, with vectorized transcendentals in float32."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numba import prange

from miniflow.backends.cpu.loops import loop
from miniflow.backends.cpu.transcendental import erf as erf_of
from miniflow.backends.cpu.transcendental import exp, exp_nonpositive, log1p_unit, tanh
from miniflow.backends.registry import register, register_into

SQRT_HALF = 0.5**0.5
TWO_OVER_SQRT_PI = 2 / np.pi**0.5
SQRT_TWO_OVER_PI = (2 / np.pi) ** 0.5
ONE_OVER_SQRT_TWO_PI = 1 / (2 * np.pi) ** 0.5
CUBIC = 0.044715  # Hendrycks and Gimpel 2016
RELU_LOOP_FROM = 4096  # elements; below, one call of NumPy costs less than the compiled loop around it


def run(
    kernel: Callable,
    first: np.ndarray,
    *rest: np.ndarray,
    numbers: tuple[float, ...] = (),
    out: np.ndarray | None = None,
) -> np.ndarray:
    """Run a loop `kernel(*flat arrays, flat output, *numbers)`; the numbers are cast to the arrays' dtype.

    `out` must not be one of the inputs: where memory overlaps, compiled loops go element by element.
    """
    if out is None:
        out = np.empty(first.shape, first.dtype)
    flat = [np.ascontiguousarray(x).reshape(-1) for x in (first, *rest)]
    kernel(*flat, out.reshape(-1), *[first.dtype.type(number) for number in numbers])
    return out


@loop()
def relu_loop(x, y):
    zero = x.dtype.type(0)
    for i in prange(x.size):
        y[i] = zero if x[i] <= zero else x[i]


@loop()
def relu_grad_loop(dy, y, dx):
    zero = y.dtype.type(0)
    for i in prange(y.size):
        dx[i] = zero if y[i] <= zero else dy[i]


@loop()
def sigmoid_loop(x, y):
    one = x.dtype.type(1)
    for i in prange(x.size):
        y[i] = one / (one + exp(-x[i]))


@loop()
def sigmoid_grad_loop(dy, y, dx):
    one = y.dtype.type(1)
    for i in prange(y.size):
        dx[i] = dy[i] * y[i] * (one - y[i])


@loop()
def erf_loop(x, y):
    for i in prange(x.size):
        y[i] = erf_of(x[i])


@loop()
def erf_grad_loop(dy, x, dx):
    scale = x.dtype.type(TWO_OVER_SQRT_PI)
    for i in prange(x.size):
        dx[i] = dy[i] * scale * exp(-x[i] * x[i])


@loop()
def gelu_loop(x, y):
    half, one, scale = x.dtype.type(0.5), x.dtype.type(1), x.dtype.type(SQRT_HALF)
    for i in prange(x.size):
        y[i] = half * x[i] * (one + erf_of(scale * x[i]))


@loop()
def gelu_grad_loop(dy, x, dx):
    half, one, scale = x.dtype.type(0.5), x.dtype.type(1), x.dtype.type(SQRT_HALF)
    density = x.dtype.type(ONE_OVER_SQRT_TWO_PI)
    for i in prange(x.size):
        cdf = half * (one + erf_of(scale * x[i]))
        dx[i] = dy[i] * (cdf + x[i] * density * exp(-half * x[i] * x[i]))


@loop()
def gelu_tanh_loop(x, y):
    half, one = x.dtype.type(0.5), x.dtype.type(1)
    scale, cubic = x.dtype.type(SQRT_TWO_OVER_PI), x.dtype.type(CUBIC)
    for i in prange(x.size):
        v = x[i]
        y[i] = half * v * (one + tanh(scale * (v + cubic * v * v * v)))


@loop()
def gelu_tanh_grad_loop(dy, x, dx):
    half, one = x.dtype.type(0.5), x.dtype.type(1)
    scale, cubic, slope = x.dtype.type(SQRT_TWO_OVER_PI), x.dtype.type(CUBIC), x.dtype.type(3 * CUBIC)
    for i in prange(x.size):
        v = x[i]
        t = tanh(scale * (v + cubic * v * v * v))
        dx[i] = dy[i] * half * ((one + t) + v * (one - t * t) * scale * (one + slope * v * v))


@loop()
def silu_loop(x, y):
    one = x.dtype.type(1)
    for i in prange(x.size):
        y[i] = x[i] / (one + exp(-x[i]))


@loop()
def silu_grad_loop(dy, x, dx):
    one = x.dtype.type(1)
    for i in prange(x.size):
        s = one / (one + exp(-x[i]))
        dx[i] = dy[i] * s * (one + x[i] * (one - s))


@loop()
def softplus_loop(x, y, beta, threshold):
    zero = x.dtype.type(0)
    for i in prange(x.size):
        z = beta * x[i]
        size = -z if z < zero else z
        smooth = ((zero if z < zero else z) + log1p_unit(exp_nonpositive(-size))) / beta
        y[i] = x[i] if z > threshold else smooth


@loop()
def softplus_grad_loop(dy, x, dx, beta, threshold):
    one = x.dtype.type(1)
    for i in prange(x.size):
        z = beta * x[i]
        smooth = dy[i] / (one + exp(-z))
        dx[i] = dy[i] if z > threshold else smooth


@register("cpu", "Relu", half="native")
def relu(x: np.ndarray) -> np.ndarray:
    if x.size < RELU_LOOP_FROM or x.dtype.char not in "fd":
        return np.maximum(x, x.dtype.type(0))
    return run(relu_loop, x)


@register_into("cpu", "Relu", half="native")
def relu_into(y: np.ndarray, x: np.ndarray) -> None:
    if x.size < RELU_LOOP_FROM or x.dtype.char not in "fd":
        np.maximum(x, x.dtype.type(0), out=y)
    else:
        run(relu_loop, x, out=y)


@register("cpu", "ReluGrad")
def relu_grad(dy: np.ndarray, y: np.ndarray) -> np.ndarray:
    return run(relu_grad_loop, dy, y)


@register("cpu", "Sigmoid")
def sigmoid(x: np.ndarray) -> np.ndarray:
    return run(sigmoid_loop, x)


@register("cpu", "SigmoidGrad")
def sigmoid_grad(dy: np.ndarray, y: np.ndarray) -> np.ndarray:
    return run(sigmoid_grad_loop, dy, y)


@register("cpu", "Erf")
def erf(x: np.ndarray) -> np.ndarray:
    return run(erf_loop, x)


@register("cpu", "ErfGrad")
def erf_grad(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
    return run(erf_grad_loop, dy, x)


@register("cpu", "Gelu")
def gelu(x: np.ndarray, *, approximate: str) -> np.ndarray:
    return run(gelu_tanh_loop if approximate == "tanh" else gelu_loop, x)


@register("cpu", "GeluGrad")
def gelu_grad(dy: np.ndarray, x: np.ndarray, *, approximate: str) -> np.ndarray:
    return run(gelu_tanh_grad_loop if approximate == "tanh" else gelu_grad_loop, dy, x)


@register("cpu", "Silu")
def silu(x: np.ndarray) -> np.ndarray:
    return run(silu_loop, x)


@register("cpu", "SiluGrad")
def silu_grad(dy: np.ndarray, x: np.ndarray) -> np.ndarray:
    return run(silu_grad_loop, dy, x)


@register("cpu", "Softplus")
def softplus(x: np.ndarray, *, beta: float, threshold: float) -> np.ndarray:
    return run(softplus_loop, x, numbers=(beta, threshold))


@register("cpu", "SoftplusGrad")
def softplus_grad(dy: np.ndarray, x: np.ndarray, *, beta: float, threshold: float) -> np.ndarray:
    return run(softplus_grad_loop, dy, x, numbers=(beta, threshold))


def _into(kernel: Callable) -> Callable:
    def into(out, *arrays):
        run(kernel, *arrays, out=out)

    into.__name__ = kernel.__name__.replace("_loop", "_into").replace("_rows", "_into")
    return into


for _name, _loop in {
    "ReluGrad": relu_grad_loop,
    "Sigmoid": sigmoid_loop,
    "SigmoidGrad": sigmoid_grad_loop,
    "Erf": erf_loop,
    "ErfGrad": erf_grad_loop,
    "Silu": silu_loop,
    "SiluGrad": silu_grad_loop,
}.items():
    register_into("cpu", _name)(_into(_loop))


@register_into("cpu", "Gelu")
def gelu_into(y: np.ndarray, x: np.ndarray, *, approximate: str) -> None:
    run(gelu_tanh_loop if approximate == "tanh" else gelu_loop, x, out=y)


@register_into("cpu", "GeluGrad")
def gelu_grad_into(dx: np.ndarray, dy: np.ndarray, x: np.ndarray, *, approximate: str) -> None:
    run(gelu_tanh_grad_loop if approximate == "tanh" else gelu_grad_loop, dy, x, out=dx)


@register_into("cpu", "Softplus")
def softplus_into(y: np.ndarray, x: np.ndarray, *, beta: float, threshold: float) -> None:
    run(softplus_loop, x, numbers=(beta, threshold), out=y)


@register_into("cpu", "SoftplusGrad")
def softplus_grad_into(dx: np.ndarray, dy: np.ndarray, x: np.ndarray, *, beta: float, threshold: float) -> None:
    run(softplus_grad_loop, dy, x, numbers=(beta, threshold), out=dx)
