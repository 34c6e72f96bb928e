"""Models of images: from a file to labels of images, and why."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from sklearn.utils import gen_batches

from ledl.arrays import Array
from ledl.estimators import DictionaryClassifier
from ledl.explanations import Explanation, explain
from ledl.image_models._record import Record
from ledl.images import PixelFeatures, ResNetFeatures, height_and_width, shown
from ledl.methods import METHODS
from ledl.persistence import read
from ledl.rejection import Parts, RejectingClassifier, judge, parts_of

REJECTED = "none of these"
# Images whose features are made, and labels told, at a time.
CHUNK = 64
MAX_NUMBERS = 2**25  # of features at a time

Watch: TypeAlias = Callable[[int, int], None]  # done, of how many


class ImageModel(NamedTuple):
    """A model that takes images, what it is made of, and the record of how it was made."""

    model: Any
    parts: Parts
    record: Record

    @property
    def extractor(self) -> Any:  # PixelFeatures or ResNetFeatures
        return self.parts.transformers[0]


def image_model(model: Any, record: Record) -> ImageModel | None:
    """Return a model as one of images; None if it takes anything else, or ends in no fitted classifier."""
    parts = parts_of(model)
    takes_images = parts.transformers and isinstance(parts.transformers[0], PixelFeatures | ResNetFeatures)
    classifies = hasattr(parts.classifier, "decision_function") and hasattr(parts.classifier, "classes_")
    return ImageModel(model, parts, record) if takes_images and classifies else None


def open_image_model(path: str | os.PathLike[str], network: str | None = None) -> ImageModel:
    """Return the model in a file; `network` says where its network lies now."""
    if not Path(path).is_file():
        what = "is a folder" if Path(path).is_dir() else "is not there"
        raise FileNotFoundError(f"{shown(path)} {what}. The model comes first, a file that ledl fit wrote.")
    stored = read(path)
    found = image_model(stored.model, Record.from_info(stored.info))
    if found is None:
        raise TypeError(
            f"The model in {shown(path)} does not take images, or does not classify. Use it from Python with "
            "ledl.load, or train one with ledl fit."
        )
    if network is not None:
        if not isinstance(found.extractor, ResNetFeatures):
            raise ValueError(f"The features of {shown(path)} are pixels; there is no network to point to.")
        found.extractor.set_params(model=network)
    return found


def extract(
    extractor: Any, paths: Sequence[str | os.PathLike[str]]
) -> Iterator[tuple[slice, Array, dict[str, str]]]:
    """Yield features of images, a few at a time; rows of NaN, and reasons by name, for those that are bad."""
    extractor = copy(extractor).set_params(on_error="skip")  # not for good
    size = max(1, min(CHUNK, MAX_NUMBERS // max(getattr(extractor, "_n_features_out", 1), 1)))
    for chunk in gen_batches(len(paths), size):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # who is skipped is told by name
            rows = extractor.transform(paths[chunk])
        if rows.shape[1] == 0:  # none could be read
            rows = np.full((len(rows), extractor._n_features_out), np.nan, dtype=np.float32)
        yield chunk, rows, {name: reason for _, name, reason in extractor.skipped_}


class Prediction(NamedTuple):
    """What a model says of one image; `error` where it cannot be read."""

    path: str
    label: str = ""
    ranking: tuple[tuple[str, float], ...] = ()  # label and score, best first
    p_value: float | None = None
    error: str = ""


def predict_files(
    found: ImageModel,
    paths: Sequence[str | os.PathLike[str]],
    *,
    reject: float | None = None,
    watch: Watch = lambda done, total: None,
) -> Iterator[Prediction]:
    """Yield the labels of images, in their order; `reject`: the share of usual images that may be refused."""
    classifier, rejecter = found.parts.classifier, found.parts.rejecter
    classes = [str(label) for label in classifier.classes_]
    for chunk, rows, reasons in extract(found.extractor, paths):
        good = ~np.isnan(rows).any(axis=1)
        scores, p_values = np.empty((len(rows), len(classes))), np.full(len(rows), np.nan)
        if good.any():
            X = rows[good]
            for step in found.parts.transformers[1:]:
                X = step.transform(X)
            if isinstance(classifier, DictionaryClassifier):
                scores[good], evidence = judge(classifier, X)
                if rejecter is not None:
                    p_values[good] = rejecter.p_values_of(evidence)
            else:
                values = classifier.decision_function(X)
                scores[good] = np.stack([-values, values], axis=1) if values.ndim == 1 else values
        for i, path in enumerate(paths[chunk]):
            name = shown(path)
            if not good[i]:
                no_numbers = f"{name} has features that are no numbers: the network may be broken."
                yield Prediction(name, error=reasons.get(name, no_numbers))
                continue
            order = np.argsort(-scores[i], kind="stable")
            ranking = tuple((classes[j], float(scores[i, j])) for j in order)
            p_value = None if np.isnan(p_values[i]) else float(p_values[i])
            is_rejected = reject is not None and p_values[i] <= reject  # False for NaN
            yield Prediction(name, REJECTED if is_rejected else ranking[0][0], ranking, p_value)
        watch(chunk.stop, len(paths))


def rejecter_for(found: ImageModel, reject: float) -> RejectingClassifier:
    """Return what rejects that share; refuse where nothing can be told, or too few samples tell."""
    rejecter = found.parts.rejecter
    if rejecter is None:
        raise ValueError(
            "The model cannot tell what is unlike every class: that takes a method with atoms (ledl-cv, ledl, "
            "src, crc, csdl, dksvd or lcksvd) and two images of each class. Train again, or leave --reject out."
        )
    least = 1 / (len(rejecter.evidence_) + 1)
    if 0 < reject < least:
        raise ValueError(
            f"--reject {reject} would reject nothing: {len(rejecter.evidence_)} training images tell no share "
            f"below {least:.3g}. Ask for --reject {least:.2g} or more, or train with more images."
        )
    return rejecter


def explain_image(
    found: ImageModel,
    image: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    reject: float | None = None,
) -> Explanation:
    """Return why an image is taken for a class, and write a page that shows it."""
    if not isinstance(found.parts.classifier, DictionaryClassifier):
        raise ValueError(
            f"The method of this model, {facts(found)['method']}, has no atoms to explain by. Train with "
            "--method ledl-cv, ledl, src, crc, csdl, dksvd or lcksvd."
        )
    if reject is not None:
        rejecter_for(found, reject).set_params(reject=reject)
    explanation = explain(found.model, os.fspath(image))
    extractor, pictures = found.extractor, found.record.thumbnails
    shape: tuple[int, ...] | None = None  # of the picture that a row of features is, if it is one
    if isinstance(extractor, PixelFeatures) and len(found.parts.transformers) == 1:
        shape = height_and_width(extractor.size) + (() if extractor.color == "gray" else (3,))
    explanation.to_html(
        out,
        sample=image,
        shape=shape,
        training=None if pictures is None else [picture.tobytes() for picture in pictures],
        names=found.record.files or None,
        model_note=list(facts(found).items()),
    )
    return explanation


def describe(extractor: Any) -> str:
    """Return an extractor in a few words."""
    if isinstance(extractor, PixelFeatures):
        height, width = height_and_width(extractor.size)
        return f"{height} x {width} pixels, {extractor.color}"
    return f"{Path(extractor.model).name}{', pyramid' if extractor.pyramid else ''}"


def facts(found: ImageModel) -> dict[str, str]:
    """Return a model in words."""
    record, classifier = found.record, found.parts.classifier
    told = {
        "method": METHODS[record.method].title if record.method in METHODS else type(classifier).__name__,
        "settings": record.settings_text,
        "features": describe(found.extractor),
        "classes": ", ".join(map(str, classifier.classes_)),
    }
    if record.labels:
        counts = sorted(set(record.counts.values()))
        each = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        drawn = f", drawn with seed {record.seed}" if record.per_class else ""
        told["trained on"] = f"{len(record.labels)} images, {each} of each class{drawn}; {record.made}"
        told["accuracy"] = record.accuracy_text
    return told


def all_facts(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return all that a model file says of itself."""
    stored = read(path)
    told: dict[str, Any] = {
        "model": " ".join(str(stored.model).split()),
        "written by": ", ".join(f"{name} {version}" for name, version in stored.versions.items()),
        "size": f"{Path(path).stat().st_size / 1e6:.2f} MB",
    }
    found = image_model(stored.model, Record.from_info(stored.info))
    if found is None:
        return told
    record, extractor = found.record, found.extractor
    told |= facts(found)
    if isinstance(extractor, ResNetFeatures) and hasattr(extractor, "identity_"):
        told |= {"network": extractor.identity_, "preprocessing": extractor.preprocessing_.to_json()}
    return told | {
        "thumbnails": str(len(record.thumbnails)) if record.thumbnails else "none",
        "rejects": "nothing" if found.parts.rejecter is None else "what is unlike every class, with --reject",
        "labels": record.counts,
        "files": record.files,
        "sha256": record.sha256,
    }
