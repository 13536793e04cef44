"""Divides by the temperature after the softmax, which changes nothing: the sum is divided too.

rejected by: test_sample
message: divide by the temperature before the softmax
"""


def sample(logits, temperature, u):
    if temperature == 0:
        return int(logits.argmax())
    weights = np.exp((logits - logits.max()).astype(np.float64)) / temperature
    sums = np.cumsum(weights)
    return int(np.searchsorted(sums, u * sums[-1], side="right"))
