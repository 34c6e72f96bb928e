"""A stream's batches against a plain transcription, and what its sums must be."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from helpers import reference
from helpers.problems import make_problem, unit
from ledl.samples import InMemoryBlocks
from ledl.solvers import stream as solver
from ledl.solvers.ledl import Atoms, reduce_code_transform
from ledl.solvers.start import in_turns
from ledl.solvers.stream import learn, new_stream, start_atoms

WEIGHTS = {"lam": 0.7, "omega": 0.2, "epsilon": 0.02, "rho": 1.3}
BATCHES = [slice(0, 9), slice(9, 10), slice(10, 33), slice(33, 60)]


@pytest.fixture(params=[7, 40], ids="{} atoms".format)  # fewer than columns, and more: coded in either space
def problem(request):
    return make_problem([20, 25, 15], 11, request.param, shuffled=True)


class Oracle:
    """The same stream with the paper's columns, the full K x K transform, and a weight for each sample seen."""

    def __init__(self, problem):
        self.problem = problem
        self.B, self.W = problem.start.B.T.copy(), problem.start.W.T.copy()
        A = problem.start.A / np.sqrt(np.bincount(problem.atom_classes))
        self.A = A[:, problem.atom_classes].T.copy()
        self.codes, self.seen, self.ends = [], [], []
        self.order = in_turns(problem.atom_classes).tolist()

    def learn(self, batch, lam, omega, epsilon, rho, forgetting=1.0, n_steps=10):
        p = self.problem
        X, H, Q = self.targets(np.arange(len(p.labels))[batch])
        Z = np.zeros((self.B.shape[1], X.shape[1]))
        L = np.zeros_like(Z)
        for step in range(n_steps):
            C, Z, L = reference.code_update(
                X, H, Q, self.B, self.W, self.A, Z, L,
                lam=lam, omega=omega, epsilon=epsilon, rho=rho, theta=0.5 * 0.99**step,
            )  # fmt: skip
        self.codes.append(C)
        self.seen += list(np.arange(len(p.labels))[batch])
        self.ends += [len(self.seen)] * X.shape[1]
        # A sample that weighs w enters the sums as its codes and targets times sqrt(w).
        roots = (np.array(self.ends) / len(self.seen)) ** (forgetting / 2)
        self.C = np.concatenate(self.codes, axis=1) * roots
        self.T = [target * roots for target in self.targets(self.seen)]
        reference.atom_update(*self.T, self.B, self.W, self.A, self.C, self.order)

    def targets(self, samples):
        p = self.problem
        H = reference.one_hot_columns(p.labels[samples], self.W.shape[0])
        return p.X[samples].T, H, reference.label_consistency_targets(p.labels[samples], p.atom_classes)

    def atoms(self):
        A = reduce_code_transform(self.A.T, self.problem.atom_classes)
        return np.concatenate([self.B.T, self.W.T, A], axis=1)


def blocks_of(problem, batch, block_size=None):
    return InMemoryBlocks(problem.X[batch], problem.labels[batch], block_size)


def run(problem, batches, atoms=None, block_size=None, n_before=0, weights=WEIGHTS):
    atoms = problem.start if atoms is None else atoms
    stream = new_stream(*atoms.M.shape, atoms.n_classes, 0, n_before)
    for batch in batches:
        blocks = blocks_of(problem, batch, block_size)
        stream, atoms, _ = learn(stream, atoms, blocks, problem.atom_classes, **weights)
    return stream, atoms


@pytest.mark.parametrize("forgetting", [1.0, 2.5])
def test_every_batch_is_the_transcribed_one(problem, forgetting, monkeypatch):
    monkeypatch.setattr(solver, "FORGETTING", forgetting)
    oracle, atoms = Oracle(problem), problem.start
    stream = new_stream(*atoms.M.shape, 3, 0)
    for batch in BATCHES:
        oracle.learn(batch, **WEIGHTS, forgetting=forgetting)
        stream, atoms, nonzeros = learn(
            stream, atoms, blocks_of(problem, batch), problem.atom_classes, **WEIGHTS
        )
        assert_allclose(atoms.M, oracle.atoms(), atol=1e-9)
        assert 0 < nonzeros <= len(problem.labels[batch]) * len(atoms.M)
    assert_allclose(stream.G, oracle.C @ oracle.C.T, atol=1e-9)
    X, H, Q = oracle.T
    assert_allclose(stream.P[:, :11], oracle.C @ X.T, atol=1e-9)
    assert_allclose(stream.P[:, 11:14], oracle.C @ H.T, atol=1e-9)
    assert_allclose(stream.P[:, 14:], reduce_code_transform(oracle.C @ Q.T, problem.atom_classes), atol=1e-9)
    assert stream.square == pytest.approx(np.sum(X**2))
    assert_allclose(stream.class_weights, np.sum(H**2, axis=1))
    assert (stream.n_batches, stream.n_samples) == (4, 60)


def test_without_forgetting_sums_are_plain(problem, monkeypatch):
    monkeypatch.setattr(solver, "FORGETTING", 0.0)
    oracle = Oracle(problem)
    for batch in BATCHES:
        oracle.learn(batch, **WEIGHTS, forgetting=0.0)
    stream, atoms = run(problem, BATCHES)
    C = np.concatenate(oracle.codes, axis=1)
    assert_allclose(stream.G, C @ C.T, atol=1e-9)
    assert_allclose(stream.P[:, :11], C @ problem.X, atol=1e-9)
    assert_allclose(stream.square, np.sum(problem.X**2))
    assert_array_equal(stream.class_weights, np.bincount(problem.labels))
    assert_allclose(atoms.M, oracle.atoms(), atol=1e-9)


def test_weights_that_change_hold_from_then_on(problem):
    oracle, atoms, stream = Oracle(problem), problem.start, new_stream(*problem.start.M.shape, 3, 0)
    for i, batch in enumerate(BATCHES):
        weights = {**WEIGHTS, "lam": 0.1 + i, "omega": 0.5 / (1 + i), "epsilon": 0.01 * (1 + i)}
        oracle.learn(batch, **weights)
        blocks = blocks_of(problem, batch)
        stream, atoms, _ = learn(stream, atoms, blocks, problem.atom_classes, **weights)
    assert_allclose(atoms.M, oracle.atoms(), atol=1e-9)


def test_blocks_change_nothing(problem):
    expected_stream, expected = run(problem, BATCHES)
    stream, atoms = run(problem, BATCHES, block_size=4)
    assert_allclose(atoms.M, expected.M, atol=1e-10)
    assert_allclose(stream.G, expected_stream.G, atol=1e-10)


@pytest.mark.parametrize("n_atoms", [9, 45])
def test_atoms_that_are_zero_are_as_if_they_were_not_there(n_atoms):
    problem = make_problem([20, 25, 15], 11, n_atoms, shuffled=True)
    gone = np.arange(n_atoms) % 3 == 1
    M = problem.start.M.copy()
    M[gone] = 0
    stream, atoms = run(problem, BATCHES, Atoms(M, 3))
    for array in (atoms.M[gone], stream.G[gone], stream.G[:, gone], stream.P[gone]):
        assert not array.any()
    # Without them the problem is the same, but for m_j in the target of A, which then has to be scaled to it.
    fewer = Oracle(problem)
    fewer.B, fewer.W, fewer.A = fewer.B[:, ~gone], fewer.W[:, ~gone], fewer.A[:, ~gone]
    kept = np.flatnonzero(~gone).tolist()
    fewer.order = [kept.index(k) for k in fewer.order if k in kept]
    for batch in BATCHES:
        fewer.learn(batch, **WEIGHTS)
    assert_allclose(atoms.M[~gone], fewer.atoms(), atol=1e-9)


def test_atoms_start_one_at_each_sample_of_their_class(problem):
    K, q = problem.start.M.shape
    candidates = [np.array([0, 3]), np.array([], dtype=int), np.array([5])]
    labels = np.array([0, 1, 1, 0, 1, 2])
    X = unit(np.random.default_rng(3).random((6, 11)))
    blocks = InMemoryBlocks(X, labels)
    atoms, stream = Atoms(np.zeros((K, q)), 3), new_stream(K, q, 3, 5)
    first = start_atoms(stream, atoms, blocks, candidates, problem.atom_classes)
    started = first.M.any(axis=1)
    expected = np.minimum(np.bincount(problem.atom_classes), [2, 0, 1])
    assert_array_equal(np.bincount(problem.atom_classes[started], minlength=3), expected)
    assert not atoms.M.any()
    for part in (first.B, first.W, first.A):
        assert_allclose(np.linalg.norm(part[started], axis=1), 1)
    assert_array_equal(first.W[started].argmax(axis=1), problem.atom_classes[started])
    # Each is near a sample of its own, of its class.
    nearest = (first.B[started] @ X.T).argmax(axis=1)
    assert len(set(nearest)) == len(nearest)
    assert_array_equal(labels[nearest], problem.atom_classes[started])
    # Atoms that have started stay; others start next.
    second = start_atoms(stream._replace(n_batches=1), first, blocks, candidates, problem.atom_classes)
    assert_array_equal(second.M[started], first.M[started])
    more = np.minimum(np.bincount(problem.atom_classes), [4, 0, 2])
    assert_array_equal(np.bincount(problem.atom_classes[second.M.any(axis=1)], minlength=3), more)
    again = start_atoms(stream, atoms, blocks, candidates, problem.atom_classes)
    assert_array_equal(again.M, first.M)
    for other in (stream._replace(n_batches=1), stream._replace(seed=6)):
        drawn = start_atoms(other, atoms, blocks, candidates, problem.atom_classes)
        assert np.abs(drawn.M - first.M).max() > 1e-3


def test_samples_before_the_stream_hold_the_atoms(problem):
    """The more of them, the less a batch moves the atoms: with a million of them hardly at all."""
    moves = []
    for n_before in (10, 1000, 10**6):
        _, atoms = run(problem, BATCHES[:1], n_before=n_before)
        moves.append(np.abs(atoms.M - problem.start.M).max())
    assert moves[0] > 5 * moves[1] > 100 * moves[2]
    assert moves[2] < 1e-3


def test_sums_of_samples_before_fade_like_others(problem):
    stream, _ = run(problem, BATCHES[:1], n_before=9)
    trace = np.trace(run(problem, BATCHES[:1])[0].G)
    # Nine before, of the codes' size of the nine of the batch, fade by 9 / 18.
    assert np.trace(stream.G) == pytest.approx(1.5 * trace)
    assert stream.n_samples == 18


@pytest.mark.torch
def test_tensors_give_the_same(problem):
    import torch

    expected_stream, expected = run(problem, BATCHES)
    atoms = problem.start._replace(M=torch.from_numpy(problem.start.M))
    stream = new_stream(*atoms.M.shape, 3, 0)
    for batch in BATCHES:
        X, labels = (torch.from_numpy(values[batch]) for values in (problem.X, problem.labels))
        stream, atoms, _ = learn(stream, atoms, InMemoryBlocks(X, labels), problem.atom_classes, **WEIGHTS)
    assert type(stream.G) is np.ndarray
    assert_allclose(atoms.M.numpy(), expected.M, atol=1e-9)
    assert_allclose(stream.P, expected_stream.P, atol=1e-9)
