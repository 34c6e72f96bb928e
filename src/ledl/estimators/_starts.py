"""Models learnt from several starts, side by side in one: each codes by itself, and their scores are averaged.

A fitted model of n starts has n K atoms, those of a start together. All starts have their atoms' classes in the
same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

import numpy as np

from ledl.arrays import Array, namespace
from ledl.coding import Coder, Samples
from ledl.estimators._base import LassoCodes
from ledl.estimators._rules import ChosenScores, Rule
from ledl.solvers.iteration import Iterations

# What a fitted model has a row of for each atom, and codes and scores are made of.
OF_ATOMS = ("_atoms", "_atom_labels", "_code_atoms", "label_components_")


def n_starts_of(model: Any) -> int:
    """How many starts a model has been fitted from: one where it does not say, as older files do not."""
    found: int = getattr(model, "_n_starts", 1)
    return found


def starts_of(model: Any) -> list[Any]:
    """The models of one start each that a fitted model is made of; their arrays are views of its own."""
    n = n_starts_of(model)
    if n == 1:
        return [model]
    K = len(model._atoms) // n
    found = [copy(model) for _ in range(n)]
    for i, one in enumerate(found):
        rows = slice(i * K, (i + 1) * K)
        vars(one).update({name: getattr(model, name)[rows] for name in OF_ATOMS}, _n_starts=1)
    return found


class SideBySide:
    """Codes by several coders, over the atoms of each: a sample is done when all of them are.

    Parameters
    ----------
    coders : coders of one kind
    atoms : (n_coders * K, r)
        Those of all coders, on the host.
    """

    def __init__(self, coders: Sequence[Any], atoms: Array) -> None:
        self.atoms, self.solver, self.tol = atoms, coders[0].solver, coders[0].tol
        self.alpha = getattr(coders[0], "alpha", None)
        self._coders = coders

    def __call__(self, X: Array, sq_norms: Array, start: None = None) -> tuple[Array, Array, Array, Array]:
        """Codes (n, n_coders * K), the largest gaps, all iterations, and whether all gaps are small enough."""
        found = [coder(X, sq_norms) for coder in self._coders]
        codes, gaps, n_iter, converged = zip(*found, strict=True)
        side_by_side = namespace(X).concat(codes, axis=-1)
        return side_by_side, np.max(gaps, axis=0), np.sum(n_iter, axis=0), np.all(converged, axis=0)


class SeveralStarts(ChosenScores, LassoCodes):
    """The chosen rule on lasso codes; scores are the mean over starts, codes stand side by side."""

    def _coder(self, samples: Samples, threads: int) -> Coder:
        if n_starts_of(self) == 1:
            return super()._coder(samples, threads)
        return SideBySide([one._coder(samples, threads) for one in starts_of(self)], self._atoms)

    def _rule_coder(self, samples: Samples, threads: int) -> Coder:
        if n_starts_of(self) == 1:
            return super()._rule_coder(samples, threads)
        return SideBySide([one._rule_coder(samples, threads) for one in starts_of(self)], self._atoms)

    def _ready_rule(self) -> Rule:
        if n_starts_of(self) == 1:
            return super()._ready_rule()
        rules = [one._ready_rule() for one in starts_of(self)]

        def rule(codes: Array, X: Array, sq_norms: Array) -> Array:
            parts = in_parts(codes, len(rules))
            scores = [one(part, X, sq_norms) for one, part in zip(rules, parts, strict=True)]
            return sum(scores) / len(scores)

        return rule

    def _rule(self, codes: Array, X: Array, sq_norms: Array) -> Array:
        if n_starts_of(self) == 1:
            return super()._rule(codes, X, sq_norms)
        return self._ready_rule()(codes, X, sq_norms)

    def _contributions(self, code: Array, x: Array, sq_norm: float) -> tuple[Array, Array]:
        """The mean of the base values, and what each atom adds in its own start, divided by their number."""
        if n_starts_of(self) == 1:
            return super()._contributions(code, x, sq_norm)
        parts = zip(starts_of(self), in_parts(code, n_starts_of(self)), strict=True)
        bases, gains = zip(*(one._contributions(part, x, sq_norm) for one, part in parts), strict=True)
        return np.mean(bases, axis=0), np.concatenate(gains) / n_starts_of(self)


def in_parts(codes: Array, n_starts: int) -> list[Array]:
    """Codes over the atoms of each start: (..., n_starts * K) -> so many (..., K)."""
    K = codes.shape[-1] // n_starts
    return [codes[..., i * K : (i + 1) * K] for i in range(n_starts)]


def mean_over_starts(run: Iterations) -> Iterations:
    """With the mean of the starts' histories, a start that has ended counting with its last values."""
    if not np.ndim(run.n_iter):
        return run
    iterations = np.arange(np.max(run.n_iter))[:, None]
    known = np.minimum(iterations, run.n_iter - 1), np.arange(len(run.n_iter))
    return run._replace(history={name: values[known].mean(axis=1) for name, values in run.history.items()})


def check_starts(n_init: int, init: Any, checkpoint: Any, is_stored: bool) -> None:
    """Refuse several starts where training has room for one; `is_stored`: samples are not all in memory."""
    if n_init == 1:
        return
    if not isinstance(init, str):
        raise ValueError(
            f"n_init={n_init} asks for different starts, but init has the arrays of one. Set n_init=1, or "
            "init='class'."
        )
    if checkpoint is not None:
        raise ValueError(
            f"n_init={n_init} learns from several starts at once, but checkpoint={checkpoint!r} keeps what one "
            "has learnt. Set n_init=1, or checkpoint=None."
        )
    if is_stored:
        raise ValueError(
            f"n_init={n_init} learns from several starts at once, which needs the samples in memory, but X is "
            "a memory-map or Dask array whose samples are visited where they are. Set n_init=1; or, if there "
            "is memory for them, give np.array(X)."
        )
