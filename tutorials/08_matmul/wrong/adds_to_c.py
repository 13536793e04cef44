"""Adds up in c, which may hold anything before, and reads and writes it in each step.

rejected by: test_naive
message: c, which was NaN
"""


@cuda.jit
def naive(a, b, c):
    i, j = cuda.grid(2)
    if i < c.shape[0] and j < c.shape[1]:
        for k in range(a.shape[1]):
            c[i, j] += a[i, k] * b[k, j]
