"""Train on folders of images, predict and explain, without the command line."""

import hashlib
import io
import shutil
from dataclasses import asdict

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

import ledl
from ledl import image_models
from ledl.features import PixelFeatures
from ledl.image_models import (
    Record,
    facts,
    find_extractors,
    fit_folder,
    image_model,
    open_image_model,
    predict_files,
    trained_on,
)

Image = pytest.importorskip("PIL.Image")
from helpers.digits import NAMES, write_digits  # noqa: E402


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_digits(tmp_path_factory.mktemp("digits"))


@pytest.fixture(scope="module")
def trained(folder):
    return fit_folder(folder / "known", features="pixels", size=8, per_class=6, seed=3, method="crc")


def test_the_accuracy_is_that_of_models_trained_without_the_image(trained):
    said = trained.model[-1].cv_predictions_
    assert trained.record.cv_accuracy == np.mean(np.array(trained.record.labels) == said)


def test_the_accuracy_of_chosen_settings_allows_for_the_choice(folder):
    trained = fit_folder(folder / "known", features="pixels", size=8, per_class=6, thumbnails=False)
    X = trained.extractor.transform([folder / "known" / name for name in trained.record.files])
    search = ledl.LEDLClassifierCV(random_state=0).fit(X, trained.record.labels)
    assert trained.record.cv_accuracy == search.expected_accuracy_
    assert trained.record.cv_interval == list(search.expected_accuracy_interval_)
    low, high = (f"{100 * end:.0f}" for end in search.expected_accuracy_interval_)
    said = facts(trained)["accuracy"]
    assert f"(95 % interval: {low} to {high} %) in 5-fold cross-validation, corrected for the choice" in said
    assert "too high" not in said


def test_thumbnails_are_small_copies_of_the_training_images(folder, trained):
    for name, picture in zip(trained.record.files, trained.record.thumbnails, strict=True):
        small = np.asarray(Image.open(io.BytesIO(picture.tobytes())).convert("L"), dtype=float)
        with Image.open(folder / "known" / name) as image:
            np.testing.assert_allclose(small, np.asarray(image, dtype=float), atol=40)


def test_a_faster_method_is_reported_for_many_images(folder, monkeypatch):
    monkeypatch.setattr(image_models, "MANY_IMAGES", 3)
    for method, expected in (("ledl-cv", True), ("ledl", False)):
        reported = []
        fit_folder(
            folder / "known", features="pixels", size=8, per_class=2, method=method, report=reported.append
        )
        assert any("Faster: --method ledl," in text for text in reported) == expected


def test_auto_chooses_the_better_features_and_reports_it(folder, tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime")
    from helpers.networks import write_model

    write_model(tmp_path / "resnet50_pool5.onnx", n_features=2, monkeypatch=monkeypatch)
    monkeypatch.setenv("LEDL_DATA", str(tmp_path))
    reported = []
    options = {"size": 8, "method": "crc", "select": "cv", "thumbnails": False}
    trained = fit_folder(folder / "known", report=reported.append, **options)
    assert isinstance(trained.model[0], PixelFeatures)  # the network's mean colours are useless for digits
    assert trained.record.chosen_features
    assert "too high, because settings and features were chosen" in facts(trained)["accuracy"]
    assert "resnet50_pool5.onnx" in reported[-1]
    trained = fit_folder(folder / "known", per_class=1, size=8, method="crc")
    assert not trained.record.chosen_features


def test_auto_takes_pixels_if_there_is_no_network(tmp_path, monkeypatch):
    monkeypatch.setenv("LEDL_DATA", str(tmp_path))
    (pixels,) = find_extractors("auto", None, None, None)
    assert isinstance(pixels, PixelFeatures)
    assert pixels.size == 32


def test_training_images_are_recognized_by_their_content(tmp_path):
    files = {}
    for name, value in {"p/cat/0": 1, "q/cat/0": 2, "p/dog/0": 3, "p/dog/1": 3, "p/fox/0": 4}.items():
        file = tmp_path / f"{name}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (4, 4), value).save(file)
        files[name] = file
    digests = {name: hashlib.sha256(file.read_bytes()).hexdigest() for name, file in files.items()}
    known = [
        ("cat/0.png", digests["p/cat/0"]),
        ("cat/0.png", digests["q/cat/0"]),
        ("dog/1.png", digests["p/dog/1"]),
    ]
    seen, n_copies = trained_on(known, list(files.values()))
    assert dict(zip(files, seen, strict=True)) == {
        "p/cat/0": True, "q/cat/0": True, "p/dog/0": False, "p/dog/1": True, "p/fox/0": False,
    }  # fmt: skip
    assert n_copies == 1
    renamed = files["p/fox/0"].rename(tmp_path / "other.png")
    assert trained_on([("fox/0.png", digests["p/fox/0"])], [renamed]) == ([True], 0)


def test_predictions_are_those_of_the_pipeline(folder, tmp_path):
    two = tmp_path / "two"
    for name in NAMES[:2]:
        shutil.copytree(folder / "known" / name, two / name)
    files = sorted(two.rglob("*.png"))
    labels = [file.parent.name for file in files]
    for classifier in (ledl.CRCClassifier(), LogisticRegression(C=1e3), LinearSVC()):
        model = make_pipeline(PixelFeatures(size=8), StandardScaler(), classifier).fit(files, labels)
        found = list(predict_files(image_model(model, Record()), files))
        assert [one.label for one in found] == model.predict(files).tolist()
        assert [one.label for one in found] == labels
        score = model.decision_function(files)[0]
        first = dict(found[0].ranking)
        np.testing.assert_allclose(np.sign(first[model.classes_[1]] - first[model.classes_[0]]), np.sign(score))


@pytest.mark.parametrize(
    "changed",
    [
        {"files": {f"f{i}": 1 for i in range(18)}},
        {"labels": ["x"] * 17},
        {"thumbnails": [np.zeros(3)] * 18},
        {"skipped": [["a"]]},
        {"settings": [1]},
        {"cv_accuracy": 7.0},
        {"cv_interval": [0.5]},
        {"cv_interval": [0.5, 2.0]},
        {"cv_interval": (0.5, 0.6)},
        {"files": np.zeros(18)},
        {"made": 5},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_changed_records_are_refused(trained, changed):
    assert Record.from_info(asdict(trained.record)).sha256 == trained.record.sha256
    with pytest.raises(ledl.ModelFileError, match="was not written by ledl fit"):
        Record.from_info({**asdict(trained.record), **changed})


def test_a_model_without_a_record_can_be_used(trained, tmp_path):
    ledl.save(trained.model, tmp_path / "t.ledl", info=[1, 2])
    assert open_image_model(tmp_path / "t.ledl").record == Record()
