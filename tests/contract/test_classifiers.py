"""What every classifier promises beyond scikit-learn's checks."""

import pickle

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV

from helpers.models import CLASSIFIERS, make
from ledl.datasets import few_shot_splits


@pytest.fixture(params=CLASSIFIERS)
def classifier(request):
    return make(request.param, random_state=0)


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    train, test = next(few_shot_splits(y))
    return X[train], y[train], X[test][:150], y[test][:150]


def test_parameters_are_keyword_only_with_defaults(classifier):
    with pytest.raises(TypeError):
        type(classifier)(0.1)
    assert clone(classifier).get_params() == classifier.get_params()


def test_it_learns(classifier, digits):
    X, y, new, truth = digits
    assert classifier.fit(X, y).score(new, truth) > 0.6
    model = getattr(classifier, "best_estimator_", classifier)
    is_kernel = hasattr(model, "dual_components_")
    atoms = model.dual_components_ if is_kernel else model.components_
    assert atoms.shape == (classifier.transform(new).shape[1], 50 if is_kernel else 64)


def test_same_seed_same_scores(classifier, digits):
    X, y, new, _ = digits
    scores = [clone(classifier).fit(X, y).decision_function(new) for _ in range(2)]
    assert_array_equal(*scores)
    threads = clone(classifier).set_params(n_jobs=2).fit(X, y).decision_function(new)
    assert_allclose(threads, scores[0], atol=1e-10)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_type_of_the_input_is_kept(classifier, digits, dtype):
    X, y, new, _ = (a.astype(dtype) if a.ndim == 2 else a for a in digits)
    classifier.fit(X, y)
    assert classifier.decision_function(new).dtype == dtype
    assert classifier.transform(new).dtype == dtype
    for name in ("components_", "dual_components_", "label_components_"):
        assert getattr(classifier, name, np.empty(0, dtype)).dtype == dtype


def test_float32_predicts_as_float64(classifier, digits):
    X, y, new, _ = digits
    double = clone(classifier).fit(X, y).predict(new)
    single = classifier.fit(X.astype(np.float32), y).predict(new.astype(np.float32))
    assert np.mean(double == single) > 0.97


def test_labels_of_any_kind_order_and_number(classifier, digits, rng):
    X, y, new, _ = digits
    names = np.array([f"class {j}" for j in range(10)])[::-1]
    order = rng.permutation(len(y))[: len(y) - 7]  # shuffled, and unbalanced
    model = classifier.fit(X[order], names[y[order]])
    assert_array_equal(model.classes_, np.unique(names[y[order]]))
    assert set(model.predict(new)) <= set(names)
    assert model.decision_function(new).shape == (len(new), 10)
    assert set(getattr(model, "atom_classes_", names)) <= set(names)


def test_two_classes_have_one_score(classifier, digits):
    X, y, new, _ = digits
    model = classifier.fit(X[y < 2], y[y < 2])
    scores = model.decision_function(new)
    assert scores.shape == (len(new),)
    assert_array_equal(model.predict(new), (scores > 0).astype(int))


def test_a_class_with_one_sample(classifier, digits):
    X, y, new, _ = digits
    kept = np.flatnonzero((y != 3) | (np.cumsum(y == 3) == 1))
    model = classifier.fit(X[kept], y[kept])
    assert np.isfinite(model.decision_function(new)).all()
    assert model.predict(X[kept][y[kept] == 3]).shape == (1,)


@pytest.mark.filterwarnings("ignore:.*samples are all zero:UserWarning")
def test_zero_and_repeated_samples(classifier, digits):
    X, y, new, _ = digits
    X = np.concatenate([X, X[:7], np.zeros((1, X.shape[1]))])
    y = np.concatenate([y, y[:7], [4]])
    new = np.concatenate([new, np.zeros((1, X.shape[1]))])
    scores = classifier.fit(X, y).decision_function(new)
    assert np.isfinite(scores).all()
    assert np.isfinite(classifier.transform(new)).all()
    if getattr(classifier, "kernel", "linear") == "linear":
        assert not scores[-1].any()


def test_scores_decide(classifier, digits):
    X, y, new, _ = digits
    model = classifier.fit(X, y)
    assert_array_equal(model.predict(new), model.classes_[model.decision_function(new).argmax(axis=1)])


def test_scale_of_a_sample_does_not_matter(classifier, digits, rng):
    if getattr(classifier, "kernel", "linear") in ("rbf", "poly"):
        pytest.skip("these kernels see the scale")
    X, y, new, _ = digits
    scores = clone(classifier).fit(X, y).decision_function(new)
    scaled = classifier.fit(X * rng.uniform(0.1, 10, (len(X), 1)), y).decision_function(7 * new)
    assert_allclose(scaled, scores, atol=1e-5)


def test_a_pickled_model_is_the_same(classifier, digits):
    X, y, new, _ = digits
    model = classifier.fit(X, y)
    assert_array_equal(pickle.loads(pickle.dumps(model)).decision_function(new), model.decision_function(new))


def test_input_is_not_written(classifier, digits):
    X, y, new, _ = (a.copy() for a in digits)
    for array in (X, y, new):
        array.flags.writeable = False
    classifier.fit(X, y).predict(new)
    assert_array_equal(X, digits[0])


def test_bad_input_is_told(classifier, digits):
    X, y, new, _ = digits
    with pytest.raises(NotFittedError):
        classifier.predict(new)
    with pytest.raises(ValueError, match="two classes"):
        classifier.fit(X, np.zeros(len(X)))
    with pytest.raises(ValueError, match="All samples are zero"):
        classifier.fit(0 * X, y)
    with pytest.raises(ValueError, match=r"reshape\(len\(X\), -1\)"):
        classifier.fit(X.reshape(-1, 8, 8), y)
    with pytest.raises(ValueError, match=r"reshape\(len\(X\), -1\)"):
        classifier.fit(list(X.reshape(-1, 8, 8)), y)
    with pytest.raises(ValueError, match="NaN"):
        classifier.fit(np.where(X.max() == X, np.nan, X), y)
    with pytest.raises(ValueError, match="features"):
        classifier.fit(X, y).predict(new[:, :-1])


@pytest.mark.parametrize("scale", [1e200, 1e-200])
def test_numbers_whose_squares_are_of_no_use_are_told(classifier, digits, scale):
    X, y, new, _ = digits
    if getattr(classifier, "kernel", "linear") != "linear":
        pytest.skip("kernels have their own message")
    if hasattr(classifier, "kernels"):
        classifier.set_params(kernels="linear")  # the squares of square roots are of use
    classifier.set_params(normalize=False).fit(X / 16, y)
    with pytest.raises(ValueError, match=r"X has numbers of size .* in row 0.*Scale X"):
        classifier.predict(scale * new)
    with pytest.raises(ValueError, match=r"X has numbers of size .* in row 0.*Scale X"):
        classifier.fit(scale * X, y)


def test_a_failed_fit_leaves_the_model_as_it_was(classifier, digits):
    X, y, new, _ = digits
    frame = pd.DataFrame(X).rename(columns=str)
    before = classifier.fit(frame, y).predict(pd.DataFrame(new).rename(columns=str))
    for bad, labels, message in [
        (np.zeros((50, 30)), y, "All samples are zero"),
        (X[:, :30], np.zeros(50), "two classes"),
        (np.full((50, 30), np.nan), y, "NaN"),
    ]:
        with pytest.raises(ValueError, match=message):
            classifier.fit(bad, labels)
        assert_array_equal(classifier.predict(pd.DataFrame(new).rename(columns=str)), before)


def test_parameters_that_are_set_later_are_checked(classifier, digits):
    X, y, new, _ = digits
    classifier.fit(X, y)
    for bad in ({"alpha": -1.0}, {"n_nonzero_coefs": 0}, {"rule": "rls"}, {"n_jobs": 0}):
        if set(bad) <= set(classifier.get_params()):
            before = {name: classifier.get_params()[name] for name in bad}
            with pytest.raises(ValueError, match=f"'{next(iter(bad))}' parameter"):
                classifier.set_params(**bad).predict(new)
            classifier.set_params(**before)


def test_how_samples_are_scaled_waits_for_the_next_fit(classifier, digits):
    X, y, new, _ = digits
    before = classifier.fit(X, y).predict(new)
    other = {"kernel": "rbf" if getattr(classifier, "kernel", "linear") == "linear" else "linear", "gamma": 1.0}
    known = {name: value for name, value in other.items() if name in classifier.get_params()}
    classifier.set_params(normalize=False, **known)
    assert_array_equal(classifier.predict(new), before)


def test_grid_search_and_feature_names(classifier, digits):
    X, y, new, _ = digits
    search = GridSearchCV(classifier, {"normalize": [True, False]}, cv=2, error_score="raise").fit(X / 16, y)
    assert search.predict(new / 16).shape == (len(new),)
    model = classifier.fit(X, y)
    names = model.get_feature_names_out()
    assert len(names) == model.transform(new).shape[1]
    assert names[0] == f"{type(model).__name__.lower()}0"
