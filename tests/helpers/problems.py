"""Small problems for several test files, with the results of the oracle."""

from typing import NamedTuple

import numpy as np

from helpers import reference
from ledl.samples import InMemoryBlocks
from ledl.solvers.ledl import Atoms, expand_code_transform, reduce_code_transform, solve
from ledl.solvers.start import atom_counts, join
from ledl.subspace import find_subspace


def unit(a):
    return a / np.linalg.norm(a, axis=-1, keepdims=True)


class Problem(NamedTuple):
    X: np.ndarray
    labels: np.ndarray
    atom_classes: np.ndarray
    subspace: object
    coordinates: np.ndarray
    start: Atoms

    @property
    def code_scale(self):
        return np.sqrt(np.bincount(self.atom_classes))

    def blocks(self, block_size=None):
        return InMemoryBlocks(self.coordinates, self.labels, block_size)

    def solve(self, block_size=None, **options):
        return solve(self.blocks(block_size), self.start, code_scale=self.code_scale, **options)

    def oracle_iterations(self, start=None, **options):
        """Return (B, W, A, C, Z, L) after every iteration of the paper's algorithm, with samples as columns."""
        atoms = start or self.start
        B, W = self.subspace.expand(atoms.B), atoms.W
        A = expand_code_transform(atoms.A, self.atom_classes)
        return reference.ledl(self.X.T, self.labels, self.atom_classes, B.T, W.T, A.T, **options)

    def oracle(self, start=None, **options):
        """Return the last of them, as rows."""
        *_, last = self.oracle_iterations(start, **options)
        return [array.T for array in last]


def make_problem(class_counts, n_features, n_atoms, *, shuffled=False, seed=0):
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(len(class_counts)), class_counts)
    if shuffled:
        labels = rng.permutation(labels)
    centres = rng.random((len(class_counts), n_features))
    X = unit(centres[labels] + 0.5 * rng.random((len(labels), n_features)))
    c = len(class_counts)
    atom_classes = np.repeat(np.arange(c), atom_counts(class_counts, n_atoms))
    subspace, coordinates = find_subspace(X.copy())
    B = subspace.reduce(unit(rng.random((n_atoms, n_features))))
    A = reduce_code_transform(unit(rng.random((n_atoms, n_atoms))), atom_classes)
    start = join(B, rng.random((n_atoms, c)), A)
    return Problem(X, labels, atom_classes, subspace, coordinates, start)


class Recorder:
    """A scikit-learn callback that records tasks and a measure, and asks to stop after some iterations."""

    def __init__(self, measure, stop_after=None):
        self.ended, self.measured, self.measure, self.stop_after = [], [], measure, stop_after

    def setup(self, estimator, context):
        pass

    def teardown(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context):
        pass

    def on_fit_task_end(self, estimator, context, *, X, y, fitted_estimator):
        self.final = fitted_estimator
        if context.task_name == "iteration":
            self.ended.append(context.task_id)
            self.measured.append(self.measure(fitted_estimator, X, y))
            return len(self.ended) == self.stop_after
        return False
