"""Forgets that exp(-inf - -inf) is NaN: wrong where a lane begins with masked elements.

rejected by: test_softmax
message: masked elements: expected
"""


@cuda.jit
def softmax(x, out):
    lane, row = cuda.threadIdx.x, cuda.blockIdx.x * WARPS + cuda.threadIdx.y
    if row < x.shape[0]:
        largest, total = np.float32(-math.inf), np.float32(0)
        for j in range(lane, x.shape[1], 32):
            value = x[row, j]
            new = max(largest, value)
            total = total * math.exp(largest - new) + math.exp(value - new)
            largest = new
        top = warp_max(largest)
        total = warp_sum(total * math.exp(largest - top))
        for j in range(lane, x.shape[1], 32):
            out[row, j] = math.exp(x[row, j] - top) / total
