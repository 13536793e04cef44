"""Elements picked, placed and sorted by indices."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from miniflow.dispatch import call
from miniflow.errors import OnnxError
from miniflow.onnx.export.handlers.elementwise import cast
from miniflow.onnx.export.handlers.shape import END, fixed, parts_by_dim, reshape, sliced, squeeze, unsqueeze
from miniflow.onnx.export.recording import Size
from miniflow.onnx.export.registry import handler
from miniflow.onnx.export.writer import Value, Writer
from miniflow.tensor import Tensor

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


def in_front(ndim: int, dims: Sequence[int]) -> list[int]:
    return [*dims, *[d for d in range(ndim) if d not in dims]]


@handler("index")
def index(g: Writer, x: Value, index: Value, *, dims: tuple[int, ...]) -> str:
    if len(dims) == 1:
        rows = index.arrays[0][0] if index.arrays and not index.name else squeeze(g, index, 0)
        return g("Gather", x, rows, axis=dims[0])
    order, batch = in_front(len(x.shape), dims), len(index.shape) - 1
    y = x if order == sorted(order) else g("Transpose", x, perm=order)
    y = g("GatherND", y, coordinates(g, index))
    if dims[-1] - dims[0] < len(dims):  # neighbours: the picked elements take their place
        rest = range(batch, batch + len(order) - len(dims))
        back = [*rest[: dims[0]], *range(batch), *rest[dims[0] :]]
        return y if back == sorted(back) else g("Transpose", y, perm=back)
    return y


def coordinates(g: Writer, index: Value) -> str:
    """(k, *B) as (*B, k)."""
    if g.opset < 11:
        raise OnnxError("indices of several dims need opset 11")
    return g("Transpose", positions(g, index), perm=[*range(1, len(index.shape)), 0])


@handler("index_into_zeros", since=16)
def index_into_zeros(g: Writer, x: Value, index: Value, *, dims: tuple[int, ...], shape: Sequence[Any]) -> str:
    order = in_front(len(shape), dims)
    y = zeros(g, x, [shape[d] for d in order])
    y = g("ScatterND", y, coordinates(g, index), picked_first(g, x, len(index.shape) - 1, dims), reduction="add")
    return y if order == sorted(order) else g("Transpose", y, perm=list(np.argsort(order)))


def picked_first(g: Writer, x: Any, batch: int, dims: tuple[int, ...], ndim: int | None = None) -> Any:
    """A result of `index` with the dims of the index in front."""
    ndim = len(x.shape) if ndim is None else ndim
    if dims[-1] - dims[0] >= len(dims) or dims[0] == 0:
        return x
    return g("Transpose", x, perm=in_front(ndim, range(dims[0], dims[0] + batch)))


@handler("set_item")
def set_item(g: Writer, x: Value, value: Value, index: Value | None, *, basic: tuple, dims: tuple) -> str:
    if index is None:
        return placed(g, x, basic, value, x.shape)
    if any(part != slice(None) and part is not Ellipsis for part in basic):
        raise OnnxError("an assignment to slices and indices at once; expected one after the other")
    order, batch = in_front(len(x.shape), dims), index.shape[1:]
    rest = [x.shape[d] for d in range(len(x.shape)) if d not in dims]
    start = dims[0] if dims[-1] - dims[0] < len(dims) else 0
    value = g("Expand", value, g.sizes([*rest[:start], *batch, *rest[start:]]))
    y = x if order == sorted(order) else g("Transpose", x, perm=order)
    ndim = len(batch) + len(rest)
    y = g("ScatterND", y, coordinates(g, index), picked_first(g, value, len(batch), dims, ndim))
    return y if order == sorted(order) else g("Transpose", y, perm=list(np.argsort(order)))


def placed(g: Writer, x: Any, basic: tuple, value: Any, shape: Sequence[int | Size]) -> str:
    """`x` with `value` at a basic index: what lies before, the value, and what lies behind, dim by dim."""
    slices, ints, added = parts_by_dim(basic, len(shape))
    if any(part.step not in (None, 1) for part in slices.values()):
        return overwritten(g, x, np.arange(prod(fixed(shape))).reshape(shape)[basic], value, shape)
    sizes = [1 if d in ints else None if d in slices else n for d, n in enumerate(shape)]
    for d, part in slices.items():
        if d not in ints:
            sizes[d] = len(range(*part.indices(*fixed([shape[d]]))))
    rank = len(shape) - len(ints) + len(added)
    whole = [n for d, n in enumerate(sizes) if d not in ints]
    for d in added:
        whole.insert(d, 1)
    value = g("Expand", value, g.sizes(whole)) if rank else value
    value = squeeze(g, value, *added) if added else value
    value = unsqueeze(g, value, *ints) if ints else value

    def around(old: Any, left: list[int]) -> Any:
        if not left:
            return value
        d, *others = left
        start, stop = slices[d].start or 0, slices[d].stop
        pieces = [around(sliced(g, old, {d: slices[d]}), others)]
        if start != 0:
            pieces.insert(0, sliced(g, old, {d: slice(0, start)}))
        if stop not in (None, END) and stop != shape[d]:
            pieces.append(sliced(g, old, {d: slice(stop, None)}))
        return g("Concat", *pieces, axis=d) if len(pieces) > 1 else pieces[0]

    result = around(x, list(slices))
    return g("Identity", result) if result is x else result


@handler("view_scatter")
def view_scatter(g: Writer, x: Value, values: Value, *, steps: tuple) -> Any:
    (op, attributes), *more = steps
    if not more and op.function_name == "slice":
        return placed(g, x, attributes["index"], values, x.shape)
    if not more and op.function_name == "view":
        return reshape(g, values, x.shape)
    place = Tensor._wrap(np.arange(prod(fixed(x.shape))).reshape(x.shape))
    for op, attributes in steps:
        place = call(op, place, **attributes)
    return overwritten(g, x, place.numpy(), values, x.shape)


def overwritten(g: Writer, x: Any, place: np.ndarray, values: Any, shape: Sequence[int]) -> str:
    """`x` with other values at places in the flattened tensor."""
    values = g("Reshape", g("Expand", values, g.ints(*place.shape)), g.ints(-1))
    op = "ScatterElements" if g.opset >= 11 else "Scatter"
    return reshape(g, g(op, g("Reshape", x, g.ints(-1)), place.ravel(), values, axis=0), shape)


@handler("one_hot")
def one_hot(g: Writer, x: Value, *, num_classes: int) -> str:
    return g("OneHot", cast(g, x, INT64), g.scalar(num_classes, Value((), INT64)), g.ints(0, 1), axis=-1)


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
    return padded(g, x, [w for w, _ in widths] + [w for _, w in widths], value)


def padded(g: Writer, x: Any, pads: list[int], value: float = 0.0, mode: str = "constant") -> str:
    """By ONNX's Pad, whose widths are those before each dim, then those behind each."""
    if g.opset < 11:
        return g("Pad", x, pads=fixed(pads), value=float(value), mode=mode)
    return g("Pad", x, g.sizes(pads), g.scalar(value, x) if mode == "constant" else None, mode=mode)


@handler("pad_border")
def pad_border(g: Writer, input: Value, widths: Sequence[tuple], mode: str) -> str:
    if mode == "circular":
        if g.opset < 19:
            raise OnnxError("circular padding needs opset 19")
        mode = "wrap"
    pads = [w for w, _ in widths] + [w for _, w in widths]
    return padded(g, input, pads, mode={"replicate": "edge"}.get(mode, mode))
