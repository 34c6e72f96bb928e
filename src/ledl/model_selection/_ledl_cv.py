"""LEDL with kernel, rule and weights chosen by cross-validation."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import replace
from itertools import product
from numbers import Integral, Real
from typing import Any, ClassVar, Literal, Self, TypeAlias

import numpy as np
from scipy.stats import rankdata
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import check_cv
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from ledl.arrays import Array, is_dask, is_torch, namespace, to_host
from ledl.coding import Settings
from ledl.dictionary import FittedDictionary, log_odds
from ledl.estimators import (
    CallbackSupportMixin,
    DictionaryClassifier,
    LEDLClassifier,
    Tasks,
    adopt,
    check_class_totals,
    check_labelled,
    check_weights,
    fit_context,
    for_chunks,
    number_labels,
    rollback_on_error,
    view_of,
    with_callbacks,
)
from ledl.kernels import POWER, power_of
from ledl.model_selection._batched_search import WEIGHTS, Fold, judge, part, split
from ledl.model_selection._choice import (
    Verdict,
    best_factor,
    check_folds,
    choose_several,
    cv_interval,
    default_folds,
    expected_accuracy,
    n_effective,
    verdict,
)
from ledl.samples import floats_of, map_rows
from ledl.subspace import FeatureMap, find_subspace, scaled

# Candidates are trained roughly, with a few iterations: their scores hardly change after these
# (docs/accuracy.md). The codes of their test samples need no more than this gap. From so many samples on,
# float32 saves time.
ROUGH_ITERATIONS, ROUGH_TOL, FLOAT32_SAMPLES = 20, 1e-4, 100

# The factor where no sample can be left out to find it. With two samples of each class of digits or faces,
# cross-validation finds 5 to 13.
USUAL_FACTOR = 6.0
KERNELS = ("linear", "hellinger", 0.25)
Rule: TypeAlias = Literal["classifier", "residual", "regularized", "ridge"]
RULES: tuple[Rule, ...] = ("classifier", "regularized", "ridge")
ALPHAS = tuple(2.0**e for e in (-4, -5, -6, -7, -8, -10))
RIDGE_ALPHAS = tuple(2.0**e for e in (5, 3, 1, -1, -3, -5, -7))

# Parameters of the search with values to choose from, and the parameters of LEDL that they are for.
GRIDS = ("kernels", "rules", "label_weight", "code_weight", "alpha", "ridge_alpha")
CHOSEN = ("kernel", "rule", "label_weight", "code_weight", "alpha", "transform_alpha", "ridge_alpha")

# Values of the parameters that act after a fit, where a candidate has none.
RULE_DEFAULTS = {"transform_alpha": None, "ridge_alpha": LEDLClassifier().ridge_alpha}

# Parameters that the search hands on to all candidates.
SHARED = (
    "n_components",
    "class_weight",
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


class LEDLClassifierCV(CallbackSupportMixin, DictionaryClassifier):
    r"""LEDL with settings, rule and kernel chosen by cross-validation on the training samples.

    For each candidate, the training samples are scored by models that have not seen them. Scores f become
    probabilities, :math:`p_j \propto e^{t f_j}`, with the t that suits the candidate best. The candidate with
    the smallest mean of :math:`-\log p` of the true labels is the best. The three best with different kernels
    or rules are fitted on all samples, and the mean of their log odds decides. (Labels are smoothed as in
    Platt's scaling: with few samples there may be no mistake to learn t from.) With few samples, this measure
    is finer than the accuracy, which has only 51 values for 50 samples (docs/accuracy.md has figures).

    Parameters
    ----------
    rules : sequence of {"classifier", "residual", "regularized", "ridge"}
        Rules to choose from, which decide how new samples get their labels. See `LEDLClassifier`. By default
        all are tried but ``"residual"``.

    label_weight, code_weight : float or sequence of floats, default=4.0, 2**-11
        Weights :math:`\lambda` and :math:`\omega` to choose from.

    alpha : float or sequence of floats, default=2**-4, ..., 2**-8, 2**-10
        Weights :math:`\epsilon` of the l1 norm to choose from, for the codes of new samples. Atoms are learnt
        at the middle value. The rules ``"regularized"`` and ``"ridge"`` have ridge codes for new samples.

    ridge_alpha : float or sequence of floats, default=2**5, 2**3, ..., 2**-7
        Weights :math:`\beta` of the ridge codes of the rules ``"regularized"`` and ``"ridge"`` to choose from.

    kernels : str, float, callable, or sequence of these, default=("linear", "hellinger", 0.25)
        Kernels to choose from. See `LEDLClassifier`. ``"hellinger"`` is linear in the square roots of pixels or
        features, and 0.25 in the square roots of these.

    cv : int, cross-validation generator or iterable, default=None
        Folds, as in `sklearn.model_selection.GridSearchCV`. None means five folds, or as many as the largest
        class has samples. They leave out the same number of samples of each class, as far as possible. Where
        there are many classes, only as many of the folds are used as leave out 200 samples in all. A class with
        one sample is never left out; two more folds tell how settings suit it, in which others have one sample
        to learn from. If fewer than two classes have several, nothing can be tested. A warning says so, the
        candidate nearest to the defaults of `LEDLClassifier` is taken, and `temperature_` is 6.

    selection : {"log_loss", "accuracy"}, default="log_loss"
        Measure of the choice: the smallest log loss, or the largest accuracy. The first of equal candidates is
        chosen. Candidates come in the order of the parameters, ``kernels`` first. Give the strongest
        regularisation first.

    n_best : int, default=3
        Number of candidates whose log odds are averaged: the best, then the best with another kernel or rule,
        and so on. 1 takes the best alone, whose predictions cost less.

    n_components : int, default=None
        Number of atoms. See `LEDLClassifier`.

    class_weight : dict, "balanced" or None, default=None
        Weights of the classes in training. See `LEDLClassifier`. They do not count in the choice.

    gamma, degree, coef0 : float, default="scale", 3, 1
        Parameters of the kernels ``"rbf"`` and ``"poly"``.

    normalize : bool, default=True
        If True, samples are scaled to norm 1.

    max_iter, tol : int, float, default=100, 1e-3
        Largest number of iterations, and tolerance at which training stops earlier.

    transform_tol : float, default=1e-6
        Tolerance of the codes of new samples. This and the next two parameters may be set after a fit, and act
        at once.

    device : str, default=None
        Device that everything runs on. See `LEDLClassifier`. On ``"cuda"`` all candidates and folds are solved
        at the same time.

    n_jobs : int, default=None
        Number of threads. None means 1 unless in a `joblib.parallel_config` context. -1 means all processors.

    random_state : int, RandomState instance or None, default=None
        Source of random numbers, which draw the folds and the atoms to start from. An int gives the same model
        every time.

    Attributes
    ----------
    best_estimator_ : LEDLClassifier
        The best model, fitted on all samples.

    estimators_ : list of LEDLClassifier
        The models whose log odds are averaged, the best first. Those with the same kernel share their atoms.
        Setting parameters of one changes only its own predictions.

    weights_ : ndarray of shape (n_estimators,)
        What the log odds of each are multiplied with in the sum. Only one model has the weight 1.

    best_params_ : dict
        Settings of the chosen model.

    best_score_ : float
        Mean log loss, times -1, of the chosen model in cross-validation. With ``selection="accuracy"`` its
        accuracy. It is the best of many on the same samples: expect less on new ones.

    best_index_ : int
        Index of the chosen model in `cv_results_`.

    expected_accuracy_ : float or None
        Accuracy to expect on new samples, without the luck of the best of many: the choice is repeated on
        samples that are drawn with replacement, and tested on the samples that were not drawn (bootstrap bias
        corrected cross-validation, Tsamardinos et al., 2018; ``python benchmarks/expected_accuracy.py``).

    expected_accuracy_interval_ : tuple (low, high)
        Its 95 % interval. It contained the truth, rounded to per cent, in 95 % of 360 trials with 20 or 25
        samples.

    temperature_, best_temperature_ : float
        The factor t of the scores in `predict_proba`, found in cross-validation; and that of `best_estimator_`
        alone.

    cv_results_ : dict of arrays
        Results as in `GridSearchCV` with two metrics: ``params``, ``param_...``; ``split0_test_accuracy``, ...,
        ``mean_test_accuracy``, ``std_test_accuracy``, ``rank_test_accuracy``, and the same with
        ``neg_log_loss``. ``mean_fit_time`` is the share of one fit in the total time.

    n_splits_ : int
        Number of folds.

    refit_time_ : float
        Time of the last fit in seconds.

    classes_ : ndarray of shape (n_classes,)
        The labels.

    components_, dual_components_, label_components_, code_components_, atom_classes_ : ndarrays
        The atoms of `best_estimator_`, with their classes. See `LEDLClassifier`.

    history_, stopped_by_ : dict, str
        Values of each iteration of the last fit, and what ended it.

    n_iter_ : int
        Number of iterations of the last fit.

    n_features_in_ : int
        Number of features seen in `fit`.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the features, where X has names.

    See Also
    --------
    LEDLClassifier : Learns at given settings.
    BatchedSearchCV : Searches any grid, for LEDL, SRC and CRC.

    Notes
    -----
    Progress bars are callbacks of scikit-learn, as for `LEDLClassifier`.

    `decision_function` gives the sum of the scores of `estimators_`, times `weights_`; for the rule
    ``"regularized"`` with their logarithms, because the ratios of that rule enter probabilities with their
    logarithms. Differences of scores, times `temperature_`, are log odds. `ledl.explain` shows the parts of
    this sum. `transform` gives the codes of `best_estimator_`.

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

    components_: np.ndarray = view_of("best_estimator_.components_", "The dictionary B.")
    dual_components_: np.ndarray = view_of("best_estimator_.dual_components_", "B, with a kernel.")
    label_components_: np.ndarray = view_of("best_estimator_.label_components_", "The classifier W.")
    code_components_: np.ndarray = view_of("best_estimator_.code_components_", "The transform A, (K, K).")
    atom_classes_: np.ndarray = view_of("best_estimator_.atom_classes_", "The label of each atom's class.")
    history_: dict[str, np.ndarray] = view_of("best_estimator_.history_", "Values of each iteration.")
    stopped_by_: str = view_of("best_estimator_.stopped_by_", "What ended the last fit.")

    best_estimator_: LEDLClassifier
    best_params_: dict[str, Any]
    best_score_: float
    best_index_: int
    cv_results_: dict[str, Any]
    expected_accuracy_: float | None
    expected_accuracy_interval_: tuple[float, float]
    temperature_: float
    n_iter_: int

    # Models of earlier versions, in files, have the best one alone.
    @property
    def estimators_(self) -> list[LEDLClassifier]:
        """The models whose log odds are averaged, the best first."""
        return [self.best_estimator_, *vars(self).get("_others", [])]

    @property
    def weights_(self) -> np.ndarray:
        """What the log odds of each of `estimators_` are multiplied with."""
        check_is_fitted(self)
        return vars(self).get("_weights", np.ones(1))

    @property
    def best_temperature_(self) -> float:
        """The factor of the scores of `best_estimator_` in its probabilities."""
        return float(vars(self).get("_best_temperature", self.temperature_))

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **LEDLClassifier._parameter_constraints,  # for the shared parameters
        "rules": ["array-like", str],
        "label_weight": ["array-like", Interval(Real, 0, None, closed="left")],
        "code_weight": ["array-like", Interval(Real, 0, None, closed="left")],
        "alpha": ["array-like", Interval(Real, 0, None, closed="neither")],
        "ridge_alpha": ["array-like", Interval(Real, 0, None, closed="neither")],
        "kernels": ["array-like", str, POWER, callable],
        "cv": ["cv_object"],
        "selection": [StrOptions({"log_loss", "accuracy"})],
        "n_best": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(
        self,
        *,
        rules: Sequence[Rule] | Rule = RULES,
        label_weight: float | Sequence[float] = 4.0,
        code_weight: float | Sequence[float] = 2**-11,
        alpha: float | Sequence[float] = ALPHAS,
        ridge_alpha: float | Sequence[float] = RIDGE_ALPHAS,
        kernels: Sequence[Any] | Any = KERNELS,
        cv: Any = None,
        selection: Literal["log_loss", "accuracy"] = "log_loss",
        n_best: int = 3,
        n_components: int | None = None,
        class_weight: dict[Any, float] | Literal["balanced"] | None = None,
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
        self.n_best = n_best
        self.n_components = n_components
        self.class_weight = class_weight
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

    @with_callbacks
    @fit_context(prefer_skip_nested_validation=True)
    @rollback_on_error
    def fit(
        self, X: Array, y: Array, sample_weight: Array | None = None, *, groups: Array | None = None
    ) -> Self:
        """Choose among the candidates, and fit the chosen one on all samples.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training samples. Tensors stay on their device.
        y : array-like of shape (n_samples,)
            Labels of the samples.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples, in training as in `LEDLClassifier`, and in the means that candidates are
            judged by. None means that all weigh 1.
        groups : array-like of shape (n_samples,), default=None
            Groups of the samples, for cross-validation generators that need them.

        Returns
        -------
        self : LEDLClassifierCV
        """
        rng = check_random_state(self.random_state)
        fold_seed, start_seed = rng.randint(np.iinfo(np.int32).max, size=2)
        base = LEDLClassifier(random_state=int(start_seed))
        for name in SHARED:
            setattr(base, name, getattr(self, name))
        if is_dask(X):
            raise TypeError(
                "X is a Dask array, but a search needs its samples in memory. Give X.compute(), or fit "
                "LEDLClassifier at given settings, which visits Dask arrays chunk by chunk."
            )
        X, y = check_labelled(self, X, y)
        X = X if is_torch(X) else np.asarray(X)  # a memory map becomes an array
        labels, classes = number_labels(self, y)
        check_class_totals(labels, classes, check_weights(self, labels, classes, sample_weight))
        if sample_weight is not None:  # without those of the classes
            sample_weight = check_weights(None, labels, classes, sample_weight)
        candidates = self._candidates()
        rough = {
            "max_iter": min(self.max_iter, ROUGH_ITERATIONS),
            "transform_tol": max(self.transform_tol, ROUGH_TOL),
        }
        models = [clone(base).set_params(**candidate, **rough) for candidate in candidates]
        for model in models:
            model._validate_params()
        cv = default_folds(y, int(fold_seed), groups, sample_weight) if self.cv is None else self.cv
        folds: list[Fold] = []
        folds_of: list[list[Fold]] = []  # of each candidate
        expected: float | None
        found: dict[str, Any] = {"params": candidates}
        if self.cv is None and not cv:
            index, factor, score = nearest_to_defaults(candidates), USUAL_FACTOR, np.nan
            taken, weights, best_factor_ = [index], np.ones(1), factor
            expected, interval = None, (0.0, 1.0)
            warnings.warn(
                "Fewer than two classes have more than one sample, so candidates cannot be tested on samples "
                f"that are left out. The settings are {candidates[index]}, and probabilities are not "
                "calibrated. Give two samples of each class.",
                UserWarning,
                stacklevel=5,
            )
        else:
            seen = X
            powers = [power_of(model.kernel) for model in models]
            if self.normalize and len(X) >= FLOAT32_SAMPLES and None not in powers:
                # Powers of samples of norm 1, scaled to norm 1 again, are those of the samples themselves.
                seen = namespace(X).astype(scaled(X), namespace(X).float32, copy=False)
            parts = list(check_cv(cv, y, classifier=True).split(to_host(seen), y, groups))
            is_wide = 2 * seen.shape[0] <= seen.shape[1]  # else there is little to gain
            made: dict[float | None, list[Fold]] = {}
            for model, power in zip(models, powers, strict=True):
                map_first = power if is_wide else None
                if map_first not in made:
                    samples = seen if map_first is None else coordinates_of(seen, map_first, self.normalize)
                    made[map_first] = list(split(base, samples, y, parts, None, sample_weight))
                    check_folds(made[map_first], classes)
                if map_first is not None:
                    model.kernel = "linear"
                folds_of.append(made[map_first])
            folds = folds_of[0]
        n_last = min(self.n_best, len({(one["kernel"], one["rule"]) for one in candidates})) if folds else 1
        tasks = Tasks(self, X, y, len(models) * len(folds) + n_last)
        if folds:
            started = time.perf_counter()
            with warnings.catch_warnings():
                # Only the chosen candidate must converge.
                warnings.simplefilter("ignore", ConvergenceWarning)
                judged = judge(models, candidates, folds_of, tasks)
            seconds = (time.perf_counter() - started) / (len(models) * len(folds))
            tested = np.concatenate([fold.tested for fold in folds])
            of_tested = part(sample_weight, tested)
            if of_tested is not None and not of_tested.any():
                raise ValueError(
                    "All samples that cv tests have the weight zero, so nothing can be chosen. Test others."
                )
            verdicts = [verdict(row, folds, of_tested) for row in judged]
            # The kernel 0.5 is "hellinger" by another name.
            kinds = [
                (power or one["kernel"], one["rule"]) for power, one in zip(powers, candidates, strict=True)
            ]
            taken = choose_several(verdicts, self.selection, kinds, self.n_best)
            index, best_factor_ = taken[0], verdicts[taken[0]].factor
            # The mean of log odds, in the scale of the best candidate, and the factor for all of them together.
            weights = np.array([verdicts[k].factor for k in taken]) / (best_factor_ * len(taken))
            factor = best_factor_
            tested_labels = np.concatenate([np.searchsorted(classes, fold.y_test) for fold in folds])
            if len(taken) > 1:
                mixed = np.sum([w * verdicts[k].exponents for w, k in zip(weights, taken, strict=True)], axis=0)
                among, numbers = np.unique(tested_labels, return_inverse=True)
                factor = best_factor(mixed[:, among], numbers, of_tested)
            found = results(candidates, verdicts, [len(fold.y_test) for fold in folds], seconds)
            metric = "accuracy" if self.selection == "accuracy" else "neg_log_loss"
            score = float(found[f"mean_test_{metric}"][index])
            several = kinds, self.n_best, tested_labels
            expected = expected_accuracy(verdicts, self.selection, tested, int(fold_seed), several)
            n_trained = sum(n_effective(fold.weights, len(fold.y)) for fold in folds) / len(folds)
            n_tested = n_effective(part(sample_weight, np.unique(tested)), len(np.unique(tested)))
            interval = cv_interval(expected, n_tested, n_trained)
        started = time.perf_counter()
        estimators: list[Any] = []
        for k in taken:
            model = clone(base).set_params(**candidates[k])
            twins = [one for one in estimators if learns_like(one, model)]
            if twins:  # the same atoms, with other codes or another rule
                model = copy(twins[0]).set_params(**{**RULE_DEFAULTS, **candidates[k]})
                model._dictionary = replace(model.dictionary_, kept={})
                tasks.count(1, "last fit")
            else:
                tasks.fit("last fit", model, X, y, sample_weight)
            estimators.append(model)
        tasks.count(n_last - len(taken), "last fit")
        best, *others = estimators
        adopt(
            self,
            _dictionary=best._dictionary,
            classes_=best.classes_,
            best_estimator_=best,
            _best_temperature=best_factor_,
            _others=others,
            _weights=weights,
            best_index_=index,
            best_params_=candidates[index],
            best_score_=score,
            cv_results_=found,
            expected_accuracy_=expected,
            expected_accuracy_interval_=interval,
            n_iter_=best.n_iter_,
            n_splits_=len(folds),
            refit_time_=time.perf_counter() - started,
            temperature_=factor,
        )
        tasks.end()
        return self

    def _candidates(self) -> list[dict[str, Any]]:
        """Return the settings of all candidates."""
        grids: list[list[Any]] = []
        for name in GRIDS:
            values: Any = getattr(self, name)
            if isinstance(values, str) or callable(values) or np.ndim(values) == 0:  # a single value
                values = [values]
            grids.append([value.item() if isinstance(value, np.generic) else value for value in values])
            if not grids[-1]:
                raise ValueError(f"{name}={getattr(self, name)!r} has nothing to choose from. Give a value.")
        *outer, alphas, ridge_alphas = grids
        if "precomputed" in outer[0]:
            raise ValueError(
                "kernels has 'precomputed', but this search takes the samples themselves. Give functions of "
                "two samples, or search with BatchedSearchCV(LEDLClassifier(kernel='precomputed'), ...)."
            )
        found = []
        for kernel, rule, label_weight, code_weight in product(*outer):
            common = {"kernel": kernel, "rule": rule, "label_weight": label_weight, "code_weight": code_weight}
            common["alpha"] = sorted(alphas, reverse=True)[(len(alphas) - 1) // 2]
            if rule in ("regularized", "ridge"):
                found += [{**common, "ridge_alpha": value} for value in ridge_alphas]
            else:
                found += [{**common, "transform_alpha": value} for value in alphas]
        return found

    def _coder_and_rule(self) -> tuple[Settings, Any]:
        lasso: Any = self._dictionary.coder
        return lasso._replace(tol=self.transform_tol), self._dictionary.rule

    def predict_proba(self, X: Array) -> np.ndarray:
        """Return probabilities of the classes, calibrated in cross-validation by one number, `temperature_`.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples. A Dask array gives a Dask array with the same chunks, and nothing is computed yet.

        Returns
        -------
        probabilities : ndarray, or tensor for a tensor, of shape (n_samples, n_classes)
            The label of `predict` has the largest.
        """
        if is_dask(X):
            return map_rows(for_chunks(self, X).predict_proba, X, floats_of(X), len(self.classes_))
        return self.probabilities_of(self._scores(X))

    def probabilities_of(self, scores: Array) -> Array:
        """Return probabilities of the classes for samples with known scores, as rejection gets them.

        Parameters
        ----------
        scores : ndarray of shape (n_samples, n_classes)
            Scores, the larger the better.

        Returns
        -------
        probabilities : ndarray of shape (n_samples, n_classes)
        """
        xp = namespace(scores)
        odds = xp.exp(self.temperature_ * (scores - xp.max(scores, axis=1, keepdims=True)))
        return odds / xp.sum(odds, axis=1, keepdims=True)

    def _records(self) -> Iterator[FittedDictionary]:
        """Yield the dictionaries whose log odds are averaged, the best first, with the rules of the fit."""
        yield self.dictionary_
        for model in vars(self).get("_others", []):
            lasso: Any = model._dictionary.coder
            yield replace(model._dictionary, coder=lasso._replace(tol=self.transform_tol))

    def _exact_scores(self, X: Array) -> Array:
        """Return scores (n, c) of checked samples whose differences, times the temperature, are log odds."""
        found = (log_odds(one.rule, one.scores(X, self.device, self.n_jobs)) for one in self._records())
        return sum(float(weight) * scores for weight, scores in zip(self.weights_, found, strict=True))

    _log_odds = _exact_scores

    def _judge(self, X: Array) -> tuple[Array, Array]:
        """Return scores (n, c) of checked samples, and their evidence (n, 2) by the best model, on the host."""
        first, *others = self._records()
        scores, evidence = first.judge(X, self.device, self.n_jobs)
        total = self.weights_[0] * log_odds(first.rule, scores)
        for weight, one in zip(self.weights_[1:], others, strict=True):
            total += weight * log_odds(one.rule, to_host(one.scores(X, self.device, self.n_jobs)))
        return total, evidence

    def predict_log_proba(self, X: Array) -> np.ndarray:
        """Return the logarithms of `predict_proba`.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        log_probabilities : ndarray, or tensor for a tensor, of shape (n_samples, n_classes)
        """
        if is_dask(X):
            return map_rows(for_chunks(self, X).predict_log_proba, X, floats_of(X), len(self.classes_))
        found = self.predict_proba(X)
        xp = namespace(found)
        return xp.log(xp.clip(found, float(xp.finfo(found.dtype).tiny), None))


def coordinates_of(X: Array, power: float, unit_norm: bool) -> Array:
    """Return the features of fewer samples than features in coordinates of their span, (n, d) -> (n, n).

    These have the same inner products, so candidates find the same atoms, codes and scores, up to rounding.
    Folds of the features themselves would be 20 times as large as the samples.
    """
    features = FeatureMap(power, unit_norm)(X)
    return find_subspace(namespace(X).asarray(X, copy=True) if features is X else features)[1]


def learns_like(first: LEDLClassifier, second: LEDLClassifier) -> bool:
    """Say whether two models learn the same atoms: they differ in codes and rules of new samples alone."""
    return all(getattr(first, name) == getattr(second, name) for name in ("kernel", *WEIGHTS.values()))


def nearest_to_defaults(candidates: list[dict[str, Any]]) -> int:
    """Return the index of the first candidate with the most settings that are defaults of `LEDLClassifier`."""
    defaults = LEDLClassifier().get_params()
    nearness = []
    for one in candidates:
        usual = {**defaults, "transform_alpha": one["alpha"]}  # as None says
        nearness.append(sum(usual[name] == one[name] for name in one))
    return int(np.argmax(nearness))


def results(
    candidates: list[dict[str, Any]], verdicts: list[Verdict], sizes: list[int], fit_time: float
) -> dict[str, Any]:
    """Return `cv_results_`. Settings that a candidate does not have are NaN."""
    found: dict[str, Any] = {"mean_fit_time": np.full(len(candidates), fit_time)}
    for name in CHOSEN:
        values = [candidate.get(name, np.nan) for candidate in candidates]
        plain = all(isinstance(value, str | Real) for value in values)  # names and powers: as text
        found[f"param_{name}"] = np.array(values) if plain else np.array(values, dtype=object)
    found["params"] = candidates
    ends = np.cumsum(sizes)[:-1]
    weights = verdicts[0].weights
    parts = np.split(np.ones(sum(sizes)) if weights is None else weights, ends)
    for metric, values in (
        ("accuracy", [one.hits for one in verdicts]),
        ("neg_log_loss", [-one.losses for one in verdicts]),
    ):
        by_fold = np.array(
            [[fold_mean(*fold) for fold in zip(np.split(row, ends), parts, strict=True)] for row in values]
        )
        mean = np.array([one.mean(row) for one, row in zip(verdicts, values, strict=True)])
        for i, column in enumerate(by_fold.T):
            found[f"split{i}_test_{metric}"] = column
        found[f"mean_test_{metric}"], found[f"std_test_{metric}"] = mean, by_fold.std(axis=1)
        ranks = rankdata(-np.where(np.isnan(mean), -np.inf, mean), method="min")  # failures come last
        found[f"rank_test_{metric}"] = ranks.astype(np.int32)
    return found


def fold_mean(values: Array, weights: Array) -> float:
    """Return the weighted mean of a fold, or NaN if all its samples have the weight zero."""
    return float(np.average(values, weights=weights)) if weights.any() else np.nan
