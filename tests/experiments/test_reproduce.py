"""Complete runs: any number of jobs, killed and started again, and errors on the way."""

import dataclasses
import importlib.util
import json
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import time

import pytest
from sklearn.neighbors import NearestCentroid

from helpers.runs import N_CELLS, PLAN, cell_files, table, until, without_times
from ledl.experiments import METHODS, Plan, reproduce
from ledl.experiments._cells import Done, Store
from ledl.experiments._reproduce import Progress, check, command, run_cells


def started(folder, n_jobs):
    """Start the command, in a process group of its own."""
    words = shlex.split(command(PLAN, folder, n_jobs, figures=False))
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "start_new_session": True}
    return subprocess.Popen([sys.executable, "-m", *words], **options)


def without_seconds(row):
    return [value for name, value in row._asdict().items() if "seconds" not in name]


def test_a_run_writes_everything(undisturbed):
    folder, outcome = undisturbed
    assert not outcome.failures
    assert {row.method for row in outcome.rows} == set(PLAN.methods)
    for name in ("table.md", "table.tex", "table.csv", "report.html"):
        assert (folder / name).stat().st_size > 0
    for name in ("table.md", "table.tex", "report.html"):
        assert "p-values are a guide" in (folder / name).read_text()
    assert len(list((folder / "runs").glob("*.json"))) == 1
    assert len(cell_files(folder)) == N_CELLS


def test_the_same_bit_for_bit_for_any_number_of_jobs(undisturbed, tmp_path):
    folder, _ = undisturbed
    for done in run_cells(PLAN.cells(), Store(tmp_path), n_jobs=2):
        assert without_times(done.result) == without_times(Store(folder).get(done.cell.identity))


def test_there_are_no_more_processes_than_cells(tmp_path, monkeypatch):
    from ledl.experiments import _reproduce

    real, asked = _reproduce.Parallel, []

    def counted(n_jobs, **options):
        asked.append(n_jobs)
        return real(1)

    monkeypatch.setattr(_reproduce, "Parallel", counted)
    plan = dataclasses.replace(PLAN, methods=("crc",), n_splits=2)
    reproduce(plan, tmp_path, n_jobs=1000, figures=False)
    reproduce(plan, tmp_path, n_jobs=1000, figures=False)  # nothing is missing
    assert asked == [2, 1]


def test_a_second_start_computes_nothing(undisturbed, monkeypatch):
    folder, _ = undisturbed
    before = cell_files(folder)
    monkeypatch.setattr("ledl.experiments._cells.run_cell", lambda cell, device: pytest.fail("computed again"))
    assert reproduce(PLAN, folder, figures=False).rows == undisturbed[1].rows
    assert cell_files(folder) == before


def test_damaged_cells_are_computed_again_and_bad_places_stop_nothing(undisturbed, tmp_path):
    folder, first = undisturbed
    shutil.copytree(folder, tmp_path / "copy")
    files = sorted((tmp_path / "copy" / "cells").glob("*/*.json"))
    entries = [json.loads(file.read_text()) for file in files]
    changes = [
        {"accuracy": 1.0},
        {"agreement": 5},
        {"settings": {"alpha": "x"}},
        {"n_test": 1, "predicted": [0]},
    ]
    for file, entry, change in zip(files, entries, changes, strict=False):
        file.write_text(json.dumps({**entry, "result": {**entry["result"], **change}}))
    files[4].unlink()
    files[4].mkdir()
    outcome = reproduce(PLAN, tmp_path / "copy", figures=False)
    assert [without_seconds(row) for row in outcome.rows] == [without_seconds(row) for row in first.rows]
    again = [text for text in outcome.remarks if "was damaged or altered. It was computed again." in text]
    assert len(again) == 5
    (failure,) = outcome.failures
    assert "The result could not be stored" in failure
    for file, entry in zip(files[:4], entries, strict=False):
        found = json.loads(file.read_text())["result"]
        assert without_times(found) == without_times(entry["result"])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs POSIX processes")
def test_killed_runs_lose_nothing_and_leave_no_workers(undisturbed, tmp_path):
    """The parent alone is killed at a random moment, then the group, then two runs finish the rest together."""
    rng, kept = random.Random(0), {}
    for kill in (os.kill, os.killpg):
        process = started(tmp_path, n_jobs=2)
        assert until(lambda: len(cell_files(tmp_path)) > len(kept))  # noqa: B023  (at once)
        time.sleep(rng.uniform(0.0, 0.2))
        if process.poll() is None:  # on a fast machine the second one may have ended
            kill(process.pid, signal.SIGKILL)
        process.communicate(timeout=60)  # which waits for all workers, since they have the pipe
        found = cell_files(tmp_path)
        assert kept.items() <= found.items()  # nothing finished is lost or computed again
        if kill is os.kill:
            assert process.returncode == -signal.SIGKILL
            assert len(found) < N_CELLS
        kept = found
    process = started(tmp_path, n_jobs=1)
    reproduce(PLAN, tmp_path, figures=False)
    process.communicate(timeout=300)
    assert process.returncode == 0
    assert table(tmp_path) == table(undisturbed[0])
    assert kept.items() <= cell_files(tmp_path).items()
    assert len(cell_files(tmp_path)) == N_CELLS


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


def test_a_method_that_would_end_the_process_only_fails(tmp_path):
    class Leaves(NearestCentroid):
        def fit(self, X, y):
            sys.exit("no licence")

    outcome = reproduce(
        Plan(("digits",), ("crc", ("leaves", Leaves())), "defaults", n_splits=1), tmp_path, figures=False
    )
    assert [row.method for row in outcome.rows] == ["crc"]
    assert "SystemExit: no licence" in outcome.failures[0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"methods": ("crc", "crcc")}, "no method 'crcc'.*crc-regularized"),
        ({"methods": ()}, "at least one"),
        ({"datasets": ("digit",)}, "no dataset 'digit'.*yaleb"),
        ({"select": "test"}, "'cv', 'wide' or 'defaults'"),
        ({"n_splits": 0}, "at least 1"),
        ({"n_per_class": 1}, "select='defaults'"),
        ({"n_per_class": 500}, "class '8' of digits, which has 174 in all"),
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
    with pytest.raises(FileNotFoundError, match=r"pie: Ask Carnegie(.|\n)*These are here: digits"):
        check(Plan(("digits", "pie")))


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
    assert "&#34;n_per_class&#34;: 3" in page


@pytest.mark.parametrize("package", ["matplotlib", "pandas", "tabulate", "jinja2"])
def test_a_missing_package_is_named_with_its_extra_before_the_work(package, tmp_path, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == package else find(name))
    with pytest.raises(ImportError, match=rf"need {package}: pip install 'ledl\[cli\]'"):
        reproduce(PLAN, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    if package == "matplotlib":
        check(PLAN, figures=False)


def test_progress_estimates_from_cells_of_the_same_kind():
    cells = PLAN.cells()
    progress = Progress(cells, n_jobs=2)
    assert progress.seconds_left is None
    assert progress.running == cells[:2]
    for cell, seconds in zip(cells, [1.0, 2.0, 6.0], strict=False):
        progress.update(Done(cell, {"seconds": seconds}))
    assert progress.seconds_left == pytest.approx(2 * (1 + 2 + 6) / 2)
    assert (progress.n_done, progress.n_cells) == (3, 9)
