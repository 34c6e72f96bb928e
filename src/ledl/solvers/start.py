"""Where learning starts: the number of atoms, their classes, and their first values.

The values come from random numbers, from samples, or from given arrays, in the coordinates of the subspace.
Starts of Algorithm 3 have the transform A reduced to K x c, and rows of norm 1 in each of B, W and A.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from ledl.arrays import Array, as_array, namespace, take_rows, to_host, unit_rows
from ledl.samples import Block, Blocks
from ledl.solvers.ledl import Atoms, reduce_code_transform
from ledl.subspace import KernelSpace, Subspace

# A class start differs from a sample, or from the target of a class, by about this share of its norm: enough
# for two atoms at one sample to separate, if its class has other samples.
SPREAD = 0.1

# Number of samples in the random mix of a class start.
MIXED = 5

# Rows drawn at a time, so that a random start needs no K x d or K x K matrix.
CHUNK = 256


def default_n_atoms(n_samples: int, n_classes: int, a_sample: int = 2) -> int:
    """Return the number of atoms: `a_sample` for each sample, as in the paper, but at most max(2,000, c)."""
    return min(a_sample * n_samples, max(2000, n_classes))


def atom_counts(class_counts: Array, n_atoms: int) -> Array:
    """Return the number of atoms of each class: in proportion to its samples or their weights, at least one.

    Floors of K n_j / n come first, then the largest remainders, ties to the lower class. A class without
    atoms gets one from the class with the largest m_j / n_j.

    Examples
    --------
    >>> atom_counts([5, 5, 5], 30)
    array([10, 10, 10])
    >>> atom_counts([90, 9, 1], 10)
    array([8, 1, 1])
    """
    counts = np.asarray(class_counts)
    shares = np.round(n_atoms * (counts / counts.sum()), 9)  # equal weights are equal only up to rounding
    remainders, whole = np.modf(shares)
    atoms = whole.astype(np.int64)
    by_remainder = np.argsort(-remainders, kind="stable")
    atoms[by_remainder[: n_atoms - atoms.sum()]] += 1
    for empty in np.flatnonzero(atoms == 0):
        donors = np.where(atoms > 1, atoms / counts, -np.inf)
        atoms[np.argmax(donors)] -= 1
        atoms[empty] = 1
    return atoms


def in_turns(atom_classes: Array) -> Array:
    """Return an order of atoms in which classes take turns; `atom_classes` is sorted.

    First comes one atom of each class, then the next of each, and so on. Lots, always the same, decide in each
    round. What all samples have in common goes into the atoms that are updated first. In the order of classes
    these would be all atoms of the first ones, whose samples are then often missed.

    Examples
    --------
    >>> in_turns(np.array([0, 0, 0, 1, 2, 2]))
    array([4, 0, 3, 5, 1, 2])
    """
    K = len(atom_classes)
    rounds = np.arange(K) - np.searchsorted(atom_classes, atom_classes)
    return np.lexsort((np.random.default_rng(0).permutation(K), rounds))


def class_start(
    blocks: Blocks, candidates: list[Array], atom_classes: Array, rng: np.random.Generator
) -> Atoms:
    """Return atoms, each at a sample of its class plus a small random mix of such samples.

    The atoms of a class use its samples in turn, in random order.

    Parameters
    ----------
    candidates : list of (n_j,) arrays
        For each class, the indices of the samples at which its atoms may start.
    """
    K, c = len(atom_classes), len(candidates)
    index, weights = [], []  # (K, 1 + MIXED) in the end: the samples that an atom is a mixture of
    for samples, count in zip(candidates, np.bincount(atom_classes, minlength=c), strict=True):
        base = np.resize(rng.permutation(samples), count)
        index.append(np.column_stack([base, rng.choice(samples, size=(count, MIXED))]))
        small = SPREAD / MIXED**0.5 * rng.standard_normal((count, MIXED))
        weights.append(np.column_stack([np.ones(count), small]))
    (B,) = blocks.map_sum(partial(mix, np.concatenate(index), np.concatenate(weights)))
    W, A = (np.eye(c)[atom_classes] + SPREAD * rng.random((K, c)) for _ in range(2))
    return join(B, W, A)


def mix(index: Array, weights: Array, block: Block) -> tuple[Block, tuple[Array]]:
    """Return a block as it is, and the contribution of its samples to mixtures of samples: a step."""
    local = index - block.first
    inside = (local >= 0) & (local < block.X.shape[-2])
    local = as_array(np.where(inside, local, 0), block.X)
    share = as_array(np.where(inside, weights, 0.0), block.X, block.X.dtype)
    columns = range(index.shape[-1])
    return block, (sum(share[:, j, None] * take_rows(block.X, local[:, j]) for j in columns),)


def random_start(subspace: Subspace, n_features: int, atom_classes: Array, rng: np.random.Generator) -> Atoms:
    """Return atoms of uniform random numbers, normalised as in the paper, in the subspace."""
    K, c = len(atom_classes), int(atom_classes.max()) + 1

    def draw(width: int) -> Iterator[Array]:
        for i in range(0, K, CHUNK):
            yield unit_rows(rng.random((min(CHUNK, K - i), width)))

    B = np.concatenate([subspace.reduce(rows) for rows in draw(n_features)])
    W = np.concatenate(list(draw(c)))
    A = np.concatenate([reduce_code_transform(rows, atom_classes) for rows in draw(K)])
    return join(B, W, A)


def random_mixtures(X: Array, n_atoms: int, rng: np.random.Generator) -> Array:
    """Return atoms at random combinations of samples, with weights of either sign."""
    return unit_rows(rng.standard_normal((n_atoms, len(X))) @ X)


def sample_start(X: Array, n_atoms: int, rng: np.random.Generator) -> Array:
    """Return atoms at distinct non-zero samples, in random order, then at mixtures if these are too few."""
    _, distinct = np.unique(X, axis=0, return_index=True)
    usable = np.sort(distinct[X[distinct].any(axis=1)])  # an order that does not depend on coordinates
    atoms = unit_rows(X[rng.permutation(usable)[:n_atoms]])
    return np.concatenate([atoms, random_mixtures(X, n_atoms - len(atoms), rng)])


def n_given_atoms(arrays: tuple[Array, Array, Array]) -> int:
    """Return the number of rows of B, for B, W and A as a user gave them."""
    if len(arrays) != 3 or np.ndim(arrays[0]) != 2:
        raise ValueError(
            f"init has {len(arrays)} arrays of {[np.ndim(array) for array in arrays]} axes; give a name, or "
            "the three matrices (B, W, A)."
        )
    return len(arrays[0])


def array_start(
    arrays: tuple[Array, Array, Array],
    subspace: Subspace,
    width: int,
    atom_classes: Array,
    dtype: Any = np.float64,
) -> Atoms:
    """Return atoms from given B (K, width), W (K, c) and A (K, K): in a subspace of that type, and normalised.

    `width` is the width of atoms that `subspace.expand` returns: features, or training samples with a kernel.
    """
    K, c = len(atom_classes), int(atom_classes.max()) + 1
    shapes = {"B": (K, width), "W": (K, c), "A": (K, K)}
    n_given_atoms(arrays)
    given = [np.asarray(to_host(array), dtype=np.float64) for array in arrays]
    for (name, shape), array in zip(shapes.items(), given, strict=True):
        if array.shape != shape:
            raise ValueError(
                f"init: {name} has shape {array.shape}, but {shape} is needed: (n_components, n_features) for "
                "B (with a kernel (n_components, n_samples)), (n_components, n_classes) for W, (n_components, "
                "n_components) for A."
            )
        if not np.isfinite(array).all():
            raise ValueError(f"init: {name} has NaN or infinite entries; give finite ones.")
    B, W, A = given
    B = B @ subspace.coordinates if isinstance(subspace, KernelSpace) else subspace.reduce(B)
    reduced = (B, W, reduce_code_transform(A, atom_classes))
    for name, full, rows in zip(shapes, given, reduced, strict=True):
        norms, kept = np.linalg.norm(full, axis=-1), np.linalg.norm(rows, axis=-1)
        lost = np.flatnonzero(kept <= 100 * np.finfo(dtype).eps * norms)
        if lost.size:
            raise ValueError(
                f"init: row {lost[0]} of {name} is zero in the space that training runs in (the span of "
                "the samples for B, of the classes' atoms for A); give a row with a part inside it."
            )
    return join(*reduced)


def join(B: Array, W: Array, A: Array) -> Atoms:
    """Return atoms from their three parts, each row of each part scaled to norm 1."""
    xp = namespace(B)
    parts = [unit_rows(as_array(part, B, B.dtype)) for part in (B, W, A)]
    return Atoms(xp.concat(parts, axis=-1), W.shape[-1])
