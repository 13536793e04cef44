"""Neural style transfer: a picture with the content of one image and the style of another.

Gatys et al., "A Neural Algorithm of Artistic Style", 2015 (`transfer_style` optimizes the picture); Johnson et al.,
"Perceptual Losses for Real-Time Style Transfer and Super-Resolution", 2016 (a network that has learned one style).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from miniflow import nn
from miniflow.autograd import grad
from miniflow.errors import ArgumentError
from miniflow.nn import functional as F
from miniflow.ops.creation import tensor
from miniflow.optim import LBFGS
from miniflow.tensor import Tensor
from miniflow.vision.models.registry import ModelCreator, Variant


class ConvLayer(nn.Module):
    """A convolution of an image that is reflected at its border, made `upsample` times larger before."""

    def __init__(self, inputs: int, outputs: int, kernel_size: int, stride: int = 1, upsample: int = 1):
        super().__init__()
        self.upsample = upsample
        self.conv2d = nn.Conv2d(inputs, outputs, kernel_size, stride, kernel_size // 2, padding_mode="reflect")

    def forward(self, x: Tensor) -> Tensor:
        return self.conv2d(x if self.upsample == 1 else F.interpolate(x, scale_factor=self.upsample, mode="nearest"))


class ResidualBlock(nn.Module):
    """x + norm(conv(relu(norm(conv(x)))))."""

    def __init__(self, channels: int):
        super().__init__()
        self.conv1, self.conv2 = ConvLayer(channels, channels, 3), ConvLayer(channels, channels, 3)
        self.in1, self.in2 = (nn.InstanceNorm2d(channels, affine=True) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.in2(self.conv2(self.in1(self.conv1(x)).relu()))


class NeuralStyleTransfer(nn.Module):
    """A network from images to images in one style: down to a quarter of the size, five residual blocks, and up again.

    Shapes: (N, 3, H, W) -> the same, if 4 divides H and W. Values are from 0 to 255.

    Source: Johnson et al., 2016, with instance normalization (Ulyanov et al., 2016) and nearest upsampling;
    `TransformerNet` of PyTorch's example fast_neural_style, `flowvision.models.neural_style_transfer`.
    """

    def __init__(self):
        super().__init__()
        self.conv1, self.in1 = ConvLayer(3, 32, 9), nn.InstanceNorm2d(32, affine=True)
        self.conv2, self.in2 = ConvLayer(32, 64, 3, stride=2), nn.InstanceNorm2d(64, affine=True)
        self.conv3, self.in3 = ConvLayer(64, 128, 3, stride=2), nn.InstanceNorm2d(128, affine=True)
        for n in range(1, 6):
            self.add_module(f"res{n}", ResidualBlock(128))
        self.deconv1, self.in4 = ConvLayer(128, 64, 3, upsample=2), nn.InstanceNorm2d(64, affine=True)
        self.deconv2, self.in5 = ConvLayer(64, 32, 3, upsample=2), nn.InstanceNorm2d(32, affine=True)
        self.deconv3 = ConvLayer(32, 3, 9)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        for name in [name for name in state_dict if re.search(r"in\d\.running_(mean|var)$", name)]:
            del state_dict[name]  # the example's first files have statistics, which nothing uses
        super()._load_from_state_dict(state_dict, prefix, *args)

    def forward(self, x: Tensor) -> Tensor:
        x = self.in1(self.conv1(x)).relu()  # (N, 32, H, W)
        x = self.in2(self.conv2(x)).relu()
        x = self.in3(self.conv3(x)).relu()  # (N, 128, H / 4, W / 4)
        x = self.res5(self.res4(self.res3(self.res2(self.res1(x)))))
        x = self.in4(self.deconv1(x)).relu()
        x = self.in5(self.deconv2(x)).relu()
        return self.deconv3(x).clamp(0, 255)


STYLES = {
    style: Variant(f"neural_style_transfer_{style}", NeuralStyleTransfer, source=f"fast_neural_style/{style}")
    for style in ("sketch", "candy", "mosaic", "rain_princess", "udnie")
}


@ModelCreator.register_model
def neural_style_transfer(
    pretrained: bool = False, progress: bool = True, style_model: str = "sketch", **options: Any
) -> nn.Module:
    """The network of one of five styles: "sketch", "candy", "mosaic", "rain_princess", "udnie".

    They differ in their weights. `pretrained` and the options are those of all models by name.

    Raises:
        ArgumentError: for another style.
        CheckpointNotFoundError: if the file of weights is not there.

    Source: `flowvision.models.neural_style_transfer`.
    """
    if style_model not in STYLES:
        raise ArgumentError(f"neural_style_transfer: got style_model={style_model!r}; expected one of {list(STYLES)}")
    return STYLES[style_model](pretrained, progress, **options)


def gram_matrix(maps: Tensor) -> Tensor:
    """F F^T / (C H W) of features (N, C, H, W): how each pair of channels goes together, wherever in the image.

    Returns:
        shape (N, C, C).

    Source: Gatys et al., 2015, equation 3.
    """
    features = maps.flatten(2)
    return features @ features.transpose(1, 2) / features[0].numel()


def vgg_features(features: nn.Sequential, images: Tensor, names: Sequence[str]) -> dict[str, Tensor]:
    """What chosen layers of a VGG compute: "relu3_2" is after the second convolution of the third group.

    Raises:
        ArgumentError: for a name that there is not.
    """
    found, group, position = {}, 1, 0
    for layer in features:
        images = layer(images)
        if isinstance(layer, nn.MaxPool2d):
            group, position = group + 1, 0
        elif isinstance(layer, nn.ReLU):
            position += 1
            found[f"relu{group}_{position}"] = images
    if missing := set(names) - set(found):
        raise ArgumentError(f"vgg_features: got {sorted(missing)}; expected some of {list(found)}")
    return {name: found[name] for name in names}


def transfer_style(
    content: Tensor, style: Tensor, features: nn.Sequential, *, steps: int = 300,
    content_layers: Sequence[str] = ("relu4_2",),
    style_layers: Sequence[str] = ("relu1_1", "relu2_1", "relu3_1", "relu4_1", "relu5_1"),
    content_weight: float = 1.0, style_weight: float = 1e6, callback: Callable[[float], Any] | None = None,
) -> Tensor:  # fmt: skip
    """An image whose features are those of `content`, while their Gram matrices are those of `style`.

    The loss is content_weight * mean((F - P)^2), summed over the content layers, plus style_weight *
    mean((G - A)^2), summed over the style layers. L-BFGS makes it smaller, from `content` on.

    Args:
        content, style: images (1, 3, H, W), from 0 to 1; their sizes may differ.
        features: of a VGG in evaluation mode, as `vgg19().features`; random weights serve, too, less well.
        steps: how many steps L-BFGS makes.
        content_layers, style_layers: see `vgg_features`.
        content_weight, style_weight: of the two losses.
        callback: is called with the loss whenever it was computed.

    Returns:
        the image, shape and range as of `content`.

    Source: Gatys et al., 2015, equations 1 to 7, with means for sums.
    """
    mean, std = (
        tensor(x, device=content.device).reshape(1, 3, 1, 1) for x in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    )

    def look(image: Tensor, names: Sequence[str]) -> dict[str, Tensor]:
        return vgg_features(features, (image - mean) / std, names)

    wanted = {name: maps.detach() for name, maps in look(content, content_layers).items()}
    grams = {name: gram_matrix(maps).detach() for name, maps in look(style, style_layers).items()}
    image = content.detach().clone().requires_grad_()
    optimizer = LBFGS([image], max_iter=steps, tolerance_grad=0.0, tolerance_change=0.0, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        maps = look(image, {**wanted, **grams})
        loss = content_weight * sum(F.mse_loss(maps[name], wanted[name]) for name in wanted)
        loss = loss + style_weight * sum(F.mse_loss(gram_matrix(maps[name]), grams[name]) for name in grams)
        (image.grad,) = grad(loss, [image])
        if callback:
            callback(loss.item())
        return loss.detach()

    optimizer.step(closure)
    return image.detach().clamp(0, 1)
