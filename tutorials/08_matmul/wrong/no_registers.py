"""Reads both tiles for every product, so that only global memory is read less.

rejected by: test_blocked
message: reads of shared memory of blocked
"""


@cuda.jit
def blocked(a, b, c):
    a_tile = cuda.shared.array((SIDE, TILE), np.float32)
    b_tile = cuda.shared.array((TILE, SIDE), np.float32)
    totals = cuda.local.array((EACH, EACH), np.float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    column, row = cuda.blockIdx.x * SIDE + x, cuda.blockIdx.y * SIDE + y
    totals[:, :] = 0
    for start in range(0, a.shape[1], TILE):
        for i in range(EACH):
            a_tile[y + i * TILE, x] = element(a, row + i * TILE, start + x)
            b_tile[y, x + i * TILE] = element(b, start + y, column + i * TILE)
        cuda.syncthreads()
        for k in range(TILE):
            for i in range(EACH):
                for j in range(EACH):
                    totals[i, j] += a_tile[y + i * TILE, k] * b_tile[k, x + j * TILE]
        cuda.syncthreads()
    for i in range(EACH):
        for j in range(EACH):
            put(c, row + i * TILE, column + j * TILE, totals[i, j])
