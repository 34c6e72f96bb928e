"""Codes of many samples over one dictionary, sample by sample, for NumPy arrays, compiled.

The plain versions are in `tests/plain_codes.py`. All is in this one file because numba's cache looks only at
the file of the function that it compiles: a change in an imported one would leave old machine code in use.

The atoms that a sample uses are kept with the Cholesky factor of their Gram matrix, as they come and go. With
A these atoms, G_AA = L L' and v what their coefficients must satisfy, G_AA s = v, the state holds
y = L^-1 v: an atom that enters adds one row to L and one number to y, and s is one triangular solve away.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from ledl.arrays import Array
from ledl.solvers.compiled.numba import FAST

# Only what is called from Python is kept on disk: it contains what it calls.
entry = njit(cache=True, nogil=True, fastmath=FAST)
called = njit(nogil=True, fastmath=FAST)
# Calls with this many arrays cost as much as the work of a sparse code.
inlined = njit(nogil=True, fastmath=FAST, inline="always")

# An atom whose squared distance to the span of those in use is below this share of its squared norm cannot be
# told from a combination of them: for a Gram matrix in float64, and in float32.
DEPENDENT, DEPENDENT_FLOAT32 = 1e-12, 1e-5
# Where steps by that measure get stuck, it is taken so much stricter, up to the last.
STRICTER, STRICTEST = 1e3, 1e-3
# All bits of a float64 but that of the sign.
ABSOLUTE = np.int64(2**63 - 1)


class InUse(NamedTuple):
    """The first k entries of each array are valid; k travels beside it."""

    atoms: Array
    s: Array  # coefficients
    sign: Array
    y: Array
    L: Array  # rows of the triangle, one after the other: row a begins at a (a + 1) / 2


@inlined
def _row(L: Array, a: int) -> Array:
    """Row a of the triangle, and what follows it (a view: indices from 0 need no test for negative ones)."""
    return L[a * (a + 1) // 2 :]


@called
def _append(G: Array, used: InUse, k: int, j: int, sign: float, v: float, dependent: float) -> bool:
    """Let atom j enter with coefficient 0; return False, with k as before, if it depends on those in use."""
    atoms, s, signs, y, L = used
    new, g, square = _row(L, k), G[j], 0.0
    for a in range(k):
        row, value = _row(L, a), g[atoms[a]]
        for m in range(a):
            value -= row[m] * new[m]
        value /= row[a]
        new[a] = value
        square += value * value
        v -= value * y[a]
    if g[j] - square <= dependent * g[j]:
        return False
    new[k] = np.sqrt(g[j] - square)
    y[k] = v / new[k]
    atoms[k], s[k], signs[k] = j, 0.0, sign
    return True


@called
def _remove(used: InUse, k: int, first: int) -> int:
    """Let the atom at place `first` leave, rotating L to a triangle again; return the new k."""
    atoms, s, sign, y, L = used
    for a in range(first, k - 1):
        atoms[a], s[a], sign[a] = atoms[a + 1], s[a + 1], sign[a + 1]
        # Row a + 1 becomes row a; what it has beyond the diagonal is rotated away.
        row = _row(L, a + 1)
        norm = np.sqrt(row[a] * row[a] + row[a + 1] * row[a + 1])
        cosine, sine = row[a] / norm, row[a + 1] / norm
        row[a] = norm
        y[a], y[a + 1] = cosine * y[a] + sine * y[a + 1], cosine * y[a + 1] - sine * y[a]
        for m in range(a + 2, k):
            row = _row(L, m)
            row[a], row[a + 1] = cosine * row[a] + sine * row[a + 1], cosine * row[a + 1] - sine * row[a]
    for a in range(first, k - 1):
        row, below = _row(L, a), _row(L, a + 1)
        for m in range(a + 1):
            row[m] = below[m]
    return k - 1


@inlined
def _solve_transposed(L: Array, v: Array, k: int) -> None:
    """v <- L'^-1 v, by rows of L."""
    for a in range(k - 1, -1, -1):
        row = _row(L, a)
        value = v[a] / row[a]
        v[a] = value
        for m in range(a):
            v[m] -= row[m] * value


@inlined
def _less_rows(base: Array, weights: Array, rows: Array, index: Array, k: int, out: Array) -> None:
    """out <- base - sum_a weights_a rows[index_a], a < k, four rows a pass to spare loads of `out`."""
    for j in range(len(out)):
        out[j] = base[j]
    for a in range(0, k - 3, 4):
        r0, r1, r2, r3 = rows[index[a]], rows[index[a + 1]], rows[index[a + 2]], rows[index[a + 3]]
        w0, w1, w2, w3 = weights[a], weights[a + 1], weights[a + 2], weights[a + 3]
        for j in range(len(out)):
            out[j] -= w0 * r0[j] + w1 * r1[j] + w2 * r2[j] + w3 * r3[j]
    for a in range(k - k % 4, k):
        row, weight = rows[index[a]], weights[a]
        for j in range(len(out)):
            out[j] -= weight * row[j]


@entry
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
    """Lasso codes of all samples, from the `codes` given; `codes`, `gaps` and `n_iter` are written.

    The atoms most correlated with the residual enter, with the signs of their correlations; as many as the
    `width`, which doubles while all of them are of use. Then the objective, quadratic while signs stay, is
    minimised over the active atoms; an atom that reaches zero on the way leaves, and the rest go on. An atom
    that is a combination of active ones takes the place of the first of them that it brings to zero. Every
    round lowers the objective, so that no active set comes twice.
    """
    K = len(G)
    triangle = np.empty((K + 1) * (K + 2) // 2)
    used = InUse(np.empty(K, np.int64), np.empty(K), np.empty(K), np.empty(K), triangle)
    c, target, kept, barred = np.empty(K), np.empty(K), np.empty(K), np.zeros(K, np.bool_)
    steep, entering = np.empty(K, np.int64), np.empty(K, np.int64)
    for i in range(len(rhs)):
        kept_gap = np.inf
        b, dependent = rhs[i], DEPENDENT if G.itemsize == 8 else DEPENDENT_FLOAT32
        k = _enter_all(G, used, b, codes[i], alpha, positive, dependent, target)
        best, width, entered, any_barred = np.inf, 2, 0, False
        for step in range(max_iter + 1):
            n_iter[i] = step
            _less_rows(b, used.s, G, used.atoms, k, c)
            n, gaps[i], primal = _look(c, b, used, k, sq_norms[i], alpha, positive, steep)
            if gaps[i] <= tol * sq_norms[i] / 2 or step == max_iter:
                break
            if primal < best:
                best = primal
                if any_barred:
                    barred[:] = False
                    any_barred = False
            else:
                # Rounding, or a tie: what entered last was of no use.
                for e in range(entered):
                    barred[entering[e]] = any_barred = True
                width = 1
            for a in range(k):
                c[used.atoms[a]] = 0.0
            entered = _steepest(c, steep, n, barred, alpha, width, entering)
            if entered == 0:
                # Atoms were taken for independent that are not, to working precision: once more, stricter.
                dependent *= STRICTER
                if not any_barred or dependent > STRICTEST:
                    break
                _write(used, k, codes[i])
                if gaps[i] < kept_gap:
                    kept[:], kept_gap = codes[i], gaps[i]
                k = _enter_all(G, used, b, codes[i], alpha, positive, dependent, target)
                barred[:] = False
                best, width, any_barred = np.inf, 2, False
                continue
            for e in range(entered):
                j = entering[e]
                sign = np.sign(c[j])
                v = b[j] - alpha * sign
                if _append(G, used, k, j, sign, v, dependent):
                    k += 1
                elif e == 0:
                    k = _exchange(G, used, k, j, sign, v, dependent, target)
                    break
            k, thrown = _settle(used, k, target)
            width = min(2 * width, K) if thrown == 0 else max(1, width // 2)
        if any_barred:
            barred[:] = False
        _write(used, k, codes[i])
        if kept_gap < gaps[i]:
            codes[i], gaps[i] = kept, kept_gap


@inlined
def _write(used: InUse, k: int, code: Array) -> None:
    for j in range(len(code)):
        code[j] = 0.0
    for a in range(k):
        code[used.atoms[a]] = used.s[a]


@called
def _enter_all(
    G: Array,
    used: InUse,
    b: Array,
    code: Array,
    alpha: float,
    positive: bool,
    dependent: float,
    target: Array,
) -> int:
    """Make the active set that of a code to start from, and minimise over it; return k."""
    k = 0
    for j in range(len(code)):
        if code[j] > 0 or (code[j] < 0 and not positive):
            sign = np.sign(code[j])
            if _append(G, used, k, j, sign, b[j] - alpha * sign, dependent):
                used.s[k] = code[j]
                k += 1
    return _settle(used, k, target)[0]  # type: ignore[no-any-return]


@called
def _settle(used: InUse, k: int, target: Array) -> tuple[int, int]:
    """Minimise over the active atoms at their signs; what reaches zero on the way leaves.

    Atoms at zero, which have just entered, leave together if they would turn at once: each of them alone would
    lower the objective, not all together. Return the new k, and how many did that.
    """
    s, sign, thrown = used.s, used.sign, 0
    while k > 0:
        target[:k] = used.y[:k]
        _solve_transposed(used.L, target, k)
        step, first, stuck = 1.0, -1, 0
        for a in range(k):
            if target[a] * sign[a] <= 0:
                if s[a] == 0:
                    stuck += 1
                elif s[a] / (s[a] - target[a]) < step or first < 0:
                    step, first = s[a] / (s[a] - target[a]), a
        if stuck > 0:
            thrown += stuck
            for a in range(k - 1, -1, -1):
                if s[a] == 0 and target[a] * sign[a] <= 0:
                    k = _remove(used, k, a)
            continue
        for a in range(k):
            s[a] += step * (target[a] - s[a])
        if first < 0:
            break
        k = _remove(used, k, first)
    return k, thrown


@called
def _exchange(G: Array, used: InUse, k: int, j: int, sign: float, v: float, dependent: float, w: Array) -> int:
    """Let atom j = sum_a w_a (atom a) enter in place of others, the fit unchanged and the l1 norm falling."""
    s, L = used.s, used.L
    start = k * (k + 1) // 2
    w[:k] = L[start : start + k]  # what `_append` left there: L^-1 times the correlations
    _solve_transposed(L, w, k)
    step, first = np.inf, -1
    for a in range(k):
        if s[a] * w[a] * sign > 0 and s[a] / (w[a] * sign) < step:
            step, first = s[a] / (w[a] * sign), a
    if first < 0:
        return k
    for a in range(k):
        s[a] -= step * sign * w[a]
    k = _remove(used, k, first)
    if _append(G, used, k, j, sign, v, dependent):
        s[k] = step * sign
        k += 1
    return k


@inlined
def _look(
    c: Array, b: Array, used: InUse, k: int, sq_norm: float, alpha: float, positive: bool, steep: Array
) -> tuple[int, float, float]:
    """Put the n atoms whose correlations exceed alpha in `steep`; return n, the gap, and the primal objective.

    The gap is `ledl.solvers.lasso.duality_gap` of one sample.
    """
    n, steepest = 0, alpha
    for j in range(len(c)):
        if abs(c[j]) > alpha and (c[j] > 0 or not positive):
            steep[n] = j
            n += 1
            steepest = max(steepest, abs(c[j]))
    fitted = left = l1 = 0.0
    for a in range(k):
        j, s = used.atoms[a], used.s[a]
        fitted += s * b[j]
        left += s * c[j]
        l1 += abs(s)
    residual_sq, residual_x = max(sq_norm - fitted - left, 0.0), sq_norm - fitted
    t = alpha / steepest
    if t * residual_sq > residual_x:
        t = max(residual_x / residual_sq, 0.0) if residual_sq > 0 else 0.0
    primal = residual_sq / 2 + alpha * l1
    return n, primal - t * residual_x + t * t * residual_sq / 2, primal


@inlined
def _steepest(c: Array, steep: Array, n: int, barred: Array, alpha: float, width: int, entering: Array) -> int:
    """Put the `width` steepest atoms that may enter in `entering`, the best first; return their number."""
    left = 0
    for e in range(n):
        if abs(c[steep[e]]) > alpha and not barred[steep[e]]:
            steep[left] = steep[e]
            left += 1
    for e in range(min(width, left)):
        best, size = e, abs(c[steep[e]])
        for f in range(e + 1, left):
            if abs(c[steep[f]]) > size:
                best, size = f, abs(c[steep[f]])
        steep[e], steep[best] = steep[best], steep[e]
        entering[e] = steep[e]
    return min(width, left)


@entry
def omp(G: Array, rhs: Array, sq_norms: Array, n_nonzero: int, codes: Array, n_iter: Array) -> None:
    """Orthogonal matching pursuit; `codes` must be zero.

    Row m of T holds the correlations of all atoms with the m-th direction of the orthonormal basis that the
    chosen atoms span, in turn: T[m, j] is both what an atom j that enters has along it, an entry of the
    Cholesky factor, and what is taken from the correlations c when the residual loses that direction.
    """
    K = len(G)
    T, c, weights = np.empty((n_nonzero, K)), np.empty(K), np.empty(n_nonzero)
    atoms, in_turn, tried = np.empty(n_nonzero, np.int64), np.arange(n_nonzero), np.empty(K, np.int64)
    for i in range(len(rhs)):
        k, n_tried, left = 0, 0, sq_norms[i]
        c[:] = rhs[i]
        while k < n_nonzero and left > DEPENDENT * sq_norms[i]:
            j = _largest(c)
            if j < 0:
                break
            tried[n_tried] = j
            n_tried += 1
            square = G[j, j]
            for m in range(k):
                weights[m] = T[m, j]
                square -= T[m, j] ** 2
            if square > DEPENDENT * G[j, j]:
                direction = T[k]
                _less_rows(G[j], weights, T, in_turn, k, direction)
                # It gets norm 1, and the residual loses it.
                scale = 1 / np.sqrt(square)
                y = c[j] * scale
                for a in range(K):
                    direction[a] *= scale
                    c[a] -= y * direction[a]
                atoms[k], codes[i, j] = j, y
                left -= y * y
                k += 1
            for e in range(n_tried):
                c[tried[e]] = 0.0
        n_iter[i] = k
        # What `codes` holds is y: s = L'^-1 y, with L[a, m] = T[m, atoms[a]].
        for a in range(k - 1, -1, -1):
            value = codes[i, atoms[a]] / T[a, atoms[a]]
            codes[i, atoms[a]] = value
            for m in range(a):
                codes[i, atoms[m]] -= T[m, atoms[a]] * value


@inlined
def _largest(c: Array) -> int:
    """Return the place of the largest correlation, or -1 if they are all zero.

    Read as integers, absolute values of floats have the same order; and only maxima of integers are vectorised.
    """
    bits, largest = c.view(np.int64), np.int64(0)
    for j in range(len(bits)):
        largest = max(largest, bits[j] & ABSOLUTE)
    for j in range(len(bits)):
        if largest > 0 and bits[j] & ABSOLUTE == largest:
            return j
    return -1
