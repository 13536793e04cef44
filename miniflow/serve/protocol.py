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
MAKES = {"b": "b", "i": "iu", "u": "iu", "f": "iuf"}  # kind of a dtype -> kinds of numbers in JSON that are such


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
    size = len(body) if header is None else int(header) if header.isdecimal() and len(header) < 20 else -1
    require(0 <= size <= len(body), f"{HEADER} {header!r:.40}", f"at most the {len(body)} bytes of the body")
    try:
        document = json.loads(body[:size].decode("utf-8"), parse_constant=refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ArgumentError(f"serve: the body is not JSON: {error}; expected an object with inputs") from error
    require(isinstance(document, dict), "a body that is no JSON object", "one with inputs")
    binary, inputs = memoryview(body)[size:], {}
    for entry in entries(document, "inputs"):
        name, used = entry["name"], parameters(entry).get("binary_data_size")
        require(name not in inputs, f"two inputs {name!r:.80}", "names that differ")
        if used is None:
            inputs[name] = from_numpy(from_json(entry))
            continue
        is_size = type(used) is int and 0 <= used <= len(binary) and "data" not in entry
        require(is_size, f"binary_data_size {used!r:.40} of {name!r:.80}", f"no data, and at most {len(binary)} bytes")
        inputs[name], binary = from_numpy(from_binary(entry, binary[:used])), binary[used:]
    require(not binary, f"{len(binary)} bytes that belong to no input", "as many as binary_data_size says")
    is_binary, wanted = parameters(document).get("binary_data_output", False) is True, None
    if "outputs" in document:
        wanted = {x["name"]: parameters(x).get("binary_data", is_binary) is True for x in entries(document, "outputs")}
    return Infer(inputs, wanted, document.get("id"), is_binary)


def require(condition: bool, got: str, expected: str) -> None:
    """Refuse a request unless the condition holds."""
    if not condition:
        raise ArgumentError(f"serve: got {got}; expected {expected}")


def refuse_constant(name: str) -> Any:
    """NaN and Infinity are not JSON."""
    raise ValueError(f"{name} is no number in JSON: send binary data")


def entries(document: dict[str, Any], key: str) -> list[dict[str, Any]]:
    """The objects of a list, each with a name."""
    found = document.get(key)
    good = isinstance(found, list) and all(isinstance(x, dict) and isinstance(x.get("name"), str) for x in found)
    require(good, f"{key} {found!r:.80}", "a list of objects with a name")
    return found


def parameters(entry: dict[str, Any]) -> dict[str, Any]:
    """The parameters of a request, an input or an output."""
    found = entry.get("parameters", {})
    require(isinstance(found, dict), f"parameters {found!r:.80}", "an object")
    return found


def kind_of(entry: dict[str, Any]) -> tuple[str, np.dtype, tuple[int, ...]]:
    """Name, dtype and shape of an input."""
    name, datatype, shape = entry["name"], entry.get("datatype"), entry.get("shape")
    known = isinstance(datatype, str) and datatype in DTYPES
    require(known, f"{name:.80} of datatype {datatype!r:.40}", f"one of {', '.join(DTYPES)}")
    good = isinstance(shape, list) and len(shape) <= 32 and all(type(n) is int and 0 <= n < 2**40 for n in shape)
    good = good and prod(filter(None, shape)) < 2**40  # NumPy refuses more, also where another size is 0
    require(good, f"{name:.80} of shape {shape!r:.80}", "a list of sizes")
    return name, DTYPES[datatype], tuple(shape)


def from_json(entry: dict[str, Any]) -> np.ndarray:
    """The values of an input that stand in JSON, in a list in row-major order, or in lists of the shape."""
    name, dtype, shape = kind_of(entry)
    require(entry["datatype"] not in BINARY_ONLY, f"{name:.80} of {entry['datatype']} in JSON", "binary data")
    try:
        array = np.array(entry.get("data"))
    except ValueError:  # lists of different lengths
        array = np.array(None)
    expected = f"{prod(shape)} values of {entry['datatype']} in a list, or in lists of the shape {list(shape)}"
    good = array.dtype.kind in MAKES[DTYPES[entry["datatype"]].kind] or array.size == 0
    require(good and array.shape in (shape, (prod(shape),)), f"other data for {name:.80}", expected)
    with np.errstate(over="ignore"):
        found = array.astype(dtype).reshape(shape)
    is_same = np.isfinite(found).all() if dtype.kind == "f" else (found.reshape(array.shape) == array).all()
    require(bool(is_same), f"numbers out of the range of {entry['datatype']} for {name:.80}", expected)
    return found


def from_binary(entry: dict[str, Any], data: memoryview) -> np.ndarray:
    """The values of an input in binary data: in row-major order, little-endian."""
    name, dtype, shape = kind_of(entry)
    size = prod(shape) * dtype.itemsize
    require(len(data) == size, f"{len(data)} bytes for {name:.80}", f"{size}, of {entry['datatype']} {list(shape)}")
    if dtype.kind == "b":
        return (np.frombuffer(data, np.uint8) != 0).reshape(shape)
    return np.frombuffer(data, dtype).reshape(shape).copy()


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
        array, datatype = np.ascontiguousarray(answer[name].numpy()), DATATYPES[answer[name]._array.dtype]
        entry = {"name": name, "datatype": datatype, "shape": list(answer[name].shape)}
        if is_binary:
            binary.append(array.tobytes())
            outputs.append(entry | {"parameters": {"binary_data_size": array.nbytes}})
            continue
        is_plain = datatype not in BINARY_ONLY and (array.dtype.kind != "f" or bool(np.isfinite(array).all()))
        require(is_plain, f"{name} for JSON, which is of {datatype} or has infinities or NaN", "binary_data: true")
        outputs.append(entry | {"data": array.reshape(-1).tolist()})
    document = {"model_name": model, "model_version": str(version), "outputs": outputs}
    document |= {} if request.id is None else {"id": request.id}
    body = json.dumps(document).encode()
    return (b"".join([body, *binary]), len(body)) if binary else (body, None)
