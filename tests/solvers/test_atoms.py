"""The sweep against its definition, in both forms of the atoms' equations."""

from itertools import pairwise
from operator import iadd
from typing import NamedTuple

import numpy as np
import pytest

from helpers.problems import unit
from ledl.solvers import compiled
from ledl.solvers.atoms import Factors, Sums, sweep

BOUNDS = (0, 9, 13, 16)
RADII = np.array([1.0, 0.3, 1e-3])
PARTS = list(pairwise(BOUNDS))


class Fit(NamedTuple):
    """Codes, targets, and atoms with three parts on their spheres."""

    C: np.ndarray
    T: np.ndarray
    M: np.ndarray

    def squares(self, M):
        E = (self.T - self.C @ M) ** 2
        return np.array([E[:, i:j].sum() for i, j in PARTS])

    def equations(self, form=Sums):
        factors = Factors(self.C, self.T - self.C @ self.M)
        return factors.sums() if form is Sums else factors

    def sweep(self, form=Sums):
        norms = np.array([np.linalg.norm(self.T[:, i:j]) for i, j in PARTS])
        return sweep(self.equations(form), self.M, BOUNDS, RADII, norms)


def on_spheres(rows):
    parts = [radius * unit(rows[..., i:j]) for (i, j), radius in zip(PARTS, RADII, strict=True)]
    return np.concatenate(parts, axis=-1)


@pytest.fixture(params=[7, 60], ids="{} atoms".format)
def fit(request, rng):
    C, T = rng.standard_normal((40, request.param)), rng.standard_normal((40, 16))
    return Fit(C, T, on_spheres(rng.standard_normal((request.param, 16))))


@pytest.fixture(params=[Sums, Factors])
def form(request):
    return request.param


def test_sweep_is_the_one_by_one_update(fit, form):
    C, T, M = fit
    expected = M.copy()
    for k in range(len(M)):
        others = np.delete(np.arange(len(M)), k)
        expected[k] = on_spheres(C[:, k] @ (T - C[:, others] @ expected[others]))
    np.testing.assert_allclose(fit.sweep(form)[0], expected, atol=1e-11)


def test_each_part_is_optimal_on_its_sphere_right_after_its_update(fit, form, rng):
    new, _ = fit.sweep(form)
    for k in range(len(new)):
        then = np.concatenate([new[: k + 1], fit.M[k + 1 :]])  # earlier atoms new, later ones old
        best = fit.squares(then)
        for scale in (1e-3, 0.1, 10.0):
            moved = then.copy()
            moved[k] = on_spheres(on_spheres(moved[k]) + scale * RADII.max() * rng.standard_normal(16))
            for j, (start, stop) in enumerate(PARTS):
                only = then.copy()
                only[k, start:stop] = moved[k, start:stop]
                assert fit.squares(only)[j] >= best[j] - 1e-9


def test_sweep_never_raises_the_fit_and_says_by_how_much_it_falls(fit, form):
    for _ in range(20):
        before = fit.squares(fit.M)
        M, decrease = fit.sweep(form)
        assert (decrease > -1e-9).all()
        np.testing.assert_allclose(before - fit.squares(M), decrease, atol=1e-8)
        fit = fit._replace(M=M)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_compiled_sweep_is_the_plain_one(fit, form, dtype, monkeypatch):
    fit = Fit(*(array.astype(dtype) for array in fit))
    ours = fit.sweep(form)
    monkeypatch.setattr(compiled, "find", lambda name, array: None)
    plain = fit.sweep(form)
    assert ours[0].dtype == plain[0].dtype == dtype
    assert ours[1].dtype == plain[1].dtype == np.float64
    tol = 1e-12 if dtype == np.float64 else 1e-4
    np.testing.assert_allclose(ours[0], plain[0], atol=tol)
    np.testing.assert_allclose(ours[1], plain[1], rtol=tol, atol=tol)


def test_an_unused_atom_keeps_its_value(fit, form, monkeypatch):
    C = fit.C.copy()
    C[:, 2] = 0
    fit = fit._replace(C=C)
    for find in (compiled.find, lambda name, array: None):
        monkeypatch.setattr(compiled, "find", find)
        new, _ = fit.sweep(form)
        np.testing.assert_array_equal(new[2], fit.M[2])
        assert np.isfinite(new).all()
        assert not np.allclose(new[3], fit.M[3])


def test_arguments_are_not_written(fit):
    equations = fit.equations()
    copies = [x.copy() for x in (equations.G, equations.S, fit.M)]
    sweep(equations, fit.M, BOUNDS, RADII, np.ones(3))
    for x, copy in zip((equations.G, equations.S, fit.M), copies, strict=True):
        np.testing.assert_array_equal(x, copy)


@pytest.mark.parametrize("cut", [1, 20, 39])
def test_equations_of_blocks_of_samples_add_up(fit, cut):
    E = fit.T - fit.C @ fit.M
    first, second = (Factors(fit.C[part], E[part]) for part in (slice(cut), slice(cut, None)))
    whole = fit.equations()
    for total in (iadd(first, second), iadd(first, second.sums()), iadd(first.sums(), second)):
        np.testing.assert_allclose(total.sums().G, whole.G, atol=1e-11)
        np.testing.assert_allclose(total.sums().S, whole.S, atol=1e-11)
    fewer_samples_than_atoms = fit.C.shape[0] < fit.C.shape[1]
    assert isinstance(iadd(first, second), Factors if fewer_samples_than_atoms else Sums)
