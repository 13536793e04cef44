"""Who makes and who reads each slot of a program, whose memory it shares, and in which order its elements lie."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from miniflow.backends import memory
from miniflow.backends.geometry import layout_of
from miniflow.backends.registry import kernel_of
from miniflow.dispatch.dispatcher import Op
from miniflow.graph.ir import Instruction, Program, Slot


class Uses:
    """The definitions and uses of a program's slots.

    Attributes:
        made: result -> the instruction that computes it.
        readers: slot -> the instructions that read it, in order, each once.
        needed: slots that must be there even if no instruction reads them: results of the program, and those that an
            instruction waits for.
    """

    def __init__(self, program: Program):
        self.program = program
        self.made: dict[Slot, Instruction] = {}
        self.readers: dict[Slot, list[Instruction]] = {}
        self.needed = set(program.results)
        for instruction in program.instructions:
            self.add(instruction)
            for slot in dict.fromkeys(instruction.reads):
                self.readers.setdefault(slot, []).append(instruction)
            if instruction.after is not None:
                self.needed.add(instruction.after)
        self._layouts: dict[Slot, np.ndarray] = {}

    def add(self, instruction: Instruction) -> None:
        """Let there be one more instruction, whose readers are not known yet."""
        self.made.update(dict.fromkeys(instruction.outputs, instruction))

    def only_reader(self, slot: Slot) -> Instruction | None:
        """The instruction that alone needs a slot."""
        readers = self.readers.get(slot, [])
        return readers[0] if len(readers) == 1 and slot not in self.needed else None

    def made_for(self, slot: Slot, *ops: type[Op]) -> Instruction | None:
        """The instruction, of one of these ops, that computes a slot for one reader alone."""
        made = self.made.get(slot)
        return made if made is not None and made.op in ops and self.only_reader(slot) is not None else None

    # memory

    def source(self, slot: Slot) -> Slot | None:
        """The slot that this one is a view of, or an update of in place; None for one with memory of its own."""
        instruction = self.made.get(slot)
        if instruction is None:
            return None
        if instruction.mutates:
            return instruction.inputs[instruction.mutates[instruction.outputs.index(slot)]]
        return instruction.inputs[0] if instruction.op.view else None

    def root(self, slot: Slot) -> Slot:
        """What a slot is a view of in the end; itself if it is not a view."""
        while slot in self.made and self.made[slot].op.view:
            slot = self.made[slot].inputs[0]
        return slot

    @cached_property
    def reads(self) -> dict[Slot, list[int]]:
        """Root -> the numbers of the instructions that read it or a view of it, in order, and that of the end for what
        is returned. Taking a view reads nothing."""
        numbers: dict[Slot, list[int]] = {}
        for number, instruction in enumerate(self.program.instructions):
            if not instruction.op.view:
                for slot in dict.fromkeys(self.root(slot) for slot in instruction.reads):
                    numbers.setdefault(slot, []).append(number)
        for slot in self.program.outputs:
            numbers.setdefault(self.root(slot), []).append(len(self.program.instructions))
        return numbers

    def last_read(self, slot: Slot) -> int:
        """The number of the last instruction that reads a slot, or a view of it; -1 for none, past all for outputs."""
        return self.reads.get(self.root(slot), [-1])[-1]

    # order of elements

    def layout(self, slot: Slot) -> np.ndarray:
        """An array of the slot's shape, dtype and strides, whose elements must never be looked at.

        Inputs, and results of ops that are not views, are row-major; a state or a constant lies as its array does, a
        view as its op makes it of its source: the kernels of views run on arrays that have strides but no memory.
        """
        chain = []
        while slot not in self._layouts and (source := self.source(slot)) is not None:
            chain.append(slot)
            slot = source
        array = self._layouts[slot] if slot in self._layouts else self._layouts.setdefault(slot, self._own_layout(slot))
        for later in reversed(chain):
            made = self.made[later]
            if made.op.view:
                array = kernel_of("cpu", made.op.__name__).run(array, **made.attrs)
            self._layouts[later] = array
        return array

    def _own_layout(self, slot: Slot) -> np.ndarray:
        """The layout of a slot that has memory of its own."""
        program = self.program
        if slot in program.constants:
            return memory.layout(program.constants[slot])
        if slot in program.tensors:
            return memory.layout(program.tensors[slot]._array)
        return layout_of(slot.shape, slot.dtype)

    def same_layout(self, x: Slot, y: Slot) -> bool:
        """Whether x can replace y: equal shape, dtype, device, and order in memory."""
        if (x.shape, x.dtype, x.device) != (y.shape, y.dtype, y.device):
            return False
        a, b = self.layout(x), self.layout(y)
        return a.flags.c_contiguous and b.flags.c_contiguous or a.strides == b.strides
