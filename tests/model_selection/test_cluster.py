"""Searches whose batches are spread by joblib: over processes, and over the workers of a cluster."""

import os
import pickle
import warnings

import joblib
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV

from helpers.digits import few_digits
from helpers.processes import process
from ledl import BatchedSearchCV, CRCClassifier, LEDLClassifier, SRCClassifier, parallel
from ledl.model_selection import _batched_search as selection
from ledl.parallel import run_tasks

SEARCHES = [
    (
        LEDLClassifier(random_state=0, max_iter=20),
        {"alpha": [2**-3, 2**-6], "label_weight": [0.0, 4.0], "n_components": [20, 40]},
    ),
    (LEDLClassifier(random_state=0, max_iter=5, kernel="rbf"), {"alpha": [2**-4, 2**-6]}),
    (SRCClassifier(), {"alpha": [2.0**-i for i in range(1, 7)]}),
    (CRCClassifier(), {"alpha": [0.5, 2**-4], "rule": ["residual", "regularized"]}),
]


@pytest.fixture(scope="module")
def digits():
    return few_digits(100)


def processes_of(monkeypatch, work):
    """A list that fills with the processes that `work` of the search has run in."""
    used = []

    def watched(function, tasks, n_jobs=None):
        if function is work:
            used.extend(pid for _, pid in run_tasks(process, [(i,) for i in range(len(tasks))], n_jobs))
        return run_tasks(function, tasks, n_jobs)

    monkeypatch.setattr(selection, "run_tasks", watched)
    return used


def searched(model, grid, X, y):
    """A search, and its warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        search = BatchedSearchCV(clone(model), grid, cv=3).fit(X, y)
    # loky replaces its workers at times, and warns.
    ours = [w for w in caught if not str(w.message).startswith("A worker stopped while some jobs")]
    return search, sorted((w.category.__name__, str(w.message), w.filename) for w in ours)


# Every search once, and the first, whose training is spread, too, on both.
@pytest.mark.parametrize(
    ("backend", "model", "grid"),
    [("dask", *SEARCHES[0]), *[("loky", *search) for search in SEARCHES]],
    indirect=["backend"],
)
def test_the_same_search_wherever_its_batches_run(model, grid, digits, backend, monkeypatch):
    X, y, new, _ = digits
    monkeypatch.setattr(selection, "BATCH", 2**12)  # several batches, so that there is something to spread
    expected, expected_warnings = searched(model, grid, X, y)
    with joblib.parallel_config(backend=backend, n_jobs=2):
        found, warned = searched(model, grid, X, y)
    for name, values in expected.cv_results_.items():
        if "time" not in name:
            np.testing.assert_array_equal(found.cv_results_[name], values, name)
    assert found.best_params_ == expected.best_params_
    assert warned == expected_warnings
    np.testing.assert_array_equal(found.predict(new), expected.predict(new))


@pytest.mark.parametrize("work", [selection.solve_batch, selection.scores_of])
def test_batches_leave_this_process(work, digits, backend, monkeypatch):
    X, y, *_ = digits
    used = processes_of(monkeypatch, work)
    with joblib.parallel_config(backend=backend, n_jobs=2), pytest.warns(ConvergenceWarning):
        BatchedSearchCV(*SEARCHES[0], cv=3, refit=False).fit(X, y)
    assert used
    assert os.getpid() not in used


FEW_ATOMS = LEDLClassifier(n_components=16, tol=0, max_iter=3, random_state=0)


@pytest.mark.parametrize(
    ("backend", "model"),
    [("dask", FEW_ATOMS), ("loky", FEW_ATOMS), ("loky", SRCClassifier())],
    indirect=["backend"],
)
def test_large_arrays_that_arrive_read_only(backend, model):
    """joblib maps arrays of more than a mebibyte into the memory of its processes."""
    rng = np.random.default_rng(0)
    X, y = rng.random((240, 1200)), np.arange(240) % 4
    search = BatchedSearchCV(model, {"alpha": [2**-3, 2**-4]}, cv=2, refit=False)
    expected = clone(search).fit(X, y)
    with joblib.parallel_config(backend=backend, n_jobs=2):
        found = clone(search).fit(X, y)
    for i in range(2):
        name = f"split{i}_test_score"
        np.testing.assert_array_equal(found.cv_results_[name], expected.cv_results_[name])


def test_the_samples_of_a_fold_travel_once_in_a_batch(digits, monkeypatch):
    X, y, *_ = digits
    wide = np.hstack([X] * 40)  # more features than samples
    sizes = []

    def weighed(work, tasks, n_jobs=None):
        if work is selection.solve_batch:
            sizes.extend((len(models), len(pickle.dumps((models, parts)))) for models, parts in tasks)
        return run_tasks(work, tasks, n_jobs)

    monkeypatch.setattr(selection, "run_tasks", weighed)
    model = LEDLClassifier(random_state=0, max_iter=2, tol=0)
    for alphas in ([0.1], np.linspace(0.1, 0.2, 9)):  # equal ones would be trained once
        BatchedSearchCV(model, {"alpha": alphas}, cv=[(np.arange(40), np.arange(40, 50))]).fit(wide, y)
    (one, small), (nine, large) = sizes[0], sizes[-1]
    assert (one, nine) == (1, 9)
    assert large - small < small / 2  # eight more models, and no samples
    assert small < 40 * wide.shape[1] * 8 / 4  # coordinates, not features


def test_fits_that_fail_are_reported_as_without_a_cluster(digits, backend):
    X, y, *_ = digits
    model = LEDLClassifier(random_state=0, tol=0, max_iter=8)
    grid = {"alpha": [2**-6], "dual_step": [0.5, 1e150]}
    expected, expected_warnings = searched(model, grid, X / 16, y)
    with joblib.parallel_config(backend=backend, n_jobs=2):
        found, warned = searched(model, grid, X / 16, y)
    assert np.isnan(found.cv_results_["mean_test_score"]).tolist() == [False, True]
    assert found.best_params_ == expected.best_params_
    assert [text for kind, text, _ in warned if kind == "FitFailedWarning"] == [
        text for kind, text, _ in expected_warnings if kind == "FitFailedWarning"
    ]
    # NumPy names the operation, too, when it warns by itself.
    troubles = {
        text.split(" encountered")[0] for kind, text, _ in expected_warnings if kind == "RuntimeWarning"
    }
    assert {
        text.removesuffix(" encountered") for kind, text, _ in warned if kind == "RuntimeWarning"
    } == troubles
    assert troubles


@pytest.mark.torch
def test_tensors_stay_where_they_are(digits, monkeypatch):
    X, y, *_ = digits
    monkeypatch.setattr(parallel, "Parallel", lambda *_, **__: pytest.fail("sent away"))
    with joblib.parallel_config(backend="loky", n_jobs=2):
        BatchedSearchCV(SRCClassifier(device="cpu"), {"alpha": [0.1, 0.01]}, cv=3, refit=False).fit(X, y)


def test_a_search_in_a_grid_search_on_the_cluster(digits, client):
    X, y, *_ = digits
    inner = BatchedSearchCV(SRCClassifier(), {"alpha": [0.1, 0.01]}, cv=2)
    outer = GridSearchCV(inner, {"estimator__transform_tol": [1e-4, 1e-6]}, cv=2, refit=False)
    expected = outer.fit(X, y).cv_results_["mean_test_score"]
    with joblib.parallel_config(backend="dask"):
        found = clone(outer).set_params(n_jobs=-1).fit(X, y).cv_results_["mean_test_score"]
    np.testing.assert_array_equal(found, expected)


def test_scikit_learns_own_search_on_the_cluster(digits, client):
    X, y, new, _ = digits
    model, grid = LEDLClassifier(random_state=0, max_iter=10, tol=0), {"alpha": [2**-3, 2**-5, 2**-7]}
    expected = GridSearchCV(model, grid, cv=3).fit(X, y)
    with joblib.parallel_config(backend="dask"):
        found = GridSearchCV(model, grid, cv=3, n_jobs=-1).fit(X, y)
    for i in range(3):
        name = f"split{i}_test_score"
        np.testing.assert_array_equal(found.cv_results_[name], expected.cv_results_[name])
    assert found.best_params_ == expected.best_params_
    np.testing.assert_array_equal(found.predict(new), expected.predict(new))
