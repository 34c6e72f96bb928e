"""K-SVD's loops for NumPy arrays, compiled; the plain versions are in `ledl.solvers.ksvd`."""

from __future__ import annotations

import numpy as np
from numba import njit

from ledl.arrays import Array
from ledl.solvers.compiled.numba import FAST


@njit(cache=True, nogil=True, fastmath=FAST)
def keep_better_codes(codes: Array, T: Array, M: Array, S: Array, E: Array) -> None:
    """As in the plain version, with the non-zeros of codes alone."""
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


@njit(cache=True, nogil=True, fastmath=FAST)
def update_used_atoms(M: Array, S: Array, E: Array, users: Array, starts: Array) -> None:
    """As in the plain version, in two passes over the residuals; those without the atom are not stored."""
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
