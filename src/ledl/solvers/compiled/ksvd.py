"""The update of K-SVD's atoms, for NumPy arrays, compiled; the plain version is in `ledl.solvers.ksvd`."""

from __future__ import annotations

import numpy as np
from numba import njit

from ledl.arrays import Array
from ledl.solvers.compiled.numba import FAST


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
        norm = 0.0
        for j in range(q):
            new[j] += squares * old[j]
            norm += new[j] * new[j]
        if norm <= 0.0:
            continue
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
