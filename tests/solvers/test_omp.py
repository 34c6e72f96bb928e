"""Codes of orthogonal matching pursuit against its definition, and its own optimality."""

import array_api_strict
import numpy as np
import pytest

from ledl.solvers.omp import omp, omp_plain
from problems import unit


def solve(D, X, n_nonzero):
    return omp(D @ D.T, X @ D.T, np.sum(X**2, axis=1), n_nonzero)


@pytest.mark.parametrize("n_nonzero", [1, 2, 7, 20])
def test_codes_are_those_of_the_definition(n_nonzero, rng):
    D, X = unit(rng.standard_normal((50, 30))), rng.standard_normal((40, 30))
    S, taken = solve(D, X, n_nonzero)
    np.testing.assert_allclose(S, [omp_plain(D, x, n_nonzero) for x in X], atol=1e-10)
    assert (taken == n_nonzero).all()


def check_residuals(D, X, S, n_nonzero):
    """At most so many atoms, and residuals orthogonal to them: least squares on the support."""
    assert (np.count_nonzero(S, axis=1) <= n_nonzero).all()
    correlation = np.abs((X - S @ D) @ D.T)
    size = np.linalg.norm(X, axis=1, keepdims=True) * np.linalg.norm(D, axis=1)
    assert (correlation[S != 0] <= 1e-7 * size[S != 0]).all()


def test_copies_of_atoms_are_passed_over(rng):
    D = unit(rng.standard_normal((12, 20)))
    copies = np.concatenate([D, D, -D, D])
    X = rng.standard_normal((30, 20))
    S, taken = solve(copies, X, 20)
    assert (taken == 12).all()  # T larger than the rank
    check_residuals(copies, X, S, 12)
    np.testing.assert_allclose(S @ copies, X @ np.linalg.pinv(D) @ D, atol=1e-9)


def test_a_sample_that_an_atom_explains_takes_one(rng):
    D = unit(rng.standard_normal((30, 20)))
    S, taken = solve(D, 3 * D[:5], 10)
    assert (taken == 1).all()
    np.testing.assert_allclose(S[:, :5], 3 * np.eye(5), atol=1e-12)


def test_zero_samples_and_zero_atoms(rng):
    D = np.concatenate([unit(rng.standard_normal((6, 10))), np.zeros((2, 10))])
    X = np.concatenate([np.zeros((2, 10)), rng.standard_normal((3, 10))])
    S, taken = solve(D, X, 8)
    assert not S[:2].any()
    assert not S[:, 6:].any()
    np.testing.assert_array_equal(taken, [0, 0, 6, 6, 6])
    S, taken = solve(np.zeros((3, 10)), X, 2)
    assert not S.any()
    assert not taken.any()


def test_more_non_zeros_than_atoms(rng):
    D, X = unit(rng.standard_normal((4, 10))), rng.standard_normal((3, 10))
    S, _ = solve(D, X, 100)
    np.testing.assert_allclose(S @ D, X @ np.linalg.pinv(D) @ D, atol=1e-10)


def test_what_does_not_fit_is_refused(rng):
    D, X = unit(rng.standard_normal((4, 10))), rng.standard_normal((3, 10))
    with pytest.raises(ValueError, match="shapes"):
        omp(D @ D.T, X @ D.T, np.ones(2), 2)
    with pytest.raises(TypeError, match="NumPy arrays only"):
        omp(D @ D.T, array_api_strict.asarray(X @ D.T), np.ones(3), 2)
