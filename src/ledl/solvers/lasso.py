"""Lasso codes: one Gram matrix, many samples, certified by the duality gap.

    s(x) = argmin 1/2 |x - s D|^2 + alpha |s|_1

in terms of G = D D', rhs = X D' and |x|^2 alone, which is what subspaces and kernels can give.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ledl.arrays import Array
from ledl.objective import duality_gap
from ledl.solvers import compiled

# The smallest relative gap that float32 data can certify.
FLOAT32_TOL = 1e-5


class LassoInfo(NamedTuple):
    """Per sample the duality gap, the steps, and whether the gap asked for was reached."""

    gap: Array
    n_iter: Array
    converged: Array
    tol: float  # the tolerance that was used


def lasso(
    G: Array,
    rhs: Array,
    sq_norms: Array,
    alpha: float,
    tol: float,
    *,
    max_iter: int = 10_000,
    positive: bool = False,
    start: Array | None = None,
) -> tuple[Array, LassoInfo]:
    """Codes whose duality gap is at most tol times 1/2 |x|^2.

    Exact steps on the active set, so that atoms with cosines near 1 do no harm: see
    `active_set_plain`. The arithmetic is in float64 whatever the data.

    Parameters
    ----------
    G : (..., K, K)
        Gram matrix of the atoms.
    rhs : (..., n, K)
        Correlations of the samples with the atoms.
    sq_norms : (..., n)
        Squared norms of the samples themselves, not of their projections on a subspace.
    alpha : float
        Weight of the l1 norm, positive.
    tol : float
        Relative to 1/2 |x|^2. For float32 data less than 1e-5 is raised to that.
    max_iter : int
        Steps (atoms entering) a sample at most.
    positive : bool
        Non-negative codes.
    start : (..., n, K), optional
        Codes to start from.

    Returns
    -------
    codes : (..., n, K)
    info : LassoInfo
    """
    active_set = compiled.find("active_set", rhs)
    if active_set is None:
        raise TypeError(f"lasso works on NumPy arrays only, so far; rhs is a {type(rhs).__name__}. Convert it.")
    if rhs.dtype == np.float32:
        tol = max(tol, FLOAT32_TOL)
    *problems, _, K = rhs.shape
    shapes = [(*problems, K, K), rhs.shape, rhs.shape[:-1], rhs.shape]
    given = [G, rhs, sq_norms, 0.0 if start is None else start]
    # The compiled loop checks no bounds: all that it is given is made to fit here, or refused.
    *arrays, codes = (
        np.array(np.broadcast_to(x, shape), dtype=np.float64, order="C")
        for x, shape in zip(given, shapes, strict=True)
    )
    if not all(np.isfinite(x).all() for x in arrays):
        raise ValueError("G, rhs and sq_norms must be finite; check the samples and the dictionary for NaN.")
    gaps, n_iter = np.zeros(rhs.shape[:-1]), np.zeros(rhs.shape[:-1], dtype=np.int64)
    for index in np.ndindex(rhs.shape[:-2]):
        inputs, outputs = (x[index] for x in arrays), (x[index] for x in (codes, gaps, n_iter))
        active_set(*inputs, float(alpha), float(tol), max_iter, positive, *outputs)
    converged = gaps <= tol * arrays[2] / 2
    return codes.astype(rhs.dtype, copy=False), LassoInfo(gaps, n_iter, converged, tol)


def active_set_plain(
    G: Array, b: Array, sq_norm: float, alpha: float, tol: float, max_iter: int, positive: bool
) -> tuple[Array, float]:
    """The code of one sample and its gap: what `lasso` compiles, without its bookkeeping.

    The atom most correlated with the residual enters, with the sign of its correlation. Then the
    objective, quadratic while signs stay, is minimised over the active atoms; an atom that reaches
    zero on the way leaves, and the rest go on. An atom that is a combination of active ones takes
    the place of the first of them that it brings to zero. Every step lowers the objective, so that
    no active set comes twice.
    """
    s, sign = np.zeros_like(b), np.zeros_like(b)
    for _ in range(max_iter + 1):
        c = b - s @ G
        gap = duality_gap(s[None], (s @ G)[None], b[None], np.array([sq_norm]), alpha, positive)[0]
        size = np.where(sign == 0, c if positive else np.abs(c), -np.inf)
        enters = size.argmax()
        if gap <= tol * sq_norm / 2 or size[enters] <= alpha:
            break
        on, sign[enters] = np.flatnonzero(sign), np.sign(c[enters])
        w = np.linalg.solve(G[np.ix_(on, on)], G[on, enters]) * sign[enters]
        if G[enters, enters] - w @ G[on, enters] * sign[enters] <= 1e-12 * G[enters, enters]:
            falls = on[s[on] * w > 0]
            step, leaves = min((s[a] / w[on == a][0], a) for a in falls)
            s[on] -= step * w
            s[enters], s[leaves], sign[leaves] = step * sign[enters], 0, 0
        _settle_plain(G, b, alpha, s, sign)
    return s, float(gap)


def _settle_plain(G: Array, b: Array, alpha: float, s: Array, sign: Array) -> None:
    """Minimise over the active atoms at their signs; what reaches zero on the way leaves."""
    while sign.any():
        on = np.flatnonzero(sign)
        target = np.linalg.solve(G[np.ix_(on, on)], b[on] - alpha * sign[on])
        turned = np.flatnonzero(target * sign[on] <= 0)
        if not turned.size:
            s[on] = target
            return
        reach = s[on][turned] / (s[on][turned] - target[turned])
        s[on] += reach.min() * (target - s[on])
        leaves = on[turned[reach.argmin()]]
        s[leaves] = sign[leaves] = 0
