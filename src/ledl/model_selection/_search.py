"""Model selection as a batched solve: candidates and folds side by side."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from dataclasses import replace
from functools import cached_property, partial
from numbers import Number
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.exceptions import ConvergenceWarning, FitFailedWarning
from sklearn.metrics import check_scoring
from sklearn.model_selection import GridSearchCV, ParameterGrid, check_cv
from sklearn.utils import check_random_state, indexable
from sklearn.utils.metaestimators import _safe_split
from sklearn.utils.validation import check_consistent_length

from ledl.arrays import Array, as_array, float32_products, free_memory, is_torch, namespace, to_host
from ledl.coding import Lasso, LassoCoder, Ridge, Samples
from ledl.dictionary import FittedDictionary
from ledl.estimators import (
    CRCClassifier,
    LEDLClassifier,
    SRCClassifier,
    adopt,
    check_samples,
    coder_and_rule,
    device_of,
    fitted_attributes,
    prepare_training,
    read_atoms,
)
from ledl.parallel import n_places, one_blas_thread, run_tasks
from ledl.samples import InMemoryBlocks
from ledl.solvers.iteration import Status
from ledl.solvers.lasso import reachable
from ledl.solvers.ledl import Atoms, DualStep, solve

# Numbers in the codes of the problems that one thread of NumPy solves side by side (benchmarks/selection.py).
BATCH = 2**17
# Arrays of the size of the codes that a batch needs at most, in training and coding.
ARRAYS = 20

# Estimators with a batched solve, and the parameters of which one batch may hold several values.
WEIGHTS = {"lam": "label_weight", "omega": "code_weight", "epsilon": "alpha", "rho": "rho"}
# Those of LEDL that decide how training sees samples: problems that differ in these are of one batch if they
# have one shape.
OF_THE_SAMPLES = ("coef0", "degree", "gamma", "kernel", "n_components", "normalize")
PARAMETERS: dict[type, set[str]] = {
    LEDLClassifier: {*WEIGHTS.values(), *OF_THE_SAMPLES, "transform_alpha", "rule", "ridge_alpha"},
    SRCClassifier: {"alpha"},
    CRCClassifier: {"alpha", "rule"},
}
BATCHED = tuple(PARAMETERS)

Item = TypeVar("Item")
Result = TypeVar("Result")
# The places of a candidate and of a fold.
Job: TypeAlias = tuple[int, int]
# For each candidate a row with what there is for each fold, None where a fit broke.
Table: TypeAlias = list[list[Any]]


class Fold(NamedTuple):
    """Samples to train on, with their labels, and samples to predict."""

    X: Array
    y: Array
    X_test: Array
    y_test: Array


class Fitted(NamedTuple):
    """A candidate that was trained on a fold: its parameters and features, and what it has learnt."""

    model: Any
    attributes: dict[str, Any]
    dictionary: FittedDictionary


class Judged(ClassifierMixin, BaseEstimator):
    """A candidate whose scores for some samples are known already; for others the fitted model is asked."""

    def __init__(self, fitted: Fitted, X: Array, scores: Array) -> None:
        self.fitted, self.X, self.scores = fitted, X, scores
        self.classes_: Any = fitted.dictionary.classes

    @cached_property
    def model(self) -> Any:
        """The fitted model, with all its attributes; most scorers do without."""
        model = copy(self.fitted.model)
        adopt(model, **{**fitted_attributes(self.fitted.dictionary), **self.fitted.attributes})
        return model

    def __getattr__(self, name: str) -> Any:
        if name in ("fitted", "model"):  # not there yet: a copier asks
            raise AttributeError(name)
        return getattr(self.model, name)

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return those of the model."""
        return self.fitted.model.get_params(deep)  # type: ignore[no-any-return]

    def decision_function(self, X: Array) -> Array:
        if X is not self.X:
            return self.model.decision_function(X)
        return self.scores[:, 1] - self.scores[:, 0] if len(self.classes_) == 2 else self.scores

    def log_odds(self) -> Array:
        """Return the known scores as ones whose differences are log odds, but for a factor."""
        return self.fitted.dictionary.rule.log_odds(self.scores)

    def predict(self, X: Array) -> Array:
        return self.classes_[np.argmax(self.scores, axis=1)] if X is self.X else self.model.predict(X)


class BatchedSearchCV(GridSearchCV):
    r"""Grid search with cross-validation in which all candidates and folds are solved side by side.

    The same search as scikit-learn's `GridSearchCV` on the same folds: in float64 the same scores, and so the
    same choice. (On a device, lasso codes come from another solver than on the host, to the same tolerance: a
    sample whose label hangs on less may be judged otherwise.) What candidates share is done once for each fold
    (checks, subspace, start), and what differs by weights alone is one batched solve. It is made for a GPU,
    which many small problems fill where one does not, and runs where `estimator` says: ``device="cuda"``, or
    tensors; with NumPy it uses as many threads as ``n_jobs`` of the estimator says, or, within
    ``joblib.parallel_config(backend="dask")`` (or "loky"), the workers of the cluster (or processes).

    Parameters
    ----------
    estimator : LEDLClassifier, SRCClassifier or CRCClassifier
        At the settings that are not searched.

    param_grid : dict or list of dicts
        Names of parameters with lists of values. Those that are batched are `alpha`, `label_weight`,
        `code_weight`, `rho`, `transform_alpha`, `rule` and `ridge_alpha` of LEDL (the last three need no fits
        of their own), and, where shapes agree, its kernels with their parameters, `n_components` and
        `normalize`; `alpha` of SRC, `alpha` and `rule` of CRC. Others may be searched too, one batch for each
        of their values.

    scoring : str or callable, default=None
        As in `GridSearchCV`, but one metric. None: the accuracy. A callable gets the fitted model, without its
        `history_` and `training_codes_`.

    cv : int, cross-validation generator or iterable, default=None
        As in `GridSearchCV`. None: five folds, stratified.

    refit : bool, default=True
        Fit the best candidate on all samples, as `best_estimator_`.

    Attributes
    ----------
    cv_results_ : dict of arrays
        As in `GridSearchCV`: ``params``, ``param_...``, ``split0_test_score``, ..., ``mean_test_score``,
        ``std_test_score``, ``rank_test_score``; ``mean_fit_time`` and ``mean_score_time`` are a fit's share of
        its batch.

    best_params_ : dict
        The candidate with the best mean score; of several the first.

    best_score_ : float
        Its mean score.

    best_index_ : int
        Its place in `cv_results_`.

    best_estimator_ : estimator
        It, fitted on all samples. Only if `refit`; the search itself then predicts with it.

    n_splits_ : int
        Number of folds.

    refit_time_ : float
        Seconds of the last fit. Only if `refit`.

    scorer_ : callable
        What `scoring` stands for.

    See Also
    --------
    sklearn.model_selection.GridSearchCV : For any estimator, pipelines among them.

    Notes
    -----
    A fit that fails has the score NaN, and a warning says why; if all do, that is an error. With
    ``random_state=None`` all candidates of a fold start at the same atoms.

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

    def fit(self, X: Array, y: Array, *, groups: Array | None = None) -> BatchedSearchCV:
        """Score all candidates on all folds, and fit the best.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples; tensors are worked on where they lie.
        y : array-like of shape (n_samples,)
            Their labels.
        groups : array-like of shape (n_samples,), default=None
            For cross-validation generators that want them.

        Returns
        -------
        self : BatchedSearchCV
        """
        check_batched(self.estimator, self.scoring, self.refit)
        self._validate_params()
        scorer = check_scoring(self.estimator, scoring=self.scoring)
        candidates = list(ParameterGrid(self.param_grid))
        models = [clone(self.estimator).set_params(**clone(candidate, safe=False)) for candidate in candidates]
        for model in models:
            model._validate_params()
        folds = list(split(self.estimator, X, y, self.cv, groups))
        if not models or not folds:
            raise ValueError(
                f"There is nothing to fit: {len(models)} candidates in param_grid and {len(folds)} folds in cv."
            )
        started = time.perf_counter()
        judged = judge(models, candidates, folds)
        fitted = time.perf_counter()
        scores = np.array([[score(scorer, *one) for one in zip(row, folds, strict=True)] for row in judged])
        fit_time, score_time = (fitted - started) / scores.size, (time.perf_counter() - fitted) / scores.size
        times = {"fit_time": fit_time, "score_time": score_time}
        self.n_splits_, self.scorer_, self.multimetric_ = len(folds), scorer, False
        with warnings.catch_warnings():
            warnings.filterwarnings(
                "ignore", "One or more of the test scores"
            )  # which were warned of, with reasons
            found = [{"test_scores": score, **times} for score in scores.ravel()]
            self.cv_results_ = self._format_results(candidates, len(folds), found)
        self.best_index_ = int(self.cv_results_["rank_test_score"].argmin())
        self.best_score_ = float(self.cv_results_["mean_test_score"][self.best_index_])
        self.best_params_ = candidates[self.best_index_]
        if self.refit:
            started = time.perf_counter()
            best = clone(self.estimator).set_params(**clone(self.best_params_, safe=False))
            self.best_estimator_ = best.fit(X, y)
            self.refit_time_ = time.perf_counter() - started
            if hasattr(best, "feature_names_in_"):
                self.feature_names_in_ = best.feature_names_in_
        return self


def check_batched(estimator: Any, scoring: Any, refit: Any) -> None:
    """Raise for what there is no batched solve for: a class derived from ours, too, may differ in anything."""
    if type(estimator) not in BATCHED:
        names = ", ".join(kind.__name__ for kind in BATCHED)
        raise TypeError(
            f"BatchedSearchCV has batched solves for {names}, but estimator is a {type(estimator).__name__}. "
            "Use sklearn.model_selection.GridSearchCV, which takes any estimator."
        )
    if getattr(estimator, "checkpoint", None) is not None:
        raise ValueError(
            f"checkpoint={estimator.checkpoint!r} is the file of one fit, but a search has many. Set "
            "checkpoint=None."
        )
    if not isinstance(refit, bool | np.bool_):
        raise ValueError(
            f"refit={refit!r} must be True or False; sklearn.model_selection.GridSearchCV has more."
        )
    if isinstance(scoring, list | tuple | set | dict):
        raise ValueError(
            f"scoring={scoring!r} has several metrics, but BatchedSearchCV has one. Give one, or use "
            "sklearn.model_selection.GridSearchCV."
        )


def split(estimator: Any, X: Array, y: Array, cv: Any, groups: Array | None) -> Iterator[Fold]:
    """Yield the folds; of a precomputed kernel the columns of the training samples."""
    if y is None:
        raise ValueError("BatchedSearchCV requires y to be passed, but the target y is None.")
    y = to_host(y) if is_torch(y) else y
    cv = check_cv(cv, y, classifier=True)
    if is_torch(X):
        X = check_samples(clone(estimator), X, reset=True)
        check_consistent_length(X, y)
        pairwise = estimator.__sklearn_tags__().input_tags.pairwise
        for train, test in cv.split(to_host(X), y, groups):
            columns = train if pairwise else slice(None)
            parts = (X[train][:, columns], np.asarray(y)[train], X[test][:, columns], np.asarray(y)[test])
            yield Fold(*parts)
        return
    X, y, groups = indexable(X, y, groups)
    for train, test in cv.split(X, y, groups):
        yield Fold(*_safe_split(estimator, X, y, train), *_safe_split(estimator, X, y, test, train))


def score(scorer: Callable[..., Any], judged: Judged | None, fold: Fold) -> float:
    """Return the score of a model on the samples left out; NaN for one that failed."""
    if judged is None:
        return float("nan")
    found = scorer(judged, fold.X_test, fold.y_test)
    if not isinstance(found, Number) or isinstance(found, bool):
        raise ValueError(f"scoring must give a number, but gave {found!r}, a {type(found).__name__}.")
    return float(found)  # type: ignore[arg-type]


def judge(models: list[Any], candidates: list[dict[str, Any]], folds: list[Fold]) -> Table:
    """Return for each candidate and fold the fitted model with its scores of the samples left out."""
    kind = type(models[0])
    train = train_ledl if kind is LEDLClassifier else train_on_samples

    def not_batched(k: int) -> tuple[Any, ...]:
        names = sorted(candidates[k].keys() - PARAMETERS[kind])
        return tuple((name, plain(candidates[k][name])) for name in names)

    judged: Table = [[] for _ in models]
    errors: list[str] = []
    for group in grouped(range(len(models)), not_batched):
        trained = train([models[k] for k in group], folds, errors)
        for k, row in zip(group, score_all(trained, folds, errors, models[0].n_jobs), strict=True):
            judged[k] = row
    n_fits, broken = len(models) * len(folds), sum(one is None for row in judged for one in row)
    if broken:
        reasons = " ".join(dict.fromkeys(errors))
        if broken == n_fits:
            raise ValueError(f"All {n_fits} fits failed: {reasons}")
        text = f"{broken} of {n_fits} fits failed, and have the score NaN: {reasons}"
        warnings.warn(text, FitFailedWarning, stacklevel=3)
    return judged


def train_ledl(models: list[Any], folds: list[Fold], errors: list[str]) -> Table:
    """Train LEDL at several weights: one batched solve for the folds, and kernels, that have one shape."""
    prepared, trainings = prepare(models, folds, errors)
    trained: Table = [[None] * len(folds) for _ in models]

    def training_of(k: int) -> tuple[Any, ...]:
        return (id(prepared[k]), *(getattr(models[k], name) for name in WEIGHTS.values()))

    def shape_of(job: Job) -> tuple[int, ...]:
        training = trainings[job[0]][job[1]]
        return (*training.coordinates.shape, *training.start.M.shape)

    def task(batch: list[Job]) -> tuple[list[Any], list[Any]]:
        # Coordinates are all that a solve needs: the space that they are in need not travel with them.
        return [models[k] for k, _ in batch], [trainings[k][i]._replace(space=None) for k, i in batch]

    # Candidates that differ in how they code and decide alone have one training.
    alike = {same[0]: same for same in grouped(range(len(models)), training_of)}
    jobs = [(k, i) for i in range(len(folds)) for k in alike if trainings[k][i] is not None]
    late = 0
    for same in grouped(jobs, shape_of):
        n, _, K, q = shape_of(same[0])
        like = trainings[same[0][0]][same[0][1]].coordinates
        size = (n + K) * max(K, q)
        for batch, (fits, wrong) in in_batches(solve_or_blame, task, same, like, size, models[0].n_jobs):
            errors += wrong
            for (k, i), fit in zip(batch, fits, strict=True):
                if fit is not None and fit.status is Status.NON_FINITE:
                    errors.append(f"{fit.status.advice()}.")
                elif fit is not None:
                    late += fit.status is Status.MAX_ITER
                    dictionary, learnt = read_atoms(prepared[k][i], trainings[k][i], fit.atoms)
                    for twin in alike[k]:
                        model = with_features_of(prepared[k][i], models[twin])
                        coder, rule = coder_and_rule(model, learnt["label_components_"])
                        own = replace(dictionary, coder=coder, rule=rule)
                        trained[twin][i] = Fitted(model, {"n_iter_": fit.n_iter, **learnt}, own)
    if late and models[0].tol > 0:
        advice = Status.MAX_ITER.advice(tol=models[0].tol, max_iter=models[0].max_iter)
        count = f"{late} of {len(alike) * len(folds)} fits"
        warnings.warn(f"{count} did not converge: {advice}.", ConvergenceWarning, stacklevel=4)
    return trained


def prepare(models: list[Any], folds: list[Fold], errors: list[str]) -> tuple[Table, Table]:
    """Return for each candidate and fold a model that has checked the samples, and what training starts from.

    Candidates that see samples alike share their rows of both.
    """
    prepared: Table = [[] for _ in models]
    trainings: Table = [[] for _ in models]

    def seen(k: int) -> tuple[Any, ...]:
        return tuple(plain(getattr(models[k], name)) for name in OF_THE_SAMPLES)

    # Starts are drawn once for each fold.
    seeds = check_random_state(None).randint(np.iinfo(np.int32).max, size=len(folds)).tolist()
    for same in grouped(range(len(models)), seen):
        checked = [clone(models[same[0]]) for _ in folds]
        found = []
        for model, seed, fold in zip(checked, seeds, folds, strict=True):
            model.random_state = seed if model.random_state is None else model.random_state
            found.append(attempt(partial(prepare_training, model, fold.X, fold.y), errors))
        for k in same:
            prepared[k], trainings[k] = checked, found
    return prepared, trainings


def plain(value: Any) -> Any:
    """Return a hashable key of a parameter's value; arrays and the like by identity."""
    return value if isinstance(value, str | float | int | bool | None) else id(value)


def attempt(work: Callable[[], Result], errors: list[str]) -> Result | None:
    """Return what `work` gives, or None with what was wrong with its data or settings among the errors."""
    try:
        return work()
    except ValueError as error:
        errors.append(str(error))
        return None


def with_features_of(checked: Any, model: Any) -> Any:
    """Return a copy of `model` that knows the features of a model that has checked samples."""
    found = clone(model).set_params(n_jobs=1)
    names = vars(checked).keys() & {"n_features_in_", "feature_names_in_"}
    vars(found).update({name: vars(checked)[name] for name in names})
    return found


class Fit(NamedTuple):
    """What a batched solve gives for one fit."""

    atoms: Atoms
    n_iter: int
    status: Status


def solve_or_blame(models: list[Any], problems: list[Any]) -> tuple[list[Fit | None], list[str]]:
    """Return the fits of a batched solve, None for those that break, and what was wrong with them."""
    errors: list[str] = []
    fits = attempt(partial(solve_batch, models, problems), errors)
    if fits is None and len(models) > 1:  # find out whose fault it is
        alone = [solve_or_blame([model], [problem]) for model, problem in zip(models, problems, strict=True)]
        return [fits[0] for fits, _ in alone], [text for _, wrong in alone for text in wrong]
    return fits or [None], errors


def solve_batch(models: list[Any], trainings: list[Any]) -> list[Fit | None]:
    """Return the fits of Algorithm 3 on many problems of one shape, each with its weights."""
    first, stack = models[0], namespace(trainings[0].coordinates).stack
    X, M = stack([t.coordinates for t in trainings]), stack([t.start.M for t in trainings])
    weights: dict[str, Any] = {
        name: np.array([getattr(model, parameter) for model in models])[:, None, None]
        for name, parameter in WEIGHTS.items()
    }
    with one_blas_thread(), float32_products(first.precision, device_of(X, first.device)):
        run = solve(
            InMemoryBlocks(X, as_array(np.stack([t.labels for t in trainings]), X)),
            Atoms(M, trainings[0].start.n_classes),
            code_scale=np.sqrt([np.bincount(t.atom_labels) for t in trainings]),
            **weights,
            dual_step=DualStep(first.dual_step, first.dual_step_decay, first.dual_step_min),
            max_iter=first.max_iter,
            tol=first.tol,
        )
    c = run.state.n_classes
    return [Fit(Atoms(run.state.M[j], c), int(run.n_iter[j]), run.status[j]) for j in range(len(models))]


def train_on_samples(models: list[Any], folds: list[Fold], errors: list[str]) -> Table:
    """Fit SRC or CRC: the samples are the atoms, so that a fold is fitted once for all settings."""
    easiest = max(models, key=lambda model: model.alpha)
    trained: Table = [[None] * len(folds) for _ in models]
    for i, fold in enumerate(folds):
        first = attempt(partial(clone(easiest).fit, fold.X, fold.y), errors)
        if first is None:
            continue
        for model, row in zip(models, trained, strict=True):
            own = with_features_of(first, model)
            # The alpha of CRC is one of its fit.
            change = {"coder": Ridge(model.alpha)} if isinstance(model, CRCClassifier) else {}
            adopt(own, **fitted_attributes(replace(first.dictionary_, **change)))
            row[i] = Fitted(own, {}, own.dictionary_)
    return trained


class View(NamedTuple):
    """Samples as the models of a fold see them: in their coordinates."""

    samples: Samples
    X: Array
    sq_norms: Array


def score_all(trained: Table, folds: list[Fold], errors: list[str], n_jobs: int | None) -> Table:
    """Return the models with their scores of the test samples; None for those that cannot score at their
    settings.
    """
    judged: Table = [[None] * len(folds) for _ in trained]
    jobs = [(k, i) for i in range(len(folds)) for k, row in enumerate(trained) if row[i] is not None]
    views: dict[int, View] = {}  # by the space that samples are seen in
    for k, i in jobs:
        fitted: Fitted = trained[k][i]
        space = fitted.dictionary.space
        if id(space) not in views:
            X = check_samples(fitted.model, folds[i].X_test)
            samples = Samples(X, fitted.model.device, fitted.dictionary.unit_norm)
            Y = samples[:]
            views[id(space)] = View(samples, space.reduce(Y), space.squared_norms(Y))

    def kind(job: Job) -> tuple[Any, ...]:
        """Return what models of one batch agree in: the shape of atoms, and what codes their rules take."""
        dictionary = trained[job[0]][job[1]].dictionary
        return dictionary.atoms.shape, isinstance(dictionary.rule.coder or dictionary.coder, Lasso)

    def task(batch: list[Job]) -> tuple[list[FittedDictionary], list[View]]:
        dictionaries = [trained[k][i].dictionary for k, i in batch]
        return dictionaries, [views[id(dictionary.space)] for dictionary in dictionaries]

    late = 0
    for same in grouped(jobs, kind):
        first = task(same)
        n, (K, r) = max(len(view.X) for view in first[1]), first[0][0].atoms.shape
        like, size = first[1][0].X, (n + K) * max(K, r)
        for batch, (scores, n_late, wrong) in in_batches(scores_of, task, same, like, size, n_jobs):
            late += n_late
            errors += wrong
            for (k, i), found in zip(batch, scores, strict=True):
                judged[k][i] = None if found is None else Judged(trained[k][i], folds[i].X_test, found)
    if late:
        warnings.warn(
            f"{late} codes of test samples did not reach the duality gap asked for. Raise transform_tol or "
            "alpha.",
            ConvergenceWarning,
            stacklevel=5,
        )
    return judged


def scores_of(
    dictionaries: list[FittedDictionary], views: list[View]
) -> tuple[list[Array | None], int, list[str]]:
    """Return scores, on the host, or None; how many codes missed their gap; what was wrong with settings."""
    errors: list[str] = []
    settings = [one.rule.coder or one.coder for one in dictionaries]
    with one_blas_thread(), float32_products("full", views[0].samples.where):
        if is_torch(views[0].X) and isinstance(settings[0], Lasso):
            codes, late = batched_codes(dictionaries, views)
        else:
            codes, late = [], 0
            for one, how, view in zip(dictionaries, settings, views, strict=True):
                prepare_coder = partial(how.prepare, one.atoms, view.samples, one.space, 1, one.kept)
                coder = attempt(prepare_coder, errors)
                if coder is None:
                    codes.append(None)
                    continue
                S, _, _, converged = coder(view.X, view.sq_norms)
                codes.append(namespace(S).astype(S, view.X.dtype, copy=False))
                late += int(np.count_nonzero(~converged))
        scores: list[Array | None] = []
        for one, S, view in zip(dictionaries, codes, views, strict=True):
            scores.append(None if S is None else to_host(one.rule.scores(one, S, view.X, view.sq_norms)))
    for one in dictionaries:
        one.kept.clear()  # Gram matrices of all candidates would be too much
    return scores, late, errors


def batched_codes(dictionaries: list[FittedDictionary], views: list[View]) -> tuple[list[Any], int]:
    """Return lasso codes over atoms of one shape, at once, and how many missed their gap.

    Folds are filled up with zero samples: no work.
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


def grouped(items: Iterable[Item], key: Callable[[Item], Any]) -> list[list[Item]]:
    """Return those with equal keys together, in their order."""
    groups: dict[Any, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return list(groups.values())


def in_batches(
    work: Callable[..., Result],
    task: Callable[[list[Job]], tuple[Any, ...]],
    jobs: list[Job],
    like: Array,
    n_numbers: int,
    n_jobs: int | None,
) -> list[tuple[list[Job], Result]]:
    """Return batches of jobs, sized for where `like` is, and what `work` gives for the task that each of them
    is.

    `n_numbers`: in the largest arrays of a job. A device has one batch at a time.
    """
    n_jobs = 1 if is_torch(like) else n_jobs
    # A part of the memory that is free: other processes may be searching, too.
    most = free_memory(like) // (4 * 8 * ARRAYS) if is_torch(like) else BATCH
    size = min(max(most // n_numbers, 1), -(-len(jobs) // n_places(n_jobs)))
    batches = [jobs[i : i + size] for i in range(0, len(jobs), size)]
    return list(zip(batches, run_tasks(work, [task(batch) for batch in batches], n_jobs), strict=True))
