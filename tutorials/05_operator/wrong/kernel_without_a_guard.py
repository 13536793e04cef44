"""The threads beyond the last column read and write as well.

rejected by: test_kernel
message: out of bounds
"""


@cuda.jit
def recurrence_kernel(x, a, y):
    j = cuda.grid(1)
    state = x.dtype.type(0)
    for t in range(y.shape[0]):
        state = a[t, j] * state + x[t, j]
        y[t, j] = state
