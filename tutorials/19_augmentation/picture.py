"""The picture of lesson 19: what augmentation is worth, what the network gets wrong, and where it looks."""

import importlib

import matplotlib.pyplot as plt
import numpy as np

import miniflow as flow

project = importlib.import_module("tutorials.19_augmentation.project")
shapes = project.shapes
HELD_OUT_SEED = 1_000_000  # of images that no training uses


def tiles(part, rows, columns, images, titles=()):
    """Images in rows, below their titles."""
    axes = part.subplots(rows, columns, subplot_kw={"xticks": [], "yticks": []}).flat
    for k, axis in enumerate(axes):
        if k < len(images):
            axis.imshow(images[k].transpose(1, 2, 0), interpolation="nearest")
            axis.set_title(titles[k] if titles else "", fontsize=8)
        else:
            axis.axis("off")


def accuracies(axis, found):
    """Two bars for each training: right answers on its own images, and on held-out ones."""
    for k, name in enumerate(("on the training images", "on held-out images")):
        bars = axis.bar(np.arange(2) + 0.4 * k - 0.2, [row[k] for row in found], 0.38, label=name)
        axis.bar_label(bars, [f"{row[k]:.1%}" for row in found])
    axis.set(xticks=range(2), xticklabels=["without", "with augmentation"], ylim=(0, 1.3), yticks=[0, 0.5, 1])
    axis.set_title("right answers", fontsize=10)
    axis.legend(fontsize=8)


def confusion(axis, matrix):
    """The number of images in each cell, and the diagonal darker for more."""
    axis.imshow(matrix, cmap="Blues")
    for (k, j), count in np.ndenumerate(matrix):
        color = "white" if count > matrix.max() / 2 else "black"
        axis.text(j, k, count, ha="center", va="center", fontsize=8, color=color)
    names = {"ticks": range(len(shapes.CLASSES)), "labels": shapes.CLASSES, "fontsize": 8}
    axis.set_xticks(**names, rotation=30)
    axis.set_yticks(**names)
    axis.set(xlabel="answer", ylabel="class")
    axis.set_title("with augmentation, held-out images", fontsize=10)


def looked_at(impl, model, images, labels):
    """Images in grey, and in red the places that speak for their class."""
    with flow.no_grad():
        features, weight = model[:-3](flow.tensor(images)).numpy(), model[-1].weight.numpy()
    found = []
    for image, feature, label in zip(images, features, labels):
        places = impl.resized(impl.class_activation_map(feature, weight, label)[None], *image.shape[1:])
        heat = 0.8 * (places / max(places.max(), 1e-6)).clip(0, 1)
        found.append((1 - heat) * impl.grey(image) + heat * np.float32([1, 0.2, 0]).reshape(3, 1, 1))
    return found


def draw(impl):
    """Train twice, and show both accuracies and what the better network does."""
    train, (images, labels) = shapes.images(project.TRAIN, 0), shapes.images(project.TEST, HELD_OUT_SEED)
    models = [project.fit(impl, 0, augment) for augment in (False, True)]
    right = [[(project.shares(m, x).argmax(1) == y).mean() for x, y in (train, (images, labels))] for m in models]
    shares, rng = project.shares(models[1], images), np.random.default_rng(0)
    answers, surest = shares.argmax(1), np.argsort(-shares.max(1))
    wrong = surest[answers[surest] != labels[surest]]

    figure = plt.figure(figsize=(12, 6.6), layout="constrained")
    top, bottom = figure.subfigures(2, 1)
    left, middle = top.subfigures(1, 2, width_ratios=(1, 2.2))
    accuracies(left.subplots(), right)
    middle.suptitle("a training image, and what augmentation makes of it, in each row", fontsize=10)
    rows = [[train[0][n], *[project.augmented(impl, train[0][n], rng) for _ in range(8)]] for n in range(3)]
    tiles(middle, 3, 9, sum(rows, []))
    left, middle, last = bottom.subfigures(1, 3, width_ratios=(1, 1.1, 1.1))
    confusion(left.subplots(), impl.confusion_matrix(labels, answers, len(shapes.CLASSES)))
    middle.suptitle("what speaks for the class, in red", fontsize=10)
    tiles(middle, 3, 4, looked_at(impl, models[1], images[:12], labels[:12]), [shapes.CLASSES[k] for k in labels[:12]])
    last.suptitle("wrong answers, the surest first: class, answer", fontsize=10)
    names = [f"{shapes.CLASSES[labels[n]]}, {shapes.CLASSES[answers[n]]}" for n in wrong[:12]]
    tiles(last, 3, 4, images[wrong[:12]], names)
    return figure
