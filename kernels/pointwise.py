"""Where elements lie, for the `spread` loops of `backends/cuda/pointwise`.

Arrays come as their whole memory, 1-D, with steps (offset, s0, s1, s2, s3), and a shape (n0, n1, n2, n3): whatever the
layout, it is the same compiled kernel. A broadcast dimension has step 0. Each block lies in one plane of rows (n2) and
columns (n3), of which there are n0 * n1:

    i0, i1 = divmod(blockIdx.z, n1)
    i2 = blockIdx.y * blockDim.y + threadIdx.y
    i3 = blockIdx.x * blockDim.x + threadIdx.x

The only division is one that all threads of a block share. Neighbouring threads take neighbouring columns, so that a
step s3 = 1 is read coalesced. Nothing is in shared memory.
"""

from __future__ import annotations

import numpy as np

from miniflow.hostcuda import cuda


@cuda.jit(device=True)
def place(i0, i1, i2, i3, steps):
    """Where an element lies. Unsigned: numba counts a negative index from the end, and would test each for its sign."""
    return np.uint64(steps[0] + i0 * steps[1] + i1 * steps[2] + i2 * steps[3] + i3 * steps[4])
