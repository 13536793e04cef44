"""The held-out digits are augmented too: their accuracy is that of other images, and changes from call to call.

rejected by: test_split
message: they are used as they are
"""


def split(images, labels, count, seed, transform=None):
    order = np.random.default_rng(seed).permutation(len(labels))
    return tuple(Digits(images[part], labels[part], transform) for part in (order[count:], order[:count]))
