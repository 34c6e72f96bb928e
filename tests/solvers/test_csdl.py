import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.linear_model import Lasso

from helpers import reference
from helpers.problems import unit
from ledl.solvers.csdl import learn_atoms
from ledl.solvers.lasso import lasso
from ledl.solvers.start import random_mixtures


def exact_lasso(B, x, alpha):
    model = Lasso(alpha=alpha / len(x), fit_intercept=False, tol=1e-14, max_iter=100_000)
    return model.fit(B, x).coef_


def objective(X, B, alpha):
    sq_norms = (X**2).sum(axis=1)
    S, _ = lasso(B @ B.T, X @ B.T, sq_norms, alpha, 1e-12)
    return ((X - S @ B) ** 2).sum() + 2 * alpha * np.abs(S).sum()


@pytest.mark.parametrize("shape", [(6, 9), (12, 5)], ids=["n < d", "n > d"])
def test_it_is_the_plain_algorithm(shape, rng):
    X = unit(rng.standard_normal(shape) + 1)
    start = random_mixtures(X, 8, rng)
    run = learn_atoms(X, start, 0.1, max_iter=5, tol=0)
    B = reference.csdl(X.T, start.T.copy(), alpha=0.1, n_iter=5, lasso=exact_lasso)
    assert_allclose(run.state, B.T, atol=1e-4)  # codes are exact to 1e-8 of the objective, so to about 1e-4
    assert_allclose(objective(X, run.state, 0.1), objective(X, B.T, 0.1), rtol=1e-6)


@pytest.mark.parametrize("alpha", [2**-8, 2**-3])
def test_the_objective_falls_and_ends_near_its_least_value(alpha, rng):
    """No dictionary costs a sample of norm 1 less than 2 alpha - alpha^2, its cost with itself as an atom."""
    X = unit(rng.standard_normal((5, 30)) + 1)
    least = len(X) * (2 * alpha - alpha**2)
    assert_allclose(objective(X, X, alpha), least, rtol=1e-9)
    start = random_mixtures(X, 10, rng)
    run = learn_atoms(X, start, alpha, max_iter=200, tol=0)
    history = run.history["objective"]
    assert np.all(np.diff(history) <= 1e-7)
    assert history[-1] >= least * (1 - 1e-9)
    assert history[-1] - least < 0.2 * (objective(X, start, alpha) - least)
    assert_allclose(np.linalg.norm(run.state, axis=1), 1)


def test_tol_ends_it(rng):
    X = unit(rng.standard_normal((5, 30)))
    run = learn_atoms(X, random_mixtures(X, 10, rng), 0.1, max_iter=500, tol=1e-6)
    assert run.n_iter < 500


def test_zero_samples(rng):
    X = np.zeros((3, 4))
    run = learn_atoms(X, random_mixtures(X, 6, rng), 0.1, max_iter=3, tol=0)
    assert not run.state.any()
