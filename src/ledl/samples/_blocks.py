"""Blocks of samples as solvers see them: in memory, or read anew in every pass with codes in scratch files.

Those that take turns on a device are in `ledl.samples._device`, those on a cluster in `ledl.samples._cluster`.
"""

from __future__ import annotations

import math
import shutil
import tempfile
import weakref
from collections.abc import Callable, Sequence
from functools import partial, reduce
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ledl.arrays import Array, as_array, namespace, to_host
from ledl.parallel import in_threads


class Block(NamedTuple):
    """Consecutive samples: data, labels, and the state of their codes.

    ``X`` is (..., n, r), ``labels`` (n,) or (..., n), ``Z`` and ``L`` are (..., n, K) once a
    solver has set them. ``first`` is the index of the block's first sample among all samples.
    """

    X: Array
    labels: Array
    first: int
    Z: Array = None
    L: Array = None


Sums = TypeVar("Sums", bound=tuple[Array, ...])
Step = Callable[[Block], tuple[Block, Sums]]
# Takes the place of a block's first sample, and its Z and L; gives Z and L of samples from a place to another.
KeepCodes = Callable[[int, Array, Array], None]
ReadCodes = Callable[[int, int], tuple[Array, Array]]


class BlockError(RuntimeError):
    """A block of samples could not be read or worked on; the message names it."""


def add(a: Sums, b: Sums) -> Sums:
    """Return the sum, field by field, of two tuples of arrays; those of the first are used up."""
    fields = list(a)
    for i, y in enumerate(b):
        fields[i] += y
    return a._make(fields) if hasattr(a, "_make") else type(a)(fields)


def spans_of(n: int, block_size: int) -> list[tuple[int, int]]:
    """Return where blocks of that many samples, the last of fewer, begin and end."""
    return [(i, min(i + block_size, n)) for i in range(0, n, block_size)]


class Blocks:
    """What solvers know of blocks; ``problems`` are the leading axes of the data."""

    problems: tuple[int, ...] = ()
    _n_blocks: int
    _threads: int = 1

    def map_sum(self, step: Step[Sums]) -> Sums:
        """Apply `step` to every block, keep the blocks that it returns, and return the sum of the rest.

        Threads take a block each; sums are added in the order of the blocks, whatever the number of threads.
        """
        work, numbers = partial(self._step, step), range(self._n_blocks)
        threads = min(self._threads, self._n_blocks)
        return reduce(add, in_threads(work, numbers, threads) if threads > 1 else map(work, numbers))

    def _step(self, step: Step[Sums], number: int) -> Sums:
        """Apply `step` to one block, keep the block that it returns, and return the rest."""
        raise NotImplementedError

    def codes(self) -> Array:
        """Return Z of all samples, in their order."""
        raise NotImplementedError

    def save_codes(self, keep: KeepCodes) -> None:
        """Hand Z and L of every block to `keep`, on the host."""

        def step(block: Block) -> tuple[Block, tuple[int]]:
            keep(block.first, to_host(block.Z), to_host(block.L))
            return block, (0,)

        self.map_sum(step)

    def restore_codes(self, read: ReadCodes) -> None:
        """Set Z and L of every block to what `read` gives."""

        def step(block: Block) -> tuple[Block, tuple[int]]:
            codes = read(block.first, block.first + block.X.shape[-2])
            Z, L = (as_array(np.array(part), block.X) for part in codes)
            return block._replace(Z=Z, L=L), (0,)

        self.map_sum(step)

    def saved_codes(self, read: ReadCodes) -> None:
        """Take note that `read` gives the codes of the moment, should they be lost."""
        return

    def close(self) -> None:
        """Let go of what blocks hold elsewhere."""
        return


class InMemoryBlocks(Blocks):
    """Blocks of an array in memory; one block unless `block_size` says otherwise."""

    def __init__(self, X: Array, labels: Array, block_size: int | None = None, threads: int = 1) -> None:
        n = X.shape[-2]
        spans = [(0, n)] if block_size is None else spans_of(n, block_size)
        self._blocks = [Block(X[..., i:j, :], labels[..., i:j], i) for i, j in spans]
        self._n_blocks, self._threads = len(spans), threads
        self.problems = np.broadcast_shapes(tuple(X.shape[:-2]), tuple(labels.shape[:-1]))

    def _step(self, step: Step[Sums], number: int) -> Sums:
        self._blocks[number], sums = step(self._blocks[number])
        return sums

    def codes(self) -> Array:
        codes = [block.Z for block in self._blocks]
        return codes[0] if len(codes) == 1 else namespace(codes[0]).concat(codes, axis=-2)


class MappedBlocks(Blocks):
    """Blocks that are read anew in every pass, with codes in scratch files: for more samples than memory holds.

    One problem only: no leading axes.

    Parameters
    ----------
    samples : (n, r)
        Those of a slice are asked for at a time: a file, as a rule.
    labels : (n,)
    spans : list of (first, stop)
        Where blocks begin and end. What is in memory at a time is a block for each thread, and what steps make
        of it.
    threads : int
        How many blocks are worked on at once.
    """

    def __init__(self, samples: Any, labels: Array, spans: Sequence[tuple[int, int]], threads: int = 1) -> None:
        self._samples, self._labels = samples, labels
        self._spans, self._n_blocks, self._threads = spans, len(spans), threads
        self._codes: dict[str, Array] = {}  # Z and L of all samples, in files that nobody else sees
        self._written: list[set[str]] = [set() for _ in spans]  # which of them there are of each block
        self._lock = Lock()
        self._folder = Path(tempfile.mkdtemp(prefix="ledl-"))
        weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)

    def _step(self, step: Step[Sums], number: int) -> Sums:
        first, stop = self._spans[number]
        codes = {name: self._codes[name][first:stop] for name in self._written[number]}
        old = Block(self._samples[first:stop], self._labels[first:stop], first, **codes)
        new, sums = step(old)
        if new.Z is not old.Z:
            self._write(number, "Z", new.Z)
        if new.L is not old.L:
            self._write(number, "L", new.L)
        return sums

    def _write(self, number: int, name: str, values: Array) -> None:
        """Write Z or L of a block to its file, which is made for the first."""
        shape = (len(self._labels), *values.shape[1:])
        with self._lock:
            if name not in self._codes:
                n_bytes, free = math.prod(shape) * values.dtype.itemsize, shutil.disk_usage(self._folder).free
                if n_bytes > free:
                    raise OSError(
                        f"Codes of {shape[0]:,} samples need {n_bytes / 1e9:,.1f} GB of scratch space, but "
                        f"{self._folder.parent} has {free / 1e9:,.1f} GB. Set the environment variable TMPDIR "
                        "to a folder with more, or use fewer atoms."
                    )
                self._codes[name] = np.memmap(self._folder / name, values.dtype, "w+", shape=shape)
        self._codes[name][slice(*self._spans[number])] = values
        self._written[number].add(name)

    def codes(self) -> Array:
        """Return Z of all samples, in their order: in the scratch file, which goes with the blocks."""
        return self._codes["Z"]

    def save_codes(self, keep: KeepCodes) -> None:  # as in the base, but samples are not read for it
        for first, stop in self._spans:
            keep(first, self._codes["Z"][first:stop], self._codes["L"][first:stop])

    def restore_codes(self, read: ReadCodes) -> None:
        for number, span in enumerate(self._spans):
            for name, values in zip(("Z", "L"), read(*span), strict=True):
                self._write(number, name, values)
