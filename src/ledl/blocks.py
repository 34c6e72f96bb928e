"""Where blocks of samples live.

Given the atoms, samples are independent. A solver sees blocks only through `map_sum`: apply a
step to every block, keep the block that it returns (with its codes and multipliers) where it
is, and return the sum of what else it returns. That is all that running in memory, out of core
or on a cluster have to agree on.
"""

from __future__ import annotations

import math
import shutil
import tempfile
import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import reduce
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from ledl.arrays import IN_FLIGHT, Array, Copier, as_host_tensor, namespace, to_host


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


Task = TypeVar("Task")
Result = TypeVar("Result")
Sums = TypeVar("Sums", bound=tuple[Array, ...])
Step = Callable[[Block], tuple[Block, Sums]]


def add(a: Sums, b: Sums) -> Sums:
    """Sum, field by field, of two tuples of arrays."""
    fields = [x + y for x, y in zip(a, b, strict=True)]
    return a._make(fields) if hasattr(a, "_make") else type(a)(fields)


def spans_of(n: int, block_size: int) -> list[tuple[int, int]]:
    """Where blocks of that many samples, the last of fewer, begin and end."""
    return [(i, min(i + block_size, n)) for i in range(0, n, block_size)]


class Blocks(ABC):
    """What solvers know of blocks; ``problems`` are the leading axes of the data."""

    problems: tuple[int, ...]

    def map_sum(self, step: Step[Sums]) -> Sums:
        """Apply `step` to every block; keep the blocks and return the sum of the rest."""
        return reduce(add, self._steps(step))

    @abstractmethod
    def _steps(self, step: Step[Sums]) -> Iterable[Sums]:
        """Block after block, what `step` returns beside it."""

    @abstractmethod
    def codes(self) -> Array:
        """Z of all samples, in their order."""


def in_threads(work: Callable[[Task], Result], tasks: Sequence[Task], threads: int) -> Iterator[Result]:
    """Results in the order of the tasks, no more than a few of which wait to be taken."""
    if threads == 1 or len(tasks) == 1:
        yield from map(work, tasks)
        return
    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[Result]] = deque()
        for task in tasks:
            waiting.append(pool.submit(work, task))
            if len(waiting) > threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


class InMemoryBlocks(Blocks):
    """Blocks of an array in memory; one block unless `block_size` says otherwise. Threads take a block each."""

    def __init__(self, X: Array, labels: Array, block_size: int | None = None, threads: int = 1) -> None:
        n = X.shape[-2]
        self._threads = threads
        spans = spans_of(n, block_size or n)
        self._blocks = [Block(X[..., i:j, :], labels[..., i:j], i) for i, j in spans]
        self.problems = np.broadcast_shapes(tuple(X.shape[:-2]), tuple(labels.shape[:-1]))

    def _steps(self, step: Step[Sums]) -> Iterable[Sums]:
        def work(i: int) -> Sums:
            self._blocks[i], sums = step(self._blocks[i])
            return sums

        return in_threads(work, range(len(self._blocks)), self._threads)

    def codes(self) -> Array:
        codes = [block.Z for block in self._blocks]
        return codes[0] if len(codes) == 1 else namespace(codes[0]).concat(codes, axis=-2)


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
    block_size : int
        Samples of a block. What is in memory at a time is a block for each thread, and what steps make of it.
    threads : int
        How many blocks are worked on at once.
    """

    def __init__(self, samples: Rows, labels: Array, block_size: int, threads: int = 1) -> None:
        self.problems = ()
        self._samples, self._labels, self._threads = samples, labels, threads
        self._spans = spans_of(len(labels), block_size)
        self._scratch = ScratchArrays(len(labels))
        self._written: dict[int, set[str]] = {}  # what there is of the codes of each block, by its first sample

    def _steps(self, step: Step[Sums]) -> Iterable[Sums]:
        return in_threads(lambda span: self._step(step, *span), self._spans, self._threads)

    def _step(self, step: Step[Sums], first: int, stop: int) -> Sums:
        rows, written = slice(first, stop), self._written.setdefault(first, set())
        codes = {name: self._scratch.read(name, rows) for name in written}
        old = Block(self._samples[rows], self._labels[rows], first, **codes)
        new, sums = step(old)
        for name in ("Z", "L"):
            if getattr(new, name) is not getattr(old, name):
                self._scratch.write(name, rows, getattr(new, name))
                written.add(name)
        return sums

    def codes(self) -> Array:
        """Z of all samples, in their order: in the scratch file, which goes with the blocks."""
        return self._scratch.read("Z", slice(None))


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


class StreamedBlocks(Blocks):
    """Blocks in host memory that take turns on a device, for more samples, with their codes, than it holds.

    While one is worked on, the next comes and the codes of the one before go back: see `Copier`. One problem
    only: no leading axes.

    Parameters
    ----------
    X : (n, r) array or memory-map of NumPy
        Read anew in every pass. Where it is in page-locked memory it is copied from there.
    labels : (n,)
    block_size : int
        Samples of a block; blocks that take the device longer than their copies hide them.
    device : "cuda", "cuda:1", "cpu", ...
        Where steps find their blocks, as tensors.
    """

    def __init__(self, X: Array, labels: Array, block_size: int, device: Any) -> None:
        if X.ndim != 2 or labels.ndim != 1:
            raise ValueError(
                f"X has {X.ndim} axes and labels {labels.ndim}, but streamed blocks are of one problem: give "
                "(n, r) and (n,), or use InMemoryBlocks."
            )
        self.problems = ()
        self._copier = Copier(device)
        self._host = {"X": as_host_tensor(X), "labels": as_host_tensor(labels)}
        self._spans = spans_of(len(X), block_size)
        self._fields = [{*self._host} for _ in self._spans]  # what the host has of each block
        self._done: list[Any] = [None] * len(self._spans)  # events: what the device did with a block has ended
        self._sent: tuple[int, list[str], Any] = -1, [], None

    def _steps(self, step: Step[Sums]) -> Iterable[Sums]:
        for i in range(len(self._spans)):
            yield self._step(step, i)

    def _step(self, step: Step[Sums], i: int) -> Sums:
        """One block; a function of its own, so that its tensors are let go before the next."""
        block, n = self._receive(i), len(self._spans)
        if n > 1:
            # Already now, even if a step waits for the device; after the last block, for the next pass.
            self._send((i + 1) % n)
        new, sums = step(block)
        self._keep(i, block, new)
        return sums

    def _send(self, i: int) -> None:
        """Start copying a block to the device: its codes must have come back, and older blocks be gone."""
        first, stop = self._spans[i]
        after = self._done[i], self._done[(i - IN_FLIGHT) % len(self._spans)]
        names = list(self._fields[i])
        arrays = [self._host[name][first:stop] for name in names]
        self._sent = i, names, self._copier.send(arrays, after)

    def _receive(self, i: int) -> Block:
        if self._sent[0] != i:  # the first pass, a single block, or after a pass that was interrupted
            self._send(i)
        (_, names, sent), self._sent = self._sent, (-1, [], None)
        tensors = zip(names, self._copier.receive(sent), strict=True)
        return Block(first=self._spans[i][0], **dict(tensors))

    def _keep(self, i: int, old: Block, new: Block) -> None:
        """Start copying codes that a step has changed to the host."""
        first, stop = self._spans[i]
        changed = {name: getattr(new, name) for name in ("Z", "L")}
        changed = {name: codes for name, codes in changed.items() if codes is not getattr(old, name)}
        places = [self._room(name, codes)[first:stop] for name, codes in changed.items()]
        self._done[i] = self._copier.fetch(list(changed.values()), places)
        self._fields[i].update(changed)

    def _room(self, name: str, codes: Array) -> Array:
        """Host memory for the codes of all samples; where they had another shape, those are forgotten."""
        shape = (len(self._host["X"]), *codes.shape[1:])
        room = self._host.get(name)
        if room is None or tuple(room.shape) != shape or room.dtype != codes.dtype:
            self._host[name] = self._copier.room(shape, codes.dtype)
            for fields in self._fields:
                fields.discard(name)
        return self._host[name]

    def codes(self) -> Array:
        """Z of all samples, in their order: a NumPy array, in the memory that later passes write to."""
        for event in self._done:
            if event is not None:
                event.synchronize()
        return to_host(self._host["Z"])
