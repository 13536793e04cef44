"""Makes a side that is too long as long as the image: area and shape are other ones than those that were drawn.

rejected by: test_crops_fit
message: a part that is cut to fit has another area and shape
"""


def crop_box(rng, height, width, areas=(0.5, 1.0), ratios=(3 / 4, 4 / 3)):
    area, ratio = rng.uniform(*areas) * height * width, math.exp(rng.uniform(*np.log(ratios)))
    h = min(height, max(1, round(math.sqrt(area / ratio))))
    w = min(width, max(1, round(math.sqrt(area * ratio))))
    return int(rng.integers(height - h + 1)), int(rng.integers(width - w + 1)), h, w
