"""Adds b2 before the all-reduce, so it counts once for each rank.

rejected by: test_tensor_parallel
message: where is b2 added, and how often?
"""


def block_forward(comm, x, w1, b1, w2, b2):
    hidden = np.maximum(x @ w1 + b1, 0)
    return comm.all_reduce(hidden @ w2 + b2), hidden
