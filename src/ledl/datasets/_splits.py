"""The paper's protocol: a few random samples of each class to train on, all others to test."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator, Sequence
from numbers import Integral
from typing import Any

import numpy as np

from ledl.arrays import Array
from ledl.images import content_key, is_file


def few_shot_splits(
    y: Array, *, n_per_class: int = 5, seeds: Iterable[int] = range(8)
) -> Iterator[tuple[Array, Array]]:
    """Return random splits with `n_per_class` training samples of each class, one split for each seed.

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
    return (_draw(members, n_per_class, seed) for seed in seeds)


def _draw(members: list[Array], n_per_class: int, seed: int) -> tuple[Array, Array]:
    """Return the indices of training and of test samples, class after class."""
    rng = np.random.default_rng(seed)
    shuffled = [rng.permutation(indices) for indices in members]
    train = np.concatenate([indices[:n_per_class] for indices in shuffled])
    return train, np.concatenate([indices[n_per_class:] for indices in shuffled])


class FewShotSplit:
    """The splits of `few_shot_splits` as a scikit-learn ``cv``.

    For `GridSearchCV`, `cross_val_score` and the like. Samples that are on both sides of a split, identical
    feature by feature, are counted, and reported by a warning: a test sample that was trained on is no test.

    Parameters
    ----------
    n_per_class : int, default=5
        Training samples of each class.
    seeds : iterable of int, default=range(8)
        A split for each.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.model_selection import cross_val_score
    >>> from ledl import CRCClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> len(cross_val_score(CRCClassifier(), X, y, cv=FewShotSplit(n_per_class=5)))
    8
    """

    def __init__(self, *, n_per_class: int = 5, seeds: Iterable[int] = range(8)) -> None:
        self.n_per_class = n_per_class
        self.seeds = list(seeds)

    def split(self, X: Array, y: Array, groups: Array = None) -> Iterator[tuple[Array, Array]]:
        """Yield the indices of training and test samples, split by split.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...), list of files, or None
            The samples, in which identical ones are looked for; None: none are.
        y : array-like of shape (n_samples,)
            Their labels.
        groups : None
            Of no effect; scikit-learn passes it.

        Yields
        ------
        train, test : ndarrays of int
            Indices into `y`.
        """
        splits = few_shot_splits(y, n_per_class=self.n_per_class, seeds=self.seeds)
        identities = range(len(y)) if X is None else _identities(X)
        for seed, (train, test) in zip(self.seeds, splits, strict=True):
            shared = _n_shared(identities, train, test)
            if shared:
                warnings.warn(
                    f"Split {seed}: {shared} of {len(test)} test samples are identical to a training sample.",
                    UserWarning,
                    stacklevel=2,
                )
            yield train, test

    def get_n_splits(self, X: Array = None, y: Array = None, groups: Array = None) -> int:
        """Return the number of splits.

        Parameters
        ----------
        X, y, groups : None
            Of no effect; scikit-learn passes them.

        Returns
        -------
        int
            One for each seed.
        """
        return len(self.seeds)

    def __repr__(self) -> str:
        return f"FewShotSplit(n_per_class={self.n_per_class}, seeds={self.seeds})"


def n_shared_samples(X: Array, train: Array, test: Array) -> int:
    """Return how many test samples are identical, feature by feature, to some training sample.

    Parameters
    ----------
    X : array-like of shape (n_samples, ...)
        All samples, as rows; or a list of files, whose contents are then compared.
    train, test : arrays of int
        Indices of samples.

    Returns
    -------
    int
        Test samples that were trained on.

    Examples
    --------
    >>> n_shared_samples([[1, 2], [3, 4], [1, 2]], [0, 1], [2])
    1
    """
    return _n_shared(_identities(X), train, test)


def _n_shared(identities: Sequence[Any], train: Array, test: Array) -> int:
    known = {identities[i] for i in train}
    return sum(identities[i] in known for i in test)


def _identities(X: Any) -> list[Any]:
    """Return for each sample what it has in common with those that are identical to it, and with no other."""
    if hasattr(X, "to_numpy"):
        X = X.to_numpy()
    elif hasattr(X, "tocsr"):
        X = X.tocsr()
    found: list[Any] = []
    for i in range(X.shape[0] if hasattr(X, "shape") else len(X)):
        sample = X[i]
        if hasattr(sample, "toarray"):
            sample = sample.toarray()
        if isinstance(sample, str | os.PathLike):
            found.append(content_key(sample) if is_file(sample) else os.fspath(sample))
        elif (array := np.ascontiguousarray(sample)).dtype == object:
            found.append(tuple(array.reshape(-1).tolist()))
        else:
            found.append((array.dtype.str, array.shape, array.tobytes()))
    return found
