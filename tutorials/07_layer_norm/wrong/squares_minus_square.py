"""The variance as the mean of squares minus the squared mean: it cancels.

rejected by: test_layer_norm
message: elements around 3000
"""


@cuda.jit
def layer_norm(x, weight, bias, eps, y, mean, rstd):
    lane, row = cuda.threadIdx.x, cuda.blockIdx.x * WARPS + cuda.threadIdx.y
    if row < x.shape[0]:
        total, squares = np.float32(0), np.float32(0)
        for j in range(lane, x.shape[1], 32):
            value = x[row, j]
            total += value
            squares += value * value
        center = np.float32(warp_sum(total) / np.float32(x.shape[1]))
        variance = np.float32(warp_sum(squares) / np.float32(x.shape[1]) - center * center)
        scale = np.float32(1 / math.sqrt(max(variance, np.float32(0)) + eps))
        for j in range(lane, x.shape[1], 32):
            y[row, j] = (x[row, j] - center) * scale * weight[j] + bias[j]
        if lane == 0:
            mean[row] = center
            rstd[row] = scale
