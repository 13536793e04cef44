"""Sparse updates: sum what belongs to one row, and run an optimizer's rule on the rows that were touched."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from miniflow.backends.cpu.sparse import hash_table_size
from miniflow.backends.cuda.array import DeviceArray, bits, contiguous, empty, full
from miniflow.backends.cuda.copy import fill_into
from miniflow.backends.cuda.index import integers, take_rows, through_contiguous
from miniflow.backends.cuda.launch import each
from miniflow.backends.cuda.rows import as_bits, over_cells
from miniflow.backends.registry import KERNELS, camel_case, kernel
from miniflow.formulas.update_rules import RULES
from miniflow.kernels import sparse as kernels


@kernel("cuda")
def group_rows(out, dy, indices, *, padding_idx, rows):
    owned, values = out
    fill_into(owned, -1)
    fill_into(values, 0)
    flat, device = integers(indices).reshape(-1), dy.device_index
    table = full((hash_table_size(flat.size),), flat.size, np.int64, device)
    slots = empty((flat.size,), np.int64, device)
    each(kernels.find_owners, flat.size, flat, padding_idx, table, slots)
    terms = contiguous(dy).reshape(values.shape)
    over_cells(kernels.add_to_owners, (1, *values.shape), terms, flat, table, slots, owned, values)


def update_rows(rule: str, mutates: Sequence[int], groups: Sequence[Any], attrs: dict[str, Any]) -> None:
    """Copy the touched rows together, run the kernel `rule` on them, and write them back."""
    params, gradients, *states, rows = groups
    parts = [[taken(x, r) for x, r in zip(xs, rows, strict=True)] for xs in (params, *states)]
    parts.insert(1, gradients)
    KERNELS["cuda"][rule].run(*parts, **attrs)
    for position in mutates:
        for x, r, part in zip(groups[position], rows, parts[position], strict=True):
            if x is not None:
                put(part, r, x)


def taken(x: DeviceArray | None, rows: DeviceArray) -> DeviceArray | None:
    """The rows of `x`, and the last one where the number is -1: that is not put back."""
    if x is None:
        return None
    out = empty((rows.size, x.shape[1]), x.dtype, x.device_index)
    take_rows(as_bits(x, 0), rows, as_bits(out, 0))
    return out


def put(part: DeviceArray, rows: DeviceArray, x: DeviceArray) -> None:
    """Write rows back to where they were taken from."""
    through_contiguous(x, lambda out: over_cells(kernels.put_rows, (1, *part.shape), bits(part), rows, bits(out)))


def sparse_form(rule: str, mutates: Sequence[int]) -> None:
    """Register the sparse form of the kernel of a rule."""

    def run(*groups: Any, **attrs: Any) -> None:
        update_rows(camel_case(rule), mutates, groups, attrs)

    run.__name__ = f"sparse_{rule}"
    kernel("cuda", returns=True)(run)


for name in ("sgd_update", "adam_update", "adagrad_update"):
    sparse_form(name, (0, *range(2, 2 + RULES[name].states)))
