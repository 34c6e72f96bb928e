"""Read images, make features of them, list folders of labelled images. Needs the extra ``images``.

The public names are in `ledl.features` and `ledl.datasets`. The others are for the packages of ledl.
"""

from ledl.images._color import ColorFeatures
from ledl.images._efficientnet import NAME as EFFICIENTNET
from ledl.images._efficientnet import is_installed as efficientnet_is_installed
from ledl.images._extractors import ImageTransformer, NetworkFeatures, PixelFeatures
from ledl.images._folders import (
    ADVICE,
    REJECTED,
    UNSURE,
    Unused,
    equal_files,
    image_files,
    is_answer,
    is_hidden,
    labels_of_tables,
    load_image_folder,
    simplified,
    unused_lines,
)
from ledl.images._networks import CAFFE, IMAGENET, NetworkError, Preprocessing
from ledl.images._reading import (
    FORMATS,
    MAX_PIXELS,
    SUFFIXES,
    ImageError,
    Source,
    content_if_readable,
    content_key,
    height_and_width,
    median_short_side,
    pillow,
    read_image,
    shown,
)
from ledl.images._sorting import Sorter, why_no_folder
from ledl.images._tables import LONGEST_LABEL, find_table, read_labels

__all__ = [
    "ADVICE",
    "CAFFE",
    "EFFICIENTNET",
    "FORMATS",
    "IMAGENET",
    "LONGEST_LABEL",
    "MAX_PIXELS",
    "REJECTED",
    "SUFFIXES",
    "UNSURE",
    "ColorFeatures",
    "ImageError",
    "ImageTransformer",
    "NetworkError",
    "NetworkFeatures",
    "PixelFeatures",
    "Preprocessing",
    "Sorter",
    "Source",
    "Unused",
    "content_if_readable",
    "content_key",
    "efficientnet_is_installed",
    "equal_files",
    "find_table",
    "height_and_width",
    "image_files",
    "is_answer",
    "is_hidden",
    "labels_of_tables",
    "load_image_folder",
    "median_short_side",
    "pillow",
    "read_image",
    "read_labels",
    "shown",
    "simplified",
    "unused_lines",
    "why_no_folder",
]
