"""Draw an explanation as a figure; `ledl.plots` exports it with the other displays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from ledl.arrays import Array
from ledl.explanations._page import NO_PICTURES, Gallery, Picture, Pictures
from ledl.explanations._words import bars, headline, vocabulary

if TYPE_CHECKING:
    from ledl.explanations._explain import Explanation  # it draws itself

ADDS = {"facecolor": "#1467b3"}
TAKES = {"facecolor": "#e08a4f", "hatch": "////", "edgecolor": "#8f3a06", "linewidth": 0}
SIDE = 192  # training images are shrunk to this number of pixels


def pyplot() -> Any:
    """Return matplotlib.pyplot, or raise an ImportError that names the extra."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("Figures need matplotlib: pip install 'ledl[plots]'.") from error
    return plt


class Drawing:
    """Draw an explanation: what `ExplanationDisplay` and `Explanation.plot` have in common."""

    def __init__(
        self,
        explanation: Explanation,
        pictures: Pictures = NO_PICTURES,
        *,
        n_atoms: int = 6,
        n_scores: int = 8,
    ) -> None:
        self._gallery = Gallery(explanation, pictures)
        self.explanation, self.pictures = explanation, pictures
        self.n_atoms, self.n_scores = n_atoms, n_scores

    def plot(self, figure: Any = None) -> Self:
        """Draw the explanation.

        Parameters
        ----------
        figure : matplotlib figure or SubFigure, default=None
            The figure to draw in. None: a new one.

        Returns
        -------
        display : ExplanationDisplay
        """
        explanation, image = self.explanation, self._gallery.sample()
        shows_atoms = self.pictures.training is not None or self._gallery.atom(0) is not None
        heights = [3, 2.6, 2] if shows_atoms else [3, 1.4, 1]
        heights += heights[-1:] if len(explanation.against_neighbors) else []
        if figure is None:
            figure = pyplot().figure(figsize=(9.6, 0.96 * sum(heights)), layout="constrained")
        self.figure_ = figure
        self.axes_: dict[str, list[Any]] = {
            name: [] for name in ("sample", "scores", "atoms", "adds", "neighbors", "against")
        }
        top, middle, *bottom = figure.subfigures(len(heights), height_ratios=heights)

        # The sample, if there is a picture of it, and the best classes.
        widths = [3] if image is None else [2, 3]
        *self.axes_["sample"], ax = top.subplots(1, len(widths), squeeze=False, width_ratios=widths)[0]
        self.axes_["scores"] = [ax]
        for sample in self.axes_["sample"]:
            _show(sample, image, "", None)
        drawn, best = bars(explanation, "sample"), explanation.ranking[: self.n_scores]
        if explanation.against is not None:
            best = np.append(best, np.setdiff1d(explanation.compared, best))
        ax.barh(np.arange(len(best)), drawn.lengths[best], **ADDS)
        for place, j in enumerate(best):
            ax.annotate(
                f" {drawn.numbers[j]}",
                (1, place),
                xycoords=("axes fraction", "data"),
                va="center",
                fontsize=8,
            )
        names = [_short(label, 22) for label in explanation.classes[best]]
        ax.set_yticks(np.arange(len(best)), labels=names, parse_math=False)
        ax.set(xlim=(0, 1), xticks=[])
        ax.invert_yaxis()
        ax.set_xlabel(drawn.meaning, fontsize=8)
        _tidy(ax)
        title = _short(headline(explanation), 80)
        if explanation.rejected:
            title = f"None of these (p = {explanation.p_value:.2g}); nearest: {title}"
        ax.set_title(title, loc="left", fontsize=11, fontweight="bold", parse_math=False)

        self._draw_atoms(middle)
        words = vocabulary(explanation, "sample")
        if len(explanation.neighbors):
            labels, cosines = explanation.neighbor_classes, explanation.similarities
            title = "Nearest training samples"
            self._draw_samples(
                "neighbors", bottom[0], title, explanation.neighbors, labels, cosines, words.likeness
            )
        if len(explanation.against_neighbors):
            near, cosines = explanation.against_neighbors, explanation.against_similarities
            kind = "Labelled" if explanation.rule == "labels" else "Nearest training"
            title = f"{kind} samples of {_short(explanation.against, 30)}"
            labels = [explanation.against] * len(near)
            self._draw_samples("against", bottom[1], title, near, labels, cosines, words.rival_likeness)
        return self

    def _draw_samples(
        self, key: str, part: Any, title: str, samples: Array, labels: Sequence[Any], amounts: Array, word: str
    ) -> None:
        """Draw training samples in a row, with their classes, names and amounts, such as cosines."""
        part.suptitle(title, fontsize=9, parse_math=False)
        axes = part.subplots(1, max(self.n_atoms, len(samples)), squeeze=False)[0]
        for ax in axes:
            ax.set_axis_off()
        for ax, i, label, amount in zip(axes, samples, labels, amounts, strict=False):
            name = _short(self._gallery.training_name(i), 20)
            _show(ax, self._gallery.training(i), f"{_short(label, 16)}\n{name}\n{word} {amount:.2f}")
            self.axes_[key].append(ax)

    def _draw_atoms(self, part: Any) -> None:
        """Draw the atoms that decide most, and below each atom the amounts it adds to the compared scores."""
        explanation, compared = self.explanation, self.explanation.compared
        atoms = explanation.decisive_atoms[: self.n_atoms]
        if not len(atoms):
            part.suptitle("No atom is used: all classes have the same score", fontsize=9)
            return
        words = vocabulary(explanation, "sample")
        pieces = f"{words.piece.capitalize()}s that decide most"
        part.suptitle(f"{pieces}, and what they add to the scores of the two classes", fontsize=9)
        images = [self._gallery.atom_or_nearest(k) for k in atoms]
        has_images = any(image is not None for image in images)
        heights = [3, 1] if has_images else None
        grid = part.subplots(1 + has_images, self.n_atoms, squeeze=False, height_ratios=heights)
        for ax in grid[:, len(atoms) :].flat:
            ax.set_axis_off()
        limit = 1.05 * np.abs(explanation.contributions[np.ix_(atoms, compared)]).max()
        names = [_short(explanation.classes[j], 12) for j in compared]
        for k, image, column in zip(atoms, images, grid.T, strict=False):
            title = f"{_short(explanation.atom_classes[k], 14)}, {words.amount} {explanation.codes[k]:+.2f}"
            ax = column[-1]
            self.axes_["adds"].append(ax)
            if has_images:
                _show(column[0], image, title)
                self.axes_["atoms"].append(column[0])
            else:
                ax.set_title(title, fontsize=8, parse_math=False)
            for place, value in enumerate(explanation.contributions[k, compared]):
                adds = value >= 0
                ax.barh(place, value, **(ADDS if adds else TAKES))
                # Write on the other side of zero than the bar.
                text, side = (f"{value:+.3f} ", "right") if adds else (f" {value:+.3f}", "left")
                ax.text(0, place, text, va="center", fontsize=7, ha=side)
            ax.set_yticks([0, 1], labels=names if k == atoms[0] else ["", ""], parse_math=False)
            ax.set(xlim=(-limit, limit), ylim=(1.6, -0.6), xticks=[])
            _tidy(ax)


def _show(ax: Any, picture: Picture | None, title: str, side: int | None = SIDE) -> None:
    """Draw a picture, if there is one, below a title; a given image is shrunk to `side` pixels first."""
    ax.set_axis_off()
    ax.set_title(title, fontsize=8, parse_math=False)  # a dollar sign in a name starts no formula
    if picture is not None:
        pixels = picture.source if picture.is_drawn else np.asarray(picture.opened(side))
        ax.imshow(pixels, cmap="gray", vmin=0, vmax=255, interpolation="nearest")


def _tidy(ax: Any) -> None:
    """Remove the frame and the ticks around bars, and draw a line where the bars begin."""
    ax.axvline(0, color="black", linewidth=0.8)
    ax.tick_params(labelsize=8, length=0)
    ax.spines[:].set_visible(False)


def _short(name: Any, length: int) -> str:
    """Return a name, cut to this number of characters."""
    name = str(name)
    return name if len(name) <= length else f"{name[: length - 1]}…"
