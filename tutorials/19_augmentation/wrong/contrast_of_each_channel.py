"""Blends each channel with its own mean: the image becomes one colour, not one grey.

rejected by: test_colours
message: the other one is a single number
"""


def contrast(image, factor):
    return blend(image, image.mean(axis=(1, 2), keepdims=True), factor)
