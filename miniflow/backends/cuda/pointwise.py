"""Launching `kernels.pointwise`: which kernel serves which layouts, and the shapes and steps that it is told.

Dimensions that all arrays walk through as if they were one are merged first. What is left is rarely more than three
dimensions; beyond four, the outer ones become a loop of launches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import mul
from typing import Any

import numpy as np

from miniflow.backends.cuda.array import DeviceArray, contiguous, empty
from miniflow.backends.cuda.driver import driver
from miniflow.backends.cuda.launch import each, launch
from miniflow.backends.geometry import merged
from miniflow.kernels.pointwise import WIDE, flat, spread, wide

RANK = 4
THREADS = 256
WIDE_FROM = 1 << 20  # elements, from which a GPU has no lack of threads
GRID_LIMIT = 65_535  # blocks that CUDA numbers along y, and along z

Shape = tuple[int, ...]
Steps = tuple[int, ...]


def apply(function: Any, arrays: Sequence[DeviceArray], dtype: Any, numbers: Sequence[Any] = ()) -> DeviceArray:
    """A new array: `function` of each element of `arrays`, which are broadcast, and of `numbers`.

    The result has the memory order of the arrays if they all have the same, and is row-major otherwise.

    Args:
        function: a device function of one element of each array, then the numbers.
        arrays: one to three, on one device.
        dtype: of the result.
        numbers: NumPy scalars.
    """
    shape = arrays[0].shape
    if any(x.shape != shape for x in arrays):
        shape = np.broadcast_shapes(*[x.shape for x in arrays])
    order = common_order(arrays, shape)
    if order is None:
        if not numbers:
            out = empty(shape, dtype, arrays[0].device_index)
            apply_into(function, out, arrays)
            return out
        arrays, order = [contiguous(broadcast(x, shape)) for x in arrays], range(len(shape))
    inward = list(order)
    out = empty(tuple([shape[d] for d in inward]), dtype, arrays[0].device_index)
    run_flat(function, out, [in_order(x, inward) for x in arrays], numbers)
    return in_order(out, [inward.index(d) for d in range(len(shape))])


def apply_into(function: Any, out: DeviceArray, arrays: Sequence[DeviceArray]) -> None:
    """Write `function` of each element of `arrays`, which are broadcast, to `out`, of any layout."""
    order = common_order([out, *arrays], out.shape)
    if order is not None:
        run_flat(function, in_order(out, order), [in_order(x, order) for x in arrays])
        return
    placed = [out, *[broadcast(x, out.shape) for x in arrays]]
    storages = [x.storage for x in placed]
    for shape, steps in parts(placed):
        arguments = [part for pair in zip(storages, steps, strict=True) for part in pair]
        launch(spread(function, len(arrays)), *cover(shape), shape, *arguments)


def run_flat(function: Any, out: DeviceArray, arrays: Sequence[DeviceArray], numbers: Sequence[Any] = ()) -> None:
    """`function` over row-major arrays of one shape."""
    lines = [x if x.ndim == 1 else x.reshape(-1) for x in (out, *arrays)]
    if out.size >= WIDE_FROM and not numbers and len(arrays) in WIDE and not driver().emulated:
        launch(wide(function, len(arrays)), -(-out.size // (4 * THREADS)), THREADS, *lines)
        return
    each(flat(function, len(arrays), len(numbers)), out.size, *lines, *numbers)


def common_order(arrays: Sequence[DeviceArray], shape: tuple[int, ...]) -> Sequence[int] | None:
    """The order of dimensions, outermost first, in which all arrays lie without gaps; None if there is none."""
    if any(x.shape != shape for x in arrays):
        return None
    if all(x.flags.c_contiguous for x in arrays):
        return range(len(shape))
    strides = arrays[0].strides
    order = sorted(range(len(shape)), key=lambda d: -strides[d])
    return order if all(in_order(x, order).flags.c_contiguous for x in arrays) else None


def in_order(x: DeviceArray, order: Sequence[int]) -> DeviceArray:
    """`x` with its dimensions in this order."""
    return x if list(order) == sorted(order) else x.view(lambda a: a.transpose(order))


def broadcast(x: DeviceArray, shape: tuple[int, ...]) -> DeviceArray:
    """`x` seen under a shape to which it broadcasts."""
    return x if x.shape == shape else x.view(lambda a: np.broadcast_to(a, shape))


def parts(arrays: Sequence[DeviceArray]) -> Iterator[tuple[Shape, list[Steps]]]:
    """What the `spread` kernels are told, launch by launch.

    Args:
        arrays: of one shape.

    Returns:
        for each launch the shape (n0, n1, n2, n3), and the steps (offset, s0, s1, s2, s3) of each array.
    """
    shape, strides = merged(arrays[0].shape, [x.element_strides for x in arrays])
    missing = max(RANK - len(shape), 0)
    shape, strides = (1,) * missing + shape, [(0,) * missing + s for s in strides]
    outer = len(shape) - RANK
    for index in np.ndindex(shape[:outer]):
        starts = [x.offset + sum(map(mul, index, steps)) for x, steps in zip(arrays, strides, strict=True)]
        yield from halved(shape[outer:], [(at, *s[outer:]) for at, s in zip(starts, strides, strict=True)])


def halved(shape: Shape, steps: list[Steps]) -> Iterator[tuple[Shape, list[Steps]]]:
    """A launch, cut into halves until CUDA can number the blocks of each."""
    (_, y, z), _ = cover(shape)
    if max(y, z) <= GRID_LIMIT:
        yield shape, steps
        return
    dim = 2 if y > GRID_LIMIT else 0 if shape[0] > 1 else 1
    half = shape[dim] // 2
    yield from halved((*shape[:dim], half, *shape[dim + 1 :]), steps)
    moved = [(s[0] + half * s[dim + 1], *s[1:]) for s in steps]
    yield from halved((*shape[:dim], shape[dim] - half, *shape[dim + 1 :]), moved)


def cover(shape: Shape) -> tuple[tuple[int, int, int], tuple[int, int]]:
    """The grid and the block of a `spread` kernel: a block is as wide as the columns, up to 256 threads.

    >>> cover((2, 3, 100, 5))
    ((1, 4, 6), (8, 32))
    """
    planes, planes_too, rows, columns = shape
    width = min(THREADS, power_of_two(columns))
    height = min(THREADS // width, power_of_two(rows))
    return (-(-columns // width), -(-rows // height), planes * planes_too), (width, height)


def power_of_two(n: int) -> int:
    """The smallest one that is at least n."""
    return 1 << (n - 1).bit_length()
