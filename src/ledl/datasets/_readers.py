"""Read the files of the datasets: samples, labels 0, 1, ..., and images if there are any."""

from __future__ import annotations

import bz2
import gzip
import io
import math
import struct
import zipfile
import zlib
from pathlib import Path

import numpy as np
from sklearn.datasets import load_svmlight_file

from ledl.arrays import Array

# Limit of an unpacked array. All datasets here are smaller.
MAX_BYTES = 2**33
# Limit of unpacked text. USPS has 28 MB.
MAX_TEXT = 2**28

# MATLAB's data types, and the classes of numeric matrices.
TYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
MATRIX, COMPRESSED, NUMERIC_CLASSES = 14, 15, range(6, 16)

# (n, d) float32, not normalised; (n,) labels; (n, height, width) uint8, or None.
Samples = tuple[Array, Array, Array | None]


def _read_npz(paths: list[Path], key: str) -> Samples:
    """Return the arrays `key`, ``target`` and perhaps ``images`` of a prepared file, without pickles."""
    (path,) = paths
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                if member.file_size > MAX_BYTES:
                    raise ValueError(
                        f"{member.filename} unpacks to {member.file_size:,} bytes, more than {MAX_BYTES:,}"
                    )
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            samples, target = arrays[key], arrays["target"]
            images = arrays.get("images", None)
    except Exception as error:  # broken files raise many types of errors
        raise ValueError(
            f"{path} is not a prepared dataset: {error}. It must be an .npz file with the arrays {key!r} and "
            "'target', which must not have Python objects."
        ) from error
    if samples.ndim < 2 or target.ndim != 1 or len(samples) != len(target):
        raise ValueError(
            f"{path} has samples of shape {samples.shape} and labels of shape {target.shape}. Each sample "
            "needs one label. Create the file again."
        )
    data = samples.reshape(len(samples), math.prod(samples.shape[1:])).astype(np.float32, copy=False)
    return data, target, images


def _read_faces(paths: list[Path], key: str) -> Samples:
    """Return the faces in one of Deng Cai's files: ``fea`` (n, 1024), column by column, and ``gnd`` (n, 1)."""
    (path,) = paths
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ValueError(f"it has more than {MAX_BYTES:,} bytes")
        arrays = read_matrices(path.read_bytes(), ("fea", "gnd"), MAX_BYTES)
        pixels, labels = arrays["fea"], arrays["gnd"].reshape(-1)
        if pixels.shape != (len(labels), 1024):
            raise ValueError(f"'fea' has shape {pixels.shape} and 'gnd' {len(labels)} labels")
    except Exception as error:  # broken files raise many types of errors
        raise ValueError(
            f"{path} is not one of Deng Cai's files: {error}. It must be a MATLAB file with 'fea' (n x 1024) "
            "and 'gnd'."
        ) from error
    if pixels.min() < 0 or pixels.max() > 255 or pixels.max() <= 1 or (pixels != np.round(pixels)).any():
        raise ValueError(
            f"{path} has values from {pixels.min()} to {pixels.max()}. Pixels must be integers from 0 to 255."
        )
    images = np.ascontiguousarray(pixels.reshape(-1, 32, 32).transpose(0, 2, 1).astype(np.uint8))
    _, target = np.unique(labels, return_inverse=True)
    return images.reshape(len(images), -1).astype(np.float32), target, images


def read_matrices(content: bytes, names: tuple[str, ...], max_bytes: int) -> dict[str, Array]:
    """Return the numeric matrices with these names in a MATLAB file of version 5, or raise ValueError.

    SciPy's reader is compiled and can crash on malformed files. These files are untrusted and have only two
    matrices.
    """
    order = {b"IM": "<", b"MI": ">"}.get(content[126:128])
    if order is None or len(content) < 128:
        raise ValueError("it is not a MATLAB file of version 5 (save it with -v7 or older)")
    found, position = {}, 128
    while position < len(content):
        kind, body, position = _element(content, position, order)
        if kind == COMPRESSED:
            unpacker = zlib.decompressobj()
            unpacked = unpacker.decompress(body, max_bytes)
            if unpacker.unconsumed_tail:
                raise ValueError(f"a matrix unpacks to more than {max_bytes:,} bytes")
            kind, body, _ = _element(unpacked, 0, order)
        if kind != MATRIX:
            continue
        _, flags, start = _element(body, 0, order)
        _, sizes, start = _element(body, start, order)
        _, label, start = _element(body, start, order)
        name = label.decode("ascii", "replace")
        if name not in names:
            continue
        (flag,) = struct.unpack_from(f"{order}I", flags)
        if flag & 0xFF not in NUMERIC_CLASSES or flag & 0x0800:
            raise ValueError(f"{name} is not a matrix of real numbers")
        shape = np.frombuffer(sizes, f"{order}i4")
        kind, values, _ = _element(body, start, order)
        if kind not in TYPES:
            raise ValueError(f"{name} is of an unknown type, {kind}")
        numbers = np.frombuffer(values, order + TYPES[kind])
        if len(shape) != 2 or (shape < 0).any() or int(np.prod(shape, dtype=object)) != numbers.size:
            raise ValueError(f"{name} should have shape {shape.tolist()}, but has {numbers.size} numbers")
        found[name] = numbers.reshape(tuple(shape), order="F")
    return found


def _element(content: bytes, position: int, order: str) -> tuple[int, bytes, int]:
    """Return the type and the bytes of an element of a MATLAB file, and the position of the next one."""
    if position + 8 > len(content):
        raise ValueError("it is incomplete")
    kind, size = struct.unpack_from(f"{order}II", content, position)
    if kind >> 16:  # small: type and size in four bytes, the data in the other four
        kind, size, start, end = kind & 0xFFFF, kind >> 16, position + 4, position + 8
        if size > 4:
            raise ValueError("it is broken")
    else:
        start = position + 8
        end = start + size if kind == COMPRESSED else start + -(-size // 8) * 8
    if start + size > len(content):
        raise ValueError("it is incomplete")
    return kind, content[start : start + size], end


def _read_usps(paths: list[Path], key: str) -> Samples:
    """Return USPS from zip.train.gz and zip.test.gz, or from LIBSVM's usps.bz2 and usps.t.bz2.

    Lines of the former have a digit and 256 values from -1 to 1. LIBSVM's lines are sparse, with labels 1 to 10
    for the digits 0 to 9.
    """
    parts = []
    for path in paths:
        is_libsvm = path.suffix == ".bz2"
        try:
            with (bz2 if is_libsvm else gzip).open(path, "rb") as file:
                content = file.read(MAX_TEXT + 1)
            if len(content) > MAX_TEXT:
                raise ValueError(f"it unpacks to more than {MAX_TEXT:,} bytes")
            if is_libsvm:
                X, y = load_svmlight_file(io.BytesIO(content), n_features=256)
                table = np.column_stack([y - 1, X.toarray()])
            else:
                table = np.loadtxt(io.TextIOWrapper(io.BytesIO(content)), ndmin=2)
            if table.shape[1] != 257:
                raise ValueError(f"lines have {table.shape[1]} numbers")
        except Exception as error:  # broken files raise many types of errors
            raise ValueError(
                f"{path} is not a USPS file: {error}. Get it again. Each line must have a label and 256 values "
                "from -1 to 1."
            ) from error
        parts.append(table)
    table = np.concatenate(parts)
    return as_usps(table[:, 1:], table[:, 0])


# Readers by the kind of files in `registry.toml`, called with the paths and the key.
READERS = {"npz": _read_npz, "faces_mat": _read_faces, "zip_train": _read_usps, "libsvm": _read_usps}


def as_usps(values: Array, digits: Array) -> Samples:
    """Return samples with values scaled from [-1, 1] to [0, 1], as in the prepared file."""
    if values.ndim != 2 or values.shape[1] != 256 or len(values) != len(digits) or not len(values):
        raise ValueError(
            f"USPS has 256 values and a label per sample, but these are {values.shape} and {digits.shape}."
        )
    if not (values.min() >= -1.001 and values.max() <= 1.001):  # also raised for NaN
        raise ValueError(f"USPS has values from -1 to 1, but these are {values.min():g} to {values.max():g}.")
    wrong = ~((digits == np.round(digits)) & (digits >= 0) & (digits <= 9))
    if wrong.any():
        raise ValueError(f"USPS's labels are digits from 0 to 9, but this one is {digits[wrong][0]:g}.")
    data = np.float32((np.clip(values, -1, 1) + 1) / 2)
    images = np.uint8(np.round(255 * data)).reshape(-1, 16, 16)
    return data, digits, images
