"""Who makes and who reads each slot of a program, and whose memory it shares."""

from __future__ import annotations

from functools import cached_property

from miniflow.dispatch.dispatcher import Op
from miniflow.graph.ir import Instruction, Program, Slot


class Uses:
    """The definitions and uses of a program's slots.

    Attributes:
        producers: result -> the instruction that computes it.
        readers: slot -> the instructions that read it, in order, each once.
        needed: slots that must be there even if no instruction reads them: results of the program, and those that an
            instruction waits for.
    """

    def __init__(self, program: Program):
        self.program = program
        self.producers: dict[Slot, Instruction] = {}
        self.readers: dict[Slot, list[Instruction]] = {}
        self.needed = set(program.results)
        for instruction in program.instructions:
            self.producers.update(dict.fromkeys(instruction.outputs, instruction))
            for slot in dict.fromkeys(instruction.reads):
                self.readers.setdefault(slot, []).append(instruction)
            if instruction.after is not None:
                self.needed.add(instruction.after)

    def only_reader(self, slot: Slot) -> Instruction | None:
        """The instruction that alone needs a slot."""
        readers = self.readers.get(slot, [])
        return readers[0] if len(readers) == 1 and slot not in self.needed else None

    def producer_for(self, slot: Slot, *ops: type[Op]) -> Instruction | None:
        """The instruction, of one of these ops, that computes a slot for one reader alone."""
        producer = self.producers.get(slot)
        is_alone = producer is not None and producer.op in ops and self.only_reader(slot) is not None
        return producer if is_alone else None

    def root(self, slot: Slot) -> Slot:
        """What a slot is a view of in the end; itself if it is not a view."""
        while slot in self.producers and self.producers[slot].op.view:
            slot = self.producers[slot].inputs[0]
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
