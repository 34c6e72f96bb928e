"""A run as one HTML page that needs nothing but itself."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any

import ledl
from ledl.experiments._cells import COMPARED_SAMPLES, dataset_digest, load_dataset
from ledl.experiments._figures import Picture
from ledl.experiments._run import Plan
from ledl.experiments._tables import BEST, WITHIN_NOISE, Entry, Results, Table
from ledl.methods import DATASET_TITLES, METHODS
from ledl.model_selection import HELD_OUT_SAMPLES, N_FOLDS

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


def write_page(
    plan: Plan,
    tables: Sequence[Table],
    pictures: Sequence[Picture],
    said: Sequence[str],
    failures: Sequence[str],
    record: Mapping[str, Any],
    n_starts: int,
    command: str,
) -> str:
    """The page's text; `said` are remarks."""
    titles = ", ".join(DATASET_TITLES[dataset] for dataset in plan.datasets)
    parts = {table.name: (table.title, _table(table)) for table in tables}
    settings = {"settings": parts.pop("settings")} if "settings" in parts else {}  # long: last
    parts["remarks"] = "Remarks", _remarks(said, failures)
    if pictures:
        parts["figures"] = "Figures", _figures(pictures)
    parts["how"] = "What was run", _how(plan, record, n_starts, command)
    parts |= settings
    links = [(name, title) for name, (title, _) in parts.items()]
    menu = "".join(f'<a href="#{name}">{escape(title)}</a>' for name, title in links)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>ledl reproduce: {escape(titles)}</title>\n<style>\n{_resource('report.css')}</style>\n"
        f"</head>\n<body>\n<header><h1>Few-shot classification on {escape(titles)}</h1>\n"
        f"<p>{escape(_lead(plan, tables[0]))}</p><nav>{menu}</nav></header>\n<main>\n"
        + "\n".join(text for _, text in parts.values())
        + f"\n</main>\n<footer>Made by ledl {ledl.__version__}.</footer>\n"
        f"<script>\n{_resource('report.js')}</script>\n</body>\n</html>\n"
    )


def _resource(name: str) -> str:
    return (files("ledl.experiments") / name).read_text("utf-8")


def _lead(plan: Plan, accuracy: Table) -> str:
    """The result in a sentence, dataset by dataset."""
    parts = []
    for column, dataset in enumerate(plan.datasets, start=1):
        marked = {mark: [row[0].text for row in accuracy.rows if row[column].mark == mark] for mark in
                  (BEST, WITHIN_NOISE)}  # fmt: skip
        if marked[BEST]:
            n_level = len(marked[WITHIN_NOISE])
            level = f", not told from {n_level} other{'s' * (n_level > 1)}" if n_level else ""
            parts.append(f"{DATASET_TITLES[dataset]}: {' and '.join(marked[BEST])}{level}")
    return f"Highest mean accuracy: {'; '.join(parts)}." if parts else "Nothing was ranked."


def _table(table: Table) -> str:
    head = "".join(
        _head(name, table) if not table.prose else f'<th scope="col">{escape(name)}</th>'
        for name in table.header
    )
    body = "\n".join(f"<tr>{_row(row)}</tr>" for row in table.rows)
    kind = "prose" if table.prose else "sortable"
    hint = "" if table.prose else " Click on a head to sort."
    return (
        f'<section id="{table.name}"><h2>{escape(table.title)}</h2>\n<div class="scroll"><table class="{kind}">'
        f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody></table></div>\n"
        f'<p class="note">{escape(table.full_note("Bold", "underlined"))}{hint}</p></section>'
    )


def _head(name: str, table: Table) -> str:
    """A column's head; the first click shows first what a reader looks for."""
    up = table.smaller_first or name in ("method", "mean rank", "fit / predict, s")
    order = "ascending" if up else "descending"
    return f'<th scope="col" data-first="{order}"><button type="button">{escape(name)}</button></th>'


def _row(row: Sequence[Entry]) -> str:
    first, *others = row
    cells = [f'<th scope="row" data-value="{escape(first.text)}">{escape(first.text)}</th>']
    for entry in others:
        value = "" if entry.value is None else f"{entry.value:.6g}"
        mark = f' class="{entry.mark.replace(" ", "-")}"' if entry.mark else ""
        cells.append(f'<td{mark} data-value="{value}">{escape(entry.text)}</td>')
    return "".join(cells)


def _figures(pictures: Sequence[Picture]) -> str:
    parts = []
    for picture in pictures:
        data = base64.b64encode(picture.png).decode()
        parts.append(
            f'<figure><h3>{escape(picture.title)}</h3><div class="scroll"><img alt="{escape(picture.alt)}" '
            f'src="data:image/png;base64,{data}"></div><figcaption>{escape(picture.caption)}</figcaption></figure>'
        )
    return f'<section id="figures"><h2>Figures</h2>\n{"".join(parts)}</section>'


def remarks(plan: Plan, results: Results) -> list[str]:
    """What a careful reader would want to know of the cells."""
    found = []
    for (dataset, method), runs in results.items():
        where = f"{METHODS[method].title} on {DATASET_TITLES[dataset]}"
        agreement = [run["agreement"] for run in runs if "agreement" in run]
        if agreement:
            tol, share = runs[0]["settings"]["transform_tol"], 100 * sum(agreement) / len(agreement)
            default = METHODS[method].make().transform_tol
            found.append(
                f"{where}: codes to a gap of {tol:g}; of {COMPARED_SAMPLES} labels a split {share:.1f} % are "
                f"those at {default:g}."
            )
        n_warned = sum(bool(run["warnings"]) for run in runs)
        if n_warned:
            names = sorted({name for run in runs for name in run["warnings"]})
            found.append(f"{where}: {', '.join(names)} in {n_warned} of {len(runs)} splits.")
    makers = {json.dumps(run.get("made_by", {}), sort_keys=True) for runs in results.values() for run in runs}
    if len(makers) > 1:
        found.append(
            f"Cells were computed by {len(makers)} different commits or sets of packages; each says by which."
        )
    for dataset in plan.datasets:
        shared = next((runs for (name, _), runs in results.items() if name == dataset), ())
        counts = [(seed, run["n_shared"]) for seed, run in enumerate(shared) if run["n_shared"]]
        for seed, n in counts:
            found.append(
                f"{DATASET_TITLES[dataset]}, split {seed}: {n} test samples are identical to a training sample."
            )
    return found


def _remarks(said: Sequence[str], failures: Sequence[str]) -> str:
    lines = "".join(f"<li>{escape(text)}</li>" for text in said) or "<li>None.</li>"
    failed = "".join(f"<li>{escape(text)}</li>" for text in failures)
    failed = f'<h3>Failed</h3><ul class="failures">{failed}</ul>' if failures else ""
    return f'<section id="remarks"><h2>Remarks</h2><ul>{lines}</ul>{failed}</section>'


def _how(plan: Plan, record: Mapping[str, Any], n_starts: int, command: str) -> str:
    text = PROTOCOL.format(n_per_class=plan.n_per_class, selection=SELECTIONS[plan.select])
    datasets = "".join(_dataset(name) for name in plan.datasets)
    methods = "".join(_method(name, plan.select) for name in plan.methods)
    text_of_record = escape(json.dumps(record, indent=2))
    others = f"<p>Records of starts in this folder: {n_starts}.</p>"
    return (
        f'<section id="how"><h2>What was run, and how to run it again</h2><pre>{escape(command)}</pre>'
        f"<p>{escape(text)}</p><h3>Datasets</h3><dl>{datasets}</dl><h3>Methods</h3><dl>{methods}</dl>"
        f"<h3>Run record</h3><pre>{text_of_record}</pre>{others}</section>"
    )


def _dataset(name: str) -> str:
    data = load_dataset(name)
    differs = [line for line in data.DESCR.splitlines() if line.startswith("Differs from the paper's")]
    text = (
        f"{len(data.data):,} samples, {data.data.shape[1]:,} features, {len(data.target_names)} classes; "
        f"sha256 of samples and labels {dataset_digest(name)[:16]}. {' '.join(differs)}"
    )
    return f"<dt>{escape(DATASET_TITLES[name])}</dt><dd>{escape(text)}</dd>"


def _method(name: str, select: str) -> str:
    method = METHODS[name]
    estimator = " ".join(str(method.make()).split())
    if method.fixed is not None:
        text = f"{estimator}, at the paper's weights for each dataset"
    elif select != "defaults":
        grid = "; ".join(
            f"{key.split('__')[-1]} in {[f'{v:.4g}' if isinstance(v, float) else v for v in values]}"
            for key, values in method.grid_for(select).items()
        ).replace("'", "")
        text = f"{estimator}, {grid}"
    else:
        text = estimator
    return f"<dt>{escape(method.title)}</dt><dd>{escape(text)}</dd>"
