"""The common base of all estimators: checks of samples and labels, and predictions by the fitted dictionary."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from copy import copy
from dataclasses import replace
from functools import wraps
from inspect import signature
from numbers import Integral, Real
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np

# The one place that uses scikit-learn's private parameter validation, as its own template does.
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
    _fit_context,
)
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import accuracy_score
from sklearn.utils import check_random_state, column_or_1d
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_n_features, check_consistent_length, check_is_fitted, validate_data

from ledl.arrays import Array, as_array, free_memory, is_dask, is_torch, namespace, place, to_host
from ledl.coding import Settings, float_tensor
from ledl.dictionary import FittedDictionary, log_odds
from ledl.kernels import kernel_space, power_of
from ledl.samples import StoredRows, check_rows, floats_of, map_rows
from ledl.solvers.iteration import Iterations, Status
from ledl.solvers.start import atom_counts
from ledl.subspace import AS_THEY_ARE, FeatureMap, KernelSpace, Subspace, find_subspace, squared_norms

try:
    from sklearn.callback import CallbackSupportMixin
    from sklearn.callback import with_callbacks as _with_callbacks
except ImportError:  # before scikit-learn 1.9: quiet
    _with_callbacks = None

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Take the place of callbacks where scikit-learn has none."""


Fit = TypeVar("Fit", bound=Callable[..., Any])


def with_callbacks(fit: Fit) -> Fit:
    """Make a fit tell scikit-learn's callbacks when it ends; with the type that it has, which editors show."""
    return fit if _with_callbacks is None else cast(Fit, _with_callbacks(fit))


def fit_context(*, prefer_skip_nested_validation: bool) -> Callable[[Fit], Fit]:
    """Return scikit-learn's decorator that checks parameters before a fit; with the type that the fit has."""
    decorator = _fit_context(prefer_skip_nested_validation=prefer_skip_nested_validation)
    return cast(Callable[[Fit], Fit], decorator)


__all__ = [
    "CLASS_WEIGHT",
    "DEVICE",
    "N_JOBS",
    "SINGLE_THREAD_ATOMS",
    "CallbackSupportMixin",
    "DictionaryClassifier",
    "DocumentedMixin",
    "Tasks",
    "accuracy",
    "adopt",
    "check_class_totals",
    "check_flat",
    "check_labelled",
    "check_not_zero",
    "check_samples",
    "check_weights",
    "device_of",
    "draw_generator",
    "fit_context",
    "fitted_attributes",
    "for_chunks",
    "kept_samples",
    "notify_callbacks",
    "number_labels",
    "outcome",
    "rollback_on_error",
    "share_out_atoms",
    "view_of",
    "warn_of_zero_codes",
    "with_callbacks",
]

# Up to this many atoms, the threads of BLAS (in NumPy and in SciPy) cost more than they gain
# (benchmarks/threads.py, on two cores).
SINGLE_THREAD_ATOMS = 4096

# What ended a fit. Of several problems, the first reason in this order counts.
STOPPED_BY = {
    Status.INTERRUPTED: "callback",
    Status.MAX_ITER: "max_iter",
    Status.CONVERGED: "tol",
}

# Any number of threads except 0.
N_JOBS = [Interval(Integral, 1, None, closed="left"), Interval(Integral, None, -1, closed="right"), None]

# A device of PyTorch, or None for NumPy.
DEVICE = [str, None]

# Weights of the classes by label, weights that make all classes count the same, or none.
CLASS_WEIGHT = [dict, StrOptions({"balanced"}), None]

# The least and the largest mean of weights. Solvers compare sums that grow with weights, and with their roots.
MEAN_WEIGHTS = 1e-9, 1e9

# A model keeps its training samples for explanations up to this many numbers (128 MiB in float64).
KEPT_NUMBERS = 2**24

# Fitted attributes that predictions need. A model that is sent to workers has no others.
FOR_PREDICTIONS = {
    "_dictionary",
    "_others",
    "_weights",
    "classes_",
    "label_components_",
    "n_features_in_",
    "temperature_",
}

Attributes: TypeAlias = Callable[[], dict[str, Any]]
Watcher: TypeAlias = Callable[[Attributes], bool]


def view_of(path: str, about: str) -> Any:
    """Return a property that shows an attribute of an inner model. The class says of which type it is."""
    return property(attrgetter(path), doc=about)


class DocumentedMixin:
    """Link the HTML representation of an estimator, in notebooks, to its page of the documentation."""

    def _get_doc_link(self) -> str:
        """Return the address of the page, or "" if nobody knows where the documentation is.

        It is where the environment variable LEDL_DOCS says, an address or a folder, or where ``make docs`` in
        the source tree has put it.
        """
        built = Path(__file__).parents[3] / "docs" / "_build" / "html"
        place = os.environ.get("LEDL_DOCS") or (str(built) if built.is_dir() else "")
        if not place or not type(self).__module__.startswith("ledl."):
            return ""
        address = place.rstrip("/") if "://" in place else Path(place).resolve().as_uri()
        return f"{address}/api/ledl.{type(self).__name__}.html"


class DictionaryClassifier(
    DocumentedMixin, ClassNamePrefixFeaturesOutMixin, ClassifierMixin, TransformerMixin, BaseEstimator
):
    """Classify samples by scores that are made of their codes over atoms.

    A subclass has ``normalize``, ``device`` and ``n_jobs`` among its parameters, and ends its `fit` with
    `adopt`. Parameters that act without another fit enter in `_coder_and_rule`. A subclass that needs no more
    than inner products also has ``kernel`` and the parameters of kernels.
    """

    normalize: bool
    device: str | None
    n_jobs: int | None
    kernel: Any = "linear"
    _poor_score = False  # True if it misses the accuracy that scikit-learn's checks ask for
    _no_weights = ""  # why `fit` takes no sample_weight, if it does not
    classes_: np.ndarray
    n_features_in_: int
    feature_names_in_: np.ndarray
    _dictionary: FittedDictionary

    @property
    def dictionary_(self) -> FittedDictionary:
        """The fitted model as one record, with the coder and the rule for the current parameters."""
        if not hasattr(self, "_dictionary"):
            check_is_fitted(self)
        kept = self._dictionary.kept
        params = [vars(self).get(name) for name in self._parameter_constraints]
        checked, coder, rule = kept.get("parameters", ([], None, None))
        # Some may have been set since the fit. scikit-learn's check of them takes longer than coding a sample.
        if len(params) != len(checked) or any(a is not b for a, b in zip(params, checked, strict=True)):
            self._validate_params()
            coder, rule = self._coder_and_rule()
            kept["parameters"] = params, coder, rule
        return replace(self._dictionary, coder=coder, rule=rule)

    def _coder_and_rule(self) -> tuple[Settings, Any]:
        """Return how samples are coded and scored at the current parameters."""
        return self._dictionary.coder, self._dictionary.rule

    def transform(self, X: Array) -> np.ndarray:
        """Return the codes of samples over the atoms.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples. A Dask array gives a Dask array with the same chunks of rows, and nothing is computed yet.

        Returns
        -------
        codes : ndarray, or tensor for a tensor, of shape (n_samples, n_atoms)
        """
        if is_dask(X):
            return map_rows(for_chunks(self, X).transform, X, floats_of(X), self._n_features_out)
        return self.dictionary_.codes(check_samples(self, X), self.device, self.n_jobs)

    @property
    def _n_features_out(self) -> int:
        return len(self._dictionary.atoms)

    def decision_function(self, X: Array) -> np.ndarray:
        """Return the scores of the classes.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples. A Dask array gives a Dask array with the same chunks, and nothing is computed yet.

        Returns
        -------
        scores : ndarray, or tensor for a tensor, of shape (n_samples, n_classes) or (n_samples,)
            For two classes the shape is (n_samples,): the score of the second class minus that of the first.
        """
        if is_dask(X):
            model, c = for_chunks(self, X), len(self.classes_)
            return map_rows(model.decision_function, X, floats_of(X), None if c == 2 else c)
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def _scores(self, X: Array) -> Array:
        """Return the scores (n, c) of samples that are not checked yet, in the type of the samples."""
        X = self._checked(X)
        scores = self._exact_scores(X)
        return namespace(scores).astype(scores, X.dtype, copy=False)

    def _checked(self, X: Array) -> Array:
        """Return checked samples for predictions; raise if the model is not fitted."""
        if not hasattr(self, "_dictionary"):
            check_is_fitted(self)
        return check_samples(self, X)

    def _exact_scores(self, X: Array) -> Array:
        """Return the scores (n, c) of checked samples, in the type that the rule computes in."""
        return self.dictionary_.scores(X, self.device, self.n_jobs)

    def _log_odds(self, X: Array) -> Array:
        """Return scores (n, c) of checked samples whose differences are log odds, up to a common factor."""
        return log_odds(self.dictionary_.rule, self._exact_scores(X))

    def _judge(self, X: Array) -> tuple[Array, Array]:
        """Return scores (n, c) of checked samples and their evidence (n, 2), on the host (`ledl.rejection`)."""
        return self.dictionary_.judge(X, self.device, self.n_jobs)

    def predict(self, X: Array) -> np.ndarray:
        """Return the class with the largest score for each sample.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples. A Dask array gives a Dask array with the same chunks, and nothing is computed yet.

        Returns
        -------
        labels : ndarray of shape (n_samples,), or tensor for a tensor if labels are numbers
        """
        if is_dask(X):
            return map_rows(for_chunks(self, X).predict, X, self.classes_.dtype)
        scores = self._exact_scores(self._checked(X))
        labels = self.classes_[to_host(scores.argmax(axis=1))]
        return as_array(labels, scores) if is_torch(scores) and labels.dtype.kind in "biuf" else labels

    def score(self, X: Array, y: Array, sample_weight: Array | None = None) -> float:
        """Return the accuracy on labelled samples.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples. From a Dask array only the predicted labels are collected.
        y : array-like of shape (n_samples,)
            Labels of the samples.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples.

        Returns
        -------
        score : float
            The share of samples whose labels are predicted.
        """
        return accuracy(self, X, y, sample_weight)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self.kernel == "precomputed"
        tags.classifier_tags.poor_score = self._poor_score
        return tags

    def _training_data(self, X: Array, y: Array, *, on_host: bool = False) -> tuple[Array, Array, Array]:
        """Return checked samples, labels 0, ..., c - 1, and the classes.

        The samples are mapped to features, in a copy that may be overwritten. They are on the device if it has
        room for them and `on_host` is False. The labels and the classes are on the host.
        """
        X, y = check_labelled(self, X, y)
        labels, classes = number_labels(self, y)
        check_not_zero(X)
        if self.device is not None and not is_torch(X) and not on_host:
            # The device must hold the samples, and more of their size.
            on_host = 3 * X.nbytes >= free_memory(place(np.empty(0), self.device))
            X = X if on_host else place(X, self.device)
        X = to_host(X) if on_host else X
        samples = self._features(X)
        if not self.normalize:
            squared_norms(samples, "X")  # raises if squares overflow or underflow
        return namespace(X).asarray(X, copy=True) if samples is X else samples, labels, classes

    @property
    def _features(self) -> FeatureMap:
        """The map of samples to features. A kernel that is not linear in features is normalised instead."""
        power = power_of(self.kernel)
        return AS_THEY_ARE if power is None else FeatureMap(power, self.normalize)

    @property
    def _is_linear(self) -> bool:
        """True if the kernel is the inner product of features."""
        return power_of(self.kernel) is not None

    def _find_space(self, samples: Array, weights: Array | None = None) -> tuple[Subspace, Array]:
        """Return the space that training runs in, and the samples there. The samples are overwritten."""
        return find_subspace(samples) if self._is_linear else kernel_space(self, samples, weights)


def for_chunks(model: Any, X: Array) -> Any:
    """Return a small copy of the model that predicts chunks of a Dask array.

    All checks that need no data are made here. The copy keeps the model as it is now: a later `fit` or
    `set_params` gives the model new attributes, and leaves the old ones, which are shared here, as they are.
    The copy has only the attributes that predictions need. Chunks have no names of features, so the names are
    compared here.
    """
    check_is_fitted(model)
    model._validate_params()
    check_flat(X)
    check_rows(X)
    validate_data(model, X, reset=False, skip_check_array=True)  # number and names of features
    return for_predictions(model)


def for_predictions(model: Any) -> Any:
    """Return a copy of the model, and of models within it, with only the attributes that predictions need."""
    small = copy(model)
    for name in vars(model).keys() - FOR_PREDICTIONS - model._parameter_constraints.keys():
        delattr(small, name)
    # Training samples are for explanations only.
    small._dictionary = replace(model._dictionary, samples=None, sample_labels=None)
    if "_others" in vars(model):
        small._others = [for_predictions(one) for one in model._others]
    return small


def draw_generator(random_state: Any) -> np.random.Generator:
    """Return NumPy's generator with a seed that is drawn from scikit-learn's `random_state`."""
    return np.random.default_rng(check_random_state(random_state).randint(np.iinfo(np.int32).max))


def share_out_atoms(
    labels: Array, n_components: int | None, default: int, weights: Array | None = None
) -> Array:
    """Return the class of each atom, 0, ..., c - 1, for `n_components` atoms, or `default` of them if None."""
    counts = np.bincount(labels, weights)
    c = len(counts)
    K = default if n_components is None else n_components
    if c > K:
        warnings.warn(
            f"n_components={K} is fewer than the {c} classes, but every class needs an atom of its own. "
            f"{c} atoms are used. Set n_components >= {c}, or None.",
            UserWarning,
            stacklevel=4,
        )
        K = c
    return np.repeat(np.arange(c), atom_counts(counts, K))


def adopt(estimator: Any, **attributes: Any) -> None:
    """Set fitted attributes, and delete those of an earlier fit."""
    for name in list(vars(estimator)):
        is_fitted = name.endswith("_") and not name.startswith("_")
        if is_fitted and name not in ("n_features_in_", "feature_names_in_"):
            delattr(estimator, name)
    vars(estimator).update(attributes)


def fitted_attributes(dictionary: FittedDictionary) -> dict[str, Any]:
    """Return the dictionary, and the views of it for users, as attributes of a classifier.

    Atoms are shown as features. In the space of a kernel they are coefficients over the training samples.
    """
    classes: Any = dictionary.classes
    name = "dual_components_" if isinstance(dictionary.space, KernelSpace) else "components_"
    return {
        "_dictionary": dictionary,
        "classes_": classes,
        "atom_classes_": classes[dictionary.atom_labels],
        name: dictionary.space.expand(dictionary.atoms),
    }


def kept_samples(coordinates: Array | StoredRows, labels: Array) -> dict[str, Array]:
    """Return the training samples that a dictionary keeps for explanations: none if they are too many.

    Chunks of a Dask array may be costly to compute again, and are not kept.
    """
    is_stored = isinstance(coordinates, StoredRows)
    if math.prod(coordinates.shape) > KEPT_NUMBERS or (is_stored and is_dask(coordinates.data)):
        return {}
    return {"samples": coordinates.read() if is_stored else to_host(coordinates), "sample_labels": labels}


def check_samples(estimator: Any, X: Array, *, reset: bool = False, min_samples: int = 1) -> Array:
    """Return samples as a matrix of finite floats, on the host unless they are tensors.

    `reset=True` records the features of these samples. Otherwise they must have the features of `fit`.
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
    X = float_tensor(X)
    if X.ndim != 2 or not X.numel():
        raise ValueError(
            f"X has shape {tuple(X.shape)}, but {type(estimator).__name__} needs a matrix that is not empty, a "
            "row for each sample."
        )
    if reset:
        validate_data(estimator, X, skip_check_array=True)  # records the features
    else:
        _check_n_features(estimator, X, reset=False)
    xp = namespace(X)
    bad = to_host(~xp.all(xp.isfinite(X), axis=1))
    if bad.any():
        raise ValueError(f"X contains NaN or infinity in row {bad.argmax()}. Remove or replace it.")
    return X


def check_labelled(
    estimator: Any, X: Array, y: Array, *, reset: bool = True, min_samples: int = 2
) -> tuple[Array, Array]:
    """Return samples, as `check_samples` does, and their labels, on the host."""
    if getattr(X, "ndim", 0) != 2:
        check_flat(X)
    y = to_host(y) if is_torch(y) else y
    if is_torch(X):
        if y is None:
            raise ValueError(
                f"This {type(estimator).__name__} requires y to be passed, but the target y is None."
            )
        X, y = check_samples(estimator, X, reset=reset), column_or_1d(y, warn=True)
        check_consistent_length(X, y)
    else:
        kinds: Any = {"dtype": [np.float64, np.float32], "order": "C", "ensure_min_samples": min_samples}
        X, y = validate_data(estimator, X, y, reset=reset, **kinds)
    return X, y


def number_labels(estimator: Any, y: Array) -> tuple[Array, Array]:
    """Return labels 0, ..., c - 1, and the classes. Raise if there are fewer than two classes."""
    check_classification_targets(y)
    classes, labels = np.unique(y, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(
            f"{type(estimator).__name__} needs samples of at least two classes, but y has one class only: "
            f"{classes[0]}. Add samples of another class."
        )
    return labels, classes


def check_weights(model: Any, labels: Array, classes: Array, sample_weight: Array | None) -> Array | None:
    """Return the weight of each sample, times that of its class, in float64. None means that all weigh 1."""
    balance = getattr(model, "class_weight", None)
    if sample_weight is None and balance is None:
        return None
    given = to_host(sample_weight) if is_torch(sample_weight) else sample_weight
    try:
        weights = np.ones(len(labels)) if given is None else np.array(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"sample_weight has something that is no number ({error}). Give numbers.") from error
    if weights.shape != (len(labels),):
        raise ValueError(
            f"sample_weight has shape {weights.shape}, but there are {len(labels)} samples. Give a number for "
            "each sample."
        )
    wrong = np.flatnonzero(~((weights >= 0) & (weights < np.inf)))
    if wrong.size:
        raise ValueError(
            f"sample_weight is {weights[wrong[0]]} for sample {wrong[0]}. Negative weights, and weights that "
            "are not finite, have no meaning: a weight stands for so many copies. Give a number of 0 or more."
        )
    totals = np.bincount(labels, weights, minlength=len(classes))
    if balance == "balanced":
        by_class = totals.sum() / (np.count_nonzero(totals) * np.where(totals > 0, totals, 1))
    else:
        by_class = weights_of_classes(balance or {}, classes)
    weights *= by_class[labels]
    mean = weights.mean()
    if not mean:
        raise ValueError(
            "All samples have the weight zero, so there is nothing to learn from. Give larger weights."
        )
    least, most = MEAN_WEIGHTS
    if not least <= mean <= most:
        raise ValueError(
            f"The mean of the weights is {mean:g}, but it must be from {least:g} to {most:g}, or rounding "
            "would decide. Divide the weights by their mean."
        )
    return weights


def weights_of_classes(given: Mapping[Any, float], classes: Array) -> Array:
    """Return the weights of classes by label, 1 for those that `given` lacks. Raise if it has other labels."""
    known = classes.tolist()
    for label in [label for label in given if label not in known][:1]:
        raise ValueError(
            f"class_weight={given} has {label!r}, which is no label. Labels are {', '.join(map(repr, known))}."
        )
    weights = [given.get(label, 1.0) for label in known]
    if not all(isinstance(weight, Real) and 0 <= weight < math.inf for weight in weights):
        raise ValueError(f"class_weight={given} has a weight that is not a finite number of 0 or more.")
    return np.array(weights, dtype=np.float64)


def check_class_totals(labels: Array, classes: Array, weights: Array | None) -> None:
    """Raise if all samples of a class have the weight zero."""
    for j in np.flatnonzero(np.bincount(labels, weights, minlength=len(classes)) == 0)[:1]:
        raise ValueError(
            f"All samples of the class {classes[j]} have the weight zero (sample_weight times class_weight). "
            "Nothing is known about it then. Leave these samples out, or give one of them a larger weight. "
            "In a BaggingClassifier, which draws weights, use make_pipeline(...) of the classifier: it draws "
            "samples then."
        )


def check_precision(precision: str, device: str | None) -> None:
    """Raise if training on that device does not have the precision."""
    if precision == "tf32" and not (device or "").startswith("cuda"):
        raise ValueError(
            f"precision='tf32' is for products on a GPU, but training is on device={device!r}. Set "
            "device='cuda', or precision='full'."
        )


def check_flat(X: Array) -> None:
    """Raise for stacks of images. scikit-learn's own message does not say what to do."""
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


def device_of(X: Array, device: str | None) -> str | None:
    """Return the device to work on these samples. Tensors stay where they are."""
    return str(X.device) if is_torch(X) else device


def accuracy(model: Any, X: Array, y: Array, sample_weight: Array | None) -> float:
    """Return the share of samples whose labels are predicted. From Dask arrays only labels are collected."""
    if is_dask(X) or is_dask(y):
        import dask

        n_samples, n_labels = (a.shape[0] if getattr(a, "shape", ()) else len(a) for a in (X, y))
        if n_samples != n_labels and not np.isnan(n_samples + n_labels):  # NaN: not known yet
            raise ValueError(
                f"X has {n_samples} samples and y {n_labels} labels. Give a label for each sample."
            )
        found, y, sample_weight = dask.compute(model.predict(X), y, sample_weight)
    else:
        found = model.predict(X)
    y = to_host(y) if is_torch(y) else y
    return float(accuracy_score(y, to_host(found), sample_weight=sample_weight))


def rollback_on_error(fit: Fit) -> Fit:
    """Make a fit that fails leave the model as it was. scikit-learn's validation sets attributes first.

    A fit without weights says why it has none.
    """
    takes_weights = "sample_weight" in signature(fit).parameters

    @wraps(fit)
    def guarded(self: Any, *args: Any, **options: Any) -> Any:
        if "sample_weight" in options and not takes_weights:
            raise TypeError(
                f"{type(self).__name__} takes no sample_weight{self._no_weights}. Leave it out, or use "
                "LEDLClassifier or CRCClassifier, which take weights."
            )
        before = dict(vars(self))
        try:
            return fit(self, *args, **options)
        except BaseException:
            vars(self).clear()
            vars(self).update(before)
            raise

    return cast(Fit, guarded)


@contextmanager
def notify_callbacks(estimator: Any, X: Array, y: Array, n_iterations: int) -> Iterator[Watcher | None]:
    """Notify scikit-learn's callbacks of the fit, and yield a function that notifies them of an iteration.

    That function takes a function that makes the current fitted attributes. It returns True if a callback
    asks to stop. None is yielded where there are no callbacks.
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


class Tasks:
    """The tasks of a search or a wrapper, of which scikit-learn's callbacks are told, if there are any.

    Fits that `fit` of the estimator starts are tasks, and callbacks such as a progress bar go down to them.
    """

    def __init__(self, estimator: Any, X: Array, y: Array, n_tasks: int | None) -> None:
        self._data = {"estimator": estimator, "X": X, "y": y}
        self._root: Any = None
        if hasattr(estimator, "_skl_callbacks"):
            self._root = estimator._init_callback_context(max_subtasks=n_tasks)
            self._root.call_on_fit_task_begin(**self._data)

    def count(self, n: int, name: str = "candidate on a fold") -> None:
        """Tell that n tasks are done, which have no steps of their own."""
        for _ in range(n if self._root else 0):
            task = self._root.subcontext(task_name=name)
            task.call_on_fit_task_begin(**self._data)
            task.call_on_fit_task_end(**self._data)

    def fit(self, name: str, model: Any, *args: Any, **options: Any) -> Any:
        """Return the model after its fit, which is a task."""
        if self._root is None:
            return model.fit(*args, **options)
        task = self._root.subcontext(task_name=name)
        task.call_on_fit_task_begin(**self._data)
        with task.propagate_callback_context(model) if hasattr(model, "set_callbacks") else nullcontext():
            model.fit(*args, **options)
        task.call_on_fit_task_end(**self._data)
        return model

    def end(self) -> None:
        """Tell that the estimator is fitted."""
        if self._root:
            self._root.call_on_fit_task_end(**self._data, reconstruction_attributes={})


def outcome(estimator: Any, run: Iterations) -> dict[str, Any]:
    """Return attributes that describe the iterations. Warn if they did not converge, raise if they failed."""
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
    """Warn that no atom is used for any sample. `stacklevel` counts from the caller."""
    warnings.warn(
        f"All codes of the training samples {which}: alpha={alpha} is too large for samples of this size. "
        "Lower alpha, or scale the samples (normalize=True does).",
        UserWarning,
        stacklevel=stacklevel + 1,
    )
