r"""Semi-supervised learning: a few labels, and many samples without labels that teach, too.

Labels spread over a graph of near samples (`ledl.solvers.graph`). Neighbours in the space of the samples may
share the light and not the person. So the graph may also be made in a space that is learnt from guesses of all
labels. Hidden labels decide which way is right for the samples at hand: some labels are taken away in turn, and
the way that finds most of them again is taken.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from hashlib import blake2b
from numbers import Integral, Real
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV
from sklearn.utils import check_random_state, column_or_1d
from sklearn.utils._param_validation import HasMethods, Interval
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from ledl.arrays import (
    Array,
    add_rows,
    as_array,
    float32_products,
    is_dask,
    is_torch,
    namespace,
    place,
    to_host,
)
from ledl.dictionary import warn_of_zero_samples
from ledl.estimators import (
    DEVICE,
    N_JOBS,
    DictionaryClassifier,
    DocumentedMixin,
    adopt,
    check_labelled,
    check_samples,
    fit_context,
    rollback_on_error,
)
from ledl.model_selection import (
    LEDLClassifierCV,
    Verdict,
    best_factor,
    check_no_checkpoint,
    cv_interval,
    default_folds,
    expected_accuracy,
    log_losses,
)
from ledl.parallel import map_in_threads, n_threads, one_blas_thread
from ledl.samples import check_rows, map_rows
from ledl.solvers.graph import (
    Graph,
    Spread,
    log_shares,
    masses,
    nearest,
    principal_axes,
    reach,
    similarity,
    spread,
    spread_in_learnt_space,
    spread_labels,
)
from ledl.subspace import FeatureMap

logger = logging.getLogger(__name__)

# What the choice is made of, the usual one first: it is taken where nothing can be hidden.
METHODS = ("learnt", "spread-learnt", "spread", "supervised")
# Where classes have different numbers of labels: at 0 every label spreads as much as any other, which is right
# if samples were drawn and then labelled; at 1 every class does, which is right if each class was labelled by
# itself. Hidden labels tell. Where nothing can be hidden, it is half-way (benchmarks/single_samples.py).
BALANCES, UNKNOWN_BALANCE = (0.0, 1.0), 0.5
# The choice is made on at most this many samples: all with labels, and a random part of the others. If most of
# them have labels, it is made on all of these and on as many others.
SAMPLES_TO_CHOOSE = 20_000
# With few samples, a sample has fewer neighbours (benchmarks/small_folders.py).
FEWEST_NEIGHBOURS, SAMPLES_PER_NEIGHBOUR = 3, 12
# Directions that may be used however few samples there are.
FEW_AXES = 32
# Rows whose features are in memory at a time.
ROWS = 4096
# A weight of neighbours that are all too far to have any.
TINY = float(np.finfo(np.float32).tiny)
# Samples whose largest number is below or above these are scaled before they become float32.
SMALL, LARGE = 1e-20, 1e38


@dataclass(frozen=True, eq=False)
class LabelGraph:
    """Hold labels that were spread over a graph, and map new samples to its space. Arrays are NumPy's."""

    features: FeatureMap
    mean: Array  # (d,): of the features
    axes: Array  # (d, q): features minus their mean, times this, are coordinates
    points: Array  # (n, q)
    neighbours: Array  # (n, k)
    weights: Array  # (n, k)
    scales: Array  # (n,)
    sums: Array  # (n,)
    F: Array  # (n, c): the labels after spreading
    labelled: Array  # (l,): rows of the samples with labels
    labels: Array  # (l,): their classes, as numbers
    rows: Array  # (n,): rows of X in `fit`; copies of other rows are left out
    alpha: float  # the weight a of neighbours
    balance: float = 0.0  # labels of a class with m labels spread times m^-balance

    def coordinates(self, X: Array, device: str | None = None) -> Array:
        """Return the coordinates of samples in the space of the graph."""
        return map_features(X, self.features, self.mean, self.axes, device)

    def links(self, X: Array, device: str | None = None, n_jobs: int | None = None) -> tuple[Array, Array]:
        """Return the neighbours (m, k) of new samples among the points, and the weights of their F."""
        Z = self.coordinates(X, device)
        graph = Graph(*(as_array(part, Z) for part in (self.neighbours, self.weights, self.scales, self.sums)))
        with one_blas_thread():
            return graph.links(Z, as_array(self.points, Z), n_threads(n_jobs))

    def spread_to(self, X: Array, device: str | None = None, n_jobs: int | None = None) -> Array:
        """Return what reaches new samples of each class, (m, c), up to a factor of each sample."""
        index, weights = self.links(X, device, n_jobs)
        return to_host(add_rows(as_array(self.F, weights), index, weights))

    def influence(self, x: Array) -> tuple[Array, Array, Array]:
        """Return how much each labelled sample adds to `spread_to` of one sample (1, d), and its neighbours.

        F = (1 - a) (I - a S)^-1 H is linear in the labels H, and S is symmetric. So the labelled sample i adds
        row i of (1 - a) (I - a S)^-1 u, times its mass, to its own class, where u has the weights of the
        neighbours. Returns these amounts (l,), the rows of the neighbours (k,) and their weights (k,).
        """
        index, weights = self.links(x)
        u = np.zeros((len(self.points), 1))
        u[index[0], 0] = weights[0]
        graph = Graph(self.neighbours, self.weights, self.scales, self.sums)
        found = spread(graph.matrix(), u, self.alpha, tol=1e-10)[self.labelled, 0]
        return found * masses(self.labels, self.balance)[self.labels], index[0], weights[0]


@dataclass(frozen=True, eq=False)
class ReachMap:
    """Measure how near new samples are to labels, and to any samples at all. Arrays are NumPy's."""

    features: FeatureMap
    mean: Array  # (d,)
    axes: Array  # (d, r)
    points: Array  # (n, r)
    scales: Array  # (n,)
    distances: Array  # (n,): the distance of the k-th neighbour, with what lies outside the directions
    values: Array  # (n,): the reach of each sample
    n_neighbors: int

    def __call__(self, X: Array, device: str | None = None, n_jobs: int | None = None) -> Array:
        """Return the reach and the isolation of new samples, (m, 2).

        As labels spread, the reach of a sample is the weighted mean of its neighbours'. The isolation is the
        distance of its k-th neighbour, relative to the same of its neighbours: about 1 is usual.
        """
        axes, mean = place(self.axes, device), place(self.mean, device)
        points, scales = as_array(self.points, axes), as_array(self.scales, axes)
        found = []
        with one_blas_thread(), float32_products("full", device):
            for first in range(0, len(X), ROWS):
                centred = unit_features(X[first : first + ROWS], self.features, device) - mean
                Z = centred @ axes
                index, squared = nearest(Z, points, self.n_neighbors, threads=n_threads(n_jobs))
                weights = similarity(squared, namespace(Z).sqrt(squared[:, -1]), scales[index], relative=True)
                distances = to_host(distances_of_last(centred, Z, squared[:, -1]))
                index, weights = to_host(index), to_host(weights)
                reached = np.average(self.values[index], axis=1, weights=weights)
                isolation = relative(distances, index, weights, self.distances)
                found.append(np.stack([reached, isolation], axis=1))
        return np.concatenate(found)


def distances_of_last(centred: Array, Z: Array, squared: Array) -> Array:
    """Return distances (n,) of neighbours that have these squared ones in Z, with what Z lacks of samples."""
    xp = namespace(Z)
    outside = xp.sum(centred * centred, axis=1) - xp.sum(Z * Z, axis=1)
    return xp.sqrt(xp.clip(outside, 0, None) + squared)


def relative(distances: Array, index: Array, weights: Array, others: Array | None = None) -> Array:
    """Return distances, relative to the weighted mean of those of the neighbours: 1 is usual."""
    others = distances if others is None else others
    usual = np.average(others[index], axis=1, weights=weights + TINY)
    return distances / np.where(usual > 0, usual, 1)


def unit_features(X: Array, features: FeatureMap, device: str | None) -> Array:
    """Return features of norm 1, in float32 on the device.

    Samples that float32 cannot hold are divided by their largest number first. Their features are the same.
    """
    X = np.asarray(X)
    sizes = np.maximum(X.max(axis=1), -X.min(axis=1))
    odd = (sizes > LARGE) | ((sizes < SMALL) & (sizes > 0))
    if odd.any():
        X = X / np.where(odd, sizes, 1)[:, None]
    return features(place(X.astype(np.float32, copy=False), device))


def map_features(X: Array, features: FeatureMap, mean: Array, axes: Array, device: str | None) -> Array:
    """Return (features(X) - mean) axes, in blocks of rows, in float32 on the device."""
    axes = place(axes, device)
    xp, shift = namespace(axes), place(mean, device) @ axes
    with float32_products("full", device):
        return xp.concat(
            [unit_features(X[i : i + ROWS], features, device) @ axes - shift for i in range(0, len(X), ROWS)]
        )


class SemiSupervisedClassifier(DocumentedMixin, MetaEstimatorMixin, ClassifierMixin, BaseEstimator):
    r"""Classify samples from a few labels and many samples without labels.

    A supervised classifier learns from the labelled samples, and guesses the labels of the others. The answer
    is one of these, whichever finds most of the labels that are hidden from it in turn:

    - ``"supervised"``: the guesses.
    - ``"spread"``: the labels, spread over the graph of near samples,
      :math:`F = (1 - a) (I - a S)^{-1} H`.
    - ``"learnt"``: the labels, spread over the graph in a space that is learnt from the guesses: the directions
      in which classes differ most, relative to their common covariance. The result gives better guesses and so
      a better space, for `n_rounds` rounds.
    - ``"spread-learnt"``: the same, with the result of ``"spread"`` as the first guesses.

    In the last three, each answer is a sum over the labelled samples, which `ledl.explain` shows.

    Parameters
    ----------
    estimator : classifier, default=None
        The supervised classifier. It needs `predict_proba` or `decision_function`. None means
        `LEDLClassifierCV`. A search over settings, such as this one, runs once; for hidden labels it takes the
        settings that are best for the other labels. If `refit` of a search is callable, it takes those that
        this chose, which has seen all labels.

    methods : sequence of str, default=("learnt", "spread-learnt", "spread", "supervised")
        The answers to choose from. The first is taken where nothing can be hidden, because fewer than two
        classes have several labels.

    n_neighbors : int, default=10
        Number of neighbours k of each sample in a graph. Of fewer than 12 k samples, a twelfth, but at least 3.

    alpha : float, default=0.99
        The weight a of neighbours: how far labels spread.

    n_rounds : int, default=3
        Number of rounds in which guesses and space improve each other.

    n_components : int, default=256
        Number of directions of the largest variance in which all this happens. There are at most a third as
        many as samples, or 32: a few hundred samples do not tell the covariance in more. Beyond 4,096 samples
        and features they are found by subspace iteration, close to the exact ones.

    power : float, default=0.5
        Features are :math:`\mathrm{sign}(x) |x|^{power}`, scaled to norm 1. The default takes square roots.

    shrinkage : float, default=0.1
        Share of a multiple of the identity in the common covariance of the classes.

    device : str, default=None
        Device of PyTorch, such as ``"cuda"``. None means the processor, with NumPy. It is also the device of
        `estimator`, if that has the parameter and None there.

    n_jobs : int, default=None
        Number of threads. None means 1 unless in a `joblib.parallel_config` context. -1 means all processors.

    random_state : int, RandomState instance or None, default=None
        Source of random numbers, which draw the hidden labels. It is also that of `estimator`, if that has the
        parameter and None there.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels.

    transduction_ : ndarray of shape (n_samples,)
        Labels of all samples of `fit`. Samples with a label keep it.

    label_distributions_ : ndarray of shape (n_samples, n_classes)
        Probabilities of the classes, for all samples of `fit`.

    method_ : str
        The chosen answer.

    hidden_results_ : dict of arrays
        For each of `methods`: the share of hidden labels that it found (``"accuracy"``), and its log loss
        (``"log_loss"``). Empty if nothing could be hidden. Where classes have different numbers of labels,
        methods that spread are tried twice: at the ``"balance"`` 0 every label spreads as much as any other, at
        1 every class does (labels of a class with m of them count m^-balance).

    labelled_rows_ : ndarray of shape (n_labelled,)
        Rows of the samples with labels. Copies of earlier rows are left out.

    hidden_rows_ : ndarray of shape (n_hidden,)
        Rows of the samples whose labels were hidden once.

    hidden_scores_ : ndarray of shape (n_hidden, n_classes)
        Their scores, by the chosen method without their labels.

    hidden_evidence_ : ndarray of shape (n_hidden, 2) or (n_hidden, 4)
        Their `reach` without their labels, and their isolation: the distance of their k-th neighbour, relative
        to the same of their neighbours. If `estimator_` has atoms, also concentration and residual, see
        `RejectingClassifier`.

    expected_accuracy_ : float or None
        Accuracy to expect, from hidden labels, without the luck of the best of several. See `LEDLClassifierCV`.

    expected_accuracy_interval_ : tuple (low, high)
        Its 95 % interval.

    temperature_ : float
        The factor t of scores in `predict_proba`, found with hidden labels.

    estimator_ : classifier
        The supervised classifier, fitted on the labelled samples.

    graph_ : LabelGraph or None
        The graph with the labels that were spread over it. None if `method_` is ``"supervised"``.

    reach_ : ReachMap
        What `reach` needs.

    n_features_in_ : int
        Number of features seen in `fit`.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the features, where X has names.

    See Also
    --------
    LEDLClassifierCV : Learns from labelled samples alone.
    sklearn.semi_supervised.LabelSpreading : Spreads labels over one graph, whose settings are given.

    Notes
    -----
    New samples get the labels of their neighbours among all samples of `fit`, by the same weights. A sample
    that no label reaches gets the answer of `estimator_`. Exact copies of a sample count once. Memory grows in
    proportion to the number of samples. Progress is logged by the logger ``ledl.semi_supervised``.

    References
    ----------
    D. Zhou, O. Bousquet, T. Lal, J. Weston and B. Schölkopf, "Learning with local and global consistency",
    Advances in Neural Information Processing Systems 16, 2004.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from ledl import SemiSupervisedClassifier
    >>> from ledl.datasets import few_shot_splits
    >>> X, y = load_digits(return_X_y=True)
    >>> known, unknown = next(few_shot_splits(y, n_per_class=5))
    >>> labels = y.copy()
    >>> labels[unknown] = -1
    >>> model = SemiSupervisedClassifier(random_state=0).fit(X, labels)
    >>> bool((model.transduction_[unknown] == y[unknown]).mean() > 0.9)
    True
    """

    _no_weights = ": labels spread over a graph in which each sample is one node"

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "estimator": [HasMethods(["fit", "predict"]), None],
        "methods": ["array-like"],
        "n_neighbors": [Interval(Integral, 1, None, closed="left")],
        "alpha": [Interval(Real, 0, 1, closed="neither")],
        "n_rounds": [Interval(Integral, 0, None, closed="left")],
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "power": [Interval(Real, 0, 1, closed="right")],
        "shrinkage": [Interval(Real, 0, 1, closed="both")],
        "device": DEVICE,
        "n_jobs": N_JOBS,
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        estimator: Any = None,
        *,
        methods: Sequence[str] = METHODS,
        n_neighbors: int = 10,
        alpha: float = 0.99,
        n_rounds: int = 3,
        n_components: int = 256,
        power: float = 0.5,
        shrinkage: float = 0.1,
        device: str | None = None,
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.estimator = estimator
        self.methods = methods
        self.n_neighbors = n_neighbors
        self.alpha = alpha
        self.n_rounds = n_rounds
        self.n_components = n_components
        self.power = power
        self.shrinkage = shrinkage
        self.device = device
        self.n_jobs = n_jobs
        self.random_state = random_state

    @fit_context(prefer_skip_nested_validation=False)
    @rollback_on_error
    def fit(self, X: Array, y: Array) -> Self:
        """Learn from labelled and unlabelled samples.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            All samples.
        y : array-like of shape (n_samples,)
            Labels, with the number -1 where there is none. If labels are text, an array of objects has both.

        Returns
        -------
        self : SemiSupervisedClassifier
        """
        check_no_checkpoint(self)
        X, y, classes = check_partly_labelled(self, X, y)
        methods = [str(method) for method in self.methods]
        if not methods or not set(methods) <= set(METHODS):
            raise ValueError(f"methods={self.methods!r} must name some of {', '.join(METHODS)}.")
        rng = check_random_state(self.random_state)
        fold_seed, start_seed, part_seed = (int(one) for one in rng.randint(np.iinfo(np.int32).max, size=3))
        rows, copy_of = distinct_rows(X)
        X, y = X[rows], labels_of_copies(y, copy_of, classes)
        labelled = np.flatnonzero(y >= 0)
        labels, folds = y[labelled], default_folds(y[labelled], fold_seed)
        if len(labelled) == len(X):
            methods = ["supervised"]
            warnings.warn(
                "Every sample has a label, so there is nothing else to learn from. Answers are those of the "
                "supervised classifier alone.",
                UserWarning,
                stacklevel=4,
            )
        elif not folds:
            warnings.warn(
                "Fewer than two classes have more than one label, so none can be hidden to choose a method. "
                f"The method is {methods[0]!r}, and probabilities are not calibrated. Give two labels of each "
                "class.",
                UserWarning,
                stacklevel=4,
            )
        logger.info("Supervised learning from %d labels of %d classes", len(labels), len(classes))
        unfitted = self._supervised(start_seed, folds)
        fitted = clone(unfitted).fit(X[labelled], classes[labels])
        if not hasattr(fitted, "classes_"):
            raise TypeError(f"{type(unfitted).__name__} is no classifier. Give a classifier as estimator.")
        logger.info("Neighbours of %d samples", len(X))
        space, guesses = self._space(X), supervised_scores(fitted, X)
        if not folds:
            choice = Choice(methods[0], UNKNOWN_BALANCE, 1.0, scores=np.empty((0, len(classes))))
        elif len(X) <= SAMPLES_TO_CHOOSE:
            choice = self._choose(methods, space, X, y, folds, unfitted, fitted, guesses, fold_seed)
        else:
            others = np.random.default_rng(part_seed).permutation(np.flatnonzero(y < 0))
            part = np.sort(
                np.concatenate([labelled, others[: max(len(labelled), SAMPLES_TO_CHOOSE - len(labelled))]])
            )
            choice = self._choose(
                methods,
                self._space(X[part]),
                X[part],
                y[part],
                folds,
                unfitted,
                fitted,
                guesses[part],
                fold_seed,
            )
        logger.info("Method %r: answers for all samples", choice.method)
        with one_blas_thread(), float32_products("full", self.device):
            found = self._answer(space, choice.method, choice.balance, guesses, y, n_threads(self.n_jobs))
            values = to_host(reach(space.graph, space.graph.matrix(), as_array(labelled, space.Z), self.alpha))
        graph = None if found is None else self._record(space, found, y, rows, choice.balance)
        scores = np.asarray(guesses if graph is None else log_shares(graph.F), dtype=np.float64)
        probabilities = softmax(choice.factor * scores, axis=1)
        # Without hidden labels there is no better factor than the classifier's own.
        alone = ~graph.F.any(axis=1) if graph is not None else np.full(len(X), not folds)
        if alone.any():
            probabilities[alone] = supervised_probabilities(fitted, X[alone])
        probabilities[labelled] = np.eye(len(classes))[labels]
        adopt(
            self,
            classes_=classes,
            estimator_=fitted,
            expected_accuracy_=choice.expected,
            expected_accuracy_interval_=choice.interval,
            graph_=graph,
            hidden_results_=choice.results,
            hidden_evidence_=choice.evidence,
            hidden_rows_=rows[labelled[choice.hidden]],
            hidden_scores_=choice.scores,
            label_distributions_=probabilities[copy_of],
            labelled_rows_=rows[labelled],
            method_=choice.method,
            reach_=self._reach_map(space, values),
            temperature_=choice.factor,
            transduction_=classes[probabilities.argmax(axis=1)][copy_of],
        )
        return self

    def _supervised(self, seed: int, folds: list[tuple[Array, Array]]) -> Any:
        """Return the supervised classifier, unfitted, with our device, threads and seed where it has none.

        A search without folds of its own gets ours, so that its results tell which settings are best in the
        others of them.
        """
        found = LEDLClassifierCV() if self.estimator is None else clone(self.estimator)
        ours: dict[str, Any] = {"device": self.device, "n_jobs": self.n_jobs, "random_state": seed}
        if folds and isinstance(found, LEDLClassifierCV | GridSearchCV | RandomizedSearchCV):
            ours["cv"] = folds
        params = found.get_params(deep=False)
        return found.set_params(**{key: ours[key] for key in ours if key in params and params[key] is None})

    def _space(self, X: Array) -> Space:
        return space_of(
            X,
            power=float(self.power),
            n_components=self.n_components,
            k=self.n_neighbors,
            device=self.device,
            threads=n_threads(self.n_jobs),
        )

    def _answer(
        self, space: Space, method: str, balance: float, guesses: Array, y: Array, threads: int = 1
    ) -> Spread | None:
        """Return the labels of y, where it has any, spread by a method; None for "supervised"."""
        if method == "supervised":
            return None
        Z, c = space.Z, guesses.shape[1]
        labelled = as_array(np.flatnonzero(y >= 0), Z)
        labels = as_array(np.eye(c, dtype=np.float32)[y[y >= 0]], Z)
        known = y[y >= 0]
        amounts = as_array(masses(known, balance)[known].astype(np.float32), Z)
        first = None
        if method != "learnt":
            first = spread_labels(Z, space.graph, labelled, labels, amounts, self.alpha)
        if method == "spread":
            return first
        return spread_in_learnt_space(
            Z,
            space.products,
            as_array(guesses.astype(np.float32), Z) if first is None else log_shares(first.F),
            labelled,
            labels,
            amounts,
            k=space.graph.neighbours.shape[1],
            a=self.alpha,
            shrinkage=self.shrinkage,
            n_rounds=self.n_rounds,
            threads=threads,
        )

    def _choose(
        self,
        methods: list[str],
        space: Space,
        X: Array,
        y: Array,
        folds: list[tuple[Array, Array]],
        unfitted: Any,
        fitted: Any,
        final: Array,
        seed: int,
    ) -> Choice:
        """Return the method that finds most of the labels that the folds hide; of equal ones the surest.

        `final` has the scores of all samples by the classifier that was fitted to all labels.
        """
        labelled = np.flatnonzero(y >= 0)
        labels = y[labelled]
        threads = 1 if self.device else n_threads(self.n_jobs)
        logger.info("Hidden labels: %d models in %d folds", len(methods), len(folds))

        def guess(number: int) -> tuple[Array, Array]:
            train, test = folds[number]
            model = without_fold(unfitted, fitted, number, folds)
            model.fit(X[labelled[train]], fitted.classes_[labels[train]])
            found = supervised_scores(model, X)
            # Another rule or weight, which a search takes in a fold, has scores of another scale.
            found = found * (spread_of(final) / max(spread_of(found), np.finfo(np.float64).tiny))
            return found, evidence_of_atoms(model, X[labelled[test]])

        def find_hidden(task: tuple[int, str, float]) -> Array:
            number, method, balance = task
            train, test = folds[number]
            hidden, partly = labelled[test], np.full_like(y, -1)
            partly[labelled[train]] = labels[train]
            scores, _ = guesses[number]
            found = self._answer(space, method, balance, scores, partly)
            return scores[hidden] if found is None else log_shares(to_host(found.F)[hidden])

        is_even = len(set(np.bincount(labels))) == 1
        ways = [
            (method, balance)
            for method in methods
            for balance in BALANCES
            if balance == 0 or not (is_even or method == "supervised")
        ]
        tasks = [(number, *way) for way in ways for number in range(len(folds))]
        graph, S, reached = space.graph, space.graph.matrix(), []
        isolation = relative(to_host(space.distances), to_host(graph.neighbours), to_host(graph.weights))
        with one_blas_thread(), float32_products("full", self.device):
            guesses = map_in_threads(guess, range(len(folds)), threads)
            parts = map_in_threads(find_hidden, tasks, threads)
            for (train, test), (_, evidence) in zip(folds, guesses, strict=True):
                values = to_host(reach(graph, S, as_array(labelled[train], space.Z), self.alpha))
                near = np.stack([values, isolation], axis=1)[labelled[test]]
                reached.append(np.concatenate([near, evidence], axis=1))
        hidden = np.concatenate([test for _, test in folds])
        scores = [np.concatenate(parts[i : i + len(folds)]) for i in range(0, len(parts), len(folds))]
        verdicts = [judge(one, labels[hidden]) for one in scores]
        accuracies = np.array([one.hits.mean() for one in verdicts])
        losses = np.array([one.losses.mean() for one in verdicts])
        best = int(np.lexsort((losses, -accuracies))[0])
        expected = expected_accuracy(verdicts, "accuracy", hidden, seed)
        n_trained = sum(len(train) for train, _ in folds) / len(folds)
        names, balances = zip(*ways, strict=True)
        # The last folds hide some labels a second time, to see what classes with one label are worth.
        once = np.sort(np.unique(hidden, return_index=True)[1])
        return Choice(
            names[best],
            balances[best],
            verdicts[best].factor,
            hidden[once],
            scores[best][once],
            np.concatenate(reached)[once],
            {
                "method": np.array(names),
                "balance": np.array(balances),
                "accuracy": accuracies,
                "log_loss": losses,
            },
            expected,
            cv_interval(expected, len(once), n_trained),
        )

    def _reach_map(self, space: Space, values: Array) -> ReachMap:
        """Return the record of `reach`, on the host."""
        mean, axes, points = to_host(space.mean), to_host(space.axes), to_host(space.Z)
        scales, distances = to_host(space.graph.scales), to_host(space.distances)
        k = space.graph.neighbours.shape[1]
        return ReachMap(space.features, mean, axes, points, scales, distances, values, k)

    def _record(self, space: Space, found: Spread, y: Array, rows: Array, balance: float) -> LabelGraph:
        """Return the labels that were spread, and their graph, on the host, for predictions."""
        Z, axes = space.Z, space.axes
        if found.axes is not None:
            Z, axes = Z @ found.axes, axes @ found.axes
        labelled = np.flatnonzero(y >= 0)
        return LabelGraph(
            features=space.features,
            mean=to_host(space.mean),
            axes=to_host(axes),
            points=to_host(Z),
            **{name: to_host(part) for name, part in found.graph._asdict().items()},
            F=to_host(found.F),
            labelled=labelled,
            labels=y[labelled],
            rows=rows,
            alpha=float(self.alpha),
            balance=balance,
        )

    def predict_proba(self, X: Array) -> np.ndarray:
        """Return probabilities of the classes, calibrated with hidden labels by one number, `temperature_`.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples. For samples of `fit`, `label_distributions_` is better: it knows their labels and all their
            neighbours.

        Returns
        -------
        probabilities : ndarray of shape (n_samples, n_classes)
        """
        check_is_fitted(self)
        if is_dask(X):
            work = self._for_chunks(X).predict_proba
            return map_rows(work, X, np.dtype(np.float64), len(self.classes_))
        X = to_host(check_samples(self, X))
        if self.graph_ is None and not self.hidden_results_:
            return supervised_probabilities(self.estimator_, X)
        if self.graph_ is None:
            return softmax(self.temperature_ * supervised_scores(self.estimator_, X), axis=1)
        warn_of_zero_samples(int((~X.any(axis=1)).sum()), len(X), stacklevel=3)
        reached = self.graph_.spread_to(X, self.device, self.n_jobs)
        probabilities = softmax(self.temperature_ * log_shares(reached).astype(np.float64), axis=1)
        unreached = ~reached.any(axis=1)
        if unreached.any():
            probabilities[unreached] = supervised_probabilities(self.estimator_, X[unreached])
        return probabilities

    def reach(self, X: Array) -> np.ndarray:
        """Return how much of the labels reaches samples, over the graph of near samples.

        It is 1 for all samples if labels are spread evenly, and less for samples of groups without labels,
        which may be of no known class. `RejectingClassifier` uses it. A new sample has the reach of its
        neighbours among the samples of `fit`, however far they are.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        reach : ndarray of shape (n_samples,)
        """
        check_is_fitted(self)
        if is_dask(X):
            return map_rows(self._for_chunks(X).reach, X, np.dtype(np.float32))
        return self.reach_(to_host(check_samples(self, X)), self.device, self.n_jobs)[:, 0]

    def predict(self, X: Array) -> np.ndarray:
        """Return the most probable class of each sample.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.

        Returns
        -------
        labels : ndarray of shape (n_samples,)
        """
        check_is_fitted(self)
        if is_dask(X):
            return map_rows(self._for_chunks(X).predict, X, self.classes_.dtype)
        return self.classes_[self.predict_proba(X).argmax(axis=1)]

    def _for_chunks(self, X: Array) -> SemiSupervisedClassifier:
        """Return a copy of the model as it is now, for chunks of Dask arrays, which have no names."""
        check_rows(X)
        validate_data(self, X, reset=False, skip_check_array=True)
        model = copy(self)
        if hasattr(model, "feature_names_in_"):
            del model.feature_names_in_
        return model


class Space(NamedTuple):
    """Samples in the directions of their largest variance, in float32 on the device."""

    features: FeatureMap
    mean: Array
    axes: Array
    Z: Array  # (n, r)
    products: Array  # Z'Z / n in float64
    graph: Graph
    distances: Array  # (n,): see `ReachMap`


def space_of(
    X: Array, *, power: float = 0.5, n_components: int = 256, k: int = 10, device: str | None, threads: int
) -> Space:
    """Return the directions of the largest variance of distinct samples, the samples there, and their graph.

    A sample has at most k neighbours, and a twelfth of all samples, but at least 3. If most of the samples were
    its neighbours, labels would spread to all alike, and the class with most labels would win everywhere.
    """
    features = FeatureMap(power, True)
    k = min(k, max(FEWEST_NEIGHBOURS, len(X) // SAMPLES_PER_NEIGHBOUR), len(X) - 1)
    with float32_products("full", device):
        centred = unit_features(X, features, device)
        xp = namespace(centred)
        mean = xp.mean(centred, axis=0)
        centred = centred - mean
        axes = principal_axes(centred, n_directions(len(X), n_components))
        if not axes.shape[1]:  # all samples are alike
            axes = xp.zeros_like(centred[:1]).mT
        Z = centred @ axes
        products = xp.astype(Z.mT @ Z, xp.float64) / len(Z)
        with one_blas_thread():
            graph = Graph.of(Z, k, threads)
    distances = distances_of_last(centred, Z, graph.scales**2)
    return Space(features, mean, axes, Z, products, graph, distances)


class Choice(NamedTuple):
    """A method, the balance of its labels, the factor of its scores, and how it was chosen."""

    method: str
    balance: float
    factor: float
    hidden: Array = np.array([], dtype=int)  # numbers of the labelled samples that were hidden
    scores: Array = None  # (n_hidden, c)
    evidence: Array = np.empty((0, 2))  # (n_hidden, 2 or 4)
    results: dict[str, Array] = {}  # noqa: RUF012  (never changed)
    expected: float | None = None
    interval: tuple[float, float] = (0.0, 1.0)


def check_partly_labelled(estimator: Any, X: Array, y: Array) -> tuple[Array, Array, Array]:
    """Return samples on the host, labels 0, ..., c - 1, or -1 where there is none, and the classes."""
    y = column_or_1d(to_host(y) if is_torch(y) else y, warn=True)
    if y.dtype.kind in "US":
        if "-1" in y:
            raise ValueError(
                "y has the text '-1'. Samples without a label have the number -1. Give an array of objects, "
                "such as np.array(['cat', 'dog', -1], dtype=object). If '-1' is a class, give it another name."
            )
        unlabelled = np.zeros(len(y), dtype=bool)
    elif y.dtype.kind == "f" and not np.isfinite(y).all():
        raise ValueError(
            "y has NaN or infinity. Samples without a label have -1: use np.where(np.isnan(y), -1, y); for a "
            "Series of pandas, y.fillna(-1)."
        )
    elif y.dtype.kind == "O" and not all(isinstance(one, str | Real) and one == one for one in y):
        odd = next(one for one in y if not isinstance(one, str | Real) or one != one)
        raise ValueError(
            f"y has {odd!r}, which is neither text nor a number. Samples without a label have the number -1. "
            "For a Series of pandas, use y.astype(object).fillna(-1)."
        )
    else:
        unlabelled = np.array([type(one) is not str and one == -1 for one in y.tolist()], dtype=bool)
    X, _ = check_labelled(estimator, X, np.where(unlabelled, 0, 1))
    known = y[~unlabelled]
    if not len(known):
        raise ValueError("No sample has a label: all of y is -1. Label at least one sample of each class.")
    if known.dtype.kind == "O":
        if len({isinstance(one, str) for one in known}) > 1:
            raise ValueError("y has both text and numbers as labels. Make all labels text: '7', not 7.")
        known = np.array(known.tolist())
    check_classification_targets(known)
    classes, numbers = np.unique(known, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(
            f"y has labels of one class only: {classes[0]}. Add labels of another class. The number -1 means "
            "that a sample has no label. If it is a class of yours, give it another number."
        )
    found = np.full(len(y), -1)
    found[~unlabelled] = numbers
    return to_host(X), found, classes


def n_directions(n_samples: int, most: int) -> int:
    """Return in how many directions of the largest variance samples are compared: few if they are few."""
    return min(most, max(n_samples // 3, FEW_AXES))


def distinct_rows(X: Array) -> tuple[Array, Array]:
    """Return the rows of X that are no copies of earlier ones, and which of these each row of X equals."""
    numbers: dict[bytes, int] = {}
    digests = (blake2b(row + 0, digest_size=16).digest() for row in X)  # -0.0 + 0 is 0.0
    copy_of = np.array([numbers.setdefault(digest, len(numbers)) for digest in digests])
    return np.unique(copy_of, return_index=True)[1], copy_of


def labels_of_copies(y: Array, copy_of: Array, classes: Array) -> Array:
    """Return the labels of distinct samples, or -1. Raise if copies have different labels."""
    found = np.full(copy_of.max() + 1, -1)
    from_row: dict[int, int] = {}
    for row in np.flatnonzero(y >= 0):
        number = copy_of[row]
        first = from_row.setdefault(int(number), int(row))
        if y[first] != y[row]:
            raise ValueError(
                f"Rows {first} and {row} of X are equal, but their labels are {classes[y[first]]} and "
                f"{classes[y[row]]}. Correct one, or set one to -1."
            )
        found[number] = y[row]
    return found


def chosen_by(model: Any) -> Any:
    """Return the fitted classifier that a search has chosen. Others are returned as they are."""
    while not isinstance(model, DictionaryClassifier) and hasattr(model, "best_estimator_"):
        model = model.best_estimator_
    return model


def evidence_of_atoms(model: Any, X: Array) -> Array:
    """Return concentration and residual of samples, (n, 2), or (n, 0) for a classifier without atoms."""
    model = chosen_by(model)
    if not isinstance(model, DictionaryClassifier):
        return np.empty((len(X), 0))
    return model.dictionary_.judge(X, model.device, model.n_jobs)[1]


def supervised_scores(model: Any, X: Array) -> Array:
    """Return scores (n, c) of a fitted classifier whose differences are log odds, up to a factor."""
    model = chosen_by(model)
    if isinstance(model, DictionaryClassifier):
        return np.asarray(to_host(model._log_odds(X)))
    if hasattr(model, "predict_proba"):
        return np.log(np.maximum(model.predict_proba(X), np.finfo(np.float32).tiny))
    if not hasattr(model, "decision_function"):
        raise TypeError(
            f"{type(model).__name__} has neither predict_proba nor decision_function, so it cannot say how "
            "sure it is. Give another classifier as estimator."
        )
    scores = np.asarray(model.decision_function(X))
    if scores.ndim == 2 and scores.shape[1] != len(model.classes_):
        raise ValueError(
            f"decision_function of {type(model).__name__} has {scores.shape[1]} columns for "
            f"{len(model.classes_)} classes. It must have one for each class: of an SVC, set "
            "decision_function_shape='ovr'."
        )
    return np.stack([-scores, scores], axis=1) / 2 if scores.ndim == 1 else scores


def supervised_probabilities(model: Any, X: Array) -> Array:
    """Return the probabilities of a fitted classifier, or what its scores give if it has none."""
    return (
        model.predict_proba(X)
        if hasattr(model, "predict_proba")
        else softmax(supervised_scores(model, X), axis=1)
    )


def spread_of(scores: Array) -> float:
    """Return how much the scores of samples differ between classes: the root of their mean variance."""
    return float(np.sqrt(np.mean(np.var(scores, axis=1, dtype=np.float64))))


def without_fold(unfitted: Any, fitted: Any, number: int, folds: list[tuple[Array, Array]]) -> Any:
    """Return an unfitted classifier with the settings that are best in all folds but one.

    That is for a search that used these folds. Another search, or one with a callable `refit`, takes the
    settings that it chose, and another classifier has the settings that it was given.
    """
    if not hasattr(fitted, "best_estimator_"):
        return clone(unfitted)
    found, refit = clone(fitted.best_estimator_), getattr(unfitted, "refit", None)
    if len(folds) > 1 and getattr(unfitted, "cv", None) is folds and not callable(refit):
        results = fitted.cv_results_
        metric = "neg_log_loss" if isinstance(unfitted, LEDLClassifierCV) else "score"
        if getattr(unfitted, "selection", "") == "accuracy":
            metric = "accuracy"
        elif isinstance(refit, str):  # a search with several metrics
            metric = refit
        others = [results[f"split{i}_test_{metric}"] for i in range(len(folds)) if i != number]
        found.set_params(**results["params"][int(np.nanargmax(np.mean(others, axis=0)))])
    return found


def judge(scores: Array, labels: Array) -> Verdict:
    """Return hits, losses and the best factor of the scores of samples with these labels."""
    factor = best_factor(scores, labels)
    hits = (scores.argmax(axis=1) == labels).astype(np.float64)
    return Verdict(hits, log_losses(scores, labels, factor), factor)
