"""Weights of samples and classes, against copies of samples: fits without weights, proven elsewhere."""

import numpy as np
import pytest
import sklearn
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import softmax
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.ensemble import BaggingClassifier
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_sample_weight_equivalence_on_dense_data

import ledl
from helpers.models import ESTIMATORS, make
from helpers.problems import unit
from ledl import (
    BatchedSearchCV,
    CRCClassifier,
    LEDLClassifier,
    LEDLClassifierCV,
    RejectingClassifier,
    SemiSupervisedClassifier,
)
from ledl.datasets import load
from ledl.model_selection import best_factor, log_losses

RULES = ["classifier", "residual", "regularized"]


def weighted_samples(name="digits", n=60, largest=4, seed=0):
    """Return some samples of six classes, with labels and integer weights of which some are zero."""
    data = load_digits() if name == "digits" else load(name)
    rng = np.random.default_rng(seed)
    rows = rng.choice(np.flatnonzero(data.target < 6), n, replace=False)
    return unit(data.data[rows].astype(np.float64)), data.target[rows], rng.integers(largest + 1, size=n)


def start_in(X, w, K, c=6, seed=1):
    """Return a start (B, W, A) in the span of the samples that count."""
    rng, used = np.random.default_rng(seed), X[w > 0]
    B = used[rng.integers(len(used), size=K)] + 0.1 * rng.standard_normal((K, len(used))) @ used
    return B, rng.random((K, c)), rng.random((K, K))


def copies(X, y, w):
    return X.repeat(w, axis=0), y.repeat(w)


def assert_same_fit(found, expected, atol=1e-8):
    for name in ("components_", "label_components_", "code_components_"):
        assert_allclose(getattr(found, name), getattr(expected, name), atol=atol)
    assert_array_equal(found.atom_classes_, expected.atom_classes_)
    assert found.n_iter_ == expected.n_iter_
    for name, values in expected.history_.items():
        assert_allclose(found.history_[name], values, rtol=1e-6, atol=1e-9, err_msg=name)


@pytest.mark.parametrize("n_components", [20, 90, 400])  # fewer than columns; more; more than samples
@pytest.mark.parametrize("name", ["digits", "usps", "yaleb"])
def test_an_integer_weight_is_so_many_copies(name, n_components, require_dataset):
    if name != "digits":
        require_dataset(name)
    X, y, w = weighted_samples(name)
    model = LEDLClassifier(init=start_in(X, w, n_components), max_iter=40, tol=0)
    expected = clone(model).fit(*copies(X, y, w))
    assert_same_fit(model.fit(X, y, sample_weight=w), expected)
    for rule in RULES:
        scores = [one.set_params(rule=rule).decision_function(X) for one in (model, expected)]
        assert_allclose(*scores, rtol=1e-4, atol=1e-5)


def test_only_ratios_of_weights_matter():
    X, y, w = weighted_samples()
    model = LEDLClassifier(n_components=50, max_iter=20, tol=0, random_state=0)
    expected = clone(model).fit(X, y, sample_weight=w)
    assert_allclose(model.fit(X, y, sample_weight=0.37 * w).components_, expected.components_, atol=1e-8)
    ones = clone(model).fit(X, y, sample_weight=np.full(len(y), 0.1))
    assert_allclose(ones.components_, model.fit(X, y).components_, atol=1e-8)


def test_the_default_number_of_atoms_counts_rows_and_shares_by_weights():
    X, y, w = weighted_samples()
    w[y == 3] *= 3
    model = LEDLClassifier(max_iter=1, tol=0).fit(X, y, sample_weight=w)
    counts = np.bincount(np.searchsorted(model.classes_, model.atom_classes_))
    assert counts.sum() == 2 * np.count_nonzero(w)
    shares = counts.sum() * np.bincount(y, w) / w.sum()
    assert np.abs(counts - shares).max() < 1


@pytest.mark.parametrize("name", ["fit", "partial_fit"])
def test_samples_of_weight_zero_do_not_count_in_the_number_of_atoms(name):
    X, y, w = weighted_samples()
    with_zeros, alone = LEDLClassifier(max_iter=1, tol=0), LEDLClassifier(max_iter=1, tol=0)
    more = {"classes": np.unique(y)} if name == "partial_fit" else {}
    getattr(with_zeros, name)(X, y, sample_weight=w, **more)
    getattr(alone, name)(X[w > 0], y[w > 0], sample_weight=w[w > 0], **more)
    assert len(with_zeros.components_) == len(alone.components_) < 2 * len(y)


def test_a_class_start_takes_no_sample_of_weight_zero():
    X, y, w = weighted_samples()
    X[w == 0] = np.eye(64)[0]  # a pixel that is always blank
    model = LEDLClassifier(max_iter=1, tol=0, random_state=0).fit(X, y, sample_weight=w)
    assert np.abs(model.components_[:, 0]).max() < 1e-12


@pytest.mark.parametrize("where", ["blocks", "file", "chunks", "checkpoint"])
def test_weights_wherever_samples_are(where, tmp_path):
    X, y, w = weighted_samples(n=90)
    model = LEDLClassifier(init=start_in(X, w, 30), max_iter=15, tol=0)
    expected = clone(model).fit(X, y, sample_weight=w)
    if where == "file":
        np.save(tmp_path / "X.npy", X)
        X = np.load(tmp_path / "X.npy", mmap_mode="r")
    if where == "chunks":
        da = pytest.importorskip("dask.array")
        X, w = da.from_array(X, chunks=(40, 64)), da.from_array(w, chunks=40)
    model.set_params(batch_size=None if where == "chunks" else 25, n_jobs=2)
    model.set_params(checkpoint=tmp_path / "fit" if where == "checkpoint" else None)
    assert_allclose(model.fit(X, y, sample_weight=w).components_, expected.components_, atol=1e-10)


def test_weights_on_a_cluster(client):
    import dask.array as da

    X, y, w = weighted_samples(n=90)
    model = LEDLClassifier(init=start_in(X, w, 30), max_iter=5, tol=0)
    expected = clone(model).fit(X, y, sample_weight=w)
    found = model.fit(da.from_array(X, chunks=(40, 64)), y, sample_weight=w)
    assert_allclose(found.components_, expected.components_, atol=1e-10)


@pytest.mark.parametrize("streamed", [False, True])
def test_weights_on_a_device(device, streamed, monkeypatch):
    from ledl.estimators import _ledl

    X, y, w = weighted_samples(n=90)
    model = LEDLClassifier(init=start_in(X, w, 30), max_iter=15, tol=0)
    expected = clone(model).fit(X, y, sample_weight=w)
    if streamed:
        monkeypatch.setattr(_ledl, "free_memory", lambda like: 2**17)
    model.set_params(device=device, batch_size=40 if streamed else None)
    assert_same_fit(model.fit(X, y, sample_weight=w), expected)
    batched = BatchedSearchCV(model.set_params(batch_size=None), {"alpha": [0.1, 0.01]}, cv=3)
    plain = BatchedSearchCV(clone(model).set_params(device=None), {"alpha": [0.1, 0.01]}, cv=3)
    scores = [one.fit(X, y, sample_weight=w).cv_results_["mean_test_score"] for one in (batched, plain)]
    assert_allclose(*scores, atol=0.02)


def test_more_samples_than_a_grid_has_rows(device):
    """On a GPU every sample is a problem of the step that shrinks codes: an axis of a grid ends at 65,535."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((70_000, 8)), np.arange(70_000) % 2
    w = rng.integers(1, 4, size=len(y))
    model = LEDLClassifier(n_components=6, max_iter=2, tol=0, random_state=0)
    expected = clone(model).fit(X, y, sample_weight=w)
    assert_allclose(
        model.set_params(device=device).fit(X, y, sample_weight=w).components_, expected.components_, atol=1e-8
    )


@pytest.mark.parametrize("kernel", ["linear", "hellinger", "rbf", "poly"])
@pytest.mark.parametrize("rule", ["residual", "regularized"])
def test_crc_takes_an_integer_weight_for_so_many_copies(rule, kernel):
    X, y, w = weighted_samples()
    new = weighted_samples(n=40, seed=3)[0]
    model = CRCClassifier(rule=rule, kernel=kernel)
    expected = clone(model).fit(*copies(X, y, w)).decision_function(new)
    assert_allclose(model.fit(X, y, sample_weight=w).decision_function(new), expected, atol=1e-9)


def test_the_scale_of_a_kernel_counts_weights():
    X, y, w = weighted_samples()
    X = X * np.linspace(1, 3, len(y))[:, None]
    gammas = [
        make("crc", kernel="rbf", normalize=False).fit(*samples).dictionary_.space.kernel.parameters["gamma"]
        for samples in ((X, y, w), copies(X, y, w))
    ]
    assert_allclose(*gammas)


def test_class_weights_multiply_those_of_samples():
    X, y, w = weighted_samples()
    model = LEDLClassifier(n_components=40, max_iter=10, tol=0, random_state=0)
    by_hand = clone(model).fit(X, y, sample_weight=w * np.where(y == 2, 5.0, 1.0))
    found = clone(model).set_params(class_weight={2: 5.0}).fit(X, y, sample_weight=w)
    assert_allclose(found.components_, by_hand.components_, atol=1e-12)
    totals = np.bincount(y, w)
    by_hand = clone(model).fit(X, y, sample_weight=w / totals[y])
    found = clone(model).set_params(class_weight="balanced").fit(X, y, sample_weight=w)
    assert_allclose(found.components_, by_hand.components_, atol=1e-8)
    assert np.ptp(np.bincount(found.atom_classes_)) <= 1  # all classes weigh the same


def test_balanced_classes_find_rare_ones():
    """A rare class between two common ones: with equal weights of classes more of it is found."""
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], [150, 150, 6])
    centres = np.array([[1.0, 0.0, 0.3], [0.0, 1.0, 0.3], [0.6, 0.6, 0.4]])
    X = centres[y] + 0.25 * rng.standard_normal((len(y), 3))
    new = centres[2] + 0.25 * rng.standard_normal((500, 3))
    model = CRCClassifier(rule="regularized")
    plain = np.mean(clone(model).fit(X, y).predict(new) == 2)
    balanced = np.mean(model.set_params(class_weight="balanced").fit(X, y).predict(new) == 2)
    assert balanced > plain + 0.1


def test_a_weighted_model_is_saved_with_its_weights(tmp_path):
    X, y, w = weighted_samples()
    names = np.array(["a", "b", "c", "d", "e", "f"])[y]
    model = LEDLClassifier(class_weight={"b": 2.5}, max_iter=3, tol=0).fit(X, names, sample_weight=w / 7)
    ledl.save(model, tmp_path / "model.ledl")
    loaded = ledl.load(tmp_path / "model.ledl")
    assert loaded.class_weight == {"b": 2.5}
    assert_array_equal(loaded.predict(X), model.predict(X))
    loaded.partial_fit(X, names, sample_weight=w / 7)  # goes on after samples that weigh w.sum() / 7
    ledl.save(loaded, tmp_path / "model.ledl")
    assert_allclose(ledl.load(tmp_path / "model.ledl").stream_.n_samples, 2 * loaded._n_samples / 2)


def test_a_stream_takes_an_integer_weight_for_so_many_copies():
    X, y, w = weighted_samples()
    model = LEDLClassifier(init=start_in(X, w, 30), max_iter=5, tol=0).fit(*copies(X, y, w))
    weighted = LEDLClassifier(init=start_in(X, w, 30), max_iter=5, tol=0).fit(X, y, sample_weight=w)
    for seed in (5, 6):
        X, y, w = weighted_samples(seed=seed)
        model.partial_fit(*copies(X, y, w))
        weighted.partial_fit(X, y, sample_weight=w)
        assert_allclose(weighted.components_, model.components_, atol=1e-8)
    assert weighted.stream_.n_samples == model.stream_.n_samples
    with pytest.raises(ValueError, match="class_weight='balanced' needs the number"):
        weighted.set_params(class_weight="balanced").partial_fit(X, y)


@pytest.mark.parametrize(
    ("model", "grid"),
    [
        (LEDLClassifier(max_iter=10, tol=0, random_state=0), {"alpha": [0.1, 0.01], "n_components": [30, 60]}),
        (
            LEDLClassifier(max_iter=10, tol=0, class_weight="balanced", random_state=0),
            {"rule": RULES, "class_weight": [None, {1: 3}]},
        ),
        (CRCClassifier(), {"alpha": [1.0, 0.01], "rule": ["residual", "regularized"]}),
    ],
)
def test_a_search_with_weights_is_scikit_learns(model, grid):
    X, y, w = weighted_samples(largest=3)
    w = w + 1.5 * (y == 2)
    ours = BatchedSearchCV(model, grid, cv=3).fit(X, y, sample_weight=w)
    theirs = GridSearchCV(model, grid, cv=3).fit(X, y, sample_weight=w)
    for i in range(3):
        name = f"split{i}_test_score"
        assert_allclose(ours.cv_results_[name], theirs.cv_results_[name], atol=1e-12)
    assert_allclose(ours.decision_function(X), theirs.decision_function(X), atol=1e-5)


def test_metadata_routing_through_pipelines_and_searches():
    """The way of scikit-learn's guide: whoever takes weights says so, and everybody between hands them on."""
    X, y, w = weighted_samples(largest=3)
    X = X + 0.01
    with sklearn.config_context(enable_metadata_routing=True):
        asks = LEDLClassifier(n_components=40, max_iter=5, tol=0, random_state=0).set_fit_request(
            sample_weight=True
        )
        asks.set_score_request(sample_weight=True)
        direct = clone(asks).fit(X, y, sample_weight=w)
        steps = make_pipeline(StandardScaler(with_mean=False).set_fit_request(sample_weight=False), asks)
        scaled = clone(asks).fit(StandardScaler(with_mean=False).fit_transform(X), y, sample_weight=w)
        found = clone(steps).fit(X, y, sample_weight=w)
        assert_allclose(found[-1].components_, scaled.components_, atol=1e-12)
        search = BatchedSearchCV(asks, {"alpha": [asks.alpha]}, cv=3).fit(X, y, sample_weight=w)
        assert_allclose(search.best_estimator_.components_, direct.components_, atol=1e-12)
        grid = {"ledlclassifier__alpha": [asks.alpha]}
        search = GridSearchCV(steps, grid, cv=3).fit(X, y, sample_weight=w)
        assert_allclose(search.best_estimator_[-1].components_, scaled.components_, atol=1e-12)
        rejecting = RejectingClassifier(steps, cv=3).fit(X, y, sample_weight=w)
        assert_allclose(rejecting.estimator_[-1].components_, scaled.components_, atol=1e-12)
        chosen = LEDLClassifierCV(
            alpha=0.01, kernels="linear", rules="classifier", max_iter=5, tol=0, random_state=0
        )
        chosen.set_fit_request(sample_weight=True)
        with pytest.raises(sklearn.exceptions.UnsetMetadataPassedError):
            make_pipeline(clone(asks).set_fit_request(sample_weight=None)).fit(X, y, sample_weight=w)
        found = RejectingClassifier(make_pipeline(chosen), cv=3).fit(X, y, sample_weight=w)
        best = clone(found.estimator_[-1].best_estimator_).fit(X, y, sample_weight=w)
        assert_allclose(found.estimator_[-1].dictionary_.atoms, best.dictionary_.atoms, atol=1e-12)


def test_the_choice_weighs_training_and_test_samples():
    X, y, w = weighted_samples(n=90, largest=3)
    folds = list(StratifiedKFold(3).split(X, y))
    options = {"max_iter": 10, "tol": 0, "random_state": 0, "n_components": 60}
    model = LEDLClassifierCV(alpha=[0.1, 0.01, 0.001], kernels="linear", rules="residual", cv=folds, **options)
    model.fit(X, y, sample_weight=w)
    for i, alpha in enumerate([0.1, 0.01, 0.001]):
        hits = np.empty(len(y))
        for train, test in folds:
            one = (
                clone(model.best_estimator_).set_params(transform_alpha=alpha).fit(X[train], y[train], w[train])
            )
            hits[test] = one.predict(X[test]) == y[test]
        assert_allclose(model.cv_results_["mean_test_accuracy"][i], np.average(hits, weights=w))
    best = clone(model.best_estimator_).fit(X, y, sample_weight=w)
    assert_allclose(best.components_, model.best_estimator_.components_, atol=1e-12)


def test_losses_and_factors_see_the_ratios_of_weights_alone(rng):
    F, labels, w = (
        rng.standard_normal((30, 4)),
        rng.integers(4, size=30),
        rng.integers(4, size=30).astype(float),
    )
    factor, losses = best_factor(F, labels, w), log_losses(F, labels, 0.7, w)
    for scale in (1e-4, 1 / w.sum(), 1e4):
        assert_allclose(best_factor(F, labels, scale * w), factor, rtol=1e-5)
        assert_allclose(log_losses(F, labels, 0.7, scale * w), losses)
    rest = 1 / (w.sum() ** 2 / np.sum(w**2) + 2)
    smooth = np.full((30, 4), rest / 4)
    smooth[np.arange(30), labels] += 1 - rest
    assert_allclose(losses, -np.sum(smooth * np.log(softmax(0.7 * F, axis=1)), axis=1))
    assert_allclose(log_losses(F, labels, 0.7, np.full(30, 1 / 30)), log_losses(F, labels, 0.7))


def test_the_search_sees_the_ratios_of_weights_alone():
    X, y, _ = weighted_samples(n=60, largest=3)
    model = LEDLClassifierCV(kernels="linear", max_iter=5, tol=0, random_state=0)
    expected = clone(model).fit(X, y).predict_proba(X)
    assert_allclose(
        clone(model).fit(X, y, sample_weight=np.full(60, 1 / 60)).predict_proba(X), expected, atol=1e-4
    )


def test_rejection_hands_weights_to_every_fold():
    X, y, w = weighted_samples(n=90, largest=3)
    w = w + 1
    model = RejectingClassifier(LEDLClassifier(n_components=60, max_iter=5, tol=0, random_state=0), cv=3)
    found = model.fit(X, y, sample_weight=w)
    for train, test in StratifiedKFold(3).split(X, y):
        expected = clone(model.estimator).fit(X[train], y[train], sample_weight=w[train])
        assert_allclose(found.cv_scores_[test], expected.decision_function(X[test]), atol=1e-8)


@pytest.mark.parametrize("name", [name for name in ESTIMATORS if name.split("-")[0] not in ("ledl", "crc")])
def test_other_methods_say_why_they_take_no_weights(name):
    X, y, w = weighted_samples()
    with pytest.raises(TypeError, match=r"takes no sample_weight.*Leave it out, or use LEDLClassifier"):
        make(name).fit(X, y, sample_weight=w)


def test_a_graph_takes_no_weights():
    X, y, w = weighted_samples()
    with pytest.raises(TypeError, match="each sample is one node"):
        SemiSupervisedClassifier().fit(X, y, sample_weight=w)
    with pytest.raises(TypeError, match="stay the same if a sample is repeated"):
        BatchedSearchCV(make("src"), {"alpha": [0.1]}, cv=2).fit(X, y, sample_weight=w)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (-np.ones(60), r"sample_weight is -1.0 for sample 0\. Negative weights"),
        (np.full(60, np.nan), "sample_weight is nan for sample 0"),
        (np.ones(59), r"sample_weight has shape \(59,\), but there are 60 samples"),
        (np.zeros(60), "All samples have the weight zero"),
        (["heavy"] * 60, "sample_weight has something that is no number"),
        (np.full(60, 1e-20), "mean of the weights is 1e-20.*Divide the weights by their mean"),
        (np.full(60, 1e300), r"mean of the weights is 1e\+300"),
        ("class", "All samples of the class 4 have the weight zero.*Leave these samples out"),
    ],
)
@pytest.mark.parametrize("model", [LEDLClassifier(max_iter=1, tol=0), CRCClassifier()])
def test_wrong_weights(model, weights, message):
    X, y, _ = weighted_samples()
    weights = (y != 4) * 1.0 if isinstance(weights, str) else weights
    with pytest.raises(ValueError, match=message):
        clone(model).fit(X, y, sample_weight=weights)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({1: 2.0, 77: 3.0}, r"has 77, which is no label\. Labels are 0, 1, 2, 3, 4, 5"),
        ({**dict.fromkeys(range(6), 1.0), "one": 2.0}, "has 'one', which is no label"),
        ({1: -1.0}, "not a finite number of 0 or more"),
        ({1: "much"}, "not a finite number of 0 or more"),
        ({1: 0.0}, "All samples of the class 1 have the weight zero"),
    ],
)
@pytest.mark.parametrize(
    "model", [LEDLClassifier(max_iter=1, tol=0), CRCClassifier(), LEDLClassifierCV(alpha=0.1)]
)
def test_wrong_weights_of_classes(model, weights, message):
    X, y, _ = weighted_samples()
    with pytest.raises(ValueError, match=message):
        clone(model).set_params(class_weight=weights).fit(X, y)


def test_the_size_of_weights_does_not_matter():
    X, y, w = weighted_samples()
    model = LEDLClassifier(n_components=240, max_iter=20, tol=0, random_state=0)  # more atoms than columns
    expected = clone(model).fit(X, y, sample_weight=w).components_
    for size in (2e-9, 1e-4, 1e4, 4e8):
        assert_allclose(clone(model).fit(X, y, sample_weight=size * w).components_, expected, atol=1e-8)


@pytest.mark.parametrize(
    "model",
    [
        LEDLClassifierCV(
            alpha=[0.1, 0.01], kernels="linear", rules="classifier", max_iter=5, tol=0, random_state=0
        ),
        RejectingClassifier(LEDLClassifier(n_components=40, max_iter=5, tol=0, random_state=0)),
    ],
)
def test_samples_of_weight_zero_are_not_there(model):
    """A class of which one sample counts is a class with one sample: it is learnt from in every fold."""
    X, y, _ = weighted_samples(n=90)
    w = np.where(y == 4, 0, 1)
    w[np.flatnonzero(y == 4)[0]] = 1
    found = clone(model).fit(X, y, sample_weight=w)
    if isinstance(model, RejectingClassifier):
        assert_array_equal(found.judged_, np.flatnonzero(y != 4))
        expected = clone(model).fit(X[w > 0], y[w > 0])
        assert_allclose(found.cv_scores_, expected.cv_scores_, atol=1e-8)
    else:
        expected = clone(model).fit(X[w > 0], y[w > 0]).expected_accuracy_interval_
        assert found.n_splits_ == 5 + 2  # with stand-ins for it
        assert_allclose(found.expected_accuracy_interval_, expected, atol=0.1)


@pytest.mark.parametrize("model", [CRCClassifier(), LEDLClassifier(max_iter=5, tol=0)])
def test_bagging_of_few_samples_draws_samples_of_a_pipeline(model):
    X, y, _ = weighted_samples(n=18)
    with pytest.raises(ValueError, match="BaggingClassifier, which draws weights, use make_pipeline"):
        BaggingClassifier(model, random_state=0).fit(X, y)
    found = BaggingClassifier(make_pipeline(model), random_state=0).fit(X, y)
    votes = np.zeros((len(X), 6))
    for one, rows in zip(found.estimators_, found.estimators_samples_, strict=True):
        alone = clone(model).set_params(**one[-1].get_params()).fit(X[rows], y[rows])
        votes[np.arange(len(X)), alone.predict(X)] += 1
    assert_allclose(found.predict_proba(X), votes / 10)


def test_a_choice_on_samples_of_weight_zero():
    X, y, _ = weighted_samples(n=90)
    half = np.arange(45), np.arange(45, 90)
    model = LEDLClassifierCV(alpha=0.1, kernels="linear", rules="classifier", max_iter=5, tol=0, cv=[half])
    with pytest.raises(ValueError, match="All samples that cv tests have the weight zero"):
        model.fit(X, y, sample_weight=np.arange(90) < 45)


def test_rejection_scores_with_the_weights_that_it_asks_for():
    X, y, w = weighted_samples(n=90, largest=3)
    w = w + 1
    with sklearn.config_context(enable_metadata_routing=True):
        asks = LEDLClassifier(n_components=40, max_iter=5, tol=0, random_state=0).set_fit_request(
            sample_weight=True
        )
        model = RejectingClassifier(asks, reject=0.3, cv=2).set_score_request(sample_weight=True)
        scores = cross_val_score(model, X, y, cv=2, params={"sample_weight": w})
        expected = [
            clone(model).fit(X[a], y[a], sample_weight=w[a]).score(X[b], y[b], sample_weight=w[b])
            for a, b in StratifiedKFold(2).split(X, y)
        ]
    assert_allclose(scores, expected)


class Started(LEDLClassifier):
    """Start at the samples that count, in an order that depends on neither copies nor places."""

    def fit(self, X, y, sample_weight=None):
        used = np.unique(X if sample_weight is None else X[np.asarray(sample_weight) > 0], axis=0)
        rng = np.random.default_rng(0)
        self.init = used[:8], rng.random((8, 3)), rng.random((8, 8))
        return super().fit(X, y, sample_weight)


class WithoutTransform(CRCClassifier):
    """Hide `transform`, whose columns are training samples: copies have columns of their own."""

    def __getattribute__(self, name):
        if name == "transform":
            raise AttributeError(name)
        return super().__getattribute__(name)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("model", [Started(max_iter=20, tol=0), WithoutTransform()])
def test_scikit_learns_check_of_equivalence(model):
    check_sample_weight_equivalence_on_dense_data(type(model).__name__, model)
