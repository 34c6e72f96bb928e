"""Pictures of models and of results, in the manner of scikit-learn's displays.

A display holds what is drawn; `plot` draws it, into given axes or a figure of its own. matplotlib is the
extra ``plots``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ledl.arrays import Array
from ledl.explanations import ExplanationDisplay, pyplot

__all__ = [
    "AccuracyDisplay",
    "AtomsDisplay",
    "CodesDisplay",
    "ConvergenceDisplay",
    "ExamplesDisplay",
    "ExplanationDisplay",
]

# What a history may hold, how it is called and drawn.
TERM = {"linewidth": 1, "linestyle": "--"}
CURVES: dict[str, tuple[str, dict[str, Any]]] = {
    "augmented_objective": ("augmented objective", {"linewidth": 2}),
    "data_fit": ("its term: data", TERM),
    "label_fit": ("its term: labels", TERM),
    "code_fit": ("its term: label consistency", TERM),
    "penalty": ("its term: l1 norm", TERM),
    "objective": ("objective at the sparse codes", {"color": "black", "marker": ".", "linewidth": 1}),
    "error": ("objective", {"linewidth": 2}),
}
OWN, OTHER = "#c2410c", "#64748b"  # told apart without colour vision, too: by lightness


def _new_axes(width: float, height: float) -> Any:
    return pyplot().subplots(figsize=(width, height), layout="constrained")[1]


def _draw_tiles(ax: Any, rows: Sequence[Sequence[Array]], cmap: Any, darkest: float) -> None:
    """Draw images of one size, values from `darkest` to 1, in rows, with a line between them and no frame."""
    height, width = np.shape(rows[0][0])
    mosaic = np.full((len(rows) * (height + 1) - 1, max(map(len, rows)) * (width + 1) - 1), np.nan)
    for i, row in enumerate(rows):
        for j, image in enumerate(row):
            top, left = i * (height + 1), j * (width + 1)
            mosaic[top : top + height, left : left + width] = image
    ax.imshow(mosaic, cmap=cmap, vmin=darkest, vmax=1)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)


class ConvergenceDisplay:
    """The objective of an iterative model over its iterations, with its terms where it has them.

    Parameters
    ----------
    history : dict of ndarrays
        ``history_`` of a fitted model.
    name : str, default=""
        For the title.

    Attributes
    ----------
    ax_, figure_ : matplotlib's axes and figure, after `plot`.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from ledl import LEDLClassifier
    >>> from ledl.plots import ConvergenceDisplay
    >>> X, y = load_digits(return_X_y=True)
    >>> model = LEDLClassifier(random_state=0).fit(X[:100], y[:100])
    >>> display = ConvergenceDisplay.from_estimator(model)
    >>> display.ax_.get_title()
    'LEDLClassifier'
    """

    def __init__(self, history: Mapping[str, Array], *, name: str = "") -> None:
        self.history, self.name = history, name

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None, name: str | None = None) -> ConvergenceDisplay:
        """Draw a fitted model with a ``history_``: LEDL, CSDL, K-SVD and its kin.

        Parameters
        ----------
        estimator : estimator
            A fitted model.
        ax : matplotlib's axes, default=None
            Where to draw; None: in a figure of its own.
        name : str, default=None
            For the title; None: that of its class.

        Returns
        -------
        ConvergenceDisplay
            Drawn.
        """
        check_is_fitted(estimator)
        if not hasattr(estimator, "history_"):
            raise TypeError(f"{type(estimator).__name__} has no iterations, so no history_ to draw.")
        return cls(estimator.history_, name=type(estimator).__name__ if name is None else name).plot(ax)

    def plot(self, ax: Any = None) -> ConvergenceDisplay:
        """Draw; iterations where the objective was not computed are passed over.

        Parameters
        ----------
        ax : matplotlib's axes, default=None
            Where to draw; None: in a figure of its own.

        Returns
        -------
        ConvergenceDisplay
            Itself.
        """
        ax = self.ax_ = _new_axes(6.4, 4.2) if ax is None else ax
        self.figure_ = ax.figure
        for key, (label, style) in CURVES.items():
            if key in self.history:
                values = np.asarray(self.history[key], dtype=float)
                if values.ndim == 2:  # a column for each class: their sum, where one that has ended stays
                    steps = np.where(np.isfinite(values), np.arange(len(values))[:, None], 0)
                    values = np.take_along_axis(values, np.maximum.accumulate(steps, axis=0), axis=0).sum(
                        axis=1
                    )
                known = np.flatnonzero(np.isfinite(values))
                ax.plot(known + 1, values[known], label=label, **style)
        ax.set(xlabel="iteration", ylabel="objective", yscale="log", title=self.name)
        ax.grid(alpha=0.25)
        ax.legend(fontsize=7, loc="best")
        return self


class AtomsDisplay:
    """Learnt atoms as small pictures, a row for each class: white is positive, red negative, black zero.

    Parameters
    ----------
    atoms : ndarray of shape (K, n_features)
        The atoms; their features are pixels, row by row.
    atom_classes : ndarray of shape (K,)
        The class of each atom.
    image_shape : tuple (height, width)
        Of the pictures.
    max_classes, max_per_class : int, default=10, 12
        The first so many are drawn.

    Attributes
    ----------
    ax_, figure_ : matplotlib's axes and figure, after `plot`.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from ledl import SRCClassifier
    >>> from ledl.plots import AtomsDisplay
    >>> X, y = load_digits(return_X_y=True)
    >>> display = AtomsDisplay.from_estimator(SRCClassifier().fit(X[:50], y[:50]), (8, 8), max_classes=3)
    >>> [label.get_text() for label in display.ax_.get_yticklabels()]
    ['0', '1', '2']
    """

    def __init__(
        self,
        atoms: Array,
        atom_classes: Array,
        image_shape: tuple[int, int],
        *,
        max_classes: int = 10,
        max_per_class: int = 12,
    ) -> None:
        self.atoms, self.atom_classes = np.asarray(atoms), np.asarray(atom_classes)
        if np.prod(image_shape) != self.atoms.shape[1]:
            raise ValueError(
                f"image_shape={tuple(image_shape)} has {np.prod(image_shape)} pixels, but atoms have "
                f"{self.atoms.shape[1]} features. Atoms are pictures only where features are pixels."
            )
        self.image_shape, self.max_classes, self.max_per_class = image_shape, max_classes, max_per_class

    @classmethod
    def from_estimator(
        cls, estimator: Any, image_shape: tuple[int, int], *, ax: Any = None, **options: int
    ) -> AtomsDisplay:
        """Draw a fitted classifier with ``components_``; with a kernel there are none.

        Parameters
        ----------
        estimator : classifier
            A fitted model.
        image_shape : tuple (height, width)
            Of the images that it was fitted on.
        ax : matplotlib's axes, default=None
            Where to draw; None: in a figure of its own.
        **options : int
            ``max_classes`` and ``max_per_class``.

        Returns
        -------
        AtomsDisplay
            Drawn.
        """
        check_is_fitted(estimator)
        if not hasattr(estimator, "components_"):
            raise TypeError(f"{estimator} has no components_ to draw: its atoms are no samples.")
        return cls(estimator.components_, estimator.atom_classes_, image_shape, **options).plot(ax)

    def plot(self, ax: Any = None) -> AtomsDisplay:
        """Draw.

        Parameters
        ----------
        ax : matplotlib's axes, default=None
            Where to draw; None: in a figure of its own.

        Returns
        -------
        AtomsDisplay
            Itself.
        """
        from matplotlib.colors import LinearSegmentedColormap

        classes = list(dict.fromkeys(self.atom_classes.tolist()))[: self.max_classes]
        rows = []
        for label in classes:
            atoms = self.atoms[self.atom_classes == label][: self.max_per_class]
            largest = np.maximum(np.abs(atoms).max(axis=1, keepdims=True), np.finfo(atoms.dtype).tiny)
            rows.append((atoms / largest).reshape(-1, *self.image_shape))
        height, width = self.image_shape[0] + 1, self.image_shape[1] + 1
        if ax is None:
            ax = _new_axes(6.4, 6.4 * (len(rows) * height - 1) / (max(map(len, rows)) * width - 1))
        self.ax_, self.figure_ = ax, ax.figure
        # Pictures look as they do in grey; what is negative, as no picture is, is red.
        signed_grey = LinearSegmentedColormap.from_list("signed grey", ["#ff4d3d", "black", "white"])
        _draw_tiles(ax, rows, signed_grey, -1)
        ax.set_yticks(np.arange(len(rows)) * height + height / 2 - 1, labels=map(str, classes), fontsize=7)
        ax.set(xticks=[], title="")
        return self


class CodesDisplay:
    """Codes of a few samples, the atoms sorted by class: does a sample use the atoms of its own class?

    Parameters
    ----------
    codes : ndarray of shape (n_samples, K)
        A row for each sample.
    atom_classes : ndarray of shape (K,)
        The class of each atom.
    y : ndarray of shape (n_samples,)
        The samples' classes.
    predicted : ndarray of shape (n_samples,), default=None
        What they were taken for.

    Attributes
    ----------
    axes_, figure_ : matplotlib's axes and figure, after `plot`.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from ledl import SRCClassifier
    >>> from ledl.plots import CodesDisplay
    >>> X, y = load_digits(return_X_y=True)
    >>> display = CodesDisplay.from_estimator(SRCClassifier().fit(X[:50], y[:50]), X[50:52], y[50:52])
    >>> len(display.axes_)
    2
    """

    def __init__(self, codes: Array, atom_classes: Array, y: Array, predicted: Array | None = None) -> None:
        self.codes, self.atom_classes, self.y = np.asarray(codes), np.asarray(atom_classes), np.asarray(y)
        self.predicted = None if predicted is None else np.asarray(predicted)

    @classmethod
    def from_estimator(cls, estimator: Any, X: Array, y: Array, *, axes: Any = None) -> CodesDisplay:
        """Draw the codes and labels that a fitted classifier gives to samples.

        Parameters
        ----------
        estimator : classifier
            A fitted model.
        X : array-like of shape (n_samples, n_features)
            A few samples.
        y : array-like of shape (n_samples,)
            Their classes.
        axes : sequence of matplotlib's axes, default=None
            Where to draw, one for each sample; None: in a figure of their own.

        Returns
        -------
        CodesDisplay
            Drawn.
        """
        display = cls(estimator.transform(X), estimator.atom_classes_, y, estimator.predict(X))
        return display.plot(axes)

    def plot(self, axes: Sequence[Any] | None = None) -> CodesDisplay:
        """Draw, in as many axes as there are samples.

        Parameters
        ----------
        axes : sequence of matplotlib's axes, default=None
            Where to draw, one for each sample; None: in a figure of their own.

        Returns
        -------
        CodesDisplay
            Itself.
        """
        n = len(self.codes)
        if axes is None:
            size = {"figsize": (6.4, 1.1 * n + 0.4), "layout": "constrained"}
            axes = pyplot().subplots(n, sharex=True, squeeze=False, **size)[1][:, 0]
        self.axes_, self.figure_ = axes, axes[0].figure
        order = np.argsort(self.atom_classes, kind="stable")
        places = np.arange(len(order))
        for i, ax in enumerate(axes):
            code, own = self.codes[i, order], self.atom_classes[order] == self.y[i]
            for mask, color in [(~own, OTHER), (own, OWN)]:
                ax.vlines(places[mask], 0, code[mask], color=color, linewidth=1)
            if own.any():
                ax.axvspan(places[own].min() - 0.5, places[own].max() + 0.5, color=OWN, alpha=0.12, linewidth=0)
            ax.axhline(0, color="black", linewidth=0.5)
            title = f"class {self.y[i]}"
            if self.predicted is not None:
                verdict = "right" if self.predicted[i] == self.y[i] else "wrong"
                title += f", taken for {self.predicted[i]} ({verdict})"
            ax.set_title(title, fontsize=8, loc="left", pad=2)
            ax.tick_params(labelsize=7)
        axes[-1].set_xlabel("atom, sorted by class (shaded and orange: the sample's own class)", fontsize=8)
        return self


class AccuracyDisplay:
    """Accuracy over a parameter, or over the number of training samples: mean and spread over splits.

    Parameters
    ----------
    values : sequence of float
        What the accuracies are drawn over.
    accuracies : dict of ndarrays of shape (n_values, n_splits)
        In %, by the name of the curve.
    xlabel : str
        What the values are.
    base : int, default=2
        Of the logarithmic scale of x; 0 for a linear one.
    mark : float, default=None
        A value to be pointed out: the parameter's default.

    Attributes
    ----------
    ax_, figure_ : matplotlib's axes and figure, after `plot`.

    Examples
    --------
    >>> from ledl.plots import AccuracyDisplay
    >>> display = AccuracyDisplay([1, 2, 4], {"SRC": [[60, 64], [70, 72], [77, 78]]}, xlabel="samples a class")
    >>> display.plot().ax_.get_ylabel()
    'accuracy, %'
    """

    def __init__(
        self,
        values: Sequence[float],
        accuracies: Mapping[str, Array],
        *,
        xlabel: str,
        base: int = 2,
        mark: float | None = None,
    ) -> None:
        self.values, self.accuracies, self.xlabel = list(values), accuracies, xlabel
        self.base, self.mark = base, mark

    def plot(self, ax: Any = None) -> AccuracyDisplay:
        """Draw.

        Parameters
        ----------
        ax : matplotlib's axes, default=None
            Where to draw; None: in a figure of its own.

        Returns
        -------
        AccuracyDisplay
            Itself.
        """
        ax = self.ax_ = _new_axes(4.8, 3.6) if ax is None else ax
        self.figure_ = ax.figure
        markers = "osD^vP*X"
        for i, (name, accuracies) in enumerate(self.accuracies.items()):
            accuracies = np.asarray(accuracies, dtype=float)
            spread = accuracies.std(axis=1, ddof=1) if accuracies.shape[1] > 1 else None
            style = {"marker": markers[i % len(markers)], "markersize": 4, "capsize": 2, "linewidth": 1.3}
            ax.errorbar(self.values, accuracies.mean(axis=1), yerr=spread, **style, label=name)
        if self.mark is not None:
            ax.axvline(self.mark, color="black", linewidth=0.8, linestyle=":", label="default")
        if self.base:
            ax.set_xscale("log", base=self.base)
        else:
            ax.set_xticks(self.values)
        ax.set(xlabel=self.xlabel, ylabel="accuracy, %")
        ax.grid(alpha=0.25)
        ax.legend(fontsize=7)
        return self


class ExamplesDisplay:
    """A strip of example images, one of each of the first classes.

    Parameters
    ----------
    images : ndarray of shape (n, height, width)
        Grey images; each is drawn from its darkest to its brightest value.
    labels : sequence of str
        What stands under each.

    Attributes
    ----------
    ax_, figure_ : matplotlib's axes and figure, after `plot`.

    Examples
    --------
    >>> from ledl.datasets import load
    >>> from ledl.plots import ExamplesDisplay
    >>> display = ExamplesDisplay.from_dataset(load("digits"), max_classes=4)
    >>> display.labels
    ['0', '1', '2', '3']
    """

    def __init__(self, images: Array, labels: Sequence[str]) -> None:
        self.images, self.labels = np.asarray(images), list(labels)

    @classmethod
    def from_dataset(cls, dataset: Any, *, max_classes: int = 12, ax: Any = None) -> ExamplesDisplay:
        """Draw the first image of each of the first classes of what `ledl.datasets.load` gives.

        Parameters
        ----------
        dataset : Bunch
            With ``images``, ``target`` and ``target_names``.
        max_classes : int, default=12
            The first so many are drawn.
        ax : matplotlib's axes, default=None
            Where to draw; None: in a figure of its own.

        Returns
        -------
        ExamplesDisplay
            Drawn.
        """
        if "images" not in dataset:
            raise ValueError("The dataset has no images, only features of images.")
        first = np.unique(dataset.target, return_index=True)[1][:max_classes]
        labels = [dataset.target_names[dataset.target[i]] for i in first]
        return cls(dataset.images[first], labels).plot(ax)

    def plot(self, ax: Any = None) -> ExamplesDisplay:
        """Draw.

        Parameters
        ----------
        ax : matplotlib's axes, default=None
            Where to draw; None: in a figure of its own.

        Returns
        -------
        ExamplesDisplay
            Itself.
        """
        n, height, width = self.images.shape
        ax = self.ax_ = _new_axes(0.8 * n, 0.8 * height / width + 0.4) if ax is None else ax
        self.figure_ = ax.figure
        images = self.images.astype(float)
        darkest, brightest = (extreme(images, axis=(1, 2), keepdims=True) for extreme in (np.min, np.max))
        tiles = (images - darkest) / np.maximum(brightest - darkest, 1e-12)
        _draw_tiles(ax, [tiles], "gray", 0)
        ax.set_xticks(np.arange(n) * (width + 1) + width / 2 - 0.5, labels=self.labels, fontsize=8)
        ax.set_yticks([])
        return self
