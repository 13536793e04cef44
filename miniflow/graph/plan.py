"""Memory planning: where each value of a program is stored while it is replayed.

Values that live at the same time do not overlap, others may share memory. In this order:

    views        share the memory of what they are taken of, at no cost
    updates      write into the memory of the states that they change, if nobody reads the old values later
    in place     a result takes over the memory of an input that is read for the last time (Kernel.in_place)
    best fit     blocks are placed in one arena, the largest first, each in the smallest gap that is free meanwhile:
                 "greedy by size", Pisarchyk and Lee 2020, "Efficient memory management for deep neural net inference"

OneFlow calls it memory reuse: `InplaceLbiGraph` and `InterJobMemSharing` / `MemReuseAlgorithm_SizeBestFit`.
What cannot be planned is allocated at each call: results of kernels that return them, outputs (which the user keeps),
and whatever is made of the inputs by views.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from miniflow.backends.registry import Kernel, kernel_of
from miniflow.graph.ir import Instruction, Program, Slot, scalars_in
from miniflow.graph.uses import Uses

ALIGNMENT = 64  # bytes: a cache line, and the widest vector
COPIED_UP_TO = 4096  # bytes: outputs up to that size are computed in the arena and copied


@dataclass(eq=False)
class Block:
    """Part of the arena.

    Attributes:
        nbytes: its size.
        first, last: the numbers of the instructions that write it first and read it last.
        slots: the values that are stored there, one after the other.
        offset: from the start of the arena.
    """

    nbytes: int
    first: int
    last: int
    slots: list[Slot] = field(default_factory=list)
    offset: int = 0


@dataclass(eq=False)
class Plan:
    """What `plan` decided.

    Attributes:
        producers: result -> the instruction that computes it.
        root: slot -> the slot whose memory it is a view of; itself if it is not a view.
        uses: root -> the numbers of the instructions that read it, in order; `len(instructions)` for the end.
        block: root -> its block, for results in the arena.
        in_state: result of an update -> the state in whose memory it is.
        taken: result of an update -> the input whose memory it takes over.
        staged: (number of instruction, position of input): updates of a copy, since the old value is read later.
        late: written states whose value is copied to them at the end.
        handed_out: outputs' roots that lie in buffers which are handed to the user.
        dynamic: slots whose array differs from call to call.
        arena_bytes: the size of the arena.
        peak_before: bytes if every value had its own memory from its instruction to its last use.
        peak_after: the arena and what is allocated beside it.
    """

    program: Program
    producers: dict[Slot, Instruction]
    root: dict[Slot, Slot]
    uses: dict[Slot, list[int]]
    block: dict[Slot, Block] = field(default_factory=dict)
    in_state: dict[Slot, Slot] = field(default_factory=dict)
    taken: dict[Slot, Slot] = field(default_factory=dict)
    staged: set[tuple[int, int]] = field(default_factory=set)
    late: dict[Slot, Slot] = field(default_factory=dict)
    handed_out: set[Slot] = field(default_factory=set)
    dynamic: set[Slot] = field(default_factory=set)
    arena_bytes: int = 0
    peak_before: int = 0
    peak_after: int = 0

    @property
    def blocks(self) -> list[Block]:
        """The blocks in the order in which they are first written."""
        return list(dict.fromkeys(self.block.values()))


def writing_kernel(instruction: Instruction) -> Kernel | None:
    """The kernel with which an instruction writes into planned memory, if there is one; only the CPU's is planned."""
    on_host = instruction.outputs[0].device.type == "cpu"
    if not on_host or instruction.mutates:
        return None
    kernel = kernel_of("cpu", instruction.op.__name__)
    return None if kernel is None or kernel.returns else kernel


def has_scalars(instruction: Instruction) -> bool:
    """Whether an attribute varies from call to call."""
    return any(True for value in instruction.attrs.values() for _ in scalars_in(value))


def plan(program: Program, shared: Iterable[Sequence[Slot]] = (), *, reuse: bool = True) -> Plan:
    """Decide where the values of a program are stored.

    Args:
        program: whose instructions are in an order in which they can run.
        shared: groups of states whose memories overlap.
        reuse: whether results may share memory; else each has its own, as to find out what planning saves.
    """
    uses_of = Uses(program)
    slots = (*program.inputs, *program.states, *program.constants, *uses_of.producers)
    result = Plan(program, uses_of.producers, {slot: uses_of.root(slot) for slot in slots}, uses_of.reads)
    write_in_states(result, shared)
    keep_outputs(result)
    placement = _Placement(result, reuse)
    for number, instruction in enumerate(program.instructions):
        placement.instruction(number, instruction)
    result.arena_bytes = assign_offsets(result.blocks, reuse)
    result.peak_before = peak(span for _, span in lifetimes(result))
    result.peak_after = result.arena_bytes + peak(span for slot, span in lifetimes(result) if slot in result.dynamic)
    return result


def write_in_states(plan: Plan, shared: Iterable[Sequence[Slot]]) -> None:
    """Let updates change the memory of states where that is safe; other writes are copies at the end."""
    program = plan.program
    updates = [instruction for instruction in program.instructions if instruction.mutates]
    pairs = [(i, i.inputs[p], y) for i in updates for p, y in zip(i.mutates, i.outputs, strict=True)]
    changed = {output: (instruction, before) for instruction, before, output in pairs}
    chains = {state: _updates_of(state, value, changed) for state, value in program.writes.items()}
    reads = {instruction: Counter([plan.root[slot] for slot in instruction.reads]) for instruction in updates}
    for state, chain in chains.items():
        if not chain:
            _write_late(plan, state)
    groups = [set(group) for group in shared]
    number_of = {instruction: number for number, instruction in enumerate(program.instructions)}
    for state, chain in chains.items():
        overlapping = [other for group in groups if state in group for other in group - {state}]
        if chain and _is_safe(plan, state, chain, overlapping, number_of, reads):
            plan.in_state.update(dict.fromkeys((output for _, output in chain), state))
        elif chain:
            _write_late(plan, state)


def _write_late(plan: Plan, state: Slot) -> None:
    value = plan.program.writes[state]
    if value is not state:
        plan.late[state] = value
        plan.uses.setdefault(plan.root[value], []).append(len(plan.program.instructions))


def _updates_of(
    state: Slot, value: Slot, changed: dict[Slot, tuple[Instruction, Slot]]
) -> list[tuple[Instruction, Slot]]:
    """The updates, each with its output, that lead from a state to its last value; none if others do."""
    chain = []
    while value is not state:
        if value not in changed:
            return []
        instruction, before = changed[value]
        chain.append((instruction, value))
        value = before
    return chain[::-1]


def _is_safe(
    plan: Plan,
    state: Slot,
    chain: list,
    overlapping: Sequence[Slot],
    number_of: dict[Instruction, int],
    reads: dict[Instruction, Counter[Slot]],
) -> bool:
    """Whether nobody reads a value of the state, or of memory that overlaps it, after an update replaced it."""
    first = number_of[chain[0][0]]
    if any(x in plan.program.writes or plan.uses.get(x, [-1])[-1] >= first for x in overlapping):
        return False
    old = state
    for instruction, output in chain:
        if plan.uses[old][-1] > number_of[instruction] or reads[instruction][old] > 1:
            return False
        old = output
    return True


def keep_outputs(plan: Plan) -> None:
    """Find the outputs that are computed in memory which the user gets: large ones. Others are copied at the end."""
    for slot in plan.program.outputs:
        root = plan.root[slot]
        instruction = plan.producers.get(root)
        if slot.nbytes > COPIED_UP_TO and instruction is not None and writing_kernel(instruction) is not None:
            plan.handed_out.add(root)


class _Placement:
    """Goes through the instructions and finds memory for their results."""

    def __init__(self, plan: Plan, reuse: bool):
        self.plan, self.reuse = plan, reuse
        self.whole: set[Slot] = set()  # results, and views of all their elements in order
        plan.dynamic.update(plan.program.inputs)

    def instruction(self, number: int, instruction: Instruction) -> None:
        """Place the outputs of one instruction."""
        plan = self.plan
        if instruction.op.view:
            self.view(instruction)
            return
        self.whole.update(instruction.outputs)
        if instruction.mutates:
            for position, output in zip(instruction.mutates, instruction.outputs, strict=True):
                self.update(number, instruction, position, output)
            return
        kernel = writing_kernel(instruction)
        for output in instruction.outputs:
            if kernel is None or output in plan.handed_out:
                plan.dynamic.add(output)
            elif not self.reuse or not self.in_place(number, instruction, kernel, output):
                self.block(number, output)

    def view(self, instruction: Instruction) -> None:
        """A view is in the memory of its input."""
        (source, *_), output = instruction.inputs, instruction.output
        if source in self.plan.dynamic or has_scalars(instruction):
            self.plan.dynamic.add(output)
        if source in self.whole and instruction.op.__name__ == "View":
            self.whole.add(output)

    def block(self, number: int, output: Slot) -> None:
        """New memory for a result, on the CPU in the arena."""
        if output.device.type != "cpu":
            self.plan.dynamic.add(output)
            return
        self.plan.block[output] = Block(output.nbytes, number, self.last(number, output), [output])

    def last(self, number: int, output: Slot) -> int:
        """The number of the instruction that reads a result last."""
        return self.plan.uses.get(output, [number])[-1]

    def is_free(self, number: int, instruction: Instruction, position: int) -> bool:
        """Whether the memory of an input is that of a result which is read here for the last time, as a whole."""
        x, plan = instruction.inputs[position], self.plan
        root = plan.root[x]
        return (
            x in self.whole
            and root not in plan.handed_out
            and root not in plan.in_state
            and plan.uses[root][-1] == number
        )

    def in_place(self, number: int, instruction: Instruction, kernel: Kernel, output: Slot) -> bool:
        """Let a result take over the memory of an input, if that is possible."""
        plan, allowed = self.plan, kernel.in_place
        if callable(allowed):
            allowed = allowed(instruction.outputs.index(output), **instruction.attrs)
        elif allowed == "all":
            allowed = range(len(instruction.inputs))
        slots = [(i, x) for i, x in enumerate(instruction.inputs) if isinstance(x, Slot)]
        for position, x in slots:
            block = plan.block.get(plan.root[x])
            if block is None or (x.shape, x.dtype) != (output.shape, output.dtype):
                continue
            is_taken = any(plan.block.get(other) is block for other in instruction.outputs)
            if position not in allowed or is_taken or not self.is_free(number, instruction, position):
                continue
            readers = [(i, y) for i, y in slots if plan.block.get(plan.root[y]) is block]
            if all(i in allowed and y in self.whole and y.shape == x.shape for i, y in readers):
                self.join(block, number, output)
                return True
        return False

    def join(self, block: Block, number: int, output: Slot) -> None:
        """Store a result in a block whose last value nobody needs any more."""
        block.slots.append(output)
        block.last = max(block.last, self.last(number, output))
        self.plan.block[output] = block

    def update(self, number: int, instruction: Instruction, position: int, output: Slot) -> None:
        """The result of an update is in the memory of the input that it changes, or of a copy of that."""
        plan, x = self.plan, instruction.inputs[position]
        if output in plan.in_state:
            plan.taken[output] = x
            return
        reads = [y for y in instruction.reads if plan.root[y] is plan.root[x]]
        if len(reads) == 1 and self.is_free(number, instruction, position):
            plan.taken[output] = x
            if x in plan.dynamic:
                plan.dynamic.add(output)
            else:
                self.join(plan.block[plan.root[x]], number, output)
        else:
            plan.staged.add((number, position))
            self.block(number, output)


def aligned(nbytes: int) -> int:
    """`nbytes` rounded up to whole cache lines."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def assign_offsets(blocks: Iterable[Block], reuse: bool = True) -> int:
    """Give each block its place in the arena, beside others that live at the same time; return the arena's size."""
    placed: list[tuple[int, int, int, int]] = []  # by offset: that, the end, and the first and last instruction
    for block in sorted(blocks, key=lambda block: (-block.nbytes, block.first)):
        size = aligned(block.nbytes)
        best, gap, start = None, None, 0
        for offset, end, first, last in placed:
            if reuse and (first > block.last or block.first > last):
                continue
            free = offset - start
            if free >= size and (gap is None or free < gap):
                best, gap = start, free
            if end > start:
                start = end
        block.offset = start if best is None else best
        insort(placed, (block.offset, block.offset + size, block.first, block.last))
    return max([end for _, end, *_ in placed], default=0)


def peak(spans: Iterable[tuple[int, int, int]]) -> int:
    """The most bytes alive at once, of (bytes, first, last)."""
    return max(alive(spans), default=0)


def alive(spans: Iterable[tuple[int, int, int]]) -> list[int]:
    """The bytes alive at each instruction, of (bytes, first, last)."""
    spans = list(spans)
    changes = [0] * (max((last for _, _, last in spans), default=-1) + 2)
    for nbytes, first, last in spans:
        changes[first] += nbytes
        changes[last + 1] -= nbytes
    total, result = 0, []
    for change in changes[:-1]:
        total += change
        result.append(total)
    return result


def lifetimes(plan: Plan) -> Iterator[tuple[Slot, tuple[int, int, int]]]:
    """The results that are not written into memory of others, each with (bytes, first, last)."""
    for number, instruction in enumerate(plan.program.instructions):
        for slot in () if instruction.op.view else instruction.outputs:
            if slot not in plan.in_state and slot not in plan.taken:
                yield slot, (slot.nbytes, number, plan.uses.get(slot, [number])[-1])
