"""Tensors in nested lists, tuples and dicts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from miniflow.tensor import Tensor


def each_tensor(value: Any, convert: Callable[[Any], Any], cls: type = Tensor) -> Any:
    """The same nest with what a function makes of its tensors, in order, or of what else has that type."""
    if isinstance(value, cls):
        return convert(value)
    if isinstance(value, dict):
        return type(value)({key: each_tensor(item, convert, cls) for key, item in value.items()})
    if isinstance(value, list | tuple):
        items = [each_tensor(item, convert, cls) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


def tensors_in(value: Any) -> list[Tensor]:
    """The tensors of a nest, in order."""
    tensors: list[Tensor] = []
    each_tensor(value, lambda x: tensors.append(x) or x)
    return tensors
