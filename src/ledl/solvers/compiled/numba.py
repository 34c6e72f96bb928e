"""Hot loops for NumPy arrays. Imported on first use; compiled code is cached on disk."""

from __future__ import annotations

import numpy as np
from numba import njit

from ledl.arrays import Array

# Sums may be reordered, so that they vectorise; NaN and infinity keep their meaning.
FAST = {"reassoc", "contract", "nsz"}


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
    """`ledl.solvers.atoms.update_block_plain` for NumPy arrays."""
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


@njit(cache=True, nogil=True, fastmath=FAST)
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


@njit(cache=True, nogil=True, fastmath=FAST)
def _update_part(numerator: Array, g: float, m: Array, change: Array, radius: float, floor: float) -> float:
    """m <- numerator + g m, scaled to its radius; and <numerator + g m, change of m>."""
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


@njit(cache=True, nogil=True, fastmath=FAST, inline="always")
def _subtract_earlier(row: Array, g: Array, D: Array) -> None:
    """row -= g D, four rows of D a pass to spare loads of `row`."""
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
    """`ledl.solvers.ledl.shrink_plain` for NumPy arrays, in one pass."""
    Z, new_L = np.empty_like(C), np.empty_like(L)
    *problems, n, K = C.shape
    scalars = np.zeros((*problems, 5))
    epsilon, rho = (np.broadcast_to(x, (*problems, 1, 1)).reshape(-1) for x in (epsilon, rho))
    arrays = (x.reshape(-1, n * K) for x in (C, old, L, Z, new_L))
    _shrink(*arrays, epsilon, rho, C.dtype.type(theta), scalars.reshape(-1, 5))
    return Z, new_L, scalars


@njit(cache=True, nogil=True, fastmath=FAST)
def _shrink(
    C: Array,
    old: Array,
    L: Array,
    Z: Array,
    new_L: Array,
    epsilon: Array,
    rho: Array,
    theta: float,
    scalars: Array,
) -> None:
    for p in range(len(C)):
        inverse, threshold = 1 / rho[p], epsilon[p] / rho[p]
        l1 = multiplier = gap_sq = change_sq = nonzeros = 0.0
        for i in range(C.shape[1]):
            v = C[p, i] + L[p, i] * inverse
            z = v - min(max(v, -threshold), threshold)
            gap = C[p, i] - z
            dual = L[p, i] + theta * gap
            change = z - old[p, i]
            Z[p, i], new_L[p, i] = z, dual
            l1 += abs(z)
            multiplier += dual * gap
            gap_sq += gap * gap
            change_sq += change * change
            nonzeros += z != 0
        scalars[p] = l1, multiplier, gap_sq, change_sq, nonzeros


def pull(products: Array, Z: Array, L: Array, rho: Array, label_rows: Array, labels: Array) -> Array:
    """`ledl.solvers.ledl.pull_plain` for NumPy arrays, in one pass and in place."""
    if products.shape != Z.shape:  # one block of samples for several problems
        products = np.broadcast_to(products, Z.shape).copy()
    *problems, n, K = Z.shape
    c = label_rows.shape[-2]
    rho = np.broadcast_to(rho, (*problems, 1, 1)).reshape(-1)
    rows = np.broadcast_to(label_rows, (*problems, c, K)).reshape(-1, c, K)
    own = np.broadcast_to(labels, (*problems, n)).reshape(-1, n)
    _pull(*(x.reshape(-1, n, K) for x in (products, Z, L)), rho, rows, own)
    return products


@njit(cache=True, nogil=True, fastmath=FAST)
def _pull(products: Array, Z: Array, L: Array, rho: Array, rows: Array, own: Array) -> None:
    for p in range(len(Z)):
        for i in range(Z.shape[1]):
            row = rows[p, own[p, i]]
            for k in range(Z.shape[2]):
                products[p, i, k] += rho[p] * Z[p, i, k] - L[p, i, k] + row[k]


def reflect(
    v: Array, product: Array, ridge: Array, relaxation: float, threshold: Array, positive: bool
) -> tuple[Array, Array]:
    """`ledl.solvers.lasso.reflect_plain` for NumPy arrays, in one pass; v and the product are overwritten."""
    *problems, n, K = v.shape
    v, product, ridge = (np.require(x, requirements=["C", "W"]) for x in (v, product, ridge))
    upper = np.broadcast_to(threshold, (*problems, 1, 1)).astype(v.dtype).reshape(-1)
    lower = np.full_like(upper, -np.inf) if positive else -upper
    _reflect(*(x.reshape(-1, n * K) for x in (v, product, ridge)), lower, upper, v.dtype.type(relaxation))
    return v, product


@njit(cache=True, nogil=True, fastmath=FAST)
def _reflect(v: Array, product: Array, ridge: Array, lower: Array, upper: Array, relaxation: float) -> None:
    for p in range(len(v)):
        lowest, limit = lower[p], upper[p]
        for i in range(v.shape[1]):
            old = v[p, i]
            s = old - min(max(old, lowest), limit)
            new = old + relaxation * (product[p, i] + ridge[p, i] - s)
            s = new - min(max(new, lowest), limit)
            v[p, i], product[p, i] = new, s + s - new
