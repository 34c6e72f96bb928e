"""An explanation as a figure; `ledl.plots` has it with the other displays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ledl.arrays import Array
from ledl.explanations._explain import Explanation, explain
from ledl.explanations._pictures import (
    SMALL_SIDE,
    Pictures,
    check_pictures,
    file_name,
    opened,
    sample_array,
    shown_decimals,
    shrunk,
    signed_picture,
)

ADDS = {"facecolor": "#1467b3"}
TAKES = {"facecolor": "#e08a4f", "hatch": "////", "edgecolor": "#8f3a06", "linewidth": 0}
NO_PICTURES = Pictures()


def pyplot() -> Any:
    """matplotlib.pyplot, or how to get it."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("Pictures need matplotlib: pip install 'ledl[plots]'.") from error
    return plt


class ExplanationDisplay:
    """Why a sample was taken for a class: the sample, the scores, the atoms that decide, the nearest samples.

    Blue adds to a score; orange and striped takes away.

    Parameters
    ----------
    explanation : Explanation
        What `ledl.explain` gives.
    pictures : Pictures
        The images behind the numbers, as far as there are any.
    n_atoms, n_scores : int, default=6, 8
        So many are drawn.

    Attributes
    ----------
    figure_ : matplotlib's figure, after `plot`.
    axes_ : dict of lists of axes
        Under "sample", "scores", "atoms", "adds" (what the atoms add) and "neighbors".

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

    def __init__(
        self,
        explanation: Explanation,
        pictures: Pictures = NO_PICTURES,
        *,
        n_atoms: int = 6,
        n_scores: int = 8,
    ) -> None:
        check_pictures(explanation, pictures)
        self.explanation, self.pictures = explanation, pictures
        self.n_atoms, self.n_scores = n_atoms, n_scores

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        x: Any,
        *,
        pictures: Pictures = NO_PICTURES,
        figure: Any = None,
        **options: int,
    ) -> ExplanationDisplay:
        """Of what `ledl.explain` says of one sample and a fitted classifier.

        Parameters
        ----------
        estimator : fitted classifier
            As `ledl.explain` takes it.
        x : array-like of shape (n_features,)
            One sample, or an image where the estimator takes those.
        pictures : Pictures, default=Pictures()
            What there is to look at.
        figure : matplotlib figure, default=None
            Where to draw; None: a new one.
        **options : int
            Of the display.

        Returns
        -------
        display : ExplanationDisplay
        """
        return cls(explain(estimator, x), pictures, **options).plot(figure)

    def plot(self, figure: Any = None) -> ExplanationDisplay:
        """Draw.

        Parameters
        ----------
        figure : matplotlib figure or SubFigure, default=None
            Where to; None: a new figure.

        Returns
        -------
        display : ExplanationDisplay
        """
        shows_atoms = self.pictures.training is not None or self._drawn(0) is not None
        heights = [3, 2.6, 2] if shows_atoms else [3, 1.4, 1]
        if figure is None:
            figure = pyplot().figure(figsize=(9.6, 0.96 * sum(heights)), layout="constrained")
        self.figure_ = figure
        self.axes_: dict[str, list[Any]] = {}
        top, middle, bottom = figure.subfigures(3, height_ratios=heights)
        self._draw_answer(top)
        self._draw_atoms(middle)
        self._draw_neighbors(bottom)
        return self

    def _draw_answer(self, part: Any) -> None:
        image = self._sample()
        widths = [3] if image is None else [2, 3]
        axes = part.subplots(1, len(widths), squeeze=False, width_ratios=widths)[0]
        self.axes_["sample"], self.axes_["scores"] = list(axes[:-1]), [axes[-1]]
        for ax in axes[:-1]:
            _show(ax, image, "")
        explanation, ax = self.explanation, axes[-1]
        best = explanation.ranking[: self.n_scores]
        base = explanation.base[0] if np.ptp(explanation.base) == 0 else 0.0
        decimals = shown_decimals(explanation)
        for place, j in enumerate(best):
            score = explanation.scores[j]
            ax.barh(place, score - base, left=base, **(ADDS if score >= base else TAKES))
            ax.annotate(
                f" {score:.{decimals}f}",
                (1, place),
                xycoords=("axes fraction", "data"),
                va="center",
                fontsize=8,
            )
        _label(ax.set_yticks, np.arange(len(best)), explanation.classes[best])
        ax.invert_yaxis()
        if base:
            ax.set_xlim(right=max(0.0, explanation.scores.max()))  # where a class would fit perfectly
        ax.axvline(base, color="black", linewidth=0.8)
        ax.set_title(self._title(), loc="left", fontsize=11, fontweight="bold", parse_math=False)
        ax.tick_params(labelsize=8, length=0)
        ax.set_xlabel("score" if not base else f"score, from {base:.3g}, nothing explained", fontsize=8)
        _without_frame(ax)

    def _title(self) -> str:
        explanation = self.explanation
        first, second = explanation.ranking[:2]
        names = [_short(explanation.classes[j], 30) for j in (first, second)]
        lead = (
            f"{names[0]} ahead of {names[1]}, by {explanation.scores[first] - explanation.scores[second]:.3g}"
        )
        if explanation.rejected:
            return f"None of these (p = {explanation.p_value:.2g}); nearest: {lead}"
        return lead

    def _sample(self) -> Array | None:
        if self.pictures.sample is not None:
            return np.asarray(opened(self.pictures.sample, "The sample"))
        return None if self.pictures.shape is None else sample_array(self.explanation, self.pictures.shape)

    def _draw_atoms(self, part: Any) -> None:
        explanation = self.explanation
        atoms = explanation.decisive_atoms[: self.n_atoms]
        self.axes_["atoms"], self.axes_["adds"] = [], []
        if not len(atoms):
            part.suptitle("No atom is used: all classes score alike", fontsize=9)
            return
        names = [_short(explanation.classes[j], 12) for j in explanation.ranking[:2]]
        images = [self._atom(k) for k in atoms]
        has_images = any(image is not None for image in images)
        grid = part.subplots(
            1 + has_images, self.n_atoms, squeeze=False, height_ratios=[3, 1] if has_images else None
        )
        part.suptitle("Atoms that decide most, and what they add to the two best scores", fontsize=9)
        limit = 1.05 * np.abs(explanation.contributions[np.ix_(atoms, explanation.ranking[:2])]).max()
        for column in range(self.n_atoms):
            if column >= len(atoms):
                for ax in grid[:, column]:
                    ax.set_axis_off()
                continue
            k = atoms[column]
            title = f"{_short(explanation.atom_classes[k], 14)}, code {explanation.codes[k]:+.2f}"
            if has_images:
                _show(grid[0, column], images[column], title)
                self.axes_["atoms"].append(grid[0, column])
            else:
                grid[0, column].set_title(title, fontsize=8, parse_math=False)
            self._draw_adds(grid[-1, column], k, names if column == 0 else ["", ""], limit)

    def _draw_adds(self, ax: Any, k: int, names: Sequence[str], limit: float) -> None:
        self.axes_["adds"].append(ax)
        for place, value in enumerate(self.explanation.contributions[k, self.explanation.ranking[:2]]):
            ax.barh(place, value, **(ADDS if value >= 0 else TAKES))
            ax.text(
                0,
                place,
                f"{value:+.3f} " if value >= 0 else f" {value:+.3f}",
                va="center",
                fontsize=7,
                ha="right" if value >= 0 else "left",
            )
        _label(ax.set_yticks, [0, 1], names)
        ax.set(xlim=(-limit, limit), ylim=(1.6, -0.6), xticks=[])
        ax.axvline(0, color="black", linewidth=0.8)
        ax.tick_params(labelsize=8, length=0)
        _without_frame(ax)

    def _atom(self, k: int) -> Array | None:
        """The atom itself, or the training image behind it."""
        drawn = self._drawn(k)
        return self._training(self.explanation.atom_neighbors[k, 0]) if drawn is None else drawn

    def _drawn(self, k: int) -> Array | None:
        if self.pictures.shape is None or self.explanation.atoms is None:
            return None
        return signed_picture(self.explanation.atoms[k], self.pictures.shape)

    def _training(self, i: int) -> Array | None:
        if self.pictures.training is None and self.explanation.atoms_are_samples:
            return self._drawn(i)
        if self.pictures.training is None or i < 0:
            return None
        return np.asarray(shrunk(opened(self.pictures.training[i], f"Training image {i}"), 2 * SMALL_SIDE))

    def _draw_neighbors(self, part: Any) -> None:
        explanation = self.explanation
        self.axes_["neighbors"] = []
        if not len(explanation.neighbors):
            return
        part.suptitle("Nearest training samples", fontsize=9)
        axes = part.subplots(1, max(self.n_atoms, len(explanation.neighbors)), squeeze=False)[0]
        for ax, i, label, cosine in zip(
            axes, explanation.neighbors, explanation.neighbor_classes, explanation.similarities, strict=False
        ):
            names = self.pictures.names
            name = f"training sample {i}" if names is None else file_name(names[i])
            text = f"{_short(label, 16)}\n{_short(name, 20)}\ncosine {cosine:.2f}"
            _show(ax, self._training(i), text)
            self.axes_["neighbors"].append(ax)
        for ax in axes[len(explanation.neighbors) :]:
            ax.set_axis_off()


def _show(ax: Any, image: Array | None, title: str) -> None:
    """An image, or only what would stand above it."""
    ax.set_axis_off()
    ax.set_title(title, fontsize=8, parse_math=False)  # a name with a dollar sign is no formula
    if image is not None:
        ax.imshow(image, cmap="gray", vmin=0, vmax=255, interpolation="nearest")


def _label(set_ticks: Any, places: Any, names: Any) -> None:
    set_ticks(places, labels=[_short(name, 22) for name in names], parse_math=False)


def _short(name: Any, length: int) -> str:
    name = str(name)
    return name if len(name) <= length else f"{name[: length - 1]}…"


def _without_frame(ax: Any) -> None:
    for side in ax.spines.values():
        side.set_visible(False)
