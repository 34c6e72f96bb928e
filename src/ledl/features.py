"""Turn images into features: pixels, or the last layer of a ResNet (extra ``images``)."""

from ledl.images import CAFFE, IMAGENET, ImageError, NetworkError, PixelFeatures, Preprocessing, ResNetFeatures

__all__ = [
    "CAFFE",
    "IMAGENET",
    "ImageError",
    "NetworkError",
    "PixelFeatures",
    "Preprocessing",
    "ResNetFeatures",
]
