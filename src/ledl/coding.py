"""Sparse codes of many samples: in chunks, so that memory stays bounded, and with one warning."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import gen_batches

from ledl.arrays import Array
from ledl.solvers.lasso import lasso

# Numbers in the codes, or the samples, of a chunk: 32 MB in float64.
CHUNK = 2**22


def encode(
    atoms: Array, samples: Array, reduce: Callable[[Array], Array], *, alpha: float, tol: float
) -> Iterator[Array]:
    """Lasso codes of samples over atoms, chunk by chunk.

    Parameters
    ----------
    atoms : (K, r)
    samples : (n, d)
    reduce : callable
        Takes samples to the coordinates of the atoms: (m, d) -> (m, r).
    """
    # In float32, rounding would make the Gram matrix of near-copies indefinite, and the products with
    # samples such as no sample has.
    exact = atoms.astype(np.float64, copy=False)
    G = exact @ exact.T
    missed, worst, coded = 0, 0.0, not samples.any()
    for chunk in gen_batches(len(samples), max(1, CHUNK // max(len(atoms), samples.shape[1]))):
        X = samples[chunk].astype(np.float64, copy=False)
        sq_norms = np.einsum("ij,ij->i", X, X)
        codes, info = lasso(G, reduce(X) @ exact.T, sq_norms, alpha, tol)
        late = ~info.converged
        missed += int(late.sum())
        worst = max(worst, float(np.max(2 * info.gap[late] / sq_norms[late], initial=0.0)))
        coded = coded or bool(codes.any())
        yield codes.astype(samples.dtype, copy=False)
    if not coded:
        warnings.warn(
            f"The codes of all {len(samples)} samples are zero, and so are their scores: alpha={alpha} is too "
            "large for samples of this size. Lower alpha or transform_alpha, or scale the samples.",
            UserWarning,
            stacklevel=2,
        )
    if missed:
        warnings.warn(
            f"{missed} of {len(samples)} samples did not reach the duality gap asked for (tol={tol}, of half "
            f"their squared norm; the worst has {worst:.1e}). Raise the tolerance or alpha.",
            ConvergenceWarning,
            stacklevel=2,
        )
