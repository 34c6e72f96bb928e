"""K-SVD: a dictionary over which samples have codes with few non-zeros.

With T the targets (n, q) as rows and M the atoms (K, q), rows of norm 1, one iteration lowers

    |T - S M|^2        each row of S having at most n_nonzero non-zeros                            (1)

first over the codes S by orthogonal matching pursuit, then atom by atom, the supports being fixed: with E the
residual of the samples that use atom k, as if they did not, and g their coefficients,

    m_k <- unit(g E),   g <- E m_k

the approximate update of Rubinstein, Zibulevsky and Elad (2008): each of the two minimises (1). Matching
pursuit is greedy, so it may find a worse code than the last one; such a sample keeps the last one. So (1)
never rises but where atoms are replaced: those that no sample uses, and copies of others, give way to samples
that are badly represented.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ledl.arrays import Array, unit_rows
from ledl.solvers import compiled
from ledl.solvers.iteration import Iterations, Record, iterate
from ledl.solvers.omp import omp

# Atoms whose cosine is this near to 1 or -1 are copies.
COPY = 1e-6
# A sample with less than this share of its squared norm left over needs no atom of its own.
REPRESENTED = 1e-10


class State(NamedTuple):
    """Atoms, codes, and what they leave over: E = T - S M."""

    M: Array
    S: Array
    E: Array


def solve(
    T: Array,
    start: Array,
    n_nonzero: int,
    *,
    max_iter: int,
    tol: float,
    callback: Callable[[int, Record, State], bool] | None = None,
) -> Iterations:
    """K-SVD from given atoms; all in float64.

    The history of the result holds (1), ``error``, after each iteration, and ``replaced``, how many atoms were
    replaced before it.
    """
    T, M = np.ascontiguousarray(T, dtype=np.float64), unit_rows(np.asarray(start, dtype=np.float64))
    sq_norms = np.einsum("ij,ij->i", T, T)

    def step(state: State, iteration: int, active: Array) -> tuple[State, Record]:
        state, n_replaced = replace_atoms(state, T, sq_norms, unused=iteration > 0)
        state = update_atoms(update_codes(state, T, sq_norms, n_nonzero))
        return state, {"error": np.einsum("ij,ij->", state.E, state.E), "replaced": n_replaced}

    state = State(M.copy(), np.zeros((len(T), len(M))), T.copy())
    return iterate(step, state, watch="error", max_iter=max_iter, tol=tol, callback=callback)


def update_codes(state: State, T: Array, sq_norms: Array, n_nonzero: int) -> State:
    """Codes by matching pursuit, where they are better than those at hand."""
    M, S, E = state
    new, _ = omp(M @ M.T, T @ M.T, sq_norms, n_nonzero)
    rest = T - new @ M
    better = np.einsum("ij,ij->i", rest, rest) <= np.einsum("ij,ij->i", E, E)
    S[better], E[better] = new[better], rest[better]
    return state


def update_atoms(state: State) -> State:
    """One pass over the atoms and their coefficients, at fixed supports."""
    atoms, users = np.nonzero(state.S.T)
    starts = np.searchsorted(atoms, np.arange(len(state.M) + 1))
    update = compiled.find("update_used_atoms", state.M) or update_used_atoms_plain
    update(*state, users, starts)
    return state


def update_used_atoms_plain(M: Array, S: Array, E: Array, users: Array, starts: Array) -> None:
    """Atom k, which the samples users[starts[k]:starts[k + 1]] use, and its coefficients; in place."""
    for k in range(len(M)):
        mine = users[starts[k] : starts[k + 1]]
        g = S[mine, k]
        without = E[mine] + np.outer(g, M[k])
        numerator = g @ without
        norm = np.linalg.norm(numerator)
        if norm > 0:
            M[k] = numerator / norm
            S[mine, k] = without @ M[k]
            E[mine] = without - np.outer(S[mine, k], M[k])


def replace_atoms(state: State, T: Array, sq_norms: Array, *, unused: bool) -> tuple[State, int]:
    """Copies of other atoms, and unused ones if so asked, become the samples that are represented worst.

    Only as long as there are samples that are badly represented, and different ones.
    """
    M, S, E = state
    G = np.abs(M @ M.T)
    usage = np.count_nonzero(S, axis=0)
    # Of two copies the one that is used less goes, or the later one.
    order = np.lexsort((np.arange(len(M)), -usage))
    copies = np.tril(G[np.ix_(order, order)] > 1 - COPY, -1).any(axis=1)
    bad = np.zeros(len(M), dtype=bool)
    bad[order] = copies
    bad |= (usage == 0) & unused
    errors = np.einsum("ij,ij->i", E, E)
    candidates = np.argsort(-errors, kind="stable")
    candidates = candidates[errors[candidates] > REPRESENTED * sq_norms[candidates]]
    n_replaced = 0
    for k, sample in zip(np.flatnonzero(bad), candidates, strict=False):
        mine = np.flatnonzero(S[:, k])
        E[mine] += np.outer(S[mine, k], M[k])
        S[mine, k] = 0
        M[k] = T[sample] / np.sqrt(sq_norms[sample])
        n_replaced += 1
    return state, n_replaced
