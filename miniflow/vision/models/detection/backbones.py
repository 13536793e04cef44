"""Classifiers with a feature pyramid on top: feature maps of several sizes, each with 256 channels."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from miniflow import nn
from miniflow.backends.runtime_defaults import user_level
from miniflow.errors import ArgumentError
from miniflow.tensor import Tensor
from miniflow.vision.layers import FeaturePyramidNetwork, FrozenBatchNorm2d, LastLevelMaxPool
from miniflow.vision.layers.blocks import Factory
from miniflow.vision.models.features import MOBILENET_V3_STAGES, IntermediateLayerGetter
from miniflow.vision.models.mobilenetv3 import mobilenet_v3_large
from miniflow.vision.models.registry import MODELS, Variant


class BackboneWithFPN(nn.Module):
    """A pyramid of what some children of a network compute.

    Args:
        backbone: the network.
        return_layers: names of children, and the names of the feature maps.
        in_channels_list: their channels.
        out_channels: of all feature maps of the pyramid.
        extra_blocks: what makes further maps; by default `LastLevelMaxPool`.

    Source: `torchvision.models.detection.backbone_utils.BackboneWithFPN`.
    """

    def __init__(
        self, backbone: nn.Module, return_layers: Mapping[str, str], in_channels_list: Sequence[int],
        out_channels: int = 256, extra_blocks: nn.Module | None = None,
    ):  # fmt: skip
        super().__init__()
        self.body = IntermediateLayerGetter(backbone, return_layers)
        self.fpn = FeaturePyramidNetwork(in_channels_list, out_channels, extra_blocks or LastLevelMaxPool())
        self.out_channels = out_channels

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return self.fpn(self.body(x))


def freeze(stages: Sequence[Sequence[nn.Module]], trainable: int | None) -> None:
    """Let only the last stages of a backbone learn, each of several modules; None for all."""
    learning = len(stages) if trainable is None else trainable
    if not 0 <= learning <= len(stages):
        raise ArgumentError(f"got {trainable} trainable backbone layers, expected 0 to {len(stages)}")
    for stage in stages[: len(stages) - learning]:
        for module in stage:
            module.requires_grad_(False)


def resnet_fpn_backbone(
    backbone_name: str, weights: Any = None, norm_layer: Factory = FrozenBatchNorm2d,
    trainable_layers: int | None = 3, returned_layers: Sequence[int] = (1, 2, 3, 4),
    extra_blocks: nn.Module | None = None,
) -> BackboneWithFPN:  # fmt: skip
    """A ResNet with a feature pyramid.

    Args:
        backbone_name: "resnet18", ...
        weights: other than None: load trained weights of the ResNet.
        norm_layer: makes its normalizations.
        trainable_layers: how many of its five stages learn; None for all.
        returned_layers: which stages the pyramid is built on.
        extra_blocks: makes further maps; by default `LastLevelMaxPool`.

    >>> import miniflow as flow
    >>> maps = resnet_fpn_backbone("resnet18")(flow.zeros(1, 3, 64, 64))
    >>> [(name, *x.shape[1:]) for name, x in maps.items()]
    [('0', 256, 16, 16), ('1', 256, 8, 8), ('2', 256, 4, 4), ('3', 256, 2, 2), ('pool', 256, 1, 1)]

    Source: Lin et al., "Feature pyramid networks for object detection", 2017;
    `torchvision.models.detection.backbone_utils.resnet_fpn_backbone`.
    """
    if backbone_name not in MODELS:
        raise ArgumentError(f"resnet_fpn_backbone: got {backbone_name!r}, expected a ResNet such as 'resnet50'")
    body = MODELS[backbone_name](weights=weights, norm_layer=norm_layer)
    freeze([[body.conv1, body.bn1], [body.layer1], [body.layer2], [body.layer3], [body.layer4]], trainable_layers)
    names = {f"layer{stage}": str(i) for i, stage in enumerate(returned_layers)}
    channels = [body.inplanes // 2 ** (4 - stage) for stage in returned_layers]
    return BackboneWithFPN(body, names, channels, extra_blocks=extra_blocks)


def mobilenet_v3(weights: Any, norm_layer: Factory, trainable_layers: int | None, **options: Any) -> nn.Sequential:
    """The convolutions of the large MobileNet v3, which has six stages."""
    features = mobilenet_v3_large(weights=weights, norm_layer=norm_layer, **options).features
    stages = itertools.pairwise((*MOBILENET_V3_STAGES, len(features)))
    freeze([list(features)[start:end] for start, end in stages], trainable_layers)
    return features


def mobilenet_fpn_backbone(weights: Any, norm_layer: Factory, trainable_layers: int | None) -> BackboneWithFPN:
    """The large MobileNet v3 with a feature pyramid on its last two stages."""
    body, last = mobilenet_v3(weights, norm_layer, trainable_layers), MOBILENET_V3_STAGES[-2:]
    return BackboneWithFPN(body, {str(last[0]): "0", str(last[1]): "1"}, [body[i].out_channels for i in last])


def detector(
    network: Callable[..., nn.Module], backbone: Callable[..., nn.Module], stages: int, eps: float = 1e-5, *,
    num_classes: int = 91, weights_backbone: Any = None, trainable_backbone_layers: int | None = None,
    trained: bool = False, **options: Any,
) -> nn.Module:  # fmt: skip
    """A detector. Where there are trained weights, the statistics of its backbone and its first stages are constant.

    Args:
        network: makes it of a backbone.
        backbone: makes that from `weights_backbone`, from what makes normalizations, and from how many stages learn.
        stages: how many stages of a trained backbone learn by default.
        eps: of the normalizations of the detector in the file of trained weights.
        num_classes: with the background, which is class 0; COCO has 91.
        weights_backbone: other than None: load trained weights of the backbone.
        trainable_backbone_layers: how many stages of a trained backbone learn; of another one all do.
        trained: whether trained weights of the whole detector will be loaded.
        **options: of the detector.
    """
    if trained or weights_backbone is not None:
        norm_layer = partial(FrozenBatchNorm2d, eps=eps if trained else 1e-5)
        learning = stages if trainable_backbone_layers is None else trainable_backbone_layers
    else:
        norm_layer, learning = nn.BatchNorm2d, None
        if trainable_backbone_layers is not None:
            warnings.warn(
                "trainable_backbone_layers needs trained weights: all layers are trained", stacklevel=user_level()
            )
    return network(backbone(weights_backbone, norm_layer, learning), num_classes=num_classes, **options)


def variant(name: str, *arguments: Any, **options: Any) -> Variant:
    """A detector by its name; arguments and options of `detector`."""
    return Variant(name, detector, *arguments, trained={"trained": True}, **options)
