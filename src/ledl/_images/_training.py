"""From a folder of images to a model."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_predict
from sklearn.pipeline import Pipeline
from threadpoolctl import threadpool_limits

from ledl._images._files import extract, relative_name, thumbnail
from ledl._images._record import Record
from ledl.arrays import Array
from ledl.datasets import few_shot_splits, load_image_folder
from ledl.datasets._load import MODEL, data_folder
from ledl.estimators._base import DictionaryClassifier
from ledl.features import CAFFE, IMAGENET, ImageError, PixelFeatures, Preprocessing, ResNetFeatures
from ledl.features._cache import content_key
from ledl.methods import METHODS
from ledl.model_selection import BATCHED, BatchedSearchCV
from ledl.rejection import RejectingClassifier

N_FOLDS = 5
PIXELS = 32  # height and width
MANY_IMAGES = 500  # of these a choice takes minutes

Watch: TypeAlias = Callable[[int, int], None]  # done, of how many
Tell: TypeAlias = Callable[[str], None]


class Trained(NamedTuple):
    """A model, and the record of how it was made."""

    model: Pipeline
    record: Record


def fit_folder(
    folder: str | os.PathLike[str],
    *,
    labels: str | os.PathLike[str] | None = None,
    features: str = "auto",
    preprocessing: str | None = None,
    size: int | None = None,
    method: str = "ledl-cv",
    select: str = "defaults",
    per_class: int | None = None,
    seed: int = 0,
    thumbnails: bool = True,
    cache: str | os.PathLike[str] | None = None,
    watch: Watch = lambda done, total: None,
    tell: Tell = lambda text: None,
) -> Trained:
    """Train on a folder of images: the options are those of ``ledl fit``."""
    listing = load_image_folder(folder, labels=labels, decode=False)
    files, target = listing.filenames, listing.target
    if per_class is not None:
        check_enough(np.bincount(target), listing.target_names, per_class)
        drawn, _ = next(few_shot_splits(target, n_per_class=per_class, seeds=[seed]))
        files, target = [files[i] for i in drawn], target[drawn]
    names = np.asarray(listing.target_names)
    extractors = find_extractors(features, preprocessing, size, cache)
    tell("Making features, training, cross-validating. Once on each machine some 20 s are for compiling.")
    if METHODS[method].chooses_for and len(files) > MANY_IMAGES:
        tell(
            f"{len(files)} images are many to choose settings by; --method {METHODS[method].chooses_for} "
            "trains once, at the defaults."
        )
    candidates = [make_candidate(e, files, names[target], method, select, seed, watch) for e in extractors]
    best = max(candidates, key=lambda candidate: candidate.accuracy or 0)
    is_chosen = len(candidates) > 1 and best.accuracy is not None
    if is_chosen:
        told = ", ".join(f"{describe(c.extractor)} {100 * (c.accuracy or 0):.1f} %" for c in candidates)
        tell(f"Features by cross-validation: {told}.")
    kept = best.kept
    record = Record(
        made=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        method=method,
        settings=best.settings,
        select=select,
        chosen_features=is_chosen,
        per_class=per_class,
        seed=seed,
        cv_accuracy=best.accuracy,
        cv_folds=best.n_folds,
        files=[relative_name(files[i]) for i in kept],
        sha256=[content_key(files[i]) for i in kept],
        labels=names[target[kept]].tolist(),
        skipped=[[relative_name(name), reason] for name, reason in best.skipped],
        thumbnails=[thumbnail(files[i]) for i in kept] if thumbnails else None,
    )
    return Trained(Pipeline([("features", best.extractor), ("classifier", best.classifier)]), record)


class Candidate(NamedTuple):
    """A classifier over one kind of features."""

    extractor: Any
    classifier: Any
    settings: dict[str, Any]
    accuracy: float | None  # in cross-validation; None where a class has one image
    n_folds: int
    kept: list[int]  # images that could be read
    skipped: list[tuple[str, str]]


def make_candidate(
    extractor: Any, files: Sequence[str], y: Array, method: str, select: str, seed: int, watch: Watch
) -> Candidate:
    """Features of the images, the settings if they are to be chosen, and a classifier fitted on all of them."""
    parts, skipped = [], []
    extractor.fit()
    for chunk, rows, bad in extract(extractor, files):
        parts.append(rows)
        skipped += bad
        watch(chunk.stop, len(files))
    X = np.concatenate(parts)
    kept = np.flatnonzero(~np.isnan(X).any(axis=1))
    check_readable(y, kept, skipped)
    X, y = X[kept], y[kept]
    n_folds = int(min(N_FOLDS, np.unique(y, return_counts=True)[1].min()))
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The number of unique classes")  # few images are what we are for
        settled = METHODS[method].chooses_for
        chooses = select == "cv" or (settled and len(np.unique(y)) < len(y))
        settings = choose(method, X, y, n_folds, seed) if chooses else {}
        classifier, found = fit_classifier(METHODS[settled or method].make(settings, seed), X, y, n_folds)
    accuracy = None if found is None else float(np.mean(found == y))
    return Candidate(extractor, classifier, settings, accuracy, n_folds, kept.tolist(), skipped)


def choose(method: str, X: Array, y: Array, n_folds: int, seed: int) -> dict[str, Any]:
    """Settings by cross-validation in the training samples."""
    model = METHODS[method].make(seed=seed)
    if METHODS[method].chooses_for and len(np.unique(y)) < len(y):
        return dict(model.fit(X, y).best_params_)
    if n_folds < 2:
        raise ValueError(
            "--select cv needs two images of each class at least: one to learn from, one to judge by. Add "
            "images, or leave --select out."
        )
    grid = dict(METHODS[method].grid)
    folds = StratifiedKFold(n_folds, shuffle=True, random_state=seed)
    search = BatchedSearchCV if isinstance(model, BATCHED) else GridSearchCV
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # settings that are not chosen need not converge
        found = search(model, grid, cv=folds, refit=False).fit(X, y)
    return dict(found.best_params_)


def fit_classifier(model: Any, X: Array, y: Array, n_folds: int) -> tuple[Any, Array | None]:
    """The classifier, able to reject where it is ours, and labels of its samples in cross-validation."""
    if n_folds < 2:
        return model.fit(X, y), None
    if isinstance(model, DictionaryClassifier):
        rejecting = RejectingClassifier(model, reject=0.0, cv=n_folds).fit(X, y)
        return rejecting, rejecting.cv_predictions_
    found = cross_val_predict(model, X, y, cv=StratifiedKFold(n_folds))
    return model.fit(X, y), found


def check_enough(counts: Array, names: Sequence[str], per_class: int) -> None:
    """Refuse to draw more images than there are."""
    if counts.min() < per_class:
        raise ValueError(
            f"--per-class {per_class} is more than the {counts.min()} images of the class "
            f"{names[counts.argmin()]}. Ask for fewer, or leave the class out."
        )


def check_readable(y: Array, kept: Array, skipped: Sequence[tuple[str, str]]) -> None:
    """Refuse what no model can be learnt from."""
    lost = set(y.tolist()) - set(y[kept].tolist())
    if lost:
        reason = skipped[0][1] if skipped else "The network gives no numbers."
        raise ImageError(f"Of the class {min(lost)} no image can be used. {reason}")
    if len(set(y.tolist())) < 2:
        raise ImageError(
            f"There is one class only, {y[0]}. Give a folder with a folder of images for each class."
        )


def find_extractors(
    features: str, preprocessing: str | None, size: int | None, cache: str | os.PathLike[str] | None
) -> list[Any]:
    """The extractors to choose from: one, unless the choice is left to us."""
    pixels = PixelFeatures(size=size or PIXELS)
    if features == "pixels":
        check_unused({"--preprocessing": preprocessing, "--cache": cache}, "features of a network")
        return [pixels]
    if features != "auto":
        check_unused({"--size": size}, "--features pixels")
    if features == "auto":
        known = data_folder() / MODEL
        if find_spec("onnxruntime") is None or not known.is_file():
            return [pixels]
        return [network(str(known), preprocessing, cache), pixels]
    return [network(features, preprocessing, cache)]


def check_unused(options: Mapping[str, Any], what: str) -> None:
    """Refuse options that would do nothing."""
    for name, value in options.items():
        if value is not None:
            raise ValueError(f"{name} {value} is for {what}, which is not asked for. Leave it out.")


def network(model: str, preprocessing: str | None, cache: str | os.PathLike[str] | None) -> ResNetFeatures:
    """A network with the preprocessing that is named, lies beside it, or is known to belong to it."""
    beside = Path(model).with_suffix(".json")
    if preprocessing is None and model.endswith(".onnx") and beside.is_file():
        preprocessing = str(beside)
    known = {None: None, "caffe": CAFFE, "imagenet": IMAGENET}
    if model.endswith(".onnx"):
        model = str(Path(model).absolute())  # the model is used from other folders too
    if preprocessing in known:
        return ResNetFeatures(model, preprocessing=known[preprocessing], cache=cache)
    try:
        value = Preprocessing.from_json(Path(preprocessing or "").read_text("utf-8"))
    except OSError as error:
        raise FileNotFoundError(
            f"--preprocessing {preprocessing} is no file that can be read, nor caffe or imagenet."
        ) from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(
            f"{preprocessing} does not describe a preprocessing: {error}. Write one with "
            "ledl.features.Preprocessing(...).to_json(), or give caffe or imagenet."
        ) from error
    return ResNetFeatures(model, preprocessing=value, cache=cache)


def describe(extractor: Any) -> str:
    """An extractor in a few words."""
    if isinstance(extractor, PixelFeatures):
        size = extractor.size if isinstance(extractor.size, tuple) else (extractor.size, extractor.size)
        return f"{size[0]} x {size[1]} pixels, {extractor.color}"
    return f"{Path(extractor.model).name}{', pyramid' if extractor.pyramid else ''}"
