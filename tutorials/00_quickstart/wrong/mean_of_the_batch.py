"""One mean and one deviation for the whole batch: an image depends on the others beside it.

rejected by: test_normalize
message: each image has a mean and a deviation of its own
"""


def normalize(images):
    centred = images - images.mean()
    return centred / (centred.square().mean().sqrt() + 1e-6)
