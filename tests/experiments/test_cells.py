"""One cell: what decides it, and that test samples choose nothing."""

import dataclasses

import numpy as np
import pytest
from sklearn.linear_model import RidgeClassifier
from sklearn.model_selection import ParameterGrid, StratifiedKFold
from sklearn.preprocessing import normalize
from sklearn.utils import Bunch

from ledl.datasets import few_shot_splits
from ledl.experiments import METHODS, _cells
from ledl.experiments._cells import Cell, load_dataset, run_cell

TIMES = ("fit_seconds", "predict_seconds", "select_seconds", "seconds")


def without_times(result):
    return {name: value for name, value in result.items() if name not in TIMES}


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 1},
        {"method": "src"},
        {"select": "defaults"},
        {"n_per_class": 4},
        {"settings": (("alpha", 0.5),)},
    ],
)
def test_what_changes_the_result_changes_the_identity(change):
    cell = Cell("digits", "crc", 0)
    assert dataclasses.replace(cell, **change).identity != cell.identity


def test_the_grid_and_the_data_are_part_of_the_identity(monkeypatch):
    cell = Cell("digits", "crc", 0)
    before = cell.identity
    monkeypatch.setitem(METHODS, "crc", dataclasses.replace(METHODS["crc"], grid={"alpha": [1.0]}))
    assert cell.identity != before
    monkeypatch.undo()
    monkeypatch.setattr(_cells, "dataset_digest", lambda name: "other")
    assert cell.identity != before


def test_settings_that_are_fixed_do_not_depend_on_the_selection():
    cells = [Cell("usps", "ledl-paper", 0, select) for select in ("cv", "defaults")]
    assert cells[0].known_settings == cells[1].known_settings == METHODS["ledl-paper"].fixed["usps"]


def test_accuracy_and_choice_are_those_of_a_plain_loop():
    """Ridge by hand: the first of the best of the grid over the folds, and the share of right labels."""
    X, y = load_dataset("digits").data.astype(float), load_dataset("digits").target
    X = normalize(X)
    train, test = next(few_shot_splits(y, seeds=[2]))
    folds = list(StratifiedKFold(5, shuffle=True, random_state=2).split(X[train], y[train]))
    scores = []
    for alpha in METHODS["ridge"].grid["ridgeclassifier__alpha"]:
        models = [(RidgeClassifier(alpha=alpha).fit(X[train][a], y[train][a]), b) for a, b in folds]
        scores.append(np.mean([model.score(X[train][b], y[train][b]) for model, b in models]))
    best = METHODS["ridge"].grid["ridgeclassifier__alpha"][int(np.argmax(scores))]
    result = run_cell(Cell("digits", "ridge", 2))
    assert result["settings"] == {"ridgeclassifier__alpha": best}
    right = RidgeClassifier(alpha=best).fit(X[train], y[train]).predict(X[test]) == y[test]
    assert result["accuracy"] == pytest.approx(right.mean(), abs=2 / len(test))  # float32 against float64
    assert result["n_test"] == len(test) == len(result["predicted"])


@pytest.mark.parametrize("method", [m for m in METHODS if METHODS[m].isotropic and METHODS[m].covers("digits")])
def test_a_rotation_of_the_samples_changes_nothing_for_methods_that_say_so(method):
    """What lets cross-validation run in the span of the training samples."""
    data = load_dataset("digits")
    train, test = next(few_shot_splits(data.target, n_per_class=3))
    X = data.data.astype(np.float64)
    rotation = np.linalg.qr(np.random.default_rng(0).standard_normal((X.shape[1],) * 2))[0]
    settings = ParameterGrid(dict(METHODS[method].grid))[0]
    labels = [
        METHODS[method].make(settings, 0).fit(Y[train], data.target[train]).predict(Y[test])
        for Y in (X, X @ rotation)
    ]
    assert np.mean(labels[0] == labels[1]) > 0.995


@pytest.mark.parametrize("method", ["ledl", "ledl-cv", "crc", "logistic"])
def test_test_samples_choose_nothing(monkeypatch, method):
    """Other test samples and labels: the same settings, and the same score in cross-validation."""
    data = load_dataset("digits")
    _, test = next(few_shot_splits(data.target, seeds=[0]))
    spoiled = Bunch(**data)
    spoiled.data = data.data.copy()
    spoiled.data[test] = np.random.default_rng(0).random((len(test), data.data.shape[1]))
    before = run_cell(Cell("digits", method, 0))
    monkeypatch.setattr(_cells, "load_dataset", lambda name: spoiled)
    after = run_cell(Cell("digits", method, 0))
    assert (after["settings"], after["cv_accuracy"]) == (before["settings"], before["cv_accuracy"])
    assert after["accuracy"] < before["accuracy"]


def test_a_method_that_chooses_tells_what_it_chose():
    data = load_dataset("digits")
    train, test = next(few_shot_splits(data.target, seeds=[3]))
    model = METHODS["ledl-cv"].make(seed=3).fit(data.data[train], data.target[train])
    results = [run_cell(Cell("digits", "ledl-cv", 3, select)) for select in ("cv", "defaults")]
    assert without_times(results[0]) == without_times(results[1])
    assert results[0]["settings"] == model.best_params_
    assert results[0]["cv_accuracy"] == model.cv_results_["mean_test_accuracy"][model.best_index_]
    assert results[0]["predicted"] == model.predict(data.data[test]).tolist()
    assert results[0]["select_seconds"] > results[0]["fit_seconds"] > 0  # 180 fits, and one


@pytest.mark.parametrize(
    ("n_classes", "n_per_class", "expected"), [(10, 5, 5), (38, 5, 5), (68, 5, 3), (102, 5, 2), (10, 2, 2)]
)
def test_folds_leave_out_as_many_samples_as_a_choice_needs(n_classes, n_per_class, expected):
    y = np.repeat(np.arange(n_classes), n_per_class)
    folds = _cells.folds(y, n_per_class, 0)
    assert len(folds) == expected
    held_out = np.concatenate([b for _, b in folds])
    assert len(np.unique(held_out)) == len(held_out)


def test_every_method_runs_alike_twice_and_has_a_small_grid():
    for name, method in METHODS.items():
        assert np.prod([len(values) for values in method.grid.values()]) <= 12
        if not method.covers("digits"):
            continue
        cell = Cell("digits", name, 1, "defaults", 3)
        first, second = run_cell(cell), run_cell(cell)
        assert without_times(first) == without_times(second)
        assert first["accuracy"] > 0.5, name


def test_wide_grids_hold_what_the_others_do_and_are_searched():
    for name, method in METHODS.items():
        for parameter, values in method.grid.items():
            assert set(values) <= set(method.grid_for("wide")[parameter]), name
    assert np.prod([len(values) for values in METHODS["ledl"].grid_for("wide").values()]) > 90
    cell = Cell("digits", "crc", 0, "wide")
    assert cell.identity != Cell("digits", "crc", 0).identity
    assert Cell("digits", "csdl", 0, "wide").identity == Cell("digits", "csdl", 0).identity
    assert run_cell(cell)["settings"]["alpha"] in METHODS["crc"].wide["alpha"]


@pytest.mark.torch
@pytest.mark.parametrize("method", ["crc", "src", "ledl", "ridge"])
def test_the_device_is_no_part_of_a_cell(method):
    cell = Cell("digits", method, 0, n_per_class=3)
    here, there = run_cell(cell), run_cell(cell, "cpu")
    assert there["settings"] == here["settings"]
    assert there["accuracy"] == pytest.approx(here["accuracy"], abs=1e-3)
    assert there["made_by"]["device"] == "cpu"
    assert "device" not in here["made_by"]


def test_a_looser_gap_is_compared_with_the_default():
    result = run_cell(Cell("digits", "ledl", 0, settings=(("transform_tol", 0.5), ("alpha", 2.0**-9))))
    assert 0 < result["agreement"] < 1
    assert "agreement" not in run_cell(Cell("digits", "ledl", 0, settings=(("alpha", 2.0**-9),)))
