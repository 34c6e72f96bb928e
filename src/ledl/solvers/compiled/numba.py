"""Hot loops for NumPy arrays. Imported on first use; compiled code is cached on disk.

All are in this one file because numba's cache checks only the file of the function that it compiles: after a
change in an imported file, old machine code would stay in use. Their plain versions are in the modules that
call them; those for the code of one sample are in `tests/helpers/plain_codes.py`.

Codes: the atoms that a sample uses are kept with the Cholesky factor of their Gram matrix, as they enter and
leave. With A these atoms, G_AA = L L' and G_AA s = v the equations of their coefficients s, the state holds
y = L^-1 v: an atom that enters adds one row to L and one number to y, and one triangular solve gives s.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numba.core.caching import FunctionCache

from ledl.arrays import Array

# Sums may be reordered, so that they vectorise; NaN and infinity keep their meaning.
FAST = {"reassoc", "contract", "nsz"}


class ForgivingCache(FunctionCache):
    """Compiled code on disk. A full disk or a damaged file costs the time to compile again, and no more."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except Exception:  # damage can raise anything
            with suppress(OSError):
                self.flush()  # so that the new code replaces it
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        with suppress(Exception):
            super().save_overload(sig, data)


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator: compile a function when it is first called, and keep the code if there is a place."""

    def compile_later(function: Callable[..., Any]) -> Any:
        loop = njit(nogil=True, **options)(function)
        with suppress(OSError, RuntimeError):  # no folder can be written to
            loop._cache = ForgivingCache(function)  # as cache=True does, with numba's own
        return loop

    return compile_later


def update_block(
    G: Array,
    S: Array,
    M: Array,
    D: Array,
    first: int,
    bounds: tuple[int, ...],
    radii: Array,
    floors: Array,
) -> Array:
    """Return the result of `ledl.solvers.atoms.update_block_plain`, for NumPy arrays."""
    (K, q), size, n_parts = M.shape[-2:], S.shape[-2], len(bounds) - 1
    decrease = np.zeros(floors.shape)
    _update_block(
        np.ascontiguousarray(G).reshape(-1, size, size),
        np.ascontiguousarray(S).reshape(-1, size, q),
        M.reshape(-1, K, q),
        D.reshape(-1, K, q),
        first,
        bounds,
        np.ascontiguousarray(radii, dtype=np.float64).reshape(-1, n_parts),
        np.ascontiguousarray(floors, dtype=np.float64).reshape(-1, n_parts),
        decrease.reshape(-1, n_parts),
    )
    return decrease


@compiled(fastmath=FAST)
def _update_block(
    G: Array,
    S: Array,
    M: Array,
    D: Array,
    first: int,
    bounds: tuple[int, ...],
    radii: Array,
    floors: Array,
    decrease: Array,
) -> None:
    n_problems, n_rows, _ = S.shape
    for p in range(n_problems):
        for i in range(n_rows):
            k = first + i
            numerator = S[p, i]
            _subtract_earlier(numerator, G[p, i, :i], D[p, first:k])
            for j in range(len(bounds) - 1):
                part = slice(bounds[j], bounds[j + 1])
                decrease[p, j] += 2.0 * _update_part(
                    numerator[part], G[p, i, i], M[p, k, part], D[p, k, part], radii[p, j], floors[p, j]
                )


@compiled(fastmath=FAST)
def _update_part(numerator: Array, g: float, m: Array, change: Array, radius: float, floor: float) -> float:
    """Set m to numerator + g m, scaled to its radius; return <numerator + g m, change of m>."""
    square = along_old = 0.0
    for i in range(len(m)):
        numerator[i] += g * m[i]
        square += np.float64(numerator[i]) * numerator[i]
        along_old += np.float64(numerator[i]) * m[i]
    norm = np.sqrt(square)
    if norm <= floor:
        return 0.0
    scale = numerator.dtype.type(radius / norm)
    for i in range(len(m)):
        new = numerator[i] * scale
        change[i] = new - m[i]
        m[i] = new
    return radius * norm - along_old  # type: ignore[no-any-return]


@compiled(fastmath=FAST, inline="always")
def _subtract_earlier(row: Array, g: Array, D: Array) -> None:
    """Subtract g D from `row`, four rows of D in a pass, to save loads of `row`."""
    p = 0
    while p + 4 <= len(g):
        a, b, c, d = g[p], g[p + 1], g[p + 2], g[p + 3]
        for column in range(len(row)):
            row[column] -= a * D[p, column] + b * D[p + 1, column] + c * D[p + 2, column] + d * D[p + 3, column]
        p += 4
    while p < len(g):
        for column in range(len(row)):
            row[column] -= g[p] * D[p, column]
        p += 1


def shrink(
    C: Array, old: Array, L: Array, epsilon: Array, rho: Array, theta: float
) -> tuple[Array, Array, Array]:
    """Return the result of `ledl.solvers.ledl.shrink_plain` in one pass; Z and L are in the memory of the old.

    New memory of this size would cost more time than the pass: the system clears it page by page.
    """
    *problems, n, K = C.shape
    scalars = np.zeros((*problems, 5))
    epsilon, rho = (np.broadcast_to(x, (*problems, 1, 1)).reshape(-1) for x in (epsilon, rho))
    Z, L = (np.require(x, requirements=["C", "W"])[...] for x in (old, L))
    arrays = (x.reshape(-1, n * K) for x in (C, Z, L))
    _shrink(*arrays, epsilon, rho, C.dtype.type(theta), scalars.reshape(-1, 5))
    return Z, L, scalars


@compiled(fastmath=FAST)
def _shrink(C: Array, Z: Array, L: Array, epsilon: Array, rho: Array, theta: float, scalars: Array) -> None:
    for p in range(len(C)):
        inverse, threshold = 1 / rho[p], epsilon[p] / rho[p]
        l1 = multiplier = gap_sq = change_sq = nonzeros = 0.0
        for i in range(C.shape[1]):
            v = C[p, i] + L[p, i] * inverse
            z = v - min(max(v, -threshold), threshold)
            gap = C[p, i] - z
            dual = L[p, i] + theta * gap
            change = z - Z[p, i]
            Z[p, i], L[p, i] = z, dual
            l1 += abs(z)
            multiplier += dual * gap
            gap_sq += gap * gap
            change_sq += change * change
            nonzeros += z != 0
        scalars[p] = l1, multiplier, gap_sq, change_sq, nonzeros


def pull(products: Array, Z: Array, L: Array, rho: Array, label_rows: Array, labels: Array) -> Array:
    """Return the result of `ledl.solvers.ledl.pull_plain`, for NumPy arrays, in one pass and in place."""
    if products.shape != Z.shape:  # several problems share one block of samples
        products = np.broadcast_to(products, Z.shape).copy()
    *problems, n, K = Z.shape
    c = label_rows.shape[-2]
    rho = np.broadcast_to(rho, (*problems, 1, 1)).reshape(-1)
    rows = np.broadcast_to(label_rows, (*problems, c, K)).reshape(-1, c, K)
    own = np.broadcast_to(labels, (*problems, n)).reshape(-1, n)
    _pull(*(x.reshape(-1, n, K) for x in (products, Z, L)), rho, rows, own)
    return products


@compiled(fastmath=FAST)
def _pull(products: Array, Z: Array, L: Array, rho: Array, rows: Array, own: Array) -> None:
    for p in range(len(Z)):
        for i in range(Z.shape[1]):
            row = rows[p, own[p, i]]
            for k in range(Z.shape[2]):
                products[p, i, k] += rho[p] * Z[p, i, k] - L[p, i, k] + row[k]


def reflect(
    v: Array, product: Array, ridge: Array, relaxation: float, threshold: Array, positive: bool
) -> tuple[Array, Array]:
    """Return the result of `ledl.solvers.lasso.reflect_plain` in one pass; v and `product` are overwritten."""
    *problems, n, K = v.shape
    v, product, ridge = (np.require(x, requirements=["C", "W"]) for x in (v, product, ridge))
    upper = np.broadcast_to(threshold, (*problems, 1, 1)).astype(v.dtype).reshape(-1)
    lower = np.full_like(upper, -np.inf) if positive else -upper
    _reflect(*(x.reshape(-1, n * K) for x in (v, product, ridge)), lower, upper, v.dtype.type(relaxation))
    return v, product


@compiled(fastmath=FAST)
def _reflect(v: Array, product: Array, ridge: Array, lower: Array, upper: Array, relaxation: float) -> None:
    for p in range(len(v)):
        lowest, limit = lower[p], upper[p]
        for i in range(v.shape[1]):
            old = v[p, i]
            s = old - min(max(old, lowest), limit)
            new = old + relaxation * (product[p, i] + ridge[p, i] - s)
            s = new - min(max(new, lowest), limit)
            v[p, i], product[p, i] = new, s + s - new


@compiled(fastmath=FAST)
def keep_better_codes(codes: Array, T: Array, M: Array, S: Array, E: Array) -> None:
    """Replace codes as `ledl.solvers.ksvd.keep_better_codes_plain` does, with only the non-zeros of codes."""
    n, K = codes.shape
    q = T.shape[1]
    rest = np.empty(q)
    for i in range(n):
        rest[:] = T[i]
        code = codes[i]
        for k in range(K):
            value = code[k]
            if value != 0.0:
                atom = M[k]
                for j in range(q):
                    rest[j] -= value * atom[j]
        new, old, row = 0.0, 0.0, E[i]
        for j in range(q):
            new += rest[j] * rest[j]
            old += row[j] * row[j]
        if new <= old:
            row[:] = rest
            S[i] = code


@compiled(fastmath=FAST)
def update_used_atoms(M: Array, S: Array, E: Array, users: Array, starts: Array) -> None:
    """Update atoms as `ledl.solvers.ksvd.update_used_atoms_plain` does, without copies of residuals."""
    K, q = M.shape
    new = np.empty(q)
    for k in range(K):
        mine = users[starts[k] : starts[k + 1]]
        old = M[k]
        squares = 0.0
        new[:] = 0.0
        for i in mine:
            g, row = S[i, k], E[i]
            squares += g * g
            for j in range(q):
                new[j] += g * row[j]
        largest = 0.0
        for j in range(q):
            new[j] += squares * old[j]
            largest = max(largest, abs(new[j]))
        if largest <= 0.0:
            continue
        norm = 0.0
        for j in range(q):
            new[j] /= largest  # the square of a square may overflow
            norm += new[j] * new[j]
        norm = np.sqrt(norm)
        cosine = 0.0
        for j in range(q):
            new[j] /= norm
            cosine += new[j] * old[j]
        for i in mine:
            g, row = S[i, k], E[i]
            value = g * cosine
            for j in range(q):
                value += row[j] * new[j]
            for j in range(q):
                row[j] += g * old[j] - value * new[j]
            S[i, k] = value
        old[:] = new


# Only functions that Python calls are cached on disk: they contain the functions that they call.
entry = compiled(fastmath=FAST)
called = njit(nogil=True, fastmath=FAST)
# A call with this many arrays costs as much as computing a sparse code.
inlined = njit(nogil=True, fastmath=FAST, inline="always")

# An atom counts as a combination of the atoms in use if its squared distance to their span is below this share
# of its squared norm: for a Gram matrix in float64, and in float32.
DEPENDENT, DEPENDENT_FLOAT32 = 1e-12, 1e-5
# If steps with that limit get stuck, it is multiplied by the first number, up to the second.
STRICTER, STRICTEST = 1e3, 1e-3
# All bits of a float64 except the sign.
ABSOLUTE = np.int64(2**63 - 1)


class InUse(NamedTuple):
    """The atoms in use: the first k entries of each array are valid, and k is passed separately."""

    atoms: Array
    s: Array  # coefficients
    sign: Array
    y: Array
    L: Array  # rows of the triangle, one after the other: row a begins at a (a + 1) / 2


@inlined
def _row(L: Array, a: int) -> Array:
    """Return row a of the triangle, and all after it (a view: no test for negative indices is needed)."""
    return L[a * (a + 1) // 2 :]


@called
def _append(G: Array, used: InUse, k: int, j: int, sign: float, v: float, dependent: float) -> bool:
    """Add atom j with coefficient 0; return False, and add nothing, if it depends on the atoms in use."""
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
    """Remove the atom at place `first`, rotating L to a triangle again; return the new k."""
    atoms, s, sign, y, L = used
    for a in range(first, k - 1):
        atoms[a], s[a], sign[a] = atoms[a + 1], s[a + 1], sign[a + 1]
        # Row a + 1 becomes row a; its entry beyond the diagonal is rotated away.
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
    """Replace v by L'^-1 v, row by row of L."""
    for a in range(k - 1, -1, -1):
        row = _row(L, a)
        value = v[a] / row[a]
        v[a] = value
        for m in range(a):
            v[m] -= row[m] * value


@inlined
def _less_rows(base: Array, weights: Array, rows: Array, index: Array, k: int, out: Array) -> None:
    """Set `out` to base - sum_{a < k} weights_a rows[index_a], four rows in a pass, to save loads of `out`."""
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
    """Compute lasso codes of all samples, starting from `codes`; write `codes`, `gaps` and `n_iter`.

    The `width` atoms most correlated with the residual enter, with the signs of their correlations; `width`
    doubles while all of them are useful, and begins again at 1 where the active atoms span the others. Then the
    objective, quadratic while signs stay, is minimised over the active atoms; an atom that reaches zero on the
    way leaves, and the others continue. An atom that is a combination of active ones replaces the first of them
    that it brings to zero. Every round lowers the objective, so no active set comes twice.
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
                # Rounding, or a tie: the atoms that entered last were useless.
                for e in range(entered):
                    barred[entering[e]] = any_barred = True
                width = 1
            for a in range(k):
                c[used.atoms[a]] = 0.0
            entered = _steepest(c, steep, n, barred, alpha, width, entering)
            if entered == 0:
                # Atoms counted as independent that are not, to working precision: try again, stricter.
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
                    width = 1  # most atoms now take the place of another, one in a round
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
    """Make the non-zeros of a code the active set, and minimise over it; return k."""
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
    """Minimise over the active atoms at their signs; atoms that reach zero on the way leave.

    Atoms at zero, which have just entered, leave together if their signs would change at once: each of them
    alone would lower the objective, but not all together. Return the new k, and the number of such atoms.
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
    """Add atom j = sum_a w_a (atom a) in place of others: the fit stays, the l1 norm falls. Return k."""
    s, L = used.s, used.L
    start = k * (k + 1) // 2
    w[:k] = L[start : start + k]  # as `_append` left it: L^-1 times the correlations
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
    """Compute codes by orthogonal matching pursuit; `codes` must be zero.

    Row m of T holds the correlations of all atoms with the m-th direction of the orthonormal basis that the
    chosen atoms span, in turn. T[m, j] is the component along it of an atom j that enters, an entry of the
    Cholesky factor; times y, it is subtracted from the correlations c when the residual loses that direction.
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
                # The direction gets norm 1, and the residual loses it.
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
        # `codes` holds y: s = L'^-1 y, with L[a, m] = T[m, atoms[a]].
        for a in range(k - 1, -1, -1):
            value = codes[i, atoms[a]] / T[a, atoms[a]]
            codes[i, atoms[a]] = value
            for m in range(a):
                codes[i, atoms[m]] -= T[m, atoms[a]] * value


@inlined
def _largest(c: Array) -> int:
    """Return the place of the largest correlation, or -1 if they are all zero.

    Absolute values of floats have the same order as integers, and only maxima of integers are vectorised.
    """
    bits, largest = c.view(np.int64), np.int64(0)
    for j in range(len(bits)):
        largest = max(largest, bits[j] & ABSOLUTE)
    for j in range(len(bits)):
        if largest > 0 and bits[j] & ABSOLUTE == largest:
            return j
    return -1


def nearest(products: Array, squares: Array, k: int, first: int) -> tuple[Array, Array]:
    """Return the indices and |y|^2 - 2 <x, y> of the k nearest points y of each row x, nearest first.

    `products` are <x, y>, `squares` |y|^2. If first >= 0, row i is the point first + i itself.
    """
    shape = len(products), k
    index, found = np.empty(shape, dtype=np.int64), np.empty(shape, dtype=products.dtype)
    _nearest(products, squares, first, index, found)
    return index, found


@compiled()
def _nearest(products: Array, squares: Array, first: int, index: Array, found: Array) -> None:
    m, n = products.shape
    k = index.shape[1]
    for i in range(m):
        own, values = index[i], found[i]
        values[:] = np.inf
        own[:] = 0
        itself = first + i if first >= 0 else -1
        for j in range(n):
            value = squares[j] - 2 * products[i, j]
            if value < values[k - 1] and j != itself:
                place = k - 1
                while place > 0 and values[place - 1] > value:
                    values[place], own[place] = values[place - 1], own[place - 1]
                    place -= 1
                values[place], own[place] = value, j
