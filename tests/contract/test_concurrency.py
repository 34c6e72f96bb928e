"""One model in many threads, and in forked processes: the answers are those of one thread."""

import multiprocessing
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import joblib
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from PIL import Image
from sklearn.base import clone
from sklearn.datasets import load_digits

from helpers.models import ESTIMATORS, make
from helpers.networks import write_model
from ledl import SRCClassifier
from ledl.datasets import few_shot_splits
from ledl.features import ColorFeatures, NetworkFeatures, PixelFeatures, Preprocessing

N_THREADS = 8


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    train, test = next(few_shot_splits(y))
    # Parts of several sizes: chunks, and the choice of a solver, depend on them.
    sizes = np.cumsum([1, 40, 3, 70, 2, 10, 64, 1, 33, 20, 5, 40])
    return X[train], y[train], np.split(X[test][: sizes[-1]], sizes[:-1])


@pytest.fixture(params=ESTIMATORS, scope="module")
def model(request, digits):
    return make(request.param, random_state=0).fit(*digits[:2])


def all_answers(model, part):
    names = ("predict", "decision_function", "transform") if hasattr(model, "predict") else ("transform",)
    return [getattr(model, name)(part) for name in names]


def at_once(tasks):
    """Results of functions, all of which begin together."""
    barrier = threading.Barrier(N_THREADS)

    def run(number):
        barrier.wait()
        return [task() for task in tasks[number::N_THREADS]]

    with ThreadPoolExecutor(N_THREADS) as pool:
        by_thread = list(pool.map(run, range(N_THREADS)))
    return [by_thread[i % N_THREADS][i // N_THREADS] for i in range(len(tasks))]


def assert_same(found, expected):
    """To rounding, which may depend on how many threads BLAS had at the moment."""
    for some, others in zip(found, expected, strict=True):
        for one, other in zip(some, others, strict=True):
            if np.asarray(one).dtype.kind == "f":
                assert_allclose(one, other, rtol=1e-12, atol=1e-13)
            else:
                assert_array_equal(one, other)


def test_threads_on_one_model_get_what_one_thread_gets(model, digits):
    parts = digits[2] * 2
    expected = [all_answers(model, part) for part in parts]
    assert_same(at_once([lambda part=part: all_answers(model, part) for part in parts]), expected)


@pytest.mark.parametrize("name", ["src", "ledl-regularized", "lcksvd"])  # each coder once
def test_threads_that_start_threads_get_what_one_thread_gets(name, digits):
    X, y, parts = digits
    model = make(name, n_jobs=2, random_state=0).fit(X, y)
    expected = [all_answers(model, part) for part in parts]
    assert_same(at_once([lambda part=part: all_answers(model, part) for part in parts]), expected)


def test_jobs_of_joblib_in_threads(model, digits):
    """Where `n_jobs` of the model is None, it is joblib's context that says how many."""
    parts = digits[2]
    expected = [all_answers(model, part) for part in parts]
    with joblib.parallel_config("threading", n_jobs=2):
        found = joblib.Parallel()(joblib.delayed(all_answers)(model, part) for part in parts)
    assert_same(found, expected)


def test_several_models_are_fitted_and_used_at_once(digits):
    X, y, parts = digits
    kinds = [make(name, random_state=3) for name in ("src", "ledl", "lcksvd", "csdl", "crc", "dksvd")] * 2
    expected = [all_answers(clone(kind).fit(X, y), parts[3]) for kind in kinds]
    tasks = [lambda kind=kind: all_answers(clone(kind).fit(X, y), parts[3]) for kind in kinds]
    assert_same(at_once(tasks), expected)


def test_a_model_is_fitted_while_another_predicts_and_blas_is_given_back(digits):
    from threadpoolctl import threadpool_info

    def blas_threads():
        return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]

    X, y, parts = digits
    before, model = blas_threads(), SRCClassifier().fit(X, y)
    at_once([lambda: clone(model).fit(X, y).predict(parts[1]), lambda: model.predict(parts[3])] * 8)
    assert blas_threads() == before


FIRST_CALLS = """
import threading
import numpy as np
from ledl import {names}
rng = np.random.default_rng(0)
y = np.repeat(np.arange(3), 4)
X, new = rng.random((12, 9)), rng.random((5, 9))
models = [{models}]
barrier, found = threading.Barrier(2 * len(models)), [None] * (2 * len(models))
def run(i):
    barrier.wait()
    found[i] = models[i // 2].fit(X, y).decision_function(new) if i % 2 else (
        type(models[i // 2])(**models[i // 2].get_params()).fit(X, y).decision_function(new))
threads = [threading.Thread(target=run, args=(i,)) for i in range(2 * len(models))]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
serial = [models[i // 2].fit(X, y).decision_function(new) for i in range(len(found))]
assert all(f is not None and np.array_equal(f, s) for f, s in zip(found, serial)), (found, serial)
print("same")
"""


@pytest.mark.parametrize("cached", [False, True], ids=["no cache of compiled code", "cache"])
def test_first_calls_may_race(cached, tmp_path):
    """Imports and compilation, in two threads at once, are the first thing that happens."""
    code = FIRST_CALLS.format(names="SRCClassifier", models="SRCClassifier()")
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)} if not cached else dict(os.environ)
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert done.stdout.strip() == "same", done.stderr[-2000:]


@pytest.mark.slow
def test_first_calls_of_several_models_may_race(tmp_path):
    names = "SRCClassifier, LEDLClassifier, LCKSVDClassifier"
    models = (
        "SRCClassifier(), LEDLClassifier(random_state=0, max_iter=3, tol=0), "
        "LCKSVDClassifier(random_state=0, max_iter=3)"
    )
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-W", "error", "-c", FIRST_CALLS.format(names=names, models=models)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment)
    assert done.stdout.strip() == "same", done.stderr[-2000:]


@pytest.fixture
def folders(rng, tmp_path):
    """Lists of files, each with as many bad ones as its number."""
    lists = []
    for number in range(N_THREADS):
        files = [tmp_path / f"{number}_{i}.png" for i in range(10)]
        for i, file in enumerate(files):
            if i < number:
                file.write_text("no image")
            else:
                Image.fromarray(rng.integers(0, 256, (9, 9, 3), dtype=np.uint8)).save(file)
        lists.append(files)
    return lists


@pytest.mark.filterwarnings("ignore:. of 10 images could not be read:UserWarning")
@pytest.mark.parametrize("kind", ["pixels", "color", "network"])
def test_one_extractor_in_several_threads(kind, folders, tmp_path, monkeypatch):
    """Rows are those of the files, and each thread reports only its own bad files."""
    small = Preprocessing(size=8, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))
    if kind == "pixels":
        extractor = PixelFeatures(size=4, on_error="skip")
    elif kind == "color":
        extractor = ColorFeatures(on_error="skip")
    else:
        write_model(tmp_path / "model.onnx")
        extractor = NetworkFeatures(tmp_path / "model.onnx", preprocessing=small, on_error="skip", batch_size=2)
    told = []
    monkeypatch.setattr(
        "ledl.images._reading.Skipped.warn", lambda self, n, *words: told.append((n, len(self)))
    )
    expected = [extractor.transform(files) for files in folders]
    assert told == [(10, number) for number in range(N_THREADS)]
    told.clear()
    found = at_once([lambda files=files: extractor.transform(files) for files in folders])
    assert_same([found], [expected])
    assert sorted(told) == [(10, number) for number in range(N_THREADS)]
    assert len(extractor.skipped_) in range(N_THREADS)


def answer_in_child(model, part, queue):
    queue.put(all_answers(model, part))


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
@pytest.mark.parametrize(("name", "n_jobs"), [("src", 1), ("src", 2), ("ledl", 2), ("lcksvd", 2), ("crc", 2)])
def test_a_fork_after_use_works(name, n_jobs, digits):
    X, y, parts = digits
    model = make(name, n_jobs=n_jobs, random_state=0)
    expected = all_answers(model.fit(X, y), parts[3])
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    children = [context.Process(target=answer_in_child, args=(model, parts[3], queue)) for _ in range(2)]
    for child in children:
        child.start()
    try:
        found = [queue.get(timeout=60) for _ in children]
    finally:
        for child in children:
            child.join(timeout=5)
            child.kill()
    assert_same(found, [expected] * 2)
