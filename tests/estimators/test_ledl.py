"""LEDLClassifier as users meet it: against the oracle, in scikit-learn's tools, and with bad input."""

import numpy as np
import pandas as pd
import pytest
from joblib import Parallel, delayed
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import Lasso
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_info, threadpool_limits

from helpers import reference
from helpers.problems import Recorder, unit
from ledl import LEDLClassifier
from ledl.coding import _coders
from ledl.datasets import few_shot_splits, load
from ledl.estimators import _base
from ledl.estimators._ledl import prepare_training
from ledl.solvers.lasso import lasso
from ledl.solvers.ledl import expand_code_transform, reduce_code_transform
from ledl.solvers.start import atom_counts, in_turns

QUICK = {"max_iter": 5, "tol": 0.0, "random_state": 0}


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    train, test = next(few_shot_splits(y))
    return X[train], y[train], X[test][:200], y[test][:200]


@pytest.fixture(scope="module")
def fitted(digits):
    return LEDLClassifier(random_state=0).fit(*digits[:2])


def oracle_fit(X, y, init, n_iter, **weights):
    """Algorithm 3 on unit samples, from `init` taken to the span of the samples and of the classes' atoms."""
    _, labels, counts = np.unique(y, return_inverse=True, return_counts=True)
    B, W, A = init
    atom_classes = np.repeat(np.arange(len(counts)), atom_counts(counts, len(B)))
    X = unit(np.asarray(X, dtype=float))
    if len(X) < X.shape[1]:
        B = B @ np.linalg.pinv(X) @ X
    A = unit(expand_code_transform(reduce_code_transform(A, atom_classes), atom_classes))
    *_, last = reference.ledl(X.T, labels, atom_classes, unit(B).T, unit(W).T, A.T, n_iter=n_iter, **weights)
    return [array.T for array in last]


@pytest.mark.parametrize("n_features", [64, 20], ids=["n < d", "n > d"])
def test_fit_is_the_papers_algorithm(digits, n_features, rng):
    X, y = digits[0][:, :n_features] + 0.1, np.array(list("abcdefghij"))[digits[1]]
    order = rng.permutation(len(y))[:-3]  # shuffled, and no longer balanced
    X, y = X[order], y[order]
    init = rng.random((33, n_features)), rng.random((33, 10)), rng.random((33, 33))
    model = LEDLClassifier(
        n_components=33, label_weight=0.1, code_weight=0.01, alpha=0.02, max_iter=30, tol=0, init=init,
        keep_codes=True,
    ).fit(X, y)  # fmt: skip
    B, W, A, _, Z, _ = oracle_fit(X, y, init, 30, lam=0.1, omega=0.01, epsilon=0.02)
    assert_allclose(model.components_, B, atol=1e-8)
    assert_allclose(model.label_components_, W, atol=1e-8)
    assert_allclose(model.code_components_, A, atol=1e-8)
    assert_allclose(model.training_codes_, Z, atol=1e-8)
    assert model.n_iter_ == 30
    assert model.stopped_by_ == "max_iter"


def test_atoms_of_classes_are_updated_in_turns(digits, rng):
    """The start is that of fit, with atoms by class; the transcription updates them in turns."""
    order = rng.permutation(len(digits[1]))[:-3]
    X, y = digits[0][order], digits[1][order]
    model = LEDLClassifier(n_components=33, max_iter=12, tol=0, random_state=0, keep_codes=True).fit(X, y)
    training = prepare_training(clone(model), X, y)
    atom_classes = model.atom_classes_
    assert (np.diff(atom_classes) >= 0).all()
    turns = in_turns(atom_classes)
    M = np.empty_like(training.start.M)
    M[turns] = training.start.M
    B, W, A = training.space.expand(M[:, :-20]), M[:, -20:-10], M[:, -10:]
    *_, last = reference.ledl(
        unit(X).T, y, atom_classes, B.T, W.T, unit(expand_code_transform(A, atom_classes)).T,
        lam=model.label_weight, omega=model.code_weight, epsilon=model.alpha, n_iter=12, order=turns,
    )  # fmt: skip
    B, W, A, _, Z, _ = (array.T for array in last)
    assert_allclose(model.components_, B, atol=1e-8)
    assert_allclose(model.label_components_, W, atol=1e-8)
    assert_allclose(model.code_components_, A, atol=1e-8)
    assert_allclose(model.training_codes_, Z, atol=1e-8)


def test_first_classes_are_found_as_well_as_others(rng):
    """In the order of classes, the first atoms take what all samples share: label 0 had 0.85."""
    y = np.repeat(np.arange(100), 25)
    X = np.clip(rng.random((100, 64))[y] + rng.normal(0, 0.3, (len(y), 64)), 0, 1)
    train = np.arange(len(y)) % 25 < 5
    model = LEDLClassifier(rule="ridge", random_state=0, max_iter=30, tol=0).fit(X[train], y[train])
    hits = (model.predict(X[~train]) == y[~train]).reshape(100, 20).mean(axis=1)
    assert hits[:10].mean() > hits.mean() - 0.015


def test_predictions_are_those_of_the_lasso_over_the_dictionary(digits, fitted):
    X = unit(digits[2])
    alpha = fitted.alpha
    theirs = Lasso(alpha / 64, fit_intercept=False, tol=1e-12, max_iter=500_000)
    codes = theirs.fit(fitted.components_.T, X[:20].T).coef_
    ours = fitted.transform(digits[2][:20])

    def objective(S):
        fit = np.sum((X[:20] - S @ fitted.components_) ** 2, axis=1) / 2
        return fit + alpha * np.abs(S).sum(axis=1)

    assert_allclose(objective(ours), objective(codes), atol=1e-6)
    correlation = (X[:20] - ours @ fitted.components_) @ fitted.components_.T
    assert np.abs(correlation).max() <= alpha + 1e-4
    scores = fitted.decision_function(digits[2])
    assert_allclose(scores[:20], ours @ fitted.label_components_)
    assert_array_equal(fitted.predict(digits[2]), fitted.classes_[scores.argmax(axis=1)])


def test_attributes(digits, fitted):
    assert fitted.components_.shape == (100, 64)
    assert fitted.label_components_.shape == (100, 10)
    assert fitted.code_components_.shape == (100, 100)
    for part in (fitted.components_, fitted.label_components_, fitted.code_components_):
        assert_allclose(np.linalg.norm(part, axis=1), 1.0)
    assert_array_equal(fitted.atom_classes_, np.repeat(np.arange(10), 10))
    assert {len(values) for values in fitted.history_.values()} == {fitted.n_iter_}
    assert np.isfinite(fitted.history_["objective"][[9, -1]]).all()
    assert not hasattr(fitted, "training_codes_")
    assert not hasattr(LEDLClassifier(), "code_components_")
    with pytest.raises(NotFittedError, match="not fitted yet"):
        _ = LEDLClassifier().code_components_


def test_it_learns(digits, fitted):
    assert fitted.score(*digits[2:]) > 0.7
    assert fitted.history_["objective"][-1] < fitted.history_["objective"][9]


def test_tighter_test_time_tolerance_and_alpha_are_used(digits, fitted):
    exact = clone(fitted).set_params(transform_tol=1e-12).fit(*digits[:2])
    loose = clone(fitted).set_params(transform_tol=1e-1).fit(*digits[:2])
    sparse = clone(fitted).set_params(transform_alpha=0.3).fit(*digits[:2])
    codes = [model.transform(digits[2]) for model in (exact, fitted, loose, sparse)]
    assert np.abs(codes[0] @ exact.components_ - codes[1] @ exact.components_).max() < 1e-2
    assert np.abs(codes[0] - codes[2]).max() > 1e-3
    assert np.count_nonzero(codes[3]) < np.count_nonzero(codes[0]) / 2
    assert_allclose(sparse.components_, fitted.components_)


@pytest.mark.parametrize("init", ["class", "random"])
def test_same_seed_same_model(digits, init):
    models = [LEDLClassifier(init=init, **QUICK).fit(*digits[:2]) for _ in range(2)]
    assert_array_equal(models[0].components_, models[1].components_)
    other = LEDLClassifier(init=init, **(QUICK | {"random_state": 1})).fit(*digits[:2])
    assert not np.allclose(models[0].components_, other.components_)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_output_has_the_inputs_type(digits, dtype):
    X, y, X_new, _ = digits
    model = LEDLClassifier(keep_codes=True, **QUICK).fit(X.astype(dtype), y)
    new = X_new.astype(dtype)
    for array in (
        model.components_, model.label_components_, model.code_components_, model.training_codes_,
        model.transform(new), model.decision_function(new),
    ):  # fmt: skip
        assert array.dtype == dtype
    assert model.score(new, digits[3]) == pytest.approx(
        LEDLClassifier(**QUICK).fit(X, y).score(X_new, digits[3]), abs=0.03
    )


def test_order_of_the_samples_does_not_matter_from_given_arrays(digits, rng):
    X, y = digits[:2]
    init = rng.random((20, 64)), rng.random((20, 10)), rng.random((20, 20))
    order = rng.permutation(len(y))
    a = LEDLClassifier(n_components=20, init=init, **QUICK).fit(X, y)
    b = LEDLClassifier(n_components=20, init=init, **QUICK).fit(X[order], y[order])
    assert_allclose(a.components_, b.components_, atol=1e-10)


def test_string_labels_and_two_classes(digits):
    X, y = digits[:2]
    two = np.flatnonzero(y < 2)
    names = np.array(["no", "yes"])[y[two]]
    model = LEDLClassifier(**QUICK).fit(X[two], names)
    scores = model.decision_function(X)
    assert scores.shape == (len(X),)
    assert_array_equal(model.predict(X), np.where(scores > 0, "yes", "no"))
    assert set(model.atom_classes_) == {"no", "yes"}


def test_pandas_in_and_out(digits):
    X, y = digits[:2]
    frame = pd.DataFrame(X, columns=[f"pixel {i}" for i in range(64)])
    model = LEDLClassifier(**QUICK).set_output(transform="pandas").fit(frame, pd.Series(y))
    assert_array_equal(model.feature_names_in_, frame.columns)
    codes = model.transform(frame)
    assert list(codes.columns[:2]) == ["ledlclassifier0", "ledlclassifier1"]
    assert codes.shape == (50, 100)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame.iloc[:, ::-1])


def test_in_pipelines_and_searches(digits):
    X, y = digits[:2]
    pipeline = make_pipeline(StandardScaler(with_mean=False), LEDLClassifier(**QUICK))
    assert len(cross_val_score(pipeline, X, y, cv=5)) == 5
    search = GridSearchCV(LEDLClassifier(**QUICK), {"alpha": [0.01, 0.1]}, cv=2).fit(X, y)
    assert search.best_params_["alpha"] in (0.01, 0.1)


def test_input_may_be_read_only_and_is_not_written(digits):
    X, y = digits[0].copy(), digits[1].copy()
    copy = X.copy()
    for array in (X, y):
        array.flags.writeable = False
    for normalize in (True, False):
        LEDLClassifier(normalize=normalize, **QUICK).fit(X, y).predict(X)
    assert_array_equal(X, copy)


def test_normalize_scales_samples(digits, rng):
    X, y, new, _ = digits
    scale = rng.uniform(0.1, 10, size=(len(X), 1))
    a, b = (LEDLClassifier(**QUICK).fit(samples, y) for samples in (X, scale * X))
    assert_allclose(a.components_, b.components_, atol=1e-10)
    assert_allclose(a.predict(new), a.predict(3 * new))
    plain = LEDLClassifier(normalize=False, **QUICK).fit(unit(X), y)
    assert_allclose(plain.components_, a.components_, atol=1e-12)


def test_zero_weights_are_an_ablation(digits):
    X, y, new, labels = digits
    models = [
        LEDLClassifier(label_weight=weight, code_weight=0, max_iter=50, tol=0, random_state=0).fit(X, y)
        for weight in (0.0, 1e-12)
    ]
    assert_allclose(models[0].components_, models[1].components_, atol=1e-6)
    assert_allclose(models[0].label_components_, models[1].label_components_, atol=1e-6)
    assert models[0].score(new, labels) > 0.7  # W is still learnt


@pytest.mark.filterwarnings("ignore:.*samples are all zero:UserWarning")
def test_a_class_with_one_sample_and_zero_samples_get_a_defined_answer(digits):
    X, y, new, _ = digits
    keep = np.flatnonzero((y != 3) | (np.cumsum(y == 3) == 1))
    X, y = X[keep].copy(), y[keep]
    X[0] = 0
    X[y == 5] = 0  # a class of zero samples alone
    for init in ("class", "random"):
        model = LEDLClassifier(init=init, **QUICK).fit(X, y)
        assert np.isfinite(model.components_).all()
        zero = np.zeros((2, 64))
        assert not model.transform(zero).any()
        assert not model.decision_function(zero).any()
        assert np.isfinite(model.decision_function(new)).all()
        assert (model.atom_classes_ == 3).sum() == 2


def test_repeated_samples_and_features(digits):
    X, y, new, _ = digits
    X, y = np.repeat(X, 2, axis=0), np.repeat(y, 2)
    for samples, others in ((np.repeat(X, 3, axis=1), np.repeat(new, 3, axis=1)), (X, new)):
        model = LEDLClassifier(**QUICK).fit(samples, y)
        assert np.isfinite(model.decision_function(others)).all()


def test_fewer_atoms_than_classes_says_what_is_done(digits):
    with pytest.warns(
        UserWarning, match=r"n_components=4 is fewer than the 10 classes.*Set n_components >= 10"
    ):
        model = LEDLClassifier(n_components=4, **QUICK).fit(*digits[:2])
    assert_array_equal(model.atom_classes_, np.arange(10))


GIVEN = np.ones((50, 64)), np.ones((50, 10)), np.ones((50, 50))

BAD = [
    ({"alpha": np.nan}, r"'alpha'.*Got nan"),
    ({"alpha": 0.0}, r"'alpha'.*Got 0.0"),
    ({"label_weight": -1.0}, r"'label_weight'.*Got -1.0"),
    ({"code_weight": np.inf}, r"'code_weight'.*Got inf"),
    ({"rho": 0.0}, r"'rho'.*Got 0.0"),
    ({"dual_step_decay": 1.5}, r"'dual_step_decay'.*Got 1.5"),
    ({"max_iter": 0}, r"'max_iter'.*Got 0"),
    ({"tol": -1e-3}, r"'tol'"),
    ({"init": "magic"}, r"'init'.*Got 'magic'"),
    ({"n_components": 10**7}, r"n_components=10000000.*GB.*Use fewer atoms"),
    ({"n_components": 100, "init": GIVEN}, r"B has shape \(50, 64\), but \(100, 64\)"),
    ({"init": GIVEN[:2]}, r"init has 2 arrays.*\(B, W, A\)"),
    ({"init": ()}, r"init has 0 arrays.*\(B, W, A\)"),
    ({"init": (1, 2, 3)}, r"init has 3 arrays of \[0, 0, 0\] axes.*\(B, W, A\)"),
]


@pytest.mark.parametrize(("parameters", "message"), BAD, ids=lambda value: str(value)[:40])
def test_bad_parameters_are_told(digits, parameters, message):
    with pytest.raises(ValueError, match=message):
        LEDLClassifier(**parameters).fit(*digits[:2])


@pytest.mark.parametrize("name", ["B", "A"])
def test_an_initial_row_outside_the_space_is_named(digits, name, rng):
    X, y = digits[0].copy(), digits[1]
    X[:, 0] = 0
    X = np.hstack([X, np.zeros((len(X), 1))])  # a feature that no sample has
    init = {"B": rng.random((20, 65)), "W": rng.random((20, 10)), "A": rng.random((20, 20))}
    init[name][7] = 0
    init[name][7, -1 if name == "B" else [0, 1]] = 1 if name == "B" else [1, -1]
    with pytest.raises(ValueError, match=f"row 7 of {name} is zero"):
        LEDLClassifier(n_components=20, init=tuple(init.values())).fit(X, y)


def test_bad_data_is_told(digits, fitted):
    X, y = digits[:2]
    with pytest.raises(ValueError, match="one class only: 3"):
        LEDLClassifier().fit(X, np.full(len(X), 3))
    with pytest.raises(ValueError, match="NaN"):
        LEDLClassifier().fit(np.where(X == 0, np.nan, X), y)
    with pytest.raises(ValueError, match="All samples are zero"):
        LEDLClassifier().fit(0 * X, y)
    with pytest.raises(ValueError, match="Unknown label type"):
        LEDLClassifier().fit(X, y + 0.5)
    with pytest.raises(ValueError, match="X has 63 features, but LEDLClassifier is expecting 64"):
        fitted.predict(X[:, 1:])
    with pytest.raises(NotFittedError):
        LEDLClassifier().predict(X)


def test_codes_that_are_all_zero_are_told(digits, fitted):
    with pytest.warns(UserWarning, match=r"All codes .* alpha=5.0 is too large .* Lower alpha"):
        LEDLClassifier(alpha=5.0, **QUICK).fit(*digits[:2])
    sparse = clone(fitted).set_params(transform_alpha=5.0).fit(*digits[:2])
    with pytest.warns(UserWarning, match=r"codes of all 200 samples are zero.*alpha=5.0 .* transform_alpha"):
        sparse.predict(digits[2])


def test_stacks_of_images_are_told_how_to_flatten(digits, fitted):
    for method in (lambda X: LEDLClassifier().fit(X, digits[1]), fitted.predict):
        with pytest.raises(ValueError, match=r"shape \(50, 8, 8\).*X.reshape\(len\(X\), -1\)"):
            method(digits[0].reshape(50, 8, 8))


@pytest.mark.parametrize(("dtype", "scale"), [(np.float32, 1e30), (np.float32, 1e-30), (np.float64, 1e-200)])
def test_scaling_to_norm_one_neither_overflows_nor_vanishes(digits, dtype, scale):
    X, y, new, _ = digits
    model = LEDLClassifier(**QUICK).fit(X.astype(dtype), y)
    scaled = LEDLClassifier(**QUICK).fit((X * scale).astype(dtype), y)
    assert_array_equal(model.predict(new.astype(dtype)), scaled.predict((new * scale).astype(dtype)))


def test_the_number_of_atoms_may_come_from_given_arrays(digits, rng):
    init = rng.random((23, 64)), rng.random((23, 10)), rng.random((23, 23))
    assert len(LEDLClassifier(init=init, **QUICK).fit(*digits[:2]).components_) == 23


def test_overflow_is_told(digits):
    X, y = digits[:2]
    with np.errstate(all="ignore"), pytest.raises(ValueError, match="normalize=True"):
        LEDLClassifier(normalize=False).fit(1e150 * X, y)


def test_a_penalty_that_is_too_small_is_told(digits):
    X, y = np.repeat(digits[0], 2, axis=0), np.repeat(digits[1], 2)
    with pytest.raises(ValueError, match=r"rho=1e-30 is so small .* Raise rho"):
        LEDLClassifier(rho=1e-30).fit(X, y)
    with np.errstate(all="ignore"), pytest.raises(ValueError, match=r"raise rho or lower dual_step"):
        LEDLClassifier(rho=1e-6).fit(X, y)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"rho": 1e-50}, r"rho=1e-50 is so small that float32 cannot divide by it\. Raise it, or use float64"),
        ({"rho": 1e39}, r"rho=1e\+39 is infinite in float32\. Lower it, or use float64"),
        ({"label_weight": 1e300}, r"label_weight=1e\+300 is infinite in float32"),
        ({"code_weight": 1e39}, r"code_weight=1e\+39 is infinite in float32"),
        ({"alpha": 10**400}, r"alpha=1000\d* is infinite in float32"),
        ({"label_weight": 1e30}, r"rho=1 is so small beside the weights .*lower label_weight or code_weight"),
    ],
)
@pytest.mark.parametrize("batched", [False, True], ids=["fit", "partial_fit"])
def test_weights_that_float32_cannot_hold_are_told(digits, weights, message, batched):
    X, y = digits[0].astype(np.float32), digits[1]
    model = LEDLClassifier(n_components=12, **weights, **QUICK)
    with pytest.raises(ValueError, match=message):
        model.partial_fit(X, y, classes=range(10)) if batched else model.fit(X, y)
    with pytest.raises(
        ValueError, match=r"rho=1e-310 is so small that float64 cannot divide by it\. Raise it\.$"
    ):
        LEDLClassifier(rho=1e-310, **QUICK).fit(X.astype(float), y)


def test_weights_that_vanish_in_float32_are_as_good_as_none(digits):
    X, y = digits[0].astype(np.float32), digits[1]
    for name in ("label_weight", "code_weight"):
        tiny, zero = (LEDLClassifier(**{name: value}, **QUICK).fit(X, y) for value in (1e-300, 0.0))
        assert_array_equal(tiny.components_, zero.components_)
    assert np.isfinite(LEDLClassifier(alpha=1e-300, **QUICK).fit(X, y).components_).all()


def test_not_converging_says_what_to_change(digits):
    with pytest.warns(
        ConvergenceWarning, match=r"tol=1e-09.*max_iter=3.*raise max_iter, raise tol, or set tol=0"
    ):
        model = LEDLClassifier(max_iter=3, tol=1e-9).fit(*digits[:2])
    assert model.stopped_by_ == "max_iter"
    converged = LEDLClassifier(max_iter=500, tol=1e-2, random_state=0).fit(*digits[:2])
    assert converged.stopped_by_ == "tol"
    assert converged.n_iter_ < 500


def test_test_time_codes_that_miss_their_gap_say_so(digits, fitted, monkeypatch):
    monkeypatch.setattr(_coders, "lasso", lambda *a, **options: lasso(*a, **{**options, "max_iter": 1}))
    with pytest.warns(ConvergenceWarning, match=r"200 of 200 samples.*tol=1e-06.*Raise the tolerance or alpha"):
        fitted.predict(digits[2])


@pytest.mark.parametrize("alpha", [2**-14, 1e-8])
def test_float32_codes_reach_their_gap_at_tiny_alphas(digits, alpha):
    X, y, new, _ = (array.astype(np.float32) if array.ndim == 2 else array for array in digits)
    model = LEDLClassifier(alpha=alpha, **QUICK).fit(X, y)
    assert np.isfinite(model.transform(new)).all()  # and no ConvergenceWarning, which would be an error here
    assert np.isfinite(model.transform(X)).all()


def test_a_refit_leaves_nothing_of_the_last(digits, rng):
    X, y = digits[:2]
    model = LEDLClassifier(keep_codes=True, **QUICK).fit(X, y)
    model.set_params(keep_codes=False).fit(X[y < 5], y[y < 5])
    assert not hasattr(model, "training_codes_")
    before = model.predict(X)
    with pytest.raises(ValueError, match="init has 1 arrays"):
        model.set_params(init=(rng.random((4, 4)),)).fit(X, y)
    assert_array_equal(model.predict(X), before)
    with pytest.raises(NotFittedError):
        clone(model).predict(X)


def test_fits_in_threads_leave_blas_as_it_was(digits):
    X, y = digits[:2]
    with threadpool_limits(2, "blas"):
        before = [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]
        fits = (delayed(LEDLClassifier(max_iter=5 + 5 * k, tol=0).fit)(X, y) for k in range(6))
        Parallel(3, backend="threading")(fits)
        after = [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]
    assert before == after


def test_chunks_of_samples_change_nothing(digits, fitted, monkeypatch):
    codes = fitted.transform(digits[2])
    monkeypatch.setattr(_coders, "CHUNK", 700)
    monkeypatch.setattr(_coders, "CHUNK_ROWS", 7)
    assert_allclose(fitted.transform(digits[2]), codes, atol=1e-12)


@pytest.mark.skipif(not hasattr(_base.CallbackSupportMixin, "set_callbacks"), reason="scikit-learn before 1.9")
def test_callbacks_see_every_iteration_and_may_stop(digits):
    recorder = Recorder(LEDLClassifier.score)
    model = LEDLClassifier(**QUICK).set_callbacks(recorder).fit(*digits[:2])
    assert recorder.ended == list(range(5))
    assert recorder.measured[-1] == model.score(*digits[:2]) == recorder.final.score(*digits[:2])
    model = LEDLClassifier(**QUICK).set_callbacks(Recorder(LEDLClassifier.score, stop_after=2)).fit(*digits[:2])
    assert model.n_iter_ == 2
    assert model.stopped_by_ == "callback"


@pytest.mark.parametrize(("name", "least"), [("usps", 0.70), ("ucmerced", 0.75), ("yaleb", 0.70)])
def test_real_data(name, least, require_dataset):
    require_dataset(name)
    dataset = load(name)
    train, test = next(few_shot_splits(dataset.target))
    test = np.random.default_rng(0).permutation(test)[:500]
    model = LEDLClassifier(random_state=0, max_iter=30, tol=0).fit(dataset.data[train], dataset.target[train])
    assert model.score(dataset.data[test], dataset.target[test]) > least


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "powers", "least"),
    [
        ("usps", (-4, -8, -5), 0.780),
        ("ucmerced", (0, -9, -6), 0.810),
        ("yaleb", (-3, -11, -8), 0.785),
        ("pie", (-3, -11, -8), 0.735),
    ],
)
def test_accuracy_at_the_papers_weights(name, powers, least, require_dataset):
    require_dataset(name)
    dataset, scores = load(name), []
    lam, omega, epsilon = (2.0**power for power in powers)
    for seed, (train, test) in enumerate(few_shot_splits(dataset.target)):
        model = LEDLClassifier(label_weight=lam, code_weight=omega, alpha=epsilon, random_state=seed)
        model.fit(dataset.data[train], dataset.target[train])
        scores.append(model.score(dataset.data[test], dataset.target[test]))
    assert np.mean(scores) >= least
