"""Samples on their way to a device of PyTorch and back: chunks in turn, and blocks with their codes."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from ledl.arrays import Array, to_host
from ledl.samples._blocks import Block, Blocks, Step, Sums, spans_of

# Blocks on a device at once: one comes, one is worked on, one goes.
IN_FLIGHT = 3


class Copier:
    """Copies between host and device beside the device's work; on the CPU, plain copies.

    Work runs on the caller's stream, copies on two others, and events order them: `receive` makes the work
    wait for copies to the device, `fetch` makes copies to the host wait for the work. PyTorch gives the memory
    of a tensor back to the stream that it was made on, so `record_stream` names the other one that uses it. A
    thread of its own reads samples, from a disk perhaps, into page-locked memory, since only from there are
    copies made beside other work.
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
            warnings.simplefilter("ignore", UserWarning)  # PyTorch warns of read-only ones
            return self._torch.as_tensor(array)

    def room(self, shape: tuple[int, ...], dtype: Any) -> Array:
        """Return host memory for `fetch`, page-locked where there is a GPU."""
        return self._torch.empty(shape, dtype=dtype, pin_memory=self._on_gpu)

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
                # Itself if it is page-locked; else in memory that PyTorch uses again once the copy has ended.
                array = array.pin_memory() if self._on_gpu else array
                tensors.append(array.to(self._device, non_blocking=True, copy=True))
        return tensors, self._up.record_event() if self._on_gpu else None

    def receive(self, sent: Future[Any]) -> list[Array]:
        """Return the tensors of a `send`, for work that the caller starts from now on."""
        tensors, arrived = sent.result()
        if self._on_gpu:
            work = self._torch.cuda.current_stream(self._device)
            work.wait_event(arrived)
            for tensor in tensors:
                tensor.record_stream(work)
        return tensors  # type: ignore[no-any-return]

    def fetch(self, tensors: Sequence[Array], out: Sequence[Array]) -> Any:
        """Start copying tensors into host tensors; return the event that this, and all work before, ended."""
        if self._on_gpu:
            self._down.wait_stream(self._torch.cuda.current_stream(self._device))
        with self._torch.cuda.stream(self._down):
            for tensor, place in zip(tensors, out, strict=True):
                place.copy_(tensor, non_blocking=True)
                if self._on_gpu:
                    tensor.record_stream(self._down)
        return self._down.record_event() if self._on_gpu else None


def upload_ahead(chunks: Iterable[Array], device: Any) -> Iterator[Array]:
    """Yield tensors on a device of host arrays, in turn; the next is copied while the caller works on one."""
    copier, sent = Copier(device), deque[Future[Any]]()
    ended: deque[Any] = deque([None] * IN_FLIGHT)  # bounds how far a caller who never waits runs ahead
    for chunk in chunks:
        sent.append(copier.send([copier.host_tensor(chunk)], [ended.popleft()]))
        if len(sent) > 1:
            yield from copier.receive(sent.popleft())
            ended.append(copier.fetch([], []))
    for last in sent:
        yield from copier.receive(last)


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
        self._copier = Copier(device)
        self._host = {"X": self._copier.host_tensor(X), "labels": self._copier.host_tensor(labels)}
        self._spans = spans_of(len(X), block_size)
        self._n_blocks = len(self._spans)
        self._fields = [{*self._host} for _ in self._spans]  # what the host has of each block
        self._done: list[Any] = [None] * self._n_blocks  # events: what the device did with a block has ended
        self._sent: tuple[int, list[str], Any] = -1, [], None

    def _step(self, step: Step[Sums], number: int) -> Sums:
        """Apply `step` to one block, whose tensors are let go with this function, before the next."""
        first, stop = self._spans[number]
        if self._sent[0] != number:  # the first pass, a single block, or after a pass that was interrupted
            self._send(number)
        (_, names, sent), self._sent = self._sent, (-1, [], None)
        old = Block(first=first, **dict(zip(names, self._copier.receive(sent), strict=True)))
        if self._n_blocks > 1:
            # Already now, even if a step waits for the device; after the last block, for the next pass.
            self._send((number + 1) % self._n_blocks)
        new, sums = step(old)
        changed = {
            name: getattr(new, name) for name in ("Z", "L") if getattr(new, name) is not getattr(old, name)
        }
        places = [self._room(name, codes)[first:stop] for name, codes in changed.items()]
        self._done[number] = self._copier.fetch(list(changed.values()), places)
        self._fields[number].update(changed)
        return sums

    def _send(self, number: int) -> None:
        """Start copying a block to the device: its codes must have come back, and older blocks be gone."""
        after = self._done[number], self._done[(number - IN_FLIGHT) % self._n_blocks]
        names = list(self._fields[number])
        arrays = [self._host[name][slice(*self._spans[number])] for name in names]
        self._sent = number, names, self._copier.send(arrays, after)

    def _room(self, name: str, codes: Array) -> Array:
        """Return host memory for the codes of all samples; those of another shape are forgotten."""
        shape = (len(self._host["X"]), *codes.shape[1:])
        room = self._host.get(name)
        if room is None or tuple(room.shape) != shape or room.dtype != codes.dtype:
            self._host[name] = self._copier.room(shape, codes.dtype)
            for fields in self._fields:
                fields.discard(name)
        return self._host[name]

    def codes(self) -> Array:
        """Return Z of all samples, in their order: a NumPy array, in the memory that later passes write to."""
        for event in self._done:
            if event is not None:
                event.synchronize()
        return to_host(self._host["Z"])
