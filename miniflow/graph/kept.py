"""What modules hold while a graph is recorded, so that it can be put back afterwards.

A step may assign tensors to attributes: new values of buffers, activations to be looked at, masks that are made once.
While it is recorded these tensors have no values, so afterwards every attribute holds again what it held before. A
buffer that was assigned becomes one that every call writes to (see `Recording`). Other attributes that carry a tensor
from one call to the next cannot be recorded and are refused by `check`: those whose old tensor the step read, and those
that it looked at (`if self.h is None: ...`) before it gave them a tensor that differs from call to call.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from miniflow.dispatch.tape import modes
from miniflow.errors import GraphTraceError
from miniflow.graph.held import ABSENT, fields, picture
from miniflow.graph.ir import CONSTANT, Slot, scalars_in
from miniflow.graph.uses import Uses
from miniflow.tensor import Tensor

if TYPE_CHECKING:
    from miniflow.graph.trace import Tracer

TABLES = ("_parameters", "_buffers", "_modules")


@dataclass
class Held:
    """What an attribute held before the step: its value, the tensors in it and the contents of its lists and dicts."""

    value: Any
    tensors: list[Tensor]
    contents: list[tuple[Any, Any]]


NOTHING = Held(ABSENT, [], [])


class Kept:
    """What modules held before a step was recorded.

    Args:
        tracer: of the recording.
        names: module -> dotted name.

    Attributes:
        held: module -> for each of its tables what was under each name. The table None is that of plain attributes.
        reset: module and name of the flags that were put back, since tensors beside them were: a flag may say what a
            tensor is for. Those of a module to whose parameters or buffers the step wrote stay.
        spent: module -> the flags that the step looked at and then changed for good, with what they were. A recording
            in which there are any is that of one call.
    """

    def __init__(self, tracer: Tracer, names: Mapping[Any, str]):
        self.tracer = tracer
        self.names: dict[Any, str] = {}
        self.held: dict[Any, dict[str | None, dict[str, Held]]] = {}
        self._assigned: set[tuple[Any, str]] = set()  # modules and attributes
        self._looked_at: set[tuple[Any, str]] = set()  # those that were read when they were not yet assigned
        self.reset: list[tuple[Any, str]] = []
        self.spent: dict[Any, dict[str, Any]] = {}
        for module, name in names.items():
            self.meet(module, name)

    def meet(self, module: Any, name: str) -> None:
        """Note what a module and those below it hold, unless they are known."""
        if module in self.held:
            return
        self.names[module] = name
        self.held[module] = {table: dict(map(_held, items)) for table, items in _tables(module)}
        for key, child in (vars(module).get("_modules") or {}).items():
            if child is not None:
                self.meet(child, f"{name}.{key}")

    def assigning(self, module: Any, key: str) -> None:
        """Called before an attribute of a module is assigned."""
        self.meet(module, type(module).__name__)
        self._assigned.add((module, key))

    def reading(self, module: Any, key: str) -> None:
        """Called before an attribute of a module is read."""
        if (module, key) not in self._assigned:
            self._looked_at.add((module, key))

    def restore(self) -> None:
        """Let attributes hold what they held, wherever they now hold what was made while recording."""
        changes, flags = list(self._changes()), list(self._flags())
        beside = {module for module, items, *_ in changes if items is vars(module)}
        for module, key, before in flags:
            if module in beside and not self._writes_to(module):
                self.reset.append((module, key))
                _put_back(vars(module), key, before)
            elif (module, key) in self._looked_at:
                self.spent.setdefault(module, {})[key] = before
        for _, items, key, before, _ in changes:
            for container, contents in before.contents:
                _fill(container, contents)
            _put_back(items, key, before.value)

    def _writes_to(self, module: Any) -> bool:
        """Whether the step wrote to a parameter or buffer of a module: flags may say that this is done."""
        written = {id(self.tracer.program.tensors[slot]) for slot in self.tracer.first_writes()}
        tables = (self.held[module].get(table, {}) for table in TABLES[:2])
        return any(id(before.value) in written for table in tables for before in table.values())

    def _flags(self) -> Iterator[tuple[Any, str, Any]]:
        """Module, name and old value of plain attributes without tensors that the step gave another value."""
        for module, key in self._assigned:
            before, now = self.held[module][None].get(key, NOTHING), vars(module).get(key, ABSENT)
            if key != "training" and not before.tensors and not _look_into(now)[0]:
                if picture(now) != picture(before.value):
                    yield module, key, before.value

    def buffers(self) -> Iterator[tuple[Any, str, Tensor]]:
        """Module, name and old tensor of each buffer that was assigned."""
        for module, key, old in self._old_buffers():
            if vars(module)["_buffers"].get(key) is not old:
                yield module, key, old

    def is_shared(self, buffer: Tensor) -> bool:
        """Whether a tensor was a buffer under several names."""
        return sum(old is buffer for *_, old in self._old_buffers()) > 1

    def _old_buffers(self) -> Iterator[tuple[Any, str, Tensor]]:
        for module, tables in self.held.items():
            for key, before in tables.get("_buffers", {}).items():
                if isinstance(before.value, Tensor):
                    yield module, key, before.value

    def check(self, written: Iterable[Slot]) -> list[str]:
        """Refuse attributes, other than buffers, that carry a tensor from one call to the next.

        Args:
            written: states that the step writes to.

        Returns:
            the names of the other attributes that the step gave a tensor that differs from call to call.

        Raises:
            GraphTraceError: naming the attribute.
        """
        changing, left = self._changing(written), []
        for module, items, key, before, tensors in self._changes():
            is_buffer = items is vars(module).get("_buffers")
            if is_buffer and isinstance(before.value, Tensor):
                continue
            name = f"{self.names[module]}.{key}"
            differs = any(self._value(tensor) in changing for tensor in tensors)
            if before.tensors:
                carries = any(self._was_met(tensor) for tensor in before.tensors)
            elif is_buffer:
                carries = any(self._varies(self._value(tensor)) for tensor in tensors)
            else:
                carries = differs and (module, key) in self._assigned & self._looked_at
            if carries:
                raise GraphTraceError(
                    f"{self.tracer.program.name}: build reads {name} and gives it another tensor, which later calls "
                    "would not go on from; expected the state of a graph in buffers: make it in __init__, "
                    f"self.register_buffer({key!r}, flow.zeros(...)), and assign the buffer or write to it in forward"
                )
            if differs:
                left.append(name)
        return left

    def _changing(self, written: Iterable[Slot]) -> set[Slot]:
        """The values that differ from call to call: inputs, random numbers, written states, and what follows."""
        assigned = [self._value(old) for *_, old in self.buffers()]
        found = {slot for slot in (*self.tracer.program.inputs, *written, *assigned) if slot is not None}
        for instruction in self.tracer.program.instructions:
            is_random = any(True for _ in scalars_in(list(instruction.attrs.values())))
            if is_random or not found.isdisjoint(instruction.reads):
                found.update(instruction.outputs)
        return found

    def _changes(self) -> Iterator[tuple[Any, dict[str, Any], str, Held, list[Tensor]]]:
        """Module, table, key, what it held, and tensors in it now, of attributes that hold what the step made."""
        for module, tables in self.held.items():
            for table, items in _tables(module):
                known = tables.get(table, {})
                for key, value in [*items]:
                    before = known.get(key, NOTHING)
                    tensors, _ = _look_into(value)
                    if _is_same(tensors, before.tensors):
                        continue
                    if any(self._is_new(tensor) for tensor in tensors) or any(map(self._was_met, before.tensors)):
                        yield module, vars(module) if table is None else vars(module)[table], key, before, tensors

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

    def _varies(self, slot: Slot | None) -> bool:
        """Whether a value depends on inputs or states of the program."""
        producers, seen, left = Uses(self.tracer.program).made, set(), [slot]
        while left:
            slot = left.pop()
            if slot is None or slot in seen or slot.kind == CONSTANT:
                continue
            seen.add(slot)
            if slot not in producers:
                return True
            left += producers[slot].reads
        return False


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
        if modes.tracer is not None and not name.startswith("__"):
            modes.tracer.kept.reading(owner, name)
        return super(kind, owner).__getattribute__(name)

    return read


def _tables(module: Any) -> Iterator[tuple[str | None, Any]]:
    own = vars(module)
    yield None, [(key, value) for key, value in own.items() if key not in TABLES]
    yield from ((table, own[table].items()) for table in TABLES[:2] if table in own)


def _put_back(items: dict[str, Any], key: str, value: Any) -> None:
    if value is ABSENT:
        items.pop(key, None)
    else:
        items[key] = value


def _held(item: tuple[str, Any]) -> tuple[str, Held]:
    key, value = item
    return key, Held(value, *_look_into(value))


def _is_same(some: list[Tensor], others: list[Tensor]) -> bool:
    return len(some) == len(others) and all(a is b for a, b in zip(some, others, strict=True))


def _look_into(value: Any) -> tuple[list[Tensor], list[tuple[Any, Any]]]:
    """The tensors in a value, and the lists and dicts in it (those of namespaces too) with copies of their contents."""
    tensors: list[Tensor] = []
    contents: list[tuple[Any, Any]] = []
    left, seen = [value], set()
    while left:
        value = left.pop()
        value = value if (record := fields(value)) is None else record
        if isinstance(value, Tensor):
            tensors.append(value)
        elif isinstance(value, list | tuple | dict | deque) and id(value) not in seen:
            seen.add(id(value))
            if not isinstance(value, tuple):
                contents.append((value, dict(value) if isinstance(value, dict) else list(value)))
            left += reversed(list(value.values() if isinstance(value, dict) else value))
    return tensors, contents


def _fill(container: Any, contents: Any) -> None:
    """Give a list, a deque or a dict its contents back."""
    container.clear()
    container.update(contents) if isinstance(container, dict) else container.extend(contents)
