"""Bytes of a model file: header, arrays, checksum.

    magic, 8 bytes | length of the header, 8 bytes | header, JSON | arrays | SHA-256 of all before, 32 bytes

All numbers are little-endian. The header is padded with spaces and each array with zeros, so that arrays begin
at multiples of 64 bytes; they follow each other without overlaps or gaps. The checksum tells damage, not
malice: what a file claims is compared with what it holds before memory is asked for.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import stat
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import numpy as np

from ledl.arrays import Array, check_memory
from ledl.files import write_atomically

MAGIC = b"\x89LEDL\r\n\x1a"  # not text, and damaged by whatever changes line ends
FORMAT = 2
PREFACE, CHECKSUM = len(MAGIC) + 8, 32
ALIGN = 64
# Python needs some twenty times the bytes of the worst header; a million names are better off in an array.
MAX_HEADER = 2**24
# Axes of an array, and values along the others of one that is empty: it claims them at no cost.
MAX_AXES, MAX_EMPTY = 32, 2**20
NUMBERS = ("|b1", "|i1", "<i2", "<i4", "<i8", "|u1", "<u2", "<u4", "<u8", "<f4", "<f8")
MAX_STRING = 2**20
CHUNK = 2**20

# How other files begin that one might take for a model.
OTHERS = {
    b"\x80": "a pickle, which can run any code when it is opened. Load it with what wrote it, if you trust "
    "whoever did, and store the model with ledl.save",
    b"PK": "a zip archive, such as .npz or skops files are. Give a file that ledl.save wrote",
    b"\x89HDF": "an HDF5 file. Give a file that ledl.save wrote",
    MAGIC[:5]: "a model file that was changed on its way as if it were text. Transfer it in binary mode",
}


class ModelFileError(ValueError):
    """A file that is no model, is damaged or unknown here, or a model that a file cannot hold.

    Examples
    --------
    >>> import ledl, tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "model.ledl"
    ...     _ = file.write_text("no model")
    ...     try:
    ...         ledl.load(file)
    ...     except ledl.ModelFileError as error:
    ...         print(str(error).removeprefix(str(file)))
     is no model file. Give a file that ledl.save wrote.
    """


def write_file(path: Path, header: dict[str, Any], arrays: list[Array]) -> None:
    """Write a complete file or none; of each array no more is copied than its layout asks for."""
    table: list[dict[str, Any]] = []
    offset = 0
    for array in arrays:
        place = {"shape": list(array.shape), "order": order_of(array), "offset": offset}
        table.append({"dtype": array.dtype.newbyteorder("<").str, **place})
        offset += array.nbytes + -array.nbytes % ALIGN
    text = json.dumps({"format": FORMAT, **header, "arrays": table}, allow_nan=False).encode()
    text += b" " * (-(PREFACE + len(text)) % ALIGN)
    if len(text) > MAX_HEADER:
        raise ModelFileError(
            f"All but the arrays would take {len(text):,} bytes, but {MAX_HEADER:,} is the most. Put long "
            "lists of numbers or strings in NumPy arrays."
        )
    preface = MAGIC + len(text).to_bytes(8, "little") + text

    def write(file: BinaryIO) -> None:
        file.write(preface)
        digest = hashlib.sha256(preface)
        for array in arrays:
            ordered = array if order_of(array) == "F" else np.ascontiguousarray(array)
            content = _bytes_of(ordered.astype(ordered.dtype.newbyteorder("<"), copy=False))
            for part in (content, bytes(-array.nbytes % ALIGN)):
                digest.update(part)
                file.write(part)
        file.write(digest.digest())

    write_atomically(path, write)


def order_of(array: Array) -> str:
    """Return how an array lies in memory: products of the same numbers laid out otherwise round otherwise."""
    return "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"


def check_array(array: Array) -> None:
    """Raise, with reason and remedy, for what the arrays of a file cannot be."""
    if array.dtype.newbyteorder("<").str not in NUMBERS and (
        array.dtype.kind != "U" or not 0 < array.dtype.itemsize <= 4 * MAX_STRING
    ):
        raise ModelFileError(
            f"holds {array.dtype}, but files hold arrays of numbers, of truth values and of strings only. "
            "Convert it with astype"
        )
    _check_shape(array.shape)


def read_file(path: Path) -> tuple[dict[str, Any], list[Array]]:
    """Return the header and the arrays, writable and in this machine's byte order, of a file that is whole.

    Errors say of the file what they say of "it".
    """
    if not stat.S_ISREG(path.stat().st_mode):  # a pipe would wait for ever
        what = "a folder" if path.is_dir() else "no file but a device or a pipe"
        raise ModelFileError(f"is {what}. Give a file that ledl.save wrote")
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        preface = file.read(PREFACE)
        if not preface.startswith(MAGIC):
            kinds = [what for start, what in OTHERS.items() if preface.startswith(start)]
            if MAGIC.startswith(preface):
                kinds = ["empty. Copy or save it again" if not preface else "cut off. Copy or save it again"]
            raise ModelFileError(f"is {[*kinds, 'no model file. Give a file that ledl.save wrote'][0]}")
        length = int.from_bytes(preface[len(MAGIC) :], "little")
        if len(preface) < PREFACE or (length <= MAX_HEADER and PREFACE + length + CHECKSUM > size):
            raise ModelFileError(
                f"is cut off: it has {size:,} bytes and even its header is not whole. Copy it again"
            )
        if length > MAX_HEADER or (PREFACE + length) % ALIGN:
            raise ModelFileError(
                f"says that its header has {length:,} bytes, which no model file has: it was altered or "
                "damaged. Copy or save it again"
            )
        text = file.read(length)
        n_bytes = size - PREFACE - length - CHECKSUM  # of the arrays
        digest = hashlib.sha256()
        file.seek(0)
        for start in range(0, size - CHECKSUM, CHUNK):
            digest.update(file.read(min(CHUNK, size - CHECKSUM - start)))
        if digest.digest() != file.read(CHECKSUM):
            try:  # are bytes missing, or others than they were?
                last = max(_parse(text)["arrays"], key=lambda entry: entry["offset"])
                wanted = last["offset"] + math.prod(last["shape"]) * _dtype(last["dtype"]).itemsize
                missing = int(wanted + -wanted % ALIGN - n_bytes)
            except (ValueError, LookupError, TypeError, OverflowError):  # the header is damaged itself
                missing = 0
            if missing > 0:
                raise ModelFileError(f"is cut off: at least {missing:,} bytes are missing. Copy it again")
            raise ModelFileError(
                "was altered or damaged: its checksum is not that of its content. Copy or save it again"
            )
        header = _parse(text)
        found = header.get("format")
        if found != FORMAT:
            if type(found) is not int or found < 1:
                reason = f"says that its format is {found!r:.50}, which there is not. Save the model again"
            elif found < FORMAT:
                reason = f"was written by an older version of ledl (format {found}). Train the model again"
            else:
                reason = (
                    f"is of format {found}, and this version of ledl knows up to {FORMAT}. Use a newer ledl"
                )
            raise ModelFileError(reason)
        entries = _check_table(header.get("arrays"), n_bytes)
        try:
            check_memory(size, "arrays that", "Use a machine with more memory")
        except ValueError as error:
            raise ModelFileError(f"holds {error}") from None
        file.seek(PREFACE + length)
        return header, [_read_array(file, *entry) for entry in entries]


def _parse(text: bytes) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            raise ValueError("a name twice")
        return found

    def no_number(text: str) -> NoReturn:
        raise ValueError(f"{text} is no number of JSON")

    try:
        # Numbers of many digits and deep nesting are refused by Python itself.
        header = json.loads(text, object_pairs_hook=unique, parse_constant=no_number)
    except (ValueError, RecursionError) as error:
        raise ModelFileError(
            f"has a header that is not right ({error!s:.100}). Save the model again"
        ) from error
    if type(header) is not dict:
        raise ModelFileError("has a header without names. Save the model again")
    return header


def _check_table(table: Any, n_bytes: int) -> list[tuple[np.dtype, tuple[int, ...], str]]:
    """Return types, shapes and layouts of the arrays, if together they are what the file has room for."""
    if type(table) is not list:
        raise ModelFileError("has no table of arrays. Save the model again")
    entries, end = [], 0
    for number, entry in enumerate(table):
        try:
            dtype, shape, order, offset = (entry[name] for name in ("dtype", "shape", "order", "offset"))
            found = _dtype(dtype), _check_shape(shape), order
            if order not in ("C", "F") or len(entry) != 4:
                raise ModelFileError(f"has the order {order!r:.50}, or more than a type, a shape and a place")
            if type(offset) is not int or offset != end:
                raise ModelFileError(f"begins at {offset!r:.50}, not at {end}")
        except (TypeError, LookupError, ModelFileError) as error:
            raise ModelFileError(f"has an array {number} that {error!s:.150}. Save the model again") from error
        length = math.prod(found[1]) * found[0].itemsize
        end += length + -length % ALIGN
        if end > n_bytes:
            break
        entries.append(found)
    if end != n_bytes:
        raise ModelFileError(
            f"claims arrays of {end:,} bytes or more, but has room for {n_bytes:,}. Save the model again"
        )
    return entries


def _dtype(name: Any) -> np.dtype:
    if type(name) is str and name in NUMBERS:
        return np.dtype(name)
    length = name[2:] if type(name) is str and name.startswith("<U") else ""
    if length.isdecimal() and length.isascii() and len(length) < 8 and 0 < int(length) <= MAX_STRING:
        return np.dtype(f"<U{int(length)}")
    raise ModelFileError(f"is of type {name!r:.50}, which files do not hold")


def _check_shape(shape: Any) -> tuple[int, ...]:
    if not isinstance(shape, list | tuple):
        raise ModelFileError(f"has the shape {shape!r:.50}, which is no list")
    if len(shape) > MAX_AXES or any(type(side) is not int or not 0 <= side < 2**48 for side in shape):
        raise ModelFileError(f"has the shape {shape!r:.50}, which no array has")
    if 0 in shape and math.prod(max(side, 1) for side in shape) > MAX_EMPTY:
        raise ModelFileError(f"has the shape {shape!r:.50}, too large for an array without values")
    return tuple(shape)


def _read_array(file: BinaryIO, dtype: np.dtype, shape: tuple[int, ...], order: Any) -> Array:
    array = np.empty(shape, dtype=dtype, order=order)
    content = _bytes_of(array)
    padding = -array.nbytes % ALIGN
    if file.readinto(content) != array.nbytes or file.read(padding) != bytes(padding):  # type: ignore[attr-defined]
        raise ModelFileError("has something else than zeros after an array. Save the model again")
    if dtype.kind == "b" and content.max(initial=0) > 1:
        raise ModelFileError("has truth values that are neither true nor false. Save the model again")
    if dtype.kind == "U" and content.view("<u4").max(initial=0) > 0x10FFFF:
        raise ModelFileError("has strings of characters that there are not. Save the model again")
    return array.astype(dtype.newbyteorder("="), copy=False)


def _bytes_of(array: Array) -> Array:
    """Return a view of an array's bytes in the order of memory."""
    return (array.T if order_of(array) == "F" else array).reshape(-1).view(np.uint8)
