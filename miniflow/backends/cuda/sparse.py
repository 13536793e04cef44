"""Sparse updates: sum what belongs to one row, and run an optimizer's rule on the rows that were touched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from miniflow.backends.cpu.sparse import hash_table_size
from miniflow.backends.cuda.array import DeviceArray, bits, contiguous, empty, full
from miniflow.backends.cuda.copy import copy_into
from miniflow.backends.cuda.index import integers
from miniflow.backends.cuda.launch import each
from miniflow.backends.cuda.rows import over_rows
from miniflow.backends.registry import KERNELS, register
from miniflow.kernels import sparse as kernels
from miniflow.kernels.embedding import look_up


@register("cuda", "GroupRows")
def group_rows(
    dy: DeviceArray, indices: DeviceArray, *, padding_idx: int, rows: int | None = None
) -> tuple[DeviceArray, DeviceArray]:
    flat, device = integers(indices).reshape(-1), dy.device_index
    count, width = flat.size, dy.shape[-1]
    table = full((hash_table_size(count),), count, np.int64, device)
    places = empty((count,), np.int64, device)
    each(kernels.find_owners, count, flat, padding_idx, table, places)
    owned, values = full((count,), -1, np.int64, device), full((count, width), 0, dy.dtype, device)
    terms = contiguous(dy).reshape(count, width)
    over_rows(kernels.add_to_owners, count, width, terms, flat, table, places, owned, values)
    return owned, values


def update_rows(rule: str, mutates: Sequence[int]) -> Callable:
    """The kernel that copies the touched rows together, runs the kernel `rule` on them, and writes them back."""

    def kernel(*groups: Any, **attrs: Any) -> None:
        params, gradients, *states, rows = groups
        parts = [[taken(x, r) for x, r in zip(xs, rows, strict=True)] for xs in (params, *states)]
        parts.insert(1, gradients)
        KERNELS["cuda"][rule](*parts, **attrs)
        for position in mutates:
            for x, r, part in zip(groups[position], rows, parts[position], strict=True):
                if x is not None:
                    put(part, r, x)

    return kernel


def taken(x: DeviceArray | None, rows: DeviceArray) -> DeviceArray | None:
    """The rows of `x`; zeros where there is no row."""
    if x is None:
        return None
    out = full((rows.size, x.shape[1]), 0, x.dtype, x.device_index)
    over_rows(look_up, *out.shape, bits(contiguous(x)), rows, bits(out))
    return out


def put(part: DeviceArray, rows: DeviceArray, x: DeviceArray) -> None:
    """Write rows back to where they were taken from."""
    target = contiguous(x)
    over_rows(kernels.put_rows, *part.shape, bits(part), rows, bits(target))
    if target is not x:
        copy_into(x, target)


for rule, mutates in (("SgdUpdate", (0, 2)), ("AdamUpdate", (0, 2, 3, 4)), ("AdagradUpdate", (0, 2))):
    register("cuda", f"Sparse{rule}", half="native")(update_rows(rule, mutates))
