r"""Labels that spread over a graph of near samples, in a space that is learnt from them.

Rows of Z are samples, rows of H labels: one-hot where a label is known, and 0 elsewhere. Rows of R are guesses
of all labels; each sums to 1.

- `nearest`: the k nearest samples of each sample, exactly, block by block. No (n, n) array is made.
- `Graph`: weights :math:`W_{ij} = e^{-|z_i - z_j|^2 / (s_i s_j)}` of neighbours, with the distance s of the
  k-th neighbour (self-tuning, Zelnik-Manor and Perona, 2004), and
  :math:`S = G^{-1/2} (W + W') G^{-1/2}` with the row sums G of W + W'.
- `spread`: :math:`F = (1 - a) (I - a S)^{-1} H` (Zhou et al., 2004), by conjugate gradients.
- `Gaussians`: the classes as Gaussians with one covariance, :math:`\Sigma = (1 - g) \Sigma_w + g \bar\sigma I`,
  from the guesses of all samples. `guess` gives new guesses, `directions` the space in which :math:`\Sigma` is
  the identity and the means of the classes are far apart (Fisher's discriminants).
- `sharpen`: guesses from scores, with a given mean confidence.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg

from ledl.arrays import Array, as_array, is_torch, namespace, solve_lower, sparse_matrix
from ledl.parallel import map_in_threads
from ledl.solvers.compiled import find

# Steps of conjugate gradients at most: three times as many as are needed at a = 0.99.
MAX_STEPS = 300
# The mean confidence of guesses, and on how many rows it is measured.
CONFIDENCE, SOME_ROWS = 0.9, 4096
# Less than any share that matters, and than any amount that does.
TINY, LEAST = 1e-12, 1e-30
# With more samples and features than this, directions of the largest variance are found by so many steps of
# subspace iteration, with so many more directions than are asked for.
MANY, AXES_STEPS, MORE_AXES = 4096, 7, 32
# Numbers in a block of distances: small enough for a processor's cache, large enough for fast products.
BLOCK = {"host": 2**21, "device": 2**28}


def principal_axes(Z: Array, n_axes: int) -> Array:
    """Return the directions of the largest variance of centred samples: (n, d) -> (d, r), r <= n_axes.

    They come from the smaller one of Z'Z and Z Z'. Where that is large, its eigenvectors would take minutes and
    gigabytes. The directions are then found in the span of a few that subspace iteration gives: close to the
    exact ones, and always the same. Directions without variance are left out.
    """
    xp, (n, d) = namespace(Z), Z.shape
    if min(n, d) > max(MANY, 8 * n_axes):
        Q = as_array(np.random.default_rng(0).standard_normal((d, n_axes + MORE_AXES)), Z, Z.dtype)
        for _ in range(AXES_STEPS):
            Q = xp.linalg.qr(Z.mT @ (Z @ Q))[0]
        return Q @ principal_axes(Z @ Q, n_axes)
    products = xp.astype(Z.mT @ Z if d <= n else Z @ Z.mT, xp.float64)
    m = len(products)
    if is_torch(Z):
        variances, vectors = xp.linalg.eigh(products)
        variances, vectors = variances[-n_axes:], vectors[:, -n_axes:]
    else:
        last = [max(0, m - n_axes), m - 1]
        variances, vectors = scipy.linalg.eigh(
            products, subset_by_index=last, overwrite_a=True, check_finite=False
        )
    some = variances > 1e-6 * xp.max(variances)
    variances, vectors = xp.flip(variances[some], axis=0), xp.flip(vectors[:, some], axis=1)
    axes = vectors if d <= n else xp.astype(Z.mT, xp.float64) @ (vectors / xp.sqrt(variances))
    return xp.astype(axes, Z.dtype)


def nearest(
    queries: Array, points: Array, k: int, *, same: bool = False, threads: int = 1
) -> tuple[Array, Array]:
    """Return the k nearest points of each query, nearest first: indices and squared distances, (m, k) each.

    With `same`, queries are the points, and a point is not its own neighbour.
    """
    xp = namespace(points)
    rows = max(1, BLOCK["device" if is_torch(points) else "host"] // len(points))
    squares = xp.sum(points * points, axis=1)
    work = partial(nearest_of_block, queries, points, squares, k, same, rows)
    found = map_in_threads(work, range(0, len(queries), rows), 1 if is_torch(points) else threads)
    return xp.concat([index for index, _ in found]), xp.concat([squared for _, squared in found])


def nearest_of_block(
    queries: Array, points: Array, squares: Array, k: int, same: bool, rows: int, first: int
) -> tuple[Array, Array]:
    """Return the result of `nearest` for the queries first, ..., first + rows - 1."""
    xp, block = namespace(points), queries[first : first + rows]
    products = block @ points.mT
    loop = None if is_torch(points) else find("nearest", points)
    if loop is not None:
        index, squared = loop(products, squares, k, first if same else -1)
    else:
        products *= -2
        products += squares
        if same:
            here = xp.arange(len(block), device=points.device)
            products[here, here + first] = xp.inf
        if is_torch(points):
            squared, index = products.topk(k, largest=False)
        else:
            index = np.argpartition(products, k - 1, axis=1)[:, :k]
            index = np.take_along_axis(index, np.take_along_axis(products, index, 1).argsort(1), 1)
            squared = np.take_along_axis(products, index, 1)
    squared = squared + xp.sum(block * block, axis=1, keepdims=True)
    return index, xp.clip(squared, 0, None)


class Graph(NamedTuple):
    """A graph of n samples: the k neighbours of each, their weights W, its scale, and its row sum of W + W'."""

    neighbours: Array  # (n, k)
    weights: Array  # (n, k)
    scales: Array  # (n,): the distance of the k-th neighbour
    sums: Array  # (n,)

    @classmethod
    def of(cls, Z: Array, k: int, threads: int = 1) -> Graph:
        """Return the graph of samples in a space.

        All weights of a sample far from the others may be 0 in float32. Then nothing reaches it.
        """
        xp = namespace(Z)
        index, squared = nearest(Z, Z, k, same=True, threads=threads)
        scales = xp.sqrt(squared[:, -1])
        weights = similarity(squared, scales, scales[index])
        ones = xp.ones((len(Z), 1), dtype=Z.dtype, device=Z.device)
        sums = (both_ways(index, weights) @ ones)[:, 0]
        return cls(index, weights, scales, xp.clip(sums, LEAST, None))

    def matrix(self) -> Any:
        """Return S, a sparse matrix, with S = G^-1/2 (W + W') G^-1/2 and the row sums G."""
        roots = namespace(self.sums).sqrt(self.sums)
        return both_ways(self.neighbours, self.weights / (roots[:, None] * roots[self.neighbours]))

    def links(self, Z: Array, points: Array, threads: int = 1) -> tuple[Array, Array]:
        """Return the neighbours of new samples among the points of this graph, and the weights of their F.

        A new sample has F = sum_j w_j F_j / sqrt(G_j) over its k neighbours, up to a factor.
        """
        index, squared = nearest(Z, points, self.neighbours.shape[1], threads=threads)
        weights = similarity(squared, namespace(Z).sqrt(squared[:, -1]), self.scales[index], relative=True)
        return index, weights / namespace(Z).sqrt(self.sums[index])


def similarity(squared: Array, scales: Array, others: Array, *, relative: bool = False) -> Array:
    """Return exp(-d^2 / (s_i s_j)) for squared distances (n, k), scales s_i (n,) and s_j (n, k).

    Equal samples, at a distance of 0, have the weight 1, whatever their scales are. Far from samples that are
    near each other, all weights of a row may be too small for a number. If they are `relative`, the largest one
    of each row is 1.
    """
    xp, scales = namespace(squared), scales[:, None]
    limits = xp.finfo(squared.dtype)
    products = scales * xp.maximum(others, limits.eps * scales)
    exponents = squared / xp.clip(products, limits.tiny, None)
    return xp.exp((xp.min(exponents, axis=1, keepdims=True) if relative else 0) - exponents)


def both_ways(index: Array, values: Array) -> Any:
    """Return the sparse matrix with the given values (n, k) at the columns `index`, plus its transpose."""
    xp, (n, k) = namespace(values), values.shape
    rows = xp.repeat(xp.arange(n, device=values.device), k)
    columns, values = xp.reshape(index, (-1,)), xp.reshape(values, (-1,))
    both = xp.concat([rows, columns]), xp.concat([columns, rows])
    return sparse_matrix(*both, xp.concat([values, values]), n)


def spread(S: Any, H: Array, a: float, *, tol: float = 1e-4) -> Array:
    """Return F = (1 - a) (I - a S)^-1 H, by conjugate gradients to a relative residual of `tol` in each column.

    The eigenvalues of I - a S are between 1 - a and 1 + a, so that some ten steps gain a digit at a = 0.99.
    """
    xp = namespace(H)
    rhs = (1 - a) * H
    F, residual, direction = xp.zeros_like(H), rhs, rhs
    squares = xp.sum(residual * residual, axis=0)
    enough = tol**2 * xp.sum(rhs * rhs, axis=0)
    one = xp.ones_like(enough)
    for _ in range(MAX_STEPS):
        active = squares > enough
        if not bool(xp.any(active)):
            break
        image = direction - a * (S @ direction)
        step = xp.where(active, squares / xp.where(active, xp.sum(direction * image, axis=0), one), 0 * one)
        F = F + step * direction
        residual = residual - step * image
        before, squares = squares, xp.sum(residual * residual, axis=0)
        direction = residual + xp.where(active, squares / xp.where(active, before, one), 0 * one) * direction
    return xp.clip(F, 0, None)


def reach(graph: Graph, S: Any, labelled: Array, a: float) -> Array:
    """Return how much of the labels, whichever they are, reaches each sample of a graph, (n,).

    If all labels are 1 and a goes to 1, F / G^1/2 becomes sum_l G_l^1/2 / sum G everywhere, with the labelled
    samples l. The reach is F / G^1/2 divided by that: more than 1 near labelled samples, less far from them.
    """
    xp = namespace(graph.sums)
    H = xp.zeros((len(graph.sums), 1), dtype=graph.sums.dtype, device=graph.sums.device)
    H[labelled] = 1
    roots = xp.sqrt(graph.sums)
    everywhere = xp.sum(roots[labelled]) / xp.sum(graph.sums)
    return spread(S, H, a)[:, 0] / (roots * everywhere)


class Gaussians(NamedTuple):
    """Classes as Gaussians with one covariance, which guesses of the labels of all samples have given."""

    shares: Array  # (c,): the share of each class
    means: Array  # (c, r)
    factor: Array  # (r, r): lower triangular, L L' is the covariance

    @classmethod
    def of(cls, Z: Array, products: Array, R: Array, shrinkage: float) -> Gaussians:
        """Return the Gaussians of samples with the mean 0, for their guesses and ``products`` = Z'Z / n."""
        xp, (n, r) = namespace(Z), Z.shape
        shares = xp.sum(R, axis=0) / n + TINY
        means = (R.mT @ Z) / (n * shares[:, None])
        wide = xp.astype(means, xp.float64)
        within = products - (wide * xp.astype(shares, xp.float64)[:, None]).mT @ wide
        # Samples that are all alike within their classes would leave rounding errors alone.
        whole = xp.maximum(xp.linalg.trace(within), 1e-3 * xp.linalg.trace(products))
        eye = xp.eye(r, dtype=xp.float64, device=Z.device)
        ridge = shrinkage * whole / max(r, 1) + TINY
        return cls(shares, means, xp.linalg.cholesky((1 - shrinkage) * within + ridge * eye))

    @classmethod
    def of_labelled(cls, Z: Array, products: Array, labelled: Array, labels: Array) -> Gaussians:
        """Return the Gaussians of labelled samples alone: rows `labelled`, with one-hot `labels` (m, c).

        The covariance is half theirs within the classes, half that of all samples, ``products`` = Z'Z / n.
        All classes have the same share.
        """
        xp, (m, c) = namespace(Z), labels.shape
        own = Z[labelled]
        means = (labels.mT @ own) / xp.clip(xp.sum(labels, axis=0), 1, None)[:, None]
        offsets = xp.astype(own - labels @ means, xp.float64)
        total = (offsets.mT @ offsets / m + products) / 2
        eye = xp.eye(len(total), dtype=xp.float64, device=Z.device)
        ridge = TINY + 1e-6 * xp.linalg.trace(total) / max(len(total), 1)
        shares = xp.ones(c, dtype=Z.dtype, device=Z.device) / c
        return cls(shares, means, xp.linalg.cholesky(total + ridge * eye))

    def guess(self, Z: Array) -> Array:
        """Return the logarithms of class probabilities of samples, up to a constant of each sample: (n, c)."""
        xp = namespace(Z)
        half = solve_lower(self.factor, xp.astype(self.means, xp.float64).mT)
        weights = xp.astype(solve_lower(self.factor, half, transposed=True), Z.dtype)
        squares = xp.astype(xp.sum(half * half, axis=0), Z.dtype)
        return Z @ weights - squares / 2 + xp.log(self.shares)

    def directions(self) -> Array:
        """Return the map (r, q) to the space where the covariance is I and only the means of classes differ."""
        xp, (c, r) = namespace(self.means), self.means.shape
        centred = (self.means - self.shares @ self.means) * xp.sqrt(self.shares)[:, None]
        half = solve_lower(self.factor, xp.astype(centred, xp.float64).mT)
        axes = xp.linalg.svd(half, full_matrices=False)[0][:, : min(c - 1, r)]
        return xp.astype(solve_lower(self.factor, axes, transposed=True), self.means.dtype)


def sharpen(scores: Array, labelled: Array, labels: Array, confidence: float = CONFIDENCE) -> Array:
    """Return probabilities proportional to exp(t scores), with the t that makes the mean of the largest 0.9.

    `confidence` is another such mean. Labelled samples get their labels: `labelled` has their rows, `labels`
    (l, c) is one-hot.
    """
    xp = namespace(scores)
    found = xp.exp(sharpness(scores, confidence) * (scores - xp.max(scores, axis=1, keepdims=True)))
    found = found / xp.sum(found, axis=1, keepdims=True)
    found[labelled] = labels
    return found


def sharpness(scores: Array, confidence: float = CONFIDENCE) -> float:
    """Return the factor t with which the mean of the largest probabilities, exp(t scores), is `confidence`."""
    xp = namespace(scores)
    some = scores[:: max(1, len(scores) // SOME_ROWS)]
    some = some - xp.max(some, axis=1, keepdims=True)
    low, high = -10.0, 10.0
    for _ in range(20):
        middle = (low + high) / 2
        mean = float(xp.mean(1 / xp.sum(xp.exp(math.exp(middle) * some), axis=1)))
        low, high = (middle, high) if mean < confidence else (low, middle)
    return math.exp(middle)


class Spread(NamedTuple):
    """Labels that were spread over the graph of samples in a space."""

    axes: Array | None  # (r, q): the map to the space; None for the space of the samples
    graph: Graph
    F: Array  # (n, c)


def spread_labels(Z: Array, graph: Graph, labelled: Array, labels: Array, amounts: Array, a: float) -> Spread:
    """Return the labels of `labelled` rows, times amounts (l,), spread over the graph of all samples."""
    H = one_hot(Z, labelled, labels * amounts[:, None])
    return Spread(None, graph, spread(graph.matrix(), H, a))


def spread_in_learnt_space(
    Z: Array,
    products: Array,
    scores: Array,
    labelled: Array,
    labels: Array,
    amounts: Array,
    *,
    k: int,
    a: float,
    shrinkage: float,
    n_rounds: int,
    threads: int = 1,
) -> Spread:
    """Return labels spread over a graph in a space that is learnt from guesses, which it improves.

    Each round learns the space from the guesses, spreads the labels over the graph there, and fits Gaussians in
    the space of the samples to the result, which give the next guesses. `scores` (n, c) give the first ones.
    The labels (l, c) are one-hot, and spread times amounts (l,).
    """
    H = one_hot(Z, labelled, labels * amounts[:, None])
    R = sharpen(scores, labelled, labels)
    for step in range(n_rounds + 1):
        axes = Gaussians.of(Z, products, R, shrinkage).directions()
        graph = Graph.of(Z @ axes, k, threads)
        F = spread(graph.matrix(), H, a)
        if step < n_rounds:
            R = sharpen(log_shares(F), labelled, labels)
            R = sharpen(Gaussians.of(Z, products, R, shrinkage).guess(Z), labelled, labels)
    return Spread(axes, graph, F)


def masses(labels: Array, balance: float) -> Array:
    """Return the mass of a label of each class, m^-balance for m labels, so that all are 1 in the mean: (c,).

    At 0 every label spreads as much as any other, at 1 every class does. Labels are 0, ..., c - 1.
    """
    counts = np.bincount(labels)
    found = np.maximum(counts, 1.0) ** -balance
    return np.asarray(found * counts.sum() / (found * counts).sum())


def one_hot(Z: Array, labelled: Array, labels: Array) -> Array:
    """Return H (n, c): the labels (l, c) in the rows `labelled`, and 0 in the others."""
    H = namespace(Z).zeros((len(Z), labels.shape[1]), dtype=Z.dtype, device=Z.device)
    H[labelled] = labels
    return H


def log_shares(F: Array) -> Array:
    """Return log(f_j / sum f) of each row, however small. A row that nothing has reached has equal shares."""
    xp = namespace(F)
    F = F / xp.clip(xp.sum(F, axis=1, keepdims=True), xp.finfo(F.dtype).tiny, None) + TINY
    return xp.log(F / xp.sum(F, axis=1, keepdims=True))
