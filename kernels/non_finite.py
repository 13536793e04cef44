"""Loss scaling: products with a number, and whether any element of several arrays is inf or nan.

These are the ones whose exponent bits are all set.

    blocks starts[k] .. starts[k + 1] - 1 of the grid  ->  array k
    thread t of block b of those                       ->  words b * WORDS * THREADS + t, then every THREADS-th: WORDS

Every word is read once, a warp reads neighbours. Only threads that find something write: in an atomic maximum, so that
it does not matter how many do. Floats come as the unsigned integers that their bits are, so that half precision, of
which CUDA's compilers know little, is as good as any.
"""

from __future__ import annotations

from miniflow.hostcuda import cuda
from miniflow.kernels.together import array_and_block

THREADS = 256
WORDS = 16  # read by each thread


@cuda.jit
def any_with_all_bits(starts, arrays, mask, found):
    """found[0] = 1 if all bits of `mask` are set in any word; else it stays as it is.

    Args:
        starts: the first block of every array, and the number of all blocks.
        arrays: tuple of 1-D arrays of one unsigned dtype.
        mask: of that dtype.
        found: (1,) int32.
    """
    k, block = array_and_block(starts)
    words = arrays[k]
    first = block * cuda.blockDim.x * WORDS + cuda.threadIdx.x
    hit = 0
    for j in range(WORDS):
        i = first + j * cuda.blockDim.x
        if i < words.size and words[i] & mask == mask:
            hit = 1
    if hit != 0:
        cuda.atomic.max(found, 0, 1)
