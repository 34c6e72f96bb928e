"""What the cells say together: accuracies with their spread, paired tests, ranks, times."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import log2
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import rankdata, ttest_rel

from ledl.arrays import Array
from ledl.experiments._run import Plan
from ledl.methods import DATASET_TITLES, METHODS, PAPER_TABLE

LEVEL = 0.05  # of the paired test: larger p-values are noise; MARKED says so
BEST, WITHIN_NOISE = "best", "within noise"
MARKED = (
    "{}: the best of a dataset; {}: what a two-sided paired t-test over the splits does not tell from it "
    "(p > 0.05)."
)
# Methods that are compared with each of the others, and what those tables are called.
OURS = {"ledl": "differences", "ledl-cv": "differences-cv"}
PAPER_N_PER_CLASS = 5  # its figures are for no other number

Results = Mapping[tuple[str, str], Sequence[Mapping[str, Any]]]
"""By dataset and method: what each split gave, in the order of the splits."""


class Entry(NamedTuple):
    """A table's entry: its text, what it is sorted by, and whether it is the best or level with it."""

    text: str
    value: float | None = None
    mark: str = ""


@dataclass(frozen=True)
class Table:
    """A table for people, whatever it will be written as."""

    name: str
    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[Entry]]
    note: str
    smaller_first: bool = False  # what a reader looks for
    prose: bool = False  # entries are text, too long for a terminal or a page in LaTeX

    @property
    def has_marks(self) -> bool:
        return any(entry.mark for row in self.rows for entry in row)

    def full_note(self, best: str, level: str) -> str:
        """The note, and what the marks mean in a form where the best is shown like this, and its equals so."""
        return f"{self.note} {MARKED.format(best, level)}" if self.has_marks else self.note


class Row(NamedTuple):
    """A line of the CSV file: a method on a dataset."""

    dataset: str
    method: str
    n_splits: int
    accuracy_mean: float
    accuracy_std: float | None
    paper: float | None
    mark: str
    rank: float | None  # none for settings that were not found by the rules of the others
    ledl_minus_this_mean: float | None
    ledl_minus_this_p: float | None
    fit_seconds: float
    predict_seconds: float


def accuracies(results: Results, dataset: str, method: str) -> Array | None:
    """In %, one for each split."""
    found = results.get((dataset, method))
    return 100 * np.array([result["accuracy"] for result in found]) if found else None


def paired_test(a: Array, b: Array) -> float | None:
    """p-value of Student's paired test, two-sided; None where there are too few splits for one."""
    if len(a) != len(b) or len(a) < 2:
        return None
    if np.ptp(a - b) <= 1e-9:  # points: no spread but rounding
        return 1.0 if abs(a[0] - b[0]) <= 1e-9 else 0.0
    return float(ttest_rel(a, b).pvalue)


def summarise(plan: Plan, results: Results) -> list[Row]:
    """One row for each method on each dataset that has results."""
    rows = []
    for dataset in plan.datasets:
        paper = PAPER_TABLE.get(dataset, {}) if plan.n_per_class == PAPER_N_PER_CLASS else {}
        found = {m: a for m in plan.methods if (a := accuracies(results, dataset, m)) is not None}
        ranked = {m: a for m, a in found.items() if _is_ranked(plan, m)}
        ranks = dict(zip(ranked, map(float, rankdata([-a.mean() for a in ranked.values()])), strict=True))
        marks = _marks(ranked)
        for method, values in found.items():
            versus = found.get("ledl") if method != "ledl" else None
            runs = results[dataset, method]
            rows.append(
                Row(
                    dataset,
                    method,
                    len(values),
                    float(values.mean()),
                    float(values.std(ddof=1)) if len(values) > 1 else None,
                    paper.get(METHODS[method].column),
                    marks.get(method, ""),
                    ranks.get(method),
                    None if versus is None else float((versus - values).mean()),
                    None if versus is None else paired_test(versus, values),
                    float(np.median([run["fit_seconds"] for run in runs])),
                    float(np.median([run["predict_seconds"] for run in runs])),
                )
            )
    return rows


def _is_ranked(plan: Plan, method: str) -> bool:
    """Whether its settings were found by the rules of the others: not those of the paper, and among methods at
    their defaults not one that chooses.
    """
    chooses = plan.select == "defaults" and METHODS[method].chooses_for
    return METHODS[method].fixed is None and not chooses


def _marks(found: Mapping[str, Array]) -> dict[str, str]:
    """The highest mean, and those that a paired test over the splits cannot tell from it."""
    marks = dict.fromkeys(found, "")
    best = max(found, key=lambda method: found[method].mean(), default="")
    for method, values in found.items():
        p = paired_test(found[best], values)
        if values.mean() == found[best].mean():
            marks[method] = BEST
        elif p is not None and p > LEVEL:
            marks[method] = WITHIN_NOISE
    return marks


def tables(plan: Plan, rows: Sequence[Row], results: Results) -> list[Table]:
    """All tables of a run; for one dataset in one, and chosen settings only where there was a choice."""
    found = [_accuracy_table(plan, rows)]
    present = _methods(plan, rows)
    found += [_difference_table(plan, results, m) for m in OURS if m in present and len(present) > 1]
    found.append(_time_table(plan, rows))
    if len(plan.datasets) == 1:
        found = [_side_by_side(found, DATASET_TITLES[plan.datasets[0]])]
    if plan.select != "defaults":
        found.append(_settings_table(plan, results))
    return found


def _side_by_side(parts: Sequence[Table], title: str) -> Table:
    """Tables with a single column as one."""
    columns = [{row[0].text: row[1] for row in part.rows} for part in parts]
    return Table(
        "accuracy",
        title,
        ["method", *(part.title for part in parts)],
        [[Entry(name), *(column.get(name, Entry("")) for column in columns)] for name in columns[0]],
        " ".join(part.note for part in parts),
    )


def _accuracy_table(plan: Plan, rows: Sequence[Row]) -> Table:
    ranks = mean_ranks(plan, rows)

    def entry(row: Row) -> Entry:
        spread = "" if row.accuracy_std is None else f" ± {row.accuracy_std:.1f}"
        paper = f" ({row.paper:.1f})" if row.paper is not None else ""
        return Entry(f"{row.accuracy_mean:.1f}{spread}{paper}", row.accuracy_mean, row.mark)

    body = _by_method(plan, rows, entry)
    if len(plan.datasets) > 1:
        for line, method in zip(body, _methods(plan, rows), strict=True):
            rank, mean = ranks.get(method), np.mean([row.accuracy_mean for row in rows if row.method == method])
            line += [Entry("")] * 2 if rank is None else [Entry(f"{x:.1f}", float(x)) for x in (mean, rank)]
    header = ["method", *_titles(plan), *(["mean", "mean rank"] if len(plan.datasets) > 1 else [])]
    return Table("accuracy", "Accuracy, %", header, body, _protocol(plan, rows))


def _protocol(plan: Plan, rows: Sequence[Row]) -> str:
    """What the accuracies of this run are."""
    samples = "sample" if plan.n_per_class == 1 else "samples"
    chosen = "settings chosen by cross-validation in the training samples"
    settings = {"cv": chosen, "wide": f"{chosen}, from wide grids for LEDL, SRC and CRC"}.get(
        plan.select, "defaults"
    )
    parts = [
        f"{plan.n_per_class} training {samples} a class, all others tested; every method at its {settings}."
    ]
    if plan.n_splits == 1:
        parts.append("One random split.")
    else:
        few = " So few tell little." if plan.n_splits < 5 else ""
        parts.append(f"Mean ± standard deviation over {plan.n_splits} random splits.{few}")
    if any(row.paper is not None for row in rows):
        parts.append("In parentheses the paper's figure.")
    if len(plan.datasets) > 1:
        parts.append("Mean and mean rank are over the datasets, of the methods that have all of them.")
    for title in [METHODS[m].title for m in plan.methods if METHODS[m].chooses_for]:
        how = "is reported, not ranked or marked" if plan.select == "defaults" else "has more candidates"
        parts.append(f"{title}, chooses kernel, rule and weights by itself in any case, and {how}.")
    if any(METHODS[row.method].fixed is not None for row in rows):
        parts.append(
            "The paper's own weights, adjusted there for the highest rates, are reported, not ranked or marked."
        )
    return " ".join(parts)


def mean_ranks(plan: Plan, rows: Sequence[Row]) -> dict[str, float]:
    """Over the datasets, among the methods that were run on all of them."""
    means = {(row.dataset, row.method): row.accuracy_mean for row in rows if row.rank is not None}
    complete = [m for m in plan.methods if all((d, m) in means for d in plan.datasets)]
    if not complete:
        return {}
    ranks = [rankdata([-means[d, m] for m in complete]) for d in plan.datasets]
    return dict(zip(complete, map(float, np.mean(ranks, axis=0)), strict=True))


def _difference_table(plan: Plan, results: Results, ours: str) -> Table:
    """One of our methods against each of the others."""

    def entry(dataset: str, method: str) -> Entry:
        a, b = (accuracies(results, dataset, m) for m in (ours, method))
        if a is None or b is None:
            return Entry("")
        difference, p = float((a - b).mean()), paired_test(a, b)
        return Entry(f"{difference:+.1f}" + ("" if p is None else f" ({_p(p)})"), difference)

    title = METHODS[ours].title
    present = {method for _, method in results} - {ours}
    return Table(
        OURS[ours],
        f"{title} minus the others, points",
        ["method", *_titles(plan)],
        [
            [Entry(METHODS[m].title), *(entry(dataset, m) for dataset in plan.datasets)]
            for m in plan.methods
            if m in present
        ],
        f"Positive where {title} is ahead. In parentheses the p-value of a paired t-test over the splits. "
        "Splits share test samples, so p-values are a guide, not a proof.",
    )


def _p(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}" if p < 0.1 else f"p = {p:.2f}"


def _time_table(plan: Plan, rows: Sequence[Row]) -> Table:
    def entry(row: Row) -> Entry:
        total = row.fit_seconds + row.predict_seconds
        return Entry(f"{_seconds(row.fit_seconds)} / {_seconds(row.predict_seconds)}", total)

    return Table(
        "times",
        "fit / predict, s",
        ["method", *_titles(plan)],
        _by_method(plan, rows, entry),
        "Time to fit and to predict all test samples: median over the splits, one BLAS thread, at the settings "
        "taken, without the time to choose them. With several jobs they share the machine.",
        smaller_first=True,
    )


def _seconds(seconds: float) -> str:
    return f"{seconds:.0f}" if seconds >= 10 else f"{seconds:.1f}" if seconds >= 1 else f"{seconds:.2f}"


def _settings_table(plan: Plan, results: Results) -> Table:
    def text(dataset: str, method: str) -> str:
        runs = results.get((dataset, method), ())
        counts = Counter(describe(run["settings"]) for run in runs)
        return "; ".join(f"{what} (x{n})" if n > 1 else what for what, n in counts.most_common())

    chosen = [m for m in plan.methods if METHODS[m].fixed is None]
    body = [[Entry(METHODS[m].title), *(Entry(text(d, m)) for d in plan.datasets)] for m in chosen]
    return Table(
        "settings",
        "Settings chosen",
        ["method", *_titles(plan)],
        body,
        "By cross-validation in the training samples of each split; how often, over the splits.",
        prose=True,
    )


def describe(settings: Mapping[str, Any]) -> str:
    """Short, powers of two as such."""
    return ", ".join(f"{name.split('__')[-1]} {_value(value)}" for name, value in settings.items())


def _value(value: Any) -> str:
    if isinstance(value, float) and value > 0 and log2(value).is_integer() and value not in (1.0, 2.0, 4.0):
        return f"2^{log2(value):.0f}"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _methods(plan: Plan, rows: Sequence[Row]) -> list[str]:
    present = {row.method for row in rows}
    return [method for method in plan.methods if method in present]


def _by_method(plan: Plan, rows: Sequence[Row], entry: Callable[[Row], Entry]) -> list[list[Entry]]:
    """A line for each method, an entry for each dataset."""
    found = {(row.dataset, row.method): entry(row) for row in rows}
    return [
        [Entry(METHODS[method].title), *(found.get((dataset, method), Entry("")) for dataset in plan.datasets)]
        for method in _methods(plan, rows)
    ]


def _titles(plan: Plan) -> list[str]:
    return [DATASET_TITLES[dataset] for dataset in plan.datasets]


def to_markdown(table: Table) -> str:
    marked = {BEST: "**{}**", WITHIN_NOISE: "*{}*", "": "{}"}
    header = [name.replace("|", "\\|") for name in table.header]
    body = [[marked[e.mark].format(e.text.replace("|", "\\|")) for e in row] for row in table.rows]
    lines = [f"| {' | '.join(cells)} |" for cells in [header, *body]]
    lines.insert(1, "|" + "---|" * len(header))
    note = table.full_note("Bold", "in italics")
    return "\n".join([f"## {table.title}", "", *lines, "", note, ""])


def to_latex(table: Table) -> str:
    marked = {BEST: r"\textbf{{{}}}", WITHIN_NOISE: r"\underline{{{}}}", "": "{}"}
    lines = [" & ".join(_tex(name) for name in table.header)]
    lines += [" & ".join(marked[entry.mark].format(_tex(entry.text)) for entry in row) for row in table.rows]
    head, *body = (f"{line} \\\\" for line in lines)
    return "\n".join(
        [
            r"\begin{table}",
            rf"\caption{{{_tex(table.title)}. {_tex(table.full_note('Bold', 'underlined'))}}}",
            rf"\label{{tab:{table.name}}}",
            rf"\begin{{tabular}}{{l{'c' * (len(table.header) - 1)}}}",
            r"\hline",
            head,
            r"\hline",
            *body,
            r"\hline",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


TEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "{": r"\{",
        "}": r"\}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "±": r"$\pm$",
        "<": "$<$",
        ">": "$>$",
        **{character: f"\\{character}" for character in "%&_#$"},
    }
)


def _tex(text: str) -> str:
    return text.translate(TEX)


def to_csv(rows: Sequence[Row]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(Row._fields)
    writer.writerows([["" if value is None else value for value in row] for row in rows])
    return text.getvalue()
