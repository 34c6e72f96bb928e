"""K-SVD: a dictionary over which samples have codes with few non-zeros.

With T the targets (n, q) as rows and M the atoms (K, q), rows of norm 1, one iteration lowers

    |T - S M|^2        each row of S having at most n_nonzero non-zeros                            (1)

first over the codes S by orthogonal matching pursuit, then atom by atom, the supports being fixed: with E the
residual of the samples that use atom k, as if they did not, and g their coefficients,

    m_k <- unit(g E),   g <- E m_k

the approximate update of Rubinstein, Zibulevsky and Elad (2008): each of the two minimises (1). Matching
pursuit is greedy, so it may find a worse code than the last one; such a sample keeps the last one. So (1)
rises only if atoms are replaced: atoms that no sample uses, and copies of other atoms, are replaced by samples
that are badly represented.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ledl.arrays import Array, place, to_host, unit_rows
from ledl.solvers import compiled
from ledl.solvers.iteration import Iterations, Record, iterate
from ledl.solvers.omp import omp

# Two atoms are copies if their cosine is this close to 1 or -1.
COPY = 1e-6
# A sample needs no atom of its own if its residual has less than this share of its squared norm.
REPRESENTED = 1e-10


class State(NamedTuple):
    """Atoms M, codes S, and residuals E = T - S M."""

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
    device: str | None = None,
) -> Iterations:
    """Run K-SVD from given atoms, in float64.

    The codes, nearly all of the work, are computed on a PyTorch `device`, such as "cuda", if one is named. The
    atoms are updated on the host, one after the other.

    The history of the result holds (1), ``error``, after each iteration, and the number of atoms ``replaced``
    before it.
    """
    T, M = np.ascontiguousarray(T, dtype=np.float64), unit_rows(np.asarray(start, dtype=np.float64))
    sq_norms = np.einsum("ij,ij->i", T, T)
    samples = place(T, device), place(sq_norms, device)

    def step(state: State, iteration: int, active: Array) -> tuple[State, Record]:
        atoms = place(state.M, device)
        G = atoms @ atoms.T
        state, n_replaced = replace_atoms(state, to_host(G), T, sq_norms, unused=iteration > 0)
        if n_replaced:
            atoms = place(state.M, device)
            G = atoms @ atoms.T
        codes = find_codes(*samples, atoms, G, n_nonzero)
        keep_better = compiled.find("keep_better_codes", codes) or keep_better_codes_plain
        keep_better(codes, T, *state)
        # For each atom the samples that use it: users[starts[k]:starts[k + 1]].
        users, used = np.nonzero(state.S)
        by_atom = np.argsort(used, kind="stable")
        users, starts = users[by_atom], np.searchsorted(used[by_atom], np.arange(len(state.M) + 1))
        update = compiled.find("update_used_atoms", state.M) or update_used_atoms_plain
        update(*state, users, starts)
        return state, {"error": np.einsum("ij,ij->", state.E, state.E), "replaced": n_replaced}

    state = State(M.copy(), np.zeros((len(T), len(M))), T.copy())
    return iterate(step, state, watch="error", max_iter=max_iter, tol=tol, callback=callback)


def find_codes(T: Array, sq_norms: Array, atoms: Array, G: Array, n_nonzero: int) -> Array:
    """Return codes of targets, as NumPy arrays; the arguments are all on one device, G the Gram matrix."""
    codes, _ = omp(G, T @ atoms.T, sq_norms, n_nonzero)
    return to_host(codes)


def keep_better_codes_plain(codes: Array, T: Array, M: Array, S: Array, E: Array) -> None:
    """Replace codes S and residuals E = T - S M, in place, for the samples whose new codes are no worse."""
    rest = T - codes @ M
    better = np.einsum("ij,ij->i", rest, rest) <= np.einsum("ij,ij->i", E, E)
    S[better], E[better] = codes[better], rest[better]


def update_used_atoms_plain(M: Array, S: Array, E: Array, users: Array, starts: Array) -> None:
    """Update atom after atom, k used by samples users[starts[k]:starts[k + 1]], and coefficients; in place."""
    for k in range(len(M)):
        mine = users[starts[k] : starts[k + 1]]
        g = S[mine, k]
        without = E[mine] + np.outer(g, M[k])
        numerator = g @ without
        largest = np.abs(numerator).max()
        if largest > 0:
            M[k] = unit_rows(numerator / largest)  # the square of a square may overflow
            S[mine, k] = without @ M[k]
            E[mine] = without - np.outer(S[mine, k], M[k])


def replace_atoms(state: State, G: Array, T: Array, sq_norms: Array, *, unused: bool) -> tuple[State, int]:
    """Replace copies of other atoms, and `unused` atoms if True, by the samples represented worst; G = M M'.

    Only samples that are badly represented, and that are no copies of an atom, become atoms. Return the state
    and the number of replaced atoms.
    """
    M, S, E = state
    usage = np.count_nonzero(S, axis=0)
    bad, close = (usage == 0) & unused, (G > 1 - COPY) | (G < COPY - 1)
    if np.count_nonzero(close) > len(G):  # some atom is close to another one
        # Of two copies, the one that is used less is bad, or the later one.
        order = np.lexsort((np.arange(len(G)), -usage))
        bad[order] |= np.tril(close[np.ix_(order, order)], -1).any(axis=1)
    if not bad.any():
        return state, 0
    errors = np.einsum("ij,ij->i", E, E)
    # Of equals the first: before they have codes, samples of norm 1 are equal, and rounding must not decide.
    worst = np.argsort(-(errors / (errors.max() or 1.0)).astype(np.float32), kind="stable")
    worst = worst[errors[worst] > REPRESENTED * sq_norms[worst]]
    targets = distinct(T[worst] / np.sqrt(sq_norms[worst])[:, None], M[~bad], int(bad.sum()))
    replaced = np.flatnonzero(bad)[: len(targets)]
    for k, target in zip(replaced, targets, strict=True):
        mine = np.flatnonzero(S[:, k])
        E[mine] += np.outer(S[mine, k], M[k])
        S[mine, k] = 0
        M[k] = target
    return state, len(replaced)


def distinct(targets: Array, atoms: Array, n_most: int) -> Array:
    """Return the first targets, `n_most` at most, that are copies neither of atoms nor of each other."""
    near = np.max(np.abs(targets @ atoms.T), axis=1, initial=0)
    chosen = np.empty((n_most, targets.shape[1]))
    n = 0
    for target in targets[near <= 1 - COPY]:
        if n == n_most:
            break
        if np.max(np.abs(chosen[:n] @ target), initial=0) <= 1 - COPY:
            chosen[n] = target
            n += 1
    return chosen[:n]
