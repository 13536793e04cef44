"""Reading and writing along a dim that is split among ranks: each of them does what concerns its own part.

What is read is a partial sum then: elements that other ranks hold are zero. Rows of a table that is split by its rows
are looked up so, which is called vocabulary parallelism (Shoeybi et al., "Megatron-LM", 2019). The functions are those
that `Op.on_shard` of the operators in question calls, with local arrays.
"""

from __future__ import annotations

from math import ceil, prod
from typing import Any

import numpy as np

from miniflow.backends import memory
from miniflow.device import of_array
from miniflow.dispatch.dispatcher import Bounds, Op, run_kernel


def run(name: str, *arrays: Any, **attrs: Any) -> Any:
    """What the kernel of an operator computes."""
    return run_kernel(Op.by_name[name], list(arrays), attrs)


def zeros(like: Any, shape: tuple[int, ...]) -> Any:
    """Zeros of another shape on the same device."""
    return memory.full(shape, 0, like.dtype, of_array(like))


def is_whole(part: Bounds, shape: tuple[int, ...], dims: Any) -> bool:
    """Whether a part holds all of these dims."""
    return all([part[d] == (0, shape[d]) for d in dims])


def parts_of_slice(index: tuple, shape: tuple[int, ...], part: Bounds) -> tuple[tuple, tuple] | None:
    """The elements of `x[index]` that lie in a part of x: where in that part, and where in the result.

    Args:
        index: ints, slices, None and exactly one Ellipsis.
        shape: that of x.
        part: start and stop for each dim.

    Returns:
        two indices; None if no element lies there.

    >>> parts_of_slice((slice(1, 7, 2), ...), (8,), ((4, 8),))
    ((slice(1, 2, 2), Ellipsis), (slice(2, 3, None), Ellipsis))
    """
    at = index.index(Ellipsis)
    rest = len(shape) - sum([entry is not None for entry in index]) + 1
    source, target, dim = [], [], 0
    for entry in (*index[:at], *[slice(None)] * rest, *index[at + 1 :]):
        if entry is None:
            source.append(None)
            target.append(slice(None))
            continue
        n, (start, stop) = shape[dim], part[dim]
        dim += 1
        if isinstance(entry, slice):
            first, last, step = entry.indices(n)
            count = len(range(first, last, step))
            if (start, stop) == (0, n) or (first, step, count) == (0, 1, n):  # a split dim is split in the result too
                source.append(entry)
                target.append(slice(None))
                continue
            low, high = max(0, ceil((start - first) / step)), min(count, ceil((stop - first) / step))
            if low >= high:
                return None
            source.append(slice(first + low * step - start, first + (high - 1) * step + 1 - start, step))
            target.append(slice(low, high))
        else:
            position = entry + n if entry < 0 else entry
            if not start <= position < stop:
                return None
            source.append(position - start)
    return (*source, ...), (*target, ...)


def rows_of_part(index: Any, dims: tuple[int, ...], shape: tuple[int, ...], part: Bounds) -> tuple[Any, Any]:
    """The coordinates that lie in a part of a tensor.

    Args:
        index: coordinates (k, *B) along these k dims, within the shape; negative ones count from the end.
        shape, part: of the tensor, and start and stop of its part for each dim.

    Returns:
        which of the flat B they are, (1, m), and the coordinates, counted from the start of the part, (k, m).
    """
    coordinates = memory.to_host(index).astype(np.int64).reshape(len(dims), -1)
    column = lambda numbers: np.array(numbers, np.int64)[:, None]  # noqa: E731
    coordinates = np.where(coordinates < 0, coordinates + column([shape[d] for d in dims]), coordinates)
    coordinates -= column([part[d][0] for d in dims])
    (inside,) = ((coordinates >= 0) & (coordinates < column([part[d][1] - part[d][0] for d in dims]))).all(0).nonzero()
    device = of_array(index)
    return memory.move(inside[None], device), memory.move(coordinates[:, inside], device)


def with_flat_batch(x: Any, at: int, dims: int) -> Any:
    """An array with so many dims, from `at` on, as one."""
    shape = x.shape
    return run("Clone", x).reshape((*shape[:at], prod(shape[at : at + dims]), *shape[at + dims :]))


def spread(picked: Any, positions: Any, at: int, dims: int, shape: tuple[int, ...]) -> Any:
    """Zeros of a shape, but at these positions of so many dims, from `at` on, taken as one."""
    flat = (*shape[:at], prod(shape[at : at + dims]), *shape[at + dims :])
    return run("IndexIntoZeros", picked, positions, dims=(at,), shape=flat).reshape(shape)


def along_part(index: Any, part: tuple[int, int]) -> tuple[Any, Any]:
    """Coordinates along a dim, counted from the start of a part, and whether they lie in it; 0 for the others."""
    coordinates = memory.to_host(index).astype(np.int64) - part[0]
    inside = (coordinates >= 0) & (coordinates < part[1] - part[0])
    device = of_array(index)
    return memory.move(np.where(inside, coordinates, 0), device), memory.move(np.asarray(inside), device)


def batch_dim(dims: tuple[int, ...]) -> int:
    """Where the dims of B begin in the result of `Index`."""
    return dims[0] if dims[-1] - dims[0] == len(dims) - 1 else 0


def sizes(part: Bounds) -> tuple[int, ...]:
    """The shape of a part."""
    return tuple([stop - start for start, stop in part])
