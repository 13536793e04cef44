"""Placements: which ranks hold a tensor, as an n-d array of ranks on devices of one type."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from miniflow.backends import memory
from miniflow.device import Place
from miniflow.errors import ArgumentError, ArgumentTypeError, refusal
from miniflow.parallel import world
from miniflow.parallel.boxing import box
from miniflow.parallel.global_array import GlobalArray
from miniflow.parallel.partition import GlobalMeta, Region, check_axes, region, shape_of
from miniflow.sbp import B, NdSbp


class placement(Place):
    """An n-d array of ranks, each with a device of one type. The order of the ranks is kept as given.

    Args:
        type: "cpu" or "cuda". Rank r computes on device `r % count` of that type. `device_type` is its name in OneFlow
            0.6.
        ranks: numbers below the world size, none twice: a list, nested lists or an array. As OneFlow 0.6 has it, also
            a dict from a machine to its ranks, counted from 0 on each; `device_ids` is the name there.
        hierarchy: the lengths of the dimensions, if `ranks` is to be reshaped.

    >>> placement("cpu", [0]).ranks.shape
    (1,)
    >>> placement("cpu", {0: [0]}, hierarchy=(1, 1))
    miniflow.placement(type="cpu", ranks=[[0]])

    Raises:
        ArgumentError: for ranks that do not exist, come twice, or are not there at all; for both names of an argument.

    Source: `oneflow.placement`.
    """

    is_global = True

    def __init__(
        self,
        type: str | None = None,
        ranks: Sequence[Any] | np.ndarray | dict[int, Sequence[int]] | None = None,
        hierarchy: Sequence[int] | None = None,
        *,
        device_type: str | None = None,
        device_ids: Any = None,
    ):
        if None not in (type, device_type) or ranks is not None and device_ids is not None:
            expected = "type and ranks, or device_type and device_ids, their other names"
            options = {"type": type, "device_type": device_type, "ranks": ranks, "device_ids": device_ids}
            raise refusal(ArgumentError, "placement", expected, **options)
        type, ranks = device_type if type is None else type, device_ids if ranks is None else ranks
        if type not in ("cpu", "cuda"):
            raise ArgumentError(f"placement: got type={type!r}; expected 'cpu' or 'cuda'")
        array = _as_array(ranks, hierarchy)
        if array.size == 0:
            raise ArgumentError("placement: got no ranks; expected at least one, as in ranks=[0]")
        if array.dtype.kind not in "iu" or array.ndim == 0:
            raise ArgumentTypeError(f"placement: got ranks={ranks!r}; expected a list of ints, or nested lists")
        flat = array.reshape(-1).tolist()
        if min(flat) < 0 or max(flat) >= world.size():
            raise ArgumentError(
                f"placement: got ranks={array.tolist()} in a world of {world.size()}; Placement is invalid because "
                "rank must be less than world size! flow.parallel.simulate(n), or more MPI ranks, make the world larger"
            )
        if len(set(flat)) != len(flat):
            raise ArgumentError(f"placement: got ranks={array.tolist()}; expected each rank once")
        self.type = self.device_type = type
        self.plain = self
        self._ranks = array
        self._flat = tuple(flat)
        self._key = type, array.shape, self._flat
        self._hash = hash(self._key)

    @staticmethod
    def all(type: str) -> placement:
        """Every rank of the world, in one dimension."""
        return placement(type, range(world.size()))

    @property
    def ranks(self) -> np.ndarray:
        """The ranks: a copy."""
        return self._ranks.copy()

    @property
    def shape(self) -> tuple[int, ...]:
        """The lengths of the dimensions."""
        return self._ranks.shape

    hierarchy = shape

    @property
    def flat(self) -> tuple[int, ...]:
        """The ranks in row-major order."""
        return self._flat

    @functools.cached_property
    def coordinates(self) -> dict[int, tuple[int, ...]]:
        """rank -> its position."""
        return {int(self._ranks[i]): i for i in np.ndindex(self._ranks.shape)}

    @functools.cached_property
    def owned(self) -> tuple[int, ...]:
        """The ranks of this placement whose shards this process holds."""
        return tuple([r for r in self._flat if r in world.owned()])

    def groups(self, *dims: int) -> list[tuple[int, ...]]:
        """The ranks that differ along these dimensions only, for each position in the others."""
        last = np.moveaxis(self._ranks, dims, range(-len(dims), 0))
        return [tuple(row) for row in last.reshape(-1, math.prod([self.shape[k] for k in dims])).tolist()]

    def with_type(self, type: str) -> placement:
        """The same ranks on devices of another type."""
        return self if type == self.type else placement(type, self._ranks)

    def with_sbp(self, sbp: NdSbp) -> PlacementWithSbp:
        """What a factory takes for a device to make arrays that are so divided."""
        return PlacementWithSbp(self, sbp)

    # making global arrays, divided as a `PlacementWithSbp` says, or broadcast: see `backends.memory`

    def _divided(self, shape: tuple[int, ...], dtype: np.dtype, make: Callable[[Region, Any], Any]) -> GlobalArray:
        """An array with the shards `make(bounds, device)`."""
        shape, where, sbp = tuple(shape), self.plain, getattr(self, "sbp", (B,) * len(self.shape))
        check_axes(sbp, len(shape))
        shards = {r: make(region(shape, where, sbp, r), world.device(where.type, r)) for r in where.owned}
        return GlobalArray(GlobalMeta.of(where, sbp, shape, np.dtype(dtype)), shards)

    def _empty(self, shape: tuple[int, ...], dtype: np.dtype) -> GlobalArray:
        return self._divided(shape, dtype, lambda bounds, device: memory.empty(shape_of(bounds), dtype, device))

    def _full(self, shape: tuple[int, ...], value: Any, dtype: np.dtype) -> GlobalArray:
        return self._divided(shape, dtype, lambda bounds, device: memory.full(shape_of(bounds), value, dtype, device))

    def _move(self, array: Any) -> GlobalArray:
        """A global array here in the same layout; a local one, which every rank has, is divided."""
        if isinstance(array, GlobalArray):
            return box(array, self, array.sbp if len(array.sbp) == len(self.shape) else (B,) * len(self.shape))
        host = memory.to_host(array)
        part = lambda bounds: host[tuple([slice(*b) for b in bounds])]  # noqa: E731
        return self._divided(host.shape, host.dtype, lambda b, device: memory.move(np.array(part(b)), device))

    def __eq__(self, other: object) -> bool:
        return self is other or isinstance(other, placement) and self._key == other._key

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f'miniflow.placement(type="{self.type}", ranks={self._ranks.tolist()})'

    def __reduce__(self) -> tuple:
        return placement, (self.type, self._ranks.tolist())


def _as_array(ranks: Any, hierarchy: Sequence[int] | None) -> np.ndarray:
    """The ranks that a placement is made of, in its shape."""
    if isinstance(ranks, dict):
        ranks_per_machine = world.ranks_of_a_machine()
        lists = [(machine, [ids] if isinstance(ids, int) else ids) for machine, ids in ranks.items()]
        ranks = [machine * ranks_per_machine + i for machine, ids in lists for i in ids]
    try:
        return np.array(ranks) if hierarchy is None else np.array(ranks).reshape(tuple(hierarchy))
    except ValueError as error:
        raise ArgumentError(
            f"placement: got ranks={ranks!r} and hierarchy={hierarchy}; expected a list, or lists of one length, and a "
            "hierarchy of as many"
        ) from error


class PlacementWithSbp(placement):
    """A placement, and how the arrays are divided that are to be made on it: what a factory takes for a device.

    Attributes:
        plain: the placement.
        sbp: one for each of its dimensions.
    """

    plain: placement

    def __init__(self, where: placement, sbp: NdSbp):
        self.__dict__.update(where.plain.__dict__)
        self.__dict__.update(plain=where.plain, sbp=sbp)
