"""Lasso codes of many samples from Gram matrices, certified by the duality gap.

    s(x) = argmin 1/2 |x - s D|^2 + alpha |s|_1

in terms of G = D D', rhs = X D' and |x|^2 only, which subspaces and kernels can compute. Leading axes are
problems: each has its own G, samples and alpha. There are two solvers. "active_set" takes exact steps, sample
by sample, in a compiled loop. "admm" takes steps that are products with all samples of all problems, which
suits BLAS and GPUs.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from ledl.arrays import (
    Array,
    add_to_diagonal,
    as_array,
    cholesky,
    cholesky_solve,
    is_torch,
    namespace,
    positive_inverse,
    take_samples,
    to_host,
)
from ledl.solvers import compiled

SOLVERS = ("active_set", "admm")
# The smallest relative gap that float32 data can certify.
FLOAT32_TOL = 1e-5

RELAXATION = 1.8
# Steps of ADMM between two checks of the gaps, and the share of the samples at work that must be done before
# they leave: on the host, and for tensors, where a check waits for the device and leaving copies all others.
ON_HOST, ON_TENSORS = (10, 0.0), (20, 0.2)
# The penalty in units of alpha k / |s|_1; the number of samples that decide it, and the steps when they do.
FACTOR, PILOTS, SETTLING = 2.0, 16, (5, 10, 20, 40)
# Penalties within this ratio need about the same number of steps.
CLOSE = 1.3
# Atoms of each sample that `lasso_of_few` begins with. Later it takes as many as it has, at least.
FIRST = 32


def reachable(tol: float, data: Array) -> float:
    """Return the tolerance, or the smallest one that data of that type can certify."""
    return max(tol, FLOAT32_TOL) if data.dtype == namespace(data).float32 else tol


def duality_gap(S: Array, SG: Array, rhs: Array, sq_norms: Array, alpha: Array, positive: bool) -> Array:
    """Return the gap of 1/2 |x - s D|^2 + alpha |s|_1, sample by sample: (..., n, K) -> (..., n).

    Needs inner products only: ``SG`` = S D D', ``rhs`` = X D', ``sq_norms`` = |x|^2. The dual point
    is the residual, scaled by the best factor that keeps it feasible,

        max <x, u> - 1/2 |u|^2   over   u = t (x - s D),   t >= 0,   |D u|_inf <= alpha.
    """
    xp = namespace(S)
    correlation = rhs - SG
    fitted = xp.sum(S * rhs, axis=-1)
    residual_sq = sq_norms - fitted - xp.sum(S * correlation, axis=-1)
    # Rounding can make the square of a vanishing residual negative.
    residual_sq = xp.maximum(residual_sq, xp.zeros_like(residual_sq))
    residual_x = sq_norms - fitted
    l1 = xp.sum(xp.abs(S), axis=-1)
    if not positive:
        correlation = xp.abs(correlation)
    steepest = xp.max(correlation, axis=-1)
    # Below a correlation of alpha the best factor is at most 1, unless the code fits nothing: 1 is good enough.
    t = alpha / xp.maximum(steepest, alpha + xp.zeros_like(steepest))
    best = xp.maximum(residual_x, xp.zeros_like(residual_x))
    t = xp.where(t * residual_sq > best, best / xp.where(residual_sq > 0, residual_sq, 1.0), t)
    return residual_sq / 2 + alpha * l1 - t * residual_x + t * t * residual_sq / 2


class LassoInfo(NamedTuple):
    """Duality gap of each sample, number of iterations, whether its gap is within the tolerance, and that."""

    gap: Array
    n_iter: Array
    converged: Array
    tol: float


class Penalty(NamedTuple):
    """The weight rho (..., 1, 1) of ADMM's quadratic term, and (G + rho I)^-1 (..., K, K), in float64.

    The inverse itself, because a product is faster than two triangular solves.
    """

    rho: Array
    inverse: Array


def lasso(
    G: Array,
    rhs: Array,
    sq_norms: Array,
    alpha: Any,
    tol: float,
    *,
    solver: str = "active_set",
    max_iter: int = 10_000,
    positive: bool = False,
    start: Array | None = None,
    dtype: Any = None,
    penalty: Penalty | None = None,
) -> tuple[Array, LassoInfo]:
    """Return codes whose duality gap is at most tol times 1/2 |x|^2.

    Parameters
    ----------
    G : (..., K, K)
        Gram matrix of the atoms.
    rhs : (..., n, K)
        Correlations of the samples with the atoms.
    sq_norms : (..., n)
        Squared norms of the samples themselves, not of their projections on a subspace.
    alpha : float or (..., 1, 1)
        Weight of the l1 norm, positive.
    tol : float
        Largest gap, relative to 1/2 |x|^2. For float32 data it is at least 1e-5.
    solver : {"active_set", "admm"}
        The first is compiled, for NumPy arrays; without numba, ADMM replaces it. The second works on arrays of
        any library.
    max_iter : int
        Largest number of iterations of a sample: rounds of entering atoms, or steps of all coefficients.
    positive : bool
        Whether codes must not be negative.
    start : (..., n, K), optional
        Codes to start from.
    dtype : type, optional
        Type of the steps of ADMM, if it is not the type of `rhs`.
    penalty : Penalty, optional
        Result of `find_penalty`, for ADMM, if it is known.

    Returns
    -------
    codes : (..., n, K)
    info : LassoInfo
    """
    is_numpy = isinstance(rhs, np.ndarray)
    xp: Any = np if is_numpy else namespace(rhs)
    *problems, _, K = rhs.shape
    tol = max(tol, FLOAT32_TOL) if rhs.dtype == xp.float32 else tol
    # The compiled loops check no bounds: all their arguments are made to fit here, or refused.
    if tuple(G.shape) != (*problems, K, K):
        G = xp.broadcast_to(G, (*problems, K, K))
    sq_norms = xp.broadcast_to(xp.astype(sq_norms, xp.float64, copy=False), rhs.shape[:-1])
    alpha = xp.broadcast_to(xp.asarray(alpha, dtype=xp.float64, device=rhs.device), (*problems, 1, 1))
    if start is not None:
        start = xp.broadcast_to(xp.astype(start, rhs.dtype, copy=False), rhs.shape)
    squares = xp.astype(xp.linalg.diagonal(G), xp.float64)
    largest, longest = float(xp.max(squares)), float(xp.max(sq_norms))
    # Then all other numbers are finite: correlations are bounded by norms.
    if not (math.isfinite(largest) and math.isfinite(longest)):
        raise ValueError("G and sq_norms must be finite; check the samples and the dictionary for NaN.")
    loop = None
    if solver == "active_set":
        if not is_numpy:
            raise TypeError(
                f"The lasso solver 'active_set' is compiled, for NumPy arrays only, and rhs is a "
                f"{type(rhs).__name__}. Use the solver 'admm', or convert rhs."
            )
        loop = compiled.numpy_loop("active_set")
    if loop is None:
        codes, gap, n_iter = _admm(G, rhs, sq_norms, alpha, tol, start, max_iter, positive, dtype, penalty)
    else:
        # A read-only or strided array would be compiled for again. A gap in float32 is rounded: a part of the
        # tolerance is reserved for that.
        G, b = np.require(G, rhs.dtype, ["C", "W"]), np.require(rhs, None, ["C", "W"])
        norms, codes = np.require(sq_norms, None, ["C", "W"]), np.zeros(rhs.shape, rhs.dtype)
        if start is not None:
            codes += start
        gap, n_iter = np.zeros(rhs.shape[:-1]), np.zeros(rhs.shape[:-1], np.int64)
        part = 0.75 * tol if rhs.dtype == np.float32 else tol
        for p in np.ndindex(*problems):
            weight = float(alpha[p][0, 0])
            loop(G[p], b[p], norms[p], weight, part, max_iter, positive, codes[p], gap[p], n_iter[p])
    # Rounding of correlations by delta moves a gap by at most 2 |s|_1 delta + (delta / alpha)^2 |x|^2 / 2; the
    # second term is the loss of the dual point when it is scaled into a box that is smaller by delta. |s|_1 is
    # at most |x|^2 / (2 alpha), so this bound is often negligible, and not computed.
    eps = float(xp.finfo(rhs.dtype).eps)
    ratio = largest**0.5 * longest**0.5 / float(xp.min(alpha))
    if eps * ratio * (ratio / 2 + 1) > 1e-3 * tol:
        norm = xp.sqrt(xp.max(squares, axis=-1))[..., None]
        l1 = xp.sum(xp.abs(xp.astype(codes, xp.float64, copy=False)), axis=-1)
        delta = eps * norm * (norm * l1 + xp.sqrt(sq_norms))
        gap = gap + 2 * l1 * delta + (delta / alpha[..., 0]) ** 2 * sq_norms / 2
    return codes, LassoInfo(gap, n_iter, gap <= tol * sq_norms / 2, tol)


def lasso_of_few(
    D: Array,
    X: Array,
    sq_norms: Array,
    alpha: float,
    tol: float,
    *,
    max_iter: int = 10_000,
    positive: bool = False,
    start: Array | None = None,
) -> tuple[Array, LassoInfo]:
    """Return the codes of `lasso` for a few samples over many atoms, without the Gram matrix of all atoms.

    Some atoms, which the samples share, make up the codes. The atoms with the largest correlations join them
    until the duality gap over all atoms is small enough. So there are only inner products of atoms that samples
    may need, and at worst those of all.

    Parameters
    ----------
    D : (K, r)
        Atoms, in float64.
    X : (n, r)
        Samples, in the same coordinates.
    sq_norms, alpha, tol, max_iter, positive, start :
        As in `lasso`.
    """
    X = X.astype(np.float64, copy=False)
    (n, K), rhs = (len(X), len(D)), X @ D.T
    codes = np.zeros((n, K)) if start is None else np.array(start, dtype=np.float64)
    codes = np.clip(codes, 0, None) if positive else codes
    n_iter, least = np.zeros(n, np.int64), np.zeros(n)
    used = np.flatnonzero(codes.any(axis=0))
    G, is_solved = D[used] @ D[used].T, not used.size  # codes to start from need not be optimal on their atoms
    while True:
        correlation = rhs - codes[:, used] @ D[used] @ D.T
        gap = duality_gap(codes, rhs - correlation, rhs, sq_norms, alpha, positive)
        gap = np.maximum(gap, least)  # with what rounding may add
        late = np.flatnonzero((gap > tol * sq_norms / 2) & (n_iter < max_iter))
        steep = correlation[late] if positive else np.abs(correlation[late])
        steep[:, used] = 0
        width = min(max(FIRST, len(used) // max(len(late), 1)), K)
        first = np.argpartition(-steep, width - 1, axis=1)[:, :width]
        new = np.unique(first[np.take_along_axis(steep, first, axis=1) > alpha])
        if late.size == 0 or (is_solved and new.size == 0):
            return codes, LassoInfo(gap, n_iter, gap <= tol * sq_norms / 2, tol)
        is_solved, both = True, D[used] @ D[new].T
        G, used = np.block([[G, both], [both.T, D[new] @ D[new].T]]), np.concatenate([used, new])
        part, info = lasso(
            G,
            rhs[np.ix_(late, used)],
            sq_norms[late],
            alpha,
            tol,
            max_iter=max_iter - int(n_iter[late].max()),
            positive=positive,
            start=codes[np.ix_(late, used)],
        )
        codes[np.ix_(late, used)], least[late] = part, info.gap
        n_iter[late] += info.n_iter


def soft_threshold(v: Array, threshold: Any, positive: bool = False) -> Array:
    """Return argmin_s 1/2 |s - v|^2 + threshold |s|_1, entry by entry."""
    return v - namespace(v).clip(v, None if positive else -threshold, threshold)


def reflect_plain(
    v: Array, product: Array, ridge: Array, relaxation: float, threshold: Array, positive: bool
) -> tuple[Array, Array]:
    """Return the new v, and 2 S - v with S the soft threshold of v, given Z = `product` + `ridge`."""
    v = v + relaxation * (product + ridge - soft_threshold(v, threshold, positive))
    return v, 2 * soft_threshold(v, threshold, positive) - v


def _admm(
    G: Array,
    rhs: Array,
    sq_norms: Array,
    alpha: Array,
    tol: float,
    start: Array | None,
    max_iter: int,
    positive: bool,
    dtype: Any,
    penalty: Penalty | None,
) -> tuple[Array, Array, Array]:
    """Return codes, gaps and numbers of steps of over-relaxed ADMM with one factorisation (Boyd et al., 2011).

    In the form of Douglas and Rachford, with v = S + multiplier / rho and M = rho (G + rho I)^-1, a step is

        v += relaxation (Z - S),   S = argmin alpha |s|_1 + rho/2 |s - v|^2 = soft_threshold(v, alpha / rho),
        Z = argmin 1/2 |x - z D|^2 + rho/2 |z - (2 S - v)|^2 = (2 S - v) M + rhs (G + rho I)^-1

    one product and one pass over the rest. Samples leave when their gap is reached.
    """
    xp = namespace(rhs)
    dtype, on_tensors = rhs.dtype if dtype is None else dtype, is_torch(rhs)
    every, share = ON_TENSORS if on_tensors else ON_HOST
    rho, inverse = find_penalty(G, rhs, alpha, positive) if penalty is None else penalty
    ridge = xp.astype(xp.astype(rhs, xp.float64, copy=False) @ inverse, dtype, copy=False)
    M, weight, threshold = (xp.astype(x, dtype, copy=False) for x in (rho * inverse, rho, alpha / rho))
    low_G, b = (xp.astype(x, dtype, copy=False) for x in (G, rhs))
    S = xp.zeros_like(b) if start is None else xp.astype(start, dtype, copy=False)
    correlation = b if start is None else b - S @ low_G
    bound = xp.astype(alpha, dtype, copy=False)
    # If S is optimal, rho (v - S) is the correlation of the residual, and nothing moves.
    v = S + xp.clip(correlation, None if positive else -bound, bound) / weight
    product = S - ridge
    order = xp.broadcast_to(xp.arange(rhs.shape[-2], device=rhs.device), rhs.shape[:-1])
    # A gap in float32 is rounded: a part of the tolerance is reserved for that.
    tol = 0.75 * tol if dtype == xp.float32 else tol
    squares, aim = sq_norms, xp.full_like(sq_norms, tol)
    reflect, finished = compiled.find("reflect", v) or reflect_plain, []
    for iteration in range(1, max_iter + 1):
        v, reflected = reflect(v, product, ridge, RELAXATION, threshold, positive)
        product = reflected @ M
        last = iteration == max_iter
        if iteration % every and not last:
            continue
        S = soft_threshold(v, threshold, positive)
        if on_tensors:
            gap = duality_gap(S, S @ low_G, b, squares, alpha[..., 0], positive)
        else:
            # The sparse iterate S fits the samples badly until the end: its correlations are wrong by G times
            # its error. The dense iterate Z has correlations rhs - Z G = rho (Z - (2 S - v)), which are nearly
            # feasible early and need no product. So the gap of Z is watched. When it is small enough, S is
            # moved on its support to the fit of Z, and the gap after that decides.
            Z = product + ridge
            c = weight * (Z - reflected)
            tried = duality_gap(Z, b - c, b, squares, alpha[..., 0], positive) <= aim * squares / 2
            tried = xp.ones_like(tried) if last else tried
            if not bool(xp.any(tried)):
                continue
            arrays = (G, low_G, S, c, take_samples(rhs, order), squares, alpha, tried)
            S, gap = (as_array(x, rhs) for x in _move_on_supports(positive, *map(to_host, arrays)))
            # Samples that this does not finish are tried again when Z is better, as far as its type allows.
            least = FLOAT32_TOL if dtype == xp.float32 else 0.0
            aim = xp.where(tried & (gap > tol * squares / 2), xp.clip(aim / 4, least, None), aim)
        done = gap <= tol * squares / 2
        n_live = done.shape[-1]
        most = 0 if last else int(xp.max(xp.sum(xp.astype(~done, xp.int64), axis=-1)))  # waits for the device
        if n_live - most < max(1, share * n_live):
            continue
        # Unfinished samples come first. A problem with fewer of them than others continues with finished ones.
        first = xp.argsort(xp.astype(done, xp.int64), axis=-1, stable=True)
        leaving, staying = first[..., most:], first[..., :most]
        steps = xp.full_like(order, iteration)
        finished.append([take_samples(x, leaving) for x in (order, S, gap, steps)])
        if most == 0:
            break
        v, product, ridge, b, squares, aim, order = (
            take_samples(x, staying) for x in (v, product, ridge, b, squares, aim, order)
        )
    order, codes, gap, steps = (xp.concat(x, axis=order.ndim - 1) for x in zip(*finished, strict=True))
    back = xp.argsort(order, axis=-1)
    codes, gap, steps = (take_samples(x, back) for x in (codes, gap, steps))
    codes = xp.astype(codes, rhs.dtype, copy=False)
    if on_tensors and dtype != rhs.dtype:
        gap = duality_gap(codes, codes @ G, rhs, sq_norms, alpha[..., 0], positive)
    return codes, gap, steps


def _move_on_supports(
    positive: bool,
    G: Array,
    low_G: Array,
    S: Array,
    c: Array,
    rhs: Array,
    sq_norms: Array,
    alpha: Array,
    tried: Array,
) -> tuple[Array, Array]:
    """Return codes and their gaps, after moving the codes S of `tried` samples until rhs - S G is nearly c.

    All in NumPy and float64; the gaps of other samples are infinite. A few steps are taken of
    s_A += wrong_A (G_AA + mu I)^-1, with A the support of a sample, in the precision of `low_G`. The ridge mu
    is for dependent atoms; its effect, and that of rounding, vanishes with the steps.
    """
    codes, gap = S.astype(np.float64), np.full(sq_norms.shape, np.inf)
    for p in np.ndindex(tried.shape[:-1]):
        rows, G64 = np.flatnonzero(tried[p]), G[p].astype(np.float64, copy=False)
        found, wanted = codes[p][rows], rhs[p][rows].astype(np.float64)
        wrong = (wanted - c[p][rows] - found @ G64).astype(low_G.dtype)
        size = max(len(G64), 100) * float(np.finfo(low_G.dtype).eps)
        mu = np.full((1, 1), max(size, 1e-8) * (G64.diagonal().max() or 1.0), low_G.dtype)
        for code, left in zip(found, wrong, strict=True):
            on = np.flatnonzero(code)
            if on.size:
                block, left = low_G[p][np.ix_(on, on)], left[None, on]
                factor = cholesky(add_to_diagonal(block.copy(), mu))
                for _ in range(3):
                    step = cholesky_solve(factor, left.copy())
                    left = left - step @ block
                    code[on] += step[0]
        if positive:
            np.clip(found, 0, None, out=found)
        codes[p][rows] = found
        gap[p][rows] = duality_gap(found, found @ G64, wanted, sq_norms[p][rows], alpha[p][0], positive)
    return codes, gap


def find_penalty(G: Array, rhs: Array, alpha: Any, positive: bool = False) -> Penalty:
    """Return rho = FACTOR alpha k / |s|_1, with k the non-zeros of the codes of a few samples after few steps.

    The threshold of a step, alpha / rho, is then about the mean size |s|_1 / k of a coefficient. With a smaller
    threshold, coefficients need many steps to vanish; with a larger one, many steps to grow.
    """
    xp, K = namespace(G), G.shape[-1]
    squares = xp.astype(xp.linalg.diagonal(G), xp.float64)
    largest = xp.max(squares, axis=-1)[..., None, None]
    # More than the rounding of G, so that even the Gram matrix of dependent atoms becomes positive definite.
    least = max(K, 100) * float(xp.finfo(G.dtype).eps) * xp.where(largest > 0, largest, 1.0)
    few = xp.astype(rhs[..., :: max(1, rhs.shape[-2] // PILOTS), :], xp.float64)
    rho = xp.maximum(xp.mean(squares, axis=-1)[..., None, None], least)
    inverse = positive_inverse(add_to_diagonal(xp.astype(G, xp.float64), rho))
    reflect, ridge = compiled.find("reflect", few) or reflect_plain, few @ inverse
    v, product = xp.zeros_like(few), -ridge
    for iteration in range(1, SETTLING[-1] + 1):
        v, reflected = reflect(v, product, ridge, RELAXATION, alpha / rho, positive)
        product = (rho * reflected) @ inverse
        if iteration not in SETTLING:
            continue
        S = soft_threshold(v, alpha / rho, positive)
        l1 = xp.sum(xp.abs(S), axis=(-2, -1), keepdims=True)
        k = xp.sum(xp.astype(S != 0, xp.float64), axis=(-2, -1), keepdims=True)
        better = xp.where(l1 > 0, xp.maximum(FACTOR * alpha * k / xp.where(l1 > 0, l1, 1.0), least), rho)
        far = (better > rho * CLOSE) | (better < rho / CLOSE)
        if bool(xp.any(far)):
            old, rho = rho, xp.where(far, better, rho)
            inverse = positive_inverse(add_to_diagonal(xp.astype(G, xp.float64), rho))
            # The multiplier rho (v - S) stays the same.
            v, ridge = S + (v - S) * (old / rho), few @ inverse
            product = S - ridge
    return Penalty(rho, inverse)
