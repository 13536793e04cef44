"""A model of the repository: checks requests against its config, joins them to one batch, and answers."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from miniflow.dtype import BY_NUMPY
from miniflow.errors import (
    ArgumentError,
    ArgumentTypeError,
    DivisionByZeroError,
    DTypeError,
    GraphError,
    IndexRangeError,
    ShapeError,
)
from miniflow.ops.creation import zeros
from miniflow.ops.joining import cat
from miniflow.serve.config import DATATYPES, datatype_of, engine_of, read_config
from miniflow.serve.repository import versions_of
from miniflow.serve.saved import SavedModel
from miniflow.tensor import Tensor

REFUSALS = (  # what a request is to blame for
    ArgumentError, ArgumentTypeError, DivisionByZeroError, DTypeError, GraphError, IndexRangeError, ShapeError,
)  # fmt: skip
Request = Mapping[str, Tensor]


class ServedModel:
    """A model that answers requests: tensors by the names of its config.

    Args:
        folder: of the model, with `config.pbtxt` and versions, of which the largest is loaded.

    Attributes:
        folder: of the model.
        name: that of the folder.
        version: the number of the version.
        config: the message of `config.pbtxt`.
        saved: the graph.
        inputs, outputs: name -> position in the graph.
        reshaped: name -> dims in requests and answers, where the config says that the graph has others.

    Raises:
        ArgumentError: if the config cannot be read, or does not fit the graph.
        CheckpointError: if the graph cannot be loaded.
        GraphError: for a graph that cannot be served, or not by its engine, see `saved`.
    """

    def __init__(self, folder: str | os.PathLike):
        self.folder = folder = Path(folder).absolute()
        self.name, self.config = folder.name, read_config(folder)
        self.version = max(versions_of(folder), default=None)
        if self.version is None:
            raise ArgumentError(f"{self.name}: there is no version; expected {folder}/1/model, which flow.save writes")
        self.saved = SavedModel(folder / str(self.version) / "model", device_of(self.config), engine_of(self.config))
        self.inputs, self.outputs = (positions(x) for x in (self.config.input, self.config.output))
        tensors = (*self.config.input, *self.config.output)
        self.reshaped = {x.name: tuple(x.dims) for x in tensors if x.HasField("reshape")}
        self._check_config()
        for rows in {1, self.config.max_batch_size} if self.config.max_batch_size else ():  # compiles for these sizes
            self.saved([zeros(rows, *slot.shape[1:], dtype=BY_NUMPY[slot.dtype]) for slot in self.saved.slots])

    def answer(self, requests: Sequence[Request]) -> list[dict[str, Tensor] | Exception]:
        """The answers to requests, which are joined to one batch if the config allows it.

        A request that is refused is answered by the error, one of `REFUSALS`, and leaves the others alone.

        Args:
            requests: each the inputs by name, on the CPU.
        """
        try:
            batches = [self.check(request) for request in requests]
            if len(batches) > 1 and not self.config.max_batch_size:
                return [found for request in requests for found in self.answer([request])]
            tensors = [cat(parts) if len(parts) > 1 else parts[0] for parts in zip(*batches, strict=True)]
            self._check_rows(tensors)
            found = self.saved(tensors)
        except REFUSALS as error:
            return [error] if len(requests) == 1 else [x for request in requests for x in self.answer([request])]
        if len(requests) == 1:
            return [self._named(found)]
        ends = [0]
        for batch in batches:
            ends.append(ends[-1] + batch[0].shape[0])
        return [self._named([y[start:end] for y in found]) for start, end in zip(ends, ends[1:], strict=False)]

    def check(self, request: Request) -> list[Tensor]:
        """The inputs of a request by position.

        Raises:
            ArgumentError: for names that the model does not have, or that are missing.
            DTypeError: for another dtype.
            ShapeError: for another shape, or a batch that is too large.
        """
        if request.keys() != self.inputs.keys():
            raise ArgumentError(f"{self.name}: got the inputs {sorted(request)}; expected {sorted(self.inputs)}")
        tensors = [request[name] for name in sorted(self.inputs, key=self.inputs.__getitem__)]
        start = 1 if self.config.max_batch_size else 0
        for name, i in self.inputs.items():
            x, kind = request[name], self.saved.inputs[i]
            datatype = DATATYPES[x._array.dtype]
            if datatype != kind.datatype:
                raise DTypeError(f"{self.name}: {name} has {datatype}; expected {kind.datatype}")
            dims = self.reshaped.get(name, kind.shape[start:])
            shapes = (*x.shape[:start], *dims), (*x.shape[:start], *kind.shape[start:])  # Triton reshapes by itself
            if x.ndim < start or tuple(x.shape) not in shapes:
                expected = f"{list(dims)}{' behind the size of the batch' * start}"
                raise ShapeError(f"{self.name}: {name} has shape {list(x.shape)}; expected {expected}")
            tensors[i] = x.reshape(shapes[1])
        self._check_rows(tensors)
        return tensors

    def _check_rows(self, tensors: Sequence[Tensor]) -> None:
        most = self.config.max_batch_size
        sizes = {x.shape[0] for x in tensors} if most else set()
        if len(sizes) > 1 or not sizes <= set(range(1, most + 1)):
            raise ShapeError(
                f"{self.name}: got batches of {sorted(sizes)} rows; expected 1 to {most}, the same of all inputs"
            )

    def _named(self, found: Sequence[Tensor]) -> dict[str, Tensor]:
        start = 1 if self.config.max_batch_size else 0
        return {
            name: found[i].reshape(*found[i].shape[:start], *self.reshaped[name]) if name in self.reshaped else found[i]
            for name, i in self.outputs.items()
        }

    def _check_config(self) -> None:
        """Refuse a config that does not fit the graph."""
        most, saved = self.config.max_batch_size, self.saved
        if most < 0 or most and not saved.rows or most > saved.rows and not saved.can_resize:
            raise ArgumentError(
                f"{self.name}: config.pbtxt has max_batch_size {most}; expected 0 to {saved.rows}, the rows with which "
                f"the graph was saved{', or more' if saved.can_resize else ': it cannot compute others'}"
            )
        for positions_, tensors, found in (
            (self.inputs, self.config.input, saved.inputs),
            (self.outputs, self.config.output, saved.outputs),
        ):
            if not set(positions_.values()) <= set(range(len(found))) or len(positions_) != len(tensors):
                raise ArgumentError(f"{self.name}: config.pbtxt names {list(positions_)}; the graph has {len(found)}")
            for tensor in tensors:
                kind = found[positions_[tensor.name]]
                dims = tuple(tensor.reshape.shape if tensor.HasField("reshape") else tensor.dims)
                shape = kind.shape[1:] if most else kind.shape
                same = len(dims) == len(shape) and all(d in (-1, n) for d, n in zip(dims, shape, strict=True))
                if datatype_of(tensor) != kind.datatype or not same:
                    raise ArgumentError(
                        f"{self.name}: config.pbtxt has {tensor.name} of {datatype_of(tensor)} {list(dims)}; expected "
                        f"{kind.datatype} {list(shape)}, as the graph has"
                    )
        if len(self.inputs) != len(saved.inputs):
            raise ArgumentError(
                f"{self.name}: config.pbtxt has {len(self.inputs)} inputs; expected {len(saved.inputs)}, as the graph"
            )


def positions(tensors: Any) -> dict[str, int]:
    """The names of a config, each with its position in the graph: that in INPUT_i and OUTPUT_i, or in the config."""
    numbered = [re.fullmatch(r"(?:INPUT|OUTPUT)_(\d{1,6})", tensor.name) for tensor in tensors]
    return {x.name: int(match[1]) if match else i for i, (x, match) in enumerate(zip(tensors, numbered, strict=True))}


def device_of(config: Any) -> str:
    """Where the instances of a model run: the CPU, or a GPU if the config says so."""
    groups = [group for group in config.instance_group if group.kind == 1]
    return f"cuda:{groups[0].gpus[0] if groups[0].gpus else 0}" if groups else "cpu"
