"""Networks for images: classes, and variants by name, such as `resnet18(num_classes=10)`."""

from miniflow.vision.models.lenet import LeNet
from miniflow.vision.models.mlp import MLP
from miniflow.vision.models.mobilenetv2 import MobileNetV2, mobilenet_v2
from miniflow.vision.models.mobilenetv3 import MobileNetV3, mobilenet_v3_large, mobilenet_v3_small
from miniflow.vision.models.registry import ModelCreator, create_model, get_model, list_models
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
