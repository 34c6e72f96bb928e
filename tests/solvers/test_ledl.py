"""The solver against the oracle, each update against its definition, and the two seams: problems, blocks."""

from importlib import import_module
from types import SimpleNamespace

import numpy as np
import pytest

from helpers import reference
from helpers.problems import Problem, make_problem, unit
from ledl.samples import InMemoryBlocks
from ledl.solvers import compiled
from ledl.solvers.atoms import Factors, Sums, sweep
from ledl.solvers.iteration import Status
from ledl.solvers.ledl import (
    Atoms,
    CodeStep,
    DualStep,
    begin,
    expand_code_transform,
    factorise,
    fit_of_codes,
    reduce_code_transform,
    shrink_plain,
    solve,
)
from ledl.solvers.ledl import (
    make_problem as weigh,
)
from ledl.solvers.start import class_start, random_start
from ledl.subspace import IdentitySubspace

WEIGHTS = {"lam": 2**-3, "omega": 2**-6, "epsilon": 2**-6}

SHAPES = {
    "balanced, n < d, more atoms than columns": ([5] * 6, 80, 60),
    "balanced, n < d, fewer atoms than columns": ([5] * 6, 80, 18),
    "unbalanced, n > d, K not a multiple of c": ([20, 7, 3, 11], 12, 43),
    "unbalanced, n > d, fewer atoms than columns": ([20, 7, 3, 11], 12, 13),
    "shuffled, n < d": ([9, 4, 6], 40, 37),
    "shuffled, n = d, one sample in a class": ([9, 1, 6], 16, 20),
    "more atoms than a block of the sweep": ([10] * 8, 30, 110),
    "more samples than atoms, few columns": ([60] * 3, 5, 150),
}


def problem_of(name):
    return make_problem(*SHAPES[name], shuffled="shuffled" in name)


def assert_same_model(problem, atoms, oracle, tol=1e-8):
    B, W, A = oracle[:3]
    np.testing.assert_allclose(problem.subspace.expand(atoms.B), B, atol=tol)
    np.testing.assert_allclose(atoms.W, W, atol=tol)
    np.testing.assert_allclose(expand_code_transform(atoms.A, problem.atom_classes), A, atol=tol)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("zero", [{}, {"lam": 0.0}, {"omega": 0.0}, {"lam": 0.0, "omega": 0.0}], ids=str)
def test_solver_agrees_with_oracle(shape, zero):
    problem, weights = problem_of(shape), WEIGHTS | zero
    blocks = problem.blocks()
    run = solve(blocks, problem.start, code_scale=problem.code_scale, max_iter=30, **weights)
    oracle = problem.oracle(n_iter=30, **weights)
    assert_same_model(problem, run.state, oracle)
    np.testing.assert_allclose(blocks.codes(), oracle[4], atol=1e-8)


@pytest.mark.parametrize("kind", ["class", "random"])
@pytest.mark.parametrize("shape", ["shuffled, n < d", "unbalanced, n > d, K not a multiple of c"])
def test_solver_agrees_with_oracle_from_both_starts(shape, kind, rng):
    problem = problem_of(shape)
    if kind == "class":
        candidates = [np.flatnonzero(problem.labels == j) for j in range(problem.start.n_classes)]
        start = class_start(problem.blocks(), candidates, problem.atom_classes, rng)
    else:
        start = random_start(problem.subspace, problem.X.shape[1], problem.atom_classes, rng)
    run = problem._replace(start=start).solve(max_iter=30, **WEIGHTS)
    assert_same_model(problem, run.state, problem.oracle(start=start, n_iter=30, **WEIGHTS))


@pytest.mark.parametrize("n_atoms", [20, 8], ids=["in the targets' space", "in the atoms' space"])
def test_an_atom_that_nobody_uses_stays_as_it_is(n_atoms):
    problem = make_problem([8, 8], 6, n_atoms)
    X = problem.coordinates.copy()
    X[:, -1] = 0  # a feature that no sample has ...
    B = problem.start.B.copy()
    B[:, -1] = 0
    B[3] = np.eye(6)[-1]  # ... and an atom that has nothing else
    start = Atoms(np.concatenate([unit(B), problem.start.W, problem.start.A], axis=1), 2)
    problem = problem._replace(X=X, coordinates=X, start=start)
    weights = WEIGHTS | {"lam": 0.0, "omega": 0.0}
    run = problem.solve(max_iter=30, **weights)
    assert_same_model(problem, run.state, problem.oracle(n_iter=30, **weights))
    np.testing.assert_allclose(run.state.M[3], start.M[3], rtol=1e-15)
    assert np.isfinite(run.state.M).all()


@pytest.mark.parametrize("n_copies", [4, 1], ids=["in the targets' space", "in the atoms' space"])
@pytest.mark.parametrize(
    ("scale", "share", "used"),
    [(1.0, 1e-9, True), (1.0, 1e-14, False), (1e4, 1e-13, True), (1e-4, 1e-10, False)],
)
def test_an_atom_is_unused_below_a_trillionth_of_its_target(scale, share, used, n_copies):
    """Samples of size `scale` along one axis, and `share` of it along another, where half of the atoms are."""
    X = scale * np.array([[1.0, share], [1.0, share]])
    atom_classes = np.repeat([0, 1], n_copies)
    start = Atoms(np.tile(np.eye(2)[atom_classes], 3), 2)
    problem = Problem(X, np.array([0, 1]), atom_classes, IdentitySubspace(), X, start)
    weights = {"lam": 0.0, "omega": 0.0, "epsilon": 0.0}
    run = problem.solve(max_iter=1, **weights)
    assert_same_model(problem, run.state, problem.oracle(n_iter=1, **weights))
    along = np.abs(run.state.B[n_copies:, 0])
    np.testing.assert_allclose(along, 1.0 if used else 0.0, atol=1e-6)


@pytest.mark.parametrize("shape", SHAPES)
def test_history_agrees_with_oracle(shape):
    problem = problem_of(shape)
    rho = 0.7
    run = problem.solve(max_iter=25, rho=rho, **WEIGHTS)
    H = reference.one_hot_columns(problem.labels, problem.start.n_classes)
    Q = reference.label_consistency_targets(problem.labels, problem.atom_classes)
    states = problem.oracle_iterations(n_iter=25, rho=rho, **WEIGHTS)

    def objective(B, W, A, Z):
        fit = np.sum((problem.X.T - B @ Z) ** 2) + WEIGHTS["lam"] * np.sum((H - W @ Z) ** 2)
        return fit + WEIGHTS["omega"] * np.sum((Q - A @ Z) ** 2) + 2 * WEIGHTS["epsilon"] * np.abs(Z).sum()

    previous_Z, coded_with = 0.0, None
    for i, (B, W, A, C, Z, L) in enumerate(states):
        expected = reference.augmented_objective(problem.X.T, H, Q, B, W, A, C, Z, L, rho=rho, **WEIGHTS)
        now = {name: values[i] for name, values in run.history.items()}
        assert now["augmented_objective"] == pytest.approx(expected, rel=1e-9)
        assert now["data_fit"] == pytest.approx(np.sum((problem.X.T - B @ C) ** 2), rel=1e-8)
        assert now["label_fit"] == pytest.approx(WEIGHTS["lam"] * np.sum((H - W @ C) ** 2), rel=1e-8)
        assert now["code_fit"] == pytest.approx(WEIGHTS["omega"] * np.sum((Q - A @ C) ** 2), rel=1e-8)
        assert now["primal_residual"] == pytest.approx(np.linalg.norm(C - Z), rel=1e-8)
        assert now["dual_residual"] == pytest.approx(rho * np.linalg.norm(Z - previous_Z), rel=1e-8)
        assert now["nonzero_share"] == np.mean(Z != 0)
        assert np.isnan(now["objective"]) == (i not in (9, 19, 24))
        if i in (9, 19):  # with the atoms that the codes were computed with
            assert now["objective"] == pytest.approx(objective(*coded_with, Z), rel=1e-9)
        previous_Z, coded_with = Z.copy(), (B.copy(), W.copy(), A.copy())
    assert run.history["objective"][-1] == pytest.approx(objective(B, W, A, Z), rel=1e-9)


@pytest.fixture(params=[60, 18], ids=["in the targets' space", "in the atoms' space"])
def one_code_step(request, rng):
    """A code step from arbitrary Z and L."""
    problem = make_problem([5] * 6, 80, request.param)
    rho, theta = 0.7, 0.3
    weighted = weigh((), problem.start, problem.code_scale, rho=rho, **WEIGHTS)
    M = problem.start.M * weighted.roots
    step = CodeStep(weighted, M, factorise(M, weighted.rho), theta)
    blocks = problem.blocks()
    blocks.map_sum(lambda block: begin(weighted, M.shape[:-1], block))
    (block,) = blocks._blocks
    Z, L = 0.1 * rng.standard_normal((2, *block.Z.shape))
    coded, C, E, _ = step.codes(block._replace(Z=Z.copy(), L=L.copy()))  # which may be overwritten
    block = block._replace(Z=Z, L=L)
    return block, step, SimpleNamespace(C=C, Z=coded.Z, L=coded.L, E=E), rho, theta


def test_C_solves_the_normal_equations(one_code_step):
    block, step, codes, rho, _ = one_code_step
    T = np.concatenate([block.X, step.problem.label_targets[block.labels]], axis=1)
    M = step.M
    gradient = (codes.C @ M - T) @ M.T + block.L + rho * (codes.C - block.Z)
    assert np.abs(gradient).max() < 1e-12
    if codes.E is not None:
        np.testing.assert_allclose(codes.E, T - codes.C @ M, atol=1e-12)


def test_weights_are_in_targets_and_atoms(one_code_step):
    """|T - C M|^2 by parts is |X - C B|^2, lam |H - C W|^2 and omega |Q - C A|^2, Q being the full target."""
    block, step, codes, _, _ = one_code_step
    c, K = len(step.problem.label_targets), len(step.M)
    atoms = Atoms(step.M / step.problem.roots, c)
    atom_classes = np.repeat(np.arange(c), K // c)
    H = np.eye(c)[block.labels]
    Q = (block.labels[:, None] == atom_classes).astype(float)
    A = expand_code_transform(atoms.A, atom_classes)
    expected = [
        np.sum((block.X - codes.C @ atoms.B) ** 2),
        WEIGHTS["lam"] * np.sum((H - codes.C @ atoms.W) ** 2),
        WEIGHTS["omega"] * np.sum((Q - codes.C @ A) ** 2),
    ]
    _, (fit, _) = fit_of_codes(step.problem, step.M, block._replace(Z=codes.C))
    np.testing.assert_allclose(fit, expected)


def test_Z_is_the_prox_by_brute_force(one_code_step, rng):
    block, _, codes, rho, _ = one_code_step
    epsilon = WEIGHTS["epsilon"]

    def augmented(z, c, multiplier):
        return 2 * epsilon * np.abs(z) + 2 * multiplier * (c - z) + rho * (c - z) ** 2

    grid = np.linspace(-2, 2, 100_001)
    for i, k in zip(rng.integers(len(block.X), size=50), rng.integers(codes.C.shape[1], size=50), strict=True):
        c, multiplier = codes.C[i, k], block.L[i, k]
        best = augmented(grid, c, multiplier).min()
        assert augmented(codes.Z[i, k], c, multiplier) <= best + 1e-15
    assert 0 < np.mean(codes.Z == 0) < 1


def test_L_is_a_dual_step(one_code_step):
    block, _, codes, _, theta = one_code_step
    np.testing.assert_allclose(codes.L, block.L + theta * (codes.C - codes.Z))


def test_compiled_shrink_is_the_plain_one(one_code_step):
    block, step, codes, _, theta = one_code_step
    arguments = (step.problem.epsilon, step.problem.rho, theta)
    plain = shrink_plain(codes.C, block.Z, block.L, *arguments)
    for order in "C", "F":  # in the memory of its arguments, and not
        Z, L = (np.array(x, order=order) for x in (block.Z, block.L))
        ours = compiled.find("shrink", codes.C)(codes.C, Z, L, *arguments)
        assert [np.shares_memory(*pair) for pair in zip(ours, (Z, L), strict=False)] == 2 * [order == "C"]
        for one, other in zip(ours, plain, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-13, atol=1e-15)


BATCH = {
    "lam": np.array([2**-3, 0.0, 2**-1]).reshape(3, 1, 1),
    "omega": np.array([2**-6, 2**-4, 0.0]).reshape(3, 1, 1),
    "epsilon": np.array([2**-6, 2**-3, 2**-8]).reshape(3, 1, 1),
    "rho": np.array([1.0, 0.5, 2.0]).reshape(3, 1, 1),
}


@pytest.mark.parametrize("n_atoms", [60, 18], ids=["in the targets' space", "in the atoms' space"])
@pytest.mark.parametrize("tol", [0.0, 1e-2])
def test_a_batch_gives_what_single_solves_give(n_atoms, tol):
    problem = make_problem([5] * 6, 80, n_atoms)
    blocks = problem.blocks()
    batch = solve(blocks, problem.start, code_scale=problem.code_scale, max_iter=60, tol=tol, **BATCH)
    for p in range(3):
        weights = {name: float(values[p, 0, 0]) for name, values in BATCH.items()}
        own = problem.blocks()
        single = solve(own, problem.start, code_scale=problem.code_scale, max_iter=60, tol=tol, **weights)
        n_iter = int(single.n_iter)
        assert batch.n_iter[p] == n_iter
        assert batch.status[p] is single.status[()]
        np.testing.assert_allclose(batch.state.M[p], single.state.M, atol=1e-11)
        np.testing.assert_allclose(blocks.codes()[p], own.codes(), atol=1e-11)
        for name, values in single.history.items():
            np.testing.assert_allclose(batch.history[name][:n_iter, p], values, rtol=1e-8, atol=1e-12)
            assert np.isnan(batch.history[name][n_iter:, p]).all()
    if tol:
        assert len(set(batch.n_iter)) > 1, "the problems should stop at different iterations"


@pytest.mark.parametrize("n_atoms", [60, 18], ids=["in the targets' space", "in the atoms' space"])
def test_a_batch_of_samples_may_share_its_start(n_atoms):
    problems = [make_problem([5] * 6, 80, n_atoms, seed=seed) for seed in range(2)]
    X, scale, start = np.stack([p.coordinates for p in problems]), problems[0].code_scale, problems[0].start
    blocks = InMemoryBlocks(X, problems[0].labels, 11)
    batch = solve(blocks, start, code_scale=scale, max_iter=10, **WEIGHTS)
    for p, problem in enumerate(problems):
        single = problem._replace(start=start).solve(max_iter=10, **WEIGHTS)
        np.testing.assert_allclose(batch.state.M[p], single.state.M, atol=1e-11)


def test_a_batch_may_have_samples_and_labels_of_its_own():
    problems = [make_problem([5] * 6, 80, 60, seed=seed, shuffled=True) for seed in range(3)]
    X, labels, M = (
        np.stack(arrays)
        for arrays in zip(*[(p.coordinates, p.labels, p.start.M) for p in problems], strict=True)
    )
    scale = problems[0].code_scale
    batch = solve(InMemoryBlocks(X, labels, 7), Atoms(M, 6), code_scale=scale, max_iter=10, **WEIGHTS)
    for p, problem in enumerate(problems):
        np.testing.assert_allclose(batch.state.M[p], problem.solve(max_iter=10, **WEIGHTS).state.M, atol=1e-11)


@pytest.mark.parametrize("n_atoms", [60, 18], ids=["in the targets' space", "in the atoms' space"])
@pytest.mark.parametrize("block_size", [1, 11, 12], ids="blocks of {}".format)
def test_blocks_give_what_one_block_gives(n_atoms, block_size):
    problem = make_problem([5] * 6, 80, n_atoms)
    one, many = problem.blocks(), problem.blocks(block_size)
    runs = [
        solve(blocks, problem.start, code_scale=problem.code_scale, max_iter=20, **WEIGHTS)
        for blocks in (one, many)
    ]
    np.testing.assert_allclose(runs[0].state.M, runs[1].state.M, atol=1e-11)
    np.testing.assert_allclose(one.codes(), many.codes(), atol=1e-11)
    for name, values in runs[0].history.items():
        np.testing.assert_allclose(runs[1].history[name], values, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("shape", "block_size", "form"),
    [
        (([40] * 3, 5, 200), None, Factors),  # fewer samples than atoms
        (([60] * 3, 5, 150), None, Factors),  # more, and few columns
        (([60] * 3, 120, 150), None, Sums),  # nearly as many columns as atoms
        (([60] * 3, 5, 150), 100, Sums),  # blocks, which have more samples than atoms together
        (([40] * 3, 5, 200), 100, Factors),
    ],
)
def test_the_sweep_takes_the_form_that_needs_less_time_or_memory(shape, block_size, form, monkeypatch):
    forms, problem = set(), make_problem(*shape)

    def noted(equations, *arguments):
        forms.add(type(equations))
        return sweep(equations, *arguments)

    monkeypatch.setattr("ledl.solvers.ledl.sweep", noted)
    problem.solve(block_size, max_iter=2, **WEIGHTS)
    assert forms == {form}


@pytest.fixture(params=["array_api_strict", pytest.param("torch", marks=pytest.mark.torch)])
def library(request):
    return import_module(request.param)


@pytest.mark.parametrize("n_atoms", [60, 18], ids=["in the targets' space", "in the atoms' space"])
@pytest.mark.parametrize("block_size", [11, None], ids="blocks of {}".format)
def test_solver_takes_arrays_of_any_library(n_atoms, block_size, library):
    problem = make_problem([5] * 6, 80, n_atoms)
    X, labels, M = map(library.asarray, (problem.coordinates, problem.labels, problem.start.M))
    blocks, start = InMemoryBlocks(X, labels, block_size), problem.start._replace(M=M)
    run = solve(blocks, start, code_scale=problem.code_scale, max_iter=12, **WEIGHTS)
    expected = problem.solve(max_iter=12, **WEIGHTS)
    assert type(run.state.M) is type(M)
    np.testing.assert_allclose(np.asarray(run.state.M), expected.state.M, atol=1e-11)
    for name, values in expected.history.items():
        np.testing.assert_allclose(run.history[name], values, rtol=1e-9, atol=1e-12)


def test_float32_stays_float32():
    problem = make_problem([5] * 6, 80, 60)
    single = problem._replace(
        coordinates=problem.coordinates.astype(np.float32),
        start=problem.start._replace(M=problem.start.M.astype(np.float32)),
    )
    blocks = single.blocks()
    run = solve(blocks, single.start, code_scale=single.code_scale, max_iter=10, **WEIGHTS)
    assert run.state.M.dtype == blocks.codes().dtype == np.float32
    np.testing.assert_allclose(run.state.M, problem.solve(max_iter=10, **WEIGHTS).state.M, atol=1e-3)


def test_rows_stay_on_their_spheres():
    problem = make_problem([5] * 6, 80, 60)
    atoms = problem.solve(max_iter=5, **WEIGHTS).state
    for part in (atoms.B, atoms.W, atoms.A):
        np.testing.assert_allclose(np.linalg.norm(part, axis=1), 1.0, rtol=1e-12)


def test_dual_step_shrinks_to_its_minimum():
    schedule = DualStep(0.5, 0.9, 0.1)
    assert [schedule.at(i) for i in (0, 1)] == [0.5, 0.45]
    assert schedule.at(100) == 0.1


def test_overflow_is_reported_and_not_returned_as_a_model():
    problem = make_problem([5] * 3, 6, 9)
    problem = problem._replace(coordinates=problem.coordinates * 1e200)
    with np.errstate(all="ignore"):
        run = problem.solve(max_iter=5, **WEIGHTS)
    assert run.status[()] is Status.NON_FINITE
    assert run.n_iter == 1


def test_reduced_transform_acts_as_the_full_one(rng):
    atom_classes = np.repeat(np.arange(3), [4, 1, 3])
    A = rng.random((8, 8))
    reduced = reduce_code_transform(A, atom_classes)
    assert reduced.shape == (8, 3)
    full = expand_code_transform(reduced, atom_classes)
    # The ownership rows are orthogonal, so expanding keeps norms and a second reduction changes nothing.
    np.testing.assert_allclose(np.linalg.norm(full, axis=1), np.linalg.norm(reduced, axis=1))
    np.testing.assert_allclose(reduce_code_transform(full, atom_classes), reduced)
    # Q = H U: what A does on the span of the classes' targets is all that meets Q.
    ownership = (atom_classes == np.arange(3)[:, None]).astype(float)
    np.testing.assert_allclose(full @ ownership.T, A @ ownership.T)
