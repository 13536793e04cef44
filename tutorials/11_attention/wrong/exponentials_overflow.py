"""Softmax as on paper: the exponentials of large scores overflow.

rejected by: test_attention
message: the scores minus their largest
"""


def attention(q, k, v, causal=False):
    weights = np.exp(scores(q, k, k.shape[-2] - q.shape[-2] if causal else None))
    total = weights.sum(-1, keepdims=True)
    return weights / total @ v, np.log(total)[..., 0]
