"""Files of the datasets: each original format, from a small file in exactly that format."""

import bz2
import contextlib
import gzip
import io
import zipfile
import zlib

import numpy as np
import pytest
import scipy.io
from numpy.testing import assert_array_equal

from helpers.datasets import assert_is_usps, usps_values
from ledl.datasets import _readers, load
from ledl.datasets._readers import read_matrices


@pytest.mark.parametrize("kind", ["text", "truncated", "objects", "keys", "lengths", "claims", "bomb"])
def test_bad_npz_files_are_reported(kind, tmp_path, monkeypatch):
    path = tmp_path / "usps_16x16.npz"
    features, target = np.zeros((4, 256)), np.arange(4)
    if kind == "text":
        path.write_text("not an archive")
    elif kind == "objects":  # a pickle inside must never be loaded
        np.savez(path, features=np.array([print, None]), target=target)
    elif kind == "keys":
        np.savez(path, target=target)
    elif kind == "claims":  # a header that asks for terabytes
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
def test_matrices_are_equal_to_those_of_scipy(compressed, tmp_path, rng):
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


def test_malformed_matrices_raise_value_error_at_worst(tmp_path, rng):
    scipy.io.savemat(tmp_path / "a.mat", {"fea": np.zeros((3, 1024), np.uint8), "gnd": np.ones((3, 1))})
    good = (tmp_path / "a.mat").read_bytes()
    for _ in range(500):
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


@pytest.mark.parametrize("kind", ["text", "truncated", "keys", "shape", "range", "scaled", "transposed"])
def test_bad_mat_files_are_reported(kind, tmp_path, rng):
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


def test_text_that_is_too_large_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(_readers, "MAX_TEXT", 1000)
    for name in ("zip.train.gz", "zip.test.gz"):
        (tmp_path / name).write_bytes(gzip.compress(b"0" * 10**6))
    with pytest.raises(ValueError, match="unpacks to more than 1,000 bytes"):
        load("usps", data_home=tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("5 0.1 0.2\n", "lines have 3 numbers"),
        ("hello\n", "is not a USPS file"),
        ("11 " + "0 " * 256 + "\n", "labels are digits from 0 to 9, but this one is 11"),
        ("1 " + "7 " * 256 + "\n", "values from -1 to 1, but these are 7 to 7"),
    ],
)
def test_bad_usps_files_are_reported(text, message, tmp_path):
    for name in ("zip.train.gz", "zip.test.gz"):
        with gzip.open(tmp_path / name, "wt") as file:
            file.write(text)
    with pytest.raises(ValueError, match=message):
        load("usps", data_home=tmp_path)
    (tmp_path / "zip.train.gz").write_bytes(b"not gzip")
    with pytest.raises(ValueError, match=r"zip.train.gz is not a USPS file"):
        load("usps", data_home=tmp_path)
