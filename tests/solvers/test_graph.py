"""Graphs and labels that spread over them: against scikit-learn, dense matrices and a plain transcription."""

import tracemalloc

import numpy as np
import pytest
import scipy.linalg
from scipy.special import softmax
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.neighbors import NearestNeighbors

from ledl.arrays import to_host
from ledl.solvers import graph as module
from ledl.solvers.graph import (
    Gaussians,
    Graph,
    log_shares,
    masses,
    nearest,
    one_hot,
    principal_axes,
    sharpen,
    spread,
    spread_in_learnt_space,
)


@pytest.fixture(scope="module")
def digits():
    """Return 300 digits in 20 principal directions, their labels, and 30 labelled rows."""
    X, y = load_digits(return_X_y=True)
    X, y = X[:300], y[:300]
    Z = PCA(20).fit_transform(X / np.linalg.norm(X, axis=1, keepdims=True))
    labelled = np.concatenate([np.flatnonzero(y == j)[:3] for j in range(10)])
    return Z, y, labelled


def dense(graph):
    """Return S of a graph as its definition says, entry by entry."""
    n = len(graph.neighbours)
    W = np.zeros((n, n))
    for i in range(n):
        for j, weight in zip(graph.neighbours[i], graph.weights[i], strict=True):
            W[i, j] += weight
            W[j, i] += weight
    sums = W.sum(axis=1)
    return W / np.sqrt(np.outer(sums, sums))


@pytest.mark.parametrize("n_axes", [5, 100])
@pytest.mark.parametrize("shape", [(60, 20), (20, 60)])
def test_principal_axes_are_those_of_scikit_learn(shape, n_axes):
    Z = np.random.default_rng(0).standard_normal(shape) * np.linspace(1, 3, shape[1])
    Z -= Z.mean(axis=0)
    found = principal_axes(Z.copy(), n_axes)
    wanted = PCA().fit(Z).components_[: found.shape[1]]
    assert found.shape[1] == min(n_axes, 20 if shape[1] == 20 else 19)  # 20 centred samples span 19 directions
    np.testing.assert_allclose(np.abs(np.sum(found.T * wanted, axis=1)), 1, atol=1e-9)


def test_axes_of_many_samples_with_many_features_need_no_matrix_of_all_pairs():
    n, r = module.MANY + 50, 12
    rng = np.random.default_rng(0)
    rows, axes = (np.linalg.qr(rng.standard_normal((n, r)))[0] for _ in range(2))
    noise = 1e-3 / n**0.5 * rng.standard_normal((n, n), dtype=np.float32)
    Z = ((rows * np.linspace(9, 3, r)) @ axes.T).astype(np.float32) + noise  # these axes, and noise in all
    tracemalloc.start()
    try:
        found = principal_axes(Z, r - 2)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    np.testing.assert_allclose(np.abs(axes.T @ found), np.eye(r)[:, : r - 2], atol=1e-3)
    assert peak < Z.nbytes / 4


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("block", [1, 700, 2**21])
def test_neighbours_are_those_of_scikit_learn(digits, monkeypatch, compiled, block):
    Z, _, _ = digits
    monkeypatch.setitem(module.BLOCK, "host", block)
    if not compiled:
        monkeypatch.setattr(module, "find", lambda name, array: None)
    oracle = NearestNeighbors(n_neighbors=7, algorithm="brute").fit(Z)
    distances, wanted = oracle.kneighbors()  # without the sample itself
    index, squared = nearest(Z, Z, 7, same=True, threads=2)
    np.testing.assert_array_equal(index, wanted)
    np.testing.assert_allclose(np.sqrt(squared), distances, atol=1e-7)
    queries = Z[:50] + 0.01
    distances, wanted = oracle.kneighbors(queries)
    index, squared = nearest(queries, Z, 7)
    np.testing.assert_array_equal(index, wanted)
    np.testing.assert_allclose(np.sqrt(squared), distances, atol=1e-7)


def test_weights_are_self_tuning_and_count_both_ways(digits):
    graph = Graph.of(digits[0], 6)
    i, j = 3, graph.neighbours[3, 2]
    distance = np.linalg.norm(digits[0][i] - digits[0][j])
    assert graph.weights[i, 2] == pytest.approx(np.exp(-(distance**2) / (graph.scales[i] * graph.scales[j])))
    S = graph.matrix().toarray()
    np.testing.assert_allclose(S, dense(graph), atol=1e-12)
    assert np.abs(np.linalg.eigvalsh(S)).max() == pytest.approx(1)


def test_equal_samples_have_the_weight_one():
    Z = np.repeat(np.arange(4.0)[:, None], 3, axis=0)  # four points, thrice each
    graph = Graph.of(Z, 2)
    np.testing.assert_array_equal(graph.weights, 1)
    assert np.isfinite(graph.matrix().toarray()).all()


def test_samples_far_from_tight_clusters_do_no_harm():
    """Their weights are 0 in float32, and so is the sum of these, by which the graph divides."""
    rng = np.random.default_rng(0)
    Z = np.concatenate([rng.normal(0, 1e-3, (40, 2)), [[1, 1], [-1, 2]]]).astype(np.float32)
    graph = Graph.of(Z, 5)
    assert not graph.weights[40:].any()
    F = spread(graph.matrix(), one_hot(Z, np.array([0, 1, 40]), np.eye(3, dtype=np.float32)), 0.99)
    assert np.isfinite(F).all()
    assert (F[:40, :2].sum(axis=1) > 0).all()
    assert F[40, 2] > 0
    assert not F[41].any()
    assert not F[:40, 2].any()


def test_shares_of_small_amounts_are_those_of_large_ones():
    F = np.array([[0.3, 0.1, 0], [3e-20, 1e-20, 0], [0, 0, 0]], dtype=np.float32)
    shares = np.exp(log_shares(F))
    np.testing.assert_allclose(shares, [[0.75, 0.25, 0], [0.75, 0.25, 0], [1 / 3] * 3], rtol=1e-5, atol=1e-10)


@pytest.mark.parametrize("a", [0.5, 0.99])
def test_spreading_solves_its_equations(digits, a):
    Z, y, labelled = digits
    graph, H = Graph.of(Z, 5), one_hot(Z, labelled, np.eye(10)[y[labelled]])
    wanted = (1 - a) * np.linalg.solve(np.eye(len(Z)) - a * dense(graph), H)
    np.testing.assert_allclose(spread(graph.matrix(), H, a, tol=1e-9), wanted, atol=1e-8)
    rough = spread(graph.matrix(), H, a)
    assert (rough.argmax(axis=1) == wanted.argmax(axis=1)).mean() > 0.99


def test_an_outlier_near_copies_has_no_weights():
    """Its neighbours have no width, so its weights are 0, and nothing divides by their sum."""
    Z = np.zeros((31, 2), dtype=np.float32)
    Z[15:30], Z[30] = 1, 3
    graph = Graph.of(Z, 5)
    S = graph.matrix().toarray()
    assert graph.weights[30].max() == 0
    assert np.isfinite(S).all()
    assert S[:30].any(axis=1).all()
    assert not S[30].any()


@pytest.mark.parametrize("width", [0.0, 1e-4, 1e-2])
def test_a_new_sample_far_from_crowds_gets_the_labels_of_the_nearest_crowd(width):
    """In float32, its weights are 0 unless they are relative to the largest."""
    rng = np.random.default_rng(0)
    centres = np.repeat([[0.0, 0.0], [40.0, 0.0]], 20, axis=0)
    Z = (centres + width * rng.standard_normal(centres.shape)).astype(np.float32)
    graph = Graph.of(Z, 5)
    index, weights = graph.links(np.array([[15, 1], [25, 1]], dtype=np.float32), Z)
    assert (index // 20 == [[0], [1]]).all()
    np.testing.assert_allclose((weights * np.sqrt(graph.sums[index])).max(axis=1), 1, rtol=1e-6)


def test_small_amounts_have_shares():
    F = np.array([[3e-30, 1e-30], [3.0, 1.0]], dtype=np.float32)
    np.testing.assert_allclose(np.exp(log_shares(F)), [[0.75, 0.25]] * 2, rtol=1e-5)


def test_nothing_reaches_an_island_without_labels():
    rng = np.random.default_rng(0)
    Z = np.concatenate([rng.standard_normal((30, 2)), 100 + rng.standard_normal((30, 2))])
    F = spread(Graph.of(Z, 4).matrix(), one_hot(Z, np.array([0, 1]), np.eye(2)), 0.99)
    assert (F[30:] == 0).all()
    assert (F[:30].sum(axis=1) > 0).all()
    np.testing.assert_allclose(np.exp(log_shares(F[30:])), 0.5)


@pytest.mark.parametrize("shrinkage", [0.1, 0.6])
def test_gaussians_with_sure_guesses_are_linear_discriminant_analysis(digits, shrinkage):
    Z, y, _ = digits
    Z = Z - Z.mean(axis=0)
    found = Gaussians.of(Z, Z.T @ Z / len(Z), np.eye(10)[y], shrinkage)
    oracle = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=shrinkage).fit(Z, y)
    np.testing.assert_allclose(softmax(found.guess(Z), axis=1), oracle.predict_proba(Z), atol=1e-8)


def test_guesses_enter_as_shares_of_samples(digits):
    """A guess of one half is a sample that counts for one half: every sample twice, with other labels."""
    Z, y, _ = digits
    Z, R = Z - Z.mean(axis=0), (np.eye(10)[y] + np.eye(10)[(y + 1) % 10]) / 2
    twice = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.3)
    twice.fit(np.concatenate([Z, Z]), np.concatenate([y, (y + 1) % 10]))
    found = Gaussians.of(Z, Z.T @ Z / len(Z), R, 0.3)
    np.testing.assert_allclose(softmax(found.guess(Z), axis=1), twice.predict_proba(Z), atol=1e-8)


def test_directions_solve_the_generalised_eigenvalue_problem(digits):
    Z, y, _ = digits
    Z = Z - Z.mean(axis=0)
    products, R = Z.T @ Z / len(Z), np.eye(10)[y]
    found = Gaussians.of(Z, products, R, 0.2)
    V = found.directions()
    means = np.stack([Z[y == j].mean(axis=0) for j in range(10)])
    between = sum((y == j).mean() * np.outer(m, m) for j, m in enumerate(means))
    within = products - between
    within = 0.8 * within + 0.2 * np.trace(within) / 20 * np.eye(20)
    values = scipy.linalg.eigh(between, within, eigvals_only=True)[::-1][:9]
    np.testing.assert_allclose(V.T @ within @ V, np.eye(9), atol=1e-8)
    np.testing.assert_allclose(V.T @ between @ V, np.diag(values), atol=1e-8)


def test_sharp_guesses_have_the_mean_confidence_and_keep_labels(digits):
    _, y, labelled = digits
    scores = np.random.default_rng(0).standard_normal((300, 10))
    found = sharpen(scores, labelled[:0], np.empty((0, 10)))
    assert found.max(axis=1).mean() == pytest.approx(0.9, abs=1e-3)
    np.testing.assert_array_equal(found.argmax(axis=1), scores.argmax(axis=1))
    np.testing.assert_allclose(found, sharpen(7 * scores, labelled[:0], np.empty((0, 10))), atol=1e-3)
    found = sharpen(scores, labelled, np.eye(10)[y[labelled]])
    np.testing.assert_array_equal(found[labelled], np.eye(10)[y[labelled]])


def plain_learnt_space(Z, scores, y, labelled, amounts, k, a, shrinkage, n_rounds):
    """Transcribe the loop: dense matrices, scikit-learn's neighbours, samples copied for each class."""
    n, c = scores.shape

    def sure(logs):
        factors = np.exp(np.linspace(-10, 10, 200_001))
        logs = logs - logs.max(axis=1, keepdims=True)
        low, high = 0, len(factors) - 1
        while high - low > 1:
            middle = (low + high) // 2
            mean = (1 / np.exp(factors[middle] * logs).sum(axis=1)).mean()
            low, high = (middle, high) if mean < 0.9 else (low, middle)
        R = softmax(factors[low] * logs, axis=1)
        R[labelled] = np.eye(c)[y[labelled]]
        return R

    def moments(R):
        shares = R.mean(axis=0)
        means = np.stack([np.average(Z, axis=0, weights=R[:, j]) for j in range(c)])
        within = np.zeros((Z.shape[1],) * 2)
        for j in range(c):
            within += (Z - means[j]).T @ ((Z - means[j]) * R[:, j : j + 1]) / n
        size = np.trace(within) / len(within)
        return shares, means, (1 - shrinkage) * within + shrinkage * size * np.eye(len(within))

    R = sure(scores)
    for step in range(n_rounds + 1):
        shares, means, covariance = moments(R)
        between = (means.T * shares) @ means
        _, vectors = scipy.linalg.eigh(between, covariance)
        T = Z @ vectors[:, ::-1][:, : c - 1]
        distances, index = NearestNeighbors(n_neighbors=k, algorithm="brute").fit(T).kneighbors()
        W = np.zeros((n, n))
        for i in range(n):
            for d, j in zip(distances[i], index[i], strict=True):
                W[i, j] = np.exp(-(d**2) / (distances[i, -1] * distances[j, -1]))
        W = W + W.T
        S = W / np.sqrt(np.outer(W.sum(axis=0), W.sum(axis=0)))
        H = np.zeros((n, c))
        H[labelled] = np.eye(c)[y[labelled]] * amounts[:, None]
        F = (1 - a) * np.linalg.solve(np.eye(n) - a * S, H)
        if step < n_rounds:
            R = sure(np.log((F + 1e-12) / (F + 1e-12).sum(axis=1, keepdims=True)))  # some classes reach nothing
            shares, means, covariance = moments(R)
            weights = np.linalg.solve(covariance, means.T)
            R = sure(Z @ weights - np.sum(means.T * weights, axis=0) / 2 + np.log(shares))
    return F


@pytest.mark.parametrize(("n_rounds", "largest"), [(0, 1), (0, 3), (2, 1)])
def test_the_loop_is_its_plain_transcription(digits, n_rounds, largest):
    Z, y, labelled = digits
    Z = Z - Z.mean(axis=0)
    labels = np.eye(10)[y[labelled]]
    scores = -np.linalg.norm(
        Z[:, None] - np.stack([Z[labelled][y[labelled] == j].mean(0) for j in range(10)]), axis=2
    )
    settings = {"k": 8, "a": 0.9, "shrinkage": 0.1, "n_rounds": n_rounds}
    amounts = np.linspace(1, largest, len(labelled))
    found = spread_in_learnt_space(Z, Z.T @ Z / len(Z), scores, labelled, labels, amounts, **settings).F
    wanted = plain_learnt_space(Z, scores, y, labelled, amounts, **settings)
    np.testing.assert_allclose(found, wanted, atol=2e-3 * wanted.max())
    assert (found.argmax(axis=1) == wanted.argmax(axis=1)).mean() > 0.99
    assert (found.argmax(axis=1) == y).mean() > (scores.argmax(axis=1) == y).mean()


@pytest.mark.parametrize(
    ("balance", "wanted"), [(0, [1, 1, 1]), (0.5, [1, 1 / 2, 1 / 4]), (1, [1, 1 / 4, 1 / 16])]
)
def test_masses_have_the_mean_1(balance, wanted):
    labels = np.repeat([0, 1, 2], [1, 4, 16])
    found = masses(labels, balance)
    np.testing.assert_allclose(found / found[0], wanted)
    assert np.isclose(found[labels].mean(), 1)
    np.testing.assert_allclose(masses(np.repeat([0, 1], 3), balance), 1)


@pytest.mark.torch
def test_tensors_give_the_same(digits):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    Z, y, labelled = digits
    Z = Z - Z.mean(axis=0)
    labels, scores = np.eye(10)[y[labelled]], np.random.default_rng(0).standard_normal((300, 10))
    scores[np.arange(300), y] += 1
    settings = {"k": 8, "a": 0.9, "shrinkage": 0.1, "n_rounds": 2}
    arrays = Z, Z.T @ Z / len(Z), scores, labelled, labels, np.ones(len(labelled))
    wanted = spread_in_learnt_space(*arrays, **settings).F
    found = spread_in_learnt_space(*map(torch.as_tensor, arrays), **settings).F
    np.testing.assert_allclose(to_host(found), wanted, atol=1e-5)
    np.testing.assert_allclose(
        np.abs(to_host(principal_axes(torch.as_tensor(Z), 5)).T @ principal_axes(Z, 5)), np.eye(5), atol=1e-8
    )
