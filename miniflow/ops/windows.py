"""Checks of the arguments of convolution and pooling: pairs of numbers, image shapes, floating dtypes."""

from __future__ import annotations

import operator
from typing import Any

from miniflow.backends.windows import Padding, Pair, window_count
from miniflow.errors import ArgumentError, DTypeError, ShapeError

COUNTS = {1: ("one integer", "tuple"), 2: ("one or two integers", "pair"), 3: ("one or three integers", "triple")}


def pair(op: str, name: str, value: Any, least: int = 1) -> Pair:
    """An argument given as one number for rows and columns, or as two.

    >>> pair("conv2d", "stride", 2), pair("conv2d", "stride", (2, 1))
    ((2, 2), (2, 1))

    Raises:
        ArgumentError: if a number is below `least`, or there are not one or two of them.
        DTypeError: if they are not integers.
    """
    return per_dim(op, name, value, 2, least)


def per_dim(op: str, name: str, value: Any, count: int, least: int = 1) -> tuple[int, ...]:
    """An argument given as one number for all dims, or as `count` of them.

    Raises:
        ArgumentError: if a number is below `least`, or there are neither one nor `count` of them.
        DTypeError: if they are not integers.
    """
    if type(value) is int and value >= least:
        return (value,) * count
    words = COUNTS[count]
    try:
        numbers = tuple([operator.index(n) for n in (value if isinstance(value, tuple | list) else (value,))])
    except TypeError:
        raise DTypeError(f"{op}: got {name}={value!r}; expected an integer or a {words[1]} of integers") from None
    if len(numbers) not in (1, count) or min(numbers) < least:
        raise ArgumentError(f"{op}: got {name}={value!r}; expected {words[0]} of at least {least}")
    return numbers if len(numbers) == count else numbers * count


def check_signal(op: str, x: Any, dims: int) -> None:
    """Refuse what is neither (N, C, *) nor (C, *) with `dims` dims for *; `x` is a Tensor or an array.

    Raises:
        ShapeError: for another number of dims.
    """
    if x.ndim not in (dims + 1, dims + 2):
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
        raise ShapeError(
            f"{op}: got input of shape {tuple(shape)}, kernel {kernel}, dilation {dilation}, padding {padding}; "
            "expected images at least as large as the kernel: pad more, or use a smaller kernel"
        )
    return rows, columns
