"""Checkpoints: atoms, codes and history of a fit in one file, from which training continues.

The file is a line that names the format, a line with the checksum of all that follows, a line of JSON, and
arrays one after another. It is complete or not there, and holds only numbers. The checksum is a CRC-32, which
finds damage faster than the digests in hashlib do; it is not a signature.

The span of fewer samples than features, or of samples in the space of a kernel, has no coordinates of its own:
another machine, or another number of BLAS threads, finds others. The file has those of the samples then, and
atoms are brought from the old ones to the new.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import time
import warnings
import zlib
from collections.abc import Collection, Mapping
from functools import partial
from pathlib import Path
from pickle import PicklingError
from typing import Any, BinaryIO, NamedTuple

import joblib
import numpy as np
import scipy.linalg

from ledl.arrays import Array, as_array, to_host
from ledl.files import open_regular, place_for, remove_unfinished, write_atomically
from ledl.samples._blocks import Block, Blocks, spans_of

FIRST_LINE, SECOND_LINE = b"ledl checkpoint, format 3\n", b"%08x\n"
BODY = len(FIRST_LINE) + len(SECOND_LINE % 0)  # what the checksum covers begins here
# A longer header, in bytes, is not ours.
LONGEST_HEADER = 2**24
# Bytes that are written and read at a time: so few stay in the processor's cache while they are summed.
PIECE = 2**18
# Share of the time of a fit that checkpoints may take: the next one waits until the last one cost less.
SHARE = 0.1
# Relative difference up to which sketches are of the same samples: float32 is scaled in different ways.
SKETCH_TOL = {np.dtype(np.float64): 1e-9, np.dtype(np.float32): 1e-6}

Shapes = dict[str, tuple[tuple[int, ...], np.dtype]]


def as_plain(value: Any) -> Any:
    """Return a parameter as JSON can hold it: a number, a name, or a digest of anything else."""
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, str | int | float | None):
        return value
    try:
        return joblib.hash(tuple(value) if isinstance(value, list) else value)
    except PicklingError as error:
        raise ValueError(
            f"checkpoint: {value!r:.80} cannot be distinguished from others ({error}). Give a function of a "
            "module."
        ) from error


def check_place(path: str | os.PathLike[str]) -> None:
    """Raise if a checkpoint cannot be written there, before any work is done."""
    try:
        place_for(path)
    except OSError as error:
        raise ValueError(f"checkpoint={os.fspath(path)!r} cannot be written: {error}") from error


class Checkpoint:
    """The file of one fit.

    Parameters
    ----------
    path : path
        The file. An existing file of another fit, or of another format, is refused; `remove` deletes it.
    identity : mapping
        Plain values that decide the result, apart from the samples and the number of iterations.
    """

    def __init__(self, path: str | os.PathLike[str], identity: Mapping[str, Any]) -> None:
        self.path, self._place = Path(path), Path(os.path.realpath(path))  # as given, and behind all links
        self._identity: dict[str, Any] = json.loads(json.dumps(identity))
        self._records: list[dict[str, Array]] = []
        self._cost, self._written = 0.0, -math.inf

    def begin(
        self,
        blocks: Blocks,
        M: Array,
        n: int,
        names: Collection[str],
        max_iter: int,
        *,
        sketch: Array | None = None,
        coordinates: Array | None = None,
    ) -> tuple[Array, list[dict[str, Array]]] | None:
        """Restore the codes of the blocks; return the state of the fit and the records of its iterations.

        Return None if there is no file yet. The state is like M, and `names` are the names in a record, of
        which there may be `max_iter`. If samples are in coordinates (n, r) of their span, `sketch` is that of
        their features (`sketch_of_rows`), and the first r columns of M are atoms in these coordinates.
        """
        if sketch is None:
            (sketch,) = blocks.map_sum(sketch_of)
        self._sketch, self._coordinates = to_host(sketch), None if coordinates is None else to_host(coordinates)
        self._M_shape, self._dtype, self._n = tuple(M.shape), to_host(M).dtype, n
        where = f"checkpoint={str(self.path)!r}"
        try:
            file = open_regular(self._place)
        except FileNotFoundError:
            remove_unfinished(self._place)  # it may be what fills the disk
            folder = self._place.parent
            needed = 2 * sum(map(n_bytes, self._shapes(self._n_coordinates).values()))
            free = shutil.disk_usage(folder).free
            if needed > free:
                raise OSError(
                    f"A checkpoint and its successor need {needed / 1e6:,.1f} MB, but {folder} has "
                    f"{free / 1e6:,.1f} MB. Choose another folder, or use fewer atoms."
                ) from None
            return None
        with file:
            header = read_header(file)
            if header is None:
                raise ValueError(
                    f"{where} exists, but is not a checkpoint of a fit. Give another path, or delete it."
                )
            size, most = file.seek(0, os.SEEK_END), LONGEST_HEADER + 8 * len(names) * max_iter
            shapes = self._shapes(min(header.n_coordinates, n))
            most += sum(map(n_bytes, shapes.values()))
            # A file that cannot be of this fit is not read to its end, which may be far.
            if size <= most and header.second_line != SECOND_LINE % checksum_of(file):
                raise ValueError(
                    f"{where} is damaged: its checksum does not match its content. Delete the file to begin "
                    "again, or give the path of an undamaged copy."
                )
            for name in header.identity | self._identity:
                was, now = header.identity.get(name), self._identity.get(name)
                if was != now:
                    raise ValueError(
                        f"{where} is of another fit: {name} was {was!r:.60}, and is {now!r:.60}. Give another "
                        "path, or delete the file."
                    )
            is_like_ours = size <= most and set(header.names) == set(names)
            is_like_ours &= (
                bool(header.n_coordinates) == bool(self._n_coordinates) and header.n_coordinates <= n
            )
            saved = map_arrays(file, header, shapes) if is_like_ours else {}
        numbers = [saved[name] for name in ("M", "coordinates") if name in saved]
        if not saved or not self._has_our_samples(saved) or not all(np.isfinite(one).all() for one in numbers):
            raise ValueError(
                f"{where} is of a fit on other samples, or with a kernel that has changed, or of one that "
                "failed. Give another path, or delete the file."
            )
        rows = np.array(saved["records"])
        if len(rows) > max_iter:
            raise ValueError(
                f"{where} has {len(rows)} iterations, but max_iter={max_iter}. Raise max_iter, or delete the "
                "file."
            )
        remove_unfinished(self._place)
        blocks.restore_codes(partial(codes_of, saved["codes"]))
        self._records = [dict(zip(header.names, row, strict=True)) for row in rows]
        return as_array(self._in_our_coordinates(saved), M), list(self._records)

    @property
    def _n_coordinates(self) -> int:
        """The number of coordinates of samples in their span, or 0 if they have their features."""
        return 0 if self._coordinates is None else self._coordinates.shape[1]

    def _shapes(self, n_coordinates: int) -> Shapes:
        """Return the arrays in a file of this fit, which may have another number of coordinates."""
        K, q = self._M_shape
        shapes: Shapes = {
            "sketch": (self._sketch.shape, np.dtype(np.float64)),
            "M": ((K, q - self._n_coordinates + n_coordinates), self._dtype),
            "coordinates": ((self._n, n_coordinates), self._dtype),
            "codes": ((self._n, 2, K), self._dtype),  # Z and L of each sample
        }
        if not n_coordinates:
            del shapes["coordinates"]
        return shapes

    def _in_our_coordinates(self, saved: Mapping[str, Array]) -> Array:
        """Return the state in a file for the coordinates that the samples have now."""
        M, before = np.array(saved["M"]), saved.get("coordinates")
        if before is None or self._coordinates is None or np.array_equal(before, self._coordinates):
            return M
        # Atoms are combinations of samples, B = C X: so in any coordinates.
        r, tol = before.shape[1], self._n * np.finfo(self._dtype).eps
        combinations = scipy.linalg.lstsq(before.T, M[:, :r].T, tol, lapack_driver="gelsy")[0]
        return np.hstack([(combinations.T @ self._coordinates).astype(self._dtype), M[:, r:]])

    def after(self, blocks: Blocks, M: Array, record: Mapping[str, Array]) -> None:
        """Record an iteration, and write the file unless that would take too much of the time yet."""
        self._records.append(
            {name: np.asarray(to_host(value), dtype=np.float64) for name, value in record.items()}
        )
        started = time.monotonic()
        if SHARE * (started - self._written) < self._cost:
            return
        self._write(blocks, to_host(M))
        self._written = time.monotonic()
        self._cost = self._written - started

    def remove(self) -> None:
        """Delete the file, because the fit is done. Warn if that fails: the model is worth more."""
        try:
            if self._is_ours():
                self._place.unlink(missing_ok=True)
        except OSError as error:
            warnings.warn(
                f"The fit is done, but checkpoint={str(self.path)!r} could not be deleted: {error.strerror}. "
                "Delete it yourself.",
                stacklevel=2,
            )

    def _write(self, blocks: Blocks, M: Array) -> None:
        """Write a new file next to the old one, then replace the old one."""
        if not self._is_ours():
            raise ValueError(
                f"checkpoint={str(self.path)!r} was written by another fit meanwhile. Give each fit a file of "
                "its own, and the models of a search none."
            )
        try:
            write_atomically(self._place, partial(self._write_to, blocks, M), through_links=True)
        except FileNotFoundError:
            if not self._place.parent.is_dir():
                raise
            return  # another fit has just begun with this path, and deleted unfinished files: next time
        blocks.saved_codes(partial(codes_of, self._codes))

    def _write_to(self, blocks: Blocks, M: Array, file: BinaryIO) -> None:
        """Write everything to an open file, and map the codes in it."""
        names = list(self._records[0])
        history = np.array([[record[name] for name in names] for record in self._records])
        header = {
            "identity": self._identity,
            "iterations": len(history),
            "records": names,
            "coordinates": self._n_coordinates,
        }
        file.seek(BODY)
        body = Summed(file)
        body.write(json.dumps(header).encode() + b"\n")
        for array in (history, self._sketch, M, self._coordinates):
            if array is not None:
                body.write(np.ascontiguousarray(array).data)
        offset, (shape, dtype) = file.tell(), self._shapes(self._n_coordinates)["codes"]
        blocks.save_codes(body.write_codes)
        file.seek(0)
        file.write(FIRST_LINE + SECOND_LINE % body.checksum)
        file.flush()
        os.fsync(file.fileno())
        self._codes = np.memmap(file, dtype, "r", offset, shape)

    def _is_ours(self) -> bool:
        """Say whether the file, if it exists, is of this fit: another fit may have the same path."""
        try:
            with open_regular(self._place) as file:
                header = read_header(file)
                saved = {} if header is None else map_arrays(file, header, self._shapes(header.n_coordinates))
        except FileNotFoundError:
            return True
        except OSError:
            return False
        is_same = header is not None and header.identity == self._identity
        return is_same and bool(saved) and self._has_our_samples(saved)

    def _has_our_samples(self, saved: Mapping[str, Array]) -> bool:
        """Say whether a file is of the samples of this fit, in every column up to rounding.

        The kernel may have changed behind the same name: then inner products of the samples differ, which are
        the same in all coordinates. Those of a sample with a sum of all of them are compared.
        """
        (sketch, sizes), tol = self._sketch, SKETCH_TOL[self._dtype]
        with np.errstate(invalid="ignore", over="ignore"):
            is_same = bool((np.abs(saved["sketch"][0] - sketch) <= tol * sizes).all())
            if not is_same or self._coordinates is None:
                return is_same
            weights = np.cos(np.arange(self._n))
            was, now = (X @ (weights @ X) for X in (saved["coordinates"], self._coordinates))
            lengths = np.linalg.norm(self._coordinates, axis=1)
            return bool((np.abs(was - now) <= tol * lengths * (lengths @ np.abs(weights))).all())


class Summed:
    """Writes to a file, and keeps the checksum of all that it has written."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.checksum = 0

    def write(self, data: bytes | memoryview) -> None:
        self.checksum = zlib.crc32(data, self.checksum)
        self._file.write(data)

    def write_codes(self, Z: Array, L: Array) -> None:
        for i, j in spans_of(len(Z), max(1, PIECE // (2 * Z[:1].nbytes))):
            self.write(np.stack([Z[i:j], L[i:j]], axis=1).data)


class Header(NamedTuple):
    """What a file says of itself. It may come from anybody: nothing is trusted."""

    second_line: bytes
    identity: dict[str, Any]
    n_records: int
    names: list[str]  # of the numbers in a record
    n_coordinates: int  # of samples in their span, 0 if they have their features
    end: int  # first byte after it


def read_header(file: BinaryIO) -> Header | None:
    """Return the header of an open file, or None if it has none."""
    if file.read(len(FIRST_LINE)) != FIRST_LINE:
        return None
    try:
        second_line, header = file.read(BODY - len(FIRST_LINE)), json.loads(file.readline(LONGEST_HEADER))
        names, n_records, identity = header["records"], header["iterations"], dict(header["identity"])
        n_coordinates = header["coordinates"]
        plain = bool(names) and all(isinstance(name, str) for name in names)
        plain &= type(n_records) is type(n_coordinates) is int and n_records > 0 <= n_coordinates
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return Header(second_line, identity, n_records, names, n_coordinates, file.tell()) if plain else None


def checksum_of(file: BinaryIO) -> int:
    """Return the checksum of the content of an open file, which is read in pieces."""
    checksum = 0
    file.seek(BODY)
    while piece := file.read(PIECE):
        checksum = zlib.crc32(piece, checksum)
    return checksum


def map_arrays(file: BinaryIO, header: Header, shapes: Shapes) -> dict[str, Array]:
    """Return the arrays in an open file, or none if it does not have the size that they need.

    They stay as they are even if another file replaces this one.
    """
    shapes = {"records": ((header.n_records, len(header.names)), np.dtype(np.float64)), **shapes}
    arrays: dict[str, Array] = {}
    offset = header.end
    if file.seek(0, os.SEEK_END) == offset + sum(map(n_bytes, shapes.values())):
        for name, (shape, dtype) in shapes.items():
            arrays[name] = np.memmap(file, dtype, "r", offset, shape)
            offset += arrays[name].nbytes
    return arrays


def codes_of(both: Array, first: int, stop: int) -> tuple[Array, Array]:
    """Return Z and L of samples, given those of all samples, (n, 2, K)."""
    return both[first:stop, 0], both[first:stop, 1]


def n_bytes(array: tuple[tuple[int, ...], np.dtype]) -> int:
    """Return the number of bytes of an array, given its shape and type."""
    return math.prod(array[0]) * array[1].itemsize


def sketch_of(block: Block) -> tuple[Block, tuple[Array]]:
    """Return the sketch of the samples of a block."""
    return block, (sketch_of_rows(block.X, block.first),)


def sketch_of_rows(X: Array, first: int = 0) -> Array:
    """Return sums over samples for each column: with weights that depend on places, and of absolute values.

    The first identifies the samples. The second, times the precision, is its rounding error.
    """
    X = to_host(X).astype(np.float64, copy=False)
    return np.stack([np.cos(np.arange(first, first + len(X))) @ X, np.abs(X).sum(axis=0)])
