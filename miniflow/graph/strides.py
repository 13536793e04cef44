"""The order in memory of the elements of each slot.

Inputs, and results of ops that are not views, are row-major; a state or a constant is laid out as its array, a view as
its op makes it of its parent. No values are needed: the view kernels run on arrays that have strides but no memory.
"""

from __future__ import annotations

import numpy as np

from miniflow.backends import memory
from miniflow.backends.geometry import layout_of
from miniflow.backends.registry import kernel_of
from miniflow.graph.ir import Instruction, Program, Slot


class Strides:
    """The layouts of a program's slots, worked out when asked for."""

    def __init__(self, program: Program):
        self.made = program.producers()
        self._layouts: dict[Slot, np.ndarray] = {}
        for slot in program.states:
            if slot in program.tensors:
                self._layouts[slot] = memory.layout(program.tensors[slot]._array)
        for slot, array in program.constants.items():
            self._layouts[slot] = memory.layout(array)

    def add(self, instruction: Instruction) -> None:
        """Let there be one more instruction."""
        self.made.update(dict.fromkeys(instruction.outputs, instruction))

    def of(self, slot: Slot) -> np.ndarray:
        """An array of the slot's shape, dtype and strides, whose elements must never be looked at."""
        chain = []
        while slot not in self._layouts:
            chain.append(slot)
            source = self.parent(slot)
            if source is None:
                self._layouts[slot] = layout_of(slot.shape, slot.dtype)
            else:
                slot = source
        for later in reversed(chain):
            if later not in self._layouts:
                self._layouts[later] = viewed(self.made[later], self._layouts[self.parent(later)])
        return self._layouts[chain[0] if chain else slot]

    def parent(self, slot: Slot) -> Slot | None:
        """The slot whose memory this one shares; None for one with memory of its own."""
        instruction = self.made.get(slot)
        if instruction is None:
            return None
        if instruction.mutates:
            return instruction.inputs[instruction.mutates[instruction.outputs.index(slot)]]
        return instruction.inputs[0] if instruction.op.view else None

    def row_major(self, slot: Slot) -> bool:
        """Whether the elements are contiguous, the last dim fastest."""
        return self.of(slot).flags.c_contiguous

    def same(self, x: Slot, y: Slot) -> bool:
        """Whether x can replace y: equal shape, dtype, device, and order in memory."""
        if (x.shape, x.dtype, x.device) != (y.shape, y.dtype, y.device):
            return False
        a, b = self.of(x), self.of(y)
        return a.flags.c_contiguous and b.flags.c_contiguous or a.strides == b.strides


def viewed(instruction: Instruction, parent: np.ndarray) -> np.ndarray:
    """The layout that a view op, or an update in place, makes of its parent's."""
    return kernel_of("cpu", instruction.op.__name__).run(parent, **instruction.attrs) if instruction.op.view else parent
