"""The gradient of the sum of the losses, not of their mean.

rejected by: test_loss
message: (softmax - 1 at the label) / rows, times g
"""


def cross_entropy(logits, labels):
    loss = mine.training.cross_entropy(flow.tensor(logits.value), flow.tensor(labels)).item()

    def pull(g):
        powers = np.exp(logits.value - logits.value.max(axis=1, keepdims=True))
        return (g * (powers / powers.sum(axis=1, keepdims=True) - np.eye(powers.shape[1])[labels]),)

    return Variable(loss, (logits,), pull)
