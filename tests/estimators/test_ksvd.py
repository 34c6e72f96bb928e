"""KSVD, D-KSVD and LC-KSVD as users meet them."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Ridge, orthogonal_mp

from helpers import reference
from helpers.problems import Recorder, unit
from ledl import KSVD, DKSVDClassifier, LCKSVDClassifier
from ledl.datasets import few_shot_splits, load
from ledl.estimators import _base
from ledl.solvers import lcksvd

QUICK = {"max_iter": 5, "random_state": 0}


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    train, test = next(few_shot_splits(y))
    return X[train], y[train], X[test][:100], y[test][:100]


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


def test_tol_and_max_iter(digits):
    X, y = digits[:2]
    loose = KSVD(n_components=20, tol=0.05, max_iter=200, random_state=0).fit(X)
    assert loose.stopped_by_ == "tol"
    assert len(loose.history_["error"]) == loose.n_iter_ < 200
    with pytest.warns(ConvergenceWarning, match=r"DKSVDClassifier did not converge: .*max_iter=2"):
        model = DKSVDClassifier(tol=1e-9, max_iter=2).fit(X, y)
    assert model.stopped_by_ == "max_iter"


@pytest.mark.filterwarnings("ignore:Orthogonal matching pursuit ended prematurely")
@pytest.mark.parametrize("variant", [1, 2])
def test_lcksvd_is_the_papers_algorithm_2(digits, variant):
    X, y, new, _ = digits
    kept = np.arange(len(y)) % 7 != 0  # classes of different sizes
    X, y = X[kept] + 0.1, y[kept]
    options = {"n_components": 27, "n_nonzero_coefs": 3, "code_weight": 0.7, "init_iter": 3}
    model = LCKSVDClassifier(variant=variant, label_weight=0.5, **options, **QUICK).fit(X, y)
    assert not model.history_["replaced"].any()
    seed = np.random.RandomState(0).randint(np.iinfo(np.int32).max)
    counts = np.bincount(model.atom_classes_)
    start = lcksvd.class_start(unit(X), y, counts, 3, max_iter=3, rng=np.random.default_rng(seed))
    B, W, A, S = reference.lcksvd(
        unit(X).T, y, model.atom_classes_, start.T,
        lam=0.5 if variant == 2 else 1e-300, omega=0.7, n_nonzero=3, n_iter=5,
        omp=lambda D, x, k: orthogonal_mp(D, x, n_nonzero_coefs=k),
    )  # fmt: skip
    if variant == 1:
        W = Ridge(alpha=1, fit_intercept=False).fit(S.T, np.eye(10)[y]).coef_
    assert_allclose(model.components_, B.T, atol=1e-8)
    assert_allclose(model.label_components_, W.T, atol=1e-8)
    assert_allclose(model.code_components_, A.T, atol=1e-8)
    codes = orthogonal_mp(B, unit(new).T, n_nonzero_coefs=3)
    assert_allclose(model.decision_function(new), (W @ codes).T, atol=1e-7)


def test_lcksvd_with_equal_classes_is_dksvd_at_another_weight(digits):
    X, y, new, _ = digits
    options = {"n_components": 40, "n_nonzero_coefs": 4, **QUICK}
    lc = LCKSVDClassifier(label_weight=0.5, code_weight=0.25, **options).fit(X, y)
    d = DKSVDClassifier(label_weight=0.5 + 0.25 * 40 / 10, **options).fit(X, y)
    assert_allclose(lc.components_, d.components_, atol=1e-10)
    assert_allclose(lc.decision_function(new), d.decision_function(new), atol=1e-10)


def test_dksvd_may_start_from_all_samples(digits):
    X, y, new, truth = digits
    model = DKSVDClassifier(init="all", n_nonzero_coefs=5, random_state=0).fit(X, y)
    assert not hasattr(model, "atom_classes_")
    assert model.score(new, truth) > 0.7
    assert hasattr(model.set_params(init="class").fit(X, y), "atom_classes_")
    few = DKSVDClassifier(init="all", n_components=4, **QUICK).fit(X, y)  # no class needs an atom of its own
    assert few.components_.shape == (4, 64)
    assert few.decision_function(new).shape == (len(new), 10)


def test_weights_and_sparsity_are_used(digits):
    X, y, new, _ = digits
    model = LCKSVDClassifier(n_nonzero_coefs=3, **QUICK).fit(X, y)
    assert np.count_nonzero(model.transform(new), axis=1).max() == 3
    model.set_params(n_components=30).fit(X, y)
    for change in ({"label_weight": 50.0}, {"code_weight": 50.0}, {"init_iter": 1}):
        other = clone(model).set_params(**change).fit(X, y)
        assert not np.array_equal(other.decision_function(new), model.decision_function(new))
    first = LCKSVDClassifier(variant=1, **QUICK).fit(X, y).decision_function(new)
    ignored = LCKSVDClassifier(variant=1, label_weight=0, **QUICK).fit(X, y).decision_function(new)
    assert_array_equal(first, ignored)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            LCKSVDClassifier(label_weight=0, code_weight=0),
            r"code_weight=0 leaves variant=2 .* label_weight > 0",
        ),
        (LCKSVDClassifier(variant=1, code_weight=0), r"code_weight=0 leaves variant=1 nothing"),
        (LCKSVDClassifier(variant=3), "'variant' parameter"),
        (DKSVDClassifier(label_weight=0), "'label_weight' parameter"),
        (DKSVDClassifier(n_nonzero_coefs=0), "'n_nonzero_coefs' parameter"),
        (DKSVDClassifier(init="random"), "'init' parameter"),
        (KSVD(n_components=0), "'n_components' parameter"),
        (KSVD(n_components=10**7), r"n_components=10000000 atoms need about .* GB.*Use fewer"),
    ],
)
def test_bad_parameters_are_told(digits, model, message):
    with pytest.raises(ValueError, match=message):
        clone(model).fit(*digits[:2])


def test_more_nonzeros_than_atoms_are_as_many_as_there_are(digits):
    X, y, new, _ = digits
    model = DKSVDClassifier(n_components=12, n_nonzero_coefs=100, **QUICK).fit(X, y)
    assert np.isfinite(model.decision_function(new)).all()


@pytest.mark.skipif(not hasattr(_base.CallbackSupportMixin, "set_callbacks"), reason="scikit-learn before 1.9")
@pytest.mark.parametrize("model", [KSVD(**QUICK), LCKSVDClassifier(**QUICK)], ids=["KSVD", "LC-KSVD"])
def test_callbacks_see_every_iteration_and_may_stop(digits, model):
    recorder = Recorder(lambda fitted, X, y: fitted.transform(X))
    model = clone(model).set_callbacks(recorder).fit(*digits[:2])
    assert recorder.ended == list(range(5))
    assert_array_equal(recorder.measured[-1], model.transform(digits[0]))
    model = clone(model).set_callbacks(Recorder(lambda *_: None, stop_after=3)).fit(*digits[:2])
    assert model.n_iter_ == 3
    assert model.stopped_by_ == "callback"


def test_real_data(require_dataset):
    require_dataset("yaleb")
    data = load("yaleb")
    train, test = next(few_shot_splits(data.target))
    model = LCKSVDClassifier(n_nonzero_coefs=30, random_state=0).fit(data.data[train], data.target[train])
    assert model.score(data.data[test], data.target[test]) > 0.7
