"""Datasets by name, each original format from a small file in that exact format."""

import bz2
import contextlib
import functools
import gzip
import http.server
import io
import tarfile
import threading
import zipfile
import zlib

import numpy as np
import pytest
import scipy.io
from numpy.testing import assert_allclose, assert_array_equal
from PIL import Image
from sklearn.utils import Bunch

from helpers.networks import write_model
from ledl.datasets import _load, _readers, available, load
from ledl.datasets._archives import ArchiveError
from ledl.datasets._load import registry
from ledl.datasets._readers import read_matrices
from ledl.features import Preprocessing

# Samples, features and classes, as the files' manifest gives them.
SHAPES = {
    "usps": (9298, 256, 10),
    "yaleb": (2414, 1024, 38),
    "pie": (11554, 1024, 68),
    "ucmerced": (2100, 2048, 21),
    "aid": (10000, 2048, 30),
    "caltech101": (9144, 2048, 102),
    "caltech101_pyramid": (2040, 12288, 102),
}


@pytest.mark.parametrize("name", SHAPES)
def test_prepared_files(name, require_dataset):
    require_dataset(name)
    dataset = load(name)
    n, d, c = SHAPES[name]
    assert dataset.data.shape == (n, d)
    assert dataset.data.dtype == np.float32
    assert dataset.target.shape == (n,)
    assert_array_equal(np.unique(dataset.target), np.arange(c))
    assert len(dataset.target_names) == c
    assert ("images" in dataset) == (name in ("usps", "yaleb", "pie"))
    assert "(as known)" in dataset.DESCR
    for word in ("Terms:", "Cite:", "Differs from the paper's:"):
        assert word in dataset.DESCR


def test_the_registry_is_complete():
    assert list(registry()) == list(SHAPES)
    for name, (n, _, c) in SHAPES.items():
        entry = registry()[name]
        assert (entry.samples, entry.classes) == (n, c)
        assert len(entry.target_names) in (0, c)
        assert entry.ask
        assert not entry.url or "CC BY" in entry.terms  # only what may be redistributed


def test_digits_need_no_file():
    digits = load("digits")
    assert digits.data.dtype == np.float32
    assert digits.target_names == [str(j) for j in range(10)]
    assert digits.DESCR


def test_what_is_missing_is_told(monkeypatch, tmp_path):
    with pytest.raises(ValueError, match=r"no dataset 'mnist'; the known ones are digits, usps"):
        load("mnist")
    with pytest.raises(
        FileNotFoundError, match=r"'pie' is read from cmu_pie_32x32.npz or PIE_32x32.mat in .*Ask Carn"
    ):
        load("pie", data_home=tmp_path)
    with pytest.raises(FileNotFoundError, match=r"zip.train.gz and zip.test.gz or usps.bz2 .*LEDL_DATA"):
        load("usps", data_home=tmp_path, download=False)
    monkeypatch.setenv("LEDL_DATA", str(tmp_path / "mine"))
    with pytest.raises(FileNotFoundError, match="mine"):
        load("yaleb")
    monkeypatch.delenv("LEDL_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert "ledl" in str(_load.data_folder())


def test_available_says_where_from(tmp_path):
    np.savez(tmp_path / "yaleb_32x32.npz", images=np.zeros((4, 32, 32), np.uint8), target=np.arange(4))
    found = {item.name: item for item in available(data_home=tmp_path)}
    assert found["digits"].status == found["yaleb"].status == "here"
    assert found["pie"].status == "ask"
    assert "Carnegie Mellon" in found["pie"].detail
    assert found["caltech101"].status == "download"
    assert "checksum is not known" in found["caltech101"].detail


@pytest.mark.parametrize("kind", ["text", "truncated", "objects", "keys", "lengths", "claims", "bomb"])
def test_files_that_are_not_what_they_should_be_are_told(kind, tmp_path, monkeypatch):
    path = tmp_path / "usps_16x16.npz"
    features, target = np.zeros((4, 256)), np.arange(4)
    if kind == "text":
        path.write_text("not an archive")
    elif kind == "objects":  # a pickle inside must never be loaded
        np.savez(path, features=np.array([print, None]), target=target)
    elif kind == "keys":
        np.savez(path, target=target)
    elif kind == "claims":  # a header that would have terabytes allocated
        header = io.BytesIO()
        np.lib.format.write_array_header_1_0(
            header, {"descr": "<f8", "fortran_order": False, "shape": (10**12, 256)}
        )
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("features.npy", header.getvalue())
    elif kind == "bomb":
        monkeypatch.setattr(_readers, "MAX_BYTES", 1000)
        np.savez_compressed(path, features=features, target=target)
    elif kind == "lengths":
        np.savez(path, features=features, target=target[:3])
    else:
        np.savez(path, features=features, target=target)
        path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(ValueError, match=f"{path.name} (is not a prepared dataset|has samples of shape)"):
        load("usps", data_home=tmp_path)


def test_a_file_of_ones_own_says_that_it_is_not_the_known_one(tmp_path):
    np.savez(tmp_path / "usps_16x16.npz", features=np.zeros((4, 256)), target=np.arange(4))
    assert "not the one we know" in load("usps", data_home=tmp_path).DESCR


@pytest.mark.parametrize(("name", "file"), [("yaleb", "YaleB_32x32.mat"), ("pie", "PIE_32x32.mat")])
def test_deng_cais_files(name, file, tmp_path, rng):
    images = rng.integers(0, 256, (6, 32, 32), dtype=np.uint8)
    columns = images.transpose(0, 2, 1).reshape(6, -1)  # MATLAB's order
    labels = np.array([[1, 1, 2, 2, 5, 5]], dtype=np.uint8).T
    scipy.io.savemat(tmp_path / file, {"fea": columns.astype(np.float64), "gnd": labels})
    dataset = load(name, data_home=tmp_path)
    assert_array_equal(dataset.images, images)
    assert_array_equal(dataset.data, images.reshape(6, -1))
    assert_array_equal(dataset.target, [0, 0, 1, 1, 2, 2])
    assert dataset.target_names == ["0", "1", "2"]


@pytest.mark.parametrize("compressed", [True, False])
def test_matrices_are_those_of_scipy(compressed, tmp_path, rng):
    arrays = {
        "fea": rng.integers(0, 256, (5, 7)).astype(np.uint8),
        "gnd": rng.random((5, 1)),
        "x": np.float32(rng.random((2, 3))),
        "small": np.array([[1, 2]], np.int8),
    }
    scipy.io.savemat(tmp_path / "a.mat", arrays, do_compression=compressed)
    found = read_matrices((tmp_path / "a.mat").read_bytes(), tuple(arrays), 10**6)
    for name, array in arrays.items():
        assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype


def test_malformed_matrices_never_do_worse_than_an_error(tmp_path, rng):
    scipy.io.savemat(tmp_path / "a.mat", {"fea": np.zeros((3, 1024), np.uint8), "gnd": np.ones((3, 1))})
    good = (tmp_path / "a.mat").read_bytes()
    for _ in range(2000):
        bad = bytearray(good)
        for place in rng.integers(126, 330, size=rng.integers(1, 4)):
            bad[place] = rng.integers(256)
        (tmp_path / "YaleB_32x32.mat").write_bytes(bad)
        with contextlib.suppress(ValueError):
            load("yaleb", data_home=tmp_path)
    bomb = zlib.compress(bytes(10**6))
    element = np.array([15, len(bomb)], "<u4").tobytes() + bomb
    with pytest.raises(ValueError, match="unpacks to more than 1,000 bytes"):
        read_matrices(good[:128] + element, ("fea",), 1000)


@pytest.mark.parametrize(
    ("features", "target", "message"),
    [
        (np.zeros((4, 256)), np.array([0, 1, 2, 10**12]), "the label 1000000000000, but there are 10 classes"),
        (np.zeros((4, 7)), np.arange(4), r"shape \(4, 7\), but there are 256 features"),
        (np.full((4, 256), np.nan), np.arange(4), "NaN or infinite features"),
        (np.zeros((4, 256)), np.array([0, 1, 2, -3]), "labels that are not 0, 1"),
        (np.zeros((4, 256)), np.array(list("abcd")), "labels that are not 0, 1"),
        (np.zeros((4, 256)), np.zeros((4, 1)), "labels of shape"),
        (np.zeros(4), np.arange(4), "samples of shape"),
        (np.zeros((0, 256)), np.arange(0), "samples of shape"),
    ],
)
def test_samples_that_cannot_be_are_told(features, target, message, tmp_path):
    np.savez(tmp_path / "usps_16x16.npz", features=features, target=target)
    with pytest.raises(ValueError, match=message):
        load("usps", data_home=tmp_path)


def test_text_that_unpacks_to_too_much_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(_readers, "MAX_TEXT", 1000)
    for name in ("zip.train.gz", "zip.test.gz"):
        (tmp_path / name).write_bytes(gzip.compress(b"0" * 10**6))
    with pytest.raises(ValueError, match="unpacks to more than 1,000 bytes"):
        load("usps", data_home=tmp_path)


def test_a_model_of_ones_own_brings_its_preprocessing(tmp_path, rng):
    write_images(tmp_path / "101_ObjectCategories", rng)
    write_model(tmp_path / "resnet50_pool5.onnx")
    with pytest.raises(ValueError, match=r"is not known. Give preprocessing"):
        load("caltech101", data_home=tmp_path)
    own = Preprocessing(size=8, std=(2.0, 2.0, 2.0))
    (tmp_path / "resnet50_pool5.json").write_text(own.to_json())
    with pytest.warns(UserWarning, match="has 4 images"):
        assert own.to_json() in load("caltech101", data_home=tmp_path).DESCR


@pytest.mark.parametrize("kind", ["text", "truncated", "keys", "shape", "range", "scaled", "transposed"])
def test_bad_mat_files_are_told(kind, tmp_path, rng):
    path = tmp_path / "YaleB_32x32.mat"
    arrays = {"fea": rng.integers(0, 256, (6, 1024)), "gnd": np.ones((6, 1))}
    if kind == "keys":
        arrays.pop("gnd")
    if kind == "shape":
        arrays["fea"] = arrays["fea"][:, :1000]
    if kind == "range":
        arrays["fea"] = arrays["fea"] + 1.0e3
    if kind == "scaled":
        arrays["fea"] = arrays["fea"] / 255
    if kind == "transposed":
        arrays["fea"] = arrays["fea"].T
    scipy.io.savemat(path, arrays)
    if kind == "truncated":
        path.write_bytes(path.read_bytes()[:2000])
    if kind == "text":
        path.write_text("not a MATLAB file")
    with pytest.raises(ValueError, match=f"{path.name} (is not one of Deng Cai's|has values)"):
        load("yaleb", data_home=tmp_path)


def usps_values(rng, n):
    return np.round(rng.uniform(-1, 1, (n, 256)), 3), np.arange(n) % 10


def assert_is_usps(dataset, values, digits):
    assert_allclose(dataset.data, (values + 1) / 2, atol=1e-6)
    assert_array_equal(dataset.target, digits)
    assert dataset.images.shape == (len(digits), 16, 16)
    assert dataset.target_names == [str(j) for j in range(10)]


def test_usps_as_zip_train(tmp_path, rng):
    values, digits = usps_values(rng, 23)
    for name, rows in (("zip.train.gz", slice(0, 15)), ("zip.test.gz", slice(15, 23))):
        lines = [
            f"{d:.4f} " + " ".join(f"{v:.3f}" for v in x)
            for d, x in zip(digits[rows], values[rows], strict=True)
        ]
        with gzip.open(tmp_path / name, "wt") as file:
            file.write("\n".join(lines) + "\n")
    assert_is_usps(load("usps", data_home=tmp_path), values, digits)


def test_usps_as_libsvm(tmp_path, rng):
    values, digits = usps_values(rng, 20)
    for name, rows in (("usps.bz2", slice(0, 12)), ("usps.t.bz2", slice(12, 20))):
        lines = [
            f"{d + 1} " + " ".join(f"{j + 1}:{v:g}" for j, v in enumerate(x) if v)
            for d, x in zip(digits[rows], values[rows], strict=True)
        ]
        (tmp_path / name).write_bytes(bz2.compress(("\n".join(lines) + "\n").encode()))
    assert_is_usps(load("usps", data_home=tmp_path), values, digits)


def test_usps_from_openml(tmp_path, rng, monkeypatch):
    values, digits = usps_values(rng, 20)
    answer = Bunch(data=values, target=np.array([str(d + 1) for d in digits], dtype=object))
    monkeypatch.setattr("sklearn.datasets.fetch_openml", lambda name, **options: answer)
    assert_is_usps(load("usps", data_home=tmp_path), values, digits)

    def offline(name, **options):
        raise OSError("no network")

    monkeypatch.setattr("sklearn.datasets.fetch_openml", offline)
    with pytest.raises(FileNotFoundError, match=r"zip.train.gz.*OpenML: no network"):
        load("usps", data_home=tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("5 0.1 0.2\n", "lines have 3 numbers"),
        ("hello\n", "is not a USPS file"),
        ("11 " + "0 " * 256 + "\n", "labels are digits, but here is 11"),
        ("1 " + "7 " * 256 + "\n", "values go from -1 to 1"),
    ],
)
def test_bad_usps_files_are_told(text, message, tmp_path):
    for name in ("zip.train.gz", "zip.test.gz"):
        with gzip.open(tmp_path / name, "wt") as file:
            file.write(text)
    with pytest.raises(ValueError, match=message):
        load("usps", data_home=tmp_path)
    (tmp_path / "zip.train.gz").write_bytes(b"not gzip")
    with pytest.raises(ValueError, match=r"zip.train.gz is not a USPS file"):
        load("usps", data_home=tmp_path)


def write_images(folder, rng, n=2):
    for name in ("ant", "barrel"):
        (folder / name).mkdir(parents=True)
        for i in range(n):
            pixels = rng.integers(0, 256, (20, 24, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / name / f"image_{i}.png")


@pytest.mark.parametrize(("name", "width"), [("caltech101", 4), ("caltech101_pyramid", 24)])
def test_class_folders_become_features(name, width, tmp_path, rng, monkeypatch):
    write_images(tmp_path / "101_ObjectCategories", rng)
    with pytest.raises(
        FileNotFoundError, match=r"resnet50_pool5.onnx, which makes features of them and is not there"
    ):
        load(name, data_home=tmp_path)
    write_model(tmp_path / "resnet50_pool5.onnx", n_features=4, monkeypatch=monkeypatch)
    with (
        pytest.warns(UserWarning, match="has 4 images of 2 classes, but")
        if width == 4
        else contextlib.nullcontext()
    ):
        dataset = load(name, data_home=tmp_path)
    assert dataset.data.shape == (4, width)
    assert np.isfinite(dataset.data).all()
    assert dataset.target_names == ["ant", "barrel"]
    assert_array_equal(dataset.target, [0, 0, 1, 1])
    assert "sha256:" in dataset.DESCR
    assert list((tmp_path / "features").rglob("*.npy"))  # once computed, kept


@pytest.fixture
def server(tmp_path):
    """Files over HTTP, as a stranger's server would give them."""
    (tmp_path / "served").mkdir()
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path / "served"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield tmp_path / "served", f"http://127.0.0.1:{running.server_port}"
        running.shutdown()


def serve_caltech(folder, rng):
    """An archive in an archive, as CaltechDATA has it."""
    write_images(folder / "101_ObjectCategories", rng)
    inner = io.BytesIO()
    with tarfile.open(fileobj=inner, mode="w:gz") as tar:
        tar.add(folder / "101_ObjectCategories", "101_ObjectCategories")
    with zipfile.ZipFile(folder / "caltech-101.zip", "w") as archive:
        archive.writestr("caltech-101/101_ObjectCategories.tar.gz", inner.getvalue())


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_what_may_be_redistributed_is_downloaded(server, tmp_path, rng, monkeypatch):
    folder, address = server
    serve_caltech(folder, rng)
    entry = Bunch(**registry()["caltech101"] | {"url": f"{address}/caltech-101.zip"})
    home = tmp_path / "home"
    home.mkdir()
    write_model(home / "resnet50_pool5.onnx", n_features=4, monkeypatch=monkeypatch)
    monkeypatch.setattr(_load, "registry", lambda: {"caltech101": entry})
    entry = Bunch(**entry | {"samples": 4, "classes": 2})
    monkeypatch.setattr(_load, "registry", lambda: {"caltech101": entry})
    with pytest.warns(UserWarning, match="its checksum is not known to us; compare sha256"):
        dataset = load("caltech101", data_home=home)
    assert dataset.data.shape == (4, 4)
    assert load("caltech101", data_home=home).data.shape == (4, 4)  # and no second download


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_a_download_with_another_checksum_leaves_nothing(server, tmp_path, rng, monkeypatch):
    folder, address = server
    serve_caltech(folder, rng)
    changed = {"url": f"{address}/caltech-101.zip", "archive_sha256": "0" * 64}
    entry = Bunch(**registry()["caltech101"] | changed)
    monkeypatch.setattr(_load, "registry", lambda: {"caltech101": entry})
    home = tmp_path / "home"
    home.mkdir()
    model = home / "resnet50_pool5.onnx"
    write_model(model)
    with pytest.raises(ArchiveError, match=r"is not what it was.*Nothing was kept"):
        load("caltech101", data_home=home)
    assert list(home.iterdir()) == [model]
    entry = Bunch(**entry | {"url": f"{address}/missing.zip", "archive_sha256": ""})
    monkeypatch.setattr(_load, "registry", lambda: {"caltech101": entry})
    with pytest.raises(FileNotFoundError, match=r"CaltechDATA.*Download: .*404"):
        load("caltech101", data_home=home)
    # What cannot be unpacked is not kept either, or it would be taken for good the next time.
    (folder / "cut.zip").write_bytes((folder / "caltech-101.zip").read_bytes()[:500])
    entry = Bunch(**entry | {"url": f"{address}/cut.zip"})
    monkeypatch.setattr(_load, "registry", lambda: {"caltech101": entry})
    with pytest.warns(UserWarning, match="checksum"), pytest.raises(ArchiveError, match="cannot be unpacked"):
        load("caltech101", data_home=home)
    assert list(home.iterdir()) == [model]
