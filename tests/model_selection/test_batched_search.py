"""Batched model selection against scikit-learn's own, on the same folds."""

import tracemalloc
import warnings

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, FitFailedWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import get_scorer, roc_auc_score
from sklearn.model_selection import GridSearchCV, GroupKFold, ShuffleSplit, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from helpers.digits import few_digits
from ledl import BatchedSearchCV, CRCClassifier, LEDLClassifier, SRCClassifier, parallel
from ledl.datasets import few_shot_splits, load
from ledl.model_selection import _batched_search as selection

GRIDS = [
    (
        LEDLClassifier(random_state=0, max_iter=20),
        {"alpha": [2**-3, 2**-6], "label_weight": [0.0, 4.0], "code_weight": [2**-11, 2**-5]},
    ),
    (
        LEDLClassifier(random_state=0, tol=0, max_iter=5),
        [
            {"rho": [0.5, 1.0], "transform_alpha": [None, 0.1]},
            {"n_components": [20, 35], "alpha": [2**-4, 2**-5]},
            {"kernel": ["rbf", "hellinger"]},
        ],
    ),
    (
        LEDLClassifier(random_state=0, tol=0, max_iter=5),
        [
            {"rule": ["classifier", "residual", "regularized"], "alpha": [2**-4, 2**-5]},
            {"rule": ["regularized"], "ridge_alpha": [2**-5, 1.0], "kernel": ["linear", "rbf"]},
        ],
    ),
    (SRCClassifier(), {"alpha": [2.0**-i for i in range(1, 9)]}),
    (SRCClassifier(), {"alpha": [2**-4, 2**-7], "kernel": ["linear", "rbf"], "gamma": ["scale", 0.01]}),
    (CRCClassifier(), {"alpha": [2.0**-i for i in range(-1, 9)], "rule": ["residual", "regularized"]}),
]
FOLDS = [3, StratifiedKFold(4, shuffle=True, random_state=1), ShuffleSplit(3, test_size=0.3, random_state=0)]


@pytest.fixture(scope="module")
def digits():
    return few_digits(300)


@pytest.fixture(autouse=True)
def quietly():
    """Fits of few iterations do not converge."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.filterwarnings("ignore", "All codes of the training samples", UserWarning)
        warnings.filterwarnings("ignore", "The codes of all", UserWarning)
        yield


@pytest.fixture(
    params=[
        None,
        *[
            pytest.param("cpu", marks=pytest.mark.torch),
            pytest.param("cuda", marks=[pytest.mark.torch, pytest.mark.gpu]),
        ],
    ]
)
def device(request):
    if request.param == "cuda":
        import torch

        if not torch.cuda.is_available():
            pytest.skip("no GPU")
    return request.param


def assert_same_results(found, expected):
    assert set(found) == set(expected)
    for name, values in expected.items():
        if name == "params":
            assert found[name] == values
        elif "time" not in name:
            assert np.ma.asarray(found[name]).dtype == np.ma.asarray(values).dtype, name
            np.testing.assert_array_equal(np.ma.getmaskarray(found[name]), np.ma.getmaskarray(values))
            np.testing.assert_array_equal(np.ma.filled(found[name], 0), np.ma.filled(values, 0), name)


# Every grid once, and all kinds of folds.
@pytest.mark.parametrize(("model", "grid", "cv"), [(*grid, FOLDS[i % 3]) for i, grid in enumerate(GRIDS)])
def test_the_same_scores_and_choice_as_grid_search(model, grid, cv, digits, device):
    X, y, new, truth = digits
    expected = GridSearchCV(model, grid, cv=cv).fit(X, y)
    found = BatchedSearchCV(clone(model).set_params(device=device), grid, cv=cv).fit(X, y)
    assert_same_results(found.cv_results_, expected.cv_results_)
    assert found.best_params_ == expected.best_params_
    assert found.best_score_ == expected.best_score_
    assert found.best_index_ == expected.best_index_
    assert found.n_splits_ == expected.n_splits_
    assert np.mean(found.predict(new) == expected.predict(new)) > 0.99
    assert found.score(new, truth) == pytest.approx(expected.score(new, truth), abs=0.01)
    assert found.classes_.tolist() == list(range(10))
    assert type(found.best_estimator_) is type(model)
    assert found.refit_time_ > 0


def test_on_faces_with_the_same_choice_as_grid_search(require_dataset):
    require_dataset("yaleb")
    faces = load("yaleb")
    train, _ = next(few_shot_splits(faces.target, n_per_class=5))
    X, y = faces.data[train].astype(np.float64), faces.target[train]
    grid = {"alpha": [2**-5, 2**-8], "label_weight": [2**-3, 4.0]}
    model = LEDLClassifier(random_state=0, max_iter=10)
    searches = [kind(model, grid, cv=2, refit=False).fit(X, y) for kind in (GridSearchCV, BatchedSearchCV)]
    assert_same_results(searches[1].cv_results_, searches[0].cv_results_)


@pytest.mark.parametrize(("batch", "n_jobs"), [(1, 2), (2**12, 1), (2**12, 2), (2**30, 1)])
def test_the_size_of_batches_changes_nothing(batch, n_jobs, digits, monkeypatch):
    X, y, *_ = digits
    model, grid = GRIDS[0]
    expected = BatchedSearchCV(model, grid, cv=3, refit=False).fit(X, y)
    monkeypatch.setattr(selection, "BATCH", batch)
    found = BatchedSearchCV(clone(model).set_params(n_jobs=n_jobs), grid, cv=3, refit=False).fit(X, y)
    assert_same_results(found.cv_results_, expected.cv_results_)


@pytest.mark.parametrize("scoring", ["balanced_accuracy", "neg_log_loss", "f1_macro", get_scorer("accuracy")])
def test_scoring(scoring, digits):
    X, y, *_ = digits
    if scoring == "neg_log_loss":  # needs probabilities, which nobody here has
        with pytest.raises(ValueError, match=r"needs probabilities, which SRCClassifier.*LEDLClassifierCV"):
            BatchedSearchCV(SRCClassifier(), {"alpha": [0.1]}, scoring=scoring, cv=3).fit(X, y)
        return
    searches = [
        kind(SRCClassifier(), {"alpha": [0.3, 0.01]}, scoring=scoring, cv=3).fit(X, y)
        for kind in (GridSearchCV, BatchedSearchCV)
    ]
    assert_same_results(searches[1].cv_results_, searches[0].cv_results_)


def test_two_classes_and_a_scorer_of_scores(digits):
    X, y, *_ = digits
    X, y = X[y < 2], np.where(y[y < 2], "one", "zero")

    def area(model, X, y):
        sparsity = np.mean(model.transform(X) != 0) + np.mean(model.components_ > 0)
        return roc_auc_score(y, model.decision_function(X)) - sparsity / 1e3

    for scoring in ("roc_auc", area):
        searches = [
            kind(LEDLClassifier(random_state=0), {"alpha": [0.3, 0.01]}, scoring=scoring, cv=3).fit(X, y)
            for kind in (GridSearchCV, BatchedSearchCV)
        ]
        assert_same_results(searches[1].cv_results_, searches[0].cv_results_)


def test_a_precomputed_kernel_and_groups(digits):
    X, y, *_ = digits
    K = np.exp(-cdist(X, X, "sqeuclidean") / 1e3)
    groups = np.arange(len(y)) % 7
    model = SRCClassifier(kernel="precomputed", normalize=False)
    grid, cv = {"alpha": [0.1, 0.01]}, GroupKFold(3)
    expected = GridSearchCV(model, grid, cv=cv).fit(K, y, groups=groups)
    found = BatchedSearchCV(model, grid, cv=cv).fit(K, y, groups=groups)
    assert_same_results(found.cv_results_, expected.cv_results_)


def test_folds_of_different_sizes_and_without_some_class(digits):
    X, y, *_ = digits
    every = np.arange(len(y))
    folds = [(every[y > 0], every[y == 0]), (every[10:], every[:10]), (every[3:40], every[40:])]
    model, grid = GRIDS[0]
    searches = [kind(model, grid, cv=folds, refit=False).fit(X, y) for kind in (GridSearchCV, BatchedSearchCV)]
    assert_same_results(searches[1].cv_results_, searches[0].cv_results_)


def test_candidates_that_look_alike_are_not_one(digits):
    X, y, *_ = digits
    rng = np.random.default_rng(0)
    starts = [tuple(rng.random((60, width)) for width in (64, 10, 60)) for _ in range(2)]
    assert repr(starts[0][2]).count("...")  # as large arrays do
    grid = {"init": starts, "alpha": [2**-4, 2**-6]}
    searches = [
        kind(LEDLClassifier(max_iter=5, tol=0), grid, cv=3, refit=False).fit(X, y)
        for kind in (GridSearchCV, BatchedSearchCV)
    ]
    scores = [search.cv_results_["mean_test_score"] for search in searches]
    np.testing.assert_array_equal(*scores)
    assert len(set(scores[0])) > 2


@pytest.mark.torch
def test_tensors_and_data_frames(digits):
    import torch

    pandas = pytest.importorskip("pandas")
    X, y, new, _ = digits
    grid = {"alpha": [0.1, 0.01]}
    expected = BatchedSearchCV(SRCClassifier(), grid, cv=3).fit(X, y)
    tensors = BatchedSearchCV(SRCClassifier(), grid, cv=3).fit(torch.as_tensor(X), torch.as_tensor(y))
    assert_same_results(tensors.cv_results_, expected.cv_results_)
    assert torch.is_tensor(tensors.predict(torch.as_tensor(new)))
    frame = pandas.DataFrame(X).rename(columns=str)
    frames = BatchedSearchCV(SRCClassifier(), grid, cv=3).fit(frame, y)
    assert_same_results(frames.cv_results_, expected.cv_results_)
    assert list(frames.best_estimator_.feature_names_in_) == list(frame.columns)


class Derived(SRCClassifier):
    """Which may do anything differently."""


@pytest.mark.parametrize(
    "model", [LogisticRegression(), make_pipeline(StandardScaler(), LEDLClassifier()), Derived(), None]
)
def test_other_estimators_are_sent_to_grid_search(model, digits):
    X, y, *_ = digits
    with pytest.raises(TypeError, match="GridSearchCV, which takes any estimator"):
        BatchedSearchCV(model, {}).fit(X, y)


def test_bad_candidates_are_refused_before_any_work(digits, monkeypatch):
    X, y, *_ = digits
    monkeypatch.setattr(selection, "judge", lambda *_: pytest.fail("work was done"))
    with pytest.raises(ValueError, match="alpha"):
        BatchedSearchCV(SRCClassifier(), {"alpha": [0.1, -1.0]}).fit(X, y)
    with pytest.raises(ValueError, match="Invalid parameter 'beta'"):
        BatchedSearchCV(SRCClassifier(), {"beta": [0.1]}).fit(X, y)


@pytest.mark.parametrize(
    ("model", "grid", "message"),
    [
        (CRCClassifier(normalize=False), {"alpha": [1e-300, 0.1]}, "alpha=1e-300 is so small"),
        (
            LEDLClassifier(random_state=0, max_iter=3, tol=0),
            {"rho": [1e-300, 1.0]},
            "the objective became infinite",
        ),
        (LEDLClassifier(random_state=0, max_iter=3, tol=0), {"rho": [1e-310, 1.0]}, "cannot divide by it"),
    ],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore:One or more of the test scores:UserWarning")
def test_settings_that_fail_do_not_stop_the_others(model, grid, message, digits):
    X, y, *_ = digits
    X = np.repeat(X[:, :20], 2, axis=1)  # dependent features
    with pytest.warns(FitFailedWarning):
        expected = GridSearchCV(model, grid, cv=3, refit=False).fit(X, y)
    with pytest.warns(FitFailedWarning, match=f"3 of 6 fits failed.*{message}"):
        found = BatchedSearchCV(model, grid, cv=3, refit=False).fit(X, y)
    assert_same_results(found.cv_results_, expected.cv_results_)
    with pytest.raises(ValueError, match=f"All 3 fits failed: .*{message}"):
        BatchedSearchCV(model, {name: values[:1] for name, values in grid.items()}, cv=3).fit(X, y)


def test_a_fold_of_one_class_fails_alone(digits):
    X, y, *_ = digits
    every = np.arange(len(y))
    folds = [(every[y == 0], every[y == 1]), (every[::2], every[1::2])]
    quick = LEDLClassifier(random_state=0, max_iter=3, tol=0)
    for model, alphas in ((SRCClassifier(), [0.1, 0.01]), (quick, [0.1, 0.01]), (quick, [0.1])):
        with pytest.warns(FitFailedWarning, match=f"{len(alphas)} of {2 * len(alphas)} fits .*one class only"):
            found = BatchedSearchCV(model, {"alpha": alphas}, cv=folds, refit=False).fit(X, y)
        assert np.isnan(found.cv_results_["split0_test_score"]).all()
        assert np.isfinite(found.cv_results_["split1_test_score"]).all()


def test_candidates_that_failed_come_last(digits):
    X, y, *_ = digits
    X, y = np.tile(X[:20], (3, 1)), np.tile(y[:20], 3)  # copies, so dependent atoms
    grid = [{"alpha": [1e-300, 0.1]}, {"rule": ["regularized"]}]
    with pytest.warns(FitFailedWarning, match="Raise alpha"):
        found = BatchedSearchCV(CRCClassifier(), grid, cv=2, refit=False).fit(X, y).cv_results_
    assert found["rank_test_score"].tolist()[0] == 3
    assert found["param_alpha"].mask.tolist() == [False, False, True]


def test_what_scoring_gives_must_be_one_number(digits):
    X, y, *_ = digits
    for several in (["accuracy", "f1_macro"], {"a": "accuracy"}, ("accuracy",)):
        with pytest.raises(ValueError, match=r"several metrics.*GridSearchCV"):
            BatchedSearchCV(SRCClassifier(), {"alpha": [0.1]}, scoring=several).fit(X, y)
    for value in (None, "high", {"a": 1.0}):
        with pytest.raises(ValueError, match="must return a number"):
            BatchedSearchCV(SRCClassifier(), {"alpha": [0.1]}, scoring=lambda *_, v=value: v).fit(X, y)


def test_refit_is_true_or_false(digits):
    X, y, *_ = digits
    with pytest.raises(ValueError, match="must be True or False"):
        BatchedSearchCV(SRCClassifier(), {"alpha": [0.1]}, refit=lambda results: 0).fit(X, y)


def test_scorers_see_the_model_and_the_samples_as_they_came(digits):
    pandas = pytest.importorskip("pandas")
    X, y, *_ = digits
    frame = pandas.DataFrame(X).rename(columns=str)

    def look(model, X, y):
        assert list(X.columns) == list(frame.columns)
        assert model.get_params()["alpha"] == model.alpha
        return model.n_iter_ / 100

    grid = {"alpha": [0.5, 0.01]}
    model = LEDLClassifier(random_state=0)
    searches = [kind(model, grid, scoring=look, cv=3).fit(frame, y) for kind in (GridSearchCV, BatchedSearchCV)]
    assert_same_results(searches[1].cv_results_, searches[0].cv_results_)
    assert list(searches[1].feature_names_in_) == list(frame.columns)


@pytest.mark.parametrize(
    ("grid", "options", "message"),
    [
        ([], {}, "0 candidates"),
        ({"alpha": [0.1]}, {"cv": []}, "0 folds"),
        ({"alpha": [0.1]}, {"y": None}, "requires y"),
    ],
)
def test_nothing_to_do_is_reported(grid, options, message, digits):
    X, y, *_ = digits
    y = options.pop("y", y)
    with pytest.raises(ValueError, match=message):
        BatchedSearchCV(SRCClassifier(), grid, **{"cv": 3, **options}).fit(X, y)


def test_scores_of_float32_have_the_type_of_the_estimator(digits):
    X, y, *_ = digits
    model, seen = LEDLClassifier(random_state=0, max_iter=3, tol=0), []

    def look(model, X, y):
        seen.append(model.decision_function(X).dtype)
        return 0.0

    for kind in (GridSearchCV, BatchedSearchCV):
        kind(model, {"alpha": [0.1]}, scoring=look, cv=2, refit=False).fit(X.astype(np.float32), y)
    assert seen == [np.float32] * 4


@pytest.mark.torch
def test_float32_has_the_tolerance_of_the_estimators(digits, monkeypatch):
    X, y, *_ = digits
    asked = []

    class Watched(selection.LassoCoder):
        def __init__(self, *arguments, tol, **options):
            asked.append(tol)
            super().__init__(*arguments, tol=tol, **options)

    monkeypatch.setattr(selection, "LassoCoder", Watched)
    for dtype in (np.float32, np.float64):
        model = SRCClassifier(device="cpu", transform_tol=1e-7)
        BatchedSearchCV(model, {"alpha": [0.1]}, cv=3, refit=False).fit(X.astype(dtype), y)
    assert set(asked) == {1e-5, 1e-7}


def test_threads_are_those_of_the_estimator(digits, monkeypatch):
    X, y, *_ = digits
    used = []
    in_threads = parallel.in_threads

    def watch(work, tasks, n_threads):
        used.append(n_threads)
        return in_threads(work, tasks, n_threads)

    monkeypatch.setattr(parallel, "in_threads", watch)
    BatchedSearchCV(SRCClassifier(n_jobs=3), {"alpha": [0.1, 0.01]}, cv=3, refit=False).fit(X, y)
    assert set(used) == {3}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_fit_that_breaks_has_no_score_and_a_warning(digits):
    X, y, *_ = digits
    X = X / 16
    grid = {"alpha": [2**-6], "dual_step": [0.5, 1e150]}
    model = LEDLClassifier(random_state=0, tol=0, max_iter=8)
    with pytest.warns(FitFailedWarning, match="3 of 6 fits failed"):
        search = BatchedSearchCV(model, grid, cv=3).fit(X, y)
    assert np.isnan(search.cv_results_["mean_test_score"]).tolist() == [False, True]
    assert search.best_params_["dual_step"] == 0.5


def test_fits_and_codes_that_do_not_converge_are_reported_once(digits):
    X, y, *_ = digits
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = LEDLClassifier(random_state=0, max_iter=2)
        BatchedSearchCV(model, {"alpha": [2**-3, 2**-6]}, cv=3, refit=False).fit(X, y)
    assert [str(w.message)[:32] for w in caught] == ["6 of 6 fits did not converge: th"]
    assert caught[0].filename == __file__
    search = BatchedSearchCV(SRCClassifier(transform_tol=1e-300), {"alpha": [0.1, 0.01]}, cv=3, refit=False)
    with pytest.warns(ConvergenceWarning, match=f"^{2 * len(y)} codes of test samples did not reach"):
        search.fit(X, y)


def test_without_a_seed_all_candidates_of_a_fold_start_alike(digits):
    # Two names of one kernel: the same problems, so the same scores wherever they start, if they start alike.
    X, y, *_ = digits
    model = LEDLClassifier(max_iter=2, tol=0, alpha=2**-6)
    search = BatchedSearchCV(model, {"kernel": [np.inner, np.dot], "n_components": [30]}, cv=3, refit=False)
    results = search.fit(X, y).cv_results_
    for i in range(3):
        assert results[f"split{i}_test_score"][0] == results[f"split{i}_test_score"][1]


@pytest.mark.parametrize("model", [SRCClassifier(transform_tol=1e-3, n_jobs=4), CRCClassifier(n_jobs=4)])
def test_threads_do_not_take_from_each_other_what_is_kept(model, rng, monkeypatch):
    monkeypatch.setattr(selection, "BATCH", 1)
    y = np.arange(120) % 4
    X = np.abs(rng.normal(size=(120, 150))) + 3 * np.eye(120, 150)[y]
    grid = {"alpha": np.linspace(0.1, 0.3, 16)}
    found = [BatchedSearchCV(model, grid, cv=3, refit=False).fit(X, y) for _ in range(2)]
    for one in found[1:]:
        np.testing.assert_array_equal(
            one.cv_results_["mean_test_score"], found[0].cv_results_["mean_test_score"]
        )


def test_scores_of_all_candidates_are_not_held_together(rng):
    """Each candidate has a score for each sample and class."""
    n, c, n_candidates = 600, 200, 24
    X, y = rng.random((n, 16)), np.arange(n) % c
    search = BatchedSearchCV(CRCClassifier(), {"alpha": [2.0**-k for k in range(n_candidates)]}, cv=3)
    tracemalloc.start()
    search.fit(X, y)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 8 * n_candidates * n * c / 3


def test_models_of_all_candidates_are_not_held_together(rng, monkeypatch):
    monkeypatch.setattr(selection, "BATCH", 1)
    X, y = rng.random((60, 100)), np.arange(60) % 3
    model = LEDLClassifier(n_components=40, max_iter=1, tol=0, random_state=0)
    peaks = []
    for n_candidates in (2, 2, 20):  # the first one compiles
        search = BatchedSearchCV(model, {"alpha": np.geomspace(0.05, 0.3, n_candidates)}, cv=3, refit=False)
        tracemalloc.start()
        search.fit(X, y)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[2] < 1.5 * peaks[1]
