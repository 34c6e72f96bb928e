"""Thousands of calls on one model: nothing grows, neither memory nor threads nor open files."""

import gc
import os
import threading
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from helpers.models import make
from ledl.features import PixelFeatures

# Every coder and rule once, a kernel, and threads.
MODELS = ["crc", "ksvd", "lcksvd", "ledl", "ledl-rbf", "src", "src-threads"]
# Calls before the first measurement: caches and the allocator's own pools are full by then.
WARM_UP = 30
# Growth by chance, and free small objects that Python keeps, such as some thousands of tuples. A leak of the
# array of one sample would be 300 bytes a call and more.
BYTES, BYTES_A_CALL, RESIDENT_MEGABYTES = 2**15, 100, 8
# Tracing makes calls ten times slower.
MOST_TRACED = 1000

on_linux = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc, to see what is open")
times = pytest.mark.parametrize("n_calls", [60, pytest.param(10_000, marks=pytest.mark.slow)])


def resident_megabytes():
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def open_files():
    return len(os.listdir("/proc/self/fd"))


def assert_nothing_grows(call, n_calls):
    """Call many times. `call` takes the number of the call."""
    for number in range(WARM_UP):
        call(number)
    resident, files, threads = resident_megabytes(), open_files(), threading.active_count()
    traced = min(n_calls, MOST_TRACED)
    for number in range(n_calls - traced):
        call(number)
    assert bytes_grown(call, traced) < BYTES + BYTES_A_CALL * traced
    assert resident_megabytes() - resident < RESIDENT_MEGABYTES
    assert open_files() <= files
    assert threading.active_count() <= threads


def bytes_grown(call, n_calls):
    """Return by how many bytes Python's objects, with NumPy's arrays, have grown after the calls."""
    tracemalloc.start()
    try:
        for number in range(WARM_UP):  # replaces objects that are not traced by traced ones
            call(number)
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        for number in range(n_calls):
            call(number)
        gc.collect()
        return tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


@on_linux
@times
@pytest.mark.parametrize("name", MODELS)
def test_calls_on_one_model_leave_nothing_behind(name, n_calls, rng):
    y = np.repeat(np.arange(4), 5)
    X = rng.random((4, 30))[y] + 0.3 * rng.random((20, 30))
    settings = {"n_jobs": 2} if name == "src-threads" else {"n_components": 4} if name == "ksvd" else {}
    model = make(name.removesuffix("-threads"), random_state=0, **settings).fit(X, y)
    new = rng.random((64, 30))
    names = ("predict", "decision_function", "transform") if hasattr(model, "predict") else ("transform",)
    methods = [getattr(model, name) for name in names]

    def call(number):
        for method in methods:
            method(new[number % 64 : number % 64 + 1])

    assert_nothing_grows(call, n_calls)


@on_linux
@times
def test_fits_leave_nothing_behind(n_calls, rng):
    y = np.repeat(np.arange(3), 4)
    X = rng.random((12, 20))
    models = [make(name) for name in ("crc", "ledl", "lcksvd")]

    def call(number):
        models[number % 3].fit(X, y)

    assert_nothing_grows(call, n_calls)


@on_linux
@times
@pytest.mark.filterwarnings("ignore:1 of 2 images could not be read:UserWarning")
def test_images_good_and_bad_leave_nothing_open(n_calls, rng, tmp_path):
    Image.fromarray(rng.integers(0, 256, (12, 12, 3), dtype=np.uint8)).save(tmp_path / "good.png")
    (tmp_path / "bad.png").write_bytes((tmp_path / "good.png").read_bytes()[:200])
    extractor = PixelFeatures(size=8, on_error="skip")
    assert_nothing_grows(
        lambda number: extractor.transform([tmp_path / "good.png", tmp_path / "bad.png"]), n_calls
    )
