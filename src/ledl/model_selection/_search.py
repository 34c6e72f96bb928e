"""Model selection as a batched solve: candidates and folds side by side."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
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


class View(NamedTuple):
    """Samples as the models of a fold see them: in their coordinates."""

    samples: Samples
    X: Array
    sq_norms: Array


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
    groups: dict[Any, list[int]] = {}  # candidates that differ in nothing but what is batched
    for k, candidate in enumerate(candidates):
        names = sorted(candidate.keys() - PARAMETERS[kind])
        groups.setdefault(tuple((name, plain(candidate[name])) for name in names), []).append(k)
    judged: Table = [[] for _ in models]
    errors: list[str] = []
    for group in groups.values():
        train = train_ledl if kind is LEDLClassifier else train_on_samples
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


def plain(value: Any) -> Any:
    """Return a hashable key of a parameter's value; arrays and the like by identity."""
    return value if isinstance(value, str | float | int | bool | None) else id(value)


def attempt(errors: list[str], work: Callable[..., Result], *arguments: Any) -> Result | None:
    """Return what `work` gives, or None with what was wrong with its data or settings among the errors."""
    try:
        return work(*arguments)
    except ValueError as error:
        errors.append(str(error))
        return None


def train_ledl(models: list[Any], folds: list[Fold], errors: list[str]) -> Table:
    """Train LEDL at several weights: one batched solve for the folds, and kernels, that have one shape."""
    # Candidates that see samples alike share a row of models that have checked the samples, and of what
    # training starts from; of them, those that differ in how they code and decide alone have one training.
    seeds = check_random_state(None).randint(np.iinfo(np.int32).max, size=len(folds)).tolist()
    rows: dict[Any, list[tuple[Any, Any]]] = {}
    alike: dict[Any, list[int]] = {}
    for k, model in enumerate(models):
        seen = tuple(plain(getattr(model, name)) for name in OF_THE_SAMPLES)
        if seen not in rows:
            checked = [clone(model) for _ in folds]
            for one, seed in zip(checked, seeds, strict=True):  # starts are drawn once for each fold
                one.random_state = seed if one.random_state is None else one.random_state
            pairs = zip(checked, folds, strict=True)
            rows[seen] = [(one, attempt(errors, prepare_training, one, f.X, f.y)) for one, f in pairs]
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
        n_jobs = 1 if is_torch(like) else models[0].n_jobs  # a device has one batch at a time
        batches = in_batches(jobs, (n + K) * max(K, q), like, n_jobs)
        # Coordinates are all that a solve needs: the space that they are in need not travel with them.
        tasks = [
            (
                [models[alike[key][0]] for key, _ in batch],
                [rows[key[0]][i][1]._replace(space=None) for key, i in batch],
            )
            for batch in batches
        ]
        for batch, (fits, wrong) in zip(batches, run_tasks(solve_or_blame, tasks, n_jobs), strict=True):
            errors += wrong
            for (key, i), fit in zip(batch, fits, strict=True):
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
                    trained[twin][i] = Fitted(model, {"n_iter_": n_iter, **learnt}, own)
    if late and models[0].tol > 0:
        advice = Status.MAX_ITER.advice(tol=models[0].tol, max_iter=models[0].max_iter)
        count = f"{late} of {len(alike) * len(folds)} fits"
        warnings.warn(f"{count} did not converge: {advice}.", ConvergenceWarning, stacklevel=4)
    return trained


def with_features_of(checked: Any, model: Any) -> Any:
    """Return a copy of `model` that knows the features of a model that has checked samples."""
    found = clone(model).set_params(n_jobs=1)
    for name in ("n_features_in_", "feature_names_in_"):
        if hasattr(checked, name):
            setattr(found, name, getattr(checked, name))
    return found


def solve_or_blame(models: list[Any], trainings: list[Any]) -> tuple[list[Any], list[str]]:
    """Return atoms, iterations and status of each problem, None for those that break, and the reasons."""
    errors: list[str] = []
    fits = attempt(errors, solve_batch, models, trainings)
    if fits is None and len(models) > 1:  # find out whose fault it is
        alone = [solve_or_blame([model], [problem]) for model, problem in zip(models, trainings, strict=True)]
        return [fits[0] for fits, _ in alone], [text for _, wrong in alone for text in wrong]
    return fits or [None], errors


def solve_batch(models: list[Any], trainings: list[Any]) -> list[Any]:
    """Run Algorithm 3 on many problems of one shape, each with its weights."""
    first, xp, c = models[0], namespace(trainings[0].coordinates), trainings[0].start.n_classes
    X, M = xp.stack([t.coordinates for t in trainings]), xp.stack([t.start.M for t in trainings])
    weights = np.array([[getattr(model, name) for model in models] for name in WEIGHTS.values()])
    with one_blas_thread(), float32_products(first.precision, device_of(X, first.device)):
        run = solve(
            InMemoryBlocks(X, as_array(np.stack([t.labels for t in trainings]), X)),
            Atoms(M, c),
            code_scale=np.sqrt([np.bincount(t.atom_labels) for t in trainings]),
            **dict(zip(WEIGHTS, weights[..., None, None], strict=True)),
            dual_step=DualStep(first.dual_step, first.dual_step_decay, first.dual_step_min),
            max_iter=first.max_iter,
            tol=first.tol,
        )
    return [(Atoms(run.state.M[j], c), int(run.n_iter[j]), run.status[j]) for j in range(len(models))]


def train_on_samples(models: list[Any], folds: list[Fold], errors: list[str]) -> Table:
    """Fit SRC or CRC: the samples are the atoms, so that a fold is fitted once for all settings."""
    easiest = max(models, key=lambda model: model.alpha)
    trained: Table = [[None] * len(folds) for _ in models]
    for i, fold in enumerate(folds):
        first = attempt(errors, clone(easiest).fit, fold.X, fold.y)
        if first is None:
            continue
        for model, row in zip(models, trained, strict=True):
            own = with_features_of(first, model)
            # The alpha of CRC is one of its fit.
            change = {"coder": Ridge(model.alpha)} if isinstance(model, CRCClassifier) else {}
            adopt(own, **fitted_attributes(replace(first.dictionary_, **change)))
            row[i] = Fitted(own, {}, own.dictionary_)
    return trained


def score_all(trained: Table, folds: list[Fold], errors: list[str], n_jobs: int | None) -> Table:
    """Return the models with their scores of the test samples; None for those that cannot score."""
    judged: Table = [[None] * len(folds) for _ in trained]
    views: dict[int, View] = {}  # of the test samples, by the space that they are seen in
    alike: dict[Any, list[tuple[int, int]]] = {}  # by the shape of atoms, and what codes rules take
    for i, fold in enumerate(folds):
        for k, row in enumerate(trained):
            if row[i] is None:
                continue
            model, _, one = row[i]
            if id(one.space) not in views:
                samples = Samples(check_samples(model, fold.X_test), model.device, one.unit_norm)
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
    codes: list[Any] = []
    late = 0
    with one_blas_thread(), float32_products("full", views[0].samples.where):
        if is_torch(views[0].X) and isinstance(settings[0], Lasso):
            codes, late = batched_codes(dictionaries, views)
        else:
            for one, how, view in zip(dictionaries, settings, views, strict=True):
                coder = attempt(errors, how.prepare, one.atoms, view.samples, one.space, 1, one.kept)
                if coder is None:
                    codes.append(None)
                    continue
                S, _, _, converged = coder(view.X, view.sq_norms)
                codes.append(namespace(S).astype(S, view.X.dtype, copy=False))
                late += int(np.count_nonzero(~converged))
        scores = [
            None if S is None else to_host(one.rule.scores(one, S, view.X, view.sq_norms))
            for one, S, view in zip(dictionaries, codes, views, strict=True)
        ]
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


def in_batches(jobs: Sequence[Item], n_numbers: int, like: Array, n_jobs: int | None) -> list[Sequence[Item]]:
    """Return the jobs in batches, sized for where `like` is; `n_numbers` are in the largest arrays of a job."""
    # A part of the memory that is free: other processes may be searching, too.
    most = free_memory(like) // (4 * 8 * ARRAYS) if is_torch(like) else BATCH
    size = min(max(most // n_numbers, 1), -(-len(jobs) // n_places(n_jobs)))
    return [jobs[i : i + size] for i in range(0, len(jobs), size)]
