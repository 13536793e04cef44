"""What modules hold while a graph is recorded, so that it can be put back afterwards.

A step may assign tensors to attributes: new values of buffers, activations to be looked at, masks that are made once.
While it is recorded these tensors have no values, so afterwards every attribute holds again what it held before. A
buffer that was assigned becomes one that every call writes to (see `Recording`). Other attributes that carry a tensor
from one call to the next cannot be recorded and are refused by `check`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from miniflow.errors import GraphTraceError
from miniflow.graph.ir import CONSTANT, Slot
from miniflow.tensor import Tensor

if TYPE_CHECKING:
    from miniflow.graph.trace import Tracer

ABSENT = object()
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
    """

    def __init__(self, tracer: Tracer, names: Mapping[Any, str]):
        self.tracer = tracer
        self.names: dict[Any, str] = {}
        self.held: dict[Any, dict[str | None, dict[str, Held]]] = {}
        self._first: dict[tuple[int, str], Slot | None] = {}  # values that attributes were given first in the step
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

    def assigning(self, module: Any, key: str, value: Any) -> None:
        """Called before an attribute of a module is assigned."""
        if module not in self.held:
            self.meet(module, type(module).__name__)
        if (id(module), key) not in self._first:
            tensors, _ = _look_into(value)
            if tensors:
                self._first[id(module), key] = self._value(tensors[0])

    def restore(self) -> None:
        """Let attributes hold what they held, wherever they now hold what was made while recording."""
        for _, items, key, before, _ in list(self._changes()):
            for container, contents in before.contents:
                _fill(container, contents)
            if before.value is ABSENT:
                items.pop(key, None)
            else:
                items[key] = before.value

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

    def check(self) -> None:
        """Refuse attributes, other than buffers, that carry a tensor from one call to the next.

        Raises:
            GraphTraceError: naming the attribute.
        """
        for module, items, key, before, tensors in self._changes():
            is_buffer = items is vars(module).get("_buffers")
            if is_buffer and isinstance(before.value, Tensor):
                continue
            if before.tensors:
                carries = any(self._was_met(tensor) for tensor in before.tensors)
            elif is_buffer:
                carries = any(self._varies(self._value(tensor)) for tensor in tensors)
            else:
                carries = self._goes_on(module, key, tensors)
            if carries:
                name = f"{self.names[module]}.{key}"
                raise GraphTraceError(
                    f"{self.tracer.program.name}: build computes a new value of {name} from its old one, and calls "
                    "would not go on from it; expected the state of a graph in buffers: make it in __init__, "
                    f"self.register_buffer({key!r}, flow.zeros(...)), and assign the buffer or write to it in forward"
                )

    def _goes_on(self, module: Any, key: str, tensors: list[Tensor]) -> bool:
        """Whether an attribute that was None or absent began with a constant and then became what varies."""
        if (id(module), key) not in self._first or self._varies(self._first[id(module), key]):
            return False
        return any(self._varies(self._value(tensor)) for tensor in tensors)

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
        producers, seen, left = self.tracer.program.producers(), set(), [slot]
        while left:
            slot = left.pop()
            if slot is None or slot in seen or slot.kind == CONSTANT:
                continue
            seen.add(slot)
            if slot not in producers:
                return True
            left += producers[slot].reads
        return False


def _tables(module: Any) -> Iterator[tuple[str | None, Any]]:
    own = vars(module)
    yield None, [(key, value) for key, value in own.items() if key not in TABLES]
    yield from ((table, own[table].items()) for table in TABLES[:2] if table in own)


def _held(item: tuple[str, Any]) -> tuple[str, Held]:
    key, value = item
    return key, Held(value, *_look_into(value))


def _is_same(some: list[Tensor], others: list[Tensor]) -> bool:
    return len(some) == len(others) and all(a is b for a, b in zip(some, others, strict=True))


def _look_into(value: Any) -> tuple[list[Tensor], list[tuple[Any, Any]]]:
    """The tensors in a value, and the lists and dicts in it with copies of their contents."""
    tensors: list[Tensor] = []
    contents: list[tuple[Any, Any]] = []
    left, seen = [value], set()
    while left:
        value = left.pop()
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
