"""How samples are coded over atoms: small objects that name a method and its settings.

`prepare` makes a coder of one, for given atoms and samples: Gram matrix, precision, and the solver that suits
both. What does not depend on the samples is looked up in `kept`, a dictionary that belongs to the atoms, and
put there.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np

from ledl.arrays import Array
from ledl.coding._chunks import Coder, Samples
from ledl.coding._lasso import FEW, LassoCoder
from ledl.coding._omp import OMPCoder
from ledl.coding._ridge import RidgeCoder
from ledl.solvers.lasso import PILOTS, reachable
from ledl.subspace import Subspace


class Settings(Protocol):
    """What `ledl.dictionary` asks of a way to code."""

    def prepare(
        self, atoms: Array, samples: Samples, space: Subspace, threads: int, kept: dict[Any, Any]
    ) -> Coder:
        """Return a coder over `atoms` (K, r), in the coordinates of `space`, for these samples."""


class Lasso(NamedTuple):
    """Lasso codes, argmin |x - s D|^2 + 2 alpha |s|_1, with a duality gap of at most tol |x|^2 / 2."""

    alpha: float
    tol: float = 1e-6
    solver: str = "auto"
    max_iter: int = 10_000
    positive: bool = False

    def prepare(
        self, atoms: Array, samples: Samples, space: Subspace, threads: int, kept: dict[Any, Any]
    ) -> Coder:
        pilots, n = None, len(samples.data)
        if samples.where is None and n >= FEW:
            few = samples[np.unique(np.linspace(0, n - 1, PILOTS).astype(int))]
            pilots = space.reduce(few), space.squared_norms(few)
        return LassoCoder(
            samples.beside(atoms),
            alpha=self.alpha,
            tol=reachable(self.tol, samples.data),
            solver=self.solver,
            max_iter=self.max_iter,
            positive=self.positive,
            pilots=pilots,
            kept=kept,
            threads=threads,
        )


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


class OMP(NamedTuple):
    """Codes of orthogonal matching pursuit with at most `n_nonzero` non-zeros."""

    n_nonzero: int

    def prepare(
        self, atoms: Array, samples: Samples, space: Subspace, threads: int, kept: dict[Any, Any]
    ) -> Coder:
        return OMPCoder(samples.beside(atoms), self.n_nonzero, threads)
