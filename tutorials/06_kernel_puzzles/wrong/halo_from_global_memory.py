"""Each thread reads its whole window from global memory.

rejected by: test_convolve
message: reads of global memory: expected at most
"""


@cuda.jit
def convolve(x, weight, out):
    i = cuda.grid(1)
    if i < x.size:
        total = np.float32(0)
        for k in range(TAPS):
            if i + k < x.size:
                total += weight[k] * x[i + k]
        out[i] = total
