"""The barrier stands in the guard: threads without an element never come to it.

rejected by: test_pool
message: move it out of the branch
"""


@cuda.jit
def pool(x, out):
    tile = cuda.shared.array(BLOCK, np.float32)
    i = cuda.threadIdx.x
    if i < x.size:
        tile[i] = x[i]
        cuda.syncthreads()
        total = tile[i]
        if i > 0:
            total += tile[i - 1]
        if i > 1:
            total += tile[i - 2]
        out[i] = total
