"""Models of folders of images: train, predict, explain, and the record in the model file of how one was made.

The command line is the public interface; this package does its work.
"""

from ledl.image_models._facts import (
    all_facts,
    doubtful_labels,
    facts,
    hits_of,
    n_nearly_equal,
    training_notes,
    with_interval,
)
from ledl.image_models._features import describe, extract, find_extractor, thumbnail
from ledl.image_models._fit import MANY_IMAGES, complete, contents_of, fit_features, fit_folder
from ledl.image_models._predict import explain_image, predict_files, rejecter_for, trained_on
from ledl.image_models._record import ImageModel, Prediction, Record, has_probabilities, open_image_model

__all__ = [
    "MANY_IMAGES",
    "ImageModel",
    "Prediction",
    "Record",
    "all_facts",
    "complete",
    "contents_of",
    "describe",
    "doubtful_labels",
    "explain_image",
    "extract",
    "facts",
    "find_extractor",
    "fit_features",
    "fit_folder",
    "has_probabilities",
    "hits_of",
    "n_nearly_equal",
    "open_image_model",
    "predict_files",
    "rejecter_for",
    "thumbnail",
    "trained_on",
    "training_notes",
    "with_interval",
]
