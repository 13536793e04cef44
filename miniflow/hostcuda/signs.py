"""Which integer expressions are never negative: such an index needs no wrap-around test."""

from __future__ import annotations

import ast

from miniflow.hostcuda.syntax import COORDINATES

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "intp")
CASTS = ("int", *(f"{module}.{integer}" for module in ("np", "types") for integer in INTEGERS))
SIGN_PRESERVING_CASTS = tuple(c for c in CASTS if c.endswith(("int", "64", "intp")) or "uint" in c)
"""Casts that do not make a negative number of a large one."""
METADATA = ("shape", "strides", "size", "ndim", "itemsize", "nbytes")


def dotted(node: ast.expr) -> str:
    """ "math.exp" for that expression, "" for anything but names and dots."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        owner = dotted(node.value)
        return f"{owner}.{node.attr}" if owner else ""
    return ""


def is_metadata(node: ast.expr) -> bool:
    """`a.shape[0]`, `a.size` ...: known without looking into the array."""
    if isinstance(node, ast.Subscript):
        node = node.value
    return isinstance(node, ast.Attribute) and node.attr in METADATA


def is_natural(node: ast.expr, natural: set[str]) -> bool:
    """Whether an integer expression is never negative, given the variables that never are."""
    if isinstance(node, ast.Constant):
        return type(node.value) is int and node.value >= 0
    if isinstance(node, ast.Name):
        return node.id in COORDINATES or node.id in natural
    if isinstance(node, ast.BinOp):
        left, right = is_natural(node.left, natural), is_natural(node.right, natural)
        if isinstance(node.op, ast.Add | ast.Mult | ast.FloorDiv | ast.LShift | ast.RShift | ast.BitOr | ast.BitXor):
            return left and right
        if isinstance(node.op, ast.Mod):
            return right
        if isinstance(node.op, ast.BitAnd):
            return left or right
        return False
    if isinstance(node, ast.IfExp):
        return is_natural(node.body, natural) and is_natural(node.orelse, natural)
    if isinstance(node, ast.Call):
        function = dotted(node.func)
        if function == "min" or function in SIGN_PRESERVING_CASTS:
            return all(is_natural(a, natural) for a in node.args)
        if function == "max":
            return any(is_natural(a, natural) for a in node.args)
        return function in ("len", "popc", "clz", "ffs")
    return is_metadata(node)
