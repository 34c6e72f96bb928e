"""From a folder of images to a model."""

from __future__ import annotations

import io
import os
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_predict
from sklearn.pipeline import Pipeline
from threadpoolctl import threadpool_limits

from ledl.arrays import Array
from ledl.datasets import NETWORK_FILE, data_folder, few_shot_splits
from ledl.estimators import DictionaryClassifier
from ledl.image_models._models import ImageModel, Watch, describe, extract
from ledl.image_models._record import Record, relative_name
from ledl.images import (
    CAFFE,
    IMAGENET,
    ImageError,
    PixelFeatures,
    Preprocessing,
    ResNetFeatures,
    content_key,
    load_image_folder,
    read_image,
)
from ledl.methods import METHODS
from ledl.model_selection import BATCHED, BatchedSearchCV
from ledl.rejection import RejectingClassifier, parts_of

N_FOLDS = 5
PIXELS = 32  # height and width
THUMBNAIL = 96  # pixels, the longer side
MANY_IMAGES = 500  # of these a choice takes minutes


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
    tell: Callable[[str], None] = lambda text: None,
) -> ImageModel:
    """Train on a folder of images, and return the model: the options are those of ``ledl fit``."""
    listing = load_image_folder(folder, labels=labels, decode=False)
    files, target, names = listing.filenames, listing.target, np.asarray(listing.target_names)
    if per_class is not None:
        counts = np.bincount(target)
        if counts.min() < per_class:
            raise ValueError(
                f"--per-class {per_class} is more than the {counts.min()} images of the class "
                f"{names[counts.argmin()]}. Ask for fewer, or leave the class out."
            )
        drawn, _ = next(few_shot_splits(target, n_per_class=per_class, seeds=[seed]))
        files, target = [files[i] for i in drawn], target[drawn]
    extractors = find_extractors(features, preprocessing, size, cache)
    tell("Making features, training, cross-validating. Once on each machine some 20 s are for compiling.")
    if METHODS[method].chooses_for and len(files) > MANY_IMAGES:
        tell(
            f"{len(files)} images are many to choose settings by; --method {METHODS[method].chooses_for} "
            "trains once, at the defaults."
        )
    candidates = [fit_files(e, files, names[target], method, select, seed, watch) for e in extractors]
    best = max(candidates, key=lambda found: found.record.cv_accuracy or 0)
    is_chosen = len(candidates) > 1 and best.record.cv_accuracy is not None
    if is_chosen:
        rates = [f"{describe(c.extractor)} {100 * (c.record.cv_accuracy or 0):.1f} %" for c in candidates]
        tell(f"Features by cross-validation: {', '.join(rates)}.")
    used = best.record.files
    record = replace(
        best.record,
        made=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        chosen_features=is_chosen,
        per_class=per_class,
        files=[relative_name(file) for file in used],
        sha256=[content_key(file) for file in used],
        skipped=[[relative_name(name), reason] for name, reason in best.record.skipped],
        thumbnails=[thumbnail(file) for file in used] if thumbnails else None,
    )
    return best._replace(record=record)


def fit_files(
    extractor: Any, files: Sequence[str], labels: Array, method: str, select: str, seed: int, watch: Watch
) -> ImageModel:
    """Make features of images, choose settings if so asked, and return the classifier that is fitted on them.

    Its record has the accuracy in cross-validation, and the paths of the images that could be read.
    """
    parts: list[Array] = []
    skipped: dict[str, str] = {}
    extractor.fit()
    for chunk, rows, reasons in extract(extractor, files):
        parts.append(rows)
        skipped |= reasons
        watch(chunk.stop, len(files))
    X = np.concatenate(parts)
    kept = np.flatnonzero(~np.isnan(X).any(axis=1))
    X, y = X[kept], labels[kept]
    classes, counts = np.unique(y, return_counts=True)
    lost = set(labels.tolist()) - set(classes.tolist())
    if lost:
        reason = next(iter(skipped.values()), "The network gives no numbers.")
        raise ImageError(f"Of the class {min(lost)} no image can be used. {reason}")
    if len(classes) < 2:
        raise ImageError(
            f"There is one class only, {y[0]}. Give a folder with a folder of images for each class."
        )
    n_folds = int(min(N_FOLDS, counts.min()))
    settings: dict[str, Any] = {}
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The number of unique classes")  # few images are what we are for
        if METHODS[method].chooses_for and len(classes) < len(y):
            settings = dict(METHODS[method].make(seed=seed).fit(X, y).best_params_)
        elif select == "cv":
            settings = search(method, X, y, n_folds, seed)
        model = METHODS[METHODS[method].chooses_for or method].make(settings, seed)
        if n_folds > 1 and isinstance(model, DictionaryClassifier):
            model = RejectingClassifier(model, reject=0.0, cv=n_folds).fit(X, y)
            found = model.cv_predictions_
        else:
            found = cross_val_predict(model, X, y, cv=StratifiedKFold(n_folds)) if n_folds > 1 else None
            model.fit(X, y)
    record = Record(
        method=method,
        settings=settings,
        select=select,
        seed=seed,
        cv_accuracy=None if found is None else float(np.mean(found == y)),
        cv_folds=n_folds,
        files=[files[i] for i in kept.tolist()],
        labels=y.tolist(),
        skipped=[[name, reason] for name, reason in skipped.items()],
    )
    pipeline = Pipeline([("features", extractor), ("classifier", model)])
    return ImageModel(pipeline, parts_of(pipeline), record)


def search(method: str, X: Array, y: Array, n_folds: int, seed: int) -> dict[str, Any]:
    """Return the settings of a method's grid that are best in cross-validation in the training samples."""
    if n_folds < 2:
        raise ValueError(
            "--select cv needs two images of each class at least: one to learn from, one to judge by. Add "
            "images, or leave --select out."
        )
    model, folds = METHODS[method].make(seed=seed), StratifiedKFold(n_folds, shuffle=True, random_state=seed)
    kind = BatchedSearchCV if isinstance(model, BATCHED) else GridSearchCV
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # settings that are not chosen need not converge
        found = kind(model, dict(METHODS[method].grid), cv=folds, refit=False).fit(X, y)
    return dict(found.best_params_)


def find_extractors(
    features: str, preprocessing: str | None, size: int | None, cache: str | os.PathLike[str] | None
) -> list[Any]:
    """Return the extractors to choose from: one, unless the choice is left to us.

    A network has the preprocessing that is named, lies beside it, or is known to belong to it.
    """
    pixels, model = PixelFeatures(size=size or PIXELS), features
    if features == "pixels":
        for name, option in (("--preprocessing", preprocessing), ("--cache", cache)):
            if option is not None:
                raise ValueError(
                    f"{name} {option} is for features of a network, which is not asked for. Leave it out."
                )
        return [pixels]
    if features == "auto":
        model = str(data_folder() / NETWORK_FILE)
        if find_spec("onnxruntime") is None or not Path(model).is_file():
            return [pixels]
    elif size is not None:
        raise ValueError(f"--size {size} is for --features pixels, which is not asked for. Leave it out.")
    if model.endswith(".onnx"):
        beside = Path(model).with_suffix(".json")
        if preprocessing is None and beside.is_file():
            preprocessing = str(beside)
        model = str(Path(model).absolute())  # the model is used from other folders too
    known: dict[str | None, Preprocessing | None] = {None: None, "caffe": CAFFE, "imagenet": IMAGENET}
    try:
        if preprocessing not in known:
            known[preprocessing] = Preprocessing.from_json(Path(str(preprocessing)).read_text("utf-8"))
    except OSError as error:
        raise FileNotFoundError(
            f"--preprocessing {preprocessing} is no file that can be read, nor caffe or imagenet."
        ) from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(
            f"{preprocessing} does not describe a preprocessing: {error}. Write one with "
            "ledl.features.Preprocessing(...).to_json(), or give caffe or imagenet."
        ) from error
    network = ResNetFeatures(model, preprocessing=known[preprocessing], cache=cache)
    return [network, pixels] if features == "auto" else [network]


def thumbnail(path: str) -> Array:
    """Return a small JPEG of an image, as bytes."""
    image = read_image(path, "RGB")
    image.thumbnail((THUMBNAIL, THUMBNAIL))
    out = io.BytesIO()
    image.save(out, "JPEG", quality=85)
    return np.frombuffer(out.getvalue(), dtype=np.uint8)
