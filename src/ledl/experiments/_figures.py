"""The figures of a run: from its cells, and from LEDL fitted again on the first split."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.metrics import ConfusionMatrixDisplay
from threadpoolctl import threadpool_limits

from ledl.arrays import Array
from ledl.experiments._again import ITERATIONS, confusion, converging, first_split, fit_again
from ledl.experiments._cells import Cell, load_dataset
from ledl.experiments._run import SAMPLED, STUDY_SPLITS, WEIGHT_VALUES, Plan, samples_per_class
from ledl.experiments._tables import Results
from ledl.files import write_atomically
from ledl.methods import DATASET_TITLES, METHODS
from ledl.plots import AccuracyDisplay, AtomsDisplay, CodesDisplay, ConvergenceDisplay, ExamplesDisplay

# Confusion matrices of so many of the first classes, where there are too many to see.
MAX_CLASSES = 20
CONFUSED = ("digits", "yaleb", "ucmerced", "caltech101_pyramid")
CONFUSED_METHODS = ("ledl", "lcksvd")
N_CODES = 5
WEIGHT_LABELS = {
    "label_weight": r"$\lambda$, label_weight",
    "code_weight": r"$\omega$, code_weight",
    "alpha": r"$\epsilon$, alpha",
}

CellResults = Mapping[Cell, Mapping[str, Any]]


class Picture(NamedTuple):
    """A figure on disk: what it is called, what it shows in words, where it lies, and its bytes."""

    title: str
    caption: str
    alt: str
    path: Path
    png: bytes


class Drawing(NamedTuple):
    """A figure before it is saved."""

    name: str
    title: str
    caption: str
    alt: str
    figure: Any


def draw_all(
    plan: Plan,
    results: Results,
    cells: CellResults,
    folder: Path,
    watch: Callable[[str], None] = lambda title: None,
) -> list[Picture]:
    """Draw and save whatever this run has the material for."""
    folder.mkdir(parents=True, exist_ok=True)
    pictures = []
    for drawing in _drawings(plan, results, cells):
        path = folder / f"{drawing.name}.png"
        image = io.BytesIO()
        drawing.figure.savefig(image, dpi=140, bbox_inches="tight", format="png")
        write_atomically(path, lambda file, image=image: file.write(image.getvalue()))  # type: ignore[misc]
        pictures.append(Picture(drawing.title, drawing.caption, drawing.alt, path, image.getvalue()))
        watch(drawing.title)
    return pictures


def _drawings(plan: Plan, results: Results, cells: CellResults) -> Iterator[Drawing]:
    yield from _examples(plan)
    if plan.studied and all((d, "ledl") in results for d in plan.studied):
        yield _convergence(plan, results)
    for dataset in plan.datasets:
        if dataset in CONFUSED and all((dataset, m) in results for m in CONFUSED_METHODS):
            yield _confusion(plan, results, dataset)
    yield from _weights(plan, cells)
    yield from _samples(plan, cells)
    for dataset in plan.datasets:
        if (dataset, "ledl") in results:
            yield from _atoms_and_codes(plan, results, dataset)


def _figure(width: float, height: float) -> Any:
    from matplotlib.figure import Figure  # no window, whatever the platform

    return Figure(figsize=(width, height), layout="constrained")


def _grid(n: int, width: float, height: float, sharey: bool = False) -> tuple[Any, list[Any]]:
    """A figure and n axes in it, three in a row, or four in two rows."""
    n_columns = 2 if n == 4 else min(n, 3)
    n_rows = -(-n // n_columns)
    figure = _figure(width * n_columns, height * n_rows)
    axes = figure.subplots(n_rows, n_columns, squeeze=False, sharey=sharey).ravel()
    for ax in axes[n:]:
        ax.remove()
    return figure, list(axes[:n])


def _examples(plan: Plan) -> Iterator[Drawing]:
    shown = [dataset for dataset in plan.datasets if "images" in load_dataset(dataset)]
    if not shown:
        return
    figure = _figure(8, 0.2 + 1.15 * len(shown))
    for ax, dataset in zip(figure.subplots(len(shown), squeeze=False)[:, 0], shown, strict=True):
        ExamplesDisplay.from_dataset(load_dataset(dataset), ax=ax)
        ax.set_title(DATASET_TITLES[dataset], fontsize=9, loc="left")
    titles = ", ".join(DATASET_TITLES[dataset] for dataset in shown)
    yield Drawing(
        "examples",
        "Example images",
        "The first image of each of the first classes."
        + ("" if len(shown) == len(plan.datasets) else " The other datasets come as features of images."),
        f"One image of each of the first classes of {titles}.",
        figure,
    )


def _convergence(plan: Plan, results: Results) -> Drawing:
    figure, axes = _grid(len(plan.studied), 4.4, 3.4)
    ends = []
    for ax, dataset in zip(axes, plan.studied, strict=True):
        model = converging(plan, results, dataset)
        ConvergenceDisplay.from_estimator(model, ax=ax, name=DATASET_TITLES[dataset])
        first, last = model.history_["augmented_objective"][[0, -1]]
        ends.append(f"{DATASET_TITLES[dataset]} from {first:.3g} to {last:.3g}")
    return Drawing(
        "convergence",
        "Convergence of LEDL",
        f"The augmented objective and its terms over {ITERATIONS} iterations on the first split, at the "
        "settings of the table, and the objective at the sparse codes (black), known every tenth iteration.",
        f"Curves of the objective over {ITERATIONS} iterations: {'; '.join(ends)}.",
        figure,
    )


def _confusion(plan: Plan, results: Results, dataset: str) -> Drawing:
    data = load_dataset(dataset)
    n_classes = len(data.target_names)
    n_shown = min(n_classes, MAX_CLASSES) if n_classes > 25 else n_classes
    names = [name if len(name) < 13 else f"{name[:11]}." for name in data.target_names[:n_shown]]
    figure = _figure(13, 6.6)
    diagonals = []
    for ax, method in zip(figure.subplots(1, 2), CONFUSED_METHODS, strict=True):
        shares = confusion(plan, results, dataset, method)[:n_shown, :n_shown]
        display = ConfusionMatrixDisplay(np.round(100 * shares).astype(int), display_labels=names)
        display.plot(ax=ax, cmap="Blues", colorbar=False, xticks_rotation="vertical", values_format="d",
                     text_kw={"fontsize": 7}, im_kw={"vmin": 0, "vmax": 100})  # fmt: skip
        for text, share in zip(display.text_.ravel(), shares.ravel(), strict=True):
            text.set_visible(share >= 0.005)
        ax.set_title(METHODS[method].title)
        ax.tick_params(labelsize=7)
        diagonals.append(f"{METHODS[method].title} {100 * np.diag(shares).mean():.1f} %")
    corner = f", the first {n_shown} of {n_classes} classes" if n_shown < n_classes else ""
    return Drawing(
        f"confusion_{dataset}",
        f"Confusion matrices, {DATASET_TITLES[dataset]}",
        f"Per cent of the test samples of a class (row), summed over the splits{corner}. "
        + ("The corner of the full matrix: a row need not add up to 100." if corner else ""),
        f"Two confusion matrices side by side; means of the diagonals: {', '.join(diagonals)}.",
        figure,
    )


def _accuracies(groups: Sequence[Sequence[Cell]], cells: CellResults) -> Array | None:
    """In %, values by splits; None where some are missing."""
    if not all(cell in cells for group in groups for cell in group):
        return None
    return 100 * np.array([[cells[cell]["accuracy"] for cell in group] for group in groups])


def _weights(plan: Plan, cells: CellResults) -> Iterator[Drawing]:
    curves = {
        weight: {
            DATASET_TITLES[dataset]: found
            for dataset in plan.studied
            if (found := _accuracies(plan.weight_cells(dataset, weight), cells)) is not None
        }
        for weight in WEIGHT_VALUES
    }
    if not all(curves.values()):
        return
    figure, axes = _grid(len(curves), 4.4, 3.6, sharey=True)
    defaults = METHODS["ledl"].make().get_params()
    for ax, (weight, accuracies) in zip(axes, curves.items(), strict=True):
        mark = defaults[weight]
        label = WEIGHT_LABELS[weight]
        AccuracyDisplay(WEIGHT_VALUES[weight], accuracies, xlabel=label, mark=mark).plot(ax)
    yield Drawing(
        "weights",
        "Accuracy of LEDL over its weights",
        "One weight varied, the others at their defaults, on test samples, "
        f"{_few_splits(plan)}. To look at; nothing was chosen from it.",
        "; ".join(f"{weight}: {_ranges(accuracies)}" for weight, accuracies in curves.items()) + ".",
        figure,
    )


def _few_splits(plan: Plan) -> str:
    n = min(plan.n_splits, STUDY_SPLITS)
    return "one split" if n == 1 else f"mean and standard deviation over the first {n} splits"


def _ranges(accuracies: Mapping[str, Array]) -> str:
    means = {name: values.mean(axis=1) for name, values in accuracies.items()}
    return ", ".join(f"{name} {m.min():.0f} to {m.max():.0f} %" for name, m in means.items())


def _samples(plan: Plan, cells: CellResults) -> Iterator[Drawing]:
    curves = {
        dataset: {
            METHODS[method].title: found
            for method in SAMPLED
            if method in plan.methods
            and (found := _accuracies(plan.sample_cells(dataset, method), cells)) is not None
        }
        for dataset in plan.studied
    }
    curves = {dataset: found for dataset, found in curves.items() if found}
    if not curves:
        return
    figure, axes = _grid(len(curves), 4.4, 3.6)
    for ax, (dataset, accuracies) in zip(axes, curves.items(), strict=True):
        values = samples_per_class(dataset)
        display = AccuracyDisplay(values, accuracies, xlabel="training samples a class", base=0)
        display.plot(ax)
        ax.set_title(DATASET_TITLES[dataset])
    ranges = "; ".join(f"{DATASET_TITLES[d]}: {_ranges(found)}" for d, found in curves.items())
    yield Drawing(
        "samples",
        "Accuracy over the number of training samples",
        f"Every method at its defaults; {_few_splits(plan)}.",
        f"Accuracy over the number of training samples a class. {ranges}.",
        figure,
    )


def _atoms_and_codes(plan: Plan, results: Results, dataset: str) -> Iterator[Drawing]:
    data, title = load_dataset(dataset), DATASET_TITLES[dataset]
    model = fit_again(plan, results, dataset, "ledl")
    if "images" in data:
        figure = _figure(7, 6)
        AtomsDisplay.from_estimator(model, data.images.shape[1:], ax=figure.subplots())
        yield Drawing(
            f"atoms_{dataset}",
            f"Learnt atoms, {title}",
            "A row for each of the first classes; white positive, red negative, each atom scaled for itself.",
            f"Atoms of LEDL as small images: {len(model.components_)} were learnt.",
            figure,
        )
    _, test = first_split(plan, dataset)
    classes = np.unique(data.target)[:N_CODES]
    shown = np.array([test[data.target[test] == label][0] for label in classes])
    figure = _figure(8, 1.1 * len(shown) + 0.4)
    axes = figure.subplots(len(shown), sharex=True, squeeze=False)[:, 0]
    with threadpool_limits(1):
        display = CodesDisplay.from_estimator(model, data.data[shown], data.target[shown], axes=axes)
    own = model.atom_classes_[None] == data.target[shown][:, None]
    share = np.abs(display.codes[own]).sum() / max(np.abs(display.codes).sum(), 1e-12)
    yield Drawing(
        f"codes_{dataset}",
        f"Codes of test images, {title}",
        f"The first test sample of each of the first {len(shown)} classes.",
        f"Codes over the atoms sorted by class; {100 * share:.0f} % of their l1 norm is on the own class.",
        figure,
    )
