"""The paper's claims, each with what this run measured."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from ledl.arrays import Array
from ledl.experiments._again import ITERATIONS, confusion, converging, first_split, fit_again
from ledl.experiments._cells import load_dataset
from ledl.experiments._run import STUDIED, Plan
from ledl.experiments._tables import LEVEL, PAPER_N_PER_CLASS, Entry, Results, Table, accuracies, paired_test
from ledl.methods import DATASET_TITLES, METHODS, PAPER_TABLE

RIVALS = ("src", "crc", "csdl", "lcksvd")  # the paper's
NAMED_CLASSES = (1, 2, 3, 10, 16)  # of Extended YaleB, counted from 1


class Claim(NamedTuple):
    """What the paper says of a dataset, what was measured, and whether it holds here."""

    dataset: str
    said: str
    measured: str
    holds: str


def claims_table(plan: Plan, results: Results) -> Table | None:
    """None where a run has nothing to say to them."""
    if plan.n_per_class != PAPER_N_PER_CLASS:
        return None
    rows = [claim for dataset in plan.datasets for claim in _claims(plan, results, dataset)]
    if not rows:
        return None
    body = [[Entry(DATASET_TITLES[row.dataset]), *map(Entry, row[1:])] for row in rows]
    return Table(
        "claims",
        "The paper's claims",
        ["dataset", "the paper says", "measured", "holds here"],
        body,
        f"A difference counts if a paired t-test over the splits has p of at most {LEVEL}. Errors are of the "
        "training samples of the first split, coded as new samples are, relative to the norm of what they "
        "approximate; LEDL has twice as many atoms as LC-KSVD.",
        prose=True,
    )


def _claims(plan: Plan, results: Results, dataset: str) -> Iterator[Claim]:
    if dataset not in PAPER_TABLE:
        return
    if all((dataset, method) in results for method in ("ledl", *RIVALS)):
        yield _ahead(results, dataset)
    if any((dataset, method) not in results for method in ("ledl", "lcksvd")):
        return
    if dataset == "yaleb":
        yield from _named_people(plan, results)
    if dataset == "ucmerced":
        yield _all_but_tennis(plan, results)
    if dataset in STUDIED:
        yield _decrease(plan, results, dataset)
        yield _errors(plan, results, dataset)


def _ahead(results: Results, dataset: str) -> Claim:
    """Whether LEDL has the highest rate, and by as much as in the paper's table."""
    paper = PAPER_TABLE[dataset]
    margin = paper["LEDL"] - max(paper[METHODS[rival].column] for rival in RIVALS)
    differences, p_values = zip(*(_against(results, dataset, rival) for rival in RIVALS), strict=True)
    parts = [
        f"{METHODS[rival].title} {difference:+.1f}{' (noise)' if p is None or p > LEVEL else ''}"
        for rival, difference, p in zip(RIVALS, differences, p_values, strict=True)
    ]
    n_ahead = sum(d > 0 and p is not None and p <= LEVEL for d, p in zip(differences, p_values, strict=True))
    n_behind = sum(d < 0 and p is not None and p <= LEVEL for d, p in zip(differences, p_values, strict=True))
    if n_ahead == len(RIVALS):
        holds = "yes" if min(differences) >= margin else "ahead, but by less"
    else:
        holds = f"ahead of {n_ahead}, behind {n_behind} of {len(RIVALS)}"
    said = f"ahead of the four others, by {margin:.1f} points or more" if margin > 0 else "level with the best"
    return Claim(dataset, said, "LEDL minus " + ", ".join(parts), holds)


def _against(results: Results, dataset: str, rival: str) -> tuple[float, float | None]:
    """Mean difference, in points, and the p-value of the paired test."""
    ours, theirs = np.array(accuracies(results, dataset, "ledl")), np.array(accuracies(results, dataset, rival))
    return float((ours - theirs).mean()), paired_test(ours, theirs)


def _gains(plan: Plan, results: Results, dataset: str) -> Array:
    """Points by which LEDL is ahead of LC-KSVD, class by class."""
    ledl, lcksvd = (np.diag(confusion(plan, results, dataset, m)) for m in ("ledl", "lcksvd"))
    return np.asarray(100 * (ledl - lcksvd))


def _named_people(plan: Plan, results: Results) -> Iterator[Claim]:
    gains = _gains(plan, results, "yaleb")
    named = [gains[i - 1] for i in NAMED_CLASSES]
    measured = ", ".join(f"class {i} {gain:+.1f}" for i, gain in zip(NAMED_CLASSES, named, strict=True))
    said = "at least 10 points over LC-KSVD in classes 1, 2, 3, 10, 16 (from 1)"
    n_reached = sum(gain >= 10 for gain in named)
    holds = "yes" if n_reached == len(named) else f"in {n_reached} of {len(named)}"
    yield Claim("yaleb", said, measured, holds)
    n_ahead = int(np.sum(gains[:20] > 0))
    said = "higher than LC-KSVD in each of the first 20 classes"
    spread = f"higher in {n_ahead}, from {gains[:20].min():+.1f} to {gains[:20].max():+.1f}"
    yield Claim("yaleb", said, spread, "yes" if n_ahead == 20 else "no")


def _all_but_tennis(plan: Plan, results: Results) -> Claim:
    gains = _gains(plan, results, "ucmerced")
    names = load_dataset("ucmerced").target_names
    named = [
        f"{name} {gain:+.1f}" for name, gain in zip(names, gains, strict=True) if gain < 0 or "tennis" in name
    ]
    others = [gain for name, gain in zip(names, gains, strict=True) if "tennis" not in name]
    n_kept = sum(gain >= 0 for gain in others)
    measured = (
        f"as high or higher in {n_kept} of the other {len(others)}; tennis and those lower: {', '.join(named)}"
    )
    holds = "yes" if n_kept == len(others) else f"in {n_kept} of {len(others)}"
    return Claim("ucmerced", "almost always higher than LC-KSVD, but for tennis", measured, holds)


def _decrease(plan: Plan, results: Results, dataset: str) -> Claim:
    values = converging(plan, results, dataset).history_["augmented_objective"]
    rises = np.flatnonzero(np.diff(values) > 0)
    last = f", the last time in iteration {rises[-1] + 2}" if rises.size else ""
    change = abs(values[-1] / values[-11] - 1)
    measured = (
        f"rose in {rises.size} of {len(values) - 1} iterations{last}; fell to {values[-1] / values[0]:.2g} of "
        f"the first value; the last ten iterations changed it by {100 * change:.1f} %"
    )
    said = f"decreases monotonically and converges in about {ITERATIONS} iterations"
    return Claim(dataset, said, measured, "not monotonically" if rises.size else "yes")


def _errors(plan: Plan, results: Results, dataset: str) -> Claim:
    models = [fit_again(plan, results, dataset, method) for method in ("ledl", "lcksvd")]
    ledl, lcksvd = (_training_errors(model, plan, dataset) for model in models)
    measured = "; ".join(
        f"{name}: data {data:.3f}, labels {labels:.3f}"
        for name, (data, labels) in [("LEDL", ledl), ("LC-KSVD", lcksvd)]
    )
    smaller = [a < b for a, b in zip(ledl, lcksvd, strict=True)]
    holds = "yes" if all(smaller) else "no" if not any(smaller) else "in part"
    return Claim(dataset, "smaller training errors than LC-KSVD", measured, holds)


def _training_errors(model: Any, plan: Plan, dataset: str) -> tuple[float, float]:
    """|X - S B| / |X| and |H - S W| / |H|, at the codes that the model gives to its training samples."""
    train, _ = first_split(plan, dataset)
    X, y = load_dataset(dataset).data[train], load_dataset(dataset).target[train]
    with threadpool_limits(1):
        S = model.transform(X)
    X = X / np.linalg.norm(X, axis=1, keepdims=True)
    H = (y[:, None] == model.classes_[None]).astype(float)
    data, labels = (
        float(np.linalg.norm(T - S @ M) / np.linalg.norm(T))
        for T, M in [(X, model.components_), (H, model.label_components_)]
    )
    return data, labels
