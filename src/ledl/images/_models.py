"""From a model to labels of images, and why."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.pipeline import Pipeline

from ledl.arrays import Array
from ledl.estimators._base import DictionaryClassifier
from ledl.experiments import METHODS
from ledl.explanations import Explanation, explain
from ledl.features import PixelFeatures, ResNetFeatures
from ledl.features._images import shown
from ledl.images._files import extract
from ledl.images._record import Record
from ledl.images._training import Watch, describe
from ledl.persistence import read
from ledl.rejection import RejectingClassifier, judge


class ImageModel(NamedTuple):
    """A model that takes images, and the record of how it was made."""

    model: Pipeline
    record: Record

    @property
    def can_reject(self) -> bool:
        return isinstance(self.model[-1], RejectingClassifier)


def open_image_model(path: str | os.PathLike[str], network: str | None = None) -> ImageModel:
    """The model in a file; `network`: where its network lies now."""
    if not Path(path).is_file():
        what = "is a folder" if Path(path).is_dir() else "is not there"
        raise FileNotFoundError(f"{shown(path)} {what}. The model comes first, a file that ledl fit wrote.")
    stored = read(path)
    model = stored.model
    if not takes_images(model):
        raise TypeError(
            f"The model in {shown(path)} takes rows of features, not images. Use it from Python, "
            "ledl.load(path).predict(X), or train one with ledl fit."
        )
    if network is not None:
        if not isinstance(model[0], ResNetFeatures):
            raise ValueError(f"The features of {shown(path)} are pixels; there is no network to point to.")
        model[0].set_params(model=network)
    return ImageModel(model, Record.from_info(stored.info))


class Prediction(NamedTuple):
    """What a model says of one image; `error` where it cannot be read."""

    path: str
    ranking: tuple[tuple[str, float], ...] = ()  # label and score, best first
    p_value: float | None = None
    error: str = ""

    @property
    def label(self) -> str:
        return self.ranking[0][0] if self.ranking else ""

    def is_rejected(self, reject: float) -> bool:
        return self.p_value is not None and self.p_value <= reject


def predict_files(
    model: Pipeline, paths: Sequence[str | os.PathLike[str]], watch: Watch = lambda done, total: None
) -> Iterator[Prediction]:
    """Labels of images, in their order, a few at a time."""
    extractor, classifier = model[0], model[-1]
    for chunk, rows, bad in extract(extractor, paths):
        good = ~np.isnan(rows).any(axis=1)
        reasons = dict(bad)
        found = iter(judged(classifier, through(model.steps[1:-1], rows[good])) if good.any() else [])
        for path, is_good in zip(paths[chunk], good, strict=True):
            name = shown(path)
            yield next(found)._replace(path=name) if is_good else Prediction(name, error=reasons[name])
        watch(chunk.stop, len(paths))


def through(steps: Sequence[tuple[str, Any]], X: Array) -> Array:
    """What steps between features and classifier make of features."""
    for _, step in steps:
        X = step.transform(X) if hasattr(step, "transform") else X
    return X


def judged(classifier: Any, X: Array) -> Iterator[Prediction]:
    """Labels and scores of samples, and how usual they are where the classifier can tell."""
    if isinstance(classifier, RejectingClassifier):
        found = judge(classifier.estimator_, X)
        scores, p_values = found.scores, classifier._p_values(found.evidence).tolist()
    else:
        scores, p_values = all_scores(classifier, X), [None] * len(X)
    classes = [str(label) for label in classifier.classes_]
    for row, p_value in zip(scores, p_values, strict=True):
        order = np.argsort(-row, kind="stable")
        yield Prediction("", tuple((classes[j], float(row[j])) for j in order), p_value)


def all_scores(classifier: Any, X: Array) -> Array:
    """Scores of each class, of two as well."""
    scores = classifier.decision_function(X)
    return np.stack([-scores, scores], axis=1) if scores.ndim == 1 else scores


def explain_image(
    found: ImageModel,
    image: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    reject: float | None = None,
) -> Explanation:
    """Why an image is taken for a class, and a page that shows it."""
    model, record = found
    classifier = model[-1].estimator_ if found.can_reject else model[-1]
    if not isinstance(classifier, DictionaryClassifier):
        raise ValueError(
            f"The method of this model, {facts(found)['method']}, has no atoms to explain by. Train with "
            "--method ledl, src, crc, csdl, dksvd or lcksvd."
        )
    if reject is not None:
        check_can_reject(found)
        model[-1].set_params(reject=reject)
    explanation = explain(model, os.fspath(image))
    pictures = record.thumbnails
    explanation.to_html(
        out,
        sample=image,
        shape=picture_shape(model),
        training=None if pictures is None else [picture.tobytes() for picture in pictures],
        names=record.files or None,
        model_note=list(facts(found).items()),
    )
    return explanation


def facts(found: ImageModel) -> dict[str, str]:
    """A model in words."""
    model, record = found
    classifier = model[-1].estimator_ if found.can_reject else model[-1]
    told = {
        "method": METHODS[record.method].title if record.method in METHODS else type(classifier).__name__,
        "settings": record.settings_text,
        "features": describe(model[0]),
        "classes": ", ".join(map(str, model.classes_)),
    }
    if record.labels:
        counts = sorted(set(record.counts.values()))
        each = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        drawn = f", drawn with seed {record.seed}" if record.per_class else ""
        told["trained on"] = f"{len(record.labels)} images, {each} of each class{drawn}; {record.made}"
        told["accuracy"] = record.accuracy_text
    return told


def all_facts(path: str | os.PathLike[str]) -> dict[str, Any]:
    """All that a model file says of itself."""
    stored = read(path)
    told: dict[str, Any] = {
        "model": " ".join(str(stored.model).split()),
        "written by": ", ".join(f"{name} {version}" for name, version in stored.versions.items()),
        "size": f"{Path(path).stat().st_size / 1e6:.2f} MB",
    }
    if not takes_images(stored.model):
        return told
    found = ImageModel(stored.model, Record.from_info(stored.info))
    record = found.record
    extractor = found.model[0]
    told |= facts(found)
    if isinstance(extractor, ResNetFeatures):
        told |= {"network": extractor.identity_, "preprocessing": extractor.preprocessing_.to_json()}
    n_pictures = len(record.thumbnails or ())
    told["thumbnails"] = f"{n_pictures}" if n_pictures else "none"
    told["rejects"] = "what is unlike every class, with --reject" if found.can_reject else "nothing"
    return {**told, "labels": record.counts, "files": record.files, "sha256": record.sha256}


def takes_images(model: Any) -> bool:
    """Whether a model begins with features of images."""
    return isinstance(model, Pipeline) and isinstance(model[0], PixelFeatures | ResNetFeatures)


def check_can_reject(found: ImageModel) -> None:
    """Refuse to say "none of these" without knowing what is usual."""
    if not found.can_reject:
        raise ValueError(
            "The model cannot tell what is unlike every class: that takes a method with atoms (ledl, src, crc, "
            "csdl, dksvd or lcksvd) and two images of each class. Train again, or leave --reject out."
        )


def picture_shape(model: Pipeline) -> tuple[int, ...] | None:
    """The shape of the picture that a row of features is, if it is one."""
    extractor = model[0]
    if not isinstance(extractor, PixelFeatures) or len(model) > 2:
        return None
    size = extractor.size if isinstance(extractor.size, tuple) else (extractor.size, extractor.size)
    return size if extractor.color == "gray" else (*size, 3)
