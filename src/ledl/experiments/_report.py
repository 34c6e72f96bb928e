"""The report of a run: its figures, and everything as one HTML page."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.metrics import ConfusionMatrixDisplay
from threadpoolctl import threadpool_limits

from ledl.arrays import Array
from ledl.experiments._cells import (
    COMPARED_SAMPLES,
    SAMPLED,
    STUDY_SPLITS,
    WEIGHT_VALUES,
    Cell,
    Plan,
    dataset_digest,
    load_dataset,
    split,
)
from ledl.experiments._tables import (
    BEST,
    CAVEATS,
    ITERATIONS,
    TO_THE_END,
    WITHIN_NOISE,
    Results,
    Table,
    interval_halves,
)
from ledl.files import write_atomically
from ledl.methods import METHODS, title_of
from ledl.model_selection import HELD_OUT_SAMPLES, N_FOLDS
from ledl.pages import render
from ledl.plots import (
    OTHER,
    OWN,
    AccuracyDisplay,
    AtomsDisplay,
    CodesDisplay,
    ConvergenceDisplay,
    ExamplesDisplay,
)

MAX_CLASSES = 20  # shown in confusion matrices of datasets with more than 25 classes
CONFUSED = ("digits", "yaleb", "ucmerced", "caltech101_pyramid")
CONFUSED_METHODS = ("ledl", "lcksvd")
N_CODES = 5
WEIGHT_LABELS = {
    "label_weight": r"$\lambda$, label_weight",
    "code_weight": r"$\omega$, code_weight",
    "alpha": r"$\epsilon$, alpha",
}


class Picture(NamedTuple):
    """A figure that was saved: its title and caption, a description for those who cannot see it, its file."""

    title: str
    caption: str
    alt: str
    path: Path


def draw(results: Results, folder: Path) -> Iterator[Picture]:
    """Draw and save the figures that this run has results for; yield them one by one."""
    folder.mkdir(parents=True, exist_ok=True)
    plan, runs = results.plan, results.runs
    yield _draw_accuracies(results, folder)
    with_images = [dataset for dataset in plan.datasets if "images" in load_dataset(dataset)]
    if with_images:
        figure = _figure(8, 0.2 + 1.15 * len(with_images))
        axes = figure.subplots(len(with_images), squeeze=False)[:, 0]
        for ax, dataset in zip(axes, with_images, strict=True):
            ExamplesDisplay.from_dataset(load_dataset(dataset), ax=ax)
            ax.set_title(title_of(dataset), fontsize=9, loc="left")
        yield _save(
            figure,
            folder / "examples.png",
            "Example images",
            "The first image of each of the first classes."
            + " The other datasets have features in place of images." * (len(with_images) < len(plan.datasets)),
            f"Images of the first classes of {', '.join(title_of(d) for d in with_images)}.",
        )
    if plan.studied and all((dataset, "ledl") in runs for dataset in plan.studied):
        figure, axes = _grid(len(plan.studied), 3.4)
        models = {d: results.fit_again(d, "ledl", **TO_THE_END) for d in plan.studied}
        for ax, (dataset, model) in zip(axes, models.items(), strict=True):
            ConvergenceDisplay.from_estimator(model, ax=ax, name=title_of(dataset))
        curves = {title_of(d): model.history_["augmented_objective"] for d, model in models.items()}
        ends = "; ".join(f"{title} from {curve[0]:.3g} to {curve[-1]:.3g}" for title, curve in curves.items())
        yield _save(
            figure,
            folder / "convergence.png",
            "Convergence of LEDL",
            f"The augmented objective and its terms over {ITERATIONS} iterations on the first split, with the "
            "settings of the table. Black: the objective at the sparse codes, in every tenth iteration.",
            f"Curves of the objective over {ITERATIONS} iterations: {ends}.",
        )
    for dataset in plan.datasets:
        if dataset in CONFUSED and all((dataset, method) in runs for method in CONFUSED_METHODS):
            yield _draw_confusion(results, dataset, folder)
    yield from _draw_studies(results, folder)
    if plan.is_semi and results.over_labels:
        yield _draw_labels(results, folder)
    for dataset in plan.datasets:
        if (dataset, "ledl") in runs:
            yield from _draw_atoms_and_codes(results, dataset, folder)


def _figure(width: float, height: float) -> Any:
    from matplotlib.figure import Figure  # opens no window on any platform

    return Figure(figsize=(width, height), layout="constrained")


def _grid(n: int, height: float) -> tuple[Any, list[Any]]:
    """Return a figure with n axes: three in a row, or four in two rows."""
    n_columns = 2 if n == 4 else min(n, 3)
    n_rows = -(-n // n_columns)
    figure = _figure(4.4 * n_columns, height * n_rows)
    return figure, [figure.add_subplot(n_rows, n_columns, i + 1) for i in range(n)]


def _save(figure: Any, path: Path, title: str, caption: str, alt: str) -> Picture:
    """Save a figure as PNG, and for papers as PDF and SVG, without the time of day in the files."""
    undated = {"png": {}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}
    for kind, metadata in undated.items():
        how = {"dpi": 140, "bbox_inches": "tight", "format": kind, "metadata": metadata}
        write_atomically(path.with_suffix(f".{kind}"), partial(figure.savefig, **how))
    return Picture(title, caption, alt, path)


def _draw_accuracies(results: Results, folder: Path) -> Picture:
    """Draw the main table: the mean of each method on each dataset, with its interval over the splits."""
    plan, values = results.plan, results.accuracies
    figure, axes = _grid(len(plan.datasets), 0.9 + 0.28 * len(plan.methods))
    texts = []
    for ax, dataset in zip(axes, plan.datasets, strict=True):
        methods = [m for m in reversed(plan.methods) if (dataset, m) in results.runs]
        means = np.array([values[dataset, m].mean() for m in methods])
        halves = interval_halves(values[[(dataset, m) for m in methods]].to_numpy())
        places = np.arange(len(methods))
        best = means.max(initial=0)
        ax.errorbar(means, places, xerr=halves, fmt="o", markersize=4, capsize=3, color=OTHER, linewidth=1.2)
        ax.plot(means[means == best], places[means == best], "o", markersize=6, color=OWN, zorder=3)
        low, high = ax.get_xlim()
        ax.set_xlim(max(low, -1), min(high, 101))  # intervals of few splits may be longer than there are values
        ax.set_yticks(places, labels=[plan.find(m).title for m in methods], fontsize=7, parse_math=False)
        ax.set(xlabel="accuracy, %", ylim=(-0.6, len(methods) - 0.4))
        ax.set_title(title_of(dataset), parse_math=False)
        ax.grid(alpha=0.25, axis="x")
        found = ", ".join(
            f"{plan.find(m).title} {x:.1f}" for m, x in zip(methods[::-1], means[::-1], strict=True)
        )
        texts.append(f"{title_of(dataset)}: {found}")
    bars = f"bars: 95 % intervals of the mean over {plan.n_splits} splits (Student's)"
    return _save(
        figure,
        folder / "accuracy.png",
        "Accuracies",
        f"The main table. Points: means, the highest in orange{'; ' + bars if plan.n_splits > 1 else ''}.",
        f"Mean accuracies in %. {'; '.join(texts)}.",
    )


def _draw_confusion(results: Results, dataset: str, folder: Path) -> Picture:
    names = load_dataset(dataset).target_names
    n_shown = MAX_CLASSES if len(names) > 25 else len(names)
    labels = [name if len(name) < 13 else f"{name[:11]}." for name in names[:n_shown]]
    figure, diagonals = _figure(13, 6.6), []
    for ax, method in zip(figure.subplots(1, 2), CONFUSED_METHODS, strict=True):
        shares = results.confusion(dataset, method)[:n_shown, :n_shown]
        display = ConfusionMatrixDisplay(np.round(100 * shares).astype(int), display_labels=labels)
        display.plot(ax=ax, cmap="Blues", colorbar=False, xticks_rotation="vertical", values_format="d",
                     text_kw={"fontsize": 7}, im_kw={"vmin": 0, "vmax": 100})  # fmt: skip
        for text, share in zip(display.text_.ravel(), shares.ravel(), strict=True):
            text.set_visible(share >= 0.005)
        ax.set_title(METHODS[method].title)
        ax.tick_params(labelsize=7)
        diagonals.append(f"{METHODS[method].title} {100 * np.diag(shares).mean():.1f} %")
    few = f" Only the first {n_shown} of {len(names)} classes are shown: a row need not add up to 100."
    return _save(
        figure,
        folder / f"confusion_{dataset}.png",
        f"Confusion matrices, {title_of(dataset)}",
        "Percentage of the test samples of a class (row), over all splits."
        + (few if n_shown < len(names) else ""),
        f"Two confusion matrices side by side; means of the diagonals: {', '.join(diagonals)}.",
    )


def _curves(results: Results, groups: Mapping[str, Sequence[Sequence[Cell]]]) -> dict[str, Array]:
    """Return accuracies in %, values by splits, of the groups of cells that are complete."""
    return {
        name: 100 * np.array([[results.cells[cell]["accuracy"] for cell in cells] for cells in group])
        for name, group in groups.items()
        if all(cell in results.cells for cells in group for cell in cells)
    }


def _ranges(curves: Mapping[str, Array]) -> str:
    means = ((name, values.mean(axis=1)) for name, values in curves.items())
    return ", ".join(f"{name} {np.nanmin(mean):.0f} to {np.nanmax(mean):.0f} %" for name, mean in means)


def _draw_studies(results: Results, folder: Path) -> Iterator[Picture]:
    """Draw accuracies over LEDL's weights, and of several methods over the number of training samples."""
    plan, n = results.plan, min(results.plan.n_splits, STUDY_SPLITS)
    splits = "one split" if n == 1 else f"mean and standard deviation over the first {n} splits"
    by_weight = {
        weight: _curves(results, {title_of(d): plan.weight_cells(d, weight) for d in plan.studied})
        for weight in WEIGHT_VALUES
    }
    if all(by_weight.values()):
        figure = _figure(4.4 * len(by_weight), 3.6)
        axes, defaults = figure.subplots(1, len(by_weight), sharey=True), METHODS["ledl"].make().get_params()
        for ax, (weight, curves) in zip(axes, by_weight.items(), strict=True):
            AccuracyDisplay(
                WEIGHT_VALUES[weight], curves, xlabel=WEIGHT_LABELS[weight], mark=defaults[weight]
            ).plot(ax)
        yield _save(
            figure,
            folder / "weights.png",
            "Accuracy of LEDL over its weights",
            f"One weight varies, the others keep their defaults. Accuracy on test samples, {splits}. No "
            "setting was chosen by it.",
            "; ".join(f"{weight}: {_ranges(curves)}" for weight, curves in by_weight.items()) + ".",
        )
    cells = {
        d: {METHODS[m].title: plan.sample_cells(d, m) for m in SAMPLED if m in plan.methods}
        for d in plan.studied
    }
    by_dataset = {d: curves for d, groups in cells.items() if (curves := _curves(results, groups))}
    if by_dataset:
        figure, axes = _grid(len(by_dataset), 3.6)
        for ax, (dataset, curves) in zip(axes, by_dataset.items(), strict=True):
            numbers = [group[0].n_per_class for group in next(iter(cells[dataset].values()))]
            AccuracyDisplay(numbers, curves, xlabel="training samples per class", base=0).plot(ax)
            ax.set_title(title_of(dataset))
        ranges = "; ".join(f"{title_of(d)}: {_ranges(curves)}" for d, curves in by_dataset.items())
        yield _save(
            figure,
            folder / "samples.png",
            "Accuracy over the number of training samples",
            f"Every method with its defaults, {splits}.",
            f"Accuracy over the number of training samples per class. {ranges}.",
        )


def _draw_labels(results: Results, folder: Path) -> Picture:
    """Draw accuracies over the number of labels of each class, if other samples have no labels."""
    plan, by_dataset = results.plan, {}
    for dataset in plan.datasets:
        found = {
            m: results.over_labels[dataset, m] for m in plan.methods if (dataset, m) in results.over_labels
        }
        numbers = sorted({n for curve in found.values() for n in curve})
        none = np.full(min(plan.n_splits, STUDY_SPLITS), np.nan)
        curves = {
            METHODS[m].title: np.array([curve.get(n, none) for n in numbers]) for m, curve in found.items()
        }
        if curves:
            by_dataset[dataset] = numbers, curves
    figure, axes = _grid(len(by_dataset), 3.6)
    for ax, (dataset, (numbers, curves)) in zip(axes, by_dataset.items(), strict=True):
        AccuracyDisplay(numbers, curves, xlabel="labels per class", base=0).plot(ax)
        ax.set_title(title_of(dataset), parse_math=False)
    ranges = "; ".join(f"{title_of(d)}: {_ranges(curves)}" for d, (_, curves) in by_dataset.items())
    return _save(
        figure,
        folder / "labels.png",
        "Accuracy over the number of labels",
        "All other samples are given without labels, and tested. Mean and standard deviation over "
        f"{len(none)} split{'s' * (len(none) > 1)}. Settings are chosen where a label can be hidden.",
        f"Accuracy over the number of labels of each class. {ranges}.",
    )


def _draw_atoms_and_codes(results: Results, dataset: str, folder: Path) -> Iterator[Picture]:
    data, title = load_dataset(dataset), title_of(dataset)
    model = results.fit_again(dataset, "ledl")
    if "images" in data:
        figure = _figure(7, 6)
        AtomsDisplay.from_estimator(model, data.images.shape[1:], ax=figure.subplots())
        yield _save(
            figure,
            folder / f"atoms_{Path(dataset).stem}.png",
            f"Learned atoms, {title}",
            "One row for each class. White is positive, red negative. Each atom has its own scale.",
            f"Atoms of LEDL as small images: {len(model.components_)} were learned.",
        )
    _, test = split(dataset, results.plan.n_per_class, 0)
    shown = test[np.unique(data.target[test], return_index=True)[1][:N_CODES]]
    figure = _figure(8, 1.1 * len(shown) + 0.4)
    axes = figure.subplots(len(shown), sharex=True, squeeze=False)[:, 0]
    with threadpool_limits(1):
        display = CodesDisplay.from_estimator(model, data.data[shown], data.target[shown], axes=axes)
    own = model.atom_classes_[None] == data.target[shown][:, None]
    share = np.abs(display.codes[own]).sum() / max(np.abs(display.codes).sum(), 1e-12)
    yield _save(
        figure,
        folder / f"codes_{Path(dataset).stem}.png",
        f"Codes of test images, {title}",
        f"The first test sample of each of the first {len(shown)} classes.",
        f"Codes over the atoms sorted by class; {100 * share:.0f} % of their l1 norm is on the own class.",
    )


def find_remarks(results: Results) -> list[str]:
    """Return what readers should know about the cells: precision, warnings, versions, shared samples."""
    found, makers, n_shared = [], set(), {}
    for (dataset, method), runs in results.runs.items():
        where = f"{results.plan.find(method).title} on {title_of(dataset)}"
        agreement = [run["agreement"] for run in runs if "agreement" in run]
        if agreement:
            found.append(
                f"{where}: codes have a gap of at most {runs[0]['settings']['transform_tol']:g}. "
                f"{100 * sum(agreement) / len(agreement):.1f} % of {COMPARED_SAMPLES} labels per split are the "
                f"same with a gap of {METHODS[method].make().transform_tol:g}."
            )
        names = sorted({name for run in runs for name in run["warnings"]})
        if names:
            n_warned = sum(bool(run["warnings"]) for run in runs)
            found.append(f"{where}: {', '.join(names)} in {n_warned} of {len(runs)} splits.")
        makers |= {json.dumps(run.get("made_by", {}), sort_keys=True) for run in runs}
        n_shared[dataset] = [run["n_shared"] for run in runs]
    if len(makers) > 1:
        found.append(
            f"Cells come from {len(makers)} different commits or sets of packages. Each records its own."
        )
    return found + [
        f"{title_of(dataset)}, split {seed}: {n} test samples are identical to a training sample."
        for dataset, numbers in n_shared.items()
        for seed, n in enumerate(numbers)
        if n
    ]


def write_page(
    plan: Plan,
    tables: Sequence[Table],
    pictures: Sequence[Picture],
    remarks: Sequence[str],
    failures: Sequence[str],
    record: Mapping[str, Any],
    n_records: int,
    command: str,
) -> str:
    """Return the report as an HTML page. The first table has a column for each dataset, and marks the best."""
    best = []
    for column, dataset in enumerate(plan.datasets, start=1):
        winners = [row[0].text for row in tables[0].rows if row[column].mark == BEST]
        n_level = sum(row[column].mark == WITHIN_NOISE for row in tables[0].rows)
        if winners:
            level = (
                f" (not significantly different from {n_level} other{'s' * (n_level > 1)})" if n_level else ""
            )
            best.append(f"{title_of(dataset)}: {' and '.join(winners)}{level}")
    return render(
        "report.html",
        plan=plan,
        titles=", ".join(title_of(dataset) for dataset in plan.datasets),
        best="; ".join(best),
        tables=tables,
        caveats=CAVEATS,
        pictures=pictures,
        remarks=remarks,
        failures=failures,
        record=json.dumps(record, indent=2),
        n_records=n_records,
        command=command,
        datasets=[(title_of(name), load_dataset(name), dataset_digest(name)) for name in plan.datasets],
        methods=[plan.find(name) for name in plan.methods],
        tuned=METHODS["ledl-cv"].title,
        n_folds=N_FOLDS,
        n_held_out=HELD_OUT_SAMPLES,
    )
