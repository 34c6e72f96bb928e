"""Numeric matrices from MATLAB files of version 5, read by hand.

SciPy's reader is compiled and crashes on some malformed files; these files come from strangers, and hold two
matrices.
"""

from __future__ import annotations

import struct
import zlib

import numpy as np

from ledl.arrays import Array

# MATLAB's types of data, and those of them that a matrix may be of.
TYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
MATRIX, COMPRESSED, NUMERIC_CLASSES = 14, 15, range(6, 16)


def read_matrices(content: bytes, names: tuple[str, ...], max_bytes: int) -> dict[str, Array]:
    """The matrices of those names; ValueError for whatever is not such a file."""
    order = {b"IM": "<", b"MI": ">"}.get(content[126:128])
    if order is None or len(content) < 128:
        raise ValueError("it is not a MATLAB file of version 5 (save it with -v7 or lower)")
    found, position = {}, 128
    while position < len(content):
        kind, body, position = _element(content, position, order)
        if kind == COMPRESSED:
            unpacker = zlib.decompressobj()
            unpacked = unpacker.decompress(body, max_bytes)
            if unpacker.unconsumed_tail:
                raise ValueError(f"a matrix unpacks to more than {max_bytes:,} bytes")
            kind, body, _ = _element(unpacked, 0, order)
        if kind == MATRIX:
            name, matrix = _matrix(body, order, names)
            if matrix is not None:
                found[name] = matrix
    return found


def _element(content: bytes, position: int, order: str) -> tuple[int, bytes, int]:
    """Type and bytes of an element, and where the next begins."""
    if position + 8 > len(content):
        raise ValueError("it is cut off")
    kind, size = struct.unpack_from(f"{order}II", content, position)
    if kind >> 16:  # small: type and size in four bytes, the data in the other four
        kind, size, start, end = kind & 0xFFFF, kind >> 16, position + 4, position + 8
        if size > 4:
            raise ValueError("it is broken")
    else:
        start = position + 8
        end = start + size if kind == COMPRESSED else start + -(-size // 8) * 8
    if start + size > len(content):
        raise ValueError("it is cut off")
    return kind, content[start : start + size], end


def _matrix(body: bytes, order: str, names: tuple[str, ...]) -> tuple[str, Array | None]:
    """Name and values of a matrix; no values if nobody asks for them."""
    _, flags, position = _element(body, 0, order)
    _, sizes, position = _element(body, position, order)
    _, label, position = _element(body, position, order)
    name = label.decode("ascii", "replace")
    if name not in names:
        return name, None
    (flag,) = struct.unpack_from(f"{order}I", flags)
    if flag & 0xFF not in NUMERIC_CLASSES or flag & 0x0800:
        raise ValueError(f"{name} is not a matrix of real numbers")
    shape = np.frombuffer(sizes, f"{order}i4")
    kind, values, _ = _element(body, position, order)
    if kind not in TYPES:
        raise ValueError(f"{name} is of an unknown type, {kind}")
    numbers = np.frombuffer(values, order + TYPES[kind])
    if len(shape) != 2 or (shape < 0).any() or int(np.prod(shape, dtype=object)) != numbers.size:
        raise ValueError(f"{name} claims shape {shape.tolist()}, but has {numbers.size} numbers")
    return name, numbers.reshape(tuple(shape), order="F")
