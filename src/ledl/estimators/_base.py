"""What all classifiers share: validation, normalisation, scores to labels, scikit-learn's callbacks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
from sklearn.preprocessing import normalize
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from ledl.arrays import Array

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:  # before scikit-learn 1.9: quiet

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Stands in for callbacks where scikit-learn has none."""

    def with_callbacks(method: Callable[..., Any]) -> Callable[..., Any]:
        return method


__all__ = ["DictionaryClassifier", "check_memory", "fit_context", "with_callbacks"]

Attributes: TypeAlias = Callable[[], dict[str, Any]]
Watcher: TypeAlias = Callable[[Attributes], bool]


class DictionaryClassifier(
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
    ClassifierMixin,
    CallbackSupportMixin,
    BaseEstimator,
):
    """A classifier whose scores are made of codes over atoms.

    A subclass has ``normalize`` among its parameters, sets ``classes_``, and writes `_scores`:
    (n_samples, n_classes), the larger the better.
    """

    normalize: bool
    classes_: Array

    def _scores(self, X: Array) -> Array:
        raise NotImplementedError

    def decision_function(self, X: Array) -> Array:
        """Scores of the classes.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        scores : ndarray of shape (n_samples, n_classes), or (n_samples,) for two classes
            For two classes the score of the second less that of the first.
        """
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def predict(self, X: Array) -> Array:
        """The class with the largest score.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        labels : ndarray of shape (n_samples,)
        """
        scores = self._scores(X)
        return self.classes_[np.argmax(scores, axis=1)]

    def _training_data(self, X: Array, y: Array) -> tuple[Array, Array, Array]:
        """Checked samples, a copy that may be overwritten; labels 0, ..., c - 1; and the classes."""
        check_flat(X)
        X, y = validate_data(self, X, y, dtype=[np.float64, np.float32], order="C", ensure_min_samples=2)
        check_classification_targets(y)
        classes, labels = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(
                f"{type(self).__name__} needs samples of at least two classes, but y has one class only: "
                f"{classes[0]}. Add samples of another class."
            )
        if not X.any():
            raise ValueError(
                "All samples are zero, so there is nothing to learn from. Check how X was loaded or scaled."
            )
        return self._scaled(X), labels, classes

    def _new_samples(self, X: Array) -> Array:
        """Checked and scaled samples to transform or classify."""
        check_is_fitted(self)
        check_flat(X)
        X = validate_data(self, X, dtype=[np.float64, np.float32], order="C", reset=False)
        return self._scaled(X)

    def _scaled(self, X: Array) -> Array:
        """A copy with samples of norm 1, if so asked; a zero sample stays zero."""
        if not self.normalize:
            return X.copy()
        # First by the largest entry, so that squares neither overflow nor vanish.
        largest = np.maximum(X.max(axis=1), -X.min(axis=1))[:, None]
        return normalize(X / np.where(largest > 0, largest, 1), copy=False)

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


def check_flat(X: Array) -> None:
    """Refuse stacks of images, with the remedy that scikit-learn's own message lacks."""
    if getattr(X, "ndim", 2) > 2:
        raise ValueError(
            f"X has shape {X.shape}, but a row of features for each sample is needed. Flatten images with "
            "X.reshape(len(X), -1)."
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
