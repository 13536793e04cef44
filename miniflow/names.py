"""Gather functions of the files of `ops` in a namespace: the families of operators under their public names."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib import import_module


def functions(families: str = "", **others: str) -> dict[str, Callable]:
    """Functions by name.

    Args:
        families: files of `ops`, all of whose public functions are wanted: one that is added there is public at once.
        others: other files of `ops` that hold more than that, and the names that are wanted.

    >>> sorted(functions("closeness", linalg="qr svd"))
    ['allclose', 'equal', 'isclose', 'qr', 'svd']
    """
    found = {}
    for file in families.split():
        module = import_module(f"miniflow.ops.{file}")
        members = inspect.getmembers(module, inspect.isfunction)
        found |= {name: f for name, f in members if f.__module__ == module.__name__ and not name.startswith("_")}
    for file, names in others.items():
        module = import_module(f"miniflow.ops.{file}")
        found |= {name: getattr(module, name) for name in names.split()}
    return found
