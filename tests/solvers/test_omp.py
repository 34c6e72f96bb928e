"""Codes of orthogonal matching pursuit against its definition, and its own optimality."""

import array_api_strict
import numpy as np
import pytest

from helpers.plain_codes import omp_plain
from helpers.problems import unit
from ledl.arrays import place, to_host
from ledl.solvers import compiled
from ledl.solvers.omp import batched_omp, omp


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
    with pytest.raises(TypeError, match="arrays of NumPy or PyTorch"):
        omp(D @ D.T, array_api_strict.asarray(X @ D.T), np.ones(3), 2)


def arguments(D, X):
    return D @ D.T, X @ D.T, np.sum(X**2, axis=1)


def random_problem(rng):
    return unit(rng.standard_normal((50, 30))), rng.standard_normal((40, 30))


def scaled_problem(rng):
    D, X = random_problem(rng)
    return D * 10 ** rng.uniform(-3, 3, (50, 1)), X * 10 ** rng.uniform(-3, 3, (40, 1))


def few_atoms_suffice(rng):
    """Samples that end one after the other, the first at once, among others that go on."""
    D, X = random_problem(rng)
    for i in range(20):
        X[i] = rng.standard_normal(i % 5) @ D[rng.choice(50, i % 5, replace=False)]
    return D, X


def low_rank(rng):
    """Ten atoms are independent, in general."""
    return unit(rng.standard_normal((50, 10)) @ rng.standard_normal((10, 30))), rng.standard_normal((40, 30))


def zeros_among_others(rng):
    D, X = random_problem(rng)
    D[[0, 7, 49]] = 0
    X[[0, 5, 39]] = 0
    return D, X


PROBLEMS = [random_problem, scaled_problem, few_atoms_suffice, low_rank, zeros_among_others]


@pytest.mark.parametrize("make", PROBLEMS)
@pytest.mark.parametrize("n_nonzero", [1, 4, 12, 20])
def test_batched_codes_are_those_of_the_loop(make, n_nonzero, rng):
    D, X = make(rng)
    S, taken = solve(D, X, n_nonzero)
    batch, batch_taken = batched_omp(*arguments(D, X), n_nonzero)
    np.testing.assert_array_equal(batch_taken, taken)
    np.testing.assert_array_equal(batch != 0, S != 0)
    np.testing.assert_allclose(batch, S, rtol=1e-7, atol=1e-9 * np.abs(S).max())


def test_problems_make_samples_end_early(rng):
    """Else the comparison above would not see how samples end."""
    assert len(set(solve(*few_atoms_suffice(rng), 12)[1])) >= 5
    assert (solve(*low_rank(rng), 20)[1] == 10).all()
    assert (solve(*zeros_among_others(rng), 4)[1][[0, 5, 39]] == 0).all()


@pytest.mark.parametrize("n_nonzero", [1, 6, 12, 20, 100])
def test_batched_codes_pass_over_copies_of_atoms(n_nonzero, rng):
    D = unit(rng.standard_normal((12, 20)))
    copies, X = np.concatenate([D, D, -D, 2 * D]), rng.standard_normal((30, 20))
    n_nonzero = min(n_nonzero, len(copies))
    S, taken = batched_omp(*arguments(copies, X), n_nonzero)
    assert (taken == min(n_nonzero, 12)).all()
    check_residuals(copies, X, S, min(n_nonzero, 12))
    # Which of the copies is chosen is an accident of rounding, what they represent is not.
    np.testing.assert_allclose(S @ copies, solve(copies, X, n_nonzero)[0] @ copies, atol=1e-9)


def test_nearly_dependent_atoms_in_a_batch(rng):
    """Least squares on the support also where the Gram matrix of the atoms is nearly singular."""
    D, X = random_problem(rng)
    D[25:] = unit(D[:25] + 1e-4 * rng.standard_normal((25, 30)))
    X[:20] = X[:20] @ D[:30].T @ D[:30]
    S, taken = batched_omp(*arguments(D, X), 28)
    assert (taken >= 25).all()
    residual = X - S @ D
    for i in range(len(X)):
        best = np.linalg.lstsq(D[S[i] != 0].T, X[i], rcond=None)[1]
        assert residual[i] @ residual[i] <= best.sum() + 1e-8 * (X[i] @ X[i])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_without_the_compiled_loop_a_batch_takes_its_place(dtype, rng, monkeypatch):
    D, X = unit(rng.standard_normal((12, 30))), rng.standard_normal((40, 30))
    given = [x.astype(dtype) for x in arguments(D, X)]
    before = [x.copy() for x in given]
    S, taken = omp(*given, 100)  # more than there are atoms
    monkeypatch.setattr(compiled, "find", lambda name, a: None)
    batch, batch_taken = omp(*given, 100)
    assert batch.dtype == np.float64
    np.testing.assert_allclose(batch, S, atol=1e-10)
    np.testing.assert_array_equal(batch_taken, taken)
    for x, y in zip(given, before, strict=True):
        np.testing.assert_array_equal(x, y)


def pursuits(rng):
    """Samples of all kinds over atoms with zeros and, at the end, copies among them."""
    D, X = unit(rng.standard_normal((50, 30))), rng.standard_normal((40, 30))
    D[[0, 7]] = 0
    X[[0, 5]] = 0
    for i in range(6, 26):  # these end early
        X[i] = (1 + rng.random(i % 5)) @ D[rng.choice(np.arange(8, 50), i % 5, replace=False)]
    return np.concatenate([D, -D[20:30]]), X


@pytest.mark.parametrize("n_nonzero", [0, 4, 30])
def test_batched_codes_of_tensors_are_those_of_the_loop(rng, device, n_nonzero):
    D, X = pursuits(rng)
    arrays = D @ D.T, X @ D.T, (X * X).sum(axis=1)
    S, taken = omp(*arrays, n_nonzero)
    assert len(set(taken)) >= min(n_nonzero, 5)
    found, n_iter = (to_host(x) for x in batched_omp(*(place(x, device) for x in arrays), n_nonzero))
    np.testing.assert_array_equal(n_iter, taken)
    np.testing.assert_array_equal(np.count_nonzero(found, axis=1), taken)
    np.testing.assert_allclose(found @ D, S @ D, atol=1e-9)  # copies stand for each other


@pytest.mark.parametrize(("dtype", "with_loop"), [(np.float64, True), (np.float32, False)])
def test_codes_of_tensors_are_tensors(rng, device, dtype, with_loop, monkeypatch):
    import torch

    if not with_loop:  # there is none on a GPU
        monkeypatch.setattr(compiled, "find", lambda name, a: None)
    D, X = unit(rng.standard_normal((40, 30))), rng.standard_normal((20, 30))
    tensors = [place(x.astype(dtype), device) for x in (D @ D.T, X @ D.T, (X * X).sum(axis=1))]
    before = tensors[1].clone()
    codes, taken = omp(*tensors, 5)
    assert codes.device == taken.device == tensors[0].device
    assert codes.dtype == torch.float64
    assert torch.equal(tensors[1], before)
    plain = [omp_plain(D, x, 5) for x in X]
    np.testing.assert_allclose(to_host(codes), plain, atol=1e-10 if dtype == np.float64 else 1e-4)
    np.testing.assert_array_equal(to_host(taken), 5)
    codes, taken = omp(tensors[0], tensors[1][:0], tensors[2][:0], 5)
    assert codes.shape == (0, 40)
    assert taken.shape == (0,)
