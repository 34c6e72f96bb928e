"""What the scores of one sample are made of, as data and as text."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ledl.arrays import Array
from ledl.explanations._page import page
from ledl.explanations._pictures import Pictures
from ledl.files import write_atomically


@dataclass(frozen=True, eq=False, repr=False)
class Explanation:
    """What the scores of one sample are made of; `explain` makes it.

    ``base + contributions.sum(axis=0)`` are the scores, to rounding in float64; those of a model in float32
    differ from its `decision_function` by the rounding of the latter.

    Parameters
    ----------
    predicted : label
        The class with the largest score.

    classes : ndarray of shape (n_classes,)
        The labels.

    scores : ndarray of shape (n_classes,)
        Of each class, also where there are two, for which `decision_function` gives their difference.

    base : ndarray of shape (n_classes,)
        The scores without any atom: 0 where codes are classified, :math:`-|x|^2` where residuals decide (in
        the unit of each class where they are divided).

    contributions : ndarray of shape (K, n_classes)
        What each atom adds to each score.

    codes : ndarray of shape (K,)
        How much of each atom is in the sample.

    rule : {"classifier", "residual", "regularized", "other"}
        How scores are made: see `LEDLClassifier`; "other" for classifiers that are not of this package.

    atom_classes : ndarray of shape (K,)
        The class of each atom; where atoms belong to none, the class that an atom counts for most.

    atoms_are_samples : bool
        Whether the atoms are the training samples themselves, as in SRC and CRC.

    atoms : ndarray of shape (K, n_features) or None
        The atoms as the classifier has them; None with a kernel.

    sample, reconstruction : ndarrays of shape (n_features,)
        The features that the classifier was given, and what the atoms make of them, in the same scale; the
        latter None with a kernel.

    concentration, residual : float
        The sparsity concentration index, and the residual of the nearest class: see `RejectingClassifier`.

    p_value : float or None
        The share of training samples that are as unlike their classes, by a `RejectingClassifier`.

    rejected : bool
        Whether a `RejectingClassifier` rejects the sample.

    neighbors, similarities : ndarrays of shape (n_neighbors,)
        The training samples with the largest cosines, by their row in `fit`, and those cosines.

    neighbor_classes : ndarray of shape (n_neighbors,)
        Their labels.

    atom_neighbors : ndarray of shape (K, n_neighbors)
        The training samples nearest to each atom that is used; -1 for the others, and where there are no more.

    Examples
    --------
    >>> from ledl import SRCClassifier, explain
    >>> model = SRCClassifier().fit([[1.0, 0.0], [0.0, 1.0]], ["east", "north"])
    >>> found = explain(model, [0.9, 0.2])
    >>> found
    Explanation(east ahead of north by 0.906, from 2 of 2 atoms)
    >>> found.neighbor_classes
    array(['east', 'north'], dtype='<U5')
    """

    predicted: Any
    classes: Array
    scores: Array
    base: Array
    contributions: Array
    codes: Array
    rule: str
    atom_classes: Array
    atoms_are_samples: bool
    atoms: Array | None
    sample: Array
    reconstruction: Array | None
    concentration: float
    residual: float
    p_value: float | None
    rejected: bool
    neighbors: Array
    similarities: Array
    neighbor_classes: Array
    atom_neighbors: Array

    @property
    def ranking(self) -> Array:
        """The classes, best first, as indices into `classes`."""
        return np.argsort(-self.scores, kind="stable")

    @property
    def margins(self) -> Array:
        """What each atom adds to the lead of the best class over the second, (K,)."""
        first, second = self.ranking[:2]
        return self.contributions[:, first] - self.contributions[:, second]

    @property
    def decisive_atoms(self) -> Array:
        """The atoms that are used, those with the largest part in that lead first."""
        order = np.argsort(-np.abs(self.margins), kind="stable")
        return order[self.codes[order] != 0]

    @property
    def _decimals(self) -> int:
        """How many decimals to show of what the two best scores are made of: three, or four, digits in all."""
        best = self.ranking[:2]
        scale = np.abs([self.base[best], self.scores[best]]).max()
        return int(np.clip(3 - round(np.log10(scale)), 0, 9)) if scale > 0 else 3

    def __repr__(self) -> str:
        first, second = self.ranking[:2]
        lead, n_used = self.scores[first] - self.scores[second], len(self.decisive_atoms)
        return (
            f"Explanation({self.predicted!s} ahead of {self.classes[second]!s} by {lead:.3g}, from {n_used} of "
            f"{len(self.codes)} atoms)"
        )

    def __str__(self) -> str:
        return self.text()

    def text(self, names: Sequence[str] | None = None) -> str:
        """Tell the explanation in a few lines.

        Parameters
        ----------
        names : sequence of str, default=None
            What the training samples are called, in the order of `fit`; None: by their numbers.

        Returns
        -------
        text : str
            The answer, a table of the atoms that decide most, and the nearest training samples.
        """
        best = self.ranking[:2]
        answer = ", ahead of ".join(f"{self.classes[j]} ({self.scores[j]:.4g})" for j in best)
        if self.p_value is not None:
            share = f"{100 * self.p_value:{'.0f' if self.p_value >= 0.1 else '.2g'}} %"
            doubt = f"{share} of the training samples are as unlike their classes"
            answer = f"none of these ({doubt}); nearest {answer}" if self.rejected else f"{answer}; {doubt}"

        shown = self.decisive_atoms[:10]
        width = max([5, *(len(str(self.atom_classes[k])) for k in shown)])
        heads = [f"{f'to {self.classes[j]!s}':>8s}" for j in best]
        lines = [answer, f"atom  {'class':{width}s}  amount  {heads[0]}  {heads[1]}"]
        for k in shown:
            adds = [f"{self.contributions[k, j]:+{len(head)}.4f}" for j, head in zip(best, heads, strict=True)]
            label = f"{self.atom_classes[k]!s:{width}s}"
            lines.append(f"{k:4d}  {label}  {self.codes[k]:+6.3f}  {adds[0]}  {adds[1]}")

        lines.append("nearest training samples:" if len(self.neighbors) else "training samples are not kept")
        for i, label, cosine in zip(self.neighbors, self.neighbor_classes, self.similarities, strict=True):
            lines.append(f"{i if names is None else names[i]!s} ({label!s}, cosine {cosine:.2f})")
        return "\n".join(lines)

    def to_html(
        self,
        path: str | os.PathLike[str],
        *,
        sample: Any = None,
        shape: tuple[int, ...] | None = None,
        training: Sequence[Any] | None = None,
        names: Sequence[str] | None = None,
        title: str | None = None,
        model_note: Sequence[tuple[str, str]] = (),
    ) -> None:
        """Write the explanation as an HTML page that needs no other file, no script and no network.

        Parameters
        ----------
        path : path
            Of the page; a file that is there is replaced.

        sample : path, PIL image, bytes of a JPEG or PNG file, or array of uint8, default=None
            The image that was classified.

        shape : tuple (height, width) or (height, width, 3), default=None
            If features are pixels: atoms and the reconstruction are then drawn as pictures.

        training : sequence of images, default=None
            The training images in the order of `fit`, each given as `sample` is.

        names : sequence of str, default=None
            What they are called, in the same order; of a path the last part is shown.

        title : str, default=None
            What stands above the answer: the name of the file, for one.

        model_note : sequence of (term, text)
            About the model, for the foot of the page.
        """
        text = page(self, Pictures(sample, shape, training, names), title=title, model_note=model_note)
        write_atomically(Path(path), lambda file: file.write(text.encode("utf-8", "backslashreplace")))
