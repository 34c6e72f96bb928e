"""Explain a prediction by the atoms that make up its scores and by the nearest training samples.

Of a semi-supervised classifier, the labelled samples play the part of atoms: their labels spread to the sample.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from html import escape
from numbers import Integral
from pathlib import Path
from typing import Any
from unicodedata import normalize

import numpy as np
from scipy import linalg
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from ledl.arrays import Array, is_torch, to_host
from ledl.dictionary import FittedDictionary, RegularizedRule, log_odds
from ledl.estimators import check_samples
from ledl.explanations._display import Drawing
from ledl.explanations._page import NO_PICTURES, Pictures, page
from ledl.explanations._words import headline, neighbor_notes, reasons, terms, vocabulary
from ledl.files import write_atomically
from ledl.model_selection import LEDLClassifierCV
from ledl.rejection import judge, our_parts, parts_of
from ledl.semi_supervised import SemiSupervisedClassifier
from ledl.subspace import KernelSpace

BATCH = 2**21  # cosines of atoms and training samples that are held at a time


def explain(estimator: Any, x: Any, *, against: Any = None, n_neighbors: int = 5) -> Explanation:
    r"""Explain why a fitted classifier gives a sample its class, and not another one.

    If codes s are classified (LEDL, D-KSVD, LC-KSVD), atom k adds :math:`s_k W_{kj}` to the score of class j.
    If residuals decide (SRC, CRC, CSDL, LEDL with that rule), the atoms :math:`d_k` of class j together make
    :math:`f_j = \sum_k s_k d_k`, and add to the base value :math:`-|x|^2`:

    .. math::

        -|x - f_j|^2 = -|x|^2 + \sum_k s_k \langle d_k, 2 x - f_j \rangle

    These terms are the Shapley values of the atoms. With the rule "regularized" both sides are divided by
    :math:`|x - f_j| |s_j|`.

    In a `SemiSupervisedClassifier` the atoms are the labelled samples. The score of a class is its share of
    the labels that reach the sample over the graph, and each labelled sample adds to its own class.

    Parameters
    ----------
    estimator : fitted classifier of this package, a RejectingClassifier, or a Pipeline that ends in one
        The fitted model.

    x : array-like of shape (n_features,) or (1, n_features)
        One sample. For a pipeline it is one input of its first step, such as an image.

    against : label, default=None
        The class to compare the answer with: "why is it not this one?" None: the runner-up.

    n_neighbors : int, default=5
        Number of nearest training samples to return for the sample and for each atom, and of the class
        `against`.

    Returns
    -------
    Explanation
        The part of each atom in the scores, and the nearest training samples. Models that were fitted on more
        than :math:`2^{24}` numbers do not keep the samples. They have no neighbours then, except for SRC and
        CRC, whose atoms are the training samples. For a `SemiSupervisedClassifier` the neighbours are those
        through which labels reach the sample. If it is ``"supervised"``, or no label reaches the sample, the
        explanation is that of its `estimator_`.

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
    >>> int(explain(model, X[100], against=9).against)
    9
    """
    check_is_fitted(estimator)
    if not isinstance(n_neighbors, Integral) or n_neighbors < 1:
        raise ValueError(f"n_neighbors={n_neighbors} must be 1 or more.")
    parts = parts_of(estimator)
    is_semi = isinstance(parts.classifier, SemiSupervisedClassifier)
    if not is_semi:
        our_parts(estimator)  # raises for other classifiers
    rival = None if against is None else number_of_class(against, np.asarray(parts.classifier.classes_))
    takes_lists = parts.transformers and get_tags(parts.transformers[0]).no_validation  # of images
    given = parts.transform([x] if takes_lists else x if hasattr(x, "columns") else one_row(x))
    found = (explain_labels if is_semi else explain_codes)(parts.classifier, given, rival, n_neighbors)
    if parts.rejecter is not None:
        evidence = np.array([[found.concentration, found.residual]])
        if is_semi:
            evidence = judge(parts.classifier, given)[1]
            found = replace(found, reach=float(evidence[0, 0]), isolation=float(evidence[0, 1]))
        p_value = float(parts.rejecter.p_values_of(evidence)[0])
        found = replace(found, p_value=p_value, rejected=p_value <= parts.rejecter.reject)
    if rival is not None and rival == found.ranking[0]:
        raise ValueError(
            f"against={against!r} is the class nearest to this sample, which was rejected because it is unlike "
            "every class. Name another class, or leave it out."
            if found.rejected
            else f"against={against!r} is the answer itself. Name another class, or leave it out."
        )
    return found


def explain_codes(model: Any, given: Any, rival: int | None, n_neighbors: int) -> Explanation:
    """Return the explanation of one sample by a classifier with atoms, before it can be rejected."""
    if isinstance(model, LEDLClassifierCV):
        return explain_mean(model, given, rival, n_neighbors)
    atoms = getattr(model, "components_", None)
    return explain_record(model.dictionary_, atoms, check_samples(model, given), rival, n_neighbors)


def explain_record(
    dictionary: FittedDictionary, components: Array | None, X: Array, rival: int | None, n_neighbors: int
) -> Explanation:
    """Return the explanation of one checked sample by a fitted dictionary.

    `components` are its atoms with all features, which there are not for kernels: making them takes long.
    """
    classes: Any = dictionary.classes
    code, z, sq_norm = dictionary.code_one(X)
    base, contributions = dictionary.contributions(code, z, sq_norm)
    scores = base + contributions.sum(axis=0)
    concentration, residual = dictionary.evidence(code[None], z[None], np.array([sq_norm]))[0].tolist()

    # Find the training samples nearest to the sample and to each atom in use.
    atoms, samples, labels = dictionary.atoms, dictionary.samples, dictionary.sample_labels
    used = np.flatnonzero(code)
    near, near_rival, cosines = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), np.empty(0)
    atom_neighbors = np.full((len(atoms), n_neighbors), -1)
    if samples is not None and labels is not None:
        norms = np.sqrt(np.einsum("ij,ij->i", samples, samples, dtype=np.float64))
        units = np.where(norms > 0, norms, 1)
        cosines = samples @ z / units / (np.sqrt(sq_norm) if sq_norm > 0 else 1)
        order = np.argsort(-cosines, kind="stable")
        near, near_rival = order[:n_neighbors], order[labels[order] == rival][:n_neighbors]
        if samples is atoms:
            atom_neighbors[used, 0] = used
        else:
            size = max(1, BATCH // len(samples))
            for batch in (used[i : i + size] for i in range(0, len(used), size)):
                # Codes may be negative, so the sign of a cosine does not matter.
                likeness = np.abs(atoms[batch] @ samples.T) / units
                for k in range(min(n_neighbors, len(samples))):
                    best = likeness.argmax(axis=1)
                    atom_neighbors[batch, k] = best
                    likeness[np.arange(len(best)), best] = -1

    is_kernel = isinstance(dictionary.space, KernelSpace)
    seen = dictionary.features.powers(one_row(X).astype(np.float64))
    scale = linalg.norm(seen[0]) if dictionary.features.unit_norm else 1.0  # squares might overflow
    return Explanation(
        predicted=classes[scores.argmax()],
        classes=classes,
        scores=scores,
        probabilities=None,
        base=base,
        contributions=contributions,
        codes=code,
        rule=dictionary.rule.name,
        atom_classes=classes[dictionary.atom_labels],
        atom_rows=np.arange(len(code)) if samples is atoms else None,
        atoms=None if is_kernel else components,
        sample=seen[0],
        reconstruction=None if is_kernel else dictionary.space.expand(code @ atoms) * scale,
        concentration=concentration,
        residual=residual,
        neighbors=near,
        similarities=cosines[near],
        neighbor_classes=classes[:0] if labels is None else classes[labels[near]],
        atom_neighbors=atom_neighbors,
        against=None if rival is None else classes[rival],
        against_neighbors=near_rival,
        against_similarities=cosines[near_rival],
    )


def explain_mean(model: LEDLClassifierCV, given: Any, rival: int | None, n_neighbors: int) -> Explanation:
    """Return the explanation of the sum of several models' log odds: the atoms of all of them have parts in it.

    The rule "regularized" enters with f = -log q of its ratio q. The parts of -q are divided by q, the slope of
    f, and what is left of f is in the base value.
    """
    X = check_samples(model, given)
    every = zip(model._records(), model.estimators_, strict=True)
    found = [
        explain_record(record, getattr(one, "components_", None), X, rival, n_neighbors)
        for record, one in every
    ]
    if len(found) == 1:  # with its own scores
        exponents = log_odds(model.dictionary_.rule, found[0].scores[None])
        return replace(found[0], probabilities=model.probabilities_of(exponents)[0])
    bases, parts = [], []
    for weight, one in zip(model.weights_, found, strict=True):
        scores, shares = one.scores, one.contributions
        if one.rule == "regularized":
            scores = log_odds(RegularizedRule(), one.scores[None])[0]
            shares = np.divide(shares, -one.scores, out=np.zeros_like(shares), where=one.scores < 0)
        parts.append(weight * shares)
        bases.append(weight * (scores - shares.sum(axis=0)))
    base, contributions = np.sum(bases, axis=0), np.concatenate(parts)
    scores = base + contributions.sum(axis=0)
    first = found[0]
    atoms = None if any(one.atoms is None for one in found) else np.concatenate([one.atoms for one in found])
    return replace(
        first,
        predicted=first.classes[scores.argmax()],
        scores=scores,
        probabilities=model.probabilities_of(scores[None])[0],
        base=base,
        contributions=contributions,
        codes=np.concatenate([one.codes for one in found]),
        rule="mean",
        atom_classes=np.concatenate([one.atom_classes for one in found]),
        atoms=atoms,
        reconstruction=None,  # each model has its own
        atom_neighbors=np.concatenate([one.atom_neighbors for one in found]),
    )


def explain_labels(
    model: SemiSupervisedClassifier, given: Any, rival: int | None, n_neighbors: int
) -> Explanation:
    """Return the explanation of one sample by labels that spread to it, before it can be rejected."""
    X, graph, classes = one_row(check_samples(model, given)), model.graph_, model.classes_
    probabilities = model.predict_proba(given)[0]
    reached = np.zeros(1) if graph is None else graph.spread_to(X)[0].astype(np.float64)
    if not reached.any():
        against = None if rival is None else classes[rival]
        found = explain(model.estimator_, X[0], against=against, n_neighbors=n_neighbors)
        rows = model.labelled_rows_  # it has seen only these
        return replace(
            found,
            probabilities=probabilities,
            atom_rows=None if found.atom_rows is None else rows[found.atom_rows],
            neighbors=rows[found.neighbors],
            atom_neighbors=np.where(found.atom_neighbors < 0, -1, rows[found.atom_neighbors]),
            against_neighbors=rows[found.against_neighbors],
        )
    amounts, near, weights = graph.influence(X)
    shares = np.zeros((len(amounts), len(classes)))
    shares[np.arange(len(amounts)), graph.labels] = amounts
    # As large as the scores, of which F knows four digits.
    sums = shares.sum(axis=0)
    shares *= np.divide(reached / reached.sum(), sums, out=np.zeros_like(sums), where=sums > 0)
    codes, rows = shares.sum(axis=1), model.labelled_rows_
    atom_neighbors = np.full((len(rows), n_neighbors), -1)
    atom_neighbors[codes > 0, 0] = rows[codes > 0]
    order = np.argsort(-weights, kind="stable")[:n_neighbors]
    near, weights = graph.rows[near[order]], (weights / weights.sum())[order]
    by_share = np.argsort(-codes, kind="stable")
    rivals = by_share[graph.labels[by_share] == rival][:n_neighbors]
    return Explanation(
        predicted=classes[probabilities.argmax()],
        classes=classes,
        scores=shares.sum(axis=0),
        probabilities=probabilities,
        base=np.zeros(len(classes)),
        contributions=shares,
        codes=codes,
        rule="labels",
        atom_classes=classes[graph.labels],
        atom_rows=rows,
        atoms=None,
        sample=X[0],
        reconstruction=None,
        concentration=None,
        residual=None,
        neighbors=near,
        similarities=weights,
        neighbor_classes=model.transduction_[near],
        atom_neighbors=atom_neighbors,
        against=None if rival is None else classes[rival],
        against_neighbors=rows[rivals],
        against_similarities=codes[rivals],
        neighbor_probabilities=model.label_distributions_[near],
        neighbors_labelled=np.isin(near, rows),
    )


def number_of_class(label: Any, classes: Array) -> int:
    """Return the number of a class, which may be given as text. Raise ValueError if there is no such class."""
    names = [str(known) for known in classes]
    found = [j for j, known in enumerate(classes.tolist()) if known == label or names[j] == str(label)]
    if not found:  # in other letters: ü is one, or two
        found = [j for j, name in enumerate(names) if normalize("NFC", name) == normalize("NFC", str(label))]
    if not found:
        listed = get_close_matches(str(label), names, n=10, cutoff=0)
        rest = f" and {len(names) - len(listed)} more" if len(names) > len(listed) else ""
        raise ValueError(
            f"against={label!r} is not a class of this model. Its classes are {', '.join(listed)}{rest}. "
            "Name one of them."
        )
    return found[0]


def name_of(row: int, names: Sequence[str] | None) -> str:
    """Return the name of a training sample, or its number if there are no names."""
    return f"row {row}" if names is None else str(names[row])


def one_row(x: Any) -> Array:
    """Return one sample as a matrix."""
    x = to_host(x) if is_torch(x) else np.asarray(x)
    if x.ndim == 1:
        x = x[None]
    if x.ndim != 2 or len(x) != 1:
        raise ValueError(
            f"x has shape {x.shape}, but one sample is explained at a time. Give one row; flatten an image."
        )
    return x


@dataclass(frozen=True, eq=False, repr=False)
class Explanation:
    """The terms that make up the scores of one sample; `explain` returns it.

    ``base + contributions.sum(axis=0)`` are the scores, up to rounding in float64. For a model in float32, they
    differ from `decision_function` by its rounding.

    Parameters
    ----------
    predicted : label
        The class with the largest score.

    classes : ndarray of shape (n_classes,)
        The labels.

    scores : ndarray of shape (n_classes,)
        One score for each class. For two classes, `decision_function` gives their difference. If a
        `LEDLClassifierCV` is one model with the rule "regularized", its `decision_function` gives logarithms,
        and these scores are the ratios themselves.

    probabilities : ndarray of shape (n_classes,) or None
        The probabilities of the classes, from these scores, if the model is a `LEDLClassifierCV` or a
        `SemiSupervisedClassifier`.

    base : ndarray of shape (n_classes,)
        The scores without any atom: 0 if codes are classified, :math:`-|x|^2` if residuals decide (divided as
        the scores of each class are), 0 if labels spread.

    contributions : ndarray of shape (K, n_classes)
        The amount that each atom adds to each score.

    codes : ndarray of shape (K,)
        The amount of each atom in the sample; the share of each labelled sample in the labels that reach it.

    rule : {"classifier", "residual", "regularized", "ridge", "agreement", "mean", "labels", "other"}
        The rule that makes the scores, see `LEDLClassifier` and `ProCRCClassifier`; "mean" if several models of
        a `LEDLClassifierCV` add up, whose atoms follow each other; "labels" if labels spread, and atoms are
        labelled samples; "other" for classifiers from elsewhere.

    atom_classes : ndarray of shape (K,)
        The class of each atom. Atoms without a class get the class that they count for most.

    atom_rows : ndarray of shape (K,) or None
        The rows of X in `fit` that the atoms are, as in SRC and CRC; None if they are learned.

    atoms : ndarray of shape (K, n_features) or None
        The atoms of the classifier; None with a kernel other than ``"linear"`` and ``"hellinger"``, and if
        labels spread.

    sample, reconstruction : ndarrays of shape (n_features,)
        The features of the sample (their roots with ``kernel="hellinger"``), and the mixture of atoms that
        comes close to them, in the same scale. With another kernel, and if labels spread, the reconstruction is
        None.

    concentration, residual : float or None
        The sparsity concentration index and the residual of the nearest class, see `RejectingClassifier`. None
        if labels spread.

    neighbors, similarities : ndarrays of shape (n_neighbors,)
        The training samples with the largest cosines, as rows of X in `fit`, and these cosines. If labels
        spread: the neighbours in the graph with the largest weights, and their part in the sum of all weights.

    neighbor_classes : ndarray of shape (n_neighbors,)
        The labels of the neighbours; those that the model gave them, if they had none.

    atom_neighbors : ndarray of shape (K, n_neighbors)
        The training samples nearest to each atom that is used; -1 for other atoms, and if there are no more.

    against : label or None
        The class that was asked about. None: the answer is compared with the runner-up.

    against_neighbors, against_similarities : ndarrays of shape (n_neighbors,)
        The training samples of the class `against` with the largest cosines; empty if it is None. If labels
        spread: the labelled samples with the largest `codes`, and these.

    p_value : float or None
        The share of training samples that fit their class no better, from a `RejectingClassifier`.

    rejected : bool
        True if a `RejectingClassifier` rejects the sample.

    neighbor_probabilities, neighbors_labelled : ndarrays of shape (n_neighbors, n_classes) and (n_neighbors,)
        The probabilities of the classes for each neighbour, and whether it had a label in `fit`. None unless
        labels spread.

    reach, isolation : float or None
        How much of the labels reaches the sample, and how far it is from its neighbours, see
        `SemiSupervisedClassifier`. Only with a `RejectingClassifier`.

    Examples
    --------
    >>> from ledl import SRCClassifier, explain
    >>> model = SRCClassifier().fit([[1.0, 0.0], [0.0, 1.0]], ["east", "north"])
    >>> found = explain(model, [0.9, 0.2])
    >>> found
    Explanation(east ahead of north, by 0.906; 2 of 2 atoms)
    >>> found.neighbor_classes
    array(['east', 'north'], dtype='<U5')
    """

    predicted: Any
    classes: Array
    scores: Array
    probabilities: Array | None
    base: Array
    contributions: Array
    codes: Array
    rule: str
    atom_classes: Array
    atom_rows: Array | None
    atoms: Array | None
    sample: Array
    reconstruction: Array | None
    concentration: float | None
    residual: float | None
    neighbors: Array
    similarities: Array
    neighbor_classes: Array
    atom_neighbors: Array
    against: Any
    against_neighbors: Array
    against_similarities: Array
    p_value: float | None = None
    rejected: bool = False
    neighbor_probabilities: Array | None = None
    neighbors_labelled: Array | None = None
    reach: float | None = None
    isolation: float | None = None

    @property
    def atoms_are_samples(self) -> bool:
        """True if the atoms are training samples, as in SRC and CRC."""
        return self.atom_rows is not None

    @property
    def ranking(self) -> Array:
        """The classes, best first, as indices into `classes`."""
        return np.argsort(-self.scores, kind="stable")

    @property
    def compared(self) -> Array:
        """The two classes that are compared, as indices into `classes`: the best, and `against` or the second.

        Atoms are ranked by their part in the difference of these two scores.
        """
        if self.against is None:
            return self.ranking[:2]
        return np.array([self.ranking[0], np.flatnonzero(self.classes == self.against)[0]])

    @property
    def margins(self) -> Array:
        """The amount that each atom adds to the lead of the first of the `compared` classes, (K,)."""
        first, second = self.compared
        return self.contributions[:, first] - self.contributions[:, second]

    @property
    def decisive_atoms(self) -> Array:
        """The atoms that are used, the one with the largest part in the lead first."""
        order = np.argsort(-np.abs(self.margins), kind="stable")
        return order[self.codes[order] != 0]

    @property
    def _decimals(self) -> int:
        """The number of decimals that shows three or four digits of the compared scores and their terms."""
        scale = np.abs([self.base[self.compared], self.scores[self.compared]]).max()
        return int(np.clip(3 - round(np.log10(scale)), 0, 9)) if scale > 0 else 3

    @property
    def _share(self) -> str:
        """The p-value as a share in %, for people."""
        return (
            "" if self.p_value is None else f"{100 * self.p_value:{'.0f' if self.p_value >= 0.1 else '.2g'}} %"
        )

    def __repr__(self) -> str:
        pieces = f"{vocabulary(self, 'sample').piece}s"
        return f"Explanation({headline(self)}; {len(self.decisive_atoms)} of {len(self.codes)} {pieces})"

    def text(self, names: Sequence[str] | None = None) -> str:
        """Return the explanation in a few lines.

        Parameters
        ----------
        names : sequence of str, default=None
            The names of the training samples, in the order of `fit`. None: their numbers.

        Returns
        -------
        text : str
            The answer, the reasons, the nearest training samples, and a table of the atoms that decide most.
        """
        answer = headline(self)
        if self.p_value is not None:
            doubt = f"{self._share} of the training samples fit their class no better"
            answer = f"none of these ({doubt}); nearest {answer}" if self.rejected else f"{answer}; {doubt}"
        lines = [answer, *reasons(self, "sample")]

        best, other = self.classes[self.compared]
        words = vocabulary(self, "sample")
        lines.append("nearest training samples:" if len(self.neighbors) else "training samples are not kept")
        for at, (i, label) in enumerate(zip(self.neighbors, self.neighbor_classes, strict=True)):
            said = ", ".join([f"class {label!s}", *neighbor_notes(self)[at : at + 1]])
            lines.append(f"{name_of(i, names)} ({said}, {words.likeness} {self.similarities[at]:.2f})")
        if len(self.against_neighbors):
            kind = "labelled" if self.rule == "labels" else "nearest training"
            lines.append(f"{kind} samples of {other}:")
        for i, likes in zip(self.against_neighbors, self.against_similarities, strict=True):
            lines.append(f"{name_of(i, names)} ({words.rival_likeness} {likes:.2f})")

        # The rows add up to the scores: the start, each atom, all other atoms.
        shown = self.decisive_atoms[:10]
        called = [str(k) for k in shown]
        if self.rule == "labels" and self.atom_rows is not None:
            called = [name_of(i, names) for i in self.atom_rows[shown]]
        first = max([6, *(len(name) + 2 for name in called)])
        width = max([5, *(len(str(self.atom_classes[k])) for k in shown)])
        heads = [f"{f'to {label!s}':>8s}" for label in (best, other)]
        lines.append(f"how the scores of {best} and {other} add up; larger is better:")
        heading = "sample" if self.rule == "labels" else words.piece
        lines.append(f"{heading:{first}s}{'class':{width}s}  {words.amount:>6s}  {heads[0]}  {heads[1]}")
        rows = [("start", "", "", self.base)]
        for k, name in zip(shown, called, strict=True):
            rows.append((name, self.atom_classes[k], f"{self.codes[k]:+.3f}", self.contributions[k]))
        rows.append(("others", "", "", self.scores - sum(row[-1] for row in rows)))
        rows.append(("score", "", "", self.scores))
        for name, label, code, adds in rows:
            columns = [f"{adds[j]:+{len(head)}.4f}" for j, head in zip(self.compared, heads, strict=True)]
            lines.append(f"{name:{first}s}{label!s:{width}s}  {code:>6s}  {'  '.join(columns)}")
        lines += [f"{term}: {meaning}" for term, meaning in terms(self, "sample")]
        return "\n".join(lines)

    __str__ = text

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
        """Write the explanation as an HTML page without other files, scripts or network (extra ``cli``).

        Parameters
        ----------
        path : path
            The file to write. An existing file is replaced.

        sample : path, PIL image, bytes of a JPEG or PNG file, or array of uint8, default=None
            The image that was classified.

        shape : tuple (height, width) or (height, width, 3), default=None
            The shape of the images if features are pixels. Atoms and the reconstruction are then drawn.

        training : sequence of images, default=None
            The training images in the order of `fit`, each given as `sample` is; None if there is no picture.

        names : sequence of str, default=None
            The names of the training images, in the same order. Of a path, only the last part is shown.

        title : str, default=None
            The line above the answer. By default it is the name of the sample's file, if there is one.

        model_note : sequence of (term, text)
            Facts about the model for the end of the page.
        """
        text = page(self, Pictures(sample, shape, training, names), title=title, model_note=model_note)
        write_atomically(Path(path), text.encode("utf-8", "backslashreplace"), through_links=True)

    def plot(
        self, pictures: Pictures = NO_PICTURES, *, figure: Any = None, **options: int
    ) -> ExplanationDisplay:
        """Draw the explanation (extra ``plots``).

        Parameters
        ----------
        pictures : Pictures, default=Pictures()
            Images of the sample and of the training samples.
        figure : matplotlib figure, default=None
            The figure to draw in. None: a new one.
        **options : int
            ``n_atoms`` and ``n_scores``.

        Returns
        -------
        display : ExplanationDisplay
            The display, drawn. Its ``figure_`` is the figure.
        """
        return ExplanationDisplay(self, pictures, **options).plot(figure)

    def _repr_html_(self) -> str | None:
        """Return the page in a frame, for notebooks. Without the extra ``cli`` they show the text."""
        try:
            content = page(self, NO_PICTURES)
        except ImportError:
            return None
        style = "width: 100%; height: 36em; border: 1px solid #ccc"
        return f'<iframe title="{escape(repr(self))}" srcdoc="{escape(content)}" style="{style}"></iframe>'


class ExplanationDisplay(Drawing):
    """Show why a sample was given its class: the sample, how good each class is, atoms, the nearest samples.

    The best class has the longest bar, by probability or, without probabilities, by score. Below the atoms,
    blue bars add to a score; orange, striped bars take away.

    Parameters
    ----------
    explanation : Explanation
        The result of `ledl.explain`.
    pictures : Pictures
        Images of the sample and of the training samples.
    n_atoms, n_scores : int, default=6, 8
        Number of atoms and of classes to draw.

    Attributes
    ----------
    figure_ : matplotlib's figure, after `plot`.
    axes_ : dict of lists of axes
        With the keys "sample", "scores", "atoms", "adds" (the bars below the atoms), "neighbors" and
        "against" (the nearest samples of the class that was asked about).

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from ledl import SRCClassifier
    >>> from ledl.explanations import Pictures
    >>> from ledl.plots import ExplanationDisplay
    >>> X, y = load_digits(return_X_y=True)
    >>> model = SRCClassifier().fit(X[:100], y[:100])
    >>> display = ExplanationDisplay.from_estimator(model, X[100], pictures=Pictures(shape=(8, 8)))
    >>> display.axes_["scores"][0].get_title(loc="left")
    '4 ahead of 0, by 0.667'
    """

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        x: Any,
        *,
        pictures: Pictures = NO_PICTURES,
        against: Any = None,
        figure: Any = None,
        **options: int,
    ) -> ExplanationDisplay:
        """Explain one sample by a fitted classifier, and draw the explanation.

        Parameters
        ----------
        estimator : fitted classifier
            A model for `ledl.explain`.
        x : array-like of shape (n_features,)
            One sample, or one image if the estimator takes images.
        pictures : Pictures, default=Pictures()
            Images of the sample and of the training samples.
        against : label, default=None
            The class to compare the answer with. None: the runner-up.
        figure : matplotlib figure, default=None
            The figure to draw in. None: a new one.
        **options : int
            ``n_atoms`` and ``n_scores``.

        Returns
        -------
        display : ExplanationDisplay
        """
        return cls(explain(estimator, x, against=against), pictures, **options).plot(figure)
