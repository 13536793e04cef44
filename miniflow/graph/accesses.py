"""What `build` reads and assigns of modules and of its graph while it is recorded, and how that is undone.

Recording is pure: afterwards every attribute holds what it held before. What follows for the calls:

- A buffer that was assigned becomes a state that every call writes (see `Recording`).
- An attribute that was assigned and not read before, `self.shape = x.shape`, is assigned by every call (`effects`).
- An attribute that was read and then changed would be another one in the next call. It is refused, unless it says what
  a constant tensor beside it is for, as the length of a cache does: the next recording makes both again.
- Other attributes that carry a tensor from one call to the next are refused: those whose old tensor the step read, and
  those that it read (`if self.h is None: ...`) before it gave them a tensor that differs from call to call.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn
from weakref import WeakKeyDictionary

from miniflow.dispatch.tape import modes
from miniflow.errors import GraphTraceError
from miniflow.graph.ir import Slot
from miniflow.graph.passes.accumulation import varying
from miniflow.graph.snapshot import ABSENT, Snapshot
from miniflow.nn.modules.module import Module
from miniflow.tensor import Tensor

if TYPE_CHECKING:
    from miniflow.graph.trace import Tracer

_left: WeakKeyDictionary[Any, set[str]] = WeakKeyDictionary()  # attributes in which recordings leave tensors ...
_read: WeakKeyDictionary[Any, set[str]] = WeakKeyDictionary()  # ... and those whose tensors recordings read
HIDDEN = frozenset(vars(Module())) - {"training"}  # what all modules have: tables and hooks are compared apart
TABLES = ("_parameters", "_buffers", "_modules")
MOST_VALUES = 1_000_000  # in the attributes that build reads: all are compared in each call
PASSING = (str(Path(__file__).parents[1]) + os.sep, functools.__file__)  # code that reads `__dict__` for its own ends


class Owner:
    """A module or graph as it was when `build` first came to it.

    Attributes:
        tables: its dict of attributes and those of parameters, buffers and submodules, each with a copy; none of one
            that the step makes.
        read: attributes that were read before they were assigned, as they were then.
        assigned: the names of others.
    """

    def __init__(self, attributes: dict[str, Any]):
        self.attributes, self.hidden = attributes, attributes.get("_hidden", HIDDEN)
        is_there = "_parameters" in attributes or "_blocks" in attributes
        tables = [attributes, *(attributes[name] for name in TABLES if name in attributes)] if is_there else []
        self.tables = [(table, dict(table)) for table in tables]
        self.read: dict[str, Snapshot] = {}
        self.assigned: set[str] = set()


def value_of(owner: Any, key: str) -> Any:
    """What an attribute of a module or graph holds; of `__dict__` what the user put there."""
    attributes = object.__getattribute__(owner, "__dict__")
    if key == "__dict__":
        hidden = attributes.get("_hidden", HIDDEN)
        return {name: value for name, value in attributes.items() if name not in hidden}
    return attributes.get(key, ABSENT)


@dataclass
class Change:
    """An attribute that holds something else than before the step."""

    owner: Any
    items: dict[str, Any]  # in which it is
    key: str
    before: Snapshot
    now: Any
    was_read: bool  # before it was assigned
    is_left: bool = False  # by the step, with a tensor that differs from call to call

    def is_of_tensors(self) -> bool:
        """Whether nothing but tensors, and fields of objects, have changed."""
        return self.before.is_like(self.now, (), in_build=True)

    @functools.cached_property
    def tensors(self) -> list[Tensor]:
        """Those that it holds now and did not hold before."""
        known = set(map(id, self.before.tensors))
        return [tensor for tensor in Snapshot(self.now).tensors if id(tensor) not in known]


class Accesses:
    """What the step of a tracer reads and assigns.

    Args:
        tracer: of the recording.

    Attributes:
        reads: module or graph, name and old contents of all attributes that were read, at the end.
        effects: dict, key and contents of the assignments that every call makes.
        keeping: attributes to which the step gives tensors.
    """

    def __init__(self, tracer: Tracer):
        self.tracer: Tracer | None = tracer
        self.reads: list[tuple[Any, str, Snapshot]] = []
        self.effects: list[tuple[dict[str, Any], str, Snapshot]] = []
        self.keeping: set[tuple[Any, str]] = set()
        self._owners: dict[Any, Owner] = {}
        self._size = 0
        for owner in tracer.names:
            self.meet(owner)

    def meet(self, owner: Any) -> Owner:
        """Note what a module or graph holds, if it is new."""
        if owner not in self._owners:
            self._owners[owner] = Owner(object.__getattribute__(owner, "__dict__"))
        return self._owners[owner]

    def reading(self, owner: Any, key: str) -> None:
        """Called before an attribute is read.

        Raises:
            GraphTraceError: if there is too much in it.
        """
        known = self.meet(owner)
        if not known.tables or key in known.read or key in known.assigned or key in known.hidden:
            return
        if any(key in members for _, members in known.tables[1:]):
            return  # parameters, buffers and submodules are compared apart
        value = value_of(owner, key) if key == "__dict__" else known.tables[0][1].get(key, ABSENT)
        known.read[key] = snapshot = Snapshot(value)
        self._size += snapshot.size
        if self._size > MOST_VALUES:
            self.tracer.fail(
                f"{self.tracer.program.name}: got {self._name(owner, key)} in build; it, or what build read before, "
                f"holds more than {MOST_VALUES:,} values, all of which would be compared in each call; expected tables "
                "of this size to be tensors: register_buffer"
            )

    def assigning(self, owner: Any, key: str) -> None:
        """Called before an attribute is assigned."""
        self.meet(owner).assigned.add(key)

    def _reads(self) -> Iterator[tuple[Any, str, Snapshot]]:
        for owner, known in self._owners.items():
            yield from ((owner, key, snapshot) for key, snapshot in known.read.items())

    def restore(self) -> None:
        """Let all attributes hold what they held; this is the end."""
        for change in list(self._changes()):
            change.before.restore(self._is_new)
            if change.before.value is ABSENT:
                change.items.pop(change.key, None)
            else:
                change.items[change.key] = change.before.value
        self.reads = list(self._reads())
        self._owners.clear()
        self.tracer = None  # no cycle: what a dropped plan has is freed at once

    def _changes(self) -> Iterator[Change]:
        for owner, known in self._owners.items():
            for items, before in known.tables:
                is_own = items is known.attributes
                for key in {**before, **items}:
                    if is_own and key in known.hidden:
                        continue
                    old, now = before.get(key, ABSENT), items.get(key, ABSENT)
                    snapshot = known.read.get(key) if is_own else None
                    if old is not now or snapshot is not None and not snapshot.is_unchanged():
                        past_setattr = is_own and key not in known.assigned and "__dict__" in known.read
                        was_read = snapshot is not None or past_setattr
                        yield Change(owner, items, key, snapshot or Snapshot(old), now, was_read)

    def _name(self, owner: Any, key: str) -> str:
        return f"{self.tracer.names.get(owner, type(owner).__name__)}.{key}"

    # buffers

    def buffers(self) -> list[tuple[Any, str, Tensor]]:
        """Module, name and old tensor of each buffer that was assigned."""
        return [
            (change.owner, change.key, change.before.value) for change in self._changes() if self._is_buffer(change)
        ]

    def is_shared(self, buffer: Tensor) -> bool:
        """Whether a tensor was a buffer under several names."""
        tables = [before for known in self._owners.values() for _, before in known.tables[2:3]]
        return sum(old is buffer for before in tables for old in before.values()) > 1

    # what cannot be undone

    def check(self, written: Iterable[Slot]) -> list[str]:
        """Refuse attributes, other than buffers, that go on from call to call, and find the effects of each call.

        Args:
            written: states that the step writes to.

        Returns:
            the names of the other attributes that the step gave a tensor that differs from call to call.

        Raises:
            GraphTraceError: naming the attribute.
        """
        changes = [change for change in self._changes() if not self._is_buffer(change)]
        assigned = [self._value(old) for *_, old in self.buffers()]
        program = self.tracer.program
        differing = varying([*program.inputs, *written, *assigned], program.instructions) - {None}
        caching = set()
        for change in changes:
            if isinstance(change.now, Module) or isinstance(change.before.value, Module):
                raise GraphTraceError(
                    f"{self.tracer.program.name}: build assigns the module {self._name(change.owner, change.key)}, "
                    "which later calls would not do again; expected modules to be made in __init__"
                )
            change.is_left = any(self._value(tensor) in differing for tensor in change.tensors)
            if self._carries(change):
                self._refuse(change)
            if change.tensors and not change.is_left and not self._writes_to(change.owner):
                caching.add(change.owner)
        for change in changes:
            if change.was_read:
                if not (change.tensors or change.owner in caching or _is_cached(change) or change.is_of_tensors()):
                    self._refuse(change)
            elif not self._is_in_buffers(change) and not any(map(self._is_new, change.tensors)):
                self.effects.append((change.items, change.key, Snapshot(change.now)))
        self.keeping = {(change.owner, change.key) for change in changes if change.tensors}
        left = [(change.owner, change.key) for change in changes if change.is_left]
        self._refuse_stale(left)
        return [self._name(*attribute) for attribute in left]

    def _refuse_stale(self, left: Iterable[tuple[Any, str]]) -> None:
        """Refuse attributes whose tensor one recording reads and another one, maybe of another graph, leaves behind."""
        read = [(owner, key) for owner, key, snapshot in self._reads() if any(map(self._was_met, snapshot.tensors))]
        for here, there, attributes in ((_left, _read, left), (_read, _left, read)):
            for owner, key in attributes:
                here.setdefault(owner, set()).add(key)
                if key in there.get(owner, ()):
                    raise GraphTraceError(
                        f"{self.tracer.program.name}: the tensor in {self._name(owner, key)} is set in one recording "
                        "and read in another, as in training and in evaluation, which would read an old one; expected "
                        f"a buffer: in __init__, self.register_buffer({key!r}, flow.zeros(...))"
                    )

    def _refuse(self, change: Change) -> NoReturn:
        name, value = self._name(change.owner, change.key), "zeros(...)" if change.tensors else "tensor(0)"
        raise GraphTraceError(
            f"{self.tracer.program.name}: build reads {name} and then changes it, which calls would not do again; "
            "expected what goes on from call to call in buffers: make it in __init__, "
            f"self.register_buffer({change.key!r}, flow.{value}), and assign the buffer or write to it in forward; set "
            "what stays the same before the first call"
        )

    def _carries(self, change: Change) -> bool:
        """Whether an attribute takes a tensor from one call to the next."""
        if change.before.tensors:
            return any(map(self._was_met, change.before.tensors))
        is_assigned = change.was_read and change.now is not change.before.value
        return change.is_left and (self._is_in_buffers(change) or is_assigned)

    def _is_in_buffers(self, change: Change) -> bool:
        return change.items is vars(change.owner).get("_buffers")

    def _is_buffer(self, change: Change) -> bool:
        """Whether an attribute was a buffer that is there; there may also be None."""
        return self._is_in_buffers(change) and isinstance(change.before.value, Tensor)

    def _writes_to(self, owner: Any) -> bool:
        """Whether the step wrote to a parameter or buffer of a module: what it read may say that this is done."""
        tensors = self.tracer.program.tensors
        written = {id(tensors[slot]) for slot in self.tracer.first_writes() if slot in tensors}
        return any(id(old) in written for _, before in self._owners[owner].tables[1:] for old in before.values())

    def _is_new(self, tensor: Tensor) -> bool:
        """Whether a tensor has no values: it was computed in the step, or made from numbers and then written to."""
        array, tracer = tensor._array, self.tracer
        if getattr(array, "is_symbolic", False):
            return array.recorder is tracer
        symbol = tracer._symbols.get(id(array))
        return id(array) in tracer._created and symbol is not None and symbol.cell.writes > 0

    def _was_met(self, tensor: Tensor) -> bool:
        return id(tensor) in self.tracer._outside

    def _value(self, tensor: Tensor) -> Slot | None:
        """The slot with the value of a tensor, None for one that no instruction has seen."""
        array = tensor._array
        symbol = array if getattr(array, "is_symbolic", False) else self.tracer._symbols.get(id(array))
        return None if symbol is None else symbol.cell.value


def _is_cached(change: Change) -> bool:
    """Whether an attribute holds what a `cached_property` computed."""
    return isinstance(getattr(type(change.owner), change.key, None), functools.cached_property)


_noting = 0  # how many recordings of all threads want to know of reads
_lock = threading.Lock()


@contextmanager
def reads_noted(kinds: Sequence[type]) -> Iterator[None]:
    """Let the recording of this thread know which attributes of objects of these classes are read in this block."""
    global _noting
    with _lock:
        _noting += 1
        for kind in kinds:
            kind.__getattribute__ = _noting_read(kind)
    try:
        yield
    finally:
        with _lock:
            _noting -= 1
            if not _noting:
                for kind in kinds:
                    del kind.__getattribute__


def _noting_read(kind: type) -> Callable[[Any, str], Any]:
    def read(owner: Any, name: str) -> Any:
        if modes.tracer is not None:
            if name == "__dict__" and not sys._getframe(1).f_code.co_filename.startswith(PASSING):
                modes.tracer.accesses.reading(owner, name)
            elif name.startswith("__"):
                modes.tracer.accesses.meet(owner)
            else:
                modes.tracer.accesses.reading(owner, name)
            if name == "forward":
                modes.tracer.before_forward(owner)
        return super(kind, owner).__getattribute__(name)

    return read
