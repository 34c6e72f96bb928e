"""K-SVD as users meet it."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import load_digits
from sklearn.linear_model import orthogonal_mp

from helpers.digits import few_digits
from helpers.problems import Recorder
from ledl import KSVD
from ledl.estimators import _base

QUICK = {"max_iter": 5, "random_state": 0}


@pytest.fixture(scope="module")
def digits():
    return few_digits(100)


@pytest.mark.filterwarnings("ignore:Orthogonal matching pursuit ended prematurely")
def test_codes_are_those_of_matching_pursuit(digits):
    X, _, new, _ = digits
    model = KSVD(n_components=30, n_nonzero_coefs=4, **QUICK).fit(X)
    codes = orthogonal_mp(model.components_.T, new.T, n_nonzero_coefs=4).T
    assert_allclose(model.transform(new), codes, atol=1e-8)
    assert model.transform(new).shape == (100, 30)
    assert_allclose(np.linalg.norm(model.components_, axis=1), 1)


def test_ksvd_learns_to_represent(digits):
    X = load_digits().data
    model = KSVD(n_components=60, n_nonzero_coefs=4, random_state=0).fit(X)
    history = model.history_
    assert np.all((np.diff(history["error"]) <= 1e-9 * history["error"][0]) | (history["replaced"][1:] > 0))
    error = ((X - model.transform(X) @ model.components_) ** 2).sum()
    start = KSVD(n_components=60, n_nonzero_coefs=4, max_iter=1, random_state=0).fit(X)
    assert error < 0.95 * ((X - start.transform(X) @ start.components_) ** 2).sum()
    # New codes of the training samples are at most a little worse than those that were kept.
    assert error < 1.1 * history["error"][-1]


def test_samples_come_back_from_codes(digits):
    X = digits[0]
    model = KSVD(n_components=30, **QUICK).fit(X)
    codes = model.transform(X)
    assert_allclose(model.inverse_transform(codes), codes @ model.components_)
    with pytest.raises(ValueError, match="Codes have 29 columns, but there are 30 atoms"):
        model.inverse_transform(codes[:, 1:])


def test_ksvd_defaults_and_normalisation(digits):
    X = digits[0]
    assert KSVD(**QUICK).fit(X).components_.shape == X.shape
    scaled = KSVD(n_components=20, normalize=True, **QUICK).fit(X)
    assert_allclose(scaled.transform(3 * X), scaled.transform(X), atol=1e-10)
    raw = KSVD(n_components=20, **QUICK).fit(X)
    assert_allclose(raw.transform(3 * X), 3 * raw.transform(X), atol=1e-8)
    more = KSVD(n_components=80, **QUICK).fit(X)
    assert more.components_.shape == (80, 64)
    assert_allclose(np.linalg.norm(more.components_, axis=1), 1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_ksvd_keeps_the_type(digits, dtype):
    X = digits[0].astype(dtype)
    for few in (X[:40], X):  # fewer samples than features, and not
        model = KSVD(n_components=20, **QUICK).fit(few)
        assert model.components_.dtype == dtype
        assert model.transform(X).dtype == dtype


@pytest.mark.parametrize("scale", [1e80, 1e-85])
def test_ksvd_learns_at_any_scale(digits, scale):
    X = digits[0]
    model = KSVD(n_components=20, **QUICK).fit(X)
    scaled = KSVD(n_components=20, **QUICK).fit(scale * X)
    assert_allclose(scaled.components_, model.components_, atol=1e-9)
    assert_allclose(scaled.history_["error"] / scale**2, model.history_["error"])
    normalised = KSVD(n_components=20, normalize=True, **QUICK).fit(1e-200 * X)
    expected = KSVD(n_components=20, normalize=True, **QUICK).fit(X)
    assert_allclose(normalised.components_, expected.components_, atol=1e-9)


def test_tol(digits):
    model = KSVD(n_components=20, tol=0.05, max_iter=200, random_state=0).fit(digits[0])
    assert model.stopped_by_ == "tol"
    assert len(model.history_["error"]) == model.n_iter_ < 200


@pytest.mark.parametrize(
    ("n_components", "message"),
    [
        (0, "'n_components' parameter"),
        (10**7, r"n_components=10000000 atoms need about .* GB.*Use fewer"),
    ],
)
def test_bad_parameters_are_reported(digits, n_components, message):
    with pytest.raises(ValueError, match=message):
        KSVD(n_components=n_components).fit(digits[0])


@pytest.mark.skipif(not hasattr(_base.CallbackSupportMixin, "set_callbacks"), reason="scikit-learn before 1.9")
def test_callbacks_see_every_iteration_and_may_stop(digits):
    X, y = digits[:2]
    recorder = Recorder(lambda fitted, X, y: fitted.transform(X))
    model = KSVD(**QUICK).set_callbacks(recorder).fit(X, y)
    assert recorder.ended == list(range(5))
    assert_array_equal(recorder.measured[-1], model.transform(X))
    model = KSVD(**QUICK).set_callbacks(Recorder(lambda *_: None, stop_after=3)).fit(X, y)
    assert model.n_iter_ == 3
    assert model.stopped_by_ == "callback"
