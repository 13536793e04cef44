"""The gradient of the loss does not depend on that of the result: right only if the loss is what is differentiated.

rejected by: test_loss
message: 3 times the gradient of cross_entropy
"""


def cross_entropy(logits, labels):
    loss = mine.training.cross_entropy(flow.tensor(logits.value), flow.tensor(labels)).item()

    def pull(g):
        powers = np.exp(logits.value - logits.value.max(axis=1, keepdims=True))
        shares = powers / powers.sum(axis=1, keepdims=True)
        return ((shares - np.eye(powers.shape[1])[labels]) / len(labels),)

    return Variable(loss, (logits,), pull)
