"""Runs on a Dask cluster: the same table whoever dies, and no worker that would return another one."""

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
from types import ModuleType

import pytest

import ledl
from helpers.runs import N_CELLS, PLAN, cell_files, table, until, without_times
from ledl.experiments import METHODS, Plan, reproduce
from ledl.experiments import _cluster as on_cluster
from ledl.experiments._cells import Cell, Store
from ledl.experiments._cluster import WrongWorkerError, connected
from ledl.experiments._reproduce import command, run_cells

distributed = pytest.importorskip("distributed", reason="needs the extra dask")
dask = pytest.importorskip("dask")

NOTHING = ()  # no cells to compare


def idle(client):
    return not any(client.processing().values())


def started(cluster, folder, plan=PLAN, **options):
    """Start the command on the cluster."""
    words = shlex.split(command(plan, folder, 1, figures=False, dask=cluster.scheduler_address))
    return subprocess.Popen(
        [sys.executable, "-m", *words],
        stdout=subprocess.DEVNULL,
        text=True,
        preexec_fn=heed_interrupts,
        **options,
    )


def heed_interrupts():
    """Undo what a job in the background inherits: that Ctrl-C is ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def local_cluster(n_workers=1, threads_per_worker=1):
    """Return a cluster in this process, where its functions can be replaced."""
    return distributed.LocalCluster(
        n_workers=n_workers,
        threads_per_worker=threads_per_worker,
        processes=False,
        dashboard_address=":0",
        silence_logs=logging.CRITICAL,
    )


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
    assert table(tmp_path) == table(undisturbed[0])
    for cell in PLAN.cells():
        found, expected = (Store(folder).get(cell.identity) for folder in (tmp_path, undisturbed[0]))
        assert without_times(found) == without_times(expected)
    assert seen[0] == (0, 2)  # two workers, two cells at once
    assert [n_done for n_done, _ in seen] == list(range(N_CELLS + 1))
    [record] = (tmp_path / "runs").glob("*.json")
    options = json.loads(record.read_text())["options"]
    assert (options["dask"], options["n_jobs"]) == (cluster.scheduler_address, 2)
    words = shlex.split(options["command"])
    assert words[words.index("--dask") + 1] == cluster.scheduler_address
    assert "--jobs" not in words


def test_a_scheduler_file_is_an_address_too(cluster, tmp_path):
    (tmp_path / "scheduler.json").write_text(json.dumps({"address": cluster.scheduler_address}))
    with connected(str(tmp_path / "scheduler.json"), NOTHING) as workers:
        assert workers.n == 2


def test_the_cell_of_a_killed_worker_runs_again(undisturbed, cluster, client, tmp_path):
    killed = []

    def kill_one(progress):
        """Kill a worker that has a cell."""
        at_work = [address for address, keys in client.processing().items() if keys]
        if not killed and progress.n_done and at_work:
            killed.append(client.run(os.getpid, workers=at_work[:1])[at_work[0]])
            os.kill(killed[-1], signal.SIGKILL)

    outcome = reproduce(PLAN, tmp_path, dask=cluster.scheduler_address, figures=False, watch=kill_one)
    assert len(killed) == 1
    assert not outcome.failures
    assert table(tmp_path) == table(undisturbed[0])


def test_a_cluster_that_goes_leaves_finished_cells(undisturbed, tmp_path):
    def end_cluster(progress):
        if progress.n_done == 1:
            cluster.close()

    soon = {"distributed.comm.timeouts.connect": 2}  # seconds until a scheduler counts as gone
    message = r"connection to the cluster, dask='.*', is lost .*same command"
    with local_cluster() as cluster, dask.config.set(soon), pytest.raises(ConnectionError, match=message):
        reproduce(PLAN, tmp_path, dask=cluster.scheduler_address, figures=False, watch=end_cluster)
    assert len(cell_files(tmp_path)) >= 1
    reproduce(PLAN, tmp_path, figures=False)
    assert table(tmp_path) == table(undisturbed[0])


def _die_in_cells():
    from ledl.experiments import _cells

    _cells.known_run_cell, _cells.run_cell = _cells.run_cell, lambda *_: os._exit(1)


def _live_in_cells():
    from ledl.experiments import _cells

    _cells.run_cell = getattr(_cells, "known_run_cell", _cells.run_cell)


def test_a_cell_that_no_worker_survives_is_named(cluster, client, tmp_path, monkeypatch):
    client.wait_for_workers(2, timeout=120)
    monkeypatch.setattr(cluster.scheduler, "allowed_failures", 0)  # one dead worker is enough
    client.run(_die_in_cells)
    try:
        plan = Plan(("digits",), ("ridge",), "defaults", n_splits=1)
        outcome = reproduce(plan, tmp_path, dask=cluster.scheduler_address, figures=False)
    finally:
        client.wait_for_workers(2, timeout=120)
        client.run(_live_in_cells)
    [failure] = outcome.failures
    assert failure.startswith("digits, ridge, split 0: every worker that ran it died")


def test_interrupted_and_killed_clients_leave_their_cells_and_an_idle_cluster(
    undisturbed, cluster, client, tmp_path
):
    long = dataclasses.replace(PLAN, n_splits=40)  # more than is done by the time of a signal
    process = started(cluster, tmp_path, long, stderr=subprocess.PIPE)
    assert until(lambda: cell_files(tmp_path))
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Stopped. Finished cells are kept" in said
    assert "Traceback" not in said
    assert until(lambda: idle(client))
    kept = cell_files(tmp_path)
    assert 1 <= len(kept) < len(long.cells())
    process = started(cluster, tmp_path, long, stderr=subprocess.DEVNULL)
    assert until(lambda: len(cell_files(tmp_path)) > len(kept))
    process.kill()
    process.wait()
    assert until(lambda: idle(client))
    kept_by_both = cell_files(tmp_path)
    assert kept.items() <= kept_by_both.items()
    process = started(cluster, tmp_path)  # and another run on the same store and cluster
    reproduce(PLAN, tmp_path, dask=cluster.scheduler_address, figures=False)
    assert process.wait(timeout=120) == 0
    assert table(tmp_path) == table(undisturbed[0])
    assert kept_by_both.items() <= cell_files(tmp_path).items()
    assert len(cell_files(tmp_path)) >= N_CELLS


class InterruptingAtItsEnd:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)


def test_an_interrupt_in_a_finalizer_is_not_lost(tmp_path):
    """Python ignores what is raised there, and Dask's futures have finalizers."""

    def watch(progress):
        if progress.n_done == 1:
            InterruptingAtItsEnd()

    usual = signal.signal(signal.SIGINT, signal.default_int_handler)  # tests may run in the background
    try:
        with local_cluster() as cluster, pytest.raises(KeyboardInterrupt):
            reproduce(PLAN, tmp_path, dask=cluster.scheduler_address, figures=False, watch=watch)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, usual)
    assert 1 <= len(cell_files(tmp_path)) < N_CELLS


def test_a_process_runs_one_cell_at_a_time_and_failures_are_reported(tmp_path, monkeypatch):
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
    with (
        local_cluster(n_workers=2, threads_per_worker=4) as cluster,
        connected(cluster.scheduler_address, NOTHING) as workers,
    ):
        ended = list(run_cells(PLAN.cells(), Store(tmp_path), workers=workers))
    assert most == [1]
    assert {done.cell for done in ended} == set(PLAN.cells())
    assert {done.error for done in ended} == {f"ValueError: no {name} today" for name in PLAN.methods}
    assert not cell_files(tmp_path)


def test_workers_come_and_go(tmp_path, monkeypatch):
    """Later ones take cells, also when all others have gone, and wrong ones are refused."""
    ran = []

    def run_cell(cell, device):
        ran.append(distributed.get_worker().address)
        time.sleep(0.02)
        return {}

    def scale(n):
        cluster.scale(n)
        assert until(lambda: len(cluster.scheduler.workers) == n)

    monkeypatch.setattr("ledl.experiments._cells.run_cell", run_cell)
    store, cells = Store(tmp_path), PLAN.cells()
    with (
        local_cluster() as cluster,
        connected(cluster.scheduler_address, NOTHING) as workers,
    ):
        for n_done, done in enumerate(workers.run(cells, store)):
            assert done.error == ""
            if n_done in (2, 5):
                scale(2 if n_done == 2 else 0)
            if n_done == 5:
                scale(1)
        assert n_done == N_CELLS - 1
        assert len(set(ran)) == 3
        assert workers.n == 1
        # Cells would run, but new workers are checked before they get any.
        monkeypatch.setattr(on_cluster, "find_trouble", lambda asked, device: "" if asked else "it is new.")
        running = workers.run(cells, store)
        next(running)
        scale(2)
        with pytest.raises(WrongWorkerError, match=r"The worker inproc://\S+ cannot be used: it is new"):
            list(running)
        scale(0)
        monkeypatch.setattr(on_cluster, "ALONE_SECONDS", 0.5)
        with pytest.raises(ConnectionError, match=r"is lost \(no worker for 0 s\). Finished cells are kept"):
            list(workers.run(cells, store))


def _set_data(folder):
    """Set LEDL_DATA of a worker; return what it was."""
    known = os.environ.pop("LEDL_DATA", None)
    if folder is not None:
        os.environ["LEDL_DATA"] = folder
    return known


def test_no_data_on_a_worker(cluster, client, tmp_path, monkeypatch):
    message = rf"worker tcp://\S+ cannot be used: it cannot run crc on pie .* LEDL_DATA is '{tmp_path}'"
    monkeypatch.setattr("ledl.experiments._cells.dataset_digest", lambda name: "")  # this machine has it
    [known] = set(client.run(_set_data, str(tmp_path)).values())
    try:
        with (
            pytest.raises(WrongWorkerError, match=f"(?s){message}"),
            connected(cluster.scheduler_address, [Cell("pie", "crc", 0)]),
        ):
            pass
    finally:
        client.run(_set_data, known)


def test_other_data_on_a_worker(cluster, tmp_path, monkeypatch):
    monkeypatch.setattr("ledl.experiments._cells.dataset_digest", lambda name: "0" * 64)
    message = r"worker tcp://\S+ .* difference in data \('\w+' there, '0+' h"
    with pytest.raises(WrongWorkerError, match=message), connected(cluster.scheduler_address, PLAN.cells()):
        pass
    with (
        pytest.raises(WrongWorkerError, match=message),
        connected(cluster.scheduler_address, NOTHING) as workers,
    ):
        list(workers.run(PLAN.cells(), Store(tmp_path)))  # before each cell


def test_a_device_is_one_of_the_workers(cluster, tmp_path):
    with pytest.raises(WrongWorkerError, match=r"The worker tcp://\S+ cannot be used: .*'warp'"):
        reproduce(PLAN, tmp_path / "out", dask=cluster.scheduler_address, device="warp", figures=False)
    assert not (tmp_path / "out").exists()


def _set_version(version):
    ledl.__version__ = version


def test_another_version_on_a_worker(cluster, client, tmp_path):
    client.run(_set_version, "9.9")
    try:
        with pytest.raises(
            WrongWorkerError, match=r"worker tcp:.* a difference in ledl \('9.9' there.*Install"
        ):
            reproduce(PLAN, tmp_path / "out", dask=cluster.scheduler_address, figures=False)
    finally:
        client.run(_set_version, ledl.__version__)
    assert not (tmp_path / "out").exists()


def test_other_code_of_the_same_version_on_the_workers(cluster, tmp_path, monkeypatch):
    changed = dataclasses.replace(
        METHODS["ridge"], steps=[("sklearn.linear_model:RidgeClassifier", {"fit_intercept": False})]
    )
    monkeypatch.setitem(METHODS, "ridge", changed)
    with pytest.raises(WrongWorkerError, match=r"worker tcp://\S+ .* ridge on .* a difference in parameters"):
        reproduce(PLAN, tmp_path / "out", dask=cluster.scheduler_address, figures=False)
    assert not (tmp_path / "out").exists()


def test_no_ledl_on_a_worker(cluster, monkeypatch):
    elsewhere = ModuleType("nothing_that_a_worker_has")
    elsewhere.find = type(idle)(idle.__code__, globals(), "find")
    elsewhere.find.__module__, elsewhere.find.__qualname__ = elsewhere.__name__, "find"
    monkeypatch.setitem(sys.modules, elsewhere.__name__, elsewhere)
    monkeypatch.setattr(on_cluster, "find_trouble_in_thread", elsewhere.find)
    message = r"worker tcp://\S+ cannot be used: it has no ledl or no method of yours.*No module named"
    with pytest.raises(WrongWorkerError, match=message), connected(cluster.scheduler_address, NOTHING):
        pass


@pytest.mark.parametrize("address", ["nowhere", "tcp://", "", "http://localhost:80", "tcp://127.0.0.1:1"])
def test_no_cluster_at_that_address(address, tmp_path, monkeypatch):
    monkeypatch.setattr(on_cluster, "CONNECT_SECONDS", 0.5)
    with pytest.raises(ConnectionError, match=f"dask='{address}' does not answer as .*Give the address that"):
        reproduce(PLAN, tmp_path / "out", dask=address, figures=False)
    assert not (tmp_path / "out").exists()


def test_a_cluster_without_workers(tmp_path, monkeypatch):
    monkeypatch.setattr(on_cluster, "FIRST_WORKER_SECONDS", 0.5)
    with (
        local_cluster(n_workers=0) as cluster,
        pytest.raises(ConnectionError, match=r"no worker answered.*Start workers"),
    ):
        reproduce(PLAN, tmp_path / "out", dask=cluster.scheduler_address, figures=False)
    assert not (tmp_path / "out").exists()


def test_processes_and_a_cluster_at_once_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"n_jobs=2 is for processes .* dask='tcp://x:1'.*Leave out one"):
        reproduce(PLAN, tmp_path / "out", n_jobs=2, dask="tcp://x:1", figures=False)
    assert not (tmp_path / "out").exists()


def test_without_the_extra_its_name_is_given(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ImportError, match=r"pip install 'ledl\[dask\]'"):
        reproduce(PLAN, tmp_path / "out", dask="tcp://x:1", figures=False)
    assert not (tmp_path / "out").exists()
