"""Attributes of a package that are imported when they are first used, so that `import miniflow` stays quick."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import Any


def defer(package: ModuleType, places: Mapping[str, str]) -> None:
    """Give a package attributes that live elsewhere; each is imported when it is first asked for.

    Args:
        package: the module object.
        places: attribute -> "module:name", or "module" for the module itself.

    Source: PEP 562, "Module __getattr__ and __dir__".
    """

    def find(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package.__name__!r} has no attribute {name!r}", name=name, obj=package)
        module, _, attribute = places[name].partition(":")
        value = import_module(module)
        if attribute:
            value = getattr(value, attribute)
        setattr(package, name, value)
        return value

    package.__getattr__ = find
    package.__dir__ = lambda: sorted({*vars(package), *places})
