"""Networks for images: classes, and all variants by name, such as `resnet18(num_classes=10)`."""

from miniflow.vision.models import detection, segmentation
from miniflow.vision.models.alexnet import AlexNet
from miniflow.vision.models.convnext import ConvNeXt
from miniflow.vision.models.deit import DeiT
from miniflow.vision.models.densenet import DenseNet
from miniflow.vision.models.efficientnet import EfficientNet
from miniflow.vision.models.ghostnet import GhostNet
from miniflow.vision.models.googlenet import GoogLeNet, GoogLeNetOutputs
from miniflow.vision.models.inception import Inception3, InceptionOutputs
from miniflow.vision.models.lenet import LeNet
from miniflow.vision.models.mlp import MLP
from miniflow.vision.models.mlp_mixer import MlpMixer
from miniflow.vision.models.mnasnet import MNASNet
from miniflow.vision.models.mobilenetv1 import MobileNetV1
from miniflow.vision.models.mobilenetv2 import MobileNetV2
from miniflow.vision.models.mobilenetv3 import MobileNetV3
from miniflow.vision.models.pvt_v2 import PyramidVisionTransformerV2
from miniflow.vision.models.registry import MODELS, ModelCreator, create_model, get_model, list_models
from miniflow.vision.models.regnet import RegNet
from miniflow.vision.models.res2net import Res2Net
from miniflow.vision.models.resnet import ResNet
from miniflow.vision.models.senet import SENet
from miniflow.vision.models.shufflenetv2 import ShuffleNetV2
from miniflow.vision.models.squeezenet import SqueezeNet
from miniflow.vision.models.style_transfer import NeuralStyleTransfer, transfer_style
from miniflow.vision.models.swin_transformer import SwinTransformer
from miniflow.vision.models.vgg import VGG
from miniflow.vision.models.vision_transformer import VisionTransformer

globals().update(MODELS)  # `resnet18` and the others; of the same name as their file, `alexnet` and `googlenet`
