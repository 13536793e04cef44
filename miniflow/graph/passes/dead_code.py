"""Drop what is not read: instructions without effect on a result, and constants without a reader.

An instruction lives if one of its outputs is read by a living one, is an output of the program, or is the new value of
a state, if it refuses some values (eager mode raises, whether its result is read or not), or if ranks exchange values
by it. Walking backwards, every reader is met before what it reads. Saves the time and memory of statistics, gradients
and masks that were recorded but not used, and of what other passes left behind.

A random op may be dropped, but not its draw: `program.draws` keeps the place of each in its generator's sequence, so
that the ops that stay draw the same numbers as in eager mode.

Source: Cytron et al., "Efficiently computing static single assignment form and the control dependence graph", 1991,
section 7.1; OneFlow's EliminateDeadNodes.
"""

from __future__ import annotations

from miniflow.graph.ir import Instruction, Program, Slot


def run(program: Program) -> Program:
    """The program with only those instructions and constants on which a result depends."""
    living = living_instructions(program)
    read = {slot for instruction in living for slot in instruction.waits_for} | set(program.results)
    constants = {slot: array for slot, array in program.constants.items() if slot in read}
    if len(living) == len(program.instructions) and len(constants) == len(program.constants):
        return program
    return program.with_(instructions=living, constants=constants)


def living_instructions(program: Program) -> list[Instruction]:
    """The instructions that a result depends on, and those that may raise, in order."""
    needed: set[Slot] = set(program.results)
    living = []
    for instruction in reversed(program.instructions):
        has_effect = instruction.may_refuse or instruction.op.communicates
        if has_effect or any(slot in needed for slot in instruction.outputs):
            living.append(instruction)
            needed.update(instruction.waits_for)
    return living[::-1]
