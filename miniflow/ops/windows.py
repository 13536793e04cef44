"""The arguments of convolution and pooling: numbers for each dim, the shapes of images."""

from __future__ import annotations

import operator
from typing import Any

from miniflow.backends.windows import Padding, Pair, window_count
from miniflow.errors import ArgumentError, DTypeError, ShapeError, refusal
from miniflow.tensor import Tensor

Sizes = int | tuple[int, ...]  # one number for all dims, or one for each
COUNTS = {1: ("one integer", "tuple"), 2: ("one or two integers", "pair"), 3: ("one or three integers", "triple")}


def per_dim(op: str, name: str, value: Any, count: int, least: int = 1) -> tuple[int, ...]:
    """An argument given as one number for all dims, or as `count` of them.

    >>> per_dim("conv2d", "stride", 2, 2), per_dim("conv2d", "stride", (2, 1), 2)
    ((2, 2), (2, 1))

    Raises:
        ArgumentError: if a number is below `least` or not below 2^31, or there are neither one nor `count` of them.
        DTypeError: if they are not integers.
    """
    if type(value) is int and least <= value < 2**31:
        return (value,) * count
    words = COUNTS[count]
    try:
        numbers = tuple([operator.index(n) for n in (value if isinstance(value, tuple | list) else (value,))])
    except TypeError:
        raise DTypeError(f"{op}: got {name}={value!r}; expected an integer or a {words[1]} of integers") from None
    if len(numbers) not in (1, count) or min(numbers) < least or max(numbers) >= 2**31:
        most = " and below 2**31" if numbers and max(numbers) >= 2**31 else ""
        raise ArgumentError(f"{op}: got {name}={value!r}; expected {words[0]} of at least {least}{most}")
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
    rows, columns = (window_count(n, *rest, ceil_mode) if n else 0 for n, *rest in along)
    if rows < 1 or columns < 1:
        wanted = "images at least as large as the kernel: pad more, or use a smaller kernel"
        raise refusal(ShapeError, op, wanted, input=shape, kernel=kernel, dilation=dilation, padding=padding)
    return rows, columns
