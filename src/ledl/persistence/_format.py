"""Read and write the bytes of a model file, which is a safetensors file.

Tensors are named by number. "3" is array 3 of the model. "3.T" is array 3, stored transposed because it lies in
memory in Fortran order. "3.text" has the characters of an array of strings along its last axis. The metadata
has one entry, "ledl": a checksum, a space, and JSON. The checksum finds damage, but it is not a signature. So
everything that a file claims is checked before it is used.
"""

from __future__ import annotations

import hashlib
import json
import math
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import numpy as np
from safetensors import SafetensorError, safe_open

from ledl.arrays import Array, check_memory
from ledl.files import ABANDONED_AFTER, remove_unfinished, write_atomically

FORMAT = 3
ENTRY = "ledl"
# Python needs about twenty times the bytes of the worst header. A million names are better off in an array.
MAX_HEADER = 2**24
# An array without values costs nothing, so its other axes need a limit of their own.
MAX_AXES, MAX_EMPTY, MAX_STRING = 32, 2**20, 2**20
PLAIN, TRANSPOSED, TEXT = KINDS = ("", ".T", ".text")
# Types of numbers in safetensors files, and in NumPy.
NUMBERS = {"BOOL": "bool", "F16": "float16", "F32": "float32", "F64": "float64"}
NUMBERS |= {f"{name[0].upper()}{bits}": f"{name}{bits}" for name in ("int", "uint") for bits in (8, 16, 32, 64)}
DTYPES = {dtype: name for name, dtype in NUMBERS.items()}

# First bytes of other files that somebody may take for a model.
OTHERS = {
    b"\x89LEDL": "was made by an older version of ledl. Train the model and save it again",
    b"\x80": "is a pickle, which can run any code when it is opened. If you trust its author, load it with the "
    "program that wrote it and store the model with ledl.save",
    b"PK": "is a zip archive, such as .npz and skops files. Give a file that ledl.save wrote",
    b"\x89HDF": "is an HDF5 file. Give a file that ledl.save wrote",
    b"": "is not a model file. Give a file that ledl.save wrote",
}


class ModelFileError(ValueError):
    """Reports a file that is no model, is damaged or unknown here, or a model that a file cannot hold.

    Examples
    --------
    >>> import ledl, tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "model.ledl"
    ...     _ = file.write_text("this is no model")
    ...     try:
    ...         ledl.load(file)
    ...     except ledl.ModelFileError as error:
    ...         print(str(error).removeprefix(str(file)))
     is not a model file. Give a file that ledl.save wrote.
    """


def require(fine: bool, message: str) -> None:
    """Raise a ModelFileError with this message unless the file is fine."""
    if not fine:
        raise ModelFileError(message)


def write_file(path: Path, header: dict[str, Any], arrays: list[Array]) -> None:
    """Write a complete file or none. Numbers are copied only if they are not contiguous."""
    text = json.dumps({"format": FORMAT, **header}, allow_nan=False)
    tensors = {}
    for number, array in enumerate(arrays):
        tensor, kind = array, PLAIN
        if array.dtype.kind == "U":
            letters = array.reshape(*array.shape, 1).astype(array.dtype.newbyteorder("<"), order="C")
            tensor, kind = letters.view("<u4"), TEXT
        elif array.ndim > 1 and not array.flags.c_contiguous and abs(array.strides[0]) < abs(array.strides[-1]):
            # Products of numbers in another layout would be rounded differently.
            tensor, kind = array.T, TRANSPOSED
        tensors[f"{number}{kind}"] = tensor.astype(tensor.dtype.newbyteorder("<"), order="C", copy=False)
    # As safetensors' own function writes it, which would leave a file of another name when it is killed: the
    # length of a header of JSON, the header, and the tensors, those with the largest numbers first.
    names = sorted(tensors, key=lambda name: -tensors[name].itemsize)
    entries: dict[str, Any] = {"__metadata__": {ENTRY: f"{_checksum(text, tensors)} {text}"}}
    end = 0
    for name in names:
        tensor, start = tensors[name], end
        end += tensor.nbytes
        dtype, shape = DTYPES[tensor.dtype.name], list(tensor.shape)
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}
    head = json.dumps(entries, ensure_ascii=False, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    require(
        len(head) <= MAX_HEADER,
        f"Everything except the arrays would take {len(head):,} bytes, but {MAX_HEADER:,} is the limit. Put "
        "long lists of numbers or strings in NumPy arrays. If labels have the type object, fit with "
        "y.astype(str).",
    )

    def write(file: BinaryIO) -> None:
        file.write(len(head).to_bytes(8, "little") + head)
        for name in names:
            file.write(tensors[name].data)

    write_atomically(path, write, through_links=True)
    remove_unfinished(path, ABANDONED_AFTER)


def read_file(path: Path) -> tuple[dict[str, Any], list[Array]]:
    """Return the header and the arrays of a file. The arrays are writable.

    Messages of errors begin with a verb. The file is its subject.
    """
    found = path.stat()
    # A pipe would block forever.
    require(stat.S_ISREG(found.st_mode), "is a folder, a device or a pipe. Give a file that ledl.save wrote")
    with path.open("rb") as file:
        start = file.read(9)
    length = int.from_bytes(start[:8], "little")
    require(
        len(start) == 9,
        f"is empty or cut off: it has {len(start)} bytes. Copy or save it again",
    )
    # In safetensors files, a brace follows the length of the header.
    other = next(text for first, text in OTHERS.items() if start.startswith(first))
    require(start[8:] == b"{", other)
    require(
        length <= MAX_HEADER,
        f"has a header of {length:,} bytes, but model files have {MAX_HEADER:,} at most. It is damaged, or no "
        "model file. Give a file that ledl.save wrote",
    )
    try:
        check_memory(found.st_size, "arrays that", "Use a machine with more memory")
    except ValueError as error:
        raise ModelFileError(f"holds {error}") from None
    try:
        # The file is read, not mapped: a mapped file that becomes shorter meanwhile ends the process.
        with safe_open(path, framework="np", backend="pread") as content:
            metadata = content.metadata() or {}
            require(
                ENTRY in metadata,
                "is a safetensors file, but not a model of ledl. It may hold the weights of a network. Give a "
                "file that ledl.save wrote",
            )
            tensors, names = {}, set(content.keys())
            for number in range(len(names)):
                name = next((f"{number}{kind}" for kind in KINDS if f"{number}{kind}" in names), "")
                require(bool(name), f"has {len(names)} arrays, but no {number}. Save the model again")
                tensor = content.get_slice(name)
                reason = reason_against(NUMBERS.get(tensor.get_dtype(), tensor.get_dtype()), tensor.get_shape())
                require(not reason, f"has an array {number} that {reason}. Save the model again")
                tensors[name] = content.get_tensor(name)
    except SafetensorError as error:
        raise ModelFileError(f"is cut off or damaged ({error!s:.200}). Copy or save it again") from error
    checksum, _, text = metadata[ENTRY].partition(" ")
    require(
        len(metadata) == 1 and checksum == _checksum(text, tensors),
        "was altered or damaged: its checksum or its metadata do not match its content. Copy or save it again",
    )
    header = _parse(text)
    version = header.get("format")
    require(
        type(version) is int and version >= FORMAT,
        f"has format {version!r:.50}, which does not exist. Save the model again",
    )
    require(
        version == FORMAT,
        f"has format {version!r:.50}, but this version of ledl knows only format {FORMAT}. Use a newer ledl",
    )
    return header, [_to_array(name, tensor) for name, tensor in tensors.items()]


def _to_array(name: str, tensor: Array) -> Array:
    """Return the array that a tensor stands for."""
    require(
        tensor.dtype != bool or bool(tensor.view(np.uint8).max(initial=0) <= 1),
        "has truth values that are neither true nor false. Save the model again",
    )
    if not name.endswith(TEXT):
        return tensor.T if name.endswith(TRANSPOSED) else tensor
    require(
        tensor.dtype == np.uint32 and tensor.ndim > 0 and 0 < tensor.shape[-1] <= MAX_STRING,
        "has strings that are not rows of characters. Save the model again",
    )
    require(
        bool(tensor.max(initial=0) <= 0x10FFFF),
        "has strings with characters that do not exist. Save the model again",
    )
    return tensor.view(f"U{tensor.shape[-1]}")[..., 0]


def reason_against(dtype: str, shape: Sequence[int]) -> str:
    """Return why files hold no array with this type, as NumPy names it, and this shape. Else return ""."""
    if dtype not in NUMBERS.values():
        return (
            f"holds {dtype}, but files hold only real numbers, truth values and strings. Convert it with astype"
        )
    if len(shape) > MAX_AXES:
        return f"has {len(shape)} axes, but {MAX_AXES} is the limit"
    is_large = 0 in shape and math.prod(max(side, 1) for side in shape) > MAX_EMPTY
    return f"has the shape {shape!r:.50}, which is too large for an array without values" if is_large else ""


def _checksum(text: str, tensors: dict[str, Array]) -> str:
    """Return the SHA-256 of JSON, and of names, types, shapes and bytes of tensors."""
    digest = hashlib.sha256(text.encode())
    for name, tensor in tensors.items():
        digest.update(f" {name} {tensor.dtype.name} {tensor.shape} ".encode())
        digest.update(tensor.astype(tensor.dtype.newbyteorder("<"), copy=False))
    return digest.hexdigest()


def _parse(text: str) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            raise ValueError("a name occurs twice")
        return found

    def no_number(text: str) -> NoReturn:
        raise ValueError(f"{text} is not a number in JSON")

    try:
        # Python itself refuses numbers with many digits and deep nesting.
        header = json.loads(text, object_pairs_hook=unique, parse_constant=no_number)
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"has invalid JSON ({error!s:.100}). Save the model again") from error
    require(type(header) is dict, "has JSON without names. Save the model again")
    return header  # type: ignore[no-any-return]
