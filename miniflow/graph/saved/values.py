"""Attributes, constants and layouts as JSON values and back.

Numbers, strings, booleans, null and lists stand for themselves; everything else is an object with a single tag:

    {"tuple": [...]}   {"float": "inf"}   {"slice": [start, stop, step]}   {"ellipsis": null}   {"dtype": "float32"}
    {"device": "cuda:0"}   {"scalar": "draw.0.seed"}   {"number": ["float32", 0.5]}   {"dict": [[key, value], ...]}
    {"op": "Slice"}   {"placement": {"type": "cpu", "ranks": [0, 1], "shape": [2]}}   {"sbp": "S(0)"}
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from miniflow.backends.memory import load_kernels
from miniflow.device import device
from miniflow.dtype import ALL
from miniflow.errors import ArgumentError, ArgumentTypeError, CheckpointError, DeviceError
from miniflow.graph.ir import Scalar
from miniflow.graph.saved.attributes import known_ops
from miniflow.graph.saved.fields import Reader, each, integer, one_of, pair, record, refuse, text
from miniflow.parallel.partition import GlobalMeta, check_axes
from miniflow.parallel.placement import placement
from miniflow.sbp import B, P, S, Sbp, as_nd_sbp
from miniflow.serialization.states import BY_NAME as DTYPES
from miniflow.serialization.states import FLOATS

NAMES = {t.numpy: t.name for t in ALL}
SPLITS = {"B": B, "P": P, **{f"S({dim})": S(dim) for dim in range(32)}}
WHOLE = integer(-(2**63), 2**64 - 1)
RANK = integer(0, 1 << 16)


def encode_value(value: Any) -> Any:
    """The JSON value of an attribute or a constant.

    Raises:
        CheckpointError: for a value of an unknown kind.
    """
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float:
        return value if math.isfinite(value) else {"float": repr(value)}
    if isinstance(value, np.generic) and value.dtype in NAMES:
        return {"number": [NAMES[value.dtype], encode_value(value.item())]}
    if type(value) is list:
        return [encode_value(part) for part in value]
    for tag, kind, content in (
        ("tuple", tuple, list),
        ("slice", slice, lambda value: [value.start, value.stop, value.step]),
        ("dict", dict, lambda value: [list(item) for item in value.items()]),
        ("ellipsis", type(...), lambda value: None),
        ("dtype", np.dtype, NAMES.__getitem__),
        ("device", device, str),
        ("scalar", Scalar, lambda value: value.name),
        ("op", type, encode_op),
        ("sbp", Sbp, str),
    ):
        if isinstance(value, kind):
            return {tag: encode_value(content(value))}
    if isinstance(value, placement):
        return {"placement": encode_placement(value)}
    raise CheckpointError(f"save: cannot write an attribute of type {type(value).__name__}: {value!r:.80}")


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


def encode_placement(where: placement) -> dict[str, Any]:
    """The type of the devices, and the ranks."""
    return {"type": where.type, "ranks": where.flat, "shape": list(where.shape)}


def encode_place(where: device | GlobalMeta) -> Any:
    """The name of a device, or placement and SBP."""
    if not where.is_global:
        return str(where)
    return {"placement": encode_placement(where.placement), "sbp": [str(entry) for entry in where.sbp]}


class Values:
    """The reader of what `encode_value` writes.

    Args:
        map_location: the device that stands for all devices of the file; None for those themselves.

    Attributes:
        scalars: by their names, those that attributes may contain.

    Raises:
        CheckpointError: from each method, for anything that was not written so.
    """

    def __init__(self, map_location: Any = None):
        self.target = None if map_location is None else device(map_location)
        self.scalars: dict[str, Scalar] = {}
        self.tags: dict[str, Reader] = {
            "tuple": lambda value, at: tuple(each(self.value)(value, at)),
            "slice": self.slice,
            "number": self.number,
            "dict": lambda value, at: dict(each(pair(text, self.value))(value, at)),
            "ellipsis": lambda value, at: ...,
            "float": one_of(FLOATS),
            "dtype": one_of(DTYPES),
            "device": self.device,
            "scalar": lambda value, at: one_of(self.scalars)(value, at),
            "op": one_of(known_ops()),
            "placement": self.placement,
            "sbp": one_of(SPLITS),
        }

    def value(self, value: Any, at: str) -> Any:
        """An attribute or a constant."""
        if value is None or type(value) in (bool, float):
            return value
        if type(value) in (int, str, list):
            return {int: WHOLE, str: text, list: each(self.value)}[type(value)](value, at)
        if len(value) != 1:
            refuse(at, f"an object with the keys {sorted(value)[:5]}", "a single tag")
        ((tag, content),) = value.items()
        return one_of(self.tags)(tag, at)(content, at)

    def slice(self, value: Any, at: str) -> slice:
        """A slice from its bounds and step."""
        parts = each(self.value)(value, at)
        if len(parts) != 3 or any(part is not None and type(part) is not int for part in parts) or parts[2] == 0:
            refuse(at, parts, "start, stop and step: integers or null, the step not 0")
        return slice(*parts)

    def number(self, value: Any, at: str) -> np.generic:
        """A number of a NumPy type."""
        kind, number = pair(one_of(DTYPES), self.value)(value, at)
        try:
            if isinstance(number, int | float) and isinstance(number, bool) == (kind.kind == "b"):
                return kind.type(number)
        except OverflowError:
            pass
        return refuse(at, repr(number)[:80], f"a number that {kind} can hold")

    def device(self, value: Any, at: str) -> device:
        """A device of this machine."""
        try:
            place = device(text(value, at)) if self.target is None else self.target
        except (DeviceError, ValueError, TypeError) as error:
            raise CheckpointError(f"load: {at}: {error}; or give map_location='cpu'") from error
        load_kernels(place)
        return place

    def placement(self, value: Any, at: str) -> placement:
        """A placement in this world, which may have fewer ranks."""
        kind = one_of(("cpu", "cuda"))
        where = record(value, at, type=kind, ranks=each(RANK), shape=each(RANK))
        try:
            return placement(where["type"], np.array(where["ranks"]).reshape(where["shape"]))
        except (ArgumentError, ArgumentTypeError, ValueError) as error:
            raise CheckpointError(f"load: {at}: {error}") from error

    def place(self, value: Any, at: str, shape: tuple[int, ...], dtype: np.dtype) -> device | GlobalMeta:
        """A device, or the layout of a global array of this shape."""
        if not isinstance(value, dict):
            return self.device(value, at)
        where = record(value, at, placement=self.placement, sbp=each(one_of(SPLITS)))
        return checked(where["placement"], tuple(where["sbp"]), at, shape, dtype)


def checked(where: placement, sbp: tuple[Sbp, ...], at: str, shape: tuple[int, ...], dtype: np.dtype) -> GlobalMeta:
    """The layout, if it is one of an array of this shape.

    Raises:
        CheckpointError: if it is not.
    """
    try:
        check_axes(as_nd_sbp(sbp, len(where.shape), "load"), len(shape))
    except (ArgumentError, ArgumentTypeError) as error:
        raise CheckpointError(f"load: {at}: {error}") from error
    return GlobalMeta.of(where, sbp, shape, dtype)
