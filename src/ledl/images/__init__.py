"""Images as input: reading them, their features, and folders of them with labels. Needs the extra ``images``.

The public names are those of `ledl.features` and `ledl.datasets`; the others are for the packages of ledl.
"""

from ledl.images._extractors import PixelFeatures, ResNetFeatures
from ledl.images._networks import CAFFE, IMAGENET, Preprocessing
from ledl.images._reading import (
    FORMATS,
    MAX_PIXELS,
    ImageError,
    Source,
    content_key,
    height_and_width,
    image_files,
    is_file,
    load_image_folder,
    pillow,
    read_image,
    shown,
)

__all__ = [
    "CAFFE",
    "FORMATS",
    "IMAGENET",
    "MAX_PIXELS",
    "ImageError",
    "PixelFeatures",
    "Preprocessing",
    "ResNetFeatures",
    "Source",
    "content_key",
    "height_and_width",
    "image_files",
    "is_file",
    "load_image_folder",
    "pillow",
    "read_image",
    "shown",
]
