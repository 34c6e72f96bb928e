"""From a model to labels of images, and why."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ledl._images._files import extract
from ledl._images._record import Record
from ledl._images._training import Watch, describe
from ledl.arrays import Array
from ledl.estimators._base import DictionaryClassifier
from ledl.explanations import Explanation, explain
from ledl.features import PixelFeatures, ResNetFeatures
from ledl.features._images import shown
from ledl.methods import METHODS
from ledl.persistence import read
from ledl.rejection import Parts, RejectingClassifier, judge, parts_of


class ImageModel(NamedTuple):
    """A model that takes images, what it is made of, and the record of how it was made."""

    model: Any
    parts: Parts
    record: Record

    @property
    def extractor(self) -> PixelFeatures | ResNetFeatures:
        first: PixelFeatures | ResNetFeatures = self.parts.transformers[0]
        return first


def image_model(model: Any, record: Record) -> ImageModel | None:
    """A model as one of images; None if it takes anything else, or does not end in a fitted classifier."""
    parts = parts_of(model)
    takes_images = parts.transformers and isinstance(parts.transformers[0], PixelFeatures | ResNetFeatures)
    if not takes_images or not hasattr(parts.classifier, "decision_function"):
        return None
    return ImageModel(model, parts, record) if hasattr(parts.classifier, "classes_") else None


def open_image_model(path: str | os.PathLike[str], network: str | None = None) -> ImageModel:
    """The model in a file; `network`: where its network lies now."""
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
    found: ImageModel, paths: Sequence[str | os.PathLike[str]], watch: Watch = lambda done, total: None
) -> Iterator[Prediction]:
    """Labels of images, in their order, a few at a time."""
    for chunk, rows, bad in extract(found.extractor, paths):
        good = ~np.isnan(rows).any(axis=1)
        reasons = dict(bad)
        answers = judged(found.parts, rows[good]) if good.any() else iter(())
        for path, is_good in zip(paths[chunk], good, strict=True):
            name = shown(path)
            reason = reasons.get(name, f"{name} has features that are no numbers: the network may be broken.")
            yield next(answers)._replace(path=name) if is_good else Prediction(name, error=reason)
        watch(chunk.stop, len(paths))


def judged(parts: Parts, X: Array) -> Iterator[Prediction]:
    """Labels and scores of features, and how usual they are where that can be told."""
    classifier, p_values = parts.classifier, [None] * len(X)
    for step in parts.transformers[1:]:
        X = step.transform(X)
    if isinstance(classifier, DictionaryClassifier):
        scores, evidence = judge(classifier, X)
        p_values = p_values if parts.rejecter is None else parts.rejecter.p_values_of(evidence).tolist()
    else:
        scores = all_scores(classifier, X)
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
    if not isinstance(found.parts.classifier, DictionaryClassifier):
        raise ValueError(
            f"The method of this model, {facts(found)['method']}, has no atoms to explain by. Train with "
            "--method ledl-cv, ledl, src, crc, csdl, dksvd or lcksvd."
        )
    if reject is not None:
        rejecter_for(found, reject).set_params(reject=reject)
    explanation = explain(found.model, os.fspath(image))
    record, pictures = found.record, found.record.thumbnails
    explanation.to_html(
        out,
        sample=image,
        shape=picture_shape(found),
        training=None if pictures is None else [picture.tobytes() for picture in pictures],
        names=record.files or None,
        model_note=list(facts(found).items()),
    )
    return explanation


def facts(found: ImageModel) -> dict[str, str]:
    """A model in words."""
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
    """All that a model file says of itself."""
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
    n_pictures = len(record.thumbnails or ())
    told["thumbnails"] = f"{n_pictures}" if n_pictures else "none"
    told["rejects"] = "nothing" if found.parts.rejecter is None else "what is unlike every class, with --reject"
    return {**told, "labels": record.counts, "files": record.files, "sha256": record.sha256}


def rejecter_for(found: ImageModel, reject: float) -> RejectingClassifier:
    """What rejects that share; refuses where nothing can be told, or too few samples tell."""
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


def picture_shape(found: ImageModel) -> tuple[int, ...] | None:
    """The shape of the picture that a row of features is, if it is one."""
    extractor = found.extractor
    if not isinstance(extractor, PixelFeatures) or len(found.parts.transformers) > 1:
        return None
    size = extractor.size if isinstance(extractor.size, tuple) else (extractor.size, extractor.size)
    return size if extractor.color == "gray" else (*size, 3)
