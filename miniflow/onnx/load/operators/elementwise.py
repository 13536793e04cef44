"""Operators of one element, or of two that are broadcast."""

from __future__ import annotations

import miniflow.nn.functional as F
from miniflow.onnx.load.registry import operator
from miniflow.ops import elementwise as e

SAME = {  # operators that are a function of the same operands
    "Add": e.add, "Sub": e.sub, "Mul": e.mul, "Exp": e.exp, "Log": e.log, "Sqrt": e.sqrt, "Neg": e.neg,
    "Relu": F.relu,
}  # fmt: skip
for name, function in SAME.items():
    operator(name)(lambda *inputs, function=function: function(*inputs))
