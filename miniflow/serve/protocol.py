"""Requests and responses of KServe's protocol, version 2, as tensors: in JSON, and with the extension for binary data.

Source: https://kserve.github.io/website/docs/concepts/architecture/data-plane/v2-protocol, and Triton's
`extension_binary_data.md`. JSON has no form for FP16 and BF16, and none for infinities and NaN: these are sent as
binary data.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import prod
from typing import Any, NamedTuple

import numpy as np

from miniflow.errors import ArgumentError
from miniflow.ops.creation import from_numpy
from miniflow.serve.config import DATATYPES
from miniflow.tensor import Tensor

HEADER = "inference-header-content-length"  # bytes of JSON, in front of binary data
DTYPES = {datatype: dtype for dtype, datatype in DATATYPES.items()}
BINARY_ONLY = ("FP16", "BF16")
NUMBERS = {"b": {bool}, "i": {int}, "u": {int}, "f": {int, float}}  # kind of a dtype -> what JSON's values are of
KINDS = {dict: "an object", list: "a list", str: "a string", int: "an integer", bool: "true or false"}


class Infer(NamedTuple):
    """A request.

    Attributes:
        inputs: by name.
        outputs: the name of each that is wanted, and whether as binary data; None for all of them.
        id: of the client; None without one.
        is_binary: whether outputs are sent as binary data where `outputs` does not say.
    """

    inputs: dict[str, Tensor]
    outputs: dict[str, bool] | None
    id: str | None
    is_binary: bool


def read(body: bytes, header: str | None) -> Infer:
    """The request in a body.

    Args:
        body: JSON, and binary data behind it.
        header: the value of `HEADER`; None if there is no binary data.

    Raises:
        ArgumentError: for what is not such a request.
    """
    try:
        size = len(body) if header is None else int(header)
        document = json.loads(body[:size].decode("utf-8"), parse_constant=refuse_constant)
    except (ValueError, RecursionError) as error:
        got = f"a body that is not JSON of {str(header or len(body)):.40} bytes: {error}"
        raise ArgumentError(f"serve: got {got}; expected an object with inputs") from error
    require(0 <= size <= len(body), f"{HEADER} {size}", f"at most the {len(body)} bytes of the body")
    inputs, binary = {}, memoryview(body)[size:]
    for entry in field(document, "inputs", list):
        name = field(entry, "name", str)
        require(name not in inputs, f"two inputs {name!r:.80}", "names that differ")
        array, binary = array_of(name, entry, binary)
        inputs[name] = from_numpy(array)
    require(not binary, f"{len(binary)} bytes that belong to no input", "as many as binary_data_size says")
    is_binary, outputs = parameter(document, "binary_data_output", bool, False), None
    if "outputs" in document:
        wanted = field(document, "outputs", list)
        outputs = {field(x, "name", str): parameter(x, "binary_data", bool, is_binary) for x in wanted}
    return Infer(inputs, outputs, document.get("id"), is_binary)


def require(condition: bool, got: str, expected: str) -> None:
    """Refuse a request unless the condition holds."""
    if not condition:
        raise ArgumentError(f"serve: got {got}; expected {expected}")


def refuse_constant(name: str) -> Any:
    """NaN and Infinity are not JSON."""
    raise ValueError(f"{name} is no number in JSON: send binary data")


def field(entry: Any, key: str, kind: type, default: Any = None) -> Any:
    """A field of a JSON object, whose value has to be of a type."""
    require(type(entry) is dict, f"{entry!r:.80}", f"an object with {key}")
    found = entry.get(key, default)
    require(type(found) is kind, f"{key} {found!r:.80}", KINDS[kind])
    return found


def parameter(entry: Any, key: str, kind: type, default: Any = None) -> Any:
    """One of the parameters of a request, an input or an output; the default where there is none."""
    return field(field(entry, "parameters", dict, {}), key, kind, default)


def array_of(name: str, entry: dict[str, Any], binary: memoryview) -> tuple[np.ndarray, memoryview]:
    """The values of an input, in JSON or at the front of the binary data, and the binary data that is left.

    In JSON they are a list in row-major order, or lists of the shape; as binary data they are in that order, too, and
    little-endian.
    """
    datatype, shape = field(entry, "datatype", str), field(entry, "shape", list)
    require(datatype in DTYPES, f"{name:.80} of datatype {datatype!r:.40}", f"one of {', '.join(DTYPES)}")
    good = len(shape) <= 32 and all(type(n) is int and n > 0 for n in shape)
    require(good, f"{name:.80} of shape {shape!r:.80}", "a list of at most 32 sizes, each at least 1")
    dtype, count = DTYPES[datatype], prod(shape)
    if "binary_data_size" in field(entry, "parameters", dict, {}):
        used, size = parameter(entry, "binary_data_size", int), count * dtype.itemsize
        got = f"{used} bytes for {name:.80}, of {len(binary)}"
        require(used == size <= len(binary), got, f"{size}, of {datatype} {shape!r:.80}")
        values = np.frombuffer(binary[:used], np.uint8 if datatype == "BOOL" else dtype)
        return values.astype(dtype).reshape(shape), binary[used:]
    require(datatype not in BINARY_ONLY, f"{name:.80} of {datatype} in JSON", "binary data")
    values = np.array(entry.get("data"), object)
    good = values.shape in (tuple(shape), (count,)) and NUMBERS[dtype.kind].issuperset(map(type, values.flat))
    expected = f"{count} values of {datatype} in a list, or in lists of the shape {shape!r:.80}"
    require(good, f"other data for {name:.80}", expected)
    try:
        with np.errstate(over="raise"):
            return values.astype(dtype).reshape(shape), binary
    except (OverflowError, FloatingPointError) as error:
        raise ArgumentError(f"serve: got numbers out of the range of {datatype} for {name:.80}: {error}") from error


def write(request: Infer, answer: Mapping[str, Tensor], model: str, version: int) -> tuple[bytes, int | None]:
    """The body of a response, and the value of `HEADER` for it; None without binary data.

    Raises:
        ArgumentError: for an output that there is not, or that JSON has no form for.
    """
    wanted = dict.fromkeys(answer, request.is_binary) if request.outputs is None else request.outputs
    unknown = sorted(wanted.keys() - answer.keys())
    require(not unknown, f"the outputs {unknown!r:.80}", f"some of {list(answer)}")
    outputs, binary = [], []
    for name, is_binary in wanted.items():
        array = answer[name].numpy()
        datatype = DATATYPES[array.dtype]
        outputs.append({"name": name, "datatype": datatype, "shape": array.shape})
        if is_binary:
            binary.append(array.tobytes())
            outputs[-1]["parameters"] = {"binary_data_size": array.nbytes}
        else:
            is_plain = datatype not in BINARY_ONLY and np.isfinite(array).all()
            require(is_plain, f"{name} for JSON, which is of {datatype} or has infinities or NaN", "binary_data: true")
            outputs[-1]["data"] = array.ravel().tolist()
    document = {"model_name": model, "model_version": str(version), "outputs": outputs}
    document |= {} if request.id is None else {"id": request.id}
    body = json.dumps(document).encode()
    return b"".join([body, *binary]), len(body) if binary else None
