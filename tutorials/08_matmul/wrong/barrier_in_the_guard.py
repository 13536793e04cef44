"""Only threads with an output come to the barriers.

rejected by: test_tiled
message: a barrier stands where all threads of the block pass
"""


@cuda.jit
def tiled(a, b, c):
    a_tile = cuda.shared.array((TILE, TILE), np.float32)
    b_tile = cuda.shared.array((TILE, TILE), np.float32)
    column, row = cuda.grid(2)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    if row < c.shape[0] and column < c.shape[1]:
        total = np.float32(0)
        for start in range(0, a.shape[1], TILE):
            a_tile[y, x] = element(a, row, start + x)
            b_tile[y, x] = element(b, start + y, column)
            cuda.syncthreads()
            for k in range(TILE):
                total += a_tile[y, k] * b_tile[k, x]
            cuda.syncthreads()
        c[row, column] = total
