"""Blocks that are read anew in every pass, with codes in scratch files."""

from __future__ import annotations

import math
import shutil
import tempfile
import weakref
from collections.abc import Iterable
from pathlib import Path
from threading import Lock
from typing import Any, Protocol

import numpy as np

from ledl.arrays import Array
from ledl.samples._memory import Block, Blocks, KeepCodes, ReadCodes, Step, Sums, in_threads

CODES = ("Z", "L")


class Rows(Protocol):
    """Samples that are read a few at a time."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: slice) -> Array:
        """Those samples, (m, r), in memory."""


class MappedBlocks(Blocks):
    """Blocks that are read anew in every pass, with codes in scratch files: for more samples than memory holds.

    Threads work on a block each; sums are added in the order of the blocks, so that their number changes
    nothing. One problem only: no leading axes.

    Parameters
    ----------
    samples : Rows
        In a file, as a rule.
    labels : (n,)
    spans : list of (first, stop)
        Where blocks begin and end. What is in memory at a time is a block for each thread, and what steps make
        of it.
    threads : int
        How many blocks are worked on at once.
    """

    def __init__(self, samples: Rows, labels: Array, spans: list[tuple[int, int]], threads: int = 1) -> None:
        self.problems = ()
        self._samples, self._labels, self._threads = samples, labels, threads
        self._spans = spans
        self._scratch = ScratchArrays(len(labels))
        self._written: dict[int, set[str]] = {}  # what there is of the codes of each block, by its first sample

    def _steps(self, step: Step[Sums]) -> Iterable[Sums]:
        return in_threads(lambda span: self._step(step, *span), self._spans, self._threads)

    def _step(self, step: Step[Sums], first: int, stop: int) -> Sums:
        rows, written = slice(first, stop), self._written.setdefault(first, set())
        codes = {name: self._scratch.read(name, rows) for name in written}
        old = Block(self._samples[rows], self._labels[rows], first, **codes)
        new, sums = step(old)
        for name in CODES:
            if getattr(new, name) is not getattr(old, name):
                self._scratch.write(name, rows, getattr(new, name))
                written.add(name)
        return sums

    def codes(self) -> Array:
        """Z of all samples, in their order: in the scratch file, which goes with the blocks."""
        return self._scratch.read("Z", slice(None))

    def save_codes(self, keep: KeepCodes) -> None:  # as in the base, but samples are not read for it
        for first, stop in self._spans:
            keep(first, *(self._scratch.read(name, slice(first, stop)) for name in CODES))

    def restore_codes(self, read: ReadCodes) -> None:
        for first, stop in self._spans:
            for name, values in zip(CODES, read(first, stop), strict=True):
                self._scratch.write(name, slice(first, stop), values)
            self._written[first] = set(CODES)


class ScratchArrays:
    """Arrays with a row for each sample in files that nobody else sees, gone with the object."""

    def __init__(self, n: int) -> None:
        self._n = n
        self._arrays: dict[str, Array] = {}
        self._lock = Lock()
        self._folder = Path(tempfile.mkdtemp(prefix="ledl-"))
        weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)

    def read(self, name: str, rows: slice) -> Array:
        """Those rows, where they lie."""
        return self._arrays[name][rows]

    def write(self, name: str, rows: slice, values: Array) -> None:
        with self._lock:
            if name not in self._arrays:
                self._arrays[name] = self._create(name, (self._n, *values.shape[1:]), values.dtype)
        self._arrays[name][rows] = values

    def _create(self, name: str, shape: tuple[int, ...], dtype: Any) -> Array:
        n_bytes, free = math.prod(shape) * np.dtype(dtype).itemsize, shutil.disk_usage(self._folder).free
        if n_bytes > free:
            raise OSError(
                f"Codes of {shape[0]:,} samples need {n_bytes / 1e9:,.1f} GB of scratch space, but "
                f"{self._folder.parent} has {free / 1e9:,.1f} GB. Set the environment variable TMPDIR to a "
                "folder with more, or use fewer atoms."
            )
        return np.memmap(self._folder / name, dtype=dtype, mode="w+", shape=shape)
