"""Turn images into features: pixels, colours and textures, or the output of a network (extra ``images``)."""

from ledl.images import (
    CAFFE,
    IMAGENET,
    ColorFeatures,
    ImageError,
    NetworkError,
    NetworkFeatures,
    PixelFeatures,
    Preprocessing,
)

__all__ = [
    "CAFFE",
    "IMAGENET",
    "ColorFeatures",
    "ImageError",
    "NetworkError",
    "NetworkFeatures",
    "PixelFeatures",
    "Preprocessing",
]
