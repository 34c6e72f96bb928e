"""Blocks on the workers of a Dask cluster.

A block's codes lie in files of the worker that it was given to, and nowhere else: per pass, a step (with the
atoms) goes out and sums come back. Where a worker is lost, its blocks are given to others, which take all
steps that have changed codes again; since sums are added in the order of the blocks wherever those are, the
result is the same to the last bit.

First what runs here, with the client; below it what runs on the workers.
"""

from __future__ import annotations

import pickle
import shutil
import tempfile
import uuid
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass
from functools import partial, reduce
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np

from ledl.arrays import Array
from ledl.samples._blocks import Block, BlockError, Blocks, KeepCodes, ReadCodes, Step, Sums, add, spans_of
from ledl.subspace import scaled_by

# Seconds between two looks at which workers live, and that a cluster without workers is waited for.
LOOK_EVERY, PATIENCE = 1.0, 60.0
# How often a block may lose its worker in one pass: some blocks are what kills workers.
ROUNDS = 5
# Sums that a task adds.
FAN_IN = 8
# Chunks are made once and for all where a task of their graph is needed more often than this in the mean.
SHARED = 2

GONE = (
    "The Dask cluster is gone or was restarted, or has lost samples that it cannot make again. Fit again; with "
    "checkpoint=PATH a fit goes on where it was."
)


class Chunk(NamedTuple):
    """How samples are made: a graph of Dask with the key that is asked for, and what lies on the cluster.

    A task makes them and uses them: on the worker that has the codes, and without others to wait for.
    """

    recipe: bytes
    parts: list[Any]  # futures


def chunks_of(X: Any, client: Any) -> list[Chunk]:
    """Return the chunks of a Dask array that are not empty, each with no more of the graph than it needs.

    Where many chunks need the same, such as the mean of all, it would be made for each in every pass: then all
    are made once, and stay on the cluster.
    """
    from dask.local import get_sync
    from dask.optimization import cull
    from distributed import Future
    from distributed.protocol.pickle import dumps

    row = X.shape[1] * X.dtype.itemsize
    sizes = {(X.name, i, 0): row * size for i, size in enumerate(X.chunks[0]) if size}
    whole = dict(X.dask)
    graphs = {key: cull(whole, [key])[0] for key in sizes}
    if sum(map(len, graphs.values())) > SHARED * len(whole):
        whole = dict(client.persist(X).dask)
        graphs = {key: {key: whole[key]} for key in sizes}
    chunks = []
    for key, graph in graphs.items():
        data = [getattr(value, "value", value) for value in graph.values()]
        if any(isinstance(value, np.ndarray) and value.nbytes > sizes[key] for value in data):
            # Of a larger array here, such as a memory-map, which the graphs of all chunks hold, it is cut here.
            graph = {key: put(client, np.array(get_sync(graph, key)))}
        parts = {name: value for name, value in graph.items() if isinstance(value, Future)}
        # Futures among the arguments of tasks are there by their keys alone.
        wanted = {name for value in graph.values() for name in getattr(value, "dependencies", ())}
        parts |= {name: Future(name, client) for name in wanted - set(graph)}
        rest = {name: value for name, value in graph.items() if name not in parts}
        chunks.append(Chunk(dumps((rest, list(parts), key)), list(parts.values())))
    return chunks


def put(client: Any, value: Any) -> Any:
    """Return the future of a value that does not go with a worker: the scheduler can send it again."""
    import dask

    with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TB"}):
        return client.submit(itself, value, pure=False)


class Change(NamedTuple):
    """What changed codes: how often they had changed before and after, and where they can be read, if anywhere.

    Where they cannot, the step that changed them is in a file of this process.
    """

    before: int  # 0: whatever there was before
    after: int
    read: ReadCodes | None = None


@contextmanager
def translate_cluster_errors() -> Iterator[None]:
    """Raise a `BlockError` that says what to do where Dask says that the cluster is gone."""
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
        What speaks with the cluster.
    chunks : list of Chunk
        Samples (m, r); what does not lie on the cluster is made anew in every pass.
    spans : list of (first, stop)
        Where they begin and end among all samples.
    labels : (n,)
    norms : (n,) or None
        Norms of the samples, which are scaled to norm 1 for steps; None: they are taken as they are.
    n_features : int
        Columns of a chunk.
    block_size : int
        Samples that a worker's thread works on at a time.
    """

    @translate_cluster_errors()
    def __init__(
        self,
        client: Any,
        chunks: Sequence[Chunk],
        spans: Sequence[tuple[int, int]],
        labels: Array,
        norms: Array | None,
        n_features: int,
        block_size: int,
    ) -> None:
        self._client, self._chunks, self._spans = client, chunks, spans
        self._n_blocks, self._fit = len(chunks), uuid.uuid4().hex
        self._shares = []
        for i, (first, stop) in enumerate(spans):
            own = labels[first:stop], None if norms is None else norms[first:stop]
            share = Share(self._fit, i, first, chunks[i].recipe, *own, n_features, block_size)
            self._shares.append(put(client, share))
        self._workers = [""] * self._n_blocks
        self._history: list[Change] = []
        self._folder = Path(tempfile.mkdtemp(prefix="ledl-"))
        weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        self._give_out(range(self._n_blocks))

    @translate_cluster_errors()
    def map_sum(self, step: Step[Sums]) -> Sums:
        change = Change(self._version, self._version + 1)
        submit = partial(self._change, change, step=put(self._client, step))
        futures = submit(range(self._n_blocks))
        # While workers are at it:
        (self._folder / str(change.before)).write_bytes(pickle.dumps(step, pickle.HIGHEST_PROTOCOL))
        outcome = self._run(submit, futures)
        if outcome.changed:
            self._history.append(change)
        return outcome.sums  # type: ignore[no-any-return]

    def codes(self) -> Array:
        found: list[Array] = []
        self.save_codes(lambda first, Z, L: found.append(Z))
        return np.concatenate(found)

    @translate_cluster_errors()
    def save_codes(self, keep: KeepCodes) -> None:
        def ask(numbers: Iterable[int]) -> dict[int, Any]:
            return {i: self._on_worker(i, send_codes, self._version) for i in numbers}

        for i, (first, _) in enumerate(self._spans):  # in turn: all may be more than this machine holds
            keep(first, *self._run(ask, ask([i])).sums)

    @translate_cluster_errors()
    def restore_codes(self, read: ReadCodes) -> None:
        change = Change(0, 1, read)
        submit = partial(self._change, change)
        for i in range(self._n_blocks):
            self._run(submit, submit([i]))
        self._history.append(change)
        self.saved_codes(read)

    def saved_codes(self, read: ReadCodes) -> None:
        self._history = [Change(0, self._version, read)]  # what is lost need not take older steps again
        for path in self._folder.iterdir():
            path.unlink()

    def close(self) -> None:
        with suppress(Exception):  # a cluster that is gone has nothing left to let go of
            self._client.run(forget_codes, self._fit)

    @property
    def _version(self) -> int:
        """How often codes have changed."""
        return self._history[-1].after if self._history else 0

    def _change(self, change: Change, numbers: Iterable[int], step: Any = None) -> dict[int, Any]:
        """Start changing codes of blocks, by a step on the cluster or as before; return the tasks' futures."""
        if step is None and change.read is None:
            step = put(self._client, pickle.loads((self._folder / str(change.before)).read_bytes()))
        futures = {}
        for i in numbers:
            if change.read is not None:
                first, stop = self._spans[i]
                Z, L = change.read(first, stop)
                step = put(self._client, partial(set_codes, first, np.array(Z), np.array(L)))
            arguments = self._chunks[i].parts, change.before, change.after, step
            futures[i] = self._on_worker(i, take_step, *arguments)
        return futures

    def _on_worker(self, number: int, work: Callable[..., Outcome], *arguments: Any) -> Any:
        """Start work on a block where it is; return the task's future."""
        where = [self._workers[number]]
        return self._client.submit(work, self._shares[number], *arguments, workers=where, pure=False)

    def _run(self, submit: Callable[[Iterable[int]], dict[int, Any]], futures: dict[int, Any]) -> Outcome:
        """Return the sum of what tasks of blocks give, in the order of the blocks.

        The blocks that are lost are made anew, and their tasks submitted again.
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
            self._give_out(lost)
            for change in self._history:  # all steps again, on workers that have not taken them
                again = self._change(change, lost)
                if self._wait(list(again.values()), again):
                    break  # lost again: that will be found out
            futures |= submit(lost)
        names = ", ".join(map(self._name, lost))
        raise BlockError(f"{names} lost its worker {ROUNDS} times. Workers may have too little memory for it.")

    def _wait(self, wanted: list[Any], futures: Mapping[int, Any]) -> tuple[int, ...]:
        """Wait until those are there; return the blocks without a worker, for which one would wait in vain."""
        import distributed

        while True:
            try:
                distributed.wait(wanted, timeout=LOOK_EVERY)
            except TimeoutError:
                living = self._living()
                gone = tuple(i for i in futures if self._workers[i] not in living)
                if gone:
                    return gone
                continue
            except CancelledError:
                self._fail(futures)
            failed = [future for future in wanted if future.status == "error"]
            if failed:
                self._fail(futures, failed[0].exception())
            return ()

    def _fail(self, futures: Mapping[int, Any], error: BaseException | None = None) -> NoReturn:
        """Raise an error that names the block that failed; or says that adding failed, or that all is gone."""
        for i, future in futures.items():
            if future.status == "error":
                error = future.exception()
                raise BlockError(
                    f"{self._name(i)} could not be worked on: {type(error).__name__}: {error}"
                ) from error
        if error is not None:
            raise BlockError(f"Sums of blocks could not be added: {type(error).__name__}: {error}") from error
        raise BlockError(GONE)

    def _name(self, number: int) -> str:
        first, stop = self._spans[number]
        return f"Block {number} (samples {first} to {stop - 1})"

    def _living(self) -> dict[str, int]:
        """Return the threads of the workers that live."""
        info = self._client.scheduler_info(n_workers=-1)
        if "workers" not in info:  # it has lost its scheduler
            raise BlockError(GONE)
        return {address: worker["nthreads"] for address, worker in info["workers"].items()}

    def _give_out(self, numbers: Collection[int]) -> None:
        """Find a worker for each of those blocks, one with its samples if there is one."""
        try:
            self._client.wait_for_workers(1, timeout=PATIENCE)
        except TimeoutError:
            raise BlockError(
                f"The Dask cluster has had no worker for {PATIENCE:.0f} seconds. Start some, and fit again."
            ) from None
        parts = {i: self._chunks[i].parts for i in numbers}
        where = self._client.who_has([part for own in parts.values() for part in own])
        holders = {i: {w for part in own for w in where.get(part.key, ())} for i, own in parts.items()}
        others = {i: self._workers[i] for i in range(self._n_blocks) if i not in holders}
        sizes = [stop - first for first, stop in self._spans]
        for i, worker in share_out(sizes, holders, others, self._living()).items():
            self._workers[i] = worker


def share_out(
    sizes: Sequence[int],
    holders: Mapping[int, Collection[str]],
    others: Mapping[int, str],
    threads: Mapping[str, int],
) -> dict[int, str]:
    """Return a worker for each block of `holders`: one that has its samples, unless that one has its share.

    Parameters
    ----------
    sizes : samples of all blocks
    holders : for each block to be given out, by its number, the workers that hold its samples
    others : the workers of the other blocks
    threads : threads of each worker
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


# What runs on the workers:


class Outcome(NamedTuple):
    """What blocks hand back: sums, or the numbers of those that are not where they should be."""

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
    norms: Array | None
    n_features: int
    block_size: int


def itself(value: Any) -> Any:
    """Return the value."""
    return value


def add_outcomes(*outcomes: Outcome) -> Outcome:
    """Return the outcome of several blocks together."""
    lost = tuple(i for outcome in outcomes for i in outcome.lost)
    if lost:
        return Outcome(None, lost)
    first, *others = outcomes
    # The outcomes stay as they are, should they be asked for again.
    return Outcome(reduce(add, (outcome.sums for outcome in others), deepcopy(first.sums)), (), first.changed)


def take_step(share: Share, parts: list[Any], before: int, after: int, step: Step[Any]) -> Outcome:
    """Make the samples of a block whose codes have changed `before` times, and take a step, piece by piece."""
    from dask.local import get_sync

    graph, names, key = pickle.loads(share.recipe)
    there = dict(zip(names, parts, strict=True))
    samples = np.asarray(there[key] if key in there else get_sync({**graph, **there}, key))
    expected = len(share.labels), share.n_features
    if samples.shape != expected:
        raise ValueError(f"it has the shape {samples.shape}, but X says {expected}")
    codes, total = WorkerCodes(share.fit), None
    for i, j in spans_of(len(samples), share.block_size):
        first = share.first + i
        found = codes.read(first, before)
        if found is None:
            return Outcome(None, (share.number,))
        rows = samples[i:j] if share.norms is None else scaled_by(samples[i:j], share.norms[i:j])
        old = Block(rows, share.labels[i:j], first, *found)
        new, sums = step(old)
        changed = new.Z is not old.Z
        if changed:
            codes.write(first, after, new.Z, new.L)
        total = sums if total is None else add(total, sums)
    return Outcome(total, (), changed)


def send_codes(share: Share, version: int) -> Outcome:
    """Return Z and L of a block."""
    codes, pieces = WorkerCodes(share.fit), spans_of(len(share.labels), share.block_size)
    found = [codes.read(share.first + i, version) for i, _ in pieces]
    if None in found:
        return Outcome(None, (share.number,))
    return Outcome(tuple(np.concatenate(parts) for parts in zip(*found, strict=True)))


def set_codes(first: int, Z: Array, L: Array, block: Block) -> tuple[Block, tuple[int]]:
    """Give a block codes, which are those of samples from `first` on: a step."""
    rows = slice(block.first - first, block.first - first + len(block.X))
    return block._replace(Z=Z[rows], L=L[rows]), (0,)


# For a worker and a fit, how often the codes of the block with that first sample have changed.
_VERSIONS: dict[tuple[str, str], dict[int, int]] = {}


class WorkerCodes:
    """The codes that a worker has of a fit, in files that go with the worker."""

    def __init__(self, fit: str) -> None:
        from distributed import get_worker

        worker = get_worker()
        self._folder = Path(worker.local_directory) / f"ledl-{fit}"
        self._key = worker.address, fit

    def read(self, first: int, version: int) -> tuple[Array, Array] | tuple[None, None] | None:
        """Return Z and L of that version, of version 0 none; or None if this worker has another version."""
        if version == 0:
            return None, None
        if _VERSIONS.get(self._key, {}).get(first) != version:
            return None
        with (self._folder / f"{first}.npy").open("rb") as file:
            return np.load(file), np.load(file)

    def write(self, first: int, version: int, Z: Array, L: Array) -> None:
        versions = _VERSIONS.setdefault(self._key, {})
        versions.pop(first, None)  # until all is written
        self._folder.mkdir(exist_ok=True)
        path = self._folder / f"{first}.npy"
        with path.open("r+b" if path.exists() else "wb") as file:  # pages of an old file are used again
            np.save(file, Z)
            np.save(file, L)
        versions[first] = version


def forget_codes(fit: str, dask_worker: Any) -> None:
    """Let go of all that belongs to a fit."""
    _VERSIONS.pop((dask_worker.address, fit), None)
    shutil.rmtree(Path(dask_worker.local_directory) / f"ledl-{fit}", ignore_errors=True)
