"""Halves the number of values and forgets the one that is left over.

rejected by: test_tree_sum
message: of an odd number of values
"""


@cuda.jit(device=True)
def tree_sum(values, size):
    t = cuda.threadIdx.x
    for _ in range(STEPS):
        size //= 2
        if t < size:
            values[t] += values[t + size]
        cuda.syncthreads()
