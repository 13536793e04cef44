"""The networks that are trained here, written once: miniflow and torch run the same lines."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

RATE, MOMENTUM = 0.01, 0.9


def load(framework: str, threads: int) -> ModuleType:
    """The framework's module; "torch.compile" is torch too."""
    module = importlib.import_module(framework.split(".")[0])
    if module.__name__ == "torch":
        module.set_num_threads(threads)
    return module


def mlp(nn: Any) -> Any:
    """784-256-128-10 with ReLU."""
    return nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10))


def lenet(nn: Any) -> Any:
    """32 and 64 channels of 5x5, padding 2, each with ReLU and 2x2 max pooling; then 512 features."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, 10),
    )  # fmt: skip


NETWORKS: dict[str, tuple[Callable, tuple[int, ...]]] = {"mlp": (mlp, (784,)), "lenet": (lenet, (1, 28, 28))}


def training_step(framework: str, threads: int, network: str, batch: int) -> Callable[[], Any]:
    """A function that does one training step, forward, backward and SGD with momentum 0.9, and returns the loss.

    Weights and data come from one seed of NumPy, so that all frameworks start from the same numbers.
    """
    flow = load(framework, threads)
    build, shape = NETWORKS[network]
    random = np.random.default_rng(0)
    model = build(flow.nn)
    with flow.no_grad():
        for parameter in model.parameters():
            fan_in = int(np.prod(parameter.shape[1:])) or 1
            values = random.standard_normal(tuple(parameter.shape)) / np.sqrt(fan_in)
            parameter.copy_(flow.from_numpy(values.astype(np.float32)))
    images = flow.from_numpy(random.standard_normal((batch, *shape)).astype(np.float32))
    labels = flow.from_numpy(random.integers(0, 10, batch))
    optimizer = flow.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM)
    forward = flow.compile(model) if framework == "torch.compile" else model

    def step() -> Any:
        loss = flow.nn.functional.cross_entropy(forward(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return step
