"""What is minimised: the duality gap that certifies codes, and residuals of classes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ledl.arrays import Array, as_array, namespace


def duality_gap(S: Array, SG: Array, rhs: Array, sq_norms: Array, alpha: Array, positive: bool) -> Array:
    """Gap of 1/2 |x - s D|^2 + alpha |s|_1, sample by sample: (..., n, K) -> (..., n).

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
    # Below a correlation of alpha the best factor is at most 1, unless the code fits nothing: that is enough.
    t = alpha / xp.maximum(steepest, alpha + xp.zeros_like(steepest))
    best = xp.maximum(residual_x, xp.zeros_like(residual_x))
    t = xp.where(t * residual_sq > best, best / xp.where(residual_sq > 0, residual_sq, 1.0), t)
    return residual_sq / 2 + alpha * l1 - t * residual_x + t * t * residual_sq / 2


def class_residuals(S: Array, X: Array, sq_norms: Array, D: Array, members: list[Array]) -> Array:
    """|x - s_j D_j|^2 for each class j, s_j being the codes over its atoms D_j: the paper's (2), (..., n, K)
    -> (..., n, c).

    ``members`` holds the indices of the atoms of each class. Coordinates in X and D may lack what x has outside
    the span of the atoms; ``sq_norms`` = |x|^2 must not. Rounding may make a zero slightly negative.
    """
    xp = namespace(S)
    # In float64: small differences of large numbers decide.
    S, X, D = (as_array(array, S, xp.float64) for array in (S, X, D))
    rhs = X @ D.mT

    def of_classes(index: Array) -> Array:
        own = xp.moveaxis(_by_class(D.mT, index), -1, -2)
        codes = _by_class(S, index)
        fitted = 2 * _by_class(rhs, index) - codes @ (own @ own.mT)
        return sq_norms[..., None] - xp.sum(codes * fitted, axis=-1).mT

    return _for_classes(of_classes, members, S)


def class_norms(S: Array, members: list[Array]) -> Array:
    """|s_j| for each class j: (..., n, K) -> (..., n, c)."""
    norm = namespace(S).linalg.vector_norm
    return _for_classes(lambda index: norm(_by_class(S, index), axis=-1).mT, members, S)


def _for_classes(work: Callable[[Array], Array], members: list[Array], like: Array) -> Array:
    """What `work` gives, a column a class, for classes with equally many atoms at once: a few steps, not c."""
    xp, sizes = namespace(like), np.array([len(atoms) for atoms in members])
    same = [np.flatnonzero(sizes == size) for size in np.unique(sizes)]
    parts = [work(as_array(np.stack([members[j] for j in group]), like)) for group in same]
    back = as_array(np.argsort(np.concatenate(same)), like)
    return parts[0] if len(parts) == 1 else xp.take(xp.concat(parts, axis=-1), back, axis=-1)


def _by_class(values: Array, index: Array) -> Array:
    """Columns of atoms, class by class: (..., n, K) and (c, m) -> (..., c, n, m)."""
    xp = namespace(values)
    taken = xp.take(values, xp.reshape(index, (-1,)), axis=-1)
    return xp.moveaxis(xp.reshape(taken, (*taken.shape[:-1], *index.shape)), -2, -3)
