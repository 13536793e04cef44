"""Launching kernels on `DeviceArray`s."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from miniflow.backends.cuda import streams
from miniflow.backends.cuda.array import DeviceArray
from miniflow.backends.cuda.driver import driver

GRID_LIMIT = 65_535  # blocks that CUDA numbers along y, and along z


def launch(
    kernel: Any, grid: int | tuple, block: int | tuple, *args: Any, shared: int = 0, cut: Sequence[DeviceArray] = ()
) -> None:
    """`kernel[grid, block, current stream, shared](*args)` on the device of the first array among `args`.

    A grid or block with a 0 in it launches nothing: there is nothing to compute. Where CUDA cannot number all blocks
    along z there are several launches, if `cut` says how.

    Args:
        kernel: a `@cuda.jit` kernel.
        grid: blocks, a number or a tuple of up to three.
        block: threads a block, a number or a tuple of up to three.
        args: DeviceArrays, numbers, tuples of either.
        shared: bytes of dynamic shared memory.
        cut: those of the arrays that can be cut into parts along their first dim, which the threads along z count.
    """
    if _has_zero(grid) or _has_zero(block):
        return
    if cut and grid[2] > GRID_LIMIT:
        depth = block[2] if isinstance(block, tuple) and len(block) == 3 else 1
        for first in range(0, grid[2], GRID_LIMIT):
            part = slice(first * depth, (first + GRID_LIMIT) * depth)
            parts = [x[part] if any(x is array for array in cut) else x for x in args]
            launch(kernel, (*grid[:2], min(GRID_LIMIT, grid[2] - first)), block, *parts, shared=shared)
        return
    handles = []
    index = None
    for x in args:
        if type(x) is DeviceArray:
            if index is None:
                index = x.block.device_index
            handles.append(x.handle)
        elif type(x) is tuple and x and type(x[0]) is DeviceArray:
            if index is None:
                index = x[0].block.device_index
            handles.append(tuple([array.handle for array in x]))
        elif type(x) is tuple and x and type(x[0]) is tuple:
            handles.append(_nested(x))
        else:
            handles.append(x)
    if index is None:
        index = streams.current_device()
    stream = streams.current(index).raw
    configuration = grid, block, stream, shared
    if streams.only_one() or index == streams.current_device():
        driver().launch(kernel, configuration, handles)
    else:
        with streams.selected(index):
            driver().launch(kernel, configuration, handles)


def each(kernel: Any, n: int, *args: Any, threads: int = 256) -> None:
    """A 1-D launch of at least `n` threads, for kernels in which thread `cuda.grid(1)` makes item i < n."""
    launch(kernel, -(-n // threads), threads, *args)


def _nested(x: Any) -> Any:
    """What a kernel takes for tuples of tuples of arrays."""
    return tuple(map(_nested, x)) if type(x) is tuple else x.handle if type(x) is DeviceArray else x


def _has_zero(sizes: int | tuple) -> bool:
    return sizes == 0 if isinstance(sizes, int) else 0 in sizes
