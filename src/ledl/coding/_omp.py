"""Codes of orthogonal matching pursuit."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ledl.arrays import Array, namespace, to_host
from ledl.coding._chunks import Coder, Samples
from ledl.coding._lasso import gram
from ledl.solvers.omp import omp
from ledl.subspace import Subspace, squared_norms


class OMP(NamedTuple):
    """Codes of orthogonal matching pursuit with at most `n_nonzero` non-zeros."""

    n_nonzero: int

    def prepare(
        self, atoms: Array, samples: Samples, space: Subspace, threads: int, kept: dict[Any, Any]
    ) -> Coder:
        return OMPCoder(samples.beside(atoms), self.n_nonzero, threads)


class OMPCoder:
    """Codes of orthogonal matching pursuit, in float64 whatever the data, where the atoms lie."""

    solver, tol = "omp", None

    def __init__(self, atoms: Array, n_nonzero: Any, threads: int = 1) -> None:
        xp = namespace(atoms)
        squared_norms(atoms, "The dictionary")  # refuses what is not finite
        self.atoms = xp.astype(atoms, xp.float64, copy=False)
        self.n_nonzero = min(n_nonzero, *atoms.shape)
        self._G = gram(self.atoms, threads)

    def __call__(self, X: Array, sq_norms: Array, start: None = None) -> tuple[Array, Array, Array, Array]:
        """Return codes, gaps that are not known, atoms taken, and True."""
        xp, n = namespace(X), len(X)
        rhs = xp.astype(X, xp.float64, copy=False) @ self.atoms.T
        codes, n_iter = omp(self._G, rhs, sq_norms, self.n_nonzero)
        return codes, np.full(n, np.nan), to_host(n_iter), np.ones(n, dtype=bool)
