"""Describe a model in words: how it was made, how good it is, and what makes this figure too high or low."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ledl.image_models._features import describe
from ledl.image_models._record import ImageModel, Record, check_is_file, image_model
from ledl.images import NetworkFeatures
from ledl.methods import METHODS
from ledl.model_selection import LEDLClassifierCV
from ledl.persistence import read
from ledl.semi_supervised import SemiSupervisedClassifier

MANY_CLASSES = 30  # that many are listed with their hits
# A label looks wrong if its probability is less than this for a model that has not seen the image.
DOUBTFUL = 0.05
# There is a warning if at least this share of the training images are near-copies.
MANY_NEAR = 0.1
# How labels of unlabelled images were found, by the method of SemiSupervisedClassifier.
WAYS = {
    "supervised": "they did not help, so the model learnt from the labelled images alone",
    "spread": "labels spread from image to similar image",
    "learnt": "labels spread from image to similar image, where alike means what tells the classes apart",
    "spread-learnt": "labels spread twice: between similar images, then by what tells the classes apart",
}


def facts(found: ImageModel) -> dict[str, str]:
    """Return a description of a model: method, settings, features, classes, images, accuracy."""
    record, classifier = found.record, found.parts.classifier
    settings = ", ".join(
        f"{name.split('__')[-1]}={v if isinstance(v, str) else f'{v:.4g}'}"
        for name, v in record.settings.items()
    )
    how = " (chosen by cross-validation)" if record.cv_accuracy is not None else ""
    described = {
        "method": METHODS[record.method].title if record.method in METHODS else type(classifier).__name__,
        "settings": settings + how * bool(settings) or "defaults",
        "features": describe(found.extractor),
        "classes": ", ".join(map(str, classifier.classes_)),
    }
    if isinstance(classifier, SemiSupervisedClassifier):
        n_tried = np.size(classifier.hidden_results_.get("method", []))
        how = WAYS[classifier.method_] + " (chosen by hidden labels)" * (n_tried > 1)
        n_images = len(record.unlabelled)
        n = f"{n_images} image{'s' if n_images != 1 else ''}; " if record.labels else ""
        described["unlabelled"] = n + how
    if record.labels:
        counts = sorted(set(Counter(record.labels).values()))
        each = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        drawn = f", drawn with seed {record.seed}" if record.per_class else ""
        described["trained on"] = f"{len(record.labels)} images, {each} per class{drawn}; {record.made}"
        why = ", because every class has only one image" * (counts == [1])
        # Others have no probabilities, or their own.
        is_ours = isinstance(classifier, LEDLClassifierCV | SemiSupervisedClassifier)
        described["accuracy"] = f"not known{why}" + "; probabilities may be far too sure" * is_ours
    if record.cv_accuracy is not None:
        chosen = ["settings"] * bool(record.settings and not record.cv_corrected)
        accuracy = with_interval(record.cv_accuracy, record.cv_interval)
        folds = f"{record.cv_folds}-fold cross-validation"
        described["accuracy"] = (
            f"{accuracy} {'on images that were left out' if record.cv_folds == 1 else 'in ' + folds}"
        )
        if isinstance(classifier, SemiSupervisedClassifier):
            described["accuracy"] = f"{accuracy} to expect, by tests in which labels were hidden"
            described["accuracy"] += ", corrected for the choice of method" * (n_tried > 1)
        elif record.cv_corrected:
            described["accuracy"] += ", corrected for the choice of settings"
        elif record.labels and counts[0] == 1:
            described["accuracy"] += ", of the classes with several images"
        if chosen:
            names = " and ".join(chosen)
            described["accuracy"] += f"; a little too high, because {names} were chosen on the same images"
        if n_near := n_nearly_equal(record):
            described["accuracy"] += f"; too high if new images differ more: {n_near} of these are nearly equal"
    hits = [f"{label} {text}" for label, text in hits_of(record).items()]
    if hits:
        more = [f"and {len(hits) - MANY_CLASSES} more classes"] * (len(hits) > MANY_CLASSES)
        described["right"] = ", ".join([*hits[:MANY_CLASSES], *more])
    return described


def all_facts(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the description of a model file: its versions, `facts`, and all training images."""
    check_is_file(path)
    stored = read(path)
    described: dict[str, Any] = {
        "model": " ".join(str(stored.model).split()),
        "written by": ", ".join(f"{name} {version}" for name, version in stored.versions.items()),
        "size": f"{Path(path).stat().st_size / 1e6:.2f} MB",
    }
    found = image_model(stored.model, Record.from_info(stored.info))
    if found is None:
        return described
    record, extractor = found.record, found.extractor
    described |= facts(found)
    if isinstance(extractor, NetworkFeatures) and hasattr(extractor, "identity_"):
        described |= {"network": extractor.identity_, "preprocessing": extractor.preprocessing_.to_json()}
    return described | {
        "thumbnails": str(len(record.thumbnails)) if record.thumbnails else "none",
        "rejects": "nothing" if found.parts.rejecter is None else "images unlike every class, with --reject",
        "labels": Counter(record.labels),
        "files": record.files,
        "sha256": record.sha256,
        "unlabelled files": record.unlabelled,
    }


def with_interval(accuracy: float, interval: Sequence[float]) -> str:
    """Return an accuracy and its interval, if it has one, as text."""
    ends = " to ".join(f"{100 * end:.0f}" for end in interval)
    return f"{100 * accuracy:.1f} %" + (f" (95 % interval: {ends} %)" if ends else "")


def hits_of(record: Record) -> dict[str, str]:
    """Return how many training images of each class were recognised in cross-validation, the fewest first.

    Empty if there was none.
    """
    if not record.cv_answers:
        return {}
    hits, counts = Counter[str](), Counter[str]()
    for label, answer in zip(record.labels, record.cv_answers, strict=True):
        counts[label] += bool(answer)
        hits[label] += answer == label
    order = sorted((label for label in counts if counts[label]), key=lambda label: hits[label] / counts[label])
    untested = sorted(label for label in counts if not counts[label])
    return {label: f"{hits[label]} of {counts[label]}" for label in order} | dict.fromkeys(
        untested, "not tested (one image)"
    )


def doubtful_labels(record: Record) -> list[int]:
    """Return the numbers of the training images whose labels look wrong, the most doubtful first.

    These are images that models without them are almost sure belong to another class.
    """
    if record.cv_probabilities is None:
        return []
    answer, own = record.cv_probabilities.T
    doubtful = np.flatnonzero((own < DOUBTFUL) & (answer > 1 - 5 * DOUBTFUL))  # False for NaN
    return [int(i) for i in doubtful[np.argsort(own[doubtful], kind="stable")]]


def contradictions(record: Record) -> list[str]:
    """Return a line for each content that training images with different labels have."""
    of_content: dict[str, list[int]] = {}
    for i, content in enumerate(record.sha256):
        of_content.setdefault(content, []).append(i)
    lines = []
    for same in of_content.values():
        names = ", ".join(record.files[i] for i in same)
        labels = dict.fromkeys(record.labels[i] for i in same)
        if len(labels) > 1:
            lines.append(f"Equal images, but different labels ({', '.join(labels)}), so one is wrong: {names}")
    return lines


def n_nearly_equal(record: Record) -> int:
    """Return the number of training images that are nearly equal to others, or 0 if they are a few."""
    n = len({name for pair in record.near_copies for name in pair})
    return n if n >= MANY_NEAR * len(record.files) else 0


def training_notes(trained: ImageModel) -> list[str]:
    """Return labels that contradict each other, and what makes the accuracy too high or low."""
    record = trained.record
    notes = contradictions(record)[:10]
    if (n_near := n_nearly_equal(record)) and record.cv_accuracy is not None:
        example = " and ".join(record.near_copies[0])
        notes.append(
            f"{n_near} training images are nearly equal to others, such as {example}. If new images differ "
            "more, the accuracy is too high. Use images from different moments or places."
        )
    if trained.n_added:
        notes.append(
            "The accuracy counts the images that the table adds, too. If they were the least sure ones, "
            "they are hard, and the accuracy on new images may be higher."
        )
    return notes
