"""Blocks in host memory that take turns on a device."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ledl.arrays import IN_FLIGHT, Array, Copier, as_host_tensor, to_host
from ledl.samples._memory import Block, Blocks, Step, Sums, spans_of


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
