"""What all classifiers share: checks of samples and labels, and predictions by the fitted dictionary."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from functools import wraps
from numbers import Integral
from typing import Any, TypeAlias

import numpy as np
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
)

# The one place that uses scikit-learn's private parameter validation, as its own template does.
from sklearn.base import _fit_context as fit_context
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import accuracy_score
from sklearn.utils import column_or_1d
from sklearn.utils._param_validation import Interval
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, check_is_fitted, validate_data

from ledl.arrays import Array, as_array, free_memory, is_dask, is_torch, namespace, place, to_host
from ledl.coding import Settings, float_tensor
from ledl.dictionary import FittedDictionary
from ledl.kernels import kernel_space
from ledl.samples import check_lengths, check_rows, floats_of, in_memory, map_rows
from ledl.solvers.iteration import Iterations, Status
from ledl.solvers.start import atom_counts
from ledl.subspace import KernelSpace, Subspace, find_subspace, scaled, squared_norms

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:  # before scikit-learn 1.9: quiet

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Stands in for callbacks where scikit-learn has none."""

    def with_callbacks(method: Callable[..., Any]) -> Callable[..., Any]:
        return method


__all__ = [
    "DEVICE",
    "N_JOBS",
    "SINGLE_THREAD_ATOMS",
    "CallbackSupportMixin",
    "DictionaryClassifier",
    "accuracy",
    "adopt",
    "check_flat",
    "check_labelled",
    "check_not_zero",
    "check_samples",
    "device_of",
    "fit_context",
    "fitted_attributes",
    "for_chunks",
    "kept_samples",
    "number_labels",
    "outcome",
    "rollback_on_error",
    "share_out_atoms",
    "take_features",
    "telling_callbacks",
    "warn_of_zero_codes",
    "with_callbacks",
]

# Up to this many atoms BLAS's threads, those of NumPy and those of SciPy, cost more than they gain
# (benchmarks/threads.py, on two cores).
SINGLE_THREAD_ATOMS = 4096

# Of several problems the first that one of them ended by.
STOPPED_BY = {
    Status.INTERRUPTED: "callback",
    Status.MAX_ITER: "max_iter",
    Status.CONVERGED: "tol",
}

# Any number of threads but none.
N_JOBS = [Interval(Integral, 1, None, closed="left"), Interval(Integral, None, -1, closed="right"), None]

# A device of PyTorch, or None for NumPy.
DEVICE = [str, None]

# Training samples of this many numbers in all, 128 MiB in float64, are kept in a model for explanations.
KEPT_NUMBERS = 2**24

# Fitted attributes that predictions need: a model that is sent to workers has no others.
FOR_PREDICTIONS = {"_dictionary", "classes_", "label_components_", "n_features_in_", "temperature_"}

Attributes: TypeAlias = Callable[[], dict[str, Any]]
Watcher: TypeAlias = Callable[[Attributes], bool]


class DictionaryClassifier(ClassNamePrefixFeaturesOutMixin, ClassifierMixin, TransformerMixin, BaseEstimator):
    """A classifier whose scores are made of codes over atoms.

    A subclass has ``normalize``, ``device`` and ``n_jobs`` among its parameters (and ``kernel`` and those that
    go with it, if it needs no more than inner products), and ends its `fit` with `adopt`. Parameters that act
    without another fit enter in `_coder_and_rule`.
    """

    normalize: bool
    device: str | None
    n_jobs: int | None
    kernel: Any = "linear"
    _poor_score = False  # whether it misses the accuracy that scikit-learn's checks ask for
    classes_: Array
    _dictionary: FittedDictionary

    @property
    def dictionary_(self) -> FittedDictionary:
        """What was fitted, as one record, with the coder and the rule that parameters ask for now."""
        if not hasattr(self, "_dictionary"):
            check_is_fitted(self)
        kept = self._dictionary.kept
        params = [vars(self).get(name) for name in self._parameter_constraints]
        checked, coder, rule = kept.get("parameters", ([], None, None))
        # Some may have been set since the fit; scikit-learn's check of them takes longer than coding a sample.
        if len(params) != len(checked) or any(a is not b for a, b in zip(params, checked, strict=True)):
            self._validate_params()
            coder, rule = self._coder_and_rule()
            kept["parameters"] = params, coder, rule
        return replace(self._dictionary, coder=coder, rule=rule)

    def _coder_and_rule(self) -> tuple[Settings, Any]:
        """Return how samples are coded and scored at the parameters of now."""
        return self._dictionary.coder, self._dictionary.rule

    def transform(self, X: Array) -> Array:
        """Codes of samples over the atoms.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples. A Dask array gives a Dask array of as many chunks of rows, and nothing is computed yet.

        Returns
        -------
        codes : ndarray, or tensor for a tensor, of shape (n_samples, n_atoms)
        """
        if is_dask(X):
            return map_rows(for_chunks(self, X).transform, X, floats_of(X), self._n_features_out)
        return self.dictionary_.codes(check_samples(self, X), self.device, self.n_jobs)

    def decision_function(self, X: Array) -> Array:
        """Scores of the classes.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples. A Dask array gives a Dask array of as many chunks, and nothing is computed yet.

        Returns
        -------
        scores : ndarray, or tensor for a tensor, of shape (n_samples, n_classes) or (n_samples,)
            For two classes, (n_samples,), the score of the second less that of the first.
        """
        if is_dask(X):
            model, c = for_chunks(self, X), len(self.classes_)
            return map_rows(model.decision_function, X, floats_of(X), None if c == 2 else c)
        dictionary, X = self.dictionary_, check_samples(self, X)
        scores = dictionary.scores(X, self.device, self.n_jobs)
        scores = namespace(scores).astype(scores, X.dtype, copy=False)
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X: Array) -> Array:
        """The class with the largest score.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples. A Dask array gives a Dask array of as many chunks, and nothing is computed yet.

        Returns
        -------
        labels : ndarray of shape (n_samples,), or tensor for a tensor if labels are numbers
        """
        if is_dask(X):
            return map_rows(for_chunks(self, X).predict, X, self.classes_.dtype)
        scores = self.dictionary_.scores(check_samples(self, X), self.device, self.n_jobs)
        labels = self.classes_[to_host(scores.argmax(axis=1))]
        return as_array(labels, scores) if is_torch(scores) and labels.dtype.kind in "biuf" else labels

    def score(self, X: Array, y: Array, sample_weight: Array | None = None) -> float:
        """Accuracy on labelled samples.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples. Of a Dask array only the labels that are predicted are collected.
        y : array-like of shape (n_samples,)
            Their labels.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples.

        Returns
        -------
        score : float
            The share of samples whose labels are predicted.
        """
        return accuracy(self, X, y, sample_weight)

    @property
    def _n_features_out(self) -> int:
        return len(self._dictionary.atoms)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self.kernel == "precomputed"
        tags.classifier_tags.poor_score = self._poor_score
        return tags

    def _training_data(self, X: Array, y: Array, *, on_host: bool = False) -> tuple[Array, Array, Array]:
        """Return checked samples, a copy that may be overwritten; labels 0, ..., c - 1; and the classes.

        The samples are scaled if they are to be, and where they are to be worked on, the others on the host.
        """
        X, y = check_labelled(self, X, y)
        labels, classes = number_labels(self, y)
        check_not_zero(X)
        if not self.normalize:
            squared_norms(X, "X")  # refuses numbers whose squares are of no use
        if on_host or (self.device is not None and not is_torch(X) and not has_room(X, self.device)):
            X = to_host(X)
        elif self.device is not None and not is_torch(X):
            X = place(X, self.device)
        return scaled(X) if self._unit_norm else namespace(X).asarray(X, copy=True), labels, classes

    @property
    def _unit_norm(self) -> bool:
        """Whether samples themselves are to be scaled to norm 1: with a kernel it is k that is normalised."""
        return self.normalize and self.kernel == "linear"

    def _find_space(self, samples: Array) -> tuple[Subspace, Array]:
        """Return where training runs, and the samples there; the samples are overwritten."""
        return find_subspace(samples) if self.kernel == "linear" else kernel_space(self, samples)


def for_chunks(model: Any, X: Array) -> Any:
    """Return what is to predict chunks of a Dask array, after all checks that can be made by now.

    It is the model as it is now, whatever is fitted or set later: both give a model new attributes, and leave
    the old ones, which are shared here, as they are. It has no more than predictions need; nor have chunks
    names of features: those are compared here.
    """
    check_is_fitted(model)
    model._validate_params()
    check_flat(X)
    check_rows(X)
    validate_data(model, X, reset=False, skip_check_array=True)  # number and names of features
    small = copy(model)
    for name in vars(model).keys() - FOR_PREDICTIONS - model._parameter_constraints.keys():
        delattr(small, name)
    small._dictionary = model._dictionary.without_samples()
    return small


def share_out_atoms(labels: Array, n_components: int | None, default: int) -> Array:
    """Return the class of each atom, 0, ..., c - 1; `default` atoms unless ``n_components`` says otherwise."""
    counts = np.bincount(labels)
    c = len(counts)
    K = default if n_components is None else n_components
    if c > K:
        warnings.warn(
            f"n_components={K} is fewer than the {c} classes, and every class needs an atom of its own: "
            f"{c} atoms are used. Set n_components >= {c}, or None.",
            UserWarning,
            stacklevel=4,
        )
        K = c
    return np.repeat(np.arange(c), atom_counts(counts, K))


def adopt(estimator: Any, **attributes: Any) -> None:
    """Set fitted attributes, and forget those of an earlier fit."""
    for name in list(vars(estimator)):
        is_fitted = name.endswith("_") and not name.startswith("_")
        if is_fitted and name not in ("n_features_in_", "feature_names_in_"):
            delattr(estimator, name)
    vars(estimator).update(attributes)


def fitted_attributes(dictionary: FittedDictionary) -> dict[str, Any]:
    """Return the dictionary, and what users see of it, as attributes of a classifier.

    Atoms are shown in the features' space; with a kernel, as coefficients over the training samples.
    """
    classes: Any = dictionary.classes
    name = "dual_components_" if isinstance(dictionary.space, KernelSpace) else "components_"
    return {
        "_dictionary": dictionary,
        "classes_": classes,
        "atom_classes_": classes[dictionary.atom_labels],
        name: dictionary.space.expand(dictionary.atoms),
    }


def kept_samples(coordinates: Array, labels: Array) -> dict[str, Array]:
    """Return the training samples as a dictionary keeps them for explanations, unless they are too many."""
    if math.prod(coordinates.shape) > KEPT_NUMBERS:
        return {}
    return {"samples": to_host(coordinates), "sample_labels": labels}


def check_samples(estimator: Any, X: Array, *, reset: bool = False, min_samples: int = 1) -> Array:
    """Return samples as a matrix of finite floats, on the host unless they are tensors.

    `reset` for those that say which features there are; others must have the features of `fit`.
    """
    is_plain = type(X) is np.ndarray and X.dtype in (np.float64, np.float32) and X.ndim == 2
    # scikit-learn's check takes longer than coding a sample.
    if (
        is_plain
        and not reset
        and not hasattr(estimator, "feature_names_in_")
        and X.shape[1] == estimator.n_features_in_
        and len(X) >= min_samples
        and np.isfinite(X).all()
    ):
        return np.ascontiguousarray(X)
    check_flat(X)
    if not is_torch(X):
        kinds: Any = {"dtype": [np.float64, np.float32], "order": "C", "ensure_min_samples": min_samples}
        return validate_data(estimator, X, reset=reset, **kinds)
    name = type(estimator).__name__
    X = float_tensor(X)
    if X.ndim != 2 or not X.numel():
        raise ValueError(
            f"X has shape {tuple(X.shape)}, but {name} needs a matrix that is not empty, a row for each sample."
        )
    if reset:
        take_features(estimator, X.shape[1])
    elif X.shape[1] != estimator.n_features_in_:
        raise ValueError(
            f"X has {X.shape[1]} features, but {name} is expecting {estimator.n_features_in_} features as "
            "input."
        )
    xp = namespace(X)
    bad = to_host(~xp.all(xp.isfinite(X), axis=1))
    if bad.any():
        raise ValueError(f"X contains NaN or infinity in row {bad.argmax()}. Remove or replace it.")
    return X


def take_features(estimator: Any, n_features: int) -> None:
    """Remember how many features samples have, which have no names."""
    estimator.n_features_in_ = n_features
    if hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_


def check_labelled(
    estimator: Any, X: Array, y: Array, *, reset: bool = True, min_samples: int = 2
) -> tuple[Array, Array]:
    """Return samples, as `check_samples` does, and their labels, on the host."""
    if getattr(X, "ndim", 0) != 2:
        check_flat(X)
    y = to_host(y) if is_torch(y) else y
    if not is_torch(X):
        kinds: Any = {"dtype": [np.float64, np.float32], "order": "C", "ensure_min_samples": min_samples}
        X, y = validate_data(estimator, X, y, reset=reset, **kinds)
        return X, y
    if y is None:
        raise ValueError(f"This {type(estimator).__name__} requires y to be passed, but the target y is None.")
    X, y = check_samples(estimator, X, reset=reset), column_or_1d(y, warn=True)
    check_consistent_length(X, y)
    return X, y


def number_labels(estimator: Any, y: Array) -> tuple[Array, Array]:
    """Return labels 0, ..., c - 1, and the classes, of which there must be two."""
    check_classification_targets(y)
    classes, labels = np.unique(y, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(
            f"{type(estimator).__name__} needs samples of at least two classes, but y has one class only: "
            f"{classes[0]}. Add samples of another class."
        )
    return labels, classes


def check_precision(precision: str, device: str | None) -> None:
    """Raise for a precision that training on that device does not have."""
    if precision == "tf32" and not (device or "").startswith("cuda"):
        raise ValueError(
            f"precision='tf32' is for products on a GPU, but training is on device={device!r}. Set "
            "device='cuda', or precision='full'."
        )


def check_flat(X: Array) -> None:
    """Raise for stacks of images, with the remedy that scikit-learn's own message lacks."""
    first: Any = X[0] if isinstance(X, list | tuple) and len(X) else 0
    if getattr(X, "ndim", 1 + np.ndim(first)) > 2:
        shape = tuple(X.shape) if is_torch(X) else np.shape(X)
        raise ValueError(
            f"X has shape {shape}, but a row of features for each sample is needed. Flatten images with "
            "X.reshape(len(X), -1)."
        )


def check_not_zero(X: Array) -> None:
    """Raise if all samples are zero."""
    if not X.any():
        raise ValueError(
            "All samples are zero, so there is nothing to learn from. Check how X was loaded or scaled."
        )


def has_room(X: Array, device: str) -> bool:
    """Return whether the device can hold the samples, and more of their size."""
    return bool(3 * X.nbytes < free_memory(place(np.empty(0), device)))


def device_of(X: Array, device: str | None) -> str | None:
    """Return where to work on these samples: tensors stay where they lie."""
    return str(X.device) if is_torch(X) else device


def accuracy(model: Any, X: Array, y: Array, sample_weight: Array | None) -> float:
    """Return the share of samples whose labels are predicted; of Dask arrays only labels are collected."""
    if is_dask(X) or is_dask(y):
        check_lengths(X, y)
    found, truth, weights = in_memory(model.predict(X), y, sample_weight)
    truth = to_host(truth) if is_torch(truth) else truth
    return float(accuracy_score(truth, to_host(found), sample_weight=weights))


def rollback_on_error(fit: Callable[..., Any]) -> Callable[..., Any]:
    """Make a fit leave the model as it was if it fails; scikit-learn's validation sets attributes first."""

    @wraps(fit)
    def guarded(self: Any, *args: Any, **options: Any) -> Any:
        before = dict(vars(self))
        try:
            return fit(self, *args, **options)
        except BaseException:
            vars(self).clear()
            vars(self).update(before)
            raise

    return guarded


@contextmanager
def telling_callbacks(estimator: Any, X: Array, y: Array, n_iterations: int) -> Iterator[Watcher | None]:
    """Tell scikit-learn's callbacks of the fit and, through what is given, of every iteration.

    What is given takes a function that makes the fitted attributes of the moment; True asks to stop. None is
    given where there are no callbacks.
    """
    if not hasattr(estimator, "_skl_callbacks"):
        yield None
        return
    data = {"estimator": estimator, "X": X, "y": y}
    fit = estimator._init_callback_context(max_subtasks=n_iterations)
    fit.call_on_fit_task_begin(**data)

    def after_iteration(attributes: Attributes) -> bool:
        task = fit.subcontext(task_name="iteration")
        task.call_on_fit_task_begin(**data)
        return bool(task.call_on_fit_task_end(**data, reconstruction_attributes=attributes))

    yield after_iteration
    fit.call_on_fit_task_end(**data, reconstruction_attributes={})  # fitted by now


def outcome(estimator: Any, run: Iterations) -> dict[str, Any]:
    """Return what the iterations did, as attributes; warn or raise where they did not go well."""
    statuses = set(np.ravel(run.status))
    if Status.NON_FINITE in statuses:
        raise ValueError(
            f"Training failed after {np.max(run.n_iter)} iterations: {Status.NON_FINITE.advice()}."
        )
    if Status.MAX_ITER in statuses and estimator.tol > 0:
        advice = Status.MAX_ITER.advice(tol=estimator.tol, max_iter=estimator.max_iter)
        warnings.warn(
            f"{type(estimator).__name__} did not converge: {advice}.", ConvergenceWarning, stacklevel=5
        )
    last = next(status for status in STOPPED_BY if status in statuses)
    return {
        "n_iter_": int(np.max(run.n_iter)),
        "stopped_by_": STOPPED_BY[last],
        "history_": run.history,
    }


def warn_of_zero_codes(alpha: float, which: str, stacklevel: int) -> None:
    """Warn that no atom serves any sample; `stacklevel` as if the caller warned."""
    warnings.warn(
        f"All codes of the training samples {which}: alpha={alpha} is too large for samples of this size. "
        "Lower alpha, or scale the samples (normalize=True does).",
        UserWarning,
        stacklevel=stacklevel + 1,
    )
