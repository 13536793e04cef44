"""The picture of lesson 9: a digit, its edges, their gradient, the pooled edges, and the memory of both ways."""

import tracemalloc

import matplotlib.pyplot as plt
import numpy as np

import miniflow as flow

EDGES = np.array([[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]], np.float32)[None, None]  # Sobel: bright on the right
SIDES = (3, 5, 7)  # of the kernels


def peak(function, *arguments):
    """The bytes that a function allocates at most, its result included."""
    tracemalloc.start()
    function(*arguments)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return most


def draw(impl):
    """Four small images of a digit, blue where positive, and bars for three layers."""
    digit = flow.data.mnist("train")[2][0].numpy().reshape(1, 1, 28, 28)
    digit = digit - digit.min()  # the background is 0
    edges = impl.conv2d(digit, EDGES, np.zeros(1, np.float32), 1, 1)
    gradient = impl.input_gradient(2 * edges, EDGES, digit.shape, 1, 1)  # of the sum of their squares
    pooled, _ = impl.max_pool2d(np.abs(edges), (2, 2), 2)
    figure = plt.figure(figsize=(12, 5), layout="constrained")
    above, below = figure.subfigures(2, 1)
    images = {"digit": digit, "edges: conv2d": edges, "gradient of sum(edges²)": gradient, "pooled |edges|": pooled}
    for axis, (title, image) in zip(above.subplots(1, 4), images.items()):
        signed = image.min() < 0
        most = np.abs(image).max()
        axis.imshow(image[0, 0], cmap="RdBu" if signed else "gray", vmin=-most if signed else 0, vmax=most)
        axis.set(title=title, xticks=[], yticks=[])

    rng, axis = np.random.default_rng(0), below.subplots()
    x, places = rng.standard_normal((8, 8, 32, 32)).astype(np.float32), np.arange(len(SIDES))
    used = {"conv2d": [], "conv2d_unfold": []}
    for side in SIDES:
        weight, bias = rng.standard_normal((16, 8, side, side)).astype(np.float32), np.zeros(16, np.float32)
        for name, values in used.items():
            values.append(peak(getattr(impl, name), x, weight, bias, 1, side // 2) / 1e6)
    for shift, (name, values) in zip((-0.2, 0.2), used.items()):
        axis.bar_label(axis.bar(places + shift, values, 0.4, label=name), fmt="%.1f", fontsize=8)
    axis.set_xticks(places, [f"16 kernels of {side} x {side}" for side in SIDES])
    axis.set(title=f"peak memory for x of shape {x.shape}; conv2d with 7 x 7: {used['conv2d'][-1]:.2f} MB")
    axis.set_ylabel("megabytes")
    axis.legend()
    axis.margins(y=0.15)
    axis.spines[["top", "right"]].set_visible(False)
    return figure
