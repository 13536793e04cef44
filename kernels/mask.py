"""Triangles of matrices: elements kept, or replaced by zero, by where they lie.

The index picture: a thread owns one element of the result, reads at most one element of the source and writes one.

Elements are moved as unsigned integers of their width; zero is zero in every dtype.
"""

from __future__ import annotations

from miniflow.hostcuda import cuda


@cuda.jit
def triangle(x, sign, diagonal, out):
    """out[m, i, j] = x[m, i, j] where sign (j - i) <= diagonal, else 0.

    Thread (x, y, z) of the grid owns column j = x of row i = y of matrix m = z. Of the other triangle nothing is read.

    Args:
        x: (matrices, rows, columns).
        sign: 1 for lower triangles, -1 for upper ones.
        diagonal: `sign` times the last diagonal kept: 0 the main one, 1 the one beyond it.
        out: (matrices, rows, columns).
    """
    j, i, m = cuda.grid(3)
    if j < x.shape[2] and i < x.shape[1] and m < x.shape[0]:
        if sign * (j - i) <= diagonal:
            out[m, i, j] = x[m, i, j]
        else:
            out[m, i, j] = 0
