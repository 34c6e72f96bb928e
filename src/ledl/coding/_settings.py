"""How samples are coded over atoms: small objects that name a method and its settings.

`prepare` makes a coder of one, for given atoms and samples: Gram matrix, precision, and the solver that suits
both. What does not depend on the samples is looked up in `kept`, a dictionary that belongs to the atoms, and
put there.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np

from ledl.arrays import Array, is_torch, to_host
from ledl.coding._chunks import Samples
from ledl.coding._coders import BatchedLassoCoder, Coder, LassoCoder, OMPCoder, RidgeCoder
from ledl.solvers.lasso import reachable
from ledl.solvers.proximal import PILOTS
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
        pilots = samples[np.unique(np.linspace(0, len(samples.data) - 1, PILOTS).astype(int))]
        tol = reachable(self.tol, pilots)
        options: dict[str, Any] = {"alpha": self.alpha, "tol": tol, "solver": self.solver}
        options |= {"max_iter": self.max_iter, "positive": self.positive}
        if is_torch(pilots):
            return BatchedLassoCoder(samples.beside(atoms), **options)
        sq_norms = space.squared_norms(pilots)
        options["threads"] = threads
        return LassoCoder(to_host(atoms), space.reduce(pilots), sq_norms, len(samples.data), **options)


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
