"""Takes mean and rstd for constants: their own gradients are missing.

rejected by: test_layer_norm_grad
message: mean and rstd depend on x, too
"""


@cuda.jit
def layer_norm_grad(dy, x, weight, mean, rstd, dx):
    lane, row = cuda.threadIdx.x, cuda.blockIdx.x * WARPS + cuda.threadIdx.y
    if row < x.shape[0]:
        for j in range(lane, x.shape[1], 32):
            dx[row, j] = dy[row, j] * weight[j] * rstd[row]
