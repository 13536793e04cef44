"""Activations and their gradients: the scalar functions, which `pointwise` makes kernels of.

Index picture: see `pointwise`; thread i owns element i of the result. A forward pass reads one element and writes one,
a gradient reads two (the cotangent and what was saved) and writes one. Constants are made in the type of an operand;
see `elementwise`.
"""

from __future__ import annotations

import math

from miniflow.hostcuda import cuda

SQRT_HALF = 0.5**0.5
TWO_OVER_SQRT_PI = 2 / math.pi**0.5
SQRT_TWO_OVER_PI = (2 / math.pi) ** 0.5
ONE_OVER_SQRT_TWO_PI = 1 / (2 * math.pi) ** 0.5
CUBIC = 0.044715  # Hendrycks and Gimpel 2016

device = cuda.jit(device=True)


@device
def relu(x):
    """max(x, 0); NaN stays NaN."""
    return type(x)(0) if x <= 0 else x


@device
def relu_grad(dy, y):
    """dy where y > 0, else 0; dy where y is NaN."""
    return type(dy)(0) if y <= 0 else dy


@device
def sigmoid(x):
    """1 / (1 + e^-x)"""
    one = type(x)(1)
    return one / (one + math.exp(-x))


@device
def sigmoid_grad(dy, y):
    """dy y (1 - y)"""
    return dy * y * (type(y)(1) - y)


@device
def erf(x):
    """2 / sqrt(pi) * integral from 0 to x of exp(-t^2) dt"""
    return math.erf(x)


@device
def erf_grad(dy, x):
    """dy * 2 / sqrt(pi) * exp(-x^2)"""
    return dy * type(x)(TWO_OVER_SQRT_PI) * math.exp(-x * x)


@device
def gelu(x):
    """x Phi(x) with Phi(x) = (1 + erf(x / sqrt 2)) / 2, the normal distribution function."""
    half, one, scale = type(x)(0.5), type(x)(1), type(x)(SQRT_HALF)
    return half * x * (one + math.erf(scale * x))


@device
def gelu_grad(dy, x):
    """dy (Phi(x) + x Phi'(x)) with Phi'(x) = exp(-x^2 / 2) / sqrt(2 pi)."""
    half, one, scale = type(x)(0.5), type(x)(1), type(x)(SQRT_HALF)
    distribution = half * (one + math.erf(scale * x))
    density = type(x)(ONE_OVER_SQRT_TWO_PI) * math.exp(-half * x * x)
    return dy * (distribution + x * density)


@device
def gelu_tanh(x):
    """x (1 + tanh(u)) / 2 with u = sqrt(2 / pi) (x + 0.044715 x^3)."""
    half, one, scale, cubic = type(x)(0.5), type(x)(1), type(x)(SQRT_TWO_OVER_PI), type(x)(CUBIC)
    return half * x * (one + math.tanh(scale * (x + cubic * x * x * x)))


@device
def gelu_tanh_grad(dy, x):
    """dy ((1 + t) + x (1 - t^2) u') / 2 with t = tanh(u), u' = sqrt(2 / pi) (1 + 3 * 0.044715 x^2)."""
    half, one, scale, cubic = type(x)(0.5), type(x)(1), type(x)(SQRT_TWO_OVER_PI), type(x)(CUBIC)
    t = math.tanh(scale * (x + cubic * x * x * x))
    slope = scale * (one + type(x)(3 * CUBIC) * x * x)
    return dy * half * ((one + t) + x * (one - t * t) * slope)


@device
def silu(x):
    """x / (1 + e^-x)"""
    return x / (type(x)(1) + math.exp(-x))


@device
def silu_grad(dy, x):
    """dy s (1 + x (1 - s)) with s = 1 / (1 + e^-x)."""
    one = type(x)(1)
    s = one / (one + math.exp(-x))
    return dy * s * (one + x * (one - s))


@device
def softplus(x, beta, threshold):
    """log(1 + e^z) / beta with z = beta x, as (max(z, 0) + log(1 + e^-|z|)) / beta, and x where z > threshold."""
    z = beta * x
    smooth = (max(z, type(x)(0)) + math.log1p(math.exp(-abs(z)))) / beta
    return x if z > threshold else smooth


@device
def softplus_grad(dy, x, beta, threshold):
    """dy / (1 + e^-z) with z = beta x, and dy where z > threshold."""
    z = beta * x
    return dy if z > threshold else dy / (type(x)(1) + math.exp(-z))
