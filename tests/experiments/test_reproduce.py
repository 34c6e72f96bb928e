"""Whole runs: any number of jobs, killed and started again, and what goes wrong on the way."""

import csv
import dataclasses
import os
import random
import shlex
import signal
import subprocess
import sys
import time

import pytest

from ledl.experiments import METHODS, Plan, reproduce
from ledl.experiments._cells import Done, Store
from ledl.experiments._reproduce import Progress, check, command, run_cells

PLAN = Plan(("digits",), ("crc", "ridge", "ledl"), "cv", n_per_class=3, n_splits=3)
TIMES = ("fit_seconds", "predict_seconds")


def table(folder):
    """The table but for its times."""
    with (folder / "table.csv").open(newline="") as file:
        return [{k: v for k, v in row.items() if k not in TIMES} for row in csv.DictReader(file)]


def command_for(folder, n_jobs):
    return [sys.executable, "-m", *shlex.split(command(PLAN, folder, n_jobs, figures=False))]


def cell_files(folder):
    return {path: path.stat().st_mtime_ns for path in (folder / "cells").glob("*/*.json")}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    outcome = reproduce(PLAN, folder, figures=False)
    return folder, outcome


def test_a_run_writes_everything(undisturbed):
    folder, outcome = undisturbed
    assert not outcome.failures
    assert {row.method for row in outcome.rows} == set(PLAN.methods)
    for name in ("table.md", "table.tex", "table.csv", "report.html"):
        assert (folder / name).stat().st_size > 0
    assert len(list((folder / "runs").glob("*.json"))) == 1
    assert len(cell_files(folder)) == 9


def test_the_same_bit_for_bit_for_any_number_of_jobs(undisturbed, tmp_path):
    folder, _ = undisturbed
    for done in run_cells(PLAN.cells(), Store(tmp_path), n_jobs=2):
        expected = Store(folder).get(done.cell.identity)
        times = {name for name in expected if name.endswith("seconds")}
        assert {k: v for k, v in done.result.items() if k not in times} == {
            k: v for k, v in expected.items() if k not in times
        }


def test_a_second_start_computes_nothing(undisturbed, monkeypatch):
    folder, _ = undisturbed
    before = cell_files(folder)
    monkeypatch.setattr("ledl.experiments._cells.run_cell", lambda cell, device: pytest.fail("computed again"))
    assert reproduce(PLAN, folder, figures=False).rows == undisturbed[1].rows
    assert cell_files(folder) == before


def test_killed_at_random_moments_it_ends_with_the_table_of_an_undisturbed_run(undisturbed, tmp_path):
    words = command_for(tmp_path, n_jobs=2)
    rng = random.Random(0)
    n_killed, kept = 0, {}
    while n_killed < 6:
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, start_new_session=True)
        latest, enough = time.monotonic() + rng.uniform(1.5, 6.0), len(kept) + rng.randint(1, 3)
        while process.poll() is None and time.monotonic() < latest and len(cell_files(tmp_path)) < enough:
            time.sleep(0.02)
        if process.poll() is not None:
            break  # it was faster
        # The whole group, or the parent alone, whose workers must then do no harm.
        (os.killpg if rng.random() < 0.5 else os.kill)(process.pid, signal.SIGKILL)
        process.wait()
        n_killed += 1
        found = cell_files(tmp_path)
        assert kept.items() <= found.items()  # nothing finished is lost or computed again
        kept = found
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, timeout=300)
    assert n_killed >= 1  # a machine so fast that it is never killed proves nothing
    assert table(tmp_path) == table(undisturbed[0])
    assert kept.items() <= cell_files(tmp_path).items()


def test_two_runs_on_one_store_end_with_the_same_table(undisturbed, tmp_path):
    words = command_for(tmp_path, n_jobs=1)
    both = [subprocess.Popen(words, stdout=subprocess.DEVNULL) for _ in range(2)]
    assert [process.wait(timeout=300) for process in both] == [0, 0]
    assert table(tmp_path) == table(undisturbed[0])
    assert len(cell_files(tmp_path)) == 9


def test_a_method_that_fails_is_named_and_does_not_stop_the_others(tmp_path, monkeypatch):
    broken = dataclasses.replace(
        METHODS["ridge"], steps=[("sklearn.linear_model:RidgeClassifier", {"tol": -1})]
    )
    monkeypatch.setitem(METHODS, "ridge", broken)
    plan = dataclasses.replace(PLAN, select="defaults")
    outcome = reproduce(plan, tmp_path, figures=False)
    assert {row.method for row in outcome.rows} == {"crc", "ledl"}
    assert len(outcome.failures) == 3
    assert all("digits, ridge, split" in text and "tol" in text for text in outcome.failures)
    assert "digits, ridge, split 0" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"methods": ("crc", "crcc")}, "no method 'crcc'.*crc-regularized"),
        ({"methods": ()}, "at least one"),
        ({"datasets": ("digit",)}, "no dataset 'digit'.*yaleb"),
        ({"select": "test"}, "'cv', 'wide' or 'defaults'"),
        ({"n_splits": 0}, "at least 1"),
        ({"n_per_class": 1}, "select='defaults'"),
        ({"n_per_class": 500}, "digits, which has 174"),
        ({"methods": ("ledl-paper",)}, "nothing to run: ledl-paper.*only for yaleb"),
    ],
)
def test_a_plan_that_cannot_be_is_refused_before_anything_is_written(tmp_path, change, message):
    plan = dataclasses.replace(PLAN, **change)
    with pytest.raises(ValueError, match=message):
        reproduce(plan, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_missing_data_are_named_with_whom_to_ask(tmp_path, monkeypatch):
    monkeypatch.setenv("LEDL_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"pie: Ask Carnegie(.|\n)*others are here: digits"):
        check(Plan(("digits", "pie")))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs POSIX processes")
def test_workers_end_when_their_parent_is_killed(tmp_path):
    """Or whoever reads their output would wait for ever."""
    words = [sys.executable, "-m", "ledl", "reproduce", "--jobs", "2", "--no-figures", "--out", str(tmp_path)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
    deadline = time.monotonic() + 60
    while not cell_files(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.1)
    process.kill()
    process.communicate(timeout=30)


def test_a_folder_that_cannot_be_written_to_is_refused_before_the_work(tmp_path, monkeypatch):
    monkeypatch.setattr("ledl.experiments._cells.run_cell", lambda cell, device: pytest.fail("worked"))
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match=r"out='.*file/sub' cannot be written to.*Choose another"):
        reproduce(PLAN, tmp_path / "file" / "sub", figures=False)


def test_foreign_run_records_do_no_harm(undisturbed):
    folder, _ = undisturbed
    for name, text in [("zz1", "{"), ("zz2", '{"options": "foreign"}')]:
        (folder / "runs" / f"{name}.json").write_text(text)
    page = reproduce(PLAN, folder, figures=False).report.read_text()
    assert "foreign" not in page
    assert "&quot;n_per_class&quot;: 3" in page


def test_figures_without_matplotlib_are_refused_before_the_work(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"ledl\[plots\]"):
        reproduce(PLAN, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_progress_estimates_from_cells_of_the_same_kind():
    cells = PLAN.cells()
    progress = Progress(cells, n_jobs=2)
    assert progress.seconds_left is None
    assert progress.running == cells[:2]
    for cell, seconds in zip(cells, [1.0, 2.0, 6.0], strict=False):
        progress.update(Done(cell, {"seconds": seconds}))
    assert progress.seconds_left == pytest.approx(2 * (1 + 2 + 6) / 2)
    assert (progress.n_done, progress.n_cells) == (3, 9)
