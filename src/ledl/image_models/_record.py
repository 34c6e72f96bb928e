"""Models of folders of images, and the record in their files of how they were made."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from itertools import chain
from numbers import Real
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ledl.arrays import Array
from ledl.image_models._features import describe
from ledl.images import LONGEST_LABEL, REJECTED, ImageTransformer, NetworkFeatures, shown
from ledl.persistence import ModelFileError, read
from ledl.rejection import Parts, parts_of

KIND = "ledl fit"  # marks the records of this module in model files
# Fields of a record with texts about each training image.
TEXTS = ("cv_answers", "near_copies", "files", "sha256", "labels", "unlabelled")


@dataclass(frozen=True)
class Record:
    """Record how a model was trained, on which images, and its accuracy. Empty for models made elsewhere."""

    kind: str = KIND
    made: str = ""  # date and time, UTC
    method: str = ""
    settings: dict[str, Any] = field(default_factory=dict)  # chosen by cross-validation
    select: str = "defaults"
    per_class: int | None = None
    seed: int = 0
    cv_accuracy: float | None = None
    cv_interval: list[float] = field(default_factory=list)  # the 95 % interval of the accuracy
    cv_corrected: bool = False  # True if the accuracy allows for the choice of the settings
    cv_folds: int = 0
    # For each training image the answer of a model that has not seen it, "" if there is none; and the
    # probabilities of this answer and of its own label, if the method has them.
    cv_answers: list[str] = field(default_factory=list)
    cv_probabilities: Array | None = None  # (n, 2), NaN where there is no answer
    near_copies: list[list[str]] = field(default_factory=list)  # pairs of training images that are nearly equal
    files: list[str] = field(default_factory=list)  # class/name of the training images
    sha256: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    unlabelled: list[str] = field(default_factory=list)  # names of the unlabelled training images
    skipped: list[list[str]] = field(default_factory=list)  # names and reasons
    thumbnails: list[Array] | None = None  # JPEG files as arrays of bytes

    def to_info(self) -> dict[str, Any]:
        """Return the record as the info of a model file. Texts of all images are arrays: lists have a limit."""
        info = {f.name: getattr(self, f.name) for f in fields(self)}
        for name in TEXTS:
            info[name] = np.array(info[name], dtype=str) if info[name] else []
        return info

    @property
    def names(self) -> list[str]:
        """Return the names of all training images, those with labels first."""
        return [*self.files, *self.unlabelled]

    @classmethod
    def from_info(cls, info: Any) -> Record:
        """Return the record in the info of a model file, or an empty one if there is none.

        Raises ModelFileError if a value has a wrong type, or if lengths differ.
        """
        if type(info) is not dict or info.get("kind") != KIND:
            return cls()
        with suppress(AttributeError, TypeError, ValueError):
            arrays = {name: info[name].tolist() for name in TEXTS if isinstance(info.get(name), np.ndarray)}
            found = cls(**{f.name: (info | arrays)[f.name] for f in fields(cls) if f.name in info})
            n, pictures = len(found.labels), found.thumbnails or []
            lists = [found.files, found.sha256, found.labels, found.skipped, *found.skipped, pictures]
            lists += [
                found.cv_interval,
                found.cv_answers,
                found.unlabelled,
                found.near_copies,
                *found.near_copies,
            ]
            texts = [found.made, found.method, found.select, *found.settings]
            texts += chain(found.files, found.sha256, found.labels, *found.skipped)
            texts += chain(found.cv_answers, found.unlabelled, *found.near_copies)
            sure = found.cv_probabilities
            optional = [value for value in (found.per_class, found.cv_accuracy) if value is not None]
            if (
                all(type(part) is list for part in lists)
                and type(found.settings) is dict
                and all(isinstance(text, str) for text in texts)
                and all(isinstance(value, Real) for value in [found.seed, found.cv_folds, *optional])
                and all(isinstance(value, Real | str) for value in found.settings.values())
                and all(len(pair) == 2 for pair in found.skipped)
                and len(found.files) == len(found.sha256) == n
                and (found.cv_accuracy is None or (0 <= found.cv_accuracy <= 1 and n > 0))
                and len(found.cv_interval) in (0, 2)
                and len(found.cv_answers) in (0, n)
                and all(len(pair) == 2 for pair in found.near_copies)
                and (sure is None or (sure.shape == (n, 2) and sure.dtype.kind == "f"))
                and all(isinstance(end, Real) and 0 <= end <= 1 for end in found.cv_interval)
                and (found.thumbnails is None or len(pictures) == n)
                and all(isinstance(p, np.ndarray) and p.dtype == np.uint8 and p.ndim == 1 for p in pictures)
            ):
                return found
        raise ModelFileError(
            "The record of the training in this file was not written by ledl fit. Use the model in Python "
            "with ledl.load, or train it again."
        )


class Prediction(NamedTuple):
    """Hold the prediction for one image, or the error if the image cannot be read."""

    path: str
    label: str = ""
    ranking: tuple[tuple[str, float], ...] = ()  # label and probability, or score if there is none; best first
    p_value: float | None = None
    error: str = ""
    probability: float | None = None  # of the first of the ranking
    truth: str | None = None  # the true label, if it is known

    @property
    def is_wrong(self) -> bool:
        """Return whether the true label is another one. Images of unknown classes are rejected rightly."""
        is_known = any(label == self.truth for label, _ in self.ranking)
        return self.truth not in (None, self.label) and (is_known or self.label != REJECTED)

    @property
    def sureness(self) -> float:
        """Return the probability of the first class, or the lead of its score if there is none."""
        return self.ranking[0][1] - self.ranking[1][1] if self.probability is None else self.probability


def best_first(
    path: str | os.PathLike[str], classes: Sequence[str], probabilities: Array, top: int | None = None
) -> Prediction:
    """Return the prediction of the most probable class, with all classes or the `top` best ones."""
    order = np.argsort(-probabilities, kind="stable")[:top]
    ranking = tuple((classes[j], float(probabilities[j])) for j in order)
    return Prediction(os.fspath(path), ranking[0][0], ranking, probability=ranking[0][1])


class ImageModel(NamedTuple):
    """Hold a model of images, its parts, its record, and its answers for unlabelled training images."""

    model: Any
    parts: Parts
    record: Record
    answers: tuple[Prediction, ...] = ()  # only after training
    copies: tuple[Prediction, ...] = ()  # unlabelled images that are labelled ones, or equal to them, likewise
    n_added: int = 0  # training images that tables have added to those of class folders, only after training
    n_left: int = 0  # labelled images of the folder that were not drawn, without copies of others, likewise

    @property
    def extractor(self) -> Any:  # an ImageTransformer
        return self.parts.transformers[0]


def has_probabilities(found: ImageModel) -> bool:
    """Return whether the model gives probabilities. Otherwise it has scores, which mean less."""
    return hasattr(found.parts.classifier, "predict_proba")


def image_model(model: Any, record: Record) -> ImageModel | None:
    """Return a model of images with its parts, or None if it takes other input or is no fitted classifier."""
    parts = parts_of(model)
    takes_images = parts.transformers and isinstance(parts.transformers[0], ImageTransformer)
    classifies = hasattr(parts.classifier, "classes_") and any(
        hasattr(parts.classifier, name) for name in ("decision_function", "predict_proba")
    )
    if not takes_images or not classifies:
        return None
    check_record(record, parts.classifier)
    return ImageModel(model, parts, record)


def check_record(record: Record, classifier: Any) -> None:
    """Raise ModelFileError if a record contradicts its model, or if classes have names that no folder has."""
    classes = [str(label) for label in classifier.classes_]
    longest = max(map(len, classes))
    if longest > LONGEST_LABEL:
        raise ModelFileError(
            f"A class of this model has a name of {longest:,} characters, but {LONGEST_LABEL} is the limit. "
            "Use the model in Python with ledl.load, or train it again with shorter names."
        )
    dictionary = getattr(classifier, "_dictionary", None)
    numbers = None if dictionary is None else dictionary.sample_labels
    n_images = len(getattr(classifier, "label_distributions_", record.labels))
    if record.labels and (
        set(record.labels) != set(classes)
        or len(record.names) != n_images
        or not set(record.cv_answers) <= {*classes, ""}
        or not {name for pair in record.near_copies for name in pair} <= set(record.files)
        or (numbers is not None and record.labels != [classes[j] for j in numbers])
    ):
        raise ModelFileError(
            "The record of the training in this file is of another model: its labels, answers or images are "
            "not those of the model. Use the model in Python with ledl.load, or train it again."
        )


def check_is_file(path: str | os.PathLike[str]) -> None:
    """Raise an error that says what is there instead of a model file."""
    if not Path(path).is_file():
        there = "is a device or a pipe" if Path(path).exists() else "does not exist"
        what = "is a folder" if Path(path).is_dir() else there
        raise FileNotFoundError(f"{shown(path)} {what}. The first argument must be a model file of ledl fit.")


def open_image_model(path: str | os.PathLike[str], network: str | None = None) -> ImageModel:
    """Return the model in a file. `network` is the path of its network, if it has moved."""
    check_is_file(path)
    stored = read(path)
    found = image_model(stored.model, Record.from_info(stored.info))
    if found is None:
        raise TypeError(
            f"The model in {shown(path)} does not take images, or is not a classifier. Use it in Python with "
            "ledl.load, or train another one with ledl fit."
        )
    if network is not None:
        if not isinstance(found.extractor, NetworkFeatures):
            raise ValueError(
                f"{shown(path)} uses {describe(found.extractor)}, no network. Leave --features out."
            )
        if not network.endswith(".onnx") and network != found.extractor.model:
            raise ValueError(
                f"{shown(path)} uses {describe(found.extractor)}, and no other features. Leave --features out, "
                "or give the path of this network, an ONNX file, if it has moved."
            )
        found.extractor.set_params(model=network)
    found.extractor.transform([])  # a network that is missing is reported before anything is written
    return found
