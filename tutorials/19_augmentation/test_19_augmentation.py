"""The checks of lesson 19. NumPy and the papers' formulas are the oracle; random draws are counted."""

import math

import numpy as np
import pytest

import miniflow as flow
from tutorials import drawn, refused, same

SIZES = [(5, 7), (1, 4), (8, 3)]  # height and width
MAY_NOT_CALL = {
    "19.1": ["interpolate", "resize"],
    "19.2": ["grid_sample", "affine_grid", "rotate"],
}


def image_of(rng, height, width, channels=3):
    """Random numbers from 0 to 1."""
    return rng.random((channels, height, width), np.float32)


def looked_up(image, points):
    """The values of an image at points (y, x), each a mean of the pixels near it: (channels, points), float32."""
    _, height, width = image.shape
    values = []
    for y, x in points:
        y, x = min(max(y, 0.0), height - 1.0), min(max(x, 0.0), width - 1.0)
        # a pixel that is less than 1 away in both directions counts by how near it is
        weight = np.outer(1 - abs(np.arange(height) - y), 1 - abs(np.arange(width) - x))
        near = np.outer(abs(np.arange(height) - y) < 1, abs(np.arange(width) - x) < 1)
        values.append((image * weight * near).sum((1, 2)))
    return np.float32(values).T


def unchanged(before, after, what):
    """An argument stays as it is."""
    same(after, before, f"{what} after the call", "arguments stay as they are: work on a copy")


@pytest.mark.task("19.1")
@pytest.mark.parametrize("size", SIZES)
def test_bilinear(impl, rng, size):
    image = image_of(rng, *size, channels=2)
    kept, (height, width) = image.copy(), size
    y, x = rng.uniform(0, height - 1, (4, 6)), rng.uniform(0, width - 1, (4, 6))
    y[0], x[0] = rng.integers(0, height, 6), rng.integers(0, width, 6)  # on pixels
    y[1, :3], x[1, 3:] = rng.integers(0, height, 3), rng.integers(0, width, 3)
    y[2], x[2] = rng.uniform(-3, height + 3, 6), rng.uniform(-3, width + 3, 6)
    y[3, :4], x[3, :4] = [0, 0, height - 1, height - 1], [0, width - 1, 0, width - 1]
    places = {
        "on pixels": 0, "between pixels": 1, "in and around the image": 2, "in the corners, and between pixels": 3,
    }  # fmt: skip
    hints = ["pixel (2, 5) is at y = 2, x = 5", "the four weights have the sum 1, and a nearer pixel counts more",
             "outside, the nearest point inside counts", "the last pixel has no neighbour behind it"]  # fmt: skip
    for where, row in places.items():
        points = list(zip(y[row].tolist(), x[row].tolist()))
        what = f"bilinear(image of shape {image.shape}, y, x) {where}, {np.round(points, 2).tolist()}"
        same(impl.bilinear(image, y[row], x[row]), looked_up(kept, points), what, hints[row])
    got = impl.bilinear(image, y, x)
    wanted = looked_up(kept, zip(y.ravel(), x.ravel())).reshape(2, 4, 6)
    same(got, wanted, f"bilinear(image of shape {image.shape}, y and x of shape (4, 6))", "(channels, 4, 6)")
    unchanged(kept, image, "the image")


@pytest.mark.task("19.1")
@pytest.mark.parametrize("size", SIZES)
def test_resized(impl, rng, size):
    image = image_of(rng, *size)
    hint = "the center of pixel k is k + 1/2 behind the edge"
    for height, width in [(4, 9), (7, 2), (1, 1), (2 * size[0], 3 * size[1]), size]:
        points = [
            ((i + 0.5) / height * size[0] - 0.5, (j + 0.5) / width * size[1] - 0.5)
            for i, j in np.ndindex(height, width)
        ]
        wanted = looked_up(image, points).reshape(3, height, width)
        same(impl.resized(image, height, width), wanted, f"resized(image of {size}, {height}, {width})", hint)


@pytest.mark.task("19.2")
@pytest.mark.parametrize("size", [(5, 8), (6, 6)])
def test_rotated(impl, rng, size):
    image, (height, width) = image_of(rng, *size), size
    kept, center = image.copy(), complex((width - 1) / 2, (height - 1) / 2)
    same(impl.rotated(image, 0.0), kept, f"rotated(image of {size}, 0)", "the same image")
    for angle, scale in [(math.pi / 2, 1.0), *zip(rng.uniform(0.3, 2.8, 3).tolist(), rng.uniform(0.6, 2, 3).tolist())]:
        # right + i down: rows count downwards, so counterclockwise is a negative angle
        back = 1 / (scale * np.exp(-1j * angle))
        points = [center + (complex(x, y) - center) * back for y, x in np.ndindex(height, width)]
        wanted = looked_up(kept, [(p.imag, p.real) for p in points]).reshape(kept.shape)
        what = f"rotated(image of {size}, {angle:.3f}, {scale:.3f})"
        hint = "for each new pixel, find where it comes from: backwards, clockwise and 1 / scale as far from the center"
        same(impl.rotated(image, angle, scale), wanted, what, hint, atol=1e-5)
    if height == width:
        hint = "a quarter counterclockwise: what was on the right is at the top"
        same(impl.rotated(image, math.pi / 2), np.rot90(kept, axes=(1, 2)), "rotated(image, pi / 2)", hint, atol=1e-5)
    unchanged(kept, image, "the image")


def boxes_of(impl, seed, count, *arguments, **options):
    """Boxes, as an array (count, 4)."""
    rng, boxes = np.random.default_rng(seed), []
    for _ in range(count):
        box = impl.crop_box(rng, *arguments, **options)
        what = f"the types of crop_box{arguments}, got {box!r}"
        same(type(box) is tuple and [type(side) for side in box], [int] * 4, what, "a tuple of ints")
        boxes.append(box)
    return np.array(boxes)


def evenly(numbers, low, high, what, hint):
    """Fail if random numbers are not about equally often in each fifth between two ends."""
    counts = np.histogram((numbers - low) / (high - low), 5, (0, 1))[0]
    spread = 6 * math.sqrt(len(numbers) * 0.16)
    if counts.sum() < 0.99 * len(numbers) or abs(counts - len(numbers) / 5).max() > spread:
        rest = f"between {low:.3f} and {high:.3f}: got {counts.tolist()} in its fifths. Hint: {hint}"
        raise AssertionError(f"{what}: expected about {len(numbers) // 5} of {len(numbers)} in each fifth {rest}")


@pytest.mark.task("19.3")
def test_crops_are_uniform(impl, rng):
    seed, height, width, areas, ratios = int(rng.integers(1000)), 360, 480, (0.02, 0.4), (0.5, 2.0)
    boxes = boxes_of(impl, seed, 1500, height, width, areas, ratios)
    again = boxes_of(impl, seed, 20, height, width, areas, ratios)
    same(again, boxes[:20], f"20 boxes by another generator with seed {seed}", "all random numbers come from rng")
    top, left, h, w = boxes.T
    what = f"1,500 times crop_box(rng, {height}, {width}, {areas}, {ratios})"
    evenly(h * w / (height * width), *areas, f"{what}, the share of the area", "uniform is the area, not the side")
    hint = "draw the logarithm of width / height, so that 1/2 is as likely as 2"
    evenly(np.log(w / h), *np.log(ratios), f"{what}, log(width / height)", hint)
    hint = "from 0 to the last place at which the part fits"
    evenly(top / (height - h), 0, 1, f"{what}, the first row / the last possible one", hint)
    evenly(left / (width - w), 0, 1, f"{what}, the first column / the last possible one", hint)


@pytest.mark.task("19.3")
@pytest.mark.parametrize("height, width", [(4, 20), (20, 4)])
def test_places_of_crops(impl, rng, height, width):
    what = f"1,020 times crop_box(rng, {height}, {width}, (0.2, 0.2), (1, 1))"
    boxes = boxes_of(impl, int(rng.integers(1000)), 1020, height, width, (0.2, 0.2), (1, 1))
    hint = "the image has 80 pixels: a part as high or as wide as the image fits"
    same(np.unique(boxes[:, 2:], axis=0), np.array([[4, 4]]), f"the sizes in {what}", hint)
    counts = np.bincount(boxes[:, :2].max(1), minlength=17)
    same(len(counts), 17, f"the last place in {what}, plus 1", "the part is within the image")
    # 60 expected for each, with a deviation below 8
    if counts.min() < 15 or counts.max() > 120:
        raise AssertionError(f"{what}: expected each of 17 places about 60 times, got {counts.tolist()}")


@pytest.mark.task("19.3")
def test_crops_fit(impl, rng):
    boxes = boxes_of(impl, int(rng.integers(1000)), 600, 100, 400, (0.1, 0.5), (0.25, 4.0))
    (top, left, h, w), what = boxes.T, "600 times crop_box(rng, 100, 400, (0.1, 0.5), (1/4, 4))"
    whole = (h == 100) & (w == 400)
    same(int(whole.sum()) < 20, True, f"whether fewer than 20 are the whole image in {what}", "first, draw again")
    inside = (top >= 0) & (left >= 0) & (top + h <= 100) & (left + w <= 400)
    same(bool(inside.all()), True, f"whether all are inside of the image in {what}")
    area, ratio = (h * w / 40000)[~whole], (w / h)[~whole]
    kept = area.min() > 0.09 and area.max() < 0.51 and ratio.min() > 0.24 and ratio.max() < 4.1
    hint = "a part that is cut to fit has another area and shape: draw again instead"
    same(bool(kept), True, f"whether areas and shapes are within their ends in {what}", hint)


@pytest.mark.task("19.3")
def test_crops_that_do_not_fit(impl, rng):
    boxes = boxes_of(impl, int(rng.integers(1000)), 5, 12, 12, (0.9, 0.9), (2.0, 3.0))
    what, hint = "5 times crop_box(rng, 12, 12, (0.9, 0.9), (2, 3))", "after TRIES parts that do not fit, give up"
    same(boxes, np.array([[0, 0, 12, 12]] * 5), what, hint)


@pytest.mark.task("19.3")
def test_tiny_crops(impl, rng):
    boxes = boxes_of(impl, int(rng.integers(1000)), 200, 3, 5, (0.01, 0.2), (0.5, 2.0))
    what = "200 times crop_box(rng, 3, 5, (0.01, 0.2), (0.5, 2))"
    same(int(boxes[:, 2:].min()), 1, f"the smallest side in {what}", "a side of 0 does not fit, one of 1 does")
    same(bool((boxes[:, 2:].max(0) < 3).all()), True, f"whether all of {what} are small", "draw again")


GREY = np.array([0.299, 0.587, 0.114])


@pytest.mark.task("19.4")
@pytest.mark.parametrize("name", ["brightness", "contrast", "saturation"])
@pytest.mark.parametrize("size", [(4, 5), (1, 3)])
def test_colours(impl, rng, name, size):
    image = image_of(rng, *size)
    kept, brightnesses = image.copy(), np.einsum("c,cyx->yx", GREY, image.astype(float))
    others = {"brightness": 0, "contrast": brightnesses.mean(), "saturation": brightnesses}
    for factor in (0.0, 1.0, *rng.uniform(0.2, 0.8, 2).tolist(), *rng.uniform(1.5, 3, 2).tolist()):
        wanted = others[name] + factor * (kept - others[name])
        wanted = np.where(wanted < 0, 0, np.where(wanted > 1, 1, wanted)).astype(np.float32)
        hint = {
            "brightness": "what is below 0 or above 1 is cut off",
            "contrast": "the other one is a single number, the mean over all pixels",
            "saturation": "the other one has a brightness for each pixel, the same in all channels",
        }[name]
        same(getattr(impl, name)(image, factor), wanted, f"{name}(image of {size}, {factor:.3f})", hint)
    unchanged(kept, image, "the image")


@pytest.mark.task("19.5")
@pytest.mark.parametrize("classes", [2, 5])
def test_soft_targets(impl, rng, classes):
    labels = np.append(rng.integers(0, classes, 6), [0, classes - 1])
    for smoothing in (0.0, 0.1, float(rng.uniform(0.2, 0.9)), 1.0):
        wanted = np.full((8, classes), smoothing / classes)
        for row, label in enumerate(labels):
            wanted[row, label] = 1 - smoothing * (classes - 1) / classes
        what = f"soft_targets({labels.tolist()}, {classes}, {smoothing:.3f})"
        hint = "the uniform distribution gives a part to the right class too"
        same(impl.soft_targets(labels, classes, smoothing), wanted.astype(np.float32), what, hint)
    for label in (-1, classes):
        what, bad = f"soft_targets([0, 1, {label}], {classes})", np.array([0, 1, label])
        refused(lambda: impl.soft_targets(bad, classes), ValueError, what, f"{label}", f"0 to {classes - 1}")  # noqa: B023


@pytest.mark.task("19.5")
def test_soft_cross_entropy(impl, rng):
    for rows, classes, size in [(4, 3, 1), (1, 5, 3), (6, 2, 3000)]:
        values, targets = size * drawn(rng, rows, classes, dtype=float), rng.dirichlet(np.ones(classes), rows)
        logs = values - np.logaddexp.reduce(values, axis=1, keepdims=True)
        logits = flow.tensor(values, requires_grad=True)
        got = impl.soft_cross_entropy(logits, flow.tensor(targets))
        what = f"soft_cross_entropy(logits ({rows}, {classes}) up to {size}, targets)"
        hint = "subtract the largest logit first, or use log_softmax: exp overflows"
        same(got, np.array(-(targets * logs).sum() / rows), what, hint if size > 99 else "the mean over rows, of sums")
        (got * 2).backward()
        same(logits.grad, 2 * (np.exp(logs) - targets) / rows, f"the gradient of 2 * {what}", "it comes from tensors")


@pytest.mark.task("19.6")
@pytest.mark.parametrize("count", [1, 6])
def test_mixup(impl, rng, count):
    images, targets = drawn(rng, count, 3, 4, 5), drawn(rng, count, 4)
    kept, order = (images.copy(), targets.copy()), rng.permutation(count)
    for share in (0.0, 1.0, float(rng.uniform(0.1, 0.4))):
        got = impl.mixup(images, targets, order, share)
        same(len(got), 2, "the number of results of mixup", "images and targets")
        for found, old, name in zip(got, kept, ("images", "targets")):
            wanted = np.stack([share * old[n] + (1 - share) * old[order[n]] for n in range(count)])
            what = f"the {name} of mixup(images, targets, {order.tolist()}, {share:.3f})"
            hint = "share belongs to the image itself, 1 - share to its partner"
            same(found, wanted.astype(np.float32), what, hint)
    for old, new, name in zip(kept, (images, targets), ("images", "targets")):
        unchanged(old, new, f"the {name}")


def pasted(height, width, share, y, x):
    """The pixels of the box of CutMix: (height, width) of bool."""
    h, w = (int(side * math.sqrt(1 - share)) for side in (height, width))
    rows, columns = np.arange(height) - (y - h // 2), np.arange(width) - (x - w // 2)
    return np.outer((rows >= 0) & (rows < h), (columns >= 0) & (columns < w))


@pytest.mark.task("19.6")
@pytest.mark.parametrize("size", [(9, 7), (6, 11)])
def test_cut_box(impl, rng, size):
    corners = [(0, 0), (size[0] - 1, size[1] - 1), (0, size[1] - 1)]
    for share in (0.0, 0.02, *rng.uniform(0.1, 0.9, 4).tolist()):
        for y, x in [*corners, *zip(rng.integers(0, size[0], 4).tolist(), rng.integers(0, size[1], 4).tolist())]:
            what = f"cut_box({size[0]}, {size[1]}, {share:.3f}, {y}, {x})"
            rows, columns = (np.flatnonzero(pasted(*size, share, y, x).any(axis)) for axis in (1, 0))
            wanted = (int(rows[0]), int(columns[0]), int(rows[-1]) + 1, int(columns[-1]) + 1)
            hint = "the sides are those of the image times sqrt(1 - share); cut off what is outside, nothing else"
            same(impl.cut_box(*size, share, y, x), wanted, what, hint)
    top, left, bottom, right = impl.cut_box(*size, 1.0, 3, 2)
    same((bottom - top) * (right - left), 0, f"the area of cut_box({size[0]}, {size[1]}, 1.0, 3, 2)", "an empty box")


@pytest.mark.task("19.6")
@pytest.mark.parametrize("size", [(9, 7), (6, 11)])
def test_cutmix(impl, rng, size):
    images, targets = drawn(rng, 5, 3, *size), rng.dirichlet(np.ones(4), 5).astype(np.float32)
    kept, order = (images.copy(), targets.copy()), rng.permutation(5)
    for share in (0.0, 1.0, *rng.uniform(0.1, 0.9, 4).tolist()):
        for y, x in [(0, 0), (size[0] - 1, size[1] - 1), (4, 3)]:
            box = pasted(*size, share, y, x)
            got = impl.cutmix(images, targets, order, share, y, x)
            what = f"cutmix(images of {size}, targets, {order.tolist()}, {share:.3f}, {y}, {x})"
            hint = "each image shows the part of its partner in the box, and itself around it"
            same(got[0], np.where(box, kept[0][order], kept[0]), f"the images of {what}", hint)
            part = box.sum() / box.size
            wanted = (1 - part) * kept[1] + part * kept[1][order]
            hint = "count the pixels that were pasted: a box at the border is smaller than 1 - share says"
            same(got[1], wanted.astype(np.float32), f"the targets of {what}", hint)
    for old, new, name in zip(kept, (images, targets), ("images", "targets")):
        unchanged(old, new, f"the {name}")


@pytest.mark.task("19.7")
@pytest.mark.parametrize("size", [(3, 4), (1, 2)])
def test_class_activation_map(impl, rng, size):
    features, weight, bias = drawn(rng, 6, *size), drawn(rng, 5, 6), drawn(rng, 5)
    for label in (0, 4, int(rng.integers(1, 4))):
        what = f"class_activation_map(features of {features.shape}, weight of {weight.shape}, {label})"
        got = impl.class_activation_map(features, weight, label)
        wanted = sum(np.float64(weight[label, c]) * features[c] for c in range(6)).astype(np.float32)
        same(got, wanted, what, "each channel counts by its weight for this class", atol=1e-5)
        logit = features.mean((1, 2), dtype=float) @ weight[label] + bias[label]
        same(float(np.mean(got) + bias[label]), float(logit), f"mean + bias of {what}", "it is the logit", atol=1e-5)


@pytest.mark.task("19.7")
@pytest.mark.parametrize("count", [60, 1, 0])
def test_confusion_matrix(impl, rng, count):
    classes = 4
    labels, answers = rng.integers(0, classes, count), np.minimum(rng.integers(0, classes + 2, count), classes - 1)
    wanted = np.array([[int(((labels == k) & (answers == j)).sum()) for j in range(classes)] for k in range(classes)])
    hint = "a pair that comes n times counts n times; the class gives the row, the answer the column"
    what = f"confusion_matrix({labels[:9].tolist()}..., {answers[:9].tolist()}..., {classes})"
    same(impl.confusion_matrix(labels, answers, classes), wanted, what, hint)
