"""Augmentation. Fill in what raises Todo, then run: python -m tutorials check 19

An image is a NumPy array of float32, (channels, height, width), here with 3 channels and numbers from 0 to 1. None of
the functions changes its arguments.
"""

import math

import numpy as np

from tutorials import Todo  # noqa: F401

TRIES = 10  # of `crop_box`


def bilinear(image, y, x):
    """The values of an image at points between its pixels.

    Pixel (2, 5) is at y = 2, x = 5. A point between four pixels gets their mean, in which a nearer pixel counts more. A
    point outside gets the value of the nearest point inside, where 0 <= y <= height - 1 and 0 <= x <= width - 1.

    Args:
        image: (channels, height, width), of one pixel or more.
        y, x: arrays of floats, both of the same shape: the rows and the columns of the points.

    Returns:
        an array of float32, (channels, *shape of y).
    """
    # task 19.1: bilinear interpolation
    height, width = image.shape[1:]
    y, x = np.clip(y, 0, height - 1), np.clip(x, 0, width - 1)
    top, left = np.floor(y).astype(int), np.floor(x).astype(int)
    bottom, right = np.minimum(top + 1, height - 1), np.minimum(left + 1, width - 1)
    down, across = np.float32(y - top), np.float32(x - left)
    above = image[:, top, left] * (1 - across) + image[:, top, right] * across
    below = image[:, bottom, left] * (1 - across) + image[:, bottom, right] * across
    return above * (1 - down) + below * down
    # end


def resized(image, height, width):
    """A whole image in another size: an array of float32, (channels, height, width).

    Pixels are squares, and the edges of the new image lie on those of the old one.
    """
    # task 19.1: bilinear interpolation
    y = (np.arange(height) + 0.5) * image.shape[1] / height - 0.5
    x = (np.arange(width) + 0.5) * image.shape[2] / width - 0.5
    return bilinear(image, *np.meshgrid(y, x, indexing="ij"))
    # end


def rotated(image, angle, scale=1.0):
    """An image of the same size, which shows the old one rotated about its center, and enlarged.

    Args:
        image: an image.
        angle: in radians, counterclockwise.
        scale: 2 shows everything twice as large.
    """
    # task 19.2: rotation
    height, width = image.shape[1:]
    center = (height - 1) / 2, (width - 1) / 2
    down, right = np.mgrid[:height, :width].astype(float) - np.reshape(center, (2, 1, 1))
    cos, sin = math.cos(angle) / scale, math.sin(angle) / scale
    return bilinear(image, center[0] + cos * down + sin * right, center[1] - sin * down + cos * right)
    # end


def crop_box(rng, height, width, areas=(0.5, 1.0), ratios=(3 / 4, 4 / 3)):
    """A random part of an image.

    Its share of the image's area is uniform, and so is the logarithm of its width / height. The sides that follow are
    rounded to integers. If the part does not fit into the image, or if a side is 0, both are drawn again; if `TRIES`
    such parts do not fit, it is the whole image. A part that fits is at each possible place equally likely.

    Args:
        rng: a generator, such as `np.random.default_rng(0)`.
        height, width: of the image.
        areas: the smallest share of the area and the largest one.
        ratios: the smallest width / height and the largest one.

    Returns:
        a tuple of ints: the first row, the first column, height and width.
    """
    # task 19.3: random resized crops
    for _ in range(TRIES):
        area = rng.uniform(*areas) * height * width
        ratio = math.exp(rng.uniform(*np.log(ratios)))
        h, w = round(math.sqrt(area / ratio)), round(math.sqrt(area * ratio))
        if 0 < h <= height and 0 < w <= width:
            return int(rng.integers(height - h + 1)), int(rng.integers(width - w + 1)), h, w
    return 0, 0, height, width
    # end


def grey(image):
    """The brightness of each pixel, as the eye sees it: (1, height, width). Given."""
    return np.tensordot(np.float32([[0.299, 0.587, 0.114]]), image, 1)


def brightness(image, factor):
    """A blend with black, see `blend`."""
    return blend(image, np.float32(0), factor)


def contrast(image, factor):
    """A blend with one grey: the mean brightness of the whole image."""
    # task 19.4: colours
    return blend(image, grey(image).mean(), factor)
    # end


def saturation(image, factor):
    """A blend with the same image in grey: the brightness of each pixel."""
    # task 19.4: colours
    return blend(image, grey(image), factor)
    # end


def blend(image, other, factor):
    """factor * image + (1 - factor) * other, of float32, and what is below 0 or above 1 becomes 0 or 1.

    The factor is a float: 0 gives the other one, 1 the image, and 1.5 goes on beyond the image.
    """
    # task 19.4: colours
    return np.float32(np.clip(factor * image + (1 - factor) * other, 0, 1))
    # end


def soft_targets(labels, classes, smoothing=0.0):
    """A distribution for each label: (N, classes) of float32, each row with the sum 1.

    It is (1 - smoothing) times that of a sure answer, plus smoothing times the uniform one.

    Args:
        labels: a NumPy array of int64, (N,).
        classes: how many there are.
        smoothing: a float from 0 to 1.

    Raises:
        ValueError: for a label that is not from 0 to classes - 1. It says which. NumPy takes -1 for the last class.
    """
    # task 19.5: soft targets
    wrong = labels[(labels < 0) | (labels >= classes)]
    if len(wrong):
        raise ValueError(f"label {wrong[0]}; expected 0 to {classes - 1}")
    return np.float32((1 - smoothing) * np.eye(classes)[labels] + smoothing / classes)
    # end


def soft_cross_entropy(logits, targets):
    """The mean over all rows of - sum over k of targets[k] log softmax(logits)[k]: a tensor without dimensions.

    Large logits do not overflow.

    Args:
        logits, targets: tensors, (N, classes). Gradients flow to the logits.
    """
    # task 19.5: soft targets
    return -(targets * logits.log_softmax(dim=1)).sum(dim=1).mean()
    # end


def mixup(images, targets, order, share):
    """share * each image + (1 - share) * its partner, image `order[n]` for image n; and the targets mixed likewise.

    Args:
        images: (N, channels, height, width).
        targets: (N, classes).
        order: the numbers of the partners, a NumPy array of int64, (N,).
        share: a float from 0 to 1.

    Returns:
        a tuple of two arrays of float32.
    """
    # task 19.6: mixing images
    share = np.float32(share)
    return share * images + (1 - share) * images[order], share * targets + (1 - share) * targets[order]
    # end


def cut_box(height, width, share, y, x):
    """The part of an image in which CutMix shows the partner.

    Its height is int(height * sqrt(1 - share)), and its width likewise. Half of it, rounded down, is above y and to the
    left of x. Then what is outside of the image is cut off.

    Returns:
        a tuple of ints: the first row and the first column, and the row and the column behind the last ones.
    """
    # task 19.6: mixing images
    h, w = int(height * math.sqrt(1 - share)), int(width * math.sqrt(1 - share))
    top, left = y - h // 2, x - w // 2
    return max(top, 0), max(left, 0), min(top + h, height), min(left + w, width)
    # end


def cutmix(images, targets, order, share, y, x):
    """Images that show their partners in `cut_box`. Targets are mixed by the areas that really are in the result.

    Arguments and results are those of `mixup`; (y, x) is a pixel.
    """
    # task 19.6: mixing images
    height, width = images.shape[2:]
    top, left, bottom, right = cut_box(height, width, share, y, x)
    mixed = images.copy()
    mixed[:, :, top:bottom, left:right] = images[order, :, top:bottom, left:right]
    share = np.float32(1 - (bottom - top) * (right - left) / (height * width))
    return mixed, share * targets + (1 - share) * targets[order]
    # end


def class_activation_map(features, weight, label):
    """How much each place adds to the logit of a class: (height, width).

    Args:
        features: what the last convolution gives for one image, (channels, height, width).
        weight: of the linear layer, (classes, channels).
        label: the class, an int.
    """
    # task 19.7: what the network looks at
    return np.tensordot(weight[label], features, 1)
    # end


def confusion_matrix(labels, answers, classes):
    """How often class k got the answer j, at [k, j]: an array of int64, (classes, classes).

    Args:
        labels, answers: NumPy arrays of int64, (N,).
        classes: how many there are.
    """
    # task 19.7: what the network looks at
    matrix = np.zeros((classes, classes), np.int64)
    np.add.at(matrix, (labels, answers), 1)
    return matrix
    # end
