"""LEDLClassifier.partial_fit: streams of batches."""

import pickle
import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.datasets import load_digits

import ledl
from ledl import LEDLClassifier
from ledl.datasets import load
from ledl.solvers import compiled

FITTED = ("components_", "label_components_", "_code_atoms")


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    return X[order], y[order]


def stream(model, X, y, size, classes=None):
    classes = np.unique(y) if classes is None else classes
    for first in range(0, len(y), size):
        model.partial_fit(X[first : first + size], y[first : first + size], classes=classes)
    return model


def assert_same(model, expected, tol=0.0):
    for name in FITTED:
        assert_allclose(getattr(model, name), getattr(expected, name), atol=tol, rtol=0)
    assert model.n_iter_ == expected.n_iter_


def save_and_load(model, path):
    ledl.save(model, path)
    return ledl.load(path)


def small(**options):
    return LEDLClassifier(**{"n_components": 40, "random_state": 0, **options})


@pytest.mark.parametrize("size", [10, 100, 700])
def test_accuracy_of_one_pass_over_digits(digits, size):
    """Within 3 points of 15 iterations over all samples, on the mean of three shuffles."""
    differences = []
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(len(digits[1]))
        X, y = digits[0][order], digits[1][order]
        model = stream(small(n_components=100), X[:1400], y[:1400], size)
        batch = small(n_components=100, max_iter=15, tol=0).fit(X[:1400], y[:1400])
        differences.append(model.score(X[1400:], y[1400:]) - batch.score(X[1400:], y[1400:]))
    assert np.mean(differences) > -0.03


def test_accuracy_of_one_pass_over_usps(require_dataset):
    """Within 1.5 points of the batch fit, on the mean of three shuffles, 5,000 samples and 200 atoms."""
    require_dataset("usps")
    usps = load("usps")
    differences = []
    pool = np.random.default_rng(0).permutation(len(usps.target))  # as in benchmarks/stream.py
    for seed in range(3):
        order = np.concatenate([np.random.default_rng(seed).permutation(pool[:5000]), pool[5000:]])
        X, y = usps.data[order], usps.target[order]
        batch = small(n_components=200, max_iter=15, tol=0).fit(X[:5000], y[:5000])
        model = stream(small(n_components=200), X[:5000], y[:5000], 100)
        differences.append(model.score(X[5000:], y[5000:]) - batch.score(X[5000:], y[5000:]))
    assert np.mean(differences) > -0.015


def test_the_same_seed_gives_the_same_model(digits):
    X, y = digits
    models = [stream(small(random_state=seed), X[:300], y[:300], 50) for seed in (0, 0, 1)]
    assert_same(models[0], models[1])
    assert np.abs(models[0].components_ - models[2].components_).max() > 1e-3


def test_a_generator_is_drawn_from_once(digits):
    X, y = digits
    generator = np.random.RandomState(0)
    model = stream(small(random_state=generator), X[:300], y[:300], 50)
    assert_same(model, stream(small(), X[:300], y[:300], 50))
    once = np.random.RandomState(0)
    once.randint(np.iinfo(np.int32).max)
    assert generator.randint(1000) == once.randint(1000)


def test_memory_does_not_grow_with_the_stream(digits):
    X, y = digits
    sizes = []
    for n in (200, 1600):
        model = stream(small(), X[:n], y[:n], 50)
        sizes.append(len(pickle.dumps(model)))
    assert abs(sizes[1] - sizes[0]) < 100
    assert not {"history_", "training_codes_", "_samples"} & set(vars(model))


def test_a_class_that_comes_late_starts_at_its_first_samples(digits):
    X, y = digits
    early, late = np.flatnonzero(y != 7)[:400], np.flatnonzero(y == 7)
    model = stream(small(), X[early], y[early], 100, range(10))
    own = model.atom_classes_ == 7
    assert own.sum() == 4
    assert not any(getattr(model, name)[own].any() for name in FITTED)
    assert not (model.predict(X) == 7).any()
    assert not model.transform(X)[:, own].any()
    model.partial_fit(X[late[:2]], y[late[:2]])
    assert model.components_[own].any(axis=1).sum() == 2
    both = np.concatenate([late[2:60], np.flatnonzero(y != 7)[400:900]])
    model = stream(model, X[both], y[both], 50, range(10))
    assert model.components_[own].any(axis=1).all()
    assert (model.predict(X[late[60:]]) == 7).mean() > 0.8


def test_atoms_are_shared_out_equally_and_have_norm_one(digits):
    X, y = digits
    model = stream(small(n_components=43), X[:500], y[:500], 100)
    counts = np.bincount(model.atom_classes_)
    assert counts.sum() == 43
    assert set(counts) == {4, 5}
    for name in FITTED:
        assert_allclose(np.linalg.norm(getattr(model, name), axis=1), 1)


def test_fewer_atoms_than_classes(digits):
    X, y = digits
    model = small(n_components=3)
    with pytest.warns(UserWarning, match="n_components=3 is fewer than the 10 classes"):
        model.partial_fit(X[:50], y[:50], classes=range(10))
    model.partial_fit(X[50:100], y[50:100])
    assert len(model.components_) == 10


def test_labels_of_any_kind(digits):
    X, y = digits
    expected = stream(small(), X[:300], y[:300], 50)
    words = np.array([f"class {label}" for label in y])
    model = stream(small(), X[:300], words[:300].astype(object), 50, sorted(set(words), reverse=True))
    assert_same(model, expected)
    assert_array_equal(model.predict(X[300:]), [f"class {label}" for label in expected.predict(X[300:])])


def test_float32(digits):
    X, y = digits
    model = stream(small(), X[:300].astype(np.float32), y[:300], 50)
    assert model.components_.dtype == model.label_components_.dtype == np.float32
    assert model.stream_.G.dtype == np.float64
    assert_same(model, stream(small(), X[:300], y[:300], 50), 1e-3)
    model.partial_fit(X[300:350], y[300:350])
    assert model.components_.dtype == np.float32


def test_zero_samples_start_nothing_and_do_no_harm(digits):
    X, y = digits
    model = small().partial_fit(np.vstack([np.zeros((1, 64)), X[:1]]), [y[0], y[0]], classes=range(10))
    assert model.components_.any(axis=1).sum() == 1
    model.partial_fit(np.zeros((1, 64)), [3])
    assert model.components_.any(axis=1).sum() == 1
    assert np.isfinite(model.components_).all()
    with pytest.raises(ValueError, match="All samples are zero"):
        small().partial_fit(np.zeros((2, 64)), [0, 1], classes=range(10))


@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": 7, "n_jobs": 2},
        pytest.param({"device": "cpu"}, marks=pytest.mark.torch),
        pytest.param({"device": "cuda"}, marks=[pytest.mark.torch, pytest.mark.gpu]),
    ],
)
def test_where_a_batch_is_worked_on_changes_nothing(digits, options):
    if options.get("device") == "cuda":
        import torch

        if not torch.cuda.is_available():
            pytest.skip("no GPU")
    X, y = digits
    assert_same(stream(small(**options), X[:300], y[:300], 50), stream(small(), X[:300], y[:300], 50), 1e-9)


@pytest.mark.torch
def test_tensors(digits):
    import torch

    X, y = digits
    model = stream(small(), torch.from_numpy(X[:300]), torch.from_numpy(y[:300]), 50, range(10))
    assert_same(model, stream(small(), X[:300], y[:300], 50), 1e-9)
    assert type(model.components_) is np.ndarray
    with pytest.raises(ValueError, match="has 63 features"):
        model.partial_fit(torch.from_numpy(X[:5, 1:]), y[:5])


def test_without_scaling(digits):
    X, y = digits
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    model = stream(small(normalize=False), unit[:300], y[:300], 50)
    assert_same(model, stream(small(), X[:300], y[:300], 50), 1e-9)
    with pytest.raises(ValueError, match="row 1, whose squares"):
        model.partial_fit([unit[0], 1e200 * unit[1]], y[:2])


def test_streams_of_the_hellinger_kernel_are_streams_of_square_roots(digits):
    X, y = digits
    for normalize in (True, False):
        given = {"normalize": normalize, "alpha": 0.05}
        model = stream(small(kernel="hellinger", **given), X[:300], y[:300], 50)
        expected = stream(small(**given), np.sqrt(X[:300]), y[:300], 50)
        assert_same(model, expected)
        assert_array_equal(model.predict(X), expected.predict(np.sqrt(X)))


def test_scaling_that_is_set_later_waits_for_the_next_fit(digits):
    X, y = digits
    model = stream(small(), X[:300], y[:300], 50).set_params(normalize=False)
    model.partial_fit(X[300:350], y[300:350])
    expected = stream(small(), X[:350], y[:350], 50)
    assert_same(model, expected)
    assert_array_equal(model.decision_function(X), expected.decision_function(X))
    assert not model.fit(X[:100], y[:100]).dictionary_.features.unit_norm


def test_weights_may_change_between_calls(digits):
    X, y = digits
    model = stream(small(), X[:100], y[:100], 50)
    before = model.stream_
    model.set_params(label_weight=0.1, code_weight=0.0, alpha=0.05).partial_fit(X[100:150], y[100:150])
    for name in FITTED:
        assert_allclose(np.linalg.norm(getattr(model, name), axis=1), 1)
    # Nothing of the weights is in the sums: those of the first batches have faded, and no more.
    other = stream(small(), X[:100], y[:100], 50)
    assert_array_equal(other.stream_.G, before.G)
    other.partial_fit(X[100:150], y[100:150])
    assert np.abs(other.components_ - model.components_).max() > 1e-3


def test_fit_starts_anew(digits):
    X, y = digits
    model = stream(small(), X[:300], y[:300], 50).fit(X[:200], y[:200])
    expected = small().fit(X[:200], y[:200])
    assert_same(model, expected)
    assert not hasattr(model, "stream_")
    assert set(vars(model)) == set(vars(expected))


@pytest.mark.parametrize("n", [40, 200])  # fewer samples than features, and more
def test_after_fit_learning_goes_on_from_its_atoms(digits, n):
    X, y = digits
    model = LEDLClassifier(n_components=40, random_state=0).fit(X[:n], y[:n])
    before, score = model.components_, model.score(X[1000:], y[1000:])
    model.partial_fit(X[n : n + 5], y[n : n + 5])
    moved = np.linalg.norm(model.components_ - before, axis=1)
    assert 0 < moved.max() < 0.5
    assert model.n_iter_ == 1
    assert model.score(X[1000:], y[1000:]) > score - 0.03  # five samples do not undo what many have taught
    assert not {"_samples", "_sample_labels", "stopped_by_", "history_"} & set(vars(model))
    stream(model, X[n + 5 : 1000], y[n + 5 : 1000], 50)
    assert model.score(X[1000:], y[1000:]) > score - 0.01


def test_arrays_to_start_at_come_through_fit(digits):
    X, y = digits
    rng = np.random.default_rng(0)
    init = (rng.random((20, 64)), rng.random((20, 10)), rng.random((20, 20)))
    model = LEDLClassifier(init=init, max_iter=2, tol=0)
    with pytest.raises(ValueError, match=r"init is not 'class'.*call fit on some samples first"):
        model.partial_fit(X[:50], y[:50], classes=range(10))
    assert model.fit(X[:50], y[:50]).partial_fit(X[50:60], y[50:60]).n_iter_ == 1


def test_pickles_files_and_clones_go_on_as_the_model_does(digits, tmp_path):
    X, y = digits
    model = stream(small(n_components=200), X[:130], y[:130], 10)
    assert not model.components_.any(axis=1).all()  # some atoms still wait for samples to start at
    others = [pickle.loads(pickle.dumps(model)), save_and_load(model, tmp_path / "stream.ledl")]
    assert_array_equal(others[1].predict(X), model.predict(X))
    stream(model, X[130:200], y[130:200], 10)
    for other in others:
        assert_same(stream(other, X[130:200], y[130:200], 10), model)
    fresh = stream(clone(model), X[:50], y[:50], 10, range(10))
    assert_same(fresh, stream(small(n_components=200), X[:50], y[:50], 10, range(10)))


def test_files_with_sums_that_do_not_go_with_the_atoms_are_refused(digits, tmp_path):
    X, y = digits
    whole = stream(small(), X[:100], y[:100], 50)
    kept = whole.stream_
    wrong = [
        (kept._replace(G=kept.G[:-1]), "G has 40 where"),
        (kept._replace(P=kept.P[:, 1:]), "P has 83 where"),
        (kept._replace(P=kept.P * np.nan), "finite"),
        (kept._replace(class_weights=kept.class_weights[1:]), "class_weights has 9 where"),
        (kept._replace(class_weights=-kept.class_weights), "not negative"),
        (kept._replace(square=-1.0), "square"),
        (kept._replace(n_samples=0), "n_samples"),
        (kept._replace(seed=-1), "seed"),
        ({"G": kept.G}, "stream_"),
    ]
    for bad, message in wrong:
        whole.stream_ = bad
        with pytest.raises(ledl.ModelFileError, match=message):
            save_and_load(whole, tmp_path / "bad.ledl")


def test_predictions_explanations_and_transform_while_atoms_wait(digits):
    X, y = digits
    model = small().partial_fit(X[:5], y[:5], classes=range(10))
    assert (~model.components_.any(axis=1)).sum() == 35
    assert set(model.predict(X[:50])) <= set(y[:5])
    assert np.isfinite(model.decision_function(X[:50])).all()
    explanation = ledl.explain(model, X[0])
    assert str(y[0]) in str(explanation)
    assert model.code_components_.shape == (40, 40)


@pytest.mark.parametrize(
    ("options", "arguments", "message"),
    [
        ({}, {"classes": None}, "classes=None in the first call .* Give all labels"),
        ({}, {"classes": [3, 3]}, r"classes=\[3\] has fewer than two labels"),
        ({}, {"classes": range(5)}, r"y has the labels \[5, 6, 7, 8, 9\].* Leave such samples out"),
        ({}, {"classes": list("abc")}, r"y has the labels \[0, 1, .* not among the classes \['a', 'b', 'c'\]"),
        ({"kernel": "rbf"}, {}, "kernel='rbf': partial_fit is for kernel='linear'"),
        ({"init": "random"}, {}, "init is not 'class'.* Set init='class'"),
        ({"keep_codes": True}, {}, "keep_codes=True.* call transform"),
        ({"precision": "tf32"}, {}, "precision='tf32' is for products on a GPU.* precision='full'"),
        ({"alpha": -1.0}, {}, "'alpha' parameter"),
    ],
)
def test_errors_in_the_first_call(digits, options, arguments, message):
    X, y = digits
    model = small(**options)
    before = dict(vars(model))
    with pytest.raises(ValueError, match=message):
        model.partial_fit(X[:100], y[:100], **{"classes": range(10), **arguments})
    assert vars(model) == before


@pytest.mark.parametrize("is_compiled", [True, False])  # a plain sweep leaves atoms where sums are not finite
def test_sums_that_are_not_finite_are_told_and_not_kept(digits, is_compiled, monkeypatch):
    if not is_compiled:
        monkeypatch.setattr(compiled, "find", lambda *arguments: None)
    X, y = digits
    model = stream(small(), X[:100], y[:100], 50)
    before = pickle.dumps(model.stream_)
    with np.errstate(all="ignore"), pytest.raises(ValueError, match=r"failed at batch 3: .* raise rho"):
        model.set_params(rho=1e-300).partial_fit(X[100:150], y[100:150])
    assert pickle.dumps(model.stream_) == before
    assert model.n_iter_ == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X, y: (X[:, 1:], y, None), "63 features"),
        (lambda X, y: (X, y, range(11)), "classes=.*10\\], but the model knows .* Leave classes out"),
        (lambda X, y: (X, y + 1, None), r"y has the labels \[10\]"),
        (lambda X, y: (np.where(X > 15, np.nan, X), y, None), "NaN"),
        (lambda X, y: (X, y[1:], None), "inconsistent"),
        (lambda X, y: (X.reshape(-1, 8, 8), y, None), "Flatten"),
    ],
)
def test_errors_in_later_calls_leave_the_model_as_it_was(digits, change, message):
    X, y = digits
    model = stream(small(), X[:100], y[:100], 50)
    before = pickle.dumps(model)
    X, y, classes = change(X[100:200], y[100:200])
    with pytest.raises(ValueError, match=message):
        model.partial_fit(X, y, classes=classes)
    assert pickle.dumps(model) == before


def test_parameters_that_cannot_change(digits):
    X, y = digits
    model = stream(small(), X[:100], y[:100], 50)
    with pytest.raises(ValueError, match=r"n_components=50, but the model has 40 atoms.* Set n_components=40"):
        model.set_params(n_components=50).partial_fit(X[:10], y[:10])
    with pytest.raises(ValueError, match="alpha"):
        model.set_params(n_components=40, alpha=0).partial_fit(X[:10], y[:10])
    kernel = LEDLClassifier(kernel="rbf", max_iter=2, tol=0).fit(X[:50], y[:50]).set_params(kernel="linear")
    with pytest.raises(ValueError, match="partial_fit is for kernel='linear'"):
        kernel.partial_fit(X[:10], y[:10])


def test_codes_that_are_all_zero_are_told(digits):
    X, y = digits
    with pytest.warns(UserWarning, match="of this batch are zero: alpha=1000") as told:
        small(alpha=1000.0).partial_fit(X[:50], y[:50], classes=range(10))
    assert told[0].filename == sys._getframe().f_code.co_filename


def test_a_model_forgets_the_samples_of_an_earlier_fit(digits, tmp_path, monkeypatch):
    X, y = digits
    model = small(max_iter=2, tol=0).fit(X[:100], y[:100])
    assert model.dictionary_.samples is not None
    np.save(tmp_path / "X.npy", X[100:300])
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    assert len(model.fit(mapped, y[100:300]).dictionary_.samples) == 200
    monkeypatch.setattr("ledl.estimators._base.KEPT_NUMBERS", 200 * 64 - 1)  # too many to keep
    model.fit(mapped, y[100:300])
    assert model.dictionary_.samples is None
    assert model.dictionary_.sample_labels is None


def test_atoms_without_n_components(digits):
    X, y = digits
    model = LEDLClassifier(random_state=0)
    model.partial_fit(X[:3], y[:3], classes=range(10))
    assert len(model.components_) == 10  # one for each class, though fit would have taken six
    assert len(LEDLClassifier().partial_fit(X[:40], y[:40], classes=range(10)).components_) == 80
