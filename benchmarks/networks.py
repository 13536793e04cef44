"""The networks that are trained here, written once: miniflow and torch run the same lines."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
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


def resnet18(nn: Any) -> Any:
    """ResNet-18 for 32x32 images: 3x3 convolutions from the start, stages of 64, 128, 256 and 512 channels.

    Source: He et al. 2016, "Deep Residual Learning for Image Recognition".
    """

    class Block(nn.Module):
        def __init__(self, inputs: int, outputs: int, stride: int):
            super().__init__()
            self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
            self.norm1 = nn.BatchNorm2d(outputs)
            self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
            self.norm2 = nn.BatchNorm2d(outputs)
            self.relu = nn.ReLU()
            self.shortcut = nn.Sequential()
            if stride != 1 or inputs != outputs:
                self.shortcut = nn.Sequential(
                    nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
                )

        def forward(self, x: Any) -> Any:
            y = self.relu(self.norm1(self.conv1(x)))
            return self.relu(self.norm2(self.conv2(y)) + self.shortcut(x))

    blocks, channels = [], 64
    for outputs, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        blocks += [Block(channels, outputs, stride), Block(outputs, outputs, 1)]
        channels = outputs
    stem = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


def encoder(nn: Any) -> Any:
    """A block of a transformer's encoder: 256 features, 8 heads, 1024 hidden features, norms first, no dropout.

    Source: Vaswani et al. 2017, "Attention Is All You Need"; Xiong et al. 2020 (norms first).
    """

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(256), nn.LayerNorm(256)
            self.qkv, self.out = nn.Linear(256, 768), nn.Linear(256, 256)
            self.hidden, self.gelu, self.last = nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256)

        def attention(self, x: Any) -> Any:
            n, t, d = x.shape
            q, k, v = self.qkv(x).reshape(n, t, 3, 8, d // 8).permute(2, 0, 3, 1, 4).unbind(0)
            if hasattr(nn.functional, "scaled_dot_product_attention"):
                y = nn.functional.scaled_dot_product_attention(q, k, v)
            else:
                y = nn.functional.softmax(q @ k.transpose(-2, -1) * (d // 8) ** -0.5, dim=-1) @ v
            return self.out(y.transpose(1, 2).reshape(n, t, d))

        def forward(self, x: Any) -> Any:
            x = x + self.attention(self.norm1(x))
            return x + self.last(self.gelu(self.hidden(self.norm2(x))))

    return Encoder()


NETWORKS: dict[str, tuple[Callable, tuple[int, ...]]] = {
    "mlp": (mlp, (784,)), "lenet": (lenet, (1, 28, 28)), "resnet18": (resnet18, (3, 32, 32)),
    "encoder": (encoder, (128, 256)),
}  # fmt: skip


def prepared(flow: Any, network: str, batch: int) -> tuple[Any, Callable, Any, Any]:
    """A network, its loss function, inputs and targets.

    Weights and data come from one seed of NumPy, so that all frameworks start from the same numbers.
    """
    build, shape = NETWORKS[network]
    random = np.random.default_rng(0)
    model = build(flow.nn)
    with flow.no_grad():
        for name, parameter in model.named_parameters():
            fan_in = int(np.prod(parameter.shape[1:])) or 1
            values = random.standard_normal(tuple(parameter.shape)) / np.sqrt(fan_in)
            if parameter.ndim > 1 or name.endswith("bias"):  # weights of norms stay 1
                parameter.copy_(flow.from_numpy(values.astype(np.float32)))
    inputs = flow.from_numpy(random.standard_normal((batch, *shape)).astype(np.float32))
    if network == "encoder":
        targets = flow.from_numpy(random.standard_normal((batch, *shape)).astype(np.float32))
        return model, flow.nn.functional.mse_loss, inputs, targets
    return model, flow.nn.functional.cross_entropy, inputs, flow.from_numpy(random.integers(0, 10, batch))


def training_step(framework: str, threads: int, network: str, batch: int) -> Callable[[], Any]:
    """A function that does one training step, forward, backward and SGD with momentum 0.9, and returns the loss.

    Args:
        framework: "miniflow" and "torch" run it eagerly, "miniflow.graph" as an nn.Graph; "torch.compile" compiles
            forward, loss and backward.
    """
    flow = load(framework, threads)
    model, loss_function, inputs, targets = prepared(flow, network, batch)
    optimizer = flow.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM)
    if framework == "miniflow.graph":
        return partial(graph_of(flow, model, loss_function, optimizer), inputs, targets)

    def forward() -> Any:
        return loss_function(model(inputs), targets)

    if framework == "torch.compile":
        forward = flow.compile(forward)

    def step() -> Any:
        loss = forward()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return step


def graph_of(flow: Any, model: Any, loss_function: Callable, optimizer: Any) -> Any:
    """The same step as an nn.Graph."""

    class Step(flow.nn.Graph):
        def __init__(self) -> None:
            super().__init__()
            self.model = model
            self.add_optimizer(optimizer)

        def build(self, inputs: Any, targets: Any) -> Any:
            loss = loss_function(self.model(inputs), targets)
            loss.backward()
            return loss

    return Step()
