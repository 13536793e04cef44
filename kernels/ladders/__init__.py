"""Ladders: one result in several kernels, from the naive one to the fast one. Read each file from top to bottom.

    transpose     naive, tiles in shared memory, padded tiles
    matmul        naive, tiles in shared memory, 8 x 2 outputs in registers, 8 x 8
    convolution   straight from the formula, im2col in shared memory, implicit GEMM
    layer_norm    a thread a row, trees in shared memory, a warp a row, a row in shared memory
    reduction     an atomic a number, trees (divergent, strided, sequential, two reads a thread), shuffles, one launch
                  with a barrier for the whole grid
    softmax       three passes, exponentials kept, two passes (online)
    pooling       straight from the formula, tiles in shared memory, rows first and then columns

What a kernel costs on a GPU is first of all what it reads from global memory and writes there: each file counts it for
an element, and `python -m miniflow.kernels.ladders` counts it by running the kernels with `profile=True`. That needs no
GPU; where there is one, set MINIFLOW_CUDA=host. The counts are those of blocks that lie inside of the arrays: on the
last row and column of blocks they differ a little. The last word has a GPU's clock: `python -m benchmarks gpu`.

Next comes occupancy: how many threads a multiprocessor has at a time, to work while others wait for memory. It has
65,536 registers and 64 to 228 KB of shared memory for up to 2,048 threads, so that a thread may use 32 registers, and a
block of 256 threads 8 to 28 KB, where all are to fit. Each file says where that decides.

Each file begins with the rungs that only stand here, to be read; those that the library runs are imported from
`miniflow.kernels`, and explained there. `rungs(...)` launches nothing: it says how to launch each rung on given arrays.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from miniflow.hostcuda import cuda


class Rung(NamedTuple):
    """A kernel and a launch of it: `kernel[grid, block, 0, shared](*arguments)` computes `result`.

    Attributes:
        kernel: of `cuda.jit`.
        grid, block: numbers of blocks, and of threads in each.
        arguments: NumPy arrays, numbers and tuples.
        result: the one of the arguments to look at, filled with NaN or zeros before.
        shared: bytes of dynamic shared memory.
    """

    kernel: Any
    grid: Any
    block: Any
    arguments: list
    result: np.ndarray
    shared: int = 0

    def run(self) -> np.ndarray:
        """Copy the arrays to the device, launch the kernel there, copy them back; the result."""
        placed = [cuda.to_device(a) if isinstance(a, np.ndarray) else a for a in self.arguments]
        self.kernel[self.grid, self.block, 0, self.shared](*placed)
        for place, argument in zip(placed, self.arguments, strict=True):
            if isinstance(argument, np.ndarray):
                place.copy_to_host(argument)
        return self.result


def blocks(count: int, side: int) -> int:
    """How many blocks of `side` cover `count`.

    >>> blocks(65, side=16)
    5
    """
    return -(-count // side)
