"""Neighbouring threads have neighbouring rows: right for square matrices, and a sector for each thread.

rejected by: test_neighbours
message: sectors that coalesced moves
"""


@cuda.jit
def coalesced(a, b, c):
    row, column = cuda.grid(2)
    if row < c.shape[0] and column < c.shape[1]:
        total = np.float32(0)
        for k in range(a.shape[1]):
            total += a[row, k] * b[k, column]
        c[row, column] = total
