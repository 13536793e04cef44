"""Fills no tile: every thread reads global memory for itself.

rejected by: test_tiled
message: reads of global memory of tiled
"""


@cuda.jit
def tiled(a, b, c):
    column, row = cuda.grid(2)
    total = np.float32(0)
    for k in range(a.shape[1]):
        total += element(a, row, k) * element(b, k, column)
    put(c, row, column, total)
