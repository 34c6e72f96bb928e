"""Tables: statistics against their definitions, every format read back, every verdict on the paper's claims."""

import csv
import io
import itertools
import re
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.pipeline import Pipeline

from ledl.csv_cells import to_cell
from ledl.datasets import few_shot_splits
from ledl.experiments import METHODS, PAPER_TABLE, Plan
from ledl.experiments._cells import Cell, halves, load_dataset
from ledl.experiments._tables import (
    BEST,
    RIVALS,
    WITHIN_NOISE,
    Entry,
    Results,
    Table,
    claim_ahead,
    claim_on_tennis,
    claims_on_people,
    claims_table,
    gain_kept,
    labels_table,
    make_tables,
    mean_ranks,
    paired_test,
    splits_to_csv,
    summarise,
    to_csv,
    to_latex,
    to_markdown,
    training_errors,
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


def run(accuracy=0.5, **more):
    return {
        "accuracy": accuracy, "fit_seconds": 0.5, "predict_seconds": 12.0, "settings": {"alpha": 2.0**-8},
        "n_shared": 0, "warnings": [], **more,
    }  # fmt: skip


def results_of(plan, accuracies=ACCURACIES):
    cells = {}
    for (dataset, method), values in accuracies.items():
        for seed, accuracy in enumerate(values):
            found = accuracy if isinstance(accuracy, dict) else run(accuracy)
            cells[Cell(dataset, method, seed, plan.select, plan.n_per_class)] = found
    return Results(plan, cells)


def unpadded(markdown):
    return re.sub(r" +", " ", markdown)


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
    text = unpadded(to_markdown(make_tables(RESULTS, ROWS)[1]))
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


def test_no_name_in_a_csv_table_is_a_formula():
    results = SimpleNamespace(runs={("/data/=1+2.npz", "@mine"): [{"settings": {}}]})
    row = ROWS[0]._replace(dataset="/data/=1+2.npz", method="@mine")
    for text in (splits_to_csv(results), to_csv([row])):
        (read,) = csv.DictReader(io.StringIO(text))
        assert read["dataset"] == to_cell("=1+2")
        assert not any(value.startswith(("=", "@")) for value in read.values())


def test_both_csv_tables_have_the_same_names():
    cells = {cell: {**found, "n_test": 1} for cell, found in RESULTS.cells.items()}
    by_split = list(csv.DictReader(io.StringIO(splits_to_csv(Results(PLAN, cells)))))
    names = {(row["dataset"], row["method"]) for row in csv.DictReader(io.StringIO(to_csv(ROWS)))}
    assert {(row["dataset"], row["method"]) for row in by_split} == names


def test_markdown_is_a_table_of_equal_rows():
    for table in make_tables(RESULTS, ROWS):
        lines = [line for line in to_markdown(table).splitlines() if line.startswith("|")]
        assert len(lines) == len(table.rows) + 2
        assert {line.count("|") for line in lines} == {len(table.header) + 1}
    assert "| LEDL | **81.5 ± 1.3 (81.1)** | 61.5 ± 1.3 (81.3) |" in unpadded(
        to_markdown(make_tables(RESULTS, ROWS)[0])
    )


def test_latex_has_equal_rows_and_no_bare_specials():
    for table in make_tables(RESULTS, ROWS):
        text = to_latex(table)
        body = [line for line in text.splitlines() if line.endswith("\\\\")]
        assert len(body) == len(table.rows) + 1
        (n_columns,) = {line.count("&") + 1 for line in body[1:]}
        assert 1 + sum(map(int, re.findall(r"\\multicolumn{(\d+)}", body[0]))) == n_columns
        layout = re.search(r"begin{tabular}{(.*)}", text)[1].replace("@{ }", "")
        assert len(layout) == n_columns
        assert not re.search(r"(?<!\\)[%#_~^]", text)
        assert text.count("{") == text.count("}")
    assert r"\textbf{" in to_latex(make_tables(RESULTS, ROWS)[0])


def test_numbers_of_an_entry_have_columns_of_their_own():
    entries = [
        Entry("a_b"),
        Entry("84.6 ± 2.2 (81.1)", mark="best"),
        Entry("+1.2 (p = 0.03)"),
        Entry("1 / 2 / 3"),
    ]
    text = to_latex(Table("t", "T", ["method", "Accuracy", "d", "times"], [entries], ""))
    assert r"a\_b & \textbf{84.6} & $\pm$ 2.2 & 81.1 & +1.2 & p = 0.03 & 1 & 2 & 3 \\" in text
    assert r"{lr@{ }lrrrrrr}" in text


def test_latex_of_names_and_empty_entries():
    """A row that begins with "[" would be an option of the row before; a method without a mean has no sign."""
    rows = [[Entry("a"), Entry("84.6 ± 2.2")], [Entry("[b]"), Entry("")]]
    text = to_latex(Table("t", "T", ["method", "Accuracy"], rows, ""))
    assert r"{[}b] &  &  \\" in text


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
    text = unpadded(to_markdown(make_tables(results, rows)[0]))
    assert "; one split; " in text
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


@pytest.mark.parametrize("select", ["cv", "wide", "defaults"])
@pytest.mark.parametrize("datasets", [("usps",), ("caltech101_pyramid",), ("usps", "yaleb", "caltech101")])
@pytest.mark.parametrize("n_splits", [1, 4, 12])
def test_a_caption_is_short_and_says_a_thing_once(select, datasets, n_splits):
    plan = Plan(datasets, ("src", "ledl", "ledl-cv", "ledl-paper", "lda"), select, n_splits=n_splits)
    accuracies = np.linspace(0.5, 0.6, n_splits)
    results = results_of(plan, {(cell.dataset, cell.method): accuracies for cell in plan.cells()})
    for table in make_tables(results, summarise(results)):
        if not table.prose:
            caption = re.search(r"\\caption\{(.*)\}", to_latex(table)).group(1)
            assert len(caption.split()) < 60
        sentences = [text.strip() for text in re.split(r"[.;] ", table.full_note("Bold", "underlined"))]
        assert len(set(sentences)) == len(sentences)
        assert table.full_note("Bold", "underlined").count("paired t-test") <= 1


def test_captions_name_methods_that_are_not_ranked_or_have_more_candidates():
    methods = ("src", "ledl-cv", "ledl-paper")
    notes = {}
    for select in ("cv", "defaults"):
        plan = Plan(("usps",), methods, select, n_splits=4)
        results = results_of(plan, {("usps", method): [0.8, 0.81, 0.82, 0.8] for method in methods})
        notes[select] = make_tables(results, summarise(results))[0].note
    assert "Not ranked: LEDL, paper's weights. LEDL (auto-tuned) has more candidates." in notes["cv"]
    assert "Not ranked: LEDL (auto-tuned); LEDL, paper's weights." in notes["defaults"]
    assert "over only 4 splits" in notes["cv"]


# Semi-supervised methods.


def test_the_interval_of_the_mean_lead_is_that_of_the_definition():
    ledl, src = (50 * np.array([ACCURACIES[d, m] for d in PLAN.datasets]).sum(axis=0) for m in ("ledl", "src"))
    half = 3.182446 * (ledl - src).std(ddof=1) / np.sqrt(4)  # Student's t for 3 degrees of freedom
    mean, ends = RESULTS.mean_lead("ledl", "src")
    assert mean == pytest.approx((ledl - src).mean())
    assert ends == pytest.approx((mean - half, mean + half))
    text = to_markdown(make_tables(RESULTS, ROWS)[1])
    assert f"{mean:+.1f} ({ends[0]:+.1f} to {ends[1]:+.1f})" in text
    assert "95 % intervals" in text


def test_new_samples_are_the_same_for_all_methods_and_the_gain_is_counted_on_them():
    """Supervised methods are counted on the half that the others have not seen."""
    target, plan = load_dataset("digits").target, Plan(("digits",), ("ledl-semi", "ledl-cv"), n_splits=2)
    rng, cells, expected = np.random.default_rng(0), {}, []
    for cell in plan.cells():
        _, test = next(few_shot_splits(target, seeds=[cell.seed]))
        predicted = np.where(rng.random(len(test)) < 0.7, target[test], -1)
        cells[cell] = run(0.9 if cell.method == "ledl-semi" else 0.7, predicted=predicted.tolist())
        if cell.method == "ledl-cv":
            _, new = halves(test, cell.seed)
            answers = dict(zip(test.tolist(), predicted, strict=True))
            expected.append(np.mean([answers[i] == target[i] for i in new.tolist()]))
    cells |= {cell: run(0.8) for cell in plan.new_sample_cells()}
    results = Results(plan, cells)
    new = results.on_new_samples.accuracies
    assert new["digits", "ledl-cv"].tolist() == pytest.approx(100 * np.array(expected))
    assert new["digits", "ledl-semi"].tolist() == [80.0, 80.0]
    share = (0.8 - np.mean(expected)) / 0.2
    assert gain_kept(results, "ledl-semi") == pytest.approx(share)
    behind = {cell: run(0.6) for cell in plan.cells() if cell.method == "ledl-semi"}
    assert gain_kept(Results(plan, {**cells, **behind}), "ledl-semi") is None  # there is no gain to keep
    table = next(t for t in make_tables(results, summarise(results)) if t.name == "new-samples")
    assert [entry.text for entry in table.rows[0]] == ["LEDL, semi-supervised", "80.0 ± 0.0"]
    assert f"keeps {100 * share:.0f} % of its gain" in table.note


def test_accuracies_over_labels_are_means_of_what_was_run():
    plan = Plan(("digits",), ("label-propagation", "lda"), n_splits=5)
    cells = {cell: run(cell.n_per_class / 20 + cell.seed / 10) for cell in plan.study_cells()}
    assert {cell.n_per_class for cell in cells if cell.method == "lda"} == {2, 3, 5, 10}
    assert {cell.seed for cell in cells} == {0, 1, 2}
    at_defaults = {(cell.method, cell.n_per_class) for cell in cells if cell.select == "defaults"}
    assert at_defaults == {("label-propagation", 1), ("lda", 2)}
    (table,) = labels_table(Results(plan, cells))
    assert table.header == ["method", "1", "2", "3", "5", "10"]
    assert [entry.text for entry in table.rows[0][1:]] == ["15.0", "20.0", "25.0", "35.0", "60.0"]
    assert [entry.text for entry in table.rows[1][1:]] == ["", "20.0", "25.0", "35.0", "60.0"]
    assert labels_table(Results(PLAN, cells)) == []


# The paper's claims.

CLAIM_PLAN = Plan(("usps",), ("src", "crc", "csdl", "lcksvd", "ledl"), n_splits=4)
SPREAD = np.array([0.0, 0.01, -0.01, 0.005])


def on_usps(plan=CLAIM_PLAN, **values):
    return results_of(plan, {("usps", method): found for method, found in values.items()})


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
    rates = {"ledl": 0.75, **dict(zip(RIVALS, rivals, strict=True))}
    claim = claim_ahead(on_usps(**{method: rate + SPREAD for method, rate in rates.items()}), "usps")
    assert "2.3 points" in claim.said
    assert claim.holds == verdict


def test_noise_is_called_noise():
    rates = {**dict.fromkeys(RIVALS, 0.70 + SPREAD), "ledl": 0.75 + SPREAD, "csdl": 0.75 - SPREAD[::-1]}
    claim = claim_ahead(on_usps(**rates), "usps")
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
        runs.append(run(predicted=predicted.tolist()))
        for true, taken in zip(target[test], predicted, strict=True):
            counts[true, taken] += 1
    found = results_of(plan, {("digits", "ledl"): runs}).confusion("digits", "ledl")
    np.testing.assert_allclose(found, counts / counts.sum(axis=1, keepdims=True))


@pytest.mark.parametrize("power", [1.0, 0.25])
@pytest.mark.parametrize("method", ["ledl", "lcksvd"])
def test_training_errors_are_those_of_the_definition(require_dataset, method, power):
    require_dataset("usps")
    results = on_usps(**{method: [run(settings={"power": power})] * 4})
    model = results.fit_again("usps", method)
    data = load_dataset("usps")
    train, _ = next(few_shot_splits(data.target, seeds=[0]))
    X = np.sign(data.data[train]) * np.abs(data.data[train].astype(float)) ** power
    X /= np.linalg.norm(X, axis=1)[:, None]
    S, H = model.transform(data.data[train]), np.eye(10)[data.target[train]]
    errors = training_errors(results, "usps", method)
    model = model[-1] if isinstance(model, Pipeline) else model
    parts = [(X, model.components_), (H, model.label_components_)]
    expected = [np.linalg.norm(T - S @ M) / np.linalg.norm(T) for T, M in parts]
    np.testing.assert_allclose(errors, expected, rtol=1e-4)


def test_other_protocols_say_nothing_about_the_paper():
    plan = Plan(("usps",), CLAIM_PLAN.methods, n_per_class=3, n_splits=4)
    results = on_usps(plan, **dict.fromkeys(CLAIM_PLAN.methods, 0.7 + SPREAD))
    assert results.runs
    assert claims_table(results) == []
    assert claims_table(Results(Plan(("digits",)), {})) == []
