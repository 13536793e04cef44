"""`flow.save(graph, folder)` and `flow.load(folder)`: a compiled graph without the Python code of its model.

The folder holds one file, `graph.safetensors`: the values of parameters, buffers, states of optimizers and constants,
and, among its metadata, the program as it was recorded (see `saved.program`). Passes run again when the graph is
loaded, so that a folder written on one machine fits another.

A training graph can be saved too, and goes on where it stopped. The numbers that change from step to step are in
`LoadedGraph.numbers`: steps are counted there, learning rates stay what they were until they are set, or follow the
schedules of the graph, which are saved by class and state; those that call functions are refused.

`saved.folder` writes and reads the folder. Nothing in the files is trusted: what does not fit is a
CheckpointError.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from miniflow.amp.grad_scaler import GradScaler
from miniflow.errors import CheckpointError
from miniflow.graph.config import PASSES, GraphConfig
from miniflow.graph.ir import Program, Scalar, Slot
from miniflow.graph.loaded import LoadedGraph, kind_of
from miniflow.graph.nested import DICT, SEQUENCE, Tree
from miniflow.graph.overlap import sharing
from miniflow.graph.passes.zero import MODES, Zero
from miniflow.graph.replay import check_state
from miniflow.graph.saved import program as programs
from miniflow.graph.saved.fields import choice, integer, items, record, refuse, text
from miniflow.graph.saved.folder import read_folder, write_folder
from miniflow.graph.saved.parts import Parts
from miniflow.graph.saved.schedules import decode_schedules, encode_schedules
from miniflow.graph.saved.trees import count, decode_tree, describe, encode_tree
from miniflow.graph.saved.values import DTYPES, NAMES, decode_value, encode_value
from miniflow.graph.schedule import SCHEDULES
from miniflow.parallel import world
from miniflow.parallel.boxing import box
from miniflow.serialization.states import GRAPH
from miniflow.tensor import Tensor

SCALE = "grad_scaler.scale"  # the name of the number that a scaler gives
CONFIG = (
    "training", "amp_dtype", "accumulation_steps", "checkpoint_scopes", "disabled_passes", "outputs_buffer_size",
    "sparse_parameters", "zero", "pipeline_schedule",
)  # fmt: skip
FAILURES = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RuntimeError, AssertionError,
            MemoryError)  # fmt: skip


def save_graph(saving: AbstractContextManager[Parts], path: str | os.PathLike) -> None:
    """Write a graph to a folder, which is made if it does not exist; an older graph there is replaced at the end.

    Args:
        saving: gives the parts of the graph; no step is made as long as it is open.
        path: the folder.

    Raises:
        CheckpointError: for a graph that contains what cannot be written or read again, or a folder that cannot be
            written.
        GraphError: for a graph that was not called yet, or whose model has changed since.
    """
    with saving as parts:
        document, arrays = encoded(parts)
    check_readable(document, arrays)
    if not parts.program.is_global:
        write_folder(Path(path), document, arrays)
        return
    if world.rank() == 0:  # which has the whole values, as all ranks have
        write_folder(Path(path), document, arrays)
    world.communicator().barrier()


def encoded(parts: Parts) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The document of a graph, and the arrays that belong to it, which share no memory with the graph.

    Raises:
        CheckpointError: for what has no place in a file.
        GraphError: for a state that is no longer what was recorded.
    """
    for slot in [slot for slot in parts.program.states if not slot.is_global]:  # layouts may be those of ZeRO
        check_state(parts.program.name, slot, parts.program.tensors[slot]._array)
    refuse_shared_memory(parts.program)
    graph, arrays = programs.encode(parts.program)
    varying = {name: s for name, s in parts.program.scalars().items() if not is_draw(name)}
    if parts.skipper is not None:
        varying.pop(SCALE, None)
    document = {
        "graph": graph,
        "config": encode_config(parts.config),
        "numbers": {name: encode_number(name, scalar.source()) for name, scalar in varying.items()},
        "scaler": parts.scaler_state(),
        "schedules": encode_schedules(parts.schedules),
        "arguments": encode_tree(parts.arguments, "arguments"),
        "results": encode_tree(parts.results, "results"),
    }
    return document, arrays


def check_readable(document: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Refuse a graph that `load_graph` would refuse.

    Raises:
        CheckpointError: naming the place in the document.
    """
    try:
        decoded(json.loads(json.dumps(document, allow_nan=False)), programs.Decoder(arrays))
    except (CheckpointError, *FAILURES) as error:
        reason = str(error).removeprefix("load: ")
        raise CheckpointError(f"save: flow.load would refuse this graph: {reason:.500}") from error


def refuse_shared_memory(program: Program) -> None:
    """Refuse states that see each other's writes: they would be apart when they are loaded.

    Raises:
        CheckpointError: naming them.
    """
    for a, b in sharing({slot: program.tensors[slot]._array for slot in program.states}):
        if a in program.writes or b in program.writes:
            raise CheckpointError(
                f"save: {a.name} and {b.name} share memory, and the graph writes to it; expected tensors "
                "with memory of their own: use .clone() for one of them"
            )


def load_graph(path: str | os.PathLike, map_location: Any = None) -> LoadedGraph:
    """Read a folder that `flow.save(graph, folder)` wrote.

    Args:
        path: the folder.
        map_location: the device to run on; None for the devices that the graph was saved on.

    Returns:
        what can be called as the graph could, with arguments of the same structure.

    Raises:
        CheckpointError: for a folder that is missing or incomplete, and for files that are damaged, of another version,
            or do not make sense: the message says where.
    """
    folder = Path(path)
    document, arrays = read_folder(folder)
    decoder = programs.Decoder(arrays, map_location)
    try:
        parts, numbers = decoded(document, decoder)
        program = parts.program
        for slot in program.states:
            program.tensors[slot] = own_tensor(slot, decoder)
        for slot in program.constants:
            program.constants[slot] = own_tensor(slot, decoder)._array
        return LoadedGraph(parts, numbers)
    except CheckpointError as error:
        raise CheckpointError(f"{error}; in {folder / GRAPH}") from error.__cause__
    except FAILURES as error:
        reason = f"{type(error).__name__}: {error}"
        raise CheckpointError(f"load: the graph in {folder} does not make sense ({reason:.500})") from error


def decoded(document: dict[str, Any], decoder: programs.Decoder) -> tuple[Parts, dict[str, Any]]:
    """What a document says, checked: the parts, without tensors for the states, and the numbers that vary."""
    program = decoder.program(document["graph"])
    config = decode_config(document["config"])
    numbers = decode_numbers(document["numbers"])
    scaler = decode_scaler(document["scaler"])
    schedules = decode_schedules(document["schedules"])
    program = bind(program, numbers, scaler)
    arguments, results = (decode_tree(document[name], name) for name in ("arguments", "results"))
    check_trees(arguments, results, program, scaler)
    return Parts(program, config, arguments, results, scaler, schedules), numbers


# the parts of the document beside the program


def encode_config(config: GraphConfig) -> dict[str, Any]:
    """The options that passes read."""
    fields = {name: getattr(config, name) for name in CONFIG}
    fields["amp_dtype"] = None if config.amp_dtype is None else NAMES[config.amp_dtype]
    fields["zero"] = None if config.zero is None else asdict(config.zero)
    if not isinstance(config.pipeline_schedule, str):
        raise CheckpointError(f"save: got the schedule {config.pipeline_schedule!r:.80}; expected one with a name")
    return {name: sorted(value) if isinstance(value, set | frozenset) else value for name, value in fields.items()}


def decode_config(value: Any) -> GraphConfig:
    """The options, checked."""
    value = record(value, "config", CONFIG)
    config = GraphConfig()
    if type(value["training"]) is not bool:
        refuse("config.training", value["training"], "true or false")
    config._set_training(value["training"])
    if value["amp_dtype"] is not None:
        config.amp_dtype = DTYPES[choice(value["amp_dtype"], "config.amp_dtype", ("float16", "bfloat16"))]
    config.accumulation_steps = integer(value["accumulation_steps"], "config.accumulation_steps", 1, 2**20)
    config.outputs_buffer_size = integer(value["outputs_buffer_size"], "config.outputs_buffer_size", 1, 2**20)
    config.pipeline_schedule = choice(value["pipeline_schedule"], "config.pipeline_schedule", SCHEDULES)
    if value["zero"] is not None:
        zero = record(value["zero"], "config.zero", ("stage", "min_size", "mode"))
        stage, size = integer(zero["stage"], "config.zero.stage", 1, 3), integer(zero["min_size"], "config.zero", 1)
        config.zero = Zero(stage, size, choice(zero["mode"], "config.zero.mode", MODES))
    for name in ("checkpoint_scopes", "sparse_parameters"):
        setattr(config, name, frozenset(text(v, at) for v, at in items(value[name], f"config.{name}")))
    at = "config.disabled_passes"
    config.disabled_passes = {choice(v, place, PASSES) for v, place in items(value["disabled_passes"], at)}
    return config


def encode_number(name: str, value: Any) -> Any:
    """A number that changes from call to call: NumPy's become plain ones, and bools numbers unless a flag is meant."""
    value = value.item() if isinstance(value, np.generic) else value
    if kind_of(name) == "fresh":
        return bool(value)
    return encode_value(int(value) if isinstance(value, bool) else value)


def decode_numbers(value: Any) -> dict[str, Any]:
    """The numbers that change from call to call: what is counted is an integer, what is a flag a bool."""
    if not isinstance(value, dict):
        refuse("numbers", type(value).__name__, "an object")
    numbers = {}
    for name, content in value.items():
        at = f"numbers.{name[:80]}"
        number = decode_value(content, at)
        kind = kind_of(name)
        if kind == "fresh" and not isinstance(number, bool):
            refuse(at, repr(number)[:80], "a bool")
        if kind == "steps":
            integer(number, at, 1)
        elif kind != "fresh" and (isinstance(number, bool) or not isinstance(number, int | float)):
            refuse(at, repr(number)[:80], "a number")
        elif kind in ("betas", "eps") and not (number >= 0 and (kind == "eps" or number < 1)):
            refuse(at, number, "at least 0" if kind == "eps" else "at least 0 and below 1")
        numbers[name] = number
    return numbers


def is_draw(name: str) -> bool:
    """Whether a number is taken from a random generator at every call."""
    return name.startswith("draw.")


def decode_scaler(value: Any) -> GradScaler | None:
    """The scaler of the loss."""
    if value is None:
        return None
    value = record(value, "scaler", ("scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker"))
    scaler = GradScaler()
    scaler.load_state_dict(value)
    return scaler


def check_trees(arguments: Tree, results: Tree, program: Program, scaler: GradScaler | None) -> None:
    """Arguments and results hold as many tensors as the program takes and returns."""
    is_call = [child.kind for child in arguments.children] == [SEQUENCE, DICT] and arguments.kind == SEQUENCE
    if not is_call or arguments.children[0].type is not tuple:
        refuse("arguments", describe(arguments), "a tuple of positional ones, and a dict of those with names")
    returned = len(program.outputs) - (scaler is not None)
    for tree, wanted, name in ((arguments, len(program.inputs), "arguments"), (results, returned, "results")):
        if count(tree) != wanted:
            refuse(name, f"{count(tree)} tensors", f"{wanted}, as the program has")
    if scaler is not None and (program.outputs[-1].shape != () or program.outputs[-1].dtype != bool):
        refuse("outputs", f"{program.outputs[-1].type} at the end", "a bool, which tells the scaler of infinities")


def bind(program: Program, numbers: dict[str, Any], scaler: GradScaler | None) -> Program:
    """The program with sources for the numbers that vary: the dict `numbers`, the scaler, generators for draws."""
    sources: dict[str, Scalar] = {name: Scalar(name, partial(numbers.__getitem__, name)) for name in numbers}
    if scaler is not None:
        sources[SCALE] = Scalar(SCALE, scaler.get_scale)
    for number in range(len(program.draws.generators)):
        sources |= {scalar.name: scalar for scalar in program.draws.scalars(number)}
    unknown = program.scalars().keys() - sources.keys()
    if unknown:
        refuse("instructions", f"the numbers {sorted(unknown)[:5]}", "only such as stand in `numbers` or in `draws`")
    instructions = []
    for instruction in program.instructions:
        attrs = {name: with_sources(value, sources.__getitem__) for name, value in instruction.attrs.items()}
        for name, value in attrs.items():
            if isinstance(value, Scalar) and is_draw(value.name) != (name in ("seed", "offset")):
                refuse("instructions", f"{name} from {value.name}", "seeds and offsets from draws, and nothing else")
        instructions.append(instruction.with_(attrs=attrs))
    return program.with_(instructions=instructions)


def with_sources(value: Any, source_of: Callable[[str], Scalar]) -> Any:
    """An attribute whose `Scalar`s have their sources."""
    if isinstance(value, Scalar):
        return source_of(value.name)
    if type(value) in (list, tuple):
        return type(value)(with_sources(part, source_of) for part in value)
    return value


def own_tensor(slot: Slot, decoder: programs.Decoder) -> Tensor:
    """A tensor on the device of a slot with the values from the file, in memory of its own."""
    order = decoder.orders[slot]
    array = np.array(decoder.values[slot].transpose(order), order="C").transpose(np.argsort(order))
    if slot.is_global:
        return Tensor._wrap(box(slot.device.placement._move(array), slot.device.placement, slot.device.sbp))
    tensor = Tensor._wrap(array)
    return tensor if slot.device.type == "cpu" else tensor.to(slot.device)
