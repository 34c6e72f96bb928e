"""Classify by the nearest class subspace. docs/add_a_classifier.md explains it."""

from __future__ import annotations

from numbers import Integral
from typing import Any, ClassVar, NamedTuple

import numpy as np
from sklearn.utils._param_validation import Interval

from ledl.arrays import Array, product
from ledl.coding import Coder, Samples
from ledl.dictionary import FittedDictionary, ResidualRule
from ledl.estimators import (
    DEVICE,
    N_JOBS,
    DictionaryClassifier,
    adopt,
    fit_context,
    fitted_attributes,
    rollback_on_error,
)
from ledl.subspace import FeatureMap, Subspace


# [coder]
class Projection(NamedTuple):
    """Codes x D' over atoms D, which are orthonormal within each class."""

    def prepare(
        self, atoms: Array, samples: Samples, space: Subspace, threads: int, kept: dict
    ) -> Coder:
        """Return the coder of these samples. Results to reuse would go to `kept`."""
        return ProjectionCoder(samples.to_device(atoms))


class ProjectionCoder:
    """Compute codes by one product with the atoms."""

    solver, tol = "projection", None

    def __init__(self, atoms: Array) -> None:
        self.atoms = atoms

    def __call__(
        self, X: Array, sq_norms: Array, start: None = None
    ) -> tuple[Array, Array, Array, Array]:
        """Return codes, gaps and iterations (zeros), and whether each code is right."""
        n, codes = len(X), product(X, self.atoms.T)
        return codes, np.zeros(n), np.zeros(n, np.int64), np.ones(n, dtype=bool)


# [classifier]
class NearestSubspaceClassifier(DictionaryClassifier):
    r"""Find the nearest class subspace: :math:`\arg\min_j \|x - x D_j' D_j\|^2`.

    The rows of :math:`D_j` are the first right singular vectors of class j's samples.

    Parameters
    ----------
    n_dimensions : int, default=3
        Number of dimensions of each subspace, at most. A class has no more than it has
        independent samples, and fewer than there are features: the space of all
        features would be near to every sample.
    normalize : bool, default=True
        Scale samples to norm 1, in `fit` and after.
    device : str, default=None
        Device that codes new samples. None: NumPy; ``"cuda"``: a GPU.
    n_jobs : int, default=None
        Number of threads that code new samples.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "n_dimensions": [Interval(Integral, 1, None, closed="left")],
        "normalize": ["boolean"],
        "device": DEVICE,
        "n_jobs": N_JOBS,
    }

    def __init__(
        self,
        *,
        n_dimensions: int = 3,
        normalize: bool = True,
        device: str | None = None,
        n_jobs: int | None = None,
    ) -> None:
        self.n_dimensions = n_dimensions
        self.normalize = normalize
        self.device = device
        self.n_jobs = n_jobs

    # [fit]
    @fit_context(prefer_skip_nested_validation=True)
    @rollback_on_error
    def fit(self, X: Array, y: Array) -> NearestSubspaceClassifier:
        """Find the subspace of each class, and return the classifier."""
        samples, labels, classes = self._training_data(X, y, on_host=True)
        space, coordinates = self._find_space(samples)
        most = min(self.n_dimensions, coordinates.shape[1] - 1)
        numbers = np.arange(len(classes))
        bases = [leading_rows(coordinates[labels == j], most) for j in numbers]
        atoms, atom_labels = (
            np.concatenate(bases),
            np.repeat(numbers, list(map(len, bases))),
        )
        dictionary = FittedDictionary(
            space,
            atoms,
            FeatureMap(unit_norm=self.normalize),
            coder=Projection(),
            rule=ResidualRule(),
            classes=classes,
            atom_labels=atom_labels,
        )
        adopt(self, **fitted_attributes(dictionary))
        return self

    # [tags]
    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # Subspaces through the origin do not separate scikit-learn's blobs.
        tags.classifier_tags.poor_score = True
        return tags


def leading_rows(X: Array, n_dimensions: int) -> Array:
    """Return the directions of largest samples as orthonormal rows, at least one."""
    _, sizes, rows = np.linalg.svd(X, full_matrices=False)
    rounding = sizes[0] * max(X.shape) * np.finfo(sizes.dtype).eps
    rank = np.count_nonzero(sizes > rounding)
    return rows[: max(1, min(n_dimensions, rank))]
