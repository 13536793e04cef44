"""Nothing is added to the deviation: an image of one color becomes NaN.

rejected by: test_normalize_images_of_little_contrast
message: add 1e-6 to the deviation
"""


def normalize(images):
    centred = images - images.mean((1, 2, 3), keepdim=True)
    return centred / centred.square().mean((1, 2, 3), keepdim=True).sqrt()
