"""What figures and claims need beyond the cells: models fitted again, and sums over the splits."""

from __future__ import annotations

import warnings
from functools import lru_cache
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import confusion_matrix
from threadpoolctl import threadpool_limits

from ledl.arrays import Array
from ledl.datasets import few_shot_splits
from ledl.experiments._cells import load_dataset
from ledl.experiments._run import Plan
from ledl.experiments._tables import Results
from ledl.methods import METHODS

ITERATIONS = 100  # of convergence curves: as many as the paper speaks of


def first_split(plan: Plan, dataset: str) -> tuple[Array, Array]:
    """Training and test samples of seed 0."""
    return _split(dataset, plan.n_per_class, 0)


def fit_again(plan: Plan, results: Results, dataset: str, method: str, **settings: Any) -> Any:
    """A method on the first split, at the settings it had there but for those given."""
    taken = {**results[dataset, method][0]["settings"], **settings}
    return _fit(dataset, method, plan.n_per_class, tuple(taken.items()))


def converging(plan: Plan, results: Results, dataset: str) -> Any:
    """LEDL on the first split, with no stop before the last iteration."""
    return fit_again(plan, results, dataset, "ledl", tol=0.0, max_iter=ITERATIONS)


@lru_cache(maxsize=16)
def _fit(dataset: str, method: str, n_per_class: int, settings: tuple[tuple[str, Any], ...]) -> Any:
    data = load_dataset(dataset)
    train, _ = _split(dataset, n_per_class, 0)
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore", ConvergenceWarning)
        return METHODS[method].make(dict(settings)).fit(data.data[train], data.target[train])


def confusion(plan: Plan, results: Results, dataset: str, method: str) -> Array:
    """Shares of the test samples of each class, summed over the splits: rows true, columns predicted."""
    target = load_dataset(dataset).target
    labels = np.unique(target)
    counts = sum(
        confusion_matrix(target[_split(dataset, plan.n_per_class, seed)[1]], run["predicted"], labels=labels)
        for seed, run in enumerate(results[dataset, method])
    )
    return np.asarray(counts / np.maximum(np.sum(counts, axis=1, keepdims=True), 1))


def _split(dataset: str, n_per_class: int, seed: int) -> tuple[Array, Array]:
    return next(few_shot_splits(load_dataset(dataset).target, n_per_class=n_per_class, seeds=[seed]))
