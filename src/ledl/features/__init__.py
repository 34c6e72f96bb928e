"""From images to features: pixels, and the last layer of a ResNet (extra ``images``)."""

from ledl.features._images import ImageError
from ledl.features._pixels import PixelFeatures
from ledl.features._preprocessing import CAFFE, IMAGENET, Preprocessing
from ledl.features._resnet import ResNetFeatures

__all__ = ["CAFFE", "IMAGENET", "ImageError", "PixelFeatures", "Preprocessing", "ResNetFeatures"]
