"""What holds for every estimator whatever the labels, types, layouts and sizes, on problems drawn at random.

Where a problem is changed in a way that a method must not see, the answers are the same: exactly if the same
arithmetic is done, else up to its rounding. A few problems each in CI, always the same ones; with -m slow many,
others every time.
"""

import warnings
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone, is_classifier

from helpers.models import ESTIMATORS, make
from ledl import BatchedSearchCV, CRCClassifier, LEDLClassifier, sparse_encode

# Some problems have classes of one sample.
pytestmark = pytest.mark.filterwarnings("ignore:Fewer than two classes have more than one sample:UserWarning")
# Codes that a tolerance could change would hide what is looked for; kernels must not see added features.
STRICT = {"transform_tol": 1e-10, "gamma": 0.003, "n_nonzero_coefs": 2, "random_state": 0}
# These have no random start: their atoms are the samples, whose order must not matter.
SAMPLES_AS_ATOMS = [name for name in ESTIMATORS if name.startswith(("crc", "src"))]


class Problem(NamedTuple):
    X: np.ndarray  # (n, d), not negative, so that every kernel takes it
    labels: np.ndarray  # 0, ..., c - 1, in no order, with different numbers of samples, maybe one
    new: np.ndarray
    rng: np.random.Generator

    @property
    def n_classes(self):
        return self.labels.max() + 1


def make_problem(seed, counts, n_features):
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.repeat(np.arange(len(counts)), counts))
    centres = 4 * rng.random((len(counts), n_features))
    X = centres[labels] + rng.random((len(labels), n_features))
    return Problem(X, labels, 4 * rng.random((6, n_features)), rng)


problems = st.builds(
    make_problem,
    seed=st.integers(0, 2**32 - 1),
    counts=st.lists(st.integers(1, 6), min_size=2, max_size=4).filter(lambda counts: sum(counts) > 4),
    n_features=st.integers(3, 20),  # fewer and more than samples
)


@pytest.fixture(params=[3, pytest.param(150, marks=pytest.mark.slow)], ids=["few", "many"])
def on_problems(request):
    """Runs a check on some problems, or on those that a strategy draws."""
    few = request.param < 10
    # A problem is a seed and a few small numbers: there is nothing to gain from smaller ones.
    options = {"deadline": None, "database": None, "derandomize": few, "phases": [Phase.generate]}

    def run(check, *strategies):
        settings(max_examples=request.param, **options)(given(*(strategies or (problems,)))(check))()

    return run


@pytest.fixture(params=ESTIMATORS)
def estimator(request):
    return make(request.param, **STRICT)


def some(values, model, rng):
    """Return all values for CRC, which is fitted fastest, and two for others, which share its checks."""
    values = list(values)
    if isinstance(model, CRCClassifier) and model.kernel == "linear":
        return values
    return [values[i] for i in rng.choice(len(values), min(2, len(values)), replace=False)]


@pytest.fixture(params=SAMPLES_AS_ATOMS)
def samples_as_atoms(request):
    return make(request.param, **STRICT)


def kernel_of(model):
    """The kernel; of a search the one among its candidates that asks most of samples."""
    return "hellinger" if hasattr(model, "kernels") else getattr(model, "kernel", "linear")


def answers(model, new):
    """Scores of a classifier, codes of a transformer."""
    return model.decision_function(new) if is_classifier(model) else model.transform(new)


def fitted_answers(model, X, y, new):
    return answers(clone(model).fit(X, y), new)


def all_scores(model, new):
    """A column a class even for two classes, as relabelling needs it."""
    scores = model.decision_function(new)
    return scores if scores.ndim == 2 else np.stack([-scores, scores], axis=1)


# For each kind of label, a sorted list of four or more.
LABELS = {
    "negative": np.array([-7, -3, 0, 12], dtype=np.int8),
    "large": np.array([0, 2**40, 2**53 + 1, 2**62], dtype=np.int64),
    "unsigned": np.array([1, 2, 200, 255], dtype=np.uint8),
    "floats": np.array([-2.0, 0.0, 3.0, 1e6]),
    "text": np.array(["", "A class", "b", "ß 猫"]),
    "objects": np.array(["a", "b", "c", "d"], dtype=object),
    "bools": np.array([False, True]),
}


def test_labels_of_any_kind(estimator, on_problems):
    if not is_classifier(estimator):
        pytest.skip("it has no labels")

    def check(problem):
        X, labels, new, rng = problem
        plain = clone(estimator).fit(X, labels)
        for kind, names in some(LABELS.items(), estimator, rng):
            if len(names) >= problem.n_classes:
                chosen = names[np.sort(rng.choice(len(names), problem.n_classes, replace=False))]
                model = clone(estimator).fit(X, chosen[labels])
                assert model.classes_.dtype == model.predict(new).dtype == chosen.dtype, kind
                assert_array_equal(model.classes_, chosen, err_msg=kind)
                assert_array_equal(model.predict(new), chosen[plain.predict(new)], err_msg=kind)
        column = pd.Series(labels, index=rng.permutation(len(labels)) + 7).astype("category")
        assert_array_equal(clone(estimator).fit(X, column).predict(new), plain.predict(new))

    on_problems(check)


def test_renaming_classes_renames_predictions(samples_as_atoms, on_problems):
    def check(problem):
        X, labels, new, rng = problem
        names = rng.permutation(problem.n_classes)
        plain = clone(samples_as_atoms).fit(X, labels)
        renamed = clone(samples_as_atoms).fit(X, names[labels])
        assert_allclose(all_scores(renamed, new)[:, names], all_scores(plain, new), atol=1e-8, rtol=1e-6)

    on_problems(check)


def test_numbers_of_any_type_are_their_values(estimator, on_problems):
    def check(problem):
        X, labels, new = np.floor(4 * problem.X), problem.labels, np.floor(4 * problem.new)
        same = fitted_answers(estimator, X, labels, new)
        for dtype in some(("f2", "i1", "u1", "i4", "u8", ">f8", ">i2"), estimator, problem.rng):
            found = fitted_answers(estimator, X.astype(dtype), labels, new.astype(dtype))
            assert_array_equal(found, same, err_msg=dtype)
        bits, new_bits = X > 8, new > 8
        if bits.any(axis=1).all() and new_bits.any(axis=1).all():  # else there is little to tell
            same = fitted_answers(estimator, bits.astype(np.float64), labels, new_bits.astype(np.float64))
            assert_array_equal(fitted_answers(estimator, bits, labels, new_bits), same)

    on_problems(check)


def frame(X):
    return pd.DataFrame(X, index=np.arange(len(X))[::-1], columns=[f"f{i}" for i in range(X.shape[1])])


def read_only(X):
    X = X.copy()
    X.flags.writeable = False
    return X


def unaligned(X):
    buffer = np.zeros(X.nbytes + 1, dtype=np.uint8)
    view = buffer[1:].view(X.dtype).reshape(X.shape)
    view[...] = X
    return view


LAYOUTS = {
    "columns first": np.asfortranarray,
    "every other": lambda X: np.repeat(np.repeat(X, 2, axis=0), 3, axis=1)[::2, ::3],
    "backwards": lambda X: X[::-1, ::-1].copy()[::-1, ::-1],
    "repeated by stride 0": lambda X: np.broadcast_to(X[None], (2, *X.shape))[1],
    "read-only": read_only,
    "unaligned": unaligned,
    "frame": frame,
    "lists": lambda X: X.tolist(),
}


def test_layout_does_not_matter(estimator, on_problems):
    def check(problem):
        X, labels, new, rng = problem
        same = fitted_answers(estimator, X, labels, new)
        for name, laid_out in some(LAYOUTS.items(), estimator, rng):
            found = fitted_answers(estimator, laid_out(X), labels, laid_out(new))
            assert_array_equal(found, same, err_msg=name)

    on_problems(check)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_scale_of_all_samples_does_not_matter(estimator, dtype, on_problems):
    """Even where squares would be infinite, without a kernel; with gamma="scale" kernels follow it."""
    model = clone(estimator).set_params(normalize=True)
    is_linear = kernel_of(model) == "linear"
    if "gamma" in model.get_params():
        model.set_params(gamma="scale")

    def check(problem, power, other_power):
        X, labels, new, _ = (a.astype(dtype) if getattr(a, "ndim", 0) == 2 else a for a in problem)
        power, other_power = (8 * p if dtype == np.float64 and is_linear else p for p in (power, other_power))
        other = power if kernel_of(model) in ("rbf", "poly") else other_power
        scaled = dtype(10) ** dtype(power) * X, dtype(10) ** dtype(other) * new
        same, found = fitted_answers(model, X, labels, new), fitted_answers(model, scaled[0], labels, scaled[1])
        tolerance = 1e-6 if dtype == np.float64 else 1e-2
        assert_allclose(found, same, rtol=tolerance, atol=tolerance * max(1, np.abs(same).max()))

    powers = st.sampled_from([-30, -12, 5, 30])
    on_problems(check, problems, powers, powers)


def test_order_of_training_samples_does_not_matter(samples_as_atoms, on_problems):
    def check(problem):
        X, labels, new, rng = problem
        order = rng.permutation(len(X))
        plain = clone(samples_as_atoms).fit(X, labels)
        shuffled = clone(samples_as_atoms).fit(X[order], labels[order])
        assert_allclose(answers(shuffled, new), answers(plain, new), atol=1e-8, rtol=1e-6)
        assert_allclose(shuffled.transform(new), plain.transform(new)[:, order], atol=1e-5)

    on_problems(check)


def test_order_of_features_and_empty_ones_do_not_matter(estimator, on_problems):
    def check(problem):
        X, labels, new, rng = problem
        order = rng.permutation(X.shape[1] + rng.integers(0, 8))

        def changed(Y):
            return np.pad(Y, ((0, 0), (0, len(order) - Y.shape[1])))[:, order]

        same = fitted_answers(estimator, X, labels, new)
        # Iterations of LEDL make rounding errors larger.
        assert_allclose(fitted_answers(estimator, changed(X), labels, changed(new)), same, atol=1e-4)

    on_problems(check)


def test_rotation_does_not_matter(estimator, on_problems):
    if kernel_of(estimator) == "hellinger":
        pytest.skip("it sees each feature by itself")

    def check(problem):
        X, labels, new, rng = problem
        rotation = np.linalg.qr(rng.standard_normal((X.shape[1], X.shape[1])))[0]
        same = fitted_answers(estimator, X, labels, new)
        assert_allclose(fitted_answers(estimator, X @ rotation, labels, new @ rotation), same, atol=1e-4)

    on_problems(check)


def test_a_sample_has_its_answer_whatever_comes_with_it(estimator, on_problems):
    def check(problem):
        X, labels, new, rng = problem
        model = clone(estimator).fit(X, labels)
        together, order = answers(model, new), rng.permutation(len(new))
        one_by_one = np.concatenate([answers(model, new[i : i + 1]) for i in range(len(new))])
        assert_allclose(one_by_one, together, atol=1e-8, rtol=1e-6)
        assert_allclose(answers(model, new[order]), together[order], atol=1e-8, rtol=1e-6)
        many = np.tile(new, (100, 1))  # several chunks
        for n_jobs in (1, 3):
            found = answers(model.set_params(n_jobs=n_jobs), many)
            assert_allclose(found, np.tile(together, (100, *[1] * (together.ndim - 1))), atol=1e-8, rtol=1e-6)

    on_problems(check)


def test_an_earlier_fit_leaves_nothing(estimator, on_problems):
    def check(problem, earlier):
        fresh, used = clone(estimator), clone(estimator)
        for other in ({}, {"kernel": "hellinger", "keep_codes": True}):  # which have attributes of their own
            known = {name: value for name, value in other.items() if name in used.get_params()}
            used.set_params(**known).fit(frame(earlier.X), earlier.labels)
            used.transform(frame(earlier.new))
            used.set_params(**{name: fresh.get_params()[name] for name in known})
        for model in (fresh, used):
            model.fit(problem.X, problem.labels)
        assert set(vars(used)) == set(vars(fresh))
        assert_array_equal(answers(used, problem.new), answers(fresh, problem.new))
        assert_array_equal(
            answers(used.fit(problem.X, problem.labels), problem.new), answers(fresh, problem.new)
        )

    on_problems(check, problems, problems)


def make_poor_problem(seed, counts, n_features, n_values):
    """Few values, so that samples are zero, repeat, span little, and have several labels at once."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.repeat(np.arange(len(counts)), counts))
    X = rng.integers(0, n_values, (len(labels), n_features)).astype(np.float64)
    X[rng.random(len(X)) < 0.2] = 0
    X[rng.integers(len(X))] = 1  # but not all are zero
    new = np.concatenate([rng.integers(0, n_values, (5, n_features)), X[:3], np.zeros((1, n_features))])
    return Problem(X, labels, new, rng)


poor_problems = st.builds(
    make_poor_problem,
    seed=st.integers(0, 2**32 - 1),
    counts=st.lists(st.integers(1, 5), min_size=2, max_size=5),
    n_features=st.integers(1, 8),
    n_values=st.integers(2, 3),
)


@pytest.mark.parametrize(("dtype", "normalize"), [(np.float64, False), (np.float32, True)])
def test_poor_samples_give_finite_answers(estimator, dtype, normalize, on_problems):
    def check(problem):
        X, labels, new, _ = problem
        if hasattr(estimator, "cv"):  # there must be something to choose by
            assume(np.bincount(labels).max() > 1)
        model = clone(estimator).set_params(normalize=normalize)
        if not is_classifier(model):
            model.set_params(n_components=min(4, len(X)))
        model.fit(X.astype(dtype), labels)
        new = new.astype(dtype)
        assert np.isfinite(model.transform(new)).all()
        if is_classifier(model):
            assert np.isfinite(model.decision_function(new)).all()
            assert set(model.predict(new)) <= set(range(problem.n_classes))

    with warnings.catch_warnings():
        # The warnings about such samples are right, and are not tested here.
        warnings.simplefilter("ignore", UserWarning)
        on_problems(check, poor_problems)


def test_a_search_sees_neither_layout_nor_names(on_problems):
    search = BatchedSearchCV(LEDLClassifier(max_iter=3, tol=0, random_state=0), {"alpha": [2**-9, 2**-5]}, cv=2)

    def check(problem, layout):
        X, labels, new, _ = problem
        X, labels = np.concatenate([X, X + 0.1]), np.concatenate([labels, labels])
        same = clone(search).fit(X, labels)
        names = np.array(["a", "b", "c", "d"])
        found = clone(search).fit(LAYOUTS[layout](X), names[labels])
        assert_array_equal(found.predict(LAYOUTS[layout](new)), names[same.predict(new)])
        assert_array_equal(found.cv_results_["mean_test_score"], same.cv_results_["mean_test_score"])

    on_problems(check, problems, st.sampled_from([name for name in LAYOUTS if name != "lists"]))


def test_codes_of_scaled_samples_are_scaled_codes(on_problems):
    """|x - s D|^2 / 2 + alpha |s|_1 at t x and t alpha is t^2 times that at x and alpha."""

    def check(problem, power):
        X, _, new, _ = problem
        D, t = X / np.linalg.norm(X, axis=1, keepdims=True), 10.0**power
        codes = sparse_encode(new, D, alpha=0.1, tol=1e-10)
        assert_allclose(sparse_encode(t * new, D, alpha=0.1 * t, tol=1e-10) / t, codes, atol=1e-5)
        greedy = sparse_encode(new, D, n_nonzero_coefs=2)
        assert_allclose(sparse_encode(t * new, D, n_nonzero_coefs=2) / t, greedy, atol=1e-8)

    on_problems(check, problems, st.integers(-30, 30))
