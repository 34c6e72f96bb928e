"""Lasso codes by steps of all coefficients of all samples at once: the shape that BLAS and GPUs want.

For one Gram matrix (K, K) and samples (n, K), which leave as they finish. What is taken and given is said in
`ledl.solvers.lasso`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ledl.arrays import (
    Array,
    add_to_diagonal,
    cholesky,
    cholesky_solve,
    namespace,
    positive_inverse,
)
from ledl.objective import duality_gap
from ledl.solvers import compiled

# Iterations between two looks at the gaps.
CHECK = 10
RELAXATION = 1.8
# The penalty in units of alpha k / |s|_1; the samples that tell it, and the iterations after which they do.
FACTOR, PILOTS, SETTLING = 2.0, 16, (5, 10, 20, 40)
# Penalties within this ratio need about as many iterations.
CLOSE = 1.3


def soft_threshold(v: Array, threshold: Any, positive: bool = False) -> Array:
    """argmin_s 1/2 |s - v|^2 + threshold |s|_1, entry by entry."""
    return v - namespace(v).clip(v, None if positive else -threshold, threshold)


def _iterate(
    state: Any,
    step: Callable[[Any], Any],
    judge: Callable[[Any, bool], tuple[Any, Array, Array, Array]],
    tol: float,
    max_iter: int,
) -> tuple[Array, Array, Array]:
    """Steps until every sample has its gap. Codes, gaps, iterations.

    `state` is a tuple of arrays, a row a sample, with ``sq_norms`` among them. `judge` takes it, and whether
    this is the last look; it gives the state to go on with, which rows may be finished, and their codes and
    gaps.
    """
    xp = namespace(state.sq_norms)
    live, finished = xp.arange(state.sq_norms.shape[0]), []
    for iteration in range(1, max_iter + 1):
        state = step(state)
        last = iteration == max_iter
        if iteration % CHECK and not last:
            continue
        state, tried, codes, gap = judge(state, last)
        if not xp.any(tried):
            continue
        done = (gap <= tol * state.sq_norms[tried] / 2) | last
        steps = xp.full(gap.shape, iteration, dtype=xp.int64)
        finished.append([x[done] for x in (live[tried], codes, gap, steps)])
        keep = ~_spread(done, tried)
        if not xp.any(keep):
            break
        live, state = live[keep], type(state)(*(x[keep] for x in state))
    order, codes, gap, steps = (xp.concat(parts) for parts in zip(*finished, strict=True))
    back = xp.argsort(order)
    return tuple(xp.take(x, back, axis=0) for x in (codes, gap, steps))


def _spread(values: Array, mask: Array) -> Array:
    """An array of the mask's length with the values where it is true, and zero or False elsewhere."""
    xp = namespace(values)
    place = xp.clip(xp.cumulative_sum(xp.astype(mask, xp.int64)) - 1, 0, None)
    return xp.where(mask, xp.take(values, place), xp.zeros_like(values[:1]))


class Penalty(NamedTuple):
    """The weight rho of ADMM's quadratic term, and (G + rho I)^-1 in float64."""

    rho: float
    inverse: Array


def with_penalty(G: Array, rho: float) -> Penalty:
    """Factorise once; the inverse itself, since a product is faster than two triangular solves.

    A rho below the rounding of G is raised to it.
    """
    xp = namespace(G)
    rho = max(rho, _ridge(G))
    return Penalty(rho, positive_inverse(add_to_diagonal(xp.astype(G, xp.float64), xp.full((1, 1), rho))))


def _ridge(G: Array) -> float:
    """More than the rounding of G, so that with it the Gram matrix of dependent atoms is positive definite."""
    xp = namespace(G)
    size: float = float(xp.max(xp.linalg.diagonal(G))) or 1.0
    rows: int = max(G.shape[0], 100)
    return rows * float(xp.finfo(G.dtype).eps) * size


class _Admm(NamedTuple):
    """In the form of Douglas and Rachford: v = S + multiplier / rho."""

    v: Array
    S: Array
    Z: Array
    ridge: Array  # rhs (G + rho I)^-1
    rhs: Array
    sq_norms: Array
    aim: Array  # the relative gap of Z at which S is looked at


def _admm_step(now: _Admm, M: Array, threshold: float, positive: bool) -> _Admm:
    """One over-relaxed step, with M = rho (G + rho I)^-1 and the threshold alpha / rho.

    S = argmin alpha |s|_1 + rho/2 |s - v|^2,   Z = argmin 1/2 |x - z D|^2 + rho/2 |z - (2 S - v)|^2
    """
    reflect = compiled.find("reflect", now.v) or reflect_plain
    v, S, reflected = reflect(now.v, now.S, now.Z, RELAXATION, threshold, positive)
    Z = reflected @ M
    Z += now.ridge
    return now._replace(v=v, S=S, Z=Z)


def reflect_plain(
    v: Array, S: Array, Z: Array, relaxation: float, threshold: float, positive: bool
) -> tuple[Array, Array, Array]:
    """The new v, its soft threshold S, and 2 S - v."""
    v = v + relaxation * (Z - S)
    S = soft_threshold(v, threshold, positive)
    return v, S, 2 * S - v


def find_penalty(G: Array, rhs: Array, alpha: float, positive: bool) -> Penalty:
    """rho = FACTOR alpha k / |s|_1, k the non-zeros of the codes that a few samples have so far.

    The threshold of a step, alpha / rho, is then about the mean size |s|_1 / k of a coefficient: were it
    smaller, coefficients would take many steps to die out, were it larger, many to grow.
    """
    xp = namespace(G)
    rhs = xp.astype(rhs[: min(PILOTS, rhs.shape[0]), :], xp.float64)
    penalty = with_penalty(G, float(xp.mean(xp.linalg.diagonal(G))) or 1.0)
    zero, none = xp.zeros_like(rhs), xp.zeros(rhs.shape[0])
    state = _Admm(zero, zero, zero, rhs @ penalty.inverse, rhs, none, none)
    M = penalty.rho * penalty.inverse
    for iteration in range(1, SETTLING[-1] + 1):
        rho = penalty.rho
        state = _admm_step(state, M, alpha / rho, positive)
        l1 = float(xp.sum(xp.abs(state.S)))
        better = FACTOR * alpha * int(xp.count_nonzero(state.S)) / l1 if l1 > 0 else rho
        if iteration in SETTLING and not rho / CLOSE <= better <= rho * CLOSE:
            penalty = with_penalty(G, better)
            M = penalty.rho * penalty.inverse
            # The multiplier rho (v - S) stays what it is.
            v = state.S + (state.v - state.S) * (rho / penalty.rho)
            state = state._replace(v=v, Z=state.S, ridge=rhs @ penalty.inverse)
    return penalty


def admm(
    G: Array,
    rhs: Array,
    sq_norms: Array,
    codes: Array,
    *,
    alpha: float,
    tol: float,
    max_iter: int,
    positive: bool,
    penalty: Penalty | None = None,
) -> tuple[Array, Array, Array]:
    """Over-relaxed ADMM with one factorisation (Boyd et al., 2011).

    The sparse iterate S fits the samples badly until the very end: its correlations are off by G times its
    error. The dense one Z has correlations rhs - Z G = rho (Z - 2 S + v), nearly feasible early and known
    without a product, so its gap is the one that is watched. When that is small enough, S is moved on its
    support to the fit of Z (`_move_on_support`), and what counts is the gap after that.
    """
    xp = namespace(rhs)
    penalty = find_penalty(G, rhs, alpha, positive) if penalty is None else penalty
    rho, G64 = penalty.rho, xp.astype(G, xp.float64, copy=False)
    M = xp.astype(rho * penalty.inverse, rhs.dtype, copy=False)
    mu = max(_ridge(G), 1e-8 * float(xp.max(xp.linalg.diagonal(G))))

    def judge(now: _Admm, last: bool) -> tuple[_Admm, Array, Array, Array]:
        c = rho * (now.Z - 2 * now.S + now.v)
        gap = duality_gap(now.Z, now.rhs - c, now.rhs, now.sq_norms, alpha, positive)
        tried = (gap <= now.aim * now.sq_norms / 2) | last
        S, c, b = (xp.astype(x[tried], xp.float64, copy=False) for x in (now.S, c, now.rhs))
        codes = S + _move_on_support(G, S, b - c - S @ G64, mu)
        codes = xp.clip(codes, 0, None) if positive else codes
        gap = duality_gap(codes, codes @ G64, b, now.sq_norms[tried], alpha, positive)
        # Those that this does not finish are looked at again when Z is better.
        now = now._replace(aim=xp.where(tried, now.aim / 4, now.aim))
        return now, tried, xp.astype(codes, rhs.dtype, copy=False), gap

    ridge = xp.astype(xp.astype(rhs, xp.float64, copy=False) @ penalty.inverse, rhs.dtype, copy=False)
    multiplier = xp.clip(rhs - codes @ G, None if positive else -alpha, alpha)
    aim = xp.full(rhs.shape[0], tol, dtype=sq_norms.dtype)
    state = _Admm(codes + multiplier / rho, codes, codes, ridge, rhs, sq_norms, aim)
    return _iterate(state, lambda now: _admm_step(now, M, alpha / rho, positive), judge, tol, max_iter)


def _move_on_support(G: Array, S: Array, wrong: Array, mu: float) -> Array:
    """Changes of codes S on their supports that move S G by nearly `wrong`: (n, K).

    A few steps of s_A += wrong_A (G_AA + mu I)^-1, A the support of a sample, in the precision of G; the ridge
    mu is for dependent atoms, and its effect dies out with the steps, as that of rounding does.
    """
    xp = namespace(S)
    changes = [xp.zeros_like(S[:0, :])]
    for i in range(S.shape[0]):
        on = S[i, :] != 0
        A = xp.nonzero(on)[0]
        if A.shape[0] == 0:
            changes.append(xp.zeros_like(S[:1, :]))
            continue
        block = xp.take(xp.take(G, A, axis=0), A, axis=1)
        factor = cholesky(add_to_diagonal(xp.asarray(block, copy=True), xp.full((1, 1), mu, dtype=G.dtype)))
        left = xp.astype(xp.take(wrong[i : i + 1, :], A, axis=1), G.dtype)
        change = xp.zeros_like(left)
        for _ in range(3):
            step = cholesky_solve(factor, xp.asarray(left, copy=True))
            left, change = left - step @ block, change + step
        changes.append(_spread(xp.astype(change[0, :], S.dtype, copy=False), on)[None, :])
    return xp.concat(changes)
