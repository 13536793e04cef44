"""Computes the softmax again in the backward pass: wrong if the keys are only some of those that the queries saw.

rejected by: test_backward
message: o and lse are given: do not compute them from these keys
"""


def attention_backward(q, k, v, o, lse, do, shift=None):
    x = scores(q, k, shift)
    weights = np.exp(x - x.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    dw = do @ np.swapaxes(v, -1, -2)
    ds = weights * (dw - (dw * weights).sum(-1, keepdims=True)) / math.sqrt(q.shape[-1])
    return ds @ k, np.swapaxes(ds, -1, -2) @ q, np.swapaxes(weights, -1, -2) @ do
