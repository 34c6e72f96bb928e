"""Split samples as in the paper: a few random samples of each class for training, all others for testing."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator
from numbers import Integral
from typing import Any

import numpy as np

from ledl.arrays import Array
from ledl.images import content_key


def few_shot_splits(
    y: Array, *, n_per_class: int = 5, seeds: Iterable[int] = range(8)
) -> Iterator[tuple[Array, Array]]:
    """Return random splits with `n_per_class` training samples of each class, one split for each seed.

    The indices of each class, in ascending order of classes, are permuted by ``np.random.default_rng(seed)``.
    The first `n_per_class` are for training, the others for testing.

    Parameters
    ----------
    y : array-like of shape (n_samples,)
        Labels.
    n_per_class : int, default=5
        Number of training samples of each class.
    seeds : iterable of int, default=range(8)
        Seeds, one per split. The paper has eight splits.

    Yields
    ------
    train, test : ndarrays of int
        Indices into `y`, class after class.

    Raises
    ------
    ValueError
        At once, if a class has fewer samples than `n_per_class`. A class with exactly as many is not tested.

    Examples
    --------
    >>> train, test = next(few_shot_splits([0, 0, 0, 1, 1, 1], n_per_class=2))
    >>> len(train), len(test)
    (4, 2)
    """
    y = np.asarray(y)
    if y.ndim != 1 or y.size == 0:
        raise ValueError(f"y has shape {y.shape}, but it must be a vector with one label per sample.")
    if not isinstance(n_per_class, Integral) or n_per_class < 1:
        raise ValueError(f"n_per_class={n_per_class} is not a number of training samples. Use 1, 2, ...")
    if isinstance(seeds, Integral):
        raise TypeError(f"seeds={seeds} is one number. Give a list, [{seeds}] for a single split.")
    classes, labels, counts = np.unique(y, return_inverse=True, return_counts=True)
    scarcest = counts.argmin()
    if counts[scarcest] < n_per_class:
        raise ValueError(
            f"n_per_class={n_per_class} is too large: class {classes[scarcest]} has {counts[scarcest]} "
            "samples. Use a smaller n_per_class, or leave the class out."
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
    """Give the splits of `few_shot_splits` as a ``cv`` of scikit-learn.

    For example for `GridSearchCV` and `cross_val_score`. A warning counts the test samples that are identical
    to a training sample, because they make the score too high.

    Parameters
    ----------
    n_per_class : int, default=5
        Number of training samples of each class.
    seeds : iterable of int, default=range(8)
        Seeds, one per split.

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
            Samples, among which identical ones are searched. If None, nothing is searched.
        y : array-like of shape (n_samples,)
            Labels.
        groups : None
            Ignored; scikit-learn passes it.

        Yields
        ------
        train, test : ndarrays of int
            Indices into `y`.
        """
        splits = few_shot_splits(y, n_per_class=self.n_per_class, seeds=self.seeds)
        contents = np.arange(len(y)) if X is None else _number_contents(X)
        for seed, (train, test) in zip(self.seeds, splits, strict=True):
            shared = np.isin(contents[test], contents[train]).sum()
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
            Ignored; scikit-learn passes them.

        Returns
        -------
        int
            Number of seeds.
        """
        return len(self.seeds)

    def __repr__(self) -> str:
        return f"FewShotSplit(n_per_class={self.n_per_class}, seeds={self.seeds})"


def n_shared_samples(X: Array, train: Array, test: Array) -> int:
    """Return how many test samples are identical, in all features, to a training sample.

    Parameters
    ----------
    X : array-like of shape (n_samples, ...)
        All samples, as rows. For a list of files, the contents of the files are compared.
    train, test : arrays of int
        Indices of samples.

    Returns
    -------
    int
        Number of test samples that are also training samples.

    Examples
    --------
    >>> n_shared_samples([[1, 2], [3, 4], [1, 2]], [0, 1], [2])
    1
    """
    contents = _number_contents(X)
    return int(np.isin(contents[np.asarray(test, int)], contents[np.asarray(train, int)]).sum())


def _number_contents(X: Any) -> Array:
    """Return a number for each sample. Identical samples have the same number."""
    if hasattr(X, "to_numpy"):
        X = X.to_numpy()
    elif hasattr(X, "tocsr"):
        X = X.tocsr()
    numbers: dict[Any, int] = {}
    contents = []
    for i in range(X.shape[0] if hasattr(X, "shape") else len(X)):
        sample, key = X[i], None
        if hasattr(sample, "toarray"):
            sample = sample.toarray()
        if isinstance(sample, str | os.PathLike):
            key = content_key(sample) if os.path.isfile(sample) else os.fspath(sample)
        elif (array := np.ascontiguousarray(sample)).dtype == object:
            key = tuple(array.reshape(-1).tolist())
        else:
            key = (array.dtype.str, array.shape, array.tobytes())
        contents.append(numbers.setdefault(key, len(numbers)))
    return np.array(contents, dtype=int)
