"""The paper's claims: every verdict on figures that call for it, and what they are computed from."""

import numpy as np
import pytest

from ledl.datasets import few_shot_splits
from ledl.experiments import Plan
from ledl.experiments._cells import Cell, load_dataset
from ledl.experiments._tables import (
    RIVALS,
    Results,
    claim_ahead,
    claim_on_tennis,
    claims_on_people,
    claims_table,
    training_errors,
)

PLAN = Plan(("usps",), ("src", "crc", "csdl", "lcksvd", "ledl"), n_splits=4)
SPREAD = np.array([0.0, 0.01, -0.01, 0.005])


def results_of(plan, **runs):
    """Of methods on the plan's first dataset."""
    cells = {}
    for method, found in runs.items():
        for seed, run in enumerate(found):
            cells[Cell(plan.datasets[0], method, seed, plan.select, plan.n_per_class)] = run
    return Results(plan, cells)


def accuracies(**levels):
    return {method: [{"accuracy": a} for a in level + SPREAD] for method, level in levels.items()}


@pytest.mark.parametrize(
    ("rivals", "verdict"),
    [
        ([0.70, 0.71, 0.72, 0.60], "yes"),
        ([0.70, 0.71, 0.745, 0.60], "ahead, but by less"),
        ([0.70, 0.71, 0.77, 0.60], "ahead of 3, behind 1 of 4"),
    ],
)
def test_the_margin_of_the_paper_is_part_of_the_claim(rivals, verdict):
    """USPS: 2.3 points. The differences have no spread here, so every one of them counts."""
    runs = accuracies(ledl=0.75, **dict(zip(RIVALS, rivals, strict=True)))
    claim = claim_ahead(results_of(PLAN, **runs), "usps")
    assert "2.3 points" in claim.said
    assert claim.holds == verdict


def test_noise_is_called_noise():
    runs = accuracies(ledl=0.75, **dict.fromkeys(RIVALS, 0.70))
    runs["csdl"] = [{"accuracy": a} for a in 0.75 - SPREAD[::-1]]
    claim = claim_ahead(results_of(PLAN, **runs), "usps")
    assert "CSDL-SRC -0.2 (noise)" in claim.measured or "CSDL-SRC +0.2 (noise)" in claim.measured
    assert claim.holds == "ahead of 3, behind 0 of 4"


def test_gains_of_named_people():
    gains = np.full(38, 1.0)
    gains[[0, 1, 2, 9]] = 10.0
    gains[15] = 9.9
    named, all_of_20 = claims_on_people(gains)
    assert named.holds == "in 4 of 5"
    assert "class 16 +9.9" in named.measured
    assert all_of_20.holds == "yes"


def test_all_but_tennis():
    names = ["beach", "river", "tenniscourt"]
    claim = claim_on_tennis(names, np.array([1.0, 0.0, -2.0]))
    assert claim.holds == "yes"
    assert "tenniscourt -2.0" in claim.measured
    assert claim_on_tennis(names, np.array([1.0, -0.5, 2.0])).holds == "in 1 of 2"


def test_confusion_counts_every_test_sample_of_every_split():
    rng = np.random.default_rng(0)
    target = load_dataset("digits").target
    plan = Plan(("digits",), ("ledl",), n_splits=2)
    counts, runs = np.zeros((10, 10)), []
    for _, test in few_shot_splits(target, seeds=range(2)):
        predicted = rng.integers(10, size=len(test))
        runs.append({"predicted": predicted.tolist()})
        for true, taken in zip(target[test], predicted, strict=True):
            counts[true, taken] += 1
    found = results_of(plan, ledl=runs).confusion("digits", "ledl")
    np.testing.assert_allclose(found, counts / counts.sum(axis=1, keepdims=True))


def test_training_errors_are_those_of_the_definition(require_dataset):
    require_dataset("usps")
    results = results_of(PLAN, ledl=[{"settings": {}, "accuracy": 0.5}] * 4)
    model = results.fit_again("usps", "ledl")
    data = load_dataset("usps")
    train, _ = next(few_shot_splits(data.target, seeds=[0]))
    X = data.data[train].astype(float)
    X /= np.linalg.norm(X, axis=1)[:, None]
    S, H = model.transform(data.data[train]), np.eye(10)[data.target[train]]
    errors = training_errors(results, "usps", "ledl")
    parts = [(X, model.components_), (H, model.label_components_)]
    expected = [np.linalg.norm(T - S @ M) / np.linalg.norm(T) for T, M in parts]
    np.testing.assert_allclose(errors, expected, rtol=1e-4)


def test_other_protocols_say_nothing_about_the_paper():
    plan = Plan(("usps",), PLAN.methods, n_per_class=3, n_splits=4)
    results = results_of(plan, **accuracies(ledl=0.7, **dict.fromkeys(RIVALS, 0.6)))
    assert results.runs
    assert claims_table(results) is None
    assert claims_table(Results(Plan(("digits",)), {})) is None
