"""Returns this rank's summand of the gradient of x.

rejected by: test_tensor_parallel
message: which gradient is a sum over the hidden units of all ranks?
"""


def block_backward(comm, x, hidden, w1, w2, gradient):
    back = (gradient @ w2.T) * (hidden > 0)
    return back @ w1.T, x.T @ back, back.sum(0), hidden.T @ gradient, gradient.sum(0)
