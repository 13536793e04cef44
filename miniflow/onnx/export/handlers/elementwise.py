"""Operators of one element: some are an operator of ONNX, the others are written out by their formulas."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from miniflow import scalar
from miniflow.errors import OnnxError
from miniflow.onnx.export.registry import handler
from miniflow.onnx.export.writer import Value, Writer, onnx_type
from miniflow.scalar import FORMULAS, Expr, expression, is_number, key_of, where

# functions of formulas -> operators of ONNX
FUNCTIONS = {
    "add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "neg": "Neg", "eq": "Equal", "lt": "Less", "gt": "Greater",
    "bitwise_and": "And", "bitwise_or": "Or", "bitwise_xor": "Xor", "bitwise_not": "Not", "logical_not": "Not",
    "where": "Where", "abs": "Abs", "sqrt": "Sqrt", "exp": "Exp", "log": "Log", "tanh": "Tanh", "erf": "Erf",
    "sin": "Sin", "cos": "Cos", "tan": "Tan", "asin": "Asin", "acos": "Acos", "atan": "Atan", "sinh": "Sinh",
    "cosh": "Cosh", "asinh": "Asinh", "acosh": "Acosh", "atanh": "Atanh", "power": "Pow", "floor": "Floor",
    "ceil": "Ceil", "round": "Round", "isnan": "IsNaN",
}  # fmt: skip
SINCE = {"Round": 11}  # the opsets of those that opset 9 does not have
BITWISE = {"And": "BitwiseAnd", "Or": "BitwiseOr", "Xor": "BitwiseXor", "Not": "BitwiseNot"}
OF_BOOLS = {"Add": "Or", "Mul": "And"}
NOT_OF_BOOLS = ("Sub", "Div")
COMPARISONS = ("Less", "Greater")
IS_NAN = scalar.Function("isnan", "", np.isnan, predicate=True)
# functions that ONNX does not have, by others
SPELLED = {
    "ne": lambda x, y: x ^ y if scalar.is_predicate(x) else ~(x == y),
    "le": lambda x, y: (x < y) | (x == y),
    "ge": lambda x, y: (x > y) | (x == y),
    "expm1": lambda x: scalar.tanh(x * 0.5) * (scalar.exp(x) + 1),
    "log1p": lambda x: where(scalar.abs(x) < 0.5, scalar.atanh(x / (x + 2)) * 2, scalar.log(x + 1)),
    "log2": lambda x: scalar.log(x) * (1 / math.log(2)),
    "log10": lambda x: scalar.log(x) * (1 / math.log(10)),
    "erfc": lambda x: 1 - scalar.erf(x),
    "hypot": lambda x, y: scalar.sqrt(x * x + y * y),
    "atan2": lambda y, x: where(
        (x == 0) & (y == 0), where(1 / x < 0, math.pi, 0.0), where(x < 0, math.pi, 0.0) + scalar.atan(scalar.abs(y) / x)
    ) * where(scalar.signbit(y), -1.0, 1.0),
    "copysign": lambda x, y: where(scalar.signbit(y), -scalar.abs(x), scalar.abs(x)),
    "signbit": lambda x: (x < 0) | (1 / x < 0),
    "trunc": lambda x: where(x < 0, scalar.ceil(x), scalar.floor(x)),
    "trunc_divide": lambda x, y: scalar.trunc(x / y),
    "floor_divide": lambda x, y: scalar.floor(x / y),
    "remainder": lambda x, y: x - scalar.floor(x / y) * y,
    "fmod": lambda x, y: x - scalar.trunc(x / y) * y,
}  # fmt: skip
WITHOUT_EQUAL = {"eq": lambda x, y: ~((x < y) | (x > y) | IS_NAN(x + y))}  # of floats, before opset 11
SPELLED_OF_BOOLS = {**SPELLED, "where": lambda condition, x, y: (condition & x) | (~condition & y)}
SPELLED_OF_INTEGERS = {
    **{name: formula for name, formula in SPELLED.items() if name != "remainder"},
    "signbit": lambda x: x < 0,
    "floor": lambda x: x,
    "ceil": lambda x: x,
    "trunc": lambda x: x,
    "trunc_divide": lambda x, y: x / y,
    "floor_divide": lambda x, y: (x - scalar.remainder(x, y)) / y,
    "fmod": lambda x, y: x - x / y * y,
}


def formula(g: Writer, name: str, *operands: Value | None, **attributes: Any) -> str:
    """A pointwise operator, as ONNX's operators for the functions of its formula."""
    given = dict(zip(FORMULAS[name].operands, operands, strict=True)) | attributes
    fixed = {key: x for key, x in given.items() if not isinstance(x, Value) and not is_number(x)}
    like = next(x for key, x in given.items() if isinstance(x, Value) and key not in FORMULAS[name].bools)
    found = expression(key_of(name, fixed))
    free = [x if isinstance(x, Value) else g.scalar(x, like) for key, x in given.items() if key not in fixed]
    y = written(g, found.result, dict(zip(found.operands, free, strict=True)), like)
    return y if isinstance(y, str) else g("Identity", y)


def written(g: Writer, x: Any, names: dict[Expr, Any], like: Value) -> Any:
    """The name of the value of an expression; those of its parts are put into `names`."""
    if not isinstance(x, Expr):
        return g.scalar(x, like)
    if x not in names:
        spelled = {"b": SPELLED_OF_BOOLS, "i": SPELLED_OF_INTEGERS, "u": SPELLED_OF_INTEGERS}.get(
            like.dtype.kind, SPELLED if g.opset >= 11 else SPELLED | WITHOUT_EQUAL
        )
        if x.function.name in spelled:
            names[x] = written(g, spelled[x.function.name](*x.operands), names, like)
        else:
            names[x] = node(g, x, [written(g, y, names, like) for y in x.operands], like)
    return names[x]


def node(g: Writer, x: Expr, operands: list[Any], like: Value) -> str:
    """The node of one function."""
    op = "Mod" if x.function.name == "remainder" else FUNCTIONS.get(x.function.name)
    kind = "b" if all(scalar.is_predicate(y) for y in x.operands) else like.dtype.kind
    if op in BITWISE and kind != "b":
        op = BITWISE[op]
    if kind == "b":
        op = OF_BOOLS.get(op, op)
        if op in COMPARISONS:
            operands = [g("Cast", y, to=onnx_type(np.int32)) for y in operands]
    needed = {**SINCE, "Mod": 10, **dict.fromkeys(BITWISE.values(), 18)}.get(op, 9)
    op = None if kind == "b" and op in NOT_OF_BOOLS else op
    if op is None or g.opset < needed:
        raise OnnxError(f"{x.function.name} of {like.dtype} " + (f"needs opset {needed}" if op else "is not in ONNX"))
    return g(op, *operands)


for name in FORMULAS:
    handler(name)(lambda g, *operands, name=name, **attributes: formula(g, name, *operands, **attributes))


def direct(name: str, op: str, since: int = 2, kinds: str = "fV", defaults: dict | None = None, **names: Any) -> None:
    """An operator that is one of ONNX from an opset on.

    Args:
        kinds: of dtypes; others are written out.
        defaults: of further attributes, which ONNX's operator does not have: with other values it is written out.
        names: ONNX's names of the attributes: miniflow's, or numbers.
    """

    def write(g: Writer, *operands: Any, **attributes: Any) -> str:
        kind = next(x.dtype.kind for x in operands if isinstance(x, Value))
        if kind not in kinds or any(attributes[key] != value for key, value in (defaults or {}).items()):
            return formula(g, name, *operands, **attributes)
        given = {theirs: attributes[ours] if isinstance(ours, str) else ours for theirs, ours in names.items()}
        return g(op, *operands, **{key: float(x) if key != "approximate" else x for key, x in given.items()})

    handler(name, since=since)(write)


for name in ("relu", "sigmoid", "softsign", "reciprocal", "selu", "abs", "neg"):
    direct(name, name.capitalize())
direct("abs", "Abs", 9, "iufV")
direct("sign", "Sign", 9, "iufV")
direct("isnan", "IsNaN", 9)
direct("isinf", "IsInf", 10)
direct("elu", "Elu", alpha="alpha")
direct("celu", "Celu", 12, alpha="alpha")
direct("leaky_relu", "LeakyRelu", alpha="negative_slope")
direct("prelu", "PRelu", 7)
direct("hardshrink", "Shrink", 9, lambd="lambd", bias=0.0)
direct("softshrink", "Shrink", 9, lambd="lambd", bias="lambd")
direct("softplus", "Softplus", defaults={"beta": 1.0})
direct("hardsigmoid", "HardSigmoid", alpha=1 / 6, beta=0.5)
direct("hardswish", "HardSwish", 14)
direct("mish", "Mish", 18)
handler("silu")(lambda g, x: g("Mul", x, g("Sigmoid", x)))
direct("gelu", "Gelu", 20, approximate="approximate")
direct("le", "LessOrEqual", 12, "iufV")
direct("ge", "GreaterOrEqual", 12, "iufV")
direct("maximum", "Max", 8)
direct("minimum", "Min", 8)
direct("maximum", "Max", 12, "iufV")
direct("minimum", "Min", 12, "iufV")
for name in ("logical_and", "logical_or", "logical_xor"):
    direct(name, name.split("_")[1].capitalize(), 7, "b")
direct("logical_not", "Not", 2, "b")


@handler("clamp")
def clamp(g: Writer, x: Value, low: Value | None, high: Value | None) -> str:
    bounds = [b for b in (low, high) if b is not None]
    if any(b.shape for b in bounds) or x.dtype.kind != "f" or g.opset < 11 and not all(b.arrays for b in bounds):
        for op, bound in (("maximum", low), ("minimum", high)):
            x = x if bound is None else formula(g, op, x, bound)
        return x
    if g.opset >= 11:
        return g("Clip", x, low, high)
    low, high = (None if b is None else float(np.asarray(b.arrays[0])) for b in (low, high))
    return g("Clip", x, min=low, max=high)


def clip(g: Writer, x: Value, low: float, high: float) -> str:
    """`clamp` between numbers."""
    return clamp(g, x, *[Value((), x.dtype, arrays=(np.array(b, x.dtype),)) for b in (low, high)])


handler("relu6")(lambda g, x: clip(g, x, 0, 6))
handler("hardtanh")(lambda g, x, *, min_val, max_val: clip(g, x, min_val, max_val))


@handler("cast", "to_integer")
def cast_to(g: Writer, x: Value, *, dtype: Any) -> str:
    return g("Cast", x, to=onnx_type(dtype))


def cast(g: Writer, x: Value, dtype: Any) -> Any:
    """`x`, or its cast to another dtype."""
    return x if x.dtype == dtype else g("Cast", x, to=onnx_type(dtype))
