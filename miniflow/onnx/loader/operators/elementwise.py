"""Operators of each element: arithmetic, comparison, logic, activations."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from math import prod

import miniflow as flow
import miniflow.nn.functional as F
from miniflow.onnx.loader.registry import Array, Number, choice, operator
from miniflow.tensor import Tensor

SHIFTS = {"LEFT": flow.bitwise_left_shift, "RIGHT": flow.bitwise_right_shift}
FUNCTIONS = {
    "Add": flow.add, "Sub": flow.sub, "Mul": flow.mul, "Neg": flow.neg, "Abs": flow.abs, "Sign": flow.sign,
    "Reciprocal": flow.reciprocal, "Exp": flow.exp, "Log": flow.log, "Sqrt": flow.sqrt, "Erf": flow.erf,
    "Ceil": flow.ceil, "Floor": flow.floor, "Round": flow.round,
    "Sin": flow.sin, "Cos": flow.cos, "Tan": flow.tan, "Asin": flow.asin, "Acos": flow.acos, "Atan": flow.atan,
    "Sinh": flow.sinh, "Cosh": flow.cosh, "Asinh": flow.asinh, "Acosh": flow.acosh, "Atanh": flow.atanh,
    "Equal": flow.eq, "Less": flow.lt, "LessOrEqual": flow.le, "Greater": flow.gt, "GreaterOrEqual": flow.ge,
    "And": flow.logical_and, "Or": flow.logical_or, "Xor": flow.logical_xor, "Not": flow.logical_not,
    "BitwiseAnd": flow.bitwise_and, "BitwiseOr": flow.bitwise_or, "BitwiseXor": flow.bitwise_xor,
    "BitwiseNot": flow.bitwise_not, "IsNaN": flow.isnan, "Where": flow.where,
    "Sum": lambda *inputs: reduce(flow.add, inputs),
    "Mean": lambda *inputs: reduce(flow.add, inputs) / len(inputs),
    "Max": lambda *inputs: reduce(flow.maximum, inputs),
    "Min": lambda *inputs: reduce(flow.minimum, inputs),
    "Div": lambda x, y: flow.div(x, y, rounding_mode=None if x.is_floating_point() else "trunc"),
    "Mod": lambda x, y, *, fmod=0: flow.fmod(x, y) if fmod else flow.remainder(x, y),
    "BitShift": lambda x, y, *, direction: choice("direction", direction, SHIFTS)(x, y),
    "Relu": F.relu, "Sigmoid": F.sigmoid, "Tanh": F.tanh, "Softsign": F.softsign, "Mish": F.mish,
    "HardSwish": F.hardswish,
    "Softplus": lambda x: F.softplus(x),
    "Elu": lambda x, *, alpha=1.0: F.elu(x, alpha),
    "Celu": lambda x, *, alpha=1.0: F.celu(x, alpha),
    "Selu": lambda x, *, alpha=1.67326319217681884765625, gamma=1.05070102214813232421875: gamma * F.elu(x, alpha),
    "Gelu": lambda x, *, approximate="none": F.gelu(x, approximate),
    "Swish": lambda x, *, alpha=1.0: x * F.sigmoid(alpha * x),
    "LeakyRelu": lambda x, *, alpha=0.01: F.leaky_relu(x, alpha),
    "PRelu": lambda x, slope: flow.where(x < 0, slope * x, x),
    "HardSigmoid": lambda x, *, alpha=0.2, beta=0.5: flow.clamp(alpha * x + beta, 0, 1),
    "ThresholdedRelu": lambda x, *, alpha=1.0: F.threshold(x, alpha, 0.0),
    "Shrink": lambda x, *, bias=0.0, lambd=0.5: flow.where(x.abs() > lambd, x - bias * x.sign(), 0).to(x.dtype),
    "Det": flow.linalg.det,
    "Einsum": lambda *inputs, equation: flow.einsum(equation, *inputs),
}  # fmt: skip
for name, function in FUNCTIONS.items():
    operator(name)(function)


@operator("Pow")
def power(x, exponent: Number) -> Tensor:
    return flow.pow(x, exponent).to(x.dtype)


@operator("Clip")
def clip(input, min: Number = None, max: Number = None) -> Tensor:
    return input if min is max is None else flow.clamp(input, min, max)


@operator("IsInf")
def is_inf(x, *, detect_negative: int = 1, detect_positive: int = 1) -> Tensor:
    return flow.isneginf(x) & bool(detect_negative) | flow.isposinf(x) & bool(detect_positive)


@operator("Dropout")
def dropout(data, ratio: Array = 0.5, training_mode: Array = False) -> tuple[Tensor, Tensor]:
    """The random numbers are those of `flow.manual_seed`."""
    if not training_mode or not ratio:
        return data, flow.ones_like(data, dtype=flow.bool)
    kept = flow.rand_like(data) >= float(ratio)
    return data * kept / (1 - float(ratio)), kept


def hardmax(input: Tensor, dim: int) -> Tensor:
    """1 at the first maximum along a dim, 0 elsewhere."""
    return flow.zeros_like(input).scatter(dim, flow.argmax(input, dim, keepdim=True), 1.0)


def register_along_axis(name: str, function: Callable[[Tensor, int], Tensor]) -> None:
    """Register a function along a dim; before opset 13 it was along all dims from `axis` on, together."""

    @operator(name)
    def along_rest(input, *, axis: int = 1) -> Tensor:
        rows, columns = prod(input.shape[:axis]), prod(input.shape[axis:])
        return function(input.reshape(rows, columns), -1).reshape(input.shape)

    operator(name, since=13)(lambda input, *, axis=-1: function(input, axis))


for name, function in {"Softmax": flow.softmax, "LogSoftmax": flow.log_softmax, "Hardmax": hardmax}.items():
    register_along_axis(name, function)
