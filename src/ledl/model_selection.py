"""Model selection: many candidates and folds as one batched solve, and LEDL with all settings chosen.

Scores become probabilities: p_j is proportional to exp(t f_j), with one factor t for all samples. The attribute
`temperature_` is this factor. (In the literature the temperature is 1/t.)

Models often make no mistake on few samples, and then no t is large enough: probabilities would be 0 and 1. So
labels are smoothed as in Platt's scaling. Each of n samples counts as one of its own class with the weight
(n + 1) / (n + 2), and as one of any class with the rest,

    loss = -(1 - e) log p_y - e mean_j log p_j,    e = 1 / (n + 2).
"""

from __future__ import annotations

import math
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import compress, product
from numbers import Integral, Number, Real
from typing import Any, ClassVar, Literal, NamedTuple, Self, TypeAlias, TypeVar

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp
from scipy.stats import norm, rankdata
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin, clone
from sklearn.exceptions import ConvergenceWarning, FitFailedWarning
from sklearn.metrics import check_scoring
from sklearn.model_selection import GridSearchCV, ParameterGrid, check_cv
from sklearn.utils import assert_all_finite, check_random_state, gen_batches, get_tags, indexable
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils._set_output import _safe_set_output
from sklearn.utils.metaestimators import _safe_split
from sklearn.utils.validation import _check_method_params, check_consistent_length, check_is_fitted

from ledl.arrays import Array, as_array, float32_products, free_memory, is_dask, is_torch, namespace, to_host
from ledl.coding import Lasso, LassoCoder, Ridge, Samples, Settings, chunk_size
from ledl.dictionary import FittedDictionary, log_odds
from ledl.estimators import (
    CallbackSupportMixin,
    CRCClassifier,
    DictionaryClassifier,
    DocumentedMixin,
    LEDLClassifier,
    SRCClassifier,
    Tasks,
    adopt,
    check_class_totals,
    check_labelled,
    check_samples,
    check_weights,
    coder_and_rule,
    device_of,
    fit_context,
    fitted_attributes,
    for_chunks,
    number_labels,
    prepare_training,
    read_atoms,
    rollback_on_error,
    view_of,
    with_callbacks,
)
from ledl.kernels import POWER, power_of
from ledl.parallel import n_places, one_blas_thread, run_tasks
from ledl.samples import InMemoryBlocks, floats_of, map_rows
from ledl.solvers.iteration import Status
from ledl.solvers.lasso import reachable
from ledl.solvers.ledl import Atoms, DualStep, solve
from ledl.subspace import scaled

__all__ = ["BatchedSearchCV", "LEDLClassifierCV"]

# How many numbers the codes of a batch have, which one thread of NumPy solves at once
# (benchmarks/selection.py).
BATCH = 2**17
# A batch needs at most this many arrays of the size of its codes, in training and coding.
ARRAYS = 20

# The weights of LEDL: their names in the solver, and in the estimator.
WEIGHTS = {"lam": "label_weight", "omega": "code_weight", "epsilon": "alpha", "rho": "rho"}
# Parameters of LEDL that decide how training sees samples. Problems that differ in these are in one batch if
# they have the same shape.
OF_THE_SAMPLES = ("coef0", "degree", "gamma", "kernel", "n_components", "normalize")
# Estimators with a batched solve, and their parameters that may differ inside a batch.
PARAMETERS: dict[type, set[str]] = {
    LEDLClassifier: {*WEIGHTS.values(), *OF_THE_SAMPLES, "transform_alpha", "rule", "ridge_alpha"},
    SRCClassifier: {"alpha"},
    CRCClassifier: {"alpha", "rule"},
}
BATCHED = tuple(PARAMETERS)

Item = TypeVar("Item")
Result = TypeVar("Result")
# Without callbacks, which are told of candidates.
QUIET = Tasks(None, None, None, 0)

# A row for each candidate, with an entry for each fold. It is None if the fit failed.
Table: TypeAlias = list[list[Any]]


class Fold(NamedTuple):
    """Training samples and test samples of a fold, with their labels, and the numbers of the test samples."""

    X: Array
    y: Array
    X_test: Array
    y_test: Array
    tested: Array
    weights: Array | None = None  # of the training samples


class View(NamedTuple):
    """Test samples of a fold, as they are and in the coordinates of its models."""

    samples: Samples
    X: Array
    sq_norms: Array


@dataclass(eq=False, repr=False)
class Candidate(ClassifierMixin, BaseEstimator):
    """A candidate that was trained on a fold, with its scores of the test samples.

    Scorers take it as the fitted model. The model itself is made when anything else is asked for.
    """

    unfitted: Any  # with the parameters of the candidate and the features of the samples
    attributes: dict[str, Any]  # fitted attributes that the dictionary does not give
    dictionary: FittedDictionary
    X: Array = None  # test samples
    scores: Array = None  # their scores

    @cached_property
    def model(self) -> Any:
        """The fitted model, with all its attributes. Most scorers do not need it."""
        model = copy(self.unfitted)
        adopt(model, **{**fitted_attributes(self.dictionary), **self.attributes})
        return model

    @property
    def classes_(self) -> Array:
        """The labels."""
        return self.dictionary.classes

    def __getattr__(self, name: str) -> Any:
        if name in ("unfitted", "model"):  # not set yet, while it is copied
            raise AttributeError(name)
        return getattr(self.model, name)

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters of the model."""
        return self.unfitted.get_params(deep)

    def decision_function(self, X: Array) -> Array:
        if X is not self.X:
            return self.model.decision_function(X)
        return self.scores[:, 1] - self.scores[:, 0] if len(self.classes_) == 2 else self.scores

    def predict(self, X: Array) -> Array:
        return self.classes_[np.argmax(self.scores, axis=1)] if X is self.X else self.model.predict(X)


class BatchedSearchCV(DocumentedMixin, TransformerMixin, GridSearchCV):
    r"""Search a grid with cross-validation, and solve all candidates and folds at the same time.

    The search does the same as scikit-learn's `GridSearchCV` on the same folds. In float64 it has the same
    scores, and so makes the same choice. (On a device, lasso codes come from another solver than on the host,
    to the same tolerance. A sample whose label depends on smaller differences may get another label.)

    Work that candidates share (checks, subspace, start) is done once for each fold. Candidates that differ only
    in weights are one batched solve. That suits a GPU: many small problems fill it, and one does not.

    The search runs where `estimator` does: on the device of its ``device`` parameter, or of the tensors. With
    NumPy it uses ``n_jobs`` threads of the estimator. Within ``joblib.parallel_config(backend="dask")`` (or
    "loky") it uses the workers of the cluster (or processes).

    Parameters
    ----------
    estimator : LEDLClassifier, SRCClassifier or CRCClassifier
        Estimator with the settings that are not searched.

    param_grid : dict or list of dicts
        Names of parameters with lists of values. These are batched: `alpha`, `label_weight`, `code_weight`,
        `rho`, `transform_alpha`, `rule` and `ridge_alpha` of LEDL (the last three need no fits of their own);
        where shapes agree, also its kernels with their parameters, `n_components` and `normalize`; `alpha` of
        SRC; `alpha` and `rule` of CRC. Other parameters may be searched too, with one batch for each value.

    scoring : str or callable, default=None
        One metric, as in `GridSearchCV`. None means the accuracy. A callable gets the fitted model, without its
        `history_` and `training_codes_`.

    cv : int, cross-validation generator or iterable, default=None
        Folds, as in `GridSearchCV`. None means five stratified folds.

    refit : bool, default=True
        If True, the best candidate is fitted on all samples, as `best_estimator_`.

    Attributes
    ----------
    cv_results_ : dict of arrays
        Results as in `GridSearchCV`: ``params``, ``param_...``, ``split0_test_score``, ...,
        ``mean_test_score``, ``std_test_score``, ``rank_test_score``. ``mean_fit_time`` and ``mean_score_time``
        are the share of one fit in the time of its batch.

    best_params_ : dict
        Parameters of the candidate with the best mean score. If several have it, of the first.

    best_score_ : float
        Mean score of the best candidate.

    best_index_ : int
        Index of the best candidate in `cv_results_`.

    best_estimator_ : estimator
        The best candidate, fitted on all samples. Only if `refit`. The search then predicts with it.

    n_splits_ : int
        Number of folds.

    refit_time_ : float
        Time of the last fit in seconds. Only if `refit`.

    scorer_ : callable
        The scorer that `scoring` names.

    See Also
    --------
    sklearn.model_selection.GridSearchCV : Searches with any estimator, including pipelines.

    Notes
    -----
    A fit that fails has the score NaN, and a warning gives the reason. If all fits fail, an error
    is raised. With ``random_state=None`` all candidates of a fold start at the same atoms.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from ledl import BatchedSearchCV, LEDLClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> grid = {"alpha": [2**-4, 2**-6], "label_weight": [0.25, 4.0]}
    >>> model = LEDLClassifier(max_iter=30, tol=0, random_state=0)
    >>> search = BatchedSearchCV(model, grid, cv=3).fit(X[:100], y[:100])
    >>> len(search.cv_results_["mean_test_score"])
    4
    >>> bool(search.score(X[100:200], y[100:200]) > 0.7)
    True
    """

    def __init__(
        self,
        estimator: Any,
        param_grid: Any,
        *,
        scoring: Any = None,
        cv: Any = None,
        refit: bool = True,
    ) -> None:
        super().__init__(estimator, param_grid, scoring=scoring, cv=cv, refit=refit)

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
        return self.best_estimator_.get_feature_names_out(input_features)

    def set_output(self, *, transform: str | None = None) -> Self:
        """Set what `transform` returns, of the estimator.

        Parameters
        ----------
        transform : {"default", "pandas", "polars"}, default=None
            Kind of the codes. None leaves it as it is.

        Returns
        -------
        self : BatchedSearchCV
        """
        for model in (self.estimator, getattr(self, "best_estimator_", self.estimator)):
            _safe_set_output(model, transform=transform)
        return self

    # Views of the best model. Its other attributes, such as `label_components_`, are in `best_estimator_`.
    components_: np.ndarray = view_of("best_estimator_.components_", "The atoms of `best_estimator_`.")
    dual_components_: np.ndarray = view_of("best_estimator_.dual_components_", "Its atoms with a kernel.")
    atom_classes_: np.ndarray = view_of("best_estimator_.atom_classes_", "The label of each atom.")
    history_: dict[str, np.ndarray] = view_of(
        "best_estimator_.history_", "Values of each iteration of its fit."
    )
    dictionary_: FittedDictionary = view_of("best_estimator_.dictionary_", "The best model as one record.")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags = get_tags(self.estimator).transformer_tags
        return tags

    @with_callbacks
    def fit(self, X: Array, y: Array, **params: Any) -> Self:
        """Score all candidates on all folds, and fit the best.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training samples. Tensors stay on their device.
        y : array-like of shape (n_samples,)
            Labels of the samples.
        **params : arrays of shape (n_samples,)
            ``sample_weight``, for LEDL and CRC, and ``groups`` of the samples, for cross-validation generators
            that need them. They go where they go in `GridSearchCV`, also with scikit-learn's metadata routing.

        Returns
        -------
        self : BatchedSearchCV
        """
        check_batched(self.estimator, self.scoring, self.refit)
        self._validate_params()
        scorer = check_scoring(self.estimator, scoring=self.scoring)
        routed = self._get_routed_params_for_fit(params)
        others = routed.estimator.fit.keys() - {"sample_weight"}
        if others:
            raise TypeError(f"fit has no {', '.join(sorted(others))}. Give sample_weight, groups, or nothing.")
        candidates = list(ParameterGrid(self.param_grid))
        models = [clone(self.estimator).set_params(**clone(candidate, safe=False)) for candidate in candidates]
        check_no_checkpoint(self, models)
        for model in models:
            model._validate_params()
        groups = routed.splitter.split.get("groups")
        folds = list(split(self.estimator, X, y, self.cv, groups, **routed.estimator.fit))
        if not models or not folds:
            raise ValueError(
                f"There is nothing to fit: {len(models)} candidates in param_grid and {len(folds)} folds in cv."
            )
        tasks = Tasks(self, X, y, len(models) * len(folds) + bool(self.refit))
        scored = [_check_method_params(X, routed.scorer.score, indices=fold.tested) for fold in folds]
        started = time.perf_counter()
        judged = judge(models, candidates, folds, tasks, partial(timed_score, scorer, folds, scored))
        seconds = (time.perf_counter() - started) / (len(models) * len(folds))
        failed = np.nan, 0.0
        table = np.array([[failed if one is None else one for one in row] for row in judged])
        scores, score_time = table[..., 0], table[..., 1].mean()
        times = {"fit_time": seconds - score_time, "score_time": score_time}
        self.n_splits_, self.scorer_, self.multimetric_ = len(folds), scorer, False
        with warnings.catch_warnings():
            # A warning with the reasons was given already.
            warnings.filterwarnings("ignore", "One or more of the test scores")
            found = [{"test_scores": score, **times} for score in scores.ravel()]
            self.cv_results_ = self._format_results(candidates, len(folds), found)
        self.best_index_ = int(self.cv_results_["rank_test_score"].argmin())
        self.best_score_ = float(self.cv_results_["mean_test_score"][self.best_index_])
        self.best_params_ = candidates[self.best_index_]
        if self.refit:
            started = time.perf_counter()
            best = clone(self.estimator).set_params(**clone(self.best_params_, safe=False))
            self.best_estimator_ = tasks.fit("refit", best, X, y, **routed.estimator.fit)
            self.refit_time_ = time.perf_counter() - started
            if hasattr(best, "feature_names_in_"):
                self.feature_names_in_ = best.feature_names_in_
        tasks.end()
        return self


def check_no_checkpoint(owner: Any, models: Sequence[Any] = ()) -> None:
    """Raise if one of `models`, or a classifier in an estimator that fits it many times, has a checkpoint."""
    for model in (*owner.get_params().values(), *models):
        if isinstance(model, LEDLClassifier) and model.checkpoint is not None:
            raise ValueError(
                f"checkpoint={model.checkpoint!r} is the file of one fit, but {type(owner).__name__} has many. "
                "Set checkpoint=None."
            )


def check_batched(estimator: Any, scoring: Any, refit: Any) -> None:
    """Raise if there is no batched solve for the estimator or the options.

    Subclasses of our estimators are refused, too: they may differ in anything.
    """
    if type(estimator) not in BATCHED:
        names = ", ".join(kind.__name__ for kind in BATCHED)
        raise TypeError(
            f"BatchedSearchCV has batched solves for {names}, but estimator is a {type(estimator).__name__}. "
            "Use sklearn.model_selection.GridSearchCV, which takes any estimator."
        )
    if not isinstance(refit, bool | np.bool_):
        raise ValueError(
            f"refit={refit!r} must be True or False. sklearn.model_selection.GridSearchCV has more options."
        )
    if isinstance(scoring, list | tuple | set | dict):
        raise ValueError(
            f"scoring={scoring!r} has several metrics, but BatchedSearchCV takes one. Give one metric, or use "
            "sklearn.model_selection.GridSearchCV."
        )


def split(
    estimator: Any, X: Array, y: Array, cv: Any, groups: Array | None, sample_weight: Array | None = None
) -> Iterator[Fold]:
    """Yield the folds. Of a precomputed kernel they have the columns of the training samples."""
    if y is None:
        raise ValueError("BatchedSearchCV requires y to be passed, but the target y is None.")
    y = to_host(y) if is_torch(y) else y
    assert_all_finite(np.asarray(y), input_name="y")
    cv = check_cv(cv, y, classifier=True)
    weights = None if sample_weight is None else to_host(sample_weight)
    if weights is not None:
        check_consistent_length(X, weights)
    if is_torch(X):
        X = check_samples(clone(estimator), X, reset=True)
        check_consistent_length(X, y)
        pairwise = estimator.__sklearn_tags__().input_tags.pairwise
        for train, test in cv.split(to_host(X), y, groups):
            columns, labels = train if pairwise else slice(None), np.asarray(y)
            tested, own = np.arange(len(labels))[test], part(weights, train)  # a fold may be a mask
            yield Fold(X[train][:, columns], labels[train], X[test][:, columns], labels[test], tested, own)
        return
    X, y, groups = indexable(X, y, groups)
    for train, test in cv.split(X, y, groups):
        X_train, y_train = _safe_split(estimator, X, y, train)
        X_test, y_test = _safe_split(estimator, X, y, test, train)
        yield Fold(X_train, y_train, X_test, y_test, np.arange(len(y))[test], part(weights, train))


def part(weights: Array | None, rows: Array) -> Array | None:
    """Return the weights of some samples. None, for equal weights, stays None."""
    return None if weights is None else np.asarray(weights)[rows]


def timed_score(
    scorer: Callable[..., Any], folds: list[Fold], params: list[dict[str, Any]], candidate: Candidate, i: int
) -> tuple[float, float]:
    """Return the score of a candidate on the test samples of fold i, and the seconds that it took."""
    started = time.perf_counter()
    found = scorer(candidate, folds[i].X_test, folds[i].y_test, **params[i])
    if not isinstance(found, Number) or isinstance(found, bool):
        raise ValueError(f"scoring must return a number, but returned {found!r}, a {type(found).__name__}.")
    return float(found), time.perf_counter() - started  # type: ignore[arg-type]


def judge(
    models: list[Any],
    candidates: list[dict[str, Any]],
    folds: list[Fold],
    told: Tasks = QUIET,
    finish: Callable[[Candidate, int], Any] | None = None,
) -> Table:
    """Return a `Candidate` for each candidate and fold, with its scores of the test samples.

    Or what `finish` makes of it and the number of the fold: all scores together may need much memory.
    """
    kind = type(models[0])
    groups: dict[Any, list[int]] = {}  # candidates that differ in batched parameters alone
    for k, candidate in enumerate(candidates):
        others = [(name, candidate[name]) for name in sorted(candidate.keys() - PARAMETERS[kind])]
        # Arrays and the like are compared by identity.
        key = tuple((name, v if isinstance(v, str | float | int | None) else id(v)) for name, v in others)
        groups.setdefault(key, []).append(k)
    judged: Table = [[] for _ in models]
    errors: list[str] = []
    for group in groups.values():
        train = train_ledl if kind is LEDLClassifier else train_on_samples
        trained = train([models[k] for k in group], folds, errors, told)
        for k, row in zip(group, score_all(trained, folds, errors, models[0].n_jobs, finish), strict=True):
            judged[k] = row
    n_fits, broken = len(models) * len(folds), sum(one is None for row in judged for one in row)
    if broken:
        reasons = " ".join(dict.fromkeys(errors))
        if broken == n_fits:
            raise ValueError(f"All {n_fits} fits failed: {reasons}")
        text = f"{broken} of {n_fits} fits failed and have the score NaN: {reasons}"
        warnings.warn(text, FitFailedWarning, stacklevel=4)
    return judged


def attempt(errors: list[str], work: Callable[..., Result], *arguments: Any) -> Result | None:
    """Return the result of `work`, or None if its data or settings are wrong. Add the message to `errors`."""
    try:
        return work(*arguments)
    except ValueError as error:
        errors.append(str(error))
        return None


def train_ledl(models: list[Any], folds: list[Fold], errors: list[str], told: Tasks) -> Table:
    """Train LEDL at several weights. Folds and kernels that have the same shape share one batched solve."""
    # Candidates that see the samples in the same way share a row of models, which have checked the samples, and
    # of trainings. Those of them that differ only in how they code and decide share one fit.
    seeds = check_random_state(None).randint(np.iinfo(np.int32).max, size=len(folds)).tolist()
    rows: dict[Any, list[tuple[Any, Any]]] = {}
    alike: dict[Any, list[int]] = {}
    for k, model in enumerate(models):
        seen = tuple(getattr(model, name) for name in OF_THE_SAMPLES)
        if seen not in rows:
            checked = [clone(model) for _ in folds]
            for one, seed in zip(checked, seeds, strict=True):  # starts are drawn once for each fold
                one.random_state = seed if one.random_state is None else one.random_state
            pairs = zip(checked, folds, strict=True)
            rows[seen] = [
                (one, attempt(errors, prepare_training, one, f.X, f.y, f.weights)) for one, f in pairs
            ]
        alike.setdefault((seen, *(getattr(model, name) for name in WEIGHTS.values())), []).append(k)
    shapes: dict[Any, list[tuple[Any, int]]] = {}
    for i in range(len(folds)):
        for key in alike:
            training = rows[key[0]][i][1]
            if training is not None:
                shapes.setdefault((*training.coordinates.shape, *training.start.M.shape), []).append((key, i))
    trained: Table = [[None] * len(folds) for _ in models]
    late = 0
    for (n, _, K, q), jobs in shapes.items():
        like = rows[jobs[0][0][0]][jobs[0][1]][1].coordinates
        n_jobs = 1 if is_torch(like) else models[0].n_jobs  # one batch at a time on a device
        batches = in_batches(jobs, (n + K) * max(K, q), like, n_jobs)
        # A solve needs the coordinates alone, so their space is not sent to workers.
        tasks = [
            (
                [models[alike[key][0]] for key, _ in batch],
                [rows[key[0]][i][1]._replace(space=None) for key, i in batch],
            )
            for batch in batches
        ]
        for batch, (fits, wrong) in zip(batches, run_tasks(solve_batch, tasks, n_jobs), strict=True):
            errors += wrong
            for (key, i), fit in zip(batch, fits, strict=True):
                told.count(len(alike[key]))
                if fit is None:
                    continue
                atoms, n_iter, status = fit
                if status is Status.NON_FINITE:
                    errors.append(f"{status.advice()}.")
                    continue
                late += status is Status.MAX_ITER
                checked, training = rows[key[0]][i]
                dictionary, learnt = read_atoms(checked, training, atoms)
                for twin in alike[key]:
                    coder, rule = coder_and_rule(models[twin], learnt["label_components_"])
                    own = replace(dictionary, coder=coder, rule=rule)
                    model = with_features_of(checked, models[twin])
                    trained[twin][i] = Candidate(model, {"n_iter_": n_iter, **learnt}, own)
    if late and models[0].tol > 0:
        advice = Status.MAX_ITER.advice(tol=models[0].tol, max_iter=models[0].max_iter)
        text = f"{late} of {len(alike) * len(folds)} fits did not converge: {advice}."
        warnings.warn(text, ConvergenceWarning, stacklevel=5)
    return trained


def with_features_of(checked: Any, model: Any) -> Any:
    """Return an unfitted copy of `model` with the features of `checked`, a model that has checked samples."""
    found = clone(model).set_params(n_jobs=1)
    for name in ("n_features_in_", "feature_names_in_"):
        if hasattr(checked, name):
            setattr(found, name, getattr(checked, name))
    return found


def solve_batch(models: list[Any], trainings: list[Any]) -> tuple[list[Any], list[str]]:
    """Run Algorithm 3 on many problems of one shape, each with its weights.

    Return atoms, number of iterations and status of each problem, or None if it failed, and the reasons.
    """
    first, xp, c = models[0], namespace(trainings[0].coordinates), trainings[0].start.n_classes
    X, M = xp.stack([t.coordinates for t in trainings]), xp.stack([t.start.M for t in trainings])
    weights = np.array([[getattr(model, name) for model in models] for name in WEIGHTS.values()])
    labels, of_samples = np.stack([t.labels for t in trainings]), None
    if trainings[0].weights is not None:  # one fit has them if all have
        of_samples = as_array(np.stack([t.weights for t in trainings]), X)
    try:
        with one_blas_thread(), float32_products(first.precision, device_of(X, first.device)):
            run = solve(
                InMemoryBlocks(X, as_array(labels, X), weights=of_samples),
                Atoms(M, c),
                code_scale=np.sqrt([np.bincount(t.atom_labels) for t in trainings]),
                **dict(zip(WEIGHTS, weights[..., None, None], strict=True)),
                dual_step=DualStep(first.dual_step, first.dual_step_decay, first.dual_step_min),
                max_iter=first.max_iter,
                tol=first.tol,
            )
    except ValueError as error:
        if len(models) == 1:
            return [None], [str(error)]
        # Solve them one by one to find which of them fails.
        alone = [solve_batch([model], [one]) for model, one in zip(models, trainings, strict=True)]
        return [fits[0] for fits, _ in alone], [text for _, wrong in alone for text in wrong]
    return [(Atoms(run.state.M[j], c), int(run.n_iter[j]), run.status[j]) for j in range(len(models))], []


def train_on_samples(models: list[Any], folds: list[Fold], errors: list[str], told: Tasks) -> Table:
    """Fit SRC or CRC. The samples are the atoms, so a fold is fitted once for all settings."""
    easiest = max(models, key=lambda model: model.alpha)
    trained: Table = [[None] * len(folds) for _ in models]
    for i, fold in enumerate(folds):
        weights = {} if fold.weights is None else {"sample_weight": fold.weights}
        first = attempt(errors, partial(clone(easiest).fit, **weights), fold.X, fold.y)
        told.count(len(models))
        if first is None:
            continue
        for model, row in zip(models, trained, strict=True):
            own = with_features_of(first, model)
            # CRC keeps the alpha of its fit.
            change = {"coder": Ridge(model.alpha)} if isinstance(model, CRCClassifier) else {}
            own._dictionary = replace(first.dictionary_, **change)  # its atoms as features are made if needed
            row[i] = Candidate(own, {}, own.dictionary_)
    return trained


def score_all(
    trained: Table,
    folds: list[Fold],
    errors: list[str],
    n_jobs: int | None,
    finish: Callable[[Candidate, int], Any] | None,
) -> Table:
    """Return what `judge` does: the candidates with their scores, or None for those that cannot score."""
    judged: Table = [[None] * len(folds) for _ in trained]
    views: dict[int, View] = {}  # by the space of the coordinates
    alike: dict[Any, list[tuple[int, int]]] = {}  # by the shape of the atoms, and the kind of codes
    for i, fold in enumerate(folds):
        for k, row in enumerate(trained):
            if row[i] is None:
                continue
            model, one = row[i].unfitted, row[i].dictionary
            if id(one.space) not in views:
                samples = Samples(check_samples(model, fold.X_test), model.device, one.features)
                Y = samples[:]
                views[id(one.space)] = View(samples, one.space.reduce(Y), one.space.squared_norms(Y))
            is_lasso = isinstance(one.rule.coder or one.coder, Lasso)
            alike.setdefault((one.atoms.shape, is_lasso), []).append((k, i))
    late = 0
    for ((K, r), _), jobs in alike.items():
        dictionaries = [trained[k][i].dictionary for k, i in jobs]
        seen = [views[id(one.space)] for one in dictionaries]
        size = (max(len(view.X) for view in seen) + K) * max(K, r)
        n_jobs = 1 if is_torch(seen[0].X) else n_jobs
        batches = in_batches(range(len(jobs)), size, seen[0].X, n_jobs)
        tasks = [([dictionaries[j] for j in batch], [seen[j] for j in batch]) for batch in batches]
        for batch, (scores, n_late, wrong) in zip(batches, run_tasks(scores_of, tasks, n_jobs), strict=True):
            late += n_late
            errors += wrong
            for j, found in zip(batch, scores, strict=True):
                k, i = jobs[j]
                if found is not None:
                    one = replace(trained[k][i], X=folds[i].X_test, scores=found)
                    judged[k][i] = one if finish is None else finish(one, i)
    if late:
        warnings.warn(
            f"{late} codes of test samples did not reach the requested duality gap. Raise transform_tol or "
            "alpha.",
            ConvergenceWarning,
            stacklevel=5,
        )
    return judged


def scores_of(
    dictionaries: list[FittedDictionary], views: list[View]
) -> tuple[list[Array | None], int, list[str]]:
    """Return scores on the host, the number of codes that missed their gap, and messages of errors.

    Scores are None where settings are wrong.
    """
    errors: list[str] = []
    settings = [one.rule.coder or one.coder for one in dictionaries]
    scores: list[Array | None] = []
    late = 0
    # Kept for this batch only: Gram matrices of all candidates would need too much memory.
    kept: dict[int, dict[Any, Any]] = defaultdict(dict)
    with one_blas_thread(), float32_products("full", views[0].samples.where):
        if is_torch(views[0].X) and isinstance(settings[0], Lasso):
            codes, late = batched_codes(dictionaries, views)
            for one, S, view in zip(dictionaries, codes, views, strict=True):
                scores.append(to_host(one.rule.scores(one, S, view.X, view.sq_norms)))
            return scores, late, errors
        for one, how, view in zip(dictionaries, settings, views, strict=True):
            coder = attempt(errors, how.prepare, one.atoms, view.samples, one.space, 1, kept[id(one.atoms)])
            if coder is None:
                scores.append(None)
                continue
            n, parts = len(view.X), []
            for rows in gen_batches(n, n if is_torch(view.X) else chunk_size(one.atoms, view.X.shape[1], n, 1)):
                S, _, _, converged = coder(view.X[rows], view.sq_norms[rows])
                S = namespace(S).astype(S, view.X.dtype, copy=False)
                parts.append(to_host(one.rule.scores(one, S, view.X[rows], view.sq_norms[rows])))
                late += int(np.count_nonzero(~converged))
            scores.append(np.concatenate(parts))
    return scores, late, errors


def batched_codes(dictionaries: list[FittedDictionary], views: list[View]) -> tuple[list[Any], int]:
    """Return lasso codes over atoms of one shape, all at once, and the number of codes that missed their gap.

    Smaller folds are filled up with zero samples, which cost nothing.
    """
    xp, like = namespace(views[0].X), views[0].X
    n, r = max(len(view.X) for view in views), like.shape[1]
    X = xp.zeros((len(views), n, r), dtype=like.dtype, device=like.device)
    sq_norms = xp.zeros((len(views), n), dtype=xp.float64, device=like.device)
    for j, view in enumerate(views):
        X[j, : len(view.X)], sq_norms[j, : len(view.X)] = view.X, view.sq_norms
    D = as_array(np.stack([one.atoms for one in dictionaries]), like)
    lassos: list[Any] = [one.coder for one in dictionaries]
    alpha = np.array([lasso.alpha for lasso in lassos])[:, None, None]
    coder = LassoCoder(D, alpha=alpha, tol=reachable(lassos[0].tol, like))
    codes, _, _, converged = coder(X, sq_norms)
    codes = xp.astype(codes, like.dtype, copy=False)
    return [codes[j, : len(view.X)] for j, view in enumerate(views)], int(np.count_nonzero(~converged))


def in_batches(jobs: Sequence[Item], n_numbers: int, like: Array, n_jobs: int | None) -> list[Sequence[Item]]:
    """Return the jobs in batches that fit the device of `like`.

    `n_numbers` is the size of the largest arrays of a job.
    """
    # Use a part of the free memory: other processes may be searching, too.
    most = free_memory(like) // (4 * 8 * ARRAYS) if is_torch(like) else BATCH
    size = min(max(most // n_numbers, 1), -(-len(jobs) // n_places(n_jobs)))
    return [jobs[i : i + size] for i in range(0, len(jobs), size)]


# Number of folds for the choice. Where there are many classes, only as many of these folds are used as leave
# out this many samples in all. That is enough for the choice, and bounds the cost.
N_FOLDS = 5
HELD_OUT_SAMPLES = 200

# Candidates are trained roughly, with a few iterations: their scores hardly change after these
# (docs/accuracy.md). The codes of their test samples need no more than this gap. From so many samples on,
# float32 saves time.
ROUGH_ITERATIONS, ROUGH_TOL, FLOAT32_SAMPLES = 20, 1e-4, 100

# Number of times that samples are drawn to estimate `expected_accuracy_`.
N_DRAWS = 1000

# Range of the logarithms of the factors that are tried, for scores with differences of about 1.
LOG_FACTORS = (-5.0, 8.0)
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
            folds = list(split(base, seen, y, cv, groups, sample_weight))
            check_folds(folds, classes)
        n_last = min(self.n_best, len({(one["kernel"], one["rule"]) for one in candidates})) if folds else 1
        tasks = Tasks(self, X, y, len(models) * len(folds) + n_last)
        if folds:
            started = time.perf_counter()
            with warnings.catch_warnings():
                # Only the chosen candidate must converge.
                warnings.simplefilter("ignore", ConvergenceWarning)
                judged = judge(models, candidates, folds, tasks)
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
        found = self.predict_proba(X)
        xp = namespace(found)
        return xp.log(xp.clip(found, float(xp.finfo(found.dtype).tiny), None))


def learns_like(first: LEDLClassifier, second: LEDLClassifier) -> bool:
    """Say whether two models learn the same atoms: they differ in codes and rules of new samples alone."""
    return all(getattr(first, name) == getattr(second, name) for name in ("kernel", *WEIGHTS.values()))


class Verdict(NamedTuple):
    """Results of a candidate on samples that its models had not seen, in the order of the folds."""

    hits: Array  # (n,), 1 for a correct label and 0 otherwise, NaN if a fit failed
    losses: Array  # (n,), log losses, NaN if a fit failed
    factor: float  # scores times this factor are log odds
    weights: Array | None = None  # (n,), of the samples
    exponents: Any = None  # (n, c), whose differences times the factor are log odds

    def mean(self, values: Array) -> float:
        """Return the weighted mean of hits or losses."""
        return float(np.average(values, weights=self.weights))


def verdict(row: list[Any], folds: list[Fold], weights: Array | None = None) -> Verdict:
    """Return the results of a candidate on the test samples, at the factor that suits it best.

    Log losses are those among the classes that are tested. Over all classes, a candidate would be the better,
    the less it ever answers a class of one sample, which is never tested.
    """
    if any(one is None for one in row):
        nothing = np.full(sum(len(fold.y_test) for fold in folds), np.nan)
        return Verdict(nothing, nothing, 1.0, weights)
    exponents = np.concatenate([log_odds(one.dictionary.rule, one.scores) for one in row]).astype(np.float64)
    labels = np.concatenate(
        [np.searchsorted(one.dictionary.classes, fold.y_test) for one, fold in zip(row, folds, strict=True)]
    )
    tested, among_tested = np.unique(labels, return_inverse=True)
    factor = best_factor(exponents[:, tested], among_tested, weights)
    hits = (exponents.argmax(axis=1) == labels).astype(np.float64)
    losses = log_losses(exponents[:, tested], among_tested, factor, weights)
    return Verdict(hits, losses, factor, weights, exponents)


def choose(verdicts: list[Verdict], selection: str) -> int:
    """Return the index of the best candidate. A candidate that failed is never chosen."""
    losses = np.array([one.mean(one.losses) for one in verdicts])
    if np.isnan(losses).all():
        raise ValueError("Every candidate failed in at least one fold. The warnings give the reasons.")
    if selection == "accuracy":
        return int(np.nanargmax([one.mean(one.hits) for one in verdicts]))
    return int(np.nanargmin(losses))


def choose_several(verdicts: list[Verdict], selection: str, kinds: Sequence[Any], n: int) -> list[int]:
    """Return the indices of the best candidates of n different kinds, or of fewer, the best one first."""
    choose(verdicts, selection)  # raises if there is none
    goodness = [one.mean(one.hits if selection == "accuracy" else -one.losses) for one in verdicts]
    return first_of_kinds(np.array(goodness), kinds, n)


def first_of_kinds(goodness: Array, kinds: Sequence[Any], n: int) -> list[int]:
    """Return the indices of the n largest values of different kinds. NaN is never among them."""
    found: dict[Any, int] = {}
    for k in np.argsort(-goodness, kind="stable"):  # NaN comes last
        if len(found) == n or np.isnan(goodness[k]):
            break
        found.setdefault(kinds[k], int(k))
    return list(found.values())


def expected_accuracy(
    verdicts: list[Verdict],
    selection: str,
    tested: Array,
    seed: int,
    several: tuple[Sequence[Any], int, Array] | None = None,
) -> float:
    """Return the accuracy on new samples that the choice among candidates can be expected to have.

    That is the accuracy of the best one. Its accuracy on the samples that it was chosen on is too high. So
    samples are drawn with replacement; the best candidate on these is tested on the samples that were not
    drawn; and so again, many times. `tested` has the number of the sample of each verdict: repeated folds test
    a sample several times. With `several`, the kinds of the candidates, how many, and the labels of the
    samples, it is the accuracy of the mean of the best ones of so many kinds.
    """
    is_usable = [not np.isnan(one.losses).any() for one in verdicts]
    usable = list(compress(verdicts, is_usable))
    hits = np.array([one.hits for one in usable])
    goodness = hits if selection == "accuracy" else -np.array([one.losses for one in usable])
    samples, sample_of = np.unique(tested, return_inverse=True)
    n, rng = len(samples), np.random.default_rng(seed)
    weights = np.ones(len(tested)) if usable[0].weights is None else usable[0].weights
    n_right = n_tested = 0.0
    for _ in range(N_DRAWS):
        times_drawn = np.bincount(rng.integers(n, size=n), minlength=n)[sample_of]
        left_out = weights * (times_drawn == 0)
        on_drawn = goodness @ (weights * times_drawn)
        right = hits[np.argmax(on_drawn)]
        if several is not None and several[1] > 1:
            kinds, n_best, labels = several
            taken = first_of_kinds(on_drawn, list(compress(kinds, is_usable)), n_best)
            mixed = np.sum([usable[k].factor * usable[k].exponents for k in taken], axis=0)
            right = mixed.argmax(axis=1) == labels
        n_right += right @ left_out
        n_tested += left_out.sum()
    return float(n_right / n_tested) if n_tested else usable[0].mean(hits[np.argmax(goodness @ weights)])


def n_effective(weights: Array | None, n: int) -> float:
    """Return how many samples of equal weight say as much as n samples with these weights (Kish, 1965)."""
    return n if weights is None else float(weights.sum() ** 2 / (weights @ weights))


def wilson_interval(share: float, n: float) -> tuple[float, float]:
    """Return the 95 % interval of a share of n samples by Wilson. It is wide for few, even if all agree."""
    z2 = norm.ppf(0.975) ** 2
    middle, spread = share + z2 / (2 * n), (z2 * (share * (1 - share) / n + z2 / (4 * n**2))) ** 0.5
    low, high = np.clip([middle - spread, middle + spread] / (1 + z2 / n), 0, 1)
    return float(low), float(high)


def cv_interval(accuracy: float, n_tested: float, n_trained: float) -> tuple[float, float]:
    """Return the 95 % interval of an accuracy in cross-validation.

    `n_tested` samples were tested in all folds together, by models of `n_trained` samples. These share most of
    their samples, so they err together, which adds to the variance (Nadeau and Bengio, 2003).
    """
    return wilson_interval(accuracy, 1 / (1 / n_tested + 1 / n_trained))


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


def nearest_to_defaults(candidates: list[dict[str, Any]]) -> int:
    """Return the index of the first candidate with the most settings that are defaults of `LEDLClassifier`."""
    defaults = LEDLClassifier().get_params()
    nearness = []
    for one in candidates:
        usual = {**defaults, "transform_alpha": one["alpha"]}  # as None says
        nearness.append(sum(usual[name] == one[name] for name in one))
    return int(np.argmax(nearness))


def default_folds(
    y: Array, seed: int, groups: Array | None = None, weights: Array | None = None
) -> list[tuple[Array, Array]]:
    """Return five folds or fewer, with an even share of each class. A class with one sample is never left out.

    In two more folds, others stand in for such classes (`stand_in_folds`).

    There are only as many folds as leave out `HELD_OUT_SAMPLES` in all. There are none if fewer than two of the
    classes have several samples: the settings that are best on one class always answer this class. Samples of
    weight zero count for nothing, and are not tested. Groups are not supported.
    """
    if groups is not None:
        raise ValueError(
            "groups are given, but cv=None does not use groups. Set a cv that does, such as "
            "cv=sklearn.model_selection.StratifiedGroupKFold(), or leave groups out."
        )
    rng = np.random.default_rng(seed)
    counts = np.ones(len(y), bool) if weights is None else weights > 0
    members = [rng.permutation(np.flatnonzero((y == label) & counts)) for label in np.unique(y)]
    n_classes = len(members)
    members = [own for own in members if len(own) > 1]
    if len(members) < min(2, n_classes):
        return []
    n_folds = min(N_FOLDS, max(map(len, members)))
    # Classes begin at different folds, so that the folds have about the same size.
    fold_of = np.full(len(y), -1)
    first = 0
    for own in members:
        fold_of[own] = (first + np.arange(len(own))) % n_folds
        first += len(own)
    folds = [(np.flatnonzero(fold_of != i), np.flatnonzero(fold_of == i)) for i in range(n_folds)]
    n_tested = np.cumsum([len(test) for _, test in folds])
    enough = min(int(np.searchsorted(n_tested, HELD_OUT_SAMPLES)), n_folds - 1)
    n_alone = n_classes - len(members)
    if n_alone == 0:
        return folds[: enough + 1]
    rng.shuffle(members)
    return folds[: enough + 1] + stand_in_folds(members, n_alone, int(n_tested[enough]), len(y))


def stand_in_folds(members: list[Array], n_alone: int, n_tested: int, n: int) -> list[tuple[Array, Array]]:
    """Return two folds that tell how settings suit classes with one sample, of which there are `n_alone`.

    In each of them as many other classes, but at most half of them, are trained with one sample, and tested
    with some of the rest. Without these folds, settings that never answer a class with one sample would seem to
    be the best. `members` has the samples of the other classes. Beside `n_tested` tests in other folds, there
    are as many of these as the classes alone deserve if a class of m samples deserves m^1/2.
    """
    n_classes = min(n_alone, len(members) // 2)
    n_more = n_tested * n_alone / np.sqrt([len(own) for own in members]).sum()
    each = math.ceil(n_more / (2 * n_classes))
    folds = []
    for some in (members[:n_classes], members[n_classes : 2 * n_classes]):
        left_out = np.concatenate([own[1:] for own in some])
        tested = np.concatenate([own[1 : 1 + each] for own in some])
        folds.append((np.setdiff1d(np.arange(n), left_out), np.sort(tested)))
    return folds


def check_folds(folds: list[Fold], classes: Array) -> None:
    """Raise if there are no folds, or if the training samples of a fold lack a class."""
    if not folds:
        raise ValueError(
            "cv has no folds, so there is nothing to test candidates on. Give a number of 2 or more, or a list "
            "of folds. (An iterator is used up by one fit, a list is not.)"
        )
    for i, fold in enumerate(folds):
        missing = np.setdiff1d(classes, fold.y)
        if missing.size:
            raise ValueError(
                f"Fold {i} of cv leaves out all samples of the class {missing[0]}, so its models do not know "
                "the class. Give a stratified cv, or more samples of the class. cv=None never leaves out all."
            )


def log_losses(F: Array, labels: Array, factor: float, weights: Array | None = None) -> Array:
    """Return the losses of samples with exponents F, (n, c), and labels 0, ..., c - 1, which are smoothed.

    With weights, n of the smoothing is the number of samples of equal weight that say as much.
    """
    scaled = factor * np.asarray(F, dtype=np.float64)
    rest = 1 / (n_effective(weights, len(F)) + 2)
    own = np.take_along_axis(scaled, labels[:, None], axis=1)[:, 0]
    return logsumexp(scaled, axis=1) - (1 - rest) * own - rest * scaled.mean(axis=1)


def best_factor(F: Array, labels: Array, weights: Array | None = None) -> float:
    """Return the factor t with the smallest mean loss. The loss is convex in t."""
    squares = np.mean((F - F.mean(axis=1, keepdims=True)) ** 2, axis=1)
    spread = float(np.sqrt(np.average(squares, weights=weights)))
    if not spread > 0:
        return 1.0
    found = minimize_scalar(
        lambda log_factor: np.average(
            log_losses(F, labels, np.exp(log_factor) / spread, weights), weights=weights
        ),
        bounds=LOG_FACTORS,
        method="bounded",
        options={"xatol": 1e-7},
    )
    return float(np.exp(found.x)) / spread
