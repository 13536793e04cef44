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
VALUES = {"b": (bool,), "i": (int,), "u": (int,), "f": (float, int)}  # kind of a dtype -> types of its values in JSON
KINDS = {dict: "object", list: "array", str: "string", int: "integer", float: "number", bool: "boolean"}  # in JSON


def read(model: str, body: bytes, header: str | None) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The request in a body: what stands in JSON, and the inputs by name.

    Args:
        model: its name, with which each error begins.
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
        raise ArgumentError(f"{model}: got {got}; expected an object with inputs") from error
    require(0 <= size <= len(body), model, f"{HEADER} {size}", f"at most the {len(body)} bytes of the body")
    inputs, binary = {}, memoryview(body)[size:]
    for i, entry in enumerate(field(model, request, "inputs", list)):
        name = field(f"{model}: inputs[{i}]", entry, "name", str)
        require(name not in inputs, model, f"two inputs {name!r:.80}", "names that differ")
        array, binary = array_of(f"{model}: {name:.80}", entry, binary)
        inputs[name] = from_numpy(array)
    require(not binary, model, f"{len(binary)} bytes that belong to no input", "as many as binary_data_size says")
    return request, inputs


def require(condition: bool, place: str, got: str, expected: str, *values: Any) -> None:
    """Refuse a request unless the condition holds.

    Args:
        place: the model, or an input or output of it.
        values: that `got % values` shows, as in logging: only if need be, since they may be all of a request.
    """
    if not condition:
        raise ArgumentError(f"{place}: got {got % values if values else got}; expected {expected}")


def field(place: str, entry: Any, key: str, kind: type, default: Any = None) -> Any:
    """A field of a JSON object, whose value has to be of a type."""
    require(type(entry) is dict, place, "%.80r", f"an object with {key}", entry)
    found = entry.get(key, default)
    require(type(found) is kind, place, f"{key} %.80r", f"a JSON {KINDS[kind]}", found)
    return found


def parameter(place: str, entry: Any, key: str, kind: type, default: Any = None) -> Any:
    """One of the parameters of a request, an input or an output; the default where there is none."""
    return field(place, field(place, entry, "parameters", dict, {}), key, kind, default)


def array_of(place: str, entry: dict[str, Any], binary: memoryview) -> tuple[np.ndarray, memoryview]:
    """The values of an input, in JSON or at the front of the binary data, and the binary data that is left.

    In JSON they are a list in row-major order, or lists of the shape; as binary data they are in that order, too, and
    little-endian.
    """
    datatype, shape = field(place, entry, "datatype", str), field(place, entry, "shape", list)
    require(datatype in DTYPES, place, f"datatype {datatype!r:.80}", f"one of {', '.join(DTYPES)}")
    good = len(shape) <= 32 and all(type(n) is int and n > 0 for n in shape)
    require(good, place, f"shape {shape!r:.80}", "a list of at most 32 sizes, each at least 1")
    dtype, count = DTYPES[datatype], prod(shape)
    if "binary_data_size" in field(place, entry, "parameters", dict, {}):
        used, size = parameter(place, entry, "binary_data_size", int), count * dtype.itemsize
        got = f"{used} bytes, of the {len(binary)} that are left"
        require(used == size <= len(binary), place, got, f"{size}, of {datatype} {shape!r:.80}")
        found = np.frombuffer(binary[:used], np.uint8 if datatype == "BOOL" else dtype)
        return found.astype(dtype).reshape(shape), binary[used:]
    require(datatype not in BINARY_ONLY, place, f"{datatype} in JSON", "binary data")
    data = np.array(entry.get("data"), object)
    got = f"data of shape {list(data.shape)}" if data.ndim else f"data {entry.get('data')!r:.80}"
    expected = f"a list of {count} values of {datatype}, or lists of shape {shape!r:.80}"
    require(data.shape in (tuple(shape), (count,)), place, got, expected)
    values = data.ravel().tolist()
    found = converted(values, dtype)
    if found is None:
        wrong = next(i for i, value in enumerate(values) if converted([value], dtype) is None)
        index = "".join(f"[{n}]" for n in np.unravel_index(wrong, data.shape))
        got = f"{values[wrong]!r:.40} at data{index}"
        require(False, place, got, f"a JSON {KINDS[VALUES[dtype.kind][0]]} for {datatype}")
    return found.reshape(shape), binary


def converted(values: list[Any], dtype: np.dtype) -> np.ndarray | None:
    """Values of JSON as an array; None if one is of a type that the dtype does not have, or out of its range."""
    if not set(VALUES[dtype.kind]).issuperset(map(type, values)):
        return None
    try:
        with np.errstate(over="ignore"):  # to infinity
            found = np.array(values, dtype)
    except OverflowError:
        return None
    return found if np.isfinite(found).all() else None


def write(model: str, version: int, request: dict[str, Any], answer: Mapping[str, Tensor]) -> tuple[bytes, int | None]:
    """The body of a response, and the value of `HEADER` for it; None without binary data.

    Args:
        model, version: that answered.
        request: what `read` found: it says which outputs are wanted, and in which form.

    Raises:
        ArgumentError: for an output that there is not, or that JSON has no form for.
    """
    outputs, binary = [], []
    is_binary = parameter(model, request, "binary_data_output", bool, False)
    for i, wanted in enumerate(field(model, request, "outputs", list, [{"name": name} for name in answer])):
        name = field(f"{model}: outputs[{i}]", wanted, "name", str)
        require(name in answer, model, f"the output {name!r:.80}", f"one of {list(answer)}")
        place, array = f"{model}: {name}", answer[name].numpy()
        datatype = DATATYPES[array.dtype]
        outputs.append({"name": name, "datatype": datatype, "shape": array.shape})
        if parameter(place, wanted, "binary_data", bool, is_binary):
            binary.append(array.tobytes())
            outputs[-1]["parameters"] = {"binary_data_size": array.nbytes}
        else:
            require(datatype not in BINARY_ONLY, place, f"{datatype} in JSON", "binary_data: true")
            require(np.isfinite(array).all(), place, "infinities or NaN in JSON", "binary_data: true")
            outputs[-1]["data"] = array.ravel().tolist()
    response = {"model_name": model, "model_version": str(version), "outputs": outputs}
    body = json.dumps(response | {key: request[key] for key in ["id"] if key in request}).encode()
    return b"".join([body, *binary]), len(body) if binary else None
