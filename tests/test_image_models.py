"""Train on folders of images, predict and explain, without the command line."""

import hashlib
import io
import json
import os
import shutil
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

import ledl
from ledl import image_models
from ledl.features import ColorFeatures, PixelFeatures, Preprocessing
from ledl.image_models import (
    Record,
    facts,
    find_extractor,
    fit_folder,
    image_model,
    open_image_model,
    predict_files,
    trained_on,
)
from ledl.images import ImageError, content_key, efficientnet_is_installed
from ledl.persistence import read

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


def test_thumbnails_are_large_enough_to_see_what_is_on_them(tmp_path):
    Image.new("RGB", (900, 300)).save(tmp_path / "wide.png")
    picture = image_models.thumbnail(str(tmp_path / "wide.png"))
    assert Image.open(io.BytesIO(picture.tobytes())).size == (192, 64)


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
    monkeypatch.setattr(image_models, "MANY_IMAGES", 3)
    for method, expected in (("ledl-cv", True), ("ledl", False)):
        reported = []
        fit_folder(
            folder / "known", features="pixels", size=8, per_class=2, method=method, report=reported.append
        )
        assert any("Faster: --method ledl," in text for text in reported) == expected


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Write photos of 80 x 100 pixels of three colours, six of each. Return their folder."""
    root, rng = tmp_path_factory.mktemp("photos"), np.random.default_rng(0)
    for j, name in enumerate(("red", "green", "blue")):
        (root / name).mkdir()
        for i in range(6):
            pixels = rng.integers(0, 100, (80, 100, 3))
            pixels[:, :, j] += 150
            Image.fromarray(np.uint8(pixels)).save(root / name / f"{i}.jpg")
    return root


def test_auto_takes_pixels_for_small_images_and_if_a_size_is_given(folder, photos):
    reported = []
    small = find_extractor(sorted((folder / "known").rglob("*.png")), report=reported.append)
    assert isinstance(small, PixelFeatures)
    assert small.size == 32
    assert find_extractor(sorted(photos.rglob("*.jpg")), size=16, report=reported.append).size == 16
    assert "the images are small: their shorter side is at most 64" in reported[0]
    assert "--size is given" in reported[1]


def test_auto_takes_colours_for_photos_if_no_network_is_installed(photos, monkeypatch, tmp_path):
    monkeypatch.setattr(image_models, "efficientnet_is_installed", lambda: False)
    reported = []
    trained = fit_folder(photos, method="crc", report=reported.append)
    assert isinstance(trained.extractor, ColorFeatures)
    assert "their shorter side is 80 pixels" in reported[0]
    assert "pip install 'ledl[photos]'" in reported[0]
    assert facts(trained)["features"] == "colours and textures"
    assert trained.record.cv_accuracy == 1
    ledl.save(trained.model, tmp_path / "c.ledl", info=asdict(trained.record))
    files = sorted(photos.rglob("*.jpg"))
    again = list(predict_files(open_image_model(tmp_path / "c.ledl"), files))
    assert [one.ranking for one in again] == [one.ranking for one in predict_files(trained, files)]
    assert {one.label == Path(one.path).parent.name for one in again} == {True}
    with pytest.raises(ValueError, match=r"uses colours and textures, no network. Leave --features out"):
        open_image_model(tmp_path / "c.ledl", network="n.onnx")


@pytest.mark.skipif(not efficientnet_is_installed(), reason="needs efficientnet_lite0: the extra photos")
def test_auto_takes_the_installed_network_for_photos(photos, monkeypatch, tmp_path):
    monkeypatch.setattr("platformdirs.user_cache_path", lambda *_, **__: tmp_path / "cache")
    reported = []
    trained = fit_folder(photos, method="crc", report=reported.append)
    assert reported[0].startswith("Features: efficientnet_lite0, because the images are photos")
    assert "ledl[photos]" not in reported[0]
    assert facts(trained)["features"] == "efficientnet_lite0, output features"
    assert trained.extractor.transform([photos / "red" / "0.jpg"]).shape == (1, 1280)
    ledl.save(trained.model, tmp_path / "n.ledl", info=asdict(trained.record))
    found = open_image_model(tmp_path / "n.ledl")
    files = sorted(photos.rglob("*.jpg"))
    assert [one.ranking for one in predict_files(found, files)] == [
        one.ranking for one in predict_files(trained, files)
    ]
    shutil.rmtree(tmp_path / "cache")  # as on a machine without the network
    monkeypatch.setattr("ledl.images._efficientnet.PACKAGE", "package_that_is_not_there")
    with pytest.raises(ImportError, match=r"efficientnet_lite0 is not installed.*pip install 'ledl\[photos\]'"):
        open_image_model(tmp_path / "n.ledl")


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


def test_options_of_networks_need_a_network(photos):
    files = sorted(photos.rglob("*.jpg"))
    for features in ("pixels", "color"):
        with pytest.raises(ValueError, match=f"--cache c needs a network, but the features are {features}"):
            find_extractor(files, features, cache="c")
        with pytest.raises(ValueError, match="--preprocessing imagenet needs a network"):
            find_extractor(files, features, preprocessing="imagenet")
    with pytest.raises(ValueError, match="--size 8 needs --features pixels, but the features are color"):
        find_extractor(files, "color", size=8)


@pytest.mark.parametrize("kind", ["pipe", "device", "deep"])
def test_a_preprocessing_that_never_ends_is_refused(tmp_path, kind):
    file = tmp_path / "config.json"
    if kind == "pipe":
        os.mkfifo(file)
    elif kind == "device":
        file.symlink_to("/dev/zero")
    else:
        file.write_text("[" * 100_000)
    with pytest.raises(ValueError, match=r"config.json does not describe a preprocessing that ledl can do"):
        find_extractor([], "network.onnx", preprocessing=str(file))


def test_the_preprocessing_of_hugging_face_is_read(photos, tmp_path):
    pytest.importorskip("onnxruntime")
    from helpers.networks import write_transformer

    write_transformer(tmp_path / "vit.onnx")
    config = {"size": 8, "resample": 2, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(config))
    options = {
        "features": str(tmp_path / "vit.onnx"),
        "preprocessing": str(tmp_path / "preprocessor_config.json"),
    }
    trained = fit_folder(photos, method="crc", **options)
    assert trained.extractor.preprocessing == Preprocessing(size=8, mean=(0.5,) * 3, std=(0.5,) * 3)
    assert facts(trained)["features"] == "vit.onnx, class token of last_hidden_state"
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({**config, "do_pad": True}))
    with pytest.raises(ValueError, match=r"preprocessor_config.json .*the field 'do_pad' .True. may change"):
        fit_folder(photos, method="crc", **options)


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
        {"unlabelled": [1]},
        {"unlabelled": np.zeros(3)},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_changed_records_are_refused(trained, changed):
    assert Record.from_info(asdict(trained.record)).sha256 == trained.record.sha256
    with pytest.raises(ledl.ModelFileError, match="was not written by ledl fit"):
        Record.from_info({**asdict(trained.record), **changed})


def test_a_record_with_other_unlabelled_images_is_refused(trained):
    with pytest.raises(ledl.ModelFileError, match="is of another model"):
        image_model(trained.model, replace(trained.record, unlabelled=["a.png"]))


def test_a_model_without_a_record_can_be_used(trained, tmp_path):
    ledl.save(trained.model, tmp_path / "t.ledl", info=[1, 2])
    assert open_image_model(tmp_path / "t.ledl").record == Record()


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
    fit = image_models.fit_features

    def slow_fit(*arguments):
        shutil.rmtree(tmp_path / "known")
        return fit(*arguments)

    monkeypatch.setattr(image_models, "fit_features", slow_fit)
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
    found, same = image_models.without_copies([*places.values()], [places["a"], places["b"]])
    assert [Path(same[places[name]]).name for name in ("a", "b", "same", "link")] == ["a", "b", "a", "b"]
    assert found == [places["other"], places["long"], places["gone"]]  # the last is reported when it is read


@pytest.mark.parametrize("unlabelled", [[], ["others"]], ids=["labelled", "unlabelled"])
def test_a_planted_mistake_is_the_most_doubtful_label(folder, tmp_path, unlabelled):
    shutil.copytree(folder / "known", tmp_path / "known")
    (tmp_path / "known" / NAMES[0] / "00.png").rename(tmp_path / "known" / NAMES[1] / "planted.png")
    others = [folder / name for name in unlabelled]
    known = tmp_path / "known"
    record = fit_folder(known, unlabelled=others, features="pixels", size=8, thumbnails=False).record
    first, *others = image_models.doubtful_labels(record)
    assert (record.files[first], record.cv_answers[first]) == (f"{NAMES[1]}/planted.png", NAMES[0])
    assert len(others) < 3


def test_hits_are_those_of_models_that_have_not_seen_the_image(folder, tmp_path):
    shutil.copytree(folder / "known", tmp_path / "known")
    lonely = tmp_path / "known" / "lonely"
    lonely.mkdir()
    shutil.copy(folder / "others" / "sieben" / "00.png", lonely)
    trained = fit_folder(tmp_path / "known", features="pixels", size=8, method="crc", thumbnails=False)
    record, rejecter = trained.record, trained.parts.rejecter
    labels = np.array(record.labels)
    assert facts(trained)["right"].endswith("lonely not tested (one image)")
    for name in NAMES:
        own = labels[rejecter.judged_] == name
        hits = np.sum(rejecter.cv_predictions_[own] == name)
        assert f"{name} {hits} of {own.sum()}" in facts(trained)["right"]
    assert record.cv_accuracy == np.mean(rejecter.cv_predictions_ == labels[rejecter.judged_])


def test_near_copies_are_pairs_of_nearly_equal_features(rng):
    X, y = rng.random((20, 300)), np.arange(20) % 4
    assert image_models.near_copies(X, y) == []
    X[5] = X[1] + 0.05 * rng.random(300)  # the next frame of a film
    X[19] = 3 * X[2]  # a brighter copy, even of another class
    assert image_models.near_copies(X, y) == [(1, 5), (2, 19)]


def test_a_few_nearly_equal_images_make_no_figure_too_high():
    record = Record(files=[f"{i}.png" for i in range(21)], near_copies=[["0.png", "1.png"]])
    assert image_models.n_nearly_equal(record) == 0  # a tenth of all is many
    record.near_copies.append(["2.png", "1.png"])
    assert image_models.n_nearly_equal(record) == 3


def test_the_frames_of_a_film_are_named_once_each(rng, monkeypatch):
    """All pairs of them would be too many for a model file, and all distances for the memory."""
    y = np.arange(300) % 2
    X = rng.random((2, 50))[y] + 1e-3 * rng.random((300, 50))
    pairs = image_models.near_copies(X, y)
    assert {i for pair in pairs for i in pair} == set(range(300))
    assert len(pairs) <= 300
    monkeypatch.setattr(image_models, "MAX_NUMBERS", 4 * 7 * 300)
    assert image_models.near_copies(X, y) == pairs


def test_records_of_many_images_fit_into_a_file(trained, tmp_path):
    n = 60_000
    record = Record(
        files=[f"class/a name of some length, {i}.jpg" for i in range(n)],
        sha256=[f"{i:064x}" for i in range(n)],
        labels=["class", "another"] * (n // 2),
        cv_answers=["class", ""] * (n // 2),
        near_copies=[[f"class/a name of some length, {i}.jpg" for i in (0, k)] for k in range(1, n)],
    )
    ledl.save(trained.model, tmp_path / "t.ledl", info=record.to_info())
    assert Record.from_info(read(tmp_path / "t.ledl").info) == record
