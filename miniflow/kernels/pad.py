"""Results larger than their sources, or smaller: padding, one-hot rows, and windows folded back onto each other.

The index picture: a thread owns one element of the *result* and finds out what it is made of. Nothing has to be filled
with zeros before, no element is written twice, and where several elements meet, as in `fold_add`, they are added in
one thread in a fixed order: no atomics.

    threadIdx.x  ->  column        threadIdx.y  ->  row, all dims but the last as one
"""

from __future__ import annotations

from miniflow.hostcuda import cuda


@cuda.jit
def pad(x, x_shape, before, value, out, out_shape):
    """out = x with a border of `value`; where `before` is negative, or `out` is too small, x is cut off.

    A thread takes its row apart into coordinates, from the last dim to the first, while it builds the position in x.
    One element of x is read by those inside, one is written by all.

    Args:
        x: (elements,), the source in row-major order.
        x_shape: its sizes: a tuple of as many dims as `out` has.
        before: for each dim, how far x starts behind the start of `out`.
        value: of x's dtype.
        out: (elements,), in row-major order.
        out_shape: its sizes.
    """
    last = len(out_shape) - 1
    column = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    row = (cuda.blockIdx.z * cuda.gridDim.y + cuda.blockIdx.y) * cuda.blockDim.y + cuda.threadIdx.y
    target = row * out_shape[last] + column
    if column < out_shape[last] and target < out.shape[0]:
        source = column - before[last]
        inside = source >= 0 and source < x_shape[last]
        step = x_shape[last]
        for back in range(1, len(out_shape)):
            d = last - back
            coordinate = row % out_shape[d] - before[d]
            row = row // out_shape[d]
            inside = inside and coordinate >= 0 and coordinate < x_shape[d]
            source += coordinate * step
            step *= x_shape[d]
        if inside:
            out[target] = x[source]
        else:
            out[target] = value


@cuda.jit
def one_hot(classes, out):
    """out[p, c] = 1 where c = classes[p], else 0; one read, one write.

    Args:
        classes: (count,).
        out: (count, class_count).
    """
    c = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    p = (cuda.blockIdx.z * cuda.gridDim.y + cuda.blockIdx.y) * cuda.blockDim.y + cuda.threadIdx.y
    if c < out.shape[1] and p < out.shape[0]:
        out[p, c] = c == classes[p]


@cuda.jit
def fold_add(y, step, out):
    """out[o, j, i] = the sum of y[o, w, i, k] over all windows w and places k in them with w * step + k = j.

    The windows that reach j are neighbours: the last starts at or before j, the first is the last that has not yet
    ended. About size / step reads, one write.

    Args:
        y: (outer, windows, inner, size).
        step: from the start of a window to that of the next.
        out: (outer, n, inner).
    """
    column = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    row = (cuda.blockIdx.z * cuda.gridDim.y + cuda.blockIdx.y) * cuda.blockDim.y + cuda.threadIdx.y
    if column < out.shape[2] and row < out.shape[0] * out.shape[1]:
        o = row // out.shape[1]
        j = row % out.shape[1]
        size = y.shape[3]
        first = max(0, (j - size + step) // step)  # ceil((j - size + 1) / step)
        end = min(y.shape[1], j // step + 1)
        total = out.dtype.type(0)
        for w in range(first, end):
            total += y[o, w, column, j - w * step]
        out[o, j, column] = total
