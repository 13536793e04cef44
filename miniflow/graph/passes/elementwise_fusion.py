"""Elementwise fusion: pointwise ops that feed each other become one loop over memory.

A chain of n ops over an array that no cache holds costs n times a read and a write of memory; fused it costs one, and
the values between are never stored unless backward wants them.

    %2 = mul(%0, %1)                      %3 = fused_elementwise(%0, %1, body={v0 = mul(x0, x1); v1 = exp(v0) -> v1})
    %3 = exp(%2)

Instructions come together if one reads what the other computes, or both read the same array, if their results have the
same shape, and if they agree in device, phase, and what they wait for. Forward and backward stay apart: activations
that were not saved would be held. Instructions far from each other stay apart as well if that lets more memory live at
once. Bodies know no shapes, and numbers are arguments of the compiled loops: what recurs is compiled once.

Before that, what backward can compute again at next to no cost, such as -x for an x that it reads anyway, is no longer
saved by forward.

Source: "vertical" and "horizontal" fusion of XLA's instruction fusion and of NVFuser; TorchInductor's pointwise
scheduler. OneFlow leaves it to XLA and MLIR.
"""

from __future__ import annotations

from collections.abc import Hashable

from miniflow.backends.body import MOST_OPERANDS
from miniflow.formulas.scalar import is_number
from miniflow.graph.codegen.expressions import is_fusible
from miniflow.graph.codegen.regions import MOST_ARRAYS, MOST_STEPS, Contraction, peak_bytes
from miniflow.graph.ir import BACKWARD, FORWARD, Instruction, Program, Slot, substitute
from miniflow.graph.readers import Readers

WINDOWS = (64, 16, 4)  # how many instructions apart members may be; the next if the last one costs memory
SMALLEST = {"cpu": 1024, "cuda": 0}  # elements: less work is not worth the compilation
FEWEST = 2  # ops: a kernel of its own is as good for one
CHEAP = {"Neg", "Abs", "Sign", "Relu", "Cast", "Add", "Sub", "Mul", "Div", "Maximum", "Minimum", "Clamp"}
CHEAP |= {"Eq", "Ne", "Lt", "Le", "Gt", "Ge", "LogicalNot", "BitwiseNot"}


def run(program: Program) -> Program:
    """The program with regions of pointwise ops as single instructions."""
    allowed = peak_bytes(program)
    found = []
    again = computed_again(program)
    for window in WINDOWS:
        result = contracted(again, window)
        if result is again:
            return program
        peak = peak_bytes(result)
        if peak <= allowed:
            return result
        found.append((peak, len(found), result))
    return min(found)[2]


def computed_again(program: Program) -> Program:
    """The program in which backward computes cheap values of one array itself, if it reads that array anyway."""
    readers = Readers(program)
    at = {instruction: i for i, instruction in enumerate(program.instructions)}
    copies: dict[Instruction, list[Instruction]] = {}  # the first reader in backward -> what comes before it
    new: dict[Slot, Slot] = {}
    place: dict[Slot, int] = {}  # the position before which the copy of a slot is computed
    for instruction in program.instructions:
        if not is_cheap(instruction) or readers.is_needed(instruction.output):
            continue
        uses = readers.consumers.get(instruction.output, [])
        late = [reader for reader in uses if reader.phase == BACKWARD]
        (source,) = {x for x in instruction.inputs if isinstance(x, Slot)}
        kept = any(reader.phase == BACKWARD for reader in readers.consumers[source])
        if late and kept and all(kind_of(reader) is not None and reader.after is None for reader in uses):
            output = new[instruction.output] = instruction.output.like()
            first = place[instruction.output] = at[late[0]]
            known = source in new and place[source] <= first
            inputs = [new[source] if known and x is source else x for x in instruction.inputs]
            copy = instruction.with_(inputs=inputs, outputs=[output], phase=BACKWARD)
            copies.setdefault(late[0], []).append(copy)
    if not new:
        return program
    instructions = []
    for instruction in program.instructions:
        instructions += copies.get(instruction, [])
        instructions += substitute([instruction], new) if instruction.phase == BACKWARD else [instruction]
    return program.with_(instructions=instructions)


def is_cheap(instruction: Instruction) -> bool:
    """Whether it computes, in forward, from one array and at most one number, what takes next to no time."""
    if instruction.op.__name__ not in CHEAP or instruction.phase != FORWARD or instruction.after is not None:
        return False
    slots = [x for x in instruction.inputs if isinstance(x, Slot)]
    return len(slots) == 1 and slots[0].shape == instruction.output.shape and kind_of(instruction) is not None


def contracted(program: Program, window: int) -> Program:
    """The program with regions whose members are at most `window` instructions apart."""
    contraction = Contraction(program)
    kinds = [kind_of(instruction) for instruction in program.instructions]
    made = {slot: i for i, instruction in enumerate(program.instructions) for slot in instruction.outputs}
    readers: dict[Slot, int] = {}  # slot -> the last fusible instruction that reads it
    for i, instruction in enumerate(program.instructions):
        if kinds[i] is None:
            continue
        slots = [x for x in instruction.inputs if isinstance(x, Slot)]
        near = [made[slot] for slot in slots if slot in made]
        near += [readers[slot] for slot in slots if slot in readers and slot.shape == instruction.outputs[0].shape]
        for other in sorted(set(near), reverse=True):
            join(contraction, kinds, other, i, window)
        readers.update((slot, i) for slot in slots)
    for group in contraction.groups():
        if not pays([program.instructions[i] for i in group]):
            contraction.dissolve(group)
    return contraction.fused()


def join(contraction: Contraction, kinds: list[Hashable], a: int, b: int, window: int) -> None:
    """Put the groups of two instructions together if they fit."""
    first, second = contraction.group[a], contraction.group[b]
    if kinds[a] != kinds[b] or kinds[a] is None or first is second:
        return
    if min(abs(i - j) for i in first for j in second) > window:
        return
    members = [contraction.program.instructions[i] for i in (*first, *second)]
    arrays = {x for m in members for x in (*m.inputs, *m.outputs) if isinstance(x, Slot)}
    numbers = sum(map(numbers_of, members))
    if len(arrays) <= min(MOST_ARRAYS + len(members), MOST_OPERANDS - numbers):
        if sum(map(steps_of, members)) <= MOST_STEPS:
            contraction.merge(a, b)


def kind_of(instruction: Instruction) -> Hashable | None:
    """The same for instructions that could be in one region; None for one that cannot be in any."""
    if not is_fusible(instruction):
        return None
    output = instruction.outputs[0]
    if output.size < SMALLEST[output.device.type]:
        return None
    return output.shape, output.device, instruction.phase, instruction.after


def steps_of(instruction: Instruction) -> int:
    """About how many steps an instruction becomes."""
    return len(instruction.attrs["body"].steps) if "body" in instruction.attrs else 1


def numbers_of(instruction: Instruction) -> int:
    """How many numbers an instruction computes with."""
    if "body" in instruction.attrs:
        return len(instruction.attrs["body"].numbers)
    return sum(map(is_number, (*instruction.inputs, *instruction.attrs.values())))


def pays(members: list[Instruction]) -> bool:
    """Whether one loop is better than these one by one."""
    return len(members) >= FEWEST
