"""Draw models and results, with the interface of scikit-learn's displays.

A display holds the data; `plot` draws them into given axes or a new figure. matplotlib comes with the extra
``plots``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ledl.arrays import Array
from ledl.explanations import ExplanationDisplay, pyplot
from ledl.rejection import Parts, parts_of
from ledl.semi_supervised import SemiSupervisedClassifier

__all__ = [
    "AccuracyDisplay",
    "AtomsDisplay",
    "CodesDisplay",
    "ConvergenceDisplay",
    "ExamplesDisplay",
    "ExplanationDisplay",
]

# Curves of a history by their keys, with label and style.
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
OWN, OTHER = "#c2410c", "#64748b"  # they differ in lightness, too
# The most samples of `CodesDisplay`: each has axes of its own, and hundreds of them take minutes.
MOST_CODES = 30


def _parts(estimator: Any) -> Parts:
    """Return the fitted classifier inside pipelines, searches and wrappers, and the transformers before it.

    Of a `SemiSupervisedClassifier` it is the supervised one, which has atoms.
    """
    check_is_fitted(estimator)
    parts = parts_of(estimator)
    check_is_fitted(parts.classifier)
    if not isinstance(parts.classifier, SemiSupervisedClassifier):
        return parts
    inner = parts_of(parts.classifier.estimator_)
    return inner._replace(transformers=[*parts.transformers, *inner.transformers])


def _new_axes(width: float, height: float) -> Any:
    return pyplot().subplots(figsize=(width, height), layout="constrained")[1]


def _draw_tiles(ax: Any, rows: Sequence[Sequence[Array]], cmap: Any, darkest: float) -> None:
    """Draw rows of images of one size, with values from `darkest` to 1, and a line between the images."""
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
    """Show the objective of an iterative model over its iterations, with its terms if it has any.

    Parameters
    ----------
    history : dict of ndarrays
        The ``history_`` of a fitted model.
    name : str, default=""
        The title.

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
        """Draw the ``history_`` of a fitted model: LEDL, CSDL, K-SVD, D-KSVD or LC-KSVD.

        Parameters
        ----------
        estimator : estimator
            A fitted model, or a pipeline, search or wrapper of one.
        ax : matplotlib's axes, default=None
            The axes to draw in. None: axes of a new figure.
        name : str, default=None
            The title. None: the name of the model's class.

        Returns
        -------
        ConvergenceDisplay
            The display, drawn.
        """
        model = _parts(estimator).classifier
        if not hasattr(model, "history_"):
            raise TypeError(f"{type(model).__name__} has no iterations, so no history_ to draw.")
        return cls(model.history_, name=type(model).__name__ if name is None else name).plot(ax)

    def plot(self, ax: Any = None) -> ConvergenceDisplay:
        """Draw the curves; iterations without a value of the objective are left out.

        Parameters
        ----------
        ax : matplotlib's axes, default=None
            The axes to draw in. None: axes of a new figure.

        Returns
        -------
        ConvergenceDisplay
            The display itself.
        """
        ax = self.ax_ = _new_axes(6.4, 4.2) if ax is None else ax
        self.figure_ = ax.figure
        for key, (label, style) in CURVES.items():
            if key in self.history:
                values = np.asarray(self.history[key], dtype=float)
                if (
                    values.ndim == 2
                ):  # a column for each class: add them; a class that has ended keeps its value
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
    """Show learned atoms as small pictures, a row for each class: white is positive, red negative, black zero.

    Parameters
    ----------
    atoms : ndarray of shape (K, n_features)
        The atoms. Their features are pixels, row by row.
    atom_classes : ndarray of shape (K,)
        The class of each atom.
    image_shape : tuple (height, width)
        The shape of the pictures.
    max_classes, max_per_class : int, default=10, 12
        Number of classes, and of atoms of each class, to draw at most.

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
                f"{self.atoms.shape[1]} features. Atoms are pictures only if features are pixels."
            )
        self.image_shape, self.max_classes, self.max_per_class = image_shape, max_classes, max_per_class

    @classmethod
    def from_estimator(
        cls, estimator: Any, image_shape: tuple[int, int], *, ax: Any = None, **options: int
    ) -> AtomsDisplay:
        """Draw the atoms of a fitted classifier that has ``components_``. With most kernels it has none.

        Parameters
        ----------
        estimator : classifier
            A fitted model, or a pipeline, search or wrapper of one.
        image_shape : tuple (height, width)
            The shape of the training images.
        ax : matplotlib's axes, default=None
            The axes to draw in. None: axes of a new figure.
        **options : int
            ``max_classes`` and ``max_per_class``.

        Returns
        -------
        AtomsDisplay
            The display, drawn.
        """
        model = _parts(estimator).classifier
        if hasattr(model, "dual_components_"):
            raise TypeError(
                f"The atoms of kernel={model.dictionary_.space.kernel.kernel!r} are sums in the space of the "
                "kernel, and no pictures. Draw those of kernel='linear', 'hellinger' or a power."
                if hasattr(model.dictionary_.space.kernel, "kernel")
                else "The atoms of a precomputed kernel are known by inner products only, and are no pictures."
            )
        if not hasattr(model, "atom_classes_"):
            raise TypeError(f"{type(model).__name__} has no atoms of classes to draw.")
        return cls(model.components_, model.atom_classes_, image_shape, **options).plot(ax)

    def plot(self, ax: Any = None) -> AtomsDisplay:
        """Draw the atoms.

        Parameters
        ----------
        ax : matplotlib's axes, default=None
            The axes to draw in. None: axes of a new figure.

        Returns
        -------
        AtomsDisplay
            The display itself.
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
        # Positive values are grey as in a picture. Pictures have no negative values, so these are red.
        signed_grey = LinearSegmentedColormap.from_list("signed grey", ["#ff4d3d", "black", "white"])
        _draw_tiles(ax, rows, signed_grey, -1)
        ax.set_yticks(np.arange(len(rows)) * height + height / 2 - 1, labels=map(str, classes), fontsize=7)
        ax.set(xticks=[], title="")
        return self


class CodesDisplay:
    """Show the codes of a few samples, with atoms sorted by class: does a sample use atoms of its own class?

    Parameters
    ----------
    codes : ndarray of shape (n_samples, K)
        A row for each sample, 30 at most.
    atom_classes : ndarray of shape (K,)
        The class of each atom.
    y : ndarray of shape (n_samples,)
        The classes of the samples.
    predicted : ndarray of shape (n_samples,), default=None
        The predicted classes.

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
        if len(codes) > MOST_CODES:
            raise ValueError(
                f"{len(codes)} samples are too many: each has axes of its own, at most {MOST_CODES}. Give "
                f"a few, such as X[:{MOST_CODES}] and y[:{MOST_CODES}]."
            )
        self.codes, self.atom_classes, self.y = np.asarray(codes), np.asarray(atom_classes), np.asarray(y)
        self.predicted = None if predicted is None else np.asarray(predicted)

    @classmethod
    def from_estimator(cls, estimator: Any, X: Array, y: Array, *, axes: Any = None) -> CodesDisplay:
        """Draw the codes and predicted classes of samples.

        Parameters
        ----------
        estimator : classifier
            A fitted model, or a pipeline, search or wrapper of one.
        X : array-like of shape (n_samples, n_features)
            A few samples, 30 at most.
        y : array-like of shape (n_samples,)
            The classes of the samples.
        axes : sequence of matplotlib's axes, default=None
            The axes to draw in, one for each sample. None: axes of a new figure.

        Returns
        -------
        CodesDisplay
            The display, drawn.
        """
        parts = _parts(estimator)
        model = parts.classifier
        if not hasattr(model, "atom_classes_"):
            raise TypeError(f"{type(model).__name__} has no codes over atoms of classes to draw.")
        display = cls(model.transform(parts.transform(X)), model.atom_classes_, y, estimator.predict(X))
        return display.plot(axes)

    def plot(self, axes: Sequence[Any] | None = None) -> CodesDisplay:
        """Draw the codes of each sample in axes of its own.

        Parameters
        ----------
        axes : sequence of matplotlib's axes, default=None
            The axes to draw in, one for each sample. None: axes of a new figure.

        Returns
        -------
        CodesDisplay
            The display itself.
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
                title += f", predicted {self.predicted[i]} ({verdict})"
            ax.set_title(title, fontsize=8, loc="left", pad=2, parse_math=False)  # "$5" is a name
            ax.tick_params(labelsize=7)
        axes[-1].set_xlabel("atom, sorted by class (shaded and orange: the sample's own class)", fontsize=8)
        return self


class AccuracyDisplay:
    """Show accuracy over a parameter or the number of training samples: mean and spread over splits.

    Parameters
    ----------
    values : sequence of float
        The values on the x axis.
    accuracies : dict of ndarrays of shape (n_values, n_splits)
        Accuracies in %, by the name of the curve.
    xlabel : str
        The label of the x axis.
    base : int, default=2
        Base of the logarithmic x axis. 0: a linear axis.
    mark : float, default=None
        A value to mark as the default of the parameter.

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
        """Draw the curves.

        Parameters
        ----------
        ax : matplotlib's axes, default=None
            The axes to draw in. None: axes of a new figure.

        Returns
        -------
        AccuracyDisplay
            The display itself.
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
    """Show a row of example images, one of each of the first classes.

    Parameters
    ----------
    images : ndarray of shape (n, height, width)
        Grey images; each is drawn from its darkest to its brightest value.
    labels : sequence of str
        The texts below the images.

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
        """Draw the first image of each of the first classes of a dataset.

        Parameters
        ----------
        dataset : Bunch
            A dataset from `ledl.datasets.load`, with ``images``, ``target`` and ``target_names``.
        max_classes : int, default=12
            Number of classes to draw at most.
        ax : matplotlib's axes, default=None
            The axes to draw in. None: axes of a new figure.

        Returns
        -------
        ExamplesDisplay
            The display, drawn.
        """
        if "images" not in dataset:
            raise ValueError("The dataset has no images, only features of images.")
        first = np.unique(dataset.target, return_index=True)[1][:max_classes]
        labels = [dataset.target_names[dataset.target[i]] for i in first]
        return cls(dataset.images[first], labels).plot(ax)

    def plot(self, ax: Any = None) -> ExamplesDisplay:
        """Draw the images.

        Parameters
        ----------
        ax : matplotlib's axes, default=None
            The axes to draw in. None: axes of a new figure.

        Returns
        -------
        ExamplesDisplay
            The display itself.
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
