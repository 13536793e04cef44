"""Does not multiply what was added up before by exp(old largest - new largest).

rejected by: test_update
message: what was added up before has to be multiplied
"""


def update(largest, total, summed, x, v):
    new = np.maximum(largest, x.max(-1))
    weights = np.exp(x - np.where(new == -np.inf, 0, new)[:, None])
    return new, total + weights.sum(-1), summed + weights @ v
