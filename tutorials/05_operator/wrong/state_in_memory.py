"""Reads y[t - 1] from global memory, where it has just been written.

rejected by: test_kernel
message: reads of recurrence_kernel
"""


@cuda.jit
def recurrence_kernel(x, a, y):
    j = cuda.grid(1)
    if j < y.shape[1]:
        for t in range(y.shape[0]):
            if t == 0:
                y[t, j] = x[t, j]
            else:
                y[t, j] = a[t, j] * y[t - 1, j] + x[t, j]
