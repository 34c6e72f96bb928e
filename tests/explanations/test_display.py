"""The figure of an explanation: bars as long as the numbers, pictures of the atoms and the neighbours."""

import sys

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
from numpy.testing import assert_allclose

from helpers.models import make
from ledl import RejectingClassifier, explain
from ledl.datasets import few_shot_splits, load
from ledl.explanations import Pictures
from ledl.explanations._words import score_bars
from ledl.plots import ExplanationDisplay

mpl.use("agg")


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def digits():
    data = load("digits")
    train, test = next(few_shot_splits(data.target, n_per_class=3))
    return data.data[train], data.target[train], data.data[test]


@pytest.fixture(scope="module")
def as_images(digits):
    return [np.uint8(np.round(x.reshape(8, 8) * 255 / 16)) for x in digits[0]]


def bars(ax):
    """Return begin and length of the bars, from top to bottom."""
    drawn = sorted(ax.patches, key=lambda bar: bar.get_y())
    return np.array([[bar.get_x(), bar.get_width()] for bar in drawn])


@pytest.mark.parametrize("name", ["ledl", "src", "crc-regularized"])
def test_scores_atoms_and_neighbors_are_drawn(digits, as_images, name):
    X, y, new = digits
    found = explain(make(name, random_state=0).fit(X, y), new[5])
    pictures = Pictures(shape=(8, 8), training=as_images)
    display = ExplanationDisplay(found, pictures, n_atoms=4, n_scores=3).plot()
    display.figure_.canvas.draw()
    axes, best = display.axes_, found.ranking
    (scores,) = axes["scores"]
    lengths = bars(scores)[:, 1]
    assert_allclose(lengths, score_bars(found, "sample").lengths[best[:3]], atol=1e-12)
    assert 1 >= lengths[0] > lengths[1] > lengths[2] >= 0  # the best class has the longest bar
    labels = [label.get_text() for label in scores.get_yticklabels()]
    assert labels == found.classes[best[:3]].astype(str).tolist()
    assert scores.get_title(loc="left").startswith(f"{labels[0]} ahead of {labels[1]}, by ")
    for k, atom, adds in zip(found.decisive_atoms, axes["atoms"], axes["adds"], strict=False):
        values = found.contributions[k, best[:2]]
        assert_allclose(bars(adds)[:, 1], values, atol=1e-12)
        assert [bool(bar.get_hatch()) for bar in adds.patches] == (values < 0).tolist()
        assert atom.get_title() == f"{found.atom_classes[k]}, code {found.codes[k]:+.2f}"
        assert atom.get_images()[0].get_array().shape == (8, 8, 3)
    assert len(axes["adds"]) == 4
    for i, ax in zip(found.neighbors, axes["neighbors"], strict=True):
        assert_allclose(ax.get_images()[0].get_array()[..., 0], as_images[i])


def test_probabilities_are_drawn_and_the_class_that_was_asked_about(digits, as_images):
    X, y, new = digits
    model = make("ledl-cv", random_state=0).fit(X, y)
    p = model.predict_proba(new[5:6])[0]
    asked = p.argsort()[-5]
    pictures = Pictures(shape=(8, 8), training=as_images)
    display = ExplanationDisplay.from_estimator(model, new[5], pictures=pictures, against=asked, n_scores=3)
    display.figure_.canvas.draw()
    (scores,), found = display.axes_["scores"], display.explanation
    drawn = [*p.argsort()[::-1][:3], asked]
    assert [label.get_text() for label in scores.get_yticklabels()] == [str(j) for j in drawn]
    assert_allclose(bars(scores)[:, 1], p[drawn], rtol=1e-4)  # these are in float32
    assert scores.get_title(loc="left").startswith(
        f"{p.argmax()}, {100 * p.max():.0f} % sure, ahead of {asked}, "
    )
    assert display.axes_["adds"][0].get_yticklabels()[1].get_text() == str(asked)
    k = found.decisive_atoms[0]
    assert_allclose(
        bars(display.axes_["adds"][0])[:, 1], found.contributions[k, [p.argmax(), asked]], atol=1e-12
    )
    assert len(display.axes_["against"]) == 3  # as many as the class has
    for i, ax in zip(found.against_neighbors, display.axes_["against"], strict=True):
        assert y[i] == asked
        assert_allclose(ax.get_images()[0].get_array()[..., 0], as_images[i])


def test_without_pictures_and_in_part_of_a_figure(digits):
    X, y, new = digits
    model = make("ledl", random_state=0).fit(X, y)
    figure = plt.figure(figsize=(18, 6), layout="constrained")
    left, right = figure.subfigures(1, 2)
    display = ExplanationDisplay.from_estimator(model, new[0], figure=right)
    figure.canvas.draw()
    assert display.figure_ is right
    assert left.get_axes() == []
    assert display.axes_["sample"] == display.axes_["atoms"] == []
    assert len(display.axes_["adds"]) > 0
    assert not any(ax.get_images() for ax in right.get_axes())
    with pytest.raises(ValueError, match=r"shape=\(8, 9\)"):
        ExplanationDisplay.from_estimator(model, new[0], pictures=Pictures(shape=(8, 9)))


def test_atoms_of_a_kernel_are_shown_by_training_images(digits, as_images):
    X, y, new = digits
    kernel = make("ledl-rbf", random_state=0).fit(X, y)
    pictures = Pictures(shape=(8, 8), training=as_images)
    display = ExplanationDisplay.from_estimator(kernel, new[0], pictures=pictures)
    k, i = display.explanation.decisive_atoms[0], display.explanation.atom_neighbors
    assert_allclose(display.axes_["atoms"][0].get_images()[0].get_array()[..., 0], as_images[i[k, 0]])


@pytest.mark.filterwarnings("ignore:.*samples are all zero:UserWarning")
def test_a_rejected_sample_and_a_sample_of_zeros(digits):
    X, y, new = digits
    names = np.array([r"$\frac$ " + "long " * 20 + str(i) for i in range(10)])  # looks like a formula
    classifier = RejectingClassifier(make("src"), reject=0.9).fit(X, names[y])
    display = ExplanationDisplay.from_estimator(classifier, new[0])
    display.figure_.canvas.draw()
    assert display.axes_["scores"][0].get_title(loc="left").startswith("None of these (p = ")
    display = ExplanationDisplay.from_estimator(classifier.estimator_, np.zeros(64))
    display.figure_.canvas.draw()
    assert display.axes_["adds"] == []


def test_without_matplotlib_the_error_names_the_extra(digits, monkeypatch):
    X, y, new = digits
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"pip install 'ledl\[plots\]'"):
        ExplanationDisplay.from_estimator(make("crc").fit(X, y), new[0])
