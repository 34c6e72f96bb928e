"""Orthogonal matching pursuit: codes with a given number of non-zeros, from a Gram matrix."""

from __future__ import annotations

import numpy as np
import scipy.linalg

from ledl.arrays import (
    Array,
    add_rows,
    as_array,
    is_torch,
    namespace,
    put_samples,
    take_samples,
    to_host,
)
from ledl.solvers import compiled

# The same as in `ledl.solvers.compiled.numba`, which cannot be imported without numba.
DEPENDENT = 1e-12
# Samples whose residuals are multiplied with all atoms at once.
TOGETHER = 32


def omp(G: Array, rhs: Array, sq_norms: Array, n_nonzero: int) -> tuple[Array, Array]:
    """Return codes with at most `n_nonzero` non-zeros, and the number of atoms of each.

    A sample has fewer if its residual vanishes, or if all other atoms depend on those that it has. As in batch
    OMP (Rubinstein, Zibulevsky and Elad, 2008) the Gram matrix is enough: no residual is formed. The arithmetic
    is in float64, on the device of the arrays, which are of NumPy or PyTorch.

    Parameters
    ----------
    G : (K, K)
        Gram matrix of the atoms.
    rhs : (n, K)
        Correlations of the samples with the atoms.
    sq_norms : (n,)
        Squared norms of the samples.
    n_nonzero : int
        Largest number of non-zeros of a code.
    """
    if not (isinstance(rhs, np.ndarray) or is_torch(rhs)):
        raise TypeError(f"omp works on arrays of NumPy or PyTorch; rhs is a {type(rhs).__name__}. Convert it.")
    n, K = rhs.shape
    if G.shape != (K, K) or sq_norms.shape != (n,):  # the compiled loop checks no bounds
        raise ValueError(f"G, rhs and sq_norms have shapes {G.shape}, {rhs.shape} and {sq_norms.shape}.")
    n_nonzero = min(n_nonzero, K)
    loop = compiled.find("omp", rhs)
    if loop is None:
        xp = namespace(rhs)
        G, rhs, sq_norms = (xp.astype(x, xp.float64, copy=False) for x in (G, rhs, sq_norms))
        return batched_omp(G, rhs, sq_norms, n_nonzero)
    inputs = (np.require(to_host(x), np.float64, ["C", "W"]) for x in (G, rhs, sq_norms))
    codes, n_iter = np.zeros((n, K)), np.zeros(n, dtype=np.int64)
    loop(*inputs, n_nonzero, codes, n_iter)
    return as_array(codes, rhs), as_array(n_iter, rhs)


def omp_of_few(D: Array, X: Array, sq_norms: Array, n_nonzero: int) -> tuple[Array, Array]:
    """Return the result of `omp` for a few samples over many atoms D (K, r), without their Gram matrix.

    A step is one product of the residuals of some samples with all atoms. It is for NumPy arrays, in float64.
    """
    codes, n_iter = np.zeros((len(X), len(D))), np.zeros(len(X), np.int64)
    for first in range(0, len(X), TOGETHER):
        some = slice(first, first + TOGETHER)
        residuals, squares = X[some].astype(np.float64), sq_norms[some]
        m, left = len(residuals), squares.astype(np.float64)
        Q, y = np.empty((m, n_nonzero, D.shape[1])), np.empty((m, n_nonzero))
        atoms: list[list[int]] = [[] for _ in range(m)]
        tried: list[list[int]] = [[] for _ in range(m)]
        n_taken, goes_on = np.zeros(m, np.int64), np.ones(m, bool)
        while True:
            active = np.flatnonzero(goes_on & (n_taken < n_nonzero) & (left > DEPENDENT * squares))
            if not active.size:
                break
            for i, sizes in zip(active.tolist(), np.abs(residuals[active] @ D.T), strict=True):
                k = n_taken[i]
                sizes[tried[i]] = 0
                j = int(sizes.argmax())
                goes_on[i] = sizes[j] > 0
                if not goes_on[i]:
                    continue
                tried[i].append(j)
                new, own = D[j], Q[i, :k]
                for _ in range(2):  # once more, for rounding
                    new = new - own.T @ (own @ new)
                square = new @ new
                if square > DEPENDENT * (D[j] @ D[j]):
                    Q[i, k] = new / np.sqrt(square)
                    y[i, k] = Q[i, k] @ residuals[i]
                    residuals[i] -= y[i, k] * Q[i, k]
                    left[i] -= y[i, k] ** 2
                    atoms[i].append(j)
                    n_taken[i] += 1
        n_iter[some] = n_taken
        for i, own_atoms in enumerate(atoms):
            # The atoms are L Q with a triangle L, and the fit is y Q: s = L'^-1 y.
            k = len(own_atoms)
            triangle = D[own_atoms] @ Q[i, :k].T
            codes[some][i, own_atoms] = scipy.linalg.solve_triangular(triangle, y[i, :k], lower=True, trans="T")
    return codes, n_iter


def batched_omp(G: Array, rhs: Array, sq_norms: Array, n_nonzero: int) -> tuple[Array, Array]:
    """Return the result of `omp`: in each step every sample chooses one atom, and nothing waits for the host.

    With A the atoms of a sample and G_AA = L L', row k of V = L^-1 holds the coefficients, over these atoms, of
    the k-th direction of an orthonormal basis of their span, and V[k] G[A] holds the correlations of all atoms
    with it. Times y = L^-1 rhs_A, these are subtracted from the residual's correlations c; squared, they are
    subtracted from the squared distances of the atoms to the span. So the atoms that have become dependent are
    known before one is chosen, and `n_nonzero` steps are enough. A sample that has ended gets rows of zeros,
    which change nothing.
    """
    xp = namespace(rhs)
    n, K = rhs.shape
    own = xp.linalg.diagonal(G)
    c, distances, left = rhs + 0, xp.zeros_like(rhs) + own, sq_norms + 0
    V, y = (xp.zeros((n, n_nonzero, m), dtype=rhs.dtype, device=rhs.device) for m in (n_nonzero, 1))
    atoms = xp.zeros((n, n_nonzero), dtype=xp.int64, device=rhs.device)
    n_iter = xp.zeros((n,), dtype=xp.int64, device=rhs.device)
    for k in range(n_nonzero):
        sizes = xp.abs(c) * xp.astype(distances > DEPENDENT * own, c.dtype)
        best = xp.argmax(sizes, axis=-1, keepdims=True)
        goes_on = (left > DEPENDENT * sq_norms) & (take_samples(sizes, best)[:, 0] > 0)
        distance = xp.where(goes_on, take_samples(distances, best)[:, 0], 1.0)
        scale = (xp.astype(goes_on, c.dtype) / xp.sqrt(distance))[:, None]
        # The part of the new atom that is orthogonal to the atoms so far, as a combination of them and of it.
        places = xp.reshape(atoms[:, :k] * K + best, (-1,))
        products = xp.reshape(xp.take(xp.reshape(G, (-1,)), places), (n, k, 1))
        along = V[:, :k, :k] @ products
        atoms[:, k] = best[:, 0]
        V[:, k, :k] = -scale * (along.mT @ V[:, :k, :k])[:, 0, :]
        V[:, k, k] = scale[:, 0]
        y[:, k, :] = scale * take_samples(c, best)
        direction = add_rows(G, atoms[:, : k + 1], V[:, k, : k + 1])
        c -= y[:, k, :] * direction
        distances -= direction * direction
        put_samples(distances, best, xp.zeros_like(scale))  # no atom twice, despite rounding
        left -= y[:, k, 0] ** 2
        n_iter += xp.astype(goes_on, xp.int64)
    coefficients = (V.mT @ y)[..., 0]
    codes = xp.zeros_like(rhs)
    # From the last to the first: the entries of a sample that has ended are arbitrary, and are overwritten by
    # the valid ones.
    for k in reversed(range(n_nonzero)):
        put_samples(codes, atoms[:, k : k + 1], coefficients[:, k : k + 1])
    return codes, n_iter
