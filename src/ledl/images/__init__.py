"""Models of folders of images: what the command line does, for those who would rather call it."""

from ledl.images._files import image_files, trained_on, write_dataset
from ledl.images._models import (
    ImageModel,
    Prediction,
    all_facts,
    check_can_reject,
    explain_image,
    facts,
    open_image_model,
    predict_files,
)
from ledl.images._record import Record
from ledl.images._training import Trained, describe, fit_folder

__all__ = [
    "ImageModel",
    "Prediction",
    "Record",
    "Trained",
    "all_facts",
    "check_can_reject",
    "describe",
    "explain_image",
    "facts",
    "fit_folder",
    "image_files",
    "open_image_model",
    "predict_files",
    "trained_on",
    "write_dataset",
]
