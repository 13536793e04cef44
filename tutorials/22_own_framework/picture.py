"""The picture of lesson 22: how your framework learns the digits, and where one of its steps spends its time."""

import cProfile
import pstats
import time

import matplotlib.pyplot as plt
import numpy as np

import miniflow as flow
from miniflow import nn

EPOCHS, BATCH, PEAK, SHIFT, SHOWN = 10, 50, 0.004, 1, 8


def trained(impl):
    """A network, the losses of all steps, and the accuracy on the test digits after each epoch."""
    flow.manual_seed(0)
    data, model = impl.mine.data, impl.network()
    (images, labels), (held_out, answers) = (
        [x.numpy() for x in flow.data.mnist(part, normalize=False).tensors] for part in ("train", "test")
    )
    digits = data.Digits(images, labels, data.RandomShift(SHIFT, 0))
    loader = data.Loader(digits, data.Shuffle(len(digits), 0), BATCH)
    steps = EPOCHS * len(loader)
    optimizer = impl.Optimizer(model.parameters(), lambda tensors: impl.mine.training.Adam(tensors))
    losses, found = [], []
    for epoch in range(EPOCHS):
        rate_of = lambda step: data.learning_rate(step, steps, len(loader), PEAK)  # noqa: E731
        losses += impl.train_epoch(model, optimizer, loader, rate_of, epoch * len(loader))
        found.append(impl.accuracy(model, held_out, answers))
    return model, losses, found


def one_step(impl, model, images, labels):
    """A function that does one step of yours, without the optimizer."""

    def step():
        impl.mine.autograd.backward(impl.cross_entropy(model(impl.Variable(images)), labels))

    return step


def one_step_of_miniflow(images, labels):
    """The same network, and the same step, of miniflow."""
    convolutions = nn.Conv2d(1, 8, 5, 2, 2), nn.Softplus(), nn.Conv2d(8, 16, 3, 2, 1), nn.Softplus()
    model = nn.Sequential(*convolutions, nn.Flatten(), nn.Linear(784, 10))
    x, y = flow.tensor(images), flow.tensor(labels)
    return lambda: nn.functional.cross_entropy(model(x), y).backward()


def milliseconds(step, times=10):
    """The fastest of some runs; the first one, which compiles, does not count."""
    step()
    found = []
    for _ in range(times):
        begin = time.perf_counter()
        step()
        found.append(1000 * (time.perf_counter() - begin))
    return min(found)


def profiled(step):
    """Milliseconds of one step in each function itself, the most expensive first."""
    profile = cProfile.Profile()
    profile.runcall(step)
    rows = pstats.Stats(profile).stats.items()
    times = sorted(((1000 * row[2], name) for (_, _, name), row in rows), reverse=True)[:SHOWN]
    return {name.strip("<>").removeprefix("built-in method ").removeprefix("method "): t for t, name in times}


def draw(impl):
    """Losses and accuracy; the functions of one step; the time of a step beside miniflow's."""
    model, losses, found = trained(impl)
    images, labels = (x.numpy()[:BATCH] for x in flow.data.mnist("train", normalize=False).tensors)
    step = one_step(impl, model, images, labels)
    functions = profiled(step)
    both = {"yours": milliseconds(step), "miniflow": milliseconds(one_step_of_miniflow(images, labels))}
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(14, 3.8), layout="constrained")
    left.semilogy(np.arange(len(losses)) * EPOCHS / len(losses), losses, color="#9fc5e8", label="loss of a batch")
    left.set(xlabel="epoch", ylabel="loss of a batch", title=f"1,000 test digits: {found[-1]:.1%} right")
    shares = left.twinx()
    shares.plot(np.arange(1, EPOCHS + 1), found, "o-", color="#38761d")
    shares.set(ylabel="accuracy", ylim=(0.8, 1))
    bars = middle.barh(list(functions), list(functions.values()), color="#3d85c6")
    middle.bar_label(bars, fmt="%.1f", padding=3)
    middle.invert_yaxis()
    middle.set(title="one step of yours, by function", xlabel="ms", xlim=(0, 1.2 * max(functions.values())))
    right.bar_label(right.bar(list(both), list(both.values()), 0.5, color=["#3d85c6", "#f6b26b"]), fmt="%.1f")
    right.set(title=f"a step of {BATCH} digits", ylabel="ms")
    return figure
