"""Shapes, and parts of tensors by strides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from miniflow.errors import OnnxError
from miniflow.onnx.exporter.recording import Size
from miniflow.onnx.exporter.registry import handler
from miniflow.onnx.exporter.writer import Value, Writer

END = np.iinfo(np.int64).max  # behind the last element
handler("clone", "amp_white_identity", "amp_black_identity")(lambda g, x: g.name(x))
handler("expand")(lambda g, x, *, shape: g("Expand", x, g.sizes(g.call.outputs[0].shape)))
handler("view")(lambda g, x, *, shape: reshape(g, x, g.call.outputs[0].shape))
handler("permute")(lambda g, x, *, dims: permuted(g, x, [d % len(x.shape) for d in dims]))
handler("cat")(lambda g, *xs, dim, sizes: g("Concat", *xs, axis=dim))
handler("stack")(lambda g, *xs, dim: g("Concat", *[unsqueeze(g, x, dim) for x in xs], axis=dim))
handler("triangle", since=14)(lambda g, x, *, diagonal, upper: g("Trilu", x, np.array(diagonal), upper=upper))


def reshape(g: Writer, x: Any, sizes: Sequence[int | Size]) -> str:
    """`x` in another shape; a single size that varies is left to ONNX."""
    if sum(isinstance(n, Size) for n in sizes) == 1 and 0 not in sizes:
        return g("Reshape", x, g.ints(*[-1 if isinstance(n, Size) else n for n in sizes]))
    return g("Reshape", x, g.sizes(sizes))


def permuted(g: Writer, x: Any, order: Sequence[int]) -> str:
    """`x` with its dims in another order."""
    return g.name(x) if list(order) == sorted(order) else g("Transpose", x, perm=[int(d) for d in order])


def unsqueeze(g: Writer, x: Any, *dims: int) -> str:
    return g("Unsqueeze", x, *g.axes_input(*dims), **g.axes_attribute(*dims))


def squeeze(g: Writer, x: Any, *dims: int) -> str:
    return g("Squeeze", x, *g.axes_input(*dims), **g.axes_attribute(*dims))


@handler("transpose")
def transpose(g: Writer, x: Value, *, dim0: int, dim1: int) -> str:
    order = list(range(len(x.shape)))
    order[dim0], order[dim1] = order[dim1], order[dim0]
    return permuted(g, x, order)


def parts_by_dim(index: tuple, ndim: int) -> tuple[dict[int, slice], list[int], list[int]]:
    """Of a basic index: the slices by dim, the dims with an int, and the dims of the result that None adds."""
    before, after = (index[: index.index(...)], index[index.index(...) + 1 :])
    taken = sum(part is not None for part in before + after)
    parts = [*before, *[slice(None)] * (ndim - taken), *after]
    kept = [part for part in parts if part is None or isinstance(part, slice)]
    slices = {d: part for d, part in enumerate(p for p in parts if p is not None) if part != slice(None)}
    ints = [d for d, part in slices.items() if not isinstance(part, slice)]
    slices |= {d: slice(slices[d], END if slices[d] == -1 else plus_one(slices[d])) for d in ints}
    return slices, ints, [i for i, part in enumerate(kept) if part is None]


def plus_one(n: int | Size) -> int | Size:
    return Size(tuple(v + 1 for v in n.values)) if isinstance(n, Size) else n + 1


@handler("slice")
def slice_(g: Writer, x: Value, *, index: tuple) -> Any:
    slices, ints, added = parts_by_dim(index, len(x.shape))
    y = sliced(g, x, slices)
    y = squeeze(g, y, *ints) if ints else y
    return unsqueeze(g, y, *added) if added else g.name(y)


def sliced(g: Writer, x: Any, slices: dict[int, slice]) -> Any:
    """Slices along dims, by ONNX's Slice."""
    if not slices:
        return x
    dims, parts = list(slices), list(slices.values())
    starts, stops = [p.start or 0 for p in parts], [END if p.stop is None else p.stop for p in parts]
    steps = [p.step or 1 for p in parts]
    if g.opset >= 10:
        stepped = [g.ints(*steps)] if set(steps) != {1} else []
        return g("Slice", x, g.sizes(starts), g.sizes(stops), g.ints(*dims), *stepped)
    if set(steps) != {1} or any(isinstance(n, Size) for n in starts + stops):
        raise OnnxError("slices with steps, or with bounds that vary, need opset 10")
    return g("Slice", x, starts=starts, ends=stops, axes=dims)


@handler("flip", since=10)
def flip(g: Writer, x: Value, *, dims: Sequence[int]) -> str:
    return sliced(g, x, {d % len(x.shape): slice(-1, -END, -1) for d in dims})


def fixed(sizes: Sequence[int | Size]) -> list[int]:
    """Sizes that must not vary."""
    if any(isinstance(n, Size) for n in sizes):
        raise OnnxError("a dim that must be of a fixed size varies with dynamic axes")
    return list(sizes)


@handler("triangle")
def triangle(g: Writer, x: Value, *, diagonal: int, upper: bool) -> str:
    kept = np.tri(*fixed(x.shape[-2:]), diagonal - upper, dtype=bool) != upper
    return g("Where", kept, x, g.scalar(0, x))


@handler("diagonal")
def diagonal(g: Writer, x: Value, *, offset: int, dim1: int, dim2: int) -> str:
    """The matrices flattened, and of their elements those on the diagonal."""
    ndim = len(x.shape)
    pair = [dim1 % ndim, dim2 % ndim]
    rows, columns = fixed([x.shape[d] for d in pair])
    others = [d for d in range(ndim) if d not in pair]
    flat = reshape(g, g("Transpose", x, perm=others + pair), [*[x.shape[d] for d in others], rows * columns])
    positions = np.arange(rows * columns).reshape(rows, columns).diagonal(offset)
    return g("Gather", flat, positions, axis=len(others))


@handler("unfold")
def unfold(g: Writer, x: Value, *, dim: int, size: int, step: int) -> str:
    (count,) = fixed(x.shape[dim : dim + 1])
    windows = np.arange((count - size) // step + 1)[:, None] * step + np.arange(size)
    order = [d for d in range(len(x.shape) + 1) if d != dim + 1] + [dim + 1]
    return g("Transpose", g("Gather", x, windows, axis=dim), perm=order)
