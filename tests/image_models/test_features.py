"""Features that are chosen by the size of the images, and their options."""

import io
import json
import os
import shutil
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

import ledl
from helpers.networks import write_model
from ledl.features import ColorFeatures, PixelFeatures, Preprocessing
from ledl.image_models import (
    _features,
    facts,
    find_extractor,
    fit_folder,
    open_image_model,
    predict_files,
    thumbnail,
)
from ledl.image_models._features import CheckedThumbnails
from ledl.images import efficientnet_is_installed

Image = pytest.importorskip("PIL.Image")
PngInfo = pytest.importorskip("PIL.PngImagePlugin").PngInfo


def test_thumbnails_are_large_enough_to_see_what_is_on_them(tmp_path):
    Image.new("RGB", (900, 300)).save(tmp_path / "wide.png")
    picture = thumbnail(str(tmp_path / "wide.png"))
    assert Image.open(io.BytesIO(picture.tobytes())).size == (192, 64)


def test_auto_takes_pixels_for_small_images_and_if_a_size_is_given(folder, photos):
    reported = []
    small = find_extractor(sorted((folder / "known").rglob("*.png")), report=reported.append)
    assert isinstance(small, PixelFeatures)
    assert small.size == 32
    assert find_extractor(sorted(photos.rglob("*.jpg")), size=16, report=reported.append).size == 16
    assert "the images are small: their shorter side is at most 64" in reported[0]
    assert "--size is given" in reported[1]


def test_auto_takes_colours_for_photos_if_no_network_is_installed(photos, monkeypatch, tmp_path):
    monkeypatch.setattr(_features, "efficientnet_is_installed", lambda: False)
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


def test_options_of_networks_need_a_network(photos):
    files = sorted(photos.rglob("*.jpg"))
    for features in ("pixels", "color"):
        with pytest.raises(ValueError, match=f"--cache c needs a network, but the features are {features}"):
            find_extractor(files, features, cache="c")
        with pytest.raises(ValueError, match="--preprocessing imagenet needs a network"):
            find_extractor(files, features, preprocessing="imagenet")
    with pytest.raises(ValueError, match="--size 8 needs --features pixels, but the features are color"):
        find_extractor(files, "color", size=8)


@pytest.mark.parametrize(
    "field", ['"crop_pct": 1e-320, "resample": 3', f'"crop_pct": 0.9, "resample": {"9" * 400}']
)
def test_a_preprocessing_with_impossible_numbers_is_refused(tmp_path, field):
    file = tmp_path / "config.json"
    file.write_text(f'{{"do_normalize": false, "size": {{"shortest_edge": 256}}, {field}}}')
    write_model(tmp_path / "net.onnx")
    with pytest.raises(ValueError, match=r"config.json does not describe a preprocessing that ledl can do"):
        find_extractor([], str(tmp_path / "net.onnx"), preprocessing=str(file))


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


def test_pictures_of_model_files_are_as_small_as_ours(tmp_path):
    """Pages would decode large ones many times."""
    rng = np.random.default_rng(0)
    Image.fromarray(255 * rng.integers(0, 2, (192, 192, 3), np.uint8)).save(tmp_path / "noise.png")
    Image.new("RGB", (500, 100), "red").save(tmp_path / "large.jpg")
    large, ours = tmp_path.joinpath("large.jpg").read_bytes(), thumbnail(tmp_path / "noise.png").tobytes()
    end = ours.index(b"\xff\xda")
    others = {
        "too many pixels": large,
        "no picture": b"no picture",
        "nothing": b"",
        "too many bytes": ours + bytes(2**17),
        "too many scans": ours[:-2] + ours[end:],
    }
    pictures = [np.frombuffer(content, np.uint8) for content in (ours, *others.values())]
    found = CheckedThumbnails(pictures, 2)
    assert [found[i] for i in range(len(found))] == [ours, *[None] * (len(others) + 2)]


def test_thumbnails_have_no_comments_of_their_images(tmp_path):
    """They may be private, and too long for a JPEG file."""
    text = PngInfo()
    text.add_text("comment", "private" * 20_000)
    Image.new("RGB", (20, 10)).save(tmp_path / "a.png", pnginfo=text)
    Image.new("RGB", (20, 10)).save(tmp_path / "a.jpg", comment="private" * 5000)
    for name in ("a.png", "a.jpg"):
        assert b"private" not in thumbnail(tmp_path / name).tobytes()
