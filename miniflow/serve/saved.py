"""A saved graph with any number of rows: what it takes and returns, and how batches of other sizes are run."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

from miniflow.errors import GraphError, ShapeError
from miniflow.graph.ir import Slot
from miniflow.graph.nested import TENSOR, Tree, flatten, unflatten
from miniflow.graph.nested import names as places_of
from miniflow.graph.serialize import load_graph
from miniflow.ops.creation import zeros
from miniflow.ops.joining import cat
from miniflow.serve.config import DATATYPES
from miniflow.tensor import Tensor


class TensorKind(NamedTuple):
    """What is known of an input or an output.

    Attributes:
        name: in the graph; "" if it has only a position.
        datatype: as KServe calls it, "FP32".
        shape: with the rows, if the graph has rows.
    """

    name: str
    datatype: str
    shape: tuple[int, ...]


class SavedModel:
    """A loaded graph that is called with batches of any size.

    Args:
        folder: that `flow.save(graph, folder)` wrote.
        device: to run on; None for the one that the graph was saved on.

    Attributes:
        graph: the `LoadedGraph`.
        inputs, outputs: a `TensorKind` of each.
        rows: the size of the first dimension of all inputs and outputs; 0 if they do not agree in one.
        can_resize: whether the graph computes batches of other sizes than `rows`; others are padded.
        device: where it runs.

    Raises:
        CheckpointError: for a folder that cannot be loaded.
        GraphError: for a graph that trains, draws random numbers, changes buffers or has global tensors.
    """

    def __init__(self, folder: str | os.PathLike, device: Any = None):
        self.graph = load_graph(folder, device)
        program, parts = self.graph.program_recorded, self.graph._parts
        check_servable(self.graph)
        self.inputs = kinds(parts.arguments, program.inputs)
        self.outputs = kinds(parts.results, program.outputs)
        sizes = {kind.shape[:1] for kind in (*self.inputs, *self.outputs)}
        self.rows = next(iter(sizes), (0,))[0] if len(sizes) == 1 and () not in sizes else 0
        self.device = program.inputs[0].device
        self.can_resize = False

    def __call__(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The outputs for a batch, on the CPU.

        Args:
            tensors: the inputs by position, checked; of fewer rows than the graph was saved with, too.
        """
        count = tensors[0].shape[0] if self.rows else 0
        if count != self.rows:
            tensors = [padded(x, self.rows) for x in tensors]
        args, kwargs = unflatten(self.graph._parts.arguments, [x.to(self.device) for x in tensors])
        found = [y.cpu() for y in flatten(self.graph(*args, **kwargs), tell=False)[0]]
        return [y[:count] for y in found] if count != self.rows else found


def check_servable(graph: Any) -> None:
    """Refuse graphs whose answers depend on anything but their inputs."""
    program = graph.program_recorded
    reasons = {
        "trains: save one without an optimizer": graph.config.training,
        "changes buffers: call eval() of its modules, call the graph, and save it": bool(program.writes),
        "draws random numbers: call eval() of its modules, call the graph, and save it": bool(program.draws.generators),
        "has global tensors": program.is_global,
        "takes no tensors": not program.inputs,
        "returns no tensors": not program.outputs,
    }
    for reason, holds in reasons.items():
        if holds:
            raise GraphError(f"serve: {graph.name} {reason}; expected a graph that answers from its inputs alone")


def kinds(tree: Tree, slots: Sequence[Slot]) -> list[TensorKind]:
    """What is known of the tensors of arguments or results: those of a key have a name."""
    names = [place.rpartition("_")[2] for place, kind in places_of(tree, "") if kind.kind == TENSOR]
    return [
        TensorKind("" if name.isdecimal() else name, DATATYPES[slot.dtype], slot.shape)
        for name, slot in zip(names, slots, strict=True)
    ]


def padded(x: Tensor, rows: int) -> Tensor:
    """A batch with rows of zeros at its end."""
    missing = rows - x.shape[0]
    if missing < 0:
        raise ShapeError(f"serve: got {x.shape[0]} rows; expected at most {rows}, which the graph was saved with")
    return cat([x, zeros(missing, *x.shape[1:], dtype=x.dtype, device=x.device)])
