"""Layers of networks for images: attention, blocks, regularization, activations, initialization, boxes."""

from miniflow.vision.layers.activation import hard_sigmoid, hard_swish
from miniflow.vision.layers.attention import (
    BAM,
    CBAM,
    ECA,
    GCT,
    SE,
    Attention,
    CoordAtt,
    GlobalContext,
    NonLocal,
    SEModule,
    SqueezeExcitation,
    SRAttention,
)
from miniflow.vision.layers.blocks import (
    FPN,
    MLP,
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
    Permute,
    make_divisible,
)
from miniflow.vision.layers.boxes import (
    MultiScaleRoIAlign,
    batched_nms,
    box_area,
    box_convert,
    box_iou,
    clip_boxes_to_image,
    generalized_box_iou,
    generalized_box_iou_loss,
    nms,
    remove_small_boxes,
    roi_align,
    sigmoid_focal_loss,
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
from miniflow.vision.layers.weight_init import (
    init_convolutions,
    init_linears,
    init_truncated,
    lecun_normal_,
    trunc_normal_,
    variance_scaling_,
)
