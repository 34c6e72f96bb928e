"""The normalised block Gauss-Seidel sweep over atoms: the one update of B, W and A.

Atoms are rows m_k of M, and an atom has parts: groups of columns, each of a given norm, its radius. With
the codes C fixed and E = T - C M, atom k is updated in turn, all earlier ones being new:

    m_k <- scaled to its radii, part by part,   C_k'T - sum_{p != k} G_kp m_p,      G = C'C

which minimises |T - C M|^2 over each part of m_k on its sphere. Writing D for the change of the atoms so
far, the numerator is S_k + G_kk m_k - sum_{p < k} G_kp D_p with S = C'E. Blocks of atoms make the sum over
earlier blocks a matrix product; only the sum inside a block is sequential.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from ledl.arrays import Array, add_product, namespace
from ledl.solvers import compiled

# Big enough for the products between blocks to run at BLAS speed, small enough for the
# sequential part (K * BLOCK * q flops) not to dominate.
BLOCK = 48

# An atom is unused, and stays as it is, if the norm of its numerator is below this share of its target's norm.
UNUSED = 1e-12


@dataclass(frozen=True)
class Sums:
    """G (..., K, K) and S (..., K, q) themselves."""

    G: Array
    S: Array

    def of_block(self, rows: slice, D: Array) -> tuple[Array, Array]:
        """Return S of a block of atoms, corrected for the change D of earlier atoms, and its part of G."""
        earlier = self.G[..., rows, : rows.start] @ D[..., : rows.start, :]
        return self.S[..., rows, :] - earlier, self.G[..., rows, rows]

    def sums(self) -> Sums:
        """Return G and S themselves."""
        return self

    def __iadd__(self, other: Equations) -> Sums:
        summed, G, S = other.sums(), self.G, self.S
        G += summed.G
        S += summed.S
        return Sums(G, S)


@dataclass
class Factors:
    """C (..., n, K) and E (..., n, q) themselves, whose products a sweep makes as it needs them.

    A sweep keeps E = T - C M up to date with the first `done` atoms; a NumPy E is overwritten. Factors of
    several blocks are joined while they are smaller than the sums: with fewer samples than atoms.
    """

    C: Array
    E: Array
    done: int = 0

    def of_block(self, rows: slice, D: Array) -> tuple[Array, Array]:
        if rows.start > self.done:
            before = slice(self.done, rows.start)
            self.E = add_product(self.E, self.C[..., before], D[..., before, :], -1.0)
            self.done = rows.start
        C = self.C[..., rows]
        return C.mT @ self.E, C.mT @ C

    def sums(self) -> Sums:
        return Sums(self.C.mT @ self.C, self.C.mT @ self.E)

    def __add__(self, other: Equations) -> Equations:
        n, K = self.C.shape[-2:]
        if isinstance(other, Factors) and n + other.C.shape[-2] < K:
            concat = namespace(self.C).concat
            return Factors(concat((self.C, other.C), axis=-2), concat((self.E, other.E), axis=-2))
        summed = self.sums()
        summed += other
        return summed


# The equations of the atoms, G = C'C and S = C'E, in one form or the other. Those of blocks of samples add up.
Equations: TypeAlias = Sums | Factors


def factors_are_cheaper(n: int, K: int, q: int) -> bool:
    """Return True if a sweep over K atoms takes less time with `Factors` of n samples than with `Sums`.

    Sums take n K (K + 2 q) operations, and then K^2 q. Factors take n K (4 q + BLOCK), but in products of BLOCK
    columns, which have about 4/5 of the speed (benchmarks/slopes.py).
    """
    return 5 * n * (4 * q + BLOCK) < 4 * (n * (K + 2 * q) + K * q)


def sweep(
    equations: Equations, M: Array, bounds: tuple[int, ...], radii: Array, target_norms: Array
) -> tuple[Array, Array]:
    """Update all atoms, one after the other.

    Parameters
    ----------
    equations : Sums or Factors
        Equations at the given M. `Factors` are overwritten.
    M : (..., K, q)
        Atoms as rows, each part on its sphere.
    bounds : tuple of int
        First column of each part, and q: part j is ``bounds[j]:bounds[j + 1]``.
    radii : (..., n_parts)
        Norms of the parts of an atom.
    target_norms : (..., n_parts)
        Norms of the parts of T.

    Returns
    -------
    M : (..., K, q)
        The new atoms.
    decrease : (..., n_parts)
        Decrease of |T - C M|^2, part by part, in float64. It is not negative, except by rounding.
    """
    xp = namespace(M)
    update_block = compiled.find("update_block", M) or update_block_plain
    M, D = xp.asarray(M, copy=True), xp.zeros_like(M)
    shape = (*M.shape[:-2], len(bounds) - 1)
    decrease = xp.zeros(shape, dtype=xp.float64, device=M.device)
    floors, radii = (xp.broadcast_to(x, shape) for x in (UNUSED * target_norms, radii))
    K = M.shape[-2]
    for first in range(0, K, BLOCK):
        rows = slice(first, min(first + BLOCK, K))
        S, G = equations.of_block(rows, D)
        decrease += update_block(G, S, M, D, first, bounds, radii, floors)
    return M, decrease


def update_block_plain(
    G: Array,
    S: Array,
    M: Array,
    D: Array,
    first: int,
    bounds: tuple[int, ...],
    radii: Array,
    floors: Array,
) -> Array:
    """Update atoms `first`, `first` + 1, ... in turn; M and their change D in place.

    G and S are the block's own. Return the decrease of |T - C M|^2 by parts.
    """
    xp = namespace(M)
    decrease = xp.zeros(floors.shape, dtype=xp.float64, device=M.device)
    for i in range(S.shape[-2]):
        k = first + i
        earlier = G[..., i : i + 1, :i] @ D[..., first:k, :]
        numerator = S[..., i, :] + G[..., i, i][..., None] * M[..., k, :] - earlier[..., 0, :]
        for j, (start, stop) in enumerate(pairwise(bounds)):
            part = numerator[..., start:stop]
            norm = xp.linalg.vector_norm(part, axis=-1, keepdims=True)
            used = norm > floors[..., j : j + 1]
            old = M[..., k, start:stop]
            scale = radii[..., j : j + 1] / xp.where(used, norm, xp.ones_like(norm))
            new = xp.where(used, part * scale, old)
            change = new - old
            D[..., k, start:stop] = change
            M[..., k, start:stop] = new
            # On the sphere, |T - C M|^2 is -2 <numerator, m_k> and a constant.
            decrease[..., j] += 2 * xp.sum(xp.astype(part * change, xp.float64), axis=-1)
    return decrease
