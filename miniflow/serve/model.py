"""A model of the repository: checks requests against its config, joins them to one batch, and answers."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from math import prod
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from miniflow.dtype import BY_NUMPY
from miniflow.errors import ArgumentError, DivisionByZeroError, GraphError, IndexRangeError, ShapeError
from miniflow.graph.ir import Slot
from miniflow.ops.creation import zeros
from miniflow.ops.joining import cat, split
from miniflow.serve.config import DATATYPES, datatype_of, device_of, engine_of, read_config
from miniflow.serve.repository import versions_of
from miniflow.serve.saved import SavedModel
from miniflow.tensor import Tensor

REFUSALS = (ArgumentError, DivisionByZeroError, GraphError, IndexRangeError, ShapeError)  # a request is to blame for
COMPILED = 64  # the largest size of a batch that is compiled before the first request, with that of one row
Request = Mapping[str, Tensor]


class Port(NamedTuple):
    """An input or an output of a model.

    Attributes:
        position: in the graph.
        datatype: as KServe calls it, "FP32".
        shape: in the graph; -1 for the rows of a batch.
        dims: in requests and answers, of as many elements.
    """

    position: int
    datatype: str
    shape: tuple[int, ...]
    dims: tuple[int, ...]


class ServedModel:
    """A model that answers requests: tensors by the names of its config.

    Args:
        folder: of the model, with `config.pbtxt` and versions, of which the largest is loaded.

    Attributes:
        name: that of the folder.
        version: the number of the version.
        most: the largest batch; 0 if requests have no rows.
        config: the message of `config.pbtxt`.
        saved: the graph.
        inputs, outputs: a `Port` for each by its name.

    Raises:
        ArgumentError: if the config cannot be read, or does not fit the graph.
        CheckpointError: if the graph cannot be loaded.
        GraphError: for a graph that cannot be served, or not by its engine, see `saved`.
    """

    def __init__(self, folder: str | os.PathLike):
        folder = Path(folder).absolute()
        self.name, self.config = folder.name, read_config(folder)
        self.version, self.most = versions_of(folder)[-1], self.config.max_batch_size
        self.saved = SavedModel(folder / str(self.version) / "model", device_of(self.config), engine_of(self.config))
        self.saved.check_most(f"{self.name}: config.pbtxt has", self.most)
        self._start = 1 if self.most else 0  # dims of rows
        self.inputs = self._ports(self.config.input, self.saved.inputs)
        self.outputs = self._ports(self.config.output, self.saved.outputs)
        if [port.position for port in self.inputs.values()] != list(range(len(self.saved.inputs))):
            got, expected = list(self.inputs), f"{len(self.saved.inputs)} inputs, as the graph has"
            raise ArgumentError(f"{self.name}: config.pbtxt has the inputs {got}; expected {expected}")
        for rows in {1, min(self.most, COMPILED)} if self.most else ():
            self.saved([zeros(rows, *slot.shape[1:], dtype=BY_NUMPY[slot.dtype]) for slot in self.saved.inputs])

    def _ports(self, tensors: Any, slots: Sequence[Slot]) -> dict[str, Port]:
        """The inputs or outputs of the config by name; i is the position of INPUT_i and OUTPUT_i.

        Raises:
            ArgumentError: for one that does not fit the graph.
        """
        rows, ports = (-1,) * self._start, {}
        kinds = [(DATATYPES[slot.dtype], (*rows, *slot.shape[self._start :])) for slot in slots]
        for i, tensor in enumerate(tensors):
            match = re.fullmatch(r"(?:INPUT|OUTPUT)_(\d{1,6})", tensor.name)
            position = int(match[1]) if match else i
            datatype, shape = kinds[position] if position < len(kinds) else ("", ())
            dims = shape if -1 in tensor.dims else (*rows, *tensor.dims)  # -1 stands for any
            if datatype_of(tensor) != datatype or prod(dims) != prod(shape):
                got = f"{tensor.name} of {datatype_of(tensor)} {list(dims)}"
                expected = ", ".join(f"{datatype} {list(shape)}" for datatype, shape in kinds)
                raise ArgumentError(f"{self.name}: config.pbtxt has {got}; the graph has {expected}")
            ports[tensor.name] = Port(position, datatype, shape, dims)
        return dict(sorted(ports.items(), key=itemgetter(1)))

    def answer(self, requests: Sequence[Request]) -> list[dict[str, Tensor] | Exception]:
        """The answers to requests, which are joined to one batch if the config allows it.

        A request that is refused is answered by the error, one of `REFUSALS`, which begins with the name of the model,
        and leaves the others alone.

        Args:
            requests: each the inputs by name, on the CPU.
        """
        if len(requests) > 1 and not self.most:
            return [found for request in requests for found in self.answer([request])]
        try:
            batches = [self.check(request) for request in requests]
            found = self.saved([cat(parts) if len(parts) > 1 else parts[0] for parts in zip(*batches, strict=True)])
        except REFUSALS as error:
            if len(requests) == 1:
                return [type(error)(f"{self.name}: {error}")]
            return [found for request in requests for found in self.answer([request])]
        sizes = [batch[0].shape[0] for batch in batches] if self.most else []
        parts = zip(*(split(y, sizes) for y in found), strict=True) if len(requests) > 1 else [found]
        return [{name: part[port.position].reshape(port.dims) for name, port in self.outputs.items()} for part in parts]

    def check(self, request: Request) -> list[Tensor]:
        """The inputs of a request by position.

        Raises:
            ArgumentError: for other names, datatypes or shapes than those of the model; says all of them.
        """
        rows = {x.shape[0] if x.ndim else 0 for x in request.values()} if self.most else {0}
        fits = request.keys() == self.inputs.keys() and len(rows) == 1 and self._start <= min(rows) <= self.most
        for name, port in self.inputs.items() if fits else ():
            shapes = [(*rows, *shape[1:]) if self.most else shape for shape in (port.dims, port.shape)]
            # Triton reshapes by itself, where its config says so
            fits = fits and DATATYPES[request[name]._array.dtype] == port.datatype and request[name].shape in shapes
        if not fits:
            got = {name: f"{DATATYPES[x._array.dtype]} {list(x.shape)}" for name, x in request.items()}
            expected = {name: f"{port.datatype} {list(port.dims)}" for name, port in self.inputs.items()}
            why = f", -1 for 1 to {self.most} rows" if self.most else ""
            raise ArgumentError(f"got the inputs {got}; expected {expected}{why}")
        return [request[name].reshape(port.shape) for name, port in self.inputs.items()]
