"""Train on folders of images, without the command line."""

import io
import os
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

import ledl
from ledl.image_models import (
    _fit,
    doubtful_labels,
    facts,
    fit_features,
    fit_folder,
    predict_files,
    trained_on,
    training_notes,
)
from ledl.image_models._fit import near_copies, without_copies
from ledl.images import ImageError, content_key, efficientnet_is_installed

Image = pytest.importorskip("PIL.Image")


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
    assert "a little too high" not in said


@pytest.mark.parametrize("method", ["ledl-cv", "crc", "lda"])
def test_images_of_the_same_pixels_are_no_test(method, folder, tmp_path):
    for file in sorted((folder / "known").rglob("00.png")):
        (tmp_path / file.parent.name).mkdir()
        for name in ("a.png", "b.bmp"):
            Image.open(file).save(tmp_path / file.parent.name / name)
    trained = fit_folder(tmp_path, features="pixels", size=8, method=method)
    assert trained.record.cv_accuracy is None
    assert trained.parts.rejecter is None
    unsure = "; probabilities may be far too sure" * (method == "ledl-cv")
    assert facts(trained)["accuracy"] == f"not known{unsure}"


@pytest.mark.filterwarnings("ignore:Fewer than two classes have more than one sample")
@pytest.mark.parametrize("method", ["ledl-cv", "crc"])
def test_one_class_with_several_images_is_no_test_of_the_choice(method, tmp_path):
    """With a label that looks wrong: ledl fit ended with an error, and wrote no model."""
    digits = load_digits().images
    for name, numbers in (("zero", [0, 10, 1]), ("one", [42])):  # the digit 1 is misfiled
        (tmp_path / name).mkdir()
        for i in numbers:
            Image.fromarray(np.uint8(np.rint(digits[i] * 255 / 16))).save(tmp_path / name / f"{i}.png")
    trained = fit_folder(tmp_path, features="pixels", size=8, method=method)
    record = trained.record
    assert len(record.cv_answers) == (0 if record.cv_accuracy is None else 4)
    assert (record.cv_accuracy is None) == (method == "ledl-cv")
    assert doubtful_labels(record) == []


@pytest.mark.parametrize("method", ["ledl-cv", "src"])
@pytest.mark.parametrize("n", [1, 3])
def test_unlabelled_images_teach_where_no_label_can_be_hidden(method, n, folder, tmp_path):
    """Fewer than two classes have several labels: the choice could not be tested on one class alone."""
    for name, count in (("null", n), ("zwei", 1)):
        (tmp_path / "known" / name).mkdir(parents=True)
        for i in range(count):
            shutil.copy(folder / "known" / name / f"0{i}.png", tmp_path / "known" / name)
    shutil.copytree(folder / "known", tmp_path / "others")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # none can be hidden
        trained = fit_folder(
            tmp_path / "known", unlabelled=[tmp_path / "others"], features="pixels", size=8, method=method
        )
    assert trained.record.cv_accuracy is None
    assert trained.parts.rejecter is None
    answers = list(predict_files(trained, [folder / "known" / "zwei" / "05.png"]))
    assert answers[0].label in ("null", "zwei")


def test_thumbnails_are_small_copies_of_the_training_images(folder, trained):
    for name, picture in zip(trained.record.files, trained.record.thumbnails, strict=True):
        small = np.asarray(Image.open(io.BytesIO(picture.tobytes())).convert("L"), dtype=float)
        with Image.open(folder / "known" / name) as image:
            np.testing.assert_allclose(small, np.asarray(image, dtype=float), atol=40)


def test_images_that_cannot_be_read_are_recorded_by_class_and_name(folder, tmp_path):
    damaged = tmp_path / "damaged"
    shutil.copytree(folder / "known", damaged)
    (damaged / "null" / "00.png").write_bytes(b"not an image")
    record = fit_folder(damaged, features="pixels", size=8, method="crc", skip_unreadable=True).record
    ((name, reason),) = record.skipped
    assert name == "null/00.png"
    assert "is not an image" in reason
    assert "null/00.png" not in record.files


def test_a_link_to_nothing_is_an_image_that_cannot_be_read(folder, tmp_path):
    damaged = tmp_path / "damaged"
    shutil.copytree(folder / "known", damaged)
    (damaged / "null" / "link.png").symlink_to("gone.png")
    with pytest.raises(ImageError, match=r"1 of .* images cannot be read.*--skip-unreadable"):
        fit_folder(damaged, features="pixels", size=8, method="crc")
    record = fit_folder(damaged, features="pixels", size=8, method="crc", skip_unreadable=True).record
    assert [name for name, _ in record.skipped] == ["null/link.png"]


def test_a_faster_method_is_reported_for_many_images(folder, monkeypatch):
    monkeypatch.setattr(_fit, "MANY_IMAGES", 3)
    for method, expected in (("ledl-cv", True), ("ledl", False)):
        reported = []
        fit_folder(
            folder / "known", features="pixels", size=8, per_class=2, method=method, report=reported.append
        )
        assert any("Faster: --method ledl," in text for text in reported) == expected


@pytest.mark.parametrize(("features", "least"), [("color", 0.5), ("efficientnet_lite0", 0.85)])
def test_real_photos_are_recognized_from_five_of_each_class(features, least):
    """One drawing, with a fast method; benchmarks/images.py has eight, with the default one."""
    root = Path(os.environ.get("LEDL_DATA", "")).parent / "images" / "ucmerced"
    if not root.is_dir():
        pytest.skip("images/ucmerced is not next to LEDL_DATA")
    if features == "efficientnet_lite0" and not efficientnet_is_installed():
        pytest.skip("needs efficientnet_lite0: the extra photos")
    trained = fit_folder(root, features=features, per_class=5, method="crc", thumbnails=False)
    known = list(zip(trained.record.files, trained.record.sha256, strict=True))
    files = sorted(root.rglob("*.jpg"))
    seen, _ = trained_on(known, files)
    others = [file for file, is_seen in zip(files, seen, strict=True) if not is_seen]
    said = predict_files(trained, others)
    assert len(others) == 210
    assert np.mean([one.label == file.parent.name for one, file in zip(said, others, strict=True)]) >= least


def test_the_model_keeps_the_calibrated_probabilities(folder):
    trained = fit_folder(folder / "known", features="pixels", size=8, per_class=6, thumbnails=False)
    files = [str(folder / "known" / name) for name in trained.record.files]
    P = trained.model.predict_proba(files)
    search = ledl.LEDLClassifierCV(random_state=0).fit(
        trained.extractor.transform(files), trained.record.labels
    )
    np.testing.assert_allclose(P, search.predict_proba(trained.extractor.transform(files)), atol=1e-12)
    for one, row in zip(predict_files(trained, files), P, strict=True):
        np.testing.assert_allclose(one.probability, row.max(), atol=1e-6)
        assert [label for label, _ in one.ranking] == trained.model.classes_[np.argsort(-row)].tolist()


def test_images_of_a_table_count_if_they_are_drawn(folder, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    with Image.open(folder / "known" / "null" / "00.png") as image:
        image.rotate(90).save(tmp_path / "elsewhere" / "new.png")
    (tmp_path / "t.csv").write_text(f"path,label\n{tmp_path / 'elsewhere' / 'new.png'},null\n")
    options = {"labels": ["folder", tmp_path / "t.csv"], "features": "pixels", "size": 8, "method": "crc"}
    seen = set()
    for seed in range(8):
        reported = []
        more = {"per_class": 6, "seed": seed, "report": reported.append}
        trained = fit_folder(folder / "known", **options, **more)
        is_drawn = "elsewhere/new.png" in trained.record.files
        assert trained.n_added == is_drawn
        assert trained.n_left == 18 + is_drawn  # in the folder: nothing else is predicted with its labels
        assert any("that the table adds, too" in note for note in training_notes(trained)) == is_drawn
        assert f"--per-class 6 drew {1 * is_drawn} of the 1 images that were added." in reported
        seen.add(is_drawn)
    assert seen == {False, True}


def test_unlabelled_images_teach(folder):
    """The same as in Python, on the same features; all figures of the record come from hidden labels."""
    reported, known = [], folder / "known"
    trained = fit_folder(
        known, unlabelled=[known], features="pixels", size=8, per_class=4, method="crc", report=reported.append
    )
    assert "Labelled 12, unlabelled 24: these teach, too." in reported
    record, files = trained.record, [said.path for said in trained.answers]
    names = [os.path.relpath(file, known) for file in files]
    assert record.unlabelled == names
    assert not {*names} & {*record.files}
    X = trained.extractor.transform([*(known / name for name in record.files), *files])
    model = ledl.SemiSupervisedClassifier(ledl.CRCClassifier(), random_state=0)
    model.fit(X, np.array([*record.labels, *[-1] * 24], dtype=object))
    assert [said.label for said in trained.answers] == model.transduction_[12:].tolist()
    np.testing.assert_allclose(
        [said.probability for said in trained.answers], model.label_distributions_[12:].max(axis=1), rtol=1e-5
    )
    assert record.cv_accuracy == model.expected_accuracy_
    said = dict(
        zip(model.hidden_rows_.tolist(), model.classes_[model.hidden_scores_.argmax(axis=1)], strict=True)
    )
    assert record.cv_answers == [said[i] for i in range(12)]
    assert facts(trained)["trained on"].startswith("12 images, 4 per class")
    for one in predict_files(trained, files):  # new images: neighbours of neighbours
        assert one.probability == one.ranking[0][1] > 1 / 3


def test_images_that_go_away_during_training_cost_nothing(folder, tmp_path, monkeypatch):
    shutil.copytree(folder / "known", tmp_path / "known")
    fit = fit_features

    def slow_fit(*arguments):
        shutil.rmtree(tmp_path / "known")
        return fit(*arguments)

    monkeypatch.setattr(_fit, "fit_features", slow_fit)
    record = fit_folder(tmp_path / "known", features="pixels", size=8, method="crc").record
    assert record.sha256 == [content_key(folder / "known" / name) for name in record.files]
    assert len(record.thumbnails) == 36


def test_copies_of_images_that_say_nothing_get_no_label(folder, tmp_path):
    """Broken files may be equal, and equal files may have two labels."""
    known, more = tmp_path / "known", tmp_path / "more"
    shutil.copytree(folder / "known", known)
    more.mkdir()
    for place in (known / "null" / "broken.png", more / "also.png"):
        place.touch()
    shutil.copy(known / "zwei" / "00.png", more / "copy.png")
    options = {"unlabelled": [more], "features": "pixels", "size": 8, "method": "crc"}
    trained = fit_folder(known, skip_unreadable=True, write_labels=True, **options)
    assert [(Path(said.path).name, said.label) for said in trained.copies] == [("copy.png", "zwei")]
    assert [Path(name).name for name, _ in trained.record.skipped] == ["broken.png", "also.png"]
    (known / "null" / "broken.png").unlink()
    (more / "also.png").unlink()
    shutil.copy(known / "zwei" / "00.png", known / "null" / "same.png")
    with pytest.raises(ImageError, match="equal to labelled images with different labels"):
        fit_folder(known, **options)


def test_contents_and_files_that_are_labelled_are_not_unlabelled(tmp_path):
    for name, content in (("a", b"12"), ("b", b"34"), ("same", b"12"), ("other", b"56"), ("long", b"789")):
        (tmp_path / name).write_bytes(content)
    (tmp_path / "link").symlink_to("b")
    places = {name: str(tmp_path / name) for name in ("a", "b", "same", "other", "long", "link", "gone")}
    found, same = without_copies([*places.values()], [places["a"], places["b"]])
    assert [Path(same[places[name]]).name for name in ("a", "b", "same", "link")] == ["a", "b", "a", "b"]
    assert found == [places["other"], places["long"], places["gone"]]  # the last is reported when it is read


def test_near_copies_are_pairs_of_nearly_equal_features(rng):
    X, y = rng.random((20, 300)), np.arange(20) % 4
    assert near_copies(X, y) == []
    X[5] = X[1] + 0.05 * rng.random(300)  # the next frame of a film
    X[18] = 3 * X[2]  # a brighter copy
    X[16] = X[7]  # with another label, which makes tests harder and not easier
    assert near_copies(X, y) == [(1, 5), (2, 18)]


def test_the_frames_of_a_film_are_named_once_each(rng, monkeypatch):
    """All pairs of them would be too many for a model file, and all distances for the memory."""
    y = np.arange(300) % 2
    X = rng.random((2, 50))[y] + 1e-3 * rng.random((300, 50))
    pairs = near_copies(X, y)
    assert {i for pair in pairs for i in pair} == set(range(300))
    assert len(pairs) <= 300
    monkeypatch.setattr(_fit, "MAX_NUMBERS", 4 * 7 * 300)
    assert near_copies(X, y) == pairs
