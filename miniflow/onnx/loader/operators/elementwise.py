"""Operators of each element: arithmetic, comparison, logic, activations; and softmax."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from math import prod

import miniflow as flow
import miniflow.nn.functional as F
from miniflow.onnx.loader.body import Node
from miniflow.onnx.loader.registry import choice, operators
from miniflow.tensor import Tensor

SHIFTS = {"LEFT": flow.bitwise_left_shift, "RIGHT": flow.bitwise_right_shift}


def along_axis(function: Callable[[Tensor, int], Tensor]) -> Callable:
    """A function along a dim; before opset 13 it was along all dims from `axis` on, together."""

    def computed(input, *, axis: int, node: Node) -> Tensor:
        if node.opset >= 13:
            return function(input, axis)
        return function(flatten(input, axis), -1).reshape(input.shape)

    return computed


def flatten(x: Tensor, axis: int) -> Tensor:
    """The dims before an axis as one, and the others as one."""
    return x.reshape(prod(x.shape[:axis]), prod(x.shape[axis:]))


def hardmax(input: Tensor, dim: int) -> Tensor:
    """1 at the first maximum along a dim, 0 elsewhere."""
    return flow.zeros_like(input).scatter(dim, flow.argmax(input, dim, keepdim=True), 1.0)


def power(x: Tensor, exponent: float | Tensor) -> Tensor:
    """In the type of x; of integers to powers that are not, in float64."""
    fraction = exponent.is_floating_point() if isinstance(exponent, Tensor) else isinstance(exponent, float)
    return flow.pow(x.double() if fraction and not x.is_floating_point() else x, exponent).to(x.dtype)


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
    "Mod": lambda x, y, *, fmod: flow.fmod(x, y) if fmod else flow.remainder(x, y),
    "BitShift": lambda x, y, *, direction: choice("direction", direction, SHIFTS)(x, y),
    "Relu": F.relu, "Sigmoid": F.sigmoid, "Tanh": F.tanh, "Softsign": F.softsign, "Mish": F.mish,
    "HardSwish": F.hardswish,
    "Softplus": lambda x: F.softplus(x),
    "Elu": lambda x, *, alpha: F.elu(x, alpha),
    "Celu": lambda x, *, alpha: F.celu(x, alpha),
    "Selu": lambda x, *, alpha, gamma: gamma * F.elu(x, alpha),
    "Gelu": lambda x, *, approximate: F.gelu(x, approximate),
    "LeakyRelu": lambda x, *, alpha: F.leaky_relu(x, alpha),
    "PRelu": lambda x, slope: flow.where(x < 0, slope * x, x),
    "HardSigmoid": lambda x, *, alpha, beta: flow.clamp(alpha * x + beta, 0, 1),
    # not as the function of ONNX, in which -lambd is a large number of the unsigned types
    "Shrink": lambda x, *, lambd, bias: (
        flow.where(x < -lambd, x + bias, flow.where(x > lambd, x - bias, 0)).to(x.dtype)
    ),
    "ThresholdedRelu": lambda x, *, alpha: F.threshold(x, alpha, 0.0),
    "Clip": lambda x, min=None, max=None: x if min is max is None else flow.clamp(x, min, max),
    "Pow": power,
    "IsInf": lambda x, *, detect_negative, detect_positive: (
        flow.isneginf(x) & bool(detect_negative) | flow.isposinf(x) & bool(detect_positive)
    ),
    "Softmax": along_axis(flow.softmax), "LogSoftmax": along_axis(flow.log_softmax), "Hardmax": along_axis(hardmax),
    "Det": flow.linalg.det,
    "Einsum": lambda *inputs, equation: flow.einsum(equation, *inputs).to(inputs[0].dtype),
}  # fmt: skip
operators(FUNCTIONS, exponent="Number", min="Number", max="Number")
