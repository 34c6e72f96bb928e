"""Displays: they hold what they draw, draw it, and refuse what cannot be drawn."""

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.exceptions import NotFittedError

from helpers.models import make
from ledl.datasets import few_shot_splits, load
from ledl.plots import AccuracyDisplay, AtomsDisplay, CodesDisplay, ConvergenceDisplay, ExamplesDisplay

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
    return make("ledl", random_state=0, max_iter=25).fit(data.data[train], data.target[train])


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
    model = make("csdl", random_state=0).fit(X, y)
    (values,) = lines(ConvergenceDisplay.from_estimator(model).ax_).values()
    assert_allclose(values[-1, 1], model.history_["objective"][-1].sum())
    model = make("lcksvd", random_state=0).fit(X, y)
    assert list(lines(ConvergenceDisplay.from_estimator(model).ax_)) == ["objective"]
    with pytest.raises(TypeError, match="CRCClassifier has no iterations"):
        ConvergenceDisplay.from_estimator(make("crc").fit(X, y))
    with pytest.raises(NotFittedError):
        ConvergenceDisplay.from_estimator(make("ledl"))


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


def test_atoms_that_are_not_pictures_are_refused(digits, model):
    data, train, _ = digits
    with pytest.raises(ValueError, match=r"8, 9.* 72 pixels.* 64 features"):
        AtomsDisplay.from_estimator(model, (8, 9))
    kernel = make("ledl-rbf", random_state=0).fit(data.data[train], data.target[train])
    with pytest.raises(TypeError, match="and no pictures"):
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


def test_codes_of_many_samples_are_refused(digits, model):
    data, _, test = digits
    X, y = data.data[test[:31]], data.target[test[:31]]
    message = r"31 samples are too many.*at most 30.*X\[:30\] and y\[:30\]"
    with pytest.raises(ValueError, match=message):
        CodesDisplay.from_estimator(model, X, y)
    with pytest.raises(ValueError, match=message):
        CodesDisplay(model.transform(X), model.atom_classes_, y)
    assert len(CodesDisplay(model.transform(X[:30]), model.atom_classes_, y[:30]).plot().axes_) == 30


def test_accuracy_draws_means_and_spreads():
    values = np.array([[70.0, 72.0], [80.0, 84.0]])
    display = AccuracyDisplay([0.25, 0.5], {"LEDL": values}, xlabel="alpha", mark=0.25).plot()
    (curve,) = display.ax_.containers
    assert_allclose(curve.lines[0].get_ydata(), [71, 82])
    bars = np.array(curve.lines[2][0].get_segments())
    assert_allclose(bars[:, 1, 1] - bars[:, 0, 1], 2 * np.std(values, axis=1, ddof=1))
    assert display.ax_.get_xscale() == "log"
    one = AccuracyDisplay([1, 5], {"SRC": values[:, :1]}, xlabel="samples", base=0).plot(display.figure_.gca())
    assert one.ax_ is display.ax_


def test_examples_are_one_of_each_class(digits):
    data, _, _ = digits
    display = ExamplesDisplay.from_dataset(data, max_classes=4)
    assert display.labels == ["0", "1", "2", "3"]
    with pytest.raises(ValueError, match="no images"):
        ExamplesDisplay.from_dataset({"data": data.data})
