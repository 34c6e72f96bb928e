"""Plan, run and store the cells of the table. A cell is a method on one split of one dataset."""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import re
import subprocess
import tempfile
import time
import warnings
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache, lru_cache
from importlib.metadata import distributions
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.format import MAGIC_PREFIX, read_array
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, ParameterGrid, StratifiedKFold
from sklearn.model_selection._search import BaseSearchCV
from sklearn.utils import Bunch
from threadpoolctl import threadpool_limits

import ledl
from ledl.arrays import Array, row_factorization
from ledl.code_digests import described
from ledl.datasets import few_shot_splits, load, n_shared_samples
from ledl.experiments._rivals import HiddenLabelSearch
from ledl.files import UNFINISHED, open_regular, remove_abandoned, write_atomically
from ledl.methods import (
    DATASET_TITLES,
    METHODS,
    SEMI_SUPERVISED,
    SUPERVISED,
    Method,
    Settings,
    own_method,
    seeded,
)
from ledl.model_selection import (
    BATCHED,
    HELD_OUT_SAMPLES,
    N_FOLDS,
    BatchedSearchCV,
    LEDLClassifierCV,
)
from ledl.semi_supervised import METHODS as WAYS
from ledl.semi_supervised import SemiSupervisedClassifier
from ledl.subspace import FeatureMap

# Test samples whose labels at a looser duality gap are compared with those at the default.
COMPARED_SAMPLES = 200

# Datasets of the figures over weights and samples: those whose convergence the paper shows, and digits.
STUDIED = ("digits", "yaleb", "ucmerced", "caltech101_pyramid", "usps")
STUDY_SPLITS = 3
WEIGHT_VALUES = {
    "label_weight": [2.0**e for e in (-9, -6, -3, 0, 2, 4)],
    "code_weight": [2.0**e for e in (-17, -14, -11, -8, -5)],
    "alpha": [2.0**e for e in (-10, -8, -7, -6, -5, -4, -3)],
}
SAMPLES_PER_CLASS = (1, 2, 3, 5, 10)
SAMPLED = ("src", "crc", "lcksvd", "ledl", "logistic")

# Powers of the features that every method may choose from: those of `LEDLClassifierCV`.
TRIED_POWERS = (1.0, 0.5, 0.25)

NAMES_IN_FILES = (("X", "y"), ("data", "target"), ("features", "labels"))  # samples and labels
PACKAGES = ("numpy", "scipy", "scikit-learn", "numba", "joblib", "threadpoolctl")
LARGEST_ARRAY = 2**33  # bytes of samples or of labels, unpacked, as of the paper's datasets
MOST_NAMED = 20  # arrays of a file, if those that are needed are not there
LARGEST_CELL = 2**26  # bytes; a cell has a few for each test sample
LARGEST_NUMBER = 2**53  # all whole numbers up to it are floats, too


def load_dataset(name: str) -> Bunch:
    """Return a dataset, or a user's samples from a file. The last sixteen are kept, until they change."""
    return _load_once(name, _version(name))


def dataset_digest(name: str) -> str:
    """Return the sha256 of samples and labels as they are used."""
    return _digest_once(name, _version(name))


def labels_of(name: str) -> Array:
    """Return the labels of a dataset, which are kept longer than its samples."""
    return _labels_once(name, _version(name))


def _version(name: str) -> tuple[int, ...]:
    """Return what differs if a user's file was written again."""
    if not name.endswith(".npz"):
        return ()
    found = Path(name).stat()
    return found.st_mtime_ns, found.st_size, found.st_ino


@lru_cache(maxsize=16)
def _load_once(name: str, version: tuple[int, ...]) -> Bunch:
    return read_samples(Path(name)) if version else load(name)


@cache
def _labels_once(name: str, version: tuple[int, ...]) -> Array:
    return _load_once(name, version).target


@cache
def _digest_once(name: str, version: tuple[int, ...]) -> str:
    dataset = _load_once(name, version)
    digest = hashlib.sha256(np.ascontiguousarray(dataset.data).data)
    digest.update(np.ascontiguousarray(dataset.target).data)
    return digest.hexdigest()


def read_samples(path: Path) -> Bunch:
    """Return samples and labels in a NumPy file: arrays X and y, or data and target, or features and labels."""
    how = "Write it with numpy.savez(path, X=samples, y=labels)."
    try:
        with open_regular(path) as opened, zipfile.ZipFile(opened) as file:
            parts = {part.filename.removesuffix(".npy"): part for part in file.infolist()}

            def is_array(name: str) -> bool:
                with file.open(parts[name]) as part:
                    return part.read(len(MAGIC_PREFIX)) == MAGIC_PREFIX

            there = {name for pair in NAMES_IN_FILES for name in pair if name in parts and is_array(name)}
            pair = next((pair for pair in NAMES_IN_FILES if set(pair) <= there), None)
            arrays, named = [], [*filter(is_array, islice(parts, MOST_NAMED))] if pair is None else []
            for name in pair or ():
                if parts[name].file_size > LARGEST_ARRAY:
                    raise MemoryError(
                        f"{name} unpacks to {parts[name].file_size:,} bytes, more than {LARGEST_ARRAY:,}"
                    )
                with file.open(parts[name]) as part:
                    arrays.append(read_array(part, allow_pickle=False))
    except MemoryError as error:
        raise MemoryError(f"{path} does not fit into memory: {error}. Give fewer samples.") from error
    except PermissionError:  # the file may be good
        raise
    except Exception as error:  # damaged files raise many types
        if "Object arrays" in str(error):
            how = "Python objects may run code. Write labels as text, y.astype(str), and samples as numbers."
        raise ValueError(f"{path} cannot be read as a .npz file ({error}). {how}") from error
    if pair is None:
        raise ValueError(
            f"{path} has the arrays {', '.join(named) or 'none'}, but samples X and labels y are needed. {how}"
        )
    data, labels = arrays
    if data.ndim < 2 or not data.size or labels.shape != data.shape[:1] or data.dtype.kind not in "fiub":
        raise ValueError(
            f"{path} has {pair[0]} of shape {data.shape} and type {data.dtype}, and {pair[1]} of shape "
            f"{labels.shape}. Give a row of numbers for each sample, and a label for each."
        )
    data = data.reshape(len(data), -1)
    data = data if data.dtype in (np.float32, np.float64) else data.astype(np.float32)
    for name, numbers in ((pair[0], data), (pair[1], labels)):
        if numbers.dtype.kind == "f" and not np.isfinite(numbers).all():
            raise ValueError(f"{path} has NaN or infinite values in {name}. Remove or replace them.")
    if labels.dtype.kind == "S":
        labels = np.char.decode(labels, "utf-8", "backslashreplace")
    names, target = np.unique(labels, return_inverse=True)
    if len(names) < 2:
        raise ValueError(f"{path} has one class only, {names.tolist()}. Add samples of another class.")
    about = f"{len(data)} samples of {len(names)} classes from the file {path.name}."
    return Bunch(data=data, target=target, target_names=[str(name) for name in names], DESCR=about)


def split(dataset: str, n_per_class: int, seed: int) -> tuple[Array, Array]:
    """Return the indices of training and test samples."""
    return next(few_shot_splits(labels_of(dataset), n_per_class=n_per_class, seeds=[seed]))


def halves(test: Array, seed: int) -> tuple[Array, Array]:
    """Return two halves of the test samples, drawn by the seed: seen without labels, and never seen."""
    mixed = np.random.default_rng([seed, 1]).permutation(test)
    n = len(test) // 2
    return np.sort(mixed[n:]), np.sort(mixed[:n])


# The plan.


@dataclass(frozen=True)
class Cell:
    """A method on one split of a dataset.

    `settings` gives its settings. If they are None, `select` says how to find them: "cv", "wide" or "defaults".
    `unlabelled` says what a semi-supervised method gets without labels: "all" other samples, on which it is
    tested, or "half" of them; it is then tested on the other half. Supervised methods ignore it.
    """

    dataset: str
    method: str
    seed: int
    select: str = "cv"
    n_per_class: int = 5
    settings: tuple[tuple[str, Any], ...] | None = None
    unlabelled: str = "all"
    own: Method | None = field(default=None, compare=False, repr=False)  # if `METHODS` does not have it

    @property
    def how(self) -> Method:
        """The method."""
        return self.own or METHODS[self.method]

    @property
    def known_settings(self) -> Settings | None:
        """The settings, or None if they must be chosen."""
        method = self.how
        if self.settings is not None:
            return dict(self.settings)
        if method.fixed is not None:
            return method.fixed[self.dataset]
        nothing_to_choose = method.estimator is not None and not method.grid
        return {} if self.select == "defaults" or method.chooses_for or nothing_to_choose else None

    @property
    def identity(self) -> dict[str, Any]:
        """Everything that decides the result."""
        method, settings = self.how, self.known_settings
        if settings is None or method.chooses_for:
            settings = {
                "grid": method.grid_for(self.select),
                "folds": N_FOLDS,
                "held_out": HELD_OUT_SAMPLES,
                "in_span": method.isotropic,
            }
            settings |= {} if method.chooses_for or method.unlabelled else {"powers": TRIED_POWERS}
        parameters = method.make(seed=self.seed).get_params()
        more: dict[str, Any] = {"unlabelled": self.unlabelled} if method.unlabelled else {}
        if self.own:  # whose parameters may be any objects
            parameters, settings = described(parameters), described(settings)
            more["source"] = method.source
        return {
            "ledl": ledl.__version__,
            "dataset": self.dataset if self.dataset in DATASET_TITLES else Path(self.dataset).stem,
            "data": dataset_digest(self.dataset),
            "method": self.method,
            "parameters": parameters,
            "settings": settings,
            "n_per_class": self.n_per_class,
            "seed": self.seed,
            **more,
        }


@dataclass(frozen=True)
class Plan:
    """Say what to compare.

    Parameters
    ----------
    datasets : sequence of str or paths, default=("digits",)
        Names of datasets of `ledl.datasets.load`, or paths of your own ``.npz`` files with arrays X and y.
    methods : sequence of str, estimators or tuples (str, estimator)
        Names in `METHODS`, by default all that learn from labelled samples alone; and your own: any classifier
        with scikit-learn's interface, with or without a name for tables, or the ``"module:name"`` of one. A
        `sklearn.model_selection.GridSearchCV` stands for its estimator and its grid, which is searched with
        the folds of the comparison. Attribute `methods` has their names.
    select : {"cv", "wide", "defaults"}, default="cv"
        How settings are found: by cross-validation in the training samples, by the same in wider grids, or
        not at all.
    n_per_class : int, default=5
        Number of training samples of each class.
    n_splits : int, default=8
        Number of random splits. Their seeds are 0, 1, ...
    own : sequence of Method, default=()
        Methods that `METHODS` does not have. `methods` fills it.

    Examples
    --------
    >>> from ledl.experiments import Plan
    >>> from sklearn.model_selection import GridSearchCV
    >>> from sklearn.svm import SVC
    >>> len(Plan(methods=("src", "ledl"), n_splits=3).cells())
    6
    >>> Plan(methods=["ledl", ("mine", GridSearchCV(SVC(), {"C": [1, 100]}))]).methods
    ('ledl', 'mine')
    """

    datasets: Sequence[str] = ("digits",)
    methods: Sequence[Any] = SUPERVISED
    select: str = "cv"
    n_per_class: int = 5
    n_splits: int = 8
    own: Sequence[Method] = ()

    def __post_init__(self) -> None:
        own, names = {method.name: method for method in self.own}, []
        for given in [self.methods] if isinstance(self.methods, str) else self.methods:
            if isinstance(given, str) and (given in METHODS or given in own or ":" not in given):
                names.append(given)  # `reproduce` says if there is no such method
                continue
            method = given if isinstance(given, Method) else own_method(given)
            if method.name in METHODS or own.setdefault(method.name, method) is not method:
                raise ValueError(
                    f"There is another method with the name {method.name!r}. Give yours a name, as a tuple "
                    "(name, estimator)."
                )
            if method.title in {one.title for one in (*METHODS.values(), *own.values()) if one is not method}:
                own[method.name] = replace(method, title=method.name)  # rows of tables are known by it
            names.append(method.name)
        given = [self.datasets] if isinstance(self.datasets, str | os.PathLike) else self.datasets
        datasets = map(os.fspath, given)
        object.__setattr__(self, "methods", tuple(names))
        object.__setattr__(self, "own", tuple(own.values()))
        object.__setattr__(
            self, "datasets", tuple(str(Path(d).resolve()) if d.endswith(".npz") else d for d in datasets)
        )

    def find(self, method: str) -> Method:
        """Return a method of the plan.

        Parameters
        ----------
        method : str
            Its name.

        Returns
        -------
        Method
        """
        return next((one for one in self.own if one.name == method), None) or METHODS[method]

    def cells(self) -> list[Cell]:
        """Return the cells of the table, split by split: the first split shows what the others cost.

        Returns
        -------
        list of Cell
            Cells of all methods, datasets and splits.
        """
        own = {method.name: method for method in self.own}
        return [
            Cell(dataset, method, seed, self.select, self.n_per_class, own=own.get(method))
            for seed in range(self.n_splits)
            for dataset in self.datasets
            for method in self.methods
            if method in own or METHODS[method].covers(dataset)
        ]

    def new_sample_cells(self) -> list[Cell]:
        """Return the cells in which semi-supervised methods are tested on samples that they have not seen.

        Returns
        -------
        list of Cell
            Cells of all semi-supervised methods, datasets and splits.
        """
        return [replace(cell, unlabelled="half") for cell in self.cells() if cell.how.unlabelled]

    @property
    def is_semi(self) -> bool:
        """Whether some method learns from samples without labels."""
        return any(self.find(method).unlabelled for method in self.methods)

    @property
    def studied(self) -> list[str]:
        """Datasets whose figures need more cells than the table."""
        return [dataset for dataset in self.datasets if dataset in STUDIED]

    def weight_cells(self, dataset: str, weight: str) -> list[list[Cell]]:
        """Return LEDL's cells over one of its weights, the others at their defaults.

        Parameters
        ----------
        dataset : str
            Name of the dataset.
        weight : {"label_weight", "code_weight", "alpha"}
            Name of the weight.

        Returns
        -------
        list of lists of Cell
            The cells of all splits, for each value of the weight.
        """
        seeds = range(min(self.n_splits, STUDY_SPLITS))
        return [
            [Cell(dataset, "ledl", seed, "defaults", self.n_per_class, ((weight, value),)) for seed in seeds]
            for value in WEIGHT_VALUES[weight]
        ]

    def sample_cells(self, dataset: str, method: str) -> list[list[Cell]]:
        """Return the cells of a method at its defaults over the number of training samples.

        Parameters
        ----------
        dataset, method : str
            Names of the dataset and the method.

        Returns
        -------
        list of lists of Cell
            The cells of all splits, for each number of samples that leaves test samples in each class.
        """
        seeds = range(min(self.n_splits, STUDY_SPLITS))
        fewest = np.bincount(labels_of(dataset)).min()
        return [
            [Cell(dataset, method, seed, "defaults", n) for seed in seeds]
            for n in SAMPLES_PER_CLASS
            if n < fewest
        ]

    def label_cells(self, dataset: str, method: str) -> dict[int, list[Cell]]:
        """Return the cells of a method over the number of labels of each class, beside semi-supervised ones.

        Parameters
        ----------
        dataset, method : str
            Names of the dataset and the method.

        Returns
        -------
        dict of lists of Cell
            The cells of the first splits, by the number of labels. With the fewest labels that a method needs,
            none can be hidden to choose settings, so they are the defaults.
        """
        if not self.is_semi or method not in SEMI_SUPERVISED:
            return {}
        fewest = np.bincount(labels_of(dataset)).min()
        return {
            n: [
                Cell(dataset, method, seed, self.select if n > METHODS[method].fewest else "defaults", n)
                for seed in range(min(self.n_splits, STUDY_SPLITS))
            ]
            for n in SAMPLES_PER_CLASS
            if METHODS[method].fewest <= n < fewest
        }

    def study_cells(self) -> list[Cell]:
        """Return all cells that only figures need.

        Returns
        -------
        list of Cell
        """
        groups = [
            self.weight_cells(d, w) for d in self.studied for w in WEIGHT_VALUES if "ledl" in self.methods
        ]
        groups += [self.sample_cells(d, m) for d in self.studied for m in SAMPLED if m in self.methods]
        groups += [list(self.label_cells(d, m).values()) for d in self.datasets for m in self.methods]
        return list(dict.fromkeys(cell for group in groups for cells in group for cell in cells))


# One cell.


class Done(NamedTuple):
    """A cell that has ended, with a result or an error. It has both if the result could not be stored."""

    cell: Cell
    result: dict[str, Any] | None
    error: str = ""


def try_cell(cell: Cell, device: str | None) -> Done:
    """Run a cell; return it with its result and seconds, or with its error."""
    started = time.perf_counter()
    try:
        result = run_cell(cell, device)
    except (Exception, SystemExit) as error:  # of one cell: the others go on
        return Done(cell, None, error=f"{type(error).__name__}: {error}")
    result["seconds"] = time.perf_counter() - started
    return Done(cell, result)


def run_cell(cell: Cell, device: str | None = None) -> dict[str, Any]:
    """Choose settings on the training samples, fit, predict all others, and return the result.

    A semi-supervised method gets other samples without labels, too. It chooses in `fit`, so its time is with
    all choices. Everything runs with one BLAS thread. LEDL, SRC and CRC run on `device`, which changes only the
    time, so it is not part of the cell. The others solve small problems one after the other, which a device
    would not speed up.
    """
    X, y = load_dataset(cell.dataset).data, load_dataset(cell.dataset).target
    method = cell.how
    train, test = split(cell.dataset, cell.n_per_class, cell.seed)
    unlabelled = test
    if method.unlabelled and cell.unlabelled == "half":
        unlabelled, test = halves(test, cell.seed)
    more: dict[str, float] = {}
    with threadpool_limits(1), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if cell.own is None:
            _warm_up(cell.method, device, X.dtype)
        settings = cell.known_settings
        if settings is None and not method.unlabelled:
            started = time.perf_counter()
            settings, more["cv_accuracy"] = choose_settings(cell, X[train], y[train], device)
            more["select_seconds"] = time.perf_counter() - started
        caught.clear()  # of settings that were not chosen
        model = _make(method, settings, cell.seed, device)
        given = np.sort(np.concatenate([train, unlabelled])) if method.unlabelled else train
        started = time.perf_counter()
        model.fit(X[given], np.where(np.isin(given, train), y[given], -1))
        fit_seconds = time.perf_counter() - started
        started = time.perf_counter()
        if method.unlabelled and cell.unlabelled == "all":
            predicted = model.transduction_[np.searchsorted(given, test)]
        else:
            predicted = check_labels(model.predict(X[test]), len(test)).astype(y.dtype)
        predict_seconds = time.perf_counter() - started
        if cell.own is None and settings and "transform_tol" in settings:
            # Compare the labels with those at the default gap.
            few = np.unique(np.linspace(0, len(test) - 1, COMPARED_SAMPLES).astype(int))
            model.set_params(transform_tol=type(model)().transform_tol)
            more["agreement"] = float(np.mean(model.predict(X[test[few]]) == predicted[few]))
    if isinstance(model, LEDLClassifierCV | BaseSearchCV):  # it chose its settings in `fit`
        more["select_seconds"] = fit_seconds - model.refit_time_
        if isinstance(model, LEDLClassifierCV) and model.n_splits_:  # none if every class has one sample
            more["cv_accuracy"] = float(model.cv_results_["mean_test_accuracy"][model.best_index_])
        settings, fit_seconds = model.best_params_, model.refit_time_
    elif isinstance(model, HiddenLabelSearch):
        settings = model.best_params_
        more |= {} if model.best_score_ is None else {"cv_accuracy": model.best_score_}
    elif isinstance(model, SemiSupervisedClassifier):
        settings = {"method": model.method_}
        hits = model.hidden_results_.get("accuracy")
        more |= {} if hits is None else {"cv_accuracy": float(hits.max())}
    where = {"device": device} if device else {}
    return {
        "accuracy": float(np.mean(predicted == y[test])),
        "n_test": len(test),
        "n_shared": n_shared_samples(X, train, test),
        "settings": as_json(dict(settings or {})),
        **more,
        "fit_seconds": fit_seconds,
        "predict_seconds": predict_seconds,
        "warnings": sorted({warning.category.__name__ for warning in caught}),
        "predicted": predicted.tolist(),
        # Not part of the identity of a cell, but the report mentions a mixture.
        "made_by": {"commit": environment()["commit"], **environment()["versions"], **where},
    }


def choose_settings(cell: Cell, X: Array, y: Array, device: str | None = None) -> tuple[dict[str, Any], float]:
    """Return the settings that are best in cross-validation on the training samples, and their accuracy.

    A power of the features is one of them. Of equal settings the first are taken, and powers begin with 1.
    """
    method, best, accuracy = cell.how, dict[str, Any](), -1.0
    cv = folds(y, cell.n_per_class, cell.seed)
    for power in TRIED_POWERS:
        seen = FeatureMap(power)(X)
        if method.isotropic and len(seen) < X.shape[1]:
            # Coordinates in the span of the training samples have the same inner products, and so the same
            # scores, with fewer features.
            seen = row_factorization(seen.astype(np.float64))[0].astype(X.dtype)
        model, grid = _make(method, None, cell.seed, device), method.grid_for(cell.select)
        if type(model) in BATCHED:
            search = BatchedSearchCV(model, grid, cv=cv, refit=False).fit(seen, y)
        else:
            candidates = list(ParameterGrid(grid))
            tried = [{name: [_seeded_copy(one[name], cell.seed)] for name in one} for one in candidates]
            search = GridSearchCV(model, tried, cv=cv, refit=False, error_score="raise").fit(seen, y)
            search.best_params_ = candidates[search.best_index_]
        if search.best_score_ > accuracy:
            best, accuracy = {**search.best_params_, "power": power}, float(search.best_score_)
    return best, accuracy


def _seeded_copy(value: Any, seed: int) -> Any:
    """Return a value of a grid; if it is an estimator, or a list with some, a copy with this seed."""
    if type(value) in (list, tuple):
        return type(value)([_seeded_copy(one, seed) for one in value])
    is_estimator = hasattr(value, "get_params") and not isinstance(value, type)
    return seeded(clone(value), seed) if is_estimator else value


def check_labels(predicted: Any, n: int) -> Array:
    """Return what a method predicts for n samples. Raise if that is not a label, a whole number, for each."""
    found = np.asarray(predicted)
    if found.shape != (n,):
        raise ValueError(
            f"predict returned an array of shape {found.shape} for {n} samples, not a label for each."
        )
    wrong = (
        np.ones(n, bool) if found.dtype.kind not in "biuf" else ~np.isfinite(found) | (np.trunc(found) != found)
    )
    if wrong.any():
        raise ValueError(
            f"predict returned {found[wrong].tolist()[0]!r}, but labels are the whole numbers that fit got."
        )
    return found


def _make(method: Method, settings: Settings | None, seed: int, device: str | None) -> Any:
    model = method.make(settings, seed)
    if method.unlabelled and not method.chooses_for:
        return HiddenLabelSearch(model, method.grid if settings is None else {}, seed)
    has_device = isinstance(model, (*BATCHED, LEDLClassifierCV, SemiSupervisedClassifier))
    return model.set_params(device=device) if has_device else model


@cache
def _warm_up(method: str, device: str | None, dtype: np.dtype[Any]) -> None:
    """Fit a small problem of one of our methods once in each process, so that no compilation is timed."""
    digits = load_dataset("digits")
    X, labels = digits.data[:120].astype(dtype), digits.target[:60].copy()
    labels[40:] = -1 if METHODS[method].unlabelled else labels[40:]
    model = _make(METHODS[method], {}, 0, device).fit(X[:60], labels)
    model.predict(X[60:])


def folds(y: Array, n_per_class: int, seed: int) -> list[tuple[Array, Array]]:
    """Return the folds of cross-validation: only as many as leave out enough samples for a choice."""
    n_splits = min(N_FOLDS, n_per_class)
    n_used = min(n_splits, math.ceil(HELD_OUT_SAMPLES * n_splits / len(y)))
    return list(islice(StratifiedKFold(n_splits, shuffle=True, random_state=seed).split(y, y), n_used))


# Finished cells.


class Store:
    """A folder of finished cells, with one small JSON file for each.

    A cell is found by its `identity`, a mapping of everything that decides its result. Any number of processes
    may read and write: a file gets its name only when it is complete, and processes that compute the same cell
    write the same result.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)

    def get(self, identity: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the result of a cell, or None if there is none or its file is damaged."""
        try:
            with open_regular(self._path(identity)) as file:
                entry = json.loads(file.read(LARGEST_CELL))
        except (OSError, ValueError, RecursionError):
            return None
        if not isinstance(entry, dict) or entry.get("identity") != as_json(identity):
            return None
        result = entry.get("result")
        # Old versions wrote no checksum.
        is_whole = entry.get("checksum") in (None, _checksum(result))
        return result if is_whole and is_result(result) else None

    def get_checked(self, cell: Cell) -> dict[str, Any] | None:
        """Return the result of a cell, or None if there is none, or if it contradicts the cell or itself."""
        result = self.get(cell.identity)
        return result if result is not None and fits(result, cell) else None

    def has(self, identity: Mapping[str, Any]) -> bool:
        """Return whether there is anything under the name of a cell, whatever it is."""
        return os.path.lexists(self._path(identity))

    def keep(self, done: Done) -> Done:
        """Store the result of a cell if it has one. An error says why that failed; the result is not lost."""
        try:
            if done.result is not None and self.get_checked(done.cell) is None:
                self._write(done.cell.identity, done.result)
        except OSError as error:
            return done._replace(error=f"The result could not be stored: {error}")
        return done

    def put(self, identity: Mapping[str, Any], result: Mapping[str, Any]) -> None:
        """Store a result, unless another process was faster."""
        if self.get(identity) is None:
            self._write(identity, result)

    def _write(self, identity: Mapping[str, Any], result: Mapping[str, Any]) -> None:
        path = self._path(identity)
        path.parent.mkdir(parents=True, exist_ok=True)
        entry = {"identity": as_json(identity), "result": result, "checksum": _checksum(result)}
        write_atomically(path, json.dumps(entry, allow_nan=False).encode())

    def write_run_record(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Write a record of this run to a new file, and return it: options, time, versions, machine."""
        started = datetime.now(UTC)
        path = self.folder / "runs" / f"{started:%Y%m%dT%H%M%S.%f}-{os.getpid()}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        record = {"started": started.isoformat(timespec="seconds"), "options": options, **environment()}
        write_atomically(path, json.dumps(record, indent=2).encode())
        return record

    def prepare(self) -> None:
        """Make the folder, and remove old files of killed writers; raise OSError if it is read-only."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=self.folder).close()
        except OSError as error:
            raise OSError(
                f"out={str(self.folder)!r} cannot be written to: {error}. Choose another folder."
            ) from error
        remove_abandoned(self.folder, f"cells/*/{UNFINISHED}")

    def _path(self, identity: Mapping[str, Any]) -> Path:
        digest = hashlib.sha256(json.dumps(as_json(identity), sort_keys=True).encode()).hexdigest()
        kind = re.sub(r"[^\w.-]+", "-", f"{identity['dataset']}-{identity['method']}")
        return self.folder / "cells" / kind / f"{digest[:32]}.json"


def _checksum(result: Any) -> str:
    return hashlib.sha256(json.dumps(result).encode()).hexdigest()


def as_json(identity: Any) -> Any:
    """Return the identity, or a part of one, as JSON gives it back: tuples as lists, other objects as text.

    Numbers that JSON does not have, NaN and infinity, are text, too.
    """
    return json.loads(json.dumps(identity, default=_as_plain), parse_constant=str)


def _as_plain(value: Any) -> Any:
    """Return NumPy's numbers as Python's, names of functions and classes, and the `repr` of other objects.

    Without addresses, which differ from process to process.
    """
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    text = f"{value.__module__}.{value.__qualname__}" if hasattr(value, "__qualname__") else repr(value)
    return re.sub(r" at 0x[0-9a-fA-F]+", "", text)


def is_result(result: Any) -> bool:
    """Return whether this can be a result of `run_cell`: files may be damaged, or come from strangers."""
    if not isinstance(result, dict):
        return False
    numbers = [result.get(name) for name in ("accuracy", "fit_seconds", "predict_seconds", "seconds")]
    more = [result.get(name, 0.0) for name in ("agreement", "select_seconds")]
    labels, warned, made_by = result.get("predicted"), result.get("warnings"), result.get("made_by", {})
    return (
        all(type(x) in (int, float) and 0 <= x <= LARGEST_NUMBER for x in [*numbers, *more])
        and type(result.get("cv_accuracy", 0.0)) is float
        and max(result["accuracy"], result.get("agreement", 0.0)) <= 1
        and all(type(result.get(name)) is int and result[name] >= 0 for name in ("n_test", "n_shared"))
        and result["n_shared"] <= result["n_test"]
        and isinstance(labels, list)
        and len(labels) == result["n_test"]
        and all(type(label) is int and abs(label) <= LARGEST_NUMBER for label in labels)
        and isinstance(result.get("settings"), dict)
        and ("agreement" not in result or type(result["settings"].get("transform_tol")) is float)
        and isinstance(warned, list)
        and isinstance(made_by, dict)
        and all(isinstance(text, str) for text in [*warned, *made_by.values()])
    )


def fits(result: Mapping[str, Any], cell: Cell) -> bool:
    """Return whether a result can be of this cell: its settings, and its accuracy by the true labels."""
    _, test = split(cell.dataset, cell.n_per_class, cell.seed)
    method, settings, known = cell.how, result["settings"], cell.known_settings
    if cell.own is not None:
        tables = [method.grid] if isinstance(method.grid, Mapping) else method.grid
        choices = [
            {"power": TRIED_POWERS, **{name: as_json(list(table[name])) for name in table}} for table in tables
        ]
        if known is None and not any(
            settings.keys() == choice.keys() and all(settings[name] in choice[name] for name in choice)
            for choice in choices
        ):
            return False
    elif method.unlabelled:
        if cell.unlabelled == "half":
            _, test = halves(test, cell.seed)
        grid = {"method": WAYS} if cell.method == "ledl-semi" else method.grid_for(cell.select)
        if settings.keys() != grid.keys() or any(settings[name] not in grid[name] for name in grid):
            return False
    else:
        try:
            if settings.get("power", 1.0) not in TRIED_POWERS:
                return False
            model = METHODS[method.chooses_for or cell.method].make(settings)
            for step in getattr(model, "named_steps", {"": model}).values():
                step._validate_params()
        except (ValueError, TypeError):
            return False
    true = labels_of(cell.dataset)[test]
    return (
        (method.unlabelled or not known or as_json(known) == settings)
        and len(test) == result["n_test"]
        and bool(abs(np.mean(true == result["predicted"]) - result["accuracy"]) < 1e-9)
    )


@cache
def environment() -> dict[str, Any]:
    """Return versions, machine, and the commit of the source tree.

    The commit ends in "+" if there are uncommitted changes, and is "" if the source is not a git repository.
    """
    versions = {"python": platform.python_version(), "ledl": ledl.__version__}
    installed = {found.name: found.version for found in distributions()}
    versions |= {package: installed.get(package, "not installed") for package in PACKAGES}
    tree = str(Path(__file__).parents[1])
    try:
        head, changes = (
            subprocess.run(
                ["git", "-C", tree, *words], capture_output=True, text=True, check=True, timeout=10
            ).stdout.strip()
            for words in (["rev-parse", "HEAD"], ["status", "--porcelain", "--", tree])
        )
        commit = head + ("+" if changes else "")
    except (OSError, subprocess.SubprocessError):
        commit = ""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
        processor = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration, IndexError):
        processor = platform.processor() or platform.machine()
    machine = {"system": platform.platform(), "processor": processor, "cores": os.cpu_count()}
    return {"versions": versions, "commit": commit, "machine": machine}
