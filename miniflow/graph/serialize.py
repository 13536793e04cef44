"""`flow.save(graph, folder)` and `flow.load(folder)`: a compiled graph without the Python code of its model.

The folder holds one file, `graph.safetensors`: the values of parameters, buffers, states of optimizers and constants,
and, among its metadata, the program as it was recorded (see `saved.program`). Passes run again when the graph is
loaded, so that a folder written on one machine fits another.

A training graph can be saved too, and goes on where it stopped. The numbers that change from step to step are in
`LoadedGraph.numbers`: steps are counted there, learning rates stay what they were until they are set, or follow the
schedules of the graph, which are saved by class and state; those that call functions are refused.

Nothing in the file is trusted: what does not fit is a CheckpointError.
"""

from __future__ import annotations

import json
import os
from contextlib import AbstractContextManager, suppress
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
from miniflow.graph.nested import DICT, SEQUENCE
from miniflow.graph.overlap import sharing
from miniflow.graph.passes.zero import MODES, Zero
from miniflow.graph.replay import check_state
from miniflow.graph.saved import program as programs
from miniflow.graph.saved.attributes import is_draw
from miniflow.graph.saved.fields import Reader, each, flag, integer, named, one_of, optional, record, refuse, text
from miniflow.graph.saved.parts import Parts
from miniflow.graph.saved.schedules import decode_schedules, encode_schedules
from miniflow.graph.saved.trees import count, decode_tree, describe, encode_tree
from miniflow.graph.saved.values import DTYPES, NAMES, encode_value
from miniflow.graph.schedule import SCHEDULES
from miniflow.parallel import world
from miniflow.parallel.boxing import box
from miniflow.serialization.atomic import writing
from miniflow.serialization.states import GRAPH, read_file, write_file
from miniflow.tensor import Tensor

DOCUMENT, VERSION = "miniflow.graph", 2  # the name of the program among the metadata
OLDER = "graph.json"  # of version 1, beside weights.safetensors
SCALE = "grad_scaler.scale"  # the name of the number that a scaler gives
CONFIG: dict[str, Reader] = {  # the options that passes read
    "training": flag,
    "amp_dtype": optional(one_of({name: DTYPES[name] for name in ("float16", "bfloat16")})),
    "accumulation_steps": integer(1, 2**20),
    "checkpoint_scopes": each(text),
    "disabled_passes": each(one_of(PASSES)),
    "outputs_buffer_size": integer(1, 2**20),
    "sparse_parameters": each(text),
    "zero": optional(
        lambda value, at: Zero(**record(value, at, stage=integer(1, 3), min_size=integer(1), mode=one_of(MODES)))
    ),
    "pipeline_schedule": one_of(tuple(SCHEDULES)),
}
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
    scalars = [
        s for s in parts.program.scalars().values() if not is_draw(s.name) and (s.name != SCALE or not parts.skipper)
    ]
    document = {
        "numbers": {s.name: encode_number(s.name, s.source()) for s in scalars if s.name != SCALE or not parts.skipper},
        "scaler": parts.scaler_state(),
        "graph": graph,
        "config": encode_config(parts.config),
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
        parts = decoded(document, decoder)
        program = parts.program
        for slot in program.states:
            program.tensors[slot] = own_tensor(slot, decoder)
        for slot in program.constants:
            program.constants[slot] = own_tensor(slot, decoder)._array
        return LoadedGraph(parts)
    except CheckpointError as error:
        raise CheckpointError(f"{error}; in {folder / GRAPH}") from error.__cause__
    except FAILURES as error:
        reason = f"{type(error).__name__}: {error}"
        raise CheckpointError(f"load: the graph in {folder} does not make sense ({reason:.500})") from error


def decoded(document: dict[str, Any], decoder: programs.Decoder) -> Parts:
    """What a document says, checked; the program is still without tensors for its states."""

    def numbers(value: Any, at: str) -> dict[str, Any]:
        found = {name: check_number(name, v, at) for name, v in named(decoder.value)(value, at).items()}
        decoder.scalars |= {name: Scalar(name, partial(found.__getitem__, name)) for name in found}
        return found

    def scaler(value: Any, at: str) -> GradScaler:
        found = GradScaler()
        found.load_state_dict(record(value, at, **dict.fromkeys(found.state_dict(), decoder.value)))
        decoder.scalars[SCALE] = Scalar(SCALE, found.get_scale)
        return found

    found = record(
        document,
        "",
        numbers=numbers,
        scaler=optional(scaler),
        graph=decoder.program,
        config=decode_config,
        schedules=partial(decode_schedules, decoder),
        arguments=partial(decode_tree, decoder),
        results=partial(decode_tree, decoder),
    )
    parts = Parts(
        *[found[name] for name in ("graph", "config", "arguments", "results", "scaler", "schedules", "numbers")]
    )
    check_trees(parts)
    return parts


# the folder, and its one file, which is replaced whole or not at all


def write_folder(folder: Path, document: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Write the document, without its version, and the arrays that belong to it.

    Raises:
        CheckpointError: if there is a file of that name.
        FileWriteError: if the folder cannot be written; it then is as it was before.
    """
    if os.path.exists(folder) and not os.path.isdir(folder):
        raise CheckpointError(f"save: {folder} is a file; expected the name of a folder for the graph")
    is_new = not os.path.exists(folder)
    try:
        with writing("save", folder):
            folder.mkdir(exist_ok=True)
        write_file(folder / GRAPH, arrays, {DOCUMENT: json.dumps({"version": VERSION, **document}, allow_nan=False)})
    except BaseException:
        if is_new:
            with suppress(OSError):
                folder.rmdir()
        raise


def read_folder(folder: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The document of a folder, whose contents are not yet checked, and the arrays that belong to it.

    Raises:
        CheckpointError: for a file that is missing, damaged, or of another kind or version.
    """
    path = folder / GRAPH
    if not path.exists() and (folder / OLDER).exists():
        raise CheckpointError(
            f"load: {folder} has version 1, of {OLDER} and weights.safetensors; expected {GRAPH}: make the graph by "
            "its code and save it with this version of miniflow, or load it with the one that wrote it"
        )
    arrays, metadata = read_file(path)
    if metadata.keys() != {"format", DOCUMENT}:
        raise CheckpointError(f"load: {path} holds no graph; expected what flow.save(graph, folder) wrote")
    try:
        document = json.loads(metadata[DOCUMENT])
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"load: {path} is damaged: {error}; restore an intact copy") from error
    version = document.pop("version", None) if isinstance(document, dict) else None
    if version != VERSION:
        raise CheckpointError(
            f"load: {path} has version {version!r:.40}; expected {VERSION}: save it again with this version of "
            "miniflow, or load it with the one that wrote it"
        )
    return document, arrays


# the parts of the document beside the program


def encode_config(config: GraphConfig) -> dict[str, Any]:
    """The options that passes read."""
    if not isinstance(config.pipeline_schedule, str):
        raise CheckpointError(f"save: got the schedule {config.pipeline_schedule!r:.80}; expected one with a name")
    fields = {name: getattr(config, name) for name in CONFIG}
    fields["amp_dtype"] = None if config.amp_dtype is None else NAMES[config.amp_dtype]
    fields["zero"] = None if config.zero is None else asdict(config.zero)
    return {name: sorted(value) if isinstance(value, set | frozenset) else value for name, value in fields.items()}


def decode_config(value: Any, at: str) -> GraphConfig:
    """The options, checked."""
    config, found = GraphConfig(), record(value, at, **CONFIG)
    config._set_training(found.pop("training"))
    for name, option in found.items():
        setattr(config, name, option)
    return config


def encode_number(name: str, value: Any) -> Any:
    """A number that changes from call to call: NumPy's become plain ones, and bools numbers unless a flag is meant."""
    value = value.item() if isinstance(value, np.generic) else value
    if kind_of(name) == "fresh":
        return bool(value)
    return encode_value(int(value) if isinstance(value, bool) else value)


def check_number(name: str, number: Any, at: str) -> Any:
    """A number that changes from call to call: what is counted is an integer, what is a flag a bool."""
    kind, at = kind_of(name), f"{at}.{name:.80}"
    if kind == "fresh":
        return flag(number, at)
    if kind == "steps":
        return integer(1)(number, at)
    if isinstance(number, bool) or not isinstance(number, int | float):
        refuse(at, repr(number)[:80], "a number")
    if kind in ("betas", "eps") and not (number >= 0 and (kind == "eps" or number < 1)):
        refuse(at, number, "at least 0" if kind == "eps" else "at least 0 and below 1")
    return number


def check_trees(parts: Parts) -> None:
    """Arguments and results hold as many tensors as the program takes and returns."""
    arguments, program = parts.arguments, parts.program
    is_call = [child.kind for child in arguments.children] == [SEQUENCE, DICT] and arguments.kind == SEQUENCE
    if not is_call or arguments.children[0].type is not tuple:
        refuse("arguments", describe(arguments), "a tuple of positional ones, and a dict of those with names")
    returned = len(program.outputs) - (parts.skipper is not None)
    for tree, wanted, name in ((arguments, len(program.inputs), "arguments"), (parts.results, returned, "results")):
        if count(tree) != wanted:
            refuse(name, f"{count(tree)} tensors", f"{wanted}, as the program has")
    if parts.skipper is not None and (program.outputs[-1].shape != () or program.outputs[-1].dtype != bool):
        refuse("outputs", f"{program.outputs[-1].type} at the end", "a bool, which tells the scaler of infinities")


def own_tensor(slot: Slot, decoder: programs.Decoder) -> Tensor:
    """A tensor on the device of a slot with the values from the file, in memory of its own."""
    order = decoder.orders[slot]
    array = np.array(decoder.values[slot].transpose(order), order="C").transpose(np.argsort(order))
    if slot.is_global:
        return Tensor._wrap(box(slot.device.placement._move(array), slot.device.placement, slot.device.sbp))
    tensor = Tensor._wrap(array)
    return tensor if slot.device.type == "cpu" else tensor.to(slot.device)
