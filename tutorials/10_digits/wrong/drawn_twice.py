"""Two draws, one for each part: many images are in both, and some in none.

rejected by: test_split
message: an image in both would be trained on and tested on
"""


def split(images, labels, count, seed, transform=None):
    rng = np.random.default_rng(seed)
    train = rng.permutation(len(labels))[count:]
    held_out = rng.permutation(len(labels))[:count]
    return Digits(images[train], labels[train], transform), Digits(images[held_out], labels[held_out])
