"""The features and coordinates that training and prediction run in.

Samples are first mapped to features (`FeatureMap`). For features X, X = R O with orthonormal rows in O. Every
atom of our algorithms is a combination of samples, so B = B_r O, and training on R with B_r gives the same
numbers as training on X with B, for any number of features. With a kernel, R R' = k(X, X) plays the same role.
`reduce` converts samples to these coordinates, `expand` converts atoms back. `reduce` loses the part of a
sample outside the span, so squared norms are computed from the samples themselves.
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

# Up to this many samples, one thread finds a basis of samples, or the eigenvectors of a kernel matrix, faster
# than several threads that wait for each other on a busy machine.
SINGLE_THREAD_SAMPLES = 1024

# Negative eigenvalues of a kernel matrix up to this share of the largest one are rounding, at worst of float32.
ROUNDING = 1e-5


class FeatureMap(NamedTuple):
    """The features that atoms are made of: sign(x) |x|^power of each number x, then norm 1 if `unit_norm`."""

    power: float = 1.0
    unit_norm: bool = False

    def __call__(self, X: Array) -> Array:
        """Return the features of samples. Without anything to do, that is X itself."""
        roots = self.powers(X)
        return scaled(roots, in_place=roots is not X) if self.unit_norm else roots

    def powers(self, X: Array) -> Array:
        """Return sign(x) |x|^power. A power of 1 returns X itself."""
        if self.power == 1:
            return X
        xp = namespace(X)
        sizes = xp.abs(X)
        sizes **= self.power  # in place: there may be little memory left
        return np.copysign(sizes, X, out=sizes) if isinstance(X, np.ndarray) else xp.copysign(sizes, X)

    def by_norms(self, X: Array, norms: Array, out: Array | None = None) -> Array:
        """Return the features of NumPy samples whose powers have these norms, in `out` or other memory."""
        X = self.powers(X)
        if not self.unit_norm:
            return X
        if norms.min(initial=1) < np.finfo(X.dtype).tiny:  # zero, or too small to divide by
            return scaled(X)
        return np.multiply(X, (1 / norms).astype(X.dtype)[:, None], out=out)


AS_THEY_ARE = FeatureMap()


class Subspace(Protocol):
    """The space of training: coordinates of samples, and atoms back in the space of features."""

    def reduce(self, Y: Array) -> Array:
        """Return the coordinates of samples: (m, d) -> (m, r)."""

    def expand(self, B: Array) -> Array:
        """Return atoms in the space of features, (K, r) -> (K, d); with a kernel, coefficients over samples."""

    def squared_norms(self, Y: Array, first: int = 0) -> Array:
        """Return |y|^2 in float64, (m, d) -> (m,); `first` is the number of the first sample, for messages."""


class IdentitySubspace(NamedTuple):
    """The features themselves: at least as many samples as features."""

    def reduce(self, Y: Array) -> Array:
        return Y

    def expand(self, B: Array) -> Array:
        shown = B[:]
        shown.flags.writeable = False  # users see the atoms themselves, and their Gram matrix may be cached
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
    """A kernel with its training samples x_1, ..., x_n."""

    def similarities(self, Y: Array) -> Array:
        """Return k(y, x_i): (m, d) -> (m, n), in float64."""

    def squared_norms(self, Y: Array, first: int = 0) -> Array:
        """Return k(y, y) in float64, (m, d) -> (m,); `first` is as in `Subspace`."""


class KernelSpace(NamedTuple):
    """The span of the training samples in a kernel's space, by an orthonormal basis of combinations of them."""

    kernel: SampleKernel
    basis: Array  # (n, r): each column holds the coefficients of one basis vector
    coordinates: Array  # (n, r): coordinates of the training samples

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
    """Return the subspace for training on X (n, d), and the coordinates of X; X is overwritten."""
    n, d = X.shape
    if n >= d:
        return IdentitySubspace(), X
    with one_blas_thread() if n <= SINGLE_THREAD_SAMPLES else nullcontext():
        coordinates, basis = row_factorization(X)
    return RowSpace(to_host(basis)), coordinates


def find_kernel_space(kernel: SampleKernel, gram: Array, dtype: np.dtype) -> KernelSpace:
    """Return the space of a kernel with matrix `gram` = k(x_i, x_j), and coordinates of type `dtype`.

    gram = V diag(l) V'; the basis is V l^-1/2 and the coordinates are gram V l^-1/2 = V l^1/2. Directions are
    left out if their eigenvalues may be rounding errors: the rank may be less than n.
    """
    n, size = len(gram), np.abs(gram).max()
    lopsided = np.abs(gram - gram.T).max()
    if lopsided > ROUNDING * size:
        raise ValueError(
            "The kernel's matrix of the training samples is not symmetric: k(x, y) and k(y, x) differ by up to "
            f"{lopsided:.3g}. Use a symmetric kernel; for your own matrix K, use (K + K') / 2."
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
            f"from {smallest:.3g} to {largest:.3g}, so it is no matrix of inner products. Use another kernel "
            "or other parameters, or set the negative eigenvalues of your matrix to 0."
        )
    kept = values > max(n * np.finfo(np.float64).eps * largest, -2 * smallest)
    basis = vectors[:, kept] / np.sqrt(values[kept])
    return KernelSpace(kernel, basis, (gram @ basis).astype(dtype, copy=False))


def squared_norms(X: Array, name: str, first: int = 0) -> Array:
    """Return |x|^2 of each row in float64. `name` and `first`, the number of the first row, are for messages.

    Raise if numbers are not finite, or if their squares overflow or underflow.
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


def scaled(X: Array, *, in_place: bool = False) -> Array:
    """Return samples with norm 1, in a copy unless `in_place`; a zero sample stays zero."""
    xp = namespace(X)
    # First by the largest entry, so that squares neither overflow nor vanish.
    largest = xp.maximum(xp.max(X, axis=1), -xp.min(X, axis=1))[:, None]
    largest = xp.where(largest > 0, largest, xp.ones_like(largest))
    if in_place:
        X /= largest
    Y = X if in_place else X / largest
    norms = xp.astype(xp.sqrt(row_squares(Y)), Y.dtype)[:, None]
    Y /= xp.where(norms > 0, norms, xp.ones_like(norms))
    return Y
