"""Datasets by name: found, downloaded, or reported as missing."""

import contextlib
import functools
import http.server
import io
import sys
import tarfile
import threading
import zipfile

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from PIL import Image
from sklearn.utils import Bunch

from helpers.datasets import assert_is_usps, usps_values
from helpers.networks import write_model
from ledl.datasets import _load, available, data_folder, load
from ledl.datasets._archives import ArchiveError
from ledl.datasets._load import registry
from ledl.features import Preprocessing

# Numbers of samples, features and classes.
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


def test_missing_datasets_are_reported(monkeypatch, tmp_path):
    with pytest.raises(ValueError, match=r"no dataset 'mnist'. The datasets are digits, usps"):
        load("mnist")
    with pytest.raises(
        FileNotFoundError, match=r"'pie' is not here: cmu_pie_32x32.npz or PIE_32x32.mat must be in .*Ask Carn"
    ):
        load("pie", data_home=tmp_path)
    with pytest.raises(FileNotFoundError, match=r"zip.train.gz and zip.test.gz or usps.bz2 .*LEDL_DATA"):
        load("usps", data_home=tmp_path, download=False)
    monkeypatch.setenv("LEDL_DATA", str(tmp_path / "mine"))
    with pytest.raises(FileNotFoundError, match="mine"):
        load("yaleb")


def test_the_data_folder_is_the_given_one_or_in_the_cache_of_the_user(monkeypatch, tmp_path):
    pytest.importorskip("platformdirs")
    monkeypatch.setenv("LEDL_DATA", "~/mine")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert data_folder("~/given") == tmp_path / "given"
    assert data_folder() == tmp_path / "mine"
    monkeypatch.delenv("LEDL_DATA")
    if sys.platform == "linux":
        monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
        assert data_folder() == tmp_path / ".cache" / "ledl"
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        assert data_folder() == tmp_path / "cache" / "ledl"
    assert data_folder().name in ("ledl", "Cache")
    assert not data_folder().exists()  # asking creates nothing


@pytest.mark.parametrize(
    ("system", "name", "place"),
    [("macos", "MacOS", "Library/Caches/ledl"), ("windows", "Windows", "AppData/Local/ledl/Cache")],
)
def test_the_cache_on_other_systems_is_where_it_was(system, name, place, monkeypatch, tmp_path):
    kind = getattr(pytest.importorskip(f"platformdirs.{system}"), name)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("platformdirs.windows.get_win_folder", lambda folder: str(tmp_path / "AppData/Local"))
    monkeypatch.setattr("platformdirs.PlatformDirs", kind)
    monkeypatch.delenv("LEDL_DATA", raising=False)
    assert data_folder() == tmp_path / place


def test_without_platformdirs_a_folder_must_be_given(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "platformdirs", None)
    monkeypatch.delenv("LEDL_DATA", raising=False)
    with pytest.raises(ImportError, match=r"LEDL_DATA.*pip install 'ledl\[download\]'"):
        load("yaleb")
    assert load("digits").data.shape == (1797, 64)
    digits, *others = available()
    assert digits.status == "here"
    assert {other.status for other in others} == {"ask"}
    assert "Set the environment variable LEDL_DATA" in others[0].detail
    assert data_folder(tmp_path) == tmp_path


def test_available_says_where_from(tmp_path):
    np.savez(tmp_path / "yaleb_32x32.npz", images=np.zeros((4, 32, 32), np.uint8), target=np.arange(4))
    found = {item.name: item for item in available(data_home=tmp_path)}
    assert found["digits"].status == found["yaleb"].status == "here"
    assert found["pie"].status == "ask"
    assert "Carnegie Mellon" in found["pie"].detail
    assert found["caltech101"].status == "download"
    assert "checksum is not known" in found["caltech101"].detail


def test_the_description_says_if_a_file_is_not_the_known_one(tmp_path):
    np.savez(tmp_path / "usps_16x16.npz", features=np.zeros((4, 256)), target=np.arange(4))
    assert "not the known file" in load("usps", data_home=tmp_path).DESCR


@pytest.mark.parametrize(
    ("features", "target", "message"),
    [
        (
            np.zeros((4, 256)),
            np.array([0, 1, 2, 10**12]),
            "the label 1000000000000, but the dataset has 10 classes",
        ),
        (np.zeros((4, 7)), np.arange(4), r"shape \(4, 7\), but the dataset has 256 features"),
        (np.full((4, 256), np.nan), np.arange(4), "NaN or infinite features"),
        (np.zeros((4, 256)), np.array([0, 1, 2, -3]), "labels that are not 0, 1"),
        (np.zeros((4, 256)), np.array(list("abcd")), "labels that are not 0, 1"),
        (np.zeros((4, 256)), np.zeros((4, 1)), "labels of shape"),
        (np.zeros(4), np.arange(4), "samples of shape"),
        (np.zeros((0, 256)), np.arange(0), "samples of shape"),
    ],
)
def test_bad_samples_are_reported(features, target, message, tmp_path):
    np.savez(tmp_path / "usps_16x16.npz", features=features, target=target)
    with pytest.raises(ValueError, match=message):
        load("usps", data_home=tmp_path)


def test_an_own_network_has_its_preprocessing_next_to_it(tmp_path, rng):
    write_images(tmp_path / "101_ObjectCategories", rng)
    write_model(tmp_path / "resnet50_pool5.onnx")
    with pytest.raises(ValueError, match=r"is not known. Give preprocessing"):
        load("caltech101", data_home=tmp_path)
    own = Preprocessing(size=8, std=(2.0, 2.0, 2.0))
    (tmp_path / "resnet50_pool5.json").write_text(own.to_json())
    with pytest.warns(UserWarning, match="has 4 images"):
        assert own.to_json() in load("caltech101", data_home=tmp_path).DESCR


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


def write_images(folder, rng, n=2):
    for name in ("ant", "barrel"):
        (folder / name).mkdir(parents=True)
        for i in range(n):
            pixels = rng.integers(0, 256, (20, 24, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / name / f"image_{i}.png")


@pytest.mark.parametrize(("name", "width"), [("caltech101", 4), ("caltech101_pyramid", 24)])
def test_class_folders_become_features(name, width, tmp_path, rng, monkeypatch):
    write_images(tmp_path / "101_ObjectCategories", rng)
    with pytest.raises(FileNotFoundError, match=r"need the network .*resnet50_pool5.onnx, which is missing"):
        load(name, data_home=tmp_path)
    write_model(tmp_path / "resnet50_pool5.onnx", n_features=4, monkeypatch=monkeypatch)
    with (
        pytest.warns(UserWarning, match="has 4 images of 2 classes, but the dataset")
        if width == 4
        else contextlib.nullcontext()
    ):
        dataset = load(name, data_home=tmp_path)
    assert dataset.data.shape == (4, width)
    assert np.isfinite(dataset.data).all()
    assert dataset.target_names == ["ant", "barrel"]
    assert_array_equal(dataset.target, [0, 0, 1, 1])
    assert "sha256:" in dataset.DESCR
    assert list((tmp_path / "features").rglob("*.npy"))  # kept for the next time


@pytest.fixture
def server(tmp_path):
    """Serve files over HTTP."""
    (tmp_path / "served").mkdir()
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path / "served"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield tmp_path / "served", f"http://127.0.0.1:{running.server_port}"
        running.shutdown()


def serve_caltech(folder, rng):
    """Write an archive in an archive, as CaltechDATA has it."""
    write_images(folder / "101_ObjectCategories", rng)
    inner = io.BytesIO()
    with tarfile.open(fileobj=inner, mode="w:gz") as tar:
        tar.add(folder / "101_ObjectCategories", "101_ObjectCategories")
    with zipfile.ZipFile(folder / "caltech-101.zip", "w") as archive:
        archive.writestr("caltech-101/101_ObjectCategories.tar.gz", inner.getvalue())


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_a_dataset_that_may_be_redistributed_is_downloaded(server, tmp_path, rng, monkeypatch):
    folder, address = server
    serve_caltech(folder, rng)
    entry = Bunch(**registry()["caltech101"] | {"url": f"{address}/caltech-101.zip"})
    home = tmp_path / "home"
    home.mkdir()
    write_model(home / "resnet50_pool5.onnx", n_features=4, monkeypatch=monkeypatch)
    entry = Bunch(**entry | {"samples": 4, "classes": 2})
    monkeypatch.setattr(_load, "registry", lambda: {"caltech101": entry})
    with pytest.warns(UserWarning, match="the right checksum is not known. Compare its sha256"):
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
    with pytest.raises(ArchiveError, match=r"has changed.*The download was deleted"):
        load("caltech101", data_home=home)
    assert list(home.iterdir()) == [model]
    entry = Bunch(**entry | {"url": f"{address}/missing.zip", "archive_sha256": ""})
    monkeypatch.setattr(_load, "registry", lambda: {"caltech101": entry})
    with pytest.raises(FileNotFoundError, match=r"CaltechDATA.*Download: .*404"):
        load("caltech101", data_home=home)
    # A broken archive is not kept either, else it would be used again.
    (folder / "cut.zip").write_bytes((folder / "caltech-101.zip").read_bytes()[:500])
    entry = Bunch(**entry | {"url": f"{address}/cut.zip"})
    monkeypatch.setattr(_load, "registry", lambda: {"caltech101": entry})
    with pytest.warns(UserWarning, match="checksum"), pytest.raises(ArchiveError, match="cannot be unpacked"):
        load("caltech101", data_home=home)
    assert list(home.iterdir()) == [model]
