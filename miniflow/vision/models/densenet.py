"""DenseNet: each layer sees the outputs of all layers before it in its block.

Huang, Liu, van der Maaten and Weinberger, "Densely connected convolutional networks", 2016.
"""

from __future__ import annotations

from collections.abc import Sequence

from miniflow import nn
from miniflow.nn import functional as F
from miniflow.ops.joining import cat
from miniflow.tensor import Tensor
from miniflow.utils.checkpoint import checkpoint
from miniflow.vision.models.registry import Variant


class DenseLayer(nn.Module):
    """`growth_rate` more channels: conv3x3(relu(bn(conv1x1(relu(bn(x)))))), with bn_size * growth_rate in between.

    Args:
        inputs, growth_rate, bn_size: channels, as above.
        drop_rate: probability with which outputs are dropped.
        memory_efficient: compute what comes before the 3x3 convolution again in backward.
    """

    def __init__(self, inputs: int, growth_rate: int, bn_size: int, drop_rate: float, memory_efficient: bool):
        super().__init__()
        self.norm1 = nn.BatchNorm2d(inputs)
        self.conv1 = nn.Conv2d(inputs, bn_size * growth_rate, kernel_size=1, bias=False)
        self.norm2 = nn.BatchNorm2d(bn_size * growth_rate)
        self.conv2 = nn.Conv2d(bn_size * growth_rate, growth_rate, kernel_size=3, padding=1, bias=False)
        self.drop_rate, self.memory_efficient = float(drop_rate), memory_efficient

    def bottleneck(self, *features: Tensor) -> Tensor:
        return self.conv1(F.relu(self.norm1(cat(features, 1))))

    def forward(self, features: Sequence[Tensor]) -> Tensor:
        x = checkpoint(self.bottleneck, *features) if self.memory_efficient else self.bottleneck(*features)
        return F.dropout(self.conv2(F.relu(self.norm2(x))), self.drop_rate, self.training)


class DenseBlock(nn.ModuleDict):
    """x and what each layer makes of x and of all layers before it, side by side."""

    def forward(self, x: Tensor) -> Tensor:
        features = [x]
        for layer in self.values():
            features.append(layer(features))
        return cat(features, 1)


class DenseNet(nn.Module):
    """A convolution, four dense blocks with half the channels and half the size after each, and a linear classifier.

    Args:
        growth_rate: the paper's k, how many channels each layer adds.
        block_config: how many layers there are in each block.
        num_init_features: channels of the first convolution.
        bn_size: inside a layer there are bn_size * growth_rate channels.
        drop_rate: probability, after each layer.
        num_classes: how many logits to return.
        memory_efficient: keep less for backward, and compute it again.

    >>> import miniflow as flow
    >>> DenseNet(8, (1, 1, 1, 1), 16, num_classes=10)(flow.zeros(2, 3, 32, 32)).shape
    miniflow.Size([2, 10])

    Source: Huang et al., 2016, table 1 (DenseNet-BC); `torchvision.models.densenet`.
    """

    def __init__(
        self, growth_rate: int = 32, block_config: Sequence[int] = (6, 12, 24, 16), num_init_features: int = 64,
        bn_size: int = 4, drop_rate: float = 0.0, num_classes: int = 1000, memory_efficient: bool = False,
    ):  # fmt: skip
        super().__init__()
        channels = num_init_features
        layers: dict[str, nn.Module] = {
            "conv0": nn.Conv2d(3, channels, kernel_size=7, stride=2, padding=3, bias=False),
            "norm0": nn.BatchNorm2d(channels),
            "relu0": nn.ReLU(inplace=True),
            "pool0": nn.MaxPool2d(kernel_size=3, stride=2, padding=1),  # (N, channels, H / 4, W / 4)
        }
        for i, depth in enumerate(block_config, 1):
            block = layers[f"denseblock{i}"] = DenseBlock()
            for j in range(1, depth + 1):
                block[f"denselayer{j}"] = DenseLayer(channels, growth_rate, bn_size, drop_rate, memory_efficient)
                channels += growth_rate
            if i < len(block_config):
                layers[f"transition{i}"] = nn.Sequential(
                    {
                        "norm": nn.BatchNorm2d(channels),
                        "relu": nn.ReLU(inplace=True),
                        "conv": nn.Conv2d(channels, channels // 2, kernel_size=1, bias=False),
                        "pool": nn.AvgPool2d(kernel_size=2, stride=2),
                    }
                )
                channels //= 2
        self.features = nn.Sequential({**layers, "norm5": nn.BatchNorm2d(channels)})  # (N, channels, H / 32, W / 32)
        self.classifier = nn.Linear(channels, num_classes)
        nn.init.zeros_(self.classifier.bias)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight)

    def forward(self, x: Tensor) -> Tensor:
        """The logits (N, num_classes) of images (N, 3, H, W)."""
        return self.classifier(F.relu(self.features(x)).mean((2, 3)))


densenet121 = Variant("densenet121", DenseNet, 32, (6, 12, 24, 16), 64, hub="timm/densenet121.tv_in1k")
densenet161 = Variant("densenet161", DenseNet, 48, (6, 12, 36, 24), 96, hub="timm/densenet161.tv_in1k")
densenet169 = Variant("densenet169", DenseNet, 32, (6, 12, 32, 32), 64, hub="timm/densenet169.tv_in1k")
densenet201 = Variant("densenet201", DenseNet, 32, (6, 12, 48, 32), 64, hub="timm/densenet201.tv_in1k")
