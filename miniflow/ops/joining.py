"""Joining and splitting tensors."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from itertools import accumulate
from math import prod
from typing import Any

from miniflow.dispatch.call_errors import takes_tensors
from miniflow.dispatch.dispatcher import MOST_KNOWN, Op, call
from miniflow.dtype import promote_types
from miniflow.errors import ArgumentError, DTypeError, ShapeError
from miniflow.ops.method import method
from miniflow.ops.promotion import cast
from miniflow.ops.views import Slice, SliceIntoZeros, input_shape, sizes_of, sliced_shape, split_as_input, wrap_dim
from miniflow.sbp import letters, letters_but, signatures
from miniflow.tensor import Tensor


class Cat(Op):
    """The tensors concatenated along `dim`, where they have `sizes`."""

    amp = "clear"
    promotes = True

    def infer(*xs, dim, sizes):
        first = xs[0].shape
        for position, x in enumerate(xs):
            if x.shape == first:
                continue
            if len(x.shape) != len(first) or x.shape[:dim] + x.shape[dim + 1 :] != first[:dim] + first[dim + 1 :]:
                got = f"shape {x.shape} at position {position} and {tuple(first)} at position 0"
                raise ShapeError(f"cat: got {got}; expected equal sizes in every dim but dim {dim}")
        return first[:dim] + (sum(sizes),) + first[dim + 1 :], xs[0].dtype

    def sbp(*xs, ranks, dim, sizes):
        x_dims = letters_but(xs[0].ndim, dim)
        return signatures([x_dims] * len(xs), [x_dims], linear=[range(len(xs))])

    def backward(ctx, dy):
        sizes, dim = ctx.attrs["sizes"], ctx.attrs["dim"]
        starts = accumulate(sizes, initial=0)
        each = zip(starts, sizes, ctx.needs, strict=False)
        return tuple([dy.narrow(dim, start, size) if needed else None for start, size, needed in each])


def _one_dtype(op: str, tensors: Sequence[Tensor]) -> list[Tensor]:
    """The tensors in the smallest dtype that holds them all."""
    tensors = list(tensors) if isinstance(tensors, Sequence) and not isinstance(tensors, Tensor) else [tensors]
    for position, x in enumerate(tensors):
        if not isinstance(x, Tensor):
            raise DTypeError(f"{op}: got {type(x).__name__} at position {position}; expected Tensors: use flow.tensor")
    if not tensors:
        raise ShapeError(f"{op}: got no tensors; expected a sequence of at least one")
    if len({x._array.dtype for x in tensors}) > 1:
        target = functools.reduce(promote_types, [x.dtype for x in tensors])
        tensors = [cast(x, target) for x in tensors]
    return tensors


@takes_tensors
def cat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """The tensors one after the other along `dim`.

    Args:
        tensors: at least one; of equal sizes in every other dim. A tensor of shape (0,) fits anywhere, as in PyTorch.
            Mixed dtypes are promoted.
        dim: the dim along which they are joined.

    Raises:
        ShapeError: for no tensors, 0-dim tensors, or sizes that differ.
        DimError: for a dim that does not exist.

    >>> import miniflow as flow
    >>> flow.cat([flow.zeros(1, 2), flow.ones(2, 2)]).shape
    miniflow.Size([3, 2])

    Source: `torch.cat`.
    """
    same_dtype = _one_dtype("cat", tensors)
    tensors = [x for x in same_dtype if x._array.shape != (0,)] or same_dtype[:1]
    ndim = tensors[0]._array.ndim
    if ndim == 0:
        raise ShapeError("cat: got a 0-dim tensor; expected at least 1 dim: use flow.stack")
    dim = wrap_dim("cat", dim, ndim)
    sizes = tuple([x._array.shape[dim] if x._array.ndim == ndim else 0 for x in tensors])
    return call(Cat, *tensors, dim=dim, sizes=sizes)


concat = concatenate = cat


class Stack(Op):
    """The tensors side by side along a new dim `dim`."""

    amp = "clear"
    promotes = True

    def infer(*xs, dim):
        first = xs[0].shape
        for position, x in enumerate(xs):
            if x.shape != first:
                raise ShapeError(
                    f"stack: got shape {x.shape} at position {position} and {tuple(first)} at position 0; "
                    "expected equal shapes: use flow.cat to join along a dim that exists"
                )
        return first[:dim] + (len(xs),) + first[dim:], xs[0].dtype

    def sbp(*xs, ranks, dim):
        x_dims = letters(xs[0].ndim)
        return signatures([x_dims] * len(xs), [x_dims[:dim] + "." + x_dims[dim:]], linear=[range(len(xs))])

    def backward(ctx, dy):
        dim = ctx.attrs["dim"]
        return tuple([dy.select(dim, i) if needed else None for i, needed in enumerate(ctx.needs)])


@takes_tensors
def stack(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """The tensors side by side along a new dim.

    Args:
        tensors: at least one, all of one shape. Mixed dtypes are promoted.
        dim: the position of the new dim.

    Raises:
        ShapeError: for no tensors, or shapes that differ.
        DimError: for a position that does not exist.

    >>> import miniflow as flow
    >>> flow.stack([flow.tensor([1, 2]), flow.tensor([3, 4])], dim=1).tolist()
    [[1, 3], [2, 4]]

    Source: `torch.stack`.
    """
    tensors = _one_dtype("stack", tensors)
    return call(Stack, *tensors, dim=wrap_dim("stack", dim, tensors[0]._array.ndim + 1))


class Split(Op):
    """Consecutive parts along `dim`: views. Those of a size keep the dim, those of size None are one index, without it.

    The tape has one node for all parts. Graphs record a `Slice` for each.
    """

    amp = "clear"
    view = True
    single = False

    def infer(x, *, dim, sizes):
        return [(sliced_shape("split", x.shape, **index), x.dtype) for _, index in parts(dim, sizes)]

    @classmethod
    def views(cls, attrs):
        return parts(**attrs)

    def backward(ctx, *dys):
        dim, sizes = ctx.attrs["dim"], ctx.attrs["sizes"]
        if None not in dys:
            return call(Stack, *dys, dim=dim) if sizes[0] is None else call(Cat, *dys, dim=dim, sizes=sizes)
        shape = {"shape": input_shape(ctx), **split_as_input(ctx)}
        given = [(dy, index) for dy, (_, index) in zip(dys, parts(dim, sizes), strict=True) if dy is not None]
        return functools.reduce(operator.add, [call(SliceIntoZeros, dy, **index, **shape) for dy, index in given])


@functools.lru_cache(MOST_KNOWN)
def parts(dim: int, sizes: tuple[int | None, ...]) -> tuple[tuple[type[Op], dict[str, Any]], ...]:
    """How `Slice` takes the parts of `Split`.

    >>> [attrs["index"] for _, attrs in parts(0, (2, 3))]
    [(slice(0, 2, None), Ellipsis), (slice(2, 5, None), Ellipsis)]
    """
    starts = accumulate([1 if size is None else size for size in sizes], initial=0)
    along = [i if size is None else slice(i, i + size) for i, size in zip(starts, sizes, strict=False)]
    return tuple([(Slice, {"index": (slice(None),) * dim + (part, ...)}) for part in along])


@method
def split(tensor: Tensor, split_size_or_sections: int | Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """Views of consecutive parts along `dim`.

    Args:
        tensor: at least 1 dim.
        split_size_or_sections: the size of each part (the last may be smaller), or a list of the sizes of all parts.
        dim: the dim to split.

    Raises:
        ShapeError: if the sizes do not add up to that of the dim, or are negative.
        DimError: for a dim that does not exist.

    >>> import miniflow as flow
    >>> [part.tolist() for part in flow.arange(5).split(2)]
    [[0, 1], [2, 3], [4]]

    Source: `torch.split`.
    """
    shape = tensor._array.shape
    dim = wrap_dim("split", dim, len(shape))
    if not shape:
        raise ShapeError("split: got a 0-dim tensor; expected at least 1 dim")
    sizes, total = split_size_or_sections, shape[dim]
    if hasattr(sizes, "__index__"):
        if sizes < 0 or sizes == 0 and total:
            raise ShapeError(f"split: got split_size={sizes} for dim {dim} of size {total}; expected at least 1")
        sizes = [min(sizes, total - start) for start in range(0, total, sizes)] if total else [0]
    elif sum(sizes) != total or any(size < 0 for size in sizes):
        raise ShapeError(f"split: got sizes {list(sizes)} for dim {dim}; expected sizes that add up to {total}")
    return call(Split, tensor, dim=dim, sizes=tuple([int(size) for size in sizes]))


@method
def split_with_sizes(input: Tensor, split_sizes: Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """`split` into parts of these sizes. `torch.split_with_sizes`."""
    return split(input, list(split_sizes), dim)


@method
def chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """Views of at most `chunks` parts along `dim`, of equal sizes but for the last.

    Raises:
        ShapeError: for fewer than one chunk.
        DimError: for a dim that does not exist.

    >>> import miniflow as flow
    >>> [part.tolist() for part in flow.arange(5).chunk(2)]
    [[0, 1, 2], [3, 4]]

    Source: `torch.chunk`.
    """
    if chunks < 1:
        raise ShapeError(f"chunk: got chunks={chunks}; expected at least 1")
    shape = input._array.shape
    dim = wrap_dim("chunk", dim, len(shape))
    if shape and shape[dim] == 0:
        return split(input, [0] * chunks, dim)
    return split(input, -(-shape[dim] // chunks) if shape else 1, dim)


@method
def unbind(input: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """The views `x.select(dim, i)` for each index `i` of the dim.

    Raises:
        DimError: for a dim that does not exist.

    >>> import miniflow as flow
    >>> [row.tolist() for row in flow.tensor([[1, 2], [3, 4]]).unbind()]
    [[1, 2], [3, 4]]

    Source: `torch.unbind`.
    """
    dim = wrap_dim("unbind", dim, input._array.ndim)
    if not input._array.ndim:
        raise ShapeError("unbind: got a 0-dim tensor; expected at least 1 dim")
    return call(Split, input, dim=dim, sizes=(None,) * input._array.shape[dim])


@method
def tensor_split(input: Tensor, indices_or_sections: int | Sequence[int] | Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """Views of consecutive parts along `dim`.

    Args:
        input: at least 1 dim.
        indices_or_sections: a number of parts, the first of which may be larger by one, or the places to split at.

    Source: `torch.tensor_split`.
    """
    if isinstance(indices_or_sections, Tensor):
        indices_or_sections = indices_or_sections.tolist()
    dim = wrap_dim("tensor_split", dim, input.ndim)
    if not input.ndim:
        raise ShapeError("tensor_split: got a 0-dim tensor; expected at least 1 dim")
    size = input.shape[dim]
    if isinstance(indices_or_sections, int):
        if indices_or_sections < 1:
            raise ShapeError(f"tensor_split: got {indices_or_sections} sections; expected at least 1")
        small, larger = divmod(size, indices_or_sections)
        return split(input, [small + (i < larger) for i in range(indices_or_sections)], dim)
    bounds = [0, *[slice(i).indices(size)[1] for i in indices_or_sections], size]
    return tuple([input.narrow(dim, a, max(b - a, 0)) for a, b in zip(bounds, bounds[1:], strict=False)])


@method
def hsplit(input: Tensor, indices_or_sections: int | Sequence[int]) -> tuple[Tensor, ...]:
    """`tensor_split` along dim 1, or dim 0 of a vector. `torch.hsplit`."""
    return tensor_split(input, indices_or_sections, 1 if input.ndim > 1 else 0)


@method
def vsplit(input: Tensor, indices_or_sections: int | Sequence[int]) -> tuple[Tensor, ...]:
    """`tensor_split` along dim 0. `torch.vsplit`."""
    return tensor_split(input, indices_or_sections, 0)


@method
def dsplit(input: Tensor, indices_or_sections: int | Sequence[int]) -> tuple[Tensor, ...]:
    """`tensor_split` along dim 2. `torch.dsplit`."""
    return tensor_split(input, indices_or_sections, 2)


def _at_least(ndim: int, tensors: tuple, widen: Callable[[Tensor], Tensor]) -> Any:
    """One tensor, or several, each widened until it has `ndim` dims."""
    inputs = sizes_of(tensors)
    results = []
    for x in inputs:
        while x.ndim < ndim:
            x = widen(x)
        results.append(x)
    return results[0] if len(tensors) == 1 and isinstance(tensors[0], Tensor) else tuple(results)


@takes_tensors
def atleast_1d(*tensors: Tensor | Sequence[Tensor]) -> Tensor | tuple[Tensor, ...]:
    """The tensors with at least 1 dim. `torch.atleast_1d`."""
    return _at_least(1, tensors, lambda x: x.unsqueeze(0))


@takes_tensors
def atleast_2d(*tensors: Tensor | Sequence[Tensor]) -> Tensor | tuple[Tensor, ...]:
    """The tensors with at least 2 dims: a vector becomes a row. `torch.atleast_2d`."""
    return _at_least(2, tensors, lambda x: x.unsqueeze(0))


@takes_tensors
def atleast_3d(*tensors: Tensor | Sequence[Tensor]) -> Tensor | tuple[Tensor, ...]:
    """The tensors with at least 3 dims: (n,) becomes (1, n, 1), (n, m) becomes (n, m, 1). `torch.atleast_3d`."""
    return _at_least(3, tensors, lambda x: x.unsqueeze(x.ndim if x.ndim > 1 else 0))


@takes_tensors
def hstack(tensors: Sequence[Tensor]) -> Tensor:
    """The tensors side by side: along dim 1, or dim 0 of vectors. `torch.hstack`."""
    tensors = atleast_1d(list(tensors))
    return cat(tensors, 1 if tensors and tensors[0].ndim > 1 else 0)


@takes_tensors
def vstack(tensors: Sequence[Tensor]) -> Tensor:
    """The tensors below each other, vectors as rows. `torch.vstack`."""
    return cat(atleast_2d(list(tensors)))


@takes_tensors
def dstack(tensors: Sequence[Tensor]) -> Tensor:
    """The tensors behind each other, along dim 2. `torch.dstack`."""
    return cat(atleast_3d(list(tensors)), 2)


@takes_tensors
def column_stack(tensors: Sequence[Tensor]) -> Tensor:
    """The tensors side by side, vectors as columns. `torch.column_stack`."""
    return hstack([x.reshape((-1, 1)) if x.ndim < 2 else x for x in tensors])


row_stack = vstack


@takes_tensors
def meshgrid(*tensors: Tensor | Sequence[Tensor], indexing: str = "ij") -> tuple[Tensor, ...]:
    """The coordinates of a grid: for vectors of n and m elements, two views of shape (n, m), or (m, n) for "xy".

    Args:
        tensors: vectors, or numbers of 0 dims; one by one or as a list.
        indexing: "ij", or "xy" for the first two dims exchanged.

    >>> import miniflow as flow
    >>> [x.tolist() for x in flow.meshgrid(flow.arange(2), flow.arange(3))]
    [[[0, 0, 0], [1, 1, 1]], [[0, 1, 2], [0, 1, 2]]]

    Source: `torch.meshgrid`.
    """
    if indexing not in ("ij", "xy"):
        raise ArgumentError(f"meshgrid: got indexing={indexing!r}; expected 'ij' or 'xy'")
    vectors = [x.flatten() for x in sizes_of(tensors)]
    if any(x.ndim > 1 for x in sizes_of(tensors)):
        raise ShapeError(f"meshgrid: got shapes {[tuple(x.shape) for x in sizes_of(tensors)]}; expected vectors")
    shape = tuple([x.numel() for x in vectors])
    grids = [x.reshape((1,) * i + (-1,) + (1,) * (len(shape) - i - 1)).expand(shape) for i, x in enumerate(vectors)]
    return tuple([x.transpose(0, 1) if indexing == "xy" and len(shape) > 1 else x for x in grids])


@takes_tensors
def cartesian_prod(*tensors: Tensor) -> Tensor:
    """All combinations of the elements of vectors, one in each row. `torch.cartesian_prod`."""
    grids = [x.flatten() for x in meshgrid(*tensors)]
    return grids[0] if len(grids) == 1 else stack(grids, 1)


@takes_tensors
def block_diag(*tensors: Tensor) -> Tensor:
    """A matrix of zeros with the tensors, matrices or vectors as rows, along its diagonal. `torch.block_diag`."""
    blocks = [x.reshape((1, -1)) if x.ndim < 2 else x for x in tensors]
    width, start, rows = sum(x.shape[1] for x in blocks), 0, []
    for x in blocks:
        rows.append(x.new_zeros(x.shape[0], width))
        if prod(x.shape):
            parts = [x.new_zeros(x.shape[0], start), x, x.new_zeros(x.shape[0], width - start - x.shape[1])]
            rows[-1] = cat(parts, 1)
        start += x.shape[1]
    return cat(rows)
