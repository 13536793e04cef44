"""The document of a saved graph: how its parts are written, and what of them a file may hold.

    {"graph": {
        "numbers": {"dict": {"optimizer.0.0.lr": 0.1}},
        "program": {"program": {
            "draws": {"draws": [null, {"generator": {"seed": 7, "offset": 3}}]},
            "name": "LinearGraph_0",
            "inputs": [{"slot": {"shape": [8, 3], "dtype": "float32", "device": "cpu", "kind": "input", ...}}],
            "states": [{"slot": {...}}],
            "tensors": {"pairs": [["%2", {"array": ["model.weight", [0, 1]]}]]},
            "constants": {"pairs": [[{"slot": {...}}, {"array": ["constant", [0]]}]]},
            "instructions": [{"instruction": {"op": {"op": "Linear"}, "inputs": ["%1", "%2", null],
                                              "attrs": {"dict": {}}, "scope": "model", "location": "train.py:12",
                                              "outputs": [{"slot": {"shape": [8, 4], ...}}]}}],
            "outputs": ["%3"],
            "writes": {"pairs": [["%2", "%7"]]},
            "late_reads": [{"tuple": [0, "%2"]}]}},
        "config": {"config": {...}}, "arguments": {"tree": {...}}, "results": {"tree": {...}}, "schedules": [...]}}

A slot is written where it is first met. An array is kept beside the JSON under its name; the numbers are its dims from
the largest stride to the smallest: views that the program takes may not exist in another order. `draws` are the random
draws of a call: each from a generator, null being the default one. For `late_reads` see `ir.Program`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial
from types import NoneType
from typing import Any

import numpy as np

from miniflow.amp.grad_scaler import GradScaler
from miniflow.backends.memory import to_host
from miniflow.graph import ir
from miniflow.graph.config import GraphConfig
from miniflow.graph.ir import Draws, Instruction, Program, Scalar, Slot
from miniflow.graph.nested import Tree
from miniflow.graph.passes.zero import MODES, Zero
from miniflow.graph.saved import attributes as kinds
from miniflow.graph.saved import schedules, trees
from miniflow.graph.saved.attributes import among, instance, integer, require, several
from miniflow.graph.saved.operands import check_instruction
from miniflow.graph.saved.values import DTYPES, NAMES, Form, Values, layout_of, one_of, refuse
from miniflow.graph.trace import of_rank_0
from miniflow.ops.generator import Generator, default_generator
from miniflow.ops.promotion import ToDevice
from miniflow.ops.shape import Clone
from miniflow.optim.lr_scheduler.base import LRScheduler
from miniflow.tensor import Tensor

SCALE = "grad_scaler.scale"  # the name of the number that a scaler gives
MAX_DIMS = 32
MAX_BYTES = 1 << 44  # of one array
is_slot, is_slot_or_none, is_text = instance(Slot), instance(Slot, NoneType), instance(str)
is_anything, is_count, is_dict = instance(object), integer(1, 2**20), instance(dict)


def is_sizes(value: Any) -> bool:
    """Whether it is a list of sizes."""
    return type(value) is list and all([type(n) is int and 0 <= n <= 2**48 for n in value])


SLOTS = {
    "shape": is_sizes, "dtype": is_text, "device": is_anything, "name": is_text,
    "kind": among(ir.INPUT, *ir.STATES, ir.CONSTANT, ir.VALUE), "requires_grad": instance(bool),
}  # fmt: skip
INSTRUCTIONS = {
    "op": instance(type), "inputs": several(instance(Slot, NoneType, int, float, np.generic)), "attrs": is_dict,
    "scope": is_text, "location": is_text, "phase": among(ir.FORWARD, ir.BACKWARD, ir.UPDATE),
    "unless": is_slot_or_none, "after": is_slot_or_none, "outputs": several(is_slot),
}  # fmt: skip
PROGRAMS = {
    "draws": instance(Draws), "name": is_text, "inputs": several(is_slot), "states": several(is_slot),
    "tensors": is_dict, "constants": is_dict, "instructions": several(instance(Instruction)),
    "outputs": several(is_slot), "writes": is_dict, "late_reads": several(several(is_anything, 2)),
}  # fmt: skip
CONFIG = {  # the options that passes read; most of them refuse themselves what they cannot be
    "training": instance(bool), "amp_dtype": is_anything, "accumulation_steps": is_count, "zero": is_anything,
    "checkpoint_scopes": instance(list), "disabled_passes": instance(list), "sparse_parameters": instance(list),
    "outputs_buffer_size": is_count, "pipeline_schedule": is_text,
}  # fmt: skip


@dataclass
class Parts:
    """All that is needed to run a graph without its code.

    Attributes:
        program: as recorded, before all passes.
        config: what the passes are told.
        arguments: the tree of `(args, kwargs)` of a call.
        results: the tree of what a call returns.
        skipper: the scaler that decides by the last output of the program, a bool, whether the step was left out; None
            if there is no such output.
        schedules: those that each call steps, with the numbers of their optimizers.
        numbers: of a loaded graph, the values of scalars by name.
    """

    program: Program
    config: GraphConfig
    arguments: Tree
    results: Tree
    skipper: GradScaler | None = None
    schedules: list[tuple[int, LRScheduler]] = field(default_factory=list)
    numbers: dict[str, Any] = field(default_factory=dict)


GRAPHS = {
    "numbers": is_dict, "skipper": instance(GradScaler, NoneType), "program": instance(Program),
    "config": instance(GraphConfig), "schedules": several(schedules.is_numbered), "arguments": instance(Tree),
    "results": instance(Tree),
}  # fmt: skip


class Numbers(dict):
    """The numbers that vary from call to call, by name."""


@dataclass
class Stored:
    """An array of a file.

    Attributes:
        values: in row-major order.
        order: its dims from the largest stride to the smallest, as it was.
    """

    values: np.ndarray
    order: list[int]

    def laid_out(self) -> np.ndarray:
        """The values in that order, in memory of their own."""
        return np.array(self.values.transpose(self.order), order="C").transpose(np.argsort(self.order))


class GraphFile(Values):
    """Writes what a graph consists of, and reads it again.

    Args:
        arrays: those that were written beside the JSON, by name.
        map_location: see `Values`.

    Attributes:
        arrays: those that were written, or that nothing that was read has named yet.
    """

    def __init__(self, arrays: dict[str, np.ndarray] | None = None, map_location: Any = None):
        super().__init__(map_location)
        self.arrays = dict(arrays or {})
        self.array_names: dict[Any, str] = {}  # for those of tensors
        self.makers: dict[Slot, Instruction] = {}
        self.numbers: dict[str, Any] = {}  # what the scalars are now, but for those of draws
        self.forms = {
            "slot": Form(Slot, parts_of_slot, self.slot, SLOTS, is_shared=True),
            "instruction": Form.of(Instruction, self.instruction, **INSTRUCTIONS),
            "program": Form(Program, self.parts_of_program, self.program, PROGRAMS),
            "array": Form(Tensor, self.keep, self.take),
            "draws": Form(Draws, lambda x: [None if g is default_generator else g for g in x.generators], self.draws),
            "generator": Form(Generator, lambda g: [g.initial_seed(), g._offset], generator_of, is_shared=True),
            "numbers": Form(Numbers, dict, self.variable),
            "scaler": Form(GradScaler, GradScaler.state_dict, self.scaler),
            "config": Form(GraphConfig, parts_of_config, config_of, CONFIG),
            "zero": Form.of(Zero, stage=among(1, 2, 3), min_size=kinds.COUNT, mode=among(*MODES)),
            "tree": trees.FORM,
            "optimizer": schedules.OPTIMIZERS,
            "schedule": schedules.FORM,
            "graph": Form.of(Parts, **GRAPHS),
            **self.forms,
        }

    def parts_of_program(self, program: Program) -> dict[str, Any]:
        """What is written of a program, whose arrays get the names of their slots."""
        self.array_names |= {program.tensors[slot]: slot.name or slot.kind for slot in program.states}
        constants = {slot: Tensor._wrap(array) for slot, array in program.constants.items()}
        return {name: getattr(program, name) for name in PROGRAMS} | {"constants": constants}

    def keep(self, tensor: Tensor) -> list:
        """Put a copy of an array into `arrays`; returns a name that was free, and the order of its dims."""
        count, base = 1, self.array_names.get(tensor, "constant")
        name = base
        while name in self.arrays or name == "__metadata__":
            count += 1
            name = f"{base}#{count}"
        array = to_host(tensor._array)
        self.arrays[name] = np.array(array, order="C")
        return [name, sorted(range(array.ndim), key=lambda dim: -array.strides[dim])]

    def take(self, parts: list) -> Stored:
        """The array of that name, which nothing else has taken."""
        name, order = parts
        if name not in self.arrays:
            refuse(name, "the name of an array in the weights, each used once")
        array = self.arrays.pop(name)
        if sorted(order) != list(range(array.ndim)):
            refuse(order, f"all dims of shape {array.shape}")
        if array.dtype == bool and (array.view(np.uint8) > 1).any():
            refuse("bools that are neither 0 nor 1", "intact ones")
        return Stored(array, order)

    def slot(self, shape: list[int], dtype: str, device: Any, **fields: Any) -> Slot:
        """A slot of bearable size."""
        dtype = one_of(DTYPES)(dtype)
        if len(shape) > MAX_DIMS or math.prod(n or 1 for n in shape) * dtype.itemsize > MAX_BYTES:
            refuse(shape, f"at most {MAX_DIMS} dims and {MAX_BYTES} bytes")
        where = self.device(device) if isinstance(device, str) else layout_of(*device, tuple(shape), dtype)
        return Slot(shape, dtype, where, **fields)

    def draws(self, generators: list) -> Draws:
        """The draws of a call, whose seeds and offsets attributes may name."""
        require(several(instance(Generator, NoneType))(generators), f"generators {generators}")
        draws = Draws([generator or default_generator for generator in generators])
        self.scalars |= {scalar.name: scalar for i in range(len(generators)) for scalar in draws.scalars(i)}
        return draws

    def variable(self, numbers: dict[str, Any]) -> dict[str, Any]:
        """Numbers that attributes may name; more of what they may be is checked there."""
        require(all(map(kinds.number, numbers.values())), "only numbers vary")
        self.numbers |= numbers
        self.scalars |= {name: Scalar(name, partial(numbers.__getitem__, name)) for name in numbers}
        return numbers

    def scaler(self, state: dict[str, Any]) -> GradScaler:
        """A scaler in that state, and the number that it gives."""
        scaler = GradScaler()
        scaler.load_state_dict(state)
        self.numbers[SCALE] = scaler.get_scale()
        self.scalars[SCALE] = Scalar(SCALE, scaler.get_scale)
        return scaler

    def instruction(self, **fields: Any) -> Instruction:
        """One instruction, whose op and attributes are known and whose outputs are what the op makes of its inputs."""
        instruction = Instruction(**fields)
        check_instruction(instruction, self.numbers, self.makers)
        if instruction.op is ToDevice and instruction.inputs[0].device == instruction.attrs["target"]:
            instruction = instruction.with_(op=Clone, attrs={})  # on one device, a transfer would not copy
        self.makers.update(dict.fromkeys(instruction.outputs, instruction))
        return instruction

    def program(self, late_reads: list, **fields: Any) -> Program:
        """A program in which every slot is written once, before it is read; `Stored` arrays stand for tensors."""
        program = Program(late_reads=[tuple(pair) for pair in late_reads], **fields)
        program.check()
        require(list(program.tensors) == program.states, "states without tensors")
        for slot, stored in (program.tensors | program.constants).items():
            if (stored.values.shape, stored.values.dtype) != (slot.shape, slot.dtype):
                refuse(f"values of shape {stored.values.shape} and {stored.values.dtype}", f"those of {slot}")
        for state, slot in program.writes.items():
            if state.device != slot.device:
                refuse(slot, f"a value for {state} on its device")
        if self.arrays:
            refuse(f"arrays {sorted(self.arrays)[:5]} that no state and no constant names", "only those")
        for first, second in program.late_reads:
            known = program.states if is_slot(second) else range(len(program.inputs))
            if first not in range(len(program.inputs)) or second not in known or first == second:
                refuse((first, second), "an input, and a state or another input")
        if program.is_global:
            program.draws.agree = of_rank_0
        return program


def parts_of_slot(slot: Slot) -> dict[str, Any]:
    """What is written of a slot; of the layout of a global one placement and SBP."""
    where = [slot.device.placement, slot.device.sbp] if slot.is_global else str(slot.device)
    known = {"shape": [int(n) for n in slot.shape], "dtype": NAMES[slot.dtype], "device": where}
    return known | {name: getattr(slot, name) for name in ("kind", "name", "requires_grad")}


def generator_of(parts: list[int]) -> Generator:
    """A generator in the state of the one that was saved."""
    seed, offset = parts
    require(several(integer(0, 2**64 - 1))(parts), f"seed and offset {parts}")
    generator = Generator().manual_seed(seed)
    generator._offset = offset
    return generator


def parts_of_config(config: GraphConfig) -> dict[str, Any]:
    """The options that passes read."""
    options = {name: getattr(config, name) for name in CONFIG}
    return {name: sorted(value) if isinstance(value, frozenset) else value for name, value in options.items()}


def config_of(training: bool, **options: Any) -> GraphConfig:
    """A configuration with these options."""
    config = GraphConfig()
    config._set_training(training)
    for name, option in options.items():
        setattr(config, name, option)
    return config
