"""No barrier between the steps of the tree.

rejected by: test_tree_sum
message: race:
"""


@cuda.jit(device=True)
def tree_sum(values, size):
    t = cuda.threadIdx.x
    for _ in range(STEPS):
        half = (size + 1) // 2
        if t < size - half:
            values[t] += values[t + half]
        size = half
    cuda.syncthreads()
