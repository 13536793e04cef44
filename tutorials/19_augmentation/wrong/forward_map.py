"""Asks where each pixel goes to, not where it comes from: the image turns clockwise, and shrinks instead of growing.

rejected by: test_rotated
message: for each new pixel, find where it comes from
"""


def rotated(image, angle, scale=1.0):
    height, width = image.shape[1:]
    y, x = (height - 1) / 2, (width - 1) / 2
    down, right = np.arange(height)[:, None] - y, np.arange(width) - x
    cos, sin = scale * math.cos(angle), scale * math.sin(angle)
    return bilinear(image, y + cos * down - sin * right, x + sin * down + cos * right)
