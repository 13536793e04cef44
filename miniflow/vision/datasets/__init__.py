"""Data sets of images, with torchvision's names. Files are fetched only where `download=True` asks for it."""

from miniflow.vision.datasets.cifar import CIFAR10, CIFAR100
from miniflow.vision.datasets.coco import CocoDetection
from miniflow.vision.datasets.fakedata import FakeData
from miniflow.vision.datasets.folder import IMG_EXTENSIONS, DatasetFolder, ImageFolder, default_loader
from miniflow.vision.datasets.mnist import MNIST, FashionMNIST
from miniflow.vision.datasets.vision import VisionDataset
from miniflow.vision.datasets.voc import VOCDetection, VOCSegmentation
