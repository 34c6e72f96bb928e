"""Lessons from more and more answers, which `ledl label` learns from."""

import numpy as np
import pytest
from scipy.linalg import solve
from scipy.stats import binomtest, multivariate_normal
from sklearn.datasets import load_digits

from ledl.lessons import Learner, Said, mix, with_interval
from ledl.solvers.graph import Gaussians, masses


@pytest.fixture(scope="module")
def digits():
    return load_digits(return_X_y=True)


@pytest.fixture
def learner(digits):
    return Learner(digits[0], n_jobs=2)


def some_labels(y, per_class, seed=0):
    rng, known = np.random.default_rng(seed), np.full(len(y), -1)
    for label in np.unique(y):
        known[rng.choice(np.flatnonzero(y == label), per_class, replace=False)] = label
    return known


def suggested(lesson, known):
    said = lesson.classes[lesson.probabilities.argmax(axis=1)]
    return np.where(known >= 0, known, said)


def test_gaussians_of_labelled_samples_are_those_of_the_formula(rng):
    Z = rng.standard_normal((60, 4))
    Z -= Z.mean(axis=0)
    labelled, numbers = np.arange(20), np.arange(20) % 3
    found = Gaussians.of_labelled(Z, Z.T @ Z / 60, labelled, np.eye(3)[numbers]).guess(Z)
    means = np.array([Z[:20][numbers == j].mean(axis=0) for j in range(3)])
    offsets = Z[:20] - means[numbers]
    covariance = offsets.T @ offsets / 40 + Z.T @ Z / 120
    logs = np.stack([multivariate_normal(mean, covariance).logpdf(Z) for mean in means], axis=1)
    assert np.allclose(found - found[:, :1], logs - logs[:, :1], atol=1e-4)


def test_a_small_folder_is_learnt_too(digits):
    """With ten neighbours among 30 samples all were near all, and the class with most labels won: 35 %."""
    X, y = digits
    rng, right = np.random.default_rng(0), []
    for _ in range(5):
        rows = np.concatenate([rng.permutation(np.flatnonzero(y == label))[:6] for label in range(5)])
        known = np.full(30, -1)
        known[::3] = y[rows][::3]
        known[:4] = y[rows][:4]  # more of one class
        lesson = Learner(X[rows]).learn(known)
        answers = lesson.classes[lesson.probabilities.argmax(axis=1)]
        right.append((answers == y[rows])[known < 0].mean())
    assert np.mean(right) > 0.8


def test_answers_make_it_right(digits, learner):
    _, y = digits
    known, shares = some_labels(y, 1), []
    for _ in range(6):
        lesson = learner.learn(known)
        shares.append((suggested(lesson, known) == y).mean())
        assert (known[lesson.questions] == -1).all()
        assert len(set(lesson.questions.tolist())) == len(lesson.questions)
        assert np.allclose(lesson.probabilities.sum(axis=1), 1, atol=1e-5)
        known[lesson.questions[:10]] = y[lesson.questions[:10]]
    assert shares[-1] > 0.93
    assert shares[-1] > shares[0]


def test_influence_adds_up_to_what_reaches_a_sample(digits, learner):
    _, y = digits
    known = some_labels(y, 3)
    lesson = learner.learn(known)
    assert len(lesson.graphs) > 0
    reached = np.zeros((len(lesson.copy_of), 10))
    for weight, graph in lesson.graphs:
        n = len(graph.sums)
        W = np.zeros((n, n))
        np.put_along_axis(W, graph.neighbours, graph.weights.astype(float), axis=1)
        S = (W + W.T) / np.sqrt(np.outer(graph.sums, graph.sums))
        H = np.zeros((n, 10))
        H[lesson.labelled, known[lesson.rows]] = lesson.masses
        F = solve(np.eye(n) - 0.99 * S, H)
        reached += weight * (F / F.sum(axis=1, keepdims=True))[lesson.copy_of]
    for row in (5, 700):
        rows, shares = lesson.influence(row)
        assert (np.diff(shares) <= 0).all()
        total = np.bincount(known[rows], weights=shares, minlength=10)
        assert np.allclose(total, reached[row], atol=1e-3)


def test_without_two_classes_there_are_only_questions(digits, learner):
    _, y = digits
    for known in (np.full(len(y), -1), np.where(np.arange(len(y)) == 3, 7, -1)):
        lesson = learner.learn(known)
        assert lesson.probabilities.shape == (len(y), 0)
        assert (known[lesson.questions] == -1).all()
        assert len(set(y[lesson.questions[:30]].tolist())) >= 8  # unlike each other
        rows, amounts = lesson.influence(4)
        assert len(rows) == len(amounts) == 0
        assert learner.estimate(known, []) is None


@pytest.mark.parametrize("n", [1, 2, 3, 12])
def test_very_few_samples(n, digits):
    X, y = digits[0][:n], np.arange(n) % 2
    learner = Learner(X)
    known = np.where(np.arange(n) < 2, y, -1)
    lesson = learner.learn(known)
    assert len(lesson.questions) == max(n - 2, 0)
    assert lesson.probabilities.shape == (n, 2 if n > 2 else 0)


@pytest.mark.parametrize("copies", [1, 3])
def test_every_sample_is_labelled_and_classes_are_points(copies, digits):
    """What differs within the classes is rounding errors, which are no covariance."""
    X, known = np.repeat(digits[0][:30], copies, axis=0), np.repeat(np.arange(30), copies)
    lesson = Learner(X).learn(known)
    assert (lesson.classes[lesson.probabilities.argmax(axis=1)] == known).all()


def test_classes_come_go_and_keep_their_numbers(digits, learner):
    _, y = digits
    known = some_labels(y, 3)
    ids = np.array([3, 8, 20, 21, 22, 30, 31, 40, 41, 100])
    named = np.where(known >= 0, ids[known], -1)
    without = np.where(named == 31, -1, named)
    assert learner.learn(without).classes.tolist() == np.delete(ids, 6).tolist()
    lesson = learner.learn(named)  # a new class
    assert lesson.classes.tolist() == ids.tolist()
    assert (suggested(lesson, named) == ids[y]).mean() > 0.85
    merged = np.where(named == 40, 41, named)
    lesson = learner.learn(merged)
    assert lesson.classes.tolist() == np.delete(ids, 7).tolist()
    assert (suggested(lesson, merged) == np.where(y == 7, 41, ids[y])).mean() > 0.85
    fewer = np.where(np.arange(len(y)) < 900, merged, -1)  # labels are taken back
    assert len(learner.learn(fewer).rows) == (fewer >= 0).sum()


def test_copies_share_a_label(digits):
    X, y = digits
    X, y = np.concatenate([X[:300], X[:100]]), np.concatenate([y[:300], y[:100]])
    known = np.where(np.arange(400) < 50, y, -1)
    lesson = Learner(X).learn(known)
    assert (lesson.probabilities[300:350].argmax(axis=1) == y[:50]).all()
    assert (lesson.questions < 300).all()
    assert not set(lesson.questions.tolist()) & set(range(50))


def test_estimates_do_not_know_the_checks(digits, learner):
    X, y = digits
    known = some_labels(y, 5)
    rng = np.random.default_rng(1)
    checks = rng.permutation(np.flatnonzero(known < 0))[:40]
    known[checks] = y[checks]
    learner.learn(known)
    found = learner.estimate(known, checks)
    assert found.n_checks == 40
    assert found.accuracy > 0.8
    # Wrong labels that had taught would be found again.
    wrong = known.copy()
    wrong[checks] = (y[checks] + rng.integers(1, 10, 40)) % 10
    other = Learner(X)
    other.learn(wrong)
    assert other.estimate(wrong, checks).accuracy < 0.3
    other.learn(wrong)
    assert other.estimate(wrong, checks).accuracy < 0.3
    assert (
        other.estimate(known, checks).accuracy > 0.8
    )  # other labels of the same samples: a lesson comes first


def test_a_label_that_is_left_out_does_not_reach_its_sample(digits):
    _, y = digits
    known = some_labels(y, 3)
    learner = Learner(digits[0])
    learner.learn(known)
    learner.last[1].weights[:] = 1, 0, 0  # the learnt graph alone
    mine = learner._of_samples(known)
    samples = np.flatnonzero(mine >= 0)[::4]
    found = learner._left_out(samples)
    graph, n = learner.last[1].graph, len(mine)
    W = np.zeros((n, n))
    np.put_along_axis(W, graph.neighbours, graph.weights.astype(float), axis=1)
    S = (W + W.T) / np.sqrt(np.outer(graph.sums, graph.sums))
    mass = masses(mine[mine >= 0], 0.5)
    for sample, scores in zip(samples, found, strict=True):
        H = np.zeros((n, 10))
        others = np.setdiff1d(np.flatnonzero(mine >= 0), sample)
        H[others, mine[others]] = mass[mine[others]]
        F = solve(np.eye(n) - 0.99 * S, H)[sample]
        assert scores.argmax() == F.argmax()
        logs = np.log(F / F.sum())
        large = F / F.sum() > 1e-3
        assert np.corrcoef(scores[large], logs[large])[0, 1] > 0.999 or large.sum() < 3


def test_suggestions_are_as_sure_as_they_are_right(digits, learner):
    known = some_labels(digits[1], 4)
    known[:900] = digits[1][:900]  # half of all: only the others count
    found = learner.learn(known)
    checks = np.flatnonzero(known >= 0)[:40]
    estimate = learner.estimate(known, checks)
    found = learner.learn(known)
    mean = found.probabilities[known < 0].max(axis=1).mean()
    assert np.isclose(mean, (40 * estimate.accuracy + 9) / 50, atol=0.02)


def test_wrong_labels_are_doubtful(digits, learner):
    _, y = digits
    known = some_labels(y, 15)
    wrong = np.flatnonzero(known >= 0)[::15]
    known[wrong] = (known[wrong] + 5) % 10
    lesson = learner.learn(known)
    named = lesson.doubtful[: len(wrong)]
    assert len(set(named.tolist()) & set(wrong.tolist())) >= 0.7 * len(wrong)
    suggestions = lesson.classes[lesson.doubtful_suggestions[: len(wrong)]]
    assert (suggestions == y[named]).mean() > 0.9


def test_the_expert_that_was_right_gets_the_weight(learner):
    rng = np.random.default_rng(0)
    answers = rng.integers(0, 3, 60)
    learner.said = {}
    for i, label in enumerate(answers):
        wrong = np.log(rng.dirichlet([1, 1, 1], size=3))
        wrong[1] = np.log(np.full(3, 0.05) + 0.85 * np.eye(3)[label])
        learner.said[i] = Said(np.arange(3), wrong)
    mine = np.full(len(learner.rows), -1)
    mine[:60] = answers
    assert learner._weights(mine).argmax() == 1
    assert learner._weights(mine)[1] > 0.7
    mine[9:] = -1  # labels that were taken back say nothing
    assert learner._weights(mine).tolist() == [0.5, 0.5, 0.0]


def test_a_new_start_learns_the_weights_from_hidden_labels(digits):
    known = some_labels(digits[1], 4)
    learner = Learner(digits[0], n_jobs=2)
    learner.learn(known)
    assert set(learner.said) == set(learner.copy_of[known >= 0].tolist())


@pytest.mark.parametrize(("right", "n"), [(0, 5), (17, 20), (30, 30)])
def test_intervals_are_those_of_scipy(right, n):
    found = with_interval(right / n, n)
    interval = binomtest(right, n).proportion_ci(0.9, method="wilson")
    assert np.allclose(found[:3], [right / n, interval.low, interval.high])


def test_every_third_question_is_a_check_and_later_every_tenth():
    asked = mix(range(100), range(1000, 1100), 12)
    assert [is_check for _, is_check in asked] == [False, False, True] * 4
    assert [i for i, is_check in asked if is_check] == [1000, 1001, 1002, 1003]
    later = mix(range(100), range(1000, 1100), 30, 40)
    assert [k for k, (_, is_check) in enumerate(later) if is_check] == [9, 19, 29]
    assert [i for i, _ in mix([], [7, 8], 5)] == [7, 8]
    assert [i for i, _ in mix([1, 2, 3, 4], [], 9)] == [1, 2, 3, 4]
