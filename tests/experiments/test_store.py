"""Finished cells on disk: complete, told apart, and safe among several writers."""

import json
import os
from concurrent.futures import ProcessPoolExecutor

import pytest

from ledl.experiments._store import ABANDONED_AFTER, Store, environment

IDENTITY = {"dataset": "digits", "method": "crc", "seed": 3, "grid": {"alpha": (0.5, 1.0)}}


def write_many(folder):
    store = Store(folder)
    for i in range(50):
        store.put({**IDENTITY, "seed": i % 5}, {"accuracy": 0.5, "predicted": list(range(2000))})
    return True


def the_file(folder):
    (path,) = (folder / "cells").glob("*/*.json")
    return path


def test_what_was_put_is_found_by_an_equal_identity_only(tmp_path):
    store = Store(tmp_path)
    assert store.get(IDENTITY) is None
    store.put(IDENTITY, {"accuracy": 0.25})
    assert Store(tmp_path).get({**IDENTITY, "grid": {"alpha": [0.5, 1.0]}}) == {"accuracy": 0.25}
    for change in ({"seed": 4}, {"method": "src"}, {"grid": {"alpha": [0.5]}}, {"more": None}):
        assert store.get({**IDENTITY, **change}) is None


@pytest.mark.parametrize("damage", ["", "{", "[]", "null", '{"identity": 1, "result": {}}', "\x00\x01"])
def test_a_damaged_file_counts_as_none_and_is_replaced(tmp_path, damage):
    store = Store(tmp_path)
    store.put(IDENTITY, {"accuracy": 0.25})
    the_file(tmp_path).write_text(damage)
    assert store.get(IDENTITY) is None
    store.put(IDENTITY, {"accuracy": 0.5})
    assert store.get(IDENTITY) == {"accuracy": 0.5}


def test_the_first_result_stays(tmp_path):
    store = Store(tmp_path)
    for seconds in (1.0, 2.0):
        store.put(IDENTITY, {"seconds": seconds})
    assert store.get(IDENTITY) == {"seconds": 1.0}


def test_a_file_of_another_cell_under_this_name_is_not_taken_for_it(tmp_path):
    store = Store(tmp_path)
    store.put(IDENTITY, {"accuracy": 0.25})
    path = the_file(tmp_path)
    path.write_text(json.dumps({"identity": {**IDENTITY, "seed": 9}, "result": {"accuracy": 1.0}}))
    assert store.get(IDENTITY) is None


def test_several_writers_leave_whole_files(tmp_path):
    with ProcessPoolExecutor(4) as pool:
        assert all(pool.map(write_many, [tmp_path] * 4))
    for i in range(5):
        assert len(Store(tmp_path).get({**IDENTITY, "seed": i})["predicted"]) == 2000
    assert len(list((tmp_path / "cells").glob("*/.*"))) == 0


def test_what_killed_writers_left_is_removed_when_it_is_old(tmp_path):
    store = Store(tmp_path)
    store.put(IDENTITY, {"accuracy": 0.25})
    path = the_file(tmp_path)
    old, new = (path.parent / f".{path.name}.{end}" for end in ("old", "new"))
    for temporary in (old, new):
        temporary.write_text("{")
    long_ago = old.stat().st_mtime - 2 * ABANDONED_AFTER
    os.utime(old, (long_ago, long_ago))
    store.sweep()
    assert (old.exists(), new.exists(), path.exists()) == (False, True, True)


def test_the_run_record_says_who_ran_what(tmp_path):
    store = Store(tmp_path)
    first, second = (store.write_run_record({"n_splits": n}) for n in (1, 2))
    assert first != second
    record = json.loads(second.read_text())
    assert record["options"] == {"n_splits": 2}
    assert set(record) == {"started", "options", *environment()}
    assert record["versions"]["scikit-learn"][0].isdigit()
