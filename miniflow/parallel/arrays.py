"""Global arrays, made and written as `backends.memory` does for arrays of every kind, and updates shard by shard."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from miniflow.backends import memory
from miniflow.backends.registry import kernel_of
from miniflow.dispatch.dispatcher import Op, run_kernel
from miniflow.parallel import world
from miniflow.parallel.boxing import box
from miniflow.parallel.global_array import GlobalArray, GlobalMeta
from miniflow.parallel.partition import check_axes, region, shape_of, within
from miniflow.parallel.placement import placement
from miniflow.sbp import B


def divided(where: placement, shape: tuple[int, ...], dtype: np.dtype, make: Callable) -> GlobalArray:
    """An array whose shards `make(bounds, device)` makes: divided as a `PlacementWithSbp` says, or broadcast."""
    shape, sbp = tuple(shape), getattr(where, "sbp", (B,) * len(where.shape))
    check_axes(sbp, len(shape))
    where = where.plain
    shards = {r: make(region(shape, where, sbp, r), world.device(where.type, r)) for r in where.owned}
    return GlobalArray(GlobalMeta.of(where, sbp, shape, np.dtype(dtype)), shards)


def empty(where: placement, shape: tuple[int, ...], dtype: np.dtype) -> GlobalArray:
    """An uninitialized array."""
    return divided(where, shape, dtype, lambda bounds, device: memory.empty(shape_of(bounds), dtype, device))


def full(where: placement, shape: tuple[int, ...], value: Any, dtype: np.dtype) -> GlobalArray:
    """An array filled with `value`."""
    return divided(where, shape, dtype, lambda bounds, device: memory.full(shape_of(bounds), value, dtype, device))


def move(where: placement, array: Any) -> GlobalArray:
    """On another placement: a global array in the same layout; a local one, which every rank has, as in `divided`."""
    if isinstance(array, GlobalArray):
        sbp = array.sbp if len(array.sbp) == len(where.shape) else (B,) * len(where.shape)
        return box(array, where, sbp)
    host = memory.to_host(array)
    outer = tuple([(0, n) for n in host.shape])
    return divided(
        where, host.shape, host.dtype, lambda bounds, device: memory.move(host[within(bounds, outer)].copy(), device)
    )


def like(values: Any, out: GlobalArray) -> GlobalArray:
    """Values in the placement and layout of `out`, of the same shape or broadcast to it."""
    if not isinstance(values, GlobalArray):
        values = move(out.placement, np.asarray(memory.to_host(values)))
    if values.shape != out.shape:
        values = broadcast(values, out.shape)
    return box(values, out.placement, out.sbp)


def broadcast(x: GlobalArray, shape: tuple[int, ...]) -> GlobalArray:
    """An array repeated to a larger shape."""
    return run_kernel(Op.by_name["Expand"], [x], {"shape": shape})


def copy_into(out: GlobalArray, values: Any) -> None:
    """Write values into the shards; of a view that was copied, into the array that it views too."""
    values = like(values, out)
    for rank, shard in out.shards.items():
        memory.copy_into(shard, values.shards[rank])
    wrote(out)


def add_into(out: GlobalArray, values: GlobalArray) -> None:
    """Add values of the same shape and dtype."""
    values = like(values, out)
    for rank, shard in out.shards.items():
        memory.add_into(shard, values.shards[rank])
    wrote(out)


def wrote(x: GlobalArray) -> None:
    """Note a write to the shards."""
    x.writes[0] += 1
    if x.source is not None:
        source, op, attrs, _ = x.source
        copy_into(source, run_kernel(Op.by_name["ViewScatter"], [source, x], {"steps": ((op, attrs),)}))
        x.source = source, op, attrs, source.writes[0]


def fill_into(out: GlobalArray, value: Any) -> None:
    """Write one number into every element."""
    copy_into(out, np.full((), value, out.dtype))


def write_through(x: GlobalArray, values: GlobalArray, steps: tuple) -> None:
    """Write values into the view of `x` that `steps` take; see `backends.memory.write_through`."""
    view = x
    for op, attrs in steps:
        view = run_kernel(op, [view], attrs)
    copy_into(view, values)


def update(first: GlobalArray, op: type[Op], groups: list[list[GlobalArray | None]], attrs: dict[str, Any]) -> None:
    """One step of an optimizer: gradients and states get the layout of their parameter, and each rank updates its
    shards. A parameter that is a partial sum is summed (broadcast) before the update."""
    params = groups[0]
    layouts = [p.placement_and_sbp.sbp for p in params]
    aligned = [
        [x if x is None or x.shape != p.shape else box(x, p.placement, sbp)
         for x, p, sbp in zip(group, params, layouts, strict=True)]
        for group in groups
    ]  # fmt: skip
    for rank in first.placement.owned:
        local = [[None if x is None else x.shards[rank] for x in group] for group in aligned]
        kernel_of(first.placement.type, op.__name__).run(*local, **attrs)
    for i in op.mutates:
        for x, new in zip(groups[i], aligned[i], strict=True):
            if x is not None and x is not new:
                copy_into(x, new)
            elif x is not None:
                wrote(x)


# the methods of which `backends.memory` and dispatch know
placement._empty, placement._full, placement._move = empty, full, move
GlobalArray.write, GlobalArray.fill, GlobalArray.add = copy_into, fill_into, add_into
GlobalArray.write_through, GlobalArray.update = write_through, update
