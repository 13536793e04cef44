"""The logarithm of softmax as it is written on paper: right, but for large logits.

rejected by: test_cross_entropy_of_large_logits
message: subtract the maximum of each row first
"""


def cross_entropy(logits, labels):
    e = logits.exp()
    chosen = (e / e.sum(dim=1, keepdim=True)).gather(1, labels.unsqueeze(1))
    return -chosen.log().mean()
