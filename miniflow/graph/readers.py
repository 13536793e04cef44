"""Who makes and who reads what: the first question of every pass that replaces several instructions by one."""

from __future__ import annotations

from miniflow.graph.ir import Instruction, Program, Slot


class Readers:
    """The instructions before and behind each slot of a program."""

    def __init__(self, program: Program):
        self.made = program.producers()
        self.consumers = program.consumers()
        self.results = set(program.results)
        self.awaited = {instruction.after for instruction in program.instructions}

    def is_needed(self, slot: Slot) -> bool:
        """Whether a slot must be there even if nobody reads it: a result of the program, or waited for."""
        return slot in self.results or slot in self.awaited

    def only_reader(self, slot: Slot) -> Instruction | None:
        """The instruction that alone reads a slot, which is not a result of the program and which none waits for."""
        readers = self.consumers.get(slot, [])
        return readers[0] if len(readers) == 1 and not self.is_needed(slot) else None
