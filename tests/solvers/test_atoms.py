"""The sweep against its definition."""

import itertools

import numpy as np
import pytest

from ledl.solvers import compiled
from ledl.solvers.atoms import sweep
from problems import unit


@pytest.fixture(params=[7, 60], ids="{} atoms".format)
def fit(request, rng):
    """Codes, targets and atoms with three parts, and what a sweep takes."""
    n, bounds = 40, (0, 9, 13, 16)
    C, T = rng.standard_normal((n, request.param)), rng.standard_normal((n, 16))
    parts = list(itertools.pairwise(bounds))
    M = np.concatenate([unit(rng.standard_normal((request.param, j - i))) for i, j in parts], axis=1)
    norms = np.array([np.linalg.norm(T[:, i:j]) for i, j in parts])
    return C, T, M, bounds, norms


def squares(C, T, M, bounds):
    E = (T - C @ M) ** 2
    return np.array([E[:, i:j].sum() for i, j in itertools.pairwise(bounds)])


def test_each_part_is_optimal_on_its_sphere_right_after_its_update(fit, rng):
    C, T, M, bounds, norms = fit
    new, _ = sweep(C.T @ C, C.T @ (T - C @ M), M, bounds, norms)
    for k in range(len(M)):
        then = np.concatenate([new[: k + 1], M[k + 1 :]])  # earlier atoms new, later ones old
        best = squares(C, T, then, bounds)
        for j, (start, stop) in enumerate(itertools.pairwise(bounds)):
            for scale in (1e-3, 0.1, 10.0):
                moved = then.copy()
                step = scale * rng.standard_normal(stop - start)
                moved[k, start:stop] = unit(moved[k, start:stop] + step)
                assert squares(C, T, moved, bounds)[j] >= best[j] - 1e-9


def test_sweep_never_raises_the_fit_and_says_by_how_much_it_falls(fit):
    C, T, M, bounds, norms = fit
    for _ in range(20):
        before = squares(C, T, M, bounds)
        M, decrease = sweep(C.T @ C, C.T @ (T - C @ M), M, bounds, norms)
        assert (decrease > -1e-9).all()
        np.testing.assert_allclose(before - squares(C, T, M, bounds), decrease, atol=1e-8)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_compiled_sweep_is_the_plain_one(fit, dtype, monkeypatch):
    C, T, M, bounds, norms = fit
    arrays = [x.astype(dtype) for x in (C.T @ C, C.T @ (T - C @ M), M)]
    ours = sweep(*arrays, bounds, norms)
    monkeypatch.setattr(compiled, "find", lambda name, array: None)
    plain = sweep(*arrays, bounds, norms)
    assert ours[0].dtype == plain[0].dtype == dtype
    tol = 1e-12 if dtype == np.float64 else 1e-4
    np.testing.assert_allclose(ours[0], plain[0], atol=tol)
    np.testing.assert_allclose(ours[1], plain[1], rtol=tol, atol=tol)


def test_sweep_is_the_one_by_one_update(fit):
    C, T, M, bounds, norms = fit
    new, _ = sweep(C.T @ C, C.T @ (T - C @ M), M, bounds, norms)
    expected = M.copy()
    for k in range(len(M)):
        others = np.delete(np.arange(len(M)), k)
        numerator = C[:, k] @ (T - C[:, others] @ expected[others])
        for start, stop in itertools.pairwise(bounds):
            expected[k, start:stop] = unit(numerator[start:stop])
    np.testing.assert_allclose(new, expected, atol=1e-11)


def test_an_unused_atom_keeps_its_value(fit, monkeypatch):
    C, T, M, bounds, norms = fit
    C = C.copy()
    C[:, 2] = 0
    for find in (compiled.find, lambda name, array: None):
        monkeypatch.setattr(compiled, "find", find)
        new, _ = sweep(C.T @ C, C.T @ (T - C @ M), M, bounds, norms)
        np.testing.assert_array_equal(new[2], M[2])
        assert np.isfinite(new).all()
        assert not np.allclose(new[3], M[3])


def test_arguments_are_not_written(fit):
    C, T, M, bounds, norms = fit
    arrays = [C.T @ C, C.T @ (T - C @ M), M]
    copies = [x.copy() for x in arrays]
    sweep(*arrays, bounds, norms)
    for x, copy in zip(arrays, copies, strict=True):
        np.testing.assert_array_equal(x, copy)
