"""CRC against ridge regression, and at fixed weights on the paper's data."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.linear_model import Ridge

from helpers.digits import few_digits
from helpers.oracles import class_residuals
from helpers.problems import unit
from ledl import CRCClassifier
from ledl.datasets import few_shot_splits, load


@pytest.fixture(scope="module")
def digits():
    return few_digits(60)


def shuffled(X, y, rng):
    order = rng.permutation(len(y))[:-4]
    return X[order], y[order]


@pytest.mark.parametrize(("n_features", "rule"), [(64, "residual"), (30, "regularized")])  # n < d, and n > d
def test_it_is_ridge_regression_on_the_samples(digits, n_features, rule, rng):
    X, y = shuffled(digits[0][:, :n_features] + 0.1, digits[1], rng)
    new = digits[2][:, :n_features] + 0.1
    model = CRCClassifier(alpha=0.01, rule=rule).fit(X, y)
    codes = Ridge(alpha=0.01, fit_intercept=False, solver="svd").fit(unit(X).T, unit(new).T).coef_
    assert_allclose(model.transform(new), codes, atol=1e-9)
    expected = class_residuals(unit(X), y, unit(new), codes)
    if rule == "regularized":
        norms = np.stack([np.linalg.norm(codes[:, y == j], axis=1) for j in range(10)], axis=1)
        expected = np.sqrt(expected) / norms
    assert_allclose(-model.decision_function(new), expected, atol=1e-8)


def test_a_class_that_contributes_nothing_has_a_finite_score():
    X = np.eye(6)[:4]
    model = CRCClassifier(rule="regularized").fit(X, [0, 0, 1, 1])
    scores = model.decision_function(np.eye(6)[:1])
    assert np.isfinite(scores).all()
    assert model.predict(np.eye(6)[:1]) == 0


def test_a_ridge_that_is_not_defined_is_reported(digits):
    X, y, _, _ = digits
    X = np.concatenate([X, X[::-1]]).astype(np.float32)
    with pytest.raises(ValueError, match=r"alpha=1e-30 is so small.*Raise alpha"):
        CRCClassifier(alpha=1e-30).fit(X, np.concatenate([y, y[::-1]]))


def test_the_regularized_rule_has_no_scale(digits):
    X, y, new, _ = digits
    X, new = unit(X), unit(new)
    model = CRCClassifier(rule="regularized", normalize=False)
    expected = model.fit(X, y).predict(new)
    model.set_params(alpha=model.alpha * 1e-40)
    assert_array_equal(model.fit(1e-20 * X, y).predict(1e-20 * new), expected)


def test_samples_orthogonal_to_all_atoms_are_reported():
    model = CRCClassifier().fit(np.eye(6)[:4], [0, 0, 1, 1])
    with pytest.warns(UserWarning, match="codes of all 1 samples are zero"):
        model.predict(np.eye(6)[5:])


@pytest.mark.parametrize("scale", [1e-25, 1e18])
def test_float32_scores_at_any_scale(digits, scale):
    X, y, new = unit(digits[0]), digits[1], unit(digits[2])
    expected = CRCClassifier(normalize=False).fit(X, y).predict(new)
    model = CRCClassifier(alpha=CRCClassifier().alpha * scale**2, normalize=False).fit(
        (scale * X).astype(np.float32), y
    )
    assert np.mean(model.predict((scale * new).astype(np.float32)) == expected) > 0.95


@pytest.mark.parametrize(
    ("name", "alpha", "rule", "least"),
    [("yaleb", 2**-8, "regularized", 0.80), ("ucmerced", 2**-3, "residual", 0.79)],
)
def test_real_data(name, alpha, rule, least, require_dataset):
    """One split; benchmarks/rivals.py has all eight."""
    require_dataset(name)
    data = load(name)
    train, test = next(few_shot_splits(data.target))
    model = CRCClassifier(alpha=alpha, rule=rule).fit(data.data[train], data.target[train])
    assert model.score(data.data[test], data.target[test]) > least
