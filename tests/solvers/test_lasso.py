"""Codes against scikit-learn's Lasso, the optimality conditions, and the duality gap itself."""

import array_api_strict
import numpy as np
import pytest
from sklearn.linear_model import Lasso

from helpers.plain_codes import active_set_plain
from helpers.problems import unit
from ledl.solvers.lasso import FLOAT32_TOL, SOLVERS, duality_gap, lasso


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
    """Tolerance and alpha that a solver can be asked for: all but exact steps creep between near copies."""
    if solver == "active_set":
        return 1e-10, 1e-3
    return 1e-5 if kind == "near copies" else 1e-8, 0.02


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # theirs, on near copies
@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("alpha", [1e-3, 0.02, 0.3])
@pytest.mark.parametrize("solver", list(SOLVERS))
@pytest.mark.parametrize("kind", KINDS)
def test_codes_are_scikit_learns(kind, solver, alpha, positive, rng):
    tol, least = reach(solver, kind)
    alpha, dictionary = max(alpha, least), make_dictionary(kind, rng)
    X = samples_for(dictionary, rng)
    S, info = solve(dictionary, X, alpha, tol, positive=positive, solver=solver, max_iter=100_000)
    assert info.converged.all()
    assert (info.gap <= tol / 2).all()
    d = dictionary.shape[1]
    theirs = Lasso(alpha / d, fit_intercept=False, positive=positive, tol=1e-12, max_iter=300_000)
    codes = theirs.fit(dictionary.T, X.T).coef_
    ours, reference = objective(S, X, dictionary, alpha), objective(codes, X, dictionary, alpha)
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


@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("kind", ["faces", "random"])
def test_compiled_is_the_plain_one(kind, positive, rng):
    dictionary = make_dictionary(kind, rng)
    X, G = samples_for(dictionary, rng), dictionary @ dictionary.T
    S, _ = solve(dictionary, X, 0.005, 1e-12, positive=positive)
    for s, x in zip(S, X, strict=True):
        plain, gap = active_set_plain(G, x @ dictionary.T, x @ x, 0.005, 1e-12, 1000, positive)
        np.testing.assert_allclose(s, plain, atol=1e-9)
        assert gap <= 1e-12


def test_compiled_exact_steps_take_as_many_rounds_as_the_plain_ones(rng):
    dictionary = make_dictionary("faces", rng)
    X, G = samples_for(dictionary, rng), dictionary @ dictionary.T
    _, info = solve(dictionary, X, 0.005, 1e-12)
    for rounds, x in zip(info.n_iter, X, strict=True):
        b, square = x @ dictionary.T, x @ x
        assert active_set_plain(G, b, square, 0.005, 1e-12, rounds, False)[1] <= 1e-12 * square / 2
        assert active_set_plain(G, b, square, 0.005, 1e-12, rounds - 1, False)[1] > 1e-12 * square / 2


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
