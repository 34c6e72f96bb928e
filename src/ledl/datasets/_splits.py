"""The paper's protocol: a few random samples of each class to train on, all others to test."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from numbers import Integral

import numpy as np

from ledl.arrays import Array


def few_shot_splits(
    y: Array, *, n_per_class: int = 5, seeds: Iterable[int] = range(8)
) -> Iterator[tuple[Array, Array]]:
    """Random splits with `n_per_class` training samples of each class, one split for each seed.

    For each class in ascending order, its indices are permuted by ``np.random.default_rng(seed)``; the
    first `n_per_class` train, the rest test.

    Parameters
    ----------
    y : array-like of shape (n_samples,)
        Labels.
    n_per_class : int, default=5
        Training samples of each class.
    seeds : iterable of int, default=range(8)
        A split for each: the paper has eight.

    Yields
    ------
    train, test : ndarrays of int
        Indices into `y`, class after class.

    Raises
    ------
    ValueError
        At once, if a class has fewer samples than `n_per_class`. A class with just as many is not tested.

    Examples
    --------
    >>> train, test = next(few_shot_splits([0, 0, 0, 1, 1, 1], n_per_class=2))
    >>> len(train), len(test)
    (4, 2)
    """
    y = np.asarray(y)
    if y.ndim != 1 or y.size == 0:
        raise ValueError(f"y has shape {y.shape}, but a vector is needed: one label for each sample.")
    if not isinstance(n_per_class, Integral) or n_per_class < 1:
        raise ValueError(f"n_per_class={n_per_class} is not a number of training samples; use 1, 2, ...")
    if isinstance(seeds, Integral):
        raise TypeError(f"seeds={seeds} is one number; give a list, [{seeds}] for a single split.")
    classes, labels, counts = np.unique(y, return_inverse=True, return_counts=True)
    scarcest = counts.argmin()
    if counts[scarcest] < n_per_class:
        raise ValueError(
            f"n_per_class={n_per_class} samples of each class are asked for, but class {classes[scarcest]} has "
            f"{counts[scarcest]}. Use a smaller n_per_class, or leave the class out."
        )
    members = [np.flatnonzero(labels == j) for j in range(len(classes))]

    def splits() -> Iterator[tuple[Array, Array]]:
        for seed in seeds:
            rng = np.random.default_rng(seed)
            shuffled = [rng.permutation(indices) for indices in members]
            train = np.concatenate([indices[:n_per_class] for indices in shuffled])
            yield train, np.concatenate([indices[n_per_class:] for indices in shuffled])

    return splits()
