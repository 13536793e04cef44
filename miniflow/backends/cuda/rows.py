"""Arrays as boxes (outer, n, inner) around one dim, and launches over them, for kernels that move elements."""

from __future__ import annotations

from math import prod
from typing import Any

from miniflow.backends.cuda.array import DeviceArray, bits, contiguous
from miniflow.backends.cuda.launch import GRID_LIMIT, launch

THREADS = 256

Box = tuple[int, int, int]


def launch_over_box(kernel: Any, box: Box, *args: Any, widest: int = THREADS) -> None:
    """Launch a thread for each element (o, k, i) of a box (outer, count, inner).

    Kernels read `i, k, o = cuda.grid(3)` and test that the element exists. Arrays whose first dim is `outer` belong to
    the elements.
    """
    cut = [x for x in args if type(x) is DeviceArray and x.shape[:1] == box[:1]]
    launch(kernel, *cover(box, widest), *args, cut=cut)


def cover(box: Box, widest: int = THREADS) -> tuple[Box, Box]:
    """The grid and the block for a box: a block is as wide as `inner`, up to `widest` threads, then as high and as
    deep as 256 threads go. From 65,535 blocks along y it is higher; that is enough for a count of 67 million.

    >>> cover((2, 100, 5))
    ((1, 4, 2), (8, 32, 1))
    """
    outer, count, inner = box
    lowest = power_of_two(-(-count // GRID_LIMIT))
    x = min(power_of_two(inner), max(THREADS // lowest, 1), widest)
    y = max(lowest, min(power_of_two(count), THREADS // x))
    z = max(1, min(power_of_two(outer), THREADS // (x * y), 64))
    return (-(-inner // x), -(-count // y), -(-outer // z)), (x, y, z)


def power_of_two(n: int) -> int:
    """The smallest one that is at least n."""
    return 1 << max(n - 1, 0).bit_length()


def as_box(x: DeviceArray, dim: int, dims: int = 1) -> DeviceArray:
    """`x` as (outer, n, inner), contiguous, where n counts the elements of the `dims` dims from `dim` on."""
    shape = x.shape
    sizes = prod(shape[:dim]), prod(shape[dim : dim + dims]), prod(shape[dim + dims :])
    return contiguous(x).reshape(sizes)


def as_bits(x: DeviceArray, dim: int, dims: int = 1) -> DeviceArray:
    """`as_box`, as unsigned integers."""
    return bits(as_box(x, dim, dims))
