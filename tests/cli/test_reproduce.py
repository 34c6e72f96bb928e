"""`ledl reproduce` as a person or a program uses it."""

import json
import os
import signal
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest
from typer.testing import CliRunner

from helpers.runs import cell_files, until
from ledl.cli import _reproduce, app

QUICK = ["--methods", "crc,1-nn", "--splits", "2", "--select", "defaults", "--no-figures", "--jobs", "1"]


def run(*words, **env):
    """Run the command in this process. An exception that it does not handle has exit code 1."""
    return CliRunner().invoke(app, [*map(str, words)], env={"COLUMNS": "100", "NO_COLOR": "1", **env})


def one_line(text):
    return " ".join(text.split()).replace("│ ", "")


def test_help_names_methods_and_datasets_and_loads_nothing_heavy():
    done = run("reproduce", "--help")
    assert done.exit_code == 0
    for word in ("crc-regularized", "caltech101_pyramid", "--n-per-class", "Examples"):
        assert word in done.stdout
    code = (
        "import sys; from ledl.cli import app\ntry: app(['reproduce', '--help'])\nexcept SystemExit: pass\n"
        "heavy = {'scipy', 'sklearn', 'numpy', 'torch', 'numba', 'matplotlib', 'pandas', 'jinja2'}\n"
        "sys.exit(str(heavy & set(sys.modules)) if heavy & set(sys.modules) else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_a_table_for_people(tmp_path):
    out = tmp_path / "my [x] résults"
    done = run("reproduce", *QUICK, "--methods", "crc, 1-nn,", "--out", out)
    assert done.exit_code == 0, done.stderr
    assert "nearest neighbour" in done.stdout
    assert "CRC" in done.stdout
    assert str(out / "report.html") in done.stdout


@pytest.mark.parametrize(("seconds", "n_least", "n_most"), [(1e6, 1, 1), (0, 4, 20)])
def test_without_a_terminal_progress_is_a_line_now_and_then(tmp_path, monkeypatch, seconds, n_least, n_most):
    monkeypatch.setattr(_reproduce, "LINE_EVERY", seconds)
    done = run("reproduce", *QUICK, "--out", tmp_path)
    assert done.exit_code == 0, done.stderr
    assert n_least <= done.stderr.count(" of 4 cells.") <= n_most


def test_the_first_line_of_progress_counts_the_cells_that_are_kept(tmp_path):
    assert "0 of 4 cells." in run("reproduce", *QUICK, "--out", tmp_path).stderr
    assert run("reproduce", *QUICK, "--out", tmp_path).stderr == "4 of 4 cells.\n"
    next((tmp_path / "cells").glob("*/*.json")).unlink()
    assert run("reproduce", *QUICK, "--out", tmp_path).stderr.startswith("3 of 4 cells. About 1 s left.")


def test_semi_stands_for_methods_and_without_datasets_for_those_of_the_paper(tmp_path):
    words = ["--methods", "label-propagation,crc", *QUICK[2:], "--out", tmp_path / "out"]
    done = run("reproduce", "semi", "digits", *words)
    assert done.exit_code == 0, done.stderr
    assert "Accuracy on new samples" in done.stdout
    done = run("reproduce", "semi", *words, LEDL_DATA=str(tmp_path))
    assert "pie: Ask Carnegie" in one_line(done.stderr)
    done = run("reproduce", "semi", "digits", "--methods", "crc,lda")
    assert done.exit_code == 2
    assert "crc, lda get the labelled ones alone" in one_line(done.stderr)


def test_semi_says_that_own_methods_get_no_unlabelled_samples(tmp_path):
    words = ["--methods", "label-propagation,sklearn.semi_supervised:LabelSpreading", *QUICK[2:]]
    done = run("reproduce", "semi", "digits", *words, "--out", tmp_path / "out")
    assert done.exit_code == 0, done.stderr
    assert "From the labelled samples alone: sklearn.semi_supervised:LabelSpreading." in one_line(done.stdout)


def test_a_class_of_one_sample_is_named(tmp_path, rng):
    np.savez(tmp_path / "rare.npz", X=rng.random((21, 3)), y=np.array(["a"] * 10 + ["b"] * 10 + ["rare"]))
    words = ["--methods", "lda", "--select", "defaults", "--n-per-class", 1, "--no-figures"]
    done = run("reproduce", "--data", tmp_path / "rare.npz", *words, "--out", tmp_path / "out")
    assert done.exit_code == 2
    assert "of the class 'rare' of rare, which has 1 in all. Remove the class." in one_line(done.stderr)


def test_json_for_machines_is_all_of_stdout(tmp_path):
    done = run("reproduce", *QUICK, "--out", tmp_path, "--json")
    found = json.loads(done.stdout)
    assert {row["method"] for row in found["rows"]} == {"crc", "1-nn"}
    assert found["failures"] == []


@pytest.mark.parametrize("jobs", [1, 2])
def test_what_own_methods_print_is_not_among_the_results(tmp_path, jobs):
    (tmp_path / "loud.py").write_text(
        "from sklearn.neighbors import KNeighborsClassifier\n"
        "import ctypes, subprocess\n"
        "print('imported')\n"
        "class Loud(KNeighborsClassifier):\n"
        "    def fit(self, X, y):\n"
        "        print('fitted')\n"
        "        ctypes.CDLL(None).puts(b'in C')\n"
        "        subprocess.run(['echo', 'beside'])\n"
        "        return super().fit(X, y)\n"
    )
    words = [*QUICK[2:-2], "--methods", "loud:Loud", "--jobs", str(jobs), "--out", "out", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "ledl", "reproduce", *words],
        capture_output=True, text=True, cwd=tmp_path, timeout=120,
    )  # fmt: skip
    assert json.loads(done.stdout)["failures"] == []
    assert {"imported", "fitted", "beside", "in C"} <= {*done.stderr.splitlines()}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["reproduce", "faces"], "no dataset 'faces'"),
        (["reproduce", "[/red]"], "no dataset '[/red]'"),
        (["reproduce", "--methods", ""], "at least one"),
        (["reproduce", "--methods", "ledl-paper"], "nothing to run"),
        (["reproduce", "--methods", "svm"], "no method 'svm'"),
        (["reproduce", "--splits", "0"], "than or equal to 1"),
        (["reproduce", "--select", "test"], "'wide', 'defaults'"),
        (["reproduce", "--n-per-class", "1"], "--select defaults"),
        (["reproduce", "pie"], "Ask Carnegie Mellon"),
        pytest.param(
            ["reproduce", "--dask", "nowhere"],
            "missing port number in address 'nowhere'",
            marks=pytest.mark.skipif(not find_spec("distributed"), reason="needs the extra dask"),
        ),
        (["reproduce", "--dask", "tcp://127.0.0.1:1", "--jobs", "1"], "Leave out one of the two"),
    ],
)
def test_errors_say_what_to_do_and_write_nothing(tmp_path, words, message):
    done = run(*words, "--out", tmp_path / "out", LEDL_DATA=str(tmp_path))
    assert done.exit_code == 2
    assert message in one_line(done.stderr)
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("folder", "message"), [("out", "is a file"), ("out/sub", "Choose another folder")])
def test_a_folder_that_cannot_be_is_refused(tmp_path, folder, message):
    (tmp_path / "out").write_text("")
    done = run("reproduce", *QUICK, "--out", tmp_path / folder)
    assert done.exit_code == 2
    assert message in one_line(done.stderr)
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("jobs", [1, 2])
def test_ctrl_c_ends_cleanly_and_keeps_what_was_finished(tmp_path, jobs):
    words = ["reproduce", "--no-figures", "--jobs", str(jobs), "--out", str(tmp_path)]
    process = subprocess.Popen(
        [sys.executable, "-m", "ledl", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # Where the tests themselves run in the background, interrupts are ignored, and that is inherited.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert until(lambda: cell_files(tmp_path))
    os.killpg(process.pid, signal.SIGINT)
    _, printed = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Run the same command again to continue" in one_line(printed)
    assert "Traceback" not in printed
    assert cell_files(tmp_path)


def test_the_number_of_cells_comes_with_the_way_to_fewer(capsys):
    from rich.console import Console

    from ledl.experiments import Plan, Progress

    plan = Plan(methods=("crc", "ledl"), n_splits=1)
    cells = plan.cells() + plan.study_cells()
    with _reproduce._progress(Console(stderr=True, width=200)) as (watch, _):
        watch(Progress(cells, 1, n_for_figures=len(plan.study_cells())))
    said = one_line(capsys.readouterr().err)
    n, m = len(cells), len(plan.study_cells())
    assert f"0 of {n} cells. {m} of them are for figures only: --no-figures leaves them out." in said
