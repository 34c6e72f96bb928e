"""A run for readers: its figures, and all of it as one HTML page that needs nothing but itself."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.metrics import ConfusionMatrixDisplay
from threadpoolctl import threadpool_limits

import ledl
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
from ledl.experiments._tables import BEST, ITERATIONS, TO_THE_END, WITHIN_NOISE, Results, Table
from ledl.files import write_atomically
from ledl.methods import DATASET_TITLES, METHODS
from ledl.model_selection import HELD_OUT_SAMPLES, N_FOLDS
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

PROTOCOL = (
    "Seed s draws split s: of each class {n_per_class} random samples are trained on, all others are test "
    "samples. Samples are scaled to Euclidean norm 1. {selection} Test samples choose nothing."
)
CHOICE = (
    f"by cross-validation in the training samples: {N_FOLDS} stratified folds, or as many of them as leave out "
    f"{HELD_OUT_SAMPLES} samples in all; of settings that are equally good it takes the first, and the grids "
    "begin with the strongest regularisation."
)
SELECTIONS = {
    "cv": "Every method chooses among at most 12 settings (LEDL with all chosen: among 36, by its log loss) "
    f"{CHOICE}",
    "wide": f"Every method chooses among the settings below, LEDL, SRC and CRC among many, {CHOICE}",
    "defaults": "Every method has the defaults of its estimator; LEDL with all chosen still chooses.",
}


class Picture(NamedTuple):
    """A figure on disk: what it is called, what it shows in words, where it lies, and its bytes."""

    title: str
    caption: str
    alt: str
    path: Path
    png: bytes


def draw(results: Results, folder: Path) -> Iterator[Picture]:
    """Draw and save whatever this run has the material for, and yield the pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    plan, runs = results.plan, results.runs
    shown = [dataset for dataset in plan.datasets if "images" in load_dataset(dataset)]
    if shown:
        figure = _figure(8, 0.2 + 1.15 * len(shown))
        for ax, dataset in zip(figure.subplots(len(shown), squeeze=False)[:, 0], shown, strict=True):
            ExamplesDisplay.from_dataset(load_dataset(dataset), ax=ax)
            ax.set_title(DATASET_TITLES[dataset], fontsize=9, loc="left")
        titles = ", ".join(DATASET_TITLES[dataset] for dataset in shown)
        yield _save(
            figure,
            folder / "examples.png",
            "Example images",
            "The first image of each of the first classes."
            + ("" if len(shown) == len(plan.datasets) else " The other datasets come as features of images."),
            f"One image of each of the first classes of {titles}.",
        )
    if plan.studied and all((dataset, "ledl") in runs for dataset in plan.studied):
        figure, axes = _grid(len(plan.studied), 3.4)
        ends = []
        for ax, dataset in zip(axes, plan.studied, strict=True):
            model = results.fit_again(dataset, "ledl", **TO_THE_END)
            ConvergenceDisplay.from_estimator(model, ax=ax, name=DATASET_TITLES[dataset])
            first, last = model.history_["augmented_objective"][[0, -1]]
            ends.append(f"{DATASET_TITLES[dataset]} from {first:.3g} to {last:.3g}")
        yield _save(
            figure,
            folder / "convergence.png",
            "Convergence of LEDL",
            f"The augmented objective and its terms over {ITERATIONS} iterations on the first split, at the "
            "settings of the table, and the objective at the sparse codes (black), known every tenth "
            "iteration.",
            f"Curves of the objective over {ITERATIONS} iterations: {'; '.join(ends)}.",
        )
    for dataset in plan.datasets:
        if dataset in CONFUSED and all((dataset, method) in runs for method in CONFUSED_METHODS):
            yield _draw_confusion(results, dataset, folder)
    yield from _draw_studies(results, folder)
    for dataset in plan.datasets:
        if (dataset, "ledl") in runs:
            yield from _draw_atoms_and_codes(results, dataset, folder)


def _figure(width: float, height: float) -> Any:
    from matplotlib.figure import Figure  # no window, whatever the platform

    return Figure(figsize=(width, height), layout="constrained")


def _grid(n: int, height: float, sharey: bool = False) -> tuple[Any, list[Any]]:
    """Return a figure and n axes in it, three in a row, or four in two rows."""
    n_columns = 2 if n == 4 else min(n, 3)
    n_rows = -(-n // n_columns)
    figure = _figure(4.4 * n_columns, height * n_rows)
    axes = figure.subplots(n_rows, n_columns, squeeze=False, sharey=sharey).ravel()
    for ax in axes[n:]:
        ax.remove()
    return figure, list(axes[:n])


def _save(figure: Any, path: Path, title: str, caption: str, alt: str) -> Picture:
    image = io.BytesIO()
    figure.savefig(image, dpi=140, bbox_inches="tight", format="png")
    write_atomically(path, image.getvalue())
    return Picture(title, caption, alt, path, image.getvalue())


def _draw_confusion(results: Results, dataset: str, folder: Path) -> Picture:
    names = load_dataset(dataset).target_names
    n_shown = MAX_CLASSES if len(names) > 25 else len(names)
    labels = [name if len(name) < 13 else f"{name[:11]}." for name in names[:n_shown]]
    figure = _figure(13, 6.6)
    diagonals = []
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
    corner = f", the first {n_shown} of {len(names)} classes" if n_shown < len(names) else ""
    return _save(
        figure,
        folder / f"confusion_{dataset}.png",
        f"Confusion matrices, {DATASET_TITLES[dataset]}",
        f"Per cent of the test samples of a class (row), summed over the splits{corner}. "
        + ("The corner of the full matrix: a row need not add up to 100." if corner else ""),
        f"Two confusion matrices side by side; means of the diagonals: {', '.join(diagonals)}.",
    )


def _study(results: Results, groups: Mapping[str, Sequence[Sequence[Cell]]]) -> dict[str, Array]:
    """Return accuracies in %, values by splits, of those groups of cells that are complete."""
    found = {}
    for name, group in groups.items():
        if all(cell in results.cells for cells in group for cell in cells):
            found[name] = 100 * np.array([[results.cells[c]["accuracy"] for c in cells] for cells in group])
    return found


def _ranges(accuracies: Mapping[str, Array]) -> str:
    means = {name: values.mean(axis=1) for name, values in accuracies.items()}
    return ", ".join(f"{name} {m.min():.0f} to {m.max():.0f} %" for name, m in means.items())


def _draw_studies(results: Results, folder: Path) -> Iterator[Picture]:
    """Draw accuracies over LEDL's weights, and those of several methods over the number of samples."""
    plan, n = results.plan, min(results.plan.n_splits, STUDY_SPLITS)
    splits = "one split" if n == 1 else f"mean and standard deviation over the first {n} splits"
    by_weight = {}
    for weight in WEIGHT_VALUES:
        groups = {DATASET_TITLES[dataset]: plan.weight_cells(dataset, weight) for dataset in plan.studied}
        by_weight[weight] = _study(results, groups)
    if all(by_weight.values()):
        figure, axes = _grid(len(by_weight), 3.6, sharey=True)
        defaults = METHODS["ledl"].make().get_params()
        for ax, (weight, found) in zip(axes, by_weight.items(), strict=True):
            label, values = WEIGHT_LABELS[weight], WEIGHT_VALUES[weight]
            AccuracyDisplay(values, found, xlabel=label, mark=defaults[weight]).plot(ax)
        yield _save(
            figure,
            folder / "weights.png",
            "Accuracy of LEDL over its weights",
            f"One weight varied, the others at their defaults, on test samples, {splits}. To look at; nothing "
            "was chosen from it.",
            "; ".join(f"{weight}: {_ranges(found)}" for weight, found in by_weight.items()) + ".",
        )
    by_dataset = {}
    for dataset in plan.studied:
        groups = {METHODS[m].title: plan.sample_cells(dataset, m) for m in SAMPLED if m in plan.methods}
        found = _study(results, groups)
        if found:
            by_dataset[dataset] = [cells[0].n_per_class for cells in next(iter(groups.values()))], found
    if by_dataset:
        figure, axes = _grid(len(by_dataset), 3.6)
        ranges = []
        for ax, (dataset, (numbers, found)) in zip(axes, by_dataset.items(), strict=True):
            AccuracyDisplay(numbers, found, xlabel="training samples a class", base=0).plot(ax)
            ax.set_title(DATASET_TITLES[dataset])
            ranges.append(f"{DATASET_TITLES[dataset]}: {_ranges(found)}")
        yield _save(
            figure,
            folder / "samples.png",
            "Accuracy over the number of training samples",
            f"Every method at its defaults; {splits}.",
            f"Accuracy over the number of training samples a class. {'; '.join(ranges)}.",
        )


def _draw_atoms_and_codes(results: Results, dataset: str, folder: Path) -> Iterator[Picture]:
    data, title = load_dataset(dataset), DATASET_TITLES[dataset]
    model = results.fit_again(dataset, "ledl")
    if "images" in data:
        figure = _figure(7, 6)
        AtomsDisplay.from_estimator(model, data.images.shape[1:], ax=figure.subplots())
        yield _save(
            figure,
            folder / f"atoms_{dataset}.png",
            f"Learnt atoms, {title}",
            "A row for each of the first classes; white positive, red negative, each atom scaled for itself.",
            f"Atoms of LEDL as small images: {len(model.components_)} were learnt.",
        )
    _, test = split(dataset, results.plan.n_per_class, 0)
    classes = np.unique(data.target)[:N_CODES]
    shown = np.array([test[data.target[test] == label][0] for label in classes])
    figure = _figure(8, 1.1 * len(shown) + 0.4)
    axes = figure.subplots(len(shown), sharex=True, squeeze=False)[:, 0]
    with threadpool_limits(1):
        display = CodesDisplay.from_estimator(model, data.data[shown], data.target[shown], axes=axes)
    own = model.atom_classes_[None] == data.target[shown][:, None]
    share = np.abs(display.codes[own]).sum() / max(np.abs(display.codes).sum(), 1e-12)
    yield _save(
        figure,
        folder / f"codes_{dataset}.png",
        f"Codes of test images, {title}",
        f"The first test sample of each of the first {len(shown)} classes.",
        f"Codes over the atoms sorted by class; {100 * share:.0f} % of their l1 norm is on the own class.",
    )


def find_remarks(results: Results) -> list[str]:
    """Return what a careful reader would want to know of the cells."""
    found = []
    for (dataset, method), runs in results.runs.items():
        where = f"{METHODS[method].title} on {DATASET_TITLES[dataset]}"
        agreement = [run["agreement"] for run in runs if "agreement" in run]
        if agreement:
            tol, share = runs[0]["settings"]["transform_tol"], 100 * sum(agreement) / len(agreement)
            default = METHODS[method].make().transform_tol
            found.append(
                f"{where}: codes to a gap of {tol:g}; of {COMPARED_SAMPLES} labels a split {share:.1f} % are "
                f"those at {default:g}."
            )
        names = sorted({name for run in runs for name in run["warnings"]})
        if names:
            n_warned = sum(bool(run["warnings"]) for run in runs)
            found.append(f"{where}: {', '.join(names)} in {n_warned} of {len(runs)} splits.")
    makers = {
        json.dumps(run.get("made_by", {}), sort_keys=True) for runs in results.runs.values() for run in runs
    }
    if len(makers) > 1:
        found.append(
            f"Cells were computed by {len(makers)} different commits or sets of packages; each says by which."
        )
    for dataset in results.plan.datasets:
        runs = next((runs for (name, _), runs in results.runs.items() if name == dataset), [])
        found += [
            f"{DATASET_TITLES[dataset]}, split {seed}: {run['n_shared']} test samples are identical to a "
            "training sample."
            for seed, run in enumerate(runs)
            if run["n_shared"]
        ]
    return found


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
    """Return the page's text."""
    sections = {table.name: (table.title, _table_section(table)) for table in tables}
    settings = {"settings": sections.pop("settings")} if "settings" in sections else {}  # long: last
    lines = "".join(f"<li>{escape(text)}</li>" for text in remarks) or "<li>None.</li>"
    failed = "".join(f"<li>{escape(text)}</li>" for text in failures)
    failed = f'<h3>Failed</h3><ul class="failures">{failed}</ul>' if failures else ""
    text = f'<section id="remarks"><h2>Remarks</h2><ul>{lines}</ul>{failed}</section>'
    sections["remarks"] = "Remarks", text
    if pictures:
        text = "".join(
            f'<figure><h3>{escape(picture.title)}</h3><div class="scroll"><img alt="{escape(picture.alt)}" '
            f'src="data:image/png;base64,{base64.b64encode(picture.png).decode()}"></div>'
            f"<figcaption>{escape(picture.caption)}</figcaption></figure>"
            for picture in pictures
        )
        sections["figures"] = "Figures", f'<section id="figures"><h2>Figures</h2>\n{text}</section>'
    datasets = methods = ""
    for name in plan.datasets:
        data = load_dataset(name)
        differs = [line for line in data.DESCR.splitlines() if line.startswith("Differs from the paper's")]
        text = (
            f"{len(data.data):,} samples, {data.data.shape[1]:,} features, {len(data.target_names)} classes; "
            f"sha256 of samples and labels {dataset_digest(name)[:16]}. {' '.join(differs)}"
        )
        datasets += f"<dt>{escape(DATASET_TITLES[name])}</dt><dd>{escape(text)}</dd>"
    for method in map(METHODS.__getitem__, plan.methods):
        text = " ".join(str(method.make()).split())
        if method.fixed is not None:
            text += ", at the paper's weights for each dataset"
        elif plan.select != "defaults":
            grid = "; ".join(
                f"{key.split('__')[-1]} in {[f'{v:.4g}' if isinstance(v, float) else v for v in values]}"
                for key, values in method.grid_for(plan.select).items()
            ).replace("'", "")
            text += f", {grid}"
        methods += f"<dt>{escape(method.title)}</dt><dd>{escape(text)}</dd>"
    protocol = PROTOCOL.format(n_per_class=plan.n_per_class, selection=SELECTIONS[plan.select])
    text = (
        f'<section id="how"><h2>What was run, and how to run it again</h2><pre>{escape(command)}</pre>'
        f"<p>{escape(protocol)}</p><h3>Datasets</h3><dl>{datasets}</dl><h3>Methods</h3><dl>{methods}</dl>"
        f"<h3>Run record</h3><pre>{escape(json.dumps(record, indent=2))}</pre>"
        f"<p>Records of starts in this folder: {n_records}.</p></section>"
    )
    sections["how"] = "What was run", text
    sections |= settings
    menu = "".join(f'<a href="#{name}">{escape(title)}</a>' for name, (title, _) in sections.items())
    body = "\n".join(text for _, text in sections.values())
    best = []  # dataset by dataset
    for column, dataset in enumerate(plan.datasets, start=1):
        winners = [row[0].text for row in tables[0].rows if row[column].mark == BEST]
        n_level = sum(row[column].mark == WITHIN_NOISE for row in tables[0].rows)
        if winners:
            level = f", not told from {n_level} other{'s' * (n_level > 1)}" if n_level else ""
            best.append(f"{DATASET_TITLES[dataset]}: {' and '.join(winners)}{level}")
    lead = f"Highest mean accuracy: {'; '.join(best)}." if best else "Nothing was ranked."
    titles = escape(", ".join(DATASET_TITLES[dataset] for dataset in plan.datasets))
    style, script = ((files("ledl.experiments") / f"report.{x}").read_text("utf-8") for x in ("css", "js"))
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>ledl reproduce: {titles}</title>\n<style>\n{style}</style>\n"
        f"</head>\n<body>\n<header><h1>Few-shot classification on {titles}</h1>\n"
        f"<p>{escape(lead)}</p><nav>{menu}</nav></header>\n<main>\n{body}\n</main>\n"
        f"<footer>Made by ledl {ledl.__version__}.</footer>\n"
        f"<script>\n{script}</script>\n</body>\n</html>\n"
    )


def _table_section(table: Table) -> str:
    """Return a table whose columns a click sorts, the first time with what a reader looks for on top."""
    head = ""
    for name in table.header:
        text, order = escape(name), ""
        if not table.prose:
            up = table.smaller_first or name in ("method", "mean rank", "fit / predict, s")
            order = f' data-first="{"ascending" if up else "descending"}"'
            text = f'<button type="button">{text}</button>'
        head += f'<th scope="col"{order}>{text}</th>'
    lines = []
    for first, *others in table.rows:
        line = f'<th scope="row" data-value="{escape(first.text)}">{escape(first.text)}</th>'
        for entry in others:
            value = "" if entry.value is None else f"{entry.value:.6g}"
            mark = f' class="{entry.mark.replace(" ", "-")}"' if entry.mark else ""
            line += f'<td{mark} data-value="{value}">{escape(entry.text)}</td>'
        lines.append(f"<tr>{line}</tr>")
    body = "\n".join(lines)
    kind, hint = ("prose", "") if table.prose else ("sortable", " Click on a head to sort.")
    return (
        f'<section id="{table.name}"><h2>{escape(table.title)}</h2>\n<div class="scroll"><table class="{kind}">'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>\n"
        f'<p class="note">{escape(table.full_note("Bold", "underlined"))}{hint}</p></section>'
    )
