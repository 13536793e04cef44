"""Requests and responses of KServe's protocol, version 2, as tensors: in JSON, and with the extension for binary data.

Source: https://kserve.github.io/website/docs/concepts/architecture/data-plane/v2-protocol, and Triton's
`extension_binary_data.md`. JSON has no form for FP16 and BF16, and none for infinities and NaN: these are sent as
binary data.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import prod
from typing import Any

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


def read(body: bytes, header: str | None) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The request in a body: what stands in JSON, and the inputs by name.

    Args:
        body: JSON, and binary data behind it.
        header: the value of `HEADER`; None if there is no binary data.

    Raises:
        ArgumentError: for what is not such a request.
    """
    try:
        size = len(body) if header is None else int(header)
        request = json.loads(body[:size].decode("utf-8"))
    except (ValueError, RecursionError) as error:
        got = f"a body that is not JSON of {str(header or len(body)):.40} bytes: {error}"
        raise ArgumentError(f"serve: got {got}; expected an object with inputs") from error
    require(0 <= size <= len(body), f"{HEADER} {size}", f"at most the {len(body)} bytes of the body")
    inputs, binary = {}, memoryview(body)[size:]
    for entry in field(request, "inputs", list):
        name = field(entry, "name", str)
        require(name not in inputs, f"two inputs {name!r:.80}", "names that differ")
        array, binary = array_of(name, entry, binary)
        inputs[name] = from_numpy(array)
    require(not binary, f"{len(binary)} bytes that belong to no input", "as many as binary_data_size says")
    return request, inputs


def require(condition: bool, got: str, expected: str) -> None:
    """Refuse a request unless the condition holds."""
    if not condition:
        raise ArgumentError(f"serve: got {got}; expected {expected}")


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
            array = values.astype(dtype).reshape(shape)
    except (OverflowError, FloatingPointError):
        array = np.array(np.nan)
    require(np.isfinite(array).all(), f"numbers out of the range of {datatype} for {name:.80}", expected)
    return array, binary


def write(request: dict[str, Any], answer: Mapping[str, Tensor], model: str, version: int) -> tuple[bytes, int | None]:
    """The body of a response, and the value of `HEADER` for it; None without binary data.

    Args:
        request: what `read` found: it says which outputs are wanted, and in which form.

    Raises:
        ArgumentError: for an output that there is not, or that JSON has no form for.
    """
    outputs, binary = [], []
    is_binary = parameter(request, "binary_data_output", bool, False)
    for wanted in field(request, "outputs", list, [{"name": name} for name in answer]):
        name = field(wanted, "name", str)
        require(name in answer, f"the output {name!r:.80}", f"one of {list(answer)}")
        array = answer[name].numpy()
        datatype = DATATYPES[array.dtype]
        outputs.append({"name": name, "datatype": datatype, "shape": array.shape})
        if parameter(wanted, "binary_data", bool, is_binary):
            binary.append(array.tobytes())
            outputs[-1]["parameters"] = {"binary_data_size": array.nbytes}
        else:
            is_plain = datatype not in BINARY_ONLY and np.isfinite(array).all()
            require(is_plain, f"{name} for JSON, which is of {datatype} or has infinities or NaN", "binary_data: true")
            outputs[-1]["data"] = array.ravel().tolist()
    response = {"model_name": model, "model_version": str(version), "outputs": outputs}
    body = json.dumps(response | {key: request[key] for key in ["id"] if key in request}).encode()
    return b"".join([body, *binary]), len(body) if binary else None
