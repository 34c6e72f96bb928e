"""CSDL against the conditions of its solution, and at fixed weights on the paper's data."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from helpers.digits import few_digits
from helpers.oracles import class_residuals
from helpers.problems import unit
from ledl import CSDLClassifier
from ledl.datasets import few_shot_splits, load


@pytest.fixture(scope="module")
def digits():
    return few_digits(60)


def test_it_is_src_over_learnt_atoms(digits):
    X, y, new, _ = digits
    model = CSDLClassifier(alpha=0.05, transform_tol=1e-12, random_state=0).fit(X, y)
    assert_array_equal(np.bincount(model.atom_classes_), np.full(10, 10))
    codes, atoms = model.transform(new), model.components_
    # The residual of an optimal code has a correlation of at most alpha with every atom, and alpha where it
    # is used.
    correlations = (unit(new) - codes @ atoms) @ atoms.T
    assert np.abs(correlations).max() < 0.05 + 1e-4
    assert_allclose(correlations[codes != 0], 0.05 * np.sign(codes[codes != 0]), atol=1e-4)
    expected = class_residuals(atoms, model.atom_classes_, unit(new), codes)
    assert_allclose(-model.decision_function(new), expected, atol=1e-10)
    # Atoms are combinations of samples of their own class, and have learnt.
    for j in range(10):
        own, mine = X[y == j], atoms[model.atom_classes_ == j]
        assert_allclose(mine @ np.linalg.pinv(own) @ own, mine, atol=1e-8)
    objective = model.history_["objective"]
    assert objective.shape == (model.n_iter_, 10)
    assert np.all(np.diff(objective, axis=0) <= 1e-7)
    assert np.all(objective[-1] < objective[0])


def test_number_of_atoms_alpha_and_tol(digits):
    X, y, new, _ = digits
    model = CSDLClassifier(n_components=25, tol=1e-2, max_iter=200, alpha=0.1, random_state=0).fit(X, y)
    assert model.components_.shape == (25, 64)
    assert model.n_iter_ < 200
    other = clone(model).set_params(transform_alpha=0.3).fit(X, y)
    assert_allclose(other.components_, model.components_)
    assert np.count_nonzero(other.transform(new)) < np.count_nonzero(model.transform(new))


def test_how_it_ended_is_reported(digits):
    X, y, _, _ = digits
    with pytest.warns(ConvergenceWarning, match="CSDLClassifier did not converge"):
        model = CSDLClassifier(tol=1e-9, max_iter=2).fit(X, y)
    assert model.stopped_by_ == "max_iter"
    assert CSDLClassifier(tol=0.1, max_iter=100).fit(X, y).stopped_by_ == "tol"
    with np.errstate(all="ignore"), pytest.raises(ValueError, match=r"Training failed.*scale the samples"):
        CSDLClassifier(normalize=False, alpha=1e100).fit(1e120 * X, y)


def test_real_data(require_dataset):
    """One split; benchmarks/rivals.py has all eight."""
    require_dataset("yaleb")
    data = load("yaleb")
    train, test = next(few_shot_splits(data.target))
    model = CSDLClassifier(alpha=2**-8, random_state=0).fit(data.data[train], data.target[train])
    assert model.score(data.data[test], data.target[test]) > 0.75
