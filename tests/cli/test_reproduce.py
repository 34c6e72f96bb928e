"""The command line as a person or a program meets it."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

LEDL = [sys.executable, "-m", "ledl"]
QUICK = ["--methods", "crc,1-nn", "--splits", "2", "--select", "defaults", "--no-figures", "--jobs", "1"]


def run(*words, **options):
    environment = {**os.environ, "COLUMNS": "100", "NO_COLOR": "1", **options.pop("env", {})}
    return subprocess.run(
        [*LEDL, *map(str, words)], capture_output=True, text=True, timeout=120, env=environment, **options
    )


def test_help_names_methods_and_datasets_and_loads_nothing_heavy():
    done = run("reproduce", "--help")
    assert done.returncode == 0
    for word in ("crc-regularized", "caltech101_pyramid", "--n-per-class", "Examples"):
        assert word in done.stdout
    code = (
        "import sys; from ledl.cli import app\ntry: app(['reproduce', '--help'])\nexcept SystemExit: pass\n"
        "heavy = {'scipy', 'sklearn', 'numpy', 'torch', 'numba', 'matplotlib'} & set(sys.modules)\n"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_version_and_no_command():
    assert run("--version").stdout.startswith("ledl 0.")
    assert "reproduce" in run().stdout + run().stderr


def test_a_table_for_people(tmp_path):
    out = tmp_path / "my [x] résults"
    done = run("reproduce", *QUICK, "--methods", "crc, 1-nn,", "--out", out)
    assert done.returncode == 0, done.stderr
    assert "nearest neighbour" in done.stdout
    assert str(out / "report.html") in done.stdout


def test_json_for_machines_is_all_of_stdout(tmp_path):
    done = run("reproduce", *QUICK, "--out", tmp_path, "--json")
    found = json.loads(done.stdout)
    assert {row["method"] for row in found["rows"]} == {"crc", "1-nn"}
    assert found["failures"] == []


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
        (["reproduce", "--n-per-class", "1"], "select='defaults'"),
        (["reproduce", "pie"], "Ask Carnegie Mellon"),
    ],
)
def test_errors_say_what_to_do_and_write_nothing(tmp_path, words, message):
    done = run(*words, "--out", tmp_path / "out", env={"LEDL_DATA": str(tmp_path)})
    assert done.returncode == 2
    assert message in " ".join(done.stderr.split()).replace("│ ", "")
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("folder", "message"), [("out", "is a file"), ("out/sub", "Choose another folder")])
def test_a_folder_that_cannot_be_is_refused(tmp_path, folder, message):
    (tmp_path / "out").write_text("")
    done = run("reproduce", *QUICK, "--out", tmp_path / folder)
    assert done.returncode == 2
    assert message in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("jobs", [1, 2])
def test_ctrl_c_ends_cleanly_and_keeps_what_was_finished(tmp_path, jobs):
    words = ["reproduce", "--no-figures", "--jobs", str(jobs), "--out", str(tmp_path)]
    process = subprocess.Popen(
        [*LEDL, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # Where the tests themselves run in the background, interrupts are ignored, and that is inherited.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("cells/*/*.json")) and time.monotonic() < deadline:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "the same command goes on" in " ".join(told.split())
    assert "Traceback" not in told


def test_without_typer_the_message_names_the_extra():
    code = "import sys; sys.modules['typer'] = None; from ledl.__main__ import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "pip install 'ledl[cli]'" in done.stderr
