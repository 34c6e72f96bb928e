"""Labels as targets: which atoms belong to which class, and H and Q without forming them.

With U the (c, K) atom-ownership matrix, Q = H U, and U = diag(sqrt(m_j)) P with P P' = I, where
m_j is the number of atoms of class j. The label-consistency transform is therefore kept as
the (K, c) matrix A P' with target H diag(sqrt(m_j)); the K x K matrix is formed on demand.
"""

from __future__ import annotations

import numpy as np

from ledl.arrays import Array


def default_n_atoms(n_samples: int, n_classes: int, a_sample: int = 2) -> int:
    """Atoms `a_sample`, two as in the paper, but at most max(2,000, c)."""
    return min(a_sample * n_samples, max(2000, n_classes))


def atom_counts(class_counts: Array, n_atoms: int) -> Array:
    """Atoms of each class: in proportion to its samples, and at least one.

    Floors of K n_j / n, then the largest remainders, ties to the lower class; a class left
    with none takes one from the class with the largest m_j / n_j.

    Examples
    --------
    >>> atom_counts([5, 5, 5], 30)
    array([10, 10, 10])
    >>> atom_counts([90, 9, 1], 10)
    array([8, 1, 1])
    """
    counts = np.asarray(class_counts, dtype=np.int64)
    shares = counts * n_atoms
    atoms, remainders = np.divmod(shares, counts.sum())
    by_remainder = np.argsort(-remainders, kind="stable")
    atoms[by_remainder[: n_atoms - atoms.sum()]] += 1
    for empty in np.flatnonzero(atoms == 0):
        donors = np.where(atoms > 1, atoms / counts, -np.inf)
        atoms[np.argmax(donors)] -= 1
        atoms[empty] = 1
    return atoms


def code_scale(counts: Array) -> Array:
    """sqrt(m_j): what the one-hot labels are scaled by to be the target of the reduced A."""
    return np.sqrt(np.asarray(counts, dtype=np.float64))


def reduce_code_transform(A: Array, atom_classes: Array) -> Array:
    """A P': the (K, c) matrix that a K x K transform acts by."""
    counts = np.bincount(atom_classes)
    ownership = np.zeros((len(atom_classes), len(counts)), dtype=A.dtype)
    ownership[np.arange(len(atom_classes)), atom_classes] = 1 / code_scale(counts)[atom_classes]
    return A @ ownership


def expand_code_transform(A: Array, atom_classes: Array) -> Array:
    """(A P') P: the K x K transform of a reduced one."""
    counts = np.bincount(atom_classes)
    return (A / code_scale(counts).astype(A.dtype))[:, atom_classes]
