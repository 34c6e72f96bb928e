"""Why a sample was taken for a class: the atoms that make up its scores, and the samples behind them."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from ledl.arrays import Array, is_torch, to_host
from ledl.dictionary import FittedDictionary
from ledl.estimators import check_samples
from ledl.explanations._explanation import Explanation
from ledl.rejection import our_parts
from ledl.subspace import KernelSpace


def explain(estimator: Any, x: Any, *, n_neighbors: int = 5) -> Explanation:
    r"""Say why a fitted classifier takes a sample for a class.

    Where codes s are classified (LEDL, D-KSVD, LC-KSVD), atom k adds :math:`s_k W_{kj}` to the score of class
    j. Where residuals decide (SRC, CRC, CSDL, LEDL with that rule), the atoms :math:`d_k` of class j, which
    together make :math:`f_j = \sum_k s_k d_k`, stand beside the base value :math:`-|x|^2`:

    .. math::

        -|x - f_j|^2 = -|x|^2 + \sum_k s_k \langle d_k, 2 x - f_j \rangle

    which are the atoms' Shapley values. With the rule "regularized" both sides are divided by
    :math:`|x - f_j| |s_j|`.

    Parameters
    ----------
    estimator : fitted classifier of this package, a RejectingClassifier, or a Pipeline that ends in one
        What decided.

    x : array-like of shape (n_features,) or (1, n_features)
        One sample; for a pipeline what its first step takes one of, an image for one.

    n_neighbors : int, default=5
        Training samples to give for the sample and for each atom.

    Returns
    -------
    Explanation
        Which atoms carry the decision, what they are made of, and the nearest training samples. Models that
        were fitted on more than :math:`2^{24}` numbers do not keep the samples: then there are no neighbours,
        except for SRC and CRC, whose atoms the samples are.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_digits
    >>> from ledl import LEDLClassifier, explain
    >>> X, y = load_digits(return_X_y=True)
    >>> model = LEDLClassifier(random_state=0).fit(X[:100], y[:100])
    >>> found = explain(model, X[100])
    >>> bool(np.allclose(found.base + found.contributions.sum(axis=0), found.scores, atol=1e-12))
    True
    >>> int(found.predicted), int(found.atom_classes[found.decisive_atoms[0]])
    (4, 4)
    """
    check_is_fitted(estimator)
    if not isinstance(n_neighbors, Integral) or n_neighbors < 1:
        raise ValueError(f"n_neighbors={n_neighbors} must be 1 or more.")
    parts = our_parts(estimator)
    features = one_row(parts.transform(as_input(parts.transformers, x)))
    dictionary: FittedDictionary = parts.classifier.dictionary_
    code, z, sq_norm = dictionary.code_one(check_samples(parts.classifier, features))
    base, contributions = dictionary.contributions(code, z, sq_norm)
    scores = base + contributions.sum(axis=0)
    concentration, residual = dictionary.evidence(code[None], z[None], np.array([sq_norm]))[0].tolist()
    near, cosines, labels, atom_neighbors = neighbourhood(
        dictionary, np.flatnonzero(code), z, sq_norm, n_neighbors
    )
    is_kernel = isinstance(dictionary.space, KernelSpace)
    scale = np.sqrt(np.sum(features.astype(np.float64) ** 2)) if dictionary.unit_norm else 1.0
    p_value = None
    if parts.rejecter is not None:
        p_value = float(parts.rejecter.p_values_of(np.array([[concentration, residual]]))[0])
    classes, rule = np.asarray(dictionary.classes), dictionary.rule
    return Explanation(
        predicted=classes[scores.argmax()],
        classes=classes,
        scores=scores,
        base=base,
        contributions=contributions,
        codes=code,
        rule=rule.name,
        atom_classes=classes[dictionary.atom_labels],
        atoms_are_samples=dictionary.samples is dictionary.atoms,
        atoms=None if is_kernel else dictionary.space.expand(dictionary.atoms),
        sample=features[0],
        reconstruction=None if is_kernel else dictionary.space.expand(code @ dictionary.atoms) * scale,
        concentration=concentration,
        residual=residual,
        p_value=p_value,
        rejected=p_value is not None and p_value <= parts.rejecter.reject,
        neighbors=near,
        similarities=cosines,
        neighbor_classes=classes[labels],
        atom_neighbors=atom_neighbors,
    )


def as_input(transformers: Sequence[Any], x: Any) -> Any:
    """Return one sample as the first step takes several: a row of a matrix, or an image in a list."""
    return [x] if transformers and get_tags(transformers[0]).no_validation else one_row(x)


def one_row(x: Any) -> Array:
    """Return one sample as a matrix."""
    x = to_host(x) if is_torch(x) else np.asarray(x)
    if x.ndim == 1:
        x = x[None]
    if x.ndim != 2 or len(x) != 1:
        raise ValueError(f"x has shape {x.shape}, but one sample is explained at a time. Give one row.")
    return x


def neighbourhood(
    dictionary: FittedDictionary, used: Array, z: Array, sq_norm: float, n_neighbors: int
) -> tuple[Array, Array, Array, Array]:
    """Return the nearest training samples, their cosines and labels; and those nearest to each atom in use."""
    atoms, samples, labels = dictionary.atoms, dictionary.samples, dictionary.sample_labels
    atom_neighbors = np.full((len(atoms), n_neighbors), -1)
    if samples is None or labels is None:
        return np.empty(0, dtype=np.int64), np.empty(0), np.empty(0, dtype=np.int64), atom_neighbors
    norms = np.sqrt(np.einsum("ij,ij->i", samples, samples, dtype=np.float64))
    units = np.where(norms > 0, norms, 1)
    cosines = samples @ z / units / (np.sqrt(sq_norm) if sq_norm > 0 else 1)
    nearest = np.argsort(-cosines, kind="stable")[:n_neighbors]
    # Coefficients may be negative: what matters is the line that an atom lies on.
    by_atom = np.abs(atoms[used] @ samples.T) / units
    order = np.argsort(-by_atom, axis=1, kind="stable")[:, :n_neighbors]
    atom_neighbors[used, : order.shape[1]] = order
    if samples is atoms:
        atom_neighbors[used], atom_neighbors[used, 0] = -1, used
    return nearest, cosines[nearest], labels[nearest], atom_neighbors
