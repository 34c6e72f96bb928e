"""Finished cells on disk: complete, told apart, and safe among several writers."""

import json
import os
from concurrent.futures import ProcessPoolExecutor

import pytest

from ledl.experiments._cells import ABANDONED_AFTER, Store, environment, is_result

IDENTITY = {"dataset": "digits", "method": "crc", "seed": 3, "grid": {"alpha": (0.5, 1.0)}}


RESULT = {
    "accuracy": 0.25, "n_test": 4, "n_shared": 0, "settings": {"alpha": 0.5}, "fit_seconds": 0.1,
    "predict_seconds": 0.2, "seconds": 1.0, "warnings": [], "predicted": [0, 1, 1, 0],
}  # fmt: skip


def write_many(folder):
    """Each with its own files, so that all are written, and one that all of them write."""
    store = Store(folder)
    for i in range(50):
        store.put({**IDENTITY, "seed": os.getpid(), "i": i}, RESULT)
        store.put({**IDENTITY, "i": i}, {**RESULT, "n_test": 9000, "predicted": [7] * 9000})
    return os.getpid()


def the_file(folder):
    (path,) = (folder / "cells").glob("*/*.json")
    return path


def test_what_was_put_is_found_by_an_equal_identity_only(tmp_path):
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


@pytest.mark.parametrize(
    "change",
    [
        {"accuracy": "high"}, {"accuracy": 7}, {"accuracy": float("nan")}, {"accuracy": -1}, {"accuracy": True},
        {"fit_seconds": None}, {"seconds": "x"}, {"seconds": float("inf")}, {"warnings": 5}, {"warnings": [1]},
        {"predicted": [0]}, {"predicted": [0, 1, 1, "<b>"]}, {"n_test": 4.0}, {"settings": []},
        {"made_by": {"commit": 1}}, {"agreement": "all"},
    ],
    ids=str,
)  # fmt: skip
def test_results_that_no_cell_gives_are_not_believed(tmp_path, change):
    store = Store(tmp_path)
    store.put(IDENTITY, RESULT)
    entry = json.loads(the_file(tmp_path).read_text())
    the_file(tmp_path).write_text(json.dumps({**entry, "result": {**RESULT, **change}}))
    assert store.get(IDENTITY) is None
    assert is_result(RESULT)
    assert not is_result({})


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


def test_several_writers_leave_whole_files(tmp_path):
    with ProcessPoolExecutor(4) as pool:
        writers = set(pool.map(write_many, [tmp_path] * 4))
    for i in range(50):
        assert len(Store(tmp_path).get({**IDENTITY, "i": i})["predicted"]) == 9000
        assert all(Store(tmp_path).get({**IDENTITY, "seed": writer, "i": i}) == RESULT for writer in writers)
    assert len(list((tmp_path / "cells").glob("*/.*"))) == 0


def test_what_killed_writers_left_is_removed_when_it_is_old(tmp_path):
    store = Store(tmp_path)
    store.put(IDENTITY, RESULT)
    path = the_file(tmp_path)
    old, new = (path.parent / f".{path.name}.{end}" for end in ("old", "new"))
    not_ours = [path.parent / ".eslintrc.json.bak", tmp_path / ".settings.json.old"]
    for file in (old, new, *not_ours):
        file.write_text("{")
    long_ago = old.stat().st_mtime - 2 * ABANDONED_AFTER
    for file in (old, *not_ours):
        os.utime(file, (long_ago, long_ago))
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
