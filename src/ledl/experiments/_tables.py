"""What the cells say together: accuracies with their spread, paired tests, ranks, times, the paper's claims.

Tables are for people, and are written as Markdown, LaTeX and CSV.
"""

from __future__ import annotations

import csv
import io
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import log2
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import rankdata, ttest_rel
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import confusion_matrix
from threadpoolctl import threadpool_limits

from ledl.arrays import Array
from ledl.experiments._cells import STUDIED, Cell, Plan, load_dataset, split
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
RIVALS = ("src", "crc", "csdl", "lcksvd")  # the paper's
ITERATIONS = 100  # of convergence curves: as many as the paper speaks of
TO_THE_END = {"tol": 0.0, "max_iter": ITERATIONS}  # settings of LEDL


@dataclass(frozen=True)
class Results:
    """What is known of a plan's cells, those of figures among them."""

    plan: Plan
    cells: Mapping[Cell, Mapping[str, Any]]

    @cached_property
    def runs(self) -> dict[tuple[str, str], list[Mapping[str, Any]]]:
        """By dataset and method what each split gave, in the order of the splits, where none is missing."""
        found: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
        for cell in self.plan.cells():
            if cell in self.cells:
                found.setdefault((cell.dataset, cell.method), []).append(self.cells[cell])
        return {key: runs for key, runs in found.items() if len(runs) == self.plan.n_splits}

    def accuracies(self, dataset: str, method: str) -> Array:
        """Return them in %, one for each split."""
        return 100 * np.array([run["accuracy"] for run in self.runs[dataset, method]])

    def lead(self, dataset: str, ours: str, theirs: str) -> tuple[float, float | None]:
        """Return by how many points a method is ahead of another, and the p-value of that."""
        a, b = self.accuracies(dataset, ours), self.accuracies(dataset, theirs)
        return float((a - b).mean()), paired_test(a, b)

    def confusion(self, dataset: str, method: str) -> Array:
        """Return the shares of the test samples of each class over all splits: rows true, columns predicted."""
        target, seeds = load_dataset(dataset).target, range(self.plan.n_splits)
        true = np.concatenate([target[split(dataset, self.plan.n_per_class, seed)[1]] for seed in seeds])
        predicted = np.concatenate([run["predicted"] for run in self.runs[dataset, method]])
        return np.asarray(confusion_matrix(true, predicted, labels=np.unique(target), normalize="true"))

    def fit_again(self, dataset: str, method: str, **settings: Any) -> Any:
        """Return the method, fitted on the first split at the settings it had there but for those given."""
        taken = {**self.runs[dataset, method][0]["settings"], **settings}
        return _fit(dataset, method, self.plan.n_per_class, tuple(taken.items()))


@lru_cache(maxsize=16)
def _fit(dataset: str, method: str, n_per_class: int, settings: tuple[tuple[str, Any], ...]) -> Any:
    data, (train, _) = load_dataset(dataset), split(dataset, n_per_class, 0)
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore", ConvergenceWarning)
        return METHODS[method].make(dict(settings)).fit(data.data[train], data.target[train])


def paired_test(a: Array, b: Array) -> float | None:
    """Return the p-value of Student's paired test, two-sided; None where there are too few splits for one."""
    if len(a) != len(b) or len(a) < 2:
        return None
    if np.ptp(a - b) <= 1e-9:  # points: no spread but rounding
        return 1.0 if abs(a[0] - b[0]) <= 1e-9 else 0.0
    return float(ttest_rel(a, b).pvalue)


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


def summarise(results: Results) -> list[Row]:
    """Return one row for each method on each dataset that has results."""
    plan, rows = results.plan, []
    for dataset in plan.datasets:
        paper = PAPER_TABLE.get(dataset, {}) if plan.n_per_class == PAPER_N_PER_CLASS else {}
        found = {m: results.accuracies(dataset, m) for m in plan.methods if (dataset, m) in results.runs}
        # Ranked are settings found by the rules of the others: not those of the paper, and among methods at
        # their defaults not one that chooses.
        ranked = {
            m: a
            for m, a in found.items()
            if METHODS[m].fixed is None and not (plan.select == "defaults" and METHODS[m].chooses_for)
        }
        ranks = dict(zip(ranked, map(float, rankdata([-a.mean() for a in ranked.values()])), strict=True))
        best = max(ranked, key=lambda method: ranked[method].mean(), default="")
        for method, values in found.items():
            mark = ""
            if method in ranked and values.mean() == ranked[best].mean():
                mark = BEST
            elif method in ranked and (paired_test(ranked[best], values) or 0.0) > LEVEL:
                mark = WITHIN_NOISE
            lead: tuple[float | None, float | None] = (None, None)
            if method != "ledl" and "ledl" in found:
                lead = results.lead(dataset, "ledl", method)
            runs = results.runs[dataset, method]
            rows.append(
                Row(
                    dataset,
                    method,
                    len(values),
                    float(values.mean()),
                    float(values.std(ddof=1)) if len(values) > 1 else None,
                    paper.get(METHODS[method].column),
                    mark,
                    ranks.get(method),
                    *lead,
                    float(np.median([run["fit_seconds"] for run in runs])),
                    float(np.median([run["predict_seconds"] for run in runs])),
                )
            )
    return rows


def mean_ranks(plan: Plan, rows: Sequence[Row]) -> dict[str, float]:
    """Return them over the datasets, among the methods that were run on all of them."""
    means = {(row.dataset, row.method): row.accuracy_mean for row in rows if row.rank is not None}
    complete = [m for m in plan.methods if all((d, m) in means for d in plan.datasets)]
    if not complete:
        return {}
    ranks = [rankdata([-means[d, m] for m in complete]) for d in plan.datasets]
    return dict(zip(complete, map(float, np.mean(ranks, axis=0)), strict=True))


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

    def full_note(self, best: str, level: str) -> str:
        """Return the note, and what the marks mean in a form that shows the best like this, its equals so."""
        has_marks = any(entry.mark for row in self.rows for entry in row)
        return f"{self.note} {MARKED.format(best, level)}" if has_marks else self.note


def make_tables(results: Results, rows: Sequence[Row]) -> list[Table]:
    """Return the tables of a run; for one dataset in one, and chosen settings only where there was a choice."""
    plan = results.plan
    present = {row.method for row in rows}
    made = [_accuracy_table(plan, rows)]
    for ours in [method for method in OURS if method in present and len(present) > 1]:
        entries, title = {}, METHODS[ours].title
        for dataset, method in [pair for pair in results.runs if pair[1] != ours]:
            entries[dataset, method] = Entry("")
            if (dataset, ours) in results.runs:
                difference, p = results.lead(dataset, ours, method)
                text = f"{difference:+.1f}"
                if p is not None:
                    text += " (p < 0.001)" if p < 0.001 else f" (p = {p:.3f})" if p < 0.1 else f" (p = {p:.2f})"
                entries[dataset, method] = Entry(text, difference)
        note = (
            f"Positive where {title} is ahead. In parentheses the p-value of a paired t-test over the splits. "
            "Splits share test samples, so p-values are a guide, not a proof."
        )
        made.append(_by_method(plan, OURS[ours], f"{title} minus the others, points", entries, note))
    entries = {}
    for row in rows:
        text = f"{_seconds(row.fit_seconds)} / {_seconds(row.predict_seconds)}"
        entries[row.dataset, row.method] = Entry(text, row.fit_seconds + row.predict_seconds)
    note = (
        "Time to fit and to predict all test samples: median over the splits, one BLAS thread, at the settings "
        "taken, without the time to choose them. With several jobs they share the machine."
    )
    made.append(_by_method(plan, "times", "fit / predict, s", entries, note, smaller_first=True))
    if len(plan.datasets) == 1:  # each has a single column
        columns = [{row[0].text: row[1] for row in table.rows} for table in made]
        body = [[Entry(name), *(column.get(name, Entry("")) for column in columns)] for name in columns[0]]
        header, note = ["method", *(table.title for table in made)], " ".join(table.note for table in made)
        made = [Table("accuracy", DATASET_TITLES[plan.datasets[0]], header, body, note)]
    if plan.select == "defaults":
        return made
    entries = {}
    for method in plan.methods:
        for dataset in plan.datasets if METHODS[method].fixed is None else ():
            counts = Counter(
                ", ".join(f"{name.split('__')[-1]} {_setting(x)}" for name, x in run["settings"].items())
                for run in results.runs.get((dataset, method), ())
            )
            text = "; ".join(f"{what} (x{n})" if n > 1 else what for what, n in counts.most_common())
            entries[dataset, method] = Entry(text)
    note = "By cross-validation in the training samples of each split; how often, over the splits."
    return [*made, _by_method(plan, "settings", "Settings chosen", entries, note, prose=True)]


def _by_method(
    plan: Plan, name: str, title: str, entries: Mapping[tuple[str, str], Entry], note: str, **kind: bool
) -> Table:
    """Return a table of entries by dataset and method: a line for each method that has some.

    Columns are the plan's datasets, and then what else there are entries for.
    """
    columns = list(dict.fromkeys([*plan.datasets, *(column for column, _ in entries)]))
    present = {method for _, method in entries}
    rows = [
        [Entry(METHODS[method].title), *(entries.get((column, method), Entry("")) for column in columns)]
        for method in plan.methods
        if method in present
    ]
    header = ["method", *(DATASET_TITLES.get(column, column) for column in columns)]
    return Table(name, title, header, rows, note, **kind)


def _seconds(seconds: float) -> str:
    return f"{seconds:.0f}" if seconds >= 10 else f"{seconds:.1f}" if seconds >= 1 else f"{seconds:.2f}"


def _accuracy_table(plan: Plan, rows: Sequence[Row]) -> Table:
    entries = {}
    for row in rows:
        spread = "" if row.accuracy_std is None else f" ± {row.accuracy_std:.1f}"
        paper = f" ({row.paper:.1f})" if row.paper is not None else ""
        text = f"{row.accuracy_mean:.1f}{spread}{paper}"
        entries[row.dataset, row.method] = Entry(text, row.accuracy_mean, row.mark)
    if len(plan.datasets) > 1:
        ranks = mean_ranks(plan, rows)
        for method in {row.method for row in rows}:
            mean = float(np.mean([row.accuracy_mean for row in rows if row.method == method]))
            for column, value in [("mean", mean), ("mean rank", ranks.get(method, 0.0))]:
                entries[column, method] = Entry(f"{value:.1f}", value) if method in ranks else Entry("")

    # What the accuracies of this run are, in words.
    samples = "sample" if plan.n_per_class == 1 else "samples"
    chosen = "settings chosen by cross-validation in the training samples"
    settings = {"cv": chosen, "wide": f"{chosen}, from wide grids for LEDL, SRC and CRC"}.get(
        plan.select, "defaults"
    )
    few = " So few tell little." if plan.n_splits < 5 else ""
    parts = [
        f"{plan.n_per_class} training {samples} a class, all others tested; every method at its {settings}.",
        "One random split."
        if plan.n_splits == 1
        else f"Mean ± standard deviation over {plan.n_splits} random splits.{few}",
    ]
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
    return _by_method(plan, "accuracy", "Accuracy, %", entries, " ".join(parts))


def _setting(value: Any) -> str:
    """Return a short text, of powers of two as such."""
    if isinstance(value, float) and value > 0 and log2(value).is_integer() and value not in (1.0, 2.0, 4.0):
        return f"2^{log2(value):.0f}"
    return f"{value:g}" if isinstance(value, float) else str(value)


# The paper's claims.


class Claim(NamedTuple):
    """What the paper says of a dataset, what was measured, and whether it holds here."""

    dataset: str
    said: str
    measured: str
    holds: str


def claims_table(results: Results) -> Table | None:
    """Return the paper's claims, each with what this run measured; None where it has nothing to say to them."""
    if results.plan.n_per_class != PAPER_N_PER_CLASS:
        return None
    claims = []
    for dataset in results.plan.datasets:
        has = {method: (dataset, method) in results.runs for method in ("ledl", *RIVALS)}
        if dataset in PAPER_TABLE and all(has.values()):
            claims.append(claim_ahead(results, dataset))
        if dataset not in PAPER_TABLE or not (has["ledl"] and has["lcksvd"]):
            continue
        if dataset in ("yaleb", "ucmerced"):
            # The points by which LEDL is ahead of LC-KSVD, class by class.
            ledl, lcksvd = (np.diag(results.confusion(dataset, method)) for method in ("ledl", "lcksvd"))
            gains, names = 100 * (ledl - lcksvd), load_dataset(dataset).target_names
            claims += claims_on_people(gains) if dataset == "yaleb" else [claim_on_tennis(names, gains)]
        if dataset not in STUDIED:
            continue
        values = results.fit_again(dataset, "ledl", **TO_THE_END).history_["augmented_objective"]
        rises = np.flatnonzero(np.diff(values) > 0)
        last = f", the last time in iteration {rises[-1] + 2}" if rises.size else ""
        claims.append(
            Claim(
                dataset,
                f"decreases monotonically and converges in about {ITERATIONS} iterations",
                f"rose in {rises.size} of {len(values) - 1} iterations{last}; fell to "
                f"{values[-1] / values[0]:.2g} of the first value; the last ten iterations changed it by "
                f"{100 * abs(values[-1] / values[-11] - 1):.1f} %",
                "not monotonically" if rises.size else "yes",
            )
        )
        ours, theirs = (training_errors(results, dataset, method) for method in ("ledl", "lcksvd"))
        smaller = [a < b for a, b in zip(ours, theirs, strict=True)]
        claims.append(
            Claim(
                dataset,
                "smaller training errors than LC-KSVD",
                f"LEDL: data {ours[0]:.3f}, labels {ours[1]:.3f}; "
                f"LC-KSVD: data {theirs[0]:.3f}, labels {theirs[1]:.3f}",
                "yes" if all(smaller) else "no" if not any(smaller) else "in part",
            )
        )
    if not claims:
        return None
    return Table(
        "claims",
        "The paper's claims",
        ["dataset", "the paper says", "measured", "holds here"],
        [[Entry(DATASET_TITLES[claim.dataset]), *map(Entry, claim[1:])] for claim in claims],
        f"A difference counts if a paired t-test over the splits has p of at most {LEVEL}. Errors are of the "
        "training samples of the first split, coded as new samples are, relative to the norm of what they "
        "approximate; LEDL has twice as many atoms as LC-KSVD.",
        prose=True,
    )


def claim_ahead(results: Results, dataset: str) -> Claim:
    """Return whether LEDL has the highest rate, and by as much as in the paper's table."""
    paper = PAPER_TABLE[dataset]
    margin = paper["LEDL"] - max(paper[METHODS[rival].column] for rival in RIVALS)
    parts, counted, smallest = [], [], np.inf
    for rival in RIVALS:
        difference, p = results.lead(dataset, "ledl", rival)
        counts = p is not None and p <= LEVEL
        counted.append(np.sign(difference) * counts)
        smallest = min(smallest, difference)
        parts.append(f"{METHODS[rival].title} {difference:+.1f}{'' if counts else ' (noise)'}")
    n_ahead, n_behind = counted.count(1), counted.count(-1)
    holds = f"ahead of {n_ahead}, behind {n_behind} of {len(RIVALS)}"
    if n_ahead == len(RIVALS):
        holds = "yes" if smallest >= margin else "ahead, but by less"
    said = f"ahead of the four others, by {margin:.1f} points or more" if margin > 0 else "level with the best"
    return Claim(dataset, said, "LEDL minus " + ", ".join(parts), holds)


def claims_on_people(gains: Array) -> list[Claim]:
    """Return those on classes of Extended YaleB, from the points gained in each."""
    named = {i: gains[i - 1] for i in (1, 2, 3, 10, 16)}  # as the paper counts them
    n_reached = sum(gain >= 10 for gain in named.values())
    n_ahead = int(np.sum(gains[:20] > 0))
    return [
        Claim(
            "yaleb",
            "at least 10 points over LC-KSVD in classes 1, 2, 3, 10, 16 (from 1)",
            ", ".join(f"class {i} {gain:+.1f}" for i, gain in named.items()),
            "yes" if n_reached == len(named) else f"in {n_reached} of {len(named)}",
        ),
        Claim(
            "yaleb",
            "higher than LC-KSVD in each of the first 20 classes",
            f"higher in {n_ahead}, from {gains[:20].min():+.1f} to {gains[:20].max():+.1f}",
            "yes" if n_ahead == 20 else "no",
        ),
    ]


def claim_on_tennis(names: Sequence[str], gains: Array) -> Claim:
    """Return that on classes of UC Merced, from the points gained in each."""
    by_class = list(zip(names, gains, strict=True))
    named = [f"{name} {gain:+.1f}" for name, gain in by_class if gain < 0 or "tennis" in name]
    kept = [gain >= 0 for name, gain in by_class if "tennis" not in name]
    return Claim(
        "ucmerced",
        "almost always higher than LC-KSVD, but for tennis",
        f"as high or higher in {sum(kept)} of the other {len(kept)}; tennis and those lower: "
        + ", ".join(named),
        "yes" if all(kept) else f"in {sum(kept)} of {len(kept)}",
    )


def training_errors(results: Results, dataset: str, method: str) -> list[float]:
    """Return |X - S B| / |X| and |H - S W| / |H|, at the codes S that a model gives to its training samples."""
    train, _ = split(dataset, results.plan.n_per_class, 0)
    X, y = load_dataset(dataset).data[train], load_dataset(dataset).target[train]
    model = results.fit_again(dataset, method)
    with threadpool_limits(1):
        S = model.transform(X)
    X = X / np.linalg.norm(X, axis=1, keepdims=True)
    H = (y[:, None] == model.classes_[None]).astype(float)
    parts = [(X, model.components_), (H, model.label_components_)]
    return [float(np.linalg.norm(T - S @ M) / np.linalg.norm(T)) for T, M in parts]


# Tables as text.


def to_markdown(table: Table) -> str:
    """Return a table with its title and note."""
    marked = {BEST: "**{}**", WITHIN_NOISE: "*{}*", "": "{}"}
    header = [name.replace("|", "\\|") for name in table.header]
    body = [[marked[e.mark].format(e.text.replace("|", "\\|")) for e in row] for row in table.rows]
    lines = [f"| {' | '.join(cells)} |" for cells in [header, *body]]
    lines.insert(1, "|" + "---|" * len(header))
    return "\n".join([f"## {table.title}", "", *lines, "", table.full_note("Bold", "in italics"), ""])


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


def to_latex(table: Table) -> str:
    """Return a table with its title and note as caption."""
    marked = {BEST: r"\textbf{{{}}}", WITHIN_NOISE: r"\underline{{{}}}", "": "{}"}
    lines = [[name.translate(TEX) for name in table.header]]
    lines += [[marked[entry.mark].format(entry.text.translate(TEX)) for entry in row] for row in table.rows]
    head, *body = (f"{' & '.join(line)} \\\\" for line in lines)
    caption = f"{table.title}. {table.full_note('Bold', 'underlined')}".translate(TEX)
    return "\n".join(
        [
            r"\begin{table}",
            rf"\caption{{{caption}}}",
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


def to_csv(rows: Sequence[Row]) -> str:
    """Return the rows, with their names in the first line; csv writes None as nothing."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(Row._fields)
    writer.writerows(rows)
    return text.getvalue()
