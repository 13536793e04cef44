"""Averages over the images.

rejected by: test_parameter_gradients
message: a sum over all images
"""


def parameter_gradients(gradient, x, kernel, stride, padding):
    weight = (flatten(gradient, 2) @ unfold(x, kernel, stride, padding).swapaxes(1, 2)).mean(axis=0)
    return weight.reshape(len(weight), x.shape[1], *kernel), gradient.sum(axis=(2, 3)).mean(axis=0)
