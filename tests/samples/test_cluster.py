"""Training on Dask arrays gives the model of the array in memory, even if workers of the cluster are killed."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.datasets import load_digits

from helpers.stored import OPTIONS, assert_same, in_file
from ledl import LEDLClassifier
from ledl.samples import BlockError, ClusterBlocks, share_out
from ledl.samples._cluster import Outcome, add_outcomes, chunks_of
from ledl.subspace import AS_THEY_ARE

dask = pytest.importorskip("dask", reason="needs the extra dask")
da = pytest.importorskip("dask.array", reason="needs the extra dask")


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X[:200], y[:200]


@pytest.fixture(scope="module")
def expected(digits):
    return LEDLClassifier(**OPTIONS).fit(*digits)


CHUNKS = [(200,), (64, 64, 72), (1, 150, 0, 49), (7,) * 28 + (4,)]


@pytest.mark.parametrize("rows", CHUNKS)
def test_without_a_cluster(digits, expected, rows):
    X, y = digits
    source = da.from_array(X, chunks=(rows, 30))
    model = LEDLClassifier(**OPTIONS, n_jobs=2).fit(source, da.from_array(y, chunks=50))
    assert_same(model, expected, 1e-8)
    assert model.n_features_in_ == 64
    assert_array_equal(model.predict(X), expected.predict(X))


@pytest.mark.parametrize(("rows", "batch_size"), list(zip(CHUNKS, [5, None, 5, None], strict=True)))
def test_on_a_cluster(client, digits, expected, rows, batch_size):
    X, y = digits
    source = da.from_array(X, chunks=(rows, 30))
    model = LEDLClassifier(**OPTIONS, batch_size=batch_size).fit(source, da.from_array(y, chunks=50))
    assert_same(model, expected, 1e-8)


def test_samples_on_the_cluster_and_chunks_without_some_class(client, digits, expected):
    X, y = digits
    order = np.argsort(y, kind="stable")
    expected = LEDLClassifier(**OPTIONS).fit(X[order], y[order])
    source = da.from_array(X[order], chunks=(11, -1)).persist()
    assert_same(LEDLClassifier(**OPTIONS).fit(source, y[order]), expected, 1e-8)
    # Half of the graph lies on the cluster, half is computed again; and two chunks are made of one.
    assert_same(LEDLClassifier(**OPTIONS).fit(source.rechunk((22, 30)) * 2.0, y[order]), expected, 1e-8)


def test_a_large_array_is_not_sent_with_every_chunk(client, tmp_path):
    mapped = in_file(np.ones((1000, 50)), tmp_path / "X.npy")
    chunks = chunks_of(da.from_array(mapped, chunks=(10, -1)), client)
    assert len(chunks) == 100
    assert sum(len(chunk.recipe) for chunk in chunks) < 1000 * 50 * 8
    assert all(chunk.parts for chunk in chunks)
    # But what merely has a small array in its graph is made on the workers.
    made = da.random.random((1000, 50), chunks=(10, -1)) - np.ones(50)
    assert not any(chunk.parts for chunk in chunks_of(made, client))


def test_types_lengths_and_codes(client, digits):
    X, y = digits
    expected = LEDLClassifier(**OPTIONS, keep_codes=True).fit(X, y)
    whole = da.from_array(X.astype(np.uint8), chunks=(60, -1))
    unknown = whole[da.from_array(np.arange(200) < 200, chunks=60)]
    assert np.isnan(unknown.shape[0])
    model = LEDLClassifier(**OPTIONS, keep_codes=True).fit(unknown, y)
    assert_same(model, expected, 1e-8)
    assert np.isnan(unknown.shape[0])  # the caller's array is as it was
    np.testing.assert_allclose(model.training_codes_, expected.training_codes_, atol=1e-8)
    single = LEDLClassifier(**OPTIONS).fit(whole.astype(np.float32), y)
    assert single.components_.dtype == np.float32
    np.testing.assert_allclose(single.components_, expected.components_, atol=1e-3)


@pytest.mark.parametrize("normalize", [True, False])
def test_square_roots_are_taken_on_the_workers(client, digits, normalize):
    X, y = digits
    expected = LEDLClassifier(**OPTIONS, normalize=normalize).fit(np.sqrt(X), y)
    model = LEDLClassifier(**OPTIONS, normalize=normalize, kernel="hellinger")
    assert_same(model.fit(da.from_array(X, chunks=(60, -1)), y), expected, 1e-8)
    assert model.dictionary_.samples is None  # they were not collected


def test_fewer_samples_than_features_and_kernels_are_collected(client, digits):
    X, y = digits
    for options, n in (({}, 40), ({"kernel": "rbf"}, 200)):
        expected = LEDLClassifier(**OPTIONS, **options).fit(X[:n], y[:n])
        model = LEDLClassifier(**OPTIONS, **options).fit(da.from_array(X[:n], chunks=(15, 20)), y[:n])
        np.testing.assert_allclose(model.label_components_, expected.label_components_, atol=1e-8)


@pytest.mark.parametrize("on_cluster", [False, True])
def test_bad_samples_are_reported(request, digits, on_cluster):
    if on_cluster:
        request.getfixturevalue("client")
    X, y = digits
    bad = X.copy()
    bad[130] *= 1e-170  # its square underflows, which does not matter for samples that are scaled
    for value in (np.nan, -np.inf):
        bad[150, 3] = value
        with pytest.raises(ValueError, match="NaN or infinity in row 150"):
            LEDLClassifier().fit(da.from_array(bad, chunks=(60, -1)), y)
    with pytest.raises(ValueError, match="row 130, whose squares"):
        LEDLClassifier(normalize=False).fit(da.from_array(bad, chunks=(60, -1)), y)
    bad[130], bad[150, 3] = 0, 1e200
    with pytest.raises(ValueError, match="row 150, whose squares"):
        LEDLClassifier(normalize=False).fit(da.from_array(bad, chunks=(60, -1)), y)
    with pytest.raises(ValueError, match="All samples are zero"):
        LEDLClassifier().fit(da.zeros((200, 64), chunks=60), y)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        LEDLClassifier().fit(da.from_array(X, chunks=60), y[:-1])
    with pytest.raises(ValueError, match="device='cpu' is for samples in memory"):
        LEDLClassifier(device="cpu").fit(da.from_array(X, chunks=60), y)


def unreadable_after(X, folder, number, n_reads):
    """Chunks of 50 samples, one of which can be read only so often, by any process."""

    def read(block_info=None):
        (i, _), (first, stop) = block_info[None]["chunk-location"], block_info[None]["array-location"][0]
        if i == number:
            reads = len(list(folder.iterdir()))
            if reads >= n_reads:
                raise OSError(f"disk of chunk {i} is gone")
            (folder / f"{reads}").touch()
        return X[first:stop]

    return da.map_blocks(read, chunks=((50,) * (len(X) // 50), (X.shape[1],)), dtype=X.dtype)


@pytest.mark.parametrize("on_cluster", [False, True])
def test_a_block_that_cannot_be_read_is_named_and_the_fit_continues_from_its_checkpoint(
    request, tmp_path, digits, expected, on_cluster
):
    if on_cluster:
        request.getfixturevalue("client")
    X, y = digits
    (tmp_path / "reads").mkdir()
    model = LEDLClassifier(**OPTIONS, checkpoint=tmp_path / "fit.checkpoint")
    with pytest.raises(BlockError, match=r"amples 100 to 149.*OSError: disk of chunk 2 is gone"):
        model.fit(unreadable_after(X, tmp_path / "reads", 2, 9), y)
    assert (tmp_path / "fit.checkpoint").exists()
    assert not hasattr(model, "components_")
    model.fit(da.from_array(X, chunks=(50, -1)), y)
    assert_same(model, expected, 1e-8)
    assert not (tmp_path / "fit.checkpoint").exists()


class Kill:
    """Ends a worker with SIGKILL after a number of steps of a fit."""

    def __init__(self, client, after):
        self._client, self._after, self.killed = client, after, []

    def __call__(self, steps):
        if steps == self._after and not self.killed:
            self.killed = [sorted(self._client.run(os.getpid).values())[0]]
            os.kill(self.killed[0], signal.SIGKILL)


@pytest.mark.parametrize(
    ("on_cluster", "with_checkpoint"), [(False, False), (True, True)], ids=["read again", "on the cluster"]
)
def test_a_killed_worker_changes_nothing(monkeypatch, client, tmp_path, digits, on_cluster, with_checkpoint):
    X, y = digits
    source = da.from_array(X, chunks=(30, -1))
    source = source.persist() if on_cluster else source
    undisturbed = LEDLClassifier(**OPTIONS).fit(source, y)
    kill, steps, take = Kill(client, 8), [0], ClusterBlocks.map_sum

    def counted(self, step):
        steps[0] += 1
        kill(steps[0])
        return take(self, step)

    monkeypatch.setattr(ClusterBlocks, "map_sum", counted)
    checkpoint = tmp_path / "fit" if with_checkpoint else None
    model = LEDLClassifier(**OPTIONS, checkpoint=checkpoint).fit(source, y)
    assert kill.killed
    for name in ("components_", "label_components_", "code_components_"):
        assert_array_equal(getattr(model, name), getattr(undisturbed, name))


def test_a_worker_killed_in_the_middle_of_a_step(client, digits):
    X, y = digits

    def slow(part):
        time.sleep(0.05)
        return part

    source = da.from_array(X, chunks=(30, -1))
    undisturbed = LEDLClassifier(**OPTIONS).fit(source, y)
    victim = sorted(client.run(os.getpid).values())[-1]
    timer = threading.Timer(1.0, os.kill, (victim, signal.SIGKILL))
    timer.start()
    model = LEDLClassifier(**OPTIONS).fit(source.map_blocks(slow), y)  # sleeps for 3 s
    assert not timer.is_alive()
    assert victim not in client.run(os.getpid).values()
    assert_array_equal(model.components_, undisturbed.components_)


def test_a_restarted_cluster_is_reported_and_the_fit_continues_elsewhere(
    monkeypatch, tmp_path, digits, expected
):
    distributed = pytest.importorskip("distributed")
    X, y = digits
    steps, take = [0], ClusterBlocks.map_sum
    model = LEDLClassifier(**OPTIONS, checkpoint=tmp_path / "fit")
    source = da.from_array(X, chunks=(50, -1))
    options = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": ":0", "silence_logs": 50}

    def counted(self, step):
        steps[0] += 1
        if steps[0] == 9:
            restarted.restart()
        return take(self, step)

    monkeypatch.setattr(ClusterBlocks, "map_sum", counted)
    with (
        distributed.LocalCluster(**options) as cluster,
        distributed.Client(cluster) as restarted,
        pytest.raises(BlockError, match="Dask cluster is gone or was restarted"),
    ):
        model.fit(source, y)
    assert (tmp_path / "fit").exists()
    model.fit(source, y)  # in this process, as there is no cluster any more
    assert_same(model, expected, 1e-8)


def test_a_killed_scheduler_is_reported(monkeypatch, tmp_path, digits, expected):
    """A scheduler of its own process, as clusters have it."""
    distributed = pytest.importorskip("distributed")
    X, y = digits
    words = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--port", "0", "--no-dashboard"]
    words += ["--scheduler-file", str(tmp_path / "scheduler.json"), "--dashboard-address", "127.0.0.1:0"]
    worker = [sys.executable, "-m", "distributed.cli.dask_worker", "--scheduler-file"]
    worker += [str(tmp_path / "scheduler.json"), "--nthreads", "1", "--no-dashboard", "--death-timeout", "5"]
    worker += ["--local-directory", str(tmp_path)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    steps, take = [0], ClusterBlocks.map_sum

    def counted(self, step):
        steps[0] += 1
        if steps[0] == 9:
            scheduler.kill()
        return take(self, step)

    model = LEDLClassifier(**OPTIONS, checkpoint=tmp_path / "fit")
    short = {"distributed.comm.timeouts.connect": "2s"}
    with (
        dask.config.set(short),
        subprocess.Popen(words, **quiet) as scheduler,
        subprocess.Popen(worker, **quiet) as served,
    ):
        try:
            with distributed.Client(scheduler_file=str(tmp_path / "scheduler.json")):
                monkeypatch.setattr(ClusterBlocks, "map_sum", counted)
                with pytest.raises(BlockError, match="Dask cluster is gone or was restarted"):
                    model.fit(da.from_array(X, chunks=(50, -1)), y)
        finally:
            scheduler.kill()
            served.terminate()
    monkeypatch.undo()
    assert_same(model.fit(X, y), expected, 1e-8)


def test_a_worker_with_old_codes_or_none_repeats_the_steps(monkeypatch, tmp_path, client, digits):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    X = digits[0]
    chunks = chunks_of(da.from_array(X, chunks=(50, -1)), client)
    spans = [(i, i + 50) for i in range(0, 200, 50)]
    blocks = ClusterBlocks(client, chunks, spans, np.zeros(200, int), np.ones(200), AS_THEY_ARE, 64, 20)
    for add in (1.0, 2.0):
        blocks.map_sum(partial(count_up, add))
        assert blocks.map_sum(count) == (12,)  # and changes nothing
    client.run(copy_codes)
    blocks.map_sum(partial(count_up, 4.0))
    expected = blocks.codes()
    assert expected[0] == pytest.approx(7.0)
    for spoil in (bring_back_old_codes, delete_codes):
        client.run(spoil)
        assert_array_equal(blocks.codes(), expected)
    saved = {first: (np.full((50, 1), 7.0), np.full((50, 1), 7.0)) for first, _ in spans}
    blocks.saved_codes(lambda first, stop: saved[first])
    assert len(blocks._history) == 1
    blocks.map_sum(partial(count_up, 8.0))
    client.run(delete_codes)
    assert_array_equal(blocks.codes(), expected + 8)  # from what was saved, and one step
    blocks.restore_codes(lambda first, stop: saved[first])
    client.run(delete_codes)
    assert_array_equal(blocks.codes(), expected)
    assert not list(tmp_path.iterdir())  # a killed client leaves nothing
    blocks.close()


def count(block):
    return block, (1,)


def count_up(add, block):
    old = np.zeros((len(block.X), 1)) if block.Z is None else block.Z
    return block._replace(Z=old + add, L=old + add), (1,)


def codes_of(dask_worker):
    (folder,) = Path(dask_worker.local_directory).glob("ledl-*")
    return folder


def copy_codes(dask_worker):
    shutil.copytree(codes_of(dask_worker), Path(dask_worker.local_directory) / "old")


def bring_back_old_codes(dask_worker):
    shutil.copytree(Path(dask_worker.local_directory) / "old", codes_of(dask_worker), dirs_exist_ok=True)


def delete_codes(dask_worker):
    shutil.rmtree(codes_of(dask_worker))


def test_outcomes_are_not_used_up():
    """They may be asked for again, where a worker that had a sum of them is lost."""
    parts = [Outcome((np.array([1.0, i]),)) for i in range(3)]
    for _ in range(2):
        assert_array_equal(add_outcomes(*parts).sums[0], [3.0, 3.0])
    assert add_outcomes(parts[0], Outcome(None, (4,)), Outcome(None, (7,))).lost == (4, 7)


def test_chunks_that_share_tasks(client, tmp_path, digits, expected):
    X, y = digits
    source = da.from_array(X, chunks=(25, -1))
    centred = (source - source.mean(axis=0)) + X.mean(axis=0)
    assert_same(LEDLClassifier(**OPTIONS).fit(centred, y), expected, 1e-8)
    shift = client.scatter(np.zeros(64))
    shifted = source.map_blocks(
        lambda part, shift: part + shift, shift=shift, dtype=float, meta=np.empty((0, 0))
    )
    assert_same(LEDLClassifier(**OPTIONS).fit(shifted, y), expected, 1e-8)


@pytest.mark.parametrize("batch_size", [None, 20])
def test_without_a_cluster_chunks_are_made_once_in_a_pass(digits, batch_size):
    X, y = digits
    made = []

    def read(part):
        made.append(len(part))
        return part

    source = da.from_array(X, chunks=(100, -1)).map_blocks(read, dtype=X.dtype, meta=np.empty((0, 0)))
    LEDLClassifier(**OPTIONS, batch_size=batch_size).fit(source, y)
    assert len(made) == 2 * (OPTIONS["max_iter"] + 4)  # a look, the start, sums of squares, and the last pass


def test_a_fit_in_a_task(client, digits, expected):
    X, y = digits

    def fit():
        from distributed import get_client

        get_client()
        return LEDLClassifier(**OPTIONS).fit(da.from_array(X, chunks=(50, -1)), y)

    for model in client.gather([client.submit(fit, pure=False) for _ in range(3)]):
        assert_same(model, expected, 1e-8)


@pytest.mark.parametrize("on_cluster", [False, True])
def test_chunks_that_are_not_what_they_say(request, digits, on_cluster):
    if on_cluster:
        request.getfixturevalue("client")
    X, y = digits
    for wrong in (lambda part: part[:-1], lambda part: part[:, :-1]):
        source = da.from_array(X, chunks=(100, -1))
        source = source.map_blocks(wrong, dtype=X.dtype, meta=np.empty((0, 0)))
        with pytest.raises(BlockError, match=r"amples (0 to 99|100 to 199)"):
            LEDLClassifier(**OPTIONS).fit(source, y)


def test_tiny_and_zero_samples_are_scaled_as_in_memory(client, digits):
    X, y = digits
    odd = X * 1e-310
    odd[50] = 0
    expected = LEDLClassifier(**OPTIONS).fit(odd, y)
    assert_same(LEDLClassifier(**OPTIONS).fit(da.from_array(odd, chunks=(70, -1)), y), expected, 1e-8)


def test_nothing_stays_on_the_workers(client, digits):
    X, y = digits
    LEDLClassifier(**OPTIONS).fit(da.from_array(X, chunks=(50, -1)), y)

    def files(dask_worker):
        return [name for name in os.listdir(dask_worker.local_directory) if name.startswith("ledl")]

    assert not any(client.run(files).values())
    deadline = time.monotonic() + 60
    while any(client.has_what().values()):  # the scheduler hears of released results with a delay
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_blocks_are_shared_out():
    sizes = [10, 10, 10, 10, 10, 10]
    nobody = dict.fromkeys(range(6), ())
    found = share_out(sizes, nobody, {}, {"a": 1, "b": 2})
    assert sorted(found.values()) == ["a"] * 2 + ["b"] * 4
    held = {i: ("b",) if i < 4 else ("a",) for i in range(6)}
    assert share_out(sizes, held, {}, {"a": 1, "b": 2}) == {i: own[0] for i, own in held.items()}
    crowded = share_out(sizes, dict.fromkeys(range(6), ("a",)), {}, {"a": 1, "b": 1})
    assert sorted(crowded.values()) == ["a"] * 3 + ["b"] * 3
    assert share_out(sizes, {0: ("gone",)}, {1: "a", 2: "a", 3: "b"}, {"a": 1, "b": 1}) == {0: "b"}
