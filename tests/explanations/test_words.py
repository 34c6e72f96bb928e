"""The words of an explanation: percentages, bars that grow with how good a class is, reasons that are true."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.datasets import load_digits

from helpers.models import make
from ledl import explain
from ledl.explanations._words import bars, headline, percent, reasons, score_bars, terms

RULES = ["ledl", "ledl-residual", "ledl-regularized", "src", "crc", "crc-regularized", "csdl", "dksvd"]


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X.astype(np.float64), y


@pytest.fixture(scope="module", params=RULES)
def fitted(request, digits):
    X, y = digits
    return make(request.param, random_state=0).fit(X[:80], y[:80])


def test_no_answer_is_certain_and_none_is_impossible():
    shown = {0.0: "under 1 %", 0.004: "under 1 %", 0.006: "1 %", 0.5: "50 %", 0.994: "99 %", 0.996: "over 99 %"}
    assert [percent(p) for p in [*shown, 1.0]] == [*shown.values(), "over 99 %"]


def test_the_better_a_class_the_longer_its_bar_whatever_the_rule(fitted, digits):
    for x in digits[0][80:100]:
        found = explain(fitted, x)
        lengths = score_bars(found, "sample").lengths
        order = np.argsort(-found.scores)
        assert 1 >= lengths[order[0]] > lengths[order[1]]
        assert (np.diff(lengths[order]) <= 0).all()
        assert lengths.min() >= 0


def test_the_numbers_beside_the_bars_mean_what_is_said(digits):
    X, y = digits
    x = X[85] / np.linalg.norm(X[85])
    found = explain(make("src").fit(X[:80], y[:80]), X[85])
    shares = [
        1 - np.sum((x - found.codes[own] @ found.atoms[own]) ** 2) for own in found.atom_classes == np.c_[:10]
    ]
    drawn = score_bars(found, "image")
    assert_allclose(drawn.values, shares, atol=1e-9)
    assert_allclose(drawn.lengths, np.clip(shares, 0, 1), atol=1e-9)
    assert drawn.meaning.startswith("Share of the image that each class can rebuild")

    found = explain(make("crc-regularized").fit(X[:80], y[:80]), X[85])
    ratios = [
        np.linalg.norm(x - found.codes[own] @ found.atoms[own]) / np.linalg.norm(found.codes[own])
        for own in found.atom_classes == np.c_[:10]
    ]
    assert_allclose(score_bars(found, "image").lengths, min(ratios) / np.array(ratios), rtol=1e-6)

    model = make("ledl", random_state=0).fit(X[:80], y[:80])
    found = explain(model, X[80:][model.decision_function(X[80:]).min(axis=1).argmin()])
    drawn = score_bars(found, "image")
    assert_allclose(drawn.values, found.scores)
    assert (found.scores < 0).any()
    assert_allclose(drawn.lengths, np.maximum(found.scores, 0) / found.scores.max())
    assert bars(found, "image").meaning == drawn.meaning == "Points of each class"


@pytest.mark.parametrize("name", ["ledl", "src"])
def test_the_best_of_bad_classes_has_the_longest_bar(name, digits):
    X, y = digits
    found = explain(make(name, random_state=0).fit(X[:80], y[:80]), X[85])
    worse = replace(found, scores=found.base - 1 - np.arange(10.0))
    drawn = score_bars(worse, "sample")
    assert_allclose(drawn.lengths, np.linspace(1, 0, 10))
    assert "No class is good" in drawn.meaning
    level = replace(found, scores=found.base + 0.0)
    assert not score_bars(level, "sample").lengths.any()


def test_a_perfect_fit_is_the_best_of_divided_distances(digits):
    X, y = digits
    found = explain(make("crc-regularized").fit(X[:80], y[:80]), X[85])
    scores = found.scores.copy()
    scores[3] = 0
    perfect = replace(found, scores=scores, base=np.where(np.arange(10) == 3, 0, found.base))
    assert_allclose(score_bars(perfect, "sample").lengths, np.arange(10) == 3)
    assert "more than 100 times as far" in reasons(perfect, "sample")[-1]


def test_reasons_count_the_look_alikes(digits):
    X, y = digits
    found = explain(make("ledl", random_state=0).fit(X[:80], y[:80]), X[85])
    best, other = found.classes[found.ranking[:2]]
    for near, words in [
        ([best] * 5, f"All 5 training images most like this one belong to {best}."),
        (
            [best] * 2 + [other] * 3,
            f"2 of the 5 training images most like this one belong to {best}, 3 to {other}.",
        ),
        (
            [best] + [11] * 4,
            f"1 of the 5 training images most like this one belongs to {best}, none to {other}.",
        ),
        (
            [11] * 5,
            f"None of the 5 training images most like this one belongs to {best}, none to {other}. Look twice.",
        ),
    ]:
        assert reasons(replace(found, neighbor_classes=np.array(near)), "image")[0] == words
    assert len(reasons(found, "image")) == 2
    without = replace(
        found, neighbors=found.neighbors[:0], similarities=np.empty(0), neighbor_classes=found.classes[:0]
    )
    assert reasons(without, "image") == reasons(found, "image")[1:]


@pytest.mark.filterwarnings("ignore:.*samples are all zero:UserWarning")
def test_reasons_have_the_numbers_of_the_rule(digits):
    X, y = digits
    found = explain(make("ledl", random_state=0).fit(X[:80], y[:80]), X[85])
    first, second = found.ranking[:2]
    best, other = found.classes[[first, second]]
    points = f"{found.scores[first]:.3f} points for {best} and {found.scores[second]:.3f} for {other}"
    assert points in reasons(found, "image")[1]
    found = explain(make("src").fit(X[:80], y[:80]), X[85])
    shares = 100 * (1 + found.scores)  # of a sample of norm 1
    first, second = found.ranking[:2]
    assert f"rebuild {shares[first]:.1f} % of this one" in reasons(found, "image")[1]
    assert f"rebuild {shares[second]:.1f} %." in reasons(found, "image")[1]
    assert "training images" in reasons(found, "image")[1]
    found = explain(make("crc-regularized").fit(X[:80], y[:80]), X[85])
    first, second = found.ranking[:2]
    times = found.scores[second] / found.scores[first]
    assert f"{times:.1f} times as far" in reasons(found, "image")[1]
    scores = found.scores.copy()
    scores[second] = 1.01 * scores[first]
    assert "is hardly farther" in reasons(replace(found, scores=scores), "image")[1]
    assert reasons(explain(make("src").fit(X[:80], y[:80]), np.zeros(64)), "image") == []


def test_the_headline_names_the_class_that_is_compared(digits):
    X, y = digits
    found = explain(make("src").fit(X[:80], y[:80]), X[85])
    first, third = found.ranking[[0, 2]]
    asked = replace(found, against=found.classes[third])
    lead = found.scores[first] - found.scores[third]
    assert headline(asked) == f"{found.predicted} ahead of {found.classes[third]}, by {lead:.3g}"
    sure = np.full(10, 0.02)
    sure[[first, third]] = 0.8, 0.04
    assert headline(replace(asked, probabilities=sure)) == (
        f"{found.predicted}, 80 % sure, ahead of {found.classes[third]}, 4 %"
    )
    assert bars(replace(asked, probabilities=sure), "image").lengths is sure


def test_atoms_are_what_they_are_said_to_be(digits):
    X, y = digits
    for name, words in [("src", "a training image;"), ("ledl", "a piece that the model has learned")]:
        found = explain(make(name, random_state=0).fit(X[:80], y[:80]), X[85])
        (atom, meaning), (code, _) = terms(found, "image")
        assert (atom, code) == ("atom", "code")
        assert meaning.startswith(words)
        assert all(f"{term}: {text}" in found.text() for term, text in terms(found, "sample"))
