"""The normalised block Gauss-Seidel sweep over atoms: the one update of B, W and A.

Atoms are rows m_k of M, and an atom has parts: groups of columns, each of norm 1. With the
codes fixed, G = C'C and S = C'(T - C M), atom k is updated in turn, all earlier ones being new,

    m_k <- unit, part by part, of   C_k'T - sum_{p != k} G_kp m_p

which minimises |T - C M|^2 over each part of m_k on its sphere. Writing D for the change of
the atoms so far, the numerator is S_k + G_kk m_k - sum_{p < k} G_kp D_p. Blocks of atoms make
the sum over earlier blocks one matrix product; only the sum inside a block is sequential.
"""

from __future__ import annotations

import itertools

from ledl.arrays import Array, namespace
from ledl.solvers import compiled

# Big enough for the products between blocks to run at BLAS speed, small enough for the
# sequential part (K * BLOCK * q flops of K^2 q in all) not to dominate.
BLOCK = 48

# A numerator below this share of its target's norm is an atom that nobody uses: it stays.
UNUSED = 1e-12


def sweep(G: Array, S: Array, M: Array, bounds: tuple[int, ...], target_norms: Array) -> tuple[Array, Array]:
    """One sweep over all atoms.

    Parameters
    ----------
    G : (..., K, K)
        C'C.
    S : (..., K, q)
        C'(T - C M), at the given M.
    M : (..., K, q)
        Atoms as rows, each part of norm 1.
    bounds : tuple of int
        Columns where the parts begin, and q: part j is ``bounds[j]:bounds[j + 1]``.
    target_norms : (..., n_parts)
        Norms of the parts of T.

    Returns
    -------
    M : (..., K, q)
        The new atoms.
    decrease : (..., n_parts)
        By how much |T - C M|^2 fell, part by part; never negative but for rounding. In float64.
    """
    xp = namespace(M)
    update_block = compiled.find("update_block", M) or update_block_plain
    M = xp.asarray(M, copy=True)
    D = xp.zeros_like(M)
    shape = (*M.shape[:-2], len(bounds) - 1)
    floors = xp.asarray(xp.broadcast_to(UNUSED * target_norms, shape), copy=True)
    decrease = xp.zeros_like(floors)
    for first in range(0, M.shape[-2], BLOCK):
        rows = slice(first, min(first + BLOCK, M.shape[-2]))
        S_rows = S[..., rows, :] - G[..., rows, :first] @ D[..., :first, :]
        decrease += update_block(G, S_rows, M, D, first, bounds, floors)
    return M, decrease


def update_block_plain(
    G: Array, S: Array, M: Array, D: Array, first: int, bounds: tuple[int, ...], floors: Array
) -> Array:
    """Atoms `first`, `first` + 1, ... in turn; M and their change D in place.

    S has the rows of the block only, corrected for the atoms before it.
    """
    xp = namespace(M)
    decrease = xp.zeros_like(floors)
    for i in range(S.shape[-2]):
        k = first + i
        earlier = G[..., k : k + 1, first:k] @ D[..., first:k, :]
        numerator = S[..., i, :] + G[..., k, k][..., None] * M[..., k, :] - earlier[..., 0, :]
        for j, (start, stop) in enumerate(itertools.pairwise(bounds)):
            part = numerator[..., start:stop]
            norm = xp.linalg.vector_norm(part, axis=-1, keepdims=True)
            used = norm > floors[..., j : j + 1]
            old = M[..., k, start:stop]
            new = xp.where(used, part / xp.where(used, norm, xp.ones_like(norm)), old)
            change = new - old
            D[..., k, start:stop] = change
            M[..., k, start:stop] = new
            # On the sphere, |T - C M|^2 is -2 <numerator, m_k> and a constant.
            decrease[..., j] += 2 * xp.sum(xp.astype(part * change, floors.dtype), axis=-1)
    return decrease
