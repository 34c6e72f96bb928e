"""The paper's claims, each with what this run measured."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from ledl.arrays import Array
from ledl.experiments._cells import load_dataset
from ledl.experiments._figures import confusion, first_split, fit_again
from ledl.experiments._methods import DATASET_TITLES, METHODS, PAPER_TABLE
from ledl.experiments._run import STUDIED, Plan
from ledl.experiments._tables import LEVEL, Entry, Results, Table, accuracies, paired_test

RIVALS = ("src", "crc", "csdl", "lcksvd")  # the paper's
NAMED_CLASSES = (1, 2, 3, 10, 16)  # of Extended YaleB, counted from 1
ITERATIONS = 100


class Claim(NamedTuple):
    """What the paper says of a dataset, what was measured, and whether it holds here."""

    dataset: str
    said: str
    measured: str
    holds: str


def claims_table(plan: Plan, results: Results) -> Table | None:
    """None where a run has nothing to say to them."""
    rows = [claim for dataset in plan.datasets for claim in _claims(plan, results, dataset)]
    if not rows:
        return None
    body = [[Entry(DATASET_TITLES[row.dataset]), *map(Entry, row[1:])] for row in rows]
    return Table(
        "claims",
        "The paper's claims",
        ["dataset", "the paper says", "measured", "holds here"],
        body,
        f"A difference counts if a paired t-test over the splits has p <= {LEVEL}. Errors are of the training "
        "samples of the first split, coded as new samples are, relative to the norm of what they approximate; "
        "LEDL has twice as many atoms as LC-KSVD.",
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
    paper = PAPER_TABLE[dataset]
    margin = paper["LEDL"] - max(paper[METHODS[rival].column] for rival in RIVALS)
    ours = accuracies(results, dataset, "ledl")
    parts, verdicts = [], []
    for rival in RIVALS:
        theirs = accuracies(results, dataset, rival)
        assert ours is not None
        assert theirs is not None
        p = paired_test(ours, theirs)
        difference = (ours - theirs).mean()
        sure = p is not None and p <= LEVEL
        verdicts.append(("ahead" if difference > 0 else "behind") if sure else "level")
        parts.append(f"{METHODS[rival].title} {difference:+.1f}{'' if sure else ' (noise)'}")
    if all(verdict == "ahead" for verdict in verdicts):
        holds = "yes"
    elif "behind" in verdicts:
        holds = "no"
    else:
        holds = f"against {verdicts.count('ahead')} of {len(RIVALS)}; level with the others"
    said = f"ahead of the four others, by {margin:.1f} points or more"
    return Claim(dataset, said, "LEDL minus " + ", ".join(parts), holds)


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
    tennis = names.index("tenniscourt")
    others = np.delete(gains, tennis)
    worse = [f"{name} {gain:+.1f}" for name, gain in zip(names, gains, strict=True) if gain < 0]
    measured = (
        f"higher or equal in {np.sum(others >= 0)} of the other {len(others)}; tennis {gains[tennis]:+.1f}; "
        f"lower: {', '.join(worse) or 'none'}"
    )
    holds = "yes" if np.all(others >= 0) else "no"
    return Claim("ucmerced", "almost always higher than LC-KSVD, but for tennis", measured, holds)


def _decrease(plan: Plan, results: Results, dataset: str) -> Claim:
    model = fit_again(plan, results, dataset, "ledl", tol=0.0, max_iter=ITERATIONS)
    values = model.history_["augmented_objective"]
    falls = np.diff(values) < 0
    last_rise = int(np.flatnonzero(~falls)[-1]) + 2 if not falls.all() else 0
    rises = f"; it rose in {np.sum(~falls)}, last in iteration {last_rise}" if last_rise else ""
    measured = (
        f"fell in {falls.sum()} of {len(falls)} iterations, to {values[-1] / values[0]:.2g} of the first{rises}"
    )
    said = "the objective decreases monotonically and converges within about 100 iterations"
    return Claim(dataset, said, measured, "yes" if falls.all() else "not monotonically")


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
    data = load_dataset(dataset)
    train, _ = first_split(plan, dataset)
    X, y = data.data[train], data.target[train]
    S = model.transform(X)
    X = X / np.linalg.norm(X, axis=1, keepdims=True)
    H = (y[:, None] == model.classes_[None]).astype(float)
    data, labels = (
        float(np.linalg.norm(T - S @ M) / np.linalg.norm(T))
        for T, M in [(X, model.components_), (H, model.label_components_)]
    )
    return data, labels
