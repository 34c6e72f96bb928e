"""Sparse codes of many samples: in chunks, so that memory stays bounded, and with one warning."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import gen_batches

from ledl.arrays import Array
from ledl.solvers.lasso import lasso

# Numbers in the codes of a chunk: 32 MB in float64.
CHUNK = 2**22


def encode(atoms: Array, samples: Array, sq_norms: Array, *, alpha: float, tol: float) -> Iterator[Array]:
    """Lasso codes of samples over atoms, both in the same coordinates, chunk by chunk.

    Parameters
    ----------
    atoms : (K, r)
    samples : (n, r)
    sq_norms : (n,)
        Squared norms of the samples before they were projected on these coordinates.
    """
    # In float32, rounding would make the Gram matrix of near-copies indefinite.
    exact = atoms.astype(np.float64, copy=False)
    G = exact @ exact.T
    missed, worst, coded = 0, 0.0, not np.any(sq_norms)
    for chunk in gen_batches(len(samples), max(1, CHUNK // len(atoms))):
        codes, info = lasso(G, samples[chunk] @ atoms.T, sq_norms[chunk], alpha, tol)
        missed += int(np.count_nonzero(~info.converged))
        worst = max(worst, float(np.max(info.gap, initial=0.0)))
        coded = coded or bool(codes.any())
        yield codes
    if not coded:
        warnings.warn(
            f"The codes of all {len(samples)} samples are zero, and so are their scores: alpha={alpha} is too "
            "large for samples of this size. Lower alpha or transform_alpha, or scale the samples.",
            UserWarning,
            stacklevel=2,
        )
    if missed:
        warnings.warn(
            f"{missed} of {len(samples)} samples did not reach the duality gap asked for "
            f"(tol={tol}; the largest gap is {worst:.1e}). Raise the tolerance or alpha.",
            ConvergenceWarning,
            stacklevel=2,
        )
