"""The array behind a global tensor: the shards that this process owns, and how they make up the whole."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from miniflow.backends.geometry import layout_of
from miniflow.device import Place
from miniflow.dispatch.dispatcher import run_kernel
from miniflow.parallel import world
from miniflow.parallel.placement import PlacementWithSbp, placement
from miniflow.sbp import B, NdSbp, P, show


class GlobalMeta(Place):
    """Placement, SBP, shape and dtype of a global array; equal ones are one object (`of`), compared by identity.

    Attributes:
        placement: the ranks.
        sbp: how each dimension of the placement divides the array.
        shape, dtype: of the whole.
    """

    __slots__ = ("placement", "sbp", "shape", "dtype")
    is_global = True
    index = None  # in the program of a graph it stands where others have a device

    def __init__(self, where: placement, sbp: NdSbp, shape: tuple[int, ...], dtype: np.dtype):
        self.placement = where
        self.sbp = sbp
        self.shape = shape
        self.dtype = dtype

    of = staticmethod(functools.lru_cache(100_000)(lambda *parts: GlobalMeta(*parts)))

    @property
    def type(self) -> str:
        """The type of the devices."""
        return self.placement.type

    def with_dtype(self, dtype: np.dtype) -> GlobalMeta:
        """The same for elements of another dtype."""
        return GlobalMeta.of(self.placement, self.sbp, self.shape, dtype)

    def __repr__(self) -> str:
        return f"{self.placement} with sbp {show(self.sbp)}"


class GlobalArray:
    """A logical array of which each rank of a placement holds a shard.

    Attributes:
        meta: the placement, SBP, shape and dtype.
        shards: rank -> array, of the ranks that this process owns; the shape is `partition.local_shape`.
        writes: how often the memory was written to, in a list that views of it share.
        source: of a view that had to be copied, since its layout is another, and of views of it: the array, the
            operator, its attributes, and how often the array had been written to by then.
        view_of: the array that it is a view of (of a view ...), as its meta, and the steps from there: pairs of an
            operator and its attributes. For others its own meta, and no steps.
    """

    __slots__ = ("meta", "local_shards", "writes", "source", "view_of", "placement", "sbp", "shape", "dtype")
    device_index = None  # it is an array of ranks, not of a device
    is_symbolic = False
    is_global = True

    def __init__(self, meta: GlobalMeta, shards: dict[int, Any]):
        self.meta = meta
        self.local_shards = shards
        self.writes = [0]
        self.source: tuple[GlobalArray, type, dict[str, Any], int] | None = None
        self.view_of: tuple[GlobalMeta, tuple] = meta, ()
        self.placement = meta.placement
        self.sbp = meta.sbp
        self.shape = meta.shape
        self.dtype = meta.dtype

    @property
    def shards(self) -> dict[int, Any]:
        """The shards; a view that had to be copied is regenerated after a write to what it is a view of."""
        return self.local_shards if self.source is None else self.regenerate()

    @property
    def placement_and_sbp(self) -> PlacementWithSbp:
        """Where arrays like it are made: split as it is, broadcast where it is a partial sum."""
        return PlacementWithSbp(self.placement, tuple([B if entry is P else entry for entry in self.sbp]))

    @property
    def layout(self) -> np.ndarray:
        """NumPy's geometry of the whole, as on one device, without elements to look at: the same on all ranks."""
        meta, steps = self.view_of
        layout = layout_of(meta.shape, meta.dtype)
        for op, attrs in steps:
            layout = run_kernel(op, [layout], attrs)
        return layout

    @property
    def strides(self) -> tuple[int, ...]:
        """Those of the whole, in bytes."""
        return self.layout.strides

    @property
    def flags(self) -> Any:
        """Those of the whole."""
        return self.layout.flags

    @property
    def ndim(self) -> int:
        """The number of dims."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements of the whole."""
        size = 1
        for n in self.shape:
            size *= n
        return size

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of the whole."""
        return self.size * self.dtype.itemsize

    def each(self, function: Callable[..., Any], *others: GlobalArray) -> GlobalArray:
        """`function` of each shard, and of the shards of `others` in the same layout; it must keep the shape."""
        shards = {r: function(x, *[other.shards[r] for other in others]) for r, x in self.shards.items()}
        return GlobalArray(self.meta, shards)

    def copy(self) -> GlobalArray:
        """With memory of its own."""
        return self.each(lambda x: x.copy())

    def from_first_rank(self, value: Any) -> Any:
        """The value of the first rank of the placement, for all of them."""
        if world.rank() not in self.placement.coordinates:
            return value
        return world.communicator().all_gather_object(value, self.placement.flat)[0]

    def peek(self) -> np.ndarray | None:
        """The values, for checks: left to the shards."""
        return None

    def reshape(self, shape: tuple[int, ...], copy: bool | None = None) -> np.ndarray:
        """The layout in another shape: NumPy raises ValueError where that takes a copy."""
        return self.layout.reshape(shape, copy=copy)

    # the modules above say how

    numpy: Callable[[GlobalArray], np.ndarray]  # boxing: the whole, which all ranks have to ask for
    regenerate: Callable[[GlobalArray], dict[int, Any]]  # dispatch
    write: Callable[[GlobalArray, Any], None]  # arrays: values of any layout, broadcast and cast
    fill: Callable[[GlobalArray, Any], None]  # arrays
    add: Callable[[GlobalArray, GlobalArray], None]  # arrays
    write_through: Callable[[GlobalArray, GlobalArray, tuple], None]  # arrays: into a view
    update: Callable[[GlobalArray, type, list, dict], None]  # arrays: one step of an optimizer
    kernel_for: Callable[[type], Callable]  # dispatch: what computes an operator
