"""The checks of lesson 0. NumPy is the oracle."""

import numpy as np
import pytest

import miniflow as flow
from miniflow import nn
from tutorials import same


@pytest.mark.task("0.1")
@pytest.mark.parametrize("shape", [(4, 1, 5, 7), (1, 1, 28, 28), (3, 1, 1, 6)])
def test_normalize(impl, rng, shape):
    scales, offsets = rng.uniform(0.3, 3, (shape[0], 1, 1, 1)), rng.uniform(-2, 2, (shape[0], 1, 1, 1))
    array = (scales * rng.standard_normal(shape) + offsets).astype(np.float32)
    images = flow.tensor(array)
    got = impl.normalize(images)
    flat = array.reshape(shape[0], -1).astype(np.float64)
    wanted = (flat - flat.mean(1)[:, None]) / (flat.std(1)[:, None] + 1e-6)
    what = f"normalize of images of shape {shape}, means {flat.mean(1).round(2)}, deviations {flat.std(1).round(2)}"
    hint = "each image has a mean and a deviation of its own, over all its pixels; divide by N, not by N - 1"
    same(got, wanted.reshape(shape).astype(np.float32), what, hint, rtol=1e-4, atol=1e-4)
    same(images, array, "the images after normalize(images)", "return a new tensor")


@pytest.mark.task("0.1")
def test_normalize_images_of_little_contrast(impl, rng):
    array = np.zeros((3, 1, 2, 8), np.float32)
    array[1] = 2.0
    array[2] = 1e-6 * rng.permutation(np.repeat([-1.0, 1.0], [7, 9])).reshape(1, 2, 8)
    flat = array.reshape(3, -1).astype(np.float64)
    wanted = (flat - flat.mean(1)[:, None]) / (flat.std(1)[:, None] + 1e-6)
    what = f"normalize of two images of one color, and one of {array[2].ravel()}"
    hint = "add 1e-6 to the deviation, after the root: else 0 is divided by 0"
    same(impl.normalize(flow.tensor(array)), wanted.reshape(array.shape).astype(np.float32), what, hint, rtol=1e-3)


@pytest.mark.task("0.2")
def test_count_parameters(impl, rng):
    m, n, k = (int(size) for size in rng.integers(2, 9, 3))
    linear, frozen, shared = nn.Linear(m, n), nn.Linear(n, k), nn.Linear(m, m)
    frozen.weight.requires_grad_(False)
    for model, wanted, what, hint in [
        (linear, m * n + n, f"Linear({m}, {n})", "elements, not tensors; the bias counts too"),
        (nn.Sequential(linear, frozen), m * n + n + k, "two layers, one weight frozen", "requires_grad tells"),
        (nn.BatchNorm2d(n), 2 * n, f"BatchNorm2d({n})", "running means are no parameters: no gradient changes them"),
        (nn.Sequential(shared, shared), m * m + m, "one layer that is used twice", "model.parameters() has it once"),
        (nn.ReLU(), 0, "ReLU()", "it has none"),
    ]:
        same(impl.count_parameters(model), wanted, f"count_parameters of {what}", hint)


def steps_on_paper(weight, bias, images, labels, lr, momentum):
    """The losses and the parameters of a linear model, in each step of SGD with momentum."""
    velocity = [0.0, 0.0]
    for x, y in zip(images, labels):
        logits = x @ weight.T + bias
        p = np.exp(logits) / np.exp(logits).sum(1)[:, None]
        loss = -np.log(p[np.arange(len(y)), y]).mean()
        p[np.arange(len(y)), y] -= 1  # the gradient of the sum of losses
        gradients = [p.T @ x / len(y), p.mean(0)]
        velocity = [momentum * v + g for v, g in zip(velocity, gradients)]
        weight, bias = weight - lr * velocity[0], bias - lr * velocity[1]
        yield float(loss), weight, bias


@pytest.mark.task("0.3")
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_training_step(impl, rng, momentum):
    model, lr, count, calls = nn.Linear(5, 3).double(), float(rng.uniform(0.2, 0.6)), 4, []
    model.register_forward_pre_hook(lambda module, inputs: calls.append(inputs[0]))
    weight, bias = (p.detach().numpy().copy() for p in (model.weight, model.bias))
    optimizer = flow.optim.SGD(model.parameters(), lr=lr, momentum=momentum)
    for p in model.parameters():
        p.grad = flow.tensor(rng.standard_normal(tuple(p.shape)))  # left from before
    images, labels = rng.standard_normal((count, 7, 5)), rng.integers(0, 3, (count, 7))
    on_paper = steps_on_paper(weight, bias, images, labels, lr, momentum)
    for number, (loss, *parameters) in enumerate(on_paper):
        got = impl.training_step(model, optimizer, flow.tensor(images[number]), flow.tensor(labels[number]))
        what = f"step {number + 1} of SGD with lr {lr:.2f} and momentum {momentum}"
        same(len(calls), number + 1, f"how often the model was called by {what}", "once in each step")
        same(got, loss, f"the loss of {what}", "a float, computed before the step: item() makes one", rtol=1e-9)
        hint = "old gradients are cleared before backward(), and step() comes after it"
        for name, wanted in zip(("weight", "bias"), parameters):
            same(getattr(model, name), wanted, f"the {name} after {what}", hint, rtol=1e-8, atol=1e-10)


@pytest.mark.task("0.4")
@pytest.mark.parametrize("count, classes", [(37, 5), (1, 3), (64, 10), (0, 4)])
def test_confusion(impl, rng, count, classes):
    logits = rng.standard_normal((count, classes)).astype(np.float32) - 9
    labels = rng.integers(0, classes, count)
    wanted = np.zeros((classes, classes), np.int64)
    np.add.at(wanted, (labels, logits.argmax(1)), 1)
    weight, modes = flow.ones(1, requires_grad=True), []

    def model(x):
        modes.append(flow.is_grad_enabled() if x == "the images" else "other images")
        return flow.tensor(logits) * weight

    got = impl.confusion(model, "the images", flow.tensor(labels))
    what = f"confusion for {count} images of {classes} classes, labels {labels.tolist()}, "
    hint = "the row is the label, the column the largest logit; the size is that of the logits"
    same(got, wanted, f"{what}answers {logits.argmax(1).tolist()}", hint)
    same(modes, [False], "whether each call of the model was recorded", "one call, within no_grad")
