"""Triangles of matrices: elements kept, or replaced by zero, by where they lie.

The index picture: a thread owns one element of the result, reads at most one element of the source and writes one.
Triangles are blocks over (rows of all matrices, columns), so that a thread knows its row and column without dividing
by the width.

Elements are moved as unsigned integers of their width; zero is zero in every dtype.
"""

from __future__ import annotations

from miniflow.hostcuda import cuda


@cuda.jit
def triangle(x, sign, diagonal, out):
    """out[m, i, j] = x[m, i, j] where sign (j - i) <= diagonal, else 0.

    Threads along x own columns j; those along y the rows of all matrices, m * rows + i. Of the other triangle nothing
    is read.

    Args:
        x: (matrices, rows, columns).
        sign: 1 for lower triangles, -1 for upper ones.
        diagonal: `sign` times the last diagonal kept: 0 the main one, 1 the one beyond it.
        out: (matrices, rows, columns).
    """
    j = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    row = (cuda.blockIdx.z * cuda.gridDim.y + cuda.blockIdx.y) * cuda.blockDim.y + cuda.threadIdx.y
    if j < x.shape[2] and row < x.shape[0] * x.shape[1]:
        m = row // x.shape[1]
        i = row % x.shape[1]
        if sign * (j - i) <= diagonal:
            out[m, i, j] = x[m, i, j]
        else:
            out[m, i, j] = 0
