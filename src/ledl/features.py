"""Turn images into features: pixels, colours and textures, or the output of a network (extra ``images``)."""

from ledl.images import (
    CAFFE,
    IMAGENET,
    ColorFeatures,
    ImageError,
    NetworkError,
    PixelFeatures,
    Preprocessing,
    ResNetFeatures,
)

__all__ = [
    "CAFFE",
    "IMAGENET",
    "ColorFeatures",
    "ImageError",
    "NetworkError",
    "PixelFeatures",
    "Preprocessing",
    "ResNetFeatures",
]
