"""Locals of a kernel that stand for one thing known when compiling: `BLOCK = 32`, `add = cuda.atomic.add`.

A variable that is assigned once, to a constant, is that constant wherever it is read (constant propagation: Aho et al.,
"Compilers", section 9.4). numba decides in the same way whether `BLOCK` may be the shape of a shared array.
"""

from __future__ import annotations

import ast
from collections import Counter
from types import FunctionType, ModuleType
from typing import Any

from miniflow.hostcuda.intrinsic import Intrinsic
from miniflow.hostcuda.references import is_kernel
from miniflow.hostcuda.source import UNKNOWN, resolve

OPERATIONS = ast.BinOp | ast.UnaryOp | ast.operator | ast.unaryop
ARITHMETIC = OPERATIONS | ast.Constant | ast.Name | ast.Tuple | ast.expr_context


def take_constants(tree: ast.FunctionDef, local: set[str], namespace: dict[str, Any]) -> dict[str, Any]:
    """Remove assignments of constants from a function in place, and return what they assign.

    Args:
        tree: a function, as written.
        local: the names that it assigns.
        namespace: what its free names stand for.
    """
    counts = Counter(n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
    counts.update(a.arg for a in ast.walk(tree) if isinstance(a, ast.arg))
    counts.update(n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef))
    found: dict[str, Any] = {}
    while True:
        before = len(found)
        tree.body = _without(tree.body, counts, local, {**namespace, **found}, found)
        if len(found) == before:
            return found


def _without(
    block: list[ast.stmt], counts: Counter, local: set[str], known: dict[str, Any], found: dict[str, Any]
) -> list[ast.stmt]:
    result = []
    for statement in block:
        for key in ("body", "orelse"):
            if isinstance(getattr(statement, key, None), list):
                kept = _without(getattr(statement, key), counts, local, known, found)
                setattr(statement, key, kept or ([ast.Pass()] if key == "body" else []))
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target = statement.targets[0]
            if isinstance(target, ast.Name) and counts[target.id] == 1:
                value = value_of(statement.value, local - found.keys(), known)
                if value is not UNKNOWN:
                    found[target.id] = value
                    continue
        result.append(statement)
    return [ast.fix_missing_locations(s) for s in result]


def value_of(node: ast.expr, local: set[str], namespace: dict[str, Any]) -> Any:
    """What an expression of literals and names from outside stands for; UNKNOWN if it is none."""
    value = resolve(node, namespace, local)
    if isinstance(value, Intrinsic | FunctionType | ModuleType) or is_kernel(value):
        return value
    if not all(isinstance(n, ARITHMETIC) for n in ast.walk(node)):
        return UNKNOWN
    names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    if names & local or not all(is_plain(namespace.get(n, UNKNOWN)) for n in names):
        return UNKNOWN
    try:
        found = eval(compile(ast.Expression(node), "", "eval"), {n: namespace[n] for n in names})
    except (ArithmeticError, TypeError, ValueError):
        return UNKNOWN
    return found if is_plain(found) else UNKNOWN


def is_plain(value: Any) -> bool:
    """Whether a value is an integer or a tuple of such: floats stay variables, for numba to choose their type."""
    if type(value) is tuple:
        return all(map(is_plain, value))
    return type(value) is int
