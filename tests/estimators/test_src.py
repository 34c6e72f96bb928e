"""SRC against independent solvers, and at fixed weights on the paper's data."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.linear_model import Lasso

from helpers.digits import few_digits
from helpers.oracles import class_residuals
from helpers.problems import unit
from ledl import SRCClassifier
from ledl.datasets import few_shot_splits, load


@pytest.fixture(scope="module")
def digits():
    return few_digits(60)


def shuffled(X, y, rng):
    order = rng.permutation(len(y))[:-4]
    return X[order], y[order]


def lasso_codes(atoms, samples, alpha):
    model = Lasso(alpha=alpha / atoms.shape[1], fit_intercept=False, tol=1e-12, max_iter=100_000)
    return np.array([model.fit(atoms.T, x).coef_ for x in samples])


@pytest.mark.parametrize("n_features", [64, 30], ids=["n < d", "n > d"])
def test_it_is_the_papers_algorithm_1(digits, n_features, rng):
    X, y = shuffled(digits[0][:, :n_features] + 0.1, digits[1], rng)
    new = digits[2][:, :n_features] + 0.1
    model = SRCClassifier(alpha=0.05, transform_tol=1e-12).fit(X, y)
    codes = lasso_codes(unit(X), unit(new), 0.05)
    assert_allclose(model.transform(new), codes, atol=1e-5)
    expected = class_residuals(unit(X), y, unit(new), codes)
    assert_allclose(-model.decision_function(new), expected, atol=1e-5)
    assert_array_equal(model.predict(new), expected.argmin(axis=1))
    assert_allclose(model.components_, unit(X), atol=1e-12)
    assert_array_equal(model.atom_classes_, y)


def test_samples_orthogonal_to_all_atoms_are_reported():
    model = SRCClassifier().fit(np.eye(6)[:4], [0, 0, 1, 1])
    with pytest.warns(UserWarning, match="codes of all 1 samples are zero"):
        model.predict(np.eye(6)[5:])


@pytest.mark.parametrize("scale", [1e-25, 1e18])
def test_float32_scores_at_any_scale(digits, scale):
    X, y, new = unit(digits[0]), digits[1], unit(digits[2])
    expected = SRCClassifier(alpha=0.01, normalize=False).fit(X, y).predict(new)
    model = SRCClassifier(alpha=0.01 * scale**2, normalize=False).fit((scale * X).astype(np.float32), y)
    assert np.mean(model.predict((scale * new).astype(np.float32)) == expected) > 0.95


@pytest.mark.parametrize(("name", "alpha", "least"), [("usps", 2**-4, 0.75), ("yaleb", 2**-10, 0.74)])
def test_real_data(name, alpha, least, require_dataset):
    """One split; benchmarks/rivals.py has all eight."""
    require_dataset(name)
    data = load(name)
    train, test = next(few_shot_splits(data.target))
    model = SRCClassifier(alpha=alpha).fit(data.data[train], data.target[train])
    assert model.score(data.data[test], data.target[test]) > least
