"""Ridge codes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ledl.arrays import Array, add_to_diagonal, as_array, cholesky, cholesky_solve, namespace, product, to_host
from ledl.coding._chunks import Coder, Samples
from ledl.subspace import Subspace


class Ridge(NamedTuple):
    """Ridge codes, argmin |x - s D|^2 + alpha |s|^2; messages call the weight `name`."""

    alpha: float
    name: str = "alpha"

    def prepare(
        self, atoms: Array, samples: Samples, space: Subspace, threads: int, kept: dict[Any, Any]
    ) -> Coder:
        if self not in kept:
            kept[self] = RidgeCoder(samples.beside(atoms), self.alpha, self.name)
        coder: Coder = kept[self]
        return coder


class RidgeCoder:
    """Codes of ridge regression, argmin |x - s D|^2 + alpha |s|^2, by one product a sample.

    With the atoms D as rows, s = x D' (D D' + alpha I)^-1 = x (D'D + alpha I)^-1 D': one factorisation, of the
    smaller of the two matrices. Messages call the weight `name`.
    """

    solver, tol = "ridge", None

    def __init__(self, atoms: Array, alpha: float, name: str = "alpha") -> None:
        self.atoms = to_host(atoms)  # it is kept, and must be of use where there is no such device
        (K, r), xp = atoms.shape, namespace(atoms)
        D = xp.astype(atoms, xp.float64, copy=False)
        rows = D if r < K else D.T
        G = add_to_diagonal(rows.T @ rows, as_array([[alpha]], D, D.dtype))
        try:
            solved = to_host(cholesky_solve(cholesky(G), xp.asarray(rows, copy=True)))
            if not np.isfinite(solved).all():  # which is how tensors tell
                raise np.linalg.LinAlgError("the matrix is not positive definite")
        except np.linalg.LinAlgError as error:
            raise ValueError(
                f"{name}={alpha} is so small that ridge codes over these atoms are not defined in float64 "
                f"({error}). Raise {name}."
            ) from error
        self._projection = np.ascontiguousarray(solved.T if r < K else solved, dtype=self.atoms.dtype)

    def __call__(self, X: Array, sq_norms: Array, start: None = None) -> tuple[Array, Array, Array, Array]:
        """Return codes, gaps of none, iterations of which there are none, and True."""
        n = len(X)
        return product(X, self._projection), np.zeros(n), np.zeros(n, np.int64), np.ones(n, dtype=bool)
