import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.linear_model import orthogonal_mp

from helpers import reference
from helpers.problems import unit
from ledl.solvers import ksvd
from ledl.solvers.start import sample_start

# Samples that are atoms need one non-zero.
pytestmark = pytest.mark.filterwarnings("ignore:Orthogonal matching pursuit ended prematurely")


@pytest.fixture
def problem(rng):
    T = rng.standard_normal((60, 12)) @ rng.standard_normal((12, 12))
    return T, sample_start(T, 20, rng)


def squares(a):
    return float((a**2).sum())


def test_it_is_the_plain_algorithm(problem):
    T, start = problem
    run = ksvd.solve(T, start, 3, max_iter=8, tol=0)
    assert not run.history["replaced"].any()
    *_, (D, X) = reference.ksvd(
        T.T, start.T.copy(), 3, 8, lambda D, y, k: orthogonal_mp(D, y, n_nonzero_coefs=k)
    )
    assert_allclose(run.state.M, D.T, atol=1e-9)
    assert_allclose(run.state.S, X.T, atol=1e-9 * np.abs(X).max())


@pytest.mark.parametrize("n_nonzero", [1, 3, 12])
def test_error_never_rises_where_nothing_is_replaced(problem, n_nonzero):
    T, start = problem
    history = ksvd.solve(T, start, n_nonzero, max_iter=30, tol=0).history
    rises = np.diff(history["error"]) > 1e-10 * squares(T)
    assert not np.any(rises & (history["replaced"][1:] == 0))
    assert history["error"][-1] < squares(T)


def test_at_fixed_supports_the_error_falls_to_that_of_svd(rng):
    """One atom that all samples use: the update is the power method, whose end is the first singular vector."""
    T = rng.standard_normal((30, 8))
    M, S = unit(rng.standard_normal((1, 8))), rng.standard_normal((30, 1))
    state, errors = ksvd.State(M, S, T - S @ M), []
    for _ in range(500):
        ksvd.update_used_atoms_plain(*state, np.arange(30), np.array([0, 30]))
        errors.append(squares(state.E))
    assert np.all(np.diff(errors) <= 1e-12 * squares(T))
    singular = np.linalg.svd(T, compute_uv=False)
    assert_allclose(errors[-1], (singular[1:] ** 2).sum(), rtol=1e-9)
    assert_allclose(state.E, T - state.S @ state.M, atol=1e-12)


def test_residual_and_norms_are_kept(problem):
    T, start = problem
    M, S, E = ksvd.solve(T, start, 4, max_iter=10, tol=0).state
    assert_allclose(E, T - S @ M, atol=1e-10 * np.abs(T).max())
    assert_allclose(np.linalg.norm(M, axis=1), 1)
    assert np.count_nonzero(S, axis=1).max() <= 4


def test_copies_and_unused_atoms_give_way_to_badly_represented_samples(rng):
    T = unit(rng.standard_normal((40, 10)))
    start = np.repeat(T[:4], 3, axis=0) * np.array([1, 1, -1] * 4)[:, None]  # each three times
    run = ksvd.solve(T, start, 2, max_iter=1, tol=0)
    assert run.history["replaced"][0] == 8
    M = ksvd.solve(T, start, 2, max_iter=20, tol=0).state.M
    cosines = np.abs(M @ M.T) - np.eye(len(M))
    assert cosines.max() < 1 - 1e-6
    # An atom orthogonal to all samples is used by nobody.
    T = np.concatenate([T, np.zeros((40, 1))], axis=1)
    start = np.concatenate([T[:6], np.eye(11)[10:]])
    run = ksvd.solve(T, start, 2, max_iter=2, tol=0)
    assert_array_equal(run.history["replaced"], [0, 1])
    assert not run.state.M[:, 10].any()


def test_codes_are_those_over_the_atoms_that_came_in(rng):
    T = unit(rng.standard_normal((40, 10)))
    start = np.concatenate([T[:6], T[:3]])
    codes, E = np.zeros((40, 9)), T.copy()
    replaced, _ = ksvd.replace_atoms(
        ksvd.State(start.copy(), codes, E), start @ start.T, T, np.ones(40), unused=False
    )
    runs = [ksvd.solve(T, M, 2, max_iter=1, tol=0) for M in (start, replaced.M)]
    assert [int(run.history["replaced"][0]) for run in runs] == [3, 0]
    assert_allclose(runs[0].state.S, runs[1].state.S, atol=1e-12)


def test_a_used_copy_is_replaced_and_nothing_is_lost(rng):
    T = rng.standard_normal((30, 8))
    M = unit(rng.standard_normal((5, 8)))
    M[1] = -M[3]
    S = np.zeros((30, 5))
    S[:10, 1], S[:3, 3], S[10:, 0] = 1.0, 2.0, 3.0  # atom 1 is used more than its copy 3
    before = M.copy()
    state = ksvd.State(M, S, T - S @ M)
    errors = (state.E**2).sum(axis=1)
    state, n_replaced = ksvd.replace_atoms(state, M @ M.T, T, (T**2).sum(axis=1), unused=False)
    assert n_replaced == 1
    assert_array_equal(state.M[[0, 1, 2, 4]], before[[0, 1, 2, 4]])
    assert_allclose(state.M[3], unit(T[errors.argmax()]))
    assert not state.S[:, 3].any()
    assert_allclose(state.E, T - state.S @ state.M, atol=1e-12)


def test_unused_atoms_become_the_worst_samples_in_turn_but_no_copies(rng):
    T = rng.standard_normal((12, 8))
    T[:6] *= 10  # those with the largest errors
    T[1], T[2] = T[0], -2 * T[0]  # copies of each other
    M = unit(rng.standard_normal((4, 8)))
    M[0] = unit(T[3])
    S = np.zeros((12, 4))
    S[7, 0] = 1.0
    state, n_replaced = ksvd.replace_atoms(
        ksvd.State(M, S, T - S @ M), M @ M.T, T, (T**2).sum(axis=1), unused=True
    )
    assert n_replaced == 3
    chosen = [int(np.abs(unit(T) @ atom).argmax()) for atom in state.M[1:]]
    assert sorted(chosen)[0] in (0, 1, 2)
    assert sorted(chosen)[1:] == [4, 5]


def test_a_start_has_different_samples_first(rng):
    T = np.repeat(rng.standard_normal((6, 10)), 5, axis=0)
    atoms = sample_start(T, 6, rng)
    assert np.linalg.matrix_rank(atoms) == 6


def test_where_all_is_represented_nothing_is_replaced(rng):
    T = unit(rng.standard_normal((6, 10)))
    run = ksvd.solve(T, np.concatenate([T, T]), 1, max_iter=4, tol=0)
    assert run.history["replaced"][1:].sum() == 0
    assert_allclose(run.history["error"], 0, atol=1e-25)


def test_zero_samples_and_zero_atoms(rng):
    T = np.concatenate([rng.standard_normal((10, 5)), np.zeros((2, 5))])
    run = ksvd.solve(T, np.concatenate([T[:4], np.zeros((1, 5))]), 2, max_iter=5, tol=0)
    assert np.isfinite(run.state.M).all()
    assert not run.state.S[10:].any()


@pytest.mark.parametrize("scale", [1.0, 1e-100, 1e100])
def test_rounding_does_not_choose_the_sample_that_an_atom_becomes(scale, rng):
    """Samples of norm 1 that have no codes are represented equally badly: the first is taken."""
    T = unit(rng.random((12, 5)))
    M = unit(rng.random((3, 5)))[[0, 1, 2, 2]]
    for _ in range(5):
        same = scale * T * (1 + 1e-15 * rng.integers(-1, 2, (12, 1)))
        state = ksvd.State(M.copy(), np.zeros((12, 4)), same.copy())
        state, n_replaced = ksvd.replace_atoms(state, M @ M.T, same, (same**2).sum(axis=1), unused=False)
        assert n_replaced == 1
        assert_allclose(state.M[3], T[0], rtol=1e-12)


def assert_same_runs(there, here):
    for a, b in zip(there.state, here.state, strict=True):
        assert isinstance(a, np.ndarray)
        assert_allclose(a, b, atol=1e-9)
    assert_array_equal(there.history["replaced"], here.history["replaced"])
    assert_allclose(there.history["error"], here.history["error"], rtol=1e-10)


def test_ksvd_with_codes_from_a_device_is_that_of_numpy(rng, device):
    T = unit(rng.standard_normal((80, 12)))
    start = np.concatenate([sample_start(T, 18, rng), T[:2], -T[:2]])  # copies are replaced
    T.setflags(write=False)
    here, there = (ksvd.solve(T, start, 3, max_iter=8, tol=0, device=name) for name in (None, device))
    assert here.history["replaced"].any()
    assert_same_runs(there, here)
