"""Run cells on the workers of a Dask cluster. Workers compute; only this process writes to the store.

joblib's Dask backend would be shorter. But it waits forever for a task that Dask has given up (joblib 1.6), and
for workers if all have gone.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock, current_thread, main_thread
from typing import Any, TypeAlias

import numpy as np

from ledl.arrays import place
from ledl.code_digests import code_digests
from ledl.experiments._cells import Cell, Done, Store, as_json, try_cell

CONNECT_SECONDS, FIRST_WORKER_SECONDS, POLL_SECONDS = 10.0, 20.0, 1.0
ALONE_SECONDS = 60.0  # to wait for workers if all have gone: they may be restarting

SAME = "Install the same ledl, data and methods of your own there as here, and restart the worker."

# Cells in threads of one process would share its BLAS threads, which change rounding, and its warnings.
_one_at_a_time = Lock()
Asked: TypeAlias = tuple[Cell, Mapping[str, Any]]  # a cell, and its identity on the client


class WrongWorkerError(ValueError):
    """Raised for a worker that would return another result than this machine, or none."""


def distributed() -> Any:
    """Return the package distributed, or name the extra that has it."""
    try:
        return importlib.import_module("distributed")
    except ImportError as error:
        raise ImportError(
            f"Running on a Dask cluster needs the package distributed ({error}). Install it with "
            "pip install 'ledl[dask]', or leave out dask to use processes of this machine."
        ) from None


@contextmanager
def connected(address: str, cells: Iterable[Cell], device: str | None = None) -> Iterator[Workers]:
    """Yield the workers of the cluster at this address, or in this scheduler file.

    All of them have been checked: they would return this machine's results for the cells, and have the device.
    However the block ends, the cluster forgets the cells that are left.
    """
    dask = distributed()
    try:
        # Resolve the address first: a client of an invalid one is hard to close.
        is_file = Path(address).is_file()
        given = {"scheduler_file": address} if is_file else {"address": dask.comm.resolve_address(address)}
        opened = dask.Client(**given, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError) as error:
        raise ConnectionError(
            f"dask={address!r} does not answer as the scheduler of a Dask cluster ({error}). Give the address "
            "that 'dask scheduler' prints, such as tcp://192.168.0.1:8786, or the file that it writes with "
            "--scheduler-file."
        ) from None
    with opened as client:
        workers = Workers(client, address, cells, device)
        try:
            client.wait_for_workers(1, timeout=FIRST_WORKER_SECONDS)
        except TimeoutError:
            raise ConnectionError(
                f"dask={address!r} has a scheduler, but no worker answered in {FIRST_WORKER_SECONDS:.0f} s. "
                "Start workers: dask worker ADDRESS --nworkers 4 --nthreads 1"
            ) from None
        workers.check()
        with workers.holding_interrupts():
            yield workers


class Workers:
    """The workers of a cluster, which run one cell at a time each.

    Attributes
    ----------
    n : int
        Number of workers when they were last counted.
    """

    def __init__(self, client: Any, address: str, cells: Iterable[Cell], device: str | None) -> None:
        self._client, self._address, self._device = client, address, device
        one_of_a_kind = {(cell.dataset, cell.method): cell for cell in cells}.values()
        self._asked: list[Asked] = [(cell, as_json(cell.identity)) for cell in one_of_a_kind]
        self.n, self._interrupted = 0, False

    @contextmanager
    def holding_interrupts(self) -> Iterator[None]:
        """Keep Ctrl-C back until `run` is between two calls of Dask; a second one acts at once.

        In the middle of a call it could be lost (in a finalizer of a future), or reported as Dask's own error.
        """
        usual = signal.getsignal(signal.SIGINT)
        # The main thread alone receives signals, and a job in the background ignores this one.
        if current_thread() is not main_thread() or usual in (None, signal.SIG_IGN):
            yield
            return

        def hold(number: int, frame: Any) -> None:
            self._interrupted = True
            signal.signal(signal.SIGINT, usual)

        signal.signal(signal.SIGINT, hold)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, usual)
        if self._interrupted:  # after the last cell
            raise KeyboardInterrupt

    def check(self) -> None:
        """Count the workers; raise WrongWorkerError if one of them cannot be used."""
        answers = self._client.run(find_trouble_in_thread, self._asked, self._device, on_error="return")
        self.n = len(answers)
        for worker, trouble in answers.items():
            if trouble and not isinstance(trouble, OSError):  # which is of a worker that has just died
                # Any other error: the worker does not know the function.
                if not isinstance(trouble, str):
                    trouble = f"it has no ledl or no method of yours, or another one ({trouble}). {SAME}"
                raise WrongWorkerError(f"The worker {worker} cannot be used: {trouble}")

    def run(self, cells: Sequence[Cell], store: Store) -> Iterator[Done]:
        """Yield the cells as they end. If a worker dies, another one runs its cell again.

        Workers may come and go meanwhile. Each compares what it has with what the client has before each cell.
        """
        waiting, running, last_seen = deque(cells), dict[Any, Cell](), time.monotonic()
        try:
            while waiting or running:
                if self._interrupted:
                    raise KeyboardInterrupt
                n, self.n = self.n, len(self._client.nthreads())
                if self.n > n:
                    self.check()
                last_seen = time.monotonic() if self.n else last_seen
                if time.monotonic() - last_seen > ALONE_SECONDS:
                    raise TimeoutError(f"no worker for {ALONE_SECONDS:.0f} s")
                while waiting and len(running) < max(self.n, 1):
                    cell = waiting.popleft()
                    known = store.get_checked(cell)  # another run on the same store may have been faster
                    if known is not None:
                        yield Done(cell, known)
                        continue
                    task = (cell, as_json(cell.identity), self._device)
                    running[self._client.submit(run_here, *task, pure=False)] = cell
                if running:  # wait for a moment only: workers come and go
                    with self._client.as_current(), suppress(TimeoutError):
                        distributed().wait(list(running), timeout=POLL_SECONDS, return_when="FIRST_COMPLETED")
                for future in [future for future in running if future.done()]:
                    if future.status == "error":  # not of the cell: `try_cell` returns its errors
                        error = future.exception()
                        if isinstance(error, WrongWorkerError):
                            raise error
                        self.check()  # names the worker if one is to blame
                        why = f"{type(error).__name__}: {error}"
                        if isinstance(error, distributed().KilledWorker):
                            why = "every worker that ran it died, perhaps because memory ran out"
                        done = Done(running[future], None, why)
                    else:
                        try:
                            done = future.result(timeout=POLL_SECONDS)
                        except TimeoutError:  # the result was lost with its worker, and is computed again
                            continue
                    del running[future]
                    yield done
        except (OSError, CancelledError) as error:
            raise ConnectionError(
                f"The connection to the cluster, dask={self._address!r}, is lost ({error}). Finished cells are "
                "kept. When the cluster is back, run the same command to continue."
            ) from error


# Functions that run on a worker.


async def find_trouble_in_thread(asked: Sequence[Asked], device: str | None) -> str:
    """Return what `find_trouble` returns. The worker's event loop has to answer meanwhile."""
    return await asyncio.to_thread(find_trouble, asked, device)


def find_trouble(asked: Sequence[Asked], device: str | None) -> str:
    """Return why this worker would not return the client's results for these cells, or ""."""
    for cell, identity in asked:
        what = f"{cell.method} on {cell.dataset}"
        try:
            mine = as_json(cell.identity)
            if cell.own is not None:  # what was typed in comes with the cell, modules do not
                here = code_digests(cell.own.estimator, cell.own.grid)
                mine["source"] |= {module: own for module, own in here.items() if module != "__main__"}
        except (OSError, ValueError, ImportError) as error:
            return f"it cannot run {what} ({error}). Its LEDL_DATA is {os.environ.get('LEDL_DATA')!r}. {SAME}"
        for name, value in identity.items():
            if mine.get(name) != value:
                both = f"{str(mine.get(name))[:40]!r} there, {str(value)[:40]!r} here"
                return f"it would run {what} with a difference in {name} ({both}). {SAME}"
    try:
        place(np.empty(0), device)
    except (ValueError, ImportError, RuntimeError) as error:
        return str(error)
    return ""


def run_here(cell: Cell, identity: Mapping[str, Any], device: str | None) -> Done:
    """Return the cell with its result or error; raise WrongWorkerError if this worker cannot be used."""
    with _one_at_a_time:
        trouble = find_trouble([(cell, identity)], device)
        if trouble:
            raise WrongWorkerError(f"The worker {distributed().get_worker().address} cannot be used: {trouble}")
        return try_cell(cell, device)
