"""What is minimised: the duality gap that certifies codes, and residuals of classes."""

from __future__ import annotations

from ledl.arrays import Array, namespace


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
