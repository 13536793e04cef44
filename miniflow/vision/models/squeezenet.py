"""SqueezeNet: AlexNet's accuracy with a fiftieth of its parameters, since 3x3 convolutions see few channels.

Iandola et al., "SqueezeNet: AlexNet-level accuracy with 50x fewer parameters and < 0.5MB model size", 2016.
"""

from __future__ import annotations

from miniflow import nn
from miniflow.errors import ArgumentError
from miniflow.ops.joining import cat
from miniflow.tensor import Tensor
from miniflow.vision.models.registry import Variant


class Fire(nn.Module):
    """Few channels by a 1x1 convolution, and from them as many again by 1x1 and by 3x3 convolutions, side by side.

    Args:
        inputs: channels of the input.
        s, e: channels of the squeeze layer, and of each of both expand layers: the output has 2 e.
    """

    def __init__(self, inputs: int, s: int, e: int):
        super().__init__()
        self.squeeze = nn.Conv2d(inputs, s, kernel_size=1)
        self.expand1x1 = nn.Conv2d(s, e, kernel_size=1)
        self.expand3x3 = nn.Conv2d(s, e, kernel_size=3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.squeeze(x).relu()
        return cat([self.expand1x1(x).relu(), self.expand3x3(x).relu()], 1)


FIRES = ((64, 16, 64), (128, 16, 64), (128, 32, 128), (256, 32, 128))
FIRES += ((256, 48, 192), (384, 48, 192), (384, 64, 256), (512, 64, 256))


class SqueezeNet(nn.Module):
    """A convolution, eight fire modules among three max poolings, a 1x1 convolution, and the mean over the image.

    Args:
        version: "1_0" is the paper's; "1_1" has a smaller first convolution and pools sooner, for 2.4 times less work.
        num_classes: how many logits to return.
        dropout: probability, before the last convolution.

    Raises:
        ArgumentError: for another version.

    >>> import miniflow as flow
    >>> SqueezeNet("1_1", num_classes=10)(flow.zeros(2, 3, 32, 32)).shape
    miniflow.Size([2, 10])

    Source: Iandola et al., 2016, table 1; `torchvision.models.squeezenet`.
    """

    def __init__(self, version: str = "1_0", num_classes: int = 1000, dropout: float = 0.5):
        super().__init__()
        if version not in ("1_0", "1_1"):
            raise ArgumentError(f'SqueezeNet: got version={version!r}; expected "1_0" or "1_1"')
        channels, kernel_size, pooled = (96, 7, (0, 3, 7)) if version == "1_0" else (64, 3, (0, 2, 4))
        layers: list[nn.Module] = [nn.Conv2d(3, channels, kernel_size, stride=2), nn.ReLU(inplace=True)]
        for i, (inputs, s, e) in enumerate(FIRES):
            if i in pooled:
                layers.append(nn.MaxPool2d(kernel_size=3, stride=2, ceil_mode=True))
            layers.append(Fire(channels if i == 0 else inputs, s, e))
        self.features = nn.Sequential(*layers)  # (N, 512, H / 16, W / 16)
        last = nn.Conv2d(512, num_classes, kernel_size=1)
        self.classifier = nn.Sequential(nn.Dropout(dropout), last, nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1))
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_uniform_(module.weight)
                nn.init.zeros_(module.bias)
        nn.init.normal_(last.weight, std=0.01)

    def forward(self, x: Tensor) -> Tensor:
        """The logits (N, num_classes), none of them negative, of images (N, 3, H, W)."""
        return self.classifier(self.features(x)).flatten(1)


squeezenet1_0 = Variant("squeezenet1_0", SqueezeNet, "1_0")
squeezenet1_1 = Variant("squeezenet1_1", SqueezeNet, "1_1")
