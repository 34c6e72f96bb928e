"""Explanations by labels that spread: parts of labelled samples that a dense solution gives, and their page."""

import pickle
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from ledl import (
    LEDLClassifier,
    RejectingClassifier,
    SemiSupervisedClassifier,
    SRCClassifier,
    explain,
    load,
    save,
)
from ledl.explanations import Pictures, page
from ledl.plots import ExplanationDisplay

N = 150
NEW = slice(N, N + 20)
GRAPHS = ("learnt", "spread", "spread-learnt")


@pytest.fixture(scope="module")
def digits():
    """Digits, and labels of four samples of each class among the first; the labels are words."""
    X, y = load_digits(return_X_y=True)
    words = np.array(
        ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"], dtype=object
    )
    known = np.concatenate([np.flatnonzero(y[:N] == label)[:4] for label in range(10)])
    return X, words[y], np.where(np.isin(np.arange(N), known), words[y[:N]], -1)


@pytest.fixture(scope="module", params=GRAPHS)
def fitted(request, digits):
    X, _, labels = digits
    model = SemiSupervisedClassifier(SRCClassifier(), methods=[request.param], random_state=0)
    return model.fit(X[:N], labels)


def brute_force(model, x, a=0.99):
    """Return the part of each labelled sample in the labels that reach x, by dense matrices in float64.

    Coordinates, neighbours, weights and the solution are computed anew. Only the map to the space is taken.
    """
    graph = model.graph_
    n, k = graph.neighbours.shape
    roots = np.sqrt(np.abs(x)) * np.sign(x)
    z = (roots / np.linalg.norm(roots) - graph.mean) @ graph.axes.astype(float)
    points = graph.points.astype(float)
    D = ((points[:, None] - points[None]) ** 2).sum(axis=2)
    np.fill_diagonal(D, np.inf)
    near = np.argsort(D, axis=1)[:, :k]
    scales = np.sqrt(np.take_along_axis(D, near, axis=1)[:, -1])
    W = np.zeros((n, n))
    for i in range(n):
        W[i, near[i]] = np.exp(-D[i, near[i]] / (scales[i] * scales[near[i]]))
    W = W + W.T
    G = W.sum(axis=1)
    S = W / np.sqrt(G[:, None] * G)
    d = ((points - z) ** 2).sum(axis=1)
    own = np.argsort(d)[:k]
    q = d[own] / (np.sqrt(d[own[-1]]) * scales[own])
    weights = np.exp(q.min() - q) / np.sqrt(G[own])  # up to a factor
    solution = (1 - a) * np.linalg.inv(np.eye(n) - a * S)
    return weights @ solution[np.ix_(own, graph.labelled)], own, weights


def test_influence_is_that_of_a_dense_solution(fitted, digits):
    for x in digits[0][NEW]:
        amounts, near, weights = fitted.graph_.influence(x[None])
        expected, own, expected_weights = brute_force(fitted, x)
        assert_array_equal(np.sort(near), np.sort(own))
        assert_allclose(np.sort(weights), np.sort(expected_weights), rtol=2e-3)
        assert_allclose(amounts, expected, rtol=0, atol=1e-3 * expected.max())


def test_parts_of_labelled_samples_add_up_to_the_scores_and_give_the_answer(fitted, digits):
    X, _, labels = digits
    expected, answers = fitted.predict_proba(X[NEW]), fitted.predict(X[NEW])
    shares = fitted.graph_.spread_to(X[NEW])
    shares = shares / shares.sum(axis=1, keepdims=True)
    for x, probabilities, answer, scores in zip(X[NEW], expected, answers, shares, strict=True):
        found = explain(fitted, x)
        assert found.rule == "labels"
        assert_allclose(found.probabilities, probabilities, rtol=1e-4, atol=1e-7)  # of a batch
        assert found.predicted == answer == found.classes[found.ranking[0]]
        assert_allclose(found.base + found.contributions.sum(axis=0), scores, atol=1e-6)
        assert_allclose(found.scores, found.contributions.sum(axis=0), rtol=1e-12)
        # Each labelled sample adds to its own class alone, what the dense solution says.
        assert_array_equal(found.atom_classes, labels[found.atom_rows])
        others = found.contributions * (found.atom_classes[:, None] != found.classes)
        assert not others.any()
        amounts, *_ = brute_force(fitted, x)
        assert_allclose(found.codes, amounts / amounts.sum(), rtol=0, atol=2e-3)


def test_neighbours_are_rows_of_fit_with_their_labels(fitted, digits):
    X, _, labels = digits
    x = X[N + 3]
    found = explain(fitted, x, n_neighbors=4)
    _, own, weights = brute_force(fitted, x)
    order = np.argsort(-weights)[:4]
    assert_array_equal(found.neighbors, fitted.graph_.rows[own[order]])
    assert_allclose(found.similarities, weights[order] / weights.sum(), rtol=2e-3)
    assert_array_equal(found.neighbors_labelled, labels[found.neighbors] != -1)
    assert_array_equal(found.neighbor_probabilities, fitted.label_distributions_[found.neighbors])
    assert_array_equal(found.neighbor_classes, fitted.transduction_[found.neighbors])


def test_copies_are_named_by_the_first_row(digits):
    X, _, labels = digits
    X, labels = np.concatenate([X[:5], X[:N]]), np.concatenate([labels[:5], labels])
    model = SemiSupervisedClassifier(SRCClassifier(), methods=["spread"], random_state=0).fit(X, labels)
    found = explain(model, X[7] + 0.5)
    assert not np.isin(found.atom_rows, range(5, 10)).any()
    assert_array_equal(labels[found.atom_rows], found.atom_classes)


def test_the_class_that_is_asked_about_shows_its_labelled_samples(fitted, digits):
    X, _, labels = digits
    plain = explain(fitted, X[N])
    other = plain.classes[plain.ranking[3]]
    found = explain(fitted, X[N], against=other, n_neighbors=3)
    assert (labels[found.against_neighbors] == other).all()
    own = found.codes[found.atom_classes == other]
    assert_allclose(found.against_similarities, np.sort(own)[::-1][:3])
    assert f"labelled samples of {other}:" in found.text()
    with pytest.raises(ValueError, match="is the answer itself"):
        explain(fitted, X[N], against=plain.predicted)


@pytest.mark.parametrize("method", ["spread", "supervised"])
@pytest.mark.parametrize("wrap", [make_pipeline, RejectingClassifier], ids=["pipeline", "rejecting"])
def test_pipelines_and_rejection_are_explained(wrap, method, digits, tmp_path):
    X, _, labels = digits
    inner = SemiSupervisedClassifier(SRCClassifier(), methods=[method], random_state=0)
    steps = (StandardScaler(), inner) if wrap is make_pipeline else (inner,)
    model = wrap(*steps).fit(X[:N], labels)
    found = explain(model, X[N])
    assert_array_equal(found.probabilities, model.predict_proba(X[N : N + 1])[0])
    if wrap is RejectingClassifier:
        assert found.p_value == model.p_values(X[N : N + 1])[0]
        assert_array_equal([found.reach, found.isolation], model.estimator_.reach_(X[N : N + 1])[0])
        assert f"{100 * found.p_value:.2g} % of the training samples fit" in page(found)
        told = [explain(model, x).p_value for x in X[NEW]]
        assert_array_equal(told, model.p_values(X[NEW]))
        assert len(set(told)) > 5
    save(model, tmp_path / "model.ledl")
    for again in (load(tmp_path / "model.ledl"), pickle.loads(pickle.dumps(model))):
        assert_array_equal(explain(again, X[N]).contributions, found.contributions)
        assert_array_equal(again.predict_proba(X[NEW]), model.predict_proba(X[NEW]))


@pytest.mark.filterwarnings("error:.*feature names")
def test_frames_are_explained(digits):
    X, _, labels = digits
    frame = pd.DataFrame(X, columns=[f"pixel {i}" for i in range(64)])
    inner = SemiSupervisedClassifier(SRCClassifier(), methods=["spread"], random_state=0)
    model = RejectingClassifier(inner).fit(frame[:N], labels)
    found = explain(model, frame[N : N + 1])
    assert found.predicted == explain(RejectingClassifier(inner).fit(X[:N], labels), X[N]).predicted
    assert found.p_value == model.p_values(frame[N : N + 1])[0]


@pytest.mark.parametrize("start", [SRCClassifier(), LEDLClassifier(max_iter=5, tol=0, random_state=0)], ids=str)
def test_a_supervised_answer_is_explained_by_its_atoms(start, digits):
    X, _, labels = digits
    model = SemiSupervisedClassifier(start, methods=["supervised"], random_state=0).fit(X[:N], labels)
    rows = np.flatnonzero(labels != -1)
    alone = explain(start.fit(X[rows], labels[rows].astype(str)), X[N])
    found = explain(model, X[N])
    assert_array_equal(found.probabilities, model.predict_proba(X[N : N + 1])[0])
    assert_array_equal(found.contributions, alone.contributions)
    assert_array_equal(found.neighbors, rows[alone.neighbors])
    assert_array_equal(
        found.atom_neighbors, np.where(alone.atom_neighbors >= 0, rows[alone.atom_neighbors], -1)
    )
    assert "cosine" in found.text()
    assert page(found, Pictures(shape=(8, 8))).count("<img") > 5  # atoms of these rows are drawn


def test_a_sample_that_no_label_reaches_is_explained_by_the_supervised_classifier(digits):
    X, _, labels = digits
    model = SemiSupervisedClassifier(SRCClassifier(), methods=["spread"], random_state=0).fit(X[:N], labels)
    model.graph_ = replace(model.graph_, F=np.zeros_like(model.graph_.F))
    found, rows = explain(model, X[N]), model.labelled_rows_
    alone = explain(model.estimator_, X[N])
    assert found.rule == alone.rule == "residual"
    assert_array_equal(found.contributions, alone.contributions)
    assert_array_equal(found.neighbors, rows[alone.neighbors])
    assert_array_equal(found.probabilities, model.predict_proba(X[N : N + 1])[0])


def test_a_supervised_answer_without_atoms_cannot_be_explained(digits):
    X, _, labels = digits
    model = SemiSupervisedClassifier(LogisticRegression(), methods=["supervised"], random_state=0)
    with pytest.raises(TypeError, match="LogisticRegression has no atoms"):
        explain(model.fit(X[:N], labels), X[N])


def test_labels_that_spread_need_no_atoms(digits):
    X, _, labels = digits
    model = SemiSupervisedClassifier(LogisticRegression(), methods=["spread"], random_state=0).fit(
        X[:N], labels
    )
    found = explain(model, X[N])
    assert found.concentration is None
    assert "Concentration" not in page(found)
    rejecting = RejectingClassifier(model).fit(X[:N], labels)
    found = explain(rejecting, X[N])
    assert found.reach == pytest.approx(rejecting.estimator_.reach(X[N : N + 1])[0])
    assert "Reach" in page(found)


def test_the_page_shows_labelled_images_and_neighbours(fitted, digits):
    X, _, labels = digits
    found = explain(fitted, X[N])
    pictures = [
        np.uint8(x.reshape(8, 8) * 15) if label != -1 else None for x, label in zip(X, labels, strict=False)
    ]
    names = [f"photos/image {i}.jpg" for i in range(N)]
    html = page(found, Pictures(pictures[found.atom_rows[0]], None, pictures, names))
    for k in np.argsort(-found.codes)[: min(5, np.count_nonzero(found.codes))]:
        assert f"image {found.atom_rows[k]}.jpg" in html
    for row in found.neighbors:
        assert f"image {row}.jpg" in html
    assert "The labels of these images spread to it" in html
    assert "atom" not in html[html.index("<main") : html.index("How to read")].replace('class="atom', "")
    text = found.text(names)
    assert f"{found.scores.max():.1%}".replace("%", " %") in text
    how = "labelled" if found.neighbors_labelled[0] else "no label, "
    assert f"(class {found.neighbor_classes[0]}, {how}" in text
    assert names[found.atom_rows[found.decisive_atoms[0]]] in text


def test_the_figure_speaks_of_labelled_samples(fitted, digits):
    display = ExplanationDisplay.from_estimator(fitted, digits[0][N], against=None)
    titles = [part.get_suptitle() for part in display.figure_.subfigs]
    assert any(title.startswith("Labelled samples that decide most") for title in titles)
    assert "weight" in display.axes_["neighbors"][0].get_title()
