"""Elements picked, placed and sorted by indices."""

from __future__ import annotations

import numpy as np

from miniflow.errors import OnnxError
from miniflow.onnx.exporter.handlers.conv import around
from miniflow.onnx.exporter.handlers.shape import permuted, reshape, slice_
from miniflow.onnx.exporter.writer import Size, Value, Writer, find, handler

handler("embedding")(lambda g, x, weight, *, padding_idx: g("Gather", weight, positions(g, x), axis=0))
handler("gather", since=11)(lambda g, x, index, *, dim: g("GatherElements", x, positions(g, index), axis=dim))
handler("scatter")(lambda g, x, index, src, *, dim: g("Scatter", x, positions(g, index), src, axis=dim))
handler("scatter", since=11)(lambda g, x, i, src, *, dim: g("ScatterElements", x, positions(g, i), src, axis=dim))
handler("one_hot")(lambda g, x, *, num_classes: g("OneHot", g("Cast", x, to=np.int64), np.array(num_classes), [0, 1]))
handler("argsort")(lambda g, x, **attrs: ordered(g, x, **attrs)[1])
handler("pad")(lambda g, x, *, widths, value: padded(g, x, widths, value=np.array(value, x.dtype)))
handler("pad_border")(lambda g, x, widths, mode: padded(g, x, widths, mode="edge" if mode == "replicate" else mode))


def positions(g: Writer, index: Value):
    """An index in a dtype that ONNX takes."""
    return index if index.dtype in (np.int32, np.int64) else g("Cast", index, to=np.int64)


@handler("scatter_add", since=16)
def scatter_add(g: Writer, x: Value | None, index: Value, src: Value, *, dim: int, shape) -> str:
    x = g("Expand", g.scalar(0, src), shape) if x is None else x
    return g("ScatterElements", x, positions(g, index), src, axis=dim, reduction="add")


@handler("index")
def index(g: Writer, x: Value, index: Value, *, dims):
    if len(dims) == 1:
        return g("Gather", x, g("Squeeze", positions(g, index), axes=[0]), axis=dims[0])
    places = g("Transpose", positions(g, index), perm=[*range(1, len(index.shape)), 0])  # (k, *B) -> (*B, k)
    y = g("GatherND", permuted(g, x, in_front(len(x.shape), dims)), places)
    return permuted(g, y, np.argsort(picked_first(len(x.shape), len(index.shape) - 1, dims)))


def in_front(ndim: int, dims) -> list[int]:
    return [*dims, *[d for d in range(ndim) if d not in dims]]


def picked_first(ndim: int, batch: int, dims) -> list[int]:
    """The dims of `x[index]` with those of the index in front; they take the place of dims that are neighbours."""
    start = dims[0] if dims[-1] - dims[0] == len(dims) - 1 else 0
    return in_front(ndim - len(dims) + batch, range(start, start + batch))


def assigned(g: Writer, x, shape, values, pick, reduction=None) -> str:
    """`x` of this shape with `values` at some elements: `pick` selects from a tensor of all element numbers."""
    zero, one = np.array(0), np.array(1)
    numbers = reshape(g, g("Range", zero, g("Size", x), one), shape)
    indices = g.name(pick(Value(shape, np.int64, None, name=numbers)))
    flat, index, updates = (g("Reshape", y, [-1]) for y in (x, indices, g("Expand", values, g("Shape", indices))))
    return reshape(g, g("ScatterElements", flat, index, updates, axis=0, reduction=reduction), shape)


@handler("index_into_zeros", since=16)
def index_into_zeros(g: Writer, x: Value, places: Value, *, dims, shape) -> str:
    zeros = g("Expand", g.scalar(0, x), shape)
    return assigned(g, zeros, shape, x, lambda numbers: index(g, numbers, places, dims=dims), "add")


@handler("set_item")
def set_item(g: Writer, x: Value, value: Value, places: Value | None, *, basic: tuple, dims: tuple) -> str:
    def pick(numbers: Value):
        part = slice_(g, numbers, index=basic)
        if places is None:
            return part
        ndim = len(x.shape) + sum((n is None) - isinstance(n, int | Size) for n in basic)
        return index(g, Value([1] * ndim, np.int64, None, name=g.name(part)), places, dims=dims)

    return assigned(g, x, x.shape, value, pick)


@handler("view_scatter")
def view_scatter(g: Writer, x: Value, values: Value, *, steps: tuple) -> str:
    (op, attrs), *more = steps
    is_reshape, view = op.function_name == "view", find(op.function_name, g.opset)
    if more or view is None:
        raise OnnxError(f"an assignment to a view by {', '.join(op.function_name for op, _ in steps)}")
    pick = lambda y: reshape(g, y, values.shape) if is_reshape else view(g, y, **attrs)  # noqa: E731
    return assigned(g, x, x.shape, values, pick)


@handler("ordered")
def ordered(g: Writer, x: Value, dim: int, descending: bool, count, stable: bool) -> tuple[str, str]:
    """TopK, which finds only the largest before opset 11."""
    negated, largest = not descending and g.opset < 11, descending if g.opset >= 11 else None
    values, indices = g("TopK", g("Neg", x) if negated else x, k=[count], axis=dim, largest=largest, outputs=2)
    return g("Neg", values) if negated else values, indices


def padded(g: Writer, x: Value, widths, value=None, mode: str = "constant") -> str:
    return g("Pad", x, pads=around(widths), mode=mode, **{"value" if g.opset < 11 else "constant_value": value})
