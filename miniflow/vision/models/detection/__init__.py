"""Networks that find objects: a box, a class and a score for each."""

from miniflow.vision.models.detection.anchors import AnchorGenerator
from miniflow.vision.models.detection.backbones import BackboneWithFPN, resnet_fpn_backbone
from miniflow.vision.models.detection.faster_rcnn import (
    FasterRCNN,
    FastRCNNPredictor,
    fasterrcnn_mobilenet_v3_large_320_fpn,
    fasterrcnn_mobilenet_v3_large_fpn,
    fasterrcnn_resnet50_fpn,
)
from miniflow.vision.models.detection.retinanet import RetinaNet, retinanet_resnet50_fpn
from miniflow.vision.models.detection.ssd import SSD, ssd300_vgg16, ssdlite320_mobilenet_v3_large
