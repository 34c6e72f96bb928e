"""Blocks on the workers of a Dask cluster.

The codes of a block lie in files of the worker that the block was given to, and nowhere else. In each pass, a
step (with the atoms) goes out and sums come back. If a worker is lost, its blocks are given to others, which
repeat all steps that changed codes. Sums are added in the order of the blocks, wherever the blocks are, so the
result is the same to the last bit.

The first part of this module runs here, with the client; the second part runs on the workers.
"""

from __future__ import annotations

import os
import pickle
import shutil
import tempfile
import time
import uuid
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass
from functools import partial, reduce
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ledl.arrays import Array
from ledl.samples._blocks import (
    Block,
    BlockError,
    Blocks,
    KeepCodes,
    ReadCodes,
    Step,
    Sums,
    add,
    part_of,
    spans_of,
)
from ledl.subspace import FeatureMap

# Seconds between two checks which workers are alive, and seconds to wait for a cluster without workers.
CHECK_EVERY, PATIENCE = 1.0, 60.0
# How often a block may lose its worker in one pass: the block itself may be what kills workers.
ROUNDS = 5
# Number of sums that one task adds.
FAN_IN = 8
# Chunks are computed once and kept if a task of their graph is needed by more chunks than this on average.
SHARED = 2

GONE = (
    "The Dask cluster is gone or was restarted, or it lost samples that it cannot compute again. Fit again; "
    "with checkpoint=PATH a fit continues where it stopped."
)


class Chunk(NamedTuple):
    """The recipe of samples: a pickled Dask graph with the key to compute, and the futures that it needs.

    One task computes samples and uses them: on the worker that has their codes, without waiting for others.
    """

    recipe: bytes
    parts: list[Any]  # futures


def chunks_of(X: Any, client: Any) -> list[Chunk]:
    """Return the chunks of a Dask array that are not empty, each with only the part of the graph that it needs.

    If many chunks need the same task, such as the mean of all, it would be computed for each chunk in every
    pass. Then all chunks are computed once, and stay on the cluster.
    """
    from dask.local import get_sync
    from dask.optimization import cull
    from distributed import Future
    from distributed.protocol.pickle import dumps

    row_bytes = X.shape[1] * X.dtype.itemsize
    sizes = {(X.name, i, 0): row_bytes * size for i, size in enumerate(X.chunks[0]) if size}
    whole = dict(X.dask)
    graphs = {key: cull(whole, [key])[0] for key in sizes}
    if sum(map(len, graphs.values())) > SHARED * len(whole):
        whole = dict(client.persist(X).dask)
        graphs = {key: {key: whole[key]} for key in sizes}
    chunks = []
    for key, graph in graphs.items():
        data = [getattr(value, "value", value) for value in graph.values()]
        if any(isinstance(value, np.ndarray) and value.nbytes > sizes[key] for value in data):
            # The graph of every chunk holds a larger array, such as a memory-map: cut the chunk from it here.
            graph = {key: put(client, np.array(get_sync(graph, key)))}
        parts = {name: value for name, value in graph.items() if isinstance(value, Future)}
        # Futures among the arguments of tasks appear by their keys only.
        wanted = {name for value in graph.values() for name in getattr(value, "dependencies", ())}
        parts |= {name: Future(name, client) for name in wanted - set(graph)}
        rest = {name: value for name, value in graph.items() if name not in parts}
        chunks.append(Chunk(dumps((rest, list(parts), key)), list(parts.values())))
    return chunks


def put(client: Any, value: Any) -> Any:
    """Return the future of a value that survives its worker: the scheduler can send it again."""
    import dask
    from tlz import identity

    with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TB"}):
        return client.submit(identity, value, pure=False)


@contextmanager
def translate_cluster_errors() -> Iterator[None]:
    """Raise a `BlockError` that says what to do when Dask reports that the cluster is gone."""
    from distributed.client import ClosedClientError
    from distributed.comm import CommClosedError

    try:
        yield
    except (ClosedClientError, CommClosedError, CancelledError) as error:
        raise BlockError(GONE) from error


class ClusterBlocks(Blocks):
    """Chunks of a Dask array on the workers of a cluster, each with its codes.

    Parameters
    ----------
    client : distributed.Client
        Connection to the cluster.
    chunks : list of Chunk
        Samples (m, r). A chunk that does not lie on the cluster is computed again in every pass.
    spans : list of (first, stop)
        First sample of each chunk among all samples, and the one after its last.
    labels : (n,)
        Class of each sample.
    norms : (n,)
        Norms of the samples after the powers of `features`.
    features : FeatureMap
        What samples are mapped to for steps.
    n_features : int
        Number of columns of a chunk.
    block_size : int
        Number of samples that a thread of a worker processes at a time.
    weights : (n,) or None
        Weight of each sample.
    """

    @translate_cluster_errors()
    def __init__(
        self,
        client: Any,
        chunks: Sequence[Chunk],
        spans: Sequence[tuple[int, int]],
        labels: Array,
        norms: Array,
        features: FeatureMap,
        n_features: int,
        block_size: int,
        weights: Array | None = None,
    ) -> None:
        self._client, self._chunks, self._spans = client, chunks, spans
        self._n_blocks, self._fit = len(chunks), uuid.uuid4().hex
        self._shares = []
        for i, (first, stop) in enumerate(spans):
            own = labels[first:stop], norms[first:stop], features
            part = part_of(weights, first, stop)
            share = Share(self._fit, i, first, chunks[i].recipe, *own, n_features, block_size, part)
            self._shares.append(put(client, share))
        self._workers = [""] * self._n_blocks
        self._version = 0  # how often codes have changed
        # How codes came to be, change after change: the version that a change led to, and a function that reads
        # the codes of that version. None stands for a step, which begins at the third number in `_steps`, a
        # file without a name: a killed process leaves nothing of it.
        self._history: list[tuple[int, ReadCodes | None, int]] = []
        self._steps = tempfile.TemporaryFile()  # noqa: SIM115
        weakref.finalize(self, self._steps.close)
        self._assign_workers(range(self._n_blocks))

    @translate_cluster_errors()
    def map_sum(self, step: Step[Sums]) -> Sums:
        version = self._version + 1
        submit = partial(self._change, version, None, put(self._client, step))
        futures = {i: submit(i) for i in range(self._n_blocks)}
        # While workers are busy:
        place = self._steps.seek(0, os.SEEK_END)
        pickle.dump(step, self._steps, pickle.HIGHEST_PROTOCOL)
        outcome = self._run(submit, futures)
        if outcome.changed:
            self._version = version
            self._history.append((version, None, place))
        else:
            self._steps.truncate(place)
        return outcome.sums  # type: ignore[no-any-return]

    def codes(self) -> Array:
        found: list[Array] = []
        self.save_codes(lambda Z, L: found.append(Z))
        return np.concatenate(found)

    @translate_cluster_errors()
    def save_codes(self, keep: KeepCodes) -> None:
        submit = partial(self._on_worker, send_codes, (self._version,))
        for i in range(self._n_blocks):  # in turn: all may be more than this machine holds
            keep(*self._run(submit, {i: submit(i)}).sums)

    @translate_cluster_errors()
    def restore_codes(self, read: ReadCodes) -> None:
        submit = partial(self._change, self._version + 1, read, None)
        for i in range(self._n_blocks):
            self._run(submit, {i: submit(i)})
        self._version += 1
        self.saved_codes(read)

    def saved_codes(self, read: ReadCodes) -> None:
        self._history = [(self._version, read, 0)]  # lost blocks need not repeat older steps
        self._steps.truncate(0)

    def close(self) -> None:
        with suppress(Exception):  # a cluster that is gone has nothing to delete
            self._client.run(delete_codes, self._fit)

    def _change(self, version: int, read: ReadCodes | None, step: Any, number: int) -> Any:
        """Start changing the codes of a block to a version, by a step or by `read`; return the future."""
        before = version - 1
        if read is not None:
            first, stop = self._spans[number]
            Z, L = read(first, stop)
            before, step = 0, put(self._client, partial(set_codes, first, np.array(Z), np.array(L)))
        return self._on_worker(take_step, (self._chunks[number].parts, before, version, step), number)

    def _on_worker(self, work: Callable[..., Outcome], arguments: tuple[Any, ...], number: int) -> Any:
        """Start work on a block on its worker; return the future of the task."""
        where = [self._workers[number]]
        return self._client.submit(work, self._shares[number], *arguments, workers=where, pure=False)

    def _run(self, submit: Callable[[int], Any], futures: dict[int, Any]) -> Outcome:
        """Return the sum of the results of blocks, in the order of the blocks.

        Lost blocks are restored on other workers, and their tasks submitted again.
        """
        for _ in range(ROUNDS):
            totals = [futures[i] for i in sorted(futures)]
            while len(totals) > 1:
                groups = [totals[i:j] for i, j in spans_of(len(totals), FAN_IN)]
                totals = [self._client.submit(add_outcomes, *group, pure=False) for group in groups]
            (total,) = totals
            lost = self._wait([total], futures)
            if not lost:
                outcome: Outcome = total.result()
                if not outcome.lost:
                    return outcome
                lost = outcome.lost
            total.release()
            for i in lost:
                futures.pop(i).release()
            self._assign_workers(lost)
            for version, read, place in self._history:  # all steps again, on workers that have not taken them
                self._steps.seek(place)
                step = None if read else put(self._client, pickle.load(self._steps))
                again = {i: self._change(version, read, step, i) for i in lost}
                if self._wait(list(again.values()), again):
                    break  # lost again: the next round finds out
            futures |= {i: submit(i) for i in lost}
        names = ", ".join(map(self._name, lost))
        raise BlockError(
            f"{names} lost its worker {ROUNDS} times. Workers may have too little memory; use smaller chunks."
        )

    def _wait(self, wanted: list[Any], futures: Mapping[int, Any]) -> tuple[int, ...]:
        """Wait for futures; return the blocks whose worker is gone, for which waiting would never end.

        `wanted` are computed from `futures`, those of blocks. A `BlockError` names the block that failed.
        """
        import distributed

        while True:
            try:
                distributed.wait(wanted, timeout=CHECK_EVERY)
                break
            except TimeoutError:
                threads = self._threads_of_workers()
                gone = tuple(i for i in futures if self._workers[i] not in threads)
                if gone:
                    return gone
        failed = [future for future in wanted if future.status == "error"]
        if failed:
            own = [i for i, future in futures.items() if future.status == "error"]
            error = (futures[own[0]] if own else failed[0]).exception()
            what = (
                f"{self._name(own[0])} could not be processed" if own else "Sums of blocks could not be added"
            )
            raise BlockError(f"{what}: {type(error).__name__}: {error}") from error
        return ()

    def _name(self, number: int) -> str:
        first, stop = self._spans[number]
        return f"Block {number} (samples {first} to {stop - 1})"

    def _threads_of_workers(self) -> dict[str, int]:
        """Return the number of threads of each worker that is alive, by its address."""
        info = self._client.scheduler_info(n_workers=-1)
        if "workers" not in info:  # the client has lost its scheduler
            raise BlockError(GONE)
        return {address: worker["nthreads"] for address, worker in info["workers"].items()}

    def _assign_workers(self, numbers: Collection[int]) -> None:
        """Choose a worker for each of these blocks, one that has its samples if possible."""
        deadline = time.monotonic() + PATIENCE
        while not (threads := self._threads_of_workers()):  # all may be away for a moment
            if time.monotonic() > deadline:
                raise BlockError(
                    f"The Dask cluster has had no worker for {PATIENCE:.0f} seconds. Start workers, "
                    "and fit again."
                )
            time.sleep(0.1)
        parts = {i: self._chunks[i].parts for i in numbers}
        where = self._client.who_has([part for own in parts.values() for part in own])
        holders = {i: {w for part in own for w in where.get(part.key, ())} for i, own in parts.items()}
        others = {i: self._workers[i] for i in range(self._n_blocks) if i not in holders}
        sizes = [stop - first for first, stop in self._spans]
        for i, worker in share_out(sizes, holders, others, threads).items():
            self._workers[i] = worker


def share_out(
    sizes: Sequence[int],
    holders: Mapping[int, Collection[str]],
    others: Mapping[int, str],
    threads: Mapping[str, int],
) -> dict[int, str]:
    """Return a worker for each block of `holders`: one that has its samples, unless it has enough work already.

    Parameters
    ----------
    sizes : sequence of int
        Number of samples of every block.
    holders : mapping
        For each block that needs a worker, by its number, the workers that hold its samples.
    others : mapping
        Workers of the other blocks.
    threads : mapping
        Number of threads of each worker.
    """
    share = {worker: sum(sizes) * n / sum(threads.values()) for worker, n in threads.items()}
    load = dict.fromkeys(threads, 0.0)
    for i, worker in others.items():
        if worker in load:
            load[worker] += sizes[i]
    found: dict[int, str] = {}
    for i, own in holders.items():
        able = sorted(worker for worker in own if worker in load)
        if able and load[able[0]] + sizes[i] / 2 <= share[able[0]]:
            found[i] = able[0]
            load[found[i]] += sizes[i]
    for i in holders:
        if i not in found:
            found[i] = min(load, key=lambda worker: (load[worker] / threads[worker], worker))
            load[found[i]] += sizes[i]
    return found


# The rest runs on the workers.


class Outcome(NamedTuple):
    """The result of blocks: sums, or the numbers of the blocks whose codes are not on their worker."""

    sums: Any
    lost: tuple[int, ...] = ()
    changed: bool = False  # whether there are new codes


@dataclass(frozen=True)
class Share:
    """A block as its worker knows it."""

    fit: str
    number: int
    first: int
    recipe: bytes
    labels: Array
    norms: Array
    features: FeatureMap
    n_features: int
    block_size: int
    weights: Array | None = None

    def codes_file(self, first: int) -> Path:
        """Return the file, on this worker, with the codes of samples from `first` on."""
        from distributed import get_worker

        return Path(get_worker().local_directory) / f"ledl-{self.fit}" / str(first)


def add_outcomes(*outcomes: Outcome) -> Outcome:
    """Return the outcome of several blocks together."""
    lost = tuple(i for outcome in outcomes for i in outcome.lost)
    if lost:
        return Outcome(None, lost)
    first, *others = outcomes
    # The outcomes stay as they are: they may be needed again.
    return Outcome(reduce(add, (outcome.sums for outcome in others), deepcopy(first.sums)), (), first.changed)


def take_step(share: Share, parts: list[Any], before: int, after: int, step: Step[Any]) -> Outcome:
    """Compute the samples of a block, and take a step from codes of version `before` to those of `after`."""
    from dask.local import get_sync

    graph, names, key = pickle.loads(share.recipe)
    there = dict(zip(names, parts, strict=True))
    samples = np.asarray(there[key] if key in there else get_sync({**graph, **there}, key))
    expected = len(share.labels), share.n_features
    if samples.shape != expected:
        raise ValueError(f"the chunk has shape {samples.shape}, but X says {expected}")
    total = None
    for i, j in spans_of(len(samples), share.block_size):
        first = share.first + i
        codes = read_codes(share.codes_file(first), before)
        if codes is None:
            return Outcome(None, (share.number,))
        rows = share.features.by_norms(samples[i:j], share.norms[i:j])
        Z, L = codes
        old = Block(rows, share.labels[i:j], first, Z, L, part_of(share.weights, i, j))
        new, sums = step(old)
        changed = new.Z is not old.Z
        if changed:
            write_codes(share.codes_file(first), after, new.Z, new.L)
        total = sums if total is None else add(total, sums)
    return Outcome(total, (), changed)


def send_codes(share: Share, version: int) -> Outcome:
    """Return Z and L of a block."""
    pieces = spans_of(len(share.labels), share.block_size)
    found = [read_codes(share.codes_file(share.first + i), version) for i, _ in pieces]
    if None in found:
        return Outcome(None, (share.number,))
    return Outcome(tuple(np.concatenate(parts) for parts in zip(*found, strict=True)))


def set_codes(first: int, Z: Array, L: Array, block: Block) -> tuple[Block, tuple[int]]:
    """Return a block with given codes, those of samples from `first` on: a step."""
    rows = slice(block.first - first, block.first - first + len(block.X))
    return block._replace(Z=Z[rows], L=L[rows]), (0,)


def read_codes(path: Path, version: int) -> tuple[Array, Array] | tuple[None, None] | None:
    """Return Z and L of that version, or no codes for version 0; None if this worker does not have them."""
    if version == 0:
        return None, None
    with suppress(FileNotFoundError), path.open("rb") as file:
        if int.from_bytes(file.read(8), "little") == version:
            return np.load(file), np.load(file)
    return None


def write_codes(path: Path, version: int, Z: Array, L: Array) -> None:
    """Write Z and L to a file that begins with their version: 0 until all is written."""
    path.parent.mkdir(exist_ok=True)
    with path.open("r+b" if path.exists() else "wb") as file:  # the pages of an old file are used again
        file.write(bytes(8))
        np.save(file, Z)
        np.save(file, L)
        file.seek(0)
        file.write(version.to_bytes(8, "little"))


def delete_codes(fit: str, dask_worker: Any) -> None:
    """Delete the codes of a fit from a worker."""
    shutil.rmtree(Path(dask_worker.local_directory) / f"ledl-{fit}", ignore_errors=True)
