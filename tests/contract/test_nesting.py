"""Searches, pipelines and wrappers, one in another, do what the classifier in them does."""

from unittest.mock import patch

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.model_selection import GridSearchCV, StratifiedGroupKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

import ledl
from helpers.digits import few_digits
from ledl import (
    BatchedSearchCV,
    CRCClassifier,
    LEDLClassifier,
    LEDLClassifierCV,
    RejectingClassifier,
    SemiSupervisedClassifier,
)
from ledl.estimators import _base
from ledl.plots import AtomsDisplay, CodesDisplay, ConvergenceDisplay, ExplanationDisplay

mpl.use("agg")
LEDL = LEDLClassifier(max_iter=5, tol=0, random_state=0)
CHOICE = LEDLClassifierCV(alpha=[0.1, 0.01], ridge_alpha=0.1, max_iter=5, tol=0, cv=2, random_state=0)
ALPHAS = {"alpha": [0.1, 0.01]}
NESTS = {
    "search": BatchedSearchCV(LEDL, ALPHAS, cv=2),
    "choice": CHOICE,
    "grid": GridSearchCV(make_pipeline(Normalizer(), LEDL), {"ledlclassifier__alpha": [0.1, 0.01]}, cv=2),
    "rejection": RejectingClassifier(LEDL, cv=2),
    "rejection of a search": RejectingClassifier(BatchedSearchCV(LEDL, ALPHAS, cv=2), cv=2),
    "rejection of a choice": RejectingClassifier(make_pipeline(Normalizer(), CHOICE), cv=2),
    "pipeline of a rejection of a grid": make_pipeline(
        Normalizer(), RejectingClassifier(GridSearchCV(LEDL, ALPHAS, cv=2), cv=2)
    ),
    "grid of a rejection": GridSearchCV(RejectingClassifier(LEDL, cv=2), {"reject": [0.05, 0.2]}, cv=2),
}
needs_callbacks = pytest.mark.skipif(
    not hasattr(_base.CallbackSupportMixin, "set_callbacks"), reason="scikit-learn before 1.9"
)


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def digits():
    return few_digits(20)


def innermost(model):
    """Return the LEDLClassifier in a fitted nest, as somebody would dig it out."""
    while not isinstance(model, LEDLClassifier):
        names = [name for name in ("best_estimator_", "estimator_") if hasattr(model, name)]
        model = getattr(model, names[0]) if names else model.steps[-1][1]
    return model


@pytest.mark.parametrize("name", NESTS)
def test_every_plot_and_explanation_through_any_nesting(name, digits):
    X, y, new, truth = digits
    model = clone(NESTS[name]).fit(X, y)
    inside = innermost(model)
    atoms = AtomsDisplay.from_estimator(model, (8, 8))
    assert_array_equal(atoms.atoms, inside.components_)
    codes = CodesDisplay.from_estimator(model, new[:2], truth[:2])
    assert_allclose(codes.codes, inside.transform(new[:2]), atol=1e-8)  # all of them scale samples to norm 1
    assert_array_equal(codes.predicted, model.predict(new[:2]))
    history = ConvergenceDisplay.from_estimator(model).history
    assert_array_equal(history["data_fit"], inside.history_["data_fit"])
    ExplanationDisplay.from_estimator(model, new[0])
    codes = ledl.explain(inside, new[0]).codes  # of a choice, the atoms of the best model come first
    assert_allclose(ledl.explain(model, new[0]).codes[: len(codes)], codes, atol=1e-8)


@pytest.mark.parametrize("name", ["search", "choice", "rejection", "rejection of a search"])
def test_fitted_attributes_are_those_of_the_classifier(name, digits):
    X, y, new, _ = digits
    model = clone(NESTS[name])
    for attribute in ("components_", "atom_classes_", "history_"):
        assert not hasattr(model, attribute)
    model.fit(X, y)
    inside = innermost(model)
    for attribute in ("components_", "atom_classes_"):
        assert_array_equal(getattr(model, attribute), getattr(inside, attribute))
    assert model.history_ is inside.history_
    assert not hasattr(model, "dual_components_")
    assert_allclose(model.transform(new), inside.transform(new))
    assert_allclose(model.dictionary_.atoms, inside.dictionary_.atoms)


def test_semi_supervised_atoms_are_those_of_its_classifier(digits):
    X, y, new, _ = digits
    model = SemiSupervisedClassifier(estimator=CRCClassifier(), random_state=0)
    model.fit(np.concatenate([X, new]), np.concatenate([y, np.full(len(new), -1)]))
    assert len(AtomsDisplay.from_estimator(model, (8, 8)).atoms) == len(X)
    assert not hasattr(RejectingClassifier(model), "transform")  # it has no codes itself


def test_what_cannot_be_drawn_is_said_truly(digits):
    X, y, *_ = digits
    search = BatchedSearchCV(clone(LEDL).set_params(kernel="rbf"), ALPHAS, cv=2).fit(X, y)
    assert search.dual_components_.shape == (100, 50)
    with pytest.raises(TypeError, match="atoms of kernel='rbf' are sums in the space of the kernel"):
        AtomsDisplay.from_estimator(search, (8, 8))
    with pytest.raises(TypeError, match="CRCClassifier has no iterations"):
        ConvergenceDisplay.from_estimator(RejectingClassifier(CRCClassifier(), cv=2).fit(X, y))
    with pytest.raises(TypeError, match="PCA has no atoms of classes"):
        AtomsDisplay.from_estimator(PCA(3).fit(X), (8, 8))
    search = BatchedSearchCV(LEDL, ALPHAS, cv=2, refit=False).fit(X, y)
    with pytest.raises(TypeError, match="refit=False, so it has no model"):
        AtomsDisplay.from_estimator(search, (8, 8))
    assert not hasattr(search, "components_")


@pytest.mark.parametrize("name", ["search", "choice", "rejection", "rejection of a search"])
def test_names_of_features_and_codes(name, digits):
    X, y, new, _ = digits
    names = [f"pixel {i}" for i in range(X.shape[1])]
    model = clone(NESTS[name]).set_output(transform="pandas").fit(pd.DataFrame(X, columns=names), y)
    assert_array_equal(model.feature_names_in_, names)
    codes = model.transform(pd.DataFrame(new, columns=names))
    assert_array_equal(codes.columns, model.get_feature_names_out())
    assert codes.shape == (len(new), len(model.components_))
    again = model.set_output(transform="default").transform(pd.DataFrame(new, columns=names))
    assert_array_equal(again, codes)
    assert isinstance(again, np.ndarray)
    assert not hasattr(clone(NESTS[name]).fit(X, y), "feature_names_in_")


def test_a_search_in_a_search_runs_once_for_rejection(digits):
    """Rejection judges by folds with the settings that were chosen, however deep the search is."""
    X, y, *_ = digits
    nest = GridSearchCV(make_pipeline(Normalizer(), CHOICE), {"normalizer__norm": ["l1", "l2"]}, cv=2)
    with patch.object(LEDLClassifierCV, "fit", autospec=True, side_effect=LEDLClassifierCV.fit) as fits:
        RejectingClassifier(nest, cv=3).fit(X, y)
    assert fits.call_count == 2 * 2 + 1  # those of the grid search itself


@pytest.mark.parametrize("inner", [CHOICE, BatchedSearchCV(LEDL, ALPHAS)])
def test_groups_are_for_the_search_in_a_rejection(inner, digits):
    X, y, *_ = digits
    groups = np.arange(len(y)) // 2
    model = RejectingClassifier(clone(inner).set_params(cv=StratifiedGroupKFold(2)), cv=2)
    found = model.fit(X, y, groups=groups)
    expected = clone(model.estimator).fit(X, y, groups=groups)
    assert found.estimator_.best_params_ == expected.best_params_
    assert found.estimator_.best_score_ == pytest.approx(expected.best_score_)
    assert len(found.judged_) == len(y)


class Counter:
    """A callback, as scikit-learn's guide describes it, that goes down to the fits within a fit."""

    max_propagation_depth = None

    def __init__(self):
        self.ended = []

    def setup(self, estimator, context):
        self.n_tasks = context.max_subtasks

    def teardown(self, estimator, context):
        self.ended.append("teardown")

    def on_fit_task_begin(self, estimator, context):
        pass

    def on_fit_task_end(self, estimator, context):
        self.ended.append(context.task_name)
        return False


@needs_callbacks
def test_callbacks_see_candidates_folds_and_the_iterations_of_the_last_fit(digits):
    X, y, *_ = digits
    seen = Counter()
    BatchedSearchCV(LEDL, ALPHAS, cv=3).set_callbacks(seen).fit(X, y)
    assert seen.ended.count("candidate on a fold") == 6 == seen.n_tasks - 1
    assert seen.ended.count("iteration") == 5
    assert seen.ended[-2:] == ["fit", "teardown"]
    seen = Counter()
    model = clone(CHOICE).set_callbacks(seen).fit(X, y)
    assert seen.ended.count("candidate on a fold") == 2 * len(model.cv_results_["params"]) == seen.n_tasks - 3
    n_fits = len(
        {one.kernel for one in model.estimators_}
    )  # rules with the same atoms need no fit of their own
    assert seen.ended.count("iteration") == 5 * n_fits
    seen = Counter()
    RejectingClassifier(make_pipeline(LEDL), cv=2).set_callbacks(seen).fit(X, y)
    assert seen.ended.count("iteration") == 15
    seen = Counter()
    RejectingClassifier(CRCClassifier(), cv=2).set_callbacks(seen).fit(X, y)  # which has no callbacks itself
    assert seen.ended == ["fit on all samples", "fold", "fold", "fit", "teardown"]


@needs_callbacks
def test_progress_bars_of_wrappers(digits, capsys):
    from sklearn.callback import ProgressBar

    X, y, *_ = digits
    for model in (BatchedSearchCV(LEDL, ALPHAS, cv=3), CHOICE, RejectingClassifier(CHOICE, cv=2)):
        clone(model).set_callbacks(ProgressBar()).fit(X, y)
        assert "100%" in capsys.readouterr().out
    assert not hasattr(model, "_skl_callbacks")
