"""Semi-supervised rivals: the hidden labels and features of ours, and a plain loop over scikit-learn's own."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import ParameterGrid
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import normalize
from sklearn.semi_supervised import LabelPropagation, LabelSpreading, SelfTrainingClassifier

from ledl import SemiSupervisedClassifier
from ledl.datasets import few_shot_splits
from ledl.experiments._cells import load_dataset
from ledl.experiments._rivals import HiddenLabelSearch, Neighbours, hidden_folds


@pytest.fixture(scope="module")
def problem():
    """Return samples, partial labels, and true labels: three labels of each digit, among 600."""
    X, y = load_dataset("digits").data[:600], load_dataset("digits").target[:600]
    known, _ = next(few_shot_splits(y, n_per_class=3, seeds=[4]))
    partly = np.full(len(y), -1)
    partly[known] = y[known]
    return X, partly, y


def coordinates(X):
    """Return square roots of norm 1 in all principal directions: digits have 64 features."""
    return PCA(svd_solver="full").fit_transform(normalize(np.sqrt(X.astype(float))))


def test_the_hidden_labels_are_those_of_ours(problem):
    X, partly, _ = problem
    ours = SemiSupervisedClassifier(GaussianNB(), methods=["spread", "supervised"], random_state=7)
    ours.fit(X, partly)
    labelled = np.flatnonzero(partly >= 0)
    folds = hidden_folds(partly[labelled], 7)
    assert ours.hidden_rows_.tolist() == [row for _, test in folds for row in labelled[test]]


@pytest.mark.parametrize("kind", [LabelSpreading, LabelPropagation])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_graph_that_is_made_once_is_that_of_scikit_learn(problem, kind):
    X, partly, _ = problem
    Z, new = coordinates(X)[:500], coordinates(X)[500:]
    graph = Neighbours(Z, 7)
    for _ in range(2):  # the first fit must leave the graph as it is
        found = kind(kernel=graph, max_iter=200).fit(Z, partly[:500])
    expected = kind(kernel="knn", n_neighbors=7, max_iter=200).fit(Z, partly[:500])
    np.testing.assert_allclose(found.label_distributions_, expected.label_distributions_, atol=1e-12)
    np.testing.assert_allclose(found.predict_proba(new), expected.predict_proba(new), atol=1e-12)


@pytest.mark.parametrize(
    ("model", "grid"),
    [
        (LabelSpreading(kernel="knn", max_iter=50), {"alpha": [0.2, 0.99], "n_neighbors": [12, 20]}),
        (SelfTrainingClassifier(LogisticRegression()), {"threshold": [0.9, 0.3], "estimator__C": [1, 100]}),
    ],
    ids=["spreading", "self-training"],
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_choice_and_answers_are_those_of_a_plain_loop(problem, model, grid):
    X, partly, y = problem
    Z, labelled = coordinates(X), np.flatnonzero(partly >= 0)
    folds = hidden_folds(partly[labelled], 1)
    hits = []
    for settings in ParameterGrid(grid):
        hits.append(0)
        for _, test in folds:
            hidden = labelled[test]
            fewer = partly.copy()
            fewer[hidden] = -1
            fitted = clone(model).set_params(**settings).fit(Z, fewer)
            answers = fitted.transduction_[hidden]
            unsure = answers == -1
            answers[unsure] = fitted.predict(Z[hidden])[unsure] if unsure.any() else -1
            hits[-1] += (answers == y[hidden]).sum()
    assert len(set(hits)) > 1
    best = list(ParameterGrid(grid))[int(np.argmax(hits))]
    search = HiddenLabelSearch(model, grid, 1).fit(X, partly)
    assert search.best_params_ == best
    assert search.best_score_ == max(hits) / sum(len(test) for _, test in folds)
    fitted = clone(model).set_params(**best).fit(Z, partly)
    answers = np.where(fitted.transduction_ == -1, fitted.predict(Z), fitted.transduction_)
    assert np.mean(search.transduction_ == answers) > 0.995  # float32 against float64
    assert np.mean(search.predict(X) == fitted.predict(Z)) > 0.995


def test_what_no_label_reaches_gets_the_nearest_label_and_hidden_labels_stay_hidden(problem):
    """With one neighbour, which is the sample itself, labels reach nothing: what is left is 1-NN."""
    X, partly, y = problem
    Z, labelled = coordinates(X), np.flatnonzero(partly >= 0)
    hits = 0
    for train, test in hidden_folds(partly[labelled], 0):
        nearest = KNeighborsClassifier(1).fit(Z[labelled[train]], y[labelled[train]])
        hits += (nearest.predict(Z[labelled[test]]) == y[labelled[test]]).sum()
    model = LabelSpreading(kernel="knn", n_neighbors=1)
    search = HiddenLabelSearch(model, {"alpha": [0.2, 0.8]}, 0).fit(X, partly)
    assert 0 < hits < len(labelled)
    assert search.best_score_ == hits / len(labelled)
    nearest = KNeighborsClassifier(1).fit(Z[labelled], y[labelled])
    np.testing.assert_array_equal(search.transduction_, nearest.predict(Z))
    np.testing.assert_array_equal(search.predict(X), nearest.predict(Z))


def test_with_one_label_of_each_class_the_first_settings_are_taken(problem):
    X, _, y = problem
    known, unknown = next(few_shot_splits(y, n_per_class=1))
    partly = y.copy()
    partly[unknown] = -1
    model, grid = LabelSpreading(kernel="knn"), {"alpha": [0.3, 0.2], "n_neighbors": [9, 4]}
    search = HiddenLabelSearch(model, grid).fit(X, partly)
    assert (search.best_params_, search.best_score_) == ({"alpha": 0.3, "n_neighbors": 9}, None)
    assert search.transduction_[known].tolist() == y[known].tolist()
