"""Does a test certainly execute an `assert`? One in a loop that may run no time, or behind an `if`, does not count."""

from __future__ import annotations

import ast
import inspect
import textwrap
import types
from collections.abc import Callable, Sequence


def certainly_asserts(function: Callable, depth: int = 3) -> bool:
    """Whether every normal run of `function` passes an `assert`, in it or in a function of its module that it calls."""
    function = inspect.unwrap(getattr(getattr(function, "hypothesis", None), "inner_test", function))
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    except (OSError, TypeError, SyntaxError):
        return False
    if not isinstance(tree, ast.FunctionDef):
        return False
    names = dict(getattr(function, "__globals__", {}))
    for statement in tree.body:  # a loop over a local list or dict that was written out
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            names[statement.targets[0].id] = [0] if _is_not_empty(statement.value, names) else None
    return _certain(tree.body, names, depth)


def _certain(statements: Sequence[ast.stmt], names: dict, depth: int) -> bool:
    return any(_is_certain(statement, names, depth) for statement in statements)


def _is_certain(statement: ast.stmt, names: dict, depth: int) -> bool:
    if isinstance(statement, ast.Assert):
        return True
    if isinstance(statement, ast.With | ast.Try):
        return _certain(statement.body, names, depth)
    if isinstance(statement, ast.For):
        return _is_not_empty(statement.iter, names) and _certain(statement.body, names, depth)
    if isinstance(statement, ast.If):
        return _certain(statement.body, names, depth) and _certain(statement.orelse, names, depth)
    if isinstance(statement, ast.Expr | ast.Assign | ast.Return) and isinstance(statement.value, ast.Call):
        called = statement.value.func
        target = names.get(called.id) if isinstance(called, ast.Name) else None
        return depth > 0 and isinstance(target, types.FunctionType) and certainly_asserts(target, depth - 1)
    return False


def _is_not_empty(iterable: ast.expr, names: dict) -> bool:
    if isinstance(iterable, ast.Tuple | ast.List | ast.Set):
        return bool(iterable.elts)
    if isinstance(iterable, ast.Dict):
        return bool(iterable.keys)
    if isinstance(iterable, ast.Constant):
        return bool(iterable.value)
    if isinstance(iterable, ast.Name):
        value = names.get(iterable.id)
        return isinstance(value, list | tuple | dict | str) and len(value) > 0
    if not isinstance(iterable, ast.Call):
        return False
    if isinstance(iterable.func, ast.Attribute) and iterable.func.attr in ("items", "keys", "values", "split"):
        return _is_not_empty(iterable.func.value, names)
    name = iterable.func.attr if isinstance(iterable.func, ast.Attribute) else getattr(iterable.func, "id", "")
    if name == "range":
        return all(isinstance(argument, ast.Constant) for argument in iterable.args)
    full = [_is_not_empty(argument, names) for argument in iterable.args]
    return name in ("product", "zip", "enumerate", "reversed", "sorted") and (any(full) if name == "zip" else all(full))
