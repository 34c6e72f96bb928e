"""Readers of the datasets' own files: each gives samples, labels 0, 1, ..., and images where there are such."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import math
import struct
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.datasets import load_svmlight_file

from ledl.arrays import Array
from ledl.datasets._matlab import read_matrices

# What reading a broken file may raise.
BROKEN = (
    ArithmeticError,
    AttributeError,
    EOFError,
    IndexError,
    KeyError,
    MemoryError,
    NotImplementedError,
    OSError,
    TypeError,
    ValueError,
    lzma.LZMAError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)

# More than an array of any dataset here has, unpacked.
MAX_BYTES = 2**33
# And more than the text of USPS, which has 28 MB.
MAX_TEXT = 2**28


class Samples(NamedTuple):
    """(n, d) float32, not normalised; (n,) int64; (n, height, width) uint8, or None."""

    data: Array
    target: Array
    images: Array = None


def read_npz(path: Path, key: str) -> Samples:
    """A prepared file: `key` and ``target``, and perhaps ``images``; never a pickle."""
    try:
        _check_claims(path)
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            samples, target = arrays[key], arrays["target"]
            images = arrays.get("images", None)
    except BROKEN as error:
        raise ValueError(
            f"{path} is not a prepared dataset: {error}. It must be an .npz file with the arrays {key!r} and "
            "'target', none of them of objects."
        ) from error
    if samples.ndim < 2 or target.ndim != 1 or len(samples) != len(target):
        raise ValueError(
            f"{path} has samples of shape {samples.shape} and labels of shape {target.shape}; a label for each "
            "sample is needed. Make the file again."
        )
    data = samples.reshape(len(samples), math.prod(samples.shape[1:])).astype(np.float32, copy=False)
    return Samples(data, target, images)


def check_samples(samples: Samples, n_features: int, n_classes: int, where: str) -> Samples:
    """Samples as they should be: finite, with that many features, and labels from 0 to `n_classes` - 1."""
    data, target = samples.data, samples.target
    reason = ""
    if not len(data) or data.shape[1] != n_features:
        reason = f"samples of shape {data.shape}, but there are {n_features} features"
    elif not np.isfinite(data).all():
        reason = "NaN or infinite features"
    elif target.dtype.kind not in "iuf" or (target != np.round(target)).any() or target.min() < 0:
        reason = "labels that are not 0, 1, ..."
    elif target.max() >= n_classes:
        reason = f"the label {target.max()}, but there are {n_classes} classes"
    if reason:
        raise ValueError(f"{where} has {reason}. Make or get the file again.")
    return samples._replace(target=target.astype(np.int64))


def _check_claims(path: Path) -> None:
    """Refuse arrays that claim more than their file holds, or that unpack to more than any dataset here has."""
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            if member.file_size > MAX_BYTES:
                raise ValueError(
                    f"{member.filename} unpacks to {member.file_size:,} bytes, more than {MAX_BYTES:,}"
                )
            with archive.open(member) as file:
                version = np.lib.format.read_magic(file)
                read = (
                    np.lib.format.read_array_header_1_0
                    if version == (1, 0)
                    else np.lib.format.read_array_header_2_0
                )
                shape, _, dtype = read(file)
            claimed = dtype.itemsize * int(np.prod(shape, dtype=object))
            if claimed > member.file_size:
                raise ValueError(f"{member.filename} claims {claimed:,} bytes, but has {member.file_size:,}")


def read_faces_mat(path: Path) -> Samples:
    """Deng Cai's files: ``fea`` (n, 1024), images column by column, and ``gnd`` (n, 1), from 1 on."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ValueError(f"it has more than {MAX_BYTES:,} bytes")
        arrays = read_matrices(path.read_bytes(), ("fea", "gnd"), MAX_BYTES)
        pixels, labels = arrays["fea"], arrays["gnd"].reshape(-1)
        if pixels.shape != (len(labels), 1024):
            raise ValueError(f"'fea' has shape {pixels.shape} and 'gnd' {len(labels)} labels")
    except BROKEN as error:
        raise ValueError(
            f"{path} is not one of Deng Cai's files: {error}. It must be a MATLAB file with 'fea' (n x 1024) "
            "and 'gnd'."
        ) from error
    if pixels.min() < 0 or pixels.max() > 255 or pixels.max() <= 1 or (pixels != np.round(pixels)).any():
        raise ValueError(
            f"{path} has values from {pixels.min()} to {pixels.max()}, but pixels are whole numbers from 0 to "
            "255."
        )
    images = np.ascontiguousarray(pixels.reshape(-1, 32, 32).transpose(0, 2, 1).astype(np.uint8))
    _, target = np.unique(labels, return_inverse=True)
    return Samples(images.reshape(len(images), -1).astype(np.float32), target.astype(np.int64), images)


def read_zip_train(paths: Iterable[Path]) -> Samples:
    """zip.train.gz and zip.test.gz: a digit and 256 values from -1 to 1 a line."""
    parts = []
    for path in paths:
        try:
            with gzip.open(path, "rb") as file:
                parts.append(np.loadtxt(io.TextIOWrapper(io.BytesIO(_bounded(file))), ndmin=2))
            if parts[-1].shape[1] != 257:
                raise ValueError(f"lines have {parts[-1].shape[1]} numbers")
        except BROKEN as error:
            raise ValueError(
                f"{path} is not a USPS file: {error}. Each line must be a digit and 256 values from -1 to 1."
            ) from error
    table = np.concatenate(parts)
    return _usps(table[:, 1:], table[:, 0])


def read_libsvm(paths: Iterable[Path]) -> Samples:
    """usps.bz2 and usps.t.bz2: LIBSVM's sparse lines, labels 1 to 10 for the digits 0 to 9."""
    values, labels = [], []
    for path in paths:
        try:
            with bz2.open(path, "rb") as file:
                X, y = load_svmlight_file(io.BytesIO(_bounded(file)), n_features=256)
        except BROKEN as error:
            raise ValueError(
                f"{path} is not LIBSVM's USPS: {error}. Get usps.bz2 and usps.t.bz2 again."
            ) from error
        values.append(X.toarray())
        labels.append(y)
    return _usps(np.concatenate(values), np.concatenate(labels) - 1)


def read_openml(bunch: Any) -> Samples:
    """What scikit-learn's fetch_openml gives for USPS: 256 values from -1 to 1, labels "1" to "10"."""
    return _usps(np.asarray(bunch.data, dtype=np.float64), np.asarray(bunch.target, dtype=np.float64) - 1)


def _bounded(file: Any) -> bytes:
    """What a compressed file holds, unless that is more than any text here."""
    content: bytes = file.read(MAX_TEXT + 1)
    if len(content) > MAX_TEXT:
        raise ValueError(f"it unpacks to more than {MAX_TEXT:,} bytes")
    return content


def _usps(values: Array, digits: Array) -> Samples:
    """Values from -1 to 1 become 0 to 1, as in the prepared file."""
    if values.ndim != 2 or values.shape[1] != 256 or len(values) != len(digits) or not len(values):
        raise ValueError(
            f"USPS has 256 values and a label a sample, but here are {values.shape} and {digits.shape}."
        )
    if not (values.min() >= -1.001 and values.max() <= 1.001):  # NaN neither
        raise ValueError(f"USPS's values go from -1 to 1, but here from {values.min():g} to {values.max():g}.")
    wrong = ~((digits == np.round(digits)) & (digits >= 0) & (digits <= 9))
    if wrong.any():
        raise ValueError(f"USPS's labels are digits, but here is {digits[wrong][0]:g}.")
    data = np.float32((np.clip(values, -1, 1) + 1) / 2)
    images = np.uint8(np.round(255 * data)).reshape(-1, 16, 16)
    return Samples(data, digits.astype(np.int64), images)
