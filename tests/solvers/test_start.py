import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from helpers.problems import make_problem, unit
from ledl.solvers import start as start_module
from ledl.solvers.ledl import expand_code_transform
from ledl.solvers.start import (
    array_start,
    atom_counts,
    class_start,
    default_n_atoms,
    in_turns,
    random_start,
)


@pytest.fixture(params=[(30, "n < d"), (4, "n > d")], ids=lambda p: p[1])
def problem(request):
    return make_problem([6, 3, 5], request.param[0], 25, shuffled=True)


@pytest.mark.parametrize("counts", [[1], [3, 3, 3], [4, 1, 2, 5], [1, 1, 9]])
def test_classes_take_turns(counts):
    atom_classes = np.repeat(np.arange(len(counts)), counts)
    order = in_turns(atom_classes)
    assert sorted(order) == list(range(len(atom_classes)))
    found = iter(atom_classes[order].tolist())
    for number in range(max(counts)):  # a round has one atom of each class that has so many
        own = [j for j, count in enumerate(counts) if count > number]
        assert sorted(next(found) for _ in own) == own


def test_no_class_is_always_first():
    rounds = in_turns(np.repeat(np.arange(20), 10)).reshape(10, 20) // 10
    assert len(set(rounds[:, 0])) > 5


def candidates(problem):
    return [np.flatnonzero(problem.labels == j) for j in range(3)]


def draw_class_start(problem, block_size=None):
    rng = np.random.default_rng(3)
    return class_start(problem.blocks(block_size), candidates(problem), problem.atom_classes, rng)


def test_class_start_is_near_samples_and_targets_of_its_class(problem):
    atoms = draw_class_start(problem)
    B = problem.subspace.expand(atoms.B)
    similarity = B @ problem.X.T
    for k, j in enumerate(problem.atom_classes):
        own = problem.labels == j
        assert similarity[k, own].max() > 0.97
    assert_array_equal(atoms.W.argmax(axis=1), problem.atom_classes)
    assert_array_equal(atoms.A.argmax(axis=1), problem.atom_classes)
    assert not np.isclose(atoms.W, atoms.A).any()  # drawn apart from each other


def test_class_start_takes_every_sample_and_no_two_atoms_alike(problem):
    atoms = draw_class_start(problem)
    nearest = (atoms.B @ problem.coordinates.T).argmax(axis=1)
    if problem.X.shape[1] > len(problem.X):
        assert len(set(nearest)) == len(problem.X)
    similarity = atoms.B @ atoms.B.T - 2 * np.eye(25)
    assert similarity.max() < 1 - 1e-9


@pytest.mark.parametrize("block_size", [1, 4])
def test_the_division_into_blocks_does_not_change_the_class_start(problem, block_size):
    assert_allclose(draw_class_start(problem, block_size).M, draw_class_start(problem).M, atol=1e-14)


def test_random_start_draws_what_the_paper_draws(problem, monkeypatch):
    monkeypatch.setattr(start_module, "CHUNK", 7)
    d = problem.X.shape[1]
    atoms = random_start(problem.subspace, d, problem.atom_classes, np.random.default_rng(3))
    rng = np.random.default_rng(3)
    B, W, A = (unit(rng.random((25, width))) for width in (d, 3, 25))
    assert_allclose(atoms.B, unit(problem.subspace.reduce(B)))
    assert_allclose(atoms.W, W)
    # A keeps what lies in the span of the classes' atoms.
    ownership = unit((problem.atom_classes == np.arange(3)[:, None]).astype(float))
    assert_allclose(
        expand_code_transform(atoms.A, problem.atom_classes), unit(A @ ownership.T @ ownership), atol=1e-14
    )


def test_most_of_a_random_atom_survives_in_the_subspace(rng):
    problem = make_problem([5] * 38, 1024, 380)
    B = unit(rng.random((380, 1024)))
    kept = np.linalg.norm(problem.subspace.reduce(B), axis=1)
    assert 0.85 < kept.mean() < 0.95


def test_given_arrays_are_projected_and_normalised(problem, rng):
    d = problem.X.shape[1]
    arrays = rng.random((25, d)), rng.random((25, 3)), rng.random((25, 25))
    atoms = array_start(arrays, problem.subspace, d, problem.atom_classes)
    assert_allclose(atoms.B, unit(problem.subspace.reduce(arrays[0])))
    for part in (atoms.B, atoms.W, atoms.A):
        assert_allclose(np.linalg.norm(part, axis=1), 1.0)


def test_given_arrays_must_be_finite(problem):
    d = problem.X.shape[1]
    W = np.ones((25, 3))
    W[2, 1] = np.nan
    with pytest.raises(ValueError, match="W has NaN or infinite entries"):
        array_start((np.ones((25, d)), W, np.ones((25, 25))), problem.subspace, d, problem.atom_classes)


def test_balanced_classes_get_twice_their_samples():
    assert_array_equal(atom_counts([5] * 38, 380), [10] * 38)


def test_floors_then_largest_remainders_with_ties_to_the_lower_class():
    assert_array_equal(atom_counts([1, 1, 1], 5), [2, 2, 1])
    # 10 * (3, 3, 4) / 10 has no remainders; 7 * (3, 3, 4) / 10 = 2.1, 2.1, 2.8
    assert_array_equal(atom_counts([3, 3, 4], 7), [2, 2, 3])


def test_a_class_left_without_an_atom_takes_one_from_the_richest():
    # Shares 9.0, 0.9 and 0.1: the floors and the largest remainder give 9, 1, 0.
    assert_array_equal(atom_counts([90, 9, 1], 10), [8, 1, 1])
    assert_array_equal(atom_counts([1000, 1, 1, 1], 4), [1, 1, 1, 1])


@pytest.mark.parametrize("seed", range(20))
def test_counts_are_a_sharing_out(seed):
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 100, size=rng.integers(2, 12))
    n_atoms = int(rng.integers(len(counts), 300))
    atoms = atom_counts(counts, n_atoms)
    assert atoms.sum() == n_atoms
    assert atoms.min() >= 1
    exact = counts * n_atoms / counts.sum()
    if exact.min() >= 1:
        assert np.abs(atoms - exact).max() < 1


def test_default_number_of_atoms():
    assert default_n_atoms(190, 38) == 380
    assert default_n_atoms(50_000, 10) == 2000
    assert default_n_atoms(50_000, 5000) == 5000
