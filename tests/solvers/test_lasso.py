"""Codes against scikit-learn's Lasso, the optimality conditions, and the duality gap itself."""

import array_api_strict
import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from sklearn.linear_model import Lasso

from helpers.problems import unit
from ledl.arrays import to_host
from ledl.solvers import lasso as module
from ledl.solvers.lasso import FLOAT32_TOL, SOLVERS, duality_gap, find_penalty, lasso, soft_threshold


def make_dictionary(kind, rng):
    if kind == "random":
        return unit(rng.standard_normal((40, 20)))
    if kind == "faces":  # positive atoms with cosines near 1
        return unit(1 + 0.1 * rng.standard_normal((60, 100)))
    if kind == "near copies":
        D = unit(rng.standard_normal((15, 30)))
        return unit(np.concatenate([D, D + 1e-6 * rng.standard_normal(D.shape)]))
    if kind == "copies":
        D = unit(rng.standard_normal((15, 30)))
        return np.concatenate([D, D, -D])
    if kind == "zero atom":
        return np.concatenate([unit(rng.standard_normal((10, 8))), np.zeros((1, 8))])
    raise AssertionError(kind)


KINDS = ["random", "faces", "near copies", "copies", "zero atom"]


@pytest.fixture(params=KINDS)
def dictionary(request, rng):
    return make_dictionary(request.param, rng)


def samples_for(dictionary, rng, n=12):
    mixed = rng.standard_normal((n, len(dictionary))) * (rng.random((n, len(dictionary))) < 0.2)
    return unit(mixed @ dictionary + 0.1 * rng.standard_normal((n, dictionary.shape[1])))


def solve(dictionary, X, alpha, tol, **options):
    return lasso(dictionary @ dictionary.T, X @ dictionary.T, np.sum(X**2, axis=1), alpha, tol, **options)


def objective(S, X, dictionary, alpha):
    return np.sum((X - S @ dictionary) ** 2, axis=1) / 2 + alpha * np.abs(S).sum(axis=1)


def reach(solver, kind):
    """Return the tolerance and the least alpha for a solver: ADMM is slow where atoms are near copies."""
    if solver == "active_set":
        return 1e-10, 1e-3
    return 1e-5 if kind == "near copies" else 1e-8, 0.02


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # theirs, on near copies
@pytest.mark.parametrize(
    ("alpha", "positive", "solvers"),
    [
        (1e-3, False, ["active_set"]),
        (1e-3, True, ["active_set"]),
        (0.02, False, SOLVERS),
        (0.02, True, SOLVERS),
        (0.3, False, SOLVERS),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_codes_are_scikit_learns(kind, alpha, positive, solvers, rng):
    dictionary = make_dictionary(kind, rng)
    X, d = samples_for(dictionary, rng), dictionary.shape[1]
    most = 30_000 if kind == "near copies" else 300_000  # the rest only moves weight from copy to copy
    theirs = Lasso(alpha / d, fit_intercept=False, positive=positive, tol=1e-12, max_iter=most)
    codes = theirs.fit(dictionary.T, X.T).coef_
    reference = objective(codes, X, dictionary, alpha)
    for solver in solvers:
        tol, least = reach(solver, kind)
        assert alpha >= least
        S, info = solve(dictionary, X, alpha, tol, positive=positive, solver=solver, max_iter=100_000)
        assert info.converged.all()
        assert (info.gap <= tol / 2).all()
        ours = objective(S, X, dictionary, alpha)
        assert (ours <= reference + tol).all()
        np.testing.assert_allclose(ours, reference, atol=1e-6)
        np.testing.assert_allclose(S @ dictionary, codes @ dictionary, atol=1e-3)
        assert not positive or (S >= 0).all()


def test_optimality_conditions(dictionary, rng):
    alpha, X = 0.02, samples_for(dictionary, rng)
    S, _ = solve(dictionary, X, alpha, 1e-14)
    correlation = (X - S @ dictionary) @ dictionary.T
    on = S != 0
    assert on.any()
    np.testing.assert_allclose(correlation[on], alpha * np.sign(S[on]), atol=1e-7)
    assert np.abs(correlation).max() <= alpha + 1e-7


@pytest.mark.parametrize("tol", [1e-1, 1e-3, 1e-6])
def test_gap_is_what_was_asked_for_and_bounds_the_error(tol, rng):
    dictionary, alpha = make_dictionary("faces", rng), 1e-3
    X = 3 * samples_for(dictionary, rng, 30)
    S, info = solve(dictionary, X, alpha, tol)
    best, _ = solve(dictionary, X, alpha, 1e-13)
    assert (info.gap <= tol * np.sum(X**2, axis=1) / 2).all()
    excess = objective(S, X, dictionary, alpha) - objective(best, X, dictionary, alpha)
    assert (excess <= info.gap + 1e-12).all()
    gap = duality_gap(S, S @ (dictionary @ dictionary.T), X @ dictionary.T, np.sum(X**2, axis=1), alpha, False)
    np.testing.assert_allclose(info.gap, gap, atol=1e-10)


@pytest.mark.parametrize("shift", [0.0, 0.1, 1.0], ids=["optimal codes, scaled", "near", "far"])
def test_gap_of_codes_that_are_not_optimal(shift, rng):
    dictionary, alpha = make_dictionary("random", rng), 0.05
    X = samples_for(dictionary, rng)
    S = solve(dictionary, X, alpha, 1e-12)[0] * 1.05 + shift * rng.standard_normal((len(X), len(dictionary)))
    G, rhs, squares = dictionary @ dictionary.T, X @ dictionary.T, np.sum(X**2, axis=1)
    best, _ = solve(dictionary, X, alpha, 1e-13)
    excess = objective(S, X, dictionary, alpha) - objective(best, X, dictionary, alpha)
    gap = duality_gap(S, S @ G, rhs, squares, alpha, False)
    assert (gap >= excess - 1e-12).all()
    assert (excess > 0).any()


def test_gap_of_a_code_that_overshoots():
    one = np.ones((1, 1))
    # s = 3: the objective is 2.3, and 0.095 at best; scaling the residual by a negative factor would say less.
    assert duality_gap(3 * one, 3 * one, one, np.ones(1), 0.1, False)[0] >= 2.3 - 0.095
    assert duality_gap(0.95 * one, 0.95 * one, one, np.ones(1), 0.1, False)[0] >= 0.00125 - 1e-15


def test_a_start_keeps_positive_codes_positive(rng):
    dictionary = make_dictionary("random", rng)
    X = samples_for(dictionary, rng)
    S, info = solve(dictionary, X, 0.02, 1e-9, positive=True, start=-np.ones((len(X), len(dictionary))))
    assert (S >= 0).all()
    np.testing.assert_allclose(
        objective(S, X, dictionary, 0.02),
        objective(solve(dictionary, X, 0.02, 1e-9, positive=True)[0], X, dictionary, 0.02),
        atol=1e-8,
    )
    assert info.converged.all()


def test_what_does_not_fit_is_refused(rng):
    dictionary = make_dictionary("random", rng)
    X = samples_for(dictionary, rng)
    G, rhs, squares = dictionary @ dictionary.T, X @ dictionary.T, np.sum(X**2, axis=1)
    with pytest.raises(ValueError, match="broadcast"):
        lasso(G, rhs, squares[:3], 0.1, 1e-6)
    with pytest.raises(ValueError, match="broadcast"):
        lasso(G, rhs, squares, 0.1, 1e-6, start=np.zeros((3, len(G))))
    with pytest.raises(ValueError, match="must be finite"):
        lasso(G, rhs, np.where(squares > 0, np.nan, squares), 0.1, 1e-6)
    strict = [array_api_strict.asarray(x) for x in (G, rhs, squares)]
    with pytest.raises(TypeError, match=r"NumPy arrays only.*'admm'"):
        lasso(*strict, 0.1, 1e-6)


@pytest.mark.parametrize("positive", [False, True])
def test_arrays_of_another_library_have_the_same_codes(positive, rng):
    dictionary = make_dictionary("faces", rng)
    X = samples_for(dictionary, rng)
    arrays = dictionary @ dictionary.T, X @ dictionary.T, np.sum(X**2, axis=1)
    options = {"solver": "admm", "positive": positive}
    S, _ = lasso(*arrays, 0.02, 1e-6, **options)
    strict, info = lasso(*(array_api_strict.asarray(x) for x in arrays), 0.02, 1e-6, **options)
    np.testing.assert_allclose(np.asarray(strict), S, atol=1e-9)
    assert np.asarray(info.converged).all()


def test_no_use_in_going_on_ends_soon(rng):
    """An atom that enters without lowering the objective is not tried for ever."""
    dictionary = np.concatenate([make_dictionary("copies", rng), make_dictionary("near copies", rng)])
    X = samples_for(dictionary, rng, 60)
    _, info = solve(dictionary, X, 1e-9, 1e-16)
    assert info.n_iter.max() < 1000


@pytest.mark.parametrize("solver", list(SOLVERS))
@pytest.mark.parametrize("kind", KINDS)
def test_a_start_changes_the_steps_and_not_the_codes(kind, solver, rng):
    (tol, _), dictionary = reach(solver, kind), make_dictionary(kind, rng)
    X = samples_for(dictionary, rng)
    S, cold = solve(dictionary, X, 0.02, tol, solver=solver, max_iter=100_000)
    again, warm = solve(dictionary, X, 0.02, tol, solver=solver, start=S)
    np.testing.assert_allclose(
        objective(again, X, dictionary, 0.02), objective(S, X, dictionary, 0.02), atol=tol
    )
    assert warm.n_iter.sum() < cold.n_iter.sum()


def test_exact_steps_from_any_start_end_at_the_same_codes(dictionary, rng):
    X = samples_for(dictionary, rng)
    S, cold = solve(dictionary, X, 0.02, 1e-12)
    again, warm = solve(dictionary, X, 0.02, 1e-12, start=S)
    assert warm.n_iter.max() == 0 < cold.n_iter.max()
    np.testing.assert_array_equal(again != 0, S != 0)
    wrong = rng.standard_normal(S.shape)
    from_wrong, _ = solve(dictionary, X, 0.02, 1e-12, start=wrong)
    np.testing.assert_allclose(
        objective(from_wrong, X, dictionary, 0.02), objective(S, X, dictionary, 0.02), atol=1e-10
    )


def test_zero_samples_and_large_alphas_have_zero_codes(rng):
    dictionary = make_dictionary("random", rng)
    X = np.concatenate([np.zeros((2, 20)), samples_for(dictionary, rng)])
    S, info = solve(dictionary, X, 0.02, 1e-8)
    assert not S[:2].any()
    assert info.converged.all()
    S, info = solve(dictionary, X, 10.0, 1e-8)
    assert not S.any()
    assert info.converged.all()


@pytest.mark.parametrize("solver", list(SOLVERS))
def test_too_few_steps_are_said_so(solver, rng):
    dictionary = make_dictionary("random", rng)
    X = samples_for(dictionary, rng)
    S, info = solve(dictionary, X, 1e-4, 1e-8, max_iter=3, solver=solver)
    assert not info.converged.any()
    assert (info.n_iter == 3).all()
    gap = duality_gap(
        S, S @ dictionary @ dictionary.T, X @ dictionary.T, np.sum(X**2, axis=1), 1e-4, positive=False
    )
    np.testing.assert_allclose(info.gap, gap, rtol=1e-6)


def test_float32_gives_float32_at_its_own_tolerance(rng):
    dictionary = make_dictionary("random", rng).astype(np.float32)
    S, info = solve(dictionary, samples_for(dictionary, rng).astype(np.float32), 0.02, 1e-9)
    assert S.dtype == np.float32
    assert info.tol == FLOAT32_TOL
    assert info.converged.all()


def test_leading_axes_are_problems(rng):
    dictionaries = [make_dictionary("random", rng) for _ in range(2)]
    X = [samples_for(dictionary, rng) for dictionary in dictionaries]
    G = np.stack([D @ D.T for D in dictionaries])
    rhs = np.stack([x @ D.T for x, D in zip(X, dictionaries, strict=True)])
    codes, info = lasso(G, rhs, np.stack([np.sum(x**2, axis=1) for x in X]), 0.02, 1e-10)
    for p in range(2):
        single, _ = solve(dictionaries[p], X[p], 0.02, 1e-10)
        np.testing.assert_array_equal(codes[p], single)
    assert info.gap.shape == (2, len(X[0]))


@pytest.mark.parametrize(("threshold", "positive"), [(0.0, False), (0.3, True), (0.3, False), (2.0, False)])
def test_soft_threshold_minimises_its_definition(threshold, positive):
    values = np.linspace(-2, 2, 41)
    for v, s in zip(values, soft_threshold(values, threshold, positive), strict=True):

        def distance(x, v=v):
            return (x - v) ** 2 / 2 + threshold * abs(x)

        best = minimize_scalar(distance, bounds=(0 if positive else -3, 3), method="bounded").x
        assert distance(s) <= distance(best) + 1e-9
        assert s >= 0 or not positive


@pytest.mark.parametrize("alpha", [0.02, 1e-3])  # at the second one the penalty is far from where it starts
def test_the_penalty_makes_the_threshold_about_as_large_as_a_coefficient(rng, alpha):
    D = unit(rng.standard_normal((80, 40)))
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


def batch_of_lassos(rng, n_problems=3, n_atoms=40, n_samples=50, n_features=25):
    D, X = (rng.standard_normal((n_problems, n, n_features)) for n in (n_atoms, n_samples))
    D /= np.linalg.norm(D, axis=-1, keepdims=True)
    alpha = np.array([0.3, 0.05, 0.01])[:n_problems, None, None]
    return D @ D.swapaxes(1, 2), X @ D.swapaxes(1, 2), (X * X).sum(axis=-1), alpha


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_batched_lasso_reaches_its_gap_and_the_objective_of_exact_codes(rng, device, dtype):
    import torch

    arrays = batch_of_lassos(rng)
    tensors = [torch.as_tensor(x, device=device) for x in arrays]
    tol = 1e-4
    codes, info = lasso(*tensors, tol, solver="admm", dtype=getattr(torch, dtype))
    codes, gaps = to_host(codes), to_host(info.gap)
    G, rhs, sq_norms, alpha = arrays
    S = codes.astype(np.float64)
    exact = duality_gap(S, S @ G, rhs, sq_norms, alpha[..., 0], False)
    assert (exact <= tol * sq_norms / 2).all()
    np.testing.assert_allclose(gaps, exact, atol=1e-9)
    for p in range(3):
        best, _ = lasso(G[p], rhs[p], sq_norms[p], alpha[p].item(), 1e-10)
        values = [
            (s @ G[p] * s).sum(axis=1) / 2 - (s * rhs[p]).sum(axis=1) + alpha[p] * np.abs(s).sum(axis=1)
            for s in (S[p], best)
        ]
        assert np.all(values[0] - values[1] <= tol * sq_norms[p] / 2)


def test_gaps_of_float32_data_are_bounds(rng, device):
    import torch

    G, rhs, sq_norms, alpha = batch_of_lassos(rng)
    tensors = [torch.as_tensor(x.astype(np.float32), device=device) for x in (G, rhs, sq_norms, alpha)]
    codes, info = lasso(*tensors, 1e-4, solver="admm")
    assert codes.dtype == torch.float32
    S = to_host(codes).astype(np.float64)
    exact = duality_gap(S, S @ G, rhs, sq_norms, alpha[..., 0], False)
    assert (exact <= 1e-4 * sq_norms / 2).all()
    assert (exact <= to_host(info.gap) + 1e-6).all()


@pytest.mark.torch
def test_batched_lasso_stops_at_max_iter(rng):
    import torch

    tensors = [torch.as_tensor(x) for x in batch_of_lassos(rng)]
    _, info = lasso(*tensors, 1e-12, max_iter=7, solver="admm")
    assert int(info.n_iter.max()) == int(info.n_iter.min()) == 7
    assert float(info.gap.max()) > 1e-12
