"""Sparse updates: sum the gradients of each row, and run the rule of an optimizer on the rows that have some."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from miniflow.backends.cpu.threads import unlocked
from miniflow.backends.registry import KERNELS, camel_case, kernel
from miniflow.formulas.update_rules import RULES

NO_ROW = -1  # marks positions that own no row
SPREAD = 2_654_435_769  # 2^32 / golden ratio: spreads neighbours and multiples of powers of two over the table


@unlocked()
def group(dy, indices, padding, table, rows, values):
    """Sum equal rows. `table`, a hash table with open addressing, has for each row the first position that names it."""
    for p in range(indices.size):
        row = indices[p]
        if row < 0 or row == padding:
            continue
        slot = row * SPREAD
        slot = (slot ^ (slot >> 32)) & (table.size - 1)
        while table[slot] >= 0 and indices[table[slot]] != row:
            slot = (slot + 1) & (table.size - 1)
        if table[slot] < 0:
            table[slot] = p
            rows[p] = row
        first = table[slot]
        for j in range(dy.shape[1]):
            values[first, j] += dy[p, j]


@unlocked()
def put(part, rows, x):
    """x[rows[p], j] = part[p, j]: in a third of NumPy's time."""
    for p in range(rows.size):
        for j in range(part.shape[1]):
            x[rows[p], j] = part[p, j]


@kernel("cpu")
def group_rows(out, dy, indices, *, padding_idx, rows):
    owned, values = out
    owned[...], values[...] = NO_ROW, 0
    flat = np.ascontiguousarray(indices, np.int64).reshape(-1)
    table = np.full(hash_table_size(flat.size), -1, np.int64)
    group(np.ascontiguousarray(dy).reshape(values.shape), flat, padding_idx, table, owned, values)


def hash_table_size(count: int) -> int:
    """The size of a hash table for `count` keys, at least half empty: a power of two.

    >>> hash_table_size(5)
    16
    """
    return 2 << max(count - 1, 0).bit_length()


def sparse_updates(device: str, take: Callable, put: Callable, owned: Callable | None = None) -> None:
    """Register the sparse forms of update kernels: gather rows, run the kernel on them, and write them back.

    Args:
        device: whose kernels.
        take: `take(x, rows)` copies rows of an array.
        put: `put(part, rows, x)` writes them back, except where the number of the row is -1.
        owned: `owned(gradients, rows)` leaves out what has no row of its own, if that pays.
    """
    for name in ("sgd_update", "adam_update", "adagrad_update"):
        sparse_update(device, name, (0, *range(2, 2 + RULES[name].states)), take, put, owned)


def sparse_update(
    device: str, name: str, mutates: tuple, take: Callable, put: Callable, owned: Callable | None
) -> None:
    def run(params, gradients, *states_and_rows, **attrs):
        *states, rows = states_and_rows
        if owned is not None:
            gradients, rows = owned(gradients, rows)
        groups = [params, gradients, *states]
        parts = [[None if x is None else take(x, r) for x, r in zip(xs, rows, strict=True)] for xs in (params, *states)]
        parts.insert(1, gradients)
        KERNELS[device][camel_case(name)].run(*parts, **attrs)
        for position in mutates:
            for x, r, part in zip(groups[position], rows, parts[position], strict=True):
                if x is not None:
                    put(part, r, x)

    run.__name__ = f"sparse_{name}"
    kernel(device, returns=True)(run)


def owned_rows(gradients: Sequence[np.ndarray], rows: Sequence[np.ndarray]) -> tuple[list, list]:
    """The gradients that own a row, and their rows."""
    masks = [r >= 0 for r in rows]
    pairs = [(g[mask], r[mask]) for g, r, mask in zip(gradients, rows, masks, strict=True)]
    return [g for g, _ in pairs], [r for _, r in pairs]


def take_rows(x: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """A copy of the rows. `take` is three times as fast as indexing, but copies a table that is not contiguous."""
    return x.take(rows, 0) if x.flags.c_contiguous else x[rows]


def put_rows(part: np.ndarray, rows: np.ndarray, x: np.ndarray) -> None:
    """Write rows back to where they were taken from."""
    if x.flags.c_contiguous and x.dtype in (np.float32, np.float64):
        put(part, rows, x)
    else:
        x[rows] = part


sparse_updates("cpu", take_rows, put_rows, owned_rows)
