"""Symbolic arrays: what tensors hold while a graph is being recorded.

A `Symbol` has a shape, a dtype and strides, and no values. It refers to a `Cell`, a piece of memory whose current value
is a slot of the program. A view refers to the cell of its base, and is taken again after a write to it. So programs
that write in place, also through views, become programs in which every slot is written once (Bradbury et al. 2018
call this functionalization).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, NoReturn

import numpy as np

from miniflow.backends.geometry import LaidOut
from miniflow.backends.registry import kernel_of
from miniflow.graph.ir import Slot
from miniflow.parallel.global_array import GlobalArray


@dataclass(slots=True, eq=False)
class Cell:
    """Memory during recording: the slot that holds its value now, whether it is that of a NumPy array around which the
    step put a tensor, and how often it was written."""

    value: Slot
    is_borrowed: bool = False
    writes: int = 0

    def write(self, value: Slot) -> None:
        """Let the memory hold another value."""
        self.value = value
        self.writes += 1


@dataclass(slots=True, eq=False, repr=False)
class Symbol(LaidOut):
    """Takes the place of an array: a whole cell, or the view that `op` takes of `parent`.

    Attributes:
        layout: a NumPy array of the shape and dtype, without elements to look at; row-major for a whole cell,
            or the view of that.
        eager_layout: the same with the strides that the array has in eager mode: a state may lie in another order.
        is_copy: whether it is a view in eager mode, but `parent.layout` allows no such view.
        device_index: of a cuda device, None for the CPU.
        recorder: the tracer that made it.
    """

    recorder: Any
    cell: Cell
    layout: np.ndarray
    eager_layout: np.ndarray
    device_index: int | None
    parent: Symbol | None = None
    op: Any = None
    attrs: dict[str, Any] = field(default_factory=dict)
    is_copy: bool = False
    _taken: tuple[int, Slot] | None = None

    is_symbolic: ClassVar[bool] = True

    def view(self, op: Any, attrs: dict[str, Any], layout: np.ndarray, is_copy: bool) -> Symbol:
        """The symbol of the view that `op` takes of this one."""
        eager_layout = layout
        if self.eager_layout is not self.layout or is_copy:
            eager_layout = kernel_of("cpu", op.__name__).run(self.eager_layout, **attrs)
        return type(self)(self.recorder, self.cell, layout, eager_layout, self.device_index, self, op, attrs, is_copy)

    def slot(self, emit: Callable[[Any, list, dict], list[Slot]]) -> Slot:
        """The slot that holds its value now; `emit` adds the instruction that takes a view again, where needed."""
        if self.parent is None:
            return self.cell.value
        if self._taken is None or self._taken[0] != self.cell.writes:
            base = self.parent.slot(emit)
            self._taken = self.cell.writes, emit(self.op, [base], self.attrs)[0]
        return self._taken[1]

    def wrote(self, value: Slot) -> None:
        """Remember the slot that was just written through this view."""
        if self.parent is not None:
            self._taken = self.cell.writes, value

    def chain(self) -> list[Symbol]:
        """The views that lead from the whole cell to this one."""
        return [] if self.parent is None else [*self.parent.chain(), self]

    def steps(self) -> tuple:
        """The (op, attrs) of these views."""
        return tuple((step.op, step.attrs) for step in self.chain())

    # what an array has; its strides are those of eager mode

    @property
    def strides(self) -> tuple[int, ...]:
        return self.eager_layout.strides

    @property
    def flags(self) -> Any:
        return self.eager_layout.flags

    @property
    def offset(self) -> int:
        return 0

    def reshape(self, *shape: Any, copy: bool | None = None) -> np.ndarray:
        """Whether a view of that shape is possible: ValueError if not, as for arrays. Only `copy=False` makes sense."""
        return self.eager_layout.reshape(*shape, copy=copy)

    def copy(self) -> Symbol:
        """The value as it is now, under a symbol that later writes do not reach."""
        return self.recorder.new_memory(self.recorder.slot_of(self))

    def peek(self) -> None:
        """A symbol has no values to look at."""
        return None

    def numpy(self) -> NoReturn:
        """Refuse to show values.

        Raises:
            GraphTraceError: always, naming the user's line.
        """
        self.recorder.refuse("the values of a tensor")

    @property
    def address(self) -> NoReturn:
        self.recorder.refuse("the address of a tensor")


class GlobalSymbol(Symbol):
    """Takes the place of a global array; its placement and SBP are those of its value now."""

    __slots__ = ()
    is_global = True

    @property
    def meta(self) -> Any:
        return self.recorder.slot_of(self).device

    @property
    def placement_and_sbp(self) -> Any:
        return GlobalArray(self.meta, {}).placement_and_sbp

    @property
    def placement(self) -> Any:
        return self.meta.placement

    @property
    def sbp(self) -> Any:
        return self.meta.sbp
