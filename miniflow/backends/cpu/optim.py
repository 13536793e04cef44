"""Optimizer updates: each reads and writes the memory of a parameter once, all parameters in one compiled call.

The rules are those of `miniflow.update_rules`. Parameters, gradients and states come as lists of arrays of any layout
and floating dtype; parameters and states are changed in place. Half precision is computed in float32.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from miniflow.backends.cpu.threads import share, unlocked
from miniflow.backends.registry import kernel
from miniflow.update_rules import RULES, Rule, fused_factor, loop_over

FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
SMALL = 4096  # elements of a gradient that is copied to others, which takes less time than to ask for its address


class Table(NamedTuple):
    """Where parameters and their states are: numba takes a table in no time, but 0.2 microseconds for an array.

    Attributes:
        real: the dtype of all arrays.
        sizes: int64, elements of each parameter.
        addresses: int64, for each group of arrays; None for states that are left out.
        sources: int64, addresses of the gradients.
        joined: small gradients are copied to it, one after the other.
        small, large: the parameters whose gradients are, and the others.
        total: elements of all parameters.
    """

    real: np.dtype
    sizes: np.ndarray
    addresses: list[np.ndarray | None]
    sources: np.ndarray
    joined: np.ndarray
    small: list[int]
    large: list[int]
    total: int


def is_regular(x: np.ndarray | None, real: np.dtype) -> bool:
    """Whether a loop can take an array as it is."""
    return x is None or (x.dtype == real and x.flags.carray)


def make_table(groups: Sequence[Sequence[np.ndarray | None]]) -> Table | None:
    """The table of groups of arrays that all are contiguous and of one dtype; None if they are not, or if parameters
    share memory, which threads would change at once."""
    real = groups[0][0].dtype
    if real not in (FLOAT32, FLOAT64) or not all(is_regular(x, real) for x in chain(*groups)):
        return None
    addresses = [None if group[0] is None else np.array([x.ctypes.data for x in group]) for group in groups]
    sizes = np.array([x.size for x in groups[0]])
    order = np.argsort(addresses[0])
    if np.any((addresses[0] + sizes * real.itemsize)[order][:-1] > addresses[0][order][1:]):
        return None
    small = sizes < SMALL
    ends = (sizes * small).cumsum()
    joined = np.empty(ends[-1], real)
    sources = joined.ctypes.data + (ends - sizes) * real.itemsize
    positions = [np.flatnonzero(x).tolist() for x in (small, ~small)]
    return Table(real, sizes, addresses, sources, joined, *positions, int(sizes.sum()))


tables: dict[tuple[int, ...], tuple[Table | None, list[weakref.ref]]] = {}  # by the ids of arrays that are alive


def table_of(groups: Sequence[Sequence[np.ndarray | None]]) -> Table | None:
    """As `make_table`, which is called again only for other arrays."""
    key = tuple(map(id, chain.from_iterable([group if group[0] is not None else (None,) for group in groups])))
    if key not in tables:
        if len(tables) > 100:
            tables.clear()
        watched = [weakref.ref(x, lambda _: tables.pop(key, None)) for x in chain(*groups) if x is not None]
        tables[key] = make_table(groups), watched
    return tables[key][0]


def update_by(rule: Rule, loop: Callable, name: str) -> Callable[..., None]:
    """The kernel that updates parameters by a rule.

    Its groups are the parameters, the gradients (not written), and the states, None for one that is left out; then, if
    a graph fused clipping into the update, the 0-dim norms of the gradients, which are bounded by `max_norm`.
    """
    missing = [None] * (3 - rule.states)

    def run(table: Table, grads: Sequence[np.ndarray], numbers: list[tuple[float, ...]]) -> None:
        real, sizes, (params, *states), sources, joined, small, large, total = table
        if small:
            np.concatenate([grads[k] for k in small] if large else grads, None, joined)
        whole = [np.ascontiguousarray(grads[k], real) for k in large]
        for k, g in zip(large, whole, strict=True):
            sources[k] = g.ctypes.data
        share(loop, total, total, sizes, params, sources, *states, *missing, np.array(numbers, real))

    def update(params, grads, *states, maximize, multiply=(), divide=(), max_norm=None, **options):
        own, decay, shared = rule.numbers(len(params), **options)
        factor, shrink = fused_factor(maximize, multiply, divide), bounds(states[rule.states :], max_norm, len(params))
        groups = params, *states[: rule.states]
        table = table_of(groups)
        if table is not None:
            alike = own.count(own[0]) == shrink.count(shrink[0]) == len(own)
            rows = 1 if alike else len(own)
            pairs = zip(shrink[:rows], own[:rows], strict=True)
            run(table, grads, [(factor, bound, decay, *mine, *shared) for bound, mine in pairs])
            return
        for k, arrays in enumerate(zip(*groups, strict=True)):  # they may share memory
            real = FLOAT64 if arrays[0].dtype == FLOAT64 else FLOAT32
            working = [x if is_regular(x, real) else np.array(x, real, order="C") for x in arrays]
            run(make_table([[x] for x in working]), [grads[k]], [(factor, shrink[k], decay, *own[k], *shared)])
            for x, changed in zip(arrays, working, strict=True):
                if changed is not x:
                    x[...] = changed

    update.__name__ = name
    return kernel("cpu", returns=True)(update)


def bounds(norms: Sequence[Sequence[np.ndarray]], max_norm: float | None, count: int) -> list[float]:
    """min(1, max_norm / (norm + 1e-6)) for each gradient; a nan stays."""
    if not norms or max_norm is None:
        return [1.0] * count
    shrink = [max_norm / (float(norm) + 1e-6) for norm in norms[0]]
    return [1.0 if x >= 1 else x for x in shrink]


LOOPS = {name: unlocked()(loop_over(rule)) for name, rule in RULES.items()}
for name, rule in RULES.items():
    update_by(rule, LOOPS[name], name)
    update_by(rule, LOOPS[name], f"fused_{name}")
