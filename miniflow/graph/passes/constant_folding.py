"""Compute once, while compiling, what depends on constants only.

The instruction's own kernel computes it, so the values are those of a replay. Saves its time in every call. A result
larger than its inputs and than `WORTH_KEEPING` is left to be computed each time, since keeping it would cost more
memory than it saves time; so is a view larger than its source, which costs neither. Left alone too are random ops,
updates, attributes that vary, and recomputation (`after`).

Source: Wegman and Zadeck, "Constant propagation with conditional branches", 1991 (here without branches).
"""

from __future__ import annotations

import numpy as np

from miniflow.graph.interpret import execute
from miniflow.graph.ir import CONSTANT, Instruction, Program, Slot, replaced, scalars_in

WORTH_KEEPING = 65_536  # bytes


def run(program: Program) -> Program:
    """The program with constants in place of instructions on constants."""
    constants = dict(program.constants)
    new: dict[Slot, Slot] = {}
    kept = []
    for instruction in program.instructions:
        if is_constant(instruction, constants, new):
            fold(instruction, constants, new)
        else:
            kept.append(instruction)
    return replaced(program.with_(constants=constants), new, kept) if new else program


def is_constant(instruction: Instruction, constants: dict, new: dict[Slot, Slot]) -> bool:
    """Whether the outputs are always the same, and small enough to be kept."""
    if instruction.mutates or instruction.waits_for != instruction.reads or not instruction.reads:
        return False
    if any(True for value in instruction.attrs.values() for _ in scalars_in(value)):
        return False
    if instruction.is_random or not all(new.get(slot, slot) in constants for slot in instruction.reads):
        return False
    before, size = (sum(slot.nbytes for slot in slots) for slots in (instruction.reads, instruction.outputs))
    return size <= before or size <= WORTH_KEEPING and not instruction.op.view


def fold(instruction: Instruction, constants: dict, new: dict[Slot, Slot]) -> None:
    """Run the instruction, and add its results to the constants."""
    values = {slot: constants[new.get(slot, slot)] for slot in instruction.reads}
    with np.errstate(all="ignore"):
        results = execute(instruction, values, {})
    for slot, array in zip(instruction.outputs, results, strict=True):
        new[slot] = slot.like(kind=CONSTANT)
        constants[new[slot]] = array
