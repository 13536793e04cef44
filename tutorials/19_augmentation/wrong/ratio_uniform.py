"""Draws the ratio of the sides uniformly: wide parts come more often than high ones.

rejected by: test_crops_are_uniform
message: draw the logarithm of width / height
"""


def crop_box(rng, height, width, areas=(0.5, 1.0), ratios=(3 / 4, 4 / 3)):
    for _ in range(TRIES):
        area, ratio = rng.uniform(*areas) * height * width, rng.uniform(*ratios)
        h, w = round(math.sqrt(area / ratio)), round(math.sqrt(area * ratio))
        if 0 < h <= height and 0 < w <= width:
            return int(rng.integers(height - h + 1)), int(rng.integers(width - w + 1)), h, w
    return 0, 0, height, width
