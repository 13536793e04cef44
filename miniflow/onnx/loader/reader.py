"""Read the files of ONNX: nothing in them is trusted.

What the `onnx` package checks is left to it: the graph is acyclic and in order, every value is made once, operators
exist and have their inputs and attributes, functions do not call themselves. Element types and shapes that do not fit
are found when the model runs. It sees the model without the values of initializers, so that this takes no memory, and
without external data, because its checker would open the files that a model names. These are read here, after checks
of the path, the size and the type.
"""

from __future__ import annotations

import functools
import math
import mmap
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError, Message
from onnx import ModelProto, NodeProto, TensorProto

from miniflow.errors import OnnxError

DEFAULT_DOMAINS = ("", "ai.onnx")
OLDEST_OPSET = 7
LARGEST = 2**31 - 1  # bytes of a message of protobuf
MOST_NODES = 500_000  # with the bodies of functions in place of their calls
BITS = {"INT4": 4, "UINT4": 4, "FLOAT4E2M1": 4, "INT2": 2, "UINT2": 2, "FLOAT6E2M3": 6, "FLOAT6E3M2": 6}


def read_model(source: Any) -> tuple[ModelProto, dict[str, np.ndarray]]:
    """The model in a file, bytes or a message.

    Returns:
        the model without the values of initializers, which are inputs in it; and these values by name, to whose memory
        nothing else refers.

    Raises:
        OnnxError: if it cannot be read, is broken, or not of a version that is supported.
    """
    folder = None
    if isinstance(source, ModelProto):
        model = ModelProto()
        model.CopyFrom(source)
    elif isinstance(source, bytes | bytearray | memoryview):
        model = parsed(source)
    elif not isinstance(source, str | os.PathLike):
        expected = "a path, the bytes of a file or an onnx.ModelProto"
        raise OnnxError(f"onnx.load: got a {type(source).__name__}; expected {expected}")
    else:
        folder = Path(source).parent
        model = parsed(mapped(Path(source)))
    check_versions(model)
    weights: dict[str, Any] = {}
    inputs = {x.name for x in model.graph.input}
    for x in model.graph.initializer:
        if x.name in weights:
            raise OnnxError(f"the initializer {x.name!r} is there twice")
        weights[x.name] = x
        if x.name not in inputs:
            model.graph.input.append(onnx.helper.make_tensor_value_info(x.name, x.data_type, list(x.dims)))
    # the largest first: while it is read there are two copies, which then take the least memory
    for name, tensor in sorted(weights.items(), key=lambda weight: -weight[1].ByteSize()):
        weights[name] = array_of(tensor, folder)
    del model.graph.initializer[:]
    for tensor in messages(model, TensorProto):
        if not is_inside(tensor):
            tensor.CopyFrom(onnx.numpy_helper.from_array(array_of(tensor, folder), tensor.name))
    model = parsed(model.SerializeToString())  # in memory of its own, without what was deleted
    check_structure(model)
    return model, weights


@contextmanager
def naming(source: Any = None, node: str = "") -> Iterator[None]:
    """Turn what is raised while a broken message is read into an OnnxError.

    Args:
        source: what was given; the error names it if it is a path.
        node: what is read.
    """
    try:
        yield
    except (OSError, MemoryError, ValueError, TypeError, LookupError, ArithmeticError, RuntimeError) as error:
        words = "does not fit into memory" if isinstance(error, MemoryError) else f"the model is broken: {error}"
        words = f"the file cannot be read: {error.strerror}" if isinstance(error, OSError) else words
        words, node = (error.message, error.node) if isinstance(error, OnnxError) else (words, node)
        file = f"; in the file {os.fspath(source)!r}" if isinstance(source, str | os.PathLike) else ""
        raise OnnxError(f"{words}{file}", node) from error


def parsed(data: Any) -> ModelProto:
    """The message in the bytes of a file."""
    if len(data) > LARGEST:
        raise OnnxError(f"got a file of {len(data):,} bytes; expected less than 2 GB: larger weights are external data")
    try:
        return ModelProto.FromString(data)
    except DecodeError as error:
        raise OnnxError(f"this is not a model of ONNX, or only a part of one: {error}") from error


def messages(message: Message, cls: type) -> Iterator[Any]:
    """All messages of a kind inside of a message: the nodes of a graph and of its subgraphs, say."""
    for descriptor, value in message.ListFields():
        if descriptor.message_type is not None:
            for part in [value] if isinstance(value, Message) else value:
                if isinstance(part, cls):
                    yield part
                yield from messages(part, cls)


def check_versions(model: ModelProto) -> None:
    """Refuse opsets that miniflow or the `onnx` package does not know."""
    newest = onnx.defs.onnx_opset_version()
    for part in (model, *model.functions):
        for version in [o.version for o in part.opset_import if o.domain in DEFAULT_DOMAINS]:
            nodes = messages(part, NodeProto) if version < OLDEST_OPSET else ()
            names = {node.op_type for node in nodes if node.domain in DEFAULT_DOMAINS}
            remedy = "install a newer onnx package" if version > newest else "use onnx.version_converter"
            if not 0 < version <= newest or any(since(x, version) != since(x, OLDEST_OPSET) for x in names):
                raise OnnxError(f"got opset {version}; expected {OLDEST_OPSET} to {newest}: {remedy}")


def since(name: str, version: int) -> int:
    """The opset that brought an operator as it is in this version."""
    return onnx.defs.get_schema(name, version).since_version if onnx.defs.has(name, version, "") else 0


def check_structure(model: ModelProto) -> None:
    """Ask the `onnx` package, but not for the shapes of values: a small hostile file lets that take all memory.

    Raises:
        OnnxError: with its words, for what it finds wrong; and for calls that would take too long to follow.
    """
    try:
        onnx.checker.check_model(completed(model))
    except Exception as error:  # the classes that its C++ code raises are not documented
        raise OnnxError(" ".join(str(error).split())) from error
    bodies = {(f.domain, f.name): f for f in model.functions}

    @functools.cache
    def size(function: tuple[str, str] | None = None) -> int:
        body = model.graph if function is None else bodies[function]
        called = [(node.domain, node.op_type) for node in messages(body, NodeProto)]
        return sum(1 + (size(name) if name in bodies else 0) for name in called)

    if size() > MOST_NODES:
        raise OnnxError(f"got {size()} nodes; expected at most {MOST_NODES}, those of called functions included")


def completed(model: ModelProto) -> ModelProto:
    """A copy with what the checker asks for, onnxruntime does not need and exporters leave out: types of outputs, ...

    Raises:
        OnnxError: for an input without an element type.
    """
    copy = parsed(model.SerializeToString())
    copy.graph.name = copy.graph.name or "main"
    del copy.metadata_props[:]
    for node in messages(copy, NodeProto):
        node.domain = "" if node.domain in DEFAULT_DOMAINS else node.domain
    for x in copy.graph.output:
        if x.type.WhichOneof("value") in (None, "tensor_type"):
            x.type.tensor_type.elem_type = TensorProto.FLOAT
    for x in (*copy.graph.input, *copy.graph.output):
        if x.type.WhichOneof("value") in (None, "tensor_type"):
            x.type.tensor_type.shape.SetInParent()
            if not x.type.tensor_type.elem_type:
                raise OnnxError(f"{x.name!r} has no element type; expected one for each input")
    return copy


def array_of(tensor: TensorProto, folder: Path | None = None) -> np.ndarray:
    """The values of a tensor message, in memory of their own.

    Args:
        tensor: the message.
        folder: of the model's file, where external data may be; None if there is none.
    """
    where, shape = f"tensor {tensor.name!r}", list(tensor.dims)
    with naming(node=where):
        if any(n < 0 for n in shape) or math.prod(shape) >= 2**48 or len(shape) > 32:
            raise OnnxError(f"got the shape {shape[:40]}; expected sizes of an array", where)
        type_name = TensorProto.DataType.Name(tensor.data_type)
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
        size = -(-math.prod(shape) * BITS.get(type_name, 8 * dtype.itemsize) // 8)
        if not is_inside(tensor):
            data = external_data(tensor, size, folder)
            if type_name not in BITS and dtype.kind != "O":  # else they are several in a byte, or refused below
                return np.frombuffer(data, dtype).reshape(shape).copy()
            tensor = TensorProto(data_type=tensor.data_type, dims=shape, raw_data=bytes(data))
        if tensor.HasField("raw_data") and (len(tensor.raw_data) != size or type_name == "STRING"):
            raise OnnxError(f"got {len(tensor.raw_data)} bytes for {type_name} {shape}; expected {size}", where)
        return np.array(onnx.numpy_helper.to_array(tensor))


def is_inside(tensor: TensorProto) -> bool:
    """Whether the values are in the message."""
    return tensor.data_location != TensorProto.EXTERNAL and not tensor.external_data


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
