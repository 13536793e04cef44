"""A program as JSON values and back; nothing that is read is believed.

    {"name": "LinearGraph_0",
     "inputs": [{"shape": [8, 3], "dtype": "float32", "device": "cpu", "name": "input.0"}],
     "states": [{"shape": [4, 3], "dtype": "float32", "device": "cpu", "name": "model.weight", "kind": "parameter",
                 "requires_grad": true, "values": "model.weight", "order": [0, 1]}],
     "constants": [{..., "values": "constant.0", "order": [0]}],
     "instructions": [{"op": "Linear", "inputs": ["%0", "%1", null], "attrs": {}, "outputs": [{"shape": [8, 4], ...}],
                       "scope": "model", "location": "train.py:12", "phase": "forward", "unless": null, "after": null}],
     "outputs": ["%2"],
     "writes": [["%1", "%7"]],
     "late_reads": [[0, "%1"]],
     "generators": [{"seed": 7, "offset": 3}],
     "draws": [null, 0]}

Slots have no names of their own: they are numbered in the order of the file, inputs first. So a slot can
only be read after it was written. `values` names an array that is kept beside the JSON, `order` its dims from the
largest stride to the smallest: views that the program takes may not exist in another order. `late_reads` are pairs of
the position of an input and a state, or the position of another input, in whose memory it must not lie. `draws` are the
random draws of a call: each from a generator, null being the default one. For attributes see `values`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from miniflow.backends.memory import to_host
from miniflow.graph.ir import (
    BACKWARD,
    CONSTANT,
    FORWARD,
    INPUT,
    STATES,
    UPDATE,
    VALUE,
    Draws,
    Instruction,
    Program,
    Slot,
    numbering,
)
from miniflow.graph.saved.attributes import known_ops
from miniflow.graph.saved.fields import Reader, each, flag, integer, named, one_of, optional, pair, record, refuse, text
from miniflow.graph.saved.operands import check_instruction
from miniflow.graph.saved.values import DTYPES, NAMES, Values, encode_op, encode_place, encode_value
from miniflow.graph.trace import of_rank_0
from miniflow.ops.generator import Generator, default_generator
from miniflow.ops.promotion import ToDevice
from miniflow.ops.shape import Clone

MAX_DIMS = 32
MAX_BYTES = 1 << 44  # of one array


def encode(program: Program) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The JSON value of a program, and the arrays that belong to it by name.

    Raises:
        CheckpointError: for an op or an attribute that has no place in a file.
    """
    names = numbering(program)
    arrays: dict[str, np.ndarray] = {}
    states = [encode_state(slot, program, arrays) for slot in program.states]
    constants = []
    for slot, array in program.constants.items():
        constants.append({**encode_slot(slot), **keep(arrays, f"constant.{len(constants)}", array)})
    generators = list(dict.fromkeys(g for g in program.draws.generators if g is not default_generator))
    document = {
        "name": program.name,
        "inputs": [{**encode_slot(slot), "name": slot.name} for slot in program.inputs],
        "states": states,
        "constants": constants,
        "instructions": [encode_instruction(instruction, names) for instruction in program.instructions],
        "outputs": [names[slot] for slot in program.outputs],
        "writes": [[names[state], names[slot]] for state, slot in program.writes.items()],
        "late_reads": [[position, names.get(other, other)] for position, other in program.late_reads],
        "generators": [{"seed": g.initial_seed(), "offset": g._offset} for g in generators],
        "draws": [None if g is default_generator else generators.index(g) for g in program.draws.generators],
    }
    return document, arrays


def encode_slot(slot: Slot) -> dict[str, Any]:
    """Shape, dtype and device."""
    return {"shape": [int(n) for n in slot.shape], "dtype": NAMES[slot.dtype], "device": encode_place(slot.device)}


def encode_state(slot: Slot, program: Program, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """A state with the name of its values, which go into `arrays`."""
    kind = {"name": slot.name, "kind": slot.kind, "requires_grad": bool(slot.requires_grad)}
    return {**encode_slot(slot), **kind, **keep(arrays, slot.name or slot.kind, program.tensors[slot]._array)}


def keep(arrays: dict[str, np.ndarray], name: str, array: Any) -> dict[str, Any]:
    """Put a copy of an array into `arrays` under a name that is still free; the name, and the order of its dims."""
    count, free = 1, name
    while free in arrays or free == "__metadata__":
        count += 1
        free = f"{name}#{count}"
    array = to_host(array)
    arrays[free] = np.array(array, order="C")
    return {"values": free, "order": sorted(range(array.ndim), key=lambda dim: -array.strides[dim])}


def encode_instruction(instruction: Instruction, names: dict[Slot, str]) -> dict[str, Any]:
    """One instruction; refused unless it can be read again."""
    return {
        "op": encode_op(instruction.op, instruction.location),
        "inputs": [names[x] if isinstance(x, Slot) else encode_value(x) for x in instruction.inputs],
        "outputs": [encode_slot(slot) for slot in instruction.outputs],
        "attrs": {name: encode_value(v) for name, v in instruction.attrs.items()},
        "scope": instruction.scope,
        "location": instruction.location,
        "phase": instruction.phase,
        "unless": None if instruction.unless is None else names[instruction.unless],
        "after": None if instruction.after is None else names[instruction.after],
    }


class Decoder(Values):
    """Reads what `encode` wrote; every step names its place when it refuses something.

    Args:
        arrays: the values of states and constants by name.
        map_location: the device to move everything to; None for where it was.

    Raises:
        CheckpointError: from each method, for anything that `encode` would not have written.
    """

    def __init__(self, arrays: dict[str, np.ndarray], map_location: Any = None):
        super().__init__(map_location)
        self.arrays = dict(arrays)  # those that no state and no constant has named yet
        self.slots: list[Slot] = []
        self.values: dict[Slot, np.ndarray] = {}  # of states and constants
        self.orders: dict[Slot, list[int]] = {}  # and in which order their dims lie in memory
        self.makers: dict[Slot, Instruction] = {}
        self.generators: list[Generator] = []

    def program(self, value: Any, at: str = "graph") -> Program:
        """The program, whose `tensors` are still to be made from `self.values`."""
        kept = {"values": text, "order": each(integer(0))}
        found = record(
            value,
            at,
            generators=each(self.generator),
            draws=self.draws,
            name=text,
            inputs=each(self.new_slot(INPUT, name=text)),
            states=each(self.new_slot(kind=one_of(STATES), name=text, requires_grad=flag, **kept)),
            constants=each(self.new_slot(CONSTANT, **kept)),
            instructions=each(self.instruction),
            outputs=each(self.slot),
            writes=each(pair(self.slot, self.slot)),
            late_reads=each(pair(integer(0), lambda value, at: value if type(value) is int else self.slot(value, at))),
        )
        del found["generators"]
        writes = found["writes"]
        constants = {slot: self.values[slot] for slot in found["constants"]}
        program = Program(**{**found, "constants": constants, "writes": dict(writes)})
        self.check(program, writes)
        if program.is_global:
            program.draws.agree = of_rank_0
        return program

    def check(self, program: Program, writes: list[tuple[Slot, Slot]]) -> None:
        """Refuse writes to what is no state or of another type, late reads of what is not there, arrays of no slot."""
        if self.arrays:
            refuse("weights", f"arrays {sorted(self.arrays)[:5]} that no state and no constant names", "only those")
        for number, (state, slot) in enumerate(writes):
            if state not in program.states or len(writes) > len(program.writes):
                refuse(f"writes[{number}][0]", repr(state), "a state, each written once")
            if (slot.shape, slot.dtype, slot.device) != (state.shape, state.dtype, state.device):
                refuse(f"writes[{number}][1]", slot.type, f"{state.type}, as the state has it")
        for number, late in enumerate(program.late_reads):
            for i, x in enumerate(late):
                known = program.states if isinstance(x, Slot) else range(len(program.inputs))
                if x not in known or late[0] == late[1]:
                    refuse(f"late_reads[{number}][{i}]", repr(x), "a state, or the position of another input")

    def generator(self, value: Any, at: str) -> None:
        """One more generator, in the state of the one that was saved."""
        state = record(value, at, seed=integer(0, 2**64 - 1), offset=integer(0, 2**63))
        self.generators.append(Generator().manual_seed(state["seed"]))
        self.generators[-1]._offset = state["offset"]

    def draws(self, value: Any, at: str) -> Draws:
        """The draws of a call, whose seeds and offsets attributes may name."""
        numbers = each(optional(integer(0, len(self.generators) - 1)))(value, at)
        draws = Draws([default_generator if number is None else self.generators[number] for number in numbers])
        self.scalars |= {scalar.name: scalar for i in range(len(numbers)) for scalar in draws.scalars(i)}
        return draws

    def new_slot(self, kind_of_slot: str = "", **more: Reader) -> Reader:
        """The reader of a slot, which gets the next number, and may have more fields than shape, dtype and device."""

        def read(value: Any, at: str) -> Slot:
            found = record(value, at, shape=each(integer(0)), dtype=one_of(DTYPES), device=lambda x, _: x, **more)
            shape, dtype = tuple(found["shape"]), found["dtype"]
            if len(shape) > MAX_DIMS or math.prod(n or 1 for n in shape) * dtype.itemsize > MAX_BYTES:
                refuse(f"{at}.shape", shape, f"at most {MAX_DIMS} dims and {MAX_BYTES} bytes")
            kind, name = found.get("kind", kind_of_slot), found.get("name", "")
            place = self.place(found["device"], f"{at}.device", shape, dtype)
            self.slots.append(slot := Slot(shape, dtype, place, kind, name, found.get("requires_grad", False)))
            if "values" in found:
                self.find_values(slot, found, at)
            return slot

        return read

    def find_values(self, slot: Slot, found: dict[str, Any], at: str) -> None:
        """Take the array of a state or a constant, which must be of its shape and dtype."""
        name, order = found["values"], found["order"]
        if sorted(order) != list(range(slot.ndim)):
            refuse(f"{at}.order", order, f"all dims of shape {slot.shape}")
        at = f"{at}.values"
        if name not in self.arrays:
            refuse(at, repr(name), "the name of an array in the weights, each used once")
        array = self.arrays.pop(name)
        if array.shape != slot.shape or array.dtype != slot.dtype:
            got = f"values of shape {array.shape} and dtype {array.dtype}"
            refuse(at, got, f"shape {slot.shape} and dtype {slot.dtype}")
        if array.dtype == bool and (array.view(np.uint8) > 1).any():
            refuse(at, "bools that are neither 0 nor 1", "intact ones")
        self.values[slot], self.orders[slot] = array, order

    def instruction(self, value: Any, at: str) -> Instruction:
        """One instruction, whose op and attributes are known and whose outputs are what the op makes of its inputs."""
        found = record(
            value,
            at,
            op=one_of(known_ops()),
            inputs=each(self.operand),
            attrs=named(self.value),
            scope=text,
            location=text,
            phase=one_of((FORWARD, BACKWARD, UPDATE)),
            unless=optional(self.slot),
            after=optional(self.slot),
            outputs=each(self.new_slot(VALUE)),
        )
        instruction = Instruction(**found)
        check_instruction(instruction, at, self.makers)
        if instruction.op is ToDevice and instruction.inputs[0].device == instruction.attrs["target"]:
            instruction = instruction.with_(op=Clone, attrs={})  # on one device, a transfer would not copy
        self.makers.update(dict.fromkeys(instruction.outputs, instruction))
        return instruction

    def slot(self, value: Any, at: str) -> Slot:
        """The slot that `%5` stands for, which must have been written before."""
        digits = value[1:] if isinstance(value, str) and value[:1] == "%" else ""
        if not digits.isascii() or not digits.isdecimal() or len(digits) > 12 or int(digits) >= len(self.slots):
            refuse(at, repr(value)[:80], "%n, with the number of a slot that was written before")
        return self.slots[int(digits)]

    def operand(self, value: Any, at: str) -> Any:
        """An input of an instruction: a slot, a number or None."""
        if isinstance(value, str):
            return self.slot(value, at)
        value = self.value(value, at)
        if value is not None and not isinstance(value, bool | int | float | np.generic):
            refuse(at, repr(value)[:80], "a slot, a number or null")
        return value
