"""Multiplies the gradients of weight and bias by what is not normalized.

rejected by: test_parameter_grad
message: the sum of dy * xhat over rows
"""


@cuda.jit
def parameter_grad(dy, x, mean, rstd, dweight, dbias):
    j = cuda.grid(1)
    if j < x.shape[1]:
        product, total = np.float32(0), np.float32(0)
        for r in range(x.shape[0]):
            product += dy[r, j] * x[r, j]
            total += dy[r, j]
        dweight[j] = product
        dbias[j] = total
