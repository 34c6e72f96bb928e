"""Summarise the cells in tables: accuracies, paired tests, ranks, times, the paper's claims.

Tables are written as Markdown, LaTeX and CSV by pandas, which is imported where it is used: it is an extra.
"""

from __future__ import annotations

import json
import re
import warnings
from collections import Counter, namedtuple
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from math import log2
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.stats import t as student
from scipy.stats import ttest_rel
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import confusion_matrix
from sklearn.pipeline import Pipeline
from threadpoolctl import threadpool_limits

from ledl.arrays import Array
from ledl.csv_cells import to_cell
from ledl.experiments._cells import (
    SAMPLES_PER_CLASS,
    STUDIED,
    STUDY_SPLITS,
    Cell,
    Plan,
    dataset_digest,
    halves,
    labels_of,
    load_dataset,
    split,
)
from ledl.methods import METHODS, PAPER_TABLE, title_of

if TYPE_CHECKING:
    from pandas import DataFrame

LEVEL = 0.05  # of the paired test
BEST, WITHIN_NOISE = "best", "within noise"
MARKED = "{}: best; {}: not significantly different from it (paired t-test, p > 0.05)."
# Methods that are compared with each of the others, and the names of these tables.
OURS = {"ledl": "differences", "ledl-cv": "differences-cv", "ledl-semi": "differences-semi"}
# What a reader of the tables must know. Captions have no room for it.
CAVEATS = (
    "Splits share test samples, so p-values are a guide, not a proof. Differences are positive where LEDL is "
    "ahead. Times are for all test samples, and jobs that run at the same time share the machine."
)
BASE = "ledl-cv"  # over which the gain of semi-supervised methods is counted
PAPER_N_PER_CLASS = 5
RIVALS = ("src", "crc", "csdl", "lcksvd")  # the paper's
ITERATIONS = 100  # of convergence curves, as in the paper
TO_THE_END = {"tol": 0.0, "max_iter": ITERATIONS}  # settings of LEDL


@dataclass(frozen=True)
class Results:
    """The results of a plan's cells, including those of figures."""

    plan: Plan
    cells: Mapping[Cell, Mapping[str, Any]]

    @cached_property
    def runs(self) -> dict[tuple[str, str], list[Mapping[str, Any]]]:
        """Results by dataset and method, in the order of the splits, where no split is missing."""
        found: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
        for cell in self.plan.cells():
            if cell in self.cells:
                found.setdefault((cell.dataset, cell.method), []).append(self.cells[cell])
        return {key: runs for key, runs in found.items() if len(runs) == self.plan.n_splits}

    @cached_property
    def accuracies(self) -> DataFrame:
        """Accuracies in %: a row for each split, a column for each dataset and method."""
        import pandas as pd

        return pd.DataFrame({key: [100 * run["accuracy"] for run in runs] for key, runs in self.runs.items()})

    def lead(self, dataset: str, ours: str, theirs: str) -> tuple[float, float | None]:
        """Return by how many points a method is ahead of another, and the p-value of the paired test."""
        a, b = self.accuracies[dataset, ours], self.accuracies[dataset, theirs]
        return float((a - b).mean()), paired_test(a, b)

    def mean_lead(self, ours: str, theirs: str) -> tuple[float, tuple[float, float] | None]:
        """Return the lead of a method over another, mean over all datasets, and its 95 % interval.

        The interval is Student's paired one over the splits; None if there is one split.
        """
        a, b = (self.accuracies[[(d, m) for d in self.plan.datasets]].mean(axis=1) for m in (ours, theirs))
        mean = float((a - b).mean())
        if self.plan.n_splits < 2:
            return mean, None
        half = float(interval_halves((a - b).to_numpy()))
        return mean, (mean - half, mean + half)

    @cached_property
    def on_new_samples(self) -> Results:
        """The same plan with the accuracies on samples that no method has seen.

        Supervised methods see none of the test samples: their answers are counted on the same ones.
        """
        found: dict[Cell, Mapping[str, Any]] = {}
        for cell in self.plan.cells():
            new = replace(cell, unlabelled="half")
            if cell.how.unlabelled and new in self.cells:
                found[cell] = self.cells[new]
            elif not cell.how.unlabelled and cell in self.cells:
                _, test = split(cell.dataset, cell.n_per_class, cell.seed)
                hits = labels_of(cell.dataset)[test] == self.cells[cell]["predicted"]
                tested = np.isin(test, halves(test, cell.seed)[1])
                found[cell] = {**self.cells[cell], "accuracy": float(hits[tested].mean())}
        return Results(self.plan, found)

    @cached_property
    def over_labels(self) -> dict[tuple[str, str], dict[int, Array]]:
        """Accuracies in % by dataset and method, then by the number of labels of each class: (n_splits,)."""
        curves: dict[tuple[str, str], dict[int, Array]] = {}
        for key in ((dataset, method) for dataset in self.plan.datasets for method in self.plan.methods):
            for n, cells in self.plan.label_cells(*key).items():
                if all(cell in self.cells for cell in cells):
                    values = [100 * self.cells[cell]["accuracy"] for cell in cells]
                    curves.setdefault(key, {})[n] = np.array(values)
        return curves

    def confusion(self, dataset: str, method: str) -> Array:
        """Return the confusion matrix over all splits: rows true, columns predicted, each row sums to 1."""
        target, seeds = labels_of(dataset), range(self.plan.n_splits)
        true = np.concatenate([target[split(dataset, self.plan.n_per_class, seed)[1]] for seed in seeds])
        predicted = np.concatenate([run["predicted"] for run in self.runs[dataset, method]])
        return np.asarray(confusion_matrix(true, predicted, labels=np.unique(target), normalize="true"))

    def fit_again(self, dataset: str, method: str, **settings: Any) -> Any:
        """Return the method fitted on the first split at the settings it had there, and these."""
        taken = {**self.runs[dataset, method][0]["settings"], **settings}
        return _fit(dataset, dataset_digest(dataset), method, self.plan.n_per_class, tuple(taken.items()))


@lru_cache(maxsize=16)
def _fit(
    dataset: str, digest: str, method: str, n_per_class: int, settings: tuple[tuple[str, Any], ...]
) -> Any:
    data, (train, _) = load_dataset(dataset), split(dataset, n_per_class, 0)
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore", ConvergenceWarning)
        return METHODS[method].make(dict(settings)).fit(data.data[train], data.target[train])


def interval_halves(values: Array) -> Any:
    """Return half the width of Student's 95 % interval of the mean over splits, (n_splits, ...); NaN of one."""
    n = len(values)
    if n < 2:
        return np.full(values.shape[1:], np.nan)
    return student.ppf(1 - LEVEL / 2, n - 1) * values.std(axis=0, ddof=1) / n**0.5


def paired_test(a: Array, b: Array) -> float | None:
    """Return the p-value of Student's paired test, two-sided, or None if there are too few splits."""
    if len(a) != len(b) or len(a) < 2:
        return None
    if np.ptp(a - b) <= 1e-9:  # points: only rounding
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
    rank: float | None  # None if not ranked
    ledl_minus_this_mean: float | None
    ledl_minus_this_p: float | None
    select_seconds: float | None  # None if nothing was chosen, or in `fit`
    fit_seconds: float
    predict_seconds: float


def summarise(results: Results) -> list[Row]:
    """Return a row for each method on each dataset that has results."""
    plan, values = results.plan, results.accuracies
    means = values.mean().round(9)  # equal means are equal, whatever the order of the splits
    # Only methods whose settings were found by the same rules are ranked: not the paper's weights, and among
    # methods at their defaults not one that chooses.
    unfair = [m.name for m in METHODS.values() if m.fixed or (m.chooses_for and plan.select == "defaults")]
    ranked = means[[key for key in means.index if key[1] not in unfair]]
    ranks = ranked.groupby(level=0).rank(ascending=False)
    rows = []
    for dataset, method in values:
        paper = PAPER_TABLE.get(dataset, {}).get(plan.find(method).column)
        mark, own = "", values[dataset, method]
        lead: tuple[float | None, float | None] = (None, None)
        if (dataset, method) in ranked:
            best = ranked[dataset].idxmax()
            noise = (paired_test(values[dataset, best], own) or 0.0) > LEVEL
            mark = BEST if means[dataset, method] == ranked[dataset].max() else WITHIN_NOISE if noise else ""
        if method != "ledl" and (dataset, "ledl") in values:
            lead = results.lead(dataset, "ledl", method)
        runs = results.runs[dataset, method]
        seconds = [[run.get(name, np.nan) for run in runs] for name in Row._fields[-3:]]
        select, fit, predict = (None if np.isnan(x).any() else float(np.median(x)) for x in seconds)
        rows.append(
            Row(
                dataset,
                method,
                plan.n_splits,
                float(own.mean()),
                float(own.std()) if plan.n_splits > 1 else None,
                paper if plan.n_per_class == PAPER_N_PER_CLASS else None,
                mark,
                float(ranks[dataset, method]) if (dataset, method) in ranked else None,
                *lead,
                select,
                fit or 0.0,
                predict or 0.0,
            )
        )
    return rows


def mean_ranks(plan: Plan, rows: Sequence[Row]) -> dict[str, float]:
    """Return the mean rank over the datasets of each method that was run on all of them."""
    import pandas as pd

    ranked = pd.DataFrame([row for row in rows if row.rank is not None], columns=Row._fields)
    means = ranked.pivot(index="dataset", columns="method", values="accuracy_mean").round(9)
    complete = means.reindex(plan.datasets).dropna(axis=1)
    return dict(complete.rank(axis=1, ascending=False).mean())


class Entry(NamedTuple):
    """An entry of a table: its text, the value to sort by, and the mark "best", "within noise" or ""."""

    text: str
    value: float | None = None
    mark: str = ""


@dataclass(frozen=True)
class Table:
    """A table for people, in any format."""

    name: str
    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[Entry]]
    note: str
    smaller_first: bool = False  # when a reader sorts it
    prose: bool = False  # entries are too long for a terminal or a page in LaTeX

    def full_note(self, best: str, level: str) -> str:
        """Return the note and the meaning of the marks, given how a format shows the two."""
        has_marks = any(entry.mark for row in self.rows for entry in row)
        marks = MARKED.format(best, level) if has_marks else ""
        marks = marks.replace("paired t-test, ", "") if "paired t-test" in self.note else marks
        return f"{self.note} {marks}".rstrip()


def make_tables(results: Results, rows: Sequence[Row]) -> list[Table]:
    """Return the tables of a run. If there is one dataset, its columns are joined in one table.

    The paper's claims and chosen settings are added if there are any.
    """
    plan, runs = results.plan, results.runs
    chooses = any(row.select_seconds is not None for row in rows)
    times = {}
    for row in rows:
        parts = [row.select_seconds, row.fit_seconds, row.predict_seconds][0 if chooses else 1 :]
        text = " / ".join("-" if seconds is None else _seconds(seconds) for seconds in parts)
        times[row.dataset, row.method] = Entry(text, sum(seconds or 0.0 for seconds in parts))
    accuracies, several = _accuracies(plan, rows), len(plan.datasets) > 1
    made = [_by_method(plan, "accuracy", "Accuracy, %", accuracies, _accuracy_note(plan, rows))]
    note = "p-values: paired t-test." + " Means: with 95 % intervals over the splits." * several
    for ours in OURS:
        if plan.is_semi != METHODS[ours].unlabelled:
            continue
        leads = {}
        for dataset, method in runs:
            if method != ours and (dataset, ours) in runs:
                difference, p = results.lead(dataset, ours, method)
                test = "" if p is None else " (p < 0.001)" if p < 0.001 else f" (p = {p:.{2 + (p < 0.1)}f})"
                leads[dataset, method] = Entry(f"{difference:+.1f}{test}", difference)
        complete = [m for m in plan.methods if several and all((d, m) in runs for d in plan.datasets)]
        for method in complete if ours in complete else []:
            if method != ours:
                difference, ends = results.mean_lead(ours, method)
                interval = "" if ends is None else f" ({ends[0]:+.1f} to {ends[1]:+.1f})"
                leads["mean", method] = Entry(f"{difference:+.1f}{interval}", difference)
        if leads:
            title = f"{METHODS[ours].title} minus the others, points"
            made.append(_by_method(plan, OURS[ours], title, leads, note))
    note = "Times: medians, one BLAS thread."
    if chooses and any(row.select_seconds is None for row in rows):
        note += f" -: nothing was chosen{', or in the fit (semi-supervised methods)' * plan.is_semi}."
    title = "choose / fit / predict, s" if chooses else "fit / predict, s"
    made.append(_by_method(plan, "times", title, times, note, smaller_first=True))
    if len(plan.datasets) == 1:  # each has a single column
        columns = [{row[0].text: row[1] for row in table.rows} for table in made]
        body = [[Entry(name), *(column.get(name, Entry("")) for column in columns)] for name in columns[0]]
        notes = dict.fromkeys(table.note for table in made)
        header, title = ["method", *(table.title for table in made)], title_of(plan.datasets[0])
        made = [Table("accuracy", title, header, body, " ".join(notes))]
    made += [*semi_supervised_tables(results), *claims_table(results)]
    if plan.select == "defaults":
        return made
    settings = {}
    for (dataset, method), found in runs.items():
        if plan.find(method).fixed is None and any(run["settings"] for run in found):
            counts = Counter(
                ", ".join(f"{name.split('__')[-1]} {_setting(x)}" for name, x in run["settings"].items())
                for run in found
            )
            texts = (f"{what} (x{n})" if n > 1 else what for what, n in counts.most_common())
            settings[dataset, method] = Entry("; ".join(texts))
    how = "hidden labels or cross-validation" if plan.is_semi else "cross-validation in the training samples"
    note = f"Chosen by {how}; in parentheses the number of splits."
    table = _by_method(plan, "settings", "Settings chosen", settings, note, prose=True)
    return [*made, table] if settings else made


def _accuracies(plan: Plan, rows: Sequence[Row]) -> dict[tuple[str, str], Entry]:
    """Return entries with accuracies by column and method; of several datasets, with means and mean ranks."""
    found = {}
    for row in rows:
        spread = "" if row.accuracy_std is None else f" ± {row.accuracy_std:.1f}"
        text = f"{row.accuracy_mean:.1f}{spread}" + (f" ({row.paper:.1f})" if row.paper else "")
        found[row.dataset, row.method] = Entry(text, row.accuracy_mean, row.mark)
    if len(plan.datasets) > 1:
        for method, rank in mean_ranks(plan, rows).items():
            mean = float(np.mean([row.accuracy_mean for row in rows if row.method == method]))
            found["mean", method] = Entry(f"{mean:.1f}", mean)
            found["mean rank", method] = Entry(f"{rank:.1f}", rank)
    return found


def semi_supervised_tables(results: Results) -> list[Table]:
    """Return the tables of a run with semi-supervised methods: on new samples, over the number of labels."""
    plan = results.plan
    if not plan.is_semi:
        return []
    entries = _accuracies(plan, summarise(results.on_new_samples)) if results.on_new_samples.runs else {}
    note = (
        f"{plan.n_per_class} labels per class; half of the other samples without labels, the other half hidden "
        "and tested."
    )
    share = gain_kept(results, "ledl-semi")
    if share is not None:
        note += (
            f" {METHODS['ledl-semi'].title} keeps {100 * share:.0f} % of its gain in mean accuracy over "
            f"{METHODS[BASE].title} in the first table."
        )
    table = _by_method(plan, "new-samples", "Accuracy on new samples, %", entries, note)
    return ([table] if entries else []) + labels_table(results)


def gain_kept(results: Results, method: str) -> float | None:
    """Return the share of its lead over supervised LEDL that a method keeps on new samples, or None."""
    gains = []
    for found in (results, results.on_new_samples):
        keys = [(dataset, name) for dataset in results.plan.datasets for name in (method, BASE)]
        if not all(key in found.runs for key in keys):
            return None
        gains.append(found.mean_lead(method, BASE)[0])
    return gains[1] / gains[0] if gains[0] > 0 else None


def labels_table(results: Results) -> list[Table]:
    """Return a table of accuracies over the number of labels of each class, or none if nothing was run."""
    plan, curves = results.plan, results.over_labels
    numbers = [n for n in SAMPLES_PER_CLASS if any(n in curve for curve in curves.values())]
    groups = {dataset: [dataset] for dataset in plan.datasets}
    groups = {"mean": list(plan.datasets), **groups} if len(groups) > 1 else groups
    rows = []
    for name, datasets in groups.items():
        for method in plan.methods:
            own = [curves.get((dataset, method), {}) for dataset in datasets]
            means = [
                float(np.mean([curve[n] for curve in own])) if all(n in curve for curve in own) else None
                for n in numbers
            ]
            if any(mean is not None for mean in means):
                entries = [Entry("") if mean is None else Entry(f"{mean:.1f}", mean) for mean in means]
                rows.append([Entry(title_of(name)), Entry(plan.find(method).title), *entries])
    header = ["dataset", "method", *map(str, numbers)]
    if len(groups) == 1:
        header, rows = header[1:], [row[1:] for row in rows]
    n = min(plan.n_splits, STUDY_SPLITS)
    note = (
        f"All other samples without labels and tested; {n} split{'s' * (n > 1)}. With one label (LDA: two, the "
        "fewest that it needs) none can be hidden, so settings are the defaults."
    )
    title = "Accuracy over the number of labels of each class, %"
    return [Table("labels", title, header, rows, note, prose=len(groups) > 1)] if len(numbers) > 1 else []


def _by_method(
    plan: Plan, name: str, title: str, entries: Mapping[tuple[str, str], Entry], note: str, **kind: bool
) -> Table:
    """Return a table with a row for each method, and a column for each dataset or other key of the entries."""
    columns = list(dict.fromkeys([*plan.datasets, *(column for column, _ in entries)]))
    rows = [
        [Entry(plan.find(method).title), *(entries.get((column, method), Entry("")) for column in columns)]
        for method in plan.methods
        if any(method == other for _, other in entries)
    ]
    header = ["method", *(title_of(column) for column in columns)]
    return Table(name, title, header, rows, note, **kind)


def _seconds(seconds: float) -> str:
    return f"{seconds:.{0 if seconds >= 10 else 1 if seconds >= 1 else 2}f}"


def _accuracy_note(plan: Plan, rows: Sequence[Row]) -> str:
    """Return how the accuracies of a run were found."""
    chosen = "Settings chosen by cross-validation"
    how = {"defaults": "Default settings", "wide": f"{chosen} in wide grids"}.get(plan.select, chosen)
    how = how.replace("cross-validation", "hidden labels") if plan.is_semi else how
    how = "Fixed settings" if all(method.fixed for method in map(plan.find, plan.methods)) else how
    others = ", all others unlabelled and tested" if plan.is_semi else ""
    only = "only " if plan.n_splits < 5 else ""
    spread = (
        f"mean ± standard deviation over {only}{plan.n_splits} splits" if plan.n_splits > 1 else "one split"
    )
    paper = "; paper's figure in parentheses" if any(row.paper for row in rows) else ""
    samples = f"{plan.n_per_class} sample{'s' * (plan.n_per_class != 1)} per class"
    note = f"{how}; {samples}{others}; {spread}{paper}."
    if plan.is_semi:
        supervised = [method.title for method in map(plan.find, plan.methods) if not method.unlabelled]
        note += f" From the labelled samples alone: {', '.join(supervised)}." if supervised else ""
    if len(plan.datasets) > 1:
        note += " Means: methods with all datasets."
    unranked = dict.fromkeys(plan.find(row.method).title for row in rows if row.rank is None)
    if unranked:
        note += f" Not ranked: {'; '.join(unranked)}."
    choosing = [method for method in map(plan.find, plan.methods) if method.chooses_for]
    for title in dict.fromkeys(method.title for method in choosing):
        note += f" {title} has more candidates." if title not in unranked else ""
    return note


def _setting(value: Any) -> str:
    """Return a value as short text, powers of two as such."""
    if isinstance(value, float) and value > 0 and log2(value).is_integer() and value not in (1.0, 2.0, 4.0):
        return f"2^{log2(value):.0f}"
    return f"{value:g}" if isinstance(value, float) else str(value)


# The paper's claims.


# A claim of the paper on a dataset, the measurement, and whether the claim holds.
Claim = namedtuple("Claim", "dataset said measured holds")


def claims_table(results: Results) -> list[Table]:
    """Return a table of the paper's claims with the measurements of this run, or none if it has none."""
    if results.plan.n_per_class != PAPER_N_PER_CLASS:
        return []
    claims = []
    for dataset in results.plan.datasets:
        has = {method: (dataset, method) in results.runs for method in ("ledl", *RIVALS)}
        if dataset in PAPER_TABLE and all(has.values()):
            claims.append(claim_ahead(results, dataset))
        if dataset not in PAPER_TABLE or not (has["ledl"] and has["lcksvd"]):
            continue
        if dataset in ("yaleb", "ucmerced"):
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
    table = Table(
        "claims",
        "The paper's claims",
        ["dataset", "the paper says", "measured", "holds here"],
        [[Entry(title_of(claim.dataset)), *map(Entry, claim[1:])] for claim in claims],
        f"A difference counts if a paired t-test over the splits has p <= {LEVEL}. Training errors are "
        "relative, on the first split, with codes as for new samples. LEDL has twice as many atoms as LC-KSVD.",
        prose=True,
    )
    return [table] if claims else []


def claim_ahead(results: Results, dataset: str) -> Claim:
    """Compare LEDL's lead over its rivals with the lead in the paper's table; return the claim."""
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
    """Return the claims on classes of Extended YaleB, from LEDL's lead in points in each class."""
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
    """Return the claim on classes of UC Merced, from LEDL's lead in points in each class."""
    by_class = list(zip(names, gains, strict=True))
    named = [f"{name} {gain:+.1f}" for name, gain in by_class if gain < 0 or "tennis" in name]
    kept = [gain >= 0 for name, gain in by_class if "tennis" not in name]
    return Claim(
        "ucmerced",
        "almost always higher than LC-KSVD, except for tennis",
        f"as high or higher in {sum(kept)} of the other {len(kept)}; tennis and lower ones: "
        + ", ".join(named),
        "yes" if all(kept) else f"in {sum(kept)} of {len(kept)}",
    )


def training_errors(results: Results, dataset: str, method: str) -> list[float]:
    """Return |X - S B| / |X| and |H - S W| / |H| for the codes S of the training samples.

    X has norm 1, and the power of the features that was chosen.
    """
    train, _ = split(dataset, results.plan.n_per_class, 0)
    X, y = load_dataset(dataset).data[train], load_dataset(dataset).target[train]
    model = results.fit_again(dataset, method)
    if isinstance(model, Pipeline):  # whose first step takes a power of the features
        X, model = model[:-1].transform(X), model[-1]
    with threadpool_limits(1):
        S = model.transform(X)
    X = model.dictionary_.features(X.astype(np.float64))
    H = (y[:, None] == model.classes_[None]).astype(float)
    parts = [(X, model.components_), (H, model.label_components_)]
    return [float(np.linalg.norm(T - S @ M) / np.linalg.norm(T)) for T, M in parts]


# Tables as text.

# How characters are written, and entries with a mark.
MARKDOWN = str.maketrans({"|": "\\|"}), {BEST: "**{}**", WITHIN_NOISE: "*{}*", "": "{}"}
LATEX = (
    str.maketrans(
        {
            "\\": r"\textbackslash{}",
            "[": "{[}",  # after the end of a row, it would begin an option
            "{": r"\{",
            "}": r"\}",
            "~": r"\textasciitilde{}",
            "^": r"\textasciicircum{}",
            "±": r"$\pm$",
            "<": "$<$",
            ">": "$>$",
            **{character: f"\\{character}" for character in "%&_#$"},
        }
    ),
    {BEST: r"\textbf{{{}}}", WITHIN_NOISE: r"\underline{{{}}}", "": "{}"},
)


def _frame(table: Table, characters: dict[int, str], marked: Mapping[str, str]) -> DataFrame:
    """Return a table as the texts of a format."""
    import pandas as pd

    rows = [
        [marked[entry.mark].format(entry.text.translate(characters)) for entry in row] for row in table.rows
    ]
    return pd.DataFrame(rows, columns=[name.translate(characters) for name in table.header])


def to_markdown(table: Table) -> str:
    """Return a table with its title and note in Markdown."""
    body = _frame(table, *MARKDOWN).to_markdown(index=False, disable_numparse=True)
    return f"## {table.title}\n\n{body}\n\n{table.full_note('Bold', 'italics')}\n"


def to_latex(table: Table) -> str:
    """Return a table in LaTeX (package booktabs), with its title and note as caption."""
    caption = f"{table.title}. {table.full_note('Bold', 'underlined')}".translate(LATEX[0])
    caption = caption.replace("figure in parentheses", "figure in a column of its own")
    texts = _frame(table, *LATEX)
    heads, columns, layout = [], [[*texts.iloc[:, 0]]], "l"
    for i in range(1, len(table.header)):
        parts = [_parts_of_entry(entry.text) for entry in (row[i] for row in table.rows)]
        used = [j for j in range(len(parts[0])) if any(part[j] for part in parts)] or [0]
        for j in used:
            # A spread has its sign with it: a row without one has none.
            cells = ["± " * (j == 1 and bool(part[j])) + part[j] for part in parts]
            cells = [cell.translate(LATEX[0]) for cell in cells]
            if j == used[0]:
                cells = [
                    LATEX[1][row[i].mark].format(cell) for row, cell in zip(table.rows, cells, strict=True)
                ]
            columns.append(cells)
        # A spread follows its mean after a space; all other numbers are columns of their own.
        layout += "".join("@{ }l" if j == 1 and 0 in used else "r" for j in used)
        heads.append(rf"\multicolumn{{{len(used)}}}{{c}}{{{table.header[i].translate(LATEX[0])}}}")
    body = [" & ".join(row) + r" \\" for row in zip(*columns, strict=True)]
    lines = [
        r"\begin{table}", rf"\caption{{{caption}}}", rf"\label{{tab:{table.name}}}",
        rf"\begin{{tabular}}{{{layout}}}", r"\toprule", " & ".join([table.header[0], *heads]) + r" \\",
        r"\midrule", *body, r"\bottomrule", r"\end{tabular}", r"\end{table}", "",
    ]  # fmt: skip
    return "\n".join(lines)


# An entry such as "84.6 ± 2.2 (81.1)", "+1.2 (p = 0.03)" or "1.2 / 0.01 / 0.3".
ENTRY = re.compile(r"([^±(/]*?)(?: ± ([^( ]+))?(?: \((.*)\))?(?: / ([^/]+))?(?: / ([^/]+))?")


def _parts_of_entry(text: str) -> tuple[str, ...]:
    """Return the numbers of an entry, each for a column of its own, and "" for those that it does not have."""
    found = ENTRY.fullmatch(text)
    return tuple(part or "" for part in found.groups()) if found else (text, "", "", "", "")


def splits_to_csv(results: Results) -> str:
    """Return the values of every split as CSV: a line for each cell of the tables."""
    import pandas as pd

    names = ("accuracy", "n_test", "cv_accuracy", "select_seconds", "fit_seconds", "predict_seconds")
    rows = [
        {"dataset": to_cell(Path(dataset).stem), "method": to_cell(method), "split": seed}
        | {name: run.get(name) for name in names}
        | {"settings": json.dumps(run["settings"])}
        for (dataset, method), runs in results.runs.items()
        for seed, run in enumerate(runs)
    ]
    return str(pd.DataFrame(rows).to_csv(index=False))


def to_csv(rows: Sequence[Row]) -> str:
    """Return the rows as CSV, with the names of their fields in the first line."""
    import pandas as pd

    titled = [row._replace(dataset=to_cell(Path(row.dataset).stem), method=to_cell(row.method)) for row in rows]
    return str(pd.DataFrame(titled, columns=Row._fields).to_csv(index=False))
