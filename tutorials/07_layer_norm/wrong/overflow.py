"""Subtracts nothing before the exponential.

rejected by: test_softmax
message: subtract the largest element first
"""


@cuda.jit
def softmax(x, out):
    lane, row = cuda.threadIdx.x, cuda.blockIdx.x * WARPS + cuda.threadIdx.y
    if row < x.shape[0]:
        total = np.float32(0)
        for j in range(lane, x.shape[1], 32):
            total += math.exp(x[row, j])
        total = warp_sum(total)
        for j in range(lane, x.shape[1], 32):
            out[row, j] = np.float32(math.exp(x[row, j])) / np.float32(total)
