import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.linear_model import orthogonal_mp

from helpers import reference
from helpers.problems import unit
from ledl.solvers import ksvd, lcksvd
from ledl.solvers.ledl import expand_code_transform
from ledl.solvers.start import atom_counts

# Samples that are atoms need one non-zero.
pytestmark = pytest.mark.filterwarnings("ignore:Orthogonal matching pursuit ended prematurely")


def omp(D, y, n_nonzero):
    return orthogonal_mp(D, y, n_nonzero_coefs=n_nonzero)


def make(class_counts, n_atoms, rng):
    labels = rng.permutation(np.repeat(np.arange(len(class_counts)), class_counts))
    centres = rng.standard_normal((len(class_counts), 15))
    X = unit(centres[labels] + rng.standard_normal((len(labels), 15)))
    counts = atom_counts(class_counts, n_atoms)
    start = lcksvd.class_start(X, labels, counts, 3, max_iter=3, rng=rng)
    return X, labels, np.repeat(np.arange(len(counts)), counts), start


@pytest.mark.parametrize("class_counts", [[10, 10, 10], [20, 7, 3]], ids=["balanced", "unbalanced"])
@pytest.mark.parametrize(("lam", "omega"), [(1.0, 0.5), (0.1, 4.0)])
def test_it_is_the_papers_algorithm_2_with_the_full_transform(class_counts, lam, omega, rng):
    """The proof that c columns do for labels and label consistency: the oracle has K + c of them."""
    X, labels, atom_classes, start = make(class_counts, 18, rng)
    counts = np.bincount(atom_classes)
    scale = np.sqrt(lam + omega * counts)
    run = lcksvd.solve(X, labels, start, scale, 3, max_iter=10, tol=0)
    assert not run.history["replaced"].any()
    B, W, A, S = reference.lcksvd(
        X.T, labels, atom_classes, start.T, lam=lam, omega=omega, n_nonzero=3, n_iter=10, omp=omp
    )
    learnt = run.state
    assert_allclose(learnt.B, B.T, atol=1e-8)
    assert_allclose(learnt.W, W.T, atol=1e-8)
    assert_allclose(learnt.S, S.T, atol=1e-8)
    assert_allclose(expand_code_transform(learnt.W * np.sqrt(counts), atom_classes), A.T, atol=1e-8)


def test_with_equal_classes_it_is_dksvd_at_another_weight(rng):
    X, labels, _, start = make([10, 10, 10], 18, rng)
    lam, omega = 0.3, 0.7
    lc = lcksvd.solve(X, labels, start, np.sqrt(lam + omega * np.full(3, 6)), 3, max_iter=10, tol=0)
    # D-KSVD, transcribed, is LC-KSVD with a weight of next to nothing for label consistency.
    B, W, _, _ = reference.lcksvd(
        X.T, labels, np.repeat(np.arange(3), 6), start.T,
        lam=lam + omega * 6, omega=1e-300, n_nonzero=3, n_iter=10, omp=omp,
    )  # fmt: skip
    assert_allclose(lc.state.B, B.T, atol=1e-8)
    assert_allclose(lc.state.W, W.T, atol=1e-8)


def test_the_ridge_start_is_that_of_scikit_learn(rng):
    from sklearn.linear_model import Ridge

    S, labels = rng.standard_normal((20, 7)), rng.integers(0, 3, 20)
    ridge = Ridge(alpha=1, fit_intercept=False).fit(S, np.eye(3)[labels])
    assert_allclose(lcksvd.ridge_classifier(S, labels, 3), ridge.coef_.T, atol=1e-10)


def test_an_atom_of_labels_alone_is_left_out(rng):
    M = unit(rng.standard_normal((4, 6)))
    M[2, :4] = 0
    learnt = lcksvd.separate(lcksvd.ksvd.State(M, np.ones((3, 4)), np.zeros((3, 6))), np.ones(2))
    assert not learnt.B[2].any()
    assert not learnt.W[2].any()
    assert np.isfinite(learnt.W).all()


def test_class_start_is_made_of_each_classs_own_samples(rng):
    X, labels, atom_classes, start = make([8, 5, 2], 15, rng)
    for j in range(3):
        own = X[labels == j]
        back = start[atom_classes == j] @ np.linalg.pinv(own) @ own
        assert_allclose(back, start[atom_classes == j], atol=1e-10)


def test_all_codes_are_computed_on_the_device(rng, device, monkeypatch):
    import torch

    places, find_codes = [], ksvd.omp

    def watched(G, rhs, *rest):
        places.append(rhs.device.type if isinstance(rhs, torch.Tensor) else None)
        return find_codes(G, rhs, *rest)

    monkeypatch.setattr(ksvd, "omp", watched)
    X, labels = unit(rng.standard_normal((20, 8))), np.arange(20) % 2
    start = lcksvd.class_start(X, labels, [3, 3], 2, max_iter=4, rng=rng, device=device)
    lcksvd.solve(X, labels, start, np.ones(2), 2, max_iter=5, tol=0, device=device)
    assert places == [device] * (2 * 4 + 1 + 5)


def test_lcksvd_with_codes_from_a_device_is_that_of_numpy(rng, device):
    labels = np.arange(60) % 3
    X = unit(rng.standard_normal((3, 15))[labels] + rng.standard_normal((60, 15)))
    for array in (X, labels):
        array.setflags(write=False)
    starts = [
        lcksvd.class_start(X, labels, [6, 6, 6], 3, max_iter=4, rng=np.random.default_rng(1), device=name)
        for name in (None, device)
    ]
    assert_allclose(*starts, atol=1e-10)
    starts[0].setflags(write=False)
    scale = np.array([1.0, 2.0, 3.0])
    here, there = (
        lcksvd.solve(X, labels, starts[0], scale, 3, max_iter=8, tol=0, device=name) for name in (None, device)
    )
    for a, b in zip(there.state, here.state, strict=True):
        assert isinstance(a, np.ndarray)
        assert_allclose(a, b, atol=1e-9)
    assert_allclose(there.history["error"], here.history["error"], rtol=1e-10)
