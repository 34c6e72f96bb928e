"""Devices and tensors: PyTorch on the host here, on a GPU where there is one, against NumPy."""

import pickle
import subprocess
import sys
import warnings
from functools import cache

import numpy as np
import pandas
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning

import ledl
from helpers.models import make
from ledl import (
    KSVD,
    LEDLClassifier,
    SRCClassifier,
    sparse_encode,
)
from ledl.arrays import to_host
from ledl.coding import _coders as _chunks
from ledl.datasets import few_shot_splits
from ledl.estimators import _base, _ledl

torch = pytest.importorskip("torch", reason="needs PyTorch")
pytestmark = pytest.mark.torch

MODELS = ["crc", "crc-regularized", "csdl", "dksvd", "lcksvd", "ledl", "ledl-rbf", "ledl-regularized"]
MODELS += ["ledl-residual", "src", "src-hellinger"]
# One model for each coder and each kind of space: enough where devices only differ in where arrays are.
KINDS = ["crc", "ledl-rbf", "ledl-regularized", "lcksvd", "src"]


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    train, test = next(few_shot_splits(y, n_per_class=5))
    return X[train], y[train], X[test[:700]]


@pytest.fixture(scope="module")
def fitted(digits):
    """Return the fitted model of a name, on the host, fitted once."""
    return cache(lambda name: make(name, random_state=0).fit(*digits[:2]))


def margins(scores):
    best = np.sort(scores, axis=1)[:, -2:]
    return best[:, 1] - best[:, 0]


@pytest.mark.parametrize("name", [*MODELS, "ledl-random"])
def test_a_device_gives_what_numpy_gives(name, device, digits, fitted):
    X, y, new = digits
    plain = fitted(name) if name in MODELS else make("ledl", init="random", random_state=0).fit(X, y)
    placed = clone(plain).set_params(device=device).fit(X, y)
    for name in ("components_", "dual_components_", "label_components_"):
        if hasattr(plain, name):
            np.testing.assert_allclose(getattr(placed, name), getattr(plain, name), atol=1e-8)
            assert isinstance(getattr(placed, name), np.ndarray)
    expected, found = plain.decision_function(new), placed.decision_function(new)
    clear = margins(expected) > 1e-3
    assert clear.mean() > 0.9
    labels = placed.predict(new)
    assert isinstance(labels, np.ndarray)
    np.testing.assert_array_equal(labels[clear], plain.predict(new)[clear])
    assert found.dtype == expected.dtype


@pytest.mark.parametrize("name", KINDS)
def test_float32_predicts_the_same(name, device, digits):
    X, y, new = (np.asarray(x, dtype=np.float32) if x.ndim == 2 else x for x in digits)
    plain = make(name, random_state=0).fit(X, y)
    placed = clone(plain).set_params(device=device).fit(X, y)
    assert np.mean(plain.predict(new) == placed.predict(new)) >= 0.999
    assert placed.transform(new[:3]).dtype == np.float32


@pytest.mark.parametrize("name", MODELS)
def test_tensors_give_tensors_on_their_device(name, device, digits, fitted):
    new = digits[2]
    tensors = [torch.as_tensor(x, device=device) for x in digits]
    plain = fitted(name)
    of_tensors = clone(plain).fit(*tensors[:2])
    for method in ("predict", "decision_function", "transform"):
        found = getattr(of_tensors, method)(tensors[2])
        assert torch.is_tensor(found)
        assert found.device.type == device
        moved = getattr(plain, method)(tensors[2]).cpu().numpy()
        close = np.mean(found.cpu().numpy() == moved) if method == "predict" else 1.0
        assert close >= 0.999
    assert of_tensors.score(tensors[2], of_tensors.predict(tensors[2])) == 1.0
    np.testing.assert_array_equal(of_tensors.predict(new), of_tensors.predict(tensors[2]).cpu().numpy())


@pytest.mark.parametrize("name", MODELS)
def test_a_model_moves_between_devices(name, device, digits):
    X, y, new = digits
    fitted = make(name, random_state=0, device=device).fit(X, y)
    content = pickle.dumps(fitted)
    assert b"torch" not in content, "a tensor, which cannot be read where its device is not"
    elsewhere = pickle.loads(content).set_params(device=None)
    expected = fitted.decision_function(new)
    clear = margins(expected) > 1e-3
    np.testing.assert_array_equal(elsewhere.predict(new)[clear], fitted.predict(new)[clear])


def test_codes_over_a_dictionary_on_a_device(rng, device):
    D, X = rng.standard_normal((60, 20)), rng.standard_normal((300, 20))
    for options in ({"alpha": 0.5}, {"alpha": 0.02, "positive": True}, {"alpha": 2.0, "tol": 1e-9}):
        plain, _ = sparse_encode(X, D, return_info=True, **options)
        codes, info = sparse_encode(X, D, device=device, return_info=True, **options)
        assert info.converged.all()
        assert info.solver == "admm"
        value = [objective(S, X, D, options["alpha"]) for S in (plain, codes)]
        tol = options.get("tol", 1e-6)
        assert np.all(np.abs(value[0] - value[1]) <= tol * (X * X).sum(axis=1) / 2)
        assert codes.min() >= 0 or "positive" not in options
        tensors = [torch.as_tensor(x, device=device) for x in (X, D)]
        again = sparse_encode(*tensors, **options)
        assert again.device.type == device
        np.testing.assert_allclose(again.cpu().numpy(), codes, atol=1e-6)
        warm = sparse_encode(*tensors, init=again, **options)
        np.testing.assert_allclose(warm.cpu().numpy(), codes, atol=1e-6)


def objective(S, X, D, alpha):
    E = X - S @ D
    return (E * E).sum(axis=1) / 2 + alpha * np.abs(S).sum(axis=1)


def test_what_admm_leaves_over_is_finished_exactly(rng, device):
    centre = rng.standard_normal(30)
    D = centre + 0.02 * rng.standard_normal((80, 30))  # nearly parallel
    D /= np.linalg.norm(D, axis=1, keepdims=True)
    X = centre + 0.5 * rng.standard_normal((40, 30))
    codes, info = sparse_encode(X, D, alpha=1e-3, tol=1e-9, device=device, return_info=True)
    assert info.converged.all()
    best = sparse_encode(X, D, alpha=1e-3, tol=1e-10)
    worse = objective(codes, X, D, 1e-3) - objective(best, X, D, 1e-3)
    assert np.all(np.abs(worse) <= 1e-9 * (X * X).sum(axis=1) / 2)


def test_chunks_on_a_device(rng, device, monkeypatch):
    D, X = rng.standard_normal((30, 10)), rng.standard_normal((101, 10))
    whole = sparse_encode(X, D, alpha=0.3, device=device)
    monkeypatch.setattr(_chunks, "DEVICE_CHUNK", 1)
    monkeypatch.setattr(_chunks, "CHUNK_ROWS", 20)
    np.testing.assert_allclose(sparse_encode(X, D, alpha=0.3, device=device), whole, atol=1e-4)


def test_orthogonal_matching_pursuit_on_a_device(rng, device):
    D, X = rng.standard_normal((60, 20)), rng.standard_normal((300, 20))
    np.testing.assert_allclose(
        sparse_encode(X, D, n_nonzero_coefs=4, device=device), sparse_encode(X, D, n_nonzero_coefs=4), atol=1e-9
    )
    model = KSVD(n_components=30, n_nonzero_coefs=3, random_state=0).fit(X)
    placed = clone(model).set_params(device=device).fit(X)
    np.testing.assert_allclose(placed.components_, model.components_, atol=1e-8)
    tensor = torch.as_tensor(X, device=device)
    codes = placed.transform(tensor)
    np.testing.assert_allclose(
        placed.inverse_transform(codes).cpu().numpy(), codes.cpu().numpy() @ placed.components_
    )


def test_labels_that_are_no_numbers_come_as_an_array(device, digits):
    X, y, new = digits
    names = np.array([f"digit {label}" for label in range(10)])
    model = SRCClassifier().fit(torch.as_tensor(X, device=device), names[y])
    assert set(model.predict(torch.as_tensor(new[:9], device=device))) <= set(names)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X: X[:, :5], "X has 5 features, but"),
        (lambda X: X[0], "needs a matrix"),
        (lambda X: X[:0], "needs a matrix"),
        (lambda X: X * float("nan"), "NaN or infinity in row 0"),
        (lambda X: X.reshape(-1, 8, 8), "Flatten images"),
        (lambda X: X.to_sparse(), "Give a dense one"),
        (lambda X: X.to(torch.complex128), "Complex data not supported"),
    ],
)
def test_bad_tensors_are_refused(change, message, digits):
    X, y, _ = (torch.as_tensor(x) for x in digits)
    model = SRCClassifier().fit(X, y)
    with pytest.raises(ValueError, match=message):
        model.predict(change(X))


def test_tensors_of_other_types(digits):
    X, y, new = digits
    model = SRCClassifier().fit(X, y)
    expected = model.predict(new)
    np.testing.assert_array_equal(model.predict(torch.as_tensor(new).to(torch.int64)).numpy(), expected)
    scores = model.decision_function(torch.as_tensor(new).to(torch.bfloat16).requires_grad_())
    assert scores.dtype == torch.float32
    assert not scores.requires_grad


def test_samples_of_the_caller_stay_what_they_are(digits):
    X, y, new = digits
    before = [x.copy() for x in (X, new)]
    for normalize in (True, False):
        for device in (None, "cpu"):
            model = LEDLClassifier(random_state=0, normalize=normalize, device=device, max_iter=3, tol=0)
            model.fit(X, y).predict(new[:9])
            model.fit(torch.as_tensor(X), y).predict(torch.as_tensor(new[:9]))
    for x, copy in zip((X, new), before, strict=True):
        np.testing.assert_array_equal(x, copy)


def test_a_device_that_is_not_there(digits):
    X, y, _ = digits
    for device in ("cuda:99", "abacus"):
        with pytest.raises(ValueError, match=f"device='{device}' cannot be used here"):
            SRCClassifier(device=device).fit(X, y)
    with pytest.raises(ValueError, match="solver='active_set' is for NumPy arrays"):
        sparse_encode(X, X, alpha=1.0, solver="active_set", device="cpu")
    with pytest.raises(ValueError, match="sparse_output gives a SciPy array"):
        sparse_encode(torch.as_tensor(X), torch.as_tensor(X), alpha=1.0, sparse_output=True)


WITHOUT_NUMBA = """
import sys
sys.modules["numba"] = None  # an import of it fails
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "numba" else find(name, *rest)
import numpy as np
import torch
from sklearn.datasets import load_digits
import ledl
torch.set_num_threads(1)
X, y = load_digits(return_X_y=True)
for name in ("LEDL", "SRC", "CRC", "CSDL", "LCKSVD", "DKSVD"):
    for device in (None, sys.argv[1]):
        model = getattr(ledl, f"{name}Classifier")(device=device)
        few = {name: 5 for name in ("max_iter", "init_max_iter") if name in model.get_params()}
        model.set_params(**few).fit(X[:60], y[:60])
        print(name, device, model.score(X[100:160], y[100:160]))
"""


def test_the_package_runs_without_numba(device):
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_NUMBA, device], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert all(float(line.split()[-1]) > 0.6 for line in done.stdout.splitlines())


def test_a_fit_that_a_device_cannot_hold_streams_its_samples(device, digits, monkeypatch):
    X, y, _ = digits
    X, y = np.tile(X, (3, 1)) + np.arange(150)[:, None] / 50, np.tile(y, 3)  # more samples than features
    whole = LEDLClassifier(random_state=0, device=device, keep_codes=True).fit(X, y)
    used = []
    streamed = _ledl.StreamedBlocks

    def watch(*arguments):
        used.append(arguments[2])
        return streamed(*arguments)

    monkeypatch.setattr(_ledl, "StreamedBlocks", watch)
    monkeypatch.setattr(_ledl, "free_memory", lambda like: 10**6)  # too little for the codes
    tensors = torch.as_tensor(X, device=device), y
    for data in ((X, y), tensors):
        model = clone(whole).fit(*data)
        np.testing.assert_allclose(model.components_, whole.components_, atol=1e-8)
        np.testing.assert_allclose(model.training_codes_, whole.training_codes_, atol=1e-8)
    monkeypatch.setattr(_base, "free_memory", lambda like: 10)  # too little for the samples
    place, placed = _base.place, []
    monkeypatch.setattr(_base, "place", lambda x, device: (placed.append(x.size), place(x, device))[1])
    np.testing.assert_allclose(clone(whole).fit(X, y).components_, whole.components_, atol=1e-8)
    assert set(placed) == {0}, "samples went to a device that cannot hold them"
    assert len(used) == 3
    assert all(1 <= size < 150 for size in used)


def test_tf32_is_for_gpus(digits):
    X, y, _ = digits
    for device in (None, "cpu"):
        with pytest.raises(ValueError, match="precision='tf32' is for products on a GPU"):
            LEDLClassifier(precision="tf32", device=device).fit(X, y)


@pytest.mark.gpu
def test_tf32_changes_atoms_and_hardly_a_label(digits):
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    X, y, new = (x.astype(np.float32) if x.ndim == 2 else x for x in digits)
    before = torch.backends.cuda.matmul.fp32_precision
    full, fast = (
        LEDLClassifier(random_state=0, device="cuda", precision=precision).fit(X, y)
        for precision in ("full", "tf32")
    )
    assert np.abs(full.components_ - fast.components_).max() > 1e-6, "the switch does nothing"
    assert np.mean(full.predict(new) == fast.predict(new)) > 0.95  # on an H200, 3 % of these labels differ
    assert torch.backends.cuda.matmul.fp32_precision == before


def test_labels_as_tensors_of_any_kind(digits):
    X, y, new = digits
    expected = SRCClassifier().fit(X, y)
    tensor = torch.as_tensor(y)
    for labels in (tensor, tensor.to(torch.bfloat16), tensor.double().requires_grad_(), tensor[:, None][:, 0]):
        model = SRCClassifier().fit(torch.as_tensor(X), labels)
        np.testing.assert_array_equal(to_host(model.predict(torch.as_tensor(new))), expected.predict(new))
        assert model.score(X, labels) == expected.score(X, y)
    frame = pandas.DataFrame(X).rename(columns=str)
    model = SRCClassifier().fit(frame, y).fit(torch.as_tensor(X), y)
    assert not hasattr(model, "feature_names_in_"), "names of another fit"


def test_squares_that_float32_cannot_hold_are_coded_in_float64(rng, device):
    D, X = rng.standard_normal((30, 10)), rng.standard_normal((50, 10))
    codes, info = sparse_encode(X * 1e-15, D * 1e-15, alpha=1e-30, device=device, return_info=True)
    assert info.converged.all()
    np.testing.assert_allclose(codes, sparse_encode(X, D, alpha=1.0, device=device), atol=1e-3)
    assert np.abs(codes).max() > 0.1


def test_iterations_of_all_stages_are_counted_and_bounded(rng, device):
    centre = rng.standard_normal(30)
    D = centre + 0.02 * rng.standard_normal((80, 30))
    X = centre + 0.5 * rng.standard_normal((40, 30))
    _, info = sparse_encode(X, D, alpha=1e-3, tol=1e-9, device=device, return_info=True)
    assert info.converged.all()
    assert info.n_iter.max() > 1000, "exact steps after those of ADMM"
    with pytest.warns(ConvergenceWarning, match="of 40 samples did not reach"):
        _, short = sparse_encode(X, D, alpha=1e-3, tol=1e-9, max_iter=30, device=device, return_info=True)
    assert short.n_iter.max() <= 30


def test_codes_are_finite_where_alpha_is_too_small_for_the_arithmetic(rng, device):
    D, X = rng.standard_normal((30, 10)), rng.standard_normal((50, 10))
    for scale, alpha in ((1.0, 1e-12), (1e10, 1.0), (1.0, 1e-300)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            codes, info = sparse_encode(X * scale, D, alpha=alpha, device=device, return_info=True)
        assert np.isfinite(codes).all()
        assert np.all(info.converged == (info.gap <= 1e-6 * (X * X * scale**2).sum(axis=1) / 2))


def test_a_start_that_is_negative_leaves_positive_codes_positive(rng, device):
    D, X, init = rng.standard_normal((30, 10)), rng.standard_normal((50, 10)), rng.standard_normal((50, 30))
    options = {"alpha": 1e-4, "positive": True, "solver": "admm", "max_iter": 30, "device": device}
    with pytest.warns(ConvergenceWarning):  # too few
        assert sparse_encode(X, D, init=init, **options).min() >= 0


def test_what_meets_tensors_may_be_other_arrays(rng, device):
    D, X = rng.standard_normal((30, 10)), rng.standard_normal((50, 10))
    D.flags.writeable = False
    expected = sparse_encode(X, D, alpha=0.5)
    tensor = torch.as_tensor(X, device=device)
    np.testing.assert_allclose(to_host(sparse_encode(tensor, D, alpha=0.5)), expected, atol=1e-3)
    start = torch.as_tensor(expected, device=device)
    np.testing.assert_allclose(sparse_encode(X, D, alpha=0.5, init=start), expected, atol=1e-3)
    np.testing.assert_allclose(
        sparse_encode(X[::-1], D[::-1], alpha=0.5, device=device), expected[::-1, ::-1], atol=1e-3
    )
    for options in ({"alpha": 0.5}, {"n_nonzero_coefs": 3}):
        for samples in (X, tensor):
            with pytest.raises(ValueError, match="The dictionary contains NaN"):
                sparse_encode(samples, D * np.nan, **options)
    with pytest.raises(ValueError, match="init contains NaN"):
        sparse_encode(tensor, D, alpha=0.5, init=start * np.nan)
    with pytest.raises(ValueError, match="must be a name"):
        sparse_encode(X, D, alpha=0.5, device=torch.device("cpu"))


def test_given_starts_may_be_tensors(digits):
    X, y, _ = digits
    rng = np.random.default_rng(0)
    start = tuple(rng.random((20, width)) for width in (64, 10, 20))
    tensors = tuple(torch.as_tensor(part).requires_grad_() for part in start)
    models = [LEDLClassifier(init=init, max_iter=3, tol=0).fit(X, y) for init in (start, tensors)]
    np.testing.assert_array_equal(models[0].components_, models[1].components_)


@pytest.mark.parametrize("scale", [1e200, 1e-200])
def test_samples_of_any_size_where_they_are_scaled(scale, digits):
    X, y, new = digits
    expected = SRCClassifier().fit(X, y).predict(new)
    model = SRCClassifier().fit(torch.as_tensor(X * scale), y)
    np.testing.assert_array_equal(to_host(model.predict(torch.as_tensor(new * scale))), expected)


def test_weights_of_samples_count_in_scores(digits):
    X, y, new = digits
    model = SRCClassifier().fit(X, y)
    truth = np.resize([0, 1], len(new))
    right = model.predict(new) == truth
    weights = np.arange(1.0, len(new) + 1)
    expected = weights[right].sum() / weights.sum()
    assert model.score(new, truth, weights) == pytest.approx(expected)


@pytest.mark.parametrize("name", KINDS)
def test_explanations_and_rejection_on_a_device(name, digits, device):
    X, y, X_test = digits
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        here, there = (
            ledl.RejectingClassifier(make(name, random_state=0, device=place), reject=0.2).fit(X, y)
            for place in (None, device)
        )
    np.testing.assert_allclose(there.evidence_, here.evidence_, atol=1e-4)
    assert type(there.evidence_) is np.ndarray
    assert np.mean(there.predict(X_test) == here.predict(X_test)) > 0.99
    found, expected = ledl.explain(there, X_test[0]), ledl.explain(here, X_test[0])
    np.testing.assert_allclose(found.scores, expected.scores, atol=1e-4)
    np.testing.assert_array_equal(found.neighbors, expected.neighbors)
    tensor = torch.asarray(X_test[:20], device=device)
    np.testing.assert_array_equal(there.predict(tensor), there.predict(X_test[:20]))
    np.testing.assert_allclose(ledl.explain(there, tensor[0]).scores, found.scores)
