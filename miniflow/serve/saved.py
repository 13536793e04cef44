"""A saved graph with any number of rows: what it takes and returns, and how batches of other sizes are run."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from miniflow.errors import ArgumentError, DimError, GraphError, IndexRangeError, ShapeError
from miniflow.graph.loaded import LoadedGraph
from miniflow.graph.nested import TENSOR, Tree, flatten, named_leaves, unflatten
from miniflow.graph.serialize import load_graph
from miniflow.ops.creation import from_numpy, zeros
from miniflow.ops.joining import cat
from miniflow.tensor import Tensor

KEPT = 64  # sizes of batches for which a graph is kept compiled


class SavedModel:
    """A loaded graph that is called with batches of any size.

    Args:
        folder: that `flow.save(graph, folder)` wrote.
        device: to run on; None for the one that the graph was saved on.
        engine: of onnxruntime, which runs the graph in place of the replay; None for the replay.

    Attributes:
        graph: the `LoadedGraph`.
        inputs, outputs: a `Slot` of the program for each, with dtype and shape.
        arguments, results: the key of each in the arguments or results of a call; a number if it has only a position.
        rows: the size of the first dimension of all inputs and outputs; 0 if they do not agree in one.
        most: the largest batch. Where the graph computes batches of any size, row by row the same, it is that of
            Triton; else smaller batches are padded to `rows`.
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
        self.inputs, self.outputs, self.device = program.inputs, program.outputs, program.inputs[0].device
        self.arguments, self.results = keys_of(parts.arguments), keys_of(parts.results)
        self._of_rows = lru_cache(KEPT)(self.graph.for_rows)
        sizes = {slot.shape[:1] for slot in (*self.inputs, *self.outputs)}
        self.rows = next(iter(sizes), (0,))[0] if len(sizes) == 1 and () not in sizes else 0
        self.can_resize = self.rows > 0 and self._agrees()
        self.most = 2**31 - 1 if self.can_resize else self.rows

    def check_most(self, got: str, max_batch_size: int) -> None:
        """Refuse a largest batch that the graph cannot compute; `got` begins the sentence."""
        if not 0 <= max_batch_size <= self.most:
            why = "" if self.can_resize else ", the rows with which the graph was saved: it cannot compute others"
            raise ArgumentError(f"{got} max_batch_size {max_batch_size}; expected 0 to {self.most}{why}")

    def __call__(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The outputs for a batch, on the CPU.

        Args:
            tensors: the inputs by position, checked, with 1 to `most` rows.
        """
        count = tensors[0].shape[0] if self.rows else 0
        if count == self.rows:
            return self._run(self.graph, tensors)
        if self.can_resize:
            return self._run(self._of_rows(count), tensors)
        padding = [zeros(self.rows - count, *x.shape[1:], dtype=x.dtype) for x in tensors]
        return [y[:count] for y in self._run(self.graph, map(cat, zip(tensors, padding, strict=True)))]

    def _run(self, graph: LoadedGraph, tensors: Iterable[Tensor]) -> list[Tensor]:
        args, kwargs = unflatten(graph._parts.arguments, [x.to(self.device) for x in tensors])
        return [y.cpu() for y in flatten(graph(*args, **kwargs), tell=False)[0]]

    def _agrees(self) -> bool:
        """Whether a batch of one row more, again the first, has the same answers, and again the first."""
        random = np.random.default_rng(0)
        drawn = [random.standard_normal(slot.shape) if slot.dtype.kind in "fV" else np.zeros(slot.shape)
                 for slot in self.inputs]  # fmt: skip
        tensors = [from_numpy(x.astype(slot.dtype)) for x, slot in zip(drawn, self.inputs, strict=True)]
        try:
            found = self._run(self._of_rows(self.rows + 1), [cat([x, x[:1]]) for x in tensors])
        except (GraphError, ShapeError, DimError, IndexRangeError):
            return False
        pairs = [(y.numpy(), z.numpy()) for y, z in zip(self._run(self.graph, tensors), found, strict=True)]
        return all(
            np.allclose(np.concatenate([y, y[:1]]), z, 1e-2, 1e-2 * abs(y).max(), equal_nan=True) for y, z in pairs
        )


def check_servable(graph: LoadedGraph) -> None:
    """Refuse graphs whose answers depend on anything but their inputs."""
    program = graph.program_recorded
    reasons = {
        "trains: save one without an optimizer": graph.config.training,
        "changes buffers: call eval() of its modules, call the graph, and save it": program.writes,
        "draws random numbers: call eval() of its modules, call the graph, and save it": program.draws.generators,
        "has global tensors": program.is_global,
        "takes or returns no tensors": not program.inputs or not program.outputs,
    }
    for reason in filter(reasons.get, reasons):
        raise GraphError(f"serve: {graph.name} {reason}; expected a graph that answers from its inputs alone")


def keys_of(tree: Tree) -> list[str]:
    """What stands for each tensor of arguments or results: its key or its name, or else a number."""
    return [name.split("_", 2)[2] for name, leaf in named_leaves(tree, "") if leaf.kind == TENSOR]
