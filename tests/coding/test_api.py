"""sparse_encode, judged by optimality: gaps from samples and atoms themselves, residuals, and messages."""

import warnings

import numpy as np
import pytest
import scipy.sparse
import sklearn.decomposition
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning

from helpers.oracles import relative_gaps
from helpers.problems import unit
from ledl import sparse_encode
from ledl.coding import _coders
from ledl.solvers.lasso import SOLVERS


@pytest.fixture
def problem(rng):
    D = unit(rng.standard_normal((60, 25)))
    return unit(rng.standard_normal((300, 25))), D


def draw_problem(draw):
    """Shapes, scales, duplicated and zero atoms, zero samples, samples that are atoms, exact ties."""
    n, K, d = draw(st.integers(1, 12)), draw(st.integers(1, 30)), draw(st.integers(1, 20))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    if draw(st.booleans()):
        D, X = rng.standard_normal((K, d)), rng.standard_normal((n, d))
    else:  # small integers: many ties, copies and dependent atoms
        D, X = (rng.integers(-1, 2, shape).astype(float) for shape in ((K, d), (n, d)))
    if draw(st.booleans()):
        D = np.concatenate([D, D[::-1], -D[:2], np.zeros((1, d))])
    if draw(st.booleans()):
        X = np.concatenate([X, np.zeros((1, d)), D[:1]])
    powers = st.floats(-6, 6)
    return 10 ** draw(powers) * X, 10 ** draw(powers) * D


problems = st.composite(draw_problem)()


quickly = settings(max_examples=200, deadline=None, derandomize=True)


@quickly
@given(
    problems,
    st.floats(-3, 0.2),
    st.sampled_from([1e-4, 1e-6, 1e-9]),
    st.booleans(),
    st.sampled_from(["f4", "f8"]),
)
def test_every_sample_reaches_its_gap(problem, power, tol, positive, dtype):
    X, D = (a.astype(dtype) for a in problem)
    X64, D64 = X.astype(float), D.astype(float)
    # Correlations of samples orthogonal to all atoms are rounding, and no alpha.
    largest = max(np.abs(X64 @ D64.T).max(), 1e-6 * np.abs(X64).max() * np.abs(D64).max())
    alpha = float(largest * 10**power) or 1.0
    S, info = sparse_encode(X, D, alpha=alpha, tol=tol, positive=positive, return_info=True)
    assert S.dtype == X.dtype
    assert info.converged.all()
    assert info.tol == (max(tol, 1e-5) if dtype == "f4" else tol)
    # Codes in float32 are rounded after they were certified: by so much of the sample's norm.
    eps, norms = (np.finfo(dtype).eps, np.linalg.norm(X.astype(float), axis=1))
    moved = eps * np.abs(S.astype(float)).sum(axis=1) * np.linalg.norm(D.astype(float), axis=1).max()
    rounding = 10 * moved / np.where(norms > 0, norms, 1)
    assert (relative_gaps(X, D, S, alpha, positive) <= info.tol + rounding * (1 + rounding) + 1e-12).all()
    assert not positive or (S >= 0).all()
    assert (S == 0).all() or power < 0


@quickly
@given(problems, st.integers(1, 12))
def test_omp_is_least_squares_on_its_support(problem, n_nonzero):
    X, D = problem
    S, info = sparse_encode(X, D, n_nonzero_coefs=n_nonzero, return_info=True)
    assert (info.n_nonzero <= n_nonzero).all()
    np.testing.assert_array_equal(info.n_nonzero, np.count_nonzero(S, axis=1))
    residual = X - S @ D
    size = np.linalg.norm(X, axis=1)[:, None] * np.linalg.norm(D, axis=1) + 1e-300
    correlation = np.abs(residual @ D.T) / size
    assert (correlation[S != 0] <= 1e-6).all()
    # Who took fewer has no use for more: the residual is zero, or orthogonal to every atom.
    assert (correlation[info.n_iter < min(n_nonzero, len(D))] <= 1e-5).all()
    for s, x in zip(S, X, strict=True):
        best = np.linalg.lstsq(D[s != 0].T, x, rcond=None)[0] if s.any() else np.zeros(0)
        np.testing.assert_allclose(
            np.linalg.norm(x - best @ D[s != 0]), np.linalg.norm(x - s @ D), atol=1e-6 * np.linalg.norm(x)
        )


@pytest.mark.parametrize("positive", [False, True])
def test_solvers_agree_with_each_other_and_with_scikit_learn(problem, positive):
    X, D = problem
    theirs = sklearn.decomposition.sparse_encode(X, D, algorithm="lasso_lars", alpha=0.1, positive=positive)
    for solver in ("auto", *SOLVERS):
        S, info = sparse_encode(X, D, alpha=0.1, solver=solver, tol=1e-9, positive=positive, return_info=True)
        np.testing.assert_allclose(S, theirs, atol=1e-4)
        assert info.converged.all()
        assert info.solver == ("active_set" if solver == "auto" else solver)


def test_omp_is_scikit_learns(problem):
    X, D = problem
    theirs = sklearn.decomposition.sparse_encode(X, D, algorithm="omp", n_nonzero_coefs=5)
    S, info = sparse_encode(X, D, n_nonzero_coefs=5, return_info=True)
    np.testing.assert_allclose(S, theirs, atol=1e-10)
    assert (info.gap, info.tol, info.solver) == (None, None, "omp")


@pytest.mark.parametrize("options", [{"alpha": 0.1}, {"alpha": 0.1, "tol": 1e-4}, {"n_nonzero_coefs": 3}])
def test_form_of_the_input_changes_nothing(problem, options, tmp_path):
    X, D = problem
    expected = sparse_encode(X, D, **options)
    mapped = np.lib.format.open_memmap(tmp_path / "X.npy", "w+", X.dtype, X.shape)
    mapped[:] = X
    mapped.flush()
    read_only, frozen = X.copy(), D.copy()
    read_only.flags.writeable = frozen.flags.writeable = False
    for samples, atoms in [
        (np.asfortranarray(X), np.asfortranarray(D)),
        (read_only, frozen),
        (np.load(tmp_path / "X.npy", mmap_mode="r"), D),
        (np.repeat(X, 2, axis=1)[:, ::2], D),
        (X.tolist(), D.tolist()),
    ]:
        np.testing.assert_allclose(sparse_encode(samples, atoms, **options), expected, atol=1e-9)
    np.testing.assert_allclose(sparse_encode(X[:1], D, **options), expected[:1], atol=1e-6)


@pytest.mark.parametrize("options", [{"alpha": 0.1}, {"n_nonzero_coefs": 3}])
def test_sparse_output_chunks_and_threads_change_nothing(problem, options, monkeypatch):
    X, D = problem
    expected, info = sparse_encode(X, D, return_info=True, **options)
    monkeypatch.setattr(_coders, "CHUNK_ROWS", 17)
    monkeypatch.setattr(_coders, "CHUNK", 1)
    monkeypatch.setattr(_coders, "GRAM_THREADS", 1)
    for n_jobs in (None, 2, 3, -1):
        codes, again = sparse_encode(X, D, n_jobs=n_jobs, sparse_output=True, return_info=True, **options)
        assert isinstance(codes, scipy.sparse.csr_array)
        assert codes.has_canonical_format
        np.testing.assert_allclose(codes.toarray(), expected, atol=1e-12)
        np.testing.assert_array_equal(again.n_nonzero, info.n_nonzero)
        np.testing.assert_array_equal(again.n_iter, info.n_iter)


def test_float32_gives_float32_and_says_what_tolerance_it_used(problem):
    X, D = (a.astype(np.float32) for a in problem)
    codes, info = sparse_encode(X, D, alpha=0.1, return_info=True)
    assert codes.dtype == np.float32
    assert info.tol == 1e-5
    assert sparse_encode(X, D, alpha=0.1, sparse_output=True).dtype == np.float32
    assert sparse_encode(X.astype(int), D, alpha=0.1).dtype == np.float64


def test_a_start_saves_iterations(problem):
    X, D = problem
    at_first, _ = sparse_encode(X, D, alpha=0.12, return_info=True)
    _, cold = sparse_encode(X, D, alpha=0.1, return_info=True)
    for init in (at_first, scipy.sparse.csr_array(at_first), at_first.tolist()):
        codes, warm = sparse_encode(X, D, alpha=0.1, init=init, return_info=True)
        assert warm.n_iter.sum() < cold.n_iter.sum()
        assert relative_gaps(X, D, codes, 0.1).max() <= 1e-6


def test_samples_that_miss_the_gap_are_counted_in_one_warning(problem):
    X, D = problem
    with pytest.warns(ConvergenceWarning) as caught:
        codes, info = sparse_encode(X, D, alpha=1e-3, max_iter=1, return_info=True)
    late = int(np.sum(~info.converged))
    assert late > 0
    assert len(caught) == 1
    assert f"{late} of 300 samples" in str(caught[0].message)
    assert caught[0].filename == __file__
    np.testing.assert_array_equal(relative_gaps(X, D, codes, 1e-3) > 1e-6, ~info.converged)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "Give either alpha.*got alpha=None and n_nonzero_coefs=None"),
        ({"alpha": 0.1, "n_nonzero_coefs": 2}, "Give either alpha.*got alpha=0.1 and n_nonzero_coefs=2"),
        ({"alpha": 0.0}, "alpha=0.0 must be greater than 0 and finite"),
        ({"alpha": np.nan}, "alpha=nan must be greater than 0 and finite"),
        ({"alpha": np.inf}, "alpha=inf must be greater than 0 and finite"),
        ({"alpha": np.ones(3)}, "alpha must be a number, not a ndarray"),
        ({"alpha": 0.1, "tol": -1}, "tol=-1 must be greater than 0 and finite"),
        ({"alpha": 0.1, "max_iter": 1.5}, "max_iter must be an integer, not a float"),
        ({"alpha": 0.1, "n_jobs": "2"}, "n_jobs must be an integer, not a str"),
        ({"n_nonzero_coefs": 0}, "n_nonzero_coefs=0 must be greater than 0"),
        ({"alpha": 0.1, "solver": "lars"}, "solver='lars' is unknown. Choose one of auto, active_set, admm"),
        ({"alpha": 0.1, "solver": "omp"}, "give n_nonzero_coefs instead of alpha"),
        ({"n_nonzero_coefs": 2, "positive": True}, "has no positive"),
        ({"n_nonzero_coefs": 2, "solver": "admm"}, "has no solver"),
        ({"alpha": 0.1, "init": np.full((300, 60), np.nan)}, "init contains NaN"),
        (
            {"alpha": 0.1, "init": np.zeros((2, 2))},
            r"init has shape \(2, 2\), but codes have shape \(300, 60\)",
        ),
    ],
)
def test_bad_arguments_are_named(problem, options, message):
    with pytest.raises(ValueError, match=message):
        sparse_encode(*problem, **options)


def test_bad_arrays_are_named(problem, monkeypatch):
    X, D = problem
    monkeypatch.setattr(_coders, "CHUNK", 1)
    monkeypatch.setattr(_coders, "CHUNK_ROWS", 50)
    with pytest.raises(ValueError, match="X has 25 features and the dictionary 24"):
        sparse_encode(X, D[:, :-1], alpha=0.1)
    with pytest.raises(ValueError, match=r"X has shape \(25,\).*x.reshape\(1, -1\)"):
        sparse_encode(X[0], D, alpha=0.1)
    with pytest.raises(ValueError, match=r"dictionary has shape \(0, 25\).*not empty"):
        sparse_encode(X, D[:0], alpha=0.1)
    for bad in (np.nan, np.inf):
        samples, atoms = X.copy(), D.copy()
        samples[170, 3] = atoms[5, 1] = bad
        with pytest.raises(ValueError, match=r"X contains NaN or infinity in row 170"):
            sparse_encode(samples, D, alpha=0.1)
        with pytest.raises(ValueError, match=r"dictionary contains NaN or infinity in row 5"):
            sparse_encode(X, atoms, alpha=0.1)
        with pytest.raises(ValueError, match=r"X contains NaN or infinity in row 170"):
            sparse_encode(samples, D, n_nonzero_coefs=2, n_jobs=2)
    for scale in (1e200, 1e-200):
        with pytest.raises(ValueError, match=r"X has numbers of size.*float64 cannot hold. Scale X"):
            sparse_encode(scale * X, D, alpha=0.1)


def test_sparse_codes_have_the_indices_that_scikit_learn_wants(problem):
    codes = sparse_encode(*problem, alpha=0.1, sparse_output=True)
    assert codes.indices.dtype == codes.indptr.dtype == np.int32


def test_the_info_is_shown_in_one_line(problem):
    _, info = sparse_encode(*problem, alpha=0.1, return_info=True)
    assert repr(info) == "CodingInfo(solver='active_set', tol=1e-06: 300 of 300 samples converged)"


def test_there_is_no_warning_where_nothing_is_wrong(problem):
    X, D = problem
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sparse_encode(X, D, alpha=100.0)
        sparse_encode(np.zeros_like(X), D, alpha=0.1)
        sparse_encode(X, np.zeros_like(D), alpha=0.1, solver="admm")
        sparse_encode(X, np.zeros_like(D), alpha=0.1, solver="active_set")
