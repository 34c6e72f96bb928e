import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from ledl.targets import (
    atom_counts,
    default_n_atoms,
    expand_code_transform,
    reduce_code_transform,
)


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


def test_reduced_transform_acts_as_the_full_one(rng):
    atom_classes = np.repeat(np.arange(3), [4, 1, 3])
    A = rng.random((8, 8))
    reduced = reduce_code_transform(A, atom_classes)
    assert reduced.shape == (8, 3)
    full = expand_code_transform(reduced, atom_classes)
    # The ownership rows are orthogonal, so expanding keeps norms and a second reduction changes nothing.
    assert_allclose(np.linalg.norm(full, axis=1), np.linalg.norm(reduced, axis=1))
    assert_allclose(reduce_code_transform(full, atom_classes), reduced)
    # Q = H U: what A does on the span of the classes' targets is all that meets Q.
    ownership = (atom_classes == np.arange(3)[:, None]).astype(float)
    assert_allclose(full @ ownership.T, A @ ownership.T)
