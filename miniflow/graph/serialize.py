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
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from miniflow.errors import CheckpointError
from miniflow.graph.ir import Program, Slot
from miniflow.graph.loaded import LoadedGraph
from miniflow.graph.nested import DICT, SEQUENCE
from miniflow.graph.overlap import sharing
from miniflow.graph.replay import check_state
from miniflow.graph.saved.graph_file import SCALE, GraphFile, Numbers, Parts, Stored
from miniflow.graph.saved.trees import count, describe
from miniflow.graph.saved.values import FAILURES, Refused, refuse
from miniflow.parallel import world
from miniflow.parallel.boxing import box
from miniflow.serialization.atomic import made, writing
from miniflow.serialization.states import GRAPH, read_file, write_file
from miniflow.tensor import Tensor

DOCUMENT, VERSION = "miniflow.graph", 3  # the name of the program among the metadata


def save_graph(saving: AbstractContextManager[Parts], path: str | os.PathLike) -> None:
    """Write a graph to a folder, which is made with its parents if need be; an older graph there is replaced last.

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
    if not parts.program.is_global or world.rank() == 0:  # which has the whole values, as all ranks have
        write_folder(Path(path), document, arrays)
    if parts.program.is_global:
        world.communicator().barrier()


def encoded(parts: Parts) -> tuple[str, dict[str, np.ndarray]]:
    """The document of a graph as JSON, and the arrays that belong to it, which share no memory with the graph.

    Raises:
        CheckpointError: for what has no place in a file.
        GraphError: for a state that is no longer what was recorded.
    """
    for slot in [slot for slot in parts.program.states if not slot.is_global]:  # layouts may be those of ZeRO
        check_state(parts.program.name, slot, parts.program.tensors[slot]._array)
    refuse_shared_memory(parts.program)
    file = GraphFile()
    scalars = [s for s in parts.program.scalars().values() if not s.name.startswith("draw.")]
    numbers = Numbers((s.name, s.source()) for s in scalars if s.name != SCALE or not parts.skipper)
    try:
        document = file.write(replace(parts, numbers=numbers))
    except Refused as error:
        raise CheckpointError(f"save: {error}") from error
    return json.dumps({"version": VERSION, **document}, allow_nan=False), file.arrays


def check_readable(document: str, arrays: dict[str, np.ndarray]) -> None:
    """Refuse a graph that `load_graph` would refuse.

    Raises:
        CheckpointError: naming the place in the document.
    """
    try:
        decoded(json.loads(document), GraphFile(arrays))
    except (Refused, *FAILURES) as error:
        raise CheckpointError(f"save: flow.load would refuse this graph: {error!s:.500}") from error


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
    file = GraphFile(arrays, map_location)
    try:
        parts = decoded(document, file)
        program = parts.program
        for slot in program.states:
            program.tensors[slot] = own_tensor(slot, program.tensors[slot])
        for slot in program.constants:
            program.constants[slot] = own_tensor(slot, program.constants[slot])._array
        return LoadedGraph(parts)
    except Refused as error:
        raise CheckpointError(f"load: {error}; in {folder / GRAPH}") from error.__cause__
    except FAILURES as error:
        reason = f"{type(error).__name__}: {error}"
        raise CheckpointError(f"load: the graph in {folder} does not make sense ({reason:.500})") from error


def decoded(document: dict[str, Any], file: GraphFile) -> Parts:
    """What a document says, checked; in its program `Stored` arrays stand for tensors."""
    parts = file.read({tag: content for tag, content in document.items() if tag != "version"})
    if not isinstance(parts, Parts):
        refuse(parts, "a graph")
    for index, schedule in parts.schedules:
        schedule.optimizer.index = index
    check_trees(parts)
    return parts


# the folder, and its one file, which is replaced whole or not at all


def write_folder(folder: Path, document: str, arrays: dict[str, np.ndarray]) -> None:
    """Write the document and the arrays that belong to it.

    Raises:
        CheckpointError: if there is a file of that name.
        FileWriteError: if the folder cannot be written; it then is as it was before.
    """
    if os.path.exists(folder) and not os.path.isdir(folder):
        raise CheckpointError(f"save: {folder} is a file; expected the name of a folder for the graph")
    with writing("save", folder), made(folder):
        write_file(folder / GRAPH, arrays, {DOCUMENT: document})


def read_folder(folder: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The document of a folder, whose contents are not yet checked, and the arrays that belong to it.

    Raises:
        CheckpointError: for a file that is missing, damaged, or of another kind or version.
    """
    path = folder / GRAPH
    if folder.is_dir() and not path.exists():
        inside = [str(found.parent) for depth in (1, 2, 3) for found in folder.glob("*/" * depth + GRAPH)]
        such_as = f", such as {' or '.join(sorted(inside)):.300}" if inside else ""
        expected = f"a file, or a folder that flow.save(graph, folder) wrote{such_as}"
        raise CheckpointError(f"load: {folder} is a folder without {GRAPH}; expected {expected}")
    arrays, metadata = read_file(path)
    if metadata.keys() != {"format", DOCUMENT}:
        raise CheckpointError(f"load: {path} holds no graph; expected what flow.save(graph, folder) wrote")
    try:
        document = json.loads(metadata[DOCUMENT])
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"load: {path} is damaged: {error}; restore an intact copy") from error
    version = document.get("version") if isinstance(document, dict) else None
    if version != VERSION:
        raise CheckpointError(
            f"load: {path} has version {version!r:.40}; expected {VERSION}: save it again with this version of "
            "miniflow, or load it with the one that wrote it"
        )
    return document, arrays


def check_trees(parts: Parts) -> None:
    """Arguments and results hold as many tensors as the program takes and returns."""
    arguments, program = parts.arguments, parts.program
    is_call = [child.kind for child in arguments.children] == [SEQUENCE, DICT] and arguments.kind == SEQUENCE
    if not is_call or arguments.children[0].type is not tuple:
        refuse(describe(arguments), "arguments that are a tuple of positional ones, and a dict of those with names")
    returned = len(program.outputs) - (parts.skipper is not None)
    for tree, wanted, name in ((arguments, len(program.inputs), "arguments"), (parts.results, returned, "results")):
        if count(tree) != wanted:
            refuse(f"{count(tree)} tensors", f"{name} with {wanted}, as the program has")
    if parts.skipper is not None and (program.outputs[-1].shape != () or program.outputs[-1].dtype != bool):
        refuse(program.outputs[-1], "a bool, which tells the scaler of infinities, at the end of the outputs")


def own_tensor(slot: Slot, stored: Stored) -> Tensor:
    """A tensor on the device of a slot with the values from the file, in memory of its own."""
    array = stored.laid_out()
    if slot.is_global:
        return Tensor._wrap(box(slot.device.placement._move(array), slot.device.placement, slot.device.sbp))
    tensor = Tensor._wrap(array)
    return tensor if slot.device.type == "cpu" else tensor.to(slot.device)
