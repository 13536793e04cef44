"""Sparse updates: sum what belongs to one row, and run an optimizer's rule on the rows that were touched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from miniflow.backends.cpu.threads import unlocked
from miniflow.backends.registry import KERNELS, camel_case, kernel
from miniflow.formulas.update_rules import RULES

NO_ROW = -1  # marks places without a row of their own
SPREAD = 2_654_435_769  # 2^32 / golden ratio: sends neighbours and multiples of powers of two to different places


@unlocked()
def group(dy, indices, padding, table, rows, values):
    """`table`, whose size is a power of two, holds for each row the first position that names it: open addressing."""
    for p in range(indices.size):
        row = indices[p]
        if row < 0 or row == padding:
            continue
        place = row * SPREAD
        place = (place ^ (place >> 32)) & (table.size - 1)
        while table[place] >= 0 and indices[table[place]] != row:
            place = (place + 1) & (table.size - 1)
        if table[place] < 0:
            table[place] = p
            rows[p] = row
        first = table[place]
        for j in range(dy.shape[1]):
            values[first, j] += dy[p, j]


@unlocked()
def put(part, rows, x):
    """x[rows[p], j] = part[p, j]: a third of the time that NumPy takes for it."""
    for p in range(rows.size):
        for j in range(part.shape[1]):
            x[rows[p], j] = part[p, j]


@kernel("cpu")
def group_rows(
    out: tuple[np.ndarray, np.ndarray], dy: np.ndarray, indices: np.ndarray, *, padding_idx: int, rows: int | None
) -> None:
    owned, values = out
    owned[...], values[...] = NO_ROW, 0
    flat = np.ascontiguousarray(indices, np.int64).reshape(-1)
    table = np.full(hash_table_size(flat.size), -1, np.int64)
    group(np.ascontiguousarray(dy).reshape(values.shape), flat, padding_idx, table, owned, values)


def hash_table_size(count: int) -> int:
    """Places for `count` keys of which at least half stay empty: a power of two.

    >>> hash_table_size(5)
    16
    """
    return 2 << max(count - 1, 0).bit_length()


def update_rows(rule: str, mutates: Sequence[int], groups: Sequence[Any], attrs: dict[str, Any]) -> None:
    """Copy the touched rows together, run the kernel `rule` on them, and write them back."""
    params, gradients, *states, rows = groups
    named = [r >= 0 for r in rows]
    touched = [r[is_named] for r, is_named in zip(rows, named, strict=True)]
    gradients = [values[is_named] for values, is_named in zip(gradients, named, strict=True)]
    parts = [[take_rows(x, t) for x, t in zip(xs, touched, strict=True)] for xs in (params, *states)]
    parts.insert(1, gradients)
    KERNELS["cpu"][rule].run(*parts, **attrs)
    for position in mutates:
        for x, t, part in zip(groups[position], touched, parts[position], strict=True):
            if x is not None:
                put_rows(part, t, x)


def take_rows(x: np.ndarray | None, rows: np.ndarray) -> np.ndarray | None:
    """A copy of the rows; `take` is three times as fast as indexing, but would copy a table of another layout."""
    if x is None:
        return None
    return x.take(rows, 0) if x.flags.c_contiguous else x[rows]


def put_rows(part: np.ndarray, rows: np.ndarray, x: np.ndarray) -> None:
    """Write rows back to where they were taken from."""
    if x.flags.c_contiguous and x.dtype in (np.float32, np.float64):
        put(part, rows, x)
    else:
        x[rows] = part


def sparse_form(rule: str, mutates: Sequence[int]) -> None:
    """Register the sparse form of the kernel of a rule."""

    def run(*groups: Any, **attrs: Any) -> None:
        update_rows(camel_case(rule), mutates, groups, attrs)

    run.__name__ = f"sparse_{rule}"
    kernel("cpu", returns=True)(run)


for name in ("sgd_update", "adam_update", "adagrad_update"):
    sparse_form(name, (0, *range(2, 2 + RULES[name].states)))
