"""Models of folders of images: train, predict, explain, and the record of all that in a file.

What the command line does, without the command line; not public, since commands are the interface.
"""

from ledl.image_models._models import (
    REJECTED,
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
from ledl.image_models._record import Record, standard_error, trained_on
from ledl.image_models._training import fit_folder

__all__ = [
    "REJECTED",
    "ImageModel",
    "Prediction",
    "Record",
    "all_facts",
    "explain_image",
    "facts",
    "fit_folder",
    "image_model",
    "open_image_model",
    "predict_files",
    "rejecter_for",
    "standard_error",
    "trained_on",
]
