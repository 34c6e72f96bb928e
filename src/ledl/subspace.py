"""The coordinates that training runs in.

X = R O with orthonormal rows in O; every atom that Algorithm 3 makes is a combination of
samples, so B = B_r O, and training on R with B_r gives the same numbers as on X with B,
whatever the number of features. `reduce` takes samples (or atoms) to these coordinates,
`expand` takes atoms back. What lies outside the span is lost in `reduce`: a caller that needs
the norms of samples takes them before.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from ledl.arrays import Array, row_factorization


class Subspace(Protocol):
    """Where training runs: coordinates of samples, and atoms back in the features' space."""

    def reduce(self, Y: Array) -> Array:
        """Coordinates of the rows of Y: (m, d) -> (m, r)."""

    def expand(self, B: Array) -> Array:
        """Rows in the features' space: (K, r) -> (K, d)."""


class IdentitySubspace(NamedTuple):
    """The features themselves: at least as many samples as features."""

    def reduce(self, Y: Array) -> Array:
        return Y

    def expand(self, B: Array) -> Array:
        return B


class RowSpace(NamedTuple):
    """The span of fewer samples than features, by an orthonormal basis of rows."""

    basis: Array

    def reduce(self, Y: Array) -> Array:
        return Y @ self.basis.T

    def expand(self, B: Array) -> Array:
        return B @ self.basis


def find_subspace(X: Array) -> tuple[Subspace, Array]:
    """The subspace to train on X (n, d) in, and X's coordinates; X is overwritten."""
    n, d = X.shape
    if n >= d:
        return IdentitySubspace(), X
    coordinates, basis = row_factorization(X)
    return RowSpace(basis), coordinates
