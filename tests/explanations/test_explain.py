"""Explanations: contributions that add up, and a reconstruction and neighbours that are what they say."""

import re
import tracemalloc
from itertools import combinations
from math import comb
from unittest.mock import patch

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from helpers.digits import few_digits
from helpers.models import make
from ledl import CRCClassifier, LEDLClassifier, LEDLClassifierCV, RejectingClassifier, explain
from ledl.features import PixelFeatures
from ledl.subspace import RowSpace

NAMES = [
    "ledl", "ledl-rbf", "ledl-residual", "src", "src-poly", "crc", "crc-regularized", "csdl", "dksvd",
    "dksvd-all", "lcksvd",
]  # fmt: skip


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X.astype(np.float64), y


@pytest.fixture(scope="module", params=[*NAMES, "crc-regularized, hellinger"])
def fitted(request, digits):
    X, y = digits
    name, _, kernel = request.param.partition(", ")
    model = make(name, n_nonzero_coefs=5, random_state=0)
    return model.set_params(**({"kernel": kernel} if kernel else {})).fit(X[:80], y[:80])


def test_contributions_add_up_to_the_scores(fitted, digits):
    X, _ = digits
    for x, expected in zip(X[80:90], fitted.decision_function(X[80:90]), strict=True):
        found = explain(fitted, x)
        sums = found.base + found.contributions.sum(axis=0)
        np.testing.assert_allclose(sums, expected, rtol=0, atol=1e-12 * max(1, np.abs(found.base).max()))
        np.testing.assert_array_equal(found.scores.argmax(), expected.argmax())
        assert found.predicted == fitted.predict(x[None])[0]


@pytest.mark.filterwarnings("ignore:.*samples are all zero:UserWarning")
@pytest.mark.parametrize("rule", ["classifier", "residual", "regularized"])
def test_probabilities_are_those_of_the_model(rule, digits):
    X, y = digits
    model = make("ledl-cv", rules=rule, random_state=0).fit(X[:80], y[:80])
    wrapped = make_pipeline(StandardScaler(), RejectingClassifier(make("ledl-cv", rules=rule, cv=2), cv=2))
    wrapped.fit(X[:80], y[:80])
    inner = wrapped[-1].estimator_
    for x in X[80:90]:
        found, expected = explain(model, x), model.predict_proba(x[None])[0]
        np.testing.assert_allclose(found.probabilities, expected, rtol=0, atol=1e-12)
        assert found.probabilities.argmax() == found.ranking[0]
        expected = inner.predict_proba(wrapped[:-1].transform(x[None]))[0]
        np.testing.assert_allclose(explain(wrapped, x).probabilities, expected, rtol=0, atol=1e-12)
    assert f"{found.predicted}, " in found.text().splitlines()[0]
    assert " % sure, ahead of " in found.text().splitlines()[0]
    assert explain(model.best_estimator_, X[80]).probabilities is None
    np.testing.assert_allclose(explain(model, np.zeros(64)).probabilities, 0.1)


def test_the_base_of_residuals_is_the_squared_norm(digits):
    X, y = digits
    for model in (make("src"), make("src", normalize=False, alpha=1.0)):
        found = explain(model.fit(X[:80], y[:80]), X[80])
        expected = -1.0 if model.normalize else -X[80] @ X[80]
        np.testing.assert_allclose(found.base, expected, rtol=1e-6)
    assert not explain(make("ledl", random_state=0).fit(X[:80], y[:80]), X[80]).base.any()


def test_contributions_of_residuals_are_shapley_values(digits):
    """By their definition: the mean over all orders of what an atom adds to those before it."""
    X, y = digits
    few = np.concatenate([np.flatnonzero(y == j)[:4] for j in (0, 1)])
    model = make("src", alpha=1e-4).fit(X[few], y[few])
    x = X[np.flatnonzero(y == 0)[5]]
    x = x / np.linalg.norm(x)
    found = explain(model, x)
    own = np.flatnonzero(found.atom_classes == 0)

    def value(atoms):
        rest = x - sum((found.codes[k] * found.atoms[k] for k in atoms), np.zeros(len(x)))
        return -rest @ rest

    for k in own:
        others = [i for i in own if i != k]
        shapley = sum(
            (value([*chosen, k]) - value(chosen)) / (len(own) * comb(len(others), size))
            for size in range(len(own))
            for chosen in combinations(others, size)
        )
        np.testing.assert_allclose(found.contributions[k, 0], shapley, atol=1e-12)
    assert np.ptp(found.contributions[own, 0]) > 0.01


def test_ridge_codes_explain_the_rule_that_takes_them(digits):
    X, y = digits
    model = make("ledl-regularized", ridge_alpha=0.1, random_state=0).fit(X[:80], y[:80])
    for x, expected in zip(X[80:85], model.decision_function(X[80:85]), strict=True):
        found, B, unit = explain(model, x), model.components_, x / np.linalg.norm(x)
        ridge = np.linalg.solve(B @ B.T + 0.1 * np.eye(len(B)), B @ unit)
        np.testing.assert_allclose(found.codes, ridge, atol=1e-8)
        sums = found.base + found.contributions.sum(axis=0)
        np.testing.assert_allclose(sums, expected, atol=1e-12 * np.abs(found.base).max())


@pytest.mark.parametrize("scale", [1e200, 1e-200])
def test_the_reconstruction_has_the_scale_of_the_sample_however_large(scale, digits):
    X, y = digits[0][:40] * scale, digits[1][:40]
    found = explain(make("crc").fit(X, y), X[0])
    assert np.abs(found.reconstruction / scale - X[0] / scale).max() < 2


def test_the_reconstruction_is_made_of_the_atoms_in_the_scale_of_the_sample(fitted, digits):
    x = digits[0][85]
    found = explain(fitted, x)
    if getattr(fitted, "kernel", "linear") == "hellinger":
        x = np.sqrt(x)
    np.testing.assert_array_equal(found.sample, x)
    if hasattr(fitted, "dual_components_"):
        assert found.reconstruction is None
        assert found.atoms is None
        return
    np.testing.assert_allclose(found.codes, fitted.transform(digits[0][85:86])[0], atol=1e-12)
    expected = found.codes @ fitted.components_ * np.linalg.norm(x)
    np.testing.assert_allclose(found.reconstruction, expected, atol=1e-9 * np.linalg.norm(x))
    assert np.linalg.norm(x - found.reconstruction) < 0.5 * np.linalg.norm(x)


@pytest.mark.parametrize("name", ["ledl", "crc", "lcksvd"])
def test_neighbours_are_the_training_samples_with_the_largest_cosines(name, digits, monkeypatch):
    """Centred samples have negative cosines, too. For atoms, whose codes may be negative, signs are ignored."""
    monkeypatch.setattr("ledl.explanations._explain.BATCH", 3 * 80)  # three atoms at a time
    X, y = digits
    X = X - X[:80].mean(axis=0)
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    cosines = unit[:80] @ unit[85]
    expected = np.argsort(-cosines)[:7]
    model = make(name, random_state=0).fit(X[:80], y[:80])
    found = explain(model, X[85], n_neighbors=7)
    np.testing.assert_array_equal(found.neighbors, expected)
    np.testing.assert_allclose(found.similarities, cosines[expected], atol=1e-10)
    np.testing.assert_array_equal(found.neighbor_classes, y[:80][expected])
    used = np.flatnonzero(found.codes)
    assert (found.atom_neighbors[np.setdiff1d(np.arange(len(found.codes)), used)] == -1).all()
    if name == "crc":
        np.testing.assert_array_equal(found.atom_neighbors[used, 0], used)
        return
    to_atoms = model.components_[used] @ unit[:80].T
    near = np.argsort(-np.abs(to_atoms), axis=1, kind="stable")[:, :7]
    assert (np.take_along_axis(to_atoms, near, axis=1) < -0.1).any()
    np.testing.assert_array_equal(found.atom_neighbors[used], near)


@pytest.mark.parametrize(
    "model", [CRCClassifier(), LEDLClassifier(rule="ridge", max_iter=2, tol=0, random_state=0)]
)
def test_dense_codes_are_explained_with_little_memory(model):
    """2,000 atoms that are all used, and 4,000 samples: not all cosines between them at once."""
    X = np.random.default_rng(0).random((4000, 16))
    model.fit(X, np.arange(4000) % 10)
    tracemalloc.start()
    try:
        explain(model, X[0])
        assert tracemalloc.get_traced_memory()[1] < 2**20 * 50  # all cosines, once: 61 and 122 MiB
    finally:
        tracemalloc.stop()


def test_models_of_many_samples_have_no_neighbours_but_explain(digits, monkeypatch):
    X, y = digits
    monkeypatch.setattr("ledl.estimators._base.KEPT_NUMBERS", 100)
    found = explain(make("ledl", random_state=0).fit(X[:80], y[:80]), X[85])
    assert len(found.neighbors) == 0
    assert (found.atom_neighbors == -1).all()
    assert "not kept" in str(found)


def test_the_margin_ranks_the_atoms(fitted, digits):
    found = explain(fitted, digits[0][85])
    first, second = np.argsort(-found.scores)[:2]
    np.testing.assert_allclose(
        found.margins.sum(),
        found.scores[first] - found.scores[second] - (found.base[first] - found.base[second]),
    )
    sizes = np.abs(found.margins[found.decisive_atoms])
    assert (np.diff(sizes) <= 0).all()
    used = (found.codes != 0) | (found.contributions != 0).any(axis=1)
    assert set(found.decisive_atoms) == set(np.flatnonzero(used))
    assert set(found.decisive_atoms) == set(np.flatnonzero(found.codes))
    assert str(found.classes[first]) in str(found)
    assert repr(found).startswith("Explanation(")


def test_the_answer_is_compared_with_the_class_that_is_asked_about(fitted, digits):
    X, _ = digits
    plain = explain(fitted, X[85])
    first, asked = plain.ranking[0], plain.ranking[6]
    found = explain(fitted, X[85], against=plain.classes[asked], n_neighbors=3)
    assert found.against == plain.classes[asked]
    np.testing.assert_array_equal(found.compared, [first, asked])
    np.testing.assert_array_equal(plain.compared, plain.ranking[:2])
    margins = plain.contributions[:, first] - plain.contributions[:, asked]
    np.testing.assert_array_equal(found.margins, margins)
    order = sorted(np.flatnonzero(plain.codes), key=lambda k: -abs(margins[k]))
    np.testing.assert_allclose(np.abs(margins[found.decisive_atoms]), np.abs(margins[order]))
    lines = found.text().splitlines()
    assert f"ahead of {found.against}, by " in lines[0]
    (scores,) = [line.split()[1:] for line in lines if line.startswith("score ")]
    np.testing.assert_allclose(np.array(scores, dtype=float), plain.scores[[first, asked]], atol=6e-5)
    start = lines.index(f"nearest training samples of {found.against}:")
    named = [int(line.split()[1]) for line in lines[start + 1 : start + 4]]
    assert named == found.against_neighbors.tolist()
    assert plain.against is None
    assert len(plain.against_neighbors) == 0


def test_look_alikes_of_the_class_that_is_asked_about_are_its_nearest_samples(digits):
    X, y = digits
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    cosines = unit[:80] @ unit[85]
    model = make("ledl", random_state=0).fit(X[:80], y[:80])
    answer = model.predict(X[85:86])[0]
    for asked in set(range(10)) - {answer}:
        found = explain(model, X[85], against=asked, n_neighbors=4)
        own = np.flatnonzero(y[:80] == asked)
        expected = own[np.argsort(-cosines[own], kind="stable")][:4]
        np.testing.assert_array_equal(found.against_neighbors, expected)
        np.testing.assert_allclose(found.against_similarities, cosines[expected], atol=1e-10)


def test_a_class_to_compare_with_must_be_another_class_of_the_model(digits):
    X, y = digits
    model = make("src").fit(X[:80], y[:80])
    answer, other = explain(model, X[85]).classes[explain(model, X[85]).ranking[[0, 4]]]
    assert explain(model, X[85], against=str(other)).against == other  # as the command line gives it
    with pytest.raises(ValueError, match=rf"against={answer} is the answer itself\. Name another"):
        explain(model, X[85], against=int(answer))
    with pytest.raises(ValueError, match=r"'eleven' is not a class.*classes are") as caught:
        explain(model, X[85], against="eleven")
    assert sorted(re.findall(r"\d", str(caught.value))) == list("0123456789")
    rejecting = RejectingClassifier(make("src"), reject=0.99).fit(X[:80], y[:80])
    with pytest.raises(ValueError, match="nearest to this sample, which was rejected"):
        explain(rejecting, X[85], against=answer)
    names = np.array([f"kind {i}" for i in range(40)])
    many = make("crc").fit(X[:80], np.tile(names, 2))
    with pytest.raises(ValueError, match="and 30 more") as caught:
        explain(many, X[85], against="kind 39x")
    listed = str(caught.value).partition("classes are ")[2].partition(" and 30 more")[0].split(", ")
    assert len(listed) == 10
    assert listed[0] == "kind 39"  # the one that is most like it


@pytest.mark.filterwarnings("ignore:.*samples are all zero:UserWarning")
def test_two_classes_strings_zeros_and_float32(digits):
    X, y = digits
    two = y < 2
    names = np.array(["cat", "dog"])[y[two]]
    model = make("ledl", random_state=0).fit(X[two][:30].astype(np.float32), names[:30])
    found = explain(model, X[two][40].astype(np.float32))
    assert found.predicted == model.predict(X[two][40:41])[0]
    difference = model.decision_function(X[two][40:41].astype(np.float32))[0]
    np.testing.assert_allclose(found.scores[1] - found.scores[0], difference, rtol=1e-4)
    nothing = explain(model, np.zeros(64))
    assert not nothing.contributions.any()
    assert len(nothing.decisive_atoms) == 0
    assert "cat" in str(nothing)


def test_in_pipelines_and_wrappers(digits):
    X, y = digits
    scaled = make_pipeline(StandardScaler(), make("src")).fit(X[:80], y[:80])
    found = explain(scaled, X[85])
    np.testing.assert_allclose(found.sample, scaled[:-1].transform(X[85:86])[0])
    np.testing.assert_allclose(found.scores, scaled.decision_function(X[85:86])[0], atol=1e-10)
    assert found.p_value is None
    rejecting = RejectingClassifier(make_pipeline(StandardScaler(), make("src")), reject=0.5)
    found = explain(rejecting.fit(X[:80], y[:80]), X[85])
    np.testing.assert_allclose(found.p_value, rejecting.p_values(X[85:86])[0])
    assert found.rejected == (found.p_value <= 0.5)
    share = f"{100 * found.p_value:.0f} % of the training samples fit their class no better"
    assert share in found.text().splitlines()[0]
    outside = make_pipeline(StandardScaler(), RejectingClassifier(make("src"))).fit(X[:80], y[:80])
    np.testing.assert_allclose(explain(outside, X[85]).scores, found.scores)


def test_a_pipeline_of_images_takes_an_image(digits):
    pytest.importorskip("PIL")
    X, y = digits
    images = [np.uint8(x.reshape(8, 8) * 15) for x in X[:81]]
    model = make_pipeline(PixelFeatures(size=8), make("ledl", random_state=0)).fit(images[:80], y[:80])
    found = explain(model, images[80])
    np.testing.assert_allclose(found.scores, model.decision_function(images[80:])[0], atol=1e-6)


def test_what_cannot_be_explained_is_refused(digits):
    X, y = digits
    with pytest.raises(NotFittedError):
        explain(make("ledl"), X[0])
    model = make("ledl", random_state=0).fit(X[:80], y[:80])
    with pytest.raises(ValueError, match="one sample"):
        explain(model, X[:2])
    for wrong in (0, -1, 2.5):
        with pytest.raises(ValueError, match="n_neighbors"):
            explain(model, X[0], n_neighbors=wrong)
    assert len(explain(model, X[0], n_neighbors=1000).neighbors) == 80
    with pytest.raises(ValueError, match="features"):
        explain(model, X[0, :10])
    with pytest.raises(TypeError, match="no atoms"):
        explain(LogisticRegression().fit(X[:80], y[:80]), X[85])


@pytest.mark.parametrize("name", ["ledl", "crc-regularized"])
def test_the_rows_of_the_text_add_up_to_the_scores(digits, name):
    X, y = digits
    found = explain(make(name, random_state=0).fit(X[:80], y[:80]), X[80])
    lines = found.text().splitlines()
    first, last = (next(i for i, line in enumerate(lines) if line.startswith(w)) for w in ("start", "others"))
    columns = np.array([line.split()[-2:] for line in lines[first : last + 1]], dtype=float)
    np.testing.assert_allclose(columns.sum(axis=0), found.scores[found.ranking[:2]], atol=1e-3)


def test_a_frame_of_one_row_keeps_its_names(digits):
    X, y = digits
    frame = pd.DataFrame(X[:81]).add_prefix("p")
    for model in (make("crc"), make_pipeline(StandardScaler(), make("crc"))):
        found = explain(model.fit(frame[:80], y[:80]), frame[80:])  # a warning would be an error here
        assert found.predicted == model.predict(frame[80:])[0]


def test_atoms_are_not_made_again_for_each_explanation():
    """With fewer samples than features that takes as long as a fit."""
    X, y, new, _ = few_digits(2)
    for model in (CRCClassifier().fit(X, y), LEDLClassifierCV(max_iter=2, tol=0, random_state=0).fit(X, y)):
        space = type(model.dictionary_.space)
        assert space is RowSpace
        with patch.object(space, "expand", autospec=True, side_effect=space.expand) as expand:
            found = explain(model, new[0])
        assert all(call.args[1].ndim == 1 for call in expand.call_args_list)  # what the code rebuilds
        np.testing.assert_array_equal(found.atoms[: len(model.components_)], model.components_)
