"""Shapes, and parts of tensors by strides."""

from __future__ import annotations

import numpy as np

from miniflow.onnx.exporter.writer import Size, Value, Writer, fixed, handler

END = np.iinfo(np.int64).max  # behind the last element
INDEX = Value((), np.int64, None)  # a value of the dtype of indices

# a model of ONNX is of logical tensors on no device, so that moving them becomes nothing
handler("clone", "amp_white_identity", "amp_black_identity", "to_device", "boxing")(lambda g, x, **where: x)
handler("expand")(lambda g, x, *, shape: g("Expand", x, g.call.outputs[0].shape))
handler("view")(lambda g, x, *, shape: reshape(g, x, g.call.outputs[0].shape))
handler("permute")(lambda g, x, *, dims: permuted(g, x, [d % len(x.shape) for d in dims]))
handler("transpose")(lambda g, x, *, dim0, dim1: permuted(g, x, swapped(len(x.shape), dim0, dim1)))
handler("cat")(lambda g, *xs, dim, sizes: g("Concat", *xs, axis=dim))
handler("stack")(lambda g, *xs, dim: g("Concat", *[g("Unsqueeze", x, axes=[dim]) for x in xs], axis=dim))
handler("flip")(lambda g, x, *, dims: sliced(g, x, {d % len(x.shape): slice(-1, -END, -1) for d in dims}))
handler("triangle", since=14)(lambda g, x, *, diagonal, upper: g("Trilu", x, np.array(diagonal), upper=upper))


def reshape(g: Writer, x, sizes) -> str:
    """`x` in another shape; a single size that varies is left to ONNX."""
    if sum(isinstance(n, Size) for n in sizes) == 1 and 0 not in sizes:
        sizes = [-1 if isinstance(n, Size) else n for n in sizes]
    return g("Reshape", x, sizes)


def permuted(g: Writer, x, order):
    """`x` with its dims in another order."""
    return x if list(order) == sorted(order) else g("Transpose", x, perm=order)


def swapped(ndim: int, dim0: int, dim1: int) -> list[int]:
    """The order of dims in which two have changed places."""
    order = list(range(ndim))
    order[dim0], order[dim1] = order[dim1], order[dim0]
    return order


@handler("slice")
def slice_(g: Writer, x: Value, *, index: tuple):
    at, taken = index.index(...), sum(item is not None for item in index) - 1
    entries = [*index[:at], *[slice(None)] * (len(x.shape) - taken), *index[at + 1 :]]
    by_dim = dict(enumerate(item for item in entries if item is not None))
    y = sliced(g, x, {d: item for d, item in by_dim.items() if isinstance(item, slice) and item != slice(None)})
    for d, n in reversed([(d, n) for d, n in by_dim.items() if not isinstance(n, slice)]):
        y = g("Gather", y, g.scalar(n, INDEX), axis=d)
    added = [i for i, item in enumerate(item for item in entries if isinstance(item, slice | None)) if item is None]
    return g("Unsqueeze", y, axes=added) if added else y


def sliced(g: Writer, x, slices: dict[int, slice]):
    """Slices along dims, by ONNX's Slice."""
    if not slices:
        return x
    ranges = slices.values()
    starts, ends = [p.start or 0 for p in ranges], [END if p.stop is None else p.stop for p in ranges]
    steps = [p.step or 1 for p in ranges]
    return g("Slice", x, starts=starts, ends=ends, axes=list(slices), steps=steps if set(steps) != {1} else None)


@handler("triangle")
def triangle(g: Writer, x: Value, *, diagonal: int, upper: bool) -> str:
    mask = np.tri(*fixed(x.shape[-2:]), diagonal - upper, dtype=bool) != upper
    return g("Where", mask, x, g.scalar(0, x))


@handler("diagonal")
def diagonal(g: Writer, x: Value, *, offset: int, dim1: int, dim2: int) -> str:
    """The matrices flattened, and of their elements those on the diagonal."""
    pair = [dim1 % len(x.shape), dim2 % len(x.shape)]
    rows, columns = fixed([x.shape[d] for d in pair])
    batch_dims = [d for d in range(len(x.shape)) if d not in pair]
    flat = reshape(g, permuted(g, x, batch_dims + pair), [*[x.shape[d] for d in batch_dims], rows * columns])
    positions = np.arange(rows * columns).reshape(rows, columns).diagonal(offset)
    return g("Gather", flat, positions, axis=len(batch_dims))


@handler("unfold")
def unfold(g: Writer, x: Value, *, dim: int, size: int, step: int) -> str:
    (count,) = fixed(x.shape[dim : dim + 1])
    windows = np.arange((count - size) // step + 1)[:, None] * step + np.arange(size)
    order = [d for d in range(len(x.shape) + 1) if d != dim + 1] + [dim + 1]
    return permuted(g, g("Gather", x, windows, axis=dim), order)
