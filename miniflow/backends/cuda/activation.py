"""Activations and their gradients: each one flat kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from miniflow.backends.cuda.array import DeviceArray
from miniflow.backends.cuda.pointwise import apply
from miniflow.backends.registry import register
from miniflow.kernels import activation as kernels


def forward(function: Any) -> Callable[[DeviceArray], DeviceArray]:
    """The kernel of an activation without attributes."""
    return lambda x: apply(function, [x], x.dtype)


def gradient(function: Any) -> Callable[[DeviceArray, DeviceArray], DeviceArray]:
    """The kernel of its gradient, from the cotangent and what was saved."""
    return lambda dy, saved: apply(function, [dy, saved], saved.dtype)


for _name, _function in {
    "Relu": kernels.relu,
    "Sigmoid": kernels.sigmoid,
    "Erf": kernels.erf,
    "Silu": kernels.silu,
}.items():
    register("cuda", _name)(forward(_function))

for _name, _function in {
    "ReluGrad": kernels.relu_grad,
    "SigmoidGrad": kernels.sigmoid_grad,
    "ErfGrad": kernels.erf_grad,
    "SiluGrad": kernels.silu_grad,
}.items():
    register("cuda", _name)(gradient(_function))


@register("cuda", "Gelu")
def gelu(x: DeviceArray, *, approximate: str) -> DeviceArray:
    return apply(kernels.gelu_tanh if approximate == "tanh" else kernels.gelu, [x], x.dtype)


@register("cuda", "GeluGrad")
def gelu_grad(dy: DeviceArray, x: DeviceArray, *, approximate: str) -> DeviceArray:
    return apply(kernels.gelu_tanh_grad if approximate == "tanh" else kernels.gelu_grad, [dy, x], x.dtype)


@register("cuda", "Softplus")
def softplus(x: DeviceArray, *, beta: float, threshold: float) -> DeviceArray:
    return apply(kernels.softplus, [x], x.dtype, numbers(x.dtype, beta, threshold))


@register("cuda", "SoftplusGrad")
def softplus_grad(dy: DeviceArray, x: DeviceArray, *, beta: float, threshold: float) -> DeviceArray:
    return apply(kernels.softplus_grad, [dy, x], x.dtype, numbers(x.dtype, beta, threshold))


def numbers(dtype: np.dtype, *values: float) -> list[np.floating]:
    """Numbers in a dtype."""
    return [dtype.type(value) for value in values]
