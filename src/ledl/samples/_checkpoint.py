"""Checkpoints: atoms, codes and history of a fit in one file, from which training continues.

The file is a line that names the format, a line of JSON, and arrays one after another. It is complete or not
there, and holds only numbers.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from pickle import PicklingError
from threading import Lock
from typing import Any

import joblib
import numpy as np

from ledl.arrays import Array, as_array, to_host
from ledl.samples._blocks import Block, Blocks

FIRST_LINE = b"ledl checkpoint, format 1\n"
# A longer header, in bytes, is not ours.
LONGEST_HEADER = 2**24
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
    folder = Path(path).resolve().parent
    if not folder.is_dir() or Path(path).is_dir():
        raise ValueError(
            f"checkpoint={os.fspath(path)!r} must be a file, in a folder that exists. Choose another name, or "
            f"make {str(folder)!r}."
        )


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
        self.path = Path(path)
        self._identity: dict[str, Any] = json.loads(json.dumps(identity))
        self._records: list[dict[str, Array]] = []
        self._cost, self._written = 0.0, -math.inf

    def begin(
        self, blocks: Blocks, M: Array, n: int, names: Collection[str], max_iter: int
    ) -> tuple[Array, list[dict[str, Array]]] | None:
        """Restore the codes of the blocks; return the state of the fit and the records of its iterations.

        Return None if there is no file yet. The state is like M, and `names` are the names in a record, of
        which there may be `max_iter`.
        """
        (sketch,) = blocks.map_sum(sketch_of)
        self._sketch = to_host(sketch)
        dtype, codes = to_host(M).dtype, (n, M.shape[-2])
        self._shapes: Shapes = {
            "sketch": (self._sketch.shape, np.dtype(np.float64)),
            "M": (tuple(M.shape), dtype),
            "Z": (codes, dtype),
            "L": (codes, dtype),
        }
        if not self.path.exists():
            folder = self.path.resolve().parent
            needed, free = 2 * sum(map(n_bytes, self._shapes.values())), shutil.disk_usage(folder).free
            if needed > free:
                raise OSError(
                    f"A checkpoint and its successor need {needed / 1e9:,.1f} GB, but {folder} has "
                    f"{free / 1e9:,.1f} GB. Choose another folder, or use fewer atoms."
                )
            return None
        saved, where = Saved(self.path, self._shapes), f"checkpoint={str(self.path)!r}"
        for name, value in self._identity.items():
            if saved.identity.get(name) != value:
                raise ValueError(
                    f"{where} is of another fit: {name} was {saved.identity.get(name)!r:.60}, and is "
                    f"{value!r:.60}. Give another path, or delete the file."
                )
        same = bool(saved.arrays) and set(saved.names) == set(names)
        if same:
            with np.errstate(invalid="ignore"):
                difference = np.linalg.norm(saved.arrays["sketch"] - self._sketch)
            same = difference <= SKETCH_TOL[dtype] * np.linalg.norm(self._sketch)
        if not same or not np.isfinite(saved.arrays["M"]).all():
            raise ValueError(
                f"{where} is damaged, or of a fit on other samples. Give another path, or delete the file."
            )
        rows = np.array(saved.arrays["records"])
        if len(rows) > max_iter:
            raise ValueError(
                f"{where} has {len(rows)} iterations, but max_iter={max_iter}. Raise max_iter, or delete the "
                "file."
            )
        blocks.restore_codes(saved.codes)
        self._records = [dict(zip(saved.names, row, strict=True)) for row in rows]
        return as_array(np.array(saved.arrays["M"]), M), list(self._records)

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
        blocks.saved_codes(Saved(self.path, self._shapes).codes)

    def remove(self) -> None:
        """Delete the file: the fit is done."""
        if self._is_ours():
            self.path.unlink(missing_ok=True)

    def _write(self, blocks: Blocks, M: Array) -> None:
        """Write a new file next to the old one, then replace the old one."""
        names = list(self._records[0])
        history = np.array([[record[name] for name in names] for record in self._records])
        header = {"identity": self._identity, "iterations": len(history), "records": names}
        if not self._is_ours():
            raise ValueError(
                f"checkpoint={str(self.path)!r} was written by another fit meanwhile. Give each fit a file of "
                "its own, and the models of a search none."
            )
        # Always under the same name, so that killed fits leave one such file at most.
        part = self.path.resolve().with_name(f".{self.path.name}.part")
        try:
            with part.open("wb") as file:
                file.write(FIRST_LINE + json.dumps(header).encode() + b"\n")
                for array in (history, self._sketch, M):
                    file.write(np.ascontiguousarray(array).data)
                start, lock = file.tell(), Lock()

                def keep(first: int, Z: Array, L: Array) -> None:
                    """Write the codes of a block, `first` being its first sample."""
                    for offset, codes in ((start, Z), (start + n_bytes(self._shapes["Z"]), L)):
                        with lock:
                            file.seek(offset + first * codes.shape[1] * codes.dtype.itemsize)
                            file.write(np.ascontiguousarray(codes).data)

                blocks.save_codes(keep)
                file.flush()
                os.fsync(file.fileno())
            part.replace(self.path.resolve())
        finally:
            part.unlink(missing_ok=True)

    def _is_ours(self) -> bool:
        """Say whether the file, if it exists, is of this fit: another fit may have the same path."""
        return not self.path.exists() or Saved(self.path, self._shapes).identity == self._identity


class Saved:
    """A file as it was when it was opened, even if another file has replaced it since.

    It may come from anybody: sizes are those of the fit that opens it, and no content is trusted. The mapping
    `arrays` is empty if the file does not have the size that it should have.
    """

    def __init__(self, path: Path, shapes: Shapes) -> None:
        with path.open("rb") as file:
            is_ours = file.read(len(FIRST_LINE)) == FIRST_LINE
            line = file.readline(LONGEST_HEADER) if is_ours else b""
            offset = file.tell()
            try:
                header = json.loads(line)
                self.names: list[str] = header["records"]
                n_records = header["iterations"]
                self.identity = dict(header["identity"])
                plain = all(isinstance(name, str) for name in self.names) and type(n_records) is int
            except (ValueError, KeyError, TypeError, RecursionError):
                plain = False
            if not plain or n_records < 1:
                raise ValueError(
                    f"checkpoint={str(path)!r} exists, but is not a checkpoint of a fit. Give another path, or "
                    "delete it."
                )
            shapes = {"records": ((n_records, len(self.names)), np.dtype(np.float64)), **shapes}
            self.arrays: dict[str, Array] = {}
            if self.names and file.seek(0, os.SEEK_END) == offset + sum(map(n_bytes, shapes.values())):
                for name, (shape, dtype) in shapes.items():
                    self.arrays[name] = np.memmap(file, dtype, "r", offset, shape)
                    offset += self.arrays[name].nbytes

    def codes(self, first: int, stop: int) -> tuple[Array, Array]:
        """Return Z and L of samples."""
        return self.arrays["Z"][first:stop], self.arrays["L"][first:stop]


def n_bytes(array: tuple[tuple[int, ...], np.dtype]) -> int:
    """Return the number of bytes of an array, given its shape and type."""
    return math.prod(array[0]) * array[1].itemsize


def sketch_of(block: Block) -> tuple[Block, tuple[Array]]:
    """Return a sum of samples with weights that depend on their places, which identifies them."""
    places = np.arange(block.first, block.first + block.X.shape[-2])
    return block, (np.cos(places) @ to_host(block.X).astype(np.float64, copy=False),)
