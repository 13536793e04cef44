"""Networks for images: classes, and variants by name, such as `resnet18(num_classes=10)`."""

from miniflow.vision.models import segmentation
from miniflow.vision.models.ghostnet import GhostNet, ghostnet_050, ghostnet_100, ghostnet_130
from miniflow.vision.models.lenet import LeNet
from miniflow.vision.models.mlp import MLP
from miniflow.vision.models.mobilenetv2 import MobileNetV2, mobilenet_v2
from miniflow.vision.models.mobilenetv3 import MobileNetV3, mobilenet_v3_large, mobilenet_v3_small
from miniflow.vision.models.registry import ModelCreator, create_model, get_model, list_models
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
from miniflow.vision.models.style_transfer import NeuralStyleTransfer, neural_style_transfer, transfer_style
