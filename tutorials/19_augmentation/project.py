"""The project of lesson 19: a small residual network, trained on few images, with and without your augmentation."""

import importlib
import math

import numpy as np

import miniflow as flow
from miniflow import nn
from miniflow.vision.models.resnet import BasicBlock, conv1x1

shapes = importlib.import_module("tutorials.19_augmentation.shapes")

TRAIN, TEST = 100, 1000  # images
STEPS, BATCH, PEAK, DECAY = 200, 50, 0.1, 5e-4  # of the training; the peak of the learning rate, the decay of weights
CHANGED, COLOUR, MIXED, SMOOTHING = 0.5, 0.4, 0.0, 0.0  # of the augmentation


def network():
    """Images (N, 3, 32, 32) to features (N, 32, 8, 8), by two residual blocks, then to logits (N, 5)."""
    smaller = nn.Sequential(conv1x1(16, 32, stride=2), nn.BatchNorm2d(32))
    return nn.Sequential(
        nn.Conv2d(3, 16, kernel_size=5, stride=2, padding=2, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        BasicBlock(16, 32, stride=2, downsample=smaller),
        BasicBlock(32, 32),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, len(shapes.CLASSES)),
    )


def augmented(impl, image, rng):
    """An image as it was never seen before: a part of it, flipped or not, rotated, and in other colours."""
    side = shapes.SIDE
    if rng.random() < CHANGED:
        top, left, height, width = impl.crop_box(rng, side, side)
        image = impl.resized(image[:, top : top + height, left : left + width], side, side)
    if rng.random() < 0.5:
        image = image[:, :, ::-1]
    if rng.random() < CHANGED:
        image = impl.rotated(image, rng.uniform(-math.pi, math.pi))
    for change in (impl.brightness, impl.contrast, impl.saturation):
        image = change(image, rng.uniform(1 - COLOUR, 1 + COLOUR))
    return image


def mixed(impl, images, targets, rng):
    """A share `MIXED` of all batches is mixed, by mixup or by CutMix."""
    if rng.random() >= MIXED:
        return images, targets
    order, share = rng.permutation(len(images)), rng.beta(1, 1)
    if rng.random() < 0.5:
        return impl.mixup(images, targets, order, share)
    return impl.cutmix(images, targets, order, share, *rng.integers(shapes.SIDE, size=2).tolist())


def batches(impl, images, labels, rng, augment):
    """Images and targets of each step; with `augment`, the images are other ones in each epoch."""
    targets = impl.soft_targets(labels, len(shapes.CLASSES), SMOOTHING if augment else 0.0)
    for step in range(STEPS):
        first = step * BATCH % len(labels)
        if first == 0:
            epoch = rng.permutation(len(labels))
        chosen = epoch[first : first + BATCH]
        if augment:
            yield mixed(impl, np.stack([augmented(impl, images[n], rng) for n in chosen]), targets[chosen], rng)
        else:
            yield images[chosen], targets[chosen]


def fit(impl, seed, augment):
    """A network after `STEPS` steps of SGD."""
    flow.manual_seed(seed)
    model = network()
    optimizer = flow.optim.SGD(model.parameters(), lr=PEAK, momentum=0.9, weight_decay=DECAY)
    schedule = flow.optim.lr_scheduler.OneCycleLR(optimizer, PEAK, STEPS)
    rng = np.random.default_rng(seed)
    for images, targets in batches(impl, *shapes.images(TRAIN, seed), rng, augment):
        loss = impl.soft_cross_entropy(model(flow.tensor(images)), flow.tensor(targets))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return model.eval()


def shares(model, images):
    """The share that the network gives each class, (N, classes)."""
    with flow.no_grad():
        return np.concatenate([model(flow.tensor(part)).softmax(1).numpy() for part in np.array_split(images, 10)])
