"""The sum of all rows, not their mean: a larger batch takes larger steps.

rejected by: test_cross_entropy
message: Hint: the mean of rows
"""


def cross_entropy(logits, labels):
    shifted = logits - logits.amax(dim=1, keepdim=True)
    chosen = shifted.gather(1, labels.unsqueeze(1)).squeeze(1)
    return (shifted.exp().sum(dim=1).log() - chosen).sum()
