"""Orthogonal matching pursuit: codes with a given number of non-zeros, from a Gram matrix."""

from __future__ import annotations

import numpy as np

from ledl.arrays import Array
from ledl.solvers import compiled


def omp(G: Array, rhs: Array, sq_norms: Array, n_nonzero: int) -> tuple[Array, Array]:
    """Codes with at most `n_nonzero` non-zeros; and how many atoms each took.

    A sample takes fewer where its residual vanishes, or where no atom is left that is independent of those that
    it has. As in batch OMP (Rubinstein, Zibulevsky and Elad, 2008) all comes from the Gram matrix: no residual
    is formed.

    Parameters
    ----------
    G : (K, K)
        Gram matrix of the atoms.
    rhs : (n, K)
        Correlations of the samples with the atoms.
    sq_norms : (n,)
        Squared norms of the samples.
    n_nonzero : int
    """
    loop = compiled.find("omp", rhs)
    if loop is None:
        raise TypeError(f"omp works on NumPy arrays only; rhs is a {type(rhs).__name__}. Convert it.")
    n, K = rhs.shape
    if G.shape != (K, K) or sq_norms.shape != (n,):  # the compiled loop checks no bounds
        raise ValueError(f"G, rhs and sq_norms have shapes {G.shape}, {rhs.shape} and {sq_norms.shape}.")
    G, rhs, sq_norms = (np.require(x, np.float64, ["C", "W"]) for x in (G, rhs, sq_norms))
    codes, n_iter = np.zeros((n, K)), np.zeros(n, dtype=np.int64)
    loop(G, rhs, sq_norms, min(n_nonzero, K), codes, n_iter)
    return codes, n_iter


def omp_plain(D: Array, x: Array, n_nonzero: int) -> Array:
    """The code of one sample by definition: the atom most correlated with the residual, then least squares."""
    chosen: list[int] = []
    s, residual = np.zeros(len(D)), x
    while len(chosen) < n_nonzero:
        c = np.abs(D @ residual)
        c[chosen] = 0
        chosen.append(int(c.argmax()))
        s[chosen] = np.linalg.lstsq(D[chosen].T, x, rcond=None)[0]
        residual = x - s @ D
    return s
