"""Layers of networks for images: attention, blocks, regularization, activations, initialization, boxes."""

from miniflow.vision.layers.attention import SE, SEModule, SqueezeExcitation
from miniflow.vision.layers.blocks import (
    FPN,
    Conv2dNormActivation,
    Conv2dSame,
    ConvBnAct,
    ConvMlp,
    FeaturePyramidNetwork,
    FrozenBatchNorm2d,
    GatedMlp,
    GluMlp,
    LastLevelMaxPool,
    LastLevelP6P7,
    LayerNorm2d,
    Mlp,
    PatchEmbed,
    make_divisible,
)
from miniflow.vision.layers.regularization import (
    DropBlock,
    DropBlock2d,
    DropPath,
    StochasticDepth,
    drop_block2d,
    drop_path,
    stochastic_depth,
)
from miniflow.vision.layers.weight_init import init_convolutions

__all__ = [
    "FPN",
    "SE",
    "Conv2dNormActivation",
    "Conv2dSame",
    "ConvBnAct",
    "ConvMlp",
    "DropBlock",
    "DropBlock2d",
    "DropPath",
    "FeaturePyramidNetwork",
    "FrozenBatchNorm2d",
    "GatedMlp",
    "GluMlp",
    "LastLevelMaxPool",
    "LastLevelP6P7",
    "LayerNorm2d",
    "Mlp",
    "PatchEmbed",
    "SEModule",
    "SqueezeExcitation",
    "StochasticDepth",
    "drop_block2d",
    "drop_path",
    "init_convolutions",
    "make_divisible",
    "stochastic_depth",
]
