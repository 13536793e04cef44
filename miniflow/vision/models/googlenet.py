"""GoogLeNet: kernels of several sizes side by side, and two more classifiers on the way while it is trained.

Szegedy et al., "Going deeper with convolutions", 2014, with batch normalization (Ioffe and Szegedy, 2015).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from miniflow import nn
from miniflow.nn import functional as F
from miniflow.ops.joining import cat
from miniflow.tensor import Tensor
from miniflow.vision.models.registry import Variant


class GoogLeNetOutputs(NamedTuple):
    """What training mode returns: logits (N, num_classes). The paper weighs the losses of the last two by 0.3."""

    logits: Tensor
    aux_logits2: Tensor
    aux_logits1: Tensor


class BasicConv2d(nn.Module):
    """relu(bn(conv(x))); `options` are those of the convolution, such as `kernel_size`."""

    def __init__(self, in_channels: int, out_channels: int, **options: Any):
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, bias=False, **options)
        self.bn = nn.BatchNorm2d(out_channels, eps=0.001)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.bn(self.conv(x)))


class Inception(nn.Module):
    """Four branches side by side: 1x1; 1x1 and 3x3; 1x1 and a larger one; max pooling and 1x1.

    torchvision's larger kernel is 3x3, too, where the paper has 5x5; so it is here, for its weights.

    Args:
        in_channels: of the input.
        ch1x1, ch3x3red, ch3x3, ch5x5red, ch5x5, pool_proj: channels of the convolutions, as in the paper's table 1.
    """

    def __init__(
        self, in_channels: int, ch1x1: int, ch3x3red: int, ch3x3: int, ch5x5red: int, ch5x5: int, pool_proj: int
    ):
        super().__init__()
        self.branch1 = BasicConv2d(in_channels, ch1x1, kernel_size=1)
        reduce3x3, reduce5x5 = (BasicConv2d(in_channels, c, kernel_size=1) for c in (ch3x3red, ch5x5red))
        self.branch2 = nn.Sequential(reduce3x3, BasicConv2d(ch3x3red, ch3x3, kernel_size=3, padding=1))
        self.branch3 = nn.Sequential(reduce5x5, BasicConv2d(ch5x5red, ch5x5, kernel_size=3, padding=1))
        pool = nn.MaxPool2d(kernel_size=3, stride=1, padding=1)
        self.branch4 = nn.Sequential(pool, BasicConv2d(in_channels, pool_proj, kernel_size=1))

    def forward(self, x: Tensor) -> Tensor:
        return cat([self.branch1(x), self.branch2(x), self.branch3(x), self.branch4(x)], 1)


class InceptionAux(nn.Module):
    """Logits (N, num_classes) from the middle of the network, (N, in_channels, H, W): gradients reach it sooner."""

    def __init__(self, in_channels: int, num_classes: int, dropout: float = 0.7):
        super().__init__()
        self.conv = BasicConv2d(in_channels, 128, kernel_size=1)
        self.fc1 = nn.Linear(128 * 4 * 4, 1024)
        self.fc2 = nn.Linear(1024, num_classes)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(F.adaptive_avg_pool2d(x, 4)).flatten(1)
        return self.fc2(self.dropout(F.relu(self.fc1(x))))


def renormalize(x: Tensor) -> Tensor:
    """Images (N, 3, H, W) with ImageNet's mean and deviation, as images with mean 0.5 and deviation 0.5.

    The weights that torchvision took from TensorFlow were trained with these.
    """
    mean, std = (x.new_tensor(values).reshape(3, 1, 1) for values in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    return x * (std / 0.5) + (mean - 0.5) / 0.5


def init_truncated(model: nn.Module, std: float) -> None:
    """Draw the weights of convolutions and linear layers from N(0, std^2) between -2 and 2."""
    for module in model.modules():
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            nn.init.trunc_normal_(module.weight, std=std)


class GoogLeNet(nn.Module):
    """Three convolutions, nine inception modules, and a linear classifier; in training mode two more.

    Args:
        num_classes: how many logits to return.
        aux_logits: whether there are auxiliary classifiers.
        transform_input: whether images are normalized for the published weights, which were trained with others.
        init_weights: False keeps the first weights of `nn.Conv2d` and `nn.Linear`.
        dropout, dropout_aux: probabilities, before the last layer and in the auxiliary classifiers.

    >>> import miniflow as flow
    >>> model = GoogLeNet(num_classes=10, init_weights=False)
    >>> [logits.shape for logits in model(flow.zeros(2, 3, 32, 32))]
    [miniflow.Size([2, 10]), miniflow.Size([2, 10]), miniflow.Size([2, 10])]

    Source: Szegedy et al., 2014, table 1; `torchvision.models.googlenet`.
    """

    def __init__(
        self, num_classes: int = 1000, aux_logits: bool = True, transform_input: bool = False,
        init_weights: bool = True, dropout: float = 0.2, dropout_aux: float = 0.7,
    ):  # fmt: skip
        super().__init__()
        self.aux_logits, self.transform_input = aux_logits, transform_input
        self.conv1 = BasicConv2d(3, 64, kernel_size=7, stride=2, padding=3)
        self.maxpool1 = nn.MaxPool2d(3, stride=2, ceil_mode=True)
        self.conv2 = BasicConv2d(64, 64, kernel_size=1)
        self.conv3 = BasicConv2d(64, 192, kernel_size=3, padding=1)
        self.maxpool2 = nn.MaxPool2d(3, stride=2, ceil_mode=True)
        self.inception3a = Inception(192, 64, 96, 128, 16, 32, 32)
        self.inception3b = Inception(256, 128, 128, 192, 32, 96, 64)
        self.maxpool3 = nn.MaxPool2d(3, stride=2, ceil_mode=True)
        self.inception4a = Inception(480, 192, 96, 208, 16, 48, 64)
        self.inception4b = Inception(512, 160, 112, 224, 24, 64, 64)
        self.inception4c = Inception(512, 128, 128, 256, 24, 64, 64)
        self.inception4d = Inception(512, 112, 144, 288, 32, 64, 64)
        self.inception4e = Inception(528, 256, 160, 320, 32, 128, 128)
        self.maxpool4 = nn.MaxPool2d(2, stride=2, ceil_mode=True)
        self.inception5a = Inception(832, 256, 160, 320, 32, 128, 128)
        self.inception5b = Inception(832, 384, 192, 384, 48, 128, 128)
        if aux_logits:
            self.aux1 = InceptionAux(512, num_classes, dropout_aux)
            self.aux2 = InceptionAux(528, num_classes, dropout_aux)
        self.dropout = nn.Dropout(dropout)
        self.fc = nn.Linear(1024, num_classes)
        if init_weights:
            init_truncated(self, std=0.01)

    def forward(self, x: Tensor) -> Tensor | GoogLeNetOutputs:
        """The logits (N, num_classes) of images (N, 3, H, W); in training mode also those of the other classifiers."""
        x = renormalize(x) if self.transform_input else x
        x = self.conv3(self.conv2(self.maxpool1(self.conv1(x))))  # (N, 192, H / 4, W / 4)
        x = self.inception3b(self.inception3a(self.maxpool2(x)))  # (N, 480, H / 8, W / 8)
        x4a = self.inception4a(self.maxpool3(x))  # (N, 512, H / 16, W / 16)
        x4d = self.inception4d(self.inception4c(self.inception4b(x4a)))
        x = self.maxpool4(self.inception4e(x4d))  # (N, 832, H / 32, W / 32)
        x = self.inception5b(self.inception5a(x))
        logits = self.fc(self.dropout(x.mean((2, 3))))
        if not (self.training and self.aux_logits):
            return logits
        return GoogLeNetOutputs(logits, self.aux2(x4d), self.aux1(x4a))


googlenet = Variant("googlenet", GoogLeNet, trained={"transform_input": True, "aux_logits": False})
