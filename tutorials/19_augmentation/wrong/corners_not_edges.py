"""Forgets that the center of a pixel is half a pixel behind its edge: the image moves when it gets another size.

rejected by: test_resized
message: the center of pixel k is k + 1/2 behind the edge
"""


def resized(image, height, width):
    y, x = (np.arange(new) * old / new for new, old in zip((height, width), image.shape[1:]))
    return bilinear(image, *np.meshgrid(y, x, indexing="ij"))
