"""Run a program instruction by instruction, each by the kernel of its op: slow, simple, and right by its looks.

The plan that replays a compiled graph is held against this, and so is every pass.
"""

from __future__ import annotations

from typing import Any

from miniflow.backends.memory import row_major, to_host
from miniflow.backends.registry import kernel_of
from miniflow.dispatch.dispatcher import as_array, kernel_on
from miniflow.graph.ir import Instruction, Program, Slot, with_numbers


def interpret(program: Program, inputs: list[Any], states: list[Any] | None = None, numbers: dict | None = None):
    """Compute outputs and the new values of states; no memory that was given is changed.

    Args:
        inputs: arrays for `program.inputs`.
        states: arrays for `program.states`; by default what their tensors hold.
        numbers: the values of scalars by name; by default what their sources say.

    Returns:
        a list of the outputs, and a dict of the written states' new values by slot.
    """
    if states is None:
        states = [program.tensors[slot]._array for slot in program.states]
    if numbers is None:
        program.draws.take()
        numbers = {name: scalar.source() for name, scalar in program.scalars().items()}
    values: dict[Slot, Any] = dict(zip(program.inputs, inputs, strict=True))
    values.update(zip(program.states, states, strict=True))
    values.update(program.constants)
    for instruction in program.instructions:
        values.update(zip(instruction.outputs, execute(instruction, values, numbers), strict=True))
    return [values[slot] for slot in program.outputs], {s: values[slot] for s, slot in program.writes.items()}


def execute(instruction: Instruction, values: dict[Slot, Any], numbers: dict[str, Any]) -> list[Any]:
    """The outputs of one instruction."""
    arrays = [values[x] if isinstance(x, Slot) else x for x in instruction.inputs]
    attrs = {name: with_numbers(value, numbers) for name, value in instruction.attrs.items()}
    mutated = instruction.mutates
    if mutated:
        for position in mutated:
            arrays[position] = arrays[position].copy()
        if instruction.unless is None or not bool(to_host(values[instruction.unless])):
            run_update(instruction, arrays, attrs)
        return [arrays[position] for position in mutated]
    result = kernel_on(instruction.op, instruction.outputs[0].device.type)(*arrays, **attrs)
    results = [as_array(result)] if instruction.op.single else [as_array(array) for array in result]
    return results if instruction.op.view else [row_major(array) for array in results]


def run_update(instruction: Instruction, arrays: list[Any], attrs: dict[str, Any]) -> None:
    """Call an update's kernel, which takes each group of inputs (parameters, gradients, states ...) as a list."""
    each = len(arrays) // instruction.op.groups
    groups = [arrays[i : i + each] for i in range(0, len(arrays), each)]
    device = next(slot for slot in instruction.inputs if isinstance(slot, Slot)).device.type
    kernel_of(device, instruction.op.__name__).run(*groups, **attrs)
