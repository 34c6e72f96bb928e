"""Predictions for files of images."""

import hashlib
import io
import shutil
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

import ledl
from ledl.features import PixelFeatures
from ledl.image_models import Record, explain_image, predict_files, trained_on
from ledl.image_models._record import image_model

Image = pytest.importorskip("PIL.Image")
from helpers.digits import NAMES  # noqa: E402


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
    seen, n_changed = trained_on(known, list(files.values()))
    assert dict(zip(files, seen, strict=True)) == {
        "p/cat/0": True, "q/cat/0": True, "p/dog/0": True, "p/dog/1": True, "p/fox/0": False,
    }  # fmt: skip
    assert n_changed == 0
    renamed = files["p/fox/0"].rename(tmp_path / "other.png")
    assert trained_on([("fox/0.png", digests["p/fox/0"])], [renamed]) == ([True], 0)
    Image.open(files["p/dog/0"]).save(files["p/dog/0"], dpi=(72, 72))  # the pixels are as they were
    both = [files["p/dog/0"], files["p/cat/0"]]
    assert trained_on([("dog/0.png", digests["p/dog/0"])], both) == ([False, False], 1)
    assert trained_on([("dog/0.png", digests["p/dog/0"])], [*both, files["p/dog/1"]])[1] == 0  # it is there


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


def test_predicted_labels_are_text_whatever_the_classes_are(folder):
    files = sorted((folder / "known").rglob("*.png"))
    labels = [NAMES.index(file.parent.name) for file in files]
    model = make_pipeline(PixelFeatures(size=8), ledl.CRCClassifier()).fit(files, labels)
    for one, label in zip(predict_files(image_model(model, Record()), files), labels, strict=True):
        assert one.label == str(label)
        assert sorted(name for name, _ in one.ranking) == ["0", "1", "2"]


def test_explanations_leave_large_pictures_of_model_files_out(folder, trained, tmp_path):
    image, page, file = next((folder / "known").rglob("*.png")), tmp_path / "why.html", io.BytesIO()
    Image.new("RGB", (300, 40), "red").save(file, "JPEG")
    large = [np.frombuffer(file.getvalue(), np.uint8)] * len(trained.record.files)
    n_pictures = []
    for record in (trained.record, replace(trained.record, thumbnails=large)):
        explain_image(image_model(trained.model, record), image, page)
        n_pictures.append(page.read_text("utf-8").count("data:image/jpeg"))
    assert n_pictures[0] > n_pictures[1] == 0


def test_explanations_do_not_copy_large_pictures_of_model_files(folder, trained, tmp_path):
    """A model file may have the same bytes as the picture of each image."""
    image = next((folder / "known").rglob("*.png"))
    first = trained.record.thumbnails[0]
    large = [np.concatenate([first, np.zeros(2**22, np.uint8)])] * len(trained.record.files)
    tracemalloc.start()
    explain_image(
        image_model(trained.model, replace(trained.record, thumbnails=large)), image, tmp_path / "why.html"
    )
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**24
