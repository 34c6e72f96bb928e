"""Train a model on a folder of images, or on their features, and test it on images that it has not seen."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

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
from ledl.image_models._features import MAX_NUMBERS, Watch, features_of, find_extractor, thumbnail
from ledl.image_models._record import ImageModel, Prediction, Record, best_first
from ledl.images import (
    MAX_PIXELS,
    ImageError,
    content_key,
    equal_files,
    load_image_folder,
    shown,
    unused_lines,
)
from ledl.methods import METHODS
from ledl.model_selection import BATCHED, BatchedSearchCV, LEDLClassifierCV, cv_interval, default_folds
from ledl.rejection import RejectingClassifier, judging_folds, parts_of
from ledl.semi_supervised import SemiSupervisedClassifier

MANY_IMAGES = 500  # choosing settings for more images takes minutes
# Training images are near-copies if their distance is at most this share of the usual distance to another
# class.
NEAR = 0.4
SOME_DOUBLES = 5  # are named


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
    n_left = 0
    if per_class is not None:
        counts = np.bincount(target)
        n = int(counts.min())
        if n < per_class:
            raise ValueError(
                f"--per-class {per_class} is too large: the class {names[counts.argmin()]} has only {n} "
                f"image{'s' * (n != 1)}. Use a smaller number, or remove the class."
            )
        drawn, _ = next(few_shot_splits(target, n_per_class=per_class, seeds=[seed]))
        all_files, files, target = files, [files[i] for i in drawn], target[drawn]
        left, whole = without_copies(all_files, files)[0], os.path.abspath(folder)
        n_left = sum(Path(os.path.abspath(file)).is_relative_to(whole) for file in left)
        if listing.added:
            n_added = len({*files} & {*listing.added})
            report(
                f"--per-class {per_class} drew {n_added} of the {len(listing.added)} images that were added."
            )
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
    trained = trained._replace(n_added=len({*usable} & {*listing.added}), n_left=n_left, copies=copies)
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


def without_copies(images: Sequence[str], labelled: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Return the images that are no labelled ones, and the labelled one of each other image.

    That is the same file, or one of the same content.
    """
    places = {os.path.realpath(file): file for file in reversed(labelled)}
    same = {image: places[real] for image in images if (real := os.path.realpath(image)) in places}
    others = [image for image in images if image not in same]
    same |= {image: equal[0] for image, equal in equal_files(others, labelled).items()}
    return [image for image in others if image not in same], same


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


def relative_name(path: str | os.PathLike[str], root: str | os.PathLike[str]) -> str:
    """Return the path from a folder on, at least its last two parts. The folder may move."""
    whole, top = Path(os.path.abspath(path)), Path(os.path.abspath(root))
    n_below = len(whole.parts) - len(top.parts) if whole.is_relative_to(top) else 0
    return shown("/".join(whole.parts[-max(n_below, 2) :]))


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
    # With others, labels are hidden as a test, and not images.
    check_enough(method, y, default_folds(y, seed) if others else judging_folds(5, X, y))
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
        cv_probabilities=None if tested.accuracy is None else tested.sure,
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
    """Fit a model on labelled images, and test it in cross-validation if a class has several that differ."""
    answers, is_search = np.full(len(y), "", dtype=object), isinstance(model, LEDLClassifierCV)
    sure, folds = None, judging_folds(5, X, y)
    if not folds:
        return Tested(model.fit(X, y), answers)
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
    has_new = any(row.tobytes() not in first for row in X[len(y) :])
    can_hide = has_new and default_folds(y[[*first.values()]], seed)
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


def near_copies(X: Array, y: Array) -> list[tuple[int, int]]:
    """Return training images of one class that are nearly equal, such as frames of a film, by their features.

    Each is in one pair at most that has it first, with the image that is nearest to it. A pair with different
    labels makes no test easier.
    """
    units, n = normalize(X.astype(np.float64)), len(X)
    y = np.unique(y, return_inverse=True)[1]  # numbers are compared much faster than names
    nearest, distance, to_others = np.zeros(n, int), np.empty(n), np.empty(n)
    for rows in gen_batches(n, max(1, MAX_NUMBERS // (4 * n))):
        distances = np.sqrt(np.clip(2 - 2 * units[rows] @ units.T, 0, None))
        distances[np.arange(len(distances)), np.arange(n)[rows]] = np.inf
        nearest[rows], distance[rows] = distances.argmin(axis=1), distances.min(axis=1)
        to_others[rows] = np.where(y[rows, None] == y, np.inf, distances).min(axis=1)
    near = np.flatnonzero((distance <= NEAR * np.median(to_others)) & (y[nearest] == y))
    return sorted({(min(i, k), max(i, k)) for i, k in zip(near.tolist(), nearest[near].tolist(), strict=True)})


def only_one_class(name: str) -> ImageError:
    """Return the error for images of one class."""
    return ImageError(f"There is only one class, {name}. Give a folder with one folder of images per class.")


def unreadable(reasons: Sequence[str], n_images: int) -> ImageError:
    """Return the error that names images that cannot be read."""
    first = [reason.replace("\n", "\\n") for reason in reasons[:20]]
    more = [f"and {len(reasons) - 20} more"] if len(reasons) > 20 else []
    return ImageError(
        f"{len(reasons)} of {n_images} images cannot be read. Replace or remove them, or leave them out with "
        "--skip-unreadable.\n  " + "\n  ".join([*first, *more])
    )
