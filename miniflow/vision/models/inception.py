"""Inception v3: large kernels as several small ones, 5x5 as twice 3x3 and 7x7 as 1x7 and 7x1.

Szegedy et al., "Rethinking the Inception architecture for computer vision", 2015.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from miniflow import nn
from miniflow.nn import functional as F
from miniflow.ops.joining import cat
from miniflow.tensor import Tensor
from miniflow.vision.models.googlenet import BasicConv2d, init_truncated, renormalize
from miniflow.vision.models.registry import Variant


class InceptionOutputs(NamedTuple):
    """What training mode returns: logits (N, num_classes)."""

    logits: Tensor
    aux_logits: Tensor


class Mixed(nn.Module):
    """Branches of convolutions side by side, and pooling as one more branch.

    Args:
        in_channels: of the input.
        pool: channels of a convolution after average pooling. 0: max pooling, and all branches halve the image: their
            last convolution has stride 2, and there is no padding at it.
        branches: for each the channels and the kernel of its convolutions. Where one has two kernels, both see the same
            input, and their outputs are joined.
    """

    def __init__(self, in_channels: int, pool: int, **branches: Sequence[tuple[int | str, ...]]):
        super().__init__()
        self.branches = []  # of each branch, of each step the names of its convolutions
        for branch, steps in branches.items():
            channels, names = in_channels, []
            for i, (outputs, *kernels) in enumerate(steps, 1):
                step = branch if len(steps) == 1 else f"{branch}_{i}"
                names.append([step] if len(kernels) == 1 else [f"{step}a", f"{step}b"])
                halve = pool == 0 and i == len(steps)
                for name, kernel in zip(names[-1], kernels, strict=True):
                    height, width = map(int, kernel.split("x"))
                    where = {"stride": 2} if halve else {"padding": (height // 2, width // 2)}
                    self.add_module(name, BasicConv2d(channels, outputs, kernel_size=(height, width), **where))
                channels = outputs * len(kernels)
            self.branches.append(names)
        self.branch_pool = BasicConv2d(in_channels, pool, kernel_size=1) if pool else None

    def forward(self, x: Tensor) -> Tensor:
        found = []
        for names in self.branches:
            y = x
            for step in names:
                parts = [getattr(self, name)(y) for name in step]
                y = parts[0] if len(parts) == 1 else cat(parts, 1)
            found.append(y)
        if self.branch_pool is None:
            return cat([*found, F.max_pool2d(x, kernel_size=3, stride=2)], 1)
        return cat([*found, self.branch_pool(F.avg_pool2d(x, kernel_size=3, stride=1, padding=1))], 1)


def inception_a(in_channels: int, pool: int) -> Mixed:
    """Images of 35 x 35: the paper's figure 5. The output has 224 + pool channels."""
    twice = [(64, "1x1"), (96, "3x3"), (96, "3x3")]
    return Mixed(in_channels, pool, branch1x1=[(64, "1x1")], branch5x5=[(48, "1x1"), (64, "5x5")], branch3x3dbl=twice)


def inception_b() -> Mixed:
    """From 288 channels of 35 x 35 to 768 of 17 x 17: figure 10."""
    return Mixed(288, 0, branch3x3=[(384, "3x3")], branch3x3dbl=[(64, "1x1"), (96, "3x3"), (96, "3x3")])


def inception_c(c: int) -> Mixed:
    """768 channels of 17 x 17: figure 6, with n = 7 and c channels inside."""
    once = [(c, "1x1"), (c, "1x7"), (192, "7x1")]
    twice = [(c, "1x1"), (c, "7x1"), (c, "1x7"), (c, "7x1"), (192, "1x7")]
    return Mixed(768, 192, branch1x1=[(192, "1x1")], branch7x7=once, branch7x7dbl=twice)


def inception_d() -> Mixed:
    """From 768 channels of 17 x 17 to 1280 of 8 x 8: as figure 10."""
    small = [(192, "1x1"), (320, "3x3")]
    return Mixed(768, 0, branch3x3=small, branch7x7x3=[(192, "1x1"), (192, "1x7"), (192, "7x1"), (192, "3x3")])


def inception_e(in_channels: int) -> Mixed:
    """Images of 8 x 8, to 2048 channels: figure 7."""
    split = (384, "1x3", "3x1")
    twice = [(448, "1x1"), (384, "3x3"), split]
    return Mixed(in_channels, 192, branch1x1=[(320, "1x1")], branch3x3=[(384, "1x1"), split], branch3x3dbl=twice)


class InceptionAux(nn.Module):
    """Logits (N, num_classes) from the middle of the network, (N, in_channels, 17, 17)."""

    def __init__(self, in_channels: int, num_classes: int):
        super().__init__()
        self.conv0 = BasicConv2d(in_channels, 128, kernel_size=1)
        self.conv1 = BasicConv2d(128, 768, kernel_size=5)
        self.fc = nn.Linear(768, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv1(self.conv0(F.avg_pool2d(x, kernel_size=5, stride=3)))
        return self.fc(x.mean((2, 3)))


class Inception3(nn.Module):
    """Five convolutions, eleven blocks of branches, and a linear classifier; in training mode one more.

    Args:
        num_classes: how many logits to return.
        aux_logits: whether there is an auxiliary classifier.
        transform_input: whether images are normalized for the published weights, which were trained with others.
        init_weights: False keeps the first weights of `nn.Conv2d` and `nn.Linear`.
        dropout: probability, before the last layer.

    Source: Szegedy et al., 2015, table 1; `torchvision.models.inception`.
    """

    def __init__(
        self, num_classes: int = 1000, aux_logits: bool = True, transform_input: bool = False,
        init_weights: bool = True, dropout: float = 0.5,
    ):  # fmt: skip
        super().__init__()
        self.aux_logits, self.transform_input = aux_logits, transform_input
        self.Conv2d_1a_3x3 = BasicConv2d(3, 32, kernel_size=3, stride=2)
        self.Conv2d_2a_3x3 = BasicConv2d(32, 32, kernel_size=3)
        self.Conv2d_2b_3x3 = BasicConv2d(32, 64, kernel_size=3, padding=1)
        self.maxpool1 = nn.MaxPool2d(kernel_size=3, stride=2)
        self.Conv2d_3b_1x1 = BasicConv2d(64, 80, kernel_size=1)
        self.Conv2d_4a_3x3 = BasicConv2d(80, 192, kernel_size=3)
        self.maxpool2 = nn.MaxPool2d(kernel_size=3, stride=2)
        self.Mixed_5b, self.Mixed_5c, self.Mixed_5d = inception_a(192, 32), inception_a(256, 64), inception_a(288, 64)
        self.Mixed_6a = inception_b()
        self.Mixed_6b, self.Mixed_6c = inception_c(128), inception_c(160)
        self.Mixed_6d, self.Mixed_6e = inception_c(160), inception_c(192)
        if aux_logits:
            self.AuxLogits = InceptionAux(768, num_classes)
        self.Mixed_7a = inception_d()
        self.Mixed_7b, self.Mixed_7c = inception_e(1280), inception_e(2048)
        self.dropout = nn.Dropout(dropout)
        self.fc = nn.Linear(2048, num_classes)
        if init_weights:
            init_truncated(self, std=0.1)
            if aux_logits:
                nn.init.trunc_normal_(self.AuxLogits.fc.weight, std=0.001)

    def forward(self, x: Tensor) -> Tensor | InceptionOutputs:
        """The logits (N, num_classes) of images (N, 3, 299, 299); in training mode also those of the other classifier.

        Images may be smaller: at least 75 pixels wide, and in training mode 299 or so for the auxiliary classifier.
        """
        x = renormalize(x) if self.transform_input else x
        x = self.Conv2d_2b_3x3(self.Conv2d_2a_3x3(self.Conv2d_1a_3x3(x)))  # (N, 64, 147, 147)
        x = self.Conv2d_4a_3x3(self.Conv2d_3b_1x1(self.maxpool1(x)))  # (N, 192, 71, 71)
        x = self.Mixed_5d(self.Mixed_5c(self.Mixed_5b(self.maxpool2(x))))  # (N, 288, 35, 35)
        x = self.Mixed_6e(self.Mixed_6d(self.Mixed_6c(self.Mixed_6b(self.Mixed_6a(x)))))  # (N, 768, 17, 17)
        last = self.Mixed_7c(self.Mixed_7b(self.Mixed_7a(x)))  # (N, 2048, 8, 8)
        logits = self.fc(self.dropout(last.mean((2, 3))))
        return InceptionOutputs(logits, self.AuxLogits(x)) if self.training and self.aux_logits else logits


inception_v3 = Variant("inception_v3", Inception3, trained={"transform_input": True})
