"""Models of folders of images: what the command line does. Not public: commands are the interface."""

from ledl._images._files import absolute, image_files, trained_on, write_dataset
from ledl._images._models import (
    ImageModel,
    Prediction,
    all_facts,
    explain_image,
    facts,
    image_model,
    open_image_model,
    predict_files,
    rejecter_for,
)
from ledl._images._record import Record, standard_error
from ledl._images._training import Trained, describe, fit_folder

__all__ = [
    "ImageModel",
    "Prediction",
    "Record",
    "Trained",
    "absolute",
    "all_facts",
    "describe",
    "explain_image",
    "facts",
    "fit_folder",
    "image_files",
    "image_model",
    "open_image_model",
    "predict_files",
    "rejecter_for",
    "standard_error",
    "trained_on",
    "write_dataset",
]
