"""Kernels in SRC, CRC, CSDL and LEDL, against the same methods on explicit features."""

import tracemalloc

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.metrics.pairwise import polynomial_kernel, rbf_kernel
from sklearn.model_selection import cross_val_score

from helpers.problems import unit
from ledl import CRCClassifier, CSDLClassifier, LEDLClassifier, SRCClassifier, save
from ledl.coding import _coders
from ledl.datasets import few_shot_splits
from ledl.subspace import find_kernel_space

METHODS = {
    "src": SRCClassifier(alpha=0.02),
    "crc": CRCClassifier(alpha=0.1),
    "csdl": CSDLClassifier(alpha=0.02, max_iter=5, random_state=0),
    "ledl": LEDLClassifier(max_iter=10, tol=0, random_state=0),
    "ledl-residual": LEDLClassifier(rule="residual", max_iter=10, tol=0, random_state=0),
}


@pytest.fixture(params=METHODS)
def method(request):
    return clone(METHODS[request.param])


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    train, test = next(few_shot_splits(y))
    return X[train], y[train], X[test][:80]


def assert_same_models(kernel, explicit, X, new, explicit_new):
    """Atoms agree to 1e-8: those of a kernel are combinations of the (normalised) samples X."""
    assert_allclose(kernel.dual_components_ @ X, explicit.components_, atol=1e-8)
    assert_allclose(kernel.decision_function(new), explicit.decision_function(explicit_new), atol=1e-5)
    assert_array_equal(kernel.predict(new), explicit.predict(explicit_new))
    assert not hasattr(kernel, "components_")
    assert not hasattr(explicit, "dual_components_")


@pytest.mark.parametrize("n_features", [64, 25], ids=["n < d", "n > d"])
def test_linear_kernel_agrees_with_the_explicit_form(method, digits, n_features):
    X, y, new = digits[0][:, :n_features] + 1, digits[1], digits[2][:, :n_features] + 1
    if isinstance(method, CSDLClassifier | LEDLClassifier) and n_features == 25:
        method.set_params(n_components=60)
    explicit = clone(method).fit(X, y)
    kernel = clone(method).set_params(kernel=np.dot).fit(X, y)
    assert_same_models(kernel, explicit, unit(X), new, new)
    gram, rows = unit(X) @ unit(X).T, unit(new) @ unit(X).T
    precomputed = method.set_params(kernel="precomputed", normalize=False).fit(gram, y)
    assert_same_models(precomputed, explicit, unit(X), rows, new)


def test_polynomial_kernel_is_its_feature_map(method, digits):
    """(x y)^2 is the inner product of x x' and y y'."""
    X, y, new = digits[0][:, 20:40], digits[1], digits[2][:, 20:40]
    kernel = clone(method).set_params(kernel="poly", degree=2, coef0=0, gamma=1.0).fit(X, y)
    products = (np.einsum("ni,nj->nij", Z, Z).reshape(len(Z), -1) for Z in (X, new))
    X2, new2 = products
    assert_same_models(kernel, method.fit(X2, y), unit(X2), new, new2)


def test_hellinger_kernel_is_linear_in_square_roots(method, digits):
    X, y, new = digits
    kernel = clone(method).set_params(kernel="hellinger").fit(X, y)
    explicit = method.fit(np.sqrt(X), y)
    assert_allclose(kernel.components_, explicit.components_, atol=1e-12)
    assert_allclose(kernel.decision_function(new), explicit.decision_function(np.sqrt(new)), atol=1e-12)


def test_hellinger_kernel_keeps_signs(method, digits):
    X, y, new = (Z - 5 if Z.ndim == 2 else Z for Z in digits)
    roots, new_roots = (np.where(Z < 0, -1, 1) * np.sqrt(np.abs(Z)) for Z in (X, new))
    kernel = clone(method).set_params(kernel="hellinger", normalize=False).fit(X, y)
    explicit = method.set_params(normalize=False).fit(roots, y)
    assert_allclose(kernel.components_, explicit.components_, atol=1e-12)
    assert_allclose(kernel.decision_function(new), explicit.decision_function(new_roots), atol=1e-8)


def test_hellinger_kernel_agrees_with_the_matrix_of_all_pairs(method, digits):
    """The plain definition, the sum of sqrt(x_i y_i), by a callable, which needs the kernel's matrix."""
    X, y, new = digits
    explicit = clone(method).set_params(kernel="hellinger").fit(X, y)
    pairs = method.set_params(kernel=bhattacharyya).fit(X, y)
    assert_same_models(pairs, explicit, unit(np.sqrt(X)), new, new)


def bhattacharyya(x, y):
    return float(np.sqrt(x * y).sum())


def test_square_roots_of_many_samples_are_taken_in_one_copy(rng):
    X, y = rng.random((4000, 200)), np.arange(4000) % 4
    tracemalloc.start()
    try:
        model = SRCClassifier(kernel="hellinger").fit(X, y)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1.2 * X.nbytes
    assert_allclose(model.components_**2, X / X.sum(axis=1, keepdims=True), rtol=1e-12)


def test_hellinger_kernel_costs_what_square_roots_cost(method, rng, tmp_path):
    """There is no matrix of all pairs, in memory or in a file."""
    X, y = rng.random((1500, 8)), np.arange(1500) % 3
    if "n_components" in method.get_params():
        method.set_params(n_components=12, max_iter=2)
    sizes, peaks = [], []
    for kernel, prepare in (("hellinger", np.asarray), ("linear", np.sqrt)):
        model = clone(method).set_params(kernel=kernel)
        tracemalloc.start()
        model.fit(prepare(X), y)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        save(model, tmp_path / "model.ledl")
        sizes.append((tmp_path / "model.ledl").stat().st_size)
    assert sizes[0] < 1.3 * sizes[1]
    assert peaks[0] < 1.3 * peaks[1]


def test_rbf_kernel_is_its_matrix(method, digits):
    X, y, new = digits
    gamma = 1 / (64 * X.var())
    kernel = clone(method).set_params(kernel="rbf").fit(X, y)
    precomputed = method.set_params(kernel="precomputed", normalize=False).fit(rbf_kernel(X, gamma=gamma), y)
    rows = rbf_kernel(new, X, gamma=gamma)
    assert_allclose(kernel.decision_function(new), precomputed.decision_function(rows), atol=1e-8)
    assert_allclose(kernel.dual_components_, precomputed.dual_components_, atol=1e-8)


def test_normalised_kernels_have_samples_of_norm_one(method, digits):
    X, y, new = digits
    kernel = clone(method).set_params(kernel="poly", normalize=True).fit(X, y)
    assert_allclose(kernel.dictionary_.space.squared_norms(new), 1)
    similarities = kernel.dictionary_.space.kernel.similarities(X)
    assert_allclose(np.diag(similarities), 1)
    raw = method.set_params(kernel="poly", normalize=False, gamma=1 / 64).fit(X / 16, y)
    assert_allclose(
        raw.dictionary_.space.squared_norms(new / 16), ((new / 16) ** 2 @ np.full(64, 1 / 64) + 1) ** 3
    )


def test_repeated_samples_make_a_matrix_without_full_rank(method, digits):
    X, y, new = digits
    X, y = np.concatenate([X, X[:20]]), np.concatenate([y, y[:20]])
    model = method.set_params(kernel="rbf").fit(X, y)
    assert model.dictionary_.space.coordinates.shape[1] <= 50
    assert np.isfinite(model.decision_function(new)).all()


def test_indefinite_and_odd_matrices_are_told(method, digits, rng):
    X, y, _ = digits
    method.set_params(kernel="precomputed", normalize=False)
    indefinite = unit(X) @ unit(X).T - 0.9 * (1 - np.eye(len(X)))
    with pytest.raises(ValueError, match=r"not positive semi-definite: its eigenvalues go from -\d"):
        method.fit(indefinite, y)
    lopsided = np.where(np.eye(len(X)), 1, 0.1 * rng.random((len(X), len(X))))
    with pytest.raises(ValueError, match=r"not symmetric: .* differ by up to 0\.\d.*\(K \+ K'\) / 2"):
        method.fit(lopsided, y)
    with pytest.raises(ValueError, match="square matrix"):
        method.fit(X[:, :40], y)
    with pytest.warns(UserWarning, match="diagonal differs from 1 by up to 3"):
        method.fit(4 * unit(X) @ unit(X).T, y)
    with pytest.raises(ValueError, match="needs normalize=False"):
        method.set_params(normalize=True).fit(unit(X) @ unit(X).T, y)


def negative(x, y):
    return -float(x @ y)


def test_bad_kernels_are_told(method, digits):
    X, y, _ = digits
    with pytest.raises(ValueError, match=r"k\(x, x\) = -\d.* for sample 0"):
        clone(method).set_params(kernel=negative).fit(X, y)
    with pytest.raises(ValueError, match=r"k\(x, x\) = inf for sample 0.*Scale the samples"):
        clone(method).set_params(kernel="poly", degree=200, gamma=1.0).fit(X, y)
    with pytest.raises(ValueError, match="zero between all training samples"):
        clone(method).set_params(kernel=scaled_dot, kernel_params={"scale": 0.0}).fit(X, y)
    with pytest.raises(ValueError, match="'kernel' parameter"):
        method.set_params(kernel="sigmoidal").fit(X, y)


@pytest.mark.filterwarnings("ignore:.*samples are all zero:UserWarning")
def test_samples_of_norm_zero_stay_zero(method, digits):
    X, y, new = digits
    X, new = np.concatenate([X, 0 * X[:1]]), np.concatenate([new, 0 * new[:1]])
    model = method.set_params(kernel="poly", coef0=0).fit(X, np.append(y, 3))
    assert_array_equal(model.dictionary_.space.squared_norms(new)[-2:], [1, 0])
    assert not model.transform(new)[-1].any()
    assert not model.decision_function(new)[-1].any()


def test_gamma_of_none_is_that_of_scikit_learn(digits):
    X, y, new = digits[0] / 16, digits[1], digits[2] / 16
    model = SRCClassifier(kernel="poly", gamma=None, degree=2).fit(X, y)
    k = polynomial_kernel(X, gamma=1 / 64, degree=2)
    norms = np.sqrt(np.diag(k))
    rows = polynomial_kernel(new, X, gamma=1 / 64, degree=2)
    rows /= norms * np.sqrt(((new**2).sum(axis=1) / 64 + 1) ** 2)[:, None]
    precomputed = SRCClassifier(kernel="precomputed", normalize=False).fit(k / np.outer(norms, norms), y)
    assert_allclose(model.decision_function(new), precomputed.decision_function(rows), atol=1e-8)


def test_features_that_do_not_vary_have_a_scale(digits):
    X, y, _ = digits
    model = CRCClassifier(kernel="rbf").fit(np.ones_like(X), y)
    assert model.dictionary_.space.kernel.parameters == {"gamma": 1.0}


def test_arguments_that_a_kernel_does_not_take_are_told(method, digits):
    with pytest.raises(ValueError, match=r"kernel_params=.*callable kernel, but kernel='rbf'"):
        method.set_params(kernel="rbf", kernel_params={"gamma": 5.0}).fit(*digits[:2])


def test_the_number_of_a_bad_sample_is_its_own(digits, monkeypatch):
    X, y, new = digits
    model = CRCClassifier(kernel=np.dot).fit(X, y)
    monkeypatch.setattr(_coders, "CHUNK", 700)
    monkeypatch.setattr(_coders, "CHUNK_ROWS", 7)
    bad = new.copy()
    bad[61] = 1e200
    with np.errstate(over="ignore"), pytest.raises(ValueError, match="inf for sample 61"):
        model.predict(bad)


def test_norms_that_precomputed_rows_do_not_have_change_no_label(digits):
    """|y|^2 is the same for all classes."""
    X, y, new = digits
    model = CRCClassifier(kernel="precomputed", normalize=False).fit(unit(X) @ unit(X).T, y)
    rows = unit(new) @ unit(X).T
    assert_array_equal(model.predict(3 * rows), model.predict(rows))


def scaled_dot(x, y, scale=1.0):
    return scale * float(x @ y)


def test_callable_kernels_take_parameters_and_see_pairs_with_training_samples_only(digits):
    X, y, new = digits
    seen = []

    def watched(a, b, scale):
        seen.append(1)
        return scaled_dot(a, b, scale)

    model = SRCClassifier(alpha=0.02, kernel=watched, kernel_params={"scale": 3.0}).fit(X, y)
    seen.clear()
    model.predict(new)
    n, m = len(X), len(new)
    assert len(seen) < m * n + 2 * m + n * 20 + 2 * 20  # pairs, k(y, y) twice, and the pilots' pairs
    assert_array_equal(model.predict(new), SRCClassifier(alpha=0.02).fit(X, y).predict(new))


def test_rounding_of_a_float32_matrix_is_no_reason_to_refuse_it(digits):
    X, y, new = digits
    X = np.concatenate([X, X[:20]])
    y = np.concatenate([y, y[:20]])
    single = unit(X).astype(np.float32)
    gram = np.concatenate([single[i : i + 7] @ single.T for i in range(0, len(X), 7)])  # not quite symmetric
    assert np.linalg.eigvalsh(gram.astype(np.float64)).min() < -1e-9
    model = SRCClassifier(kernel="precomputed", normalize=False).fit(gram, y)
    explicit = SRCClassifier().fit(X, y)
    assert model.dictionary_.space.coordinates.shape[1] <= 50
    agree = model.predict(unit(new) @ unit(X).T) == explicit.predict(new)
    assert agree.mean() > 0.95


def test_precomputed_kernels_in_cross_validation(digits):
    X, y, _ = digits
    explicit = cross_val_score(SRCClassifier(), X, y, cv=5)
    precomputed = SRCClassifier(kernel="precomputed", normalize=False)
    assert_allclose(cross_val_score(precomputed, unit(X) @ unit(X).T, y, cv=5), explicit)


def test_a_refit_with_another_kernel_leaves_nothing(method, digits):
    X, y, _ = digits
    method.set_params(kernel="rbf").fit(X, y)
    method.set_params(kernel="linear").fit(X, y)
    assert hasattr(method, "components_")
    assert not hasattr(method, "dual_components_")


def test_ledl_starts_with_kernels(digits, rng):
    X, y, new = digits
    with pytest.raises(ValueError, match=r"init='random' draws features.*Use init='class'"):
        LEDLClassifier(kernel="rbf", init="random").fit(X, y)
    dual, W, A = rng.random((30, len(X))), rng.random((30, 10)), rng.random((30, 30))
    options = {"max_iter": 5, "tol": 0}
    kernel = LEDLClassifier(kernel=np.dot, init=(dual, W, A), **options).fit(X, y)
    explicit = LEDLClassifier(init=(dual @ unit(X), W, A), **options).fit(X, y)
    assert_same_models(kernel, explicit, unit(X), new, new)
    with pytest.raises(ValueError, match=r"B has shape \(30, 64\), but \(30, 50\)"):
        LEDLClassifier(kernel="rbf", init=(rng.random((30, 64)), W, A)).fit(X, y)


def test_the_space_of_a_kernel_keeps_its_inner_products(rng):
    X = rng.standard_normal((8, 5))
    gram = X @ X.T
    space = find_kernel_space(None, gram, np.dtype(np.float64))
    assert space.coordinates.shape == (8, 5)
    assert_allclose(space.coordinates @ space.coordinates.T, gram, atol=1e-12)
    assert_allclose(space.expand(space.coordinates) @ space.coordinates, space.coordinates, atol=1e-10)
