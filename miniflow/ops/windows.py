"""Windows: the arguments of convolution and pooling, the shapes of images, and `Tensor.unfold`."""

from __future__ import annotations

import operator
from typing import Any

from miniflow.backends.windows import Padding, Pair, window_count
from miniflow.dispatch.dispatcher import call
from miniflow.errors import ArgumentError, DTypeError, ShapeError, refusal
from miniflow.ops.indexing import select
from miniflow.ops.method import method
from miniflow.ops.shape import View
from miniflow.ops.views import IntoZeros, StridedView, wrap_dim
from miniflow.tensor import Tensor

Sizes = int | tuple[int, ...]  # one number for all dims, or one for each
COUNTS = {1: ("one integer", "tuple"), 2: ("one or two integers", "pair"), 3: ("one or three integers", "triple")}


def per_dim(op: str, name: str, value: Any, count: int, minimum: int = 1) -> tuple[int, ...]:
    """An argument given as one number for all dims, or as `count` of them.

    >>> per_dim("conv2d", "stride", 2, 2), per_dim("conv2d", "stride", (2, 1), 2)
    ((2, 2), (2, 1))

    Raises:
        ArgumentError: if a number is below `minimum` or not below 2^31, or there are neither one nor `count` of them.
        DTypeError: if they are not integers.
    """
    if type(value) is int and minimum <= value < 2**31:
        return (value,) * count
    words = COUNTS[count]
    try:
        numbers = tuple([operator.index(n) for n in (value if isinstance(value, tuple | list) else (value,))])
    except TypeError:
        raise DTypeError(f"{op}: got {name}={value!r}; expected an integer or a {words[1]} of integers") from None
    if len(numbers) not in (1, count) or min(numbers) < minimum or max(numbers) >= 2**31:
        limit = " and below 2**31" if numbers and max(numbers) >= 2**31 else ""
        raise ArgumentError(f"{op}: got {name}={value!r}; expected {words[0]} of at least {minimum}{limit}")
    return numbers if len(numbers) == count else numbers * count


def check_signal(op: str, x: Tensor, dims: int) -> None:
    """Refuse what is neither (N, C, *) nor (C, *) with `dims` dims for *.

    Raises:
        ShapeError: for another number of dims.
    """
    if x._array.ndim not in (dims + 1, dims + 2):
        sizes = ", ".join(["D", "H", "W"][3 - dims :])
        raise ShapeError(f"{op}: got input {tuple(x.shape)}; expected (N, C, {sizes}) or (C, {sizes})")


def check_image(op: str, x: Any) -> None:
    """Refuse what is not a batch of images (N, C, H, W); `x` is a Tensor or an array.

    Raises:
        ShapeError: for another number of dims.
    """
    if x.ndim != 4:
        raise ShapeError(f"{op}: got input {tuple(x.shape)}; expected (N, C, H, W), or (C, H, W) for one image")


def window_counts(
    op: str,
    shape: tuple[int, ...],
    kernel: Pair,
    stride: Pair,
    padding: Padding,
    dilation: Pair = (1, 1),
    ceil_mode: bool = False,
) -> Pair:
    """How many windows fit on the images of a batch (N, C, H, W), in rows and columns.

    Raises:
        ShapeError: if not even one fits.
    """
    along = zip(shape[2:], kernel, stride, padding, dilation, strict=True)
    rows, columns = (window_count(n, *window, ceil_mode) if n else 0 for n, *window in along)
    if rows < 1 or columns < 1:
        expected = "images at least as large as the kernel: pad more, or use a smaller kernel"
        raise refusal(ShapeError, op, expected, input=shape, kernel=kernel, dilation=dilation, padding=padding)
    return rows, columns


class Unfold(StridedView):
    """y[..., w, ..., k] = x[..., w * step + k, ...]: all windows of `size` along `dim`, as a view."""

    def infer(x, *, dim, size, step):
        limit = x.shape[dim]
        if not 0 <= size <= limit or step <= 0:
            got = f"size={size} and step={step} for dim {dim} of shape {tuple(x.shape)}"
            raise ShapeError(f"unfold: got {got}; expected a size from 0 to {limit} and a step of at least 1")
        return (*x.shape[:dim], (limit - size) // step + 1, *x.shape[dim + 1 :], size), x.dtype

    @classmethod
    def common_dims(cls, shape, attrs):
        (x_dims,), (result_dims,) = super().common_dims(shape, attrs)
        # a window is not split, even if there is only one
        return [x_dims.replace(result_dims[-1], ".")], [f"{result_dims[:-1]}."]


class FoldAdd(IntoZeros, of=Unfold):
    """Every window of x added to its position in zeros of `shape`: the adjoint of `Unfold`."""


@method
def unfold(self: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """The view of all windows of `size` elements along `dimension`, every `step` elements; they make a new last dim.

    Args:
        self: shape (..., n, ...), with n at `dimension`.
        dimension: the dim to take windows along.
        size: elements of a window, at most n.
        step: from the start of a window to that of the next, at least 1.

    Returns:
        shape (..., (n - size) // step + 1, ..., size). Windows that overlap cannot be written to.

    Raises:
        DimError: for a dim that does not exist.
        ShapeError: for a size or step out of range.

    >>> import miniflow as flow
    >>> flow.arange(5).unfold(0, 3, 2).tolist()
    [[0, 1, 2], [2, 3, 4]]

    Source: `torch.Tensor.unfold`.
    """
    dim = wrap_dim("unfold", dimension, self._array.ndim)
    if not self._array.ndim:
        return select(call(Unfold, call(View, self, shape=(1,)), dim=0, size=size, step=step), 0, 0)
    return call(Unfold, self, dim=dim, size=size, step=step)
