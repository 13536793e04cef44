"""Early updates: a large parameter is updated as soon as its gradient is there, not at the end of the step.

    %7 = matmul(%5, %0)                         %7 = matmul(%5, %0)
    %8 = matmul(%5, %1)                         %8 = matmul(%5, %1)
    ...                               ->        %20 = sgd_update(%1, %7)
    %20 = sgd_update(%1, %7)                    ...

The memory of the gradient is free again at once, where before the gradients of all parameters lived until the end; and
it is still in the cache. The update waits for whoever reads the parameter's old value, so no bit changes. Where the
update needs all gradients, for the norm that bounds them or for the search for infinities, it stays at the end.

A step that is interrupted in backward has then updated some parameters and others not. An op of forward that refuses
values, such as indices out of range, does so before any update, also where `build` has it after backward.

Source: Lv et al. 2023, "Full Parameter Fine-tuning for Large Language Models with Limited Resources" (LOMO).
"""

from __future__ import annotations

from miniflow.graph.ir import FORWARD, Instruction, Program, Slot
from miniflow.graph.passes.dead_code import may_refuse
from miniflow.graph.passes.multi_tensor_update import LARGE


def run(program: Program) -> Program:
    """The program with the updates of large parameters where they can first be done."""
    updates = [i for i in program.instructions if i.mutates and i.inputs[0].size >= LARGE]
    if not updates:
        return program
    moved = set(map(id, updates))
    order = Order([i for i in program.instructions if id(i) not in moved], updates)
    for update in updates:
        order.place(update)
    instructions = order.instructions()
    if all(a is b for a, b in zip(instructions, program.instructions, strict=True)):
        return program
    return program.with_(instructions=instructions)


class Order:
    """Instructions that stay in order, and updates put between them.

    Args:
        others: the instructions without the updates.
        updates: in the order in which they are going to be placed.
    """

    def __init__(self, others: list[Instruction], updates: list[Instruction]):
        self.others = others
        self.behind: dict[int, list[Instruction]] = {}  # number among the others -> the updates that follow it
        self.made: dict[Slot, int] = {}  # the number after which a slot is there
        self.read: dict[Slot, int] = {}  # the number after which nobody reads it, nor a view of it
        self.root: dict[Slot, Slot] = {}
        self.refusing = -1  # the number of the last one of forward that may refuse values
        self.due: dict[Slot, int] = {}  # the number after which a slot must be there, since the next waits for it
        for number, instruction in enumerate(others):
            self._note(instruction, number)
        for update in reversed(updates):
            last = self.last(update)
            for slot in update.waits_for:
                self.due[slot] = min(self.due.get(slot, last), last)

    def _note(self, instruction: Instruction, number: int) -> None:
        if instruction.phase == FORWARD and may_refuse(instruction):
            self.refusing = number
        for slot in instruction.waits_for:
            self.read[self.root.get(slot, slot)] = number
            self.due.setdefault(slot, number - 1)
        for slot in instruction.outputs:
            self.made[slot] = number
            if instruction.op.view:
                self.root[slot] = self.root.get(instruction.inputs[0], instruction.inputs[0])

    def last(self, update: Instruction) -> int:
        """The last place of an update: somebody behind it reads a new value."""
        return min(self.due.get(slot, len(self.others)) for slot in update.outputs)

    def place(self, update: Instruction) -> None:
        """Put an update behind all that it needs, before all that read a new value, and else behind all that need the
        old value of what it changes. Where both are read in the other order, the memory plan has a copy made."""
        changed = [update.inputs[position] for position in update.mutates]
        number = max(
            self.refusing,
            *(self.made.get(slot, -1) for slot in update.waits_for),
            *(self.read.get(self.root.get(slot, slot), -1) for slot in changed),
        )
        number = min(number, self.last(update))
        self.behind.setdefault(number, []).append(update)
        for slot in update.waits_for:
            root = self.root.get(slot, slot)
            self.read[root] = max(self.read.get(root, -1), number)
        self.made.update(dict.fromkeys(update.outputs, number))

    def instructions(self) -> list[Instruction]:
        """All of them in order."""
        result = list(self.behind.get(-1, ()))
        for number, instruction in enumerate(self.others):
            result.append(instruction)
            result += self.behind.get(number, ())
        return result
