"""Sparse updates: sum what belongs to one row, and run an optimizer's rule on the rows that were touched."""

from __future__ import annotations

import numpy as np

from miniflow.backends.cpu.sparse import hash_table_size, sparse_updates
from miniflow.backends.cuda.array import DeviceArray, bits, contiguous, empty, full
from miniflow.backends.cuda.copy import fill_into
from miniflow.backends.cuda.index import integers, take_rows, through_contiguous
from miniflow.backends.cuda.launch import each
from miniflow.backends.cuda.rows import as_bits, launch_over_box
from miniflow.backends.registry import kernel
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
    launch_over_box(kernels.add_to_owners, (1, *values.shape), terms, flat, table, slots, owned, values)


def gather_rows(x: DeviceArray, rows: DeviceArray) -> DeviceArray:
    """The rows of `x`, and the last one where the number is -1: that is not put back."""
    out = empty((rows.size, x.shape[1]), x.dtype, x.device_index)
    take_rows(as_bits(x, 0), rows, as_bits(out, 0))
    return out


def put_rows(part: DeviceArray, rows: DeviceArray, x: DeviceArray) -> None:
    """Write rows back to where they were taken from."""
    through_contiguous(x, lambda out: launch_over_box(kernels.put_rows, (1, *part.shape), bits(part), rows, bits(out)))


sparse_updates("cuda", gather_rows, put_rows)
