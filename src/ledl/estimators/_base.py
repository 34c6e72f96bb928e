"""What all classifiers share: validation, normalisation, scores to labels, scikit-learn's callbacks."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from functools import wraps
from numbers import Integral
from typing import Any, TypeAlias, TypeVar

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
from ledl.coding import Coder, OMPCoder, Samples, encode, float_tensor, lasso_coder
from ledl.estimators._rules import ChosenScores, CodeScores, RegularizedScores, ResidualScores, Rule, Scores
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
    "ChosenScores",
    "CodeScores",
    "Dictionary",
    "DictionaryClassifier",
    "IterationOutcome",
    "IterativeFit",
    "LassoCodes",
    "OMPCodes",
    "RegularizedScores",
    "ResidualScores",
    "SamplesAreAtoms",
    "accuracy",
    "check_flat",
    "check_memory",
    "check_not_zero",
    "fit_context",
    "kept_samples",
    "unharmed",
    "warn_of_zero_codes",
    "with_callbacks",
    "with_components",
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
# Under these names.
KEPT_SAMPLES = ("_samples", "_sample_labels")

# What a fitted model has that predictions do without, so that it need not travel to workers. Chunks of Dask
# arrays have no names of features; the user is told so at the call.
NOT_FOR_PREDICTIONS = {
    *KEPT_SAMPLES,
    "_skl_callbacks",
    "components_",
    "dual_components_",
    "feature_names_in_",
    "history_",
    "stream_",
    "training_codes_",
}

Attributes: TypeAlias = Callable[[], dict[str, Any]]
Watcher: TypeAlias = Callable[[Attributes], bool]
Model = TypeVar("Model", bound="Dictionary")


class Dictionary(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Codes samples over atoms.

    A subclass has ``normalize``, ``device`` and ``n_jobs`` among its parameters, sets ``_space`` and ``_atoms``
    in `fit`, and writes `_coder`, how samples are coded, or takes it from a class below. What is fitted is kept
    in NumPy arrays: where a model was fitted does not bind it.
    """

    normalize: bool
    device: str | None
    n_jobs: int | None
    _space: Subspace
    _atoms: Array
    _scales: bool

    def _coder(self, samples: Samples, threads: int) -> Coder:
        raise NotImplementedError

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
            return map_rows(self._for_chunks(X)._codes, X, floats_of(X), self._n_features_out)
        return self._codes(X)

    def _codes(self, X: Array) -> Array:
        return self._encoded(X, self._coder, lambda codes, *samples: codes)

    def _encoded(self, X: Array, make_coder: Callable[[Samples, int], Coder], finish: Rule) -> Array:
        """What `finish` makes of codes, coordinates and squared norms of new samples."""
        samples = self._new_samples(X)
        return encode(lambda threads: make_coder(samples, threads), samples, self._space, finish, self.n_jobs)

    @property
    def _unit_norm(self) -> bool:
        """Whether samples themselves are to be scaled to norm 1."""
        return self.normalize

    def _find_space(self, samples: Array) -> tuple[Subspace, Array]:
        """Where training runs, and the samples there; the samples are overwritten."""
        return find_subspace(samples)

    def _keep(self, **attributes: Any) -> None:
        """Set fitted attributes, and forget those of an earlier fit."""
        for name in list(vars(self)):
            is_fitted = name.endswith("_") and not name.startswith("_")
            if name in KEPT_SAMPLES or (is_fitted and name not in ("n_features_in_", "feature_names_in_")):
                delattr(self, name)
        for name, value in attributes.items():
            setattr(self, name, value)

    @property
    def _n_features_out(self) -> int:
        return len(self._atoms)

    def _new_samples(self, X: Array) -> Samples:
        """Checked samples to transform or classify."""
        check_is_fitted(self)
        self._validate_params()  # some may have been set since
        check_flat(X)
        if is_torch(X):
            X = self._checked_tensor(X, reset=False)
        else:
            X = validate_data(self, X, dtype=[np.float64, np.float32], order="C", reset=False)
        return Samples(X, self.device, self._scales)

    def _for_chunks(self: Model, X: Array) -> Model:
        """What is to predict chunks of a Dask array, of which all is checked that is known by now.

        It is this model as it is now, whatever is fitted or set later: both give a model new attributes, and
        leave the old ones, which are shared here, as they are.
        """
        check_is_fitted(self)
        self._validate_params()
        check_flat(X)
        check_rows(X)
        validate_data(self, X, reset=False, skip_check_array=True)  # number and names of features
        model = copy(self)
        for name in vars(model).keys() & NOT_FOR_PREDICTIONS:
            delattr(model, name)
        return model

    def _checked_tensor(self, X: Array, *, reset: bool) -> Array:
        """What `validate_data` does for other arrays: a matrix of finite floats with the features of `fit`."""
        name = type(self).__name__
        X = float_tensor(X)
        if X.ndim != 2 or not X.numel():
            raise ValueError(
                f"X has shape {tuple(X.shape)}, but {name} needs a matrix that is not empty, a row for each "
                "sample."
            )
        if reset:
            self._take_features(X.shape[1])
        elif X.shape[1] != self.n_features_in_:
            raise ValueError(
                f"X has {X.shape[1]} features, but {name} is expecting {self.n_features_in_} features as input."
            )
        xp = namespace(X)
        bad = to_host(~xp.all(xp.isfinite(X), axis=1))
        if bad.any():
            raise ValueError(f"X contains NaN or infinity in row {bad.argmax()}. Remove or replace it.")
        return X

    def _take_features(self, n_features: int) -> None:
        """Remember how many features samples have, which have no names."""
        self.n_features_in_ = n_features
        if hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    def _has_room(self, X: Array) -> bool:
        """Whether the device can hold the samples, and more of their size."""
        if is_torch(X) or self.device is None:
            return True
        return bool(3 * X.nbytes < free_memory(place(np.empty(0), self.device)))

    def _device_of(self, X: Array) -> str | None:
        """Where to work on these samples: tensors stay where they lie."""
        return str(X.device) if is_torch(X) else self.device


class DictionaryClassifier(ClassifierMixin, Scores, Dictionary):
    """A classifier whose scores are made of codes over atoms.

    A subclass sets what `_atom_attributes` gives in `fit`, and writes `_rule`, how codes become scores, or
    takes it from a class of `ledl.estimators._rules`.
    """

    n_components: int | None
    classes_: Array
    atom_classes_: Array
    _atom_labels: Array

    def _from_codes(self, X: Array, finish: Rule) -> Array:
        """What `finish` makes of new samples: of codes that the rule takes, coordinates, squared norms."""
        return self._encoded(X, self._rule_coder, finish)

    def _rule_for_many(self) -> Rule:
        """The rule, made ready once for all chunks of samples."""
        check_is_fitted(self)
        self._validate_params()  # some may have been set since
        return self._ready_rule()

    @property
    def _members(self) -> list[Array]:
        """The atoms of each class."""
        return [np.flatnonzero(self._atom_labels == j) for j in range(len(self.classes_))]

    @property
    def _training(self) -> tuple[Array, Array] | None:
        """Coordinates of the training samples and their labels 0, ..., c - 1, where the model has them."""
        return (self._samples, self._sample_labels) if hasattr(self, "_samples") else None

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
            model, c = self._for_chunks(X), len(self.classes_)
            return map_rows(model.decision_function, X, floats_of(X), None if c == 2 else c)
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def _scores(self, X: Array) -> Array:
        """Scores (n_samples, n_classes), of two classes too, in the type of the codes."""
        rule = self._rule_for_many()

        def finish(codes: Array, *rest: Array) -> Array:
            return namespace(codes).astype(rule(codes, *rest), codes.dtype, copy=False)

        return self._from_codes(X, finish)

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
            return map_rows(self._for_chunks(X).predict, X, self.classes_.dtype)
        scores = self._from_codes(X, self._rule_for_many())
        labels = self.classes_[to_host(namespace(scores).argmax(scores, axis=1))]
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

    def _atom_attributes(
        self, space: Subspace, atoms: Array, atom_labels: Array, classes: Array
    ) -> dict[str, Any]:
        """What every fitted model keeps: atoms in coordinates and as the user sees them, and their classes."""
        return with_components(self._atom_state(space, to_host(atoms), atom_labels, classes))

    def _atom_state(self, space: Subspace, atoms: Array, atom_labels: Array, classes: Array) -> dict[str, Any]:
        """What predictions need of that.

        And how samples are scaled: a parameter that is set later waits for the next fit.
        """
        return {
            "_space": space,
            "_scales": self._unit_norm,
            "_atoms": atoms,
            "_atom_labels": atom_labels,
            "classes_": classes,
            "atom_classes_": classes[atom_labels],
        }

    def _share_out_atoms(self, labels: Array, default: int) -> Array:
        """The class of each atom, 0, ..., c - 1; `default` atoms unless ``n_components`` says otherwise."""
        counts = np.bincount(labels)
        c = len(counts)
        K = default if self.n_components is None else self.n_components
        if c > K:
            warnings.warn(
                f"n_components={K} is fewer than the {c} classes, and every class needs an atom of its own: "
                f"{c} atoms are used. Set n_components >= {c}, or None.",
                UserWarning,
                stacklevel=4,
            )
            K = c
        return np.repeat(np.arange(c), atom_counts(counts, K))

    def _training_data(self, X: Array, y: Array, *, on_host: bool = False) -> tuple[Array, Array, Array]:
        """Checked samples, a copy that may be overwritten; labels 0, ..., c - 1; and the classes.

        The samples are where they are to be worked on, the others on the host.
        """
        X, labels, classes = self._checked_training(X, y)
        if not self.normalize:
            squared_norms(X, "X")  # refuses numbers whose squares are of no use
        X = to_host(X) if on_host or not self._has_room(X) else place(X, self._device_of(X))
        return scaled(X) if self._unit_norm else namespace(X).asarray(X, copy=True), labels, classes

    def _checked_training(self, X: Array, y: Array) -> tuple[Array, Array, Array]:
        """Samples as they came, which may be a file's; labels 0, ..., c - 1; and the classes."""
        X, y = self._checked_pairs(X, y, reset=True, min_samples=2)
        labels, classes = self._checked_labels(y)
        check_not_zero(X)
        return X, labels, classes

    def _checked_labels(self, y: Array) -> tuple[Array, Array]:
        """Labels 0, ..., c - 1, and the classes."""
        check_classification_targets(y)
        classes, labels = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(
                f"{type(self).__name__} needs samples of at least two classes, but y has one class only: "
                f"{classes[0]}. Add samples of another class."
            )
        return labels, classes

    def _checked_pairs(self, X: Array, y: Array, *, reset: bool, min_samples: int) -> tuple[Array, Array]:
        """Samples as they came and their labels; `reset` for those that say which features there are."""
        check_flat(X)
        y = to_host(y) if is_torch(y) else y
        if is_torch(X) and y is None:
            raise ValueError(f"This {type(self).__name__} requires y to be passed, but the target y is None.")
        if is_torch(X):
            X, y = self._checked_tensor(X, reset=reset), column_or_1d(y, warn=True)
            check_consistent_length(X, y)
            return X, y
        kinds = {"dtype": [np.float64, np.float32], "order": "C", "ensure_min_samples": min_samples}
        X, y = validate_data(self, X, y, reset=reset, **kinds)
        return X, y


class IterationOutcome:
    """Tells the user how iterations ended."""

    max_iter: int
    tol: float

    def _outcome(self, run: Iterations) -> dict[str, Any]:
        """What the iterations did, as attributes; warns or raises where they did not go well."""
        statuses = set(np.ravel(run.status))
        if Status.NON_FINITE in statuses:
            raise ValueError(
                f"Training failed after {np.max(run.n_iter)} iterations: {Status.NON_FINITE.advice()}."
            )
        if Status.MAX_ITER in statuses and self.tol > 0:
            advice = Status.MAX_ITER.advice(tol=self.tol, max_iter=self.max_iter)
            warnings.warn(
                f"{type(self).__name__} did not converge: {advice}.", ConvergenceWarning, stacklevel=5
            )
        last = next(status for status in STOPPED_BY if status in statuses)
        return {
            "n_iter_": int(np.max(run.n_iter)),
            "stopped_by_": STOPPED_BY[last],
            "history_": run.history,
        }


class IterativeFit(IterationOutcome, CallbackSupportMixin):
    """A fit that also tells scikit-learn's callbacks of its iterations."""

    @contextmanager
    def _callbacks(self, X: Array, y: Array, n_iterations: int) -> Iterator[Watcher]:
        """Tell scikit-learn's callbacks, if any, of the fit and, through what is given, of every iteration.

        What is given takes a function that makes the fitted attributes of the moment; True asks to stop.
        """
        if not hasattr(self, "_skl_callbacks"):
            yield lambda attributes: False
            return
        data = {"estimator": self, "X": X, "y": y}
        fit = self._init_callback_context(max_subtasks=n_iterations)
        fit.call_on_fit_task_begin(**data)

        def after_iteration(attributes: Attributes) -> bool:
            task = fit.subcontext(task_name="iteration")
            task.call_on_fit_task_begin(**data)
            return bool(task.call_on_fit_task_end(**data, reconstruction_attributes=attributes))

        yield after_iteration
        fit.call_on_fit_task_end(**data, reconstruction_attributes={})  # fitted by now


class LassoCodes:
    """Codes by the lasso |x - s D|^2 + 2 alpha |s|_1."""

    alpha: float
    transform_tol: float
    _space: Subspace
    _atoms: Array

    @property
    def _alpha(self) -> float:
        """The weight of the l1 norm for new samples."""
        return self.alpha

    def _coder(self, samples: Samples, threads: int) -> Coder:
        return lasso_coder(
            self._atoms, samples, self._space, threads, alpha=self._alpha, tol=self.transform_tol
        )


class OMPCodes:
    """Codes by orthogonal matching pursuit, with at most ``n_nonzero_coefs`` non-zeros."""

    n_nonzero_coefs: int
    _atoms: Array

    def _coder(self, samples: Samples, threads: int) -> Coder:
        return OMPCoder(samples.beside(self._atoms), self.n_nonzero_coefs, threads)


class SamplesAreAtoms:
    """The training samples are the atoms, in their order."""

    _atoms: Array
    _atom_labels: Array

    @property
    def _training(self) -> tuple[Array, Array] | None:
        return self._atoms, self._atom_labels


def accuracy(model: Any, X: Array, y: Array, sample_weight: Array | None) -> float:
    """The share of samples whose labels are predicted; of Dask arrays labels and weights only are collected."""
    if is_dask(X) or is_dask(y):
        check_lengths(X, y)
    found, truth, weights = in_memory(model.predict(X), y, sample_weight)
    truth = to_host(truth) if is_torch(truth) else truth
    return float(accuracy_score(truth, to_host(found), sample_weight=weights))


def with_components(state: dict[str, Any]) -> dict[str, Any]:
    """The state of a fitted model, and its atoms as the user sees them."""
    space = state["_space"]
    name = "dual_components_" if isinstance(space, KernelSpace) else "components_"
    return {**state, name: space.expand(state["_atoms"])}


def kept_samples(coordinates: Array, labels: Array) -> dict[str, Array]:
    """The training samples as a model keeps them for explanations, unless they are too many."""
    if math.prod(coordinates.shape) > KEPT_NUMBERS:
        return {}
    return dict(zip(KEPT_SAMPLES, (to_host(coordinates), labels), strict=True))


def unharmed(fit: Callable[..., Any]) -> Callable[..., Any]:
    """A fit that leaves the model as it was if it fails; scikit-learn's validation sets attributes first."""

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


def check_flat(X: Array) -> None:
    """Refuse stacks of images, with the remedy that scikit-learn's own message lacks."""
    first: Any = X[0] if isinstance(X, list | tuple) and len(X) else 0
    if getattr(X, "ndim", 1 + np.ndim(first)) > 2:
        shape = tuple(X.shape) if is_torch(X) else np.shape(X)
        raise ValueError(
            f"X has shape {shape}, but a row of features for each sample is needed. Flatten images with "
            "X.reshape(len(X), -1)."
        )


def check_not_zero(X: Array) -> None:
    """Refuse samples that are all zero."""
    if not X.any():
        raise ValueError(
            "All samples are zero, so there is nothing to learn from. Check how X was loaded or scaled."
        )


def warn_of_zero_codes(alpha: float, which: str, stacklevel: int) -> None:
    """Tell that no atom serves any sample; `stacklevel` as if the caller warned."""
    warnings.warn(
        f"All codes of the training samples {which}: alpha={alpha} is too large for samples of this size. "
        "Lower alpha, or scale the samples (normalize=True does).",
        UserWarning,
        stacklevel=stacklevel + 1,
    )


def check_memory(n_bytes: int, what: str, remedy: str) -> None:
    """Refuse, before anything is allocated, what cannot fit in this machine's memory."""
    try:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not every platform tells
        return
    if n_bytes > total:
        raise ValueError(
            f"{what} need about {n_bytes / 1e9:,.0f} GB, more than this machine's {total / 1e9:,.0f} GB. "
            f"{remedy}"
        )
