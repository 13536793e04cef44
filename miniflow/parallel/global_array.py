"""The array behind a global tensor: the shards that this process owns, and how they make up the whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from miniflow.backends import memory
from miniflow.backends.geometry import layout_of
from miniflow.backends.registry import kernel_of
from miniflow.device import Place
from miniflow.dispatch.dispatcher import Op, run_kernel
from miniflow.parallel import world
from miniflow.parallel.boxing import box
from miniflow.parallel.dispatch import kernel_for
from miniflow.parallel.partition import GlobalMeta
from miniflow.sbp import B, P


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
    def placement_and_sbp(self) -> Place:
        """Where arrays like it are made: split as it is, broadcast where it is a partial sum."""
        return self.placement.with_sbp(tuple([B if entry is P else entry for entry in self.sbp]))

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

    def numpy(self) -> np.ndarray:
        """The whole, on the CPU of every rank of the world, whether or not it is in the placement: all have to ask."""
        y = box(self, self.placement.all("cpu"), (B,))
        return (self.copy() if y is self else y).shards[world.rank()]

    def regenerate(self) -> dict[int, Any]:
        """The shards of a copied view, which is brought up to date with what was written since."""
        source, op, attrs, writes = self.source
        source.shards  # noqa: B018  (brings it up to date)
        if source.writes[0] != writes:
            view = run_kernel(op, [source], attrs)
            self.local_shards, self.source = view.local_shards, (source, op, attrs, source.writes[0])
            self.writes[0] += self.writes is not source.writes  # views of this one are regenerated too
        return self.local_shards

    def like_this(self, values: Any) -> GlobalArray:
        """Values in this placement and layout, of the same shape or broadcast to it."""
        if not isinstance(values, GlobalArray):
            values = self.placement._move(np.asarray(memory.to_host(values)))
        if values.shape != self.shape:
            values = run_kernel(Op.by_name["Expand"], [values], {"shape": self.shape})
        return box(values, self.placement, self.sbp)

    def write(self, values: Any) -> None:
        """Write values into the shards; of a view that was copied, into the array that it views too."""
        values = self.like_this(values)
        for rank, shard in self.shards.items():
            memory.copy_into(shard, values.shards[rank])
        self.wrote()

    def add(self, values: GlobalArray) -> None:
        """Add values of the same shape and dtype."""
        values = self.like_this(values)
        for rank, shard in self.shards.items():
            memory.add_into(shard, values.shards[rank])
        self.wrote()

    def wrote(self) -> None:
        """Note a write to the shards."""
        self.writes[0] += 1
        if self.source is not None:
            source, op, attrs, _ = self.source
            source.write(run_kernel(Op.by_name["ViewScatter"], [source, self], {"steps": ((op, attrs),)}))
            self.source = source, op, attrs, source.writes[0]

    def fill(self, value: Any) -> None:
        """Write one number into every element."""
        self.write(np.full((), value, self.dtype))

    def write_through(self, values: GlobalArray, steps: tuple) -> None:
        """Write values into the view that `steps` take; see `backends.memory.write_through`."""
        view = self
        for op, attrs in steps:
            view = run_kernel(op, [view], attrs)
        memory.copy_into(view, values)

    def update(self, op: type[Op], groups: list[list[GlobalArray | None]], attrs: dict[str, Any]) -> None:
        """One step of an optimizer: gradients and states get the layout of their parameter, and each rank updates its
        shards. A parameter that is a partial sum is summed (broadcast) before the update."""
        params = groups[0]
        layouts = [p.placement_and_sbp.sbp for p in params]
        aligned = [
            [x if x is None or x.shape != p.shape else box(x, p.placement, sbp)
             for x, p, sbp in zip(group, params, layouts, strict=True)]
            for group in groups
        ]  # fmt: skip
        for rank in self.placement.owned:
            local = [[None if x is None else x.shards[rank] for x in group] for group in aligned]
            kernel_of(self.placement.type, op.__name__).run(*local, **attrs)
        for i in op.mutates:
            for x, new in zip(groups[i], aligned[i], strict=True):
                if x is not None and x is not new:
                    x.write(new)
                elif x is not None:
                    x.wrote()

    @classmethod
    def kernel_for(cls, op: type[Op]) -> Callable[..., Any]:
        """What computes an operator on such arrays."""
        return kernel_for(op, cls)
