"""Blocks of samples as solvers see them: in memory, read again in every pass, or in turn on a PyTorch device.

`ledl.samples._cluster` has the blocks on a cluster.
"""

from __future__ import annotations

import math
import os
import shutil
import tempfile
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial, reduce
from operator import iadd
from threading import Lock
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ledl.arrays import Array, as_array, namespace, to_host
from ledl.parallel import in_threads

# Blocks on a device at once: one arrives, one is processed, one leaves.
IN_FLIGHT = 3


class Block(NamedTuple):
    """Consecutive samples: data, labels, the state of their codes, and weights.

    ``X`` is (..., n, r), ``labels`` and ``weights`` are (n,) or (..., n), ``Z`` and ``L`` are (..., n, K) once
    a solver has set them. ``first`` is the index of the block's first sample among all samples. Without
    ``weights``, every sample has the weight 1.
    """

    X: Array
    labels: Array
    first: int
    Z: Array = None
    L: Array = None
    weights: Array = None

    def weigh(self, rows: Array) -> Array:
        """Return rows (..., n, r) of the samples times the roots of the weights: their squares are weighted."""
        return rows if self.weights is None else rows * (self.weights**0.5)[..., None]


def part_of(samples: Array | None, first: int, stop: int) -> Array | None:
    """Return the part of numbers of samples, (..., n), that belongs to a block; None stays None."""
    return None if samples is None else samples[..., first:stop]


Sums = TypeVar("Sums", bound=tuple[Array, ...])
Step = Callable[[Block], tuple[Block, Sums]]
# `KeepCodes` gets Z and L of a block. `ReadCodes` returns Z and L of samples, given the index of the first one
# and the index after the last one.
KeepCodes = Callable[[Array, Array], None]
ReadCodes = Callable[[int, int], tuple[Array, Array]]


class BlockError(RuntimeError):
    """A block of samples could not be read or processed; the message names it."""


def add(a: Sums, b: Sums) -> Sums:
    """Return the sum, field by field, of two tuples of arrays; the arrays of the first are overwritten."""
    return type(a)(map(iadd, a, b))


def spans_of(n: int, block_size: int) -> list[tuple[int, int]]:
    """Return the begin and end of blocks of `block_size` samples; the last block may have fewer."""
    return [(i, min(i + block_size, n)) for i in range(0, n, block_size)]


def changed_codes(old: Block, new: Block) -> dict[str, Array]:
    """Return those of Z and L that a step has replaced, by name."""
    return {name: getattr(new, name) for name in ("Z", "L") if getattr(new, name) is not getattr(old, name)}


class Blocks:
    """The interface of blocks for solvers; ``problems`` are the leading axes of the data."""

    problems: tuple[int, ...] = ()
    _n_blocks: int
    _threads: int = 1

    def map_sum(self, step: Step[Sums]) -> Sums:
        """Apply `step` to every block, keep the blocks that it returns, and return the sum of the rest.

        Each thread takes one block at a time. Sums are added in the order of the blocks, whatever the number of
        threads.
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
        """Pass Z and L of every block to `keep`, as NumPy arrays, in the order of the blocks."""

        def step(block: Block) -> tuple[Block, tuple[int]]:
            keep(to_host(block.Z), to_host(block.L))
            return block, (0,)

        for number in range(self._n_blocks):
            self._step(step, number)

    def restore_codes(self, read: ReadCodes) -> None:
        """Set Z and L of every block to those that `read` returns."""

        def step(block: Block) -> tuple[Block, tuple[int]]:
            codes = read(block.first, block.first + block.X.shape[-2])
            Z, L = (as_array(np.array(part), block.X) for part in codes)
            return block._replace(Z=Z, L=L), (0,)

        self.map_sum(step)

    def saved_codes(self, read: ReadCodes) -> None:
        """Note that `read` returns the current codes, in case they get lost."""

    def close(self) -> None:
        """Release what blocks hold on other machines."""


class InMemoryBlocks(Blocks):
    """Blocks of an array in memory; a single one if `block_size` is None."""

    def __init__(
        self,
        X: Array,
        labels: Array,
        block_size: int | None = None,
        threads: int = 1,
        weights: Array | None = None,
    ) -> None:
        n = X.shape[-2]
        spans = [(0, n)] if block_size is None else spans_of(n, block_size)
        self._blocks = [
            Block(X[..., i:j, :], labels[..., i:j], i, weights=part_of(weights, i, j)) for i, j in spans
        ]
        self._n_blocks, self._threads = len(spans), threads
        self.problems = np.broadcast_shapes(tuple(X.shape[:-2]), tuple(labels.shape[:-1]))

    def _step(self, step: Step[Sums], number: int) -> Sums:
        self._blocks[number], sums = step(self._blocks[number])
        return sums

    def codes(self) -> Array:
        codes = [block.Z for block in self._blocks]
        return codes[0] if len(codes) == 1 else namespace(codes[0]).concat(codes, axis=-2)


class MappedBlocks(Blocks):
    """Blocks that are read again in every pass, with codes in scratch files: for samples that exceed memory.

    One problem only: no leading axes.

    Parameters
    ----------
    samples : (n, r)
        Samples, usually in a file. They are read slice by slice.
    labels : (n,)
        Class of each sample.
    spans : list of (first, stop)
        Begin and end of each block. At any time, memory holds one block for each thread, and the arrays that a
        step computes from it.
    threads : int
        Number of blocks that are processed at once.
    weights : (n,) or None
        Weight of each sample.
    """

    def __init__(
        self,
        samples: Any,
        labels: Array,
        spans: Sequence[tuple[int, int]],
        threads: int = 1,
        weights: Array | None = None,
    ) -> None:
        self._samples, self._labels, self._weights = samples, labels, weights
        self._spans, self._n_blocks, self._threads = spans, len(spans), threads
        self._codes: dict[str, Array] = {}  # Z and L of all samples, in files without a name
        self._written: list[set[str]] = [set() for _ in spans]  # those of Z and L that each block has
        self._lock = Lock()

    def _step(self, step: Step[Sums], number: int) -> Sums:
        first, stop = self._spans[number]
        codes = {name: self._codes[name][first:stop] for name in self._written[number]}
        own = {"weights": part_of(self._weights, first, stop), **codes}
        old = Block(self._samples[first:stop], self._labels[first:stop], first, **own)
        new, sums = step(old)
        for name, values in changed_codes(old, new).items():
            self._write(number, name, values)
        return sums

    def _write(self, number: int, name: str, values: Array) -> None:
        """Write Z or L of a block to its file, which the first call creates."""
        shape = (len(self._labels), *values.shape[1:])
        with self._lock:
            if name not in self._codes:
                # All of it at once, and Z with L: writing to a map ends the process if the disk is full.
                folder, n_bytes = tempfile.gettempdir(), math.prod(shape) * values.dtype.itemsize
                needed, free = n_bytes * (1 if self._codes else 2), shutil.disk_usage(folder).free
                message = (
                    f"Codes of {shape[0]:,} samples need {needed / 1e6:,.1f} MB of scratch space, but "
                    f"{folder} has {free / 1e6:,.1f} MB. Set the environment variable TMPDIR to a folder with "
                    "more, or use fewer atoms."
                )
                if needed > free:
                    raise OSError(message)
                with tempfile.TemporaryFile() as file:  # without a name: nothing is left of a killed process
                    try:
                        file.truncate(n_bytes)
                        if hasattr(os, "posix_fallocate"):
                            os.posix_fallocate(file.fileno(), 0, n_bytes)
                    except OSError as error:
                        raise OSError(message) from error
                    self._codes[name] = np.memmap(file, values.dtype, "r+", shape=shape)
        self._codes[name][slice(*self._spans[number])] = values
        self._written[number].add(name)

    def codes(self) -> Array:
        """Return Z of all samples, in their order: in the scratch file, which lasts as long as they do."""
        return self._codes["Z"]

    def save_codes(self, keep: KeepCodes) -> None:  # as in the base class, but without reading samples
        for first, stop in self._spans:
            keep(self._codes["Z"][first:stop], self._codes["L"][first:stop])

    def restore_codes(self, read: ReadCodes) -> None:
        for number, span in enumerate(self._spans):
            for name, values in zip(("Z", "L"), read(*span), strict=True):
                self._write(number, name, values)


class Copier:
    """Copies between host and device while the device works; on the CPU, plain copies.

    Work runs on the caller's stream, copies run on two others, and events order them: `receive` makes the work
    wait for copies to the device, `fetch` makes copies to the host wait for the work. PyTorch returns the
    memory of a tensor to the stream that it was made on, so `record_stream` names the other stream that uses
    it. A separate thread reads samples, perhaps from a disk, into page-locked memory: only from there can the
    device copy while it works.
    """

    def __init__(self, device: Any) -> None:
        import torch

        self._torch: Any = torch
        self._device = torch.device(device)
        self._on_gpu = self._device.type == "cuda"
        self._up: Any = self._torch.cuda.Stream(self._device) if self._on_gpu else None
        self._down: Any = self._torch.cuda.Stream(self._device) if self._on_gpu else None
        self._reader = ThreadPoolExecutor(1, "ledl-copier")

    def host_tensor(self, array: Array) -> Array:
        """Return a tensor in the memory of a NumPy array or memory-map, for reading."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # PyTorch warns about read-only arrays
            return self._torch.as_tensor(array)

    def send(self, arrays: Sequence[Array], after: Sequence[Any] = ()) -> Future[Any]:
        """Start copying host tensors to the device once the events `after` have passed; see `receive`."""
        return self._reader.submit(self._copy_up, arrays, after)

    def _copy_up(self, arrays: Sequence[Array], after: Sequence[Any]) -> tuple[list[Array], Any]:
        for event in after:
            if event is not None:
                event.synchronize()
        tensors = []
        with self._torch.cuda.stream(self._up):
            for array in arrays:
                array = array.contiguous()
                # Page-locked arrays are used as they are; others go through memory that PyTorch reuses.
                array = array.pin_memory() if self._on_gpu else array
                tensors.append(array.to(self._device, non_blocking=True, copy=True))
        return tensors, self._up.record_event() if self._on_gpu else None

    def receive(self, sent: Future[Any]) -> list[Array]:
        """Return the tensors of a `send`, for work that the caller starts after this call."""
        tensors, arrived = sent.result()
        if self._on_gpu:
            work = self._torch.cuda.current_stream(self._device)
            work.wait_event(arrived)
            for tensor in tensors:
                tensor.record_stream(work)
        return tensors  # type: ignore[no-any-return]

    def fetch(self, tensors: Sequence[Array], out: Sequence[Array]) -> Any:
        """Start copying tensors to host tensors; return an event after the copies and all earlier work."""
        if self._on_gpu:
            self._down.wait_stream(self._torch.cuda.current_stream(self._device))
        with self._torch.cuda.stream(self._down):
            for tensor, place in zip(tensors, out, strict=True):
                place.copy_(tensor, non_blocking=True)
                if self._on_gpu:
                    tensor.record_stream(self._down)
        return self._down.record_event() if self._on_gpu else None


def upload_ahead(chunks: Iterable[Array], device: Any) -> Iterator[Array]:
    """Yield host arrays, in turn, as tensors on a device; the next one is copied while the caller uses one."""
    copier, sent = Copier(device), deque[Future[Any]]()
    ended: deque[Any] = deque([None] * IN_FLIGHT)  # limits how far a caller that never waits runs ahead
    for chunk in chunks:
        sent.append(copier.send([copier.host_tensor(chunk)], [ended.popleft()]))
        if len(sent) > 1:
            yield from copier.receive(sent.popleft())
            ended.append(copier.fetch([], []))
    for last in sent:
        yield from copier.receive(last)


class StreamedBlocks(Blocks):
    """Blocks in host memory that take turns on a device, which cannot hold all samples with their codes.

    While the device processes one block, the next one arrives and the codes of the previous one leave: see
    `Copier`. One problem only: no leading axes.

    Parameters
    ----------
    X : (n, r) array or memory-map of NumPy
        Samples, read again in every pass. Page-locked memory is used as it is.
    labels : (n,)
        Class of each sample.
    block_size : int
        Number of samples of a block. Copies cost no time if the device needs longer for a block than they do.
    device : "cuda", "cuda:1", "cpu", ...
        Device on which steps get their blocks, as tensors.
    weights : (n,) or None
        Weight of each sample.
    """

    def __init__(
        self, X: Array, labels: Array, block_size: int, device: Any, weights: Array | None = None
    ) -> None:
        if X.ndim != 2 or labels.ndim != 1:
            raise ValueError(
                f"X has {X.ndim} axes and labels {labels.ndim}, but streamed blocks hold one problem: give "
                "(n, r) and (n,), or use InMemoryBlocks."
            )
        self._copier = Copier(device)
        given = {"X": X, "labels": labels, "weights": weights}
        self._host = {name: self._copier.host_tensor(a) for name, a in given.items() if a is not None}
        self._spans = spans_of(len(X), block_size)
        self._n_blocks = len(self._spans)
        self._fields = [{*self._host} for _ in self._spans]  # fields of each block that the host has
        self._done: list[Any] = [None] * self._n_blocks  # events: the device has finished with a block
        self._sent: tuple[int, list[str], Any] = -1, [], None

    def _step(self, step: Step[Sums], number: int) -> Sums:
        """Apply `step` to one block; its tensors are released when this function ends, before the next one."""
        first, stop = self._spans[number]
        if self._sent[0] != number:  # in the first pass, with a single block, or after an interrupted pass
            self._send(number)
        (_, names, sent), self._sent = self._sent, (-1, [], None)
        old = Block(first=first, **dict(zip(names, self._copier.receive(sent), strict=True)))
        if self._n_blocks > 1:
            # Before the step, which may wait for the device. After the last block comes the first one again.
            self._send((number + 1) % self._n_blocks)
        new, sums = step(old)
        changed = changed_codes(old, new)
        for name, codes in changed.items():
            shape, room = (self._spans[-1][1], *codes.shape[1:]), self._host.get(name)
            if room is None or tuple(room.shape) != shape or room.dtype != codes.dtype:
                # Host memory for the codes of all samples, page-locked where there is a GPU.
                self._host[name] = codes.new_empty(shape, device="cpu", pin_memory=codes.is_cuda)
                for fields in self._fields:  # codes of another shape are forgotten
                    fields.discard(name)
        places = [self._host[name][first:stop] for name in changed]
        self._done[number] = self._copier.fetch(list(changed.values()), places)
        self._fields[number].update(changed)
        return sums

    def _send(self, number: int) -> None:
        """Start copying a block to the device, after its codes have come back and older blocks have left."""
        after = self._done[number], self._done[(number - IN_FLIGHT) % self._n_blocks]
        names = list(self._fields[number])
        arrays = [self._host[name][slice(*self._spans[number])] for name in names]
        self._sent = number, names, self._copier.send(arrays, after)

    def codes(self) -> Array:
        """Return Z of all samples, in their order: a NumPy array, in memory that later passes overwrite."""
        for event in self._done:
            if event is not None:
                event.synchronize()
        return to_host(self._host["Z"])
