"""Making a tensor larger: padding, repeating, one-hot encoding."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from miniflow.composite import composite
from miniflow.dispatch import Op, call
from miniflow.dtype import fitting
from miniflow.errors import DTypeError, ShapeError, refusal
from miniflow.operands import takes_tensors
from miniflow.ops.index import Index
from miniflow.ops.method import method
from miniflow.ops.promotion import Number
from miniflow.ops.shape import Clone, Expand, View, sizes_of
from miniflow.ops.slice import check_in_range
from miniflow.sbp import letters, letters_but, signatures
from miniflow.tensor import Tensor, constant_like

BORDERS = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}  # PyTorch's name: NumPy's name


class Pad(Op):
    """x with `widths[d]` = (before, after) elements of `value` around dim d; negative widths cut elements off."""

    amp = "clear"

    def infer(x, *, widths, value):
        shape = tuple([n + before + after for n, (before, after) in zip(x.shape, widths, strict=True)])
        if any(n < 0 for n in shape) or any(-min(b, a) > n for n, (b, a) in zip(x.shape, widths, strict=True)):
            raise ShapeError(f"pad: got shape {x.shape} and widths {widths}; expected to cut off no more than there is")
        return shape, x.dtype

    def sbp(x, *, ranks, widths, value):
        kept = letters_but(x.ndim, *[d for d, width in enumerate(widths) if tuple(width) != (0, 0)])
        return signatures([kept], [kept], linear=[[0]] if value == 0 else [])

    def backward(ctx, dy):
        return call(Pad, dy, widths=tuple([(-before, -after) for before, after in ctx.attrs["widths"]]), value=0)


@takes_tensors
def pad(input: Tensor, pad: Sequence[int], mode: str = "constant", value: Number | None = None) -> Tensor:
    """x with a border, as `torch.nn.functional.pad`.

    Args:
        input: any shape.
        pad: widths (before, after) of the last dim, then of the dim before it, and so on; negative ones cut off.
        mode: what the border holds: "constant", "reflect" (mirrored at the outermost element), "replicate" (copies of
            the outermost element) or "circular" (the other end).
        value: the constant, 0 if None.

    Returns:
        each padded dim is before + after larger.

    Raises:
        ShapeError: for an odd number of widths, more pairs than dims, a border wider than there are elements to mirror.
        DTypeError: for an unknown mode.

    >>> import miniflow as flow
    >>> pad(flow.tensor([1, 2, 3]), (2, -1)).tolist()
    [0, 0, 1, 2]
    >>> pad(flow.tensor([1, 2, 3]), (2, 1), mode="reflect").tolist()
    [3, 2, 1, 2, 3, 2]

    Source: `torch.nn.functional.pad`.
    """
    shape, pad = input._array.shape, tuple(pad)
    if len(pad) % 2 or len(pad) > 2 * len(shape):
        raise refusal(ShapeError, "pad", "pairs (before, after), at most one for each dim", widths=pad, input=input)
    pairs = tuple(zip(pad[::2], pad[1::2], strict=True))
    widths = ((0, 0),) * (len(shape) - len(pairs)) + pairs[::-1]
    if mode == "constant":
        return call(Pad, input, widths=widths, value=0 if value is None else fitting("pad", value, input.dtype))
    if mode not in BORDERS:
        raise DTypeError(f"pad: got mode={mode!r}; expected 'constant', 'reflect', 'replicate' or 'circular'")
    if value:
        raise DTypeError(f"pad: got value={value} with mode={mode!r}; expected none: only mode='constant' has a value")
    return (bordered if mode == "circular" else pad_border)(input, widths, mode)


def bordered(input: Tensor, widths: Sequence[tuple[int, int]], mode: str) -> Tensor:
    """`pad` with elements of the input itself."""
    for dim, (before, after) in enumerate(widths):
        if before or after:
            source = _border(mode, dim, input._array.shape, before, after)
            input = call(Index, input, constant_like(input, source), dims=(dim,))
    return input


@composite
def pad_border(input: Tensor, widths: Sequence[tuple[int, int]], mode: str) -> Tensor:
    """`bordered` by reflection or replication."""
    return bordered(input, widths, mode)


def _border(mode: str, dim: int, shape: tuple[int, ...], before: int, after: int) -> np.ndarray:
    """Where each element of a padded dim comes from: int64 (1, size)."""
    size = shape[dim]
    source = np.arange(size)
    if mode == "circular":  # what is cut off does not come back at the other end
        source = source[max(-before, 0) : size - max(-after, 0)]
    limit = {"reflect": size - 1, "circular": len(source), "replicate": max(before, after) if size else 0}[mode]
    if max(before, after) > limit or -min(before, after) > size:
        wanted = f"from {-size} to {limit}"
        raise refusal(ShapeError, "pad", wanted, widths=(before, after), shape=shape, dim=dim, mode=mode)
    source = np.pad(source, (max(before, 0), max(after, 0)), mode=BORDERS[mode])
    if mode != "circular":
        source = source[max(-before, 0) : len(source) - max(-after, 0)]
    return source[None]


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


class OneHot(Op):
    """y[..., c] = 1 where x[...] = c, else 0; no gradient."""

    checks_values = "infer"

    def infer(x, *, num_classes):
        if x.dtype.kind not in "iu":
            raise DTypeError(f"one_hot: got {x.dtype}; expected classes of int64: use .long()")
        if num_classes < 1:
            raise ShapeError(
                f"one_hot: got num_classes={num_classes} for a tensor of shape {x.shape}; expected at least 1, "
                "or -1 for the largest class plus one, of at least one element"
            )
        check_in_range("one_hot", x, 0, (num_classes,))
        return (*x.shape, num_classes), np.dtype(np.int64)

    def sbp(x, *, ranks, num_classes):
        return signatures([letters(x.ndim)], [letters(x.ndim) + "."])


@takes_tensors
def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """1 at the index of each class along a new last dim, 0 elsewhere.

    Args:
        tensor: classes from 0 on, integers of any shape.
        num_classes: the size of the new dim; -1 for the largest class plus one.

    Returns:
        int64, shape (*x.shape, num_classes).

    Raises:
        IndexRangeError: for a class outside [0, num_classes).
        DTypeError: if `tensor` is not of integers.

    >>> import miniflow as flow
    >>> one_hot(flow.tensor([2, 0])).tolist()
    [[0, 0, 1], [1, 0, 0]]

    Source: `torch.nn.functional.one_hot`.
    """
    if num_classes == -1 and tensor._array.size:
        num_classes = max(int(tensor._host_array().max()) + 1, 1)
    return call(OneHot, tensor, num_classes=num_classes)
