"""Sizes: the same elements under another shape, or repeated.

A *view* shares the memory of its input: it costs no copy, and writes to one are seen by the other. `View` and `Expand`,
and `Transpose` and `Permute` in `permute`, are views by strides alone; everything else that keeps the elements is
composed of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from miniflow.dispatch.call_errors import takes_tensors
from miniflow.dispatch.dispatcher import Op, call, run_kernel
from miniflow.errors import DTypeError, ShapeError
from miniflow.ops.method import method
from miniflow.ops.promotion import broadcast_shape
from miniflow.ops.views import StridedView, input_shape, sizes_of, wrap_dim, wrap_dims
from miniflow.sbp import aligned, each_element, letters, reshaped, signatures
from miniflow.tensor import Tensor, constant_like


class View(Op):
    """y[k] = x[k] for the flat, row-major position k: the same elements in the same memory under `shape`."""

    amp = "clear"
    view = True

    def infer(x, *, shape):
        return resolve_view(x, shape), x.dtype

    def sbp(x, *, ranks, shape):
        return signatures(*reshaped(x.shape, resolve_view(x, shape), ranks), linear=[[0]])

    def on_shard(op, arrays, attrs, shard):
        (x,) = arrays  # in another layout than its source a view is a copy, and may lie in another order
        return run_kernel(op, [x if can_view(x, attrs["shape"]) else run_kernel(Clone, [x], {})], attrs)

    def backward(ctx, dy):
        return reshape(dy, input_shape(ctx))


def resolve_view(x: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    """`shape` with its -1 inferred.

    Raises:
        ShapeError: if `x` does not have that many elements, or its strides do not allow the view.
    """
    got = f"got a tensor of shape {x.shape} and the shape {shape}"
    if not all(hasattr(n, "__index__") for n in shape):
        raise DTypeError(f"view: {got}; expected integer sizes")
    if any(n < -1 for n in shape) or list(shape).count(-1) > 1:
        raise ShapeError(f"view: {got}; expected sizes of at least 0, and -1 for at most one to be inferred")
    known_count, count = prod(n for n in shape if n != -1), prod(x.shape)
    if -1 in shape and known_count == 0:
        raise ShapeError(f"view: {got}, whose -1 could be any size; expected all sizes to be given")
    if (count % known_count if -1 in shape else count - known_count) != 0:
        raise ShapeError(f"view: {got}; expected a shape of {count} elements: use -1 for a size to be inferred")
    if not can_view(x, shape):
        raise ShapeError(f"view: {got}; the strides {tuple(x.strides)} do not allow it without a copy: use reshape()")
    return tuple([count // known_count if n == -1 else n for n in shape])


def can_view(x: Any, shape: tuple[int, ...]) -> bool:
    """Whether the strides of the array `x` allow `shape` without a copy (NumPy decides)."""
    if x.flags.c_contiguous:
        return True
    try:
        x.reshape(shape, copy=False)
    except ValueError:
        return False
    return True


@method(checked=False)
def view(input: Tensor, *shape: int | Sequence[int]) -> Tensor:
    """The same memory under another shape.

    Args:
        input: any shape.
        shape: sizes, one of which may be -1: it is inferred.

    Returns:
        a view of shape `shape`.

    Raises:
        ShapeError: if the number of elements differs, or the strides of `input` need a copy.

    >>> import miniflow as flow
    >>> flow.arange(6).view(2, -1).shape
    miniflow.Size([2, 3])

    Source: `torch.Tensor.view`.
    """
    return call(View, input, shape=sizes_of(shape))


@method
def reshape(input: Tensor, *shape: int | Sequence[int]) -> Tensor:
    """The same elements in row-major order under another shape: a view where the strides allow it, else a copy.

    Args:
        input: any shape.
        shape: the new one, in which one size may be -1: it is inferred.

    Raises:
        ShapeError: if the number of elements differs.

    >>> import miniflow as flow
    >>> flow.arange(6).view(2, 3).t().reshape(6).tolist()
    [0, 3, 1, 4, 2, 5]

    Source: `torch.reshape`.
    """
    shape = sizes_of(shape)
    if not can_view(input._array, shape):
        input = call(Clone, input)
    return call(View, input, shape=shape)


@method
def view_as(self: Tensor, other: Tensor) -> Tensor:
    """`x.view(other.shape)`."""
    return call(View, self, shape=tuple(other.shape))


@method
def reshape_as(self: Tensor, other: Tensor) -> Tensor:
    """`x.reshape(other.shape)`."""
    return reshape(self, tuple(other.shape))


@method
def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """The dims from `start_dim` to `end_dim` made one; a 0-dim tensor becomes 1-dim.

    Raises:
        DimError: for dims that do not exist.
        ShapeError: if `start_dim` comes after `end_dim`.

    >>> import miniflow as flow
    >>> flow.zeros(2, 3, 4).flatten(1).shape
    miniflow.Size([2, 12])

    Source: `torch.flatten`.
    """
    shape = input._array.shape
    start, end = wrap_dim("flatten", start_dim, len(shape)), wrap_dim("flatten", end_dim, len(shape))
    if start > end:
        raise ShapeError(f"flatten: got start_dim={start_dim} after end_dim={end_dim}; expected start_dim <= end_dim")
    return reshape(input, shape[:start] + (prod(shape[start : end + 1]),) + shape[end + 1 :])


@method
def unflatten(input: Tensor, dim: int, sizes: Sequence[int]) -> Tensor:
    """The dim `dim` split into several of `sizes`, one of which may be -1.

    Raises:
        ShapeError: if the sizes do not multiply to that of `dim`.

    >>> import miniflow as flow
    >>> flow.zeros(2, 12).unflatten(1, (3, -1)).shape
    miniflow.Size([2, 3, 4])

    Source: `torch.unflatten`.
    """
    shape, sizes = input._array.shape, tuple(sizes)
    dim = wrap_dim("unflatten", dim, len(shape))
    count, size = prod(n for n in sizes if n != -1), shape[dim] if shape else 0
    fits = sizes.count(-1) == 1 and count > 0 and size % count == 0 or count == size and -1 not in sizes
    if not fits or not shape or any(n < -1 for n in sizes):
        expected = "sizes that multiply to the size of that dim: use -1 for one to be inferred"
        raise ShapeError(f"unflatten: got sizes {sizes} for dim {dim} of shape {shape}; expected {expected}")
    sizes = tuple([size // count if n == -1 else n for n in sizes])
    return call(View, input, shape=shape[:dim] + sizes + shape[dim + 1 :])


@method
def squeeze(input: Tensor, dim: int | Sequence[int] | None = None) -> Tensor:
    """A view without the dims of size 1: all of them, or those among `dim`.

    Raises:
        DimError: for dims that do not exist.

    >>> import miniflow as flow
    >>> flow.zeros(1, 3, 1).squeeze(-1).shape
    miniflow.Size([1, 3])

    Source: `torch.squeeze`.
    """
    shape = input._array.shape
    dims = (
        range(len(shape))
        if dim is None
        else ()
        if isinstance(dim, tuple) and not dim
        else wrap_dims("squeeze", dim, len(shape))
    )
    return call(View, input, shape=tuple([n for d, n in enumerate(shape) if n != 1 or d not in dims]))


@method
def unsqueeze(input: Tensor, dim: int) -> Tensor:
    """A view with a dim of size 1 inserted at `dim`.

    Raises:
        DimError: unless `dim` is from -(ndim + 1) to ndim.

    >>> import miniflow as flow
    >>> flow.zeros(2, 3).unsqueeze(1).shape
    miniflow.Size([2, 1, 3])

    Source: `torch.unsqueeze`.
    """
    shape = input._array.shape
    dim = wrap_dim("unsqueeze", dim, len(shape) + 1)
    return call(View, input, shape=shape[:dim] + (1,) + shape[dim:])


class Expand(StridedView):
    """x broadcast to `shape`: dims of size 1, and new ones in front, repeat with stride 0."""

    def infer(x, *, shape):
        check_broadcast("expand", x.shape, shape)
        return shape, x.dtype

    def backward(ctx, dy):
        return sum_to_shape(dy, input_shape(ctx))


def check_broadcast(op: str, small: Sequence[int], large: Sequence[int]) -> None:
    """Refuse unless a tensor of shape `small` can be broadcast to `large`.

    Raises:
        ShapeError: if not.
    """
    lead = len(large) - len(small)
    if lead < 0 or any(n < 0 for n in large) or any(s not in (1, n) for s, n in zip(small, large[lead:], strict=True)):
        raise ShapeError(
            f"{op}: got shapes {tuple(small)} and {tuple(large)}; expected, counted from the last dim, sizes in the "
            "first that are 1 or those of the second (-1 keeps the size of a dim that exists): unsqueeze or reshape it"
        )


class SumToShape(Op):
    """x summed over the dims along which a tensor of `shape` was repeated to x's shape: the adjoint of `Expand`."""

    amp = "gray"

    def infer(x, *, shape):
        check_broadcast("sum_to_shape", shape, x.shape)
        return shape, x.dtype

    def sbp(x, *, ranks, shape):
        return signatures([letters(x.ndim)], [aligned(shape, x.ndim)], linear=[[0]])

    def backward(ctx, dy):
        return call(Expand, dy, shape=input_shape(ctx))


@method
def sum_to_shape(self: Tensor, shape: Sequence[int]) -> Tensor:
    """Undo broadcasting: sum `self` to `shape`, over new dims in front and over those of size 1.

    Raises:
        ShapeError: if `shape` cannot be broadcast to the shape of `self`.

    >>> import miniflow as flow
    >>> sum_to_shape(flow.ones(2, 3), (3,)).tolist()
    [2.0, 2.0, 2.0]

    Source: `torch.Tensor.sum_to_size`.
    """
    return self if self._array.shape == tuple(shape) else call(SumToShape, self, shape=tuple(shape))


@method
def expand(input: Tensor, *sizes: int | Sequence[int]) -> Tensor:
    """A view in which dims of size 1 are repeated to `sizes` without a copy.

    Args:
        input: any shape.
        sizes: the new shape; -1 keeps a size; further dims may come in front.

    Returns:
        a view with stride 0 along the repeated dims. It cannot be written to: several elements share one place.

    Raises:
        ShapeError: if a size is neither 1 nor the size asked for.

    >>> import miniflow as flow
    >>> flow.tensor([[1], [2]]).expand(-1, 3).tolist()
    [[1, 1, 1], [2, 2, 2]]

    Source: `torch.Tensor.expand`.
    """
    sizes, shape = sizes_of(sizes), input._array.shape
    if -1 in sizes:
        lead = len(sizes) - len(shape)
        sizes = tuple([shape[d - lead] if n == -1 and d >= lead >= 0 else n for d, n in enumerate(sizes)])
    return call(Expand, input, shape=sizes)


@method
def expand_as(self: Tensor, other: Tensor) -> Tensor:
    """`x.expand(other.shape)`."""
    return call(Expand, self, shape=tuple(other.shape))


@method
def broadcast_to(input: Tensor, size: Sequence[int]) -> Tensor:
    """`x.expand(size)`."""
    return expand(input, tuple(size))


class Clone(Op):
    """y = x in new memory, in row-major order."""

    amp = "clear"
    sbp = each_element

    def backward(ctx, dy):
        return dy


@method(checked=False)
def clone(input: Tensor, *, memory_format: Any = None) -> Tensor:
    """A copy with memory of its own, row-major in any case, through which gradients flow to `input`.

    >>> import miniflow as flow
    >>> x = flow.zeros(2)
    >>> y = x.clone()
    >>> x is y, y.tolist()
    (False, [0.0, 0.0])

    Source: `torch.clone`.
    """
    return call(Clone, input)


@method(checked=False)
def contiguous(self: Tensor, memory_format: Any = None) -> Tensor:
    """`self` itself if it is in row-major order without gaps, else a copy that is; there is no other format.

    >>> import miniflow as flow
    >>> flow.zeros(2, 3).t().contiguous().stride()
    (2, 1)

    Source: `torch.Tensor.contiguous`.
    """
    return self if self.is_contiguous() else call(Clone, self)


@method
def repeat(input: Tensor, *sizes: int | Sequence[int]) -> Tensor:
    """x repeated `sizes[d]` times along dim d, as a copy; further dims may come in front.

    Raises:
        ShapeError: for fewer sizes than dims, or negative ones.

    >>> import miniflow as flow
    >>> flow.tensor([1, 2]).repeat(2, 2).tolist()
    [[1, 2, 1, 2], [1, 2, 1, 2]]

    Source: `torch.Tensor.repeat`.
    """
    sizes, shape = sizes_of(sizes), input._array.shape
    if len(sizes) < len(shape) or any(n < 0 for n in sizes):
        raise ShapeError(f"repeat: got sizes {sizes} for shape {shape}; expected one size of at least 0 for each dim")
    shape = (1,) * (len(sizes) - len(shape)) + shape
    input = call(View, call(Clone, input), shape=tuple([n for size in shape for n in (1, size)]))
    input = call(Expand, input, shape=tuple([n for pair in zip(sizes, shape, strict=True) for n in pair]))
    return call(View, call(Clone, input), shape=tuple([n * size for n, size in zip(sizes, shape, strict=True)]))


@method
def tile(input: Tensor, *dims: int | Sequence[int]) -> Tensor:
    """As `repeat`; for fewer numbers than `input` has dims, its first dims are not repeated.

    >>> import miniflow as flow
    >>> flow.tensor([[1], [2]]).tile(2).tolist()
    [[1, 1], [2, 2]]

    Source: `torch.tile`.
    """
    dims = sizes_of(dims)
    return repeat(input, (1,) * (input._array.ndim - len(dims)) + dims)


@method
def repeat_interleave(
    input: Tensor, repeats: int | Tensor, dim: int | None = None, *, output_size: int | None = None
) -> Tensor:
    """Each element `repeats` times, one after the other.

    Args:
        input: any shape; without a dim it is flattened.
        repeats: a number for all elements along `dim`, or a tensor with a number for each of them.
        output_size: not needed here.

    >>> import miniflow as flow
    >>> flow.tensor([1, 2]).repeat_interleave(2).tolist()
    [1, 1, 2, 2]

    Source: `torch.repeat_interleave`.
    """
    if dim is None:
        input, dim = input.flatten(), 0
    dim = wrap_dim("repeat_interleave", dim, input.ndim)
    if not isinstance(repeats, Tensor) and hasattr(repeats, "__index__"):
        repeated_shape = [*input.shape[: dim + 1], repeats, *input.shape[dim + 1 :]]
        return input.unsqueeze(dim + 1).expand(repeated_shape).clone().flatten(dim, dim + 1)
    counts = np.broadcast_to(repeats._host_array(), input.shape[dim])
    return input.index_select(dim, constant_like(input, np.repeat(np.arange(counts.size), counts)))


@method
def ravel(input: Tensor) -> Tensor:
    """The elements as a vector. `torch.ravel`."""
    return input.flatten()


@takes_tensors
def broadcast_tensors(*tensors: Tensor | Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Views of the tensors in one shape, to which they are broadcast. `torch.broadcast_tensors`."""
    tensors = sizes_of(tensors)
    shape = broadcast_shape("broadcast_tensors", *[x.shape for x in tensors])
    return tuple([x.expand(shape) for x in tensors])


def broadcast_shapes(*shapes: int | Sequence[int]) -> tuple[int, ...]:
    """The shape to which tensors of these shapes are broadcast. `torch.broadcast_shapes`."""
    return broadcast_shape("broadcast_shapes", *[(s,) if isinstance(s, int) else tuple(s) for s in shapes])
