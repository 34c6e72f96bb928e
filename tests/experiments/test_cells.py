"""Cells: what decides one, that test samples choose nothing, and the store of finished ones."""

import dataclasses
import json
import os
import time
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from sklearn.linear_model import RidgeClassifier
from sklearn.model_selection import ParameterGrid, StratifiedKFold
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import normalize
from sklearn.utils import Bunch

from ledl import LEDLClassifierCV
from ledl.datasets import few_shot_splits
from ledl.experiments import METHODS, _cells
from ledl.experiments._cells import (
    TRIED_POWERS,
    Cell,
    Store,
    environment,
    is_result,
    load_dataset,
    run_cell,
)
from ledl.files import ABANDONED_AFTER
from ledl.kernels import power_of

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
    """Ridge by hand: the first of the best powers and of the grid over the folds, and the right labels."""
    data, y = load_dataset("digits").data.astype(float), load_dataset("digits").target
    train, test = next(few_shot_splits(y, seeds=[2]))
    folds = list(StratifiedKFold(5, shuffle=True, random_state=2).split(data[train], y[train]))
    scores, choices = [], list(product((1.0, 0.5, 0.25), METHODS["ridge"].grid["ridgeclassifier__alpha"]))
    for power, alpha in choices:
        X = normalize(data**power)
        models = [(RidgeClassifier(alpha=alpha).fit(X[train][a], y[train][a]), b) for a, b in folds]
        scores.append(np.mean([model.score(X[train][b], y[train][b]) for model, b in models]))
    power, best = choices[int(np.argmax(scores))]
    X = normalize(data**power)
    result = run_cell(Cell("digits", "ridge", 2))
    assert result["settings"] == {"ridgeclassifier__alpha": best, "power": power}
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


def test_every_method_may_take_the_powers_that_ledl_may():
    assert [power_of(kernel) for kernel in LEDLClassifierCV().kernels] == list(TRIED_POWERS)


@pytest.mark.parametrize(("method", "seen"), [("crc", False), ("lda", True), ("lcksvd", True)])
def test_a_power_of_the_features_is_a_setting_of_every_method(method, seen):
    X, y = load_dataset("digits").data.astype(float), load_dataset("digits").target
    given = METHODS[method].make({"power": 0.25}).fit(X[:100], y[:100]).predict(X[100:300])
    mapped = METHODS[method].make().fit(X[:100] ** 0.25, y[:100]).predict(X[100:300] ** 0.25)
    assert (given == mapped).all()
    assert isinstance(METHODS[method].make({"power": 0.25}), Pipeline) == seen


@pytest.mark.parametrize("method", ["ledl", "ledl-cv", "crc", "logistic"])
def test_test_samples_choose_nothing(monkeypatch, method):
    """Other test samples and labels: the same settings, and the same score in cross-validation."""
    data = load_dataset("digits")
    _, test = next(few_shot_splits(data.target, n_per_class=2, seeds=[0]))
    spoiled = Bunch(**data)
    spoiled.data = data.data.copy()
    spoiled.data[test] = np.random.default_rng(0).random((len(test), data.data.shape[1]))
    before = run_cell(Cell("digits", method, 0, n_per_class=2))
    monkeypatch.setattr(_cells, "load_dataset", lambda name: spoiled)
    after = run_cell(Cell("digits", method, 0, n_per_class=2))
    assert (after["settings"], after["cv_accuracy"]) == (before["settings"], before["cv_accuracy"])
    assert after["accuracy"] < before["accuracy"]


def test_a_method_that_chooses_reports_its_choice():
    data = load_dataset("digits")
    train, test = next(few_shot_splits(data.target, n_per_class=2, seeds=[3]))
    model = METHODS["ledl-cv"].make(seed=3).fit(data.data[train], data.target[train])
    results = [run_cell(Cell("digits", "ledl-cv", 3, select, 2)) for select in ("cv", "defaults")]
    assert without_times(results[0]) == without_times(results[1])
    assert results[0]["settings"] == model.best_params_
    assert results[0]["cv_accuracy"] == model.cv_results_["mean_test_accuracy"][model.best_index_]
    assert results[0]["predicted"] == model.predict(data.data[test]).tolist()
    assert results[0]["select_seconds"] > results[0]["fit_seconds"] > 0  # 72 fits, and one


def test_the_unlabelled_part_decides_only_cells_of_semi_supervised_methods():
    for method, same in [("crc", True), ("label-propagation", False)]:
        cells = [Cell("digits", method, 0, n_per_class=2, unlabelled=part) for part in ("all", "half")]
        assert (cells[0].identity == cells[1].identity) == same
        if same:
            assert without_times(run_cell(cells[0])) == without_times(run_cell(cells[1]))


def test_halves_are_all_test_samples_once_and_depend_on_the_seed():
    test = np.arange(100, 201)
    seen, new = _cells.halves(test, 3)
    assert (len(seen), len(new)) == (51, 50)
    assert sorted([*seen, *new]) == test.tolist()
    assert _cells.halves(test, 3)[1].tolist() == new.tolist()
    assert _cells.halves(test, 4)[1].tolist() != new.tolist()


def test_labels_of_test_samples_and_samples_that_are_hidden_teach_nothing(monkeypatch):
    """Other labels of the test samples change no answer. Other hidden samples change no choice."""
    data, cells = load_dataset("digits"), {}
    for part in ("all", "half"):
        cells[part] = Cell("digits", "label-spreading", 0, n_per_class=2, unlabelled=part)
    _, test = next(few_shot_splits(data.target, n_per_class=2, seeds=[0]))
    _, hidden = _cells.halves(test, 0)
    before = {part: run_cell(cell) for part, cell in cells.items()}
    relabelled, spoiled = Bunch(**data), Bunch(**data)
    relabelled.target = data.target.copy()
    relabelled.target[test] = 9 - data.target[test]
    spoiled.data = data.data.copy()
    spoiled.data[hidden] = np.random.default_rng(0).random((len(hidden), data.data.shape[1]))
    monkeypatch.setattr(
        _cells, "split", lambda *cell: next(few_shot_splits(data.target, n_per_class=2, seeds=[0]))
    )
    monkeypatch.setattr(_cells, "load_dataset", lambda name: relabelled)
    for part, cell in cells.items():
        after = run_cell(cell)
        assert after["predicted"] == before[part]["predicted"]
        assert after["accuracy"] < 0.2 < before[part]["accuracy"]
    monkeypatch.setattr(_cells, "load_dataset", lambda name: spoiled)
    after = run_cell(cells["half"])
    assert (after["settings"], after["cv_accuracy"]) == (
        before["half"]["settings"],
        before["half"]["cv_accuracy"],
    )
    assert after["accuracy"] < before["half"]["accuracy"]


def test_answers_are_the_transduction_or_predictions_of_new_samples():
    """Ours by hand, on the rows of the split: all others without labels, or half of them."""
    data = load_dataset("digits")
    train, test = next(few_shot_splits(data.target, n_per_class=3, seeds=[1]))
    seen, new = _cells.halves(test, 1)
    for part, given in [("all", np.arange(len(data.target))), ("half", np.sort([*train, *seen]))]:
        partly = np.where(np.isin(given, train), data.target[given], -1)
        model = METHODS["ledl-semi"].make(seed=1).fit(data.data[given], partly)
        result = run_cell(Cell("digits", "ledl-semi", 1, n_per_class=3, unlabelled=part))
        expected = model.transduction_[test] if part == "all" else model.predict(data.data[new])
        assert result["predicted"] == expected.tolist()
        assert result["settings"] == {"method": model.method_}
        assert result["cv_accuracy"] == model.hidden_results_["accuracy"].max()


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
    cell = Cell("digits", "ledl", 0, "defaults", 2)
    loose = run_cell(dataclasses.replace(cell, settings=(("transform_tol", 0.5),)))
    assert 0 < loose["agreement"] < 1
    assert "agreement" not in run_cell(cell)


# The store.

IDENTITY = {"dataset": "digits", "method": "crc", "seed": 3, "grid": {"alpha": (0.5, 1.0)}}
RESULT = {
    "accuracy": 0.25, "n_test": 4, "n_shared": 0, "settings": {"alpha": 0.5}, "fit_seconds": 0.1,
    "predict_seconds": 0.2, "seconds": 1.0, "warnings": [], "predicted": [0, 1, 1, 0],
}  # fmt: skip


def write_many(folder):
    """Write files of its own, so that all are written, and files that every process writes."""
    store = Store(folder)
    for i in range(50):
        store.put({**IDENTITY, "seed": os.getpid(), "i": i}, RESULT)
        store.put({**IDENTITY, "i": i}, {**RESULT, "n_test": 9000, "predicted": [7] * 9000})
    return os.getpid()


def the_file(folder):
    (path,) = (folder / "cells").glob("*/*.json")
    return path


def test_a_result_is_found_only_by_an_equal_identity(tmp_path):
    store = Store(tmp_path)
    assert store.get(IDENTITY) is None
    store.put(IDENTITY, RESULT)
    assert Store(tmp_path).get({**IDENTITY, "grid": {"alpha": [0.5, 1.0]}}) == RESULT
    for change in ({"seed": 4}, {"method": "src"}, {"grid": {"alpha": [0.5]}}, {"more": None}):
        assert store.get({**IDENTITY, **change}) is None


DAMAGES = ["", "{", "[]", "null", '{"identity": 1, "result": {}}', "\x00\x01", "[" * 200_000]


@pytest.mark.parametrize("damage", DAMAGES, ids=range(len(DAMAGES)))
def test_a_damaged_file_counts_as_none_and_is_replaced(tmp_path, damage):
    store = Store(tmp_path)
    store.put(IDENTITY, RESULT)
    the_file(tmp_path).write_text(damage)
    assert store.get(IDENTITY) is None
    store.put(IDENTITY, {**RESULT, "accuracy": 0.5})
    assert store.get(IDENTITY)["accuracy"] == 0.5


def test_a_flipped_bit_never_changes_a_result(tmp_path, rng):
    store, n_damaged = Store(tmp_path), 0
    store.put(IDENTITY, RESULT)
    whole = the_file(tmp_path).read_bytes()
    for _ in range(500):
        content = bytearray(whole)
        content[rng.integers(len(content))] ^= 1 << int(rng.integers(8))
        the_file(tmp_path).write_bytes(content)
        assert store.get(IDENTITY) in (None, RESULT)
        n_damaged += store.get(IDENTITY) is None
    assert n_damaged > 400
    entry = json.loads(whole)
    del entry["checksum"]  # as old versions wrote it
    the_file(tmp_path).write_text(json.dumps(entry))
    assert store.get(IDENTITY) == RESULT


def test_what_is_no_file_counts_as_none_and_is_not_replaced(tmp_path):
    store = Store(tmp_path)
    store.put(IDENTITY, RESULT)
    path = the_file(tmp_path)
    for make in (os.mkfifo, os.mkdir):
        path.rmdir() if path.is_dir() else path.unlink()
        make(path)
        assert store.get(IDENTITY) is None
        with pytest.raises(OSError, match=r"\.json (exists and is not a regular file|is a folder)"):
            store.put(IDENTITY, RESULT)


@pytest.mark.parametrize("target", ["/dev/zero", "precious"])
def test_a_link_counts_as_none_and_is_replaced(tmp_path, target):
    """A folder of results from a stranger may have links to files of the user."""
    store = Store(tmp_path)
    store.put(IDENTITY, RESULT)
    path, target = the_file(tmp_path), Path(tmp_path, target)
    path.unlink()
    if target.parent == tmp_path:
        target.write_text("precious")
    path.symlink_to(target)
    assert store.get(IDENTITY) is None
    store.put(IDENTITY, RESULT)
    assert store.get(IDENTITY) == RESULT
    assert target.parent != tmp_path or target.read_text() == "precious"


def test_a_file_without_end_is_not_read(tmp_path, monkeypatch):
    store = Store(tmp_path)
    store.put(IDENTITY, RESULT)
    with the_file(tmp_path).open("r+b") as file:
        file.truncate(2**40)  # a hole
    assert store.get(IDENTITY) is None
    store.put(IDENTITY, RESULT)
    assert store.get(IDENTITY) == RESULT


@pytest.mark.parametrize(
    "change",
    [
        {"accuracy": "high"}, {"accuracy": 7}, {"accuracy": float("nan")}, {"accuracy": -1}, {"accuracy": True},
        {"fit_seconds": None}, {"seconds": "x"}, {"seconds": float("inf")}, {"warnings": 5}, {"warnings": [1]},
        {"predicted": [0]}, {"predicted": [0, 1, 1, "<b>"]}, {"n_test": 4.0}, {"settings": []},
        {"n_shared": -1}, {"n_shared": 5},
        {"made_by": {"commit": 1}}, {"agreement": "all"}, {"agreement": 5}, {"agreement": 0.5},
        {"seconds": 10**30}, {"fit_seconds": 10**24}, {"predict_seconds": 1e300},
        {"predicted": [0, 1, 1, 10**24]},
        {"select_seconds": None}, {"select_seconds": -5.0}, {"cv_accuracy": "=1+2"},
    ],
    ids=str,
)  # fmt: skip
def test_results_that_no_cell_gives_are_not_believed(tmp_path, change):
    store = Store(tmp_path)
    store.put(IDENTITY, RESULT)
    entry = json.loads(the_file(tmp_path).read_text())
    del entry["checksum"]  # strangers make their own
    the_file(tmp_path).write_text(json.dumps({**entry, "result": {**RESULT, **change}}))
    assert store.get(IDENTITY) is None
    assert is_result(RESULT)
    assert not is_result({})


@pytest.mark.parametrize("method", ["ledl-semi", "label-spreading"])
@pytest.mark.parametrize("unlabelled", ["all", "half"])
def test_semi_supervised_results_are_found_again_and_checked(tmp_path, method, unlabelled):
    cell = Cell("digits", method, 0, "cv", 2, unlabelled=unlabelled)
    store, result = Store(tmp_path), {**run_cell(cell), "seconds": 1.0}
    store.put(cell.identity, result)
    assert store.get_checked(cell)["accuracy"] == result["accuracy"]
    entry = json.loads(the_file(tmp_path).read_text())
    for change in ({"accuracy": result["accuracy"] / 2}, {"settings": {"alpha": 3}}):
        the_file(tmp_path).write_text(json.dumps({**entry, "result": {**entry["result"], **change}}))
        assert store.get_checked(cell) is None


def test_the_first_result_stays(tmp_path):
    store = Store(tmp_path)
    for seconds in (1.0, 2.0):
        store.put(IDENTITY, {**RESULT, "seconds": seconds})
    assert store.get(IDENTITY)["seconds"] == 1.0


def test_a_file_of_another_cell_under_this_name_is_not_taken_for_it(tmp_path):
    store = Store(tmp_path)
    store.put(IDENTITY, RESULT)
    path = the_file(tmp_path)
    path.write_text(json.dumps({"identity": {**IDENTITY, "seed": 9}, "result": RESULT}))
    assert store.get(IDENTITY) is None


def test_several_writers_leave_complete_files(tmp_path):
    with ProcessPoolExecutor(4) as pool:
        writers = set(pool.map(write_many, [tmp_path] * 4))
    for i in range(50):
        assert len(Store(tmp_path).get({**IDENTITY, "i": i})["predicted"]) == 9000
        assert all(Store(tmp_path).get({**IDENTITY, "seed": writer, "i": i}) == RESULT for writer in writers)
    assert len(list((tmp_path / "cells").glob("*/.*"))) == 0


def test_files_of_killed_writers_are_removed_when_they_are_old(tmp_path, monkeypatch):
    store = Store(tmp_path)
    store.put(IDENTITY, RESULT)
    path = the_file(tmp_path)
    old, new = (path.parent / f".{digit * 16}-{digit * 16}.part" for digit in "01")
    not_ours = [path.parent / ".eslintrc.json.bak", tmp_path / ".settings.json.old"]
    for file in (old, new, *not_ours):
        file.write_text("{")
    later = time.time() + 2 * ABANDONED_AFTER
    os.utime(new, (later, later))
    monkeypatch.setattr(time, "time", lambda: later)
    store.prepare()
    assert (old.exists(), new.exists(), path.exists()) == (False, True, True)
    assert all(file.exists() for file in not_ours)


def test_the_run_record_says_who_ran_what(tmp_path):
    store = Store(tmp_path)
    record = [store.write_run_record({"n_splits": n}) for n in (1, 2)][-1]
    written = [json.loads(path.read_text()) for path in sorted((tmp_path / "runs").glob("*.json"))]
    assert len(written) == 2
    assert written[-1] == record
    assert record["options"] == {"n_splits": 2}
    assert set(record) == {"started", "options", *environment()}
    assert record["versions"]["scikit-learn"][0].isdigit()


def test_many_files_are_read_once_for_their_digests_and_labels(tmp_path):
    files = [str(tmp_path / f"{i}.npz") for i in range(20)]
    for i, file in enumerate(files):
        np.savez(file, X=np.full((4, 2), i), y=np.array([0, 0, 1, 1]))
    with patch.object(_cells, "read_samples", wraps=_cells.read_samples) as read:
        for _ in range(3):
            assert len({_cells.dataset_digest(file) for file in files}) == 20
            assert all(len(_cells.labels_of(file)) == 4 for file in files)
    assert read.call_count <= 40
