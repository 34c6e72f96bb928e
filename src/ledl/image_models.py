"""Train models on folders of images, predict, explain, and record in the model file how it was made.

The command line is the public interface; this module does its work.
"""

from __future__ import annotations

import io
import os
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field, fields, replace
from importlib.util import find_spec
from itertools import chain
from numbers import Real
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_predict
from sklearn.pipeline import Pipeline
from sklearn.utils import gen_batches
from threadpoolctl import threadpool_limits

from ledl.arrays import Array
from ledl.datasets import NETWORK_FILE, data_folder, few_shot_splits
from ledl.estimators import DictionaryClassifier
from ledl.explanations import Explanation, explain
from ledl.images import (
    CAFFE,
    IMAGENET,
    ImageError,
    PixelFeatures,
    Preprocessing,
    ResNetFeatures,
    content_key,
    height_and_width,
    load_image_folder,
    read_image,
    shown,
)
from ledl.methods import METHODS
from ledl.model_selection import BATCHED, BatchedSearchCV, cv_interval
from ledl.persistence import ModelFileError, read
from ledl.rejection import Parts, RejectingClassifier, judge, parts_of

KIND = "ledl fit"  # marks the records of this module in model files
REJECTED = "none of these"
# Most images, and most numbers in their features, in memory at a time.
CHUNK, MAX_NUMBERS = 64, 2**25
MANY_IMAGES = 500  # choosing settings for more images takes minutes

Watch: TypeAlias = Callable[[int, int], None]  # called with the numbers of finished and of all images


@dataclass(frozen=True)
class Record:
    """Record how a model was trained, on which images, and its accuracy. Empty for models made elsewhere."""

    kind: str = KIND
    made: str = ""  # date and time, UTC
    method: str = ""
    settings: dict[str, Any] = field(default_factory=dict)  # chosen by cross-validation
    select: str = "defaults"
    chosen_features: bool = False  # True if cross-validation chose the features
    per_class: int | None = None
    seed: int = 0
    cv_accuracy: float | None = None
    cv_interval: list[float] = field(default_factory=list)  # the 95 % interval of the accuracy
    cv_corrected: bool = False  # True if the accuracy allows for the choice of the settings
    cv_folds: int = 0
    files: list[str] = field(default_factory=list)  # class/name of the training images
    sha256: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    skipped: list[list[str]] = field(default_factory=list)  # names and reasons
    thumbnails: list[Array] | None = None  # JPEG files as arrays of bytes

    @classmethod
    def from_info(cls, info: Any) -> Record:
        """Return the record in the info of a model file, or an empty one if there is none.

        Raises ModelFileError if a value has a wrong type, or if lengths differ.
        """
        if type(info) is not dict or info.get("kind") != KIND:
            return cls()
        with suppress(AttributeError, TypeError, ValueError):
            found = cls(**{f.name: info[f.name] for f in fields(cls) if f.name in info})
            n, pictures = len(found.labels), found.thumbnails or []
            lists = [found.files, found.sha256, found.labels, found.skipped, *found.skipped, found.cv_interval]
            lists.append(pictures)
            texts = [found.made, found.method, found.select, *found.settings]
            texts += chain(found.files, found.sha256, found.labels, *found.skipped)
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
    """Hold a model of images, its parts and its record."""

    model: Any
    parts: Parts
    record: Record

    @property
    def extractor(self) -> Any:  # PixelFeatures or ResNetFeatures
        return self.parts.transformers[0]


def image_model(model: Any, record: Record) -> ImageModel | None:
    """Return a model of images with its parts, or None if it takes other input or is no fitted classifier."""
    parts = parts_of(model)
    takes_images = parts.transformers and isinstance(parts.transformers[0], PixelFeatures | ResNetFeatures)
    classifies = hasattr(parts.classifier, "decision_function") and hasattr(parts.classifier, "classes_")
    return ImageModel(model, parts, record) if takes_images and classifies else None


def open_image_model(path: str | os.PathLike[str], network: str | None = None) -> ImageModel:
    """Return the model in a file. `network` is the path of its network, if it has moved."""
    if not Path(path).is_file():
        what = "is a folder" if Path(path).is_dir() else "does not exist"
        raise FileNotFoundError(f"{shown(path)} {what}. The first argument must be a model file of ledl fit.")
    stored = read(path)
    found = image_model(stored.model, Record.from_info(stored.info))
    if found is None:
        raise TypeError(
            f"The model in {shown(path)} does not take images, or is not a classifier. Use it in Python with "
            "ledl.load, or train another one with ledl fit."
        )
    if network is not None:
        if not isinstance(found.extractor, ResNetFeatures):
            raise ValueError(f"{shown(path)} uses pixels, no network. Leave --features out.")
        found.extractor.set_params(model=network)
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
            warnings.simplefilter("ignore", UserWarning)  # the caller reports each skipped image
            rows = extractor.transform(paths[chunk])
        if rows.shape[1] == 0:  # no image could be read
            rows = np.full((len(rows), extractor._n_features_out), np.nan, dtype=np.float32)
        yield chunk, rows, {name: reason for _, name, reason in extractor.skipped_}


class Prediction(NamedTuple):
    """Hold the prediction for one image, or the error if the image cannot be read."""

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
            if isinstance(classifier, DictionaryClassifier):
                scores[good], evidence = judge(classifier, X)
                if rejecter is not None:
                    p_values[good] = rejecter.p_values_of(evidence)
            else:
                values = classifier.decision_function(X)
                scores[good] = np.stack([-values, values], axis=1) if values.ndim == 1 else values
        for i, path in enumerate(paths[chunk]):
            if not good[i]:
                name = shown(path)
                reason = reasons.get(name, f"{name} has features that are NaN. The network may be broken.")
                yield Prediction(os.fspath(path), error=reason)
                continue
            order = np.argsort(-scores[i], kind="stable")
            ranking = tuple((classes[j], float(scores[i, j])) for j in order)
            p_value = None if np.isnan(p_values[i]) else float(p_values[i])
            is_rejected = reject is not None and p_values[i] <= reject  # False for NaN
            label = REJECTED if is_rejected else ranking[0][0]
            yield Prediction(os.fspath(path), label, ranking, p_value)
        watch(chunk.stop, len(paths))


def rejecter_for(found: ImageModel, reject: float) -> RejectingClassifier:
    """Return the part of the model that rejects images. Raise ValueError if it cannot reject this share."""
    rejecter = found.parts.rejecter
    if rejecter is None:
        raise ValueError(
            "This model cannot reject images. Rejection needs a method with atoms (ledl-cv, ledl, src, crc, "
            "csdl, dksvd or lcksvd) and two images per class. Train again, or leave --reject out."
        )
    least = 1 / (len(rejecter.evidence_) + 1)
    if 0 < reject < least:
        raise ValueError(
            f"--reject {reject} would reject nothing. With {len(rejecter.evidence_)} training images the "
            f"smallest share is {least:.3g}. Use --reject {least:.2g} or more, or train with more images."
        )
    return rejecter


def explain_image(
    found: ImageModel,
    image: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    reject: float | None = None,
) -> Explanation:
    """Return the explanation of a prediction, and write it as a page."""
    if not isinstance(found.parts.classifier, DictionaryClassifier):
        raise ValueError(
            f"The method of this model, {facts(found)['method']}, has no atoms, so it cannot be explained. "
            "Train with --method ledl-cv, ledl, src, crc, csdl, dksvd or lcksvd."
        )
    if reject is not None:
        rejecter_for(found, reject).set_params(reject=reject)
    explanation = explain(found.model, os.fspath(image))
    extractor, pictures = found.extractor, found.record.thumbnails
    shape: tuple[int, ...] | None = None  # of a row of features as a picture, if it is one
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
    """Return a short description of an extractor."""
    if isinstance(extractor, PixelFeatures):
        height, width = height_and_width(extractor.size)
        return f"{height} x {width} pixels, {extractor.color}"
    return f"{Path(extractor.model).name}{', pyramid' if extractor.pyramid else ''}"


def facts(found: ImageModel) -> dict[str, str]:
    """Return a description of a model: method, settings, features, classes, images, accuracy."""
    record, classifier = found.record, found.parts.classifier
    settings = ", ".join(
        f"{name.split('__')[-1]}={v if isinstance(v, str) else f'{v:.4g}'}"
        for name, v in record.settings.items()
    )
    described = {
        "method": METHODS[record.method].title if record.method in METHODS else type(classifier).__name__,
        "settings": f"{settings} (chosen by cross-validation)" if settings else "defaults",
        "features": describe(found.extractor),
        "classes": ", ".join(map(str, classifier.classes_)),
    }
    if record.labels:
        counts = sorted(set(Counter(record.labels).values()))
        each = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        drawn = f", drawn with seed {record.seed}" if record.per_class else ""
        described["trained on"] = f"{len(record.labels)} images, {each} per class{drawn}; {record.made}"
        described["accuracy"] = "not known, because a class has only one image"
    if record.cv_accuracy is not None:
        chosen = ["settings"] * bool(record.settings and not record.cv_corrected)
        chosen += ["features"] * record.chosen_features
        accuracy = with_interval(record.cv_accuracy, record.cv_interval)
        described["accuracy"] = f"{accuracy} in {record.cv_folds}-fold cross-validation"
        if record.cv_corrected:
            described["accuracy"] += ", corrected for the choice of settings"
        if chosen:
            names = " and ".join(chosen)
            described["accuracy"] += f"; a little too high, because {names} were chosen on the same images"
    return described


def with_interval(accuracy: float, interval: Sequence[float]) -> str:
    """Return an accuracy and its interval, if it has one, as text."""
    ends = " to ".join(f"{100 * end:.0f}" for end in interval)
    return f"{100 * accuracy:.1f} %" + (f" (95 % interval: {ends} %)" if ends else "")


def all_facts(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the description of a model file: its versions, `facts`, and all training images."""
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
    if isinstance(extractor, ResNetFeatures) and hasattr(extractor, "identity_"):
        described |= {"network": extractor.identity_, "preprocessing": extractor.preprocessing_.to_json()}
    return described | {
        "thumbnails": str(len(record.thumbnails)) if record.thumbnails else "none",
        "rejects": "nothing" if found.parts.rejecter is None else "images unlike every class, with --reject",
        "labels": Counter(record.labels),
        "files": record.files,
        "sha256": record.sha256,
    }


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
    report: Callable[[str], None] = lambda text: None,
) -> ImageModel:
    """Train on a folder of images and return the model. The parameters are the options of ``ledl fit``."""
    listing = load_image_folder(folder, labels=labels, decode=False)
    files, target, names = listing.filenames, listing.target, np.asarray(listing.target_names)
    if per_class is not None:
        counts = np.bincount(target)
        if counts.min() < per_class:
            raise ValueError(
                f"--per-class {per_class} is too large: the class {names[counts.argmin()]} has only "
                f"{counts.min()} images. Use a smaller number, or remove the class."
            )
        drawn, _ = next(few_shot_splits(target, n_per_class=per_class, seeds=[seed]))
        files, target = [files[i] for i in drawn], target[drawn]
    extractors = find_extractors(features, preprocessing, size, cache)
    report("Training with cross-validation. The first run on a machine takes about 20 s longer.")
    if METHODS[method].chooses_for and len(files) > MANY_IMAGES:
        report(
            f"Choosing settings for {len(files)} images can take minutes. Faster: --method "
            f"{METHODS[method].chooses_for}, which uses the default settings."
        )
    candidates = [fit_files(e, files, names[target], method, select, seed, watch) for e in extractors]
    best = max(candidates, key=lambda found: found.record.cv_accuracy or 0)
    is_chosen = len(candidates) > 1 and best.record.cv_accuracy is not None
    if is_chosen:
        rates = [f"{describe(c.extractor)} {100 * (c.record.cv_accuracy or 0):.1f} %" for c in candidates]
        report(f"Accuracy of the features in cross-validation: {', '.join(rates)}.")
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
    """Make features of images, choose settings if asked for, and return the model fitted on them.

    The record has the accuracy in cross-validation, and the paths of the images that could be read.
    """
    extractor.fit()
    parts, skipped = [], dict[str, str]()
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
        reason = next(iter(skipped.values()), "The features of the network are NaN.")
        raise ImageError(f"No image of the class {min(lost)} can be used. {reason}")
    if len(classes) < 2:
        raise ImageError(f"There is only one class, {y[0]}. Give a folder with one folder of images per class.")
    n_folds = int(min(5, counts.min()))
    settings: dict[str, Any] = {}
    search = None
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The number of unique classes")  # few images per class are usual here
        if METHODS[method].chooses_for and len(classes) < len(y):
            search = METHODS[method].make(seed=seed).fit(X, y)
            settings = dict(search.best_params_)
        elif select == "cv":
            if n_folds < 2:
                raise ValueError(
                    "--select cv needs at least two images per class, one for training and one for testing. "
                    "Add images, or leave --select out."
                )
            folds = StratifiedKFold(n_folds, shuffle=True, random_state=seed)
            model = METHODS[method].make(seed=seed)
            kind = BatchedSearchCV if isinstance(model, BATCHED) else GridSearchCV
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # it is normal that some candidates do not converge
                found = kind(model, dict(METHODS[method].grid), cv=folds, refit=False).fit(X, y)
            settings = dict(found.best_params_)
        model = METHODS[METHODS[method].chooses_for or method].make(settings, seed)
        if n_folds > 1 and isinstance(model, DictionaryClassifier):
            model = RejectingClassifier(model, reject=0.0, cv=n_folds).fit(X, y)
            found = model.cv_predictions_
        else:
            found = cross_val_predict(model, X, y, cv=StratifiedKFold(n_folds)) if n_folds > 1 else None
            model.fit(X, y)
    accuracy: float | None = None
    interval: Sequence[float] = ()
    if found is not None and search is not None:
        accuracy, interval = search.expected_accuracy_, search.expected_accuracy_interval_
    elif found is not None:
        accuracy = float(np.mean(found == y))
        interval = cv_interval(accuracy, len(y), len(y) * (1 - 1 / n_folds))
    record = Record(
        method=method,
        settings=settings,
        select=select,
        seed=seed,
        cv_accuracy=accuracy,
        cv_interval=list(interval),
        cv_corrected=accuracy is not None and search is not None,
        cv_folds=n_folds if search is None else search.n_splits_,
        files=[files[i] for i in kept.tolist()],
        labels=y.tolist(),
        skipped=[[name, reason] for name, reason in skipped.items()],
    )
    pipeline = Pipeline([("features", extractor), ("classifier", model)])
    return ImageModel(pipeline, parts_of(pipeline), record)


def find_extractors(
    features: str, preprocessing: str | None, size: int | None, cache: str | os.PathLike[str] | None
) -> list[Any]:
    """Return the extractors to choose from: one, or two if `features` is "auto" and a network is found.

    The preprocessing of a network is the given one, the JSON file next to it, or the one known for it.
    """
    pixels, model = PixelFeatures(size=size or 32), features
    if features == "pixels":
        for name, option in (("--preprocessing", preprocessing), ("--cache", cache)):
            if option is not None:
                raise ValueError(f"{name} {option} needs a network, but the features are pixels. Leave it out.")
        return [pixels]
    if features == "auto":
        model = str(data_folder() / NETWORK_FILE)
        if find_spec("onnxruntime") is None or not Path(model).is_file():
            return [pixels]
    elif size is not None:
        raise ValueError(f"--size {size} needs --features pixels, but the features are {model}. Leave it out.")
    if model.endswith(".onnx"):
        if preprocessing is None and Path(model).with_suffix(".json").is_file():
            preprocessing = str(Path(model).with_suffix(".json"))
        model = str(Path(model).absolute())  # the model may be used from other folders
    known: dict[str | None, Preprocessing | None] = {None: None, "caffe": CAFFE, "imagenet": IMAGENET}
    try:
        if preprocessing not in known:
            known[preprocessing] = Preprocessing.from_json(Path(str(preprocessing)).read_text("utf-8"))
    except (OSError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(
            f"{preprocessing} does not describe a preprocessing: {str(error).rstrip('.')}. Write the file with "
            "ledl.features.Preprocessing(...).to_json(), or use caffe or imagenet."
        ) from error
    network = ResNetFeatures(model, preprocessing=known[preprocessing], cache=cache)
    return [network, pixels] if features == "auto" else [network]


def thumbnail(path: str) -> Array:
    """Return a JPEG file of an image, at most 96 x 96 pixels, as an array of bytes."""
    image = read_image(path, "RGB")
    image.thumbnail((96, 96))
    out = io.BytesIO()
    image.save(out, "JPEG", quality=85)
    return np.frombuffer(out.getvalue(), dtype=np.uint8)


def relative_name(path: str | os.PathLike[str]) -> str:
    """Return class and file name, which stay the same when the folder moves."""
    return shown("/".join(Path(os.path.abspath(path)).parts[-2:]))


def trained_on(known: Sequence[tuple[str, str]], paths: Sequence[Path]) -> tuple[list[bool], int]:
    """Return for each image if it is a training image, and the number of other images that are copies of one.

    `known` has name and sha256 of the training images. An image with the same content is a training image, as
    often as the content is in `known`. Images with the same name come first.
    """
    contents = {}
    for i, path in enumerate(paths):
        with suppress(OSError, ImageError):  # decoding will report it
            contents[i] = content_key(path)
    left = Counter(content for _, content in known)
    names = set(known)
    copies = [i for i, content in contents.items() if content in left]
    copies.sort(key=lambda i: (relative_name(paths[i]), contents[i]) not in names)
    seen = [False] * len(paths)
    for i in copies:
        seen[i] = left[contents[i]] > 0
        left[contents[i]] -= 1
    return seen, len(copies) - sum(seen)
