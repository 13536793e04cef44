"""Operators of one element: some are an operator of ONNX, the others are written out by their formulas."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from onnx import defs

from miniflow import scalar
from miniflow.errors import OnnxError
from miniflow.onnx.exporter.registry import handler
from miniflow.onnx.exporter.writer import Value, Writer, onnx_type
from miniflow.scalar import FORMULAS, Expr, expression, is_number, key_of, where

BOOL = np.dtype(np.bool_)
# functions of formulas whose operators have other names in ONNX
NAMES = {
    "eq": "Equal", "lt": "Less", "gt": "Greater", "power": "Pow", "remainder": "Mod", "isnan": "IsNaN",
    "bitwise_and": "BitwiseAnd", "bitwise_or": "BitwiseOr", "bitwise_xor": "BitwiseXor", "bitwise_not": "BitwiseNot",
    "logical_not": "Not",
}  # fmt: skip
OF_BOOLS = {f"bitwise_{name}": name.capitalize() for name in ("and", "or", "xor", "not")}
IS_NAN = scalar.Function("isnan", "", np.isnan, predicate=True)
# functions that ONNX does not have, or not for the dtype, by others
SPELLED = {
    "eq": lambda x, y: ~((x < y) | (x > y) | IS_NAN(x + y)),
    "ne": lambda x, y: ~(x == y),
    "le": lambda x, y: (x < y) | (x == y),
    "ge": lambda x, y: (x > y) | (x == y),
    "expm1": lambda x: scalar.tanh(x * 0.5) * (scalar.exp(x) + 1),
    "log1p": lambda x: where(scalar.abs(x) < 0.5, scalar.atanh(x / (x + 2)) * 2, scalar.log(x + 1)),
    "log2": lambda x: scalar.log(x) * (1 / math.log(2)),
    "log10": lambda x: scalar.log(x) * (1 / math.log(10)),
    "erfc": lambda x: 1 - scalar.erf(x),
    "hypot": lambda x, y: scalar.sqrt(x * x + y * y),
    "atan2": lambda y, x: scalar.copysign(
        scalar.atan(scalar.abs(where((x == 0) & (y == 0), 0, y / x)) * where(x < 0, -1, 1))
        + where(scalar.signbit(x), math.pi, 0),
        y,
    ),
    "copysign": lambda x, y: where(scalar.signbit(y), -scalar.abs(x), scalar.abs(x)),
    "signbit": lambda x: (x < 0) | (1 / x < 0),
    "floor": lambda x: x,
    "ceil": lambda x: x,
    "trunc": lambda x: where(x < 0, scalar.ceil(x), scalar.floor(x)),
    "trunc_divide": lambda x, y: scalar.trunc(x / y),
    "floor_divide": lambda x, y: scalar.floor(x / y),
    "remainder": lambda x, y: x - scalar.floor(x / y) * y,
    "fmod": lambda x, y: x - scalar.trunc(x / y) * y,
}
SPELLED_OF_INTEGERS = SPELLED | {
    "signbit": lambda x: x < 0,
    "trunc": lambda x: x,
    "remainder": lambda x, y: scalar.fmod(scalar.fmod(x, y) + y, y),
    "floor_divide": lambda x, y: (x - scalar.remainder(x, y)) / y,
}
SPELLED_OF_BOOLS = SPELLED | {
    "add": lambda x, y: x | y,
    "mul": lambda x, y: x & y,
    "lt": lambda x, y: ~x & y,
    "gt": lambda x, y: x & ~y,
}


def takes(g: Writer, op: str, dtype: np.dtype) -> bool:
    """Whether the opset has an operator for a dtype."""
    name = {"float32": "float", "float64": "double"}.get(dtype.name, dtype.name)
    return defs.has(op, g.opset) and f"tensor({name})" in defs.get_schema(op, g.opset).inputs[-1].types


def formula(g: Writer, name: str, *operands: Value | None, **attributes: Any) -> str:
    """A pointwise operator, as ONNX's operators for the functions of its formula."""
    given = dict(zip(FORMULAS[name].operands, operands, strict=True)) | attributes
    fixed = {key: x for key, x in given.items() if not isinstance(x, Value) and not is_number(x)}
    like = next(x for key, x in given.items() if isinstance(x, Value) and key not in FORMULAS[name].bools)
    found = expression(key_of(name, fixed))
    free = [x if isinstance(x, Value) else g.scalar(x, like) for key, x in given.items() if key not in fixed]
    return g.name(written(g, found.result, dict(zip(found.operands, free, strict=True)), like))


def written(g: Writer, x: Any, names: dict[Expr, Any], like: Value) -> Any:
    """The name of the value of an expression; those of its parts are put into `names`."""
    if not isinstance(x, Expr):
        return g.scalar(x, like)
    if x in names:
        return names[x]
    function = x.function.name
    dtype = BOOL if all(map(scalar.is_predicate, x.operands)) else like.dtype
    op = OF_BOOLS.get(function) if dtype == BOOL else None
    op = op or NAMES.get(function, function.capitalize())
    spelled = {"f": SPELLED, "V": SPELLED, "b": SPELLED_OF_BOOLS}.get(dtype.kind, SPELLED_OF_INTEGERS).get(function)
    if function == "where" and dtype == BOOL:  # which onnxruntime lacks
        condition, x1, x2 = x.operands
        names[x] = written(g, (condition & x1) | (~condition & x2), names, like)
    elif takes(g, op, dtype) and not (op == "Mod" and dtype.kind not in "iu"):
        names[x] = g(op, *[written(g, y, names, like) for y in x.operands])
    elif spelled:
        names[x] = written(g, spelled(*x.operands), names, like)
    else:
        raise OnnxError(f"opset {g.opset} has no {function} of {dtype}")
    return names[x]


for name in FORMULAS:
    handler(name)(lambda g, *operands, name=name, **attributes: formula(g, name, *operands, **attributes))


def direct(name: str, op: str, **names: str | float) -> None:
    """An operator that is one of ONNX, where the opset has that for the dtype; `names` are those of its attributes."""

    def write(g: Writer, *operands: Any, **attributes: Any) -> str:
        if not takes(g, op, next(x.dtype for x in operands if isinstance(x, Value))):
            return formula(g, name, *operands, **attributes)
        given = {theirs: attributes[ours] if isinstance(ours, str) else ours for theirs, ours in names.items()}
        return g(op, *operands, **{key: float(x) if is_number(x) else x for key, x in given.items()})

    handler(name)(write)


for op in "Relu Sigmoid Softsign Reciprocal Selu Sign IsNaN IsInf HardSwish Mish".split():
    direct(op.lower(), op)
for name, op in {"le": "LessOrEqual", "ge": "GreaterOrEqual", "maximum": "Max", "minimum": "Min"}.items():
    direct(name, op)
for op in ("And", "Or", "Xor", "Not"):
    direct(f"logical_{op.lower()}", op)
direct("elu", "Elu", alpha="alpha")
direct("celu", "Celu", alpha="alpha")
direct("leaky_relu", "LeakyRelu", alpha="negative_slope")
direct("prelu", "PRelu")
direct("hardshrink", "Shrink", lambd="lambd", bias=0.0)
direct("softshrink", "Shrink", lambd="lambd", bias="lambd")
direct("hardsigmoid", "HardSigmoid", alpha=1 / 6, beta=0.5)
direct("gelu", "Gelu", approximate="approximate")
handler("silu")(lambda g, x: g("Mul", x, g("Sigmoid", x)))


@handler("softplus")
def softplus(g: Writer, x: Value, *, beta: float, threshold: float) -> str:
    return g("Softplus", x) if beta == 1 else formula(g, "softplus", x, beta=beta, threshold=threshold)


@handler("clamp")
def clamp(g: Writer, x: Value, low: Value | None, high: Value | None) -> str:
    """Clip, whose bounds are attributes before opset 11."""
    bounds = {"min": low, "max": high}
    if any(b is not None and b.shape for b in bounds.values()) or not takes(g, "Clip", x.dtype):
        return formula(g, "clamp", x, low, high)
    if g.opset >= 11:
        return g("Clip", x, low, high)
    return g("Clip", x, **{key: float(np.asarray(b.arrays[0])) for key, b in bounds.items() if b is not None})


def clip(g: Writer, x: Value, *bounds: float) -> str:
    """`clamp` between numbers."""
    return clamp(g, x, *[Value((), x.dtype, arrays=(np.array(b, x.dtype),)) for b in bounds])


handler("relu6")(lambda g, x: clip(g, x, 0, 6))
handler("hardtanh")(lambda g, x, *, min_val, max_val: clip(g, x, min_val, max_val))


def cast(g: Writer, x: Value, dtype: Any) -> Any:
    """`x`, or its cast to another dtype."""
    return x if x.dtype == dtype else g("Cast", x, to=onnx_type(dtype))


handler("cast", "to_integer")(lambda g, x, *, dtype: cast(g, x, dtype))
