"""LEDL with everything chosen on the training samples: settings, rule and kernel.

Scores as probabilities: p_j proportional to exp(t f_j), with one temperature t for all samples.

(The temperature is 1/t where the term comes from; here it is the factor itself that is kept.)

Few samples are often told apart without a mistake, and then no t is large enough: probabilities would be 0 and
1. So labels are smoothed as in Platt's scaling: of n samples each counts as one of its own class with the
weight (n + 1) / (n + 2), and as one of any class with the rest,

    loss = -(1 - e) log p_y - e mean_j log p_j,    e = 1 / (n + 2).
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Sequence
from itertools import product
from numbers import Real
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp
from scipy.stats import rankdata
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions

from ledl.arrays import Array, is_dask, is_torch, namespace
from ledl.coding import Settings
from ledl.estimators import (
    DictionaryClassifier,
    LEDLClassifier,
    adopt,
    check_labelled,
    check_samples,
    fit_context,
    for_chunks,
    number_labels,
    rollback_on_error,
)
from ledl.model_selection._search import Fold, judge, split
from ledl.samples import floats_of, map_rows

# Cross-validation inside the training samples: so many folds, or as many of them as leave out so many samples
# in all, which is as many as the choice needs. It bounds the cost where classes are many.
N_FOLDS = 5
HELD_OUT_SAMPLES = 200

# Factors that are tried, as powers of e, of scores whose differences are of the order of 1.
LOG_FACTORS = (-5.0, 8.0)

KERNELS = ("linear", "hellinger")
RULES = ("classifier", "residual", "regularized")
ALPHAS = tuple(2.0**e for e in (-4, -5, -6, -7, -8, -10))
RIDGE_ALPHAS = tuple(2.0**e for e in (1, -1, -3, -5, -7, -9))

# Parameters with values to choose from.
GRIDS = ("kernels", "rules", "label_weight", "code_weight", "alpha", "ridge_alpha")
# What candidates differ in.
CHOSEN = ("kernel", "rule", "label_weight", "code_weight", "alpha", "ridge_alpha")
# Parameters that all candidates share with the search.
SHARED = (
    "n_components",
    "gamma",
    "degree",
    "coef0",
    "normalize",
    "max_iter",
    "tol",
    "transform_tol",
    "device",
    "n_jobs",
)


class LEDLClassifierCV(DictionaryClassifier):
    r"""LEDL with settings, rule and kernel chosen by cross-validation on the training samples.

    For each candidate the training samples are scored by models that have not seen them. Scores f become
    probabilities, :math:`p_j \propto e^{t f_j}`, with the t that suits the candidate best, and the candidate
    with the smallest mean of :math:`-\log p` of the true labels (smoothed as in Platt's scaling: with few
    samples there may be no mistake to learn t from) is fitted on all samples. With few samples that
    tells more than their accuracy, of which 50 samples have 51 values (docs/accuracy.md has figures).

    Parameters
    ----------
    rules : sequence of {"classifier", "residual", "regularized"}
        How new samples get their labels, see `LEDLClassifier`. By default all.

    label_weight, code_weight : float or sequence of floats, default=4.0, 2**-11
        :math:`\lambda` and :math:`\omega`.

    alpha : float or sequence of floats, default=2**-4, ..., 2**-8, 2**-10
        :math:`\epsilon`, weight of the l1 norm. The rule ``"regularized"`` has ridge codes for new samples and
        is tried over atoms that were learnt at the middle one.

    ridge_alpha : float or sequence of floats, default=2, 2**-1, ..., 2**-9
        :math:`\beta`, weight of the ridge codes of the rule ``"regularized"``.

    kernels : sequence of str or callables, default=("linear", "hellinger")
        Kernels, see `LEDLClassifier`. ``"hellinger"`` is linear in the square roots of pixels or features.

    cv : int, cross-validation generator or iterable, default=None
        As in `sklearn.model_selection.GridSearchCV`. None: five folds, or as many as the largest class has
        samples, that leave out the same number of each class, in so far as that can be; where classes are many,
        no more of the folds than leave out 200 samples in all. A class with one sample is never left out.

    selection : {"log_loss", "accuracy"}, default="log_loss"
        What is chosen: the smallest log loss, or the largest accuracy, and of ties the first. Candidates come
        in the order of the parameters, ``kernels`` first: give the strongest regularisation first.

    n_components : int, default=None
        Number of atoms, see `LEDLClassifier`.

    gamma, degree, coef0 : float, default="scale", 3, 1
        Of the kernels ``"rbf"`` and ``"poly"``.

    normalize : bool, default=True
        Scale samples to norm 1.

    max_iter, tol : int, float, default=100, 1e-3
        When training stops.

    transform_tol : float, default=1e-6
        How exact codes of new samples are. This and the next two may be set after a fit, and act at once.

    device : str, default=None
        Where all of it runs, see `LEDLClassifier`; on ``"cuda"`` all candidates and folds are solved side by
        side.

    n_jobs : int, default=None
        Threads.

    random_state : int, RandomState instance or None, default=None
        Draws the folds and the atoms to start from. An int gives the same model every time.

    Attributes
    ----------
    best_estimator_ : LEDLClassifier
        The model that was chosen, fitted on all samples.

    best_params_ : dict
        Its settings.

    best_score_ : float
        Its mean log loss, times -1, in cross-validation; with ``selection="accuracy"`` its accuracy. It is the
        best of many on the same samples: expect less of new ones.

    best_index_ : int
        Its place in `cv_results_`.

    temperature_ : float
        The factor t of its scores in `predict_proba`, found in cross-validation.

    cv_results_ : dict of arrays
        As in `GridSearchCV` with two metrics: ``params``, ``param_...``; ``split0_test_accuracy``, ...,
        ``mean_test_accuracy``, ``std_test_accuracy``, ``rank_test_accuracy``, the same with
        ``neg_log_loss``; ``mean_fit_time``, a fit's share of the time of all.

    n_splits_ : int
        Number of folds.

    refit_time_ : float
        Seconds of the last fit.

    classes_ : ndarray of shape (n_classes,)
        The labels.

    n_iter_ : int
        Iterations of the last fit.

    n_features_in_ : int
        Number of features seen in `fit`.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the features, where X has names.

    See Also
    --------
    LEDLClassifier : At given settings.
    BatchedSearchCV : Any grid, for LEDL, SRC and CRC.

    Notes
    -----
    The ratio that decides by the rule ``"regularized"`` enters probabilities with its logarithm. `ledl.explain`
    tells what the scores of `best_estimator_` are made of, which are the ratios themselves.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from ledl import LEDLClassifierCV
    >>> from ledl.datasets import few_shot_splits
    >>> X, y = load_digits(return_X_y=True)
    >>> train, test = next(few_shot_splits(y, n_per_class=5))
    >>> model = LEDLClassifierCV(alpha=[2**-4, 2**-6], random_state=0).fit(X[train], y[train])
    >>> sorted(model.best_params_)
    ['alpha', 'code_weight', 'kernel', 'label_weight', 'ridge_alpha', 'rule']
    >>> bool(model.score(X[test], y[test]) > 0.8)
    True
    >>> model.predict_proba(X[test[:2]]).shape
    (2, 10)
    """

    # Defaults are for few samples with many features; scikit-learn's checks have two-dimensional blobs.
    _poor_score = True

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "rules": ["array-like", str],
        "label_weight": ["array-like", Interval(Real, 0, None, closed="left")],
        "code_weight": ["array-like", Interval(Real, 0, None, closed="left")],
        "alpha": ["array-like", Interval(Real, 0, None, closed="neither")],
        "ridge_alpha": ["array-like", Interval(Real, 0, None, closed="neither")],
        "kernels": ["array-like", str, callable],
        "cv": ["cv_object"],
        "selection": [StrOptions({"log_loss", "accuracy"})],
        **{name: LEDLClassifier._parameter_constraints[name] for name in (*SHARED, "random_state")},
    }

    def __init__(
        self,
        *,
        rules: Sequence[str] | str = RULES,
        label_weight: float | Sequence[float] = 4.0,
        code_weight: float | Sequence[float] = 2**-11,
        alpha: float | Sequence[float] = ALPHAS,
        ridge_alpha: float | Sequence[float] = RIDGE_ALPHAS,
        kernels: Sequence[Any] | Any = KERNELS,
        cv: Any = None,
        selection: str = "log_loss",
        n_components: int | None = None,
        gamma: float | str | None = "scale",
        degree: float = 3,
        coef0: float = 1,
        normalize: bool = True,
        max_iter: int = 100,
        tol: float = 1e-3,
        transform_tol: float = 1e-6,
        device: str | None = None,
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.rules = rules
        self.label_weight = label_weight
        self.code_weight = code_weight
        self.alpha = alpha
        self.ridge_alpha = ridge_alpha
        self.kernels = kernels
        self.cv = cv
        self.selection = selection
        self.n_components = n_components
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.normalize = normalize
        self.max_iter = max_iter
        self.tol = tol
        self.transform_tol = transform_tol
        self.device = device
        self.n_jobs = n_jobs
        self.random_state = random_state

    @fit_context(prefer_skip_nested_validation=True)
    @rollback_on_error
    def fit(self, X: Array, y: Array, *, groups: Array | None = None) -> LEDLClassifierCV:
        """Choose among the candidates, and fit what was chosen on all samples.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training samples; tensors are worked on where they lie.
        y : array-like of shape (n_samples,)
            Their labels.
        groups : array-like of shape (n_samples,), default=None
            For cross-validation generators that want them.

        Returns
        -------
        self : LEDLClassifierCV
        """
        rng = check_random_state(self.random_state)
        fold_seed, start_seed = rng.randint(np.iinfo(np.int32).max, size=2)
        base = LEDLClassifier(random_state=int(start_seed), **{name: getattr(self, name) for name in SHARED})
        if is_dask(X):
            raise TypeError(
                "X is a Dask array, but a search needs its samples in memory. Give X.compute(), or fit "
                "LEDLClassifier, which visits Dask arrays chunk by chunk, at given settings."
            )
        X, y = check_labelled(self, X, y)
        X = X if is_torch(X) else np.asarray(X)  # in memory: of a file, too
        _, classes = number_labels(base, y)
        candidates = self._candidates()
        models = [clone(base).set_params(**candidate) for candidate in candidates]
        for model in models:
            model._validate_params()
        cv = default_folds(y, int(fold_seed), groups) if self.cv is None else self.cv
        folds = checked_folds(split(base, X, y, cv, groups), classes)
        started = time.perf_counter()
        with warnings.catch_warnings():
            # Candidates that are not chosen need not converge.
            warnings.simplefilter("ignore", ConvergenceWarning)
            judged = judge(models, candidates, folds)
        seconds = (time.perf_counter() - started) / (len(models) * len(folds))
        verdicts = [verdict(row, folds) for row in judged]
        index = choose(verdicts, self.selection)
        started = time.perf_counter()
        best = clone(base).set_params(**candidates[index]).fit(X, y)
        refit_time = time.perf_counter() - started
        found = results(candidates, verdicts, [len(fold.y_test) for fold in folds], seconds)
        metric = "accuracy" if self.selection == "accuracy" else "neg_log_loss"
        adopt(
            self,
            _dictionary=best.dictionary_,
            classes_=best.classes_,
            best_estimator_=best,
            best_index_=index,
            best_params_=candidates[index],
            best_score_=float(found[f"mean_test_{metric}"][index]),
            cv_results_=found,
            n_iter_=best.n_iter_,
            n_splits_=len(folds),
            refit_time_=refit_time,
            temperature_=verdicts[index].factor,
        )
        return self

    def _candidates(self) -> list[dict[str, Any]]:
        """Return what is chosen from."""
        named = {name: as_list(getattr(self, name)) for name in GRIDS}
        if "precomputed" in named["kernels"]:
            raise ValueError(
                "kernels has 'precomputed', but a search has the samples themselves. Give functions of two "
                "samples, or search with BatchedSearchCV(LEDLClassifier(kernel='precomputed'), ...)."
            )
        for name, values in named.items():
            if not values:
                raise ValueError(f"{name}={getattr(self, name)!r} leaves nothing to choose from. Give a value.")
        *outer, alphas, ridge_alphas = named.values()
        found = []
        for kernel, rule, label_weight, code_weight in product(*outer):
            common = {"kernel": kernel, "rule": rule, "label_weight": label_weight, "code_weight": code_weight}
            if rule == "regularized":
                middle = {"alpha": sorted(alphas, reverse=True)[(len(alphas) - 1) // 2]}
                found += [{**common, **middle, "ridge_alpha": value} for value in ridge_alphas]
            else:
                found += [{**common, "alpha": value} for value in alphas]
        return found

    def _coder_and_rule(self) -> tuple[Settings, Any]:
        lasso: Any = self._dictionary.coder
        return lasso._replace(tol=self.transform_tol), self._dictionary.rule

    def decision_function(self, X: Array) -> Array:
        """Scores of the classes: those of `best_estimator_`, of the rule ``"regularized"`` their logarithms.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples. A Dask array gives a Dask array of as many chunks, and nothing is computed yet.

        Returns
        -------
        scores : ndarray, or tensor for a tensor, of shape (n_samples, n_classes) or (n_samples,)
            Differences, times `temperature_`, are log odds. For two classes, (n_samples,), the score of the
            second less that of the first.
        """
        if is_dask(X):
            return super().decision_function(X)
        scores = self._log_odds(X)
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def predict_proba(self, X: Array) -> Array:
        """Probabilities of the classes, calibrated in cross-validation by one number, `temperature_`.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples. A Dask array gives a Dask array of as many chunks, and nothing is computed yet.

        Returns
        -------
        probabilities : ndarray, or tensor for a tensor, of shape (n_samples, n_classes)
            The largest is that of the label that `predict` gives.
        """
        if is_dask(X):
            return map_rows(for_chunks(self, X).predict_proba, X, floats_of(X), len(self.classes_))
        exponents = self._log_odds(X)
        xp = namespace(exponents)
        odds = xp.exp(self.temperature_ * (exponents - xp.max(exponents, axis=1, keepdims=True)))
        return odds / xp.sum(odds, axis=1, keepdims=True)

    def _log_odds(self, X: Array) -> Array:
        """Return scores (n, c) whose differences, times the temperature, are log odds."""
        dictionary, X = self.dictionary_, check_samples(self, X)
        scores, rule = dictionary.scores(X, self.device, self.n_jobs), dictionary.rule
        return rule.log_odds(namespace(scores).astype(scores, X.dtype, copy=False))

    def predict_log_proba(self, X: Array) -> Array:
        """Logarithms of `predict_proba`.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        log_probabilities : ndarray, or tensor for a tensor, of shape (n_samples, n_classes)
        """
        found = self.predict_proba(X)
        xp = namespace(found)
        return xp.log(xp.clip(found, float(xp.finfo(found.dtype).tiny), None))


class Verdict(NamedTuple):
    """How a candidate did on samples that its models had not seen, in the order of the folds."""

    hits: Array  # (n,), 0 or 1; NaN in folds that failed
    losses: Array  # (n,), log losses, likewise
    factor: float  # what its scores are multiplied by to become log odds


def verdict(row: list[Any], folds: list[Fold]) -> Verdict:
    """Return what scores of the samples left out say about a candidate, at the factor that suits it best."""
    if any(one is None for one in row):
        nothing = np.full(sum(len(fold.y_test) for fold in folds), np.nan)
        return Verdict(nothing, nothing, 1.0)
    exponents = np.concatenate([one.log_odds() for one in row]).astype(np.float64)
    labels = np.concatenate(
        [np.searchsorted(one.classes_, fold.y_test) for one, fold in zip(row, folds, strict=True)]
    )
    factor = best_factor(exponents, labels)
    hits = (exponents.argmax(axis=1) == labels).astype(np.float64)
    return Verdict(hits, log_losses(exponents, labels, factor), factor)


def choose(verdicts: list[Verdict], selection: str) -> int:
    """Return the candidate to take; one that failed never is."""
    losses = np.array([one.losses.mean() for one in verdicts])
    if np.isnan(losses).all():
        raise ValueError("Every candidate failed in some fold, as warned of. Mend what is told there.")
    if selection == "accuracy":
        return int(np.nanargmax([one.hits.mean() for one in verdicts]))
    return int(np.nanargmin(losses))


def results(
    candidates: list[dict[str, Any]], verdicts: list[Verdict], sizes: list[int], fit_time: float
) -> dict[str, Any]:
    """Return `cv_results_`: settings that a candidate does not have are NaN."""
    found: dict[str, Any] = {"mean_fit_time": np.full(len(candidates), fit_time)}
    for name in CHOSEN:
        values = [candidate.get(name, np.nan) for candidate in candidates]
        plain = all(isinstance(value, str | Real) for value in values)
        found[f"param_{name}"] = np.array(values) if plain else np.array(values, dtype=object)
    found["params"] = candidates
    ends = np.cumsum(sizes)[:-1]
    for metric, values in (
        ("accuracy", [one.hits for one in verdicts]),
        ("neg_log_loss", [-one.losses for one in verdicts]),
    ):
        by_fold = np.array([[part.mean() for part in np.split(row, ends)] for row in values])
        mean = np.array([row.mean() for row in values])
        found |= {f"split{i}_test_{metric}": column for i, column in enumerate(by_fold.T)}
        found[f"mean_test_{metric}"], found[f"std_test_{metric}"] = mean, by_fold.std(axis=1)
        worst_last = -np.where(np.isnan(mean), -np.inf, mean)
        found[f"rank_test_{metric}"] = rankdata(worst_last, method="min").astype(np.int32)
    return found


def default_folds(y: Array, seed: int, groups: Array | None = None) -> list[tuple[Array, Array]]:
    """Return five folds, or fewer: each class is shared out evenly, and its only sample is never left out.

    Of the folds as many as leave out `HELD_OUT_SAMPLES` in all. They know no groups.
    """
    if groups is not None:
        raise ValueError(
            "groups are for a cv that wants them, but cv=None shares out the samples of each class. Set "
            "cv=sklearn.model_selection.StratifiedGroupKFold(), for one, or leave groups out."
        )
    rng = np.random.default_rng(seed)
    members = [rng.permutation(np.flatnonzero(y == label)) for label in np.unique(y)]
    members = [own for own in members if len(own) > 1]
    if not members:
        raise ValueError(
            "Every class has one sample only, so that none can be left out to choose by. Give two samples of "
            "some class at least, or take LEDLClassifier at given settings."
        )
    n_folds = min(N_FOLDS, max(map(len, members)))
    # Classes begin at different folds: those with few samples are not all left out of the same ones.
    fold_of = np.full(len(y), -1)
    first = 0
    for own in members:
        fold_of[own] = (first + np.arange(len(own))) % n_folds
        first += len(own)
    folds = [(np.flatnonzero(fold_of != i), np.flatnonzero(fold_of == i)) for i in range(n_folds)]
    enough = np.searchsorted(np.cumsum([len(test) for _, test in folds]), HELD_OUT_SAMPLES) + 1
    return folds[:enough]


def checked_folds(folds: Iterator[Fold], classes: Array) -> list[Fold]:
    """Return the folds, whose models all know all classes."""
    found = list(folds)
    if not found:
        raise ValueError(
            "cv has no folds, so there is nothing to choose by. Give a number of 2 or more; an iterator is "
            "used up by one fit, a list is not."
        )
    for i, fold in enumerate(found):
        missing = np.setdiff1d(classes, fold.y)
        if missing.size:
            raise ValueError(
                f"Fold {i} of cv leaves out all samples of the class {missing[0]}, which its models then do "
                "not know. Give a stratified cv, or more samples of the class; cv=None never does so."
            )
    return found


def as_list(values: Any) -> list[Any]:
    """Return values to choose from, of which one may be given alone."""
    if isinstance(values, str) or callable(values) or np.ndim(values) == 0:
        values = [values]
    return [value.item() if isinstance(value, np.generic) else value for value in values]


def log_losses(F: Array, labels: Array, factor: float) -> Array:
    """Return the losses of samples with the exponents F, (n, c), and the labels 0, ..., c - 1, which are
    smoothed.
    """
    scaled = factor * np.asarray(F, dtype=np.float64)
    rest = 1 / (len(F) + 2)
    own = np.take_along_axis(scaled, labels[:, None], axis=1)[:, 0]
    losses: Array = logsumexp(scaled, axis=1) - (1 - rest) * own - rest * scaled.mean(axis=1)
    return losses


def best_factor(F: Array, labels: Array) -> float:
    """Return the t with the smallest mean loss, which is convex in t."""
    spread = float(np.sqrt(np.mean((F - F.mean(axis=1, keepdims=True)) ** 2)))
    if not spread > 0:
        return 1.0
    found = minimize_scalar(
        lambda log_factor: log_losses(F, labels, np.exp(log_factor) / spread).mean(),
        bounds=LOG_FACTORS,
        method="bounded",
    )
    return float(np.exp(found.x)) / spread
