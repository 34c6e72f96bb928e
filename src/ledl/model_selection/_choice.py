"""Choose among candidates by samples that they have not seen, and say how good the choice is.

Scores become probabilities: p_j is proportional to exp(t f_j), with one factor t for all samples. The attribute
`temperature_` is this factor. (In the literature the temperature is 1/t.)

Models often make no mistake on few samples, and then no t is large enough: probabilities would be 0 and 1. So
labels are smoothed as in Platt's scaling. Each of n samples counts as one of its own class with the weight
(n + 1) / (n + 2), and as one of any class with the rest,

    loss = -(1 - e) log p_y - e mean_j log p_j,    e = 1 / (n + 2).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import compress
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp
from scipy.stats import norm

from ledl.arrays import Array
from ledl.dictionary import log_odds
from ledl.model_selection._batched_search import Fold

# Number of folds for the choice. Where there are many classes, only as many of these folds are used as leave
# out this many samples in all. That is enough for the choice, and bounds the cost.
N_FOLDS = 5
HELD_OUT_SAMPLES = 200

# Number of times that samples are drawn to estimate `expected_accuracy_`.
N_DRAWS = 1000

# Range of the logarithms of the factors that are tried, for scores with differences of about 1.
LOG_FACTORS = (-5.0, 8.0)


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
