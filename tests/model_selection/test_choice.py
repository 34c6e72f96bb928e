"""Folds, losses, factors and the choice: against scikit-learn, SciPy, and every draw by hand."""

from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import binomtest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from ledl.dictionary import ResidualRule
from ledl.model_selection._choice import (
    Verdict,
    best_factor,
    choose,
    cv_interval,
    default_folds,
    expected_accuracy,
    log_losses,
    verdict,
    wilson_interval,
)


def test_log_losses_are_those_of_scikit_learn_with_smoothed_labels():
    rng = np.random.default_rng(0)
    F, labels = rng.normal(size=(40, 5)), rng.integers(5, size=40)
    odds = np.exp(3.7 * F)
    p = odds / odds.sum(axis=1, keepdims=True)
    of_all = np.mean([log_loss(np.full(40, j), p, labels=range(5)) for j in range(5)])
    expected = 41 / 42 * log_loss(labels, p, labels=range(5)) + 1 / 42 * of_all
    assert_allclose(log_losses(F, labels, 3.7).mean(), expected, rtol=1e-12)


def test_best_factor_is_that_of_a_logistic_regression_with_one_coefficient():
    # For two classes p depends on the difference of the scores alone: a regression without an intercept.
    rng = np.random.default_rng(1)
    difference = rng.normal(size=300)
    labels = (rng.random(300) < 1 / (1 + np.exp(-2.5 * difference))).astype(int)
    F = np.stack([-difference / 2, difference / 2], axis=1)
    rest = 1 / 302  # a share of each sample that counts for both classes
    both, weights = np.concatenate([labels, 1 - labels]), np.repeat([1 - rest / 2, rest / 2], 300)
    regression = LogisticRegression(C=np.inf, fit_intercept=False, tol=1e-10)
    regression.fit(np.concatenate([difference, difference])[:, None], both, weights)
    assert_allclose(best_factor(F, labels), regression.coef_[0, 0], rtol=1e-4)


def test_samples_without_a_mistake_do_not_make_it_sure():
    labels = np.repeat([0, 1], 5)
    F = np.where(np.arange(2) == labels[:, None], 1.0, 0.0)
    odds = np.exp(best_factor(F, labels))
    assert_allclose(odds / (1 + odds), (1 + 10 + 0.5) / (2 + 10), rtol=1e-4)  # (1 - e) + e / 2, e = 1 / 12
    wider = np.where(F > 0, 2.0, 0.0) + np.random.default_rng(0).normal(scale=0.5, size=F.shape)
    assert (
        log_losses(F, labels, best_factor(F, labels)).mean()
        < log_losses(wider, labels, best_factor(wider, labels)).mean()
    )


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_best_factor_follows_the_scale_of_scores(scale):
    rng = np.random.default_rng(2)
    F, labels = rng.normal(size=(50, 4)), rng.integers(4, size=50)
    F[np.arange(50), labels] += 1
    assert_allclose(best_factor(scale * F, labels) * scale, best_factor(F, labels), rtol=1e-4)


def test_best_factor_is_found_far_from_the_scale_of_scores():
    """The logistic of t times a difference of scores is a share of samples, which can be counted here."""
    rest = 1 / 1002
    for n_large, n_right in ((0, 510), (100, 900)):  # scores say little; a tenth of them are large
        difference = np.where(np.arange(1000) < n_large, 1000.0, 1.0)
        labels = (np.arange(1000) < n_right).astype(int)
        small = 1000 - n_large
        right = (1 - rest) * (n_right - n_large) + rest * small / 2
        share = (right - 1000 * n_large * rest / 2) / small  # the large ones are right, up to the smoothing
        F = np.stack([-difference / 2, difference / 2], axis=1)
        assert_allclose(best_factor(F, labels), np.log(share / (1 - share)), rtol=1e-3)


def test_scores_that_are_all_equal_have_a_factor():
    assert best_factor(np.zeros((3, 2)), np.array([0, 1, 1])) == 1.0


class Scored:
    """A model of a fold, and its scores."""

    def __init__(self, scores):
        self.scores = np.asarray(scores, dtype=float)
        self.dictionary = SimpleNamespace(rule=ResidualRule(), classes=np.arange(self.scores.shape[1]))


def judged(scores, labels):
    fold = type("Fold", (), {"y_test": np.asarray(labels)})
    return verdict([Scored(scores)], [fold])


def test_log_loss_distinguishes_candidates_of_one_accuracy():
    labels = np.array([0, 1, 0, 1])
    sure = judged([[3, 0], [0, 3], [2, 0], [1, 0]], labels)
    doubtful = judged([[0.1, 0], [0, 3], [2, 0], [3, 0]], labels)
    assert sure.hits.mean() == doubtful.hits.mean() == 0.75
    assert choose([doubtful, sure], "log_loss") == 1
    assert choose([doubtful, sure], "accuracy") == 0  # a tie: the first


def test_a_candidate_that_failed_is_never_chosen():
    labels = np.array([0, 1, 0, 1])
    failed = verdict([None], [type("Fold", (), {"y_test": labels})])
    bad = judged([[0, 1], [1, 0], [0, 1], [1, 0]], labels)
    for selection in ("log_loss", "accuracy"):
        assert choose([failed, bad], selection) == 1
        with pytest.raises(ValueError, match="Every candidate failed in at least one fold"):
            choose([failed, failed], selection)


def test_the_expected_accuracy_is_that_of_every_draw_by_hand():
    """For four samples all draws can be listed."""
    rng = np.random.default_rng(0)
    hits = rng.integers(2, size=(5, 4)).astype(float)
    losses = rng.random((5, 4))
    failed = Verdict(np.full(4, np.nan), np.full(4, np.nan), 1.0)
    verdicts = [failed, *(Verdict(*one, 1.0) for one in zip(hits, losses, strict=True))]
    for selection, gains in (("log_loss", -losses), ("accuracy", hits)):
        n_right = n_tested = 0
        for drawn in product(range(4), repeat=4):
            best = max(range(5), key=lambda k: gains[k, list(drawn)].sum())
            left_out = sorted(set(range(4)) - set(drawn))
            n_right, n_tested = n_right + hits[best, left_out].sum(), n_tested + len(left_out)
        found = expected_accuracy(verdicts, selection, np.array([7, 1, 5, 2]), 0)
        assert abs(found - n_right / n_tested) < 0.03
        # Folds that test each sample twice say no more.
        twice = [Verdict(np.tile(one.hits, 2), np.tile(one.losses, 2), 1.0) for one in verdicts]
        assert_allclose(expected_accuracy(twice, selection, np.tile([7, 1, 5, 2], 2), 0), found)
    one = Verdict(np.ones(1), np.zeros(1), 1.0)  # which is never left out
    assert expected_accuracy([one], "log_loss", np.zeros(1, int), 0) == 1.0


@pytest.mark.parametrize("n_classes", [2, 5])
def test_shuffled_labels_have_the_accuracy_of_chance(n_classes):
    """Candidates that guess: the best of 36 looks good, and its expected accuracy is that of a guess."""
    rng = np.random.default_rng(n_classes)
    best, expected = [], []
    for seed in range(100):
        hits = (rng.integers(n_classes, size=(36, 20)) == 0).astype(float)
        verdicts = [Verdict(row, 1 - row, 1.0) for row in hits]
        best.append(hits[choose(verdicts, "log_loss")].mean())
        expected.append(expected_accuracy(verdicts, "log_loss", np.arange(20), seed))
    assert np.mean(best) > 1 / n_classes + 0.15
    assert abs(np.mean(expected) - 1 / n_classes) < 0.02


def test_intervals_are_those_of_scipy():
    for k, n in ((0, 5), (5, 5), (17, 20), (100, 300)):
        assert_allclose(wilson_interval(k / n, n), binomtest(k, n).proportion_ci(method="wilson"), atol=1e-12)
    assert_allclose(cv_interval(0.5, 40, 40), wilson_interval(0.5, 20))


@pytest.mark.parametrize("counts", [(5, 5, 5), (2, 3, 9), (1, 4, 1, 2), (40, 2, 1), (7,)])
def test_folds_leave_out_every_sample_once_but_only_ones(counts):
    y = np.repeat(np.arange(len(counts)), counts)
    folds = default_folds(y, 0)
    n_folds = min(5, max(counts))
    assert len(folds) == n_folds + 2 * (1 in counts)
    tested = np.bincount(np.concatenate([test for _, test in folds[:n_folds]]), minlength=len(y))
    assert_array_equal(tested, np.where(np.array(counts)[y] > 1, 1, 0))
    sizes = [len(test) for _, test in folds[:n_folds]]
    assert max(sizes) - min(sizes) <= 1
    for train, test in folds[:n_folds]:
        assert_array_equal(np.sort(np.concatenate([train, test])), np.arange(len(y)))
        assert set(y[train]) == set(y)
        left_out = np.bincount(y[test], minlength=len(counts))
        assert (np.abs(left_out - np.array(counts) / n_folds) <= 1).all()


@pytest.mark.parametrize(
    ("counts", "n_classes", "n_tests"),
    [
        ((1, 5, 5, 5, 5), 1, 2),  # of 20 / (4 sqrt(5)) = 2.2 tests, half in each fold
        ((1, 1, 5, 5, 5, 5), 2, 2 * 2),
        ((1, 1, 1, 1, 9, 9), 1, 6),  # of 18 * 4 / 6 = 12 tests
        ((1, 100, 100), 1, 5),  # of 200 / 20 = 10 tests
    ],
)
def test_classes_stand_in_for_those_with_one_sample(counts, n_classes, n_tests):
    """In two more folds they have one training sample, and so many tests as those with one sample deserve."""
    y, counts = np.repeat(np.arange(len(counts)), counts), np.array(counts)
    stood_in = set()
    for train, test in default_folds(y, 0)[-2:]:
        trained, tested = np.bincount(y[train]), np.bincount(y[test], minlength=len(counts))
        own = np.flatnonzero(tested)
        assert len(own) == n_classes
        assert_array_equal(trained, np.where(tested > 0, 1, counts))
        assert len(test) == n_tests
        assert not set(train) & set(test)
        stood_in |= set(own.tolist())
    assert len(stood_in) == 2 * n_classes


def test_classes_that_are_never_tested_do_not_count_in_losses(rng):
    labels = np.array([1, 3] * 6)
    scores = rng.standard_normal((12, 4))
    scores[np.arange(12), labels] += 1
    results = []
    for shift in (0.0, 5.0):  # of the classes 0 and 2, which have one sample each
        moved = scores + shift * np.array([1, 0, 1, 0])
        dictionary = SimpleNamespace(rule=ResidualRule(), classes=np.arange(4))
        row = [SimpleNamespace(dictionary=dictionary, scores=moved)]
        results.append(verdict(row, [SimpleNamespace(y_test=labels)]))
    assert results[0].factor == results[1].factor
    assert_array_equal(results[0].losses, results[1].losses)
    assert results[0].hits.sum() > results[1].hits.sum()


def test_folds_are_drawn():
    y = np.repeat(np.arange(5), 5)
    folds = [default_folds(y, seed)[0][1] for seed in range(4)]
    assert len({tuple(fold) for fold in folds}) > 1
    assert_array_equal(folds[0], default_folds(y, 0)[0][1])


def test_many_samples_need_fewer_folds():
    y = np.repeat(np.arange(102), 5)
    assert [len(test) for _, test in default_folds(y, 0)] == [102, 102]
    assert len(default_folds(np.repeat(np.arange(38), 5), 0)) == 5
