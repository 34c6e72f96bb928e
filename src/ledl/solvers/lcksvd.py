"""LC-KSVD and D-KSVD: K-SVD on samples and labels side by side (the paper's Algorithm 2).

Samples and atoms are rows here. LC-KSVD minimises the paper's (3),

    |X - S B|^2 + lam |H - S W|^2 + omega |Q - S A|^2        rows of S with few non-zeros

as K-SVD on the stacked targets [X, sqrt(lam) H, sqrt(omega) Q]; D-KSVD is omega = 0. With U the (c, K) atom-
ownership matrix Q = H U, so the label part of the targets is H [sqrt(lam) I, sqrt(omega) U], and the rows of
that last matrix are orthogonal with norms v_j = sqrt(lam + omega m_j), m_j being the number of atoms of class
j. The ridge starts of W and A are (S'S + I)^-1 S' times H and Q, so the label part of every atom starts in
the span of those rows, and since each new atom is a combination of targets and atoms it stays there. In an
orthonormal basis of the span the targets are

    [X, H diag(v)]

and K-SVD sees inner products only: c columns for labels in place of c + K, and with equal m_j exactly D-KSVD
at the weight lam + omega m_j. An atom with label part l has w = l / v and a = w U.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from ledl.arrays import Array, add_to_diagonal, class_sums, place, unit_rows
from ledl.solvers import ksvd
from ledl.solvers.iteration import Iterations, Record
from ledl.solvers.start import sample_start


class Learnt(NamedTuple):
    """B with rows of norm 1, W scaled with it, and the codes of the samples over B."""

    B: Array
    W: Array
    S: Array


def solve(
    X: Array,
    labels: Array,
    start: Array,
    label_scale: Array,
    n_nonzero: int,
    *,
    max_iter: int,
    tol: float,
    callback: Callable[[int, Record, Callable[[], Learnt]], bool] | None = None,
    device: str | None = None,
) -> Iterations:
    """Run Algorithm 2 from the class-wise dictionary `start` on, `label_scale` (c,) being v.

    The state of the result is a `Learnt`; `callback` gets a function that returns one. `device` is as in
    `ksvd.solve`.
    """
    n, c = len(X), len(label_scale)
    # The classifier starts from codes of the samples without labels.
    X, atoms = np.ascontiguousarray(X, dtype=np.float64), place(np.array(start, dtype=np.float64), device)
    samples = place(X, device), place(np.einsum("ij,ij->i", X, X), device)
    S = ksvd.find_codes(*samples, atoms, atoms @ atoms.T, n_nonzero)
    M = np.concatenate([start, ridge_classifier(S, labels, c) * label_scale], axis=1)
    H = np.zeros((n, c))
    H[np.arange(n), labels] = label_scale[labels]

    def after(iteration: int, record: Record, state: ksvd.State) -> bool:
        return callback is not None and callback(iteration, record, partial(separate, state, label_scale))

    T = np.concatenate([X, H], axis=1)
    run = ksvd.solve(T, M, n_nonzero, max_iter=max_iter, tol=tol, callback=after, device=device)
    return run._replace(state=separate(run.state, label_scale))


def separate(state: ksvd.State, label_scale: Array) -> Learnt:
    """Return B, W and the codes of stacked atoms: B and W divided by the norms of B's rows, S times them."""
    c = len(label_scale)
    B, W = state.M[:, :-c], state.M[:, -c:] / label_scale
    norms = np.linalg.norm(B, axis=1, keepdims=True)
    # An atom with labels only has no norm to divide by, and no new sample uses it.
    usable = norms > 0
    return Learnt(unit_rows(B), np.where(usable, W / np.where(usable, norms, 1), 0), state.S * norms.T)


def ridge_classifier(S: Array, labels: Array, n_classes: int) -> Array:
    """Return W = (S'S + I)^-1 S'H."""
    gram = add_to_diagonal(S.T @ S, np.ones((1, 1)))
    return np.linalg.solve(gram, class_sums(S, labels, n_classes).T)


def class_start(
    X: Array,
    labels: Array,
    atom_counts: Array,
    n_nonzero: int,
    *,
    max_iter: int,
    rng: np.random.Generator,
    device: str | None = None,
) -> Array:
    """Return the dictionaries of all classes, each learnt by K-SVD from the samples of its class, stacked."""
    parts = []
    for j, n_atoms in enumerate(atom_counts):
        own = X[labels == j]
        atoms = sample_start(own, n_atoms, rng)
        if n_atoms < len(own):  # otherwise all samples are atoms, and there is nothing to learn
            n_most = min(n_nonzero, n_atoms)
            run = ksvd.solve(own, atoms, n_most, max_iter=max_iter, tol=0.0, device=device)
            atoms = run.state.M
        parts.append(atoms)
    return np.concatenate(parts)
