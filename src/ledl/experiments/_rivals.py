"""Classifiers of scikit-learn that learn from samples without labels, under the conditions of ours.

They get the features of `ledl.SemiSupervisedClassifier` (square roots, norm 1, its principal directions), and
the labels that it hides choose their settings.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from pkgutil import resolve_name
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.model_selection import ParameterGrid
from sklearn.neighbors import KNeighborsClassifier, NearestNeighbors
from sklearn.semi_supervised import SelfTrainingClassifier
from sklearn.utils import check_random_state

from ledl.arrays import Array
from ledl.model_selection import default_folds
from ledl.semi_supervised import SemiSupervisedClassifier, map_features, n_directions
from ledl.solvers.graph import principal_axes
from ledl.subspace import FeatureMap


def self_training(path: str, max_rounds: int, **params: Any) -> SelfTrainingClassifier:
    """Return self-training of the classifier with this import path and these parameters."""
    return SelfTrainingClassifier(resolve_name(path)(**params), max_iter=max_rounds)


def hidden_folds(y: Array, seed: int) -> list[tuple[Array, Array]]:
    """Return the folds of `SemiSupervisedClassifier(random_state=seed)` for these labels."""
    drawn = check_random_state(seed).randint(np.iinfo(np.int32).max, size=3)
    return default_folds(y, int(drawn[0]))


class Neighbours:
    """scikit-learn's ``kernel="knn"`` for given samples Z, whose graph is made only once."""

    def __init__(self, Z: Array, n_neighbors: int) -> None:
        self._search = NearestNeighbors(n_neighbors=n_neighbors).fit(Z)
        self._graph = self._search.kneighbors_graph(Z)

    def __call__(self, X: Array, Y: Array) -> Any:
        """Return the graph of the samples if Y is X, else the neighbours of Y as columns."""
        return self._graph.copy() if Y is X else self._search.kneighbors_graph(Y).T


class HiddenLabelSearch(BaseEstimator):
    """Choose settings by hidden labels: those that find most of them again. Of equal ones, take the first.

    Parameters
    ----------
    estimator : estimator
        A semi-supervised classifier of scikit-learn.
    grid : dict
        Names of parameters with the values to choose from.
    seed : int, default=0
        The ``random_state`` of the `SemiSupervisedClassifier` whose folds are used.

    Attributes
    ----------
    best_params_ : dict
        The chosen settings.
    best_score_ : float or None
        The share of hidden labels that they found. None if there was no choice, or nothing to hide.
    refit_time_ : float
        Seconds of the last fit, with all labels.
    transduction_ : ndarray of shape (n_samples,)
        Labels of all samples of `fit`.
    """

    def __init__(self, estimator: Any, grid: Mapping[str, Sequence[Any]], seed: int = 0) -> None:
        self.estimator, self.grid, self.seed = estimator, grid, seed

    def fit(self, X: Array, y: Array) -> HiddenLabelSearch:
        """Choose settings, and learn from all labels. Samples without a label have y = -1."""
        ours = SemiSupervisedClassifier()
        self._features = FeatureMap(ours.power, True)
        Z = self._features(np.asarray(X, dtype=np.float32))
        self._mean = Z.mean(axis=0)
        Z = Z - self._mean
        self._axes = principal_axes(Z, n_directions(len(Z), ours.n_components))
        Z = Z @ self._axes
        self._graphs: dict[int, Neighbours] = {}
        labelled = np.flatnonzero(y >= 0)
        candidates, folds = list(ParameterGrid(dict(self.grid))), hidden_folds(y[labelled], self.seed)
        self.best_params_, self.best_score_ = candidates[0], None
        if folds and len(candidates) > 1:
            hits = np.zeros(len(candidates))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of settings that may not be chosen
                for train, test in folds:
                    hidden, partly = labelled[test], np.full_like(y, -1)
                    partly[labelled[train]] = y[labelled[train]]
                    for i, settings in enumerate(candidates):
                        self._learn(Z, partly, settings)
                        hits[i] += (self._transduction(Z)[hidden] == y[hidden]).sum()
            self.best_params_ = candidates[int(hits.argmax())]
            self.best_score_ = float(hits.max() / sum(len(test) for _, test in folds))
        started = time.perf_counter()
        self._learn(Z, y, self.best_params_)
        self.transduction_ = self._transduction(Z)
        self.refit_time_ = time.perf_counter() - started
        return self

    def predict(self, X: Array) -> Array:
        """Return labels of new samples."""
        Z = map_features(X, self._features, self._mean, self._axes, None)
        if not hasattr(self._model, "label_distributions_"):
            return self._model.predict(Z)
        with np.errstate(invalid="ignore"):
            shares = self._model.predict_proba(Z)  # NaN where no label has reached a neighbour
        found = self._model.classes_[shares.argmax(axis=1)]
        return np.where(np.isnan(shares).any(axis=1), self._nearest.predict(Z), found)

    def _learn(self, Z: Array, y: Array, settings: Mapping[str, Any]) -> None:
        """Fit the estimator with these settings; a graph of neighbours is that of all candidates."""
        self._model = clone(self.estimator).set_params(**settings)
        if getattr(self._model, "kernel", None) == "knn":
            k = self._model.n_neighbors
            if k not in self._graphs:
                self._graphs[k] = Neighbours(Z, k)
            self._model.set_params(kernel=self._graphs[k])
        self._model.fit(Z, y)
        self._nearest = KNeighborsClassifier(1).fit(Z[y >= 0], y[y >= 0])

    def _transduction(self, Z: Array) -> Array:
        """Return a label of every sample.

        Self-training leaves out samples that it is not sure of: they get its prediction. What no label reaches
        over the graph gets the label of the nearest labelled sample.
        """
        found = self._model.transduction_.copy()
        if hasattr(self._model, "label_distributions_"):
            left, answer = ~self._model.label_distributions_.any(axis=1), self._nearest
        else:
            left, answer = found == -1, self._model
        if left.any():
            found[left] = answer.predict(Z[left])
        return found
