"""Lasso codes of many problems at once: the shape that fills a GPU.

A problem is a Gram matrix with its samples and its alpha; all have the same number of atoms and samples. One
ADMM step of all of them is one batched product and one pass over the codes. Each sample is certified by its
duality gap, and leaves when it has it.
"""

from __future__ import annotations

from typing import NamedTuple

from ledl.arrays import (
    Array,
    add_product,
    add_to_diagonal,
    namespace,
    positive_inverse,
    put_samples,
    take_samples,
)
from ledl.objective import duality_gap
from ledl.solvers import compiled
from ledl.solvers.proximal import CLOSE, FACTOR, PILOTS, RELAXATION, SETTLING, soft_threshold

# Iterations between two looks at the gaps.
CHECK = 20
# Samples that are done leave when at least this share of those at work is.
LEAVE = 0.2


class Splitting(NamedTuple):
    """ADMM's penalty rho (..., 1, 1), and rho (G + rho I)^-1 (..., K, K)."""

    rho: Array
    M: Array


class _Live(NamedTuple):
    """Samples at work: (..., m, K), and (..., m). `order` says which they are."""

    v: Array
    Z: Array
    ridge: Array  # rhs (G + rho I)^-1
    rhs: Array
    sq_norms: Array
    order: Array


def batched_lasso(
    G: Array,
    rhs: Array,
    sq_norms: Array,
    alpha: Array,
    tol: float,
    *,
    start: Array | None = None,
    max_iter: int = 2000,
    positive: bool = False,
) -> tuple[Array, Array, Array]:
    """Codes whose duality gap is at most tol times 1/2 |x|^2, problem by problem.

    Parameters
    ----------
    G : (..., K, K)
    rhs : (..., n, K)
    sq_norms : (..., n)
    alpha : (..., 1, 1)
        As in `ledl.solvers.lasso.lasso`; each problem has its own.
    start : (..., n, K), optional
        Codes to start from.
    positive : bool
        Non-negative codes.

    Returns
    -------
    codes : (..., n, K)
    gaps : (..., n)
    n_iter : (..., n)
        Rounded up to the next look at the gaps.
    """
    xp = namespace(rhs)
    # In float32 the gap itself is rounded: a part of the tolerance is kept for that.
    tol = 0.75 * tol if rhs.dtype == xp.float32 else tol
    splitting = find_splitting(G, rhs, alpha, positive)
    ridge = rhs @ (splitting.M / splitting.rho)
    S = xp.zeros_like(rhs) if start is None else start
    # Where S is optimal, rho (v - S) is the correlation of the residual, and nothing moves any more.
    v = xp.zeros_like(rhs) if start is None else S + (rhs - S @ G) / splitting.rho
    order = xp.broadcast_to(xp.arange(rhs.shape[-2], device=rhs.device), rhs.shape[:-1])
    live = _Live(v, S, ridge, rhs, sq_norms, order)
    codes, gaps = xp.zeros_like(rhs), xp.zeros_like(sq_norms)
    n_iter = xp.zeros(sq_norms.shape, dtype=xp.int64, device=rhs.device)
    threshold = alpha / splitting.rho
    for iteration in range(1, max_iter + 1):
        live = _step(live, splitting.M, threshold, positive)
        if iteration % CHECK and iteration != max_iter:
            continue
        S = soft_threshold(live.v, threshold, positive)
        gap = duality_gap(S, S @ G, live.rhs, live.sq_norms, alpha[..., 0], positive)
        done = gap <= tol * live.sq_norms / 2
        m = live.rhs.shape[-2]
        most = int(xp.max(xp.sum(xp.astype(~done, xp.int64), axis=-1)))  # waits for the device
        if most > (1 - LEAVE) * m and iteration != max_iter:
            continue
        steps = xp.full_like(live.order, iteration)
        for out, values in ((codes, S), (gaps, gap), (n_iter, steps)):
            put_samples(out, live.order, values)
        if most == 0:
            break
        # Those that are not done first; a problem with fewer of them goes on with some that are.
        first = xp.argsort(xp.astype(done, xp.int64), axis=-1, stable=True)[..., :most]
        live = _Live(*(take_samples(x, first) for x in live))
    return codes, gaps, n_iter


def _step(live: _Live, M: Array, threshold: Array, positive: bool) -> _Live:
    """As in `ledl.solvers.proximal`, without the copy of S, which is the threshold of v."""
    reflect = compiled.find("reflect_batch", live.v) or reflect_plain
    v, reflected = reflect(live.v, live.Z, RELAXATION, threshold, positive)
    return live._replace(v=v, Z=add_product(live.ridge + 0, reflected, M))


def reflect_plain(
    v: Array, Z: Array, relaxation: float, threshold: Array, positive: bool = False
) -> tuple[Array, Array]:
    """The new v, and 2 S - v with its soft threshold S."""
    v = v + relaxation * (Z - soft_threshold(v, threshold, positive))
    return v, 2 * soft_threshold(v, threshold, positive) - v


def find_splitting(G: Array, rhs: Array, alpha: Array, positive: bool = False) -> Splitting:
    """rho = FACTOR alpha k / |s|_1 for each problem, from what a few of its samples have after some steps."""
    xp = namespace(G)
    few = rhs[..., :: max(1, rhs.shape[-2] // PILOTS), :]
    rho = xp.mean(xp.linalg.diagonal(G), axis=-1)[..., None, None]
    rho = rho + xp.zeros_like(alpha + few[..., :1, :1])
    splitting = _split(G, rho)
    S, v, Z = xp.zeros_like(few), xp.zeros_like(few), xp.zeros_like(few)
    for iteration in range(1, SETTLING[-1] + 1):
        v = v + RELAXATION * (Z - S)
        S = soft_threshold(v, alpha / splitting.rho, positive)
        Z = (2 * S - v) @ splitting.M + few @ (splitting.M / splitting.rho)
        if iteration not in SETTLING:
            continue
        l1 = xp.sum(xp.abs(S), axis=(-2, -1))[..., None, None]
        k = xp.astype(xp.count_nonzero(S, axis=(-2, -1)), S.dtype)[..., None, None]
        better = xp.where(l1 > 0, FACTOR * alpha * k / xp.where(l1 > 0, l1, 1.0), splitting.rho)
        far = (better > splitting.rho * CLOSE) | (better < splitting.rho / CLOSE)
        new = _split(G, xp.where(far, better, splitting.rho))
        # The multiplier rho (v - S) stays what it is.
        v, Z, splitting = S + (v - S) * (splitting.rho / new.rho), S, new
    return splitting


def _split(G: Array, rho: Array) -> Splitting:
    xp = namespace(G)
    shifted = add_to_diagonal(xp.astype(G, xp.float64) + 0, xp.astype(rho, xp.float64))
    return Splitting(rho, xp.astype(rho * positive_inverse(shifted), G.dtype))
