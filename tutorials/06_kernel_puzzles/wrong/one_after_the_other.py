"""Thread 0 does all the work: right, but in 32 steps.

rejected by: test_prefix_sum
message: turns at shared memory: expected at most
"""


@cuda.jit
def prefix_sum(x, out):
    sums = cuda.shared.array(BLOCK, np.float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    sums[t] = x[i] if i < x.size else 0
    cuda.syncthreads()
    if t == 0:
        for k in range(1, BLOCK):
            sums[k] += sums[k - 1]
    cuda.syncthreads()
    if i < x.size:
        out[i] = sums[t]
