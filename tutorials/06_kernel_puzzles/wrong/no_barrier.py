"""Forgets the barrier between writing to shared memory and reading what others wrote.

rejected by: test_reverse
message: race:
"""


@cuda.jit
def reverse(x, out):
    tile = cuda.shared.array(BLOCK, np.float32)
    t = cuda.threadIdx.x
    tile[t] = x[cuda.grid(1)]
    out[cuda.grid(1)] = tile[BLOCK - 1 - t]
