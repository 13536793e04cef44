"""Read the files of ONNX: nothing in them is trusted.

What the `onnx` package checks is left to it: the graph is acyclic and in order, every value is made once, operators
exist and have their inputs and attributes, functions do not call themselves. Element types and shapes that do not fit
are found when the model runs. It sees the model without the values of large initializers, so that this takes no
memory, and without external data, because its checker would open the files that a model names. These are read here,
after checks of the path, the size and the type.
"""

from __future__ import annotations

import math
import mmap
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError, Message
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto

from miniflow.errors import OnnxError

DEFAULT_DOMAINS = ("", "ai.onnx")
OLDEST_OPSET = 7
LARGE = 1024  # bytes of an initializer that stays in the model
MOST_NODES = 500_000  # with the bodies of functions in place of their calls
BITS = {"INT4": 4, "UINT4": 4, "FLOAT4E2M1": 4, "INT2": 2, "UINT2": 2, "FLOAT6E2M3": 6, "FLOAT6E3M2": 6}


@dataclass
class Source:
    """A model that has been checked.

    Attributes:
        model: without the values of large initializers, which are inputs in it.
        weights: the values of the initializers by name; nothing else refers to their memory.
    """

    model: ModelProto
    weights: dict[str, np.ndarray] = field(default_factory=dict)


def read_model(source: Any) -> Source:
    """The model in a file, bytes or a message.

    Raises:
        OnnxError: if it is broken, or not of a version that is supported.
        OSError: if the file cannot be read.
    """
    folder = None
    if isinstance(source, ModelProto):
        model = source
    elif isinstance(source, bytes | bytearray | memoryview):
        model = parsed(source)
    else:
        folder = Path(source).parent
        model = parsed(mapped(Path(source)))
    found = Source(parts(model, "graph"))
    found.model.graph.CopyFrom(parts(model.graph, "initializer"))
    check_versions(model)
    inputs = {x.name for x in model.graph.input}
    for tensor in model.graph.initializer:
        if tensor.name in found.weights:
            raise OnnxError(f"the initializer {tensor.name!r} is there twice")
        values = found.weights[tensor.name] = array_of(tensor, folder)
        if values.nbytes <= LARGE:
            found.model.graph.initializer.append(tensor if is_inside(tensor) else inlined(tensor, values))
        elif tensor.name not in inputs:
            kind = onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))
            found.model.graph.input.append(kind)
    del model
    for nodes in (found.model.graph.node, *(f.node for f in found.model.functions)):
        for tensor in tensors_of(nodes):
            if not is_inside(tensor):
                tensor.CopyFrom(inlined(tensor, array_of(tensor, folder)))
    check_structure(found.model)
    return found


@contextmanager
def naming(node: str = "") -> Iterator[None]:
    """Turn what is raised while a broken message is read into an OnnxError.

    Args:
        node: what is read.
    """
    try:
        yield
    except OnnxError:
        raise
    except (ValueError, TypeError, LookupError, ArithmeticError, RuntimeError) as error:
        raise OnnxError(f"the model is broken: {error}", node) from error


def parsed(data: Any) -> ModelProto:
    """The message in the bytes of a file."""
    try:
        return ModelProto.FromString(data)
    except DecodeError as error:
        raise OnnxError(f"this is not a model of ONNX, or only a part of one: {error}") from error


def parts(message: Message, left_out: str) -> Message:
    """A copy of a message without one of its fields."""
    copy = type(message)()
    for descriptor, value in message.ListFields():
        if descriptor.name == left_out:
            continue
        if isinstance(value, Message):
            getattr(copy, descriptor.name).CopyFrom(value)
        elif hasattr(value, "__len__") and not isinstance(value, str | bytes):
            getattr(copy, descriptor.name).extend(value)
        else:
            setattr(copy, descriptor.name, value)
    return copy


def check_versions(model: ModelProto) -> None:
    """Refuse opsets that miniflow or the `onnx` package does not know, and calls that would take too long to follow."""
    newest = onnx.defs.onnx_opset_version()
    for part, nodes in ((model, model.graph.node), *((f, f.node) for f in model.functions)):
        for version in [o.version for o in part.opset_import if o.domain in DEFAULT_DOMAINS]:
            if not 1 <= version <= newest:
                raise OnnxError(
                    f"got opset {version}; expected {OLDEST_OPSET} to {newest}: install a newer onnx package"
                )
            names = {node.op_type for node in nodes_of(nodes) if node.domain in DEFAULT_DOMAINS}
            names = {x for x in names if introduced(x, version) != introduced(x, max(version, OLDEST_OPSET))}
            if names:
                raise OnnxError(
                    f"got opset {version}, in which {', '.join(sorted(names))} is not as in opset {OLDEST_OPSET}: "
                    "convert the model with onnx.version_converter"
                )
    bodies = {(f.domain, f.name): f.node for f in model.functions}
    sizes: dict[tuple[str, str], int] = {}

    def size(nodes: Iterable[NodeProto], depth: int) -> int:
        total = 0
        for node in nodes_of(nodes):
            key = node.domain, node.op_type
            if key in bodies and key not in sizes:
                if depth > len(bodies):
                    raise OnnxError(f"the function {node.op_type!r} calls itself")
                sizes[key] = size(bodies[key], depth + 1)
            total += 1 + sizes.get(key, 0)
        return total

    total = size(model.graph.node, 0)
    if total > MOST_NODES:
        raise OnnxError(f"got {total} nodes; expected at most {MOST_NODES}, those of called functions included")


def introduced(name: str, version: int) -> int:
    """The opset that brought an operator as it is in this version."""
    return onnx.defs.get_schema(name, version).since_version if onnx.defs.has(name, version, "") else 0


def check_structure(model: ModelProto) -> None:
    """Ask the `onnx` package, but not for the shapes of values: a small hostile file lets that take all memory.

    Raises:
        OnnxError: with its words, for what it finds wrong.
    """
    try:
        onnx.checker.check_model(model)
    except Exception as error:  # the classes that its C++ code raises are not documented
        raise OnnxError(" ".join(str(error).split())) from error


# tensors


def array_of(tensor: TensorProto, folder: Path | None) -> np.ndarray:
    """The values of a tensor message, in memory of their own.

    Args:
        tensor: the message.
        folder: of the model's file, where external data may be; None if there is none.
    """
    where, shape = f"tensor {tensor.name!r}", list(tensor.dims)
    with naming(where):
        if any(n < 0 for n in shape) or math.prod(shape) >= 2**48 or len(shape) > 32:
            raise OnnxError(f"got the shape {shape[:40]}; expected sizes of an array", where)
        kind = TensorProto.DataType.Name(tensor.data_type)
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
        size = -(-math.prod(shape) * BITS.get(kind, 8 * dtype.itemsize) // 8)
        if is_inside(tensor) and not tensor.HasField("raw_data"):
            return np.array(onnx.numpy_helper.to_array(tensor))
        data = tensor.raw_data if is_inside(tensor) else external_data(tensor, size, folder)
        if len(data) != size or kind == "STRING":
            raise OnnxError(f"got {len(data)} bytes for {kind} {shape}; expected {size}", where)
        if kind in BITS:
            whole = TensorProto(data_type=tensor.data_type, dims=shape, raw_data=bytes(data))
            return np.array(onnx.numpy_helper.to_array(whole))
        return np.array(np.frombuffer(data, dtype.newbyteorder("<")).reshape(shape), dtype)


def is_inside(tensor: TensorProto) -> bool:
    """Whether the values are in the message."""
    return tensor.data_location != TensorProto.EXTERNAL and not tensor.external_data


def inlined(tensor: TensorProto, values: np.ndarray) -> TensorProto:
    """The message of a tensor with these values in it."""
    return onnx.numpy_helper.from_array(values, tensor.name)


def external_data(tensor: TensorProto, size: int, folder: Path | None) -> memoryview:
    """The bytes of a tensor in another file of the model's folder, which must be a plain file."""
    where = f"tensor {tensor.name!r}"
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    if folder is None:
        raise OnnxError(f"its values are in the file {location!r}: load the model by its path", where)
    offset, length = int(entries.get("offset", 0)), int(entries.get("length", size))
    if length != size:
        raise OnnxError(f"got {length} bytes of external data; expected {size}", where)
    if not location or set(location) & set("\\:\0"):
        raise OnnxError(f"got external data in {location!r}; expected the name of a file", where)
    path = Path(os.path.realpath(folder / location))
    if os.path.isabs(location) or ".." in Path(location).parts or not path.is_relative_to(os.path.realpath(folder)):
        raise OnnxError(f"external data in {location!r} is outside of the model's folder", where)
    try:
        data = mapped(path)
    except (OSError, ValueError) as error:
        raise OnnxError(f"external data in {location!r}: {error}", where) from error
    if not 0 <= offset <= offset + size <= len(data):
        raise OnnxError(f"got {size} bytes from {offset} of a file of {len(data)} bytes", where)
    return data[offset : offset + size]


def mapped(path: Path) -> memoryview:
    """The bytes of a plain file, mapped into memory."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OnnxError(f"{path} is not a plain file")
        return memoryview(mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ) if status.st_size else b"")
    finally:
        os.close(descriptor)


# walks


def nodes_of(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """Nodes, and those of the graphs among their attributes."""
    for node in nodes:
        yield node
        for graph in graphs_of(node):
            yield from nodes_of(graph.node)


def graphs_of(node: NodeProto) -> Iterator[GraphProto]:
    """The graphs among the attributes of a node."""
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.g
        yield from attribute.graphs


def tensors_of(nodes: Iterable[NodeProto]) -> Iterator[TensorProto]:
    """The tensors among the attributes of nodes, and in their graphs."""
    for node in nodes_of(nodes):
        for attribute in node.attribute:
            yield from (attribute.t, *attribute.tensors)
            for sparse in (attribute.sparse_tensor, *attribute.sparse_tensors):
                yield from (sparse.values, sparse.indices)
        for graph in graphs_of(node):
            yield from graph.initializer
