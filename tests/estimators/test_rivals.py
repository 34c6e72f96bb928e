"""SRC, CRC and CSDL against independent solvers, and at fixed weights on the paper's data."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Lasso, Ridge

from helpers import reference
from helpers.problems import unit
from ledl import CRCClassifier, CSDLClassifier, SRCClassifier
from ledl.coding import RidgeCoder
from ledl.datasets import few_shot_splits, load


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    train, test = next(few_shot_splits(y))
    return X[train], y[train], X[test][:60], y[test][:60]


def residuals(atoms, labels, samples, codes):
    return np.array(
        [reference.src_residuals(atoms.T, labels, x, s) for x, s in zip(samples, codes, strict=True)]
    )


def lasso_codes(atoms, samples, alpha):
    model = Lasso(alpha=alpha / atoms.shape[1], fit_intercept=False, tol=1e-12, max_iter=100_000)
    return np.array([model.fit(atoms.T, x).coef_ for x in samples])


def shuffled(X, y, rng):
    order = rng.permutation(len(y))[:-4]
    return X[order], y[order]


@pytest.mark.parametrize("n_features", [64, 30], ids=["n < d", "n > d"])
def test_src_is_the_papers_algorithm_1(digits, n_features, rng):
    X, y = shuffled(digits[0][:, :n_features] + 0.1, digits[1], rng)
    new = digits[2][:, :n_features] + 0.1
    model = SRCClassifier(alpha=0.05, transform_tol=1e-12).fit(X, y)
    codes = lasso_codes(unit(X), unit(new), 0.05)
    assert_allclose(model.transform(new), codes, atol=1e-5)
    expected = residuals(unit(X), y, unit(new), codes)
    assert_allclose(-model.decision_function(new), expected, atol=1e-5)
    assert_array_equal(model.predict(new), expected.argmin(axis=1))
    assert_allclose(model.components_, unit(X), atol=1e-12)
    assert_array_equal(model.atom_classes_, y)


@pytest.mark.parametrize("n_features", [64, 30], ids=["n < d", "n > d"])
@pytest.mark.parametrize("rule", ["residual", "regularized"])
def test_crc_is_ridge_regression_on_the_samples(digits, n_features, rule, rng):
    X, y = shuffled(digits[0][:, :n_features] + 0.1, digits[1], rng)
    new = digits[2][:, :n_features] + 0.1
    model = CRCClassifier(alpha=0.01, rule=rule).fit(X, y)
    codes = Ridge(alpha=0.01, fit_intercept=False, solver="svd").fit(unit(X).T, unit(new).T).coef_
    assert_allclose(model.transform(new), codes, atol=1e-9)
    expected = residuals(unit(X), y, unit(new), codes)
    if rule == "regularized":
        norms = np.stack([np.linalg.norm(codes[:, y == j], axis=1) for j in range(10)], axis=1)
        expected = np.sqrt(expected) / norms
    assert_allclose(-model.decision_function(new), expected, atol=1e-8)


def test_csdl_is_src_over_learnt_atoms(digits):
    X, y, new, _ = digits
    model = CSDLClassifier(alpha=0.05, transform_tol=1e-12, random_state=0).fit(X, y)
    assert_array_equal(np.bincount(model.atom_classes_), np.full(10, 10))
    codes, atoms = model.transform(new), model.components_
    # The residual of an optimal code has a correlation of at most alpha with every atom, and alpha where it
    # is used.
    correlations = (unit(new) - codes @ atoms) @ atoms.T
    assert np.abs(correlations).max() < 0.05 + 1e-4
    assert_allclose(correlations[codes != 0], 0.05 * np.sign(codes[codes != 0]), atol=1e-4)
    expected = residuals(atoms, model.atom_classes_, unit(new), codes)
    assert_allclose(-model.decision_function(new), expected, atol=1e-10)
    # Atoms are combinations of samples of their own class, and have learnt.
    for j in range(10):
        own, mine = X[y == j], atoms[model.atom_classes_ == j]
        assert_allclose(mine @ np.linalg.pinv(own) @ own, mine, atol=1e-8)
    objective = model.history_["objective"]
    assert objective.shape == (model.n_iter_, 10)
    assert np.all(np.diff(objective, axis=0) <= 1e-7)
    assert np.all(objective[-1] < objective[0])


def test_csdl_by_number_of_atoms_alpha_and_tol(digits):
    X, y, new, _ = digits
    model = CSDLClassifier(n_components=25, tol=1e-2, max_iter=200, alpha=0.1, random_state=0).fit(X, y)
    assert model.components_.shape == (25, 64)
    assert model.n_iter_ < 200
    other = clone(model).set_params(transform_alpha=0.3).fit(X, y)
    assert_allclose(other.components_, model.components_)
    assert np.count_nonzero(other.transform(new)) < np.count_nonzero(model.transform(new))


def test_a_class_that_contributes_nothing_has_a_finite_score():
    X = np.eye(6)[:4]
    model = CRCClassifier(rule="regularized").fit(X, [0, 0, 1, 1])
    scores = model.decision_function(np.eye(6)[:1])
    assert np.isfinite(scores).all()
    assert model.predict(np.eye(6)[:1]) == 0


def test_samples_orthogonal_to_all_atoms_are_told():
    X = np.eye(6)[:4]
    for model in (CRCClassifier(), SRCClassifier()):
        model.fit(X, [0, 0, 1, 1])
        with pytest.warns(UserWarning, match="codes of all 1 samples are zero"):
            model.predict(np.eye(6)[5:])


def test_ridge_that_is_not_defined_is_told(digits):
    X, y, _, _ = digits
    X = np.concatenate([X, X[::-1]]).astype(np.float32)
    with pytest.raises(ValueError, match=r"alpha=1e-30 is so small.*Raise alpha"):
        CRCClassifier(alpha=1e-30).fit(X, np.concatenate([y, y[::-1]]))


@pytest.mark.parametrize("scale", [1e-25, 1e18])
def test_float32_scores_at_any_scale(digits, scale):
    X, y, new, _ = digits
    X, new = unit(X), unit(new)
    for model in (SRCClassifier(alpha=0.01, normalize=False), CRCClassifier(normalize=False)):
        expected = model.fit(X, y).predict(new)
        model.set_params(alpha=model.alpha * scale**2)
        single = model.fit((scale * X).astype(np.float32), y).predict((scale * new).astype(np.float32))
        assert np.mean(single == expected) > 0.95


def test_the_regularized_rule_has_no_scale(digits):
    X, y, new, _ = digits
    X, new = unit(X), unit(new)
    model = CRCClassifier(rule="regularized", normalize=False)
    expected = model.fit(X, y).predict(new)
    model.set_params(alpha=model.alpha * 1e-40)
    assert_array_equal(model.fit(1e-20 * X, y).predict(1e-20 * new), expected)


def test_csdl_tells_how_it_ended(digits):
    X, y, _, _ = digits
    with pytest.warns(ConvergenceWarning, match="CSDLClassifier did not converge"):
        model = CSDLClassifier(tol=1e-9, max_iter=2).fit(X, y)
    assert model.stopped_by_ == "max_iter"
    assert CSDLClassifier(tol=0.1, max_iter=100).fit(X, y).stopped_by_ == "tol"
    with np.errstate(all="ignore"), pytest.raises(ValueError, match=r"Training failed.*scale the samples"):
        CSDLClassifier(normalize=False, alpha=1e100).fit(1e120 * X, y)


@pytest.mark.parametrize("shape", [(5, 9), (9, 5)])
def test_ridge_codes_solve_their_equations(shape, rng):
    D, X = rng.standard_normal(shape), rng.standard_normal((7, shape[1]))
    S, *_ = RidgeCoder(D, 0.3)(X, (X**2).sum(axis=1))
    assert_allclose(S @ (D @ D.T + 0.3 * np.eye(len(D))), X @ D.T, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "model", "least"),
    [
        ("usps", SRCClassifier(alpha=2**-4), 0.75),
        ("yaleb", SRCClassifier(alpha=2**-10), 0.74),
        ("yaleb", CRCClassifier(alpha=2**-8, rule="regularized"), 0.80),
        ("ucmerced", CRCClassifier(alpha=2**-3), 0.79),
        ("yaleb", CSDLClassifier(alpha=2**-8, random_state=0), 0.75),
    ],
)
def test_real_data(name, model, least, require_dataset):
    """One split; benchmarks/rivals.py has all eight."""
    require_dataset(name)
    data = load(name)
    train, test = next(few_shot_splits(data.target))
    model = clone(model).fit(data.data[train], data.target[train])
    assert model.score(data.data[test], data.target[test]) > least
