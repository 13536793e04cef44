"""The data of lesson 19: light shapes on dark, cluttered backgrounds, drawn by a seeded function."""

import numpy as np

CLASSES = ("disk", "ring", "triangle", "square", "star")
SIDE = 32  # of an image, in pixels
GRID = np.arange(SIDE, dtype=np.float32)
SPOTS = 4  # small disks of the clutter in each image


def images(count, seed):
    """Random images and their classes.

    Returns:
        arrays (count, 3, SIDE, SIDE) of float32 from 0 to 1, and (count,) of int64; each class comes equally often.
    """
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(count) % len(CLASSES))
    pictures = background(rng, count)
    for _ in range(SPOTS):
        paint(rng, pictures, "disk", rng.uniform(1, 3, count), rng.uniform(0, SIDE, (2, count)))
    for k, name in enumerate(CLASSES):
        chosen = labels == k
        radius, place = rng.uniform(8, 13, chosen.sum()), rng.random((2, chosen.sum()))
        pictures[chosen] = paint(rng, pictures[chosen], name, radius, radius + place * (SIDE - 1 - 2 * radius))
    pictures += 0.05 * rng.standard_normal(pictures.shape, np.float32)
    return pictures.clip(0, 1), labels


def background(rng, count):
    """Dark colours that change slowly over the image: four in its corners, and what is between them."""
    ends = np.stack([1 - GRID / (SIDE - 1), GRID / (SIDE - 1)])  # the weights of the corners of a side
    corners = 0.6 * rng.random((count, 3, 2, 2), np.float32)
    return ends.T @ corners @ ends


def paint(rng, pictures, name, radius, center):
    """Paint a shape over each picture, in a light colour and at a random angle; returns the pictures."""
    columns = (len(pictures), 1, 1)
    down, right = (GRID.reshape(shape) - np.float32(c).reshape(columns) for shape, c in zip(((-1, 1), (1, -1)), center))
    angle = np.arctan2(down, right) + 2 * np.pi * rng.random(columns, np.float32)
    edge, distance = np.float32(radius).reshape(columns) * reach(name, angle), np.hypot(down, right)
    cover = (edge - distance + 0.5).clip(0, 1)
    if name == "ring":
        cover *= (distance - edge / 2 + 0.5).clip(0, 1)
    pictures += cover[:, None] * (0.5 + 0.5 * rng.random((len(pictures), 3, 1, 1), np.float32) - pictures)
    return pictures


def reach(name, angle):
    """How far a shape of radius 1 goes in this direction."""
    if name == "star":
        return 0.7 + 0.3 * np.cos(5 * angle)
    if name in ("triangle", "square"):
        side = 2 * np.pi / (3 if name == "triangle" else 4)
        return np.cos(side / 2) / np.cos(angle % side - side / 2)
    return 1
