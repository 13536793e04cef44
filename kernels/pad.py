"""One-hot rows, and windows folded back onto each other.

The index picture: a thread owns one element of the *result* and finds out what it is made of. Nothing has to be filled
with zeros before, no element is written twice, and where several elements meet, as in `fold_add`, they are added in
one thread in a fixed order: no atomics.

    thread (x, y, z) of the grid  ->  element x of the last dim, y of the one before, z of what is before that
"""

from __future__ import annotations

from miniflow.hostcuda import cuda


@cuda.jit
def one_hot(classes, out):
    """out[p, c] = 1 where c = classes[p], else 0; one read, one write.

    Args:
        classes: (count,).
        out: (count, class_count).
    """
    c, p = cuda.grid(2)
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
    i, j, o = cuda.grid(3)
    if i < out.shape[2] and j < out.shape[1] and o < out.shape[0]:
        size = y.shape[3]
        first = max(0, (j - size + step) // step)  # ceil((j - size + 1) / step)
        end = min(y.shape[1], j // step + 1)
        total = out.dtype.type(0)
        for w in range(first, end):
            total += y[o, w, i, j - w * step]
        out[o, j, i] = total
