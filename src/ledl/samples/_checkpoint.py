"""Training that goes on where it was: atoms, codes and history of a fit in one file.

The file is a line that says what it is, a line of JSON, and arrays one after another. It is complete or not
there, and holds numbers only.
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
# A header of more bytes is none of ours.
LONGEST_HEADER = 2**24
# Of the time of a fit, what checkpoints may take: one is written when the last one's cost is that small.
SHARE = 0.1
# Where sketches of the same samples agree, relative to their norm: float32 is scaled in different ways.
SKETCH_TOL = {np.dtype(np.float64): 1e-9, np.dtype(np.float32): 1e-6}


def as_plain(value: Any) -> Any:
    """Return a parameter as JSON can hold it: of what is more than a number or a name a digest."""
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, str | int | float | None):
        return value
    try:
        return joblib.hash(tuple(value) if isinstance(value, list) else value)
    except PicklingError as error:
        raise ValueError(
            f"checkpoint: {value!r:.80} cannot be told from others ({error}). Give a function of a module."
        ) from error


def check_place(path: str | os.PathLike[str]) -> None:
    """Raise if a checkpoint cannot be there, before anything is done for it."""
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
        Where it is. It is refused if it is there and of another fit, or something else; `remove` deletes it.
    identity : mapping
        All that decides the result, apart from the samples and the number of iterations: plain values.
    """

    def __init__(self, path: str | os.PathLike[str], identity: Mapping[str, Any]) -> None:
        self.path = Path(path)
        self._identity: dict[str, Any] = json.loads(json.dumps(identity))
        self._records: list[dict[str, Array]] = []
        self._cost, self._written = 0.0, -math.inf

    def begin(
        self, blocks: Blocks, M: Array, n: int, names: Collection[str], max_iter: int
    ) -> tuple[Array, list[dict[str, Array]]] | None:
        """Return the state of the fit and the records of its iterations if there is such a file, else None.

        The blocks' codes are then what they were. The state is like M, and `names` are those of a record, of
        which there may be `max_iter`.
        """
        (sketch,) = blocks.map_sum(sketch_of)
        self._sketch = to_host(sketch)
        dtype, codes = to_host(M).dtype, (n, M.shape[-2])
        self._shapes = {
            "sketch": (self._sketch.shape, np.dtype(np.float64)),
            "M": (tuple(M.shape), dtype),
            "Z": (codes, dtype),
            "L": (codes, dtype),
        }
        if not self.path.exists():
            folder, (_, total) = self.path.resolve().parent, places_of(self._shapes, 0, 0)
            needed, free = 2 * total, shutil.disk_usage(folder).free
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
        same = saved.complete and set(saved.names) == set(names)
        if same:
            with np.errstate(invalid="ignore"):
                apart = np.linalg.norm(saved.array("sketch") - self._sketch)
            same = apart <= SKETCH_TOL[dtype] * np.linalg.norm(self._sketch)
        if not same or not np.isfinite(saved.array("M")).all():
            raise ValueError(
                f"{where} is damaged, or of a fit on other samples. Give another path, or delete the file."
            )
        rows = np.array(saved.array("records"))
        if len(rows) > max_iter:
            raise ValueError(
                f"{where} has {len(rows)} iterations, but max_iter={max_iter}. Raise max_iter, or delete the "
                "file."
            )
        blocks.restore_codes(saved.codes)
        self._records = [dict(zip(saved.names, row, strict=True)) for row in rows]
        return as_array(np.array(saved.array("M")), M), list(self._records)

    def after(self, blocks: Blocks, M: Array, record: Mapping[str, Array], theta: float) -> None:
        """Take note of an iteration, and write the file unless that costs too much yet."""
        self._records.append(
            {name: np.asarray(to_host(value), dtype=np.float64) for name, value in record.items()}
        )
        started = time.monotonic()
        if SHARE * (started - self._written) < self._cost:
            return
        self._write(blocks, to_host(M), theta)
        self._written = time.monotonic()
        self._cost = self._written - started
        blocks.saved_codes(Saved(self.path, self._shapes).codes)

    def remove(self) -> None:
        """Delete the file: the fit is done."""
        if self._is_ours():
            self.path.unlink(missing_ok=True)

    def _write(self, blocks: Blocks, M: Array, theta: float) -> None:
        """Write the file anew, beside the one that is there, and let it take its place."""
        names = list(self._records[0])
        history = np.array([[record[name] for name in names] for record in self._records])
        header = {"identity": self._identity, "iterations": len(history), "theta": theta, "records": names}
        lines, lock = FIRST_LINE + json.dumps(header).encode() + b"\n", Lock()
        places, _ = places_of(self._shapes, *history.shape)
        if not self._is_ours():
            raise ValueError(
                f"checkpoint={str(self.path)!r} was written by another fit meanwhile. Give each fit a file of "
                "its own, and the models of a search none."
            )
        # Under one name, so that what a kill leaves is not there twice.
        part = self.path.resolve().with_name(f".{self.path.name}.part")
        try:
            with part.open("wb") as file:

                def keep(first: int, Z: Array, L: Array) -> None:
                    """Write the codes of a block, `first` being its first sample, to their place."""
                    for name, codes in (("Z", Z), ("L", L)):
                        row = codes.shape[1] * codes.dtype.itemsize
                        with lock:
                            file.seek(len(lines) + places[name][0] + first * row)
                            file.write(np.ascontiguousarray(codes).data)

                file.write(lines)
                for array in (history, self._sketch, M):
                    file.write(np.ascontiguousarray(array).data)
                blocks.save_codes(keep)
                file.flush()
                os.fsync(file.fileno())
            part.replace(self.path.resolve())
        finally:
            part.unlink(missing_ok=True)

    def _is_ours(self) -> bool:
        """Say whether the file, if there is one, is of this fit: another may have the same path."""
        return not self.path.exists() or Saved(self.path, self._shapes).identity == self._identity


class Saved:
    """A file as it was when it was opened: later ones take its name, but not its place.

    It may come from anybody: sizes are those of the fit that asks, and nothing in it is trusted.
    """

    def __init__(self, path: Path, shapes: Mapping[str, Any]) -> None:
        with path.open("rb") as file:
            is_ours = file.read(len(FIRST_LINE)) == FIRST_LINE
            line = file.readline(LONGEST_HEADER) if is_ours else b""
            self._start = file.tell()
            size = file.seek(0, os.SEEK_END)
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
                f"checkpoint={str(path)!r} is there, but is no checkpoint of a fit. Give another path, or "
                "delete it."
            )
        self._places, total = places_of(shapes, n_records, len(self.names))
        self.complete = size == self._start + total
        if self.complete:
            self._bytes = np.memmap(path, dtype=np.uint8, mode="r")

    def array(self, name: str) -> Array:
        """Return one of the arrays, in the file."""
        offset, shape, dtype = self._places[name]
        first = self._start + offset
        part = self._bytes[first : first + math.prod(shape) * dtype.itemsize]
        return np.frombuffer(part, dtype=dtype).reshape(shape)

    def codes(self, first: int, stop: int) -> tuple[Array, Array]:
        """Return Z and L of those samples."""
        return self.array("Z")[first:stop], self.array("L")[first:stop]


def places_of(shapes: Mapping[str, Any], n_records: int, n_names: int) -> tuple[dict[str, Any], int]:
    """Return where the arrays of a file begin, with their shapes and types, and the bytes of all."""
    places, offset = {}, 0
    for name, (shape, dtype) in {"records": ((n_records, n_names), np.dtype(np.float64)), **shapes}.items():
        places[name] = offset, shape, dtype
        offset += math.prod(shape) * dtype.itemsize
    return places, offset


def sketch_of(block: Block) -> tuple[Block, tuple[Array]]:
    """Return what tells samples from others: their sum with weights that depend on their places."""
    places = np.arange(block.first, block.first + block.X.shape[-2])
    return block, (np.cos(places) @ to_host(block.X).astype(np.float64, copy=False),)
