"""Kernels that add to a few places of an array."""

from __future__ import annotations

from miniflow.backends.cuda.array import DeviceArray, contiguous
from miniflow.backends.cuda.copy import copy_into
from miniflow.backends.cuda.index import places_in
from miniflow.backends.cuda.rows import over_rows
from miniflow.backends.registry import KERNELS, register
from miniflow.kernels import embedding as kernels


@register("cuda", "SliceAdd", half="native")
def slice_add(total: DeviceArray, x: DeviceArray, *, index: tuple) -> DeviceArray:
    out = contiguous(total.copy())
    place = out.view(lambda a: a[index])
    copy_into(place, KERNELS["cuda"]["Add"](place, x))
    return out


@register("cuda", "EmbeddingAdd")
def embedding_add(total: DeviceArray, dy: DeviceArray, indices: DeviceArray, *, padding_idx: int) -> DeviceArray:
    out = contiguous(total.copy())
    flat = places_in("embedding", indices, out.shape[0]).reshape(-1)
    rows = contiguous(dy).reshape(flat.size, out.shape[1])
    over_rows(kernels.add_to_table, *rows.shape, rows, flat, padding_idx, out)
    return out
