"""Predict and explain images of files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from ledl.estimators import DictionaryClassifier
from ledl.explanations import Explanation, explain
from ledl.image_models._facts import facts
from ledl.image_models._features import CheckedThumbnails, Watch, extract
from ledl.image_models._record import ImageModel, Prediction, best_first, has_probabilities
from ledl.images import (
    MAX_PIXELS,
    REJECTED,
    PixelFeatures,
    content_if_readable,
    height_and_width,
    read_image,
    shown,
)
from ledl.rejection import RejectingClassifier, judge, least_share
from ledl.semi_supervised import SemiSupervisedClassifier


def predict_files(
    found: ImageModel,
    paths: Sequence[str | os.PathLike[str]],
    *,
    reject: float | None = None,
    watch: Watch = lambda done, total: None,
) -> Iterator[Prediction]:
    """Yield the predictions for images in their order.

    `reject` is the share of images of the known classes that may be rejected by mistake.
    """
    classifier, rejecter = found.parts.classifier, found.parts.rejecter
    classes = [str(label) for label in classifier.classes_]
    for chunk, rows, reasons in extract(found.extractor, paths):
        good = ~np.isnan(rows).any(axis=1)
        scores, p_values = np.empty((len(rows), len(classes))), np.full(len(rows), np.nan)
        if good.any():
            X = rows[good]
            for step in found.parts.transformers[1:]:
                X = step.transform(X)
            is_ours = isinstance(classifier, DictionaryClassifier)
            if is_ours or rejecter is not None:
                values, evidence = judge(classifier, X)
                is_score = is_ours and has_probabilities(found)
                scores[good] = classifier.probabilities_of(values) if is_score else values
                if rejecter is not None:
                    p_values[good] = rejecter.p_values_of(evidence)
            elif has_probabilities(found):
                scores[good] = classifier.predict_proba(X)
            else:
                values = classifier.decision_function(X)
                scores[good] = np.stack([-values, values], axis=1) if values.ndim == 1 else values
        for i, path in enumerate(paths[chunk]):
            if not good[i]:
                name = shown(path)
                reason = reasons.get(name, f"{name} has features that are NaN. The network may be broken.")
                yield Prediction(os.fspath(path), error=reason)
                continue
            said = best_first(path, classes, scores[i])
            if not has_probabilities(found):
                said = said._replace(probability=None)
            p_value = None if np.isnan(p_values[i]) else float(p_values[i])
            is_rejected = reject is not None and p_values[i] <= reject  # False for NaN
            yield said._replace(p_value=p_value, label=REJECTED if is_rejected else said.label)
        watch(chunk.stop, len(paths))


def rejecter_for(found: ImageModel, reject: float) -> RejectingClassifier:
    """Return the part of the model that rejects images. Raise ValueError if it cannot reject this share."""
    rejecter = found.parts.rejecter
    if rejecter is None:
        raise ValueError(
            "This model cannot reject images. Rejection needs a method with atoms (ledl-cv, ledl, src, crc, "
            "crc-regularized, procrc, csdl, dksvd or lcksvd) and a class with two images that are not copies "
            "(with --unlabelled two such classes). Train again with them, or leave --reject out."
        )
    if 0 < reject < 1 / (len(rejecter.evidence_) + 1):
        raise ValueError(
            f"--reject {reject} would reject nothing with {len(rejecter.evidence_)} tested training images. "
            f"Use --reject {least_share(len(rejecter.evidence_)):g} or more, or train with more images."
        )
    return rejecter


def explain_image(
    found: ImageModel,
    image: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    reject: float | None = None,
    against: str | None = None,
) -> Explanation:
    """Return the explanation of a prediction, and write it as a page."""
    classifier, record = found.parts.classifier, found.record
    if isinstance(classifier, SemiSupervisedClassifier) and classifier.graph_ is None:
        classifier = classifier.estimator_  # which explains itself
    if not isinstance(classifier, DictionaryClassifier | SemiSupervisedClassifier):
        raise ValueError(
            f"The method of this model, {facts(found)['method']}, has no atoms, so it cannot be explained. "
            "Train with --method ledl-cv, ledl, src, crc, crc-regularized, procrc, csdl, dksvd or lcksvd."
        )
    if reject is not None:
        rejecter_for(found, reject).set_params(reject=reject)
    explanation = explain(found.model, os.fspath(image), against=against)
    extractor, pictures = found.extractor, record.thumbnails
    n_unlabelled = len(record.unlabelled)  # without pictures
    shape: tuple[int, ...] | None = None  # of a row of features as a picture, if it is one
    if isinstance(extractor, PixelFeatures) and len(found.parts.transformers) == 1:
        shape = height_and_width(extractor.size) + (() if extractor.color == "gray" else (3,))
    large = extractor.max_pixels > MAX_PIXELS  # so may the image be, which pages do not read
    explanation.to_html(
        out,
        sample=read_image(image, "RGB", max_pixels=extractor.max_pixels, shrink_to=512) if large else image,
        title=Path(shown(image)).name if large else None,
        shape=shape,
        training=None if pictures is None else CheckedThumbnails(pictures, n_unlabelled),
        names=record.names or None,
        model_note=list(facts(found).items()),
    )
    return explanation


def trained_on(known: Sequence[tuple[str, str]], paths: Sequence[Path]) -> tuple[list[bool], int]:
    """Return for each image if it is a training image, or a copy of one; and how many others may have been.

    `known` has name and sha256 of the training images. The content counts. An image with the name of a training
    image whose content is nowhere may be that image, changed since, or another one.
    """
    contents = [content_if_readable(path) for path in paths]
    names: dict[str, list[str]] = {}
    for name, content in known:
        names.setdefault(content, []).append(f"/{name}")
    seen = [content in names for content in contents]
    lost: dict[str, list[str]] = {}  # names of training images whose contents are nowhere, by file
    for content in names.keys() - {*contents}:
        for name in names[content]:
            lost.setdefault(Path(name).name, []).append(name)
    whole = [shown(Path(os.path.abspath(path)).as_posix()) for path in paths]
    n_changed = sum(
        path.endswith(tuple(lost.get(Path(path).name, ())))
        for path, is_seen in zip(whole, seen, strict=True)
        if not is_seen
    )
    return seen, n_changed
