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

from miniflow.backends.memory import load_kernels, to_host
from miniflow.device import device
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
from miniflow.graph.saved.attributes import normalised
from miniflow.graph.saved.fields import choice, integer, items, record, refuse, text
from miniflow.graph.saved.layouts import decode_layout, encode_place
from miniflow.graph.saved.operands import check_instruction, known_ops
from miniflow.graph.saved.values import DTYPES, NAMES, as_device, decode_value, encode_op, encode_value
from miniflow.graph.trace import of_rank_0
from miniflow.ops.generator import Generator, default_generator
from miniflow.ops.promotion import ToDevice
from miniflow.ops.shape import Clone

MAX_DIMS = 32
MAX_BYTES = 1 << 44  # of one array
KEYS = (
    "name", "inputs", "states", "constants", "instructions", "outputs", "writes", "late_reads", "generators", "draws",
)  # fmt: skip


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
        "attrs": {name: encode_value(normalised(instruction.op, name, v)) for name, v in instruction.attrs.items()},
        "scope": instruction.scope,
        "location": instruction.location,
        "phase": instruction.phase,
        "unless": None if instruction.unless is None else names[instruction.unless],
        "after": None if instruction.after is None else names[instruction.after],
    }


class Decoder:
    """Turns the JSON value of a program back into a program; every step names its place when it refuses something.

    Args:
        arrays: the values of states and constants by name.
        map_location: the device to move everything to; None for where it was.

    Raises:
        CheckpointError: from `program`, for anything that `encode` would not have written.
    """

    def __init__(self, arrays: dict[str, np.ndarray], map_location: Any = None):
        self.arrays = arrays
        self.place = None if map_location is None else device(map_location)
        self.slots: list[Slot] = []
        self.values: dict[Slot, np.ndarray] = {}  # of states and constants
        self.orders: dict[Slot, list[int]] = {}  # and in which order their dims lie in memory
        self.used: set[str] = set()  # names of arrays
        self.makers: dict[Slot, Instruction] = {}

    def program(self, value: Any) -> Program:
        """The program, whose `tensors` are still to be made from `self.values`."""
        graph = record(value, "graph", KEYS)
        program = Program(name=text(graph["name"], "name"))
        program.inputs = [self.input(v, at) for v, at in items(graph["inputs"], "inputs")]
        program.states = [self.state(v, at) for v, at in items(graph["states"], "states")]
        constants = [self.constant(v, at) for v, at in items(graph["constants"], "constants")]
        program.constants = {slot: self.values[slot] for slot in constants}
        program.instructions = [self.instruction(v, at) for v, at in items(graph["instructions"], "instructions")]
        program.outputs = [self.slot(v, at) for v, at in items(graph["outputs"], "outputs")]
        for v, at in items(graph["writes"], "writes"):
            self.write(v, at, program)
        program.late_reads = [self.late_read(v, at, program) for v, at in items(graph["late_reads"], "late_reads")]
        program.draws = self.draws(graph["generators"], graph["draws"])
        if program.is_global:
            program.draws.agree = of_rank_0
        unused = self.arrays.keys() - self.used
        if unused:
            refuse("weights", f"arrays {sorted(unused)[:5]} that no state and no constant names", "only those")
        return program

    def draws(self, generators: Any, draws: Any) -> Draws:
        """The draws of a call, with generators in the state of those that were saved."""
        made = []
        for v, at in items(generators, "generators"):
            state = record(v, at, ("seed", "offset"))
            made.append(Generator().manual_seed(integer(state["seed"], f"{at}.seed", 0, 2**64 - 1)))
            made[-1]._offset = integer(state["offset"], f"{at}.offset", 0, 2**63)
        chosen = []
        for v, at in items(draws, "draws"):
            chosen.append(default_generator if v is None else made[integer(v, at, 0, len(made) - 1)])
        return Draws(chosen)

    def array(self, slot: Slot, value: dict[str, Any], at: str) -> None:
        """Find the values of a state or a constant, which must be of its shape and dtype."""
        order = [integer(dim, where, 0) for dim, where in items(value["order"], f"{at}.order")]
        if sorted(order) != list(range(len(slot.shape))):
            refuse(f"{at}.order", order, f"all dims of shape {slot.shape}")
        at = f"{at}.values"
        name = text(value["values"], at)
        if name not in self.arrays or name in self.used:
            refuse(at, repr(name), "the name of an array in the weights, each used once")
        array = self.arrays[name]
        if array.shape != slot.shape or array.dtype != slot.dtype:
            got = f"values of shape {array.shape} and dtype {array.dtype}"
            refuse(at, got, f"shape {slot.shape} and dtype {slot.dtype}")
        if array.dtype == bool and (array.view(np.uint8) > 1).any():
            refuse(at, "bools that are neither 0 nor 1", "intact ones")
        self.used.add(name)
        self.values[slot], self.orders[slot] = array, order

    def new_slot(self, value: dict[str, Any], at: str, kind: str, name: str = "", requires_grad: bool = False) -> Slot:
        """A slot with the next number."""
        shape = tuple(integer(n, f"{at}.shape", 0) for n, _ in items(value["shape"], f"{at}.shape"))
        kind_of_element = DTYPES[choice(value["dtype"], f"{at}.dtype", DTYPES)]
        if len(shape) > MAX_DIMS or math.prod(n or 1 for n in shape) * kind_of_element.itemsize > MAX_BYTES:
            refuse(f"{at}.shape", shape, f"at most {MAX_DIMS} dims and {MAX_BYTES} bytes")
        if isinstance(value["device"], dict):
            where = decode_layout(value["device"], f"{at}.device", shape, kind_of_element)
        else:
            where = self.device(value["device"], f"{at}.device")
        slot = Slot(shape, kind_of_element, where, kind, name, requires_grad)
        self.slots.append(slot)
        return slot

    def device(self, value: Any, at: str) -> device:
        """A device of this machine."""
        name = text(value, at)
        place = as_device(name, at) if self.place is None else self.place
        load_kernels(place)
        return place

    def input(self, value: Any, at: str) -> Slot:
        """An input of the graph."""
        value = record(value, at, ("shape", "dtype", "device", "name"))
        return self.new_slot(value, at, INPUT, text(value["name"], f"{at}.name"))

    def state(self, value: Any, at: str) -> Slot:
        """A state with its values."""
        value = record(value, at, ("shape", "dtype", "device", "name", "kind", "requires_grad", "values", "order"))
        kind = choice(value["kind"], f"{at}.kind", STATES)
        if type(value["requires_grad"]) is not bool:
            refuse(f"{at}.requires_grad", value["requires_grad"], "true or false")
        slot = self.new_slot(value, at, kind, text(value["name"], f"{at}.name"), value["requires_grad"])
        self.array(slot, value, at)
        return slot

    def constant(self, value: Any, at: str) -> Slot:
        """A constant with its values."""
        value = record(value, at, ("shape", "dtype", "device", "values", "order"))
        slot = self.new_slot(value, at, CONSTANT)
        self.array(slot, value, at)
        return slot

    def instruction(self, value: Any, at: str) -> Instruction:
        """One instruction, whose op and attributes are known and whose outputs are what the op makes of its inputs."""
        keys = ("op", "inputs", "outputs", "attrs", "scope", "location", "phase", "unless", "after")
        value = record(value, at, keys)
        op = known_ops()[choice(value["op"], f"{at}.op", known_ops())]
        attrs = value["attrs"]
        if not isinstance(attrs, dict):
            refuse(f"{at}.attrs", attrs, "an object")
        instruction = Instruction(
            op=op,
            inputs=[self.operand(v, place) for v, place in items(value["inputs"], f"{at}.inputs")],
            outputs=[],
            attrs={name: decode_value(v, f"{at}.attrs.{name}", self.device) for name, v in attrs.items()},
            scope=text(value["scope"], f"{at}.scope"),
            location=text(value["location"], f"{at}.location"),
            phase=choice(value["phase"], f"{at}.phase", (FORWARD, BACKWARD, UPDATE)),
            unless=None if value["unless"] is None else self.slot(value["unless"], f"{at}.unless"),
            after=None if value["after"] is None else self.slot(value["after"], f"{at}.after"),
        )
        outputs = items(value["outputs"], f"{at}.outputs")
        keys = ("shape", "dtype", "device")
        instruction.outputs = [self.new_slot(record(v, place, keys), place, VALUE) for v, place in outputs]
        check_instruction(instruction, at, self.makers)
        if op is ToDevice and instruction.inputs[0].device == instruction.attrs["target"]:
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
        value = decode_value(value, at)
        if value is not None and not isinstance(value, bool | int | float | np.generic):
            refuse(at, repr(value)[:80], "a slot, a number or null")
        return value

    def write(self, value: Any, at: str, program: Program) -> None:
        """A state and the slot that it takes its new value from."""
        state, slot = (self.slot(v, place) for v, place in pair(value, at))
        if state not in program.states or state in program.writes:
            refuse(f"{at}[0]", repr(state), "a state, each written once")
        if (slot.shape, slot.dtype, slot.device) != (state.shape, state.dtype, state.device):
            refuse(f"{at}[1]", slot.type, f"{state.type}, as the state has it")
        program.writes[state] = slot

    def late_read(self, value: Any, at: str, program: Program) -> tuple[int, Slot | int]:
        """The position of an input, and a state or the position of another input in whose memory it must not lie."""
        (position, place), (name, where) = pair(value, at)
        position, last = integer(position, place, 0, len(program.inputs) - 1), len(program.inputs) - 1
        if isinstance(name, int):
            return position, integer(name, where, 0, last)
        state = self.slot(name, where)
        if state not in program.states:
            refuse(where, repr(state), "a state")
        return position, state


def pair(value: Any, at: str) -> list[tuple[Any, str]]:
    """The two entries of a list, each with its place."""
    found = items(value, at)
    if len(found) != 2:
        refuse(at, f"{len(found)} entries", "two")
    return found
