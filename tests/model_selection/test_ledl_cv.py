"""`LEDLClassifierCV`: what is tried, how it is judged, what is chosen."""

import tracemalloc
import warnings
from copy import copy, deepcopy

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import softmax
from sklearn.base import clone
from sklearn.calibration import calibration_curve
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning, FitFailedWarning
from sklearn.metrics import log_loss
from sklearn.model_selection import (
    LeaveOneGroupOut,
    LeaveOneOut,
    RepeatedStratifiedKFold,
    StratifiedKFold,
    cross_val_score,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

import ledl
from helpers.digits import few_digits
from ledl import LEDLClassifier, LEDLClassifierCV, RejectingClassifier, explain
from ledl.dictionary import RegularizedRule, ResidualRule, log_odds
from ledl.estimators import for_chunks
from ledl.kernels import power_of
from ledl.model_selection._choice import (
    default_folds,
    log_losses,
)

QUICK = {"max_iter": 20, "tol": 0, "random_state": 0}
SMALL = {"alpha": [2**-4, 2**-7], "ridge_alpha": [2.0, 2**-5], **QUICK}


@pytest.fixture(scope="module")
def digits():
    return few_digits(300)


@pytest.fixture(scope="module")
def fitted(digits):
    return LEDLClassifierCV(**SMALL).fit(*digits[:2])


# Scores as probabilities.


def test_two_classes_that_are_never_confused_in_training_have_sensible_probabilities():
    X, y, X_test, y_test = few_digits(None)
    for pair in ((3, 8), (1, 7)):
        train, test = np.isin(y, pair), np.isin(y_test, pair)
        model = LEDLClassifierCV(**SMALL).fit(X[train], y[train])
        assert log_loss(y_test[test], model.predict_proba(X_test[test])) < 0.4  # a coin has 0.69


def test_ratios_enter_with_their_logarithm_and_keep_their_order():
    scores = -np.array([[0.5, 2.0, 8.0], [0.0, 1.0, 3.0]])
    found = log_odds(RegularizedRule(), scores)
    assert_allclose(found[0], -np.log([0.5, 2.0, 8.0]))
    assert np.isfinite(found).all()
    assert_array_equal(log_odds(RegularizedRule(), np.zeros((2, 3))), np.zeros((2, 3)))  # of samples of zeros
    assert_array_equal(found.argsort(axis=1), scores.argsort(axis=1))
    assert log_odds(ResidualRule(), scores) is scores


# What is tried, and how it is judged.


@pytest.mark.parametrize("wide", [False, True])
def test_candidates_are_judged_as_by_hand(wide, digits, fitted):
    """With fewer samples than features, the search works in coordinates of the features of each kernel."""
    X, y = digits[:2]
    if wide:
        X, y = np.concatenate([X, X**2], axis=1)[:90], y[:90]
        fitted = clone(fitted).fit(X, y)
    folds = default_folds(y, fold_seed(0))
    assert fitted.n_splits_ == len(folds) == 5
    candidates = fitted.cv_results_["params"]
    tried = (0, 3, 5, 7, len(candidates) - 1)
    assert {candidates[k]["kernel"] for k in tried} == {"linear", "hellinger", 0.25}
    for k in tried:
        params = fitted.cv_results_["params"][k]
        F, labels, hits = [], [], []
        for i, (train, test) in enumerate(folds):
            model = LEDLClassifier(**params, max_iter=20, tol=0, random_state=start_seed(0))
            scores = model.fit(X[train], y[train]).decision_function(X[test])
            F.append(-np.log(-scores) if params["rule"] == "regularized" else scores)
            labels.append(y[test])
            hits.append(np.mean(model.classes_[scores.argmax(axis=1)] == y[test]))
            assert_allclose(fitted.cv_results_[f"split{i}_test_accuracy"][k], hits[-1])
        F, labels = np.concatenate(F), np.concatenate(labels)
        grid = np.exp(np.linspace(-6, 9, 2000))
        least = min(log_losses(F, labels, t).mean() for t in grid / np.std(F - F.mean(axis=1, keepdims=True)))
        assert_allclose(-fitted.cv_results_["mean_test_neg_log_loss"][k], least, rtol=1e-3)


def fold_seed(seed):
    return int(np.random.RandomState(seed).randint(np.iinfo(np.int32).max, size=2)[0])


def start_seed(seed):
    return int(np.random.RandomState(seed).randint(np.iinfo(np.int32).max, size=2)[1])


def test_the_best_is_fitted_on_all_samples(digits):
    X, y, X_test, _ = digits
    fitted = LEDLClassifierCV(**SMALL, n_best=1).fit(X, y)
    assert fitted.best_index_ == fitted.cv_results_["mean_test_neg_log_loss"].argmax()
    assert fitted.best_params_ == fitted.cv_results_["params"][fitted.best_index_]
    assert fitted.best_score_ == fitted.cv_results_["mean_test_neg_log_loss"].max()
    alone = LEDLClassifier(**fitted.best_params_, max_iter=20, tol=0, random_state=start_seed(0)).fit(X, y)
    scores = alone.decision_function(X_test)
    expected = -np.log(-scores) if alone.rule == "regularized" else scores
    assert_array_equal(fitted.decision_function(X_test), expected)
    assert_array_equal(fitted.predict(X_test), alone.predict(X_test))
    assert_array_equal(fitted.transform(X_test), alone.transform(X_test))
    assert fitted.temperature_ == fitted.best_temperature_


def test_the_mean_of_the_best_is_that_of_models_fitted_by_hand(digits, fitted):
    X, y, X_test, _ = digits
    order = np.argsort(-fitted.cv_results_["mean_test_neg_log_loss"], kind="stable")
    by_kind = {}  # the first with each kernel and rule
    for k in order:
        params = fitted.cv_results_["params"][k]
        by_kind.setdefault((params["kernel"], params["rule"]), params)
    expected = 0
    for weight, params in zip(fitted.weights_, list(by_kind.values())[:3], strict=True):
        model = LEDLClassifier(**params, max_iter=20, tol=0, random_state=start_seed(0)).fit(X, y)
        scores = model.decision_function(X_test)
        expected += weight * (-np.log(-scores) if model.rule == "regularized" else scores)
    assert_allclose(fitted.decision_function(X_test), expected, rtol=1e-9)
    assert_array_equal(fitted.predict(X_test), expected.argmax(axis=1))
    assert_allclose(fitted.predict_proba(X_test), softmax(fitted.temperature_ * expected, axis=1), atol=1e-9)
    assert_array_equal(fitted.transform(X_test), fitted.best_estimator_.transform(X_test))
    judged, evidence = fitted._judge(X_test)
    assert_allclose(judged, expected, rtol=1e-9)
    assert_array_equal(evidence, fitted.best_estimator_._judge(X_test)[1])


def test_models_with_the_same_kernel_share_their_atoms(digits):
    X, y, X_test, _ = digits
    model = LEDLClassifierCV(kernels="hellinger", rules=["classifier", "ridge"], **SMALL).fit(X, y)
    first, second = model.estimators_
    assert {first.rule, second.rule} == {"classifier", "ridge"}
    assert first.components_ is second.components_
    ridge = first if first.rule == "ridge" else second
    B, W, x = ridge.components_, ridge.label_components_, np.sqrt(X_test)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    codes = np.linalg.solve(B @ B.T + ridge.ridge_alpha * np.eye(len(B)), B @ x.T).T
    assert_allclose(ridge.decision_function(X_test), codes @ W, atol=1e-9)


def test_a_kernel_and_its_power_are_one_kind(digits):
    kernels = ["hellinger", 0.5, 1.0, "linear"]
    model = LEDLClassifierCV(kernels=kernels, rules="classifier", **SMALL).fit(*digits[:2])
    assert sorted(power_of(one.kernel) for one in model.estimators_) == [0.5, 1.0]


@pytest.mark.parametrize("n_best", [1, 3])
def test_setting_parameters_of_a_model_changes_its_own_predictions_alone(n_best, digits, fitted, tmp_path):
    model = deepcopy(fitted) if n_best == 3 else LEDLClassifierCV(**SMALL, n_best=1).fit(*digits[:2])
    X_test = digits[2]
    before, explained = model.decision_function(X_test), explain(model, X_test[0])
    assert len(model.estimators_) == n_best
    for one in model.estimators_:
        own = one.decision_function(X_test)
        one.set_params(rule="residual", transform_alpha=0.5)
        assert not np.allclose(one.decision_function(X_test), own)
    assert_array_equal(model.decision_function(X_test), before)
    assert_array_equal(explain(model, X_test[0]).scores, explained.scores)
    ledl.save(model, tmp_path / "model.ledl")
    assert_allclose(ledl.load(tmp_path / "model.ledl").decision_function(X_test), before, rtol=1e-9)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    ("name", "value", "kernel"),
    [
        ("n_components", 30, "linear"),
        ("normalize", False, "linear"),
        ("gamma", 1e-3, "rbf"),
        ("degree", 2, "poly"),
        ("coef0", 0.5, "poly"),
        ("max_iter", 7, "linear"),
        ("tol", 0.5, "linear"),
        ("transform_tol", 1e-2, "linear"),
    ],
)
def test_parameters_reach_the_model(name, value, kernel, digits):
    X, y, X_test, _ = digits
    parameters = {"alpha": 2**-5, "kernels": kernel, "rules": "classifier", "cv": 2, **QUICK, name: value}
    X_test = X_test[:100]
    model = LEDLClassifierCV(**parameters).fit(X, y)
    assert getattr(model.best_estimator_, name) == value
    single = {"alpha": 2**-5, "kernel": kernel, **QUICK, "random_state": start_seed(0), name: value}
    expected = LEDLClassifier(**single).fit(X, y).decision_function(X_test)
    assert_array_equal(model.decision_function(X_test), expected)
    other = LEDLClassifierCV(**{**parameters, name: getattr(LEDLClassifierCV(), name)}).fit(X, y)
    assert (other.decision_function(X_test) != expected).any()


def test_spread_of_scores_and_the_score_of_the_choice(fitted):
    found = fitted.cv_results_
    for metric in ("accuracy", "neg_log_loss"):
        folds = [found[f"split{i}_test_{metric}"] for i in range(5)]
        assert_allclose(found[f"std_test_{metric}"], np.std(folds, axis=0))
        assert_allclose(found[f"mean_test_{metric}"], np.mean(folds, axis=0))  # folds of one size
    assert fitted.best_score_ == found["mean_test_neg_log_loss"][fitted.best_index_]


def test_candidates_are_all_combinations_that_matter(digits):
    model = LEDLClassifierCV(
        label_weight=[1.0, 4.0], code_weight=0.0, rules=["residual", "regularized"], **SMALL
    )
    model.fit(*digits[:2])
    found = model.cv_results_["params"]
    assert len(found) == 3 * (2 * 2 + 2 * 2)
    assert all(("ridge_alpha" in one) == (one["rule"] == "regularized") for one in found)
    assert {one["alpha"] for one in found} == {2**-4}  # the middle one
    assert {one.get("transform_alpha") for one in found} == {2**-4, 2**-7, None}
    assert np.isnan(model.cv_results_["param_ridge_alpha"]).sum() == 12
    assert set(model.cv_results_["param_kernel"]) == {"linear", "hellinger", "0.25"}


@pytest.mark.parametrize("kernel", ["hellinger", 0.25, np.inner])
def test_one_kernel_needs_no_list(kernel, digits):
    model = LEDLClassifierCV(kernels=kernel, rules="ridge", **SMALL).fit(*digits[:2])
    assert [one["kernel"] for one in model.cv_results_["params"]] == [kernel] * 2


def opposite(x, y):
    return -(x @ y)  # no inner product: k(x, x) is negative


def test_kernels_may_be_functions_and_may_fail(digits):
    X, y = digits[:2]
    model = LEDLClassifierCV(kernels=[np.inner, opposite], rules="classifier", alpha=2**-5, **QUICK)
    with pytest.warns(FitFailedWarning, match="5 of 10 fits failed"):
        model.fit(X, y)
    assert model.best_params_["kernel"] is np.inner
    assert_array_equal(np.isnan(model.cv_results_["mean_test_accuracy"]), [False, True])
    assert_array_equal(model.cv_results_["rank_test_accuracy"], [1, 2])


def test_a_grid_in_one_batch_and_kernel_by_kernel_give_the_same(digits):
    both = LEDLClassifierCV(kernels=["linear", "rbf"], **SMALL).fit(*digits[:2])
    alone = [LEDLClassifierCV(kernels=kernel, **SMALL).fit(*digits[:2]) for kernel in ("linear", "rbf")]
    for name in ("mean_test_accuracy", "mean_test_neg_log_loss"):
        expected = np.concatenate([one.cv_results_[name] for one in alone])
        assert_allclose(both.cv_results_[name], expected, rtol=1e-9)


@pytest.fixture(
    params=[
        pytest.param("cpu", marks=pytest.mark.torch),
        pytest.param("cuda", marks=[pytest.mark.torch, pytest.mark.gpu]),
    ]
)
def device(request):
    import torch

    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no GPU")
    return request.param


def test_where_it_runs_does_not_matter(device, digits):
    X, y, X_test, _ = digits
    here, there = (LEDLClassifierCV(**SMALL, device=where).fit(X, y) for where in (None, device))
    assert there.best_params_ == here.best_params_
    for name in ("mean_test_accuracy", "mean_test_neg_log_loss"):
        # Codes of candidates have a gap of 1e-4, by another solver there.
        assert_allclose(there.cv_results_[name], here.cv_results_[name], atol=2e-3)
    assert_allclose(there.predict_proba(X_test), here.predict_proba(X_test), atol=1e-3)
    import torch

    tensor = torch.as_tensor(X_test, device=device)
    found = LEDLClassifierCV(**SMALL).fit(torch.as_tensor(X, device=device), y)
    assert found.best_params_ == here.best_params_
    assert found.predict_proba(tensor).device.type == device
    assert_allclose(found.predict_proba(tensor).cpu().numpy(), here.predict_proba(X_test), atol=1e-3)


# What is chosen.


def test_selection_by_accuracy_is_that_of_the_largest(digits):
    model = LEDLClassifierCV(selection="accuracy", **SMALL).fit(*digits[:2])
    assert model.best_index_ == model.cv_results_["mean_test_accuracy"].argmax()
    assert model.best_score_ == model.cv_results_["mean_test_accuracy"].max()


# How good the choice is.


def test_shuffled_digits_have_no_luck():
    X, y = load_digits(return_X_y=True)
    best, expected = [], []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        drawn = rng.permutation(len(y))[:20]
        model = LEDLClassifierCV(**{**QUICK, "random_state": seed}).fit(
            X[drawn], rng.permutation(np.arange(20) % 2)
        )
        best.append(model.cv_results_["mean_test_accuracy"][model.best_index_])
        expected.append(model.expected_accuracy_)
    assert np.mean(expected) < np.mean(best) - 0.03  # 0.53 and 0.57
    assert abs(np.mean(expected) - 0.5) < 0.06  # two standard errors


def test_the_expected_accuracy_is_that_of_new_samples(digits, fitted):
    X_test, y_test = digits[2:]
    low, high = fitted.expected_accuracy_interval_
    assert low < fitted.expected_accuracy_ < high
    assert low < fitted.score(X_test, y_test) < high
    assert fitted.expected_accuracy_ <= fitted.cv_results_["mean_test_accuracy"].max()


def test_repeated_folds_do_not_make_it_surer(digits):
    X, y = digits[:2]
    options = {**SMALL, "rules": "classifier", "kernels": "linear"}
    widths = []
    for cv in (StratifiedKFold(5), RepeatedStratifiedKFold(n_splits=5, n_repeats=4, random_state=0)):
        model = LEDLClassifierCV(cv=cv, **options).fit(X, y)
        low, high = model.expected_accuracy_interval_
        widths.append((high - low) / np.sqrt(model.expected_accuracy_ * (1 - model.expected_accuracy_)))
    assert_allclose(*widths, rtol=0.1)


# Folds.


def test_one_image_of_a_class_spoils_no_others():
    """Tests of stand-ins were half of all tests: with 60, 60 and 1 samples, probabilities were near chance."""
    X, y = load_digits(return_X_y=True)
    members = [np.flatnonzero(y == label) for label in (3, 8, 9)]
    train = np.concatenate([own[:n] for own, n in zip(members, (60, 60, 1), strict=True)])
    test = np.concatenate([own[60:] for own in members[:2]])
    model = LEDLClassifierCV(random_state=0).fit(X[train], y[train])
    probabilities = model.predict_proba(X[test])
    assert model.expected_accuracy_ > 0.9
    assert probabilities.max(axis=1).mean() > 0.85
    assert model.score(X[test], y[test]) > 0.9


def test_classes_with_one_sample_are_not_given_up(few_of_some):
    """The choice may not favour the classes that can be tested: it was 12 points behind the defaults."""
    chosen, defaults, expected = few_of_some
    assert np.mean(chosen) > np.mean(defaults) - 0.03
    assert abs(np.mean(expected) - np.mean(chosen)) < 0.2


@pytest.fixture(scope="module")
def few_of_some():
    """Accuracies with 1, 1, 5 and 5 samples of four classes of digits, five times, and those expected."""
    X, y = load_digits(return_X_y=True)
    found = []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        classes = rng.permutation(10)[:4]
        members = [rng.permutation(np.flatnonzero(y == label)) for label in classes]
        train = np.concatenate([own[:n] for own, n in zip(members, (1, 1, 5, 5), strict=True)])
        test = np.setdiff1d(np.concatenate(members), train)
        model = LEDLClassifierCV(random_state=0).fit(X[train], y[train])
        plain = LEDLClassifier(random_state=0).fit(X[train], y[train])
        found.append((model.score(X[test], y[test]), plain.score(X[test], y[test]), model.expected_accuracy_))
    return np.array(found).T


def test_one_class_alone_is_no_test():
    """Best would be the settings that always answer this class."""
    assert default_folds(np.array([0, 1, 1, 1, 2]), 0) == []
    assert default_folds(np.array([0, 1, 1, 0]), 0, weights=np.array([1.0, 1, 1, 0])) == []


def test_groups_need_a_cv_that_wants_them(digits):
    X, y = digits[:2]
    groups = np.arange(len(y)) % 5
    with pytest.raises(ValueError, match=r"groups are given.*StratifiedGroupKFold"):
        LEDLClassifierCV(**SMALL).fit(X, y, groups=groups)
    model = LEDLClassifierCV(cv=LeaveOneGroupOut(), **SMALL).fit(X, y, groups=groups)
    assert model.n_splits_ == 5


def test_samples_in_a_file_are_read(digits, tmp_path):
    X, y = np.repeat(digits[0], 2, axis=0), np.repeat(digits[1], 2)  # more samples than features
    np.save(tmp_path / "x.npy", X)
    model = LEDLClassifierCV(rules="classifier", alpha=2**-5, **QUICK)
    stored = clone(model).fit(np.load(tmp_path / "x.npy", mmap_mode="r"), y)
    assert_array_equal(stored.predict_proba(X), model.fit(X, y).predict_proba(X))


@pytest.mark.filterwarnings("ignore:The number of unique classes")
def test_classes_of_one_sample_each_take_the_defaults(digits, tmp_path):
    X, y = digits[:2]
    _, first = np.unique(y, return_index=True)
    model = LEDLClassifierCV(**QUICK)
    with pytest.warns(UserWarning, match=r"Fewer than two classes.*'alpha': 0\.015625.*not calibrated"):
        model.fit(X[first], y[first])
    seed = model.best_estimator_.random_state
    plain = LEDLClassifier(random_state=seed, max_iter=model.max_iter, tol=model.tol).fit(X[first], y[first])
    assert_array_equal(model.decision_function(X), plain.decision_function(X))
    assert_allclose(model.predict_proba(X), softmax(6 * plain.decision_function(X), axis=1), atol=1e-12)
    assert (model.n_splits_, list(model.cv_results_)) == (0, ["params"])
    assert np.isnan(model.best_score_)
    ledl.save(model, tmp_path / "model.ledl")
    assert_array_equal(ledl.load(tmp_path / "model.ledl").predict_proba(X), model.predict_proba(X))
    other = LEDLClassifierCV(alpha=[2**-3, 2**-4], kernels="hellinger", **QUICK)
    with pytest.warns(UserWarning, match=r"'alpha': 0\.125"):
        assert other.fit(X[first], y[first]).best_params_["rule"] == "classifier"


def test_a_class_of_one_sample_is_learnt(digits):
    X, y = digits[:2]
    rows = np.concatenate([np.flatnonzero(y != 3), np.flatnonzero(y == 3)[:1]])
    model = LEDLClassifierCV(**SMALL).fit(X[rows], y[rows])
    assert_array_equal(model.classes_, np.arange(10))
    assert model.predict(X[rows[-1:]]) == 3


def test_folds_may_be_given(digits):
    X, y = digits[:2]
    number = LEDLClassifierCV(cv=3, **SMALL).fit(X, y)
    listed = LEDLClassifierCV(cv=list(StratifiedKFold(3).split(X, y)), **SMALL).fit(X, y)
    assert number.n_splits_ == 3
    assert_array_equal(
        number.cv_results_["mean_test_neg_log_loss"], listed.cv_results_["mean_test_neg_log_loss"]
    )


def test_folds_must_know_all_classes(digits):
    X, y = digits[:2]
    _, first = np.unique(y, return_index=True)
    rows = np.concatenate([np.flatnonzero(y != 9), first[-1:]])
    with pytest.raises(ValueError, match=r"leaves out all samples of the class 9.*cv=None never"):
        LEDLClassifierCV(cv=LeaveOneOut(), **SMALL).fit(X[rows], y[rows])
    with pytest.raises(ValueError, match="cv has no folds"):
        LEDLClassifierCV(cv=[], **SMALL).fit(X, y)


# Probabilities.


def test_probabilities_go_with_labels_and_are_calibrated(fitted):
    _, _, X_test, y_test = few_digits(None)
    found = fitted.predict_proba(X_test)
    assert_allclose(found.sum(axis=1), 1)
    assert_array_equal(fitted.classes_[found.argmax(axis=1)], fitted.predict(X_test))
    assert_allclose(np.exp(fitted.predict_log_proba(X_test)), found, atol=1e-12)
    # Where it is sure of 80 %, it is right in about 80 %: within 20 points, with 5 samples a class.
    right = fitted.predict(X_test) == y_test
    shares, sure = calibration_curve(right, found.max(axis=1), n_bins=5)
    many = np.histogram(found.max(axis=1), bins=np.linspace(0, 1, 6))[0]
    assert np.abs(shares - sure)[many[many > 0] > 100].max() < 0.2


def test_logarithms_of_probabilities_that_vanish_are_finite(digits, fitted):
    sure = copy(fitted)
    sure.temperature_ = 1e9
    found = sure.predict_proba(digits[2])
    assert (found == 0).any()
    with np.errstate(divide="raise"):
        logs = sure.predict_log_proba(digits[2])
    assert_allclose(logs[found == 0], np.log(np.finfo(np.float64).tiny))
    assert_allclose(logs[found > 0], np.log(found[found > 0]))


def test_two_classes_have_two_probabilities(digits):
    X, y = digits[:2]
    two = y < 2
    model = LEDLClassifierCV(**SMALL).fit(X[two], y[two])
    found = model.predict_proba(X)
    assert found.shape == (len(X), 2)
    assert model.decision_function(X).shape == (len(X),)
    assert_array_equal(found[:, 1] > 0.5, model.decision_function(X) > 0)


def test_float32_stays_float32(digits):
    X, y = digits[0].astype(np.float32), digits[1]
    model = LEDLClassifierCV(**SMALL).fit(X, y)
    assert model.predict_proba(X).dtype == model.decision_function(X).dtype == np.float32


# Together with other tools.


def test_wide_samples_need_little_memory(rng):
    X, y = rng.random((40, 20_000)), np.arange(40) % 4
    small = LEDLClassifierCV(max_iter=2, tol=0, n_best=1, random_state=0).fit(X[:, :50], y)
    tracemalloc.start()
    clone(small).fit(X, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * X.nbytes  # of three kernels and five folds, bases alone would be 12 times as large


def test_in_a_pipeline_and_in_cross_validation(digits):
    X, y, X_test, y_test = digits
    model = make_pipeline(MinMaxScaler(), LEDLClassifierCV(**SMALL))
    assert model.fit(X, y).score(X_test, y_test) > 0.75
    assert cross_val_score(model, X, y, cv=2).mean() > 0.5


def test_names_of_features_are_checked(digits, fitted):
    pd = pytest.importorskip("pandas")
    X, y = digits[:2]
    frame = pd.DataFrame(X, columns=[f"pixel{i}" for i in range(X.shape[1])])
    model = LEDLClassifierCV(**SMALL).fit(frame, y)
    assert_array_equal(model.feature_names_in_, frame.columns)
    assert_array_equal(model.predict(frame), fitted.predict(X))
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame.rename(columns={"pixel0": "other"}))
    with pytest.raises(ValueError, match="feature names"):
        explain(model, frame.iloc[[0], ::-1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_array_equal(explain(model, frame.iloc[[0]]).codes, explain(fitted, X[0]).codes)
    names = model.set_output(transform="pandas").transform(frame).columns
    assert names[0] == "ledlclassifiercv0"


def test_parameters_of_the_machine_act_at_once(digits):
    X, y, X_test, _ = digits
    model = LEDLClassifierCV(rules="classifier", kernels="linear", alpha=2**-7, **QUICK).fit(X, y)
    before = model.predict_proba(X_test)
    assert_allclose(model.set_params(n_jobs=2).predict_proba(X_test), before, rtol=1e-12)
    assert np.abs(model.set_params(transform_tol=0.1).predict_proba(X_test) - before).max() > 1e-4
    with pytest.raises(ValueError, match="'n_jobs' parameter"):
        model.set_params(n_jobs=0).predict(X_test)


def test_a_seed_gives_one_model_and_others_others(digits):
    X, y, X_test, _ = digits
    parameters = {**QUICK, "kernels": "linear", "rules": "classifier", "alpha": 2**-5, "cv": 2}
    first, again, other = (
        LEDLClassifierCV(**{**parameters, "random_state": seed}).fit(X, y).decision_function(X_test)
        for seed in (0, 0, 1)
    )
    assert_array_equal(first, again)
    assert (other != first).any()


@pytest.mark.parametrize(
    "tampered",
    [
        {"temperature_": -1.0},
        {"temperature_": np.nan},
        {"_weights": np.array([1.0, -1.0, 1.0])},
        {"temperature_": "hot"},
        {"feature_names_in_": 5},
        {"feature_names_in_": np.array(["a", "b"], dtype=object)},
        {"n_features_in_": 64.0},
        {"cv_results_": "good"},
        {"best_index_": "first"},
        {"expected_accuracy_": 7.0},
        {"expected_accuracy_interval_": "wide"},
        {"best_params_": ["alpha"]},
        {"classes_": np.arange(9)},
        {"best_estimator_": LEDLClassifier()},
    ],
)
def test_a_file_that_was_tampered_with_is_refused(tampered, fitted, tmp_path):
    model = copy(fitted)
    vars(model).update(tampered)
    with pytest.raises(ledl.ModelFileError):
        ledl.save(model, tmp_path / "m.ledl")


def test_a_file_keeps_all_of_it(digits, fitted, tmp_path):
    ledl.save(fitted, tmp_path / "m.ledl")
    loaded = ledl.load(tmp_path / "m.ledl")
    X_test = digits[2]
    assert_array_equal(loaded.predict_proba(X_test), fitted.predict_proba(X_test))
    assert loaded.best_params_ == fitted.best_params_
    assert loaded.expected_accuracy_ == fitted.expected_accuracy_
    assert loaded.expected_accuracy_interval_ == fitted.expected_accuracy_interval_
    assert loaded.get_params() == fitted.get_params()
    assert set(loaded.cv_results_) == set(fitted.cv_results_)
    assert_array_equal(
        loaded.cv_results_["mean_test_neg_log_loss"], fitted.cv_results_["mean_test_neg_log_loss"]
    )


def test_explanations_are_those_of_the_model_that_was_chosen(digits, fitted):
    x = digits[2][0]
    found = explain(fitted, x)
    assert found.predicted == fitted.predict(x[None])[0]
    assert_allclose(
        found.base + found.contributions.sum(axis=0), fitted.decision_function(x[None])[0], rtol=1e-9
    )
    assert_allclose(found.probabilities, fitted.predict_proba(x[None])[0], rtol=1e-9)
    first, second = np.sort(found.probabilities)[::-1][:2]
    assert f"it is {first / second:.{1 if first / second < 10 else 0}f} times as likely as" in str(found)
    parts = [explain(one, x) for one in fitted.estimators_]
    assert_array_equal(found.codes, np.concatenate([one.codes for one in parts]))
    # A part of an atom has the sign that it has in its own model.
    signs = [np.sign(one.contributions) for one in parts]
    assert_array_equal(np.sign(found.contributions), np.concatenate(signs))
    alone = LEDLClassifierCV(**SMALL, n_best=1).fit(*digits[:2])
    found, expected = explain(alone, x), explain(alone.best_estimator_, x)
    assert_array_equal(found.contributions, expected.contributions)


def test_what_it_chose_can_reject(digits):
    X, y, X_test, _ = digits
    model = RejectingClassifier(LEDLClassifierCV(rules="classifier", alpha=2**-5, **QUICK), reject=0.2, cv=2)
    assert set(model.fit(X, y).predict(X_test)) <= {-1, *range(10)}


def test_dask_arrays_are_predicted_lazily(digits, fitted):
    da = pytest.importorskip("dask.array")
    X_test = digits[2][:50]
    lazy = da.from_array(X_test, chunks=(20, -1))
    for method in ("predict_proba", "predict_log_proba"):
        assert_allclose(getattr(fitted, method)(lazy).compute(), getattr(fitted, method)(X_test), rtol=1e-9)
    assert_array_equal(fitted.predict(lazy).compute(), fitted.predict(X_test))
    for one in for_chunks(fitted, lazy)._others:  # workers get nothing that predictions do not need
        assert one._dictionary.samples is None
        assert not hasattr(one, "history_")
    with pytest.raises(TypeError, match=r"X is a Dask array.*X.compute\(\)"):
        LEDLClassifierCV(**SMALL).fit(lazy, digits[3][:50])


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"rules": []}, r"rules=\[\] has nothing to choose from"),
        ({"kernels": ["precomputed"]}, "kernels has 'precomputed'.*BatchedSearchCV"),
        ({"rules": ["best"]}, "'rule' parameter"),
        ({"alpha": [-1.0]}, "'alpha' parameter"),
        ({"selection": "luck"}, "'selection' parameter"),
    ],
)
def test_bad_parameters_are_refused(digits, parameters, message):
    with pytest.raises(ValueError, match=message):
        LEDLClassifierCV(**{**SMALL, **parameters}).fit(*digits[:2])


def test_only_the_choice_must_converge(digits):
    model = LEDLClassifierCV(alpha=2**-6, rules="classifier", max_iter=3, tol=1e-12, random_state=0)
    with pytest.warns(ConvergenceWarning, match="LEDLClassifier did not converge") as caught:
        model.fit(*digits[:2])
    assert len(caught) == len(model.estimators_) == 3


def test_a_failed_fit_leaves_the_model_as_it_was(digits, fitted):
    X, y, X_test, _ = digits
    model = copy(fitted)
    before = model.predict(X_test)
    with pytest.raises(ValueError, match="NaN"):
        model.fit(np.where(X > 0, X, np.nan), y)
    assert_array_equal(model.predict(X_test), before)


def test_the_device_reaches_the_candidates(digits):
    X, y, *_ = digits
    with pytest.raises((ImportError, ValueError), match="device='nowhere'"):
        LEDLClassifierCV(device="nowhere").fit(X, y)
