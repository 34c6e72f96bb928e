"""Displays: they hold what they draw, draw it, and refuse what cannot be drawn."""

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.exceptions import NotFittedError

from ledl import (
    CRCClassifier,
    CSDLClassifier,
    LCKSVDClassifier,
    LEDLClassifier,
    RejectingClassifier,
    SRCClassifier,
    explain,
)
from ledl.datasets import few_shot_splits, load
from ledl.explanations import Pictures
from ledl.plots import (
    AccuracyDisplay,
    AtomsDisplay,
    CodesDisplay,
    ConvergenceDisplay,
    ExamplesDisplay,
    ExplanationDisplay,
)

mpl.use("agg")


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def digits():
    data = load("digits")
    train, test = next(few_shot_splits(data.target, n_per_class=3))
    return data, train, test


@pytest.fixture(scope="module")
def model(digits):
    data, train, _ = digits
    return LEDLClassifier(random_state=0, max_iter=25, tol=0).fit(data.data[train], data.target[train])


def lines(ax):
    return {line.get_label(): line.get_xydata() for line in ax.get_lines()}


def test_convergence_draws_the_history(model):
    display = ConvergenceDisplay.from_estimator(model)
    drawn = lines(display.ax_)
    assert_allclose(drawn["augmented objective"][:, 1], model.history_["augmented_objective"])
    assert len(drawn) == 6
    assert drawn["objective at the sparse codes"][:, 0].tolist() == [10, 20, 25]
    assert display.figure_ is display.ax_.figure


def test_convergence_of_the_others(digits):
    data, train, _ = digits
    X, y = data.data[train], data.target[train]
    model = CSDLClassifier(random_state=0, max_iter=6).fit(X, y)
    (values,) = lines(ConvergenceDisplay.from_estimator(model).ax_).values()
    assert_allclose(values[-1, 1], model.history_["objective"][-1].sum())
    model = LCKSVDClassifier(random_state=0).fit(X, y)
    assert list(lines(ConvergenceDisplay.from_estimator(model).ax_)) == ["objective"]
    with pytest.raises(TypeError, match="CRCClassifier has no iterations"):
        ConvergenceDisplay.from_estimator(CRCClassifier().fit(X, y))
    with pytest.raises(NotFittedError):
        ConvergenceDisplay.from_estimator(LEDLClassifier())


def test_a_class_that_has_ended_stays_in_the_total():
    history = {"objective": np.array([[3.0, 5.0], [2.0, 4.0], [1.0, np.nan]])}
    (values,) = lines(ConvergenceDisplay(history).plot().ax_).values()
    assert values[:, 1].tolist() == [8.0, 6.0, 5.0]


def test_atoms_are_tiles_of_their_class(model):
    display = AtomsDisplay.from_estimator(model, (8, 8), max_classes=4, max_per_class=2)
    (image,) = display.ax_.get_images()
    mosaic = image.get_array()
    assert mosaic.shape == (4 * 9 - 1, 2 * 9 - 1)
    atom = model.components_[model.atom_classes_ == 2][1].reshape(8, 8)
    assert_allclose(mosaic[18:26, 9:17], atom / np.abs(atom).max(), rtol=1e-6)
    assert [label.get_text() for label in display.ax_.get_yticklabels()] == ["0", "1", "2", "3"]


def test_atoms_that_are_no_pictures(digits, model):
    data, train, _ = digits
    with pytest.raises(ValueError, match=r"8, 9.* 72 pixels.* 64 features"):
        AtomsDisplay.from_estimator(model, (8, 9))
    kernel = LEDLClassifier(kernel="rbf", random_state=0).fit(data.data[train], data.target[train])
    with pytest.raises(TypeError, match="no components_"):
        AtomsDisplay.from_estimator(kernel, (8, 8))


def test_codes_are_sorted_by_class_and_say_right_or_wrong(digits, model):
    data, _, test = digits
    X, y = data.data[test[:3]], data.target[test[:3]]
    display = CodesDisplay.from_estimator(model, X, np.array([y[0], y[1], (y[2] + 1) % 10]))
    assert len(display.axes_) == 3
    verdicts = [ax.get_title(loc="left").split("(")[1] for ax in display.axes_]
    assert verdicts == ["right)" if right else "wrong)" for right in display.predicted == display.y]
    heights = [segment[1, 1] for part in display.axes_[0].collections[:2] for segment in part.get_segments()]
    assert_allclose(sorted(heights), sorted(display.codes[0]))


def test_accuracy_draws_means_and_spreads():
    values = np.array([[70.0, 72.0], [80.0, 84.0]])
    display = AccuracyDisplay([0.25, 0.5], {"LEDL": values}, xlabel="alpha", mark=0.25).plot()
    (curve,) = display.ax_.containers
    assert_allclose(curve.lines[0].get_ydata(), [71, 82])
    assert display.ax_.get_xscale() == "log"
    one = AccuracyDisplay([1, 5], {"SRC": values[:, :1]}, xlabel="samples", base=0).plot(display.figure_.gca())
    assert one.ax_ is display.ax_


def test_examples_are_one_of_each_class(digits):
    data, _, _ = digits
    display = ExamplesDisplay.from_dataset(data, max_classes=4)
    assert display.labels == ["0", "1", "2", "3"]
    with pytest.raises(ValueError, match="no images"):
        ExamplesDisplay.from_dataset({"data": data.data})


def bars(ax):
    """Where they begin and how long they are, from top to bottom."""
    drawn = sorted(ax.patches, key=lambda bar: bar.get_y())
    return np.array([[bar.get_x(), bar.get_width()] for bar in drawn])


@pytest.fixture(scope="module")
def as_images(digits):
    data, train, _ = digits
    return [np.uint8(np.round(x.reshape(8, 8) * 255 / 16)) for x in data.data[train]]


@pytest.mark.parametrize(
    "classifier",
    [LEDLClassifier(random_state=0, max_iter=10, tol=0), SRCClassifier(), CRCClassifier(rule="regularized")],
    ids=["ledl", "src", "crc"],
)
def test_explanation_draws_scores_atoms_and_neighbors(digits, as_images, classifier):
    data, train, test = digits
    classifier.fit(data.data[train], data.target[train])
    found = explain(classifier, data.data[test[5]])
    pictures = Pictures(shape=(8, 8), training=as_images)
    display = ExplanationDisplay(found, pictures, n_atoms=4, n_scores=3).plot()
    display.figure_.canvas.draw()
    axes, best = display.axes_, found.ranking
    (scores,) = axes["scores"]
    assert_allclose(bars(scores).sum(axis=1), found.scores[best[:3]], atol=1e-12)
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


def test_explanation_without_pictures_and_in_part_of_a_figure(digits, model):
    data, _, test = digits
    figure = plt.figure(figsize=(18, 6), layout="constrained")
    left, right = figure.subfigures(1, 2)
    display = ExplanationDisplay.from_estimator(model, data.data[test[0]], figure=right)
    figure.canvas.draw()
    assert display.figure_ is right
    assert left.get_axes() == []
    assert display.axes_["sample"] == display.axes_["atoms"] == []
    assert len(display.axes_["adds"]) > 0
    assert not any(ax.get_images() for ax in right.get_axes())
    with pytest.raises(ValueError, match=r"shape=\(8, 9\)"):
        ExplanationDisplay.from_estimator(model, data.data[test[0]], pictures=Pictures(shape=(8, 9)))


def test_explanation_of_a_kernel_shows_training_images(digits, as_images):
    data, train, test = digits
    kernel = LEDLClassifier(kernel="rbf", random_state=0, max_iter=10, tol=0).fit(
        data.data[train], data.target[train]
    )
    pictures = Pictures(shape=(8, 8), training=as_images)
    display = ExplanationDisplay.from_estimator(kernel, data.data[test[0]], pictures=pictures)
    k, i = display.explanation.decisive_atoms[0], display.explanation.atom_neighbors
    assert_allclose(display.axes_["atoms"][0].get_images()[0].get_array()[..., 0], as_images[i[k, 0]])


def test_explanation_of_nothing_and_of_none_of_these(digits):
    data, train, test = digits
    X, y = data.data[train], data.target[train]
    names = np.array([r"$\frac$ " + "long " * 20 + str(i) for i in range(10)])  # looks like a formula
    classifier = RejectingClassifier(SRCClassifier(), reject=0.9).fit(X, names[y])
    display = ExplanationDisplay.from_estimator(classifier, data.data[test[0]])
    display.figure_.canvas.draw()
    assert display.axes_["scores"][0].get_title(loc="left").startswith("None of these (p = ")
    display = ExplanationDisplay.from_estimator(classifier.estimator_, np.zeros(64))
    display.figure_.canvas.draw()
    assert display.axes_["adds"] == []
