"""Embedding kernels: copy rows of a table, and add rows into a table of zeros."""

from __future__ import annotations

from miniflow.backends.cuda.array import DeviceArray, bits, contiguous
from miniflow.backends.cuda.copy import fill_into
from miniflow.backends.cuda.index import places_in
from miniflow.backends.cuda.rows import over_rows
from miniflow.backends.registry import kernel
from miniflow.kernels import embedding as kernels


@kernel("cuda", half="native")
def embedding(y: DeviceArray, indices: DeviceArray, weight: DeviceArray, *, padding_idx: int) -> None:
    flat = places_in("embedding", indices, weight.shape[0]).reshape(-1)
    picked = y.reshape(flat.size, weight.shape[1])
    over_rows(kernels.look_up, *picked.shape, bits(contiguous(weight)), flat, bits(picked))


@kernel("cuda")
def embedding_grad(dweight: DeviceArray, dy: DeviceArray, indices: DeviceArray, *, rows: int, padding_idx: int) -> None:
    fill_into(dweight, 0)
    flat = places_in("embedding", indices, rows).reshape(-1)
    terms = contiguous(dy).reshape(flat.size, dy.shape[-1])
    over_rows(kernels.add_to_table, *terms.shape, terms, flat, padding_idx, dweight)
