"""Attributes as JSON values and back.

Numbers, strings, booleans, null and lists stand for themselves; everything else is an object with a single tag:

    {"tuple": [...]}   {"float": "inf"}   {"slice": [start, stop, step]}   {"ellipsis": null}   {"dtype": "float32"}
    {"device": "cuda:0"}   {"scalar": "draw.0.seed"}   {"number": ["float32", 0.5]}   {"dict": [[key, value], ...]}
    {"op": "Slice"}   {"placement": {"type": "cpu", "ranks": [0, 1], "shape": [2]}}   {"sbp": "S(0)"}
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from miniflow.device import device
from miniflow.dtype import ALL
from miniflow.errors import CheckpointError, DeviceError
from miniflow.graph.ir import Scalar
from miniflow.graph.saved.fields import choice, integer, items, refuse, text
from miniflow.graph.saved.layouts import decode_placement, decode_sbp, encode_placement, encode_sbp
from miniflow.graph.saved.operands import known_ops
from miniflow.parallel.placement import placement
from miniflow.sbp import Sbp
from miniflow.serialization.states import BY_NAME as DTYPES
from miniflow.serialization.states import FLOATS

NAMES = {t.numpy: t.name for t in ALL}
TAGS = ("tuple", "slice", "number", "dict", "ellipsis", "float", "dtype", "device", "scalar", "op", "placement", "sbp")
MAX_DEPTH = 16  # of nested attributes


def encode_op(op: type, location: str = "") -> str:
    """The name of an op, which must be one of this package.

    Raises:
        CheckpointError: for another, of which a program that loads the graph would know nothing.
    """
    if known_ops().get(op.__name__) is not op:
        where = f" ({location})" if location else ""
        raise CheckpointError(
            f"save: the graph contains {op.__module__}.{op.__qualname__}{where}, which is not one of miniflow's own "
            "operations; expected those only, since the program that loads the graph may not have its code"
        )
    return op.__name__


def encode_value(value: Any) -> Any:
    """The JSON value of an attribute.

    Raises:
        CheckpointError: for a value of an unknown kind.
    """
    if value is None or isinstance(value, bool | int | str) and type(value) in (bool, int, str):
        return value
    if type(value) is float:
        return value if math.isfinite(value) else {"float": repr(value)}
    if isinstance(value, np.generic) and value.dtype in NAMES:
        return {"number": [NAMES[value.dtype], encode_value(value.item())]}
    if type(value) is list:
        return [encode_value(part) for part in value]
    for tag, kind, content in (
        ("tuple", tuple, lambda: [encode_value(part) for part in value]),
        ("slice", slice, lambda: [encode_value(part) for part in (value.start, value.stop, value.step)]),
        ("dict", dict, lambda: [[encode_value(k), encode_value(v)] for k, v in value.items()]),
        ("ellipsis", type(...), lambda: None),
        ("dtype", np.dtype, lambda: NAMES[value]),
        ("device", device, lambda: str(value)),
        ("scalar", Scalar, lambda: value.name),
        ("op", type, lambda: encode_op(value)),
        ("placement", placement, lambda: encode_placement(value)),
        ("sbp", Sbp, lambda: encode_sbp(value)),
    ):
        if isinstance(value, kind):
            return {tag: content()}
    raise CheckpointError(f"save: cannot write an attribute of type {type(value).__name__}: {value!r:.80}")


def decode_value(value: Any, at: str, place: Callable[[str, str], device] | None = None, depth: int = 0) -> Any:
    """The value that a JSON value stands for.

    Args:
        value: of any kind.
        at: its place in the file, for messages.
        place: finds the device of a name; None where no devices are allowed.

    Raises:
        CheckpointError: for anything that `encode_value` would not have written.
    """
    if value is None or type(value) in (bool, float):
        return value
    if type(value) is int:
        return integer(value, at, -(2**63), 2**64 - 1)
    if type(value) is str:
        return text(value, at)
    if depth > MAX_DEPTH:
        refuse(at, "deeper nesting", f"at most {MAX_DEPTH} levels")
    if type(value) is list:
        return [decode_value(part, where, place, depth + 1) for part, where in items(value, at)]
    if len(value) != 1:
        refuse(at, f"an object with the keys {sorted(value)[:5]}", "a single tag")
    ((tag, content),) = value.items()
    choice(tag, at, TAGS)
    if tag in ("tuple", "slice", "number"):
        parts = [decode_value(part, where, place, depth + 1) for part, where in items(content, at)]
        return {"tuple": lambda parts, at: tuple(parts), "slice": as_slice, "number": as_number}[tag](parts, at)
    if tag == "dict":
        pairs = [items(pair, where) for pair, where in items(content, at)]
        if any(len(pair) != 2 or type(pair[0][0]) is not str for pair in pairs):
            refuse(at, "something else", "pairs of a string and a value")
        return {key: decode_value(v, where, place, depth + 1) for (key, _), (v, where) in pairs}
    return decode_name(tag, content, at, place)


def decode_name(tag: str, content: Any, at: str, place: Callable[[str, str], device] | None) -> Any:
    """What a name stands for: a dtype, a device, an op, a number that varies ..."""
    if tag == "ellipsis":
        return ...
    if tag == "float":
        return FLOATS[choice(content, at, FLOATS)]
    if tag == "dtype":
        return DTYPES[choice(content, at, DTYPES)]
    if tag == "op":
        return known_ops()[choice(content, at, known_ops())]
    if tag == "scalar":
        return Scalar(text(content, at))
    if tag == "placement":
        return decode_placement(content, at)
    if tag == "sbp":
        return decode_sbp(content, at)
    return refuse(at, "a device", "none here") if place is None else place(text(content, at), at)


def as_slice(parts: list[Any], at: str) -> slice:
    """A slice from its bounds and step."""
    if len(parts) != 3 or any(part is not None and type(part) is not int for part in parts) or parts[2] == 0:
        refuse(at, parts, "start, stop and step: integers or null, the step not 0")
    return slice(*parts)


def as_number(parts: list[Any], at: str) -> np.generic:
    """A number of a NumPy type."""
    if len(parts) != 2 or not isinstance(parts[1], int | float) or isinstance(parts[1], bool) != (parts[0] == "bool"):
        refuse(at, parts, "a dtype and a number")
    kind = DTYPES[choice(parts[0], at, DTYPES)]
    try:
        return kind.type(parts[1])
    except (ValueError, OverflowError, TypeError) as error:
        refuse(at, error, f"a number that {parts[0]} can hold")


def as_device(name: str, at: str) -> device:
    """A device of this machine.

    Raises:
        CheckpointError: if there is no such device.
    """
    try:
        return device(name)
    except (DeviceError, ValueError, TypeError) as error:
        raise CheckpointError(f"load: {at}: {error}; or give map_location='cpu'") from error
