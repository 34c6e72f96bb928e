"""One cell of the table: a method on one split of one dataset, from the choice of its settings to its score."""

from __future__ import annotations

import hashlib
import math
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Any

import numpy as np
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.utils import Bunch
from threadpoolctl import threadpool_limits

import ledl
from ledl.arrays import Array, row_factorization
from ledl.datasets import few_shot_splits, load, n_shared_samples
from ledl.experiments._store import environment
from ledl.methods import METHODS, Settings
from ledl.model_selection import BATCHED, HELD_OUT_SAMPLES, N_FOLDS, BatchedSearchCV, LEDLClassifierCV

# Labels at a looser duality gap are compared with those at the default on so many test samples.
COMPARED_SAMPLES = 200


@dataclass(frozen=True)
class Cell:
    """What is run. `settings` fixes them; without, `select` says how they are found: "cv", "wide" or
    "defaults".
    """

    dataset: str
    method: str
    seed: int
    select: str = "cv"
    n_per_class: int = 5
    settings: tuple[tuple[str, Any], ...] | None = None

    @property
    def known_settings(self) -> Settings | None:
        """None where they are to be chosen."""
        method = METHODS[self.method]
        if self.settings is not None:
            return dict(self.settings)
        if method.fixed is not None:
            return method.fixed[self.dataset]
        return {} if self.select == "defaults" or method.chooses_for else None

    @property
    def identity(self) -> dict[str, Any]:
        """All that decides the result."""
        method = METHODS[self.method]
        settings = self.known_settings
        choice = {
            "grid": method.grid_for(self.select),
            "folds": N_FOLDS,
            "held_out": HELD_OUT_SAMPLES,
            "in_span": method.isotropic,
        }
        return {
            "ledl": ledl.__version__,
            "dataset": self.dataset,
            "data": dataset_digest(self.dataset),
            "method": self.method,
            "parameters": method.make(seed=self.seed).get_params(),
            "settings": choice if settings is None or method.chooses_for else settings,
            "n_per_class": self.n_per_class,
            "seed": self.seed,
        }


def run_cell(cell: Cell, device: str | None = None) -> dict[str, Any]:
    """Choose settings on the training samples, fit, and predict all others; one BLAS thread throughout.

    LEDL, SRC and CRC run on `device`, which is no part of the cell: it decides nothing but the time. The others
    have small problems, one after the other, for which a device is no gain.
    """
    dataset = load_dataset(cell.dataset)
    X, y = dataset.data, dataset.target
    train, test = next(few_shot_splits(y, n_per_class=cell.n_per_class, seeds=[cell.seed]))
    with threadpool_limits(1), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        _warm_up(cell.method, device)
        settings, choice = _settings(cell, X[train], y[train], device)
        caught.clear()  # settings that were not chosen need not have converged
        model = _make(cell, settings, device)
        started = time.perf_counter()
        model.fit(X[train], y[train])
        fitted = time.perf_counter()
        predicted = model.predict(X[test])
        ended = time.perf_counter()
        agreement = _agreement(model, settings, X[test], predicted)
    fit_seconds = fitted - started
    if isinstance(model, LEDLClassifierCV):
        settings, choice, fit_seconds = _own_choice(model, fit_seconds)
    return {
        "accuracy": float(np.mean(predicted == y[test])),
        "n_test": len(test),
        "n_shared": n_shared_samples(X, train, test),
        "settings": dict(settings),
        **choice,
        **agreement,
        "fit_seconds": fit_seconds,
        "predict_seconds": ended - fitted,
        "warnings": sorted({warning.category.__name__ for warning in caught}),
        "predicted": predicted.tolist(),
        "made_by": {**made_by(), **({"device": device} if device else {})},
    }


def _make(cell: Cell, settings: Settings | None, device: str | None) -> Any:
    model = METHODS[cell.method].make(settings, cell.seed)
    has_device = isinstance(model, (*BATCHED, LEDLClassifierCV))
    return model.set_params(device=device) if has_device else model


@cache
def _warm_up(method: str, device: str | None) -> None:
    """Compile before the clock runs: a small fit of each method in each process."""
    digits = load_dataset("digits")
    model = _make(Cell("digits", method, 0), {}, device).fit(digits.data[:60], digits.target[:60])
    model.predict(digits.data[60:120])


@cache
def made_by() -> dict[str, str]:
    """Commit and versions: they are no part of the identity of a cell, but a mixture is to be told."""
    found = environment()
    return {"commit": found["commit"], **found["versions"]}


def _settings(cell: Cell, X: Array, y: Array, device: str | None) -> tuple[Settings, dict[str, Any]]:
    """The settings, and what is to be told of their choice."""
    known = cell.known_settings
    if known is not None:
        return known, {}
    method = METHODS[cell.method]
    started = time.perf_counter()
    if method.isotropic and len(X) < X.shape[1]:
        # Coordinates in the span of all training samples: the same inner products, so the same scores, in
        # fewer features.
        X = row_factorization(X.astype(np.float64))[0].astype(X.dtype)
    model, grid, folds = _make(cell, None, device), dict(method.grid_for(cell.select)), _folds(cell, X, y)
    if isinstance(model, BATCHED):
        search: Any = BatchedSearchCV(model, grid, cv=folds, refit=False)
    else:
        search = GridSearchCV(model, grid, cv=folds, refit=False, error_score="raise")
    search.fit(X, y)
    return search.best_params_, {
        "select_seconds": time.perf_counter() - started,
        "cv_accuracy": float(search.best_score_),
    }


def _own_choice(model: LEDLClassifierCV, seconds: float) -> tuple[Settings, dict[str, Any], float]:
    """What a method that chooses in `fit` chose, what is to be told of it, and the seconds of the last fit."""
    cv_accuracy = float(model.cv_results_["mean_test_accuracy"][model.best_index_])
    choice = {"select_seconds": seconds - model.refit_time_, "cv_accuracy": cv_accuracy}
    return model.best_params_, choice, model.refit_time_


def _folds(cell: Cell, X: Array, y: Array) -> list[tuple[Array, Array]]:
    n_splits = min(N_FOLDS, cell.n_per_class)
    n_used = min(n_splits, math.ceil(HELD_OUT_SAMPLES * n_splits / len(y)))
    folds = StratifiedKFold(n_splits, shuffle=True, random_state=cell.seed)
    return list(islice(folds.split(X, y), n_used))


def _agreement(model: Any, settings: Settings, X: Array, predicted: Array) -> Mapping[str, float]:
    """Where codes have another gap than the default's: the share of labels that the default's gives too."""
    if "transform_tol" not in settings:
        return {}
    few = np.unique(np.linspace(0, len(X) - 1, COMPARED_SAMPLES).astype(int))
    default = type(model)().transform_tol
    labels = model.set_params(transform_tol=default).predict(X[few])
    model.set_params(transform_tol=settings["transform_tol"])
    return {"agreement": float(np.mean(labels == predicted[few]))}


@cache
def load_dataset(name: str) -> Bunch:
    """Read once in every process."""
    return load(name)


@cache
def dataset_digest(name: str) -> str:
    """Of samples and labels as they are used."""
    dataset = load_dataset(name)
    digest = hashlib.sha256(np.ascontiguousarray(dataset.data).data)
    digest.update(np.ascontiguousarray(dataset.target).data)
    return digest.hexdigest()
