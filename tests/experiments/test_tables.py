"""Tables: the statistics against their definitions, and that every form can be read back."""

import csv
import io
import itertools
import re

import numpy as np
import pytest

from ledl.experiments import METHODS, PAPER_TABLE, Plan
from ledl.experiments._cells import Cell
from ledl.experiments._tables import (
    BEST,
    WITHIN_NOISE,
    Results,
    make_tables,
    mean_ranks,
    paired_test,
    summarise,
    to_csv,
    to_latex,
    to_markdown,
)

ACCURACIES = {
    ("usps", "ledl"): [0.80, 0.81, 0.82, 0.83],
    ("usps", "src"): [0.80, 0.82, 0.81, 0.83],
    ("usps", "crc"): [0.70, 0.71, 0.72, 0.74],
    ("usps", "ridge"): [0.79, 0.82, 0.80, 0.83],
    ("yaleb", "ledl"): [0.60, 0.61, 0.62, 0.63],
    ("yaleb", "src"): [0.70, 0.71, 0.72, 0.74],
    ("yaleb", "crc"): [0.65, 0.65, 0.66, 0.66],
}
PLAN = Plan(("usps", "yaleb"), ("src", "crc", "ledl", "ridge"), n_splits=4)


def run(accuracy):
    return {
        "accuracy": accuracy, "fit_seconds": 0.5, "predict_seconds": 12.0, "settings": {"alpha": 2.0**-8},
        "n_shared": 0, "warnings": [],
    }  # fmt: skip


def results_of(plan, accuracies=ACCURACIES):
    cells = {}
    for (dataset, method), values in accuracies.items():
        for seed, accuracy in enumerate(values):
            cells[Cell(dataset, method, seed, plan.select, plan.n_per_class)] = run(accuracy)
    return Results(plan, cells)


RESULTS = results_of(PLAN)
ROWS = summarise(RESULTS)
BY_KEY = {(row.dataset, row.method): row for row in ROWS}


def test_paired_test_agrees_with_all_permutations_of_signs():
    """An independent test with the same hypothesis: its exact p-value is near Student's."""
    rng = np.random.default_rng(0)
    for shift in (0.0, 0.5, 1.0):
        differences = rng.normal(shift, 1.0, size=12)
        signs = np.array(list(itertools.product([-1, 1], repeat=12)))
        exact = np.mean(np.abs((signs * differences).mean(axis=1)) >= abs(differences.mean()) - 1e-12)
        assert paired_test(differences, np.zeros(12)) == pytest.approx(exact, abs=0.02)


def test_paired_test_without_spread_or_splits():
    assert paired_test(np.array([1.0, 2.0]), np.array([1.0, 2.0])) == 1.0
    assert paired_test(np.array([1.0, 2.0]), np.array([0.5, 1.5])) == 0.0
    assert paired_test(np.array([0.1 + 0.2, 1.0]), np.array([0.3, 1.0])) == 1.0
    assert paired_test(np.array([1.0]), np.array([2.0])) is None


def test_rows_have_means_marks_ranks_and_the_paper():
    row = BY_KEY["usps", "ledl"]
    assert row.accuracy_mean == pytest.approx(81.5)
    assert row.accuracy_std == pytest.approx(np.std([80, 81, 82, 83], ddof=1))
    assert row.paper == PAPER_TABLE["usps"]["LEDL"] == 81.1
    assert [BY_KEY["usps", m].mark for m in ("src", "ledl", "crc")] == [BEST, BEST, ""]  # equal means
    assert [BY_KEY["yaleb", m].mark for m in ("ledl", "src", "crc")] == ["", BEST, ""]
    assert BY_KEY["usps", "ridge"].mark == WITHIN_NOISE
    assert [BY_KEY["usps", m].rank for m in ("ledl", "src", "ridge", "crc")] == [1.5, 1.5, 3.0, 4.0]
    assert mean_ranks(PLAN, ROWS) == {"src": 1.25, "crc": 2.5, "ledl": 2.25}


def test_differences_keep_their_sign():
    assert BY_KEY["yaleb", "src"].ledl_minus_this_mean == pytest.approx(-10.25)
    assert BY_KEY["usps", "crc"].ledl_minus_this_mean == pytest.approx(9.75)
    assert BY_KEY["usps", "ledl"].ledl_minus_this_mean is None
    text = to_markdown(make_tables(RESULTS, ROWS)[1])
    assert "-10.2 (p" in text
    assert "+9.8 (p" in text


def test_a_method_without_all_datasets_has_no_rank():
    accuracies = {key: values for key, values in ACCURACIES.items() if key != ("yaleb", "crc")}
    assert set(mean_ranks(PLAN, summarise(results_of(PLAN, accuracies)))) == {"src", "ledl"}


def test_csv_gives_back_the_rows():
    found = list(csv.DictReader(io.StringIO(to_csv(ROWS))))
    assert [(row["dataset"], row["method"]) for row in found] == [(row.dataset, row.method) for row in ROWS]
    assert float(found[0]["accuracy_mean"]) == ROWS[0].accuracy_mean
    assert found[2]["ledl_minus_this_mean"] == ""


def test_markdown_is_a_table_of_equal_rows():
    for table in make_tables(RESULTS, ROWS):
        lines = [line for line in to_markdown(table).splitlines() if line.startswith("|")]
        assert len(lines) == len(table.rows) + 2
        assert {line.count("|") for line in lines} == {len(table.header) + 1}
    assert "| LEDL | " in to_markdown(make_tables(RESULTS, ROWS)[0])


def test_latex_has_equal_rows_and_no_bare_specials():
    for table in make_tables(RESULTS, ROWS):
        text = to_latex(table)
        body = [line for line in text.splitlines() if line.endswith("\\\\")]
        assert len(body) == len(table.rows) + 1
        assert {line.count("&") for line in body} == {len(table.header) - 1}
        assert not re.search(r"(?<!\\)[%#_~^]", text)
        assert text.count("{") == text.count("}")
    assert r"\textbf{" in to_latex(make_tables(RESULTS, ROWS)[0])


def test_the_paper_is_quoted_for_its_own_protocol_only():
    plan = Plan(("usps",), ("src", "ledl"), n_per_class=3, n_splits=4)
    results = results_of(plan)
    rows = summarise(results)
    assert {row.paper for row in rows} == {None}
    assert "paper" not in make_tables(results, rows)[0].note


def test_one_split_has_neither_spread_nor_test():
    plan = Plan(("usps",), ("src", "ledl"), n_splits=1)
    results = results_of(plan)
    rows = summarise(results)
    assert [row.accuracy_std for row in rows] == [None, None]
    text = to_markdown(make_tables(results, rows)[0])
    assert "One random split." in text
    assert "±" not in text
    assert "| SRC | **80.0 (78.4)** | +0.0 |" in text


def test_weights_from_the_paper_are_neither_ranked_nor_marked():
    plan = Plan(("usps",), ("src", "ledl-paper"), n_splits=4)
    rows = summarise(results_of(plan, {**ACCURACIES, ("usps", "ledl-paper"): [0.99] * 4}))
    assert [(row.method, row.mark, row.rank) for row in rows] == [("src", BEST, 1.0), ("ledl-paper", "", None)]


def test_chosen_settings_are_counted():
    table = make_tables(RESULTS, ROWS)[-1]
    assert table.name == "settings"
    assert table.rows[0][1].text == "alpha 2^-8 (x4)"


def test_one_dataset_makes_one_table():
    plan = Plan(("usps",), ("src", "crc", "ledl"), "defaults", n_splits=4)
    results = results_of(plan)
    (table,) = make_tables(results, summarise(results))
    assert len(table.header) == 4
    assert [row[0].text for row in table.rows] == [METHODS[m].title for m in plan.methods]
