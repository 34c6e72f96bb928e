"""Refuse models whose parts do not fit together, or that need too much memory."""

import os
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import Normalizer

from helpers.model_files import (
    fitted,
    packed,
    part,
    tampered,
    unpacked,
    with_record,
)
from ledl import (
    CRCClassifier,
    ModelFileError,
    ProCRCClassifier,
    SRCClassifier,
    load,
    save,
)
from ledl.dictionary import ClassifierRule
from ledl.features import ColorFeatures, NetworkFeatures, PixelFeatures, Preprocessing
from ledl.persistence import _checks
from ledl.subspace import RowSpace


@pytest.mark.parametrize(
    ("name", "parameter", "value"), [("standard-none", "with_std", True), ("lda-lsqr", "solver", "svd")]
)
def test_parameters_that_ask_for_attributes_which_are_not_there(name, parameter, value, path):
    model, _ = fitted(name)
    with pytest.raises(ModelFileError, match="it has no scal"):
        save(model.set_params(**{parameter: value}), path)


def test_answers_and_places_of_judged_samples_are_possible(path):
    model, _ = fitted("rejecting")
    answers, places = model.cv_predictions_, model.judged_
    model.cv_predictions_ = np.full_like(answers, answers.max() + 1)
    with pytest.raises(ModelFileError, match="its predictions are no classes"):
        save(model, path)
    model.cv_predictions_ = answers
    for wrong in (places - 1, places[::-1].copy(), np.zeros_like(places)):
        model.judged_ = wrong
        with pytest.raises(ModelFileError, match="its judged samples are not in order"):
            save(model, path)


@pytest.mark.parametrize("name", ["normalizer", "standard", "pca", "svc"])
def test_truth_values_are_no_numbers(name, path):
    model, _ = fitted(name)
    model.n_features_in_ = True
    with pytest.raises(ModelFileError, match="n_features_in_ must be a number, not True"):
        save(model, path)


@pytest.mark.parametrize("name", ["crc", "src", "ledl", "crc-rbf", "dksvd", "ridge", "pipeline"])
def test_numbers_that_are_not_finite_are_refused(name, path):
    model, _ = fitted(name)
    last = model[-1] if isinstance(model, Pipeline) else model
    for attribute in [a for a in ("label_components_", "coef_") if hasattr(last, a)]:
        values = getattr(last, attribute)
        setattr(last, attribute, np.where(np.arange(values.shape[1]) == 1, np.nan, values))
        with pytest.raises(ModelFileError, match="finite"):
            save(model, path)
        setattr(last, attribute, values)
    record = getattr(last, "_dictionary", None)
    for field in ("atoms", "samples", "rule") if record else ():
        value = getattr(record, field)
        if isinstance(value, np.ndarray):
            changed = np.where(np.arange(value.shape[1]) == 1, np.nan, value)
        else:
            changed = ClassifierRule(np.full((len(record.atoms), len(record.classes)), np.inf))
        last._dictionary = replace(record, **{field: changed})
        with pytest.raises(ModelFileError, match="finite"):
            save(model, path)
        last._dictionary = record
    save(model, path)


@pytest.fixture
def tall(path):
    """A dictionary whose Gram matrix is many times the size of its file."""
    rng = np.random.default_rng(0)
    model = SRCClassifier().fit(rng.random((60, 2)), np.arange(60) % 2)
    save(model, path)
    return model


def test_a_large_dictionary_is_not_tried(tall, path, monkeypatch):
    def forbidden(self, X):
        raise AssertionError("tried")

    with monkeypatch.context() as patch:
        patch.setattr(SRCClassifier, "decision_function", forbidden)
        with pytest.raises(ModelFileError, match="tried"):
            load(path)
        patch.setattr(_checks, "MAX_TRIAL", 8 * 60**2 - 1)
        again = load(path)
    assert_array_equal(again.predict([[1, 2]]), tall.predict([[1, 2]]))


def test_files_that_this_machine_cannot_hold_are_refused(tall, path, monkeypatch):
    monkeypatch.setattr(_checks, "MAX_TRIAL", 0)
    monkeypatch.setattr(os, "sysconf", lambda name: 120)  # pages, and bytes of a page: 14 kB
    assert path.stat().st_size < 120**2 < 8 * 60**2
    with pytest.raises(ModelFileError, match="Its predictions need about"):
        load(path)
    monkeypatch.setattr(os, "sysconf", lambda name: 10)
    with pytest.raises(ModelFileError, match="holds arrays that need about"):
        load(path)


def test_predictions_without_products_of_all_pairs_need_no_memory_for_them(path, monkeypatch):
    """ProCRC was refused from some 56,000 samples on, as if it needed 29 GB."""
    rng = np.random.default_rng(0)
    X, y = rng.random((60, 2)), np.arange(60) % 2
    monkeypatch.setattr(os, "sysconf", lambda name: 120)
    for model in (ProCRCClassifier(), CRCClassifier()):
        save(model.fit(X, y), path)
        assert_array_equal(load(path).predict(X), model.predict(X))


def test_atoms_of_small_arrays_must_not_be_large(path, traced):
    labels, d = np.arange(50_000) % 3, 50_000
    model = with_record(
        space=RowSpace(np.ones((1, d))),
        atoms=np.ones((len(labels), 1)),
        atom_labels=labels,
        samples=None,
        sample_labels=None,
    )
    model.n_features_in_, model.atom_classes_ = d, model.classes_[labels]
    with pytest.raises(ModelFileError, match="components_ would need 20,000,000,000 bytes, many times"):
        save(model, path)
    assert tracemalloc.get_traced_memory()[1] < 32 * 2**20


def test_images_of_any_size_are_not_asked_for(tmp_path):
    for extractor in (
        PixelFeatures(size=5000),
        PixelFeatures(size=(5000, 2)),
    ):
        with pytest.raises(ModelFileError, match="4096"):
            save(extractor, tmp_path / "large.ledl")
    hostile = Preprocessing()
    object.__setattr__(hostile, "size", 4096)
    with pytest.raises(ModelFileError, match=r"size=4096 .*size from 1 to 1024"):
        save(NetworkFeatures("network.onnx", preprocessing=hostile), tmp_path / "hostile.ledl")
    wide = make_pipeline(PixelFeatures(size=100), Normalizer(), fitted("crc")[0])
    with pytest.raises(ModelFileError, match="a step gives 10000 values and the next takes 12"):
        save(wide, tmp_path / "wide.ledl")


def test_colours_have_no_attributes_and_a_known_number_of_values(tmp_path):
    wide = make_pipeline(ColorFeatures(), Normalizer(), fitted("crc")[0])
    with pytest.raises(ModelFileError, match="a step gives 529 values and the next takes 12"):
        save(wide, tmp_path / "wide.ledl")
    changed = ColorFeatures()
    changed.size_ = 5
    with pytest.raises(ModelFileError, match="colours have no attributes"):
        save(changed, tmp_path / "changed.ledl")


LASSO = {"alpha": 0.1, "tol": 1e-6, "solver": "auto", "max_iter": 10_000, "positive": False}


@pytest.mark.parametrize(
    ("keys", "value", "message"),
    [
        (("params", "alpha"), -1.0, "'alpha' parameter"),
        (("params", "alpha"), {"float": "nan"}, "'alpha'|finite"),
        (("params", "kernel"), "system", "'kernel' parameter"),
        (("state", "n_features_in_"), 10**12, "where there should be"),
        (("state", "n_features_in_"), "12", "12 features where there should be '12'"),
        (("state", "n_features_in_"), True, "12 features where there should be True"),
        (("state", "components_"), 1, "components_ must be floats"),
        (("dictionary", "features"), part("FeatureMap", power=1.0, unit_norm=1), "'unit_norm' .*bool"),
        (("dictionary", "features"), part("FeatureMap", power=2.0, unit_norm=True), "'power' .*range"),
        (("dictionary", "features"), True, "'features' .*FeatureMap"),
        (("dictionary", "coder"), 1, "'coder' .*Lasso"),
        (("dictionary", "coder"), part("OMP", n_nonzero=2), "'coder' .*Ridge"),
        (("dictionary", "coder"), part("OMP", n_nonzero=0), "'n_nonzero' .*range"),
        (("dictionary", "coder"), part("Ridge", alpha=-1.0, name="alpha"), "'alpha' .*range"),
        (("dictionary", "coder"), part("Ridge", alpha={"float": "inf"}, name="alpha"), "'alpha' .*range"),
        (("dictionary", "coder"), part("Ridge", alpha=1.0, name="x"), "'name' .*ridge_alpha"),
        (("dictionary", "coder"), part("Lasso", **{**LASSO, "tol": 0}), "'tol' .*range"),
        (("dictionary", "coder"), part("Lasso", **{**LASSO, "solver": "x"}), "'solver' .*auto"),
        (("dictionary", "coder"), part("Lasso", **{**LASSO, "max_iter": 0.5}), "'max_iter' .*range"),
        (("dictionary", "coder"), part("Lasso", **{**LASSO, "max_iter": 10_001}), "'max_iter' .*range"),
        (("dictionary", "coder"), part("Lasso", **{**LASSO, "positive": 1}), "'positive' .*bool"),
        (("dictionary", "rule"), None, "it has no rule"),
        (("dictionary", "rule"), part("RegularizedRule", coder=None), "'rule' .*ResidualRule"),
        (("dictionary", "rule"), part("RegularizedRule", coder=3), "'coder' .*None"),
        (("dictionary", "space"), part("IdentitySubspace"), "features where there should be 12"),
        (("dictionary", "space"), part("PrecomputedKernel"), "'space' .*RowSpace"),
        (("dictionary", "space"), None, "'space' .*RowSpace"),
        (("dictionary", "classes"), {"strings": ["a", "a", "b"]}, "a class occurs twice"),
        (("dictionary", "classes"), {"strings": ["a", "b"]}, "atoms belong to no class"),
        (("dictionary", "classes"), {"strings": ["a", "b", "c", "d"]}, "some classes have no atoms"),
        (("dictionary", "classes"), {"strings": ["a"]}, "fewer than two classes"),
        (("dictionary", "classes"), None, "it has no classes"),
        (("dictionary", "atom_labels"), None, "no classes of atoms"),
        (("dictionary", "atom_labels"), {"array": 0}, "atom_labels must be integers"),
        (("dictionary", "sample_labels"), None, "samples and their labels go together"),
        (("state", "_sklearn_output_config"), {"dict": [["transform", "os"]]}, "output has an unknown kind"),
    ],
)  # fmt: skip
def test_tampered_models_are_refused_with_a_reason(keys, value, message, path, content):
    path.write_bytes(tampered(content, *keys, value=value))
    with pytest.raises(ModelFileError, match=message):
        load(path)


@pytest.mark.parametrize(
    ("name", "attribute", "value"),
    [
        ("ledl-cv", "temperature_", 0.0),
        ("ledl-cv", "temperature_", -1.0),
        ("ledl", "n_iter_", 0),
        ("ledl", "n_iter_", -3),
        ("ledl", "n_iter_", 2.5),
        ("csdl", "n_iter_", "3"),
    ],
)
def test_numbers_that_no_fit_gives_are_refused(name, attribute, value, path):
    save(fitted(name)[0], path)
    path.write_bytes(tampered(path.read_bytes(), "state", attribute, value=value))
    with pytest.raises(ModelFileError, match=f"'{attribute}' .*must be"):
        load(path)


@pytest.mark.parametrize(
    ("name", "arrays", "message"),
    [
        ("rejecting", {"4": np.ones((9, 3))}, "there must be two measures of evidence"),
        ("crc-rbf", {"0": np.ones((9, 12), np.float32)}, "training must be float64"),
        ("crc", {"0": np.ones((13, 12)), "1": np.ones((9, 13))}, "more vectors than the space has directions"),
        ("crc-precomputed", {"0.T": np.ones((10, 9)), "1": np.ones((9, 10))}, "more vectors than the space"),
        ("crc", {"3": np.zeros(9, int)}, "some classes have no atoms"),
    ],
)
def test_arrays_that_would_load_but_for_one_check_are_refused(name, arrays, message, path):
    save(fitted(name)[0], path)
    header, tensors = unpacked(path.read_bytes())
    assert arrays.keys() < tensors.keys()
    path.write_bytes(packed(header, tensors | arrays))
    with pytest.raises(ModelFileError, match=message):
        load(path)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("neighbours", 9, "its neighbours are not in range"),
        ("neighbours", -1, "its neighbours are not in range"),
        ("labelled", 9, "its labelled samples are not in range"),
        ("labels", 3, "its labels are not in range"),
        ("labels", -1, "its labels are not in range"),
        ("rows", 9, "its rows are not in range"),
        ("rows", -1, "its rows are not in range"),
        ("sums", 0, "sums of weights are positive"),
        ("weights", 1.5, "its weights are not in range"),
        ("scales", -1, "its scales are not in range"),
        ("F", -0.1, "its F are not in range"),
        ("F", 100, "its F are not in range"),
        ("axes", np.nan, "axes must be finite"),
        ("alpha", 1.0, "'alpha' .*must be"),
    ],
)
def test_graphs_with_numbers_that_are_not_theirs_are_refused(field, value, message, path):
    model, _ = fitted("semi")
    values = np.array(getattr(model.graph_, field))
    values[(0,) * values.ndim] = value
    model.graph_ = replace(model.graph_, **{field: values if values.ndim else value})
    with pytest.raises(ModelFileError, match=message):
        save(model, path)


@pytest.mark.parametrize(
    ("attribute", "value", "message"),
    [
        ("graph_", None, "its method needs a graph"),
        ("method_", "supervised", "its method needs a graph"),
        ("estimator_", SRCClassifier(), "its classifier is not fitted"),
        ("classes_", np.array([3, 4, 5]), "its classes are not the classes of its classifier"),
        ("hidden_rows_", np.arange(4, 10), "there are no such rows"),
        ("labelled_rows_", np.arange(-1, 5), "there are no such rows"),
        ("labelled_rows_", np.arange(6)[::-1], "its graph has labels of other rows"),
        ("labelled_rows_", np.arange(5), "labelled has 6 where there should be 5"),
        ("hidden_scores_", np.zeros((2, 3)), "hidden_scores_ has 2 where there should be 6"),
        ("label_distributions_", np.zeros((8, 3)), "transduction_ has 9 where there should be 8"),
        ("n_features_in_", 11, "its classifier has other features"),
        ("temperature_", 0.0, "'temperature_' .*must be"),
    ],
)
def test_semi_supervised_models_whose_parts_do_not_fit_are_refused(attribute, value, message, path):
    model, _ = fitted("semi")
    setattr(model, attribute, value)
    with pytest.raises(ModelFileError, match=message):
        save(model, path)


def test_a_graph_of_other_features_or_classes_is_refused(path):
    model, _ = fitted("semi")
    graph = model.graph_
    for changes in (
        {"mean": graph.mean[:-1], "axes": graph.axes[:-1]},
        {"F": np.ascontiguousarray(graph.F[:, :2]), "labels": np.minimum(graph.labels, 1)},
    ):
        model.graph_ = replace(graph, **changes)
        with pytest.raises(ModelFileError, match="where there should be"):
            save(model, path)
