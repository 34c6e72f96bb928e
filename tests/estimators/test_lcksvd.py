"""D-KSVD and LC-KSVD as users meet them."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Ridge, orthogonal_mp

from helpers import reference
from helpers.digits import few_digits
from helpers.problems import Recorder, unit
from ledl import DKSVDClassifier, LCKSVDClassifier
from ledl.datasets import few_shot_splits, load
from ledl.estimators import _base
from ledl.solvers import lcksvd

QUICK = {"max_iter": 5, "random_state": 0}


@pytest.fixture(scope="module")
def digits():
    return few_digits(100)


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
        (LCKSVDClassifier(variant=1, code_weight=0), r"code_weight=0 leaves variant=1 no term"),
        (LCKSVDClassifier(variant=3), "'variant' parameter"),
        (DKSVDClassifier(label_weight=0), "'label_weight' parameter"),
        (DKSVDClassifier(n_nonzero_coefs=0), "'n_nonzero_coefs' parameter"),
        (DKSVDClassifier(init="random"), "'init' parameter"),
    ],
)
def test_bad_parameters_are_reported(digits, model, message):
    with pytest.raises(ValueError, match=message):
        clone(model).fit(*digits[:2])


def test_more_nonzeros_than_atoms_are_as_many_as_there_are(digits):
    X, y, new, _ = digits
    model = DKSVDClassifier(n_components=12, n_nonzero_coefs=100, **QUICK).fit(X, y)
    assert np.isfinite(model.decision_function(new)).all()


def test_real_data(require_dataset):
    require_dataset("yaleb")
    data = load("yaleb")
    train, test = next(few_shot_splits(data.target))
    model = LCKSVDClassifier(n_nonzero_coefs=30, random_state=0).fit(data.data[train], data.target[train])
    assert model.score(data.data[test], data.target[test]) > 0.7


def test_iterations_that_do_not_suffice_are_reported(digits):
    with pytest.warns(ConvergenceWarning, match=r"DKSVDClassifier did not converge: .*max_iter=2"):
        model = DKSVDClassifier(tol=1e-9, max_iter=2).fit(*digits[:2])
    assert model.stopped_by_ == "max_iter"


@pytest.mark.skipif(not hasattr(_base.CallbackSupportMixin, "set_callbacks"), reason="scikit-learn before 1.9")
def test_callbacks_see_every_iteration_and_may_stop(digits):
    X, y = digits[:2]
    recorder = Recorder(lambda fitted, X, y: fitted.transform(X))
    model = LCKSVDClassifier(**QUICK).set_callbacks(recorder).fit(X, y)
    assert recorder.ended == list(range(5))
    assert_array_equal(recorder.measured[-1], model.transform(X))
    model = LCKSVDClassifier(**QUICK).set_callbacks(Recorder(lambda *_: None, stop_after=3)).fit(X, y)
    assert model.n_iter_ == 3
    assert model.stopped_by_ == "callback"
