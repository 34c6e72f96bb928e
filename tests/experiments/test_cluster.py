"""Runs on a Dask cluster: the same table whoever dies, and no worker that would give another."""

import csv
import dataclasses
import json
import logging
import os
import shlex
import signal
import subprocess
import sys
import time
from threading import Lock
from types import SimpleNamespace

import pytest

import ledl
from ledl.experiments import METHODS, Plan, reproduce
from ledl.experiments import _cluster as on_cluster
from ledl.experiments._cells import Cell, Store, dataset_digest
from ledl.experiments._cluster import WrongWorkerError, connected, run_here
from ledl.experiments._reproduce import command, run_cells

distributed = pytest.importorskip("distributed", reason="needs the extra dask")
dask = pytest.importorskip("dask")

PLAN = Plan(("digits",), ("crc", "ridge", "ledl"), "cv", n_per_class=3, n_splits=3)
TIMES = ("fit_seconds", "predict_seconds")
NO_DATA = {}  # is asked of the workers


def table(folder):
    """The table but for its times."""
    with (folder / "table.csv").open(newline="") as file:
        return [{k: v for k, v in row.items() if k not in TIMES} for row in csv.DictReader(file)]


def cell_files(folder):
    return {path: path.stat().st_mtime_ns for path in (folder / "cells").glob("*/*.json")}


def until(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return condition()


def idle(client):
    return not any(client.processing().values())


def started(cluster, folder, **options):
    """The command, running."""
    words = shlex.split(command(PLAN, folder, 1, figures=False, dask=cluster.scheduler_address))
    return subprocess.Popen([sys.executable, "-m", *words], stdout=subprocess.DEVNULL, text=True, **options)


def local_cluster(**options):
    quiet = {"dashboard_address": ":0", "silence_logs": logging.CRITICAL}
    return distributed.LocalCluster(**{"threads_per_worker": 1, **quiet, **options})


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    reproduce(PLAN, folder, figures=False)
    return folder


def test_the_same_bit_for_bit_as_without_a_cluster(undisturbed, cluster, tmp_path):
    seen = []
    outcome = reproduce(
        PLAN,
        tmp_path,
        dask=cluster.scheduler_address,
        figures=False,
        watch=lambda progress: seen.append((progress.n_done, len(progress.running))),
    )
    assert not outcome.failures
    assert table(tmp_path) == table(undisturbed)
    for cell in PLAN.cells():
        pair = [Store(folder).get(cell.identity) for folder in (tmp_path, undisturbed)]
        found, expected = [{k: v for k, v in one.items() if not k.endswith("seconds")} for one in pair]
        assert found == expected
    assert seen[0] == (0, 2)  # two workers, two cells at once
    assert [n_done for n_done, _ in seen] == list(range(10))
    [record] = (tmp_path / "runs").glob("*.json")
    options = json.loads(record.read_text())["options"]
    assert (options["dask"], options["n_jobs"]) == (cluster.scheduler_address, 2)
    words = shlex.split(options["command"])
    assert words[words.index("--dask") + 1] == cluster.scheduler_address
    assert "--jobs" not in words


def test_a_scheduler_file_is_an_address_too(cluster, tmp_path):
    (tmp_path / "scheduler.json").write_text(json.dumps({"address": cluster.scheduler_address}))
    with connected(str(tmp_path / "scheduler.json"), NO_DATA) as workers:
        assert workers.n == 2


def test_workers_that_are_killed_and_a_cluster_that_goes(undisturbed, tmp_path):
    killed = []

    def kill_one(progress):
        """Of those at work, with the cell that it is at."""
        at_work = [address for address, keys in client.processing().items() if keys]
        if not killed and progress.n_done and at_work:
            killed.append(client.run(os.getpid, workers=at_work[:1])[at_work[0]])
            os.kill(killed[-1], signal.SIGKILL)

    soon = {"distributed.comm.timeouts.connect": 2}  # seconds until a scheduler counts as gone

    def end_cluster(progress):
        if progress.n_done == 1:
            cluster.close()

    with local_cluster(n_workers=2) as cluster, distributed.Client(cluster, set_as_default=False) as client:
        address = cluster.scheduler_address
        outcome = reproduce(PLAN, tmp_path / "killed", dask=address, figures=False, watch=kill_one)
        assert len(killed) == 1
        assert not outcome.failures
        assert table(tmp_path / "killed") == table(undisturbed)
        client.close()
        with (
            dask.config.set(soon),
            pytest.raises(ConnectionError, match=r"dask='tcp:.* is lost .*same command"),
        ):
            reproduce(PLAN, tmp_path / "ended", dask=address, figures=False, watch=end_cluster)
    assert len(cell_files(tmp_path / "ended")) >= 1
    reproduce(PLAN, tmp_path / "ended", figures=False)
    assert table(tmp_path / "ended") == table(undisturbed)


def test_a_cell_that_no_worker_survives_is_named(cluster, client, tmp_path, monkeypatch):
    """As Dask tells it of a task that has killed as many workers as it bears."""
    with connected(cluster.scheduler_address, NO_DATA) as workers:
        future = client.submit(_die_as_dask_says)
        done = workers._done(future, PLAN.cells()[0])
    assert done.result is None
    assert "every worker that began it died" in done.error


def _die_as_dask_says():
    raise distributed.KilledWorker("task", SimpleNamespace(address="tcp://x:1"), 3)


def test_a_killed_client_leaves_its_cells_and_an_idle_cluster(undisturbed, cluster, client, tmp_path):
    process = started(cluster, tmp_path, stderr=subprocess.DEVNULL)
    assert until(lambda: len(cell_files(tmp_path)) >= 2)
    process.kill()
    process.wait()
    kept = cell_files(tmp_path)
    assert until(lambda: idle(client))
    both = [started(cluster, tmp_path) for _ in range(2)]  # two runs on one store and one cluster
    assert [process.wait(timeout=120) for process in both] == [0, 0]
    assert table(tmp_path) == table(undisturbed)
    assert kept.items() <= cell_files(tmp_path).items()
    assert len(cell_files(tmp_path)) == 9


def test_ctrl_c_ends_cleanly_and_frees_the_cluster(cluster, client, tmp_path):
    process = started(cluster, tmp_path, stderr=subprocess.PIPE)
    assert until(lambda: cell_files(tmp_path))
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Stopped. What was finished is kept" in said
    assert "Traceback" not in said
    assert until(lambda: idle(client))
    assert cell_files(tmp_path)


@pytest.fixture
def one_process(monkeypatch):
    """A worker of four threads in this process, where what it runs can be replaced."""
    with local_cluster(n_workers=1, threads_per_worker=4, processes=False) as cluster:
        yield cluster.scheduler_address


def test_a_process_runs_one_cell_at_a_time_and_failures_are_told(one_process, tmp_path, monkeypatch):
    lock, most, now = Lock(), [0], [0]

    def run_cell(cell, device):
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        time.sleep(0.02)
        with lock:
            now[0] -= 1
        raise ValueError(f"no {cell.method} today")

    monkeypatch.setattr("ledl.experiments._cells.run_cell", run_cell)
    with connected(one_process, NO_DATA) as workers:
        assert workers.n == 1
        ended = list(run_cells(PLAN.cells(), Store(tmp_path), workers=workers))
    assert most == [1]
    assert {done.cell for done in ended} == set(PLAN.cells())
    assert {done.error for done in ended} == {f"ValueError: no {name} today" for name in PLAN.methods}
    assert not cell_files(tmp_path)


def test_workers_that_come_later_are_looked_at_and_take_cells(tmp_path):
    with (
        local_cluster(n_workers=1, processes=False) as cluster,
        connected(cluster.scheduler_address, NO_DATA) as workers,
    ):
        cluster.scale(2)
        assert until(lambda: workers.welcome() or workers.n == 2)
        cluster.scale(1)
        assert until(lambda: workers.welcome() or workers.n == 1)
        workers._digests = {"digits": "0" * 64}
        cluster.scale(2)
        with pytest.raises(WrongWorkerError, match="its digits is not that of this machine"):
            until(lambda: workers.welcome() or workers.n == 2)


def test_cells_go_to_workers_that_come_when_all_others_have_gone(tmp_path, monkeypatch):
    monkeypatch.setattr("ledl.experiments._cells.run_cell", lambda cell, device: time.sleep(0.05) or {})
    kept = []
    monkeypatch.setattr(Store, "put", lambda store, identity, result: kept.append(identity))
    with (
        local_cluster(n_workers=1, processes=False) as cluster,
        connected(cluster.scheduler_address, NO_DATA) as workers,
    ):
        for n_done, _ in enumerate(workers.run(PLAN.cells(), Store(tmp_path))):
            if n_done == 2:
                cluster.scale(0)
                assert until(lambda: not cluster.scheduler.workers)
                cluster.scale(1)
    assert len(kept) == len(PLAN.cells())


def test_a_cluster_that_has_lost_all_workers(tmp_path, monkeypatch):
    monkeypatch.setattr(on_cluster, "ALONE_SECONDS", 0.5)
    with (
        local_cluster(n_workers=1, processes=False) as cluster,
        connected(cluster.scheduler_address, NO_DATA) as workers,
    ):
        cluster.scale(0)
        with pytest.raises(ConnectionError, match=r"has had no worker for .*are kept: start workers"):
            list(workers.run(PLAN.cells(), Store(tmp_path)))


def test_other_data_on_a_worker(cluster):
    address = cluster.scheduler_address
    message = r"worker tcp://\S+ cannot be used: its digits is not that .* 000000000000 here.* Set LEDL_DATA"
    with pytest.raises(WrongWorkerError, match=message), connected(address, {"digits": "0" * 64}):
        pass
    with connected(address, {"digits": dataset_digest("digits")}) as workers:
        assert workers.n == 2


def _set_data(folder):
    """Of a worker; what it was."""
    known = os.environ.pop("LEDL_DATA", None)
    if folder is not None:
        os.environ["LEDL_DATA"] = folder
    return known


def test_no_data_on_a_worker(cluster, client, tmp_path):
    message = rf"worker tcp://\S+ cannot be used: it does not have the dataset pie .*, which is '{tmp_path}'"
    [known] = set(client.run(_set_data, str(tmp_path)).values())
    try:
        with (
            pytest.raises(WrongWorkerError, match=f"(?s){message}"),
            connected(cluster.scheduler_address, {"pie": ""}),
        ):
            pass
    finally:
        client.run(_set_data, known)


def test_a_device_is_one_of_the_workers(cluster, tmp_path):
    with pytest.raises(WrongWorkerError, match=r"The worker tcp://\S+ cannot be used: .*'warp'"):
        reproduce(PLAN, tmp_path / "out", dask=cluster.scheduler_address, device="warp", figures=False)
    assert not (tmp_path / "out").exists()


def _set_version(version):
    ledl.__version__ = version


def test_another_version_on_a_worker(cluster, client, tmp_path):
    client.run(_set_version, "9.9")
    try:
        with pytest.raises(WrongWorkerError, match=r"worker tcp://\S+ has ledl 9.9, and this machine.*Install"):
            reproduce(PLAN, tmp_path / "out", dask=cluster.scheduler_address, figures=False)
    finally:
        client.run(_set_version, ledl.__version__)
    assert not (tmp_path / "out").exists()


def test_no_ledl_on_a_worker(cluster, monkeypatch):
    monkeypatch.setattr(on_cluster.pkgutil, "resolve_name", json.loads)  # a function that finds no ledl, either
    with (
        pytest.raises(WrongWorkerError, match=r"worker tcp://\S+ has no ledl \(.*, and this machine ledl 0"),
        connected(cluster.scheduler_address, NO_DATA),
    ):
        pass


def test_other_code_of_the_same_version_on_the_workers_stops_the_run(cluster, tmp_path, monkeypatch):
    changed = dataclasses.replace(
        METHODS["ridge"], steps=[("sklearn.linear_model:RidgeClassifier", {"fit_intercept": False})]
    )
    monkeypatch.setitem(METHODS, "ridge", changed)
    with pytest.raises(WrongWorkerError, match=r"worker tcp://\S+ would run ridge on .* with another param"):
        reproduce(PLAN, tmp_path, dask=cluster.scheduler_address, figures=False)
    assert not list((tmp_path / "cells").glob("digits-ridge/*"))


def test_a_worker_compares_data_before_each_cell(client):
    cell = Cell("digits", "crc", 0, "defaults")
    with pytest.raises(WrongWorkerError, match=r"worker tcp://\S+ would run crc on .* with another data than"):
        client.submit(run_here, cell, {**cell.identity, "data": "0" * 64}, None).result()


@pytest.mark.parametrize("address", ["nowhere", "tcp://", "", "http://localhost:80", "tcp://127.0.0.1:1"])
def test_no_cluster_at_that_address(address, tmp_path, monkeypatch):
    monkeypatch.setattr(on_cluster, "CONNECT_SECONDS", 0.5)
    with pytest.raises(ConnectionError, match=f"dask='{address}' does not answer as .*Give the address that"):
        reproduce(PLAN, tmp_path / "out", dask=address, figures=False)
    assert not (tmp_path / "out").exists()


def test_a_cluster_without_workers(tmp_path, monkeypatch):
    monkeypatch.setattr(on_cluster, "FIRST_WORKER_SECONDS", 0.5)
    with (
        local_cluster(n_workers=0, processes=False) as cluster,
        pytest.raises(ConnectionError, match=r"no worker answered.*Start some"),
    ):
        reproduce(PLAN, tmp_path / "out", dask=cluster.scheduler_address, figures=False)
    assert not (tmp_path / "out").exists()


def test_processes_and_a_cluster_at_once_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"n_jobs=2 is for processes .* dask='tcp://x:1'.*Leave out one"):
        reproduce(PLAN, tmp_path / "out", n_jobs=2, dask="tcp://x:1", figures=False)
    assert not (tmp_path / "out").exists()


def test_without_the_extra_its_name_is_told(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ImportError, match=r"pip install 'ledl\[dask\]'"):
        reproduce(PLAN, tmp_path / "out", dask="tcp://x:1", figures=False)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--dask", "nowhere"], "missing port number in address 'nowhere'"),
        (["--dask", "tcp://127.0.0.1:1", "--jobs", "1"], "leave out one of the two"),
    ],
)
def test_the_command_line_tells_errors_without_a_traceback(words, message, tmp_path):
    arguments = [sys.executable, "-m", "ledl", "reproduce", *words, "--out", str(tmp_path / "out")]
    done = subprocess.run(
        arguments, capture_output=True, text=True, timeout=60, env={**os.environ, "COLUMNS": "300"}
    )
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()
