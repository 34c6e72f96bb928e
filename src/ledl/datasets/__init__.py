"""Load the paper's datasets and folders of images, and make few-shot splits."""

from ledl.datasets._archives import ArchiveError, extract
from ledl.datasets._load import NETWORK_FILE, Availability, available, data_folder, load
from ledl.datasets._splits import FewShotSplit, few_shot_splits, n_shared_samples
from ledl.images import load_image_folder

__all__ = [
    "NETWORK_FILE",
    "ArchiveError",
    "Availability",
    "FewShotSplit",
    "available",
    "data_folder",
    "extract",
    "few_shot_splits",
    "load",
    "load_image_folder",
    "n_shared_samples",
]
