"""Samples in files give the model of samples in memory, in bounded memory; work on chunks of rows."""

import subprocess
import sys

import numpy as np
import pytest
from joblib import parallel_config
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import load_digits

from helpers import pickle_counter
from helpers.stored import OPTIONS, assert_same, in_file
from ledl import LEDLClassifier, explain
from ledl.samples import map_rows

try:
    import dask.array as da
except ImportError:  # the fixture client skips tests then
    da = None


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X[:200], y[:200]


@pytest.fixture(scope="module")
def expected(digits):
    return LEDLClassifier(**OPTIONS).fit(*digits)


@pytest.mark.parametrize(("batch_size", "threads"), [(None, 1), (1, 1), (7, 2), (64, 1), (199, 2), (500, 2)])
def test_a_memory_map_gives_the_model_of_the_array(digits, expected, tmp_path, batch_size, threads):
    X, y = digits
    model = LEDLClassifier(**OPTIONS, batch_size=batch_size, n_jobs=threads).fit(
        in_file(X, tmp_path / "X.npy"), y
    )
    assert_same(model, expected, 1e-8)
    assert_array_equal(model.predict(X), expected.predict(X))
    in_blocks = LEDLClassifier(**OPTIONS, batch_size=batch_size, n_jobs=threads).fit(X, y)
    assert_same(in_blocks, expected, 1e-8)


def test_blocks_without_some_classes(digits, tmp_path):
    X, y = digits
    order = np.argsort(y, kind="stable")
    expected = LEDLClassifier(**OPTIONS).fit(X[order], y[order])
    for source in (X[order], in_file(X[order], tmp_path / "X.npy")):
        assert_same(LEDLClassifier(**OPTIONS, batch_size=11).fit(source, y[order]), expected, 1e-8)


def test_float32_random_start_codes_and_no_scaling(digits, tmp_path):
    X, y = digits
    for i, options in enumerate(({"init": "random"}, {"keep_codes": True}, {"normalize": False, "alpha": 1.0})):
        for dtype, tol in ((np.float64, 1e-8), (np.float32, 1e-3)):
            source = in_file((X / 16).astype(dtype), tmp_path / f"{i}{np.dtype(dtype)}.npy")
            expected = LEDLClassifier(**OPTIONS, **options).fit((X / 16).astype(dtype), y)
            model = LEDLClassifier(**OPTIONS, **options, batch_size=50).fit(source, y)
            assert model.components_.dtype == dtype
            assert_allclose(model.components_, expected.components_, atol=tol)
            if options.get("keep_codes"):
                assert_allclose(model.training_codes_, expected.training_codes_, atol=tol)
                assert type(model.training_codes_) is np.ndarray


@pytest.mark.parametrize("normalize", [True, False])
def test_square_roots_of_a_memory_map_are_taken_block_by_block(digits, tmp_path, normalize, monkeypatch):
    X, y = digits
    X = np.concatenate([X - 2, np.zeros((1, 64))])  # with signs, and a sample without a norm
    y = np.append(y, y[0])
    options = {**OPTIONS, "kernel": "hellinger", "normalize": normalize}
    expected = LEDLClassifier(**OPTIONS, normalize=normalize).fit(np.copysign(np.sqrt(np.abs(X)), X), y)
    mapped = in_file(X, tmp_path / "X.npy")
    monkeypatch.setattr(LEDLClassifier, "_training_data", None)  # which reads all samples into memory
    assert_same(LEDLClassifier(**options, batch_size=50).fit(mapped, y), expected, 1e-8)


@pytest.mark.parametrize("kernel", ["linear", "hellinger"])
@pytest.mark.parametrize("normalize", [True, False])
def test_samples_of_a_memory_map_are_kept_for_explanations(digits, tmp_path, kernel, normalize, monkeypatch):
    """Workers of joblib get large arrays as memory-maps."""
    X, y = digits
    options = {**OPTIONS, "kernel": kernel, "normalize": normalize}
    mapped = in_file(X, tmp_path / "X.npy")
    model, expected = (LEDLClassifier(**options).fit(source, y) for source in (mapped, X))
    assert_allclose(model.dictionary_.samples, expected.dictionary_.samples, atol=1e-12)
    assert not np.shares_memory(model.dictionary_.samples, mapped)
    assert_array_equal(explain(model, X[0]).neighbors, explain(expected, X[0]).neighbors)
    monkeypatch.setattr("ledl.estimators._base.KEPT_NUMBERS", X.size - 1)
    assert LEDLClassifier(**options).fit(mapped, y).dictionary_.samples is None


def test_maps_that_are_not_plain_rows_are_read_as_arrays(digits, expected, tmp_path):
    X, y = digits
    for i, source in enumerate((X.astype(np.uint8), np.asfortranarray(X))):
        mapped = in_file(source, tmp_path / f"{i}.npy")
        assert_same(LEDLClassifier(**OPTIONS).fit(mapped, y), expected, 1e-8)
    few = in_file(X[:40], tmp_path / "few.npy")  # fewer samples than features
    assert_same(LEDLClassifier(**OPTIONS).fit(few, y[:40]), LEDLClassifier(**OPTIONS).fit(X[:40], y[:40]), 1e-8)


def test_bad_samples_in_a_file_are_reported(digits, tmp_path):
    X, y = digits
    bad = X.copy()
    bad[150, 3] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        LEDLClassifier().fit(in_file(bad, tmp_path / "nan.npy"), y)
    bad[150, 3] = 1e200
    with pytest.raises(ValueError, match="row 150"):
        LEDLClassifier(normalize=False).fit(in_file(bad, tmp_path / "large.npy"), y)
    with pytest.raises(ValueError, match="batch_size"):
        LEDLClassifier(batch_size=0).fit(X, y)


BOUNDED = """
import sys, numpy as np
from ledl import LEDLClassifier
def anonymous():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssAnon")) / 1024
small = np.load(sys.argv[1], mmap_mode="r")
X = np.load(sys.argv[2], mmap_mode="r")
y = np.arange(len(X)) % 5
options = dict(n_components=20, max_iter=3, tol=0, batch_size=2000, random_state=0)
LEDLClassifier(**options).fit(small, y[:len(small)])  # compiles
import threading, time
before, peak, done = anonymous(), [0.0], [False]
def watch():
    while not done[0]:
        peak[0] = max(peak[0], anonymous()); time.sleep(0.002)
watcher = threading.Thread(target=watch); watcher.start()
LEDLClassifier(**options).fit(X, y)
done[0] = True; watcher.join()
print(peak[0] - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks Linux for its memory")
def test_memory_does_not_grow_with_the_file(tmp_path):
    rng = np.random.default_rng(0)
    np.save(tmp_path / "small.npy", rng.standard_normal((3000, 100)))
    np.save(tmp_path / "X.npy", rng.standard_normal((200_000, 100)))  # 160 MB, and codes of 64 MB
    words = [sys.executable, "-c", BOUNDED, str(tmp_path / "small.npy"), str(tmp_path / "X.npy")]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=300)
    assert float(done.stdout) < 30  # MiB


def test_work_is_sent_to_each_worker_once(client):
    client.run(pickle_counter.reset)
    x = da.ones((100, 4), chunks=(1, 4))
    found = map_rows(pickle_counter.PickleCounter(np.zeros(100_000)), x, np.float64).sum().compute()
    arrivals = client.run(pickle_counter.count)
    assert found == 100
    assert sum(arrivals.values()) >= 1
    assert max(arrivals.values()) == 1


def test_workers_use_the_requested_threads(client):
    # joblib alone gives one job in processes that may have no children, and a warning.
    found = map_rows(pickle_counter.threads_for_three_jobs, da.ones((4, 2), chunks=(2, 2)), np.int64)
    assert_array_equal(found.compute(), [3, 3, 3, 3])
    found = map_rows(pickle_counter.threads_by_default, da.ones((2, 2)), np.int64)
    assert_array_equal(found.compute(), [1, 1])


@pytest.mark.skipif(da is None, reason="needs the extra dask")
def test_jobs_of_a_context_are_those_of_the_eager_call():
    lazy = map_rows(pickle_counter.threads_by_default, da.ones((2, 2)), np.int64)
    with parallel_config(n_jobs=2):
        assert_array_equal(lazy.compute(scheduler="sync"), [2, 2])
