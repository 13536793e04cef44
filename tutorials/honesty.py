"""What a submission may not do: call the function that it is asked to write, or change the checks."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from types import ModuleType
from typing import Any

from tutorials.cells import TODO, parts


def forbidden(source: str, stub: str, task: str, names: Iterable[str]) -> str:
    """The first use of a name that a task may not call, as "line 12 uses broadcast_shapes", or "".

    Looked at are the definitions that the task asks for, and whatever the stub does not have: functions that help, and
    imports. A name may be an attribute, be imported (`*` too), or be a text, as for `getattr`; a variable may have it.

    Args:
        source: of the student's file.
        stub: the lesson's.
        task: "1.4".
        names: that may not be called.
    """
    lines, names = stub.splitlines(), {*names, "*"}
    kept = {p.path for p in parts(stub) if f'{TODO}"lesson {task}:' not in p.text(lines)}
    for part in parts(source):
        if part.path not in kept:
            for node in ast.walk(part.node):
                if found := names & named(node):
                    return f"line {node.lineno} uses {found.pop()}"
    return ""


def named(node: ast.AST) -> set[str]:
    """The names that one node of a syntax tree uses."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        texts = [alias.name for alias in node.names] + [getattr(node, "module", None) or ""]
        return {name for text in texts for name in text.split(".")}
    if isinstance(node, ast.Attribute):
        return {node.attr}
    return {node.value} if isinstance(node, ast.Constant) and isinstance(node.value, str) else set()


def fingerprint(modules: Iterable[ModuleType]) -> dict[tuple[str, str], tuple]:
    """What each function and class of some modules is, to be compared later."""
    return {
        (module.__name__, name): (value, getattr(value, "__code__", None), getattr(value, "__defaults__", None))
        for module in modules
        for name, value in list(vars(module).items())
        if callable(value)
    }


def changed(before: dict[tuple[str, str], tuple], modules: Iterable[ModuleType]) -> str:
    """The first function that is not what it was, as "tutorials.compare.same", or ""."""
    after: dict[tuple[str, str], Any] = fingerprint(modules)
    for key, known in before.items():
        if key not in after or any(a is not b for a, b in zip(known, after[key], strict=True)):
            return ".".join(key)
    return ""
