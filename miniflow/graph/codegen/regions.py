"""Several instructions made one: when that is possible, where it then stands, and what it reads and returns.

A set of instructions is convex if no way leads out of it and back: only then is there a place for all of them at once.
Regions that were formed already count as one instruction on such a way, so that together they stay free of circles.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence

from miniflow.errors import GraphError
from miniflow.graph.codegen.expressions import Region
from miniflow.graph.codegen.fused import FusedElementwise
from miniflow.graph.ir import Instruction, Program, Slot

MOST_STEPS = 48  # beyond, registers run out and compilation takes long
MOST_ARRAYS = 16


class Contraction:
    """The instructions of a program, some of them grouped.

    Attributes:
        group: position of an instruction -> the sorted positions of its group, a list that its members share.
    """

    def __init__(self, program: Program):
        self.program = program
        self.group: dict[int, list[int]] = {i: [i] for i in range(len(program.instructions))}
        self.later = dependents(program)
        self.farthest = list(range(len(program.instructions)))  # at i: the last member of all groups that begin by i

    def merge(self, a: int, b: int) -> bool:
        """Put the groups of the instructions at `a` and `b` together, unless a way leads out of the two and back."""
        if self.group[a] is self.group[b]:
            return True
        union = sorted([*self.group[a], *self.group[b]])
        if not self.is_convex(union):
            return False
        for position in union:
            self.group[position] = union
        for position in range(union[0], union[-1]):
            self.farthest[position] = max(self.farthest[position], union[-1])
        return True

    def is_convex(self, union: list[int]) -> bool:
        """Whether no way leads out of these positions, which are whole groups, and back."""
        members, horizon = set(union), self.horizon(union[-1])
        waiting = [target for i in union for target in self.later[i] if target not in members]
        seen: set[int] = set()
        while waiting:
            position = waiting.pop()
            if position in seen:
                continue
            group = self.group[position]
            seen.update(group)
            if group[0] > horizon:
                continue
            for i in group:
                for target in self.later[i]:
                    if target in members:
                        return False
                    if target not in seen:
                        waiting.append(target)
        return True

    def horizon(self, position: int) -> int:
        """The first position from `position` on that no group reaches across: no way leads from behind it back."""
        while self.farthest[position] > position:
            position = self.farthest[position]
        return position

    def groups(self) -> list[list[int]]:
        """The groups of more than one instruction."""
        return [group for i, group in self.group.items() if group[0] == i and len(group) > 1]

    def dissolve(self, group: list[int]) -> None:
        """Make a group single instructions again."""
        for position in group:
            self.group[position] = [position]

    def order(self) -> list[list[int]]:
        """The groups in an order of execution: each where its last member stood, or as soon after it as possible."""
        blocking: dict[int, set[int]] = {}
        for i, group in self.group.items():
            for target in self.later[i]:
                if self.group[target] is not group:
                    blocking.setdefault(self.group[target][0], set()).add(group[0])
        counts = {first: len(sources) for first, sources in blocking.items()}
        followers: dict[int, list[int]] = {}
        for first, sources in blocking.items():
            for source in sources:
                followers.setdefault(source, []).append(first)
        firsts = [i for i, group in self.group.items() if group[0] == i]
        ready = [(self.group[i][-1], i) for i in firsts if not counts.get(i)]
        heapq.heapify(ready)
        result = []
        while ready:
            _, first = heapq.heappop(ready)
            result.append(self.group[first])
            for follower in followers.get(first, ()):
                counts[follower] -= 1
                if not counts[follower]:
                    heapq.heappush(ready, (self.group[follower][-1], follower))
        if len(result) != len(firsts):
            raise GraphError(
                f"fusion of {self.program.name}: got {len(firsts) - len(result)} regions that wait for each other; "
                "expected an order: switch the pass off with config.disable_pass"
            )
        return result

    def fused(self) -> Program:
        """The program with one instruction for each group."""
        if not self.groups():
            return self.program
        instructions = self.program.instructions
        wanted = used_outside(self.program, self.group)
        result = [
            instructions[group[0]] if len(group) == 1 else fuse([instructions[i] for i in group], wanted)
            for group in self.order()
        ]
        return self.program.with_(instructions=[i for i in result if i.outputs])  # nobody needs the others


def dependents(program: Program) -> list[list[int]]:
    """For each instruction the positions of those that must come later.

    They read what it computes, or change memory that it reads.
    """
    later: list[list[int]] = [[] for _ in program.instructions]
    made: dict[Slot, int] = {}
    readers: dict[Slot, list[int]] = {}
    for i, instruction in enumerate(program.instructions):
        for slot in dict.fromkeys(instruction.waits_for):
            if slot in made:
                later[made[slot]].append(i)
        for position in instruction.mutates:
            for reader in readers.get(instruction.inputs[position], ()):
                later[reader].append(i)
        for slot in instruction.reads:
            readers.setdefault(slot, []).append(i)
        for slot in instruction.outputs:
            made[slot] = i
    return later


def used_outside(program: Program, group: dict[int, list[int]]) -> set[Slot]:
    """The slots that are read outside of the group of the instruction that computes them."""
    wanted = set(program.results)
    made = {slot: i for i, instruction in enumerate(program.instructions) for slot in instruction.outputs}
    for i, instruction in enumerate(program.instructions):
        wanted.update(s for s in instruction.waits_for if s in made and group[made[s]] is not group[i])
    return wanted


def fuse(members: Sequence[Instruction], wanted: set[Slot]) -> Instruction:
    """One instruction for several, which are in order; it returns those of their outputs that are wanted."""
    region = Region()
    for instruction in members:
        region.add(instruction)
    outputs = [slot for instruction in members for slot in instruction.outputs if slot in wanted]
    return Instruction(
        FusedElementwise,
        list(region.inputs),
        outputs,
        {"body": region.body(outputs)},
        scope=common_scope(m.scope for m in members),
        location=members[0].location,
        phase=members[0].phase,
        after=members[0].after,
    )


def common_scope(scopes: Iterable[str]) -> str:
    """The innermost module that holds all of these.

    >>> common_scope(["model.0.fc", "model.0.act"])
    'model.0'
    """
    first, *rest = [scope.split(".") if scope else [] for scope in scopes]
    for other in rest:
        while other[: len(first)] != first:
            first = first[:-1]
    return ".".join(first)


def peak_bytes(program: Program) -> int:
    """How many bytes of results live at once, if each has memory of its own from its making to its last use."""
    root: dict[Slot, Slot] = {}
    last: dict[Slot, int] = {}
    for i, instruction in enumerate(program.instructions):
        if instruction.op.view and isinstance(instruction.inputs[0], Slot):
            root[instruction.output] = root.get(instruction.inputs[0], instruction.inputs[0])
        for slot in (*instruction.reads, *instruction.outputs):
            last[root.get(slot, slot)] = i
    for slot in program.results:
        last[root.get(slot, slot)] = len(program.instructions)
    ends: dict[int, int] = {}
    living = most = 0
    for i, instruction in enumerate(program.instructions):
        for slot in () if instruction.mutates else instruction.outputs:
            if slot not in root:
                living += slot.nbytes
                ends[last[slot]] = ends.get(last[slot], 0) + slot.nbytes
        most = max(most, living)
        living -= ends.pop(i, 0)
    return most
