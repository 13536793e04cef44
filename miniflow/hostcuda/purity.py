"""Which expressions may be computed elsewhere, or again: those that read no memory and have no effect."""

from __future__ import annotations

import ast

from miniflow.hostcuda.signs import CASTS, dotted, is_metadata

CHEAP = {*CASTS, "min", "max", "abs", "bool", "len", "popc", "clz", "ffs", "selp", "float"}
PURE = CHEAP | {
    "complex", "range", "round", "pow", "brev", "fma", "cbrt", "rsqrt", "fmod", "modf", "remainder", "selected",
    "exp", "log", "erf", "tanh",
}  # fmt: skip
MODULES = {"np", "math", "types"}
MOST_NODES = 60


def is_pure_node(node: ast.AST, tuples: set[str]) -> bool:
    """Whether a part of an expression has no effect, and its value depends on that of its own parts alone."""
    if isinstance(node, ast.Call):
        function = dotted(node.func)
        return function in PURE or function.startswith(("math.", "np.", "types."))
    if not isinstance(node, ast.Subscript | ast.Attribute) or is_metadata(node):
        return True
    if isinstance(node, ast.Subscript):
        return dotted(node.value) in tuples
    return node.attr in ("real", "imag") or dotted(node.value) in MODULES | tuples


def is_pure(node: ast.AST, tuples: set[str]) -> bool:
    """Whether an expression reads no memory and has no effect; elements of `tuples` are no memory."""
    return all(is_pure_node(n, tuples) for n in ast.walk(node))


def is_repeatable(node: ast.expr, tuples: set[str]) -> bool:
    """Whether an expression is pure, and computing it again costs less than keeping its value."""
    nodes = list(ast.walk(node))
    cheap = all(dotted(n.func) in CHEAP for n in nodes if isinstance(n, ast.Call))
    return cheap and len(nodes) <= MOST_NODES and is_pure(node, tuples)
