"""Networks for images: classes, and variants by name, such as `resnet18(num_classes=10)`."""

from miniflow.vision.models import detection, segmentation
from miniflow.vision.models.alexnet import AlexNet, alexnet
from miniflow.vision.models.convnext import (
    ConvNeXt,
    convnext_base,
    convnext_large,
    convnext_small,
    convnext_tiny,
)
from miniflow.vision.models.deit import (
    DeiT,
    deit_base_distilled_patch16_224,
    deit_base_distilled_patch16_384,
    deit_base_patch16_224,
    deit_base_patch16_384,
    deit_small_distilled_patch16_224,
    deit_small_patch16_224,
    deit_tiny_distilled_patch16_224,
    deit_tiny_patch16_224,
)
from miniflow.vision.models.densenet import DenseNet, densenet121, densenet161, densenet169, densenet201
from miniflow.vision.models.efficientnet import (
    EfficientNet,
    efficientnet_b0,
    efficientnet_b1,
    efficientnet_b2,
    efficientnet_b3,
    efficientnet_b4,
    efficientnet_b5,
    efficientnet_b6,
    efficientnet_b7,
    efficientnet_v2_l,
    efficientnet_v2_m,
    efficientnet_v2_s,
)
from miniflow.vision.models.ghostnet import GhostNet, ghostnet_050, ghostnet_100, ghostnet_130
from miniflow.vision.models.googlenet import GoogLeNet, GoogLeNetOutputs, googlenet
from miniflow.vision.models.inception import Inception3, InceptionOutputs, inception_v3
from miniflow.vision.models.lenet import LeNet
from miniflow.vision.models.mlp import MLP
from miniflow.vision.models.mlp_mixer import (
    MlpMixer,
    gmlp_b16_224,
    gmlp_s16_224,
    gmlp_ti16_224,
    mixer_b16_224,
    mixer_b32_224,
    mixer_l16_224,
    mixer_l32_224,
    mixer_s16_224,
    mixer_s32_224,
    resmlp_12_224,
    resmlp_24_224,
    resmlp_36_224,
    resmlp_big_24_224,
)
from miniflow.vision.models.mnasnet import MNASNet, mnasnet0_5, mnasnet0_75, mnasnet1_0, mnasnet1_3
from miniflow.vision.models.mobilenetv1 import MobileNetV1, mobilenetv1_100, mobilenetv1_125
from miniflow.vision.models.mobilenetv2 import MobileNetV2, mobilenet_v2
from miniflow.vision.models.mobilenetv3 import MobileNetV3, mobilenet_v3_large, mobilenet_v3_small
from miniflow.vision.models.pvt_v2 import (
    PyramidVisionTransformerV2,
    pvt_v2_b0,
    pvt_v2_b1,
    pvt_v2_b2,
    pvt_v2_b3,
    pvt_v2_b4,
    pvt_v2_b5,
)
from miniflow.vision.models.registry import ModelCreator, create_model, get_model, list_models
from miniflow.vision.models.regnet import (
    RegNet,
    regnet_x_1_6gf,
    regnet_x_3_2gf,
    regnet_x_8gf,
    regnet_x_16gf,
    regnet_x_32gf,
    regnet_x_400mf,
    regnet_x_800mf,
    regnet_y_1_6gf,
    regnet_y_3_2gf,
    regnet_y_8gf,
    regnet_y_16gf,
    regnet_y_32gf,
    regnet_y_128gf,
    regnet_y_400mf,
    regnet_y_800mf,
)
from miniflow.vision.models.res2net import (
    Res2Net,
    res2net50_14w_8s,
    res2net50_26w_4s,
    res2net50_26w_6s,
    res2net50_26w_8s,
    res2net50_48w_2s,
    res2net101_26w_4s,
    res2next50,
)
from miniflow.vision.models.resnet import (
    ResNet,
    resnet18,
    resnet34,
    resnet50,
    resnet101,
    resnet152,
    resnext50_32x4d,
    resnext101_32x8d,
    resnext101_64x4d,
    wide_resnet50_2,
    wide_resnet101_2,
)
from miniflow.vision.models.senet import (
    SENet,
    se_resnet18,
    se_resnet34,
    se_resnet50,
    se_resnet101,
    se_resnet152,
    se_resnext26_32x4d,
    se_resnext50_32x4d,
    se_resnext101_32x4d,
    senet154,
)
from miniflow.vision.models.shufflenetv2 import (
    ShuffleNetV2,
    shufflenet_v2_x0_5,
    shufflenet_v2_x1_0,
    shufflenet_v2_x1_5,
    shufflenet_v2_x2_0,
)
from miniflow.vision.models.squeezenet import SqueezeNet, squeezenet1_0, squeezenet1_1
from miniflow.vision.models.style_transfer import NeuralStyleTransfer, neural_style_transfer, transfer_style
from miniflow.vision.models.swin_transformer import (
    SwinTransformer,
    swin_b,
    swin_s,
    swin_t,
    swin_v2_b,
    swin_v2_s,
    swin_v2_t,
)
from miniflow.vision.models.vgg import VGG, vgg11, vgg11_bn, vgg13, vgg13_bn, vgg16, vgg16_bn, vgg19, vgg19_bn
from miniflow.vision.models.vision_transformer import (
    VisionTransformer,
    vit_b_16,
    vit_b_32,
    vit_h_14,
    vit_l_16,
    vit_l_32,
)
