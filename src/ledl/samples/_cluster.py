"""Blocks on the workers of a Dask cluster.

A block's codes lie in files of the worker that it was given to, and nowhere else: per pass, a step (with the
atoms) goes out and sums come back. Where a worker is lost, its blocks are given to others, which take all
steps that have changed codes again; since sums are added in the order of the blocks wherever those are, the
result is the same to the last bit.
"""

from __future__ import annotations

import pickle
import shutil
import tempfile
import uuid
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from functools import partial, wraps
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np

from ledl.arrays import Array
from ledl.samples._memory import BlockError, Blocks, KeepCodes, ReadCodes, Step, Sums, spans_of
from ledl.samples._worker import (
    Outcome,
    Place,
    Prepare,
    add_outcomes,
    forget_codes,
    send_codes,
    set_codes,
    take_step,
)

# Seconds between two looks at which workers live, and that a cluster without workers is waited for.
LOOK_EVERY, PATIENCE = 1.0, 60.0
# How often a block may lose its worker in one pass: some blocks are what kills workers.
ROUNDS = 5
# Sums that a task adds.
FAN_IN = 8

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

    @classmethod
    def of(cls, graph: Mapping[Any, Any], key: Any, n_bytes: int, client: Any) -> Chunk:
        """What has that key in a graph of Dask, and that many bytes.

        Of a larger array here, such as a memory-map, which the graphs of all its chunks hold, it is cut here.
        """
        from dask.local import get_sync
        from distributed import Future
        from distributed.protocol.pickle import dumps

        data = [getattr(value, "value", value) for value in graph.values()]
        if any(isinstance(value, np.ndarray) and value.nbytes > n_bytes for value in data):
            graph = {key: put(client, np.array(get_sync(graph, key)))}
        parts = {name: value for name, value in graph.items() if isinstance(value, Future)}
        # Futures among the arguments of tasks are there by their keys alone.
        wanted = {name for value in graph.values() for name in getattr(value, "dependencies", ())}
        parts |= {name: Future(name, client) for name in wanted - set(graph)}
        rest = {name: value for name, value in graph.items() if name not in parts}
        return cls(dumps((rest, list(parts), key)), list(parts.values()))


def put(client: Any, value: Any) -> Any:
    """A value on the cluster, which does not go with a worker: the scheduler can send it again."""
    import dask

    with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TB"}):
        return client.submit(itself, value, pure=False)


class Change(NamedTuple):
    """What changed codes: how often they had changed before and after, and how blocks get at the step."""

    before: int  # 0: whatever there was before
    after: int
    step: StoredStep | Restoring


class StoredStep(NamedTuple):
    """A step that all blocks take, in a file of this process."""

    path: Path

    @classmethod
    def write(cls, step: Step[Any], path: Path) -> StoredStep:
        path.write_bytes(pickle.dumps(step, pickle.HIGHEST_PROTOCOL))
        return cls(path)

    def put(self, put: Callable[[Any], Any]) -> Callable[[int], Any]:
        """For each block what it is to be given, `put` being what brings things to the cluster."""
        given = put(pickle.loads(self.path.read_bytes()))
        return lambda number: given


class Restoring(NamedTuple):
    """Codes that are read from elsewhere, for each block its own."""

    read: ReadCodes
    spans: Sequence[tuple[int, int]]

    def put(self, put: Callable[[Any], Any]) -> Callable[[int], Any]:
        def one(number: int) -> Any:
            first, stop = self.spans[number]
            Z, L = self.read(first, stop)
            return put(partial(set_codes, first, np.array(Z), np.array(L)))

        return one


def told(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method that tells of a cluster that is gone in its own words."""

    @wraps(method)
    def telling(*args: Any, **options: Any) -> Any:
        from distributed.client import ClosedClientError
        from distributed.comm import CommClosedError

        try:
            return method(*args, **options)
        except (ClosedClientError, CommClosedError, CancelledError) as error:
            raise BlockError(GONE) from error

    return telling


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
    norms : (n,)
        Norms of the samples, which `prepare` needs.
    prepare : callable (rows, norms) -> rows
        What makes rows that steps work on of those of a chunk.
    n_features : int
        Columns of a chunk.
    block_size : int
        Samples that a worker's thread works on at a time.
    """

    @told
    def __init__(
        self,
        client: Any,
        chunks: Sequence[Chunk],
        spans: Sequence[tuple[int, int]],
        labels: Array,
        norms: Array,
        prepare: Prepare,
        n_features: int,
        block_size: int,
    ) -> None:
        self.problems = ()
        self._client, self._chunks, self._spans, self._prepare = client, chunks, spans, prepare
        self._fit = uuid.uuid4().hex
        self._recipes = [self._put(chunk.recipe) for chunk in chunks]
        self._known = [self._put((labels[first:stop], norms[first:stop])) for first, stop in spans]
        self._places = [
            Place(self._fit, i, first, stop - first, n_features, block_size)
            for i, (first, stop) in enumerate(spans)
        ]
        self._workers = [""] * len(chunks)
        self._history: list[Change] = []
        self._folder = Path(tempfile.mkdtemp(prefix="ledl-"))
        weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        self._give_out(range(len(chunks)))

    @told
    def _steps(self, step: Step[Sums]) -> Iterable[Sums]:
        """One sum, of all blocks."""
        now = self._version
        given = self._put(step)

        def submit(numbers: Iterable[int]) -> dict[int, Any]:
            return self._submit(lambda i: given, numbers, now, now + 1)

        futures = submit(self._all)
        stored = StoredStep.write(step, self._folder / str(now))  # while workers are at it
        outcome = self._run(submit, self._all, futures)
        if outcome.changed:
            self._history.append(Change(now, now + 1, stored))
        return [outcome.sums]

    def codes(self) -> Array:
        found: list[Array] = []
        self.save_codes(lambda first, Z, L: found.append(Z))
        return np.concatenate(found)

    @told
    def save_codes(self, keep: KeepCodes) -> None:
        def ask(numbers: Iterable[int]) -> dict[int, Any]:
            return {
                i: self._client.submit(
                    send_codes, self._places[i], self._version, workers=[self._workers[i]], pure=False
                )
                for i in numbers
            }

        for i, (first, _) in enumerate(self._spans):  # in turn: all may be more than this machine holds
            keep(first, *self._run(ask, [i]).sums)

    @told
    def restore_codes(self, read: ReadCodes) -> None:
        given = Restoring(read, self._spans).put(self._put)
        for i in self._all:
            self._run(lambda numbers: self._submit(given, numbers, 0, 1), [i])
        self._begin_at(read, 1)

    def saved_codes(self, read: ReadCodes) -> None:
        self._begin_at(read, self._version)

    def _begin_at(self, read: ReadCodes, version: int) -> None:
        """Codes of that version can be read: what is lost from now on need not take older steps again."""
        self._history = [Change(0, version, Restoring(read, self._spans))]
        for path in self._folder.iterdir():
            path.unlink()

    def close(self) -> None:
        with suppress(Exception):  # a cluster that is gone has nothing left to let go of
            self._client.run(forget_codes, self._fit)

    @property
    def _version(self) -> int:
        """How often codes have changed."""
        return self._history[-1].after if self._history else 0

    @property
    def _all(self) -> range:
        return range(len(self._chunks))

    def _put(self, value: Any) -> Any:
        return put(self._client, value)

    def _submit(
        self, step: Callable[[int], Any], numbers: Iterable[int], before: int, after: int
    ) -> dict[int, Any]:
        """Tasks in which blocks, each on its worker, take a step."""
        return {
            i: self._client.submit(
                take_step,
                self._recipes[i],
                self._chunks[i].parts,
                self._known[i],
                self._places[i],
                before,
                after,
                step(i),
                self._prepare,
                workers=[self._workers[i]],
                pure=False,
            )
            for i in numbers
        }

    def _run(
        self,
        submit: Callable[[Iterable[int]], dict[int, Any]],
        numbers: Sequence[int],
        futures: dict[int, Any] | None = None,
    ) -> Outcome:
        """The sum of what tasks of blocks give, in the order of the blocks; lost ones are made anew first."""
        futures = submit(numbers) if futures is None else futures
        for _ in range(ROUNDS):
            total = self._total([futures[i] for i in numbers])
            lost = self._wait([total], futures)
            if not lost:
                outcome: Outcome = total.result()
                if not outcome.lost:
                    return outcome
                lost = outcome.lost
            total.release()
            for i in lost:
                futures.pop(i).release()
            self._make_anew(lost)
            futures |= submit(lost)
        names = ", ".join(map(self._name, lost))
        raise BlockError(f"{names} lost its worker {ROUNDS} times. Workers may have too little memory for it.")

    def _total(self, futures: list[Any]) -> Any:
        while len(futures) > 1:
            groups = [futures[i:j] for i, j in spans_of(len(futures), FAN_IN)]
            futures = [self._client.submit(add_outcomes, *group, pure=False) for group in groups]
        return futures[0]

    def _make_anew(self, lost: Collection[int]) -> None:
        """Let other workers take all steps again for blocks whose worker is gone, or has not what it should."""
        self._give_out(lost)
        for change in self._history:
            futures = self._submit(change.step.put(self._put), lost, change.before, change.after)
            if self._wait(list(futures.values()), futures):
                return  # lost again: that will be found out

    def _wait(self, wanted: list[Any], futures: Mapping[int, Any]) -> tuple[int, ...]:
        """Wait until those are there; or the blocks without a worker, for which one would wait in vain."""
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
        """Name the block that failed; or tell that adding failed, or that all is gone."""
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
        """Threads of the workers that live."""
        info = self._client.scheduler_info(n_workers=-1)
        if "workers" not in info:  # it has lost its scheduler
            raise BlockError(GONE)
        return {address: worker["nthreads"] for address, worker in info["workers"].items()}

    def _give_out(self, numbers: Collection[int]) -> None:
        """A worker for each of those blocks, with its samples if there is one."""
        try:
            self._client.wait_for_workers(1, timeout=PATIENCE)
        except TimeoutError:
            raise BlockError(
                f"The Dask cluster has had no worker for {PATIENCE:.0f} seconds. Start some, and fit again."
            ) from None
        parts = {i: self._chunks[i].parts for i in numbers}
        where = self._client.who_has([part for own in parts.values() for part in own])
        holders = {i: {w for part in own for w in where.get(part.key, ())} for i, own in parts.items()}
        others = {i: self._workers[i] for i in range(len(self._chunks)) if i not in holders}
        sizes = [stop - first for first, stop in self._spans]
        for i, worker in share_out(sizes, holders, others, self._living()).items():
            self._workers[i] = worker


def share_out(
    sizes: Sequence[int],
    holders: Mapping[int, Collection[str]],
    others: Mapping[int, str],
    threads: Mapping[str, int],
) -> dict[int, str]:
    """A worker for each block of `holders`, by its number: one that has its samples, unless it has its share.

    Parameters
    ----------
    sizes : samples of all blocks
    holders : for each block to be given out, the workers that hold its samples
    others : the workers of the other blocks
    threads : threads of each worker
    """
    share = {worker: sum(sizes) * n / sum(threads.values()) for worker, n in threads.items()}
    load = dict.fromkeys(threads, 0.0)
    for i, worker in others.items():
        if worker in load:
            load[worker] += sizes[i]
    found: dict[int, str] = {}

    def give(i: int, worker: str) -> None:
        found[i] = worker
        load[worker] += sizes[i]

    for i, own in holders.items():
        able = sorted(worker for worker in own if worker in load)
        if able and load[able[0]] + sizes[i] / 2 <= share[able[0]]:
            give(i, able[0])
    for i in holders:
        if i not in found:
            give(i, min(load, key=lambda worker: (load[worker] / threads[worker], worker)))
    return found


def itself(value: Any) -> Any:
    """The value."""
    return value
