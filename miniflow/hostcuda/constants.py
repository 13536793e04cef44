"""Locals of a kernel that stand for one thing known when compiling: `BLOCK = 32`, `add = cuda.atomic.add`.

A variable that is assigned once, to a constant, is that constant wherever it is read (constant propagation: Aho et al.,
"Compilers", section 9.4). numba decides in the same way whether `BLOCK` may be the shape of a shared array.
"""

from __future__ import annotations

import ast
from collections import ChainMap, Counter
from collections.abc import Mapping
from types import FunctionType, ModuleType
from typing import Any

from miniflow.hostcuda.intrinsic import Intrinsic
from miniflow.hostcuda.references import is_kernel
from miniflow.hostcuda.source import UNKNOWN, resolve
from miniflow.hostcuda.syntax import fill_empty

OPERATIONS = ast.BinOp | ast.UnaryOp | ast.operator | ast.unaryop
ARITHMETIC = OPERATIONS | ast.Constant | ast.Name | ast.Tuple | ast.expr_context


def propagate_constants(tree: ast.FunctionDef, local: set[str], namespace: dict[str, Any]) -> dict[str, Any]:
    """Remove assignments of constants from a function in place, and return what they assign.

    Args:
        tree: a function, as written.
        local: the names that it assigns.
        namespace: what its free names stand for.
    """
    counts = Counter(n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
    counts.update(a.arg for a in ast.walk(tree) if isinstance(a, ast.arg))
    counts.update(n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef))
    constants = Constants({n for n in local if counts[n] == 1}, local, namespace)
    before = -1
    while before != len(constants.values):
        before = len(constants.values)
        constants.visit(tree)
    fill_empty(tree)
    return constants.values


class Constants(ast.NodeTransformer):
    """Drops assignments of constants, and collects these in `found`."""

    def __init__(self, once: set[str], local: set[str], namespace: dict[str, Any]):
        self.once, self.local, self.values = once, local, {}
        self.namespace = ChainMap(self.values, namespace)

    def visit_Assign(self, node: ast.Assign) -> ast.Assign | None:
        target = node.targets[0]
        if len(node.targets) == 1 and isinstance(target, ast.Name) and target.id in self.once:
            value = value_of(node.value, self.local - self.values.keys(), self.namespace)
            if value is not UNKNOWN:
                self.values[target.id] = value
                return None
        return node


def value_of(node: ast.expr, local: set[str], namespace: Mapping[str, Any]) -> Any:
    """The value of an expression of literals and names from outside; UNKNOWN for other expressions."""
    value = resolve(node, namespace, local)
    if isinstance(value, Intrinsic | FunctionType | ModuleType) or is_kernel(value):
        return value
    if not all(isinstance(n, ARITHMETIC) for n in ast.walk(node)):
        return UNKNOWN
    names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    if names & local or not all(is_constant(namespace.get(n, UNKNOWN)) for n in names):
        return UNKNOWN
    try:
        result = eval(compile(ast.Expression(node), "", "eval"), {n: namespace[n] for n in names})
    except (ArithmeticError, TypeError, ValueError):
        return UNKNOWN
    return result if is_constant(result) else UNKNOWN


def is_constant(value: Any) -> bool:
    """Whether a value is an integer or a tuple of such: floats stay variables, for numba to choose their type."""
    if type(value) is tuple:
        return all(map(is_constant, value))
    return type(value) is int
