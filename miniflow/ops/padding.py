"""Making a tensor larger at its borders."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from miniflow.dispatch.call_errors import takes_tensors
from miniflow.dispatch.composite import composite
from miniflow.dispatch.dispatcher import Op, call
from miniflow.dtype import fitting
from miniflow.errors import DTypeError, ShapeError, refusal
from miniflow.ops.indexing import Index
from miniflow.ops.promotion import Number
from miniflow.sbp import letters_but, signatures
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
        x_dims = letters_but(x.ndim, *[d for d, width in enumerate(widths) if tuple(width) != (0, 0)])
        return signatures([x_dims], [x_dims], linear=[[0]] if value == 0 else [])

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
    """`pad` with elements of the input."""
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
        expected = f"from {-size} to {limit}"
        raise refusal(ShapeError, "pad", expected, widths=(before, after), shape=shape, dim=dim, mode=mode)
    source = np.pad(source, (max(before, 0), max(after, 0)), mode=BORDERS[mode])
    if mode != "circular":
        source = source[max(-before, 0) : len(source) - max(-after, 0)]
    return source[None]
