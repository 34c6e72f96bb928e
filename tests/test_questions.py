"""Which samples to ask about next."""

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from ledl import RejectingClassifier, SemiSupervisedClassifier, next_questions
from ledl.questions import first_questions, most_useful, usefulness


def greedy(use, is_open, W, n):
    """Return what `most_useful` must, with a full matrix of weights."""
    left, found = use.copy(), []
    links = np.maximum(W, W.T)
    for _ in range(n):
        best = max((i for i in range(len(use)) if is_open[i] and i not in found), key=lambda i: left[i])
        found.append(best)
        left = left * (1 - links[best])
    return found


def test_questions_are_those_of_the_plain_greedy_choice(rng):
    n, k = 40, 5
    neighbours = np.array([rng.permutation(np.delete(np.arange(n), i))[:k] for i in range(n)])
    weights = rng.uniform(0.05, 0.95, (n, k))
    W = np.zeros((n, n))
    np.put_along_axis(W, neighbours, weights, axis=1)
    use, is_open = rng.uniform(0.1, 1, n), rng.uniform(size=n) < 0.7
    found = most_useful(use, is_open, neighbours, weights, 12)
    assert found.tolist() == greedy(use, is_open, W, 12)
    everything = most_useful(use, is_open, neighbours, weights, 1000)
    assert sorted(everything) == np.flatnonzero(is_open).tolist()


def test_a_sample_is_useful_where_two_classes_are_near_or_labels_are_far():
    P = np.array([[0.5, 0.49, 0.01], [0.9, 0.05, 0.05], [0.9, 0.05, 0.05]])
    found = usefulness(P, np.array([1.0, 1.0, 0.0]))
    assert np.allclose(found, [1 - 0.01 / 1.5, 1 - 0.85 / 1.5, 1])


def test_first_questions_are_unlike_each_other(rng):
    # Twenty tight clusters, one of them huge: random samples would be of the huge one.
    sizes = [500, *[10] * 19]
    owner = np.repeat(np.arange(20), sizes)
    Z = (10 * rng.standard_normal((20, 8))[owner] + 0.01 * rng.standard_normal((len(owner), 8))).astype(
        np.float32
    )
    is_open = np.ones(len(Z), dtype=bool)
    found = first_questions(Z, is_open, 20)
    assert len(set(found.tolist())) == len(found) == 20
    assert len(set(owner[found].tolist())) >= 18
    is_open[:] = False
    assert len(first_questions(Z, is_open, 5)) == 0
    is_open[7] = True
    assert first_questions(Z, is_open, 5).tolist() == [7]


def test_answers_to_questions_teach_more_than_random_labels():
    X, y = load_digits(return_X_y=True)
    X, y = X[:900], y[:900]
    accuracy = {"asked": [], "random": []}
    for seed in range(3):
        rng = np.random.default_rng(seed)
        for way, seen in accuracy.items():
            known = np.full(len(y), -1)
            for label in range(10):
                known[rng.choice(np.flatnonzero(y == label), 2)] = label
            for _ in range(3):
                model = SemiSupervisedClassifier(
                    LogisticRegression(C=0.01, max_iter=2000), methods=["spread"], random_state=0
                ).fit(X, known)
                rows = (
                    next_questions(model, X) if way == "asked" else rng.permutation(np.flatnonzero(known < 0))
                )
                assert (known[rows] == -1).all()
                known[rows[:10]] = y[rows[:10]]
            model.fit(X, known)
            seen.append((model.transduction_ == y).mean())
    assert np.mean(accuracy["asked"]) > np.mean(accuracy["random"])


def test_copies_and_models_without_a_graph_are_asked_about_once():
    X, y = load_digits(return_X_y=True)
    X, y = np.concatenate([X[:200], X[:200]]), np.concatenate([y[:200], y[:200]])
    known = np.where(np.arange(400) < 60, y, -1)
    model = SemiSupervisedClassifier(LogisticRegression(max_iter=2000), methods=["supervised"], random_state=0)
    rows = next_questions(model.fit(X, known), X, 1000)
    assert sorted(rows % 200) == list(range(60, 200))


def test_other_samples_are_refused():
    X, y = load_digits(return_X_y=True)
    X, y = X[:150], np.where(np.arange(150) < 50, y[:150], -1)
    model = SemiSupervisedClassifier(LogisticRegression(max_iter=2000), random_state=0).fit(X, y)
    with pytest.raises(ValueError, match=r"X has 149 samples, but the model was fitted on 150"):
        next_questions(model, X[:149])
    with pytest.raises(ValueError, match=r"149 different samples"):
        next_questions(model, np.concatenate([X[:149], X[:1]]))
    with pytest.raises(TypeError, match=r"RejectingClassifier.*estimator_"):
        next_questions(RejectingClassifier(model), X)
    with pytest.raises(ValueError, match="n_questions"):
        next_questions(model, X, 0)
