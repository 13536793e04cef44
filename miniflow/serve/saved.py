"""A saved graph with any number of rows: what it takes and returns, and how batches of other sizes are run."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from miniflow.errors import DimError, GraphError, IndexRangeError, ShapeError
from miniflow.graph.ir import Slot
from miniflow.graph.loaded import LoadedGraph
from miniflow.graph.nested import TENSOR, Tree, flatten, unflatten
from miniflow.graph.nested import names as places_of
from miniflow.graph.serialize import load_graph
from miniflow.ops.creation import from_numpy, zeros
from miniflow.ops.joining import cat
from miniflow.serve.config import DATATYPES
from miniflow.tensor import Tensor

KEPT = 64  # sizes of batches for which a graph is kept compiled


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
        engine: of onnxruntime, which runs the graph in place of the replay; None for the replay.

    Attributes:
        graph: the `LoadedGraph`.
        inputs, outputs: a `TensorKind` of each.
        rows: the size of the first dimension of all inputs and outputs; 0 if they do not agree in one.
        can_resize: whether the graph computes batches of any size, row by row the same; else smaller ones are padded.
        slots: the inputs in the program.
        device: where it runs.

    Raises:
        CheckpointError: for a folder that cannot be loaded.
        GraphError: for a graph that trains, draws random numbers, changes buffers or has global tensors; for an engine
            that is not installed, or cannot run the graph.
    """

    def __init__(self, folder: str | os.PathLike, device: Any = None, engine: str | None = None):
        self.graph = load_graph(folder, device)
        program, parts = self.graph.program_recorded, self.graph._parts
        check_servable(self.graph)
        if engine is not None:
            self.graph.run_by(engine)
        self.inputs = kinds(parts.arguments, program.inputs)
        self.outputs = kinds(parts.results, program.outputs)
        sizes = {kind.shape[:1] for kind in (*self.inputs, *self.outputs)}
        self.rows = next(iter(sizes), (0,))[0] if len(sizes) == 1 and () not in sizes else 0
        self.slots, self.device = program.inputs, program.inputs[0].device
        self._graphs: dict[int, LoadedGraph] = {}  # by the number of rows, those of other sizes
        self.can_resize = self.rows > 0 and self._agrees(self.rows + 1)

    def __call__(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The outputs for a batch, on the CPU.

        Args:
            tensors: the inputs by position, checked, with any number of rows.

        Raises:
            ShapeError: for more rows than `rows`, if the graph cannot be resized.
        """
        count = tensors[0].shape[0] if self.rows else 0
        if count not in (self.rows, *self._graphs) and self.can_resize:
            if len(self._graphs) == KEPT:
                self._graphs.pop(next(iter(self._graphs)))
            self._graphs[count] = self.graph.for_rows(count)
        graph = self._graphs.get(count, self.graph)
        if graph is self.graph and count != self.rows:
            tensors = [padded(x, self.rows) for x in tensors]
        args, kwargs = unflatten(graph._parts.arguments, [x.to(self.device) for x in tensors])
        found = [y.cpu() for y in flatten(graph(*args, **kwargs), tell=False)[0]]
        return [y[:count] for y in found] if graph is self.graph and count != self.rows else found

    def _agrees(self, rows: int) -> bool:
        """Whether a batch of this size is answered row by row as one of the size that the graph was saved with."""
        try:
            other = self.graph.for_rows(rows)
        except (GraphError, ShapeError, DimError, IndexRangeError):
            return False
        random = np.random.default_rng(0)
        drawn = [random.standard_normal(slot.shape) if slot.dtype.kind in "fV" else np.zeros(slot.shape)
                 for slot in self.slots]  # fmt: skip
        found = []
        for graph, indices in ((self.graph, range(self.rows)), (other, np.arange(rows) % self.rows)):
            arrays = [x[list(indices)].astype(slot.dtype) for x, slot in zip(drawn, self.slots, strict=True)]
            args, kwargs = unflatten(graph._parts.arguments, [from_numpy(x).to(self.device) for x in arrays])
            found.append([y.cpu().numpy() for y in flatten(graph(*args, **kwargs), tell=False)[0]])
        pairs = zip(*found, strict=True)
        return all(
            np.allclose(a[np.arange(rows) % self.rows], b, 1e-2, 1e-2 * abs(a).max(), equal_nan=True) for a, b in pairs
        )


def check_servable(graph: LoadedGraph) -> None:
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
