"""Placements and SBP of global tensors as JSON values and back."""

from __future__ import annotations

from typing import Any

import numpy as np

from miniflow.device import device
from miniflow.errors import ArgumentError, ArgumentTypeError, CheckpointError
from miniflow.graph.saved.fields import choice, integer, items, record
from miniflow.parallel.partition import GlobalMeta, check_axes
from miniflow.parallel.placement import placement
from miniflow.sbp import B, NdSbp, P, S, Sbp, as_nd_sbp

MAX_RANKS = 1 << 16
ENTRIES = {"B": B, "P": P, **{f"S({dim})": S(dim) for dim in range(32)}}


def encode_placement(where: placement) -> dict[str, Any]:
    """The type of the devices, and the ranks."""
    return {"type": where.type, "ranks": where.flat, "shape": where.shape}


def decode_placement(value: Any, at: str) -> placement:
    """A placement in this world.

    Raises:
        CheckpointError: for anything else; if this world has fewer ranks.
    """
    value = record(value, at, ("type", "ranks", "shape"))
    ranks = [integer(rank, where, 0, MAX_RANKS) for rank, where in items(value["ranks"], f"{at}.ranks")]
    shape = [integer(n, where, 1, MAX_RANKS) for n, where in items(value["shape"], f"{at}.shape")]
    try:
        return placement(choice(value["type"], f"{at}.type", ("cpu", "cuda")), np.array(ranks).reshape(shape))
    except (ArgumentError, ArgumentTypeError, ValueError) as error:
        raise CheckpointError(f"load: {at}: {error}") from error


def encode_sbp(entry: Sbp) -> str:
    """As it is printed: "B", "P", "S(0)"."""
    return entry.kind if entry.dim is None else f"S({entry.dim})"


def decode_sbp(value: Any, at: str) -> Sbp:
    """One entry."""
    return ENTRIES[choice(value, at, ENTRIES)]


def encode_place(where: device | GlobalMeta) -> Any:
    """The name of a device, or placement and SBP."""
    if not where.is_global:
        return str(where)
    return {"placement": encode_placement(where.placement), "sbp": [encode_sbp(entry) for entry in where.sbp]}


def decode_layout(value: Any, at: str, shape: tuple[int, ...], dtype: np.dtype) -> GlobalMeta:
    """The layout of a global array."""
    value = record(value, at, ("placement", "sbp"))
    where = decode_placement(value["placement"], f"{at}.placement")
    sbp: NdSbp = tuple([decode_sbp(entry, place) for entry, place in items(value["sbp"], f"{at}.sbp")])
    return checked(where, sbp, at, shape, dtype)


def checked(where: placement, sbp: NdSbp, at: str, shape: tuple[int, ...], dtype: np.dtype) -> GlobalMeta:
    """The layout, if it is one of an array of this shape.

    Raises:
        CheckpointError: if it is not.
    """
    try:
        check_axes(as_nd_sbp(sbp, len(where.shape), "load"), len(shape))
    except (ArgumentError, ArgumentTypeError) as error:
        raise CheckpointError(f"load: {at}: {error}") from error
    return GlobalMeta.of(where, sbp, shape, np.dtype(dtype))
