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

All but an all-reduce are one thing: each rank gets from others what its new part lacks, all terms of a sum, and adds
them up. So a step may change several dimensions of a placement, each in its own way, and the cheapest path of steps is
a shortest path in the graph of layouts. To another placement the last step sends, after partial sums were reduced.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from miniflow.backends import memory
from miniflow.parallel import world
from miniflow.parallel.comm.counted import reduced
from miniflow.parallel.partition import GlobalMeta, Region, intersection, part_at, region, shape_of, volume, within
from miniflow.sbp import B, NdSbp, P, S

if TYPE_CHECKING:
    from miniflow.parallel.global_array import GlobalArray
    from miniflow.parallel.placement import placement

NAMES = {"SB": "all-gather", "PB": "all-reduce", "PS": "reduce-scatter", "SS": "all-to-all", "BS": "slice",
         "BP": "keep on the first rank", "SP": "pad with zeros"}  # fmt: skip

listeners: list[Callable] = []  # called with the array and its new layout, before it is boxed


class Step(NamedTuple):
    """One change of layout, in which ranks send once (in an all-reduce, twice).

    Attributes:
        source, where: the placement before and after it.
        before, after: all SBP before and after it.
        cost: bytes that all ranks together send.
    """

    source: placement
    where: placement
    before: NdSbp
    after: NdSbp
    cost: int

    @property
    def stays(self) -> bool:
        """Whether it is between the same ranks."""
        return same_ranks(self.source, self.where)

    @property
    def dims(self) -> tuple[int, ...]:
        """The dimensions of the placement whose SBP changes; none for a step to other ranks."""
        return tuple([k for k in range(len(self.after)) if self.stays and self.before[k] != self.after[k]])

    @property
    def name(self) -> str:
        """The collective; "send and receive" for several at once, or to other ranks."""
        kinds = {self.before[k].kind + self.after[k].kind for k in self.dims}
        return NAMES[kinds.pop()] if len(kinds) == 1 else "send and receive"


def same_ranks(a: placement, b: placement) -> bool:
    """Whether two placements differ in the type of the devices at most."""
    return a.flat == b.flat and a.shape == b.shape


def cost(shape: tuple[int, ...], where: placement, before: NdSbp, after: NdSbp, itemsize: int = 1) -> int:
    """Bytes that all ranks together send for a change of layout on one placement, of elements of `itemsize` bytes."""
    return sum([step.cost for step in path(shape, where, before, after, itemsize)])


def route(
    shape: tuple[int, ...], source: placement, before: NdSbp, where: placement, after: NdSbp, itemsize: int
) -> tuple[Step, ...]:
    """The steps from one layout to another, maybe on another placement."""
    if same_ranks(source, where):
        return path(shape, source, before, after, itemsize)
    complete = without_partial(shape, source, before)
    last = Step(source, where, complete, after, 0)
    sent = [volume(common) for (s, r), common in messages(shape, last).items() if s != r]
    return *path(shape, source, before, complete, itemsize), last._replace(cost=sum(sent) * itemsize)


@functools.lru_cache(100_000)
def path(shape: tuple[int, ...], where: placement, before: NdSbp, after: NdSbp, itemsize: int = 1) -> tuple[Step, ...]:
    """The cheapest steps from one layout to another on the same placement, of equal ones the fewest.

    Dims that the number of ranks divides have even parts, and costs in proportion: one path serves all such sizes.
    """
    ranks = len(where.flat)
    unit = tuple([n if n % ranks else ranks for n in shape])
    scale = math.prod(shape) // math.prod(unit) * itemsize
    number, (sent, came_from) = layouts(len(shape), len(before)), ways(unit, where.shape, before)
    every, steps = list(number), []
    while after != before:
        start = every[came_from[number[after]]]
        steps.append(Step(where, where, start, after, int(sent[number[after]]) * scale))
        after = start
    return tuple(steps[::-1])


@functools.cache
def layouts(ndim: int, dims: int) -> dict[NdSbp, int]:
    """The layouts of a tensor on a placement of so many dimensions, and their numbers."""
    return {sbp: i for i, sbp in enumerate(itertools.product([B, P, *map(S, range(ndim))], repeat=dims))}


@functools.lru_cache(10_000)
def ways(shape: tuple[int, ...], mesh: tuple[int, ...], before: NdSbp) -> tuple[np.ndarray, np.ndarray]:
    """For each layout the elements that are sent in the last step on the way from `before`, and the number of the
    layout in which that step starts, by the algorithm of Bellman and Ford."""
    sent, start = single_steps(shape, mesh), layouts(len(shape), len(mesh))[before]
    price = sent * 64 + 1  # fewer steps break ties
    total, came_from = price[start] * (np.arange(len(sent)) != start), np.full(len(sent), start)
    while True:
        through = total[:, None] + price
        shorter = through.min(0) < total
        if not shorter.any():
            return sent[came_from, range(len(sent))], came_from
        came_from = np.where(shorter, through.argmin(0), came_from)
        total = np.minimum(through.min(0), total)


@functools.lru_cache(100)
def single_steps(shape: tuple[int, ...], mesh: tuple[int, ...]) -> np.ndarray:
    """The elements that all ranks together send in one step from each layout (row) to each (column)."""
    every = list(layouts(len(shape), len(mesh)))
    complete = [tuple([B if entry is P else entry for entry in sbp]) for sbp in every]
    number = {sbp: i for i, sbp in enumerate(dict.fromkeys(complete))}
    bounds = np.array([[part_at(shape, mesh, sbp, i) for i in np.ndindex(mesh)] for sbp in number], np.int64)
    common = np.ones((len(number), *bounds.shape[:2]), np.int64)  # what each rank holds before and after
    for start, stop in bounds.reshape(*bounds.shape[:2], -1, 2).transpose(2, 3, 0, 1):
        common *= np.maximum(np.minimum(stop[:, None], stop) - np.maximum(start[:, None], start), 0)
    numbers = [number[sbp] for sbp in complete]
    common = common.sum(-1)[np.ix_(numbers, numbers)]
    held = common.diagonal()
    is_all_reduce, n, terms, rows, copies = factors(len(shape), mesh)
    # all terms of old sums; for a new sum a rank gets what was in its row, or in the first row if all held the same
    return np.where(is_all_reduce, 2 * (n - 1) * held // n, terms * held // rows - common // copies)


@functools.cache
def factors(ndim: int, mesh: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    """For each pair of layouts whether the step is an all-reduce, and the number of ranks along the dimensions of the
    placement that change, that change from P, that change to P, and that change from B to P."""
    broadcast, partial = 0, 1  # their places among the entries of layouts
    new = np.array(list(itertools.product(range(2 + ndim), repeat=len(mesh))))
    old = new[:, None]
    is_all_reduce = ((old == new) | (old == partial) & (new == broadcast)).all(-1)
    from_partial, to_partial = (old == partial) & (new != partial), (old != partial) & (new == partial)
    changes = (old != new, from_partial, to_partial, to_partial & (old == broadcast))
    return is_all_reduce, *[np.where(dims, mesh, 1).prod(-1) for dims in changes]


# carrying it out


def box(x: GlobalArray, where: placement, sbp: NdSbp) -> GlobalArray:
    """The same values on another placement, or in another layout on the same one; `x` itself if nothing changes.

    All ranks of both placements have to call it.
    """
    for listen in listeners:
        listen(x, where, sbp)
    if where == x.placement and sbp == x.sbp:
        return x
    for step in route(x.shape, x.placement, x.sbp, where, sbp, x.itemsize):
        shards = (all_reduce if step.name == "all-reduce" else send_and_receive)(x, step)
        x = type(x)(GlobalMeta.of(step.where, step.after, x.shape, x.dtype), shards)
    if where == x.placement:
        return x
    shards = {r: memory.move(a, world.device(where.type, r)) for r, a in x.shards.items()}
    return type(x)(GlobalMeta.of(where, sbp, x.shape, x.dtype), shards)


def all_reduce(x: GlobalArray, step: Step) -> dict[int, Any]:
    """P to B, in each group of ranks that differ along the dimensions that change."""
    return reduce_along(step.where, step.dims, x.shards)


def reduce_along(
    where: placement,
    dims: tuple[int, ...],
    shards: dict[int, Any],
    by: str = "add",
    out: dict[int, Any] | None = None,
) -> dict[int, Any]:
    """The shards of the ranks that differ along some dimensions of a placement, put together by an operation; in the
    arrays `out`, if given, each of which may be its rank's shard."""
    result = {}
    for group in where.groups(*dims):
        parts = {r: memory.row_major(world.sendable(shards[r])) for r in group if r in shards}
        if parts:
            result |= world.communicator().all_reduce(parts, group, by, out)
    return {r: memory.move(array, world.device(where.type, r)) for r, array in result.items()}


def send_and_receive(x: GlobalArray, step: Step) -> dict[int, Any]:
    """The other steps: ranks get what they need, and add the terms of sums in the order of the ranks."""
    shards, plan, (_, terms), arrived = x.shards, indices(x.shape, step), terms_of(step), {}
    for r in step.where.owned:
        own = shape_of(region(x.shape, step.where, step.after, r))
        arrived[r] = memory.empty((terms, *own), x.dtype, world.device(step.where.type, r))
        if P in step.after:
            memory.fill(arrived[r], 0)
    sent = {(s, r): shards[s][old] for (s, r), (old, _) in plan.items() if s in shards}
    received = {(s, r): arrived[r][new] for (s, r), (_, new) in plan.items() if r in arrived}
    world.communicator().exchange(sent, received, name=step.name.removesuffix(" and receive").replace("-", "_"))
    if terms == 1:
        return {r: array[0, ...] for r, array in arrived.items()}
    return {r: reduced([array[i, ...] for i in range(terms)]) for r, array in arrived.items()}


@functools.lru_cache(10_000)
def indices(shape: tuple[int, ...], step: Step) -> dict[tuple[int, int], tuple[tuple, tuple]]:
    """For each message of a step: what is sent of the sender's shard, and its place among the terms of the receiver."""
    (number, _), found = terms_of(step), {}
    for (s, r), common in messages(shape, step).items():
        own = within(common, region(shape, step.source, step.before, s))
        found[s, r] = own, (number[s], *within(common, region(shape, step.where, step.after, r)))
    return found


@functools.lru_cache(10_000)
def terms_of(step: Step) -> tuple[dict[int, int], int]:
    """For each rank the number of its term of the sums that a step adds up, and how many terms there are."""
    added = [k for k, entry in enumerate(step.before) if entry is P and step.after[k] is not P]
    number = {r: i for group in step.source.groups(*added) for i, r in enumerate(group)}
    return number, math.prod([step.source.shape[k] for k in added])


@functools.lru_cache(10_000)
def messages(shape: tuple[int, ...], step: Step) -> dict[tuple[int, int], Region]:
    """Who sends what to whom in a step that is no all-reduce: sender, receiver -> the region.

    Of ranks that hold the same, the receiver itself sends, or else the one that differs along the fewest dimensions of
    the placement; to other ranks, they take turns.
    """
    source, where, after, (number, _) = step.source, step.where, step.after, terms_of(step)
    partial = [k for k, entry in enumerate(after) if entry is P]
    first = [k for k in partial if not step.stays or step.before[k] is B]  # of a new sum only one rank has values
    together = [k for k in range(len(after)) if k not in partial or k in first]  # else ranks hold terms of a sum
    needed = {r: region(shape, where, after, r) for r, i in where.coordinates.items() if not any(i[k] for k in first)}
    groups = where.groups(*together) if step.stays else [tuple(dict.fromkeys(source.flat + where.flat))]
    plan = {}
    for group in groups:
        holders: dict[tuple[int, Region], list[int]] = {}
        for r in filter(source.coordinates.__contains__, group):
            holders.setdefault((number[r], region(shape, source, step.before, r)), []).append(r)
        for turn, receiver in enumerate(filter(needed.__contains__, group)):
            for (_, held), ranks in holders.items():
                common = intersection(needed[receiver], held)
                if common is not None:
                    i = turn % len(ranks)
                    plan[nearest(receiver, ranks[i:] + ranks[:i], step), receiver] = common
    return plan


def nearest(receiver: int, ranks: list[int], step: Step) -> int:
    """The first of the ranks that differ from the receiver along the fewest dimensions; itself if it is among them."""
    at, dims = step.source.coordinates, range(len(step.before) if step.stays else 0)
    return min(ranks, key=lambda r: (r != receiver, sum([at[r][k] != at[receiver][k] for k in dims])))


def without_partial(shape: tuple[int, ...], where: placement, sbp: NdSbp) -> NdSbp:
    """The layout without partial sums that is reached most cheaply."""
    choices = [[B, *[S(d) for d in range(len(shape))]] if entry is P else [entry] for entry in sbp]
    return min(itertools.product(*choices), key=lambda layout: cost(shape, where, sbp, layout))
