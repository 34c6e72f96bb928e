"""Rejection: find samples that belong to none of the classes of a classifier.

Two measures compare a sample x with the classes. Both use its codes s over the atoms D of c classes:

- the sparsity concentration index of Wright et al. (2009), (c max_j |s_j|_1 / |s|_1 - 1) / (c - 1). It is 1 if
  the atoms of one class make up the sample, and 0 if all classes have the same share.
- the residual of the nearest class, min_j |x - s_j D_j|^2 / |x|^2.

The usual values are learnt from the training samples: each is judged by a model that has not seen it.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from contextlib import suppress
from copy import copy
from numbers import Integral, Real
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, TransformerMixin, clone
from sklearn.model_selection import BaseCrossValidator, StratifiedKFold, check_cv
from sklearn.model_selection._search import BaseSearchCV
from sklearn.pipeline import Pipeline
from sklearn.utils import column_or_1d, get_tags
from sklearn.utils._param_validation import HasMethods, Interval, StrOptions
from sklearn.utils._set_output import _safe_set_output
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, _routing_enabled, process_routing
from sklearn.utils.metaestimators import _safe_split, available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_method_params, _check_n_features, check_is_fitted, indexable

from ledl.arrays import Array, is_dask, is_torch, to_host
from ledl.dictionary import FittedDictionary
from ledl.estimators import (
    CallbackSupportMixin,
    DictionaryClassifier,
    DocumentedMixin,
    Tasks,
    accuracy,
    check_samples,
    fit_context,
    for_chunks,
    view_of,
    with_callbacks,
)
from ledl.model_selection import LEDLClassifierCV, check_no_checkpoint
from ledl.samples import check_rows, map_rows
from ledl.semi_supervised import SemiSupervisedClassifier, distinct_rows, evidence_of_atoms

TOO_FEW = (
    "Every class has one sample only, apart from exact copies. Each sample is judged by a model that has not "
    "seen it, so some class needs two. Add a sample."
)
NONE_HIDDEN = (
    "SemiSupervisedClassifier could hide no label, so no sample can be judged. It needs samples without a "
    "label, and two labels of each class."
)
MEASURES = {"concentration": [0], "residual": [1], "both": [0, 1]}


def _has_probabilities(model: Any) -> bool:
    return hasattr(getattr(model, "estimator_", model.estimator), "predict_proba")


def _has_log_probabilities(model: Any) -> bool:
    return hasattr(getattr(model, "estimator_", model.estimator), "predict_log_proba")


def _has_codes(model: Any) -> bool:
    return hasattr(getattr(model, "estimator_", model.estimator), "transform")


def _has_scores(model: Any) -> bool:
    return hasattr(getattr(model, "estimator_", model.estimator), "decision_function")


def least_share(n: int) -> float:
    """Return the least share of samples that n training samples can reject, rounded up to three digits."""
    places = 2 - math.floor(math.log10(1 / (n + 1)))
    return math.ceil(10**places / (n + 1)) / 10**places


class RejectingClassifier(  # type: ignore[call-arg]
    DocumentedMixin,
    CallbackSupportMixin,
    MetaEstimatorMixin,
    ClassifierMixin,
    TransformerMixin,
    BaseEstimator,
    auto_wrap_output_keys=None,  # a wrapped `transform` would be there even if the classifier has none
):
    r"""Classify samples, or reject them as "none of these".

    Each sample has a novelty, which says how much it differs from all classes. A sample is rejected if at most
    a share `reject` of the training samples has the same novelty or a larger one. The novelty comes from the
    codes :math:`s` over the atoms :math:`D` of c classes. It uses the sparsity concentration index and the
    residual of the nearest class,

    .. math::

        \frac{c \max_j |s_j|_1 / |s|_1 - 1}{c - 1}, \qquad \min_j \frac{|x - s_j D_j|^2}{|x|^2}

    Each is standardised by its mean and its standard deviation over the training samples. The novelty is the
    second minus the first. The training samples are judged in cross-validation, each by a model that was fitted
    without it and its exact copies, which are judged once. (A class with one sample, or with copies of one, is
    always learnt from, and not judged; `fit` raises an error if all classes are such. A search such as
    `LEDLClassifierCV` runs once; the models of the folds have the settings that it chose.)

    A `SemiSupervisedClassifier` has two more measures, the reach of the labels and the isolation of a sample.
    Its novelty is the larger one of both, standardised (little of the labels reaches the sample, or it is far
    from its neighbours), plus that of its supervised classifier, divided by the square root of 2, if that has
    atoms. The judged samples are those whose labels were hidden.

    Parameters
    ----------
    estimator : classifier of this package, or a Pipeline or search of one
        Classifier to use.

    reject : float, default=0.05
        Share of samples of the known classes that may be rejected. 0 means that no sample is rejected.

    measure : {"both", "concentration", "residual"}, default="both"
        Measures that make up the novelty. docs/explanations.md has figures. A `SemiSupervisedClassifier` has a
        measure of its own.

    reject_label : label, default=None
        Label of a rejected sample in `predict`. None means "none of these" if labels are text. If labels are
        numbers it means -1, or a smaller number if there are negative labels.

    cv : int or cross-validation splitter, default=5
        Folds in which training samples are judged. There are fewer if a class with two or more samples has
        fewer. A splitter must test each sample once, have all classes in every training fold, and need no
        groups.

    Attributes
    ----------
    estimator_ : classifier
        Fitted on all samples.

    components_, dual_components_, atom_classes_, history_ : arrays, dict
        Those of the classifier in `estimator_`, if it has them.

    classes_ : ndarray of shape (n_classes,)
        The labels, without `reject_label`.

    judged_ : ndarray of shape (n_judged,)
        Rows of the training samples that were judged in cross-validation.

    evidence_ : ndarray of shape (n_judged, 2)
        Concentration and residual of these samples. For a `SemiSupervisedClassifier`, its `hidden_evidence_`.

    cv_scores_ : ndarray of shape (n_judged, n_classes)
        Scores of these samples, by models that have not seen them.

    cv_predictions_ : ndarray of shape (n_judged,)
        Labels of these samples, by the same models.

    reject_label_ : label
        Label of a rejected sample in `predict`.

    n_features_in_ : int
        Number of features seen in `fit`, where `estimator_` has it.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the features, where `estimator_` has them.

    Notes
    -----
    A hard `sklearn.ensemble.VotingClassifier` cannot count the label of a rejected sample, and fails. Let it
    vote without rejection, and reject its samples by the `p_values` of one classifier of this kind.

    References
    ----------
    J. Wright, A. Y. Yang, A. Ganesh, S. S. Sastry and Y. Ma, "Robust face recognition
    via sparse representation", IEEE Transactions on Pattern Analysis and Machine Intelligence 31, 2009.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from ledl import RejectingClassifier, SRCClassifier
    >>> from ledl.datasets import few_shot_splits
    >>> X, y = load_digits(return_X_y=True)
    >>> X_known, y_known, X_other = X[y < 5], y[y < 5], X[y >= 5]
    >>> train, test = next(few_shot_splits(y_known, n_per_class=20))
    >>> model = RejectingClassifier(SRCClassifier(), reject=0.05).fit(X_known[train], y_known[train])
    >>> bool((model.predict(X_known[test]) == -1).mean() < 0.1)
    True
    >>> bool((model.predict(X_other) == -1).mean() > 0.5)
    True
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "estimator": [HasMethods(["fit", "predict"])],
        "reject": [Interval(Real, 0, 1, closed="left")],
        "measure": [StrOptions(set(MEASURES))],
        "reject_label": [str, Real, None],
        "cv": [Interval(Integral, 2, None, closed="left"), HasMethods(["split"])],
    }

    def __init__(
        self,
        estimator: Any,
        *,
        reject: float = 0.05,
        measure: Literal["both", "concentration", "residual"] = "both",
        reject_label: str | float | None = None,
        cv: int | BaseCrossValidator = 5,
    ) -> None:
        self.estimator = estimator
        self.reject = reject
        self.measure = measure
        self.reject_label = reject_label
        self.cv = cv

    @with_callbacks
    @fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: Array, y: Array, **fit_params: Any) -> Self:
        """Fit the classifier, and learn the usual novelty from the training samples.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training samples, as `estimator` takes them.
        y : array-like of shape (n_samples,)
            Labels of the samples. For a `SemiSupervisedClassifier`, -1 is none.
        **fit_params : arrays of shape (n_samples,)
            More arguments of the classifier's own `fit`, such as ``sample_weight``. With scikit-learn's
            metadata routing, those that it requests. Every judged sample counts once, whatever it weighs;
            those of weight zero are not judged.

        Returns
        -------
        self : RejectingClassifier
        """
        our_parts(self.estimator)  # raises for other classifiers
        check_no_checkpoint(self)
        given = fit_params
        if _routing_enabled():
            given = process_routing(self, "fit", **fit_params).estimator.fit
        tasks = Tasks(self, X, y, None)
        fitted = tasks.fit("fit on all samples", clone(self.estimator), X, y, **given)  # raises for bad samples
        X, y = indexable(X, column_or_1d(to_host(y) if is_torch(y) else y))
        label = checked_label(self.reject_label, fitted.classes_)
        semi = our_parts(fitted).classifier
        if isinstance(semi, SemiSupervisedClassifier):
            order = np.argsort(semi.hidden_rows_)
            judged, scores = semi.hidden_rows_[order], semi.hidden_scores_[order]
            evidence = semi.hidden_evidence_[order]
            if not len(judged):
                raise ValueError(NONE_HIDDEN)
        else:
            check_classification_targets(y)
            evidence, scores = np.full((len(y), 2), np.nan), np.full((len(y), len(fitted.classes_)), np.nan)
            chosen = with_chosen_settings(self.estimator, fitted)
            # Groups are for a search, which has chosen.
            arrays = {name: value for name, value in given.items() if name.split("__")[-1] != "groups"}
            folds = judging_folds(self.cv, X, y, weights_among(arrays))
            if not folds:
                raise ValueError(TOO_FEW)
            for train, test in folds:
                own = _check_method_params(X, arrays, indices=train)
                X_train, y_train = _safe_split(self.estimator, X, y, train)
                model = tasks.fit("fold", clone(chosen), X_train, y_train, **own)
                X_test, _ = _safe_split(self.estimator, X, y, test, train)
                scores[test], evidence[test] = judge(model, X_test)
            judged = np.sort(np.concatenate([test for _, test in folds]))
            evidence, scores = evidence[judged], scores[judged]
        self.estimator_, self.classes_, self.reject_label_ = fitted, fitted.classes_, label
        self.evidence_, self.cv_scores_, self.judged_ = evidence, scores, judged
        self.cv_predictions_ = self.classes_[self.cv_scores_.argmax(axis=1)]
        tasks.end()
        return self

    def predict(self, X: Array) -> np.ndarray:
        """Return the class with the largest score for each sample, or `reject_label_`.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples. A Dask array gives a Dask array with the same chunks, and nothing is computed yet.

        Returns
        -------
        labels : ndarray of shape (n_samples,)
        """
        check_is_fitted(self)
        self._validate_params()  # some may have been set since
        if 0 < self.reject < 1 / (len(self.evidence_) + 1):
            warnings.warn(
                f"reject={self.reject} rejects no sample with {len(self.evidence_)} training samples. Set it "
                f"to {least_share(len(self.evidence_)):g} or more, or train with more samples.",
                UserWarning,
                stacklevel=2,
            )
        if is_dask(X):
            label = np.asarray(self.reject_label_)
            dtype = np.result_type(label, self.classes_) if self.reject else self.classes_.dtype
            return map_rows(self._for_chunks(X)._labels, X, dtype)
        return self._labels(X)

    def _labels(self, X: Array) -> Array:
        """Return the labels of `predict`, without its warning, which is given once for all chunks."""
        scores, evidence = judge(self.estimator_, X)
        labels = self.classes_[scores.argmax(axis=1)]
        if self.reject == 0:
            return labels
        return np.where(self.p_values_of(evidence) <= self.reject, np.asarray(self.reject_label_), labels)

    def p_values(self, X: Array) -> np.ndarray:
        """Return the share of training samples that have the same novelty as a sample, or a larger one.

        If m of n training samples have it, the share is (m + 1) / (n + 1). For a new sample of the known
        classes it is at most p with a probability of about p. (Only about, because the models in
        cross-validation had fewer samples.)

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples. A Dask array gives a Dask array with the same chunks, and nothing is computed yet.

        Returns
        -------
        p : ndarray of shape (n_samples,)
        """
        check_is_fitted(self)
        if is_dask(X):
            return map_rows(self._for_chunks(X).p_values, X, np.dtype(np.float64))
        return self.p_values_of(judge(self.estimator_, X)[1])

    def novelty(self, X: Array) -> np.ndarray:
        """Return how much samples differ from all classes: 0 is usual, and larger means more different.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples. A Dask array gives a Dask array with the same chunks, and nothing is computed yet.

        Returns
        -------
        novelty : ndarray of shape (n_samples,)
        """
        check_is_fitted(self)
        if is_dask(X):
            return map_rows(self._for_chunks(X).novelty, X, np.dtype(np.float64))
        return self._unlikeness(judge(self.estimator_, X)[1])

    def score(self, X: Array, y: Array, sample_weight: Array | None = None) -> float:
        """Return the accuracy on labelled samples. Rejected samples have the label `reject_label_`.

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

    def _for_chunks(self, X: Array) -> RejectingClassifier:
        """Return a copy of the model as it is now, to judge chunks of a Dask array."""
        check_rows(X)
        _check_n_features(self, X, reset=False)  # does nothing for pipelines that do not know the number
        model = copy(self)
        if isinstance(self.estimator_, DictionaryClassifier):
            model.estimator_ = for_chunks(self.estimator_, X)
        return model

    def p_values_of(self, evidence: Array) -> Array:
        """Return `p_values` of samples with known evidence.

        Parameters
        ----------
        evidence : ndarray of shape (n_samples, 2) or (n_samples, 1)
            Concentration and residual of the samples, or their reach, as in `evidence_`.

        Returns
        -------
        p : ndarray of shape (n_samples,)
        """
        usual = np.sort(self._unlikeness(self.evidence_))
        n_as_unlike = len(usual) - np.searchsorted(usual, self._unlikeness(evidence), side="left")
        return (n_as_unlike + 1) / (len(usual) + 1)

    def _unlikeness(self, evidence: Array) -> Array:
        mean, spread = self.evidence_.mean(axis=0), self.evidence_.std(axis=0)
        spread = np.where(spread > 0, spread, 1)
        unlike = (evidence - mean) / spread * np.tile([-1, 1], evidence.shape[1] // 2)
        if isinstance(our_parts(self.estimator_).classifier, SemiSupervisedClassifier):
            return unlike[:, :2].max(axis=1) + unlike[:, 2:].sum(axis=1) / math.sqrt(2)
        return unlike[:, MEASURES[self.measure]].sum(axis=1)

    @available_if(_has_scores)
    def decision_function(self, X: Array) -> np.ndarray:
        """Return the scores of the classes, by the classifier.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        scores : ndarray of shape (n_samples, n_classes) or (n_samples,)
        """
        check_is_fitted(self)
        return self.estimator_.decision_function(X)

    @available_if(_has_codes)
    def transform(self, X: Array) -> np.ndarray:
        """Return the codes of samples over the atoms, by the classifier.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        codes : ndarray of shape (n_samples, n_atoms)
        """
        check_is_fitted(self)
        return self.estimator_.transform(X)

    @available_if(_has_probabilities)
    def predict_proba(self, X: Array) -> np.ndarray:
        """Return probabilities of the classes, by the classifier, as if every sample were of some class.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        probabilities : ndarray of shape (n_samples, n_classes)
        """
        check_is_fitted(self)
        return self.estimator_.predict_proba(X)

    @available_if(_has_log_probabilities)
    def predict_log_proba(self, X: Array) -> np.ndarray:
        """Return the logarithms of `predict_proba`.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        log_probabilities : ndarray of shape (n_samples, n_classes)
        """
        check_is_fitted(self)
        return self.estimator_.predict_log_proba(X)

    # Views of the classifier, through pipelines and searches. AttributeError if it does not have them.
    _fitted = property(lambda self: parts_of(self.estimator_).classifier)
    components_: np.ndarray = view_of("_fitted.components_", "The atoms of the classifier.")
    dual_components_: np.ndarray = view_of("_fitted.dual_components_", "Its atoms with a kernel.")
    atom_classes_: np.ndarray = view_of("_fitted.atom_classes_", "The label of each atom.")
    history_: dict[str, np.ndarray] = view_of("_fitted.history_", "Values of each iteration of its fit.")
    dictionary_: FittedDictionary = view_of("_fitted.dictionary_", "The classifier as one record.")

    feature_names_in_: np.ndarray = view_of("estimator_.feature_names_in_", "Names of the features.")

    @available_if(_has_codes)
    def get_feature_names_out(self, input_features: Array | None = None) -> np.ndarray:
        """Return names for the columns of `transform`.

        Parameters
        ----------
        input_features : None
            Ignored, as in other transformers whose columns are not features.

        Returns
        -------
        names : ndarray of str
        """
        check_is_fitted(self)
        return self.estimator_.get_feature_names_out(input_features)

    @available_if(_has_codes)
    def set_output(self, *, transform: str | None = None) -> Self:
        """Set what `transform` returns, of the classifier.

        Parameters
        ----------
        transform : {"default", "pandas", "polars"}, default=None
            Kind of the codes. None leaves it as it is.

        Returns
        -------
        self : RejectingClassifier
        """
        for model in (self.estimator, getattr(self, "estimator_", self.estimator)):
            _safe_set_output(model, transform=transform)
        return self

    @property
    def n_features_in_(self) -> int:
        """Number of features seen in `fit`."""
        check_is_fitted(self)
        return int(self.estimator_.n_features_in_)

    def get_metadata_routing(self) -> MetadataRouter:
        """Return where arguments go: those of `fit` to the `fit` of the classifier, those of `score` here.

        Returns
        -------
        routing : sklearn.utils.metadata_routing.MetadataRouter
        """
        to_fit = MethodMapping().add(caller="fit", callee="fit")
        router = MetadataRouter(owner=self).add_self_request(self)  # `score` takes weights itself
        return router.add(estimator=self.estimator, method_mapping=to_fit)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags = get_tags(self.estimator).input_tags
        tags.classifier_tags.poor_score = True
        tags.transformer_tags = get_tags(self.estimator).transformer_tags
        return tags


class Parts(NamedTuple):
    """The parts of an estimator, without the pipelines, searches and wrappers around them."""

    transformers: list[Any]
    classifier: Any
    rejecter: RejectingClassifier | None

    def transform(self, X: Any) -> Any:
        """Return samples after all transformers, as the classifier takes them."""
        for step in self.transformers:
            X = step.transform(X)
        return X


def parts_of(estimator: Any) -> Parts:
    """Return the parts of an estimator, also of pipelines in pipelines, and of the best model of a search."""
    if isinstance(estimator, RejectingClassifier):
        inner = parts_of(getattr(estimator, "estimator_", estimator.estimator))
        return inner._replace(rejecter=estimator)
    if isinstance(estimator, BaseSearchCV):
        if hasattr(estimator, "cv_results_") and not hasattr(estimator, "best_estimator_"):
            raise TypeError(
                f"{type(estimator).__name__} was fitted with refit=False, so it has no model. Set refit=True."
            )
        return parts_of(getattr(estimator, "best_estimator_", estimator.estimator))
    if not isinstance(estimator, Pipeline):
        return Parts([], None if estimator == "passthrough" else estimator, None)
    parts = [parts_of(step) for _, step in estimator.steps]
    steps = [one for part in parts for one in (*part.transformers, part.classifier) if one is not None]
    return Parts(steps[:-1], steps[-1] if steps else None, parts[-1].rejecter if parts else None)


def our_parts(estimator: Any) -> Parts:
    """Return the parts of a classifier with atoms, or with a graph. Raise for other ones."""
    parts = parts_of(estimator)
    if not isinstance(parts.classifier, DictionaryClassifier | SemiSupervisedClassifier):
        raise TypeError(
            f"{type(parts.classifier).__name__} has no atoms, but this needs them. Give one of this package's "
            "classifiers, such as LEDLClassifier, or a Pipeline or search of one."
        )
    return parts


def judge(estimator: Any, X: Array) -> tuple[Array, Array]:
    """Return scores (n, c), and concentration and residual (n, 2), of samples by a classifier or pipeline.

    A semi-supervised classifier has probabilities, and first reach and isolation.
    """
    parts = our_parts(estimator)
    model, X = parts.classifier, parts.transform(X)
    if isinstance(model, SemiSupervisedClassifier):
        plain = to_host(check_samples(model, X))  # the supervised classifier knows no names
        near = model.reach_(plain, model.device, model.n_jobs)
        return model.predict_proba(X), np.concatenate(
            [near, evidence_of_atoms(model.estimator_, plain)], axis=1
        )
    return model._judge(check_samples(model, X))


def with_chosen_settings(estimator: Any, fitted: Any) -> Any:
    """Return an unfitted copy of an estimator in which a search is replaced by the classifier that it chose."""
    if isinstance(fitted, LEDLClassifierCV) and _routing_enabled():  # it asks for what the search asked for
        asked = fitted.get_metadata_routing().fit.requests["sample_weight"]
        return clone(fitted.best_estimator_).set_fit_request(sample_weight=asked)
    if hasattr(fitted, "best_estimator_"):
        best = fitted.best_estimator_
        return clone(best) if isinstance(fitted, LEDLClassifierCV) else with_chosen_settings(best, best)
    if not isinstance(fitted, Pipeline):
        return clone(estimator)
    copied = clone(estimator)
    name, last = copied.steps[-1]
    copied.steps[-1] = (name, with_chosen_settings(last, fitted.steps[-1][1]))
    return copied


def weights_among(arrays: Mapping[str, Any]) -> Array | None:
    """Return the weights of samples among arguments of `fit`, which may be for a step of a pipeline."""
    given = [value for name, value in arrays.items() if name.split("__")[-1] == "sample_weight"]
    return np.asarray(to_host(given[0])) if given and given[0] is not None else None


def judging_folds(cv: Any, X: Array, y: Array, weights: Array | None = None) -> list[tuple[Array, Array]]:
    """Return folds of the training samples: stratified, and fewer than `cv` if a class has fewer samples.

    With a number of folds, a class with one sample is never left out, and of exact copies with the same label
    one is tested, by a model that knows none of them. Samples of weight zero count for nothing. There are no
    folds if no class has two samples.
    """
    classes, numbers = np.unique(y, return_inverse=True)
    if isinstance(cv, Integral):
        used = np.arange(len(y)) if weights is None else np.flatnonzero(weights > 0)
        copy_of = np.arange(len(y))  # which sample each one equals
        if not is_dask(X) and np.ndim(X[:1]) == 2:
            with suppress(TypeError, ValueError):  # they are no numbers
                rows = given = to_host(X)
                if given.dtype == object:  # such as of a table with truth values
                    rows = given.astype(float)
                    rows = rows if ((rows == given) | np.isnan(rows)).all() else given
                if rows.dtype.kind in "biuf":
                    copy_of = distinct_rows(rows)[1] * len(classes) + numbers
        used = used[np.sort(np.unique(copy_of[used], return_index=True)[1])]
        counts = np.bincount(numbers[used])
        several = used[counts[numbers[used]] > 1]
        if not several.size:
            return []
        splitter = StratifiedKFold(int(min(int(cv), counts[counts > 1].min())))
        tests = [several[test] for _, test in splitter.split(several, numbers[several])]
        return [(np.flatnonzero(~np.isin(copy_of, copy_of[test])), test) for test in tests]
    folds = list(check_cv(cv, y, classifier=True).split(X, y))
    tested = np.bincount(np.concatenate([test for _, test in folds]), minlength=len(y))
    if (tested != 1).any():
        odd = (tested != 1).argmax()
        raise ValueError(
            f"cv={cv} tests sample {odd} {tested[odd]} times, but each sample must be tested once. Give "
            "another splitter, or a number."
        )
    for train, _ in folds:
        missing = np.setdiff1d(classes, y[train])
        if missing.size:
            raise ValueError(
                f"cv={cv} has a fold without training samples of the class {missing[0]}, so its model does not "
                "know the class. Give a stratified splitter, or a number."
            )
    return folds


def checked_label(label: Any, classes: Array) -> Any:
    """Return the label of rejected samples. Raise if it is a class, or not of the type of the classes."""
    numbers = classes.dtype.kind in "biuf"
    if not numbers and not all(isinstance(one, str) for one in classes.tolist()):
        raise ValueError(
            f"The labels have the type {classes.dtype}, which has no name for samples of no class. Give labels "
            "that are text or numbers, such as y.astype(str)."
        )
    if label is None:
        label = min(-1, math.floor(classes.min()) - 1) if numbers else "none of these"
    if numbers == isinstance(label, str):
        kind = "numbers" if numbers else "text"
        raise ValueError(f"reject_label={label!r} must be of the type of the labels, which are {kind}.")
    if not isinstance(label, str) and not math.isfinite(label):
        raise ValueError(f"reject_label={label} must be a finite number.")
    if label in classes.tolist():
        raise ValueError(f"reject_label={label!r} is the label of a class. Choose another label.")
    return label
