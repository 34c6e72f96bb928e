"""Few labels and many samples without: what teaches, what is chosen, new samples, and bad input."""

import logging
import pickle
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_digits, make_blobs
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import VotingClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression, RidgeClassifier, RidgeClassifierCV
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import NearestNeighbors
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from sklearn.svm import SVC
from sklearn.utils.estimator_checks import parametrize_with_checks

import ledl
from ledl import CRCClassifier, LEDLClassifier, LEDLClassifierCV, SemiSupervisedClassifier
from ledl import semi_supervised as module
from ledl.datasets import few_shot_splits
from ledl.model_selection import default_folds
from ledl.semi_supervised import METHODS, supervised_scores, without_fold

LDA = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.5)
MINUS_ONE = "In semi-supervised learning the label -1 means that there is none."


@pytest.mark.filterwarnings("ignore:Every sample has a label")
@parametrize_with_checks(
    [SemiSupervisedClassifier(LDA, random_state=0)],
    expected_failed_checks=lambda model: {"check_classifiers_classes": MINUS_ONE},
)
def test_contract(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def digits():
    """Return all digits, their labels, and the labels of five of each class with -1 for the others."""
    X, y = load_digits(return_X_y=True)
    _, test = next(few_shot_splits(y, n_per_class=5))
    partly = y.copy()
    partly[test] = -1
    return X, y, partly


@pytest.fixture(scope="module")
def fitted(digits):
    X, _, partly = digits
    return SemiSupervisedClassifier(LDA, random_state=0).fit(X, partly)


def test_samples_without_labels_teach(digits, fitted):
    X, y, partly = digits
    others = partly < 0
    alone = clone(LDA).fit(X[~others], y[~others]).score(X[others], y[others])
    assert (fitted.transduction_[others] == y[others]).mean() > alone + 0.08
    np.testing.assert_array_equal(fitted.transduction_[~others], y[~others])
    np.testing.assert_allclose(fitted.label_distributions_.sum(axis=1), 1)
    np.testing.assert_array_equal(
        fitted.classes_[fitted.label_distributions_.argmax(axis=1)], fitted.transduction_
    )
    np.testing.assert_array_equal(fitted.label_distributions_[~others].max(axis=1), 1)


def test_new_samples_get_the_labels_of_their_neighbours(digits):
    X, y, partly = digits
    half = np.random.default_rng(0).random(len(y)) < 0.5
    seen = half | (partly >= 0)
    model = SemiSupervisedClassifier(LDA, random_state=0).fit(X[seen], partly[seen])
    others = partly[seen] < 0
    kept = (model.transduction_[others] == y[seen][others]).mean()
    assert model.score(X[~seen], y[~seen]) > kept - 0.03
    graph = model.graph_
    # Brute force for one new sample: its nearest points, their weights, and what reached them.
    x = X[~seen][:1]
    roots = np.sqrt(x) / np.linalg.norm(np.sqrt(x))
    z = (roots - graph.mean) @ graph.axes
    squared = ((graph.points - z) ** 2).sum(axis=1)
    near = np.argsort(squared)[:10]
    weights = np.exp(-squared[near] / (np.sqrt(squared[near[-1]]) * graph.scales[near]))
    reached = (weights / np.sqrt(graph.sums[near])) @ graph.F[near]
    wanted = softmax(model.temperature_ * np.log(reached / reached.sum() + 1e-12))
    np.testing.assert_allclose(model.predict_proba(x)[0], wanted, atol=1e-3)


def test_hidden_labels_choose_and_are_not_seen(digits, fitted):
    """The results are those of models that were fitted without the hidden labels."""
    X, y, partly = digits
    results = fitted.hidden_results_
    assert results["method"].tolist() == list(METHODS)
    assert results["accuracy"][METHODS.index(fitted.method_)] == results["accuracy"].max()
    labelled = np.flatnonzero(partly >= 0)
    rng = np.random.RandomState(0)
    seed = int(rng.randint(np.iinfo(np.int32).max, size=3)[0])
    hits = []
    for _, test in default_folds(partly[labelled], seed):
        hidden = labelled[test]
        without = partly.copy()
        without[hidden] = -1
        alone = SemiSupervisedClassifier(LDA, methods=["learnt"], random_state=1).fit(X, without)
        hits += (alone.transduction_[hidden] == y[hidden]).tolist()
    assert results["accuracy"][METHODS.index("learnt")] == pytest.approx(np.mean(hits))
    assert set(fitted.hidden_rows_) == set(labelled)
    found = fitted.classes_[fitted.hidden_scores_.argmax(axis=1)] == y[fitted.hidden_rows_]
    assert found.mean() == results["accuracy"].max()
    low, high = fitted.expected_accuracy_interval_
    assert low < fitted.expected_accuracy_ < high


def test_labels_that_a_fold_leaves_out_are_hidden(digits, monkeypatch):
    """Where a class has one label, others stand in for it: their other labels are not seen either."""
    X, y, partly = digits
    monkeypatch.setattr(module, "BALANCES", (0.0,))
    keep = np.concatenate([np.flatnonzero(partly == label)[: 1 if label < 3 else 5] for label in range(10)])
    few = np.full_like(partly, -1)
    few[keep] = y[keep]
    model = SemiSupervisedClassifier(CRCClassifier(), methods=["spread", "supervised"], random_state=0).fit(
        X, few
    )
    labelled = np.flatnonzero(few >= 0)
    seed = int(np.random.RandomState(0).randint(np.iinfo(np.int32).max, size=3)[0])
    hits, n_hidden = [], 0
    for train, test in default_folds(few[labelled], seed):
        without = np.full_like(few, -1)
        without[labelled[train]] = y[labelled[train]]
        alone = SemiSupervisedClassifier(CRCClassifier(), methods=["spread"], random_state=1).fit(X, without)
        hits += (alone.transduction_ == y)[labelled[test]].tolist()
        n_hidden += len(labelled) - len(train)
    assert n_hidden > len(hits)
    assert model.hidden_results_["accuracy"][0] == pytest.approx(np.mean(hits))


def test_classes_with_fewer_labels_are_not_given_up():
    """Four classes that are equally frequent have 1, 1, 5 and 5 labels. It was 78 % with equal masses."""
    X, y = load_digits(return_X_y=True)
    accuracies = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        members = [rng.permutation(np.flatnonzero(y == label)) for label in rng.permutation(10)[:4]]
        labelled = np.concatenate([own[:n] for own, n in zip(members, (1, 1, 5, 5), strict=True)])
        others = np.setdiff1d(np.concatenate(members), labelled)[::2]
        partly = np.concatenate([y[labelled], np.full(len(others), -1)])
        model = SemiSupervisedClassifier(random_state=0).fit(X[np.concatenate([labelled, others])], partly)
        assert set(model.hidden_results_["balance"]) == {0, 1}
        accuracies.append((model.transduction_[len(labelled) :] == y[others]).mean())
    assert np.mean(accuracies) > 0.88


def test_the_part_of_each_label_is_exact_with_different_numbers_of_labels(digits):
    X, y, partly = digits
    labelled = np.concatenate([np.flatnonzero(partly == label)[: 1 + label % 3] for label in range(4)])
    few = np.full(400, -1)
    few[: len(labelled)] = y[labelled]
    others = np.setdiff1d(np.flatnonzero(y < 4), labelled)
    samples = X[np.concatenate([labelled, others[: 400 - len(labelled)]])]
    model = SemiSupervisedClassifier(CRCClassifier(), methods=["spread"], random_state=0).fit(samples, few)
    graph, x = model.graph_, X[others[-1:]]
    for balance in (0.0, 0.5, 1.0):
        spread = model._answer(model._space(samples), "spread", balance, np.zeros((len(samples), 4)), few)
        own = replace(graph, F=spread.F, balance=balance)
        amounts = own.influence(x)[0]
        found = np.bincount(own.labels, weights=amounts, minlength=4)
        np.testing.assert_allclose(found, own.spread_to(x)[0], atol=1e-3 * found.max())


@pytest.mark.parametrize("method", METHODS)
def test_each_method_alone(digits, method):
    X, y, partly = digits
    model = SemiSupervisedClassifier(LDA, methods=[method], random_state=0).fit(X, partly)
    assert model.method_ == method
    others = partly < 0
    alone = clone(LDA).fit(X[~others], y[~others])
    if method == "supervised":
        assert model.graph_ is None
        np.testing.assert_array_equal(model.predict(X), alone.predict(X))
    else:
        assert (model.transduction_[others] == y[others]).mean() > alone.score(X[others], y[others])


def test_default_estimator_is_ledl(digits):
    X, y, partly = digits
    some = np.r_[np.flatnonzero(partly >= 0), np.flatnonzero(partly < 0)[:400]]
    model = SemiSupervisedClassifier(random_state=0).fit(X[some], partly[some])
    assert isinstance(model.estimator_, LEDLClassifierCV)
    others = partly[some] < 0
    rows = X[some][others]
    assert (model.transduction_[others] == y[some][others]).mean() > model.estimator_.score(
        rows, y[some][others]
    )


@pytest.mark.parametrize(
    "estimator",
    [
        CRCClassifier(),
        LEDLClassifier(),
        LogisticRegression(),
        RidgeClassifier(),
        make_pipeline(MinMaxScaler(), LogisticRegression()),
        GridSearchCV(LDA, {"shrinkage": [0.3, 0.6]}),
        RidgeClassifierCV(),
        CalibratedClassifierCV(LDA, cv=2),
    ],
    ids=lambda model: type(model).__name__,
)
def test_any_classifier_may_start(digits, estimator):
    X, y, partly = digits
    model = SemiSupervisedClassifier(estimator, random_state=0).fit(X, partly)
    assert (model.transduction_ == y).mean() > 0.85


def test_a_search_of_one_candidate_changes_nothing(digits):
    X, y = digits[0][:150], np.where(np.arange(150) < 60, digits[1][:150], -1)
    crc, make = CRCClassifier(alpha=1.0, rule="regularized"), partial(SemiSupervisedClassifier, random_state=0)
    alone = make(crc, methods=("supervised",)).fit(X, y)
    search = make(GridSearchCV(crc, {"alpha": [1.0]}, cv=2), methods=("supervised",)).fit(X, y)
    np.testing.assert_allclose(search.predict_proba(X), alone.predict_proba(X), atol=1e-6)
    cv = LEDLClassifierCV(kernels="linear", max_iter=5, tol=0, cv=2, random_state=0)
    search = GridSearchCV(cv, {"n_best": [2]}, cv=2).fit(X[:60], y[:60])  # it has probabilities, too
    np.testing.assert_allclose(supervised_scores(search, X), search.best_estimator_.decision_function(X))


def test_a_search_with_several_metrics_is_judged_by_that_of_refit(digits):
    X, y = digits[0][:150], np.where(np.arange(150) < 60, digits[1][:150], -1)
    search = GridSearchCV(
        CRCClassifier(), {"alpha": [0.1, 1.0]}, scoring=["accuracy", "f1_macro"], refit="f1_macro"
    )
    model = SemiSupervisedClassifier(search, random_state=0).fit(X, y)
    assert len(model.hidden_rows_) == 60


@pytest.mark.parametrize("scoring", [None, ["accuracy", "f1_macro"]])
def test_a_callable_refit_chooses_for_hidden_labels_too(digits, scoring):
    X, y = digits[0][:150], np.where(np.arange(150) < 60, digits[1][:150], -1)
    grid = {"alpha": [0.03, 1e3]}
    search = GridSearchCV(CRCClassifier(), grid, scoring=scoring, refit=lambda results: 1)  # the worse one
    make = partial(SemiSupervisedClassifier, methods=("supervised",), random_state=0)
    model, alone = make(search).fit(X, y), make(CRCClassifier(alpha=1e3)).fit(X, y)
    assert model.estimator_.best_params_ == {"alpha": 1e3}
    np.testing.assert_allclose(model.hidden_scores_, alone.hidden_scores_, atol=1e-6)


def test_dask_arrays_stay_lazy(digits):
    da = pytest.importorskip("dask.array")
    X, y = digits[0][:150], np.where(np.arange(150) < 60, digits[1][:150], -1)
    model = SemiSupervisedClassifier(CRCClassifier(), random_state=0).fit(X, y)
    lazy = da.from_array(digits[0][150:250], chunks=(30, 64))
    for name in ("predict", "predict_proba", "reach"):
        found = getattr(model, name)(lazy)
        assert isinstance(found, da.Array)
        assert found.chunks[0] == lazy.chunks[0]
        expected = getattr(model, name)(digits[0][150:250])
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
        np.testing.assert_allclose(found.compute(), expected, rtol=1e-4, atol=1e-6)
    with pytest.raises(ValueError, match="63 features"):
        model.predict(lazy[:, :63])


def test_settings_of_a_search_do_not_see_the_hidden_labels(digits):
    X, _, partly = digits
    labelled = np.flatnonzero(partly >= 0)
    X, y = X[labelled], partly[labelled]
    folds = default_folds(y, 0)
    unfitted = GridSearchCV(LDA, {"shrinkage": [0.01, 0.3, 0.6, 0.99]}, cv=folds)
    search = unfitted.fit(X, y)
    for number in range(len(folds)):
        others = [i for i in range(len(folds)) if i != number]
        means = np.mean([search.cv_results_[f"split{i}_test_score"] for i in others], axis=0)
        wanted = search.cv_results_["params"][int(np.argmax(means))]
        assert without_fold(unfitted, search, number, folds).get_params()["shrinkage"] == wanted["shrinkage"]


def test_text_labels_in_an_array_of_objects(digits, fitted):
    X, y, partly = digits
    names = np.array([f"digit {one}" for one in y], dtype=object)
    names[partly < 0] = -1
    model = SemiSupervisedClassifier(LDA, random_state=0).fit(X, names)
    assert model.classes_.tolist() == [f"digit {one}" for one in range(10)]
    np.testing.assert_array_equal(model.transduction_, [f"digit {one}" for one in fitted.transduction_])


def test_the_same_seed_gives_the_same_model_with_threads_and_pickles(digits, fitted):
    X, _, partly = digits
    again = pickle.loads(pickle.dumps(SemiSupervisedClassifier(LDA, random_state=0, n_jobs=2).fit(X, partly)))
    np.testing.assert_allclose(again.label_distributions_, fitted.label_distributions_, atol=1e-6)
    np.testing.assert_allclose(again.predict_proba(X[:20]), fitted.predict_proba(X[:20]), atol=1e-6)


def test_large_sets_choose_on_a_part(digits, monkeypatch):
    X, y, partly = digits
    monkeypatch.setattr(module, "SAMPLES_TO_CHOOSE", 300)
    model = SemiSupervisedClassifier(LDA, random_state=0).fit(X, partly)
    assert set(model.hidden_rows_) == set(np.flatnonzero(partly >= 0))
    assert len(model.graph_.points) == len(np.unique(X, axis=0))
    assert (model.transduction_ == y).mean() > 0.85


def test_many_labels_do_not_undo_the_limit_of_the_choice(digits, monkeypatch):
    """The part has all labelled samples, and at most as many others."""
    X, y, _ = digits
    sizes = []
    choose = SemiSupervisedClassifier._choose

    def count(self, methods, space, X, *rest):
        sizes.append(len(X))
        return choose(self, methods, space, X, *rest)

    monkeypatch.setattr(SemiSupervisedClassifier, "_choose", count)
    monkeypatch.setattr("ledl.semi_supervised.SAMPLES_TO_CHOOSE", 50)
    partly = np.where(np.arange(len(y)) < 80, y, -1)
    SemiSupervisedClassifier(LogisticRegression(), methods=["spread"], random_state=0).fit(X, partly)
    assert len(X) > 200
    assert sizes == [160]


@pytest.mark.parametrize("factor", [1e-150, 1e-60, 1e39, 1e150])
def test_samples_may_have_any_size(digits, factor):
    """Features have norm 1, so the size of samples says nothing, also where float32 has no such numbers."""
    X, y = digits[0][:150], np.where(np.arange(150) < 60, digits[1][:150], -1)
    make = partial(SemiSupervisedClassifier, CRCClassifier(), methods=("learnt",), random_state=0)
    model, scaled, new = make().fit(X, y), make().fit(factor * X, y), digits[0][150:200]
    np.testing.assert_allclose(scaled.label_distributions_, model.label_distributions_, atol=1e-4)
    for name in ("predict_proba", "reach"):
        expected = getattr(model, name)(new)
        np.testing.assert_allclose(getattr(model, name)(factor * new), expected, atol=1e-4)
        np.testing.assert_allclose(getattr(scaled, name)(new), expected, atol=1e-4)


@pytest.mark.parametrize("method", METHODS)
def test_a_sample_of_zeros_warns_once(digits, method):
    X, y = digits[0][:150], np.where(np.arange(150) < 60, digits[1][:150], -1)
    model = SemiSupervisedClassifier(CRCClassifier(), methods=(method,), random_state=0).fit(X, y)
    new = np.concatenate([digits[0][150:153], np.zeros((2, 64))])
    for predict in (model.predict, model.predict_proba):
        predict(new[:3])  # without a warning, which would be an error here
        with pytest.warns(UserWarning, match="2 of 5 samples are all zero, so there is nothing") as caught:
            predict(new)
        assert len(caught) == 1


def test_blank_images_of_all_brightnesses(digits):
    """They are one point in the space of features, and have no scale."""
    X, y, _ = digits
    grey = np.outer(np.arange(1, 31), np.ones(X.shape[1]))
    labels = np.r_[np.where(np.arange(100) < 50, y[:100], -1), np.full(30, -1)]
    for method in ("learnt", "spread-learnt", "spread"):
        model = SemiSupervisedClassifier(LogisticRegression(), methods=[method], random_state=0)
        model.fit(np.vstack([X[:100], grey]), labels)
        assert np.isfinite(model.label_distributions_).all()
        assert np.isfinite(model.predict_proba(X[100:150])).all()
        assert np.isfinite(model.reach(X[100:150])).all()


def test_samples_of_one_feature_are_alike_and_their_model_is_saved(digits, tmp_path):
    X, y = np.arange(1.0, 31)[:, None], np.where(np.arange(30) < 20, digits[1][:30], -1)  # 1 after scaling
    model = SemiSupervisedClassifier(random_state=0).fit(X, y)
    ledl.save(model, tmp_path / "alike.ledl")
    np.testing.assert_array_equal(ledl.load(tmp_path / "alike.ledl").predict(X), model.predict(X))


def test_copies_count_once_and_share_their_label(digits):
    X, _, partly = digits
    twice = np.concatenate([X, X, X[:5]])
    labels = np.concatenate([np.full(len(X), -1), partly, partly[:5]])
    model = SemiSupervisedClassifier(LDA, random_state=0).fit(twice, labels)
    once = SemiSupervisedClassifier(LDA, random_state=0).fit(X, partly)
    np.testing.assert_array_equal(
        model.transduction_, np.concatenate([once.transduction_] * 2 + [once.transduction_[:5]])
    )
    assert len(model.graph_.points) == len(once.graph_.points)


def test_samples_that_no_label_reaches_get_the_supervised_answer():
    X, y = make_blobs(200, centers=[[1, 9], [9, 1]], cluster_std=0.3, random_state=0)
    island = np.random.default_rng(0).normal([5, 5.2], 1e-3, (40, 2))
    X = np.concatenate([X, island])
    partly = np.full(len(X), -1)
    for label in (0, 1):
        partly[np.flatnonzero(y == label)[:5]] = label
    model = SemiSupervisedClassifier(LDA, methods=["spread"], random_state=0).fit(X, partly)
    assert not model.graph_.F[200:].any()
    wanted = model.estimator_.predict_proba(X)
    np.testing.assert_allclose(model.label_distributions_[200:], wanted[200:], atol=1e-6)
    np.testing.assert_allclose(model.predict_proba(island), wanted[200:], atol=1e-6)


def test_influence_of_labelled_samples_adds_up(digits, fitted):
    X, _, _ = digits
    graph = fitted.graph_
    for x in X[[0, 700, 1500]][:, None]:
        amounts, rows, weights = graph.influence(x)
        total = np.bincount(graph.labels, amounts, minlength=10)
        np.testing.assert_allclose(total, graph.spread_to(x)[0], rtol=2e-2, atol=1e-3 * total.max())
        assert len(rows) == len(weights) == fitted.n_neighbors


def test_reach_is_what_the_dense_equations_say(digits, fitted):
    X, _, partly = digits
    near, n = fitted.reach_, len(fitted.reach_.points)
    distances, index = NearestNeighbors(n_neighbors=10, algorithm="brute").fit(near.points).kneighbors()
    W = np.zeros((n, n))
    W[np.arange(n)[:, None], index] = np.exp(-(distances**2) / (distances[:, -1:] * distances[index, -1]))
    W = W + W.T
    sums = W.sum(axis=1)
    labelled = fitted.graph_.labelled
    H = np.isin(np.arange(n), labelled)
    mass = 0.01 * np.linalg.solve(np.eye(n) - 0.99 * W / np.sqrt(np.outer(sums, sums)), H)
    wanted = mass / np.sqrt(sums) * sums.sum() / np.sqrt(sums[labelled]).sum()
    np.testing.assert_allclose(near.values, wanted, rtol=0.01, atol=0.01)
    assert len(fitted.hidden_evidence_) == len(fitted.hidden_rows_) == (partly >= 0).sum()
    # The isolation, by brute force in the space of all features.
    roots = np.sqrt(X[:3]) / np.linalg.norm(np.sqrt(X[:3]), axis=1, keepdims=True) - near.mean
    lengths = np.linalg.norm(near.points - (roots @ near.axes)[:, None], axis=2)
    outside = (roots**2).sum(axis=1) - ((roots @ near.axes) ** 2).sum(axis=1)
    for i in range(3):
        own = np.argsort(lengths[i])[:10]
        weights = np.exp(-(lengths[i, own] ** 2) / (lengths[i, own[-1]] * near.scales[own]))
        wanted = np.sqrt(lengths[i, own[-1]] ** 2 + outside[i]) / np.average(
            near.distances[own], weights=weights
        )
        assert near(X[i : i + 1])[0, 1] == pytest.approx(wanted, rel=1e-3)


def test_junk_does_not_poison(digits):
    """Half of the classes have no label, and their samples stay among the others."""
    X, y, partly = digits
    partly = np.where(partly < 5, partly, -1)
    model = SemiSupervisedClassifier(LDA, random_state=0).fit(X, partly)
    known = (y < 5) & (partly < 0)
    assert (model.transduction_[known] == y[known]).mean() >= model.estimator_.score(X[known], y[known])


def test_one_label_of_every_class(digits):
    X, y, _ = digits
    first, others = next(few_shot_splits(y, n_per_class=1))
    partly = np.full(len(y), -1)
    partly[first] = y[first]
    with pytest.warns(UserWarning, match="more than one label.*'learnt'.*not calibrated"):
        model = SemiSupervisedClassifier(CRCClassifier(), random_state=0).fit(X, partly)
    assert model.method_ == "learnt"
    assert model.hidden_results_ == {}
    assert model.expected_accuracy_ is None
    assert (model.transduction_[others] == y[others]).mean() > model.estimator_.score(X[others], y[others])


def test_one_class_with_one_label(digits):
    X, _, partly = digits
    partly = partly.copy()
    partly[np.flatnonzero(partly == 3)[1:]] = -1
    model = SemiSupervisedClassifier(CRCClassifier(), random_state=0).fit(X, partly)
    assert np.flatnonzero(partly == 3)[0] not in model.hidden_rows_
    assert len(model.hidden_rows_) == 45


def test_everything_labelled_is_supervised(digits):
    X, y, partly = digits
    known = partly >= 0
    with pytest.warns(UserWarning, match="Every sample has a label"):
        model = SemiSupervisedClassifier(LDA).fit(X[known], y[known])
    assert len(model.hidden_rows_) == 50  # so that its accuracy is known
    np.testing.assert_array_equal(model.predict(X), clone(LDA).fit(X[known], y[known]).predict(X))
    # Hidden labels calibrate its probabilities, so that these are its own.
    wanted = softmax(model.temperature_ * supervised_scores(model.estimator_, X), axis=1)
    np.testing.assert_allclose(model.predict_proba(X), wanted)


def test_scores_of_folds_have_one_scale_whatever_a_search_takes_there(digits, monkeypatch):
    X, y = digits[0][:150], np.where(np.arange(150) < 60, digits[1][:150], -1)
    scales = iter([1.0, 1e6, 1e-3, 1e2, 1e4])

    class Scaled(CRCClassifier):
        def _log_odds(self, X):
            return next(scales) * super()._log_odds(X)

    model = SemiSupervisedClassifier(CRCClassifier(), methods=("supervised",), random_state=0)
    expected = clone(model).fit(X, y).predict_proba(X)
    monkeypatch.setattr(module, "without_fold", lambda *arguments: Scaled())
    np.testing.assert_allclose(clone(model).fit(X, y).predict_proba(X), expected, rtol=1e-4)


def test_classifiers_without_scores_of_classes_are_refused(digits):
    X, _, partly = digits
    with pytest.raises(ValueError, match=r"45 columns for 10 classes.*'ovr'"):
        SemiSupervisedClassifier(SVC(decision_function_shape="ovo")).fit(X, partly)
    with pytest.raises(TypeError, match="VotingClassifier has neither predict_proba nor decision_function"):
        SemiSupervisedClassifier(VotingClassifier([("lda", LDA)])).fit(X, partly)
    with pytest.raises(TypeError, match="LinearRegression is no classifier"):
        SemiSupervisedClassifier(LinearRegression()).fit(X, partly)


def test_progress_is_logged(digits, caplog):
    X, _, partly = digits
    with caplog.at_level(logging.INFO, logger="ledl.semi_supervised"):
        SemiSupervisedClassifier(LDA).fit(X, partly)
    assert "50 labels of 10 classes" in caplog.text
    assert "Method" in caplog.text


X4 = np.array([[0.0, 1], [1, 0], [1, 1], [2, 1]])


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (X4, [-1, -1, -1, -1], "No sample has a label"),
        (X4, [1, -1, 1, -1], "one class only: 1.*-1 means that a sample has no label"),
        (X4, ["a", "b", "-1", "-1"], "text '-1'.*dtype=object"),
        (X4, [0, 1, np.nan, -1], "y has NaN or infinity.*np.where"),
        (X4, np.array(["a", "b", np.nan, -1], dtype=object), "y has nan, which.*number -1.*fillna"),
        (X4, np.array(["a", "b", None, -1], dtype=object), "y has None, which.*number -1"),
        (X4, np.array(["a", 7, -1, -1], dtype=object), "both text and numbers"),
        (np.full((4, 2), np.nan), [0, 1, -1, -1], "NaN"),
        (np.array([[0.0, 1], [0, 1], [1, 1], [2, 1]]), [0, 1, -1, -1], "Rows 0 and 1 of X are equal.*0 and 1"),
        (X4, [0, 1, -1], "inconsistent numbers"),
    ],
)
def test_bad_input_is_refused(X, y, message):
    model = SemiSupervisedClassifier(LDA)
    with pytest.raises(ValueError, match=message):
        model.fit(X, np.array(y))
    assert not hasattr(model, "classes_")


@pytest.mark.parametrize("methods", [[], ["learned"]])
def test_methods_are_named_right(methods):
    with pytest.raises(ValueError, match="must name some of learnt"):
        SemiSupervisedClassifier(LDA, methods=methods).fit(X4, [0, 1, -1, -1])


def test_scores_of_two_classes_have_two_columns(digits):
    X, y, _ = digits
    X, y = X[y < 2], y[y < 2]
    for model in (RidgeClassifier(), LogisticRegression(), LEDLClassifier()):
        scores = supervised_scores(clone(model).fit(X[:40], y[:40]), X)
        assert scores.shape == (len(X), 2)
        assert (scores.argmax(axis=1) == y).mean() > 0.9


@pytest.mark.torch
def test_on_a_device(digits, fitted):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    X, _, partly = digits
    model = SemiSupervisedClassifier(LDA, random_state=0, device="cpu").fit(X, partly)
    assert (model.transduction_ == fitted.transduction_).mean() > 0.99
    assert isinstance(model.graph_.F, np.ndarray)
    np.testing.assert_allclose(model.predict_proba(X[:50]), fitted.predict_proba(X[:50]), atol=0.05)
