"""Fits that were stopped continue to the same model; files of other fits, or of strangers, are refused."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.datasets import load_digits

from helpers.stored import LEARNT, OPTIONS, in_file
from ledl import LEDLClassifier
from ledl.samples._checkpoint import FIRST_LINE, Checkpoint
from ledl.solvers.ledl import solve


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X[:200], y[:200]


class StopError(Exception):
    pass


def stop_after(monkeypatch, n):
    """Fits end with an error after so many iterations."""
    after = Checkpoint.after

    def stopping(self, *args):
        after(self, *args)
        if len(self._records) == n:
            raise StopError

    monkeypatch.setattr(Checkpoint, "after", stopping)


def stopped(monkeypatch, model, X, y, n=5):
    """A fit that was stopped, its last iteration being in the file."""
    with monkeypatch.context() as patch:
        patch.setattr("ledl.samples._checkpoint.SHARE", np.inf)
        stop_after(patch, n)
        with pytest.raises(StopError):
            model.fit(X, y)


@pytest.mark.parametrize(
    ("options", "mapped"),
    [
        ({}, False),
        ({}, True),
        ({"batch_size": 50}, False),
        ({"batch_size": 64, "n_jobs": 2}, True),
        ({"tol": 1e-2, "max_iter": 60}, False),
    ],
)
def test_continues_to_the_same_model(monkeypatch, tmp_path, digits, options, mapped):
    X, y = digits
    X = in_file(X, tmp_path / "X.npy") if mapped else X
    options = {**OPTIONS, **options}
    expected = LEDLClassifier(**options).fit(X, y)
    model = LEDLClassifier(**options, checkpoint=tmp_path / "fit")
    stopped(monkeypatch, model, X, y)
    with monkeypatch.context() as patch:
        stop_after(patch, 1)  # it would stop again if it started from the beginning
        model.fit(X, y)
    for name in LEARNT:
        assert_array_equal(getattr(model, name), getattr(expected, name))
    for name, values in expected.history_.items():
        assert_array_equal(model.history_[name], values)
    assert (model.n_iter_, model.stopped_by_) == (expected.n_iter_, expected.stopped_by_)
    assert not (tmp_path / "fit").exists()


def test_continues_elsewhere(monkeypatch, tmp_path, digits):
    X, y = digits
    expected = LEDLClassifier(**OPTIONS).fit(X, y)
    stopped(monkeypatch, LEDLClassifier(**OPTIONS, checkpoint=tmp_path / "fit"), X, y)
    mapped = in_file(X, tmp_path / "X.npy")
    model = LEDLClassifier(**OPTIONS, checkpoint=tmp_path / "fit", batch_size=33, n_jobs=2).fit(mapped, y)
    np.testing.assert_allclose(model.components_, expected.components_, atol=1e-8)


@pytest.mark.parametrize("case", ["few samples", "kernel", pytest.param("tensor", marks=pytest.mark.torch)])
def test_fewer_samples_than_features_a_kernel_and_tensors(monkeypatch, tmp_path, digits, case):
    X, y = digits[0][:40], digits[1][:40]
    options = {**OPTIONS, "kernel": "rbf"} if case == "kernel" else OPTIONS
    if case == "tensor":
        import torch

        X, y = torch.asarray(digits[0]), digits[1]
    expected = LEDLClassifier(**options).fit(X, y)
    model = LEDLClassifier(**options, checkpoint=str(tmp_path / "fit"))
    stopped(monkeypatch, model, X, y)
    assert_array_equal(model.fit(X, y).label_components_, expected.label_components_)


def test_a_file_of_another_fit_is_refused(monkeypatch, tmp_path, digits):
    X, y = digits
    model = LEDLClassifier(**OPTIONS, checkpoint=tmp_path / "fit")
    stopped(monkeypatch, model, X, y)
    before = (tmp_path / "fit").read_bytes()
    with pytest.raises(ValueError, match=r"another fit: alpha was 0.015625, and is 0.1"):
        clone(model).set_params(alpha=0.1).fit(X, y)
    with pytest.raises(ValueError, match="another fit: n_samples was 200, and is 199"):
        clone(model).fit(X[:-1], y[:-1])
    with pytest.raises(ValueError, match="another fit: labels"):
        clone(model).fit(X, np.roll(y, 1))
    with pytest.raises(ValueError, match="a fit on other samples"):
        clone(model).fit(X[::-1], y)
    assert (tmp_path / "fit").read_bytes() == before


def test_what_is_no_checkpoint_is_refused_and_stays(monkeypatch, tmp_path, digits):
    X, y = digits
    path = tmp_path / "fit"
    model = LEDLClassifier(**OPTIONS, checkpoint=path)
    stopped(monkeypatch, model, X, y)
    good = path.read_bytes()
    header = json.loads(good[len(FIRST_LINE) :].split(b"\n")[0])
    others = [
        b"",
        b"something else",
        FIRST_LINE,
        FIRST_LINE + b"[" * 100_000,
        FIRST_LINE + json.dumps({**header, "iterations": 0}).encode() + b"\n",
        FIRST_LINE + json.dumps({**header, "iterations": 10**12}).encode() + b"\n" + bytes(10**6),
        FIRST_LINE + json.dumps({**header, "records": 3}).encode() + b"\n",
        good.replace(b'"augmented_objective"', b'"augmented_objectivE"'),
        good.replace(b'"alpha": 0.015625', b'"alpha": 0.015626'),
        FIRST_LINE
        + json.dumps({**header, "records": [], "iterations": 10**12}).encode()
        + b"\n"
        + good[len(FIRST_LINE) :].split(b"\n", 1)[1][5 * 11 * 8 :],
        good[:-1],
        good + b"x",
        good.replace(FIRST_LINE, b"ledl checkpoint, format 2\n"),
    ]
    for content in others:
        path.write_bytes(content)
        with pytest.raises(ValueError, match="checkpoint="):
            model.fit(X, y)
        assert path.read_bytes() == content
    path.write_bytes(good)
    model.fit(X, y)


def test_more_iterations_may_be_asked_for_but_not_fewer(monkeypatch, tmp_path, digits):
    X, y = digits
    model = LEDLClassifier(**OPTIONS, checkpoint=tmp_path / "fit")
    stopped(monkeypatch, model, X, y)
    with pytest.raises(ValueError, match="has 5 iterations, but max_iter=3"):
        clone(model).set_params(max_iter=3).fit(X, y)
    longer = clone(model).set_params(max_iter=20).fit(X, y)
    expected = LEDLClassifier(**{**OPTIONS, "max_iter": 20}).fit(X, y)
    assert_array_equal(longer.components_, expected.components_)


def test_a_fit_that_diverged_leaves_nothing(tmp_path, digits):
    X, y = digits
    model = LEDLClassifier(**{**OPTIONS, "max_iter": 4000}, rho=1e-3, dual_step=50.0, dual_step_decay=1.0)
    with np.errstate(all="ignore"), pytest.raises(ValueError, match="infinite or NaN"):
        model.set_params(checkpoint=tmp_path / "fit").fit(X.astype(np.float32), y)
    assert list(tmp_path.iterdir()) == []


def test_fits_with_one_file_do_not_undo_each_other(monkeypatch, tmp_path, digits):
    X, y = digits
    model = LEDLClassifier(**OPTIONS, checkpoint=tmp_path / "fit")
    stopped(monkeypatch, model, X, y)
    others = (tmp_path / "fit").read_bytes()
    (tmp_path / "fit").unlink()
    begin = Checkpoint.begin

    def overtaken(self, *args):
        done = begin(self, *args)
        (tmp_path / "fit").write_bytes(others)
        return done

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "begin", overtaken)
        with pytest.raises(ValueError, match="written by another fit meanwhile"):
            clone(model).set_params(alpha=0.1).fit(X, y)
    assert (tmp_path / "fit").read_bytes() == others
    assert len(list(tmp_path.iterdir())) == 1  # no part of a file


def test_how_often_it_is_written(monkeypatch, tmp_path, digits):
    """Files that cost nothing are always written, expensive ones for a tenth of the time."""
    X, y = digits
    clock, cost, writes = [0.0], [0.0], []
    write = Checkpoint._write

    def slow(self, *args):
        write(self, *args)
        writes.append(len(self._records))
        clock[0] += cost[0]

    def later(self, *args):
        clock[0] += 1.0  # an iteration
        after(self, *args)

    after = Checkpoint.after
    monkeypatch.setattr("ledl.samples._checkpoint.time.monotonic", lambda: clock[0])
    monkeypatch.setattr(Checkpoint, "_write", slow)
    monkeypatch.setattr(Checkpoint, "after", later)
    for cost[0], expected in ((0.0, list(range(1, 13))), (0.5, [1, 6, 11]), (100.0, [1])):
        writes.clear()
        LEDLClassifier(**OPTIONS, checkpoint=tmp_path / "fit").fit(X, y)
        assert writes == expected


def test_too_little_space_is_reported_before_training(monkeypatch, tmp_path, digits):
    monkeypatch.setattr(
        "ledl.samples._checkpoint.shutil.disk_usage", lambda folder: shutil._ntuple_diskusage(1, 1, 0)
    )
    with pytest.raises(OSError, match="A checkpoint and its successor need"):
        LEDLClassifier(**OPTIONS, checkpoint=tmp_path / "fit").fit(*digits)
    assert list(tmp_path.iterdir()) == []


def test_float32_samples_are_distinguished_but_not_ways_to_scale_them(monkeypatch, tmp_path, digits):
    X, y = digits
    X = X.astype(np.float32)
    mapped = in_file(X, tmp_path / "X.npy")
    model = LEDLClassifier(**OPTIONS, checkpoint=tmp_path / "fit")
    stopped(monkeypatch, model, X, y)
    other = X.copy()
    other[77, :10] += 0.05
    with pytest.raises(ValueError, match="a fit on other samples"):
        clone(model).fit(other, y)
    clone(model).set_params(batch_size=60).fit(mapped, y)


@pytest.mark.torch
def test_other_devices_and_lists(monkeypatch, tmp_path, digits):
    X, y = digits
    model = LEDLClassifier(**OPTIONS, checkpoint=tmp_path / "fit")
    stopped(monkeypatch, model, X, y)
    there = clone(model).set_params(device="cpu").fit(X, y)
    np.testing.assert_allclose(there.components_, LEDLClassifier(**OPTIONS).fit(X, y).components_, atol=1e-8)


def test_kernels_that_cannot_be_distinguished(tmp_path, digits):
    X, y = digits
    model = LEDLClassifier(**OPTIONS, kernel=lambda a, b: float(a @ b), checkpoint=tmp_path / "fit")
    with pytest.raises(ValueError, match="Give a function of a module"):
        model.fit(X[:40], y[:40])


def test_searches_and_streams_have_none(tmp_path, digits):
    from ledl import BatchedSearchCV

    X, y = digits
    model = LEDLClassifier(**OPTIONS, checkpoint=tmp_path / "fit")
    with pytest.raises(ValueError, match="a search has many"):
        BatchedSearchCV(model, {"alpha": [0.1]}).fit(X, y)
    with pytest.raises(ValueError, match="is for fit"):
        model.partial_fit(X, y, classes=range(10))


def test_callbacks_are_called_for_new_iterations_only(monkeypatch, tmp_path, digits):
    X, y = digits
    model = LEDLClassifier(**OPTIONS, checkpoint=tmp_path / "fit")
    stopped(monkeypatch, model, X, y)
    heard = []
    monkeypatch.setattr(
        "ledl.estimators._ledl.solve",
        lambda *args, callback, **options: solve(
            *args, callback=lambda i, *rest: heard.append(i) or callback(i, *rest), **options
        ),
    )
    model.fit(X, y)
    assert heard == list(range(5, 12))


def test_where_it_cannot_be_written(tmp_path, digits):
    X, y = digits
    with pytest.raises(ValueError, match="must be a file, in a folder that exists"):
        LEDLClassifier(**OPTIONS, checkpoint=tmp_path / "none" / "fit").fit(X, y)
    with pytest.raises(ValueError, match="must be a file"):
        LEDLClassifier(**OPTIONS, checkpoint=tmp_path).fit(X, y)
    with pytest.raises(ValueError, match="checkpoint"):
        LEDLClassifier(checkpoint=3).fit(X, y)


KILLED = """
import json, sys, numpy as np
from ledl import LEDLClassifier
X = np.load(sys.argv[1], mmap_mode="r")
LEDLClassifier(**json.loads(sys.argv[3]), checkpoint=sys.argv[2]).fit(X, np.arange(len(X)) % 5)
"""


def test_a_fit_continues_after_its_process_was_killed(tmp_path):
    X = np.random.default_rng(0).standard_normal((5000, 60))
    mapped, y = in_file(X, tmp_path / "X.npy"), np.arange(5000) % 5
    options = {"n_components": 40, "max_iter": 150, "tol": 0, "random_state": 0, "batch_size": 500}
    paths = [str(tmp_path / name) for name in ("X.npy", "fit")]
    with subprocess.Popen([sys.executable, "-c", KILLED, *paths, json.dumps(options)]) as process:
        while not (tmp_path / "fit").exists():
            assert process.poll() is None
            time.sleep(0.01)
        time.sleep(0.3)
        process.send_signal(signal.SIGKILL)
    assert (tmp_path / "fit").exists()  # the fit had not ended
    model = LEDLClassifier(**options, checkpoint=tmp_path / "fit").fit(mapped, y)
    assert_array_equal(model.components_, LEDLClassifier(**options).fit(mapped, y).components_)
    assert os.listdir(tmp_path) == ["X.npy"]
