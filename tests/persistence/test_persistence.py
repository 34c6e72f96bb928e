"""Model files: the same predictions, and errors that say what is wrong."""

import json
import os
import pickle
import subprocess
import sys
import tracemalloc
import zipfile
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import RidgeClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler

import ledl
from helpers.model_files import MODELS, Wrapper, fitted, header_of, outcomes, resealed, samples, sealed
from helpers.networks import write_model
from ledl import (
    CRCClassifier,
    LEDLClassifier,
    ModelFileError,
    RejectingClassifier,
    SRCClassifier,
    load,
    save,
)
from ledl.dictionary import ClassifierRule
from ledl.features import PixelFeatures, Preprocessing, ResNetFeatures
from ledl.persistence import _checks, _tree, read
from ledl.persistence._format import write_file
from ledl.subspace import RowSpace

FIXTURES = Path(__file__).parent / "fixtures"
SMALL = Preprocessing(size=8, mean=(1.0, 2.0, 3.0), std=(2.0, 2.0, 2.0), scale=1.0)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.ledl"


def round_trip(model, path):
    save(model, path)
    return load(path)


def assert_same(found, expected):
    """Values of the same types, shapes and bits."""
    assert type(found) is type(expected)
    if isinstance(expected, np.ndarray):
        assert found.dtype == expected.dtype
        assert found.flags.writeable or not expected.flags.writeable
        assert found.flags.aligned
        assert_array_equal(found, expected)
    elif isinstance(expected, dict):
        assert list(found) == list(expected)
        for key in expected:
            assert_same(found[key], expected[key])
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected)
        for pair in zip(found, expected, strict=True):
            assert_same(*pair)
    elif hasattr(expected, "__dict__") and not callable(getattr(type(expected), "__float__", None)):
        left_out = {"skipped_", "kept"}  # what the last call met, and what is kept for speed
        found, expected = (
            {name: value for name, value in vars(one).items() if name not in left_out}
            for one in (found, expected)
        )
        assert_same(found, expected)
    else:
        assert found == expected or (found != found and expected != expected)


@pytest.mark.parametrize("name", MODELS)
def test_a_loaded_model_is_the_same_to_the_last_bit(name, path):
    model, new = fitted(name)
    again = round_trip(model, path)
    assert_same(again, model)
    for method, expected in outcomes(model, new).items():
        assert_array_equal(getattr(again, method)(new), expected, err_msg=method)
    assert clone(again).get_params().keys() == model.get_params().keys()


@pytest.mark.parametrize("n_features", [12, 5])
@pytest.mark.parametrize("name", ["csdl", "dksvd", "dksvd-all", "ksvd", "lcksvd", "lcksvd-1", "ledl", "src"])
def test_models_of_single_precision_are_the_same_with_and_without_a_subspace(name, n_features, path):
    X, y, _ = samples(n_features=n_features)
    model = clone(MODELS[name]).fit(X.astype(np.float32), y)
    assert model.components_.dtype == np.float32
    assert_same(round_trip(model, path), model)


@pytest.mark.parametrize(
    "name", [name for name in MODELS if name.split("-")[0] in ("crc", "src", "ledl", "ksvd")]
)
def test_files_hold_a_dictionary_once_and_nothing_that_follows_from_it(name, path):
    model, _ = fitted(name)
    save(model, path)
    header, _ = header_of(path.read_bytes())
    state = header["model"]["estimator"]["state"]
    made = {attribute for attribute, node in state.items() if isinstance(node, dict) and "made" in node}
    assert made == vars(model).keys() & {"classes_", "atom_classes_", "components_", "dual_components_"} | (
        {"_dictionary"} if name == "ledl-cv" else set()
    )
    assert json.dumps(header).count('"name": "FittedDictionary"') == 1
    assert "kept" not in json.dumps(header)


@pytest.mark.parametrize("name", ["crc", "src", "src-hellinger", "csdl"])
def test_samples_that_are_the_atoms_are_so_again(name, path):
    model, _ = fitted(name)
    record = round_trip(model, path).dictionary_
    assert (record.samples is record.atoms) == (model.dictionary_.samples is model.dictionary_.atoms)
    assert (record.samples is record.atoms) == (name != "csdl")


def test_a_tuned_model_has_the_dictionary_of_its_best_one(path):
    again = round_trip(fitted("ledl-cv")[0], path)
    assert again.dictionary_.atoms is again.best_estimator_.dictionary_.atoms
    assert again.classes_ is again.best_estimator_.classes_


def test_models_that_lost_what_their_arrays_share(path):
    model, new = fitted("src")
    vars(model).update({name: deepcopy(value) for name, value in vars(model).items()})
    assert_array_equal(round_trip(model, path).predict(new), model.predict(new))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "model", [LEDLClassifier(random_state=0), CRCClassifier(kernel="rbf"), SRCClassifier()]
)
def test_predictions_of_all_digits_are_the_same(model, dtype, path):
    X, y = load_digits(return_X_y=True)
    X = X.astype(dtype)
    model = clone(model).fit(X[:50], y[:50])
    assert_array_equal(round_trip(model, path).decision_function(X[50:300]), model.decision_function(X[50:300]))


@pytest.mark.parametrize(
    "labels",
    [
        ["zebra", "ant", "grey fox"],
        np.array(["zebra", "ant", "höhe \x00x"], dtype=object),
        np.array([3, 250, 7], dtype=np.uint8),
        [-1.0, 2.0, 5.0],
        np.array(["a", "bb", "c"], dtype="<U20"),
    ],
    ids=["strings", "objects", "uint8", "floats", "wide"],
)
@pytest.mark.parametrize("model", [CRCClassifier(), RidgeClassifier()])
def test_labels_of_every_kind(model, labels, path):
    X, y, new = samples()
    model = clone(model).fit(X, np.asarray(labels)[y])
    again = round_trip(model, path)
    assert_same(again.classes_, model.classes_)
    assert_array_equal(again.predict(new), model.predict(new))


def test_two_classes_and_truth_values(path):
    X, y, new = samples()
    for model in (LEDLClassifier(random_state=0), CRCClassifier(), RidgeClassifier()):
        model.fit(X, y > 0)
        assert_same(round_trip(model, path).predict(new), model.predict(new))


def test_names_of_features_and_kind_of_output_travel(path):
    X, y, new = samples()
    names = [f"pixel {i}" for i in range(X.shape[1])]
    model = make_pipeline(StandardScaler(), CRCClassifier()).set_output(transform="pandas")
    model.fit(pd.DataFrame(X, columns=names), y)
    again = round_trip(model, path)
    assert_array_equal(again[0].feature_names_in_, names)
    frame = pd.DataFrame(new, columns=names)
    pd.testing.assert_frame_equal(again.transform(frame), model.transform(frame))
    with pytest.raises(ValueError, match="feature names"):
        again.predict(frame.rename(columns={"pixel 0": "other"}))


@pytest.mark.torch
def test_what_belongs_to_a_machine_stays_there(path, tmp_path):
    X, y, new = samples()
    model = Pipeline(
        [("n", Normalizer()), ("c", CRCClassifier(device="cpu", n_jobs=2))], memory=str(tmp_path / "m")
    )
    again = round_trip(model.fit(X, y), path)
    assert (again.memory, again["c"].device, again["c"].n_jobs) == (None, None, None)
    assert_allclose(again.decision_function(new), model.decision_function(new))


def test_callbacks_and_requests_are_left_out(path):
    callback = pytest.importorskip("sklearn.callback")
    X, y, new = samples()
    model = LEDLClassifier(random_state=0, max_iter=3, tol=0)
    model.set_callbacks(callback.ProgressBar()).fit(X, y)
    again = round_trip(model, path)
    assert not [name for name in vars(again) if "callback" in name]
    assert_array_equal(again.predict(new), model.predict(new))


def test_a_start_of_arrays_travels(path):
    X, y, new = samples()
    rng = np.random.default_rng(0)
    start = rng.random((6, 12)), rng.random((6, 3)), rng.random((6, 6))
    model = LEDLClassifier(init=start, max_iter=2, tol=0).fit(X, y)
    again = round_trip(model, path)
    assert_same(again.init, start)
    assert_array_equal(clone(again).fit(X, y).decision_function(new), model.decision_function(new))


def test_models_that_are_not_fitted(path):
    for model in (
        LEDLClassifier(alpha=0.25),
        make_pipeline(PixelFeatures(size=(4, 6)), CRCClassifier()),
        make_pipeline(StandardScaler(), Normalizer(), RejectingClassifier(SRCClassifier())),
    ):
        again = round_trip(model, path)
        assert str(again.get_params()) == str(model.get_params())
        assert vars(again).keys() == vars(model).keys()


def test_numbers_and_lists_of_other_types_than_usual(path):
    unusual = Preprocessing(size=np.int64(8), mean=[1.0, 2, np.float32(3)])
    for model in (
        PixelFeatures(size=(np.int64(4), 6)),
        ResNetFeatures("resnet50", preprocessing=unusual),
        Pipeline((["n", Normalizer()], ["c", CRCClassifier(alpha=np.float32(0.5))])),
    ):
        again = round_trip(model, path)
        assert str(again.get_params()) == str(model.get_params())


def test_what_was_said_of_a_model_travels_with_it(path):
    info = {
        "thumbnails": [np.frombuffer(b"\xff\xd8 jpeg", dtype=np.uint8), np.zeros((0, 32, 32, 3), np.uint8)],
        "accuracy": np.float32(0.25),
        "counts": {0: 5, True: None, 2.5: (1, [2, {}])},
        "limits": [float("nan"), float("inf"), -float("inf"), -0.0, 1e-320],
        "truth": np.array([[True], [False]]),
        "names": np.array(["ä", "日本"]),
        "order": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "large": [2**63 - 1, -(2**63)],
        "swapped": np.arange(3, dtype=">i4"),
        "strided": np.arange(10)[::3],
    }
    model, _ = fitted("crc")
    save(model, path, info=info)
    stored = read(path)
    info["swapped"] = info["swapped"].astype("=i4")
    assert_same(stored.info, info)
    assert stored.info["order"].flags.f_contiguous
    assert stored.versions["ledl"] == ledl.__version__
    assert set(stored.versions) == {"ledl", "numpy", "scikit-learn"}
    save(model, path)
    assert read(path).info is None


def dot(x, y):
    return x @ y


def within_itself():
    circle = []
    circle.append(circle)
    return circle


class MyClassifier(CRCClassifier):
    """Adds nothing, but might."""


def searched():
    return GridSearchCV(CRCClassifier(), {"alpha": [0.1]}, cv=2).fit(*samples()[:2])


def with_attribute(name, value):
    model, _ = fitted("crc")
    setattr(model, name, value)
    return model


ONES = np.ones((9, 4))


def with_record(**changes):
    model, _ = fitted("crc")
    model._dictionary = replace(model._dictionary, **changes)
    return model


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SRCClassifier(kernel=dot), r"SRCClassifier.kernel .*is code.*Use one of the kernels"),
        (lambda: SRCClassifier(kernel=dot).fit(*samples()[:2]), r"SRCClassifier.kernel .*is code"),
        (lambda: LEDLClassifier(random_state=np.random.RandomState(0)), r"random_state .*an int or None"),
        (lambda: RandomForestClassifier(), "RandomForestClassifier .*do not know.*Known are CRCClassifier"),
        (lambda: searched(), "is a search, GridSearchCV, not a model. Save its best_estimator_"),
        (lambda: MyClassifier(), "MyClassifier .*adds code to CRCClassifier.*Use CRCClassifier itself"),
        (lambda: make_pipeline(MyClassifier()), r"Pipeline.steps\[0\]\[1\] .*adds code to CRCClassifier"),
        (lambda: make_pipeline(StandardScaler(), fitted("crc")[0]), "step is not fitted, but one after it is"),
        (lambda: with_attribute("note", 3), r"CRCClassifier.note .*no attribute that fit sets.*info"),
        (lambda: with_attribute("predict", 3), r"CRCClassifier.predict .*no attribute that fit sets"),
        (lambda: with_attribute("_extra", print), r"CRCClassifier._extra .*is code"),
        (lambda: with_attribute("x_", np.array([1, "a"], dtype=object)), r"x_ .*not all strings.*astype"),
        (lambda: with_attribute("x_", np.array([1j])), r"CRCClassifier.x_ .*holds complex128.*astype"),
        (lambda: with_attribute("x_", np.ma.array([1.0])), r"CRCClassifier.x_ .*MaskedArray"),
        (lambda: with_attribute("x_", {1, 2}), r"CRCClassifier.x_ .*builtins.set"),
        (lambda: with_attribute("x_", {(1, 2): 3}), r"x_ .*key of type tuple.*strings or numbers"),
        (lambda: with_attribute("x_", 2**63), r"CRCClassifier.x_ .*64 bits"),
        (lambda: with_attribute("x_", within_itself()), r"CRCClassifier.x_.*levels deep, or within itself"),
        (lambda: with_record(atoms=ONES, samples=ONES), r"CRCClassifier cannot .*where there should be 4"),
        (lambda: with_attribute("classes_", np.arange(4)), r"cannot be stored.* classes_ follows from"),
        (lambda: with_attribute("atom_classes_", np.arange(9)), r" atom_classes_ follows from others"),
        (lambda: with_attribute("_dictionary", None), r"cannot be stored.* follows from others"),
        (lambda: CRCClassifier(alpha=-1), r"cannot be stored.*'alpha' parameter"),
        (lambda: [1, 2], "not an estimator"),
    ],
)  # fmt: skip
def test_what_cannot_be_stored_is_told_before_anything_is_written(make, message, path):
    path.write_bytes(b"before")
    model = make()
    with pytest.raises(ModelFileError, match=message):
        save(model, path)
    assert path.read_bytes() == b"before"
    assert list(path.parent.iterdir()) == [path]


def test_info_that_cannot_be_stored_is_told(path):
    model, _ = fitted("crc")
    for info, message in (
        ({"a": [0, print]}, r"info\['a'\]\[1\] .*is code"),
        ({"when": pd.Timestamp(0)}, r"info\['when'\] .*Timestamp"),
        ("x" * 2**25, "All but the arrays would take"),
    ):
        with pytest.raises(ModelFileError, match=message):
            save(model, path, info=info)
    assert not path.exists()


@pytest.fixture
def content(path):
    """The bytes of a small file."""
    save(fitted("crc")[0], path)
    return path.read_bytes()


def test_files_that_are_no_models_are_told_apart(path, content, tmp_path):
    def message_of(changed):
        path.write_bytes(changed)
        with pytest.raises(ModelFileError) as caught:
            load(path)
        assert str(caught.value).startswith(f"{path} ")
        assert str(caught.value).endswith(".")
        return str(caught.value)

    with zipfile.ZipFile(tmp_path / "zip", "w") as archive:
        archive.writestr("a", "b")
    header, start = header_of(content)
    flipped = bytearray(content)
    flipped[-100] ^= 4
    messages = {
        "is empty": message_of(b""),
        "a pickle, which can run any code": message_of(pickle.dumps([1])),
        "a zip archive": message_of((tmp_path / "zip").read_bytes()),
        "is no model file": message_of(b"hello, this is text"),
        "as if it were text": message_of(content.replace(b"\r\n", b"\n")),
        "is cut off: at least": message_of(content[:-1000]),
        "is cut off: it has 100 bytes": message_of(content[:100]),
        "is cut off. Copy": message_of(content[:6]),
        "checksum": message_of(bytes(flipped)),
        "format 3, and this version": message_of(sealed({**header, "format": 3}, content[start:-32])),
        "older version of ledl (format 1)": message_of(sealed({**header, "format": 1}, content[start:-32])),
        "its format is 'x'": message_of(sealed({**header, "format": "x"}, content[start:-32])),
        "which no model file has": message_of(content[:8] + b"\xff" * 8 + content[16:]),
    }
    for expected, message in messages.items():
        assert expected in message
    assert len(set(messages.values())) == len(messages)


def test_paths_that_are_no_files(tmp_path):
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "gone.ledl")
    with pytest.raises(ModelFileError, match="is a folder"):
        load(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ModelFileError, match="a device or a pipe"):
        load(tmp_path / "pipe")
    with pytest.raises(FileNotFoundError):
        save(CRCClassifier(), tmp_path / "gone" / "model.ledl")


def test_files_of_newer_versions_are_told(path, content):
    header, start = header_of(content)
    header["versions"]["ledl"] = "99.0"
    estimator = header["model"]["estimator"]

    def refused(message):
        path.write_bytes(sealed(header, content[start:-32]))
        with pytest.raises(ModelFileError, match=message):
            load(path)

    estimator["params"]["temperature"] = 2
    refused(r"needs .*the parameter 'temperature' of CRCClassifier.*written by ledl 99.0 with numpy .*newer")
    del estimator["params"]["temperature"]
    estimator["state"]["transform"] = 2
    refused("the attribute 'transform' of CRCClassifier")
    del estimator["state"]["transform"]
    estimator["name"] = "DeepClassifier"
    refused("needs 'DeepClassifier', which ledl .* does not know")


def test_parameters_of_later_versions_have_defaults(path, content):
    header, start = header_of(content)
    header["model"]["estimator"]["params"] = {"alpha": 0.5}
    path.write_bytes(sealed(header, content[start:-32]))
    assert load(path).get_params() == CRCClassifier(alpha=0.5).get_params()


def tampered(content, *keys, value):
    """The file with another value in its header, at those keys of the model's estimator or its dictionary."""
    header, start = header_of(content)
    node = header if keys[0] in header else header["model"]["estimator"]
    if keys[0] == "dictionary":
        node, keys = node["state"]["_dictionary"]["part"]["fields"], keys[1:]
    for key in keys[:-1]:
        node = node[key]
    node[keys[-1]] = value
    return sealed(header, content[start:-32])


def part(kind, **fields):
    """A part as a header has it."""
    return {"part": {"name": kind, "fields": fields}}


LASSO = {"alpha": 0.1, "tol": 1e-6, "solver": "auto", "max_iter": 10_000, "positive": False}


@pytest.mark.parametrize(
    ("keys", "value", "message"),
    [
        (("state", "__class__"), 1, "attribute '__class__'"),
        (("state", "predict"), 1, "attribute 'predict'"),
        (("state", "_parameter_constraints"), 1, "attribute '_parameter_constraints'"),
        (("state", "_skl_callbacks"), {"list": []}, "attribute '_skl_callbacks'"),
        (("state", "other"), 1, "attribute 'other'"),
        (("params", "n_jobs"), 10**6, "n_jobs belongs to a machine"),
        (("params", "alpha"), -1.0, "'alpha' parameter"),
        (("params", "alpha"), {"float": "nan"}, "'alpha'|finite"),
        (("params", "alpha"), 2**63, "64 bits"),
        (("params", "kernel"), "system", "'kernel' parameter"),
        (("state", "n_features_in_"), 10**12, "where there should be"),
        (("state", "n_features_in_"), "12", "12 features where there should be '12'"),
        (("state", "n_features_in_"), True, "12 features where there should be True"),
        (("state", "_dictionary"), 1, "no attribute|no dictionary"),
        (("state", "components_"), 1, "components_ must be floats"),
        (("state", "components_"), {"made": "<U9999"}, "no components of type '<U9999'"),
        (("state", "components_"), {"made": None, "x": 1}, "components_ that is not right"),
        (("state", "dual_components_"), {"made": None}, "dual_components_ does not follow"),
        (("state", "x_"), {"made": None}, "x_ does not follow from a dictionary"),
        (("params", "rule"), {"made": None}, "there is no kind 'made'"),
        (("state", "classes_"), {"strings": ["a", "b", "c"]}, "classes_ follows from others"),
        (("state", "atom_classes_"), {"array": 0}, "atom_classes_ follows from others"),
        (("dictionary", "unit_norm"), 1, "'unit_norm' .*bool"),
        (("dictionary", "coder"), 1, "'coder' .*Lasso"),
        (("dictionary", "coder"), part("OMP", n_nonzero=2), "'coder' .*Ridge"),
        (("dictionary", "coder"), part("OMP", n_nonzero=0), "'n_nonzero' .*range"),
        (("dictionary", "coder"), part("Ridge", alpha=-1.0, name="alpha"), "'alpha' .*range"),
        (("dictionary", "coder"), part("Ridge", alpha={"float": "inf"}, name="alpha"), "'alpha' .*range"),
        (("dictionary", "coder"), part("Ridge", alpha=1.0, name="x"), "'name' .*ridge_alpha"),
        (("dictionary", "coder"), part("Ridge", alpha=1.0), "Ridge is made of other fields"),
        (("dictionary", "coder"), part("Lasso", **{**LASSO, "tol": 0}), "'tol' .*range"),
        (("dictionary", "coder"), part("Lasso", **{**LASSO, "solver": "x"}), "'solver' .*auto"),
        (("dictionary", "coder"), part("Lasso", **{**LASSO, "max_iter": 0.5}), "'max_iter' .*range"),
        (("dictionary", "coder"), part("Lasso", **{**LASSO, "positive": 1}), "'positive' .*bool"),
        (("dictionary", "rule"), None, "it has no rule"),
        (("dictionary", "rule"), part("RegularizedRule", coder=None), "'rule' .*ResidualRule"),
        (("dictionary", "rule"), part("RegularizedRule", coder=3), "'coder' .*None"),
        (("dictionary", "space"), part("IdentitySubspace"), "features where there should be 12"),
        (("dictionary", "space"), part("PrecomputedKernel"), "'space' .*RowSpace"),
        (("dictionary", "space"), part("os.system"), "needs 'os.system'"),
        (("dictionary", "space"), {"object": "x"}, "space that is not right"),
        (("dictionary", "space"), [1], "space that is not right"),
        (("dictionary", "space"), None, "'space' .*RowSpace"),
        (("dictionary", "classes"), {"strings": ["a", "a", "b"]}, "twice"),
        (("dictionary", "classes"), {"strings": ["a", "b"]}, "atoms are of no class"),
        (("dictionary", "classes"), {"strings": ["a", "b", "c", "d"]}, "some classes have no atoms"),
        (("dictionary", "classes"), {"strings": ["a"]}, "fewer than two classes"),
        (("dictionary", "classes"), None, "it has no classes"),
        (("dictionary", "atom_labels"), None, "no classes of atoms"),
        (("dictionary", "atom_labels"), {"array": 0}, "atom_labels must be integers"),
        (("dictionary", "sample_labels"), None, "samples and their labels go together"),
        (("dictionary", "kept"), {"dict": []}, "FittedDictionary is made of other fields"),
        (("dictionary", "atoms"), {"array": 99}, "there is no array 99"),
        (("dictionary", "atoms"), {"array": -1}, "there is no array -1"),
        (("state", "_sklearn_output_config"), {"dict": [["transform", "os"]]}, "its output"),
        (("state", "x_"), {"dict": [[{"list": []}, 1]]}, "keys are strings or numbers"),
        (("arrays", 0, "shape"), [2**40, 2**40], "claims arrays of"),
        (("arrays", 0, "shape"), [-1, -108], "which no array has"),
        (("arrays", 0, "shape"), [0, 2**40], "too large for an array without values"),
        (("arrays", 0, "dtype"), "|O", "is of type"),
        (("arrays", 0, "dtype"), "<c16", "is of type"),
        (("arrays", 1, "offset"), 0, "begins at 0"),
        (("arrays", 0, "order"), "K", "has the order"),
        (("arrays", 0, "dtype"), "|b1", "begins at"),
        (("versions",), 3, "does not say by which versions"),
        (("model",), 3, "no estimator"),
        (("arrays",), {}, "no table"),
    ],
)  # fmt: skip
def test_tampering_is_refused_with_a_reason(keys, value, message, path, content):
    path.write_bytes(tampered(content, *keys, value=value))
    with pytest.raises(ModelFileError, match=message):
        load(path)


@pytest.mark.parametrize(
    ("name", "parameter", "value"), [("standard-none", "with_std", True), ("lda-lsqr", "solver", "svd")]
)
def test_parameters_that_ask_for_attributes_which_are_not_there(name, parameter, value, path):
    model, _ = fitted(name)
    with pytest.raises(ModelFileError, match="it has no scal"):
        save(model.set_params(**{parameter: value}), path)


def test_headers_that_json_itself_can_break(path, content):
    _, start = header_of(content)
    for text in (
        b"[" * 10**5,
        b'{"format": NaN}',
        b'{"format": 1, "format": 1}',
        b"9" * 5000,
        b"\xff",
        b"[]",
        b"{}",
    ):
        path.write_bytes(sealed(text, content[start:-32]))
        with pytest.raises(ModelFileError, match=r"header|format"):
            load(path)
    path.write_bytes(sealed(b'{"arrays": [{"offset": 1e999, "shape": [1], "dtype": "|u1"}]}', bytes(64))[:-1])
    with pytest.raises(ModelFileError, match="checksum"):
        load(path)
    deep = {"list": []}
    for _ in range(200):
        deep = {"list": [deep]}
    path.write_bytes(tampered(content, "info", value=deep))
    with pytest.raises(ModelFileError, match="more than 32 levels"):
        load(path)


def test_bytes_between_arrays_and_arrays_that_nobody_needs(path, content):
    header, start = header_of(content)
    entry = next(e for e in header["arrays"] if np.prod(e["shape"]) * 8 % 64)
    after = start + entry["offset"] + int(np.prod(entry["shape"])) * np.dtype(entry["dtype"]).itemsize
    path.write_bytes(resealed(content[:after] + b"!" + content[after + 1 :]))
    with pytest.raises(ModelFileError, match="else than zeros"):
        load(path)
    header["arrays"].append({"dtype": "|u1", "shape": [64], "order": "C", "offset": len(content) - 32 - start})
    path.write_bytes(sealed(header, content[start:-32] + bytes(64)))
    with pytest.raises(ModelFileError, match="nothing refers to"):
        load(path)


def test_values_that_no_such_array_has(path):
    model, _ = fitted("crc")
    truth = np.array([True] * 64)
    save(model, path, info=truth)
    content = path.read_bytes()
    path.write_bytes(resealed(content[:-33] + b"\x02" + content[-32:]))
    with pytest.raises(ModelFileError, match="neither true nor false"):
        load(path)
    save(model, path, info=np.array(["x" * 16]))
    content = path.read_bytes()
    path.write_bytes(resealed(content[:-36] + b"\xff\xff\xff\xff" + content[-32:]))
    with pytest.raises(ModelFileError, match="characters that there are not"):
        load(path)


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


def test_what_this_machine_cannot_hold_is_refused(tall, path, monkeypatch):
    monkeypatch.setattr(_checks, "MAX_TRIAL", 0)
    monkeypatch.setattr(os, "sysconf", lambda name: 120)  # pages, and bytes of a page: 14 kB
    assert path.stat().st_size < 120**2 < 8 * 60**2
    with pytest.raises(ModelFileError, match="Its predictions need about"):
        load(path)
    monkeypatch.setattr(os, "sysconf", lambda name: 10)
    with pytest.raises(ModelFileError, match="holds arrays that need about"):
        load(path)


def peak_of_loading(path):
    tracemalloc.start()
    try:
        with suppress(ModelFileError):
            load(path)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_no_file_takes_many_times_its_size(path, content):
    X = np.linspace(1, 2, 20_000)[:, None]
    save(SRCClassifier(normalize=False).fit(X, np.arange(20_000) % 2), path)
    assert peak_of_loading(path) < 20 * 2**20  # its Gram matrix would be 3.2 GB
    for part in (b"[[],[]],", b'{"":{}},', b'"","",', b"1e5,"):
        header, start = header_of(content)
        header["info"] = "here"
        bomb = b'{"list":[' + part * (2**19 // len(part)) + b"1]}"
        path.write_bytes(sealed(json.dumps(header).encode().replace(b'"here"', bomb), content[start:-32]))
        assert peak_of_loading(path) < 64 * path.stat().st_size


@pytest.fixture
def traced():
    """Memory is counted."""
    tracemalloc.start()
    yield
    tracemalloc.stop()


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


def test_labels_of_atoms_must_not_be_large(path, traced):
    model = SRCClassifier().fit(np.linspace(1, 2, 1000)[:, None], np.arange(1000) % 2)
    model.classes_ = np.array(["a" * 2**20, "b"])
    model._dictionary = replace(model.dictionary_, classes=model.classes_)
    del model.atom_classes_
    encoder = _tree.Encoder()
    tree = encoder.encode(model, "model")
    tree["estimator"]["state"]["atom_classes_"] = {"made": None}
    write_file(path, {"versions": {}, "model": tree, "info": None}, encoder.arrays)
    with pytest.raises(ModelFileError, match="atom_classes_ would need 4,194,304,000 bytes"):
        load(path)
    assert tracemalloc.get_traced_memory()[1] < 64 * 2**20


def test_many_models_of_the_same_arrays_must_not_be_large(path, monkeypatch):
    model, _ = fitted("crc")
    save(model, path, info=[model] * 100)
    monkeypatch.setattr(_tree, "MAX_MADE", 0)
    save(model, path, info=[model] * 2)
    with pytest.raises(ModelFileError, match=r"info\[.*many times what the file holds"):
        save(model, path, info=[model] * 100)


@pytest.mark.parametrize("name", ["crc", "crc-rbf", "ksvd", "lcksvd", "rejecting-pipeline"])
def test_atoms_that_would_take_too_much_memory_to_make_are_stored(name, path, monkeypatch):
    model, _ = fitted(name)
    save(model, path)
    small = path.stat().st_size
    monkeypatch.setattr(_tree.Encoder, "_is_made", lambda self, name, *rest: not name.endswith("components_"))
    assert_same(round_trip(model, path), model)
    assert path.stat().st_size > small


def test_a_model_of_a_thousand_parts_is_refused(path, content):
    header, start = header_of(content)
    header["info"] = {"list": [part("IdentitySubspace")] * 1001}
    path.write_bytes(sealed(header, content[start:-32]))
    with pytest.raises(ModelFileError, match="more than 1000 estimators"):
        load(path)


def test_estimators_within_estimators(path, monkeypatch):
    monkeypatch.setitem(_checks.ESTIMATORS, Wrapper, {})
    X, y, new = samples()
    model = Wrapper(make_pipeline(Normalizer(), CRCClassifier())).fit(X, y)
    again = round_trip(make_pipeline(StandardScaler(), model).fit(X, y), path)
    assert type(again[-1].estimator_[0]) is Normalizer
    assert not hasattr(again[-1].estimator[-1], "classes_")
    assert_array_equal(again.predict(new), model.predict(StandardScaler().fit(X).transform(new)))
    again[-1].estimator_[-1].dictionary_.atoms[:] = np.nan
    with pytest.raises(ModelFileError, match=r"steps\[1\]\[1\].estimator_.*finite"):
        save(again, path)


def test_networks_are_pointed_to_and_never_stored(path, tmp_path):
    network = tmp_path / "net.onnx"
    write_model(network)
    rng = np.random.default_rng(0)
    images = [rng.integers(0, 256, (9, 9, 3), dtype=np.uint8) for _ in range(6)]
    extractor = ResNetFeatures(network, preprocessing=SMALL, cache=tmp_path / "cache", progress=False)
    model = make_pipeline(extractor, CRCClassifier()).fit(images, [0, 1] * 3)
    again = round_trip(model, path)
    stored = again[0]
    assert (stored.model, stored.cache) == (str(network), None)
    assert {name for name in vars(stored) if name not in stored.get_params()} == {
        "identity_",
        "preprocessing_",
        "_n_features_out",
    }
    assert (stored.identity_, stored.preprocessing_) == (extractor.identity_, SMALL)
    assert_array_equal(again.decision_function(images), model.decision_function(images))
    network.rename(tmp_path / "moved.onnx")
    with pytest.raises(FileNotFoundError, match=r"set_params\(model="):
        load(path).predict(images)
    moved = load(path).set_params(resnetfeatures__model=tmp_path / "moved.onnx")
    assert_array_equal(moved.predict(images), model.predict(images))
    write_model(network, n_features=4, size=8)
    with pytest.raises(ValueError, match=r"trained on features of sha256:.*, but .*net.onnx is sha256:"):
        load(path).predict(images)


def test_no_pickle_is_read_or_imported():
    folder = Path(ledl.__file__).parent / "persistence"
    assert not [file for file in folder.glob("*.py") if "import pickle" in file.read_text()]
    code = "import sys, ledl; ledl.save; print('numba' in sys.modules, 'torch' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False False\n"
    )


@pytest.mark.parametrize("file", sorted(FIXTURES.glob("*.ledl")), ids=lambda file: file.stem)
def test_files_of_earlier_versions_give_the_scores_that_they_gave(file):
    """Made by make_model_fixtures.py; a file there is made again for a new format only."""
    stored = read(file)
    for method, expected in stored.info["outcomes"].items():
        found = getattr(stored.model, method)(stored.info["samples"])
        if expected.dtype.kind == "f":
            assert_allclose(found, expected, rtol=1e-10, atol=1e-10)
        else:
            assert_array_equal(found, expected)


def test_there_are_files_of_every_kind():
    assert {file.stem.split(".", 1)[0] for file in FIXTURES.glob("*.ledl")} >= set(MODELS)


def test_images_of_any_size_are_not_asked_for(tmp_path):
    for extractor in (
        PixelFeatures(size=5000),
        PixelFeatures(size=(5000, 2)),
        ResNetFeatures("network.onnx", preprocessing=Preprocessing(size=5000)),
        ResNetFeatures("network.onnx", preprocessing=Preprocessing(size=224, resize=5000)),
    ):
        with pytest.raises(ModelFileError, match="4096"):
            save(extractor, tmp_path / "large.ledl")
    wide = make_pipeline(PixelFeatures(size=100), Normalizer(), fitted("crc")[0])
    with pytest.raises(ModelFileError, match="a step gives 10000 values and the next takes 12"):
        save(wide, tmp_path / "wide.ledl")
