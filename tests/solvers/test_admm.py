"""The parts of ADMM that have an answer of their own."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from helpers.problems import unit
from ledl.solvers import compiled
from ledl.solvers import lasso as module
from ledl.solvers.lasso import duality_gap, find_penalty, lasso, reflect_plain, soft_threshold


@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("threshold", [0.0, 0.3, 2.0])
def test_soft_threshold_minimises_its_definition(threshold, positive):
    values = np.linspace(-2, 2, 41)
    for v, s in zip(values, soft_threshold(values, threshold, positive), strict=True):

        def objective(x, v=v):
            return (x - v) ** 2 / 2 + threshold * abs(x)

        best = minimize_scalar(objective, bounds=(0 if positive else -3, 3), method="bounded").x
        assert objective(s) <= objective(best) + 1e-9
        assert s >= 0 or not positive


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("problems", [(), (2, 3)])
def test_compiled_reflection_is_the_plain_one(problems, positive, dtype, rng):
    arrays = [rng.standard_normal((*problems, 7, 11)).astype(dtype) for _ in range(3)]
    threshold = rng.random((*problems, 1, 1)).astype(dtype)
    plain = reflect_plain(*arrays, 1.7, threshold, positive)
    found = compiled.find("reflect", arrays[0])(*arrays, 1.7, threshold, positive)
    for ours, expected in zip(found, plain, strict=True):
        assert ours.dtype == dtype
        np.testing.assert_allclose(ours, expected, atol=1e-6 if dtype == np.float32 else 1e-14)


def test_the_penalty_makes_the_threshold_about_as_large_as_a_coefficient(rng):
    D, alpha = unit(rng.standard_normal((80, 40))), 0.02
    X = unit(rng.standard_normal((50, 40)))
    G, rhs = D @ D.T, X @ D.T
    for scale in (1e-3, 1.0, 1e3):  # atoms scaled up have coefficients scaled down
        rho, inverse = find_penalty(scale**2 * G, scale * rhs, scale * alpha)
        codes, _ = lasso(
            scale**2 * G, scale * rhs, np.ones(50), scale * alpha, 1e-8, solver="admm", max_iter=1000
        )
        size = np.abs(codes).sum() / np.count_nonzero(codes)
        assert 0.1 < (scale * alpha / rho) / size < 2
        np.testing.assert_allclose(inverse @ (scale**2 * G + rho * np.eye(80)), np.eye(80), atol=1e-8)


def test_codes_are_moved_to_the_fit_asked_for_on_their_supports(rng):
    D = unit(rng.standard_normal((30, 20)))
    G, X = D @ D.T, rng.standard_normal((6, 20))
    rhs, squares = X @ D.T, np.sum(X**2, axis=1)
    S = rng.standard_normal((6, 30)) * (rng.random((6, 30)) < 0.3)
    S[0] = 0
    goal = np.where(S != 0, rng.standard_normal(S.shape), 0)
    tried = np.arange(6) != 3
    alpha = np.full((1, 1), 0.1)
    moved, gap = module._move_on_supports(False, G, G, S, rhs - goal @ G, rhs, squares, alpha, tried)
    np.testing.assert_array_equal(moved[S == 0], 0)
    np.testing.assert_allclose(moved[tried], goal[tried], atol=1e-5)
    np.testing.assert_array_equal(moved[3], S[3])
    assert gap[3] == np.inf
    np.testing.assert_allclose(gap[tried], duality_gap(moved, moved @ G, rhs, squares, 0.1, False)[tried])


@pytest.mark.parametrize("dtype", [None, np.float32])
def test_many_problems_have_the_codes_that_each_has_alone(dtype, rng):
    D = np.stack([unit(rng.standard_normal((40, 20))) for _ in range(6)]).reshape(2, 3, 40, 20)
    X = rng.standard_normal((2, 3, 15, 20))
    alpha = rng.uniform(0.05, 1, (2, 3, 1, 1))
    G, rhs, squares = D @ D.mT, X @ D.mT, np.sum(X**2, axis=-1)
    codes, info = lasso(G, rhs, squares, alpha, 1e-4, solver="admm", dtype=dtype)
    assert codes.dtype == np.float64
    assert info.converged.all()
    for p in np.ndindex(2, 3):
        alone, one = lasso(G[p], rhs[p], squares[p], alpha[p].item(), 1e-4, solver="admm", dtype=dtype)
        best, _ = lasso(G[p], rhs[p], squares[p], alpha[p].item(), 1e-12)
        gap = duality_gap(codes[p], codes[p] @ G[p], rhs[p], squares[p], alpha[p].item(), False)
        np.testing.assert_allclose(gap, info.gap[p], atol=1e-9)
        # One that leaves later than it would alone is nearer to the minimum.
        same = info.n_iter[p] == one.n_iter
        assert (info.n_iter[p] >= one.n_iter).all()
        np.testing.assert_allclose(codes[p][same], alone[same], atol=1e-3)
        np.testing.assert_allclose(codes[p], best, atol=0.05)


def test_a_penalty_that_is_known_is_taken(rng, monkeypatch):
    D, X = unit(rng.standard_normal((40, 20))), rng.standard_normal((15, 20))
    problem = D @ D.T, X @ D.T, np.sum(X**2, axis=1), 0.1, 1e-6
    penalty = find_penalty(*problem[:2], 0.1)
    monkeypatch.setattr(module, "find_penalty", None)
    _, info = lasso(*problem, solver="admm", penalty=penalty)
    assert info.converged.all()
