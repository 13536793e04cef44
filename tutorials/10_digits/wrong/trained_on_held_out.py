"""All images are trained on, the held-out ones too.

rejected by: test_split
message: the sizes of split
"""


def split(images, labels, count, seed, transform=None):
    held_out = np.random.default_rng(seed).permutation(len(labels))[:count]
    return Digits(images, labels, transform), Digits(images[held_out], labels[held_out])
