"""Operators of one element: some are an operator of ONNX, the others are written out by their formulas."""

from __future__ import annotations

import math

import numpy as np
from onnx import defs

from miniflow.errors import OnnxError
from miniflow.formulas import scalar
from miniflow.formulas.scalar import FORMULAS, Expr, expression, is_number, key_of, where
from miniflow.onnx.exporter.writer import Size, Value, Writer, handler

BOOL = np.dtype(np.bool_)
# functions of formulas whose operators have other names in ONNX
NAMES = {
    "eq": "Equal", "lt": "Less", "gt": "Greater", "le": "LessOrEqual", "ge": "GreaterOrEqual", "power": "Pow",
    "remainder": "Mod", "isnan": "IsNaN", "logical_not": "Not",
} | {f"bitwise_{name}": f"Bitwise{name.capitalize()}" for name in ("and", "or", "xor", "not")}  # fmt: skip
NAMES_OF_BOOLS = NAMES | {name: op.removeprefix("Bitwise") for name, op in NAMES.items()}
LACKING = (("Where", "b"), ("Mod", "f"), ("Mod", "V"))  # operators that onnxruntime does not have for a kind of dtype
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
    "where": lambda condition, x, y: (condition & x) | (~condition & y),
}
SPELLED_OF_KINDS = {"f": SPELLED, "V": SPELLED, "b": SPELLED_OF_BOOLS}
# operators that are one of ONNX, where the opset has that for the dtype, with what its attributes are in ours
DIRECT = {op.lower(): (op, {}) for op in "Relu Sigmoid Softsign Softplus Reciprocal Selu Sign IsInf HardSwish".split()}
DIRECT |= {f"logical_{op.lower()}": (op, {}) for op in ("And", "Or", "Xor", "Not")}
DIRECT |= {
    "mish": ("Mish", {}), "prelu": ("PRelu", {}), "maximum": ("Max", {}), "minimum": ("Min", {}),
    "elu": ("Elu", {"alpha": "alpha"}), "celu": ("Celu", {"alpha": "alpha"}),
    "leaky_relu": ("LeakyRelu", {"alpha": "negative_slope"}), "hardsigmoid": ("HardSigmoid", {"alpha": 1 / 6}),
    "hardshrink": ("Shrink", {"lambd": "lambd", "bias": 0.0}), "gelu": ("Gelu", {"approximate": "approximate"}),
    "softshrink": ("Shrink", {"lambd": "lambd", "bias": "lambd"}),
}  # fmt: skip


def takes(g: Writer, op: str, dtype: np.dtype) -> bool:
    """Whether the opset has an operator for a dtype."""
    name = {"float32": "float", "float64": "double"}.get(dtype.name, dtype.name)
    return defs.has(op, g.opset) and f"tensor({name})" in defs.get_schema(op, g.opset).inputs[-1].types


def pointwise(g: Writer, name: str, *operands: Value | None, **attributes) -> str:
    """A pointwise operator, as one of ONNX, or as those for the functions of its formula."""
    arguments = dict(zip(FORMULAS[name].operands, operands, strict=True)) | attributes
    values = [x for key, x in arguments.items() if isinstance(x, Value) and key not in FORMULAS[name].bools]
    like, (op, names) = (values or g.call.outputs)[0], DIRECT.get(name, ("", {}))
    if takes(g, op, like.dtype) and attributes.get("beta", 1) == 1:
        named = {theirs: attributes.get(ours, ours) for theirs, ours in names.items()}
        return g(op, *[g.scalar(x, like) for x in operands], **named)
    fixed = {key: x for key, x in arguments.items() if not isinstance(x, Value | Size) and not is_number(x)}
    formula = expression(key_of(name, fixed))
    free = [g.scalar(x, like) for key, x in arguments.items() if key not in fixed]
    return written(g, formula.result, dict(zip(formula.operands, free, strict=True)), like)


def written(g: Writer, x, names: dict, like: Value):
    """The name of the value of an expression; those of its parts are put into `names`."""
    if not isinstance(x, Expr):
        return g.scalar(x, like)
    if x in names:
        return names[x]
    function = x.function.name
    dtype = BOOL if all(map(scalar.is_predicate, x.operands)) else like.dtype
    op = (NAMES_OF_BOOLS if dtype == BOOL else NAMES).get(function, function.capitalize())
    spelled = SPELLED_OF_KINDS.get(dtype.kind, SPELLED_OF_INTEGERS).get(function)
    if takes(g, op, dtype) and (op, dtype.kind) not in LACKING:
        names[x] = g(op, *[written(g, y, names, like) for y in x.operands])
    elif spelled:
        names[x] = written(g, spelled(*x.operands), names, like)
    else:
        raise OnnxError(f"opset {g.opset} has no {function} of {dtype}")
    return names[x]


for name in FORMULAS:
    handler(name)(lambda g, *operands, name=name, **attributes: pointwise(g, name, *operands, **attributes))
handler("silu")(lambda g, x: g("Mul", x, g("Sigmoid", x)))
handler("relu6")(lambda g, x: clamp(g, x, 0, 6))
handler("hardtanh")(lambda g, x, *, min_val, max_val: clamp(g, x, min_val, max_val))
handler("cast", "to_integer")(lambda g, x, *, dtype: g("Cast", x, to=dtype))


@handler("clamp")
def clamp(g: Writer, x: Value, low, high) -> str:
    arrays = any(isinstance(b, Value) and (b.shape or g.opset < 11) for b in (low, high))
    one_sided = x.dtype.kind in "iu" and None in (low, high)  # of which onnxruntime's OpenVINO makes 0
    if arrays or one_sided or not takes(g, "Clip", x.dtype):
        return pointwise(g, "clamp", x, low, high)
    return g("Clip", x, min=g.scalar(low, x), max=g.scalar(high, x))
