"""A fast thread overwrites the tiles that slower threads still read.

rejected by: test_matmul
message: race:
"""


@cuda.jit
def matmul(a, b, out):
    left = cuda.shared.array((TILE, TILE), np.float32)
    right = cuda.shared.array((TILE, TILE), np.float32)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    j, i = cuda.grid(2)
    total = np.float32(0)
    for start in range(0, a.shape[1], TILE):
        left[y, x] = a[i, start + x] if i < a.shape[0] and start + x < a.shape[1] else 0
        right[y, x] = b[start + y, j] if start + y < a.shape[1] and j < b.shape[1] else 0
        cuda.syncthreads()
        for k in range(TILE):
            total += left[y, k] * right[k, x]
    if i < a.shape[0] and j < b.shape[1]:
        out[i, j] = total
