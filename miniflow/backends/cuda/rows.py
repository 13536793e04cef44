"""Arrays as (outer, n, inner) around one dim, and launches over rows and columns: for kernels that move elements."""

from __future__ import annotations

from math import prod
from typing import Any

from miniflow.backends.cuda.array import DeviceArray, bits, contiguous
from miniflow.backends.cuda.launch import launch

THREADS = 256
GRID_Y = 65_535  # blocks that CUDA numbers along y, and along z


def over_rows(kernel: Any, rows: int, columns: int, *args: Any) -> None:
    """Launch a thread for each column of each row: x runs along the columns, y and then z count rows.

    Kernels work out

        column = blockIdx.x * blockDim.x + threadIdx.x
        row = (blockIdx.z * gridDim.y + blockIdx.y) * blockDim.y + threadIdx.y

    and test that both exist.
    """
    launch(kernel, *cover(rows, columns), *args)


def cover(rows: int, columns: int) -> tuple[tuple[int, int, int], tuple[int, int]]:
    """The grid and the block of `over_rows`: a block is as wide as a row, up to 256 threads, and has as many rows as
    fit.

    >>> cover(rows=100, columns=5)
    ((1, 4, 1), (8, 32))
    """
    width = min(THREADS, 1 << max(columns - 1, 0).bit_length())
    height = THREADS // width
    blocks = -(-rows // height)
    y = min(blocks, GRID_Y)
    return (-(-columns // width), y, -(-blocks // max(y, 1))), (width, height)


def around(x: DeviceArray, dim: int, dims: int = 1) -> DeviceArray:
    """`x` as (outer, n, inner), contiguous, where n counts the elements of the `dims` dims from `dim` on."""
    shape = x.shape
    sizes = prod(shape[:dim]), prod(shape[dim : dim + dims]), prod(shape[dim + dims :])
    return contiguous(x).reshape(sizes)


def as_bits(x: DeviceArray, dim: int, dims: int = 1) -> DeviceArray:
    """`around`, as unsigned integers."""
    return bits(around(x, dim, dims))
