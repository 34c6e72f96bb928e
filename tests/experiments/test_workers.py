"""Workers end with their parent, also while they start."""

import os
import random
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from helpers.runs import PLAN, until
from ledl.experiments._reproduce import command

# Python runs it when it starts. Workers then need a minute to import scikit-learn, and say when they begin to.
SLOW_IMPORT = """
import os, sys, time

class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "sklearn":
            open(os.path.join(os.environ["BEGUN"], str(os.getpid())), "w").close()
            time.sleep(60)

if any("loky" in word for word in sys.orig_argv):
    sys.meta_path.insert(0, Slow())
"""


@pytest.fixture
def start(tmp_path):
    """Return a function that starts a run with two workers and the given variables."""
    runs = []

    def start(**variables):
        words = shlex.split(command(PLAN, tmp_path / "out", 2, figures=False))
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "start_new_session": True}
        run = subprocess.Popen([sys.executable, "-m", *words], env={**os.environ, **variables}, **options)
        runs.append(run)
        return run

    yield start
    for run in runs:
        try:
            os.killpg(run.pid, signal.SIGKILL)  # what a failed test has left
        except ProcessLookupError:
            continue


def ends_for_all(run, how):
    """Kill the parent, and say whether the other processes of the run end, too."""
    run.send_signal(how)
    try:
        run.communicate(timeout=30)  # which waits for all of them, since they have the pipe
    except subprocess.TimeoutExpired:
        return False
    return run.returncode == -how


pytestmark = pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="needs Linux")


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_workers_whose_imports_take_long_end_with_their_parent(start, tmp_path, how):
    (tmp_path / "sitecustomize.py").write_text(SLOW_IMPORT)
    (tmp_path / "begun").mkdir()
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    run = start(PYTHONPATH=path, BEGUN=str(tmp_path / "begun"))
    assert until(lambda: len(os.listdir(tmp_path / "begun")) == 2)
    assert run.poll() is None
    assert ends_for_all(run, how)


@pytest.mark.parametrize("seed", range(3))
def test_workers_end_with_a_parent_that_is_killed_while_it_starts_them(start, seed):
    run = start()
    children = Path(f"/proc/{run.pid}/task/{run.pid}/children")
    assert until(lambda: len(children.read_text().split()) > 1)
    time.sleep(random.Random(seed).uniform(0.0, 0.5))
    assert run.poll() is None
    assert ends_for_all(run, signal.SIGKILL)
