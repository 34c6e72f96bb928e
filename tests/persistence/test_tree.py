"""Turn models into trees of plain values and back, and refuse trees that are no models."""

import json
import tracemalloc
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn import config_context
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler

from helpers.model_files import (
    MODELS,
    Wrapper,
    assert_same,
    fitted,
    packed,
    part,
    round_trip,
    samples,
    tampered,
    unpacked,
    with_record,
)
from ledl import (
    CRCClassifier,
    LEDLClassifier,
    LEDLClassifierCV,
    ModelFileError,
    SRCClassifier,
    __version__,
    load,
    save,
)
from ledl.persistence import _checks, _tree
from ledl.persistence._format import write_file


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


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SRCClassifier(kernel=dot), r"SRCClassifier.kernel .*is code.*Use one of the kernels"),
        (lambda: SRCClassifier(kernel=dot).fit(*samples()[:2]), r"SRCClassifier.kernel .*is code"),
        (lambda: LEDLClassifier(random_state=np.random.RandomState(0)), r"random_state .*Use an int or None"),
        (lambda: LEDLClassifierCV(cv=KFold()), r"LEDLClassifierCV.cv .*only training needs. Set it to"),
        (lambda: RandomForestClassifier(), "RandomForestClassifier .*do not know.*Known are CRCClassifier"),
        (lambda: searched(), "is a search, GridSearchCV, not a model. Save its best_estimator_"),
        (lambda: MyClassifier(), "MyClassifier .*adds code to CRCClassifier.*Use CRCClassifier itself"),
        (lambda: make_pipeline(MyClassifier()), r"Pipeline.steps\[0\]\[1\] .*adds code to CRCClassifier"),
        (lambda: make_pipeline(StandardScaler(), fitted("crc")[0]), "step is not fitted, but one after it is"),
        (lambda: with_attribute("note", 3), r"CRCClassifier.note .*not an attribute that fit sets.*info"),
        (lambda: with_attribute("predict", 3), r"CRCClassifier.predict .*not an attribute that fit sets"),
        (lambda: with_attribute("_extra", print), r"CRCClassifier._extra .*is code"),
        (lambda: with_attribute("x_", np.array([1, "a"], dtype=object)), r"x_ .*not all strings.*astype"),
        (lambda: with_attribute("x_", np.array([1j])), r"CRCClassifier.x_ .*holds complex128.*astype"),
        (lambda: with_attribute("x_", np.ma.array([1.0])), r"CRCClassifier.x_ .*MaskedArray"),
        (lambda: with_attribute("x_", {1, 2}), r"CRCClassifier.x_ .*builtins.set"),
        (lambda: with_attribute("x_", {(1, 2): 3}), r"x_ .*key of type tuple.*strings or numbers"),
        (lambda: with_attribute("x_", 2**63), r"CRCClassifier.x_ .*64 bits"),
        (lambda: with_attribute("x_", within_itself()), r"CRCClassifier.x_.*levels deep, or contains itself"),
        (lambda: with_record(atoms=ONES, samples=ONES), r"CRCClassifier cannot .*where there should be 4"),
        (lambda: with_attribute("classes_", np.arange(4)), r"cannot be stored.* classes_ follows from"),
        (lambda: with_attribute("atom_classes_", np.arange(9)), r" atom_classes_ follows from others"),
        (lambda: with_attribute("_dictionary", None), r"cannot be stored.* follows from others"),
        (lambda: CRCClassifier(alpha=-1), r"cannot be stored.*'alpha' parameter"),
        (lambda: [1, 2], "not an estimator"),
    ],
)  # fmt: skip
def test_values_that_cannot_be_stored_are_reported_before_anything_is_written(make, message, path):
    path.write_bytes(b"before")
    model = make()
    with pytest.raises(ModelFileError, match=message):
        save(model, path)
    assert path.read_bytes() == b"before"
    assert list(path.parent.iterdir()) == [path]


def test_info_that_cannot_be_stored_is_reported(path):
    model, _ = fitted("crc")
    for info, message in (
        ({"a": [0, print]}, r"info\['a'\]\[1\] .*is code"),
        ({"when": pd.Timestamp(0)}, r"info\['when'\] .*Timestamp"),
        ("x" * 2**25, "Everything except the arrays would take"),
    ):
        with pytest.raises(ModelFileError, match=message):
            save(model, path, info=info)
    assert not path.exists()


def test_files_of_newer_versions_are_reported(path, content):
    header, tensors = unpacked(content)
    header["versions"]["ledl"] = "99.0"
    estimator = header["model"]["estimator"]

    def refused(message):
        path.write_bytes(packed(header, tensors))
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
    header, tensors = unpacked(content)
    header["model"]["estimator"]["params"] = {"alpha": 0.5}
    path.write_bytes(packed(header, tensors))
    assert load(path).get_params() == CRCClassifier(alpha=0.5).get_params()


@pytest.mark.parametrize(
    "name", [name for name in MODELS if name.split("-")[0] in ("crc", "src", "ledl", "ksvd")]
)
def test_files_hold_a_dictionary_once_and_nothing_that_follows_from_it(name, path):
    model, _ = fitted(name)
    save(model, path)
    header, _ = unpacked(path.read_bytes())
    state = header["model"]["estimator"]["state"]
    made = {attribute for attribute, node in state.items() if isinstance(node, dict) and "made" in node}
    assert made == vars(model).keys() & {"classes_", "atom_classes_", "components_", "dual_components_"} | (
        {"_dictionary"} if name == "ledl-cv" else set()
    )
    n_models = len(model.estimators_) if name == "ledl-cv" else 1
    assert json.dumps(header).count('"name": "FittedDictionary"') == n_models
    assert "kept" not in json.dumps(header)


@pytest.mark.parametrize("name", ["crc", "src", "src-hellinger", "csdl"])
def test_samples_that_are_the_atoms_stay_one_array(name, path):
    model, _ = fitted(name)
    record = round_trip(model, path).dictionary_
    assert (record.samples is record.atoms) == (model.dictionary_.samples is model.dictionary_.atoms)
    assert (record.samples is record.atoms) == (name != "csdl")


def test_a_tuned_model_has_the_dictionary_of_its_best_one(path):
    again = round_trip(fitted("ledl-cv")[0], path)
    assert again.dictionary_.atoms is again.best_estimator_.dictionary_.atoms
    assert again.classes_ is again.best_estimator_.classes_


def test_models_with_copies_of_shared_arrays(path):
    model, new = fitted("src")
    vars(model).update({name: deepcopy(value) for name, value in vars(model).items()})
    assert_array_equal(round_trip(model, path).predict(new), model.predict(new))


@pytest.mark.torch
def test_settings_of_a_machine_stay_there(path, tmp_path):
    X, y, new = samples()
    model = Pipeline(
        [("n", Normalizer()), ("c", CRCClassifier(device="cpu", n_jobs=2))], memory=str(tmp_path / "m")
    )
    again = round_trip(model.fit(X, y), path)
    assert (again.memory, again["c"].device, again["c"].n_jobs) == (None, None, None)
    assert_allclose(again.decision_function(new), model.decision_function(new))


def test_metadata_requests_are_left_out(path):
    with config_context(enable_metadata_routing=True):
        model = fitted("crc")[0].set_score_request(sample_weight=True)
        again = round_trip(model, path)
        assert model.get_metadata_routing().score.requests == {"sample_weight": True}
        assert again.get_metadata_routing().score.requests == {"sample_weight": None}


def test_callbacks_are_left_out(path):
    callback = pytest.importorskip("sklearn.callback")
    X, y, new = samples()
    model = LEDLClassifier(random_state=0, max_iter=3, tol=0)
    model.set_callbacks(callback.ProgressBar()).fit(X, y)
    again = round_trip(model, path)
    assert not [name for name in vars(again) if "callback" in name]
    assert_array_equal(again.predict(new), model.predict(new))


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
    with pytest.raises(ModelFileError, match=r"info\[.*many times the size of the file"):
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
    header, tensors = unpacked(content)
    header["info"] = {"list": [part("IdentitySubspace")] * 1001}
    path.write_bytes(packed(header, tensors))
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


@pytest.mark.parametrize(
    ("keys", "value", "message"),
    [
        (("state", "__class__"), 1, "attribute '__class__'"),
        (("state", "predict"), 1, "attribute 'predict'"),
        (("state", "_parameter_constraints"), 1, "attribute '_parameter_constraints'"),
        (("state", "_skl_callbacks"), {"list": []}, "attribute '_skl_callbacks'"),
        (("state", "other"), 1, "attribute 'other'"),
        (("params", "n_jobs"), 10**6, "n_jobs belongs to a machine"),
        (("params", "alpha"), 2**63, "64 bits"),
        (("state", "_dictionary"), 1, "no attribute|no dictionary"),
        (("state", "components_"), {"made": "<U9999"}, "no components of type '<U9999'"),
        (("state", "components_"), {"made": None, "x": 1}, "invalid .*components_: "),
        (("state", "dual_components_"), {"made": None}, "dual_components_ does not follow"),
        (("state", "x_"), {"made": None}, "x_ does not follow from a dictionary"),
        (("params", "rule"), {"made": None}, "there is no kind 'made'"),
        (("state", "classes_"), {"strings": ["a", "b", "c"]}, "classes_ follows from others"),
        (("state", "atom_classes_"), {"array": 0}, "atom_classes_ follows from others"),
        (("dictionary", "coder"), part("Ridge", alpha=1.0), "Ridge is made of other fields"),
        (("dictionary", "space"), part("os.system"), "needs 'os.system'"),
        (("dictionary", "space"), {"object": "x"}, "invalid .*space: "),
        (("dictionary", "space"), [1], "invalid .*space: "),
        (("dictionary", "kept"), {"dict": []}, "FittedDictionary is made of other fields"),
        (("dictionary", "atoms"), {"array": 99}, "there is no array 99"),
        (("dictionary", "atoms"), {"array": -1}, "there is no array -1"),
        (("state", "x_"), {"dict": [[{"list": []}, 1]]}, "keys are strings or numbers"),
        (("versions",), 3, "does not say which versions"),
        (("model",), 3, "no estimator"),
    ],
)  # fmt: skip
def test_tampered_trees_are_refused_with_a_reason(keys, value, message, path, content):
    path.write_bytes(tampered(content, *keys, value=value))
    with pytest.raises(ModelFileError, match=message):
        load(path)


def test_advice_names_the_versions_that_wrote_the_file(path, content):
    path.write_bytes(tampered(content, "dictionary", "space", value=[1]))
    with pytest.raises(ModelFileError, match=rf"Use the versions that wrote it, ledl {__version__}.*numpy"):
        load(path)


def test_deep_trees_are_refused(path, content):
    deep = {"list": []}
    for _ in range(200):
        deep = {"list": [deep]}
    path.write_bytes(tampered(content, "info", value=deep))
    with pytest.raises(ModelFileError, match="more than 32 levels"):
        load(path)
