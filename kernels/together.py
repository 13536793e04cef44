"""Kernels that take many arrays: blocks starts[k] .. starts[k + 1] - 1 of the grid belong to array k."""

from __future__ import annotations

from miniflow.hostcuda import cuda


@cuda.jit(device=True)
def array_and_block(starts):
    """The array k that a block belongs to, and its number among the blocks of that array."""
    k = 0
    while cuda.blockIdx.x >= starts[k + 1]:
        k += 1
    return k, max(cuda.blockIdx.x - starts[k], 0)
