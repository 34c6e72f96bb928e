"""Fits that were stopped continue to the same model; files of other fits, or of strangers, are refused."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import numpy as np
import pytest
import scipy.linalg
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

from helpers.stored import LEARNT, OPTIONS, in_file
from ledl import BatchedSearchCV, LEDLClassifier, RejectingClassifier, SemiSupervisedClassifier, subspace
from ledl.samples import InMemoryBlocks
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
        ({"batch_size": 10, "n_jobs": 2}, False),
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


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("case", ["few samples", "few samples, twice", "rbf", "rbf, twice"])
def test_continues_in_other_coordinates(monkeypatch, tmp_path, digits, rng, case, dtype):
    """As on a machine whose linear algebra gives the samples another basis of their span."""
    X, y = digits[0][:40].astype(dtype), digits[1][:40]
    if "twice" in case:
        X, y = np.repeat(X[:20], 2, axis=0), np.repeat(y[:20], 2)
    options = OPTIONS if "few" in case else {**OPTIONS, "kernel": "rbf"}
    expected = LEDLClassifier(**options).fit(X, y)
    model = LEDLClassifier(**options, checkpoint=tmp_path / "fit")
    stopped(monkeypatch, model, X, y)
    factorise, eigh = subspace.row_factorization, scipy.linalg.eigh

    def turned(X):
        coordinates, basis = factorise(X)
        turn = np.linalg.qr(rng.normal(size=(len(X), len(X))))[0].astype(X.dtype)
        return coordinates @ turn, turn.T @ basis

    def other_signs(gram, **options):
        values, vectors = eigh(gram, **options)
        if "twice" in case:  # a direction of rounding errors is kept
            values[len(values) // 2 - 1] = 2 * len(values) * np.finfo(np.float64).eps * values[-1]
        return values, vectors * rng.choice([-1.0, 1.0], len(values))

    with monkeypatch.context() as patch:
        patch.setattr(subspace, "row_factorization", turned)
        patch.setattr(subspace.scipy.linalg, "eigh", other_signs)
        stop_after(patch, 1)  # it would stop again if it started from the beginning
        patch.setattr("ledl.samples._checkpoint.SHARE", np.inf)  # the file is replaced
        model.fit(X, y)
    assert model.n_iter_ == expected.n_iter_
    tol = 1e-7 if dtype == np.float64 else 1e-3
    scores, others = (one.decision_function(digits[0].astype(dtype)) for one in (model, expected))
    np.testing.assert_allclose(scores, others, atol=tol)
    assert not (tmp_path / "fit").exists()


def similar(x, y):
    return float(np.exp(-similar.gamma * ((x - y) ** 2).sum()))


def test_a_kernel_that_was_edited_is_another_fit(monkeypatch, tmp_path, digits):
    X, y = digits[0][:40], digits[1][:40]
    model = LEDLClassifier(**OPTIONS, kernel=similar, checkpoint=tmp_path / "fit")
    similar.gamma = 1e-3
    stopped(monkeypatch, model, X, y)
    similar.gamma = 2e-3
    with pytest.raises(ValueError, match="a fit on other samples"):
        model.fit(X, y)
    similar.gamma = 1e-3
    model.fit(X, y)


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
    with pytest.raises(ValueError, match="another fit: weights of samples"):
        clone(model).fit(X, y, sample_weight=1 + np.arange(len(y)))
    with pytest.raises(ValueError, match="a fit on other samples"):
        clone(model).fit(X[::-1], y)
    assert (tmp_path / "fit").read_bytes() == before


def sealed(body):
    """A file with this content after its checksum."""
    return FIRST_LINE + b"%08x\n" % zlib.crc32(body) + body


def test_what_is_no_checkpoint_is_refused_and_stays(monkeypatch, tmp_path, digits):
    X, y = digits
    path = tmp_path / "fit"
    model = LEDLClassifier(**OPTIONS, checkpoint=path)
    stopped(monkeypatch, model, X, y)
    good = path.read_bytes()
    body = good.split(b"\n", 2)[2]
    header, arrays = body.split(b"\n", 1)
    header = json.loads(header)
    assert sealed(body) == good

    def with_header(arrays=arrays, **changes):
        return sealed(json.dumps({**header, **changes}).encode() + b"\n" + arrays)

    codes = 200 * 2 * 30 * 8  # bytes; atoms lie before them, records at the beginning
    no_atoms = arrays[: -codes - 8] + np.float64(np.nan).tobytes() + arrays[-codes:]
    others = {
        b"": "is not a checkpoint",
        b"something else": "is not a checkpoint",
        FIRST_LINE: "is not a checkpoint",
        good.replace(FIRST_LINE, b"ledl checkpoint, format 1\n"): "is not a checkpoint",
        FIRST_LINE + b"0" * 9 + b"[" * 100_000: "is not a checkpoint",
        with_header(iterations=0): "is not a checkpoint",
        with_header(records=3): "is not a checkpoint",
        with_header(records=[], iterations=10**12, arrays=arrays[5 * 11 * 8 :]): "is not a checkpoint",
        with_header(iterations=10**12): "other samples",
        with_header(records=[*header["records"][:-1], "another"]): "other samples",
        with_header(identity={**header["identity"], "alpha": 0.1}): "another fit: alpha was 0.1, and is 0.0156",
        sealed(body[:-1]): "other samples",
        sealed(body + b"x"): "other samples",
        with_header(no_atoms): "one that failed",
    }
    for content, message in others.items():
        path.write_bytes(content)
        with pytest.raises(ValueError, match=f"checkpoint=.*{message}"):
            model.fit(X, y)
        assert path.read_bytes() == content
    path.write_bytes(good)
    model.fit(X, y)


def test_damage_anywhere_is_found(monkeypatch, tmp_path, digits):
    X, y = digits[0][:30, 20:28], digits[1][:30]
    path = tmp_path / "fit"
    model = LEDLClassifier(**{**OPTIONS, "n_components": 10}, checkpoint=path)
    stopped(monkeypatch, model, X, y)
    good = path.read_bytes()
    rng = np.random.default_rng(0)
    damaged = [good[:n] for n in rng.integers(len(good), size=20)] + [good + b"\0", good + good]
    for place in [*range(60), *rng.integers(len(good), size=300)]:
        one = bytearray(good)
        one[place] ^= 1 << rng.integers(8)
        damaged.append(bytes(one))
    row = 8 * 10  # bytes of the codes of a sample
    for first, second in ((-1, -2), (-1, -40)):  # codes that are exchanged
        rows = [good[len(good) - 60 * row :][i * row : (i + 1) * row] for i in range(60)]
        rows[first], rows[second] = rows[second], rows[first]
        damaged.append(good[: -60 * row] + b"".join(rows))
    damaged.append(good[: -60 * row] + bytes(60 * row))  # a hole
    for content in damaged:
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"is damaged: its checksum|is not a checkpoint"):
            model.fit(X, y)
        assert path.read_bytes() == content


def test_a_file_that_goes_on_and_on_is_not_read(monkeypatch, tmp_path, digits):
    X, y = digits
    path = tmp_path / "fit"
    model = LEDLClassifier(**OPTIONS, checkpoint=path)
    stopped(monkeypatch, model, X, y)
    os.truncate(path, 2**42)  # a hole of four terabytes
    with pytest.raises(ValueError, match=r"checkpoint=.*other samples"):
        model.fit(X, y)
    with pytest.raises(ValueError, match="another fit: alpha was"):
        clone(model).set_params(alpha=0.5).fit(X, y)


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

    def overtaken(self, *args, **more):
        done = begin(self, *args, **more)
        (tmp_path / "fit").write_bytes(others)
        return done

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "begin", overtaken)
        with pytest.raises(ValueError, match="written by another fit meanwhile"):
            clone(model).set_params(alpha=0.1).fit(X, y)
    assert (tmp_path / "fit").read_bytes() == others
    assert len(list(tmp_path.iterdir())) == 1  # no part of a file


def test_equal_fits_with_one_file_all_reach_the_same_model(tmp_path, digits):
    X, y = digits
    expected = LEDLClassifier(**OPTIONS).fit(X, y)
    together = Barrier(4, timeout=60)

    def fit(_):
        model = LEDLClassifier(**OPTIONS, checkpoint=tmp_path / "fit")
        found = []
        for _ in range(5):
            together.wait()
            found.append(model.fit(X, y).components_)
        return found

    with ThreadPoolExecutor(4) as pool:
        for components in [one for found in pool.map(fit, range(4)) for one in found]:
            assert_array_equal(components, expected.components_)
    assert list(tmp_path.iterdir()) == []


def test_lost_codes_are_read_from_the_own_file_if_an_equal_fit_replaces_it(monkeypatch, tmp_path, digits):
    X, y = digits
    model = LEDLClassifier(**OPTIONS, checkpoint=tmp_path / "fit")
    stopped(monkeypatch, model, X, y, n=1)
    others = (tmp_path / "fit").read_bytes()  # of an equal fit, which is not that far
    replace, checked = Path.replace, []

    def overtaken(self, target):
        replace(self, target)
        (tmp_path / "other").write_bytes(others)
        replace(tmp_path / "other", target)

    def compare(self, read):
        Z, _ = read(0, len(X))
        assert_array_equal(Z, self.codes())
        checked.append(Z)

    monkeypatch.setattr(Path, "replace", overtaken)
    monkeypatch.setattr(InMemoryBlocks, "saved_codes", compare)
    model.fit(X, y)
    assert checked


def test_an_unfinished_file_that_another_fit_deleted_is_written_the_next_time(monkeypatch, tmp_path, digits):
    X, y = digits
    save_codes, counts = InMemoryBlocks.save_codes, []

    def swept(self, keep):
        save_codes(self, keep)
        counts.append(len(list(tmp_path.glob(".*"))))
        if len(counts) == 2:
            for part in tmp_path.glob(".*"):
                part.unlink()

    monkeypatch.setattr(InMemoryBlocks, "save_codes", swept)
    model = LEDLClassifier(**OPTIONS, checkpoint=tmp_path / "fit")
    stopped(monkeypatch, model, X, y, n=2)
    assert json.loads((tmp_path / "fit").read_bytes().split(b"\n")[2])["iterations"] == 1
    model.fit(X, y)
    assert max(counts) == 1
    assert_array_equal(model.components_, LEDLClassifier(**OPTIONS).fit(X, y).components_)


def test_a_file_that_cannot_be_deleted_does_not_cost_the_model(monkeypatch, tmp_path, digits):
    def refuse(self, missing_ok=False):
        raise PermissionError(1, "Operation not permitted")

    model = LEDLClassifier(**OPTIONS, checkpoint=tmp_path / "fit")
    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.warns(UserWarning, match="could not be deleted: Operation not permitted. Delete it"):
        model.fit(*digits)
    assert model.n_iter_ == OPTIONS["max_iter"]


@pytest.mark.parametrize("name", ["x" * 250, "a\nb", "\udcff", "*?[a]"])
def test_links_stay_and_any_name_will_do(monkeypatch, tmp_path, digits, name):
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "there" / name)
    for path in (tmp_path / "link", tmp_path / "there" / name):
        model = LEDLClassifier(**OPTIONS, checkpoint=path)
        stopped(monkeypatch, model, *digits)
        assert [file.name for file in (tmp_path / "there").iterdir()] == [name]
        (tmp_path / "there" / name).chmod(0o600)
        stopped(monkeypatch, model, *digits, n=7)
        assert (tmp_path / "there" / name).stat().st_mode & 0o777 == 0o600
        model.fit(*digits)
        assert list((tmp_path / "there").iterdir()) == []
        assert (tmp_path / "link").is_symlink()


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
    with pytest.raises(OSError, match=r"its successor need (?!0.0 )\d+.\d MB, but .* has 0.0 MB"):
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


def test_streams_have_none(tmp_path, digits):
    X, y = digits
    model = LEDLClassifier(**OPTIONS, checkpoint=tmp_path / "fit")
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
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    places = {
        tmp_path / "none" / "fit": r"There is no folder .*none for fit\. Create it",
        tmp_path: "is a folder",
        tmp_path / "pipe": "not a regular file",
        tmp_path / "link": "not a regular file",
        tmp_path / "loop": "levels of symbolic links",
        "/dev/zero": "not a regular file",
    }
    for place, message in places.items():
        with pytest.raises(ValueError, match=f"checkpoint='.*' cannot be written: .*{message}"):
            LEDLClassifier(**OPTIONS, checkpoint=place).fit(X, y)
    with pytest.raises(ValueError, match="checkpoint"):
        LEDLClassifier(checkpoint=3).fit(X, y)


KILLED = """
import json, sys, numpy as np
from ledl import LEDLClassifier, subspace
X = np.load(sys.argv[1], mmap_mode="r")
LEDLClassifier(**json.loads(sys.argv[3]), checkpoint=sys.argv[2]).fit(X, np.arange(len(X)) % 5)
"""


def test_a_killed_fit_leaves_its_checkpoint_alone_and_continues_from_it(monkeypatch, tmp_path):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
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
    assert not os.listdir(scratch)
    model = LEDLClassifier(**options, checkpoint=tmp_path / "fit").fit(mapped, y)
    assert_array_equal(model.components_, LEDLClassifier(**options).fit(mapped, y).components_)
    assert sorted(os.listdir(tmp_path)) == ["X.npy", "scratch"]


def test_other_samples_are_noticed_in_every_column(monkeypatch, tmp_path, digits, rng):
    """Also next to a column that is so large that it hides all others."""
    X, y = digits
    X = X.copy()
    X[:, 0] = 1e10
    options = {**OPTIONS, "normalize": False, "alpha": 0.1, "checkpoint": tmp_path / "fit"}
    stopped(monkeypatch, LEDLClassifier(**options), X, y)
    X[:, 1:] = rng.random(X[:, 1:].shape)
    with pytest.raises(ValueError, match="of a fit on other samples"):
        LEDLClassifier(**options).fit(X, y)


def test_a_fit_on_other_samples_does_not_take_over_a_file(monkeypatch, tmp_path, digits):
    X, y = digits
    stopped(monkeypatch, LEDLClassifier(**OPTIONS, checkpoint=tmp_path / "first"), X, y)
    after = Checkpoint.after

    def late(self, *args):
        shutil.copy(tmp_path / "first", self.path)  # the first fit has begun, and writes its file
        after(self, *args)

    monkeypatch.setattr(Checkpoint, "after", late)
    other = LEDLClassifier(**OPTIONS, checkpoint=tmp_path / "second")
    with pytest.raises(ValueError, match="was written by another fit meanwhile"):
        other.fit(X + 1, y)
    assert (tmp_path / "second").read_bytes() == (tmp_path / "first").read_bytes()


def test_a_seed_that_is_no_longer_given_is_another_fit(monkeypatch, tmp_path, digits):
    X, y = digits
    stopped(monkeypatch, LEDLClassifier(**OPTIONS, checkpoint=tmp_path / "fit"), X, y)
    other = LEDLClassifier(**{**OPTIONS, "random_state": None}, checkpoint=tmp_path / "fit")
    with pytest.raises(ValueError, match="random_state was 0, and is None"):
        other.fit(X, y)


GRID = {"alpha": [0.1, 0.2]}


@pytest.mark.parametrize(
    "owner",
    [
        lambda model: BatchedSearchCV(model, GRID),
        lambda model: BatchedSearchCV(LEDLClassifier(), {"checkpoint": [model.checkpoint]}),
        lambda model: RejectingClassifier(model),
        lambda model: RejectingClassifier(make_pipeline(Normalizer(), model)),
        lambda model: RejectingClassifier(GridSearchCV(model, GRID)),
        lambda model: RejectingClassifier(SemiSupervisedClassifier(model)),
        lambda model: SemiSupervisedClassifier(make_pipeline(Normalizer(), model)),
    ],
)
def test_what_fits_a_model_several_times_refuses_a_checkpoint_at_once(monkeypatch, owner, tmp_path, digits):
    monkeypatch.setattr("ledl.estimators._ledl.solve", None)
    model = owner(LEDLClassifier(**OPTIONS, checkpoint=str(tmp_path / "fit")))
    message = f"checkpoint='.*fit' is the file of one fit, but {type(model).__name__} has many. Set"
    with pytest.raises(ValueError, match=message):
        model.fit(*digits)
