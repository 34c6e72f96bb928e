"""Kernels: inner products of samples in a space that is known by them alone."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from numbers import Real
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from sklearn.metrics.pairwise import pairwise_kernels
from sklearn.utils._param_validation import Interval, StrOptions

from ledl.arrays import Array, as_array, check_memory, to_host
from ledl.subspace import Subspace, find_kernel_space

Kernel: TypeAlias = str | float | Callable[..., float]

# Kernels that are inner products of features, sign(x) |x|^power (`ledl.subspace.FeatureMap`), by their names. A
# number is a power, too. They need no matrix of all pairs of samples.
POWERS = {"linear": 1.0, "hellinger": 0.5}
POWER = Interval(Real, 0, 1, closed="right")

KERNEL_CONSTRAINTS: dict[str, list[Any]] = {
    "kernel": [StrOptions({*POWERS, "rbf", "poly", "precomputed"}), POWER, callable],
    "gamma": [StrOptions({"scale"}), Interval(Real, 0, None, closed="neither"), None],
    "degree": [Interval(Real, 0, None, closed="neither")],
    "coef0": [Interval(Real, None, None, closed="neither")],
    "kernel_params": [dict, None],
}


def power_of(kernel: Kernel) -> float | None:
    """Return the power of features that a kernel is linear in, or None if there is none."""
    return (
        float(kernel) if isinstance(kernel, Real) else POWERS.get(kernel) if isinstance(kernel, str) else None
    )


class PairwiseKernel(NamedTuple):
    """A kernel k(x, y) with its training samples. With `normalize` it is divided by sqrt(k(x, x) k(y, y))."""

    kernel: Kernel
    parameters: dict[str, Any]
    normalize: bool
    training: Array  # (n, d), float64
    inverse_norms: Array = None  # (n,), of the training samples

    def similarities(self, Y: Array) -> Array:
        Y = Y.astype(np.float64, copy=False)
        K = pairwise_kernels(Y, self.training, metric=self.kernel, **self.parameters)
        if not np.isfinite(K).all():
            raise ValueError(
                f"kernel={self.kernel!r} gives values that are not finite. Scale the samples, or use another "
                "kernel or other parameters."
            )
        return K * (self._inverse_norms(Y)[:, None] * self.inverse_norms) if self.normalize else K

    def squared_norms(self, Y: Array, first: int = 0) -> Array:
        squares = self._diagonal(Y.astype(np.float64, copy=False), first)
        return (squares > 0).astype(np.float64) if self.normalize else squares

    def _inverse_norms(self, Y: Array) -> Array:
        """Return 1 / sqrt(k(y, y)), which is zero for a sample of zeros."""
        squares = self._diagonal(Y)
        return np.where(squares > 0, 1, 0) / np.sqrt(np.where(squares > 0, squares, 1))

    def _diagonal(self, Y: Array, first: int = 0) -> Array:
        """Return k(y, y) of each sample, without the matrix of all pairs. `first` numbers the first sample."""
        if self.kernel == "rbf":
            return np.ones(len(Y))
        if self.kernel == "poly":
            gamma, degree, coef0 = (self.parameters[name] for name in ("gamma", "degree", "coef0"))
            gamma = 1 / Y.shape[1] if gamma is None else gamma
            with np.errstate(over="ignore"):  # reported below
                squares = (gamma * np.einsum("ij,ij->i", Y, Y) + coef0) ** degree
        else:
            k: Any = self.kernel
            squares = np.array([k(y, y, **self.parameters) for y in Y], dtype=np.float64)
        wrong = np.flatnonzero(~((squares >= 0) & (squares < np.inf)))
        if wrong.size:
            raise ValueError(
                f"kernel={self.kernel!r} gives k(x, x) = {squares[wrong[0]]:g} for sample {first + wrong[0]}, "
                "but a squared norm is neither negative nor infinite. Scale the samples, or use another "
                "kernel or other parameters."
            )
        return squares


class PrecomputedKernel(NamedTuple):
    """A kernel with given values. The row of a sample has those with the training samples. k(y, y) is 1."""

    def similarities(self, Y: Array) -> Array:
        return Y.astype(np.float64, copy=False)

    def squared_norms(self, Y: Array, first: int = 0) -> Array:
        return np.ones(len(Y))


def kernel_space(model: Any, samples: Array, weights: Array | None = None) -> tuple[Subspace, Array]:
    """Return the span of the training samples in the space of a classifier's kernel, and their coordinates.

    Kernels are computed on the host. `weights` of the samples count in the variance of ``gamma="scale"``.
    """
    given, samples = samples, to_host(samples)
    kernel, normalize, gamma, kernel_params = model.kernel, model.normalize, model.gamma, model.kernel_params
    n = len(samples)
    check_memory(
        5 * 8 * n * n, f"The kernel's matrix of {n} samples and its eigenvectors", "Use fewer samples."
    )
    found: PairwiseKernel | PrecomputedKernel
    if kernel == "precomputed":
        check_precomputed(samples, normalize)
        found = PrecomputedKernel()
    else:
        if kernel_params and not callable(kernel):
            raise ValueError(
                f"kernel_params={kernel_params} are arguments of a callable kernel, but "
                f"kernel={kernel!r}. Set gamma, degree or coef0, or leave kernel_params out."
            )
        if gamma == "scale" and kernel in ("rbf", "poly"):  # as in scikit-learn's SVC
            variance = float(np.var(samples, dtype=np.float64))
            if weights is not None:
                rows = np.mean(samples, axis=1, dtype=np.float64)
                mean = np.average(rows, weights=weights)
                spread = np.mean((samples - mean) ** 2, axis=1, dtype=np.float64)
                variance = float(np.average(spread, weights=weights))
            gamma = 1 / (samples.shape[1] * variance) if variance > 0 else 1.0
        known: dict[Any, dict[str, Any]] = {
            "rbf": {"gamma": gamma},
            "poly": {"gamma": gamma, "degree": model.degree, "coef0": model.coef0},
        }
        parameters = (kernel_params or {}) if callable(kernel) else known[kernel]
        found = PairwiseKernel(kernel, parameters, normalize, samples.astype(np.float64))
        found = found._replace(inverse_norms=found._inverse_norms(found.training))
    space = find_kernel_space(found, found.similarities(samples), samples.dtype)
    return space, as_array(space.coordinates, given)


def check_precomputed(gram: Array, normalize: bool) -> None:
    """Raise if a precomputed kernel cannot be used, and warn if it does not look normalised."""
    if normalize:
        raise ValueError(
            "kernel='precomputed' needs normalize=False: the matrix does not have k(y, y) of new samples, "
            "which normalising needs. Divide k(x, y) by sqrt(k(x, x) k(y, y)), and set normalize=False."
        )
    if gram.shape[0] != gram.shape[1]:
        raise ValueError(
            f"kernel='precomputed' needs the square matrix of k between all training samples, but X has shape "
            f"{gram.shape}. Compute k for all pairs of training samples."
        )
    far = np.abs(np.diag(gram) - 1).max()
    if far > 1e-3:
        warnings.warn(
            "The precomputed kernel should be normalised, k(y, y) = 1, but its diagonal differs from 1 by up "
            f"to {far:.3g}. Divide k(x, y) by sqrt(k(x, x) k(y, y)).",
            UserWarning,
            stacklevel=5,
        )
