"""The coordinates that training and prediction run in.

X = R O with orthonormal rows in O; every atom that our algorithms make is a combination of
samples, so B = B_r O, and training on R with B_r gives the same numbers as on X with B,
whatever the number of features. With a kernel, R R' = k(X, X) plays the same part. `reduce` takes
samples to these coordinates, `expand` takes atoms back. What lies outside the span is lost in
`reduce`, so squared norms are those of the samples themselves.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import NamedTuple, Protocol

import numpy as np
import scipy.linalg

from ledl.arrays import (
    Array,
    as_array,
    is_torch,
    namespace,
    product,
    row_factorization,
    row_squares,
    to_host,
)
from ledl.parallel import one_blas_thread

# Up to this many samples the eigenvectors of a kernel's matrix are found faster by one thread than by several
# that wait for each other, on a machine that has other work too.
SINGLE_THREAD_SAMPLES = 1024

# Negative eigenvalues of a kernel's matrix up to this share of the largest are rounding, of float32 at worst.
ROUNDING = 1e-5


class Subspace(Protocol):
    """Where training runs: coordinates of samples, and atoms back in the features' space."""

    def reduce(self, Y: Array) -> Array:
        """Coordinates of samples: (m, d) -> (m, r)."""

    def expand(self, B: Array) -> Array:
        """Atoms in the features' space, (K, r) -> (K, d); with a kernel, their coefficients over samples."""

    def squared_norms(self, Y: Array, first: int = 0) -> Array:
        """|y|^2 in float64 of samples, the first of which has that number for messages: (m, d) -> (m,)."""


class IdentitySubspace(NamedTuple):
    """The features themselves: at least as many samples as features."""

    def reduce(self, Y: Array) -> Array:
        return Y

    def expand(self, B: Array) -> Array:
        shown = B[:]
        shown.flags.writeable = False  # users see the atoms themselves, whose Gram matrix may be kept
        return shown

    def squared_norms(self, Y: Array, first: int = 0) -> Array:
        return squared_norms(Y, "X", first)


class RowSpace(NamedTuple):
    """The span of fewer samples than features, by an orthonormal basis of rows."""

    basis: Array

    def reduce(self, Y: Array) -> Array:
        return product(Y, self.basis.T)

    def expand(self, B: Array) -> Array:
        return B @ self.basis

    def squared_norms(self, Y: Array, first: int = 0) -> Array:
        return squared_norms(Y, "X", first)


class SampleKernel(Protocol):
    """A kernel as seen from its training samples x_1, ..., x_n."""

    def similarities(self, Y: Array) -> Array:
        """k(y, x_i): (m, d) -> (m, n), in float64."""

    def squared_norms(self, Y: Array, first: int = 0) -> Array:
        """k(y, y): (m, d) -> (m,), in float64; the first sample has that number for messages."""


class KernelSpace(NamedTuple):
    """The span of the training samples in a kernel's space, by an orthonormal basis of combinations of them."""

    kernel: SampleKernel
    basis: Array  # (n, r): coefficients of the basis, a column each
    coordinates: Array  # (n, r): of the training samples

    def reduce(self, Y: Array) -> Array:
        # Kernels are evaluated on the host.
        found = self.kernel.similarities(to_host(Y)) @ self.basis
        found = found.astype(self.coordinates.dtype, copy=False)
        return as_array(found, Y) if is_torch(Y) else found

    def expand(self, B: Array) -> Array:
        return B @ self.basis.T.astype(B.dtype, copy=False)

    def squared_norms(self, Y: Array, first: int = 0) -> Array:
        squares = self.kernel.squared_norms(to_host(Y), first)
        return as_array(squares, Y) if is_torch(Y) else squares


def find_subspace(X: Array) -> tuple[Subspace, Array]:
    """The subspace to train on X (n, d) in, and X's coordinates; X is overwritten."""
    n, d = X.shape
    if n >= d:
        return IdentitySubspace(), X
    coordinates, basis = row_factorization(X)
    return RowSpace(to_host(basis)), coordinates


def find_kernel_space(kernel: SampleKernel, gram: Array, dtype: np.dtype) -> KernelSpace:
    """The space of a kernel with the matrix `gram` = k(x_i, x_j), coordinates being of that type.

    gram = V diag(l) V'; the basis is V l^-1/2 and the coordinates are gram V l^-1/2 = V l^1/2. Directions whose
    eigenvalues cannot be told from rounding are left out: the rank may be less than n.
    """
    n, size = len(gram), np.abs(gram).max()
    lopsided = np.abs(gram - gram.T).max()
    if lopsided > ROUNDING * size:
        raise ValueError(
            "The kernel's matrix of the training samples is not symmetric: k(x, y) and k(y, x) differ by up to "
            f"{lopsided:.3g}. Use a symmetric kernel; of a matrix K of your own take (K + K') / 2."
        )
    if not size:
        raise ValueError(
            "The kernel is zero between all training samples, so there is nothing to learn from. Use another "
            "kernel or other parameters."
        )
    gram = (gram + gram.T) / 2
    with one_blas_thread() if n <= SINGLE_THREAD_SAMPLES else nullcontext():
        values, vectors = scipy.linalg.eigh(gram, check_finite=False)
    smallest, largest = values[0], values[-1]
    if smallest < -ROUNDING * largest:
        raise ValueError(
            "The kernel's matrix of the training samples is not positive semi-definite: its eigenvalues go "
            f"from {smallest:.3g} to {largest:.3g}, so there is no space whose inner products it holds. Use "
            "another kernel or other parameters, or set the negative eigenvalues of your matrix to 0."
        )
    kept = values > max(n * np.finfo(np.float64).eps * largest, -2 * smallest)
    basis = vectors[:, kept] / np.sqrt(values[kept])
    return KernelSpace(kernel, basis, (gram @ basis).astype(dtype, copy=False))


def squared_norms(X: Array, name: str, first: int = 0) -> Array:
    """|x|^2 in float64 of the rows of `name` from `first` on.

    Refuses numbers that are not finite, or so large or small that their squares are of no use.
    """
    squares = row_squares(X)
    found = to_host(squares)
    for row in np.flatnonzero(~np.isfinite(found) | (found < np.finfo(np.float64).tiny)):
        x = to_host(X[int(row)])
        if not np.isfinite(x).all():
            raise ValueError(f"{name} contains NaN or infinity in row {first + row}. Remove or replace it.")
        if x.any():
            size = np.abs(x).max()
            raise ValueError(
                f"{name} has numbers of size {size:.0e} in row {first + row}, whose squares float64 cannot "
                f"hold. Scale {name}, and alpha with it if there is one."
            )
    return squares


def scaled(X: Array) -> Array:
    """A copy with samples of norm 1; a zero sample stays zero."""
    xp = namespace(X)
    # First by the largest entry, so that squares neither overflow nor vanish.
    largest = xp.maximum(xp.max(X, axis=1), -xp.min(X, axis=1))[:, None]
    Y = X / xp.where(largest > 0, largest, xp.ones_like(largest))
    norms = xp.astype(xp.sqrt(row_squares(Y)), Y.dtype)[:, None]
    Y /= xp.where(norms > 0, norms, xp.ones_like(norms))
    return Y


def scaled_by(X: Array, norms: Array, out: Array | None = None) -> Array:
    """Return NumPy samples of known norms scaled to norm 1, in memory of their own; a zero one stays zero."""
    if norms.min(initial=1) < np.finfo(X.dtype).tiny:  # zero, or not to be divided by
        return scaled(X)
    return np.multiply(X, (1 / norms).astype(X.dtype)[:, None], out=out)
