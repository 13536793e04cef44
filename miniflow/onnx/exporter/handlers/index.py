"""Elements picked, placed and sorted by indices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from miniflow.errors import OnnxError
from miniflow.onnx.exporter.handlers.conv import around
from miniflow.onnx.exporter.handlers.elementwise import cast
from miniflow.onnx.exporter.handlers.shape import fixed, parts_by_dim, permuted, reshape, squeeze
from miniflow.onnx.exporter.recording import Size
from miniflow.onnx.exporter.registry import handler
from miniflow.onnx.exporter.writer import Value, Writer

INT64 = np.dtype(np.int64)


def positions(g: Writer, index: Value) -> Any:
    """An index in a dtype that ONNX takes."""
    return index if index.dtype in (np.int32, np.int64) else cast(g, index, INT64)


@handler("embedding")
def embedding(g: Writer, indices: Value, weight: Value, *, padding_idx: int | None) -> str:
    return g("Gather", weight, positions(g, indices), axis=0)


@handler("gather", since=11)
def gather(g: Writer, x: Value, index: Value, *, dim: int) -> str:
    return g("GatherElements", x, positions(g, index), axis=dim)


@handler("scatter")
def scatter(g: Writer, x: Value, index: Value, src: Value, *, dim: int) -> str:
    return g("ScatterElements" if g.opset >= 11 else "Scatter", x, positions(g, index), src, axis=dim)


@handler("scatter_add", since=16)
def scatter_add(g: Writer, x: Value | None, index: Value, src: Value, *, dim: int, shape: Sequence[Any]) -> str:
    x = zeros(g, src, shape) if x is None else x
    return g("ScatterElements", x, positions(g, index), src, axis=dim, reduction="add")


def zeros(g: Writer, like: Value, shape: Sequence[int | Size]) -> str:
    return g("Expand", g.scalar(0, like), g.sizes(shape))


@handler("index")
def index(g: Writer, x: Value, index: Value, *, dims: tuple[int, ...]) -> str:
    if len(dims) == 1:
        rows = np.asarray(index.arrays[0])[0] if index.arrays and not index.name else squeeze(g, index, 0)
        return g("Gather", x, rows, axis=dims[0])
    order = in_front(len(x.shape), dims)
    y = g("GatherND", permuted(g, x, order), coordinates(g, index))
    return permuted(g, y, np.argsort(picked_first(len(x.shape), len(index.shape) - 1, dims)))


def in_front(ndim: int, dims: Sequence[int]) -> list[int]:
    return [*dims, *[d for d in range(ndim) if d not in dims]]


def picked_first(ndim: int, batch: int, dims: tuple[int, ...]) -> list[int]:
    """The dims of `x[index]` with those of the index in front; they take the place of dims that are neighbours."""
    start = dims[0] if dims[-1] - dims[0] == len(dims) - 1 else 0
    return in_front(ndim - len(dims) + batch, range(start, start + batch))


def coordinates(g: Writer, index: Value) -> str:
    """(k, *B) as (*B, k)."""
    return g("Transpose", positions(g, index), perm=[*range(1, len(index.shape)), 0])


@handler("index_into_zeros", since=16)
def index_into_zeros(g: Writer, x: Value, index: Value, *, dims: tuple[int, ...], shape: Sequence[Any]) -> str:
    order = in_front(len(shape), dims)
    updates = permuted(g, x, picked_first(len(shape), len(index.shape) - 1, dims))
    y = g("ScatterND", zeros(g, x, [shape[d] for d in order]), coordinates(g, index), updates, reduction="add")
    return permuted(g, y, np.argsort(order))


@handler("set_item")
def set_item(g: Writer, x: Value, value: Value, index: Value | None, *, basic: tuple, dims: tuple) -> str:
    ndim = len(x.shape)
    if index is None:
        return placed(g, x, basic, value)
    if any(part != slice(None) and part is not Ellipsis for part in basic):
        raise OnnxError("an assignment to slices and indices at once; expected one after the other")
    first = picked_first(ndim, len(index.shape) - 1, dims)
    shape = [*index.shape[1:], *[n for d, n in enumerate(x.shape) if d not in dims]]
    updates = permuted(g, g("Expand", value, g.sizes([shape[i] for i in np.argsort(first)])), first)
    order = in_front(ndim, dims)
    y = g("ScatterND", permuted(g, x, order), coordinates(g, index), updates)
    return permuted(g, y, np.argsort(order))


def span(part: slice, n: int | Size) -> np.ndarray:
    """The positions of a slice, which must not follow a size that varies."""
    if (
        isinstance(n, Size)
        and isinstance(part.stop, int)
        and 0 <= part.stop <= min(n.values)
        and (part.start or 0) >= 0
    ):
        n = min(n.values)
    return np.arange(*part.indices(*fixed([n])))


def placed(g: Writer, x: Value, basic: tuple, value: Any) -> str:
    """`x` with `value` at a basic index."""
    slices, ints, added = parts_by_dim(basic, len(x.shape))
    ranges = [span(part, x.shape[d]) for d, part in slices.items()]
    if not slices:
        return g("Expand", squeeze(g, value, *added) if added else value, g.sizes(x.shape))
    sizes = {**dict(enumerate(x.shape)), **dict(zip(slices, map(len, ranges), strict=True))}
    whole = [n for d, n in sizes.items() if d not in ints]
    for d in added:
        whole.insert(d, 1)
    value = reshape(g, g("Expand", value, g.sizes(whole)), list(sizes.values()))
    order = in_front(len(x.shape), list(slices))
    places = np.stack(np.meshgrid(*ranges, indexing="ij"), -1)
    y = g("ScatterND", permuted(g, x, order), places, permuted(g, value, order))
    return permuted(g, y, np.argsort(order))


@handler("view_scatter")
def view_scatter(g: Writer, x: Value, values: Value, *, steps: tuple) -> Any:
    (op, attributes), *more = steps
    if not more and op.function_name == "slice":
        return placed(g, x, attributes["index"], values)
    if not more and op.function_name == "view":
        return reshape(g, values, x.shape)
    raise OnnxError(f"an assignment to a view by {', '.join(op.function_name for op, _ in steps)}")


@handler("one_hot")
def one_hot(g: Writer, x: Value, *, num_classes: int) -> str:
    return g("OneHot", cast(g, x, INT64), np.array(num_classes), g.ints(0, 1), axis=-1)


@handler("ordered")
def ordered(g: Writer, x: Value, dim: int, descending: bool, count: Any, stable: bool) -> tuple[str, str]:
    if g.opset >= 11:
        return g("TopK", x, g.sizes([count]), axis=dim, largest=int(descending), outputs=2)
    given = {"axis": dim, "outputs": 2} | ({} if g.opset == 10 else {"k": fixed([count])[0]})
    values, indices = g("TopK", x if descending else g("Neg", x), g.sizes([count]) if g.opset == 10 else None, **given)
    return values if descending else g("Neg", values), indices


handler("argsort")(lambda g, x, **attributes: ordered(g, x, **attributes)[1])


@handler("pad")
def pad(g: Writer, x: Value, *, widths: Sequence[tuple], value: float) -> str:
    return padded(g, x, widths, value)


def padded(g: Writer, x: Any, widths: Sequence[tuple], value: float = 0.0, mode: str = "constant") -> str:
    pads = around(widths)
    if g.opset < 11:
        return g("Pad", x, pads=fixed(pads), value=float(value), mode=mode)
    return g("Pad", x, g.sizes(pads), g.scalar(value, x) if mode == "constant" else None, mode=mode)


@handler("pad_border")
def pad_border(g: Writer, input: Value, widths: Sequence[tuple], mode: str) -> str:
    return padded(g, input, widths, mode="edge" if mode == "replicate" else mode)
