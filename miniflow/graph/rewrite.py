"""What passes share that rewrite a program: to find a chain of instructions, to replace some, to put all in order.

A set of instructions can become one if it is convex: no way leads out of it and back. Sets that were formed already
count as one instruction on such a way, so that together they stay free of circles.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from graphlib import TopologicalSorter

from miniflow.dispatch.dispatcher import Op
from miniflow.graph.ir import FORWARD, UPDATE, Instruction, Program, Slot
from miniflow.graph.uses import Uses


def match(uses: Uses, first: Instruction, *ops: type[Op]) -> list[Instruction]:
    """`first` and those that follow it, of these ops: each alone needs the first result of the one before it.

    Nothing if there is no such chain, or if its members wait for different things.
    """
    chain = [first]
    for op in ops:
        reader = uses.only_reader(chain[-1].outputs[0])
        if reader is None or reader.op is not op or reader.after is not first.after:
            return []
        chain.append(reader)
    return chain


def replace(program: Program, new: Mapping[Instruction, Sequence[Instruction]]) -> Program:
    """The program with other instructions, or none, in place of some; the program itself if there are none."""
    if not new:
        return program
    return program.with_(instructions=[x for i in program.instructions for x in new.get(i, [i])])


class Groups:
    """The instructions of a program, some of which are to become one.

    Attributes:
        of: instruction -> the members of its group in order, a list that they share.
    """

    def __init__(self, program: Program):
        self.program = program
        self.of = {instruction: [instruction] for instruction in program.instructions}
        self._position = {instruction: i for i, instruction in enumerate(program.instructions)}
        self._first = list(range(len(program.instructions)))  # at i: of all groups that reach to i, the first member

    @cached_property
    def _before(self) -> dict[Instruction, list[Instruction]]:
        return dependencies(self.program)

    def merge(self, *instructions: Instruction) -> None:
        """Put the groups of these instructions together, unless a way leads out of them and back."""
        union = sorted({x for i in instructions for x in self.of[i]}, key=self._position.__getitem__)
        if self._is_convex(union):
            self.of.update(dict.fromkeys(union, union))
            first, last = (self._position[union[end]] for end in (0, -1))
            self._first[first : last + 1] = [min(first, before) for before in self._first[first : last + 1]]

    def _is_convex(self, union: list[Instruction]) -> bool:
        """Whether none of the instructions that must come before these, and are not among them, needs one of them."""
        members, seen = set(union), set(union)
        start = self._position[union[0]]
        while self._first[start] < start:
            start = self._first[start]  # no group reaches across: nothing before it needs anything behind it
        waiting = [x for i in union for x in self._before[i] if x not in members]
        while waiting:
            instruction = waiting.pop()
            if instruction in seen or self._position[self.of[instruction][-1]] < start:
                continue
            for member in self.of[instruction]:
                seen.add(member)
                for x in self._before[member]:
                    if x in members:
                        return False
                    if x not in seen:
                        waiting.append(x)
        return True

    def replaced(self, one: Callable[[list[Instruction], list[Slot]], Instruction]) -> Program:
        """The program with one instruction for each group of several: `one` makes it of the members and of those of
        their results that others need."""
        groups = [group for i, group in self.of.items() if group[0] is i and len(group) > 1]
        needed = set(self.program.results)
        group_of = {slot: self.of[i] for i in self.program.instructions for slot in i.outputs}
        for instruction in self.program.instructions:
            group = self.of[instruction]
            needed.update(slot for slot in instruction.waits_for if group_of.get(slot) is not group)
        new: dict[Instruction, list[Instruction]] = {}
        for group in groups:
            outputs = [slot for member in group for slot in member.outputs if slot in needed]
            new.update(dict.fromkeys(group, []))
            new[group[-1]] = [one(group, outputs)] if outputs else []
        return ordered(replace(self.program, new)) if new else self.program


def ordered(program: Program) -> Program:
    """The program with every instruction behind what it needs, else in the order that it has.

    Updates, and what ranks exchange for them, come as early as they can: the memory of their gradients is then free
    again, and the gradients are still in the cache.
    """
    early = [i.mutates or i.op.communicates and i.phase == UPDATE for i in program.instructions]
    priority = {instruction: (not early[i], i) for i, instruction in enumerate(program.instructions)}
    sorter = TopologicalSorter(dependencies(program))
    sorter.prepare()
    ready: list[tuple[tuple[bool, int], Instruction]] = []
    instructions: list[Instruction] = []
    while sorter.is_active():
        for instruction in sorter.get_ready():
            heapq.heappush(ready, (priority[instruction], instruction))
        _, instruction = heapq.heappop(ready)
        instructions.append(instruction)
        sorter.done(instruction)
    return program if instructions == program.instructions else program.with_(instructions=instructions)


def dependencies(program: Program) -> dict[Instruction, list[Instruction]]:
    """For each instruction those that must come before it.

    They compute what it needs, or read memory that it changes. An instruction of forward that refuses values, such as
    indices out of range, comes before the updates behind it: a step that it interrupts changes nothing. Those by which
    ranks exchange values stay in order.
    """
    uses = Uses(program)
    readers: dict[Slot, list[Instruction]] = {}
    refusing: list[Instruction] = []
    sent: list[Instruction] = []
    before: dict[Instruction, list[Instruction]] = {}
    for instruction in program.instructions:
        needed = [uses.producers[slot] for slot in instruction.waits_for if slot in uses.producers]
        if instruction.mutates:
            for position in instruction.mutates:
                needed += readers.get(uses.root(instruction.inputs[position]), ())
            needed += refusing
        if instruction.op.communicates:
            needed += sent[-1:]
            sent.append(instruction)
        before[instruction] = list(dict.fromkeys(needed))
        for slot in instruction.reads:
            readers.setdefault(uses.root(slot), []).append(instruction)
        if instruction.phase == FORWARD and instruction.may_refuse:
            refusing.append(instruction)
    return before
