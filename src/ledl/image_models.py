"""Models of folders of images: train, predict, explain, and the record of all that in a file.

What the command line does, without the command line; not public, since commands are the interface.
"""

from __future__ import annotations

import io
import os
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import asdict, dataclass, field, fields, replace
from importlib.util import find_spec
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
from ledl.model_selection import BATCHED, BatchedSearchCV
from ledl.persistence import ModelFileError, read
from ledl.rejection import Parts, RejectingClassifier, judge, parts_of

KIND = "ledl fit"  # of records
REJECTED = "none of these"
# Images whose features are made, and labels told, at a time.
CHUNK = 64
MAX_NUMBERS = 2**25  # of features at a time
N_FOLDS = 5
PIXELS = 32  # height and width
THUMBNAIL = 96  # pixels, the longer side
MANY_IMAGES = 500  # of these a choice takes minutes

Watch: TypeAlias = Callable[[int, int], None]  # done, of how many


@dataclass(frozen=True)
class Record:
    """What was trained on, how, and how well it did; all of it empty for a model that was made elsewhere."""

    made: str = ""  # date and time, UTC
    method: str = ""
    settings: dict[str, Any] = field(default_factory=dict)  # those that were chosen
    select: str = "defaults"
    chosen_features: bool = False  # by cross-validation
    per_class: int | None = None
    seed: int = 0
    cv_accuracy: float | None = None
    cv_folds: int = 0
    files: list[str] = field(default_factory=list)  # class/name of the training images
    sha256: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    skipped: list[list[str]] = field(default_factory=list)  # names and reasons
    thumbnails: list[Array] | None = None  # JPEG files, as bytes

    def as_info(self) -> dict[str, Any]:
        """Return the record as a model file keeps it."""
        return {"kind": KIND, **asdict(self)}

    @classmethod
    def from_info(cls, info: Any) -> Record:
        """Return what a file has kept, nothing if it is no record.

        Raises ModelFileError unless all is of its type, and of one length.
        """
        if type(info) is not dict or info.get("kind") != KIND:
            return cls()
        names = {f.name for f in fields(cls)}
        try:
            found = cls(**{name: value for name, value in info.items() if name in names})
            n, pictures = len(found.labels), found.thumbnails or []
            lists = [found.files, found.sha256, found.labels, found.skipped, *found.skipped, pictures]
            texts = [found.made, found.method, found.select, *found.settings]
            texts += [
                *found.files,
                *found.sha256,
                *found.labels,
                *(text for pair in found.skipped for text in pair),
            ]
            optional = [value for value in (found.per_class, found.cv_accuracy) if value is not None]
            good = (
                all(type(part) is list for part in lists)
                and type(found.settings) is dict
                and all(isinstance(text, str) for text in texts)
                and all(isinstance(value, Real) for value in [found.seed, found.cv_folds, *optional])
                and all(isinstance(value, Real | str) for value in found.settings.values())
                and all(len(pair) == 2 for pair in found.skipped)
                and len(found.files) == len(found.sha256) == n
                and (found.cv_accuracy is None or (0 <= found.cv_accuracy <= 1 and n > 0))
                and (found.thumbnails is None or len(pictures) == n)
                and all(isinstance(p, np.ndarray) and p.dtype == np.uint8 and p.ndim == 1 for p in pictures)
            )
        except (AttributeError, TypeError, ValueError):
            good = False
        if not good:
            raise ModelFileError(
                "The record of the model's training is not what ledl fit writes. Use the model from Python "
                "with ledl.load, or train it again."
            )
        return found


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
    """Return a model in words; its accuracy is that in cross-validation, and how far to trust it."""
    record, classifier = found.record, found.parts.classifier
    values = {name: v if isinstance(v, str) else f"{v:.4g}" for name, v in record.settings.items()}
    settings = ", ".join(f"{name.split('__')[-1]}={value}" for name, value in values.items())
    told = {
        "method": METHODS[record.method].title if record.method in METHODS else type(classifier).__name__,
        "settings": f"{settings} (by cross-validation)" if settings else "default settings",
        "features": describe(found.extractor),
        "classes": ", ".join(map(str, classifier.classes_)),
    }
    if record.labels:
        counts = sorted(set(Counter(record.labels).values()))
        each = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        drawn = f", drawn with seed {record.seed}" if record.per_class else ""
        told["trained on"] = f"{len(record.labels)} images, {each} of each class{drawn}; {record.made}"
        told["accuracy"] = "not known: a class has one image only"
    if record.cv_accuracy is not None:  # there are labels then
        error = standard_error(record.cv_accuracy, len(record.labels))
        chosen = ["settings"] * bool(record.settings) + ["features"] * record.chosen_features
        optimistic = f"; a little too high, since {' and '.join(chosen)} were chosen on the same images"
        told["accuracy"] = (
            f"{100 * record.cv_accuracy:.1f} % ± {100 * error:.1f} in {record.cv_folds}-fold cross-validation"
            f"{optimistic if chosen else ''}"
        )
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
            if n_folds < 2:
                raise ValueError(
                    "--select cv needs two images of each class at least: one to learn from, one to judge by. "
                    "Add images, or leave --select out."
                )
            folds = StratifiedKFold(n_folds, shuffle=True, random_state=seed)
            model = METHODS[method].make(seed=seed)
            kind = BatchedSearchCV if isinstance(model, BATCHED) else GridSearchCV
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # settings that are not chosen need not converge
                found = kind(model, dict(METHODS[method].grid), cv=folds, refit=False).fit(X, y)
            settings = dict(found.best_params_)
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


def standard_error(share: float, n: int) -> float:
    """Return that of a share of n, by Agresti and Coull: none is certain, not even 0 and 1."""
    middle = (share * n + 2) / (n + 4)
    return float((middle * (1 - middle) / (n + 4)) ** 0.5)


def relative_name(path: str | os.PathLike[str]) -> str:
    """Return class and file: what stays the same when a folder of classes moves."""
    return shown("/".join(Path(os.path.abspath(path)).parts[-2:]))


def trained_on(known: Sequence[tuple[str, str]], paths: Sequence[Path]) -> tuple[list[bool], int]:
    """Return for each image whether it was trained on; and how many others are copies of such.

    `known`: for each training image its name and the sha256 of its content. An image is one of them if it has
    the content: as many of each content as there were, those with the name first.
    """
    contents: list[str | None] = []
    for path in paths:
        try:
            contents.append(content_key(path))
        except (OSError, ImageError):  # told when it is decoded
            contents.append(None)
    left = Counter(content for _, content in known)
    names = set(known)
    seen = [False] * len(paths)
    n_copies = 0
    for i in sorted(range(len(paths)), key=lambda i: (relative_name(paths[i]), contents[i]) not in names):
        content = contents[i]
        if content is not None and content in left:
            seen[i] = left[content] > 0
            left[content] -= 1
            n_copies += not seen[i]
    return seen, n_copies
