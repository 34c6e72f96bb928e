"""The parts of ADMM and of proximal gradient that have an answer of their own."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from ledl.solvers import compiled, proximal
from problems import unit


@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("threshold", [0.0, 0.3, 2.0])
def test_soft_threshold_minimises_its_definition(threshold, positive):
    values = np.linspace(-2, 2, 41)
    for v, s in zip(values, proximal.soft_threshold(values, threshold, positive), strict=True):

        def objective(x, v=v):
            return (x - v) ** 2 / 2 + threshold * abs(x)

        best = minimize_scalar(objective, bounds=(0 if positive else -3, 3), method="bounded").x
        assert objective(s) <= objective(best) + 1e-9
        assert s >= 0 or not positive


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("positive", [False, True])
def test_compiled_reflection_is_the_plain_one(positive, dtype, rng):
    arrays = [rng.standard_normal((7, 11)).astype(dtype) for _ in range(3)]
    found = compiled.find("reflect", arrays[0])(*arrays, 1.7, 0.4, positive)
    for ours, plain in zip(found, proximal.reflect_plain(*arrays, 1.7, 0.4, positive), strict=True):
        assert ours.dtype == dtype
        np.testing.assert_allclose(ours, plain, atol=1e-6 if dtype == np.float32 else 1e-14)


def test_the_penalty_makes_the_threshold_about_as_large_as_a_coefficient(rng):
    D, alpha = unit(rng.standard_normal((80, 40))), 0.02
    X = unit(rng.standard_normal((50, 40)))
    G, rhs = D @ D.T, X @ D.T
    for scale in (1e-3, 1.0, 1e3):  # atoms scaled up have coefficients scaled down
        rho, inverse = proximal.find_penalty(scale**2 * G, scale * rhs, scale * alpha, False)
        codes, _, _ = proximal.admm(
            scale**2 * G,
            scale * rhs,
            np.ones(50),
            np.zeros_like(rhs),
            alpha=scale * alpha,
            tol=1e-8,
            max_iter=1000,
            positive=False,
        )
        size = np.abs(codes).sum() / np.count_nonzero(codes)
        assert 0.1 < (scale * alpha / rho) / size < 2
        np.testing.assert_allclose(inverse @ (scale**2 * G + rho * np.eye(80)), np.eye(80), atol=1e-8)


def test_codes_are_moved_to_the_fit_asked_for_on_their_supports(rng):
    D = unit(rng.standard_normal((30, 20)))
    G = D @ D.T
    S = rng.standard_normal((6, 30)) * (rng.random((6, 30)) < 0.3)
    S[0] = 0
    goal = np.where(S != 0, rng.standard_normal(S.shape), 0)
    moved = proximal._move_on_support(G, S, (goal - S) @ G, 1e-8)
    np.testing.assert_array_equal(moved[S == 0], 0)
    np.testing.assert_allclose(S + moved, goal, atol=1e-5)
