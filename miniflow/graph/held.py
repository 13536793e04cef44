"""What the attributes of modules, and of a graph, hold: pictures of it that can be compared later.

Python code in `build` may have branched on any attribute, so a recording depends on all of them: numbers, functions,
lists and dicts with what is in them, other objects by identity. A tensor counts if the recording read it; others, such
as activations that `forward` keeps, do not.
"""

from __future__ import annotations

import dataclasses
from argparse import Namespace
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from operator import is_, itemgetter
from types import MethodType, SimpleNamespace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from miniflow.device import device
from miniflow.nn.modules.module import Module
from miniflow.tensor import Tensor

DEPTH = 3  # how deep lists and dicts within each other are looked at
ENTRIES = 256  # a longer list or dict is compared by identity and length
WRITES = 2  # an attribute that so many recordings have changed is one that `build` leaves behind
TABLES = ("_parameters", "_buffers", "_modules")
EXACT = (bool, int, str, bytes, type(None), device)
ABSENT = object()  # stands for the value of an attribute that is not there
UNREAD = object()  # stands for tensors that the recording did not read

HIDDEN = frozenset(vars(Module())) - {"training"}  # what all modules have: tables and hooks are watched apart


class Is:
    """Equal only to one of the same object."""

    __slots__ = ("value",)

    def __init__(self, value: Any):
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Is) and other.value is self.value

    __hash__ = None

    def __repr__(self) -> str:
        return getattr(self.value, "__name__", None) or f"a {type(self.value).__name__}"


def contents(value: Any) -> dict | list | tuple | None:
    """What a list, dict, tuple, namespace or dataclass holds; None for anything else, and for a long one."""
    if isinstance(value, dict | list | tuple):
        return value if len(value) <= ENTRIES else None
    return fields(value)


def fields(value: Any) -> dict[str, Any] | None:
    """What a namespace or dataclass holds; None for anything else."""
    is_record = dataclasses.is_dataclass(value) and not isinstance(value, type | Module)
    if (is_record and hasattr(value, "__dict__")) or isinstance(value, Namespace | SimpleNamespace):
        return vars(value)
    return None


def items(held: dict | list | tuple) -> Iterator[tuple[Any, Any]]:
    """Keys, or positions, and values."""
    return iter(held.items()) if isinstance(held, dict) else enumerate(held)


def picture(value: Any, read: Collection[int] = (), depth: int = DEPTH) -> Any:
    """What stands for a value: pictures of values that are alike are equal.

    Args:
        value: of an attribute.
        read: ids of the tensors that the recording read.
        depth: how deep to look.
    """
    kind = type(value)
    if isinstance(value, Tensor):
        return Is(value) if id(value) in read else UNREAD
    if kind in EXACT:
        return kind, value
    if kind is float or kind is complex or isinstance(value, np.generic):
        return kind, repr(value)  # nan is like nan, -0.0 is not like 0.0
    if kind is MethodType:
        return Is(value.__self__), Is(value.__func__)
    if isinstance(value, set | frozenset):
        return kind, frozenset(map(_key, value))
    held = contents(value) if depth else None
    if held is None:
        return (Is(value), len(value)) if isinstance(value, dict | list) else Is(value)
    if isinstance(held, dict):
        return kind, _pictured(held, read, depth - 1)
    return kind, [seen for each in held if (seen := picture(each, read, depth - 1)) is not UNREAD]


def _pictured(held: dict, read: Collection[int], depth: int) -> dict[Any, Any]:
    seen = {_key(key): picture(value, read, depth) for key, value in held.items()}
    return {key: value for key, value in seen.items() if value is not UNREAD}


def _key(key: Any) -> Any:
    return key if type(key) in EXACT else id(key)


def text(seen: Any) -> str:
    """A picture in words."""
    if not isinstance(seen, tuple):
        return str(seen)
    kind, value = seen
    if isinstance(kind, Is):  # a method, or a long list
        return repr(value if isinstance(value, Is) else kind)
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key!r}: {text(each)}' for key, each in value.items())}}}"
    if isinstance(value, list):
        inner = ", ".join(map(text, value))
        return f"({inner})" if issubclass(kind, tuple) else f"[{inner}]"
    return repr(value) if kind in EXACT else str(value)


def attributes(owner: Any) -> dict[str, Any]:
    """The attributes of a module or graph that are its user's."""
    own = HIDDEN if isinstance(owner, Module) else owner._hidden
    return {name: value for name, value in vars(owner).items() if name not in own}


def tensors(held: Any, depth: int = DEPTH) -> Iterator[Tensor]:
    """The tensors in attributes."""
    for _, value in items(held):
        if isinstance(value, Tensor):
            yield value
        elif depth and (inner := contents(value)) is not None:
            yield from tensors(inner, depth - 1)


def pictures(owner: Any, read: Collection[int] = ()) -> dict[str, Any]:
    """The pictures of the attributes of a module or graph, but for tensors that the recording did not read."""
    return _pictured(attributes(owner), read, DEPTH)


class Written:
    """Which attributes the recordings of a graph change.

    What two recordings have changed is what `forward` leaves behind, such as the shape of its last input. Its value
    is not a reason to record again: that would change it once more.
    """

    def __init__(self) -> None:
        self._counts: WeakKeyDictionary[Any, Counter[str]] = WeakKeyDictionary()

    @contextmanager
    def counting(self, owners: Collection[Any]) -> Iterator[None]:
        """Note what changes in this block, which records."""
        before = [(owner, pictures(owner)) for owner in owners]
        yield
        for owner, known in before:
            now = pictures(owner)
            changed = [name for name in {**known, **now} if known.get(name) != now.get(name) and name != "training"]
            if changed:
                self._counts.setdefault(owner, Counter()).update(changed)

    def add(self, owner: Any, name: str) -> None:
        """Note an attribute that a recording has changed, although it was put back."""
        self._counts.setdefault(owner, Counter())[name] += 1

    def left_behind(self, owner: Any) -> set[str]:
        """The attributes of a module or graph that `build` leaves behind."""
        return {name for name, count in self._counts.get(owner, {}).items() if count >= WRITES}


class Members:
    """The parameters, buffers and submodules of modules."""

    def __init__(self, modules: Mapping[Module, str]):
        self._places = [(vars(module), table) for module in modules for table in TABLES]
        self._names = [name for name in modules.values() for _ in TABLES]
        tables = [owner[table] for owner, table in self._places]
        self._before = list(map(dict, tables))
        self._keys = list(map(list, tables))
        self._values = [value for table in tables for value in table.values()]

    def is_same(self) -> bool:
        """Whether they are the same objects under the same names in the same order."""
        now = [owner[table] for owner, table in self._places]
        values = [value for table in now for value in table.values()]
        return (
            len(values) == len(self._values)
            and all(map(is_, values, self._values))
            and [list(table) for table in now] == self._keys
        )

    def differences(self) -> Iterator[str]:
        """What has changed, in words."""
        for (owner, table), name, before in zip(self._places, self._names, self._before, strict=True):
            now = owner[table]
            for key in {**before, **now}:
                if key not in before:
                    yield f"{name}.{key} is new"
                elif key not in now:
                    yield f"{name}.{key} was deleted"
                elif now[key] is not before[key]:
                    yield f"the attribute {key!r} of a module is another object"
            if set(now) == set(before) and list(now) != list(before):
                yield f"the order of the members of {name}"


class Attributes:
    """The attributes of modules and of a graph as they were when a step was recorded.

    Args:
        owners: modules and the graph, with their names.
        members: of the modules.
        read: ids of the tensors that the recording read.
        written: what recordings of the graph change.
        spent: owner -> attributes that `build` looked at and then changed, with what they were: the next call would see
            another value, so that the recording does not fit again.
    """

    def __init__(
        self,
        owners: dict[Any, str],
        members: Members,
        read: Collection[int],
        written: Written,
        spent: Mapping[Any, dict[str, Any]],
    ):
        self.members = members
        self._spent = {owner: spent[owner] for owner in owners if owner in spent}
        self.owners, self._read, self._written = owners, read, written
        self._training = [owner.training for owner in owners]
        self._pictures = [pictures(owner, read) for owner in owners]
        self._note()
        if self.is_spent():
            self._sizes = []  # so that `is_same` looks closer

    def _note(self) -> None:
        """Lay out what `is_same` compares: by identity, which takes no Python code."""
        self._sized: list[Any] = []
        self._getters: list[tuple[Any, Any]] = []
        for owner in self.owners:
            own = vars(owner)
            left = self._written.left_behind(owner)
            tables = [own[table] for table in TABLES] if isinstance(owner, Module) else []
            found = {name: value for name, value in attributes(owner).items() if name not in left}
            self._sized += [own, *tables]
            self._add(own, found, DEPTH, ["_modules"] if tables else [])  # containers replace it when they renumber
            for table in tables:
                self._get(table, list(table))
        self._sizes = list(map(len, self._sized))
        self._values = self._now()

    def _add(self, held: Any, found: dict[Any, Any], depth: int, others: Sequence[str] = ()) -> None:
        """Watch what a dict, list or tuple holds, and what that holds; `others` are keys of more that it holds."""
        watched = {key: v for key, v in found.items() if not isinstance(v, Tensor) or id(v) in self._read}
        self._get(held, [*watched, *others])
        for value in watched.values():
            if type(value) in EXACT or (isinstance(value, tuple) and all(type(v) in EXACT for v in value)):
                continue
            inner = contents(value) if depth else None
            if inner is not None:
                self._sized.append(inner)
                self._add(inner, dict(items(inner)), depth - 1)
            elif isinstance(value, dict | list | set):
                self._sized.append(value)

    def _get(self, held: Any, keys: list[Any]) -> None:
        if keys:
            self._getters.append((itemgetter(*keys, *keys[: len(keys) == 1]), held))  # of one key it gives no tuple

    def _now(self) -> list[Any]:
        return list(chain.from_iterable([getter(held) for getter, held in self._getters]))

    def is_same(self) -> bool:
        """Whether all are as they were."""
        try:
            if list(map(len, self._sized)) == self._sizes and all(map(is_, self._now(), self._values)):
                return True
        except KeyError:  # something was deleted, and something else is new
            pass
        return self._is_alike()

    def _is_alike(self) -> bool:
        """Whether they hold what is equal; if so, that is compared from now on."""
        if [owner.training for owner in self.owners] != self._training:
            return False
        if not self.members.is_same() or any(self._changes()):
            return False
        self._note()
        return True

    def _changes(self) -> Iterator[tuple[Any, str, Any, Any]]:
        """Owner, name, picture before and picture now of what is not alike; None for what is not there."""
        for owner, name, before in self._spent_now():
            yield owner, name, None if before is ABSENT else picture(before), pictures(owner).get(name)
        for (owner, _), before in zip(self.owners.items(), self._pictures, strict=True):
            now = pictures(owner, self._read)
            if now != before:
                left = self._written.left_behind(owner)
                for name in {**before, **now}:
                    if name not in left and before.get(name) != now.get(name):
                        yield owner, name, before.get(name), now.get(name)

    def _spent_now(self) -> Iterator[tuple[Any, str, Any]]:
        for owner, values in self._spent.items():
            left = self._written.left_behind(owner)
            yield from ((owner, name, before) for name, before in values.items() if name not in left)

    def is_spent(self) -> bool:
        """Whether the recording was that of one call."""
        return any(self._spent_now())

    def frozen(self) -> list[str]:
        """The names of attributes that `build` looks at and changes whenever it is recorded."""
        left = {owner: self._written.left_behind(owner) for owner in self._spent}
        return [
            f"{self.owners[owner]}.{name}"
            for owner, names in self._spent.items()
            for name in names
            if name in left[owner]
        ]

    def differences(self) -> Iterator[str]:
        """What has changed, in words."""
        told: set[str] = set()
        for owner, name, before, now in self._changes():
            path = self.owners[owner]
            if name == "training":
                if not any(path.startswith(f"{other}.") for other in told):  # what holds it says it too
                    yield f"{path} was in {_mode(before)} mode, is in {_mode(now)} mode"
                told.add(path)
            elif now is None:
                yield f"{path}.{name} is another object" if name in vars(owner) else f"{path}.{name} was deleted"
            elif before is None:
                yield f"{path}.{name} is new"
            elif text(before) == text(now):
                yield f"{path}.{name} is another object"
            else:
                yield f"{path}.{name} is {text(now):.80}, was {text(before):.80}"


def _mode(training: tuple[type, bool]) -> str:
    return "training" if training[1] else "evaluation"
