"""Networks that give each pixel a class."""

from miniflow.vision.models.segmentation.deeplabv3 import (
    DeepLabV3,
    deeplabv3_mobilenet_v3_large,
    deeplabv3_resnet50,
    deeplabv3_resnet101,
)
from miniflow.vision.models.segmentation.fcn import FCN, fcn_resnet50, fcn_resnet101
from miniflow.vision.models.segmentation.lraspp import LRASPP, lraspp_mobilenet_v3_large
