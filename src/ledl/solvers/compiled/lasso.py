"""`ledl.solvers.lasso.active_set_plain` for NumPy arrays, compiled.

The state of one sample is its active set: indices ``active``, signs ``sign`` and values ``s`` of k
atoms, and the Cholesky factor ``L`` of their Gram matrix, updated as atoms enter and leave.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from ledl.arrays import Array
from ledl.solvers.compiled.numba import FAST

# An atom whose squared distance to the span of the active ones is below this share of its
# squared norm cannot be told from a combination of them.
DEPENDENT = 1e-12


@njit(cache=True, nogil=True, fastmath=FAST)
def active_set(
    G: Array,
    rhs: Array,
    sq_norms: Array,
    alpha: float,
    tol: float,
    max_iter: int,
    positive: bool,
    codes: Array,
    gaps: Array,
    n_iter: Array,
) -> None:
    """Codes of all samples, from the `codes` given; `codes`, `gaps` and `n_iter` are written."""
    K = len(G)
    L, c = np.empty((K, K)), np.empty(K)
    active, s, sign, target = np.empty(K, np.int64), np.empty(K), np.empty(K), np.empty(K)
    out = np.empty(K, np.bool_)  # atoms that may not enter: active, or found of no use
    for i in range(len(rhs)):
        b = rhs[i]
        k = _enter_all(G, L, active, s, sign, codes[i], positive)
        k = _settle(L, active, s, sign, target, k, b, alpha)
        entered, best = -1, np.inf
        for step in range(max_iter + 1):
            _correlations(G, b, active, s, k, c)
            n_iter[i] = step
            gaps[i], primal = _gap(c, b, active, s, k, sq_norms[i], alpha, positive)
            if gaps[i] <= tol * sq_norms[i] / 2 or step == max_iter:
                break
            if primal < best:
                out[:] = False
                best = primal
            elif entered >= 0:
                out[entered] = True
            for a in range(k):
                out[active[a]] = True
            entered = _steepest(c, out, alpha, positive)
            if entered < 0:
                break
            direction = np.sign(c[entered])
            if _append(G, L, active, k, entered):
                s[k], sign[k] = 0.0, direction
                k = _settle(L, active, s, sign, target, k + 1, b, alpha)
            else:
                k = _exchange(G, L, active, s, sign, target, k, entered, direction)
                k = _settle(L, active, s, sign, target, k, b, alpha)
        codes[i] = 0.0
        for a in range(k):
            codes[i, active[a]] = s[a]


@njit(cache=True, nogil=True, fastmath=FAST)
def _enter_all(G: Array, L: Array, active: Array, s: Array, sign: Array, code: Array, positive: bool) -> int:
    """The active set of a code to start from."""
    k = 0
    for j in range(len(code)):
        if (code[j] > 0 or (code[j] < 0 and not positive)) and _append(G, L, active, k, j):
            s[k], sign[k] = code[j], np.sign(code[j])
            k += 1
    return k


@njit(cache=True, nogil=True, fastmath=FAST)
def _settle(
    L: Array, active: Array, s: Array, sign: Array, target: Array, k: int, b: Array, alpha: float
) -> int:
    """Minimise over the active atoms at their signs; what reaches zero on the way leaves."""
    while k > 0:
        for a in range(k):
            target[a] = b[active[a]] - alpha * sign[a]
        _solve(L, target, k)
        step, first = 1.0, -1
        for a in range(k):
            if target[a] * sign[a] <= 0:
                reach = s[a] / (s[a] - target[a]) if s[a] != target[a] else 0.0
                if reach < step or first < 0:
                    step, first = min(reach, 1.0), a
        for a in range(k):
            s[a] += step * (target[a] - s[a])
        if first < 0:
            return k
        k = _remove(L, active, s, sign, k, first)
    return k


@njit(cache=True, nogil=True, fastmath=FAST)
def _append(G: Array, L: Array, active: Array, k: int, j: int) -> bool:
    """Row k of the factor, for atom j; False if j depends on the active atoms."""
    row, square = L[k], 0.0
    for a in range(k):
        value = G[j, active[a]]
        for m in range(a):
            value -= L[a, m] * row[m]
        row[a] = value / L[a, a]
        square += row[a] * row[a]
    rest = G[j, j] - square
    if rest <= DEPENDENT * G[j, j]:
        return False
    row[k] = np.sqrt(rest)
    active[k] = j
    return True


@njit(cache=True, nogil=True, fastmath=FAST)
def _exchange(
    G: Array, L: Array, active: Array, s: Array, sign: Array, w: Array, k: int, j: int, direction: float
) -> int:
    """Atom j = sum_a w_a active_a enters in place of others, the fit unchanged and the l1 norm falling."""
    w[:k] = L[k, :k]  # what `_append` left there: the first half of the solution
    _solve_second_half(L, w, k)
    step, first = np.inf, -1
    for a in range(k):
        if s[a] * w[a] * direction > 0 and s[a] / (w[a] * direction) < step:
            step, first = s[a] / (w[a] * direction), a
    if first < 0:
        return k
    for a in range(k):
        s[a] -= step * direction * w[a]
    k = _remove(L, active, s, sign, k, first)
    if _append(G, L, active, k, j):
        s[k], sign[k] = step * direction, direction
        k += 1
    return k


@njit(cache=True, nogil=True, fastmath=FAST)
def _remove(L: Array, active: Array, s: Array, sign: Array, k: int, first: int) -> int:
    """Drop row `first`; rotations make the rest triangular again."""
    for a in range(first, k - 1):
        active[a], s[a], sign[a] = active[a + 1], s[a + 1], sign[a + 1]
        L[a, : a + 2] = L[a + 1, : a + 2]
    for a in range(first, k - 1):
        x, y = L[a, a], L[a, a + 1]
        norm = np.sqrt(x * x + y * y)
        cosine, sine = x / norm, y / norm
        L[a, a] = norm
        for m in range(a + 1, k - 1):
            x, y = L[m, a], L[m, a + 1]
            L[m, a], L[m, a + 1] = cosine * x + sine * y, cosine * y - sine * x
    return k - 1


@njit(cache=True, nogil=True, fastmath=FAST)
def _solve(L: Array, v: Array, k: int) -> None:
    """v <- (L L')^-1 v, by rows of L both ways."""
    for a in range(k):
        value = v[a]
        for m in range(a):
            value -= L[a, m] * v[m]
        v[a] = value / L[a, a]
    _solve_second_half(L, v, k)


@njit(cache=True, nogil=True, fastmath=FAST)
def _solve_second_half(L: Array, v: Array, k: int) -> None:
    """v <- L'^-1 v."""
    for a in range(k - 1, -1, -1):
        v[a] /= L[a, a]
        for m in range(a):
            v[m] -= L[a, m] * v[a]


@njit(cache=True, nogil=True, fastmath=FAST)
def _correlations(G: Array, b: Array, active: Array, s: Array, k: int, c: Array) -> None:
    """c <- b - s G, over the active atoms."""
    c[:] = b
    for a in range(k):
        row, value = G[active[a]], s[a]
        for j in range(len(c)):
            c[j] -= value * row[j]


@njit(cache=True, nogil=True, fastmath=FAST)
def _gap(
    c: Array, b: Array, active: Array, s: Array, k: int, sq_norm: float, alpha: float, positive: bool
) -> tuple[float, float]:
    """`ledl.objective.duality_gap` of one sample, and the primal objective."""
    fitted = left = l1 = steepest = 0.0
    for a in range(k):
        fitted += s[a] * b[active[a]]
        left += s[a] * c[active[a]]
        l1 += abs(s[a])
    for j in range(len(c)):
        steepest = max(steepest, c[j] if positive else abs(c[j]))
    residual_sq, residual_x = max(sq_norm - fitted - left, 0.0), sq_norm - fitted
    t = residual_x / residual_sq if residual_sq > 0 else np.inf
    t = min(t, alpha / steepest) if steepest > 0 else min(t, 1.0)
    primal = residual_sq / 2 + alpha * l1
    return primal - t * residual_x + t * t * residual_sq / 2, primal


@njit(cache=True, nogil=True, fastmath=FAST)
def _steepest(c: Array, out: Array, alpha: float, positive: bool) -> int:
    """The atom whose entry lowers the objective fastest, or -1 if none does."""
    best, value = -1, alpha
    for j in range(len(c)):
        size = c[j] if positive else abs(c[j])
        if size > value and not out[j]:
            best, value = j, size
    return best
