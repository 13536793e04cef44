"""Storage, strides and broadcasting. Fill in what raises Todo, then run: python -m tutorials check 1"""

import numpy as np

from tutorials import Todo  # noqa: F401


def contiguous_strides(shape):
    """The strides, in elements, of an array whose rows lie one after the other: (2, 3, 4) -> (12, 4, 1)."""
    # task 1.1: the strides of a row-major array
    strides = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))
    # end


def offset(index, strides, start):
    """Where in storage the element at `index` is, of an array whose first element is at `start`."""
    # task 1.2: from an index to a place in storage
    return start + sum(i * step for i, step in zip(index, strides))
    # end


def index_at(position, shape):
    """The index of the element that is number `position` in row-major order: 7 in (2, 3, 4) is (0, 1, 3)."""
    # task 1.3: from a number back to an index
    index = []
    for size in reversed(shape):
        index.append(position % size)
        position //= size
    return tuple(reversed(index))
    # end


def broadcast_shape(a, b):
    """The shape that two shapes broadcast to; raises ValueError if they do not fit."""
    # task 1.4: the shape that two shapes broadcast to
    length = max(len(a), len(b))
    a = (1,) * (length - len(a)) + tuple(a)
    b = (1,) * (length - len(b)) + tuple(b)
    result = []
    for m, n in zip(a, b):
        if m != n and m != 1 and n != 1:
            raise ValueError(f"{a} and {b} do not fit")
        result.append(n if m == 1 else m)
    return tuple(result)
    # end


def broadcast_strides(shape, strides, target):
    """The strides with which an array of `shape` is seen as one of the larger shape `target`, without a copy."""
    # task 1.5: repeat without copying
    missing = len(target) - len(shape)
    repeated = [0] * missing
    for size, step, wanted in zip(shape, strides, target[missing:]):
        repeated.append(step if size == wanted else 0)
    return tuple(repeated)
    # end


def sum_to(array, shape):
    """Add up a NumPy array over all dimensions along which `shape` was broadcast to its shape."""
    # task 1.6: undo a broadcast by adding up
    array = array.sum(axis=tuple(range(array.ndim - len(shape))), dtype=array.dtype)
    repeated = tuple(d for d, size in enumerate(shape) if size == 1 and array.shape[d] != 1)
    return np.asarray(array.sum(axis=repeated, keepdims=True, dtype=array.dtype))
    # end
