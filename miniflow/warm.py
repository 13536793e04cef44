"""`python -m miniflow warm`: compile what training needs ahead of time, as into the image of a class room.

Small networks of the usual layers make a step with each way to call them: op by op, as a graph, and without gradients.
The kernels that they need go into the cache, from which later processes read them.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numba.core.event as numba_event
from tqdm import tqdm

import miniflow as flow
from miniflow import nn, optim
from miniflow.backends.cpu.random import first_numbers
from miniflow.hostcuda.cache import base_folder
from miniflow.vision import models


class CompilingNotice(numba_event.Listener):
    """Names in a progress bar what numba compiles.

    Attributes:
        names: of the kernels so far.
    """

    def __init__(self, bar: tqdm):
        self.bar, self.depth = bar, 0
        self.names: list[str] = []

    def on_start(self, event: numba_event.Event) -> None:
        """Called before a kernel, or a part of it, is compiled that is not in numba's cache."""
        if not self.depth:
            function = event.data["dispatcher"].py_func
            self.names.append(f"{function.__module__.removeprefix('miniflow.')}.{function.__name__}")
            self.bar.set_postfix_str(f"compiling {self.names[-1]} (first run only)")
        self.depth += 1

    def on_end(self, event: numba_event.Event) -> None:
        """Called after it."""
        self.depth -= 1


class Residual(nn.Module):
    """A block of two convolutions around which the input goes."""

    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.first, self.second = nn.Conv2d(inputs, outputs, 3, stride, 1), nn.Conv2d(outputs, outputs, 3, 1, 1)
        self.norms = nn.ModuleList([nn.BatchNorm2d(outputs) for _ in range(3)])
        self.around = nn.Conv2d(inputs, outputs, 1, stride)

    def forward(self, x: flow.Tensor) -> flow.Tensor:
        """x (N, C, H, W)"""
        y = self.norms[1](self.second(self.norms[0](self.first(x)).relu()))
        return (y + self.norms[2](self.around(x))).relu()


class LastOf(nn.Module):
    """The last step of a recurrent layer (N, T, C)."""

    def __init__(self, layer: nn.Module):
        super().__init__()
        self.layer = layer

    def forward(self, x: flow.Tensor) -> flow.Tensor:
        """x (N, T, C)"""
        return self.layer(x)[0][:, -1]


def residual_network() -> nn.Module:
    """For images (N, 3, 32, 32)."""
    blocks = Residual(3, 64, 1), Residual(64, 64, 1), Residual(64, 128, 2), nn.MaxPool2d(2)
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10))


def transformer() -> nn.Module:
    """For tokens (N, 32)."""
    layer = nn.TransformerEncoderLayer(64, 4, 128, 0.1, "gelu", batch_first=True)
    return nn.Sequential(nn.Embedding(100, 64), nn.TransformerEncoder(layer, 1), nn.Flatten(), nn.Linear(64 * 32, 10))


def recurrent(kind: str) -> Callable[[], nn.Module]:
    """For sequences (N, 12, 16)."""
    return lambda: nn.Sequential(LastOf(getattr(nn, kind)(16, 32, batch_first=True)), nn.Linear(32, 10))


NETWORKS: dict[str, tuple[Callable[[], nn.Module], Callable[[], flow.Tensor]]] = {
    "MLP": (models.MLP, lambda: flow.randn(64, 1, 28, 28)),
    "LeNet": (models.LeNet, lambda: flow.randn(64, 1, 28, 28)),
    "residual network": (residual_network, lambda: flow.randn(8, 3, 32, 32)),
    "transformer": (transformer, lambda: flow.randint(0, 100, (8, 32))),
    "LSTM": (recurrent("LSTM"), lambda: flow.randn(8, 12, 16)),
    "GRU": (recurrent("GRU"), lambda: flow.randn(8, 12, 16)),
}
"""By name: what makes the network, and what makes a batch."""
OPTIMIZERS = ("SGD", "Adam", "RMSprop", "Adagrad", "LAMB")


class Step(nn.Graph):
    """A training step as a graph."""

    def __init__(self, model: nn.Module, optimizer: optim.Optimizer):
        super().__init__()
        self.model = model
        self.add_optimizer(optimizer)

    def build(self, x: flow.Tensor, labels: flow.Tensor) -> flow.Tensor:
        """x (N, ...), labels (N,)"""
        loss = nn.functional.cross_entropy(self.model(x), labels)
        loss.backward()
        return loss


def run(model: nn.Module, x: flow.Tensor, optimizer: optim.Optimizer) -> None:
    """One step op by op, two as a graph, and a prediction."""
    labels = flow.randint(0, 10, (len(x),))
    nn.functional.cross_entropy(model(x), labels).backward()
    optimizer.step()
    step = Step(model, optimizer)
    for _ in range(2):
        step(x, labels)
    with flow.no_grad():
        model.eval()(x).argmax(1)


def warm() -> list[str]:
    """Compile the kernels of all networks and optimizers here; returns the names of those that were not cached."""
    start = time.perf_counter()
    first_numbers.left = 0
    with tqdm(total=len(NETWORKS) + len(OPTIMIZERS), unit="network", dynamic_ncols=True) as bar:
        notice = CompilingNotice(bar)
        with numba_event.install_listener("numba:compile", notice):
            for name, (make, batch) in NETWORKS.items():
                bar.set_description(name)
                model = make()
                run(model, batch(), optim.SGD(model.parameters(), lr=0.01, momentum=0.9))
                bar.update()
            for name in OPTIMIZERS:
                bar.set_description(name)
                model = nn.Linear(8, 10)
                run(model, flow.randn(4, 8), getattr(optim, name)(model.parameters(), lr=0.01))
                bar.update()
    seconds = time.perf_counter() - start
    print(f"{len(notice.names)} kernels compiled in {seconds:.0f} s; they are in {base_folder()}", file=sys.stderr)
    return notice.names
