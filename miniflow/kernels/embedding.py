"""Embedding: rows of a table looked up by integers, and the gradient of the table.

The index picture. The looked-up positions are the rows of a block, the width of the table its columns:

    threadIdx.x  ->  column of the table        threadIdx.y  ->  position p among the indices

A block is as wide as the table, as far as 256 threads go. A thread moves one element of row indices[p]: one index and
one element read, one written; threads of a warp read neighbours, 128 bytes of a float32 row at a time.

The gradient runs the same picture backwards. A word that comes ten times in a batch gets ten rows added to its own, by
ten different blocks: atomics keep every sum right, in an order that may differ from run to run.
"""

from __future__ import annotations

from miniflow.hostcuda import cuda


@cuda.jit
def look_up(weight, indices, out):
    """out[p, j] = weight[indices[p], j].

    Args:
        weight: (table_rows, width).
        indices: (count,), each in [0, table_rows); rows of others are left as they are.
        out: (count, width).
    """
    column = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    p = (cuda.blockIdx.z * cuda.gridDim.y + cuda.blockIdx.y) * cuda.blockDim.y + cuda.threadIdx.y
    if column < out.shape[1] and p < out.shape[0]:
        row = indices[p]
        if row >= 0 and row < weight.shape[0]:
            out[p, column] = weight[row, column]


@cuda.jit
def add_to_table(dy, indices, padding, dweight):
    """dweight[indices[p], j] += dy[p, j] but for the row `padding`; two reads and one atomic addition.

    Args:
        dy: (count, width), the gradient of what was looked up.
        indices: (count,), each in [0, table_rows): others are left out.
        padding: a row that gets no gradient; -1 for none.
        dweight: (table_rows, width), filled with zeros, float32 or float64.
    """
    column = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    p = (cuda.blockIdx.z * cuda.gridDim.y + cuda.blockIdx.y) * cuda.blockDim.y + cuda.threadIdx.y
    if column < dy.shape[1] and p < dy.shape[0]:
        row = indices[p]
        if row >= 0 and row < dweight.shape[0] and row != padding:
            cuda.atomic.add(dweight, (row, column), dy[p, column])
