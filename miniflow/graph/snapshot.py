"""What an attribute holds: its value, and the contents of all that is mutable in it, to compare with later.

Lists, dicts, sets and arrays are compared by what is in them, in order and as deep as they go, and so are records:
dataclasses, namespaces, objects of classes without methods. Other objects count by their identity and fields, and those
in fields by identity alone. Tensors are compared by identity; where `build` keeps tensors itself, as activations, those
count that the recording read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from functools import lru_cache
from operator import eq, is_
from types import MemberDescriptorType, MethodType
from typing import Any, NamedTuple

import numpy as np

from miniflow.device import device
from miniflow.graph.nested import is_record
from miniflow.tensor import Tensor

ABSENT = object()  # stands for the value of an attribute that is not there
SHOWN = 8  # entries, and levels, of a list or dict that is named in a message


class Part(NamedTuple):
    """Something mutable: how its contents are read, what they were, and whether it belongs to an object's fields."""

    container: Any
    read: Callable[[Any], list]
    was: list
    is_field: bool

    def is_unchanged(self) -> bool:
        """Whether it holds the same objects; an array, the same bytes."""
        now = self.container if isinstance(self.container, list) else self.read(self.container)
        return len(now) == len(self.was) and all(map(eq if self.read is _array else is_, now, self.was))


class Snapshot:
    """What an attribute holds now.

    Attributes:
        value: of the attribute, ABSENT if there is none.
        parts: what is mutable in it, and tuples, by id.
        tensors: all that are in it.
        size: how many values were looked at.
    """

    __slots__ = ("parts", "size", "tensors", "value")

    def __init__(self, value: Any):
        self.value, self.parts, self.tensors, self.size = value, {}, [], 0
        left = deque([(value, False)])
        while left:
            value, is_field = left.pop()
            if isinstance(value, Tensor):
                self.tensors.append(value)
            elif id(value) not in self.parts and (read := _reader(value, is_field)) is not None:
                was, is_field = read(value), is_field or read is _fields
                self.parts[id(value)] = Part(value, read, was, is_field)
                self.size += value.nbytes // 8 if isinstance(value, np.ndarray) else len(was)
                put = left.extendleft if is_field else left.extend  # first what is compared without limit
                put([(each, is_field) for each in reversed(was)])

    def mutable(self) -> list[Part]:
        """The parts that may change."""
        return [part for part in self.parts.values() if not isinstance(part.container, tuple | frozenset)]

    def is_unchanged(self) -> bool:
        """Whether what is in the value is what it was."""
        return all(part.is_unchanged() for part in self.mutable())

    def is_like(self, value: Any, read: Collection[int] | None = None, *, in_build: bool = False) -> bool:
        """Whether a value equals what this one was.

        Args:
            value: of the same attribute.
            read: ids of the tensors that count, if not all do.
            in_build: what build did to fields of objects, and a tensor in place of None, do not count.
        """
        left, seen = [(self.value, value)], set()
        while left:
            before, now = left.pop()
            part = self.parts.get(id(before))
            if part is None:
                if not _is_equal(before, now, read):
                    return False
            elif type(before) is not type(now):
                return False
            elif part.read is _fields and before is not now and not is_record(type(now)):
                return False
            elif (id(before), id(now)) not in seen and not (in_build and part.is_field):
                seen.add((id(before), id(now)))
                inner = [_counting(x, part.read, read, in_build) for x in (part.was, part.read(now))]
                if len(inner[0]) != len(inner[1]):
                    return False
                left += zip(*inner, strict=True)
        return True

    def restore(self, is_new: Callable[[Tensor], bool]) -> None:
        """Let all hold what it held; objects only if they hold a tensor that `is_new`."""
        for container, read, was, is_field in [part for part in self.mutable() if not part.is_unchanged()]:
            if not is_field or any(isinstance(x, Tensor) and is_new(x) for x in read(container)):
                _fill(container, read, was)

    def __str__(self) -> str:
        return self._text(self.value, SHOWN)

    def _text(self, value: Any, depth: int) -> str:
        part = self.parts.get(id(value))
        if part is None or part.read in (_array, _elements, _bound):
            return repr(value) if _is_atom(value) else getattr(value, "__name__", None) or f"a {type(value).__name__}"
        if not depth:
            return "..."
        if part.read in (_entries, _fields):
            keys, values = part.was[: len(part.was) // 2], part.was[len(part.was) // 2 :]
            pairs = [f"{k!r}: {self._text(v, depth - 1)}" for k, v in zip(keys[:SHOWN], values, strict=False)]
            return f"{{{', '.join(pairs)}}}"
        inner = ", ".join(self._text(each, depth - 1) for each in part.was[:SHOWN])
        return f"({inner})" if isinstance(value, tuple) else f"[{inner}]"


def _reader(value: Any, is_field: bool) -> Callable[[Any], list] | None:
    """What reads the contents of a value; None for one that is compared by itself."""
    if isinstance(value, list | tuple | set | frozenset | deque):
        return list
    if isinstance(value, dict):
        return _entries
    if isinstance(value, np.ndarray | bytearray):
        return _elements if getattr(value, "dtype", np.dtype("u1")).hasobject else _array
    if isinstance(value, MethodType):
        return _bound
    cls = type(value)
    is_plain = cls.__module__ != "builtins" and not any(k.__module__.startswith("miniflow.") for k in cls.__mro__)
    if is_field and not is_record(cls) or not is_plain or isinstance(value, type) or _is_atom(value):
        return None
    return _fields if hasattr(value, "__dict__") or _slots(cls) else None


def _entries(mapping: dict) -> list:
    return [*mapping, *mapping.values()]


def _array(array: Any) -> list:
    if isinstance(array, bytearray):
        return [bytes(array)]
    return [array.dtype, array.shape, array.tobytes()]


def _elements(array: np.ndarray) -> list:
    return list(array.flat)


def _fields(value: Any) -> list:
    return _entries(_fields_of(value))


def _bound(method: MethodType) -> list:
    return [method.__func__, method.__self__]


def _fields_of(value: Any) -> dict[str, Any]:
    attributes, slots = getattr(value, "__dict__", {}), _slots(type(value))
    return {**attributes, **{name: getattr(value, name, ABSENT) for name in slots}} if slots else attributes


@lru_cache(1024)
def _slots(cls: type) -> list[str]:
    """The names in `__slots__` of a class and its bases."""
    members = [item for base in cls.__mro__ if "__slots__" in vars(base) for item in vars(base).items()]
    return [name for name, x in members if isinstance(x, MemberDescriptorType)]


def _fill(container: Any, read: Callable, was: list) -> None:
    """Give something mutable its contents back."""
    pairs = zip(was[: len(was) // 2], was[len(was) // 2 :], strict=True)
    if read is _fields:
        for name in _fields_of(container).keys() - set(was[: len(was) // 2]):
            object.__delattr__(container, name)
        for name, value in pairs:
            if value is not ABSENT:
                object.__setattr__(container, name, value)
    elif read is _elements:
        for i, x in enumerate(was):
            container.flat[i] = x
    elif isinstance(container, np.ndarray):
        container[...] = np.frombuffer(was[2], was[0]).reshape(was[1])
    elif isinstance(container, bytearray):
        container[:] = was[0]
    else:
        container.clear()
        fill = container.extend if isinstance(container, list | deque) else container.update
        fill(pairs if read is _entries else was)


def _counting(inner: list, read: Callable, tensors: Collection[int] | None, in_build: bool) -> list:
    """The contents without tensors that do not count."""

    def counts(value: Any) -> bool:
        if isinstance(value, Tensor):
            return tensors is None or id(value) in tensors
        return value is not None or not in_build

    if read not in (_entries, _fields):
        return list(filter(counts, inner))
    half = len(inner) // 2
    pairs = [pair for pair in zip(inner[:half], inner[half:], strict=True) if counts(pair[1])]
    return [x for pair in pairs for x in pair]


def _is_atom(value: Any) -> bool:
    return isinstance(value, bool | int | float | complex | str | bytes | type(None) | device | np.generic | np.dtype)


def _is_equal(before: Any, now: Any, read: Collection[int] | None) -> bool:
    """Whether two values are alike that have no contents."""
    if read is not None:
        before, now = (ABSENT if isinstance(x, Tensor) and id(x) not in read else x for x in (before, now))
    if before is now:
        return True
    if type(before) is not type(now):
        return False
    if isinstance(before, float | complex | np.generic):
        return repr(before) == repr(now)  # nan is like nan, -0.0 is not like 0.0
    return (_is_atom(before) or type(before).__module__ == "builtins") and bool(before == now)
