"""Predictions and codes of Dask arrays are lazy, and equal those of arrays in memory."""

import warnings

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from helpers.models import make
from ledl import CRCClassifier, LEDLClassifier, RejectingClassifier, SRCClassifier, sparse_encode
from ledl.arrays import is_dask

pytest.importorskip("dask", reason="needs the extra dask")
pytest.importorskip("distributed", reason="needs the extra dask")

import dask
import dask.array as da

TIGHT = 1e-12
MODELS = ["crc", "crc-regularized", "csdl", "dksvd", "ksvd", "lcksvd", "ledl", "ledl-rbf", "nearest-subspace"]
MODELS += ["src", "src-hellinger", "src-poly"]
METHODS = ["predict", "decision_function", "transform"]


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X[:60], y[:60], X[60:100], y[60:100]


@pytest.fixture(scope="module")
def fitted(digits):
    X, y, _, _ = digits
    models = {name: make(name, transform_tol=TIGHT, random_state=0) for name in MODELS}
    models["crc-callable"] = make("crc", kernel=np.dot)
    models["src-threads"] = make("src", transform_tol=TIGHT, n_jobs=2)
    return {name: model.fit(X, y) for name, model in models.items()}


@pytest.fixture
def never():
    """A Dask array of which no chunk can be computed."""

    def fail(chunk):
        raise RuntimeError("a chunk was computed")

    return da.zeros((40, 64), chunks=(10, 64)).map_blocks(fail, meta=np.empty((0, 0)))


def chunked(X, sizes, columns=None):
    """A Dask array with such chunks of rows, some of which may be empty."""
    array = da.from_array(X, chunks=(sizes, X.shape[1]))
    assert array.chunks[0] == tuple(sizes)
    return array.rechunk({1: columns}) if columns else array


def parts_of(array, **options):
    return dask.compute(*array.to_delayed().ravel(), **options)


def assert_is_what_its_parts_are(array, **options):
    """The chunks and the type that Dask knows are those of the computed arrays."""
    parts = parts_of(array, **options)
    assert [part.dtype for part in parts] == [array.dtype] * len(parts)
    assert all(type(part) is np.ndarray and part.ndim == array.ndim for part in parts)
    assert [len(part) for part in parts] == [*array.chunks[0]]
    assert all(part.shape[1:] == array.shape[1:] for part in parts)
    return parts


UNEVEN = (0, 13, 0, 7, 20, 0)  # some chunks are empty, the first and the last among them
ALL = [*MODELS, "crc-callable", "src-threads"]
CASES = [(name, "transform" if name == "ksvd" else "decision_function", UNEVEN) for name in ALL]
CASES += [("ledl", "predict", UNEVEN), ("src-threads", "predict", UNEVEN), ("ledl", "transform", UNEVEN)]
CASES += [("ledl", "decision_function", sizes) for sizes in [(1,) * 40, (7, 20, 1, 12), (40,)]]


@pytest.mark.parametrize(("name", "method", "sizes"), CASES, ids=str)
def test_chunks_are_what_the_eager_call_makes_of_them(fitted, digits, name, method, sizes):
    X, work = digits[2], getattr(fitted[name], method)
    lazy = work(chunked(X, sizes, columns=25))
    assert is_dask(lazy)
    parts = assert_is_what_its_parts_are(lazy, scheduler="sync")
    # The same call on the same rows: the same bits.
    for part, rows in zip(parts, np.split(X, np.cumsum(sizes)[:-1]), strict=True):
        if len(rows):
            assert_array_equal(part, work(rows))
    # All rows at once differ by rounding, for the lasso by what a duality gap of 1e-12 leaves open.
    whole = np.concatenate(parts)
    if method == "predict":
        assert_array_equal(whole, work(X))
    else:
        assert_allclose(whole, work(X), atol=1e-4 * np.abs(work(X)).max())


@pytest.mark.parametrize("name", ["crc", "ledl", "src-threads"])
def test_schedulers_in_the_process(fitted, digits, name):
    model, X = fitted[name], digits[2]
    lazy = model.predict(da.from_array(X, chunks=(3, 64)))
    for scheduler in ("sync", "threads"):
        assert_array_equal(lazy.compute(scheduler=scheduler), model.predict(X))


@pytest.mark.parametrize("method", METHODS)
def test_chunks_of_unknown_size_stay_so(fitted, digits, method):
    model, X = fitted["crc"], digits[2]
    x = da.from_array(X, chunks=(9, 20))
    kept = X[:, 20] > np.median(X[:, 20])
    kept[:9] = False  # leaves a chunk empty
    lazy = getattr(model, method)(x[da.from_array(kept, chunks=9)])
    assert np.isnan(lazy.chunks[0]).all()
    assert lazy.numblocks[0] == x.numblocks[0]
    assert_allclose(lazy.compute(), getattr(model, method)(X[kept]), rtol=1e-10)


@pytest.mark.parametrize("method", METHODS)
def test_no_rows_at_all(fitted, digits, method):
    work = getattr(fitted["ledl"], method)
    lazy = work(da.from_array(digits[2], chunks=(9, 64))[:0])
    assert lazy.shape[0] == 0
    found = lazy.compute()
    assert found.dtype == lazy.dtype == work(digits[2]).dtype
    assert found.shape == lazy.shape == (0, *work(digits[2]).shape[1:])


@pytest.mark.parametrize(
    ("method", "dtype"),
    [
        ("decision_function", dtype)
        for dtype in (np.float64, np.float32, np.float16, np.int64, np.uint8, bool, object)
    ]
    + [("predict", np.float32), ("transform", np.float32), ("transform", np.uint8)],
)
def test_types_are_those_of_the_eager_call(fitted, digits, method, dtype):
    X = digits[2].astype(dtype)
    work = getattr(fitted["ledl"], method)
    lazy = work(da.from_array(X, chunks=(16, 64)))
    assert lazy.dtype == work(X).dtype
    assert_is_what_its_parts_are(lazy)


@pytest.mark.parametrize(
    "names",
    [
        ["a", "longer"],
        np.array(["a", "longer"], dtype=object),
        [3, -1],
        [1.0, 2.0],
        [False, True],
        np.uint8([1, 2]),
    ],
    ids=str,
)
def test_labels_of_any_type_and_two_classes(digits, names):
    X, y, X_test, _ = digits
    model = CRCClassifier().fit(X, np.asarray(names)[(y > 4).astype(int)])
    x = chunked(X_test, (15, 0, 25))
    labels, scores = model.predict(x), model.decision_function(x)
    assert scores.ndim == 1
    assert labels.dtype == model.classes_.dtype
    assert_is_what_its_parts_are(labels)
    assert_is_what_its_parts_are(scores)
    assert_array_equal(labels.compute(), model.predict(X_test))
    assert_allclose(scores.compute(), model.decision_function(X_test), rtol=1e-10)


def test_nothing_is_computed_at_the_call(fitted, never):
    calls = [getattr(fitted["ledl"], method) for method in METHODS]
    calls += [fitted["ksvd"].transform, lambda X: sparse_encode(X, np.eye(64), alpha=0.1)]
    for call in calls:
        lazy = call(never)
        with pytest.raises(RuntimeError, match="a chunk was computed"):
            lazy.compute()


def test_errors_are_raised_at_the_call(fitted, never):
    model = fitted["ledl"]
    for method in METHODS:
        with pytest.raises(NotFittedError):
            getattr(LEDLClassifier(), method)(never)
        with pytest.raises(ValueError, match="X has 63 features, but LEDLClassifier is expecting 64 features"):
            getattr(model, method)(never[:, 1:])
        with pytest.raises(ValueError, match=r"shape \(40, 8, 8\).*reshape"):
            getattr(model, method)(never.reshape(40, 8, 8))
        with pytest.raises(ValueError, match=r"shape \(64,\).*reshape"):
            getattr(model, method)(never[0])
        with pytest.raises(ValueError, match="Complex data not supported"):
            getattr(model, method)(never.astype(complex))
        with pytest.raises(ValueError, match=r"number of features is not known.*compute_chunk_sizes"):
            getattr(model, method)(never[:, never[0] > 0])
        with pytest.raises(ValueError, match="'transform_tol' parameter"):
            getattr(clone_fitted(model).set_params(transform_tol=-1), method)(never)
        with pytest.raises(TypeError, match="chunks of csr_array, but NumPy arrays"):
            getattr(model, method)(sparse_chunks())


def clone_fitted(model):
    twin = clone(model)
    vars(twin).update(vars(model))
    return twin


def sparse_chunks():
    from scipy.sparse import csr_array

    return da.zeros((40, 64), chunks=(10, 64)).map_blocks(csr_array, meta=csr_array((0, 0)))


def test_bad_numbers_are_reported_with_their_row(fitted, digits):
    X = digits[2].copy()
    X[23, 5] = np.nan
    x = da.from_array(X, chunks=(10, 30))
    for call in [fitted["src"].predict, lambda x: sparse_encode(x, digits[0], alpha=0.1)]:
        with pytest.raises(ValueError, match="in row 3 of its chunk 2, row 23 of all"):
            call(x).compute()
        with pytest.raises(ValueError, match=r"in row 3 of its chunk 2\. Remove"):
            call(x[da.ones(40, chunks=10) > 0]).compute()
    # For other errors, the chunk is added to the message of the eager call.
    X[23, 5] = 1e150
    with pytest.raises(ValueError, match="gives k") as caught:
        fitted["src-poly"].predict(da.from_array(X, chunks=(10, 64))).compute()
    assert caught.value.__notes__ == ["In chunk 2 of X, whose first row is 20."]


def test_the_model_is_the_one_of_the_call(digits):
    X, y, X_test, _ = digits
    x = da.from_array(X_test, chunks=(10, 64))
    model = LEDLClassifier(max_iter=3, tol=0, random_state=0).fit(X, y)
    before, lazy = model.predict(X_test), model.predict(x)
    codes, lazy_codes = model.transform(X_test), model.transform(x)
    assert model.predict(x).name == lazy.name  # one result for one question

    model.set_params(transform_alpha=0.5)
    assert model.transform(x).name != lazy_codes.name
    model.set_params(transform_alpha=None).fit(X, (y + 1) % 10)
    again = model.predict(x)
    assert again.name != lazy.name
    # Together, so that equal names would give equal results.
    found, found_codes, found_again = dask.compute(lazy, lazy_codes, again)
    assert_array_equal(found, before)
    assert_allclose(found_codes, codes, atol=1e-5)
    assert_array_equal(found_again, model.predict(X_test))
    assert (found != found_again).mean() > 0.5


def test_missing_feature_names_warn_once(digits):
    X, y, X_test, _ = digits
    model = CRCClassifier().fit(pd.DataFrame(X).add_prefix("pixel"), y)
    with pytest.warns(UserWarning, match="does not have valid feature names") as caught:
        lazy = model.predict(da.from_array(X_test, chunks=(5, 64)))
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = model.predict(X_test)
    assert_array_equal(lazy.compute(), expected)  # warnings are errors here


@pytest.mark.parametrize("kind", ["crc", "rejecting"])
def test_score(digits, kind):
    X, y, X_test, y_test = digits
    model = CRCClassifier() if kind == "crc" else RejectingClassifier(CRCClassifier(), cv=3)
    model.fit(X, y)
    weights = np.arange(1.0, 41.0)
    x, labels = da.from_array(X_test, chunks=(9, 20)), da.from_array(y_test, chunks=7)
    expected = float((model.predict(X_test) == y_test).mean())
    assert 0 < expected < 1
    found = [model.score(x, y_test), model.score(x, labels), model.score(X_test, labels)]
    assert found == [expected] * 3
    assert all(type(value) is float for value in found)
    everything = da.ones(40, chunks=10) > 0
    assert model.score(x[everything], labels) == expected
    weighted = model.score(x, labels, sample_weight=da.from_array(weights, chunks=5))
    assert weighted == model.score(X_test, y_test, sample_weight=weights) != expected


def test_score_refuses_other_numbers_of_labels_before_it_computes(fitted, never, digits):
    for labels in [digits[3][1:], da.from_array(digits[3][1:], chunks=5), list(digits[3][1:])]:
        with pytest.raises(ValueError, match="X has 40 samples and y 39 labels"):
            fitted["crc"].score(never, labels)


class DaskScaler(TransformerMixin, BaseEstimator):
    def fit(self, X, y=None):
        self.scale_ = np.asarray(X).max()
        return self

    def transform(self, X):
        return X / self.scale_


def test_pipelines_that_know_dask_stay_lazy(digits, never):
    X, y, X_test, y_test = digits
    model = make_pipeline(DaskScaler(), LEDLClassifier(max_iter=3, tol=0, random_state=0)).fit(X, y)
    x = da.from_array(X_test, chunks=(10, 64))
    for method in METHODS:
        lazy = getattr(model, method)(x)
        assert is_dask(lazy)
        assert_allclose(lazy.compute(), getattr(model, method)(X_test), atol=1e-4)
        assert is_dask(getattr(model, method)(never))
    assert model.score(x, y_test) == model.score(X_test, y_test)


@pytest.mark.parametrize(
    "options",
    [
        {"alpha": 0.5},
        {"alpha": 0.5, "positive": True, "solver": "active_set", "n_jobs": 2},
        {"n_nonzero_coefs": 4},
    ],
    ids=str,
)
def test_sparse_encode(digits, options):
    D, _, X, _ = digits
    X = X.astype(np.int64 if "positive" in options else np.float32 if "alpha" in options else np.float64)
    sizes = (7, 0, 33)
    lazy = sparse_encode(chunked(X, sizes, columns=25), D, **options)
    first, empty, last = assert_is_what_its_parts_are(lazy)
    assert lazy.shape == (40, len(D))
    assert empty.shape == (0, len(D))
    assert_array_equal(first, sparse_encode(X[:7], D, **options))
    assert_array_equal(last, sparse_encode(X[7:], D, **options))


def test_sparse_encode_takes_the_dictionary_of_the_call(digits):
    D, _, X, _ = digits
    D, x = D.copy(), da.from_array(X, chunks=(10, 64))
    expected, lazy = sparse_encode(X, D, n_nonzero_coefs=3), sparse_encode(x, D, n_nonzero_coefs=3)
    D[:] = D[::-1].copy()
    assert sparse_encode(x, D, n_nonzero_coefs=3).name != lazy.name
    assert_allclose(lazy.compute(), expected, rtol=1e-10)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"return_info": True}, "return_info is for samples in memory.*X.blocks"),
        ({"sparse_output": True}, "sparse_output is for samples in memory.*csr_array"),
        ({"init": np.zeros((40, 64))}, "init is for samples in memory.*Leave it out"),
        ({"alpha": -1.0}, "alpha=-1.0 must be greater than 0"),
        ({"n_nonzero_coefs": 3}, "Give either alpha"),
        ({"tol": 0.0}, "tol=0.0 must be"),
        ({"n_jobs": 0}, "n_jobs == 0"),
        ({"solver": "quick"}, "solver='quick' is unknown"),
        ({"solver": "active_set", "device": "cpu"}, "solver='active_set' is for NumPy arrays"),
        ({"dictionary": np.eye(63)}, "X has 64 features and the dictionary 63"),
        ({"dictionary": np.full((3, 64), np.nan)}, "The dictionary"),
    ],
    ids=str,
)
def test_sparse_encode_refuses_at_the_call(never, options, message):
    with pytest.raises(ValueError, match=message):
        sparse_encode(never, **{"dictionary": np.eye(64), "alpha": 0.1, **options})


def test_codes_can_be_made_sparse_as_the_message_says(digits):
    from scipy.sparse import csr_array

    D, _, X, _ = digits
    codes = sparse_encode(da.from_array(X, chunks=(10, 64)), D, n_nonzero_coefs=3)
    found = codes.map_blocks(csr_array).compute()
    assert found.nnz <= 3 * len(X)
    assert_allclose(found.toarray(), sparse_encode(X, D, n_nonzero_coefs=3), rtol=1e-10)


@pytest.mark.parametrize(("label", "scaled"), [(None, False), ("none of these", True)])
def test_rejection(digits, never, label, scaled):
    X, y, X_test, _ = digits
    y = y if label is None else np.array(list("abcdefghij"))[y]
    inner = make_pipeline(StandardScaler(), SRCClassifier()) if scaled else SRCClassifier()
    model = RejectingClassifier(inner, reject=0.3, cv=3, reject_label=label).fit(X, y)
    x = chunked(X_test, (15, 0, 25), columns=30)
    for method in ["predict", "p_values", "novelty"]:
        work = getattr(model, method)
        lazy, expected = work(x), work(X_test)
        assert is_dask(work(never))
        assert lazy.dtype == expected.dtype
        first, _, last = assert_is_what_its_parts_are(lazy)
        assert_array_equal(first, work(X_test[:15]))
        assert_array_equal(last, work(X_test[15:]))
        with pytest.raises(ValueError, match="Complex data not supported"):
            work(never.astype(complex))
        with pytest.raises(ValueError, match=r"X has 63 features, but .* expecting 64"):
            work(never[:, 1:])
    assert 0 < (model.predict(X_test) == model.reject_label_).mean() < 1


@pytest.mark.parametrize("name", ["crc", "ledl", "ledl-rbf", "src-threads"])
def test_on_a_cluster(client, fitted, digits, name):
    model, X, y = fitted[name], digits[2], digits[3]
    x = da.from_array(X, chunks=(9, 30))
    for method in METHODS:
        lazy = getattr(model, method)(x)
        parts = assert_is_what_its_parts_are(lazy)  # by the client, while there is one
        # Arrays that were sent lie differently in memory, on which the order of sums in BLAS depends.
        expected = getattr(model, method)(X[9:18])
        assert_allclose(parts[1], expected, rtol=1e-9, atol=1e-9)
    assert model.score(x, y) == model.score(X, y)
    with pytest.raises(ValueError, match="in row 0 of its chunk 1, row 9 of all"):
        model.predict(da.where(da.arange(40, chunks=9)[:, None] == 9, np.nan, x)).compute()


def test_a_cluster_does_not_use_an_earlier_model(client, digits):
    X, y, X_test, _ = digits
    x = da.from_array(X_test, chunks=(10, 64))
    model = CRCClassifier().fit(X, y)
    before, kept = model.predict(X_test), model.predict(x).persist()  # results stay on the workers
    model.fit(X, (y + 1) % 10)
    assert_array_equal(model.predict(x).compute(), model.predict(X_test))
    assert_array_equal(kept.compute(), before)
