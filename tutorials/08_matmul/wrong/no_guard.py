"""Threads beyond the edge of c write too.

rejected by: test_naive
message: guard it: `if index <
"""


@cuda.jit
def naive(a, b, c):
    i, j = cuda.grid(2)
    total = np.float32(0)
    for k in range(a.shape[1]):
        total += a[i, k] * b[k, j]
    c[i, j] = total
