"""Search grids for LEDL, SRC and CRC: many candidates and folds as one batched solve."""

from __future__ import annotations

import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property, partial
from numbers import Number
from typing import Any, NamedTuple, Self, TypeAlias, TypeVar

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin, clone
from sklearn.exceptions import ConvergenceWarning, FitFailedWarning
from sklearn.metrics import check_scoring
from sklearn.model_selection import GridSearchCV, ParameterGrid, check_cv
from sklearn.utils import assert_all_finite, check_random_state, gen_batches, get_tags, indexable
from sklearn.utils._set_output import _safe_set_output
from sklearn.utils.metaestimators import _safe_split
from sklearn.utils.validation import _check_method_params, check_consistent_length

from ledl.arrays import Array, as_array, float32_products, free_memory, is_torch, namespace, to_host
from ledl.coding import Lasso, LassoCoder, Ridge, Samples, chunk_size
from ledl.dictionary import FittedDictionary
from ledl.estimators import (
    CRCClassifier,
    DocumentedMixin,
    LEDLClassifier,
    SRCClassifier,
    Tasks,
    adopt,
    check_samples,
    coder_and_rule,
    device_of,
    fitted_attributes,
    prepare_training,
    read_atoms,
    view_of,
    with_callbacks,
)
from ledl.parallel import n_places, one_blas_thread, run_tasks
from ledl.samples import InMemoryBlocks
from ledl.solvers.iteration import Status
from ledl.solvers.lasso import reachable
from ledl.solvers.ledl import Atoms, DualStep, solve

# How many numbers the codes of a batch have, which one thread of NumPy solves at once
# (benchmarks/selection.py).
BATCH = 2**17
# Batches for each worker before all wait until their candidates are scored.
ROUNDS = 4

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

# Entries of such a table, by the numbers of candidate and fold.
Entries: TypeAlias = dict[tuple[int, int], Any]


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
    is raised. With ``random_state=None`` all candidates of a fold start at the same atoms. All folds are in
    memory at once, with a basis for each fold and kernel where features outnumber samples: with five folds and
    three kernels 18 times the samples. There GridSearchCV, which takes one after the other, needs 4 times. Of
    the models, those of the last batches are in memory, one or two for each thread, however many candidates
    there are; a batch on a device is as large as its memory allows.

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
        if getattr(scorer, "_response_method", None) == "predict_proba":
            raise ValueError(
                f"scoring={self.scoring!r} needs probabilities, which {type(self.estimator).__name__} does not "
                "give. Use a metric of labels or scores, such as 'accuracy', or LEDLClassifierCV, which has "
                "probabilities and chooses by log loss."
            )
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
        judged = judge(
            models, candidates, [folds] * len(models), tasks, partial(timed_score, scorer, folds, scored)
        )
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
    folds_of: list[list[Fold]],
    told: Tasks = QUIET,
    finish: Callable[[Candidate, int], Any] | None = None,
) -> Table:
    """Return a `Candidate` for each candidate and fold, with its scores of the test samples.

    Or what `finish` makes of it and the number of the fold: all scores together may need much memory. Models
    may see the same folds in other coordinates, so each has its own in `folds_of`.
    """
    kind = type(models[0])
    groups: dict[Any, list[int]] = {}  # candidates that differ in batched parameters alone
    for k, candidate in enumerate(candidates):
        others = [(name, candidate[name]) for name in sorted(candidate.keys() - PARAMETERS[kind])]
        # Arrays and the like are compared by identity.
        key = tuple((name, v if isinstance(v, str | float | int | None) else id(v)) for name, v in others)
        groups.setdefault(key, []).append(k)
    judged: Table = [[None] * len(folds_of[0]) for _ in models]
    errors: list[str] = []
    late = 0
    for group in groups.values():
        train = train_ledl if kind is LEDLClassifier else train_on_samples
        own_folds = [folds_of[k] for k in group]
        views: dict[int, View] = {}  # by the space of the coordinates, all of which `train` holds until it ends
        for trained in train([models[k] for k in group], own_folds, errors, told):
            scored, n_late = score_all(trained, own_folds, views, errors, models[0].n_jobs, finish)
            late += n_late
            for (k, i), one in scored.items():
                judged[group[k]][i] = one
    if late:
        warnings.warn(
            f"{late} codes of test samples did not reach the requested duality gap. Raise transform_tol or "
            "alpha.",
            ConvergenceWarning,
            stacklevel=4,
        )
    n_fits, broken = len(models) * len(folds_of[0]), sum(one is None for row in judged for one in row)
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


def train_ledl(
    models: list[Any], folds_of: list[list[Fold]], errors: list[str], told: Tasks
) -> Iterator[Entries]:
    """Train LEDL at several weights. Folds and kernels that have the same shape share one batched solve.

    Yield the candidates of some batches at a time, because the models of all need much memory.
    """
    # Candidates that see the samples in the same way share a row of models, which have checked the samples, and
    # of trainings. Those of them that differ only in how they code and decide share one fit.
    n_folds = len(folds_of[0])
    seeds = check_random_state(None).randint(np.iinfo(np.int32).max, size=n_folds).tolist()
    rows: dict[Any, list[tuple[Any, Any]]] = {}
    alike: dict[Any, list[int]] = {}
    for k, (model, folds) in enumerate(zip(models, folds_of, strict=True)):
        seen = (id(folds), *(getattr(model, name) for name in OF_THE_SAMPLES))
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
    for i in range(n_folds):
        for key in alike:
            training = rows[key[0]][i][1]
            if training is not None:
                shapes.setdefault((*training.coordinates.shape, *training.start.M.shape), []).append((key, i))
    late = 0
    for (n, _, K, q), jobs in shapes.items():
        like = rows[jobs[0][0][0]][jobs[0][1]][1].coordinates
        n_jobs = 1 if is_torch(like) else models[0].n_jobs  # one batch at a time on a device
        batches = in_batches(jobs, (n + K) * max(K, q), like, n_jobs)
        n_parallel = n_places(n_jobs)
        for some in gen_batches(len(batches), n_parallel * (ROUNDS if n_parallel > 1 else 1)):
            # A solve needs the coordinates alone, so their space is not sent to workers.
            tasks = [
                (
                    [models[alike[key][0]] for key, _ in batch],
                    [rows[key[0]][i][1]._replace(space=None) for key, i in batch],
                )
                for batch in batches[some]
            ]
            trained: Entries = {}
            for batch, (fits, wrong) in zip(batches[some], run_tasks(solve_batch, tasks, n_jobs), strict=True):
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
                        trained[twin, i] = Candidate(model, {"n_iter_": n_iter, **learnt}, own)
            yield trained
    if late and models[0].tol > 0:
        advice = Status.MAX_ITER.advice(tol=models[0].tol, max_iter=models[0].max_iter)
        text = f"{late} of {len(alike) * n_folds} fits did not converge: {advice}."
        warnings.warn(text, ConvergenceWarning, stacklevel=5)


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


def train_on_samples(
    models: list[Any], folds_of: list[list[Fold]], errors: list[str], told: Tasks
) -> Iterator[Entries]:
    """Fit SRC or CRC, and yield all candidates. The samples are the atoms: all settings share a fit."""
    easiest = max(models, key=lambda model: model.alpha)
    trained: Entries = {}
    for i, fold in enumerate(folds_of[0]):
        weights = {} if fold.weights is None else {"sample_weight": fold.weights}
        first = attempt(errors, partial(clone(easiest).fit, **weights), fold.X, fold.y)
        told.count(len(models))
        if first is None:
            continue
        for k, model in enumerate(models):
            own = with_features_of(first, model)
            # CRC keeps the alpha of its fit.
            change = {"coder": Ridge(model.alpha)} if isinstance(model, CRCClassifier) else {}
            own._dictionary = replace(first.dictionary_, **change)  # its atoms as features are made if needed
            trained[k, i] = Candidate(own, {}, own.dictionary_)
    yield trained


def score_all(
    trained: Entries,
    folds_of: list[list[Fold]],
    views: dict[int, View],
    errors: list[str],
    n_jobs: int | None,
    finish: Callable[[Candidate, int], Any] | None,
) -> tuple[Entries, int]:
    """Return what `judge` does of those that can score, and the number of codes that missed their gap.

    `views` keeps the test samples, by the space of their coordinates.
    """
    judged: Entries = {}
    alike: dict[Any, list[tuple[int, int]]] = {}  # by the shape of the atoms, and the kind of codes
    for (k, i), candidate in trained.items():
        model, one = candidate.unfitted, candidate.dictionary
        if id(one.space) not in views:
            samples = Samples(check_samples(model, folds_of[k][i].X_test), model.device, one.features)
            Y = samples[:]
            views[id(one.space)] = View(samples, one.space.reduce(Y), one.space.squared_norms(Y))
        is_lasso = isinstance(one.rule.coder or one.coder, Lasso)
        alike.setdefault((one.atoms.shape, is_lasso), []).append((k, i))
    late = 0
    for ((K, r), _), jobs in alike.items():
        dictionaries = [trained[job].dictionary for job in jobs]
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
                    one = replace(trained[k, i], X=folds_of[k][i].X_test, scores=found)
                    judged[k, i] = one if finish is None else finish(one, i)
    return judged, late


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
