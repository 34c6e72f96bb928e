"""Model selection as a batched solve: candidates and folds side by side."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from numbers import Number
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
from scipy.stats import rankdata
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.exceptions import ConvergenceWarning, FitFailedWarning
from sklearn.metrics import check_scoring
from sklearn.model_selection import GridSearchCV, ParameterGrid, check_cv
from sklearn.utils import check_random_state, indexable
from sklearn.utils.metaestimators import _safe_split
from sklearn.utils.validation import check_consistent_length

from ledl.arrays import Array, as_array, float32_products, free_memory, is_torch, namespace, place, to_host
from ledl.coding import BatchedLassoCoder, RidgeCoder, Samples
from ledl.estimators import CRCClassifier, LEDLClassifier, SRCClassifier
from ledl.estimators._base import LassoCodes, with_components
from ledl.estimators._starts import n_starts_of, starts_of
from ledl.parallel import n_places, one_blas_thread, run_tasks
from ledl.samples import InMemoryBlocks
from ledl.solvers.iteration import Status
from ledl.solvers.lasso import reachable
from ledl.solvers.ledl import Atoms, solve

# Numbers in the codes of the problems that one thread of NumPy solves side by side (benchmarks/selection.py).
BATCH = 2**17
# Arrays of the size of the codes that a batch needs at most, in training and coding.
ARRAYS = 20

Item = TypeVar("Item")
Result = TypeVar("Result")
# The places of a candidate and of a fold.
Job: TypeAlias = tuple[int, int]
# For each candidate a row with what there is for each fold: fitted models, or those with their scores.
Table: TypeAlias = list[list[Any]]


class Fold(NamedTuple):
    """Samples to train on, with their labels, and samples to predict."""

    X: Array
    y: Array
    X_test: Array
    y_test: Array


class Judged(ClassifierMixin, BaseEstimator):
    """A fitted model whose scores for some samples are known already; for others it is asked.

    Its components are made if anybody wants them.
    """

    def __init__(self, model: Any, X: Array, scores: Array) -> None:
        self.model, self.X, self.scores = model, X, scores

    def __getattr__(self, name: str) -> Any:
        if name == "model":  # not there yet: a copier asks
            raise AttributeError(name)
        if name in ("components_", "dual_components_"):
            vars(self.model).update(with_components(vars(self.model)))
        return getattr(self.model, name)

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Those of the model."""
        return self.model.get_params(deep)  # type: ignore[no-any-return]

    def decision_function(self, X: Array) -> Array:
        if X is not self.X:
            return self.model.decision_function(X)
        return self.scores[:, 1] - self.scores[:, 0] if len(self.model.classes_) == 2 else self.scores

    def predict(self, X: Array) -> Array:
        known = X is self.X
        return self.model.classes_[np.argmax(self.scores, axis=1)] if known else self.model.predict(X)


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
        seconds = np.array([fitted - started, time.perf_counter() - fitted]) / scores.size
        self.n_splits_, self.scorer_, self.multimetric_ = len(folds), scorer, False
        self.cv_results_ = results(candidates, scores, *seconds)
        self.best_index_ = int(self.cv_results_["rank_test_score"].argmin())
        self.best_score_ = float(self.cv_results_["mean_test_score"][self.best_index_])
        self.best_params_ = candidates[self.best_index_]
        if self.refit:
            self._fit_best(X, y)
        return self

    def _fit_best(self, X: Array, y: Array) -> None:
        started = time.perf_counter()
        best = clone(self.estimator).set_params(**clone(self.best_params_, safe=False))
        self.best_estimator_ = best.fit(X, y)
        self.refit_time_ = time.perf_counter() - started
        if hasattr(best, "feature_names_in_"):
            self.feature_names_in_ = best.feature_names_in_


def check_batched(estimator: Any, scoring: Any, refit: Any) -> None:
    """Refuse what there is no batched solve for: a class derived from ours, too, may differ in anything."""
    if type(estimator) not in ENGINES:
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
    """The folds; of a precomputed kernel the columns of the training samples."""
    if y is None:
        raise ValueError("BatchedSearchCV requires y to be passed, but the target y is None.")
    y = to_host(y) if is_torch(y) else y
    cv = check_cv(cv, y, classifier=True)
    if is_torch(X):
        X = clone(estimator)._checked_tensor(X, reset=True)
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
    """The score of a model on the samples left out; NaN for one that failed."""
    if judged is None:
        return float("nan")
    found = scorer(judged, fold.X_test, fold.y_test)
    if not isinstance(found, Number) or isinstance(found, bool):
        raise ValueError(f"scoring must give a number, but gave {found!r}, a {type(found).__name__}.")
    return float(found)  # type: ignore[arg-type]


def results(
    candidates: list[dict[str, Any]], scores: Array, fit_time: float, score_time: float
) -> dict[str, Any]:
    """`cv_results_` of scores (n_candidates, n_splits) and mean times."""
    n = len(candidates)
    mean = scores.mean(axis=1)
    found: dict[str, Any] = {
        "mean_fit_time": np.full(n, fit_time),
        "std_fit_time": np.zeros(n),
        "mean_score_time": np.full(n, score_time),
        "std_score_time": np.zeros(n),
    }
    for name in sorted({name for candidate in candidates for name in candidate}):
        present = [candidate[name] for candidate in candidates if name in candidate]
        numbers = all(isinstance(value, Number) for value in present)
        dtype = np.result_type(*map(type, present)) if numbers else object
        values: Any = np.ma.MaskedArray(np.zeros(n, dtype=dtype), mask=True)
        for i, candidate in enumerate(candidates):
            if name in candidate:
                values[i] = candidate[name]
        found[f"param_{name}"] = values
    found["params"] = candidates
    found |= {f"split{i}_test_score": column for i, column in enumerate(scores.T)}
    # A candidate that failed comes last.
    rank = rankdata(-np.where(np.isnan(mean), -np.inf, mean), method="min").astype(np.int32)
    return {**found, "mean_test_score": mean, "std_test_score": scores.std(axis=1), "rank_test_score": rank}


def judge(models: list[Any], candidates: list[dict[str, Any]], folds: list[Fold]) -> Table:
    """Fitted models with their scores, for each candidate and fold; None where a fit broke."""
    names, engine = ENGINES[type(models[0])]

    def shared(k: int) -> tuple[Any, ...]:
        """What a candidate has beside what is batched."""
        return tuple((name, plain(candidates[k][name])) for name in sorted(candidates[k]) if name not in names)

    judged: Table = [[] for _ in models]
    errors: list[str] = []
    for group in grouped(range(len(models)), shared):
        for k, row in zip(group, engine([models[k] for k in group], folds, errors), strict=True):
            judged[k] = row
    n_fits, broken = len(models) * len(folds), sum(one is None for row in judged for one in row)
    if broken:
        reasons = " ".join(dict.fromkeys(errors))
        if broken == n_fits:
            raise ValueError(f"All {n_fits} fits failed: {reasons}")
        text = f"{broken} of {n_fits} fits failed, and have the score NaN: {reasons}"
        warnings.warn(text, FitFailedWarning, stacklevel=3)
    return judged


class Fit(NamedTuple):
    """What a batched solve gives for one fit, of several starts what they are together."""

    atoms: Atoms
    n_iter: int
    status: Status

    @classmethod
    def of(cls, M: Array, n_classes: int, n_iter: Array, status: Array) -> Fit:
        """Of one problem for each start, with atoms (n_starts, K, q)."""
        worst = next(kind for kind in (Status.NON_FINITE, Status.MAX_ITER, Status.CONVERGED) if kind in status)
        return cls(Atoms(M[0] if len(M) == 1 else M, n_classes), int(n_iter.max()), worst)


def judge_ledl(models: list[Any], folds: list[Fold], errors: list[str]) -> Table:
    """LEDL at several weights: one batched solve for the folds, and kernels, that have one shape."""
    prepared, trainings = prepare(models, folds, errors)

    # Coordinates are all that a solve needs: the space that they are in need not travel with them.
    problems = {id(one): one._replace(space=None) for row in trainings for one in row if one is not None}

    def task(batch: list[Job]) -> tuple[list[Any], list[Any]]:
        return [models[k] for k, _ in batch], [problems[id(trainings[k][i])] for k, i in batch]

    trained: Table = [[None] * len(folds) for _ in models]

    def training_of(k: int) -> tuple[Any, ...]:
        """Candidates that differ in how they code and decide alone have one training."""
        return (id(prepared[k]), *(getattr(models[k], name) for name in LEDL_WEIGHTS.values()))

    alike = {same[0]: same for same in grouped(range(len(models)), training_of)}
    jobs = [(k, i) for i in range(len(folds)) for k in alike if trainings[k][i] is not None]
    late = 0
    for same in grouped(jobs, lambda job: trainings[job[0]][job[1]].shape):
        first = trainings[same[0][0]][same[0][1]]
        n, (K, q) = len(first.labels), first.start.M.shape[-2:]
        size = len(first.starts) * (n + K) * max(K, q)
        for batch, (fits, wrong) in in_batches(train, task, same, first.coordinates, size, models[0].n_jobs):
            errors += wrong
            for (k, i), fit in zip(batch, fits, strict=True):
                if fit is not None and fit.status is Status.NON_FINITE:
                    errors.append(f"{fit.status.advice()}.")
                elif fit is not None:
                    late += fit.status is Status.MAX_ITER
                    for twin in alike[k]:
                        trained[twin][i] = fitted_like(prepared[k][i], models[twin])
                        state = models[twin]._state(trainings[k][i], fit.atoms)
                        trained[twin][i]._keep(n_iter_=fit.n_iter, **state)
    if late and models[0].tol > 0:
        advice = Status.MAX_ITER.advice(tol=models[0].tol, max_iter=models[0].max_iter)
        count = f"{late} of {len(alike) * len(folds)} fits"
        warnings.warn(f"{count} did not converge: {advice}.", ConvergenceWarning, stacklevel=4)
    return decide(trained, folds, errors, models[0].n_jobs)


def prepare(models: list[Any], folds: list[Fold], errors: list[str]) -> tuple[Table, Table]:
    """For each candidate and fold a model that has checked the samples, and what training starts from.

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
        for model, seed in zip(checked, seeds, strict=True):
            model.random_state = seed if model.random_state is None else model.random_state
        found = [
            attempt(partial(model._prepare, fold.X, fold.y), errors)
            for model, fold in zip(checked, folds, strict=True)
        ]
        for k in same:
            prepared[k], trainings[k] = checked, found
    return prepared, trainings


def plain(value: Any) -> Any:
    """What tells a value of a parameter from others: of arrays and the like which object it is."""
    return value if isinstance(value, str | float | int | bool | None) else id(value)


def attempt(work: Callable[[], Result], errors: list[str]) -> Result | None:
    """What `work` gives, or None with what was wrong with its data or settings among the errors."""
    try:
        return work()
    except ValueError as error:
        errors.append(str(error))
        return None


def train(models: list[LEDLClassifier], problems: list[Any]) -> tuple[list[Fit | None], list[str]]:
    """A batched solve, None for those that break, and what was wrong with them."""
    errors: list[str] = []
    fits = attempt(partial(solve_batch, models, problems), errors)
    if fits is None and len(models) > 1:  # find out whose fault it is
        alone = [train([model], [problem]) for model, problem in zip(models, problems, strict=True)]
        return [fits[0] for fits, _ in alone], [text for _, wrong in alone for text in wrong]
    return fits or [None], errors


def solve_batch(models: list[LEDLClassifier], trainings: list[Any]) -> list[Fit | None]:
    """Algorithm 3 on many problems of one shape, each with its weights: those of each start of each model."""
    n_starts = len(trainings[0].starts)
    models = [model for model in models for _ in range(n_starts)]
    trainings = [one for training in trainings for one in training.starts]
    stack = namespace(trainings[0].coordinates).stack
    X, M = stack([t.coordinates for t in trainings]), stack([t.start.M for t in trainings])
    weights: dict[str, Any] = {
        name: np.array([getattr(model, parameter) for model in models])[:, None, None]
        for name, parameter in LEDL_WEIGHTS.items()
    }
    device = models[0]._device_of(X)
    with one_blas_thread(), float32_products(models[0].precision, device):
        run = solve(
            InMemoryBlocks(X, as_array(np.stack([t.labels for t in trainings]), X)),
            Atoms(M, trainings[0].start.n_classes),
            code_scale=np.stack([t.code_scale for t in trainings]),
            **weights,
            **models[0]._schedule,
        )
    fits = (slice(i, i + n_starts) for i in range(0, len(models), n_starts))
    c = run.state.n_classes
    return [Fit.of(run.state.M[fit], c, run.n_iter[fit], run.status[fit]) for fit in fits]


def judge_on_samples(models: list[Any], folds: list[Fold], errors: list[str]) -> Table:
    """SRC and CRC: the samples are the atoms, so that a fold is fitted once for all settings."""
    easiest = max(models, key=lambda model: model.alpha)
    trained: Table = [[None] * len(folds) for _ in models]
    for i, fold in enumerate(folds):
        first = attempt(partial(clone(easiest).fit, fold.X, fold.y), errors)
        for model, row in zip(models, trained, strict=True):
            row[i] = first and attempt(partial(at_other_settings, first, model, fold.X), errors)
    return decide(trained, folds, errors, models[0].n_jobs)


def at_other_settings(fitted: Any, model: Any, X: Array) -> Any:
    """A model over the samples that another one is fitted on."""
    copy = fitted_like(fitted, model)
    if isinstance(copy, CRCClassifier):
        copy._ridge = RidgeCoder(place(fitted._atoms, fitted._device_of(X)), model.alpha)
    return copy


def fitted_like(fitted: Any, model: Any) -> Any:
    """A copy of `model`, with its parameters, that is fitted as another one is."""
    parameters = fitted.get_params()
    copy = clone(model).set_params(n_jobs=1)
    vars(copy).update({name: value for name, value in vars(fitted).items() if name not in parameters})
    return copy


class View(NamedTuple):
    """Samples as the models of a fold see them: in their coordinates."""

    samples: Samples
    X: Array
    sq_norms: Array


def decide(trained: Table, folds: list[Fold], errors: list[str], n_jobs: int | None) -> Table:
    """The models with their scores of the test samples; None for those that cannot score at their settings."""
    judged: Table = [[None] * len(folds) for _ in trained]
    jobs = [(k, i) for i in range(len(folds)) for k, row in enumerate(trained) if row[i] is not None]
    views: dict[int, View] = {}  # by the space that samples are seen in
    for k, i in jobs:
        space = trained[k][i]._space
        if id(space) not in views:
            views[id(space)] = view(trained[k][i], folds[i].X_test)

    def view_of(job: Job) -> View:
        return views[id(trained[job[0]][job[1]]._space)]

    def task(batch: list[Job]) -> tuple[list[Any], list[View]]:
        return [trained[k][i] for k, i in batch], [view_of(job) for job in batch]

    late = 0

    def kind(job: Job) -> tuple[Any, ...]:
        """What models of one batch agree in: the shape of their atoms, and what codes their rules take."""
        model = trained[job[0]][job[1]]
        return model._atoms.shape, has_lasso_codes(model)

    for same in grouped(jobs, kind):
        k, i = same[0]
        (K, r), n = trained[k][i]._atoms.shape, max(len(view_of(job).X) for job in same)
        size = (n + K) * max(K, r)
        like = view_of(same[0]).X
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


def view(model: Any, X: Array) -> View:
    """New samples in the coordinates of a fitted model."""
    samples = model._new_samples(X)
    Y = samples[:]
    return View(samples, model._space.reduce(Y), model._space.squared_norms(Y))


def scores_of(models: list[Any], views: list[View]) -> tuple[list[Array | None], int, list[str]]:
    """Scores, on the host, or None; how many codes missed their gap; and what was wrong with settings."""
    batched = is_torch(views[0].X) and has_lasso_codes(models[0])
    errors: list[str] = []
    with one_blas_thread(), float32_products("full", views[0].samples.where):
        codes, late = (batched_codes if batched else codes_one_by_one)(models, views, errors)
        scores = [
            None if S is None else attempt(partial(score_codes, model, S, view), errors)
            for model, S, view in zip(models, codes, views, strict=True)
        ]
    return scores, late, errors


def has_lasso_codes(model: Any) -> bool:
    """Whether the codes that the model's rule takes are those of the lasso."""
    return isinstance(model, LassoCodes) and getattr(model, "rule", None) != "regularized"


def score_codes(model: Any, codes: Array, view: View) -> Array:
    """What the model's rule makes of codes, on the host."""
    return to_host(model._ready_rule()(codes, view.X, view.sq_norms))


def codes_one_by_one(models: list[Any], views: list[View], errors: list[str]) -> tuple[list[Array | None], int]:
    """As in `decision_function`; None where settings allow no codes."""
    codes: list[Array | None] = []
    late = 0
    for model, view in zip(models, views, strict=True):
        coder = attempt(partial(model._rule_coder, view.samples, 1), errors)
        if coder is None:
            codes.append(None)
            continue
        S, _, _, converged = coder(view.X, view.sq_norms)
        codes.append(namespace(S).astype(S, view.X.dtype, copy=False))
        late += int(np.count_nonzero(~converged))
    return codes, late


def batched_codes(models: list[Any], views: list[View], errors: list[str]) -> tuple[list[Array | None], int]:
    """Lasso codes over atoms of one shape at once, which no setting forbids; of each start by itself.

    Folds are filled up with zero samples: no work.
    """
    n_starts = n_starts_of(models[0])
    models = [one for model in models for one in starts_of(model)]
    views = [view for view in views for _ in range(n_starts)]
    xp, like = namespace(views[0].X), views[0].X
    n, r = max(len(view.X) for view in views), like.shape[1]
    X = xp.zeros((len(views), n, r), dtype=like.dtype, device=like.device)
    sq_norms = xp.zeros((len(views), n), dtype=xp.float64, device=like.device)
    for j, view in enumerate(views):
        X[j, : len(view.X)], sq_norms[j, : len(view.X)] = view.X, view.sq_norms
    D = as_array(np.stack([model._atoms for model in models]), like)
    alpha = np.array([model._alpha for model in models])[:, None, None]
    coder = BatchedLassoCoder(D, alpha=alpha, tol=reachable(models[0].transform_tol, like))
    codes, _, _, converged = coder(X, sq_norms)
    codes = xp.astype(codes, like.dtype, copy=False)
    found: list[Array | None] = [codes[j, : len(view.X)] for j, view in enumerate(views)]
    if n_starts > 1:
        found = [xp.concat(found[i : i + n_starts], axis=-1) for i in range(0, len(found), n_starts)]
    return found, int(np.count_nonzero(~converged))


def grouped(items: Iterable[Item], key: Callable[[Item], Any]) -> list[list[Item]]:
    """Those with equal keys together, in their order."""
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
    """Batches, sized for where `like` is, and what `work` gives for the task that each of them is.

    `n_numbers`: in the largest arrays of a job. A device has one batch at a time.
    """
    n_jobs = 1 if is_torch(like) else n_jobs
    # A part of the memory that is free: other processes may be searching, too.
    most = free_memory(like) // (4 * 8 * ARRAYS) if is_torch(like) else BATCH
    size = min(max(most // n_numbers, 1), -(-len(jobs) // n_places(n_jobs)))
    batches = [jobs[i : i + size] for i in range(0, len(jobs), size)]
    return list(zip(batches, run_tasks(work, [task(batch) for batch in batches], n_jobs), strict=True))


# Parameters of LEDL that decide how training sees samples. Problems that differ in these, too, are of one batch
# if they have one shape.
OF_THE_SAMPLES = ("coef0", "degree", "gamma", "kernel", "n_components", "normalize")

LEDL_WEIGHTS = {"lam": "label_weight", "omega": "code_weight", "epsilon": "alpha", "rho": "rho"}

# For each estimator the parameters that one batch may hold several values of, and its engine.
ENGINES: dict[type, tuple[set[str], Callable[[list[Any], list[Fold], list[str]], Table]]] = {
    LEDLClassifier: (
        {*LEDL_WEIGHTS.values(), *OF_THE_SAMPLES, "transform_alpha", "rule", "ridge_alpha"},
        judge_ledl,
    ),
    SRCClassifier: ({"alpha"}, judge_on_samples),
    CRCClassifier: ({"alpha", "rule"}, judge_on_samples),
}
BATCHED: tuple[type[Any], ...] = tuple(ENGINES)
