"""The paper's datasets, folders of images, and few-shot splits of them."""

from ledl.datasets._archives import ArchiveError, extract
from ledl.datasets._folder import load_image_folder
from ledl.datasets._load import Availability, available, load
from ledl.datasets._splits import FewShotSplit, few_shot_splits, n_shared_samples

__all__ = [
    "ArchiveError",
    "Availability",
    "FewShotSplit",
    "available",
    "extract",
    "few_shot_splits",
    "load",
    "load_image_folder",
    "n_shared_samples",
]
