"""Lasso codes: one Gram matrix, many samples, certified by the duality gap.

    s(x) = argmin 1/2 |x - s D|^2 + alpha |s|_1

in terms of G = D D', rhs = X D' and |x|^2 alone, which is what subspaces and kernels can give.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ledl.arrays import Array, is_numpy, namespace
from ledl.objective import duality_gap
from ledl.solvers import compiled
from ledl.solvers.proximal import admm

# The smallest relative gap that float32 data can certify.
FLOAT32_TOL = 1e-5


def reachable(tol: float, data: Array) -> float:
    """The tolerance, or the smallest that data of that type can certify."""
    return max(tol, FLOAT32_TOL) if data.dtype == namespace(data).float32 else tol


class LassoInfo(NamedTuple):
    """Per sample the duality gap, the iterations, and whether the gap asked for was reached."""

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
    solver: str = "active_set",
    max_iter: int = 10_000,
    positive: bool = False,
    start: Array | None = None,
    **options: Any,
) -> tuple[Array, LassoInfo]:
    """Codes whose duality gap is at most tol times 1/2 |x|^2.

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
    solver : {"active_set", "admm"}
        The first is compiled, for NumPy arrays (ADMM takes its place where there is no numba); the other works
        on arrays of any library.
    max_iter : int
        Iterations a sample at most: rounds of atoms entering, or steps of all coefficients.
    positive : bool
        Non-negative codes.
    start : (..., n, K), optional
        Codes to start from.
    **options
        For the solver: `penalty` of `ledl.solvers.proximal.admm`.

    Returns
    -------
    codes : (..., n, K)
    info : LassoInfo
    """
    xp = namespace(rhs)
    single = rhs.dtype == xp.float32
    tol = reachable(tol, rhs)
    # In float32 the gap itself is rounded: a part of the tolerance is kept for that.
    solve = partial(
        SOLVERS[solver],
        alpha=float(alpha),
        tol=0.75 * tol if single else tol,
        max_iter=max_iter,
        positive=positive,
    )
    *problems, _, K = rhs.shape
    # The compiled loops check no bounds: all that they are given is made to fit here, or refused.
    G, sq_norms = xp.broadcast_to(G, (*problems, K, K)), xp.broadcast_to(sq_norms, rhs.shape[:-1])
    codes = xp.zeros_like(rhs)
    if start is not None:
        codes = codes + xp.broadcast_to(xp.astype(start, rhs.dtype, copy=False), rhs.shape)
    # The rest is then finite too: correlations are bounded by norms.
    if not all(bool(xp.all(xp.isfinite(x))) for x in (xp.linalg.diagonal(G), sq_norms)):
        raise ValueError("G and sq_norms must be finite; check the samples and the dictionary for NaN.")
    sq_norms = xp.astype(sq_norms, xp.float64, copy=False)
    if not problems:
        codes, gap, n_iter = solve(G, rhs, sq_norms, codes, **options)
    else:
        results = [solve(G[p], rhs[p], sq_norms[p], codes[p], **options) for p in np.ndindex(*problems)]
        codes, gap, n_iter = (
            xp.reshape(xp.stack(list(parts)), (*problems, *parts[0].shape))
            for parts in zip(*results, strict=True)
        )
    # At its largest, with |s|_1 = |x|^2 / (2 alpha), rounding moves a correlation by so much of alpha.
    ratio = float(xp.max(xp.linalg.diagonal(G))) ** 0.5 * float(xp.max(sq_norms)) ** 0.5 / alpha
    if float(xp.finfo(rhs.dtype).eps) * ratio * (ratio / 2 + 1) > 1e-3 * tol:
        gap = gap + _rounding(G, codes, sq_norms, alpha)
    return codes, LassoInfo(gap, n_iter, gap <= tol * sq_norms / 2, tol)


def _rounding(G: Array, codes: Array, sq_norms: Array, alpha: float) -> Array:
    """How far rounding of correlations by delta can move a gap: by 2 |s|_1 delta + (delta / alpha)^2 |x|^2 / 2.

    The second term is what the dual point loses when it is scaled into a box that is smaller by delta.
    """
    xp = namespace(codes)
    largest = xp.sqrt(xp.max(xp.astype(xp.linalg.diagonal(G), xp.float64), axis=-1))[..., None]
    l1 = xp.sum(xp.abs(xp.astype(codes, xp.float64)), axis=-1)
    delta = float(xp.finfo(codes.dtype).eps) * largest * (largest * l1 + xp.sqrt(sq_norms))
    return 2 * l1 * delta + (delta / alpha) ** 2 * sq_norms / 2


def _compiled(
    loop: str,
    G: Array,
    rhs: Array,
    sq_norms: Array,
    codes: Array,
    *,
    alpha: float,
    tol: float,
    max_iter: int,
    positive: bool,
) -> tuple[Array, Array, Array]:
    """A compiled loop over the samples of one problem, from the `codes` given, which are overwritten."""
    run = compiled.find(loop, rhs)
    if run is None and is_numpy(rhs):  # there is no numba
        return admm(G, rhs, sq_norms, codes, alpha=alpha, tol=tol, max_iter=max_iter, positive=positive)
    if run is None:
        raise TypeError(
            f"The lasso solver {loop!r} is compiled, for NumPy arrays only, and rhs is a {type(rhs).__name__}. "
            "Take the solver 'admm', or convert it."
        )
    # A read-only or strided array would be compiled for anew.
    G, rhs, codes = (np.require(x, rhs.dtype, ["C", "W"]) for x in (G, rhs, codes))
    sq_norms = np.require(sq_norms, np.float64, ["C", "W"])
    gaps, n_iter = np.zeros(len(rhs)), np.zeros(len(rhs), dtype=np.int64)
    run(G, rhs, sq_norms, alpha, tol, max_iter, positive, codes, gaps, n_iter)
    return codes, gaps, n_iter


SOLVERS: dict[str, Callable[..., tuple[Array, Array, Array]]] = {
    "active_set": partial(_compiled, "active_set"),
    "admm": admm,
}


def active_set_plain(
    G: Array, b: Array, sq_norm: float, alpha: float, tol: float, max_iter: int, positive: bool
) -> tuple[Array, float]:
    """The code of one sample and its gap: what "active_set" compiles, without its bookkeeping.

    The atoms most correlated with the residual enter, with the signs of their correlations; as many as the
    `width`, which doubles while all of them are of use. Then the objective, quadratic while signs stay, is
    minimised over the active atoms; an atom that reaches zero on the way leaves, and the rest go on. An atom
    that is a combination of active ones takes the place of the first of them that it brings to zero. Every
    round lowers the objective, so that no active set comes twice.
    """
    s, sign, width = np.zeros_like(b), np.zeros_like(b), 2
    for _ in range(max_iter + 1):
        c = b - s @ G
        gap = duality_gap(s[None], (s @ G)[None], b[None], np.array([sq_norm]), alpha, positive)[0]
        size = np.where(sign == 0, c if positive else np.abs(c), -np.inf)
        entering = np.argsort(-size)[: min(width, np.count_nonzero(size > alpha))]
        if gap <= tol * sq_norm / 2 or not entering.size:
            break
        for j in entering:
            on = np.flatnonzero(sign)
            w = np.linalg.solve(G[np.ix_(on, on)], G[on, j])
            if G[j, j] - w @ G[on, j] > 1e-12 * G[j, j]:
                sign[j] = np.sign(c[j])
            elif j == entering[0]:
                _exchange_plain(s, sign, on, w, j, np.sign(c[j]))
                break
        thrown = _settle_plain(G, b, alpha, s, sign)
        width = 2 * width if thrown == 0 else max(1, width // 2)
    return s, float(gap)


def _exchange_plain(s: Array, sign: Array, on: Array, w: Array, j: int, direction: float) -> None:
    """Atom j = sum_a w_a (atom a) enters in place of others, the fit unchanged and the l1 norm falling."""
    falls = s[on] * w * direction > 0
    step, leaves = min(zip(s[on][falls] / (w * direction)[falls], on[falls], strict=True))
    s[on] -= step * direction * w
    s[j], sign[j] = step * direction, direction
    s[leaves] = sign[leaves] = 0


def _settle_plain(G: Array, b: Array, alpha: float, s: Array, sign: Array) -> int:
    """Minimise over the active atoms at their signs; how many that had just entered left at once."""
    thrown = 0
    while sign.any():
        on = np.flatnonzero(sign)
        target = np.linalg.solve(G[np.ix_(on, on)], b[on] - alpha * sign[on])
        turned = target * sign[on] <= 0
        if not turned.any():
            s[on] = target
            break
        stuck = on[turned & (s[on] == 0)]
        if stuck.size:
            sign[stuck] = 0
            thrown += stuck.size
            continue
        reach = s[on][turned] / (s[on] - target)[turned]
        s[on] += reach.min() * (target - s[on])
        leaves = on[turned][reach.argmin()]
        s[leaves] = sign[leaves] = 0
    return thrown
