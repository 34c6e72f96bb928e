"""ProCRC against its objective, solved by least squares, and against CRC where they agree."""

import tracemalloc

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.preprocessing import normalize

from ledl import CRCClassifier, ProCRCClassifier, explain
from ledl.coding import Collaborative
from ledl.coding._coders import CollaborativeCoder
from ledl.datasets import few_shot_splits


@pytest.fixture
def task():
    X, y = load_digits(return_X_y=True)
    train, test = next(few_shot_splits(y, n_per_class=4))
    return X[train], y[train], X[test[:40]], y[test[:40]]


def codes_by_least_squares(D, labels, X, alpha, agreement):
    """Minimise |x - s D|^2 + alpha |s|^2 + agreement / c sum_j |s D - s_j D_j|^2 as least squares."""
    c = labels.max() + 1
    without = [D * (labels != j)[:, None] for j in range(c)]  # s D - s_j D_j = s without_j
    A = np.concatenate([D.T, alpha**0.5 * np.eye(len(D)), *((agreement / c) ** 0.5 * own.T for own in without)])
    b = np.concatenate([X.T, np.zeros((len(A) - X.shape[1], len(X)))])
    return np.linalg.lstsq(A, b)[0].T


@pytest.mark.parametrize(("kernel", "power"), [("linear", 1), ("hellinger", 0.5), (0.25, 0.25)])
@pytest.mark.parametrize(("alpha", "agreement"), [(0.5, 2.0), (2**-5, 2**-5), (0.1, 0.0)])
def test_codes_and_labels_are_those_of_the_objective(task, kernel, power, alpha, agreement):
    X, y, X_test, _ = task
    model = ProCRCClassifier(alpha=alpha, agreement=agreement, kernel=kernel).fit(X, y)
    D, S = normalize(X**power), normalize(X_test**power)
    codes = codes_by_least_squares(D, y, S, alpha, agreement)
    np.testing.assert_allclose(model.transform(X_test), codes, atol=1e-9)
    far = [np.linalg.norm(codes @ (D * (y != j)[:, None]), axis=1) ** 2 for j in range(10)]
    np.testing.assert_allclose(model.decision_function(X_test), -np.array(far).T, atol=1e-9)
    assert (model.predict(X_test) == np.argmin(far, axis=0)).all()


@pytest.mark.filterwarnings("ignore:The number of unique classes")
@pytest.mark.parametrize("n_classes", [1, 2, 5, 60])
@pytest.mark.parametrize("n_features", [10, 70])
def test_classes_with_fewer_and_with_more_samples_than_features(n_classes, n_features, rng):
    X, y = rng.standard_normal((60, n_features)), rng.permutation(np.arange(60) % n_classes)
    model = ProCRCClassifier(alpha=0.01, agreement=0.7).fit(X, y) if n_classes > 1 else None
    D = normalize(X)
    coder = CollaborativeCoder(D, Collaborative(0.01, 0.7, y))
    codes = coder(D[:5], np.ones(5))[0]
    np.testing.assert_allclose(codes, codes_by_least_squares(D, y, D[:5], 0.01, 0.7), atol=1e-9)
    if model is not None:
        np.testing.assert_allclose(model.transform(X[:5]), codes, atol=1e-9)


def test_there_is_no_matrix_of_all_pairs_of_samples(rng):
    X, y = rng.random((4000, 16)), np.arange(4000) % 10
    tracemalloc.start()
    try:
        ProCRCClassifier().fit(X, y).predict(X[:1])
        assert tracemalloc.get_traced_memory()[1] < 2**20 * 30  # such a matrix has 122 MiB
    finally:
        tracemalloc.stop()


def test_without_agreement_codes_are_those_of_crc(task):
    X, y, X_test, _ = task
    found = ProCRCClassifier(agreement=0, kernel="rbf").fit(X, y).transform(X_test)
    np.testing.assert_allclose(found, CRCClassifier(kernel="rbf").fit(X, y).transform(X_test), atol=1e-9)


def test_parts_of_an_explanation_add_up_to_the_scores(task):
    X, y, X_test, _ = task
    model = ProCRCClassifier().fit(X, y)
    shown = explain(model, X_test[:1])
    assert "of what all classes together make" in str(shown)  # not of the sample
    np.testing.assert_allclose(
        shown.base + shown.contributions.sum(axis=0), model.decision_function(X_test[:1])[0], atol=1e-9
    )


def test_weights_are_refused_with_the_reason(task):
    X, y, _, _ = task
    with pytest.raises(TypeError, match="copies of a sample would agree with themselves"):
        ProCRCClassifier().fit(X, y, sample_weight=np.ones(len(y)))


def test_too_small_a_weight_is_named(task):
    X, y, _, _ = task
    with pytest.raises(ValueError, match="Raise alpha"):
        ProCRCClassifier(alpha=1e-300).fit(np.repeat(X, 2, axis=0), np.repeat(y, 2))
