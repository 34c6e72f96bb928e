"""Cells on the workers of a Dask cluster. They compute; the client alone writes to the store."""

from __future__ import annotations

import asyncio
import importlib
import os
import pkgutil
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

import ledl
from ledl.arrays import place
from ledl.experiments._cells import Cell, Done, Store, as_json, dataset_digest, try_cell

# A worker has one of it, and a cell takes it. Two cells in threads of one process would share what belongs to
# the process: the threads of BLAS, on which rounding depends, and the warnings that are told of a cell.
RESOURCE = "ledl-cell"
AHEAD = 2  # cells sent for each worker: the one it computes, and the next
CONNECT_SECONDS, FIRST_WORKER_SECONDS, POLL_SECONDS = 10.0, 20.0, 1.0
ALONE_SECONDS = 60.0  # without any worker: they may be starting again, or may not


class WrongWorkerError(ValueError):
    """A worker that would give another result than this machine, or none."""


def distributed() -> Any:
    """Return the package, which is an extra."""
    try:
        return importlib.import_module("distributed")
    except ImportError as error:
        raise ImportError(
            f"Cells on a Dask cluster need the package distributed ({error}): pip install 'ledl[dask]'; or "
            "leave out dask, for processes of this machine."
        ) from None


@contextmanager
def connected(address: str, digests: Mapping[str, str], device: str | None = None) -> Iterator[Workers]:
    """Yield the workers of the cluster at that address, or in that scheduler file.

    They must have the datasets with these digests, and the device. In the end, whatever ends it, the cluster is
    told to forget the cells that are left.
    """
    dask = distributed()
    try:
        # What is no address is found out here: a client that was begun for it would be hard to end.
        is_file = Path(address).is_file()
        given = {"scheduler_file": address} if is_file else {"address": dask.comm.resolve_address(address)}
        opened = dask.Client(**given, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError) as error:
        raise ConnectionError(
            f"dask={address!r} does not answer as the scheduler of a Dask cluster ({error}). Give the address "
            "that 'dask scheduler' prints, such as tcp://192.168.0.1:8786, or the file it writes with "
            "--scheduler-file."
        ) from None
    with opened as client:
        try:
            client.submit(os.getpid, pure=False).result(timeout=FIRST_WORKER_SECONDS)
        except TimeoutError:
            raise ConnectionError(
                f"dask={address!r} has a scheduler, but no worker answered in {FIRST_WORKER_SECONDS:.0f} s. "
                "Start some: dask worker ADDRESS --nworkers 4 --nthreads 1"
            ) from None
        workers = Workers(client, address, digests, device)
        workers.welcome()
        yield workers


class Workers:
    """Workers that have been looked at before they get cells.

    Attributes
    ----------
    n : int
        How many there were when they were last counted: so many cells are computed at once.
    """

    def __init__(self, client: Any, address: str, digests: Mapping[str, str], device: str | None) -> None:
        self._client, self._address, self._digests, self._device = client, address, digests, device
        self._welcomed: set[str] = set()
        self._last_seen = time.monotonic()

    @property
    def n(self) -> int:
        return len(self._welcomed)

    def welcome(self) -> bool:
        """Look at workers that have come, and have them take cells; forget those that have gone.

        Return whether any have come; raise WrongWorkerError if one of them is not fit.
        """
        try:
            here = set(self._client.nthreads())
            come = sorted(here - self._welcomed)
            self._welcomed &= here
            versions = self._ask(come, pkgutil.resolve_name, "ledl:__version__")  # needs no ledl to be asked
            for worker, version in versions.items():
                if version != ledl.__version__:
                    there = f"has ledl {version}" if isinstance(version, str) else f"has no ledl ({version})"
                    raise WrongWorkerError(
                        f"The worker {worker} {there}, and this machine ledl {ledl.__version__}, so that "
                        "results could differ. Install the same on both, and start the worker again."
                    )
            alive = list(versions)
            for worker, trouble in self._ask(alive, trouble_here, self._digests, self._device).items():
                if trouble:
                    raise WrongWorkerError(f"The worker {worker} cannot be used: {trouble}")
            self._welcomed |= set(self._ask(alive, take_cells))
        except OSError as error:
            raise self._lost(error) from error
        if self._welcomed:
            self._last_seen = time.monotonic()
        elif time.monotonic() - self._last_seen > ALONE_SECONDS:
            raise ConnectionError(
                f"The cluster, dask={self._address!r}, has had no worker for {ALONE_SECONDS:.0f} s. Finished "
                "cells are kept: start workers, and the same command goes on."
            )
        return bool(come)

    def _ask(self, workers: list[str], function: Any, *arguments: Any) -> dict[str, Any]:
        """Return what a function gives on each worker, or its error; those that have died say nothing."""
        answers = self._client.run(function, *arguments, workers=workers, on_error="return") if workers else {}
        return {worker: answer for worker, answer in answers.items() if not isinstance(answer, OSError)}

    def run(self, cells: Sequence[Cell], store: Store) -> Iterator[Done]:
        """Yield the cells as they end, each in the store by then.

        The cell of a worker that dies is begun again elsewhere.
        """
        waiting, running = deque(cells), dict[Any, Cell]()
        while waiting or running:
            if self.welcome():
                # Cells that no worker has been given, since none took cells then, are sent anew: Dask looks at
                # them again when a worker comes, but not when one that has come begins to take cells.
                try:
                    given = {key for keys in self._client.processing().values() for key in keys}
                except OSError as error:
                    raise self._lost(error) from error
                for future in [each for each in running if not each.done() and each.key not in given]:
                    future.release()
                    waiting.appendleft(running.pop(future))
            while waiting and len(running) < AHEAD * max(self.n, 1):
                cell = waiting.popleft()
                known = store.get(cell.identity)  # another run on the same store may have been faster
                if known is not None:
                    yield Done(cell, known)
                    continue
                options = {"pure": False, "resources": {RESOURCE: 1}}
                running[self._client.submit(run_here, cell, cell.identity, self._device, **options)] = cell
            if running:
                # For a moment, no more, since workers may come meanwhile.
                with self._client.as_current(), suppress(TimeoutError, CancelledError):
                    distributed().wait(list(running), timeout=POLL_SECONDS, return_when="FIRST_COMPLETED")
            for future in [future for future in running if future.done()]:
                done = self._done(future, running[future])
                if done is None:
                    continue
                del running[future]
                if done.result is not None:
                    store.put(done.cell.identity, done.result)
                yield done

    def _done(self, future: Any, cell: Cell) -> Done | None:
        """Return how a cell has ended; None if its result was lost with a worker, and it is computed again."""
        try:
            done: Done = future.result(timeout=POLL_SECONDS)
        except TimeoutError:
            return None
        except CancelledError as error:  # by nobody here
            raise self._lost(error) from error
        except WrongWorkerError:
            raise
        except distributed().KilledWorker:
            return Done(cell, None, "every worker that began it died, maybe for memory")
        except Exception as error:
            return Done(cell, None, f"{type(error).__name__}: {error}")
        return done

    def _lost(self, error: BaseException) -> ConnectionError:
        return ConnectionError(
            f"The connection to the cluster, dask={self._address!r}, is lost ({type(error).__name__}). "
            "Finished cells are kept: when the cluster is there again, the same command goes on."
        )


# What runs on a worker.


async def trouble_here(digests: Mapping[str, str], device: str | None) -> str:
    """Return what the worker lacks, or "". All is tried beside its loop, which has to answer meanwhile."""
    folder = os.environ.get("LEDL_DATA")
    remedy = f"Set LEDL_DATA there, which is {folder!r}, to a folder with the same files, and start it again."
    for dataset, digest in digests.items():
        try:
            found = await asyncio.to_thread(dataset_digest, dataset)
        except (OSError, ValueError, ImportError) as error:
            return f"it does not have the dataset {dataset} ({error}). {remedy}"
        if found != digest:
            return (
                f"its {dataset} is not that of this machine (digest {found[:12]} there, {digest[:12]} here). "
                f"{remedy}"
            )
    try:
        await asyncio.to_thread(place, np.empty(0), device)
    except (ValueError, ImportError, RuntimeError) as error:
        return str(error)
    return ""


async def take_cells(dask_worker: Any) -> None:
    """Have the worker take cells, one at a time."""
    await dask_worker.set_resources(**{RESOURCE: 1})


def run_here(cell: Cell, identity: Mapping[str, Any], device: str | None) -> Done:
    """Return the cell, ended, if it is, in all that decides the result, the one that the client means."""
    mine, asked = as_json(cell.identity), as_json(identity)
    differing = [name for name in asked if mine.get(name) != asked[name]]
    if differing:
        raise WrongWorkerError(
            f"The worker {distributed().get_worker().address} would run {cell.method} on {cell.dataset} with "
            f"another {' and '.join(differing)} than this machine. Give both the same ledl and the same data, "
            "and start the worker again."
        )
    return try_cell(cell, device)
