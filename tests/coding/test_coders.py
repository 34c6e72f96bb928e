"""The coders of samples: which solver is taken, what is certified, and what is kept."""

import sys
import time
import tracemalloc
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_less
from sklearn.exceptions import ConvergenceWarning

import ledl
from helpers.oracles import relative_gaps
from helpers.plain_codes import omp_plain
from helpers.problems import unit
from ledl import sparse_encode
from ledl.coding import LassoCoder, RidgeCoder, _coders
from ledl.solvers.lasso import SOLVERS


@pytest.fixture
def problem(rng):
    D = unit(rng.standard_normal((60, 25)))
    return unit(rng.standard_normal((300, 25))), D


def dense_problem(rng):
    """Codes with as many non-zeros as there are independent atoms: exact steps take many rounds."""
    D = unit(rng.standard_normal((400, 200)))
    return unit(rng.standard_normal((40, 200))), D


@pytest.mark.parametrize("tol", [1e-4, 1e-6])
def test_auto_takes_admm_for_dense_codes_and_reaches_the_gap(tol, rng):
    X, D = dense_problem(rng)
    codes, info = sparse_encode(X, D, alpha=1e-4, tol=tol, return_info=True)
    assert info.solver == "admm"
    assert info.converged.all()
    assert relative_gaps(X, D, codes, 1e-4).max() <= tol
    assert (info.n_nonzero < 250).all()


def test_auto_finishes_with_exact_steps_what_admm_does_not(rng, monkeypatch):
    X, D = dense_problem(rng)
    monkeypatch.setattr(_coders, "ADMM_ROUNDS", 20)
    codes, info = sparse_encode(X, D, alpha=1e-4, return_info=True)
    assert info.solver == "admm"
    assert info.converged.all()
    assert info.n_iter.min() > 20
    assert relative_gaps(X, D, codes, 1e-4).max() <= 1e-6


def test_float32_products_that_cannot_certify_are_made_again_in_float64(rng):
    # Codes so large that the rounding of their correlations alone is more than the tolerance.
    D = unit(1 + 1e-3 * rng.standard_normal((80, 60)))
    X = unit(rng.standard_normal((20, 60)))
    codes, info = sparse_encode(X, D, alpha=1e-7, tol=1e-4, return_info=True, solver="active_set")
    assert np.abs(codes).sum(axis=1).max() > 1e3
    assert info.converged.all()
    assert relative_gaps(X, D, codes, 1e-7).max() <= 1e-4


@pytest.mark.parametrize(("solver", "positive"), [("auto", False), ("auto", True), ("active_set", False)])
def test_gaussian_codes_as_dense_as_the_dictionary_allows(solver, positive):
    for seed in range(3):
        rng = np.random.default_rng(seed)
        D, X = rng.normal(size=(300, 60)), rng.normal(size=(40, 60))
        for ratio in (1e-4, 1e-6):
            alpha = ratio * np.abs(X @ D.T).max()
            codes, info = sparse_encode(X, D, alpha=alpha, solver=solver, positive=positive, return_info=True)
            assert info.converged.all()
            assert relative_gaps(X, D, codes, alpha, positive).max() <= 1.01e-6


@pytest.mark.parametrize("ratio", [1e-3, 1e-5, 1e-7])
def test_loose_tolerances_are_certified_truly_at_tiny_alphas(ratio, rng):
    """Products in float32 round correlations by more than such an alpha."""
    D = unit(rng.standard_normal((60, 64)))
    X = rng.standard_normal((100, 64))
    alpha = ratio * np.abs(X @ D.T).max()
    codes, info = sparse_encode(X, D, alpha=alpha, tol=1e-4, return_info=True)
    assert (relative_gaps(X, D, codes, alpha)[info.converged] <= 1e-4).all()
    assert info.converged.all()


@pytest.mark.parametrize(
    ("ratio", "tol", "positive"),
    [(1e-4, 1e-3, False), (1e-4, 1e-6, True), (1e-8, 1e-3, True), (1e-8, 1e-6, False)],
)
def test_admm_meets_no_singular_matrix(ratio, tol, positive):
    for seed in range(30):
        rng = np.random.default_rng(seed)
        D = rng.normal(size=(20, 5))
        D[3:6] = D[0] + 1e-6 * rng.normal(size=(3, 5))
        X = rng.normal(size=(2, 5))
        settings = {"alpha": ratio * np.abs(X @ D.T).max(), "tol": tol, "positive": positive, "max_iter": 200}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            codes = sparse_encode(X, D, solver="admm", **settings)
        assert np.isfinite(codes).all()


@pytest.mark.parametrize("solver", ["auto", *SOLVERS])
def test_a_start_on_zero_atoms_is_left(solver):
    codes = sparse_encode(
        [[1.0, 1.0]], [[1.0, 0.0], [0.0, 0.0]], alpha=0.1, init=np.ones((1, 2)), solver=solver
    )
    assert_allclose(codes, [[0.9, 0.0]], atol=1e-3)


@pytest.mark.parametrize("solver", ["auto", *SOLVERS])
def test_a_start_that_is_negative_leaves_positive_codes_positive(problem, solver, rng):
    X, D = problem
    options = {"alpha": 1e-5, "positive": True, "solver": solver, "max_iter": 30}  # too few for ADMM
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        codes, info = sparse_encode(X, D, init=rng.standard_normal((300, 60)), return_info=True, **options)
    assert codes.min() >= 0
    assert (relative_gaps(X, D, codes, 1e-5, positive=True)[info.converged] <= 1e-6).all()


def test_codes_of_repeated_atoms_do_not_depend_on_threads(rng):
    D = unit(rng.standard_normal((600, 40)))
    D = np.concatenate([D, D[:50]])
    X = rng.standard_normal((600, 40))
    for options in ({"alpha": 1.0}, {"n_nonzero_coefs": 8}):
        one, two = (sparse_encode(X, D, n_jobs=n_jobs, **options) for n_jobs in (1, 2))
        assert_allclose(one, two, atol=1e-10)


def test_iterations_are_at_most_so_many(problem):
    X, D = problem
    for max_iter in (1, 5, 50):
        for tol in (1e-3, 1e-6):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                _, info = sparse_encode(X, D, alpha=1e-6, tol=tol, max_iter=max_iter, return_info=True)
            assert info.n_iter.max() <= max_iter


@pytest.mark.parametrize("tol", [1e-4, 1e-6])
def test_a_coder_takes_what_another_over_the_same_atoms_has_made(problem, tol, monkeypatch):
    X, D = problem
    squares, kept = np.sum(X**2, axis=1), {}
    codes, *_ = LassoCoder(D, alpha=0.1, tol=tol, kept=kept)(X, squares)
    for name in ("gram", "squared_norms"):
        monkeypatch.setattr(_coders, name, None)  # not called again
    for rows in (slice(0, 1), slice(0, 300)):
        again, _, _, converged = LassoCoder(D, alpha=0.1, tol=tol, kept=kept)(X[rows], squares[rows])
        assert_allclose(again, codes[rows], atol=1e-5)
        assert converged.all()
        assert_array_less(relative_gaps(X[rows], D, again, 0.1), tol)
    other, *_ = LassoCoder(D, alpha=0.2, tol=tol, kept=kept)(X, squares)
    assert relative_gaps(X, D, other, 0.2).max() <= tol


@pytest.mark.parametrize(
    ("solver", "tol"), [("auto", 1e-3), ("auto", 1e-6), ("active_set", 1e-3), ("admm", 1e-6)]
)
def test_one_coder_for_several_dictionaries(solver, tol, rng):
    D, X = rng.standard_normal((2, 3, 30, 12)), rng.standard_normal((2, 3, 20, 12))
    alpha, squares = rng.uniform(0.05, 2, (2, 3, 1, 1)), np.sum(X**2, axis=-1)
    coder = LassoCoder(D, alpha=alpha, tol=tol, solver=solver)
    codes, gap, n_iter, converged = coder(X, squares)
    assert gap.shape == n_iter.shape == converged.shape == (2, 3, 20)
    assert converged.all()
    for p in np.ndindex(2, 3):
        assert relative_gaps(X[p], D[p], codes[p], alpha[p].item()).max() <= tol
        alone, *_ = LassoCoder(D[p], alpha=alpha[p].item(), tol=tol, solver=solver)(X[p], squares[p])
        assert relative_gaps(X[p], D[p], alone, alpha[p].item()).max() <= tol


def test_threads_share_one_matrix_of_products(rng, monkeypatch):
    made, gram = [], _coders.gram

    def slow_gram(*arguments):
        made.append(arguments)
        time.sleep(0.1)  # while other threads arrive
        return gram(*arguments)

    monkeypatch.setattr(_coders, "gram", slow_gram)
    sparse_encode(rng.random((8, 6)), rng.random((20, 6)), alpha=0.1, n_jobs=4)
    assert len(made) == 1


@pytest.mark.parametrize("method", [{"alpha": 0.1}, {"n_nonzero_coefs": 1}], ids=["lasso", "omp"])
def test_products_of_atoms_that_no_machine_holds_are_announced(method, rng):
    X = rng.random((10**6, 2))
    with pytest.raises(ValueError, match=r"all pairs of 1000000 atoms.* need about 8,000 GB.*Use fewer atoms"):
        sparse_encode(X[:600_000], X, **method)


@pytest.mark.parametrize("tol", [1e-4, 1e-6])
def test_two_samples_enter_few_functions(problem, tol):
    X, D = problem
    coder = LassoCoder(D, alpha=0.1, tol=tol)
    squares = np.sum(X[:2] ** 2, axis=1)
    coder(X[:2], squares)
    entered = set()

    def watch(frame, event, argument):
        if event == "call" and frame.f_code.co_filename.startswith(ledl.__path__[0]):
            entered.add(frame.f_code.co_qualname)

    sys.setprofile(watch)
    try:
        coder(X[:2], squares)
    finally:
        sys.setprofile(None)
    assert len(entered) <= 6, entered


@pytest.mark.parametrize("shape", [(5, 9), (9, 5)])
def test_ridge_codes_solve_their_equations(shape, rng):
    D, X = rng.standard_normal(shape), rng.standard_normal((7, shape[1]))
    S, *_ = RidgeCoder(D, 0.3)(X, (X**2).sum(axis=1))
    assert_allclose(S @ (D @ D.T + 0.3 * np.eye(len(D))), X @ D.T, atol=1e-12)


@pytest.mark.torch
def test_ridge_codes_of_tensors_that_are_not_defined_are_an_error(rng):
    import torch

    atoms = torch.as_tensor(np.repeat(rng.standard_normal((1, 5)), 9, axis=0))
    with pytest.raises(ValueError, match="alpha=1e-300 is so small"):
        RidgeCoder(atoms, 1e-300)


def many_atoms(rng, n=5, K=4000, r=40):
    return unit(rng.standard_normal((K, r))), unit(rng.standard_normal((n, r)))


@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_few_samples_over_many_atoms_are_certified(rng, positive, dtype):
    D, X = (x.astype(dtype) for x in many_atoms(rng, 11))
    X[3], X[4] = 0, 3 * D[7]
    codes, info = sparse_encode(X, D, alpha=0.01, positive=positive, return_info=True)
    assert info.converged.all()
    assert info.solver == "active_set"
    assert codes.dtype == dtype
    rows = [0, 1, 2, 8, 9, 10]  # of both batches
    gaps = relative_gaps(X[rows].astype(np.float64), D, codes[rows].astype(np.float64), 0.01, positive)
    assert gaps.max() <= (1e-6 if dtype == np.float64 else 2e-5)
    start = sparse_encode(X, D, alpha=0.01, positive=positive, init=codes, return_info=True)[1]
    assert start.n_iter.sum() == 0
    for init in (-codes, 100 * np.abs(codes), np.ones_like(codes)):
        info = sparse_encode(X[:3], D, alpha=0.01, positive=positive, init=init[:3], return_info=True)[1]
        assert info.converged.all()


def test_few_samples_take_at_most_so_many_iterations(rng):
    D, X = many_atoms(rng, 11)
    with pytest.warns(ConvergenceWarning, match="11 of 11 samples"):
        _, info = sparse_encode(X, D, alpha=1e-3, max_iter=3, return_info=True)
    assert (info.n_iter == 3).all()


@pytest.mark.parametrize("n_nonzero", [1, 12, 20])
def test_few_samples_over_many_atoms_have_the_codes_of_matching_pursuit(rng, n_nonzero):
    D, X = many_atoms(rng)
    X[3], X[4] = 0, 3 * D[7]
    codes, info = sparse_encode(X, D, n_nonzero_coefs=n_nonzero, return_info=True)
    assert_allclose(codes[[0, 1, 2]], [omp_plain(D, x, n_nonzero) for x in X[:3]], atol=1e-8)
    assert info.n_iter.tolist() == [n_nonzero] * 3 + [0, 1]
    assert_allclose(codes[4, 7], 3)


def test_few_samples_pass_over_copies_of_atoms(rng):
    D, X = many_atoms(rng, r=8)
    D = np.tile(D[:6], (700, 1))  # of rank 6
    codes, info = sparse_encode(X, D, n_nonzero_coefs=8, return_info=True)
    assert info.n_iter.tolist() == [6] * 5
    assert_allclose((X - codes @ D) @ D[:6].T, 0, atol=1e-12)


@pytest.mark.parametrize("options", [{"alpha": 0.01}, {"n_nonzero_coefs": 10}])
@pytest.mark.parametrize("K", [2000, 4000])
def test_a_sample_over_many_atoms_needs_no_product_of_all_pairs(rng, options, K):
    D, X = many_atoms(rng, K=K)
    sparse_encode(X[:1], D, **options)  # compiles
    tracemalloc.start()
    try:
        sparse_encode(X[:1], D, **options)
        assert tracemalloc.get_traced_memory()[1] < 8 * len(D) ** 2 / 8
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("options", [{"alpha": 0.01}, {"n_nonzero_coefs": 10}])
def test_products_of_all_pairs_that_are_not_kept_are_made_for_many_samples_alone(rng, options, monkeypatch):
    D, X = many_atoms(rng, n=300, K=1200, r=150)
    made, gram = [], _coders.gram
    monkeypatch.setattr(_coders, "gram", lambda atoms, threads: made.append(len(atoms)) or gram(atoms, threads))
    whole, info = sparse_encode(X, D, return_info=True, **options)
    assert made == [len(D)]
    few, few_info = sparse_encode(X[:8], D, return_info=True, **options)
    assert made == [len(D)]
    assert info.converged.all()
    assert few_info.converged.all()
    assert_allclose(few, whole[:8], atol=1e-3)


@pytest.mark.parametrize(("K", "n_few"), [(1000, 1), (3000, 8)])
def test_a_few_more_samples_need_no_matrix_if_their_codes_are_sparse(rng, monkeypatch, K, n_few):
    D, X = rng.standard_normal((K, 1100)), rng.standard_normal((n_few + 1, 1100))
    made, gram = [], _coders.gram
    monkeypatch.setattr(_coders, "gram", lambda atoms, threads: made.append(len(atoms)) or gram(atoms, threads))
    most = np.abs(X @ D.T).max()
    sparse_encode(X, D, alpha=0.9 * most)
    sparse_encode(X[:n_few], D, alpha=0.01 * most, tol=1e-2)
    assert made == []
    sparse_encode(X, D, alpha=0.01 * most, tol=1e-2)
    assert made == [K]
    with_blanks = np.vstack([np.zeros((1, 1100)), X[:5], np.zeros((1, 1100))])
    sparse_encode(with_blanks, D, alpha=0.1 * most, tol=1e-2)
    assert made == [K] * (2 if len(with_blanks) > n_few else 1)


def test_batches_of_many_samples_share_products_of_all_pairs_that_few_would_not_make(rng, monkeypatch):
    """`ledl predict` gives 64 images at a time."""
    monkeypatch.setattr(_coders, "MAX_KEPT", 0)
    X = rng.standard_normal((60, 12))
    model = ledl.SRCClassifier(alpha=0.1).fit(X, np.arange(60) % 3)
    made, gram = [], _coders.gram
    monkeypatch.setattr(_coders, "gram", lambda atoms, threads: made.append(len(atoms)) or gram(atoms, threads))
    whole = model.decision_function(X)
    assert_allclose(
        np.vstack([model.decision_function(X[:30]), model.decision_function(X[30:])]), whole, atol=1e-5
    )
    assert made == [60]
    monkeypatch.setattr(_coders, "MOST_KEPT", 8 * 60**2 - 1)
    again = ledl.SRCClassifier(alpha=0.1).fit(X, np.arange(60) % 3)
    assert_allclose(again.decision_function(X), again.decision_function(X))
    assert made == [60] * 3


def test_matching_pursuit_keeps_the_products_of_atoms(rng, monkeypatch):
    X = rng.standard_normal((60, 12))
    model = ledl.KSVD(n_components=20, max_iter=2, random_state=0).fit(X)
    whole, made = model.transform(X), []
    monkeypatch.setattr(_coders, "gram", lambda atoms, threads: made.append(len(atoms)))
    assert_allclose(model.transform(X[:3]), whole[:3], atol=1e-10)
    assert not made
