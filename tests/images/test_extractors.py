"""Pixels and features of networks as transformers."""

import os
import pickle
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from PIL import Image
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

from helpers.networks import write_model
from ledl import CRCClassifier, image_models
from ledl.datasets import load, load_image_folder
from ledl.features import CAFFE, ImageError, NetworkError, NetworkFeatures, PixelFeatures, Preprocessing
from ledl.files import ABANDONED_AFTER, unfinished
from ledl.images import _extractors
from ledl.images._extractors import pyramid_parts
from ledl.images._networks import OnnxNetwork

SMALL = Preprocessing(size=8, channels="BGR", scale=1.0, mean=(1.0, 2.0, 3.0), std=(2.0, 2.0, 2.0))


@pytest.fixture
def images(rng):
    return [rng.integers(0, 256, (20, 24 + i, 3), dtype=np.uint8) for i in range(7)]


@pytest.fixture
def files(images, tmp_path):
    for i, image in enumerate(images):
        Image.fromarray(image).save(tmp_path / f"{i}.png")
    return [tmp_path / f"{i}.png" for i in range(len(images))]


@pytest.fixture
def model(tmp_path):
    weights = write_model(tmp_path / "model.onnx")
    return tmp_path / "model.onnx", weights


def expected_features(image, weights, preprocessing=SMALL):
    """Compute by hand: resize, channels, mean, and the mean of a linear map."""
    resized = Image.fromarray(image).resize((preprocessing.size,) * 2, Image.Resampling.BILINEAR)
    pixels = np.asarray(resized, dtype=np.float64)[:, :, ::-1]
    scaled = (pixels - preprocessing.mean) / preprocessing.std
    return weights @ scaled.mean(axis=(0, 1))


def test_pixels_of_the_papers_kind(images, files):
    features = PixelFeatures(size=16).fit_transform(files)
    assert features.shape == (7, 256)
    assert features.dtype == np.float32
    assert_allclose(np.linalg.norm(features, axis=1), 1, rtol=1e-5)
    gray = np.asarray(
        Image.fromarray(images[2]).convert("L").resize((16, 16), Image.Resampling.BILINEAR), dtype=float
    )
    assert_allclose(features[2], gray.reshape(-1) / np.linalg.norm(gray), rtol=1e-5)
    color = PixelFeatures(size=(4, 6), color="rgb", normalize=False, crop="square").transform(images)
    assert color.shape == (7, 72)
    assert_array_equal(PixelFeatures(size=16).transform(images), features)


def test_pixels_of_a_square_keep_the_aspect():
    image = np.zeros((10, 30), np.uint8)
    image[:, 10:20] = 255
    features = PixelFeatures(size=10, crop="square", normalize=False).transform([image])
    assert_array_equal(features, 255)


@pytest.mark.parametrize("size", [(4,), (0, 3), (4, 5.0)])
def test_bad_sizes_of_pixels_are_reported(size):
    with pytest.raises(ValueError, match="must be a number of pixels, or a height and a width"):
        PixelFeatures(size=size).transform([np.zeros((4, 4), np.uint8)])


def test_features_are_the_output_of_the_network(images, files, model):
    path, weights = model
    extractor = NetworkFeatures(path, preprocessing=SMALL, batch_size=3)
    features = extractor.fit_transform(files)
    assert features.dtype == np.float32
    assert_allclose(features, [expected_features(image, weights) for image in images], rtol=1e-4)
    assert_allclose(extractor.transform(images), features, rtol=1e-6)
    assert_allclose(extractor.transform([Image.open(file) for file in files]), features, rtol=1e-6)
    assert extractor.transform([]).shape == (0, 0)
    with pytest.raises(ValueError, match="'batch_size' parameter"):
        NetworkFeatures(path, batch_size=0).fit()


@pytest.mark.parametrize(("size", "pyramid", "n_batches"), [(800, False, 2), (600, True, 7)])
def test_large_inputs_come_in_smaller_batches(images, model, monkeypatch, size, pyramid, n_batches):
    sizes = []

    def run(network, batch):
        sizes.append(batch.nbytes)
        return batch[:, :, 0, 0]

    monkeypatch.setattr(OnnxNetwork, "__call__", run)
    extractor = NetworkFeatures(
        model[0], preprocessing=Preprocessing(size=size), pyramid=pyramid, batch_size=1000
    )
    features = extractor.transform(images)
    assert features.shape == (7, 18 if pyramid else 3)
    assert max(sizes) <= 2**25
    assert sum(sizes) == 7 * (6 if pyramid else 1) * 3 * size * size * 4
    assert len(sizes) == n_batches


def test_the_pyramid_is_the_image_and_five_crops_of_half_its_size(images, model):
    path, weights = model
    features = NetworkFeatures(path, preprocessing=SMALL, pyramid=True, batch_size=7).transform(images)
    assert features.shape == (7, 24)
    image = images[4]  # 20 x 28
    crops = [image, image[:10, :14], image[:10, 14:], image[10:, :14], image[10:, 14:], image[5:15, 7:21]]
    assert_allclose(features[4].reshape(6, 4), [expected_features(crop, weights) for crop in crops], rtol=1e-4)
    assert [part.size for part in pyramid_parts(Image.fromarray(images[1]))] == [(25, 20), *[(12, 10)] * 5]


def test_a_cache_is_used_and_keyed_by_content_model_and_preprocessing(files, model, tmp_path, monkeypatch):
    cache = tmp_path / "cache"
    extractor = NetworkFeatures(model[0], preprocessing=SMALL, cache=cache)
    features = extractor.transform(files)
    stored = sorted(cache.rglob("*.npy"))
    assert len(stored) == 7

    def forbidden(*_, **__):
        raise AssertionError("computed again")

    with monkeypatch.context() as patch:
        patch.setattr(_extractors, "read_image", forbidden)
        assert_array_equal(clone(extractor).transform(files), features)
        moved = [Path(file).rename(tmp_path / f"moved_{i}.png") for i, file in enumerate(files)]
        assert_array_equal(clone(extractor).transform(moved), features)
        with pytest.raises(AssertionError, match="computed again"):
            clone(extractor).set_params(pyramid=True).transform(moved)
        with pytest.raises(AssertionError, match="computed again"):
            clone(extractor).set_params(preprocessing=CAFFE).transform(moved)
    stored[0].write_bytes(b"torn")  # broken entries are computed again
    assert_array_equal(clone(extractor).transform(moved), features)
    assert not [p for p in cache.rglob("*") if p.is_file() and p.name.startswith(".")]


def test_a_killed_extraction_continues(files, model, tmp_path):
    script = f"""
import time
from ledl.features import Preprocessing, NetworkFeatures
from ledl.images._networks import OnnxNetwork
fast = OnnxNetwork.__call__
def slow(self, batch):
    time.sleep(0.2)
    return fast(self, batch)
OnnxNetwork.__call__ = slow
extractor = NetworkFeatures({str(model[0])!r}, preprocessing=Preprocessing(size=8, channels="BGR", scale=1.0,
    mean=(1.0, 2.0, 3.0), std=(2.0, 2.0, 2.0)), batch_size=1, cache={str(tmp_path / "cache")!r})
extractor.transform({[str(f) for f in files]!r})
"""
    process = subprocess.Popen([sys.executable, "-c", script])
    deadline = time.monotonic() + 60
    while len(list((tmp_path / "cache").rglob("*.npy"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    process.kill()
    process.wait()
    done = len(list((tmp_path / "cache").rglob("*.npy")))
    assert 2 <= done < 7
    extractor = NetworkFeatures(model[0], preprocessing=SMALL, batch_size=1, cache=tmp_path / "cache")
    expected = clone(extractor).set_params(cache=None).transform(files)
    assert_array_equal(extractor.transform(files), expected)


def test_bad_images_are_named_or_listed(files, model, tmp_path):
    (tmp_path / "bad.png").write_text("not an image")
    mixed = [*files[:2], tmp_path / "bad.png", *files[2:]]
    for extractor in (
        PixelFeatures(),
        NetworkFeatures(model[0], preprocessing=SMALL, batch_size=2, cache=tmp_path / "c"),
    ):
        with pytest.raises(ImageError, match=r"bad.png is not an image"):
            extractor.transform(mixed)
        good = extractor.transform(files)
        with pytest.warns(
            UserWarning,
            match=r"1 of 8 images could not be read and (were left out|have rows of NaN): .*bad.png",
        ):
            features = extractor.set_params(on_error="skip").transform(mixed)
        assert np.isnan(features[2]).all()
        assert_array_equal(np.delete(features, 2, axis=0), good)
        assert [(number, os.path.basename(name)) for number, name, _ in extractor.skipped_] == [(2, "bad.png")]
        with pytest.raises(ImageError, match="uint8"):
            extractor.set_params(on_error="raise").transform([np.zeros((4, 4))])


def test_images_come_in_any_kind_of_list(images, files, model):
    extractor = NetworkFeatures(model[0], preprocessing=SMALL)
    expected = extractor.transform(files)
    order = [3, 0, 6, 1]
    series = pd.Series([str(file) for file in files]).iloc[order]
    for kind in (series, series.to_frame(), tuple(series), np.array(series), iter(series.tolist())):
        assert_array_equal(extractor.transform(kind), expected[order])
    assert_array_equal(PixelFeatures().transform(series), PixelFeatures().transform(files)[order])
    for one in (str(files[0]), files[0], images[0], images[0][:, :, 0], Image.fromarray(images[0])):
        with pytest.raises(ValueError, match="X is one image or path, or a matrix"):
            extractor.transform(one)
    for bad in (None, 3, b"bytes.png"):
        with pytest.raises(ValueError, match="Image 1 is a"):
            extractor.set_params(on_error="skip").transform([files[0], bad])


def test_a_cache_sees_palettes_orientation_and_weights(model, tmp_path):
    extractor = NetworkFeatures(model[0], preprocessing=SMALL, pyramid=True, cache=tmp_path / "cache")
    plain = clone(extractor).set_params(cache=None)
    red, blue = (Image.new("P", (8, 8)) for _ in range(2))
    red.putpalette([255, 0, 0])
    blue.putpalette([0, 0, 255])
    half = np.zeros((8, 8, 3), np.uint8)
    half[:4] = 255
    turned = Image.fromarray(half)
    turned.getexif()[0x0112] = 6
    sources = [red, blue, Image.fromarray(half), turned]
    assert_array_equal(extractor.transform(sources), plain.transform(sources))
    assert_array_equal(extractor.transform(sources), plain.transform(sources))
    assert len(np.unique(plain.transform(sources), axis=0)) == 4


def test_a_pipe_is_not_read(files, model, tmp_path):
    os.mkfifo(tmp_path / "pipe.png")
    extractor = NetworkFeatures(model[0], preprocessing=SMALL, cache=tmp_path / "cache", on_error="skip")
    with pytest.warns(
        UserWarning,
        match=r"1 of 2 images could not be read and (were left out|have rows of NaN): .*pipe.png is not a file",
    ):
        features = extractor.transform([files[0], tmp_path / "pipe.png"])
    assert np.isnan(features[1]).all()


def test_a_pipe_among_kept_features_is_not_read(files, model, tmp_path):
    extractor = NetworkFeatures(model[0], preprocessing=SMALL, cache=tmp_path / "cache")
    expected = extractor.transform(files[:1])
    (kept,) = (tmp_path / "cache").rglob("*.npy")
    kept.unlink()
    os.mkfifo(kept)
    with pytest.warns(UserWarning, match="Features cannot be kept in .*not a regular file"):
        assert_array_equal(extractor.transform(files[:1]), expected)
    kept.unlink()
    (tmp_path / "precious").write_text("precious")
    kept.symlink_to(tmp_path / "precious")  # in a cache of a stranger
    assert_array_equal(extractor.transform(files[:1]), expected)
    assert (tmp_path / "precious").read_text() == "precious"


def test_parts_of_killed_runs_among_kept_features_are_removed_when_they_are_old(
    files, model, tmp_path, monkeypatch
):
    extractor = NetworkFeatures(model[0], preprocessing=SMALL, cache=tmp_path / "cache")
    extractor.transform(files)
    kept = {*(tmp_path / "cache").rglob("*")}
    part = unfinished(next(path for path in kept if path.suffix == ".npy"))
    part.write_bytes(b"a part")
    extractor.fit()
    assert part.exists()  # another process may be writing it
    later = time.time() + ABANDONED_AFTER
    monkeypatch.setattr(time, "time", lambda: later)
    extractor.fit()
    assert {*(tmp_path / "cache").rglob("*")} == kept


def test_a_cache_that_cannot_be_is_named_with_the_option(files, model, tmp_path):
    (tmp_path / "file").write_text("in the way")
    extractor = NetworkFeatures(model[0], preprocessing=SMALL, cache=tmp_path / "file")
    with pytest.raises(OSError, match=r"cache='.*file' cannot keep features: Not a directory. Choose another"):
        extractor.transform(files)


def test_a_cache_that_cannot_be_written_is_reported_once(files, model, tmp_path, monkeypatch):
    extractor = NetworkFeatures(model[0], preprocessing=SMALL, cache=tmp_path / "cache")
    expected = extractor.transform(files[:2])

    def full(path, write):
        raise OSError("No space left on device")

    monkeypatch.setattr(_extractors, "write_atomically", full)
    with pytest.warns(UserWarning, match="Features cannot be kept in .*No space left") as warned:
        features = extractor.transform(files)
    assert len(warned) == 1
    assert_array_equal(features[:2], expected)
    with pytest.warns(UserWarning, match="Features cannot be kept") as warned:  # by commands, too
        list(image_models.extract(extractor.fit(), [*files, tmp_path / "gone.png"]))
    assert len(warned) == 1  # not that an image cannot be read, which they report themselves


def test_features_have_names(files, model):
    for extractor in (PixelFeatures(size=4), NetworkFeatures(model[0], preprocessing=SMALL)):
        frame = extractor.set_output(transform="pandas").fit(files).transform(files)
        assert frame.columns[0] == f"{type(extractor).__name__.lower()}0"
        assert frame.shape[1] == len(extractor.get_feature_names_out())
    with pytest.raises(ValueError, match=r"X is a folder.*load_image_folder"):
        PixelFeatures().transform(str(files[0].parent))


def test_extractors_work_in_pipelines_and_pickles(files, model):
    extractor = NetworkFeatures(model[0], preprocessing=SMALL)
    labels = [0, 1, 0, 1, 0, 1, 0]
    pipeline = make_pipeline(extractor, CRCClassifier()).fit(files, labels)
    again = pickle.loads(pickle.dumps(pipeline))
    assert_array_equal(again.predict(files), pipeline.predict(files))


def test_a_fitted_extractor_refuses_another_network(files, model, tmp_path):
    path, _ = model
    extractor = NetworkFeatures(path, preprocessing=SMALL).fit()
    expected = extractor.transform(files)
    copy = tmp_path / "moved.onnx"
    copy.write_bytes(path.read_bytes())
    assert_array_equal(extractor.set_params(model=copy).transform(files), expected)
    write_model(tmp_path / "other.onnx", n_features=5)
    extractor.set_params(model=tmp_path / "other.onnx")
    for known in (None, SMALL):  # without a preprocessing, too, which ledl predict has no option for
        extractor.set_params(preprocessing=known)
        with pytest.raises(ValueError, match=r"trained on features of sha256:\w+, but .*other.onnx is sha256:"):
            extractor.transform(files)
    assert extractor.fit().transform(files).shape == (7, 5)
    with pytest.raises(ValueError, match=r"trained on images prepared by .*size=8.* now it is .*set_params"):
        extractor.set_params(preprocessing=Preprocessing(size=9)).transform(files)
    extractor.set_params(model=tmp_path / "gone.onnx", preprocessing=SMALL)
    with pytest.raises(
        FileNotFoundError, match=r"gone.onnx. The model was trained on its features .*set_params\(model="
    ):
        extractor.transform(files)


def test_an_extractor_that_is_not_fitted_takes_any_network(files, model, tmp_path):
    extractor = NetworkFeatures(model[0], preprocessing=SMALL)
    assert extractor.transform(files).shape == (7, 4)
    write_model(tmp_path / "other.onnx", n_features=5)
    assert extractor.set_params(model=tmp_path / "other.onnx").transform(files).shape == (7, 5)
    assert not hasattr(extractor, "identity_")


@pytest.fixture
def real(require_dataset):
    """Return the real network and images, if they are next to the folder of the datasets."""
    require_dataset("ucmerced")
    shared = Path(os.environ["LEDL_DATA"]).parent
    weights, folder = shared / "weights" / "resnet50_pool5.onnx", shared / "images" / "ucmerced"
    if not weights.is_file() or not folder.is_dir():
        pytest.skip("weights/resnet50_pool5.onnx and images/ucmerced are not next to LEDL_DATA")
    return weights, load_image_folder(folder, decode=False)


def test_real_images_have_the_prepared_features(real):
    """One image per class; benchmarks/features.py has all."""
    weights, listing = real
    chosen = [i for i, name in enumerate(listing.filenames) if name.endswith("03.jpg")]
    features = NetworkFeatures(weights).transform([listing.filenames[i] for i in chosen])
    rows = [100 * listing.target[i] + int(listing.filenames[i][-6:-4]) for i in chosen]
    expected = load("ucmerced").data[rows]
    errors = np.linalg.norm(features - expected, axis=1) / np.linalg.norm(expected, axis=1)
    assert len(chosen) == 21
    assert errors.max() < 1e-2


def test_the_real_network_refuses_other_sizes_at_once(real):
    weights, listing = real
    extractor = NetworkFeatures(weights, preprocessing=replace(CAFFE, size=1024))
    with pytest.raises(NetworkError, match=r"takes .*\(n, 3, 224, 224\), but .*makes \(n, 3, 1024, 1024\)"):
        extractor.transform(listing.filenames)


@pytest.mark.parametrize(
    "damage", ["short", "one", "nan", "archive", "garbage", "one bit", "bracket", "another image"]
)
def test_damaged_features_in_a_cache_are_computed_again(files, model, tmp_path, damage):
    extractor = NetworkFeatures(model[0], preprocessing=SMALL, cache=tmp_path / "cache").fit()
    expected = extractor.transform(files)
    for kept in (files_kept := sorted((tmp_path / "cache").rglob("*.npy"))):
        if damage == "one bit":
            content = bytearray(kept.read_bytes())
            content[130] ^= 1  # among the features
            kept.write_bytes(content)
        elif damage == "bracket":
            kept.write_bytes(kept.read_bytes().replace(b")", b"(", 1))  # in the header
        elif damage == "another image":
            kept.write_bytes(files_kept[0].read_bytes())
        elif damage == "archive":
            with kept.open("wb") as file:
                np.savez(file, np.zeros(3, np.float32))
        elif damage == "garbage":
            kept.write_bytes(b"PK\x03\x04garbage")
        else:
            wrong = {"short": np.zeros(2), "one": np.zeros(1), "nan": np.full(expected.shape[1], np.nan)}
            np.save(kept, wrong[damage].astype(np.float32))
    assert_array_equal(clone(extractor).fit().transform(files), expected)
