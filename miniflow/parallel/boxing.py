"""Boxing: the same tensor in another layout.

On one placement of one dimension it is a collective; T are the bytes of the whole tensor, n the ranks:

    from     to      by                              bytes sent by all ranks together
    S(i)     B       all-gather                      (n - 1) T
    P        B       all-reduce                      2 (n - 1) T
    P        S(i)    reduce-scatter                  (n - 1) T
    S(i)     S(j)    all-to-all                      what changes its rank: (n - 1) T / n of even parts
    B        S(i)    slice                           0
    B        P       the first rank keeps it, the others hold zeros    0
    S(i)     P       the own part among zeros        0

On several dimensions a step changes one of them, within the ranks that differ in it alone; the cheapest path of steps
is found as the shortest path in the graph of layouts (Dijkstra). To another placement, each rank of the target gets the
regions of its shard from ranks that hold them.
"""

from __future__ import annotations

import functools
import heapq
import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from miniflow.backends import memory
from miniflow.parallel import world
from miniflow.parallel.global_array import GlobalArray, GlobalMeta
from miniflow.parallel.partition import Region, intersection, local_shape, region, shape_of, volume, within
from miniflow.parallel.placement import placement
from miniflow.sbp import B, NdSbp, P, S

NAMES = {"SB": "all-gather", "PB": "all-reduce", "PS": "reduce-scatter", "SS": "all-to-all", "BS": "slice",
         "BP": "keep on the first rank", "SP": "pad with zeros"}  # fmt: skip


listeners: list[Callable] = []  # called with the array and its new layout, before it is boxed


class Step(NamedTuple):
    """One dimension of a placement changes.

    Attributes:
        dim: which one.
        before, after: all SBP before and after it.
        cost: elements that all ranks together send.
    """

    dim: int
    before: NdSbp
    after: NdSbp
    cost: int


def step_cost(shape: tuple[int, ...], where: placement, k: int, before: NdSbp, after: NdSbp) -> int:
    """Elements that all ranks together send to change dimension k of the placement, by the table above."""
    n, kinds = where.shape[k], before[k].kind + after[k].kind
    if kinds == "SS":
        held = [[region(shape, where, sbp, r) for sbp in (before, after)] for r in where.flat]
        return sum([volume(old) - volume(intersection(old, new)) for old, new in held])
    copies = [m for i, (entry, m) in enumerate(zip(before, where.shape, strict=True)) if i != k and entry.dim is None]
    sends = {"SB": n - 1, "PB": 2 * (n - 1), "PS": n - 1}.get(kinds, 0)
    return math.prod(shape) * math.prod(copies) * sends  # of all groups together


def cost(shape: tuple[int, ...], where: placement, before: NdSbp, after: NdSbp) -> int:
    """Elements that all ranks together send for a change of layout on one placement."""
    return sum([s.cost for s in path(shape, where, before, after)])


@functools.lru_cache(100_000)
def path(shape: tuple[int, ...], where: placement, before: NdSbp, after: NdSbp) -> tuple[Step, ...]:
    """The cheapest steps from one layout to another on the same placement; ties are broken by fewer steps."""
    if before == after:
        return ()
    if len(before) == 1:
        return (Step(0, before, after, step_cost(shape, where, 0, before, after)),)
    queue: list[tuple[int, int, int, NdSbp, tuple[Step, ...]]] = [(0, 0, 0, before, ())]
    numbers, done = itertools.count(1), set()
    while queue:
        total, count, _, layout, steps = heapq.heappop(queue)
        if layout == after:
            return steps
        if layout in done:
            continue
        done.add(layout)
        for step in steps_from(shape, where, layout):
            if step.after not in done:
                heapq.heappush(queue, (total + step.cost, count + 1, next(numbers), step.after, (*steps, step)))
    raise AssertionError(f"no path from {before} to {after}")  # broadcast can be reached from everywhere


def steps_from(shape: tuple[int, ...], where: placement, layout: NdSbp) -> Iterator[Step]:
    """The steps that one collective makes.

    A part along a dim of the tensor is divided by one dimension of the placement after the other. So a split can only
    come or go while no later dimension of the placement divides the same dim.
    """
    for k, before in enumerate(layout):
        later = {entry.dim for entry in layout[k + 1 :]} - {None}
        if before.dim in later:
            continue
        for after in [B, P, *[S(d) for d in range(len(shape))]]:
            if after != before and after.dim not in later:
                changed = (*layout[:k], after, *layout[k + 1 :])
                yield Step(k, layout, changed, step_cost(shape, where, k, layout, changed))


# carrying it out


def box(x: GlobalArray, where: placement, sbp: NdSbp) -> GlobalArray:
    """The same values on another placement, or in another layout on the same one; `x` itself if nothing changes.

    All ranks of both placements have to call it.
    """
    for listen in listeners:
        listen(x, where, sbp)
    if where == x.placement:
        if sbp == x.sbp:
            return x
        shards = {r: memory.row_major(world.sendable(shard)) for r, shard in x.shards.items()}
        for step in path(x.shape, where, x.sbp, sbp):
            shards = change(x.shape, where, step, shards)
    elif where.flat == x.placement.flat and where.shape == x.placement.shape and sbp == x.sbp:
        shards = x.shards  # another type of device
    else:
        shards = transfer(x, where, sbp)
    shards = {r: memory.move(memory.row_major(a), world.device(where.type, r)) for r, a in shards.items()}
    return GlobalArray(GlobalMeta.of(where, sbp, x.shape, x.dtype), shards)


def change(shape: tuple[int, ...], where: placement, step: Step, shards: dict[int, Any]) -> dict:
    """One step: a collective in each group of ranks that differ along one dimension of the placement."""
    k, before, after = step.dim, step.before[step.dim], step.after[step.dim]
    layout = (*step.before[:k], B, *step.before[k + 1 :])
    frame = functools.partial(region, shape, where, layout)
    old = {r: within(region(shape, where, step.before, r), frame(r)) for r in where.flat}
    new = {r: within(region(shape, where, step.after, r), frame(r)) for r in where.flat}
    collective = COLLECTIVES[before.kind + after.kind]
    result = {}
    for group in where.groups(k):
        group_shards = {r: shards[r] for r in group if r in shards}
        if group_shards:
            result |= collective(group_shards, group, before.dim, after.dim, shape_of(frame(group[0])), old, new)
    return result


Index = dict[int, tuple[slice, ...]]  # rank -> what it holds of the tensor of its group


def length(index: tuple[slice, ...], dim: int) -> int:
    """The size of one dim of what an index selects."""
    return index[dim].stop - index[dim].start


def all_gather(shards: dict, group: tuple, i: int, _: None, shape: tuple, old: Index, new: Index) -> dict:
    """S(i) to B."""
    shapes = [resized(shape, {i: length(old[g], i)}) for g in group]
    parts = {r: x.reshape(-1) for r, x in shards.items()}
    gathered = world.communicator().all_gather(parts, group, [math.prod(s) for s in shapes])
    return {r: joined(flat, shapes, i) for r, flat in gathered.items()}


def all_reduce(shards: dict, group: tuple, *_: object) -> dict:
    """P to B."""
    return world.communicator().all_reduce(shards, group)


def reduce_scatter(shards: dict, group: tuple, _: None, j: int, shape: tuple, old: Index, new: Index) -> dict:
    """P to S(j)."""
    sizes = [length(new[g], j) for g in group]
    parts = {r: packed(x, sizes, j) for r, x in shards.items()}
    counts = [math.prod(resized(shape, {j: n})) for n in sizes]
    scattered = world.communicator().reduce_scatter(parts, group, counts)
    return {r: flat.reshape(resized(shape, {j: length(new[r], j)})) for r, flat in scattered.items()}


def all_to_all(shards: dict, group: tuple, i: int, j: int, shape: tuple, old: Index, new: Index) -> dict:
    """S(i) to S(j): each rank cuts its part along j, and puts together what it gets along i."""
    sizes = [length(new[g], j) for g in group]
    shapes = {r: [resized(shape, {i: length(old[g], i), j: length(new[r], j)}) for g in group] for r in shards}
    counts = {r: [math.prod(resized(shape, {i: length(old[r], i), j: n})) for n in sizes] for r in shards}
    received = {r: [math.prod(s) for s in row] for r, row in shapes.items()}
    parts = {r: packed(x, sizes, j) for r, x in shards.items()}
    exchanged = world.communicator().all_to_all(parts, group, counts, received)
    return {r: joined(flat, shapes[r], i) for r, flat in exchanged.items()}


def packed(x: Any, sizes: list[int], dim: int) -> Any:
    """The parts of so many elements of a dim, flat and one after the other."""
    if dim == 0:
        return x.reshape(-1)
    flat, start = memory.empty_like(x, (x.size,)), 0
    for bounds in along(dim, sizes):
        part = x[bounds]
        flat[start : start + part.size].reshape(part.shape)[...] = part
        start += part.size
    return flat


def joined(flat: Any, shapes: list[tuple[int, ...]], dim: int) -> Any:
    """The inverse: flat parts of these shapes, put together along a dim."""
    if dim == 0:
        return flat.reshape(sum(s[0] for s in shapes), *shapes[0][1:])
    sizes, start = [s[dim] for s in shapes], 0
    result = memory.empty_like(flat, resized(shapes[0], {dim: sum(sizes)}))
    for shape, bounds in zip(shapes, along(dim, sizes), strict=True):
        end = start + math.prod(shape)
        result[bounds] = flat[start:end].reshape(shape)
        start = end
    return result


def along(dim: int, sizes: list[int]) -> list[tuple[slice, ...]]:
    """The indices of parts of so many elements of a dim, one after the other."""
    ends = itertools.accumulate(sizes)
    return [(*[slice(None)] * dim, slice(end - n, end)) for n, end in zip(sizes, ends, strict=True)]


def slices(shards: dict, group: tuple, _: None, j: int, shape: tuple, old: Index, new: Index) -> dict:
    """B to S(j)."""
    return {r: x[new[r]].copy() for r, x in shards.items()}


def keep_on_first(shards: dict, group: tuple, *_: object) -> dict:
    """B to P."""
    return {r: x.copy() if r == group[0] else zeros(x, x.shape) for r, x in shards.items()}


def pad_with_zeros(shards: dict, group: tuple, i: int, _: None, shape: tuple, old: Index, new: Index) -> dict:
    """S(i) to P."""
    result = {r: zeros(x, shape) for r, x in shards.items()}
    for r, x in shards.items():
        result[r][old[r]] = x
    return result


def zeros(x: Any, shape: tuple[int, ...]) -> Any:
    """Zeros on the device of `x`."""
    result = memory.empty_like(x, shape)
    memory.fill(result, 0)
    return result


COLLECTIVES = {"SB": all_gather, "PB": all_reduce, "PS": reduce_scatter, "SS": all_to_all, "BS": slices,
               "BP": keep_on_first, "SP": pad_with_zeros}  # fmt: skip


def resized(shape: tuple[int, ...], sizes: dict[int, int]) -> tuple[int, ...]:
    """A shape with other sizes of some dims."""
    return tuple([sizes.get(d, n) for d, n in enumerate(shape)])


# to another placement


def transfer(x: GlobalArray, where: placement, sbp: NdSbp) -> dict[int, Any]:
    """The shards on another placement: each rank there gets the regions that it needs, one from each sender.

    Partial sums are reduced before; on the target, the first rank of a partial sum gets the values.
    """
    x = box(x, x.placement, without_partial(x.shape, x.placement, x.sbp))
    complete = tuple([B if entry is P else entry for entry in sbp])
    held = {r: region(x.shape, x.placement, x.sbp, r) for r in x.placement.flat}
    needed = {r: region(x.shape, where, complete, r) for r in where.flat if not is_zero(where, sbp, r)}
    plan = messages(held, needed)
    sent = {
        (s, r): world.sendable(x.shards[s])[within(common, held[s])] for (s, r), common in plan.items() if s in x.shards
    }
    devices = {r: world.receiving(world.device(where.type, r)) for r in where.owned}
    expected = {(s, r): (shape_of(common), x.dtype, devices[r]) for (s, r), common in plan.items() if r in devices}
    received = world.communicator().exchange(sent, expected)
    shapes = {r: local_shape(x.shape, where, complete, r) for r in devices}
    shards = {r: memory.full(shapes[r], 0, x.dtype, device) for r, device in devices.items()}
    for (s, r), values in received.items():
        shards[r][within(plan[s, r], needed[r])] = memory.move(values, devices[r])
    return shards


def without_partial(shape: tuple[int, ...], where: placement, sbp: NdSbp) -> NdSbp:
    """The layout without partial sums that is reached most cheaply."""
    choices = [[B, *[S(d) for d in range(len(shape))]] if entry is P else [entry] for entry in sbp]
    return min(itertools.product(*choices), key=lambda layout: cost(shape, where, sbp, layout))


def is_zero(where: placement, sbp: NdSbp, rank: int) -> bool:
    """Whether a rank holds the zeros of a partial sum."""
    return any(entry is P and i > 0 for entry, i in zip(sbp, where.coordinates[rank], strict=True))


def messages(held: dict[int, Region], needed: dict[int, Region]) -> dict[tuple[int, int], Region]:
    """Who sends what to whom: sender, receiver -> the region. Of ranks that hold the same, the receiver itself sends,
    or else they take turns."""
    holders: dict[Region, list[int]] = {}
    for rank, bounds in held.items():
        holders.setdefault(bounds, []).append(rank)
    plan = {}
    for turn, (receiver, bounds) in enumerate(needed.items()):
        for source, ranks in holders.items():
            common = intersection(bounds, source)
            if common is not None:
                plan[receiver if receiver in ranks else ranks[turn % len(ranks)], receiver] = common
    return plan


def box_to_all(x: GlobalArray) -> np.ndarray:
    """The whole on the CPU of every rank of the world, whether or not it is in the placement."""
    everywhere = placement("cpu", range(world.size()))
    y = box(x, everywhere, (B,))
    return (x.copy() if y is x else y).shards[world.rank()]


GlobalArray.numpy = box_to_all
