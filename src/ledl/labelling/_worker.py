"""Make features and learn in a process of its own, so that answers never wait for it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ledl.arrays import Array
from ledl.image_models import describe, extract
from ledl.images import content_if_readable, shown
from ledl.labelling._store import FeatureRows, Image

# Newer labels come before an estimate, unless the last one is this old.
PATIENCE = 10.0  # seconds
# A worker that dies is started again so many times.
RESTARTS = 1


class Task(NamedTuple):
    """Say what a worker works on."""

    place: Path  # of the store
    folder: Path
    images: list[Image]
    extractor: Any


class Job(NamedTuple):
    """Say what is known, to learn from it."""

    number: int
    y: Array  # (n,) class numbers of the images with features, -1 where there is no label
    checks: Array  # rows that were drawn at random, and have labels


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Keep Ctrl-C from processes that start in this block: it would end their imports with a traceback."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    resource_tracker.ensure_running()  # otherwise the first start begins this process, and lets Ctrl-C through
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Worker:
    """Run the process. `report` gets its messages, in a thread of their own: a word, and what belongs to it.

    ("progress", done, total, text), ("unreadable", [(id, reason)]), ("contents", [(id, sha256)]),
    ("ready", ids, contents),
    ("lesson", number, Lesson, seconds), ("estimate", number, Estimate or None), ("failed", text[, number]),
    ("died", text, is_final).
    """

    def __init__(self, task: Task, report: Callable[..., None]) -> None:
        self._task, self._report = task, report
        self._news = threading.Condition()
        self._job: Job | None = None
        self._is_closed = False
        self._start()
        threading.Thread(target=self._listen, daemon=True).start()
        threading.Thread(target=self._send, daemon=True).start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self.process = context.Process(target=work, args=(theirs, self._task), daemon=True, name="ledl label")
        with interrupts_held():  # Ctrl-C is for the server, which ends this process
            self.process.start()
        theirs.close()  # so that our end closes when the process dies

    def learn(self, job: Job) -> None:
        """Learn from this, after what is being learnt now; a job that still waits is dropped."""
        with self._news:
            self._job = job
            self._news.notify_all()

    def close(self) -> None:
        """End the process."""
        with self._news:
            self._is_closed = True
            self._news.notify_all()
        self.process.terminate()
        self.process.join(5)

    def _send(self) -> None:
        """Send the newest job. A pipe may be full, which must not hold up an answer."""
        while True:
            with self._news:
                self._news.wait_for(lambda: self._job is not None or self._is_closed)
                job, self._job, connection = self._job, None, self._connection
            if self._is_closed:
                return
            with suppress(OSError):  # it has died; `_listen` reports it
                connection.send(job)

    def _listen(self) -> None:
        """Pass messages on, and start the process again if it dies."""
        for restart in range(RESTARTS + 1):
            try:
                while True:
                    self._report(*self._connection.recv())
            except (EOFError, OSError):
                self.process.join(5)
            if self._is_closed:
                return
            self._report("died", _why(self.process.exitcode), restart == RESTARTS)
            if restart < RESTARTS:
                self._start()


def _why(status: int | None) -> str:
    if status == -signal.SIGKILL:
        return "the system has killed it, perhaps because memory was short"
    return f"exit status {status}"


class Inbox:
    """Hold the newest job that has come, and end this process when the server is gone."""

    def __init__(self, connection: Connection) -> None:
        self._connection, self._news = connection, threading.Condition()
        self._job: Job | None = None
        threading.Thread(target=self._receive, daemon=True).start()

    def _receive(self) -> None:
        try:
            while True:
                job = self._connection.recv()
                with self._news:
                    self._job = job
                    self._news.notify_all()
        except (EOFError, OSError):
            os._exit(0)

    def send(self, message: Any) -> None:
        """Send a message to the server."""
        try:
            self._connection.send(message)
        except OSError:
            os._exit(0)

    def has_news(self) -> bool:
        """Return whether a newer job waits."""
        return self._job is not None

    def take(self) -> Job:
        """Wait for a job, and return it."""
        with self._news:
            self._news.wait_for(self.has_news)
            job, self._job = self._job, None
        assert job is not None
        return job


def work(connection: Connection, task: Task) -> None:
    """Make features first, then learn one lesson after another: all that the process does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(AttributeError, OSError):  # not on every system
        os.nice(5)
    inbox = Inbox(connection)
    try:
        X = prepare(task, inbox.send)
    except Exception as error:  # of networks, decoders, disks: all are reported
        inbox.send(("failed", f"The features cannot be made: {error or type(error).__name__}"))
        while True:  # until the server ends
            inbox.take()
    teach(X, inbox, inbox.send)


def prepare(task: Task, send: Callable[[Any], None]) -> Array:
    """Make the features that are missing, send what they are of, and return all."""
    ids, rows = make_features(task, send)
    X, contents = rows.matrix(ids), rows.contents(ids)
    rows.close()
    send(("ready", ids, contents))
    return X


def make_features(task: Task, send: Callable[[Any], None]) -> tuple[list[int], FeatureRows]:
    """Make the features of images that have none yet. Return the ids of all with features, and these."""
    send(("progress", 0, len(task.images), "getting ready"))
    extractor = task.extractor.fit()
    store = FeatureRows(task.place, recipe_of(extractor))
    known = store.known(task.images, lambda image: content_if_readable(task.folder / image.path))
    new = [image for image in task.images if image.id not in known]
    done, total, what = len(known), len(task.images), describe(extractor)
    send(("progress", done, total, what))
    paths = [task.folder / image.path for image in new]
    for chunk, rows, reasons in extract(extractor, paths) if paths else ():
        good = ~np.isnan(rows).any(axis=1)
        images = [image for image, is_good in zip(new[chunk], good, strict=True) if is_good]
        contents = [content_if_readable(task.folder / image.path) for image in images]
        store.put(images, contents, rows[good])
        # At once: the person may stop here, and move the images.
        send(("contents", [(image.id, one) for image, one in zip(images, contents, strict=True) if one]))
        known |= {image.id for image in images}
        bad = [
            (image.id, reasons.get(shown(path), "Its features are NaN. The network may be broken."))
            for image, path, is_good in zip(new[chunk], paths[chunk], good, strict=True)
            if not is_good
        ]
        if bad:
            send(("unreadable", bad))
        done += len(rows)
        send(("progress", done, total, what))
    return [image.id for image in task.images if image.id in known], store


def recipe_of(extractor: Any) -> str:
    """Return text that changes with whatever changes the features."""
    parts = {**extractor.get_params(), "identity": getattr(extractor, "identity_", "")}
    parts["preprocessing"] = getattr(extractor, "preprocessing_", None)
    for name in ("cache", "on_error", "progress", "batch_size", "max_pixels"):
        parts.pop(name, None)
    return f"{type(extractor).__name__} {sorted((name, str(value)) for name, value in parts.items())}"


def teach(X: Array, inbox: Inbox, send: Callable[[Any], None]) -> None:
    """Learn from the newest labels again and again, and estimate how good it is in between."""
    from ledl.lessons import Learner

    learner: Learner | None = None
    last_estimate = -PATIENCE
    while True:
        job = inbox.take()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # few labels, one class: usual here
                if learner is None:
                    learner = Learner(X, n_jobs=-1)
                start = time.perf_counter()
                lesson = learner.learn(job.y)  # not given up for newer labels, which may never stop coming
                send(("lesson", job.number, lesson, time.perf_counter() - start))
                is_old = time.monotonic() - last_estimate >= PATIENCE
                if is_old or not inbox.has_news():
                    send(("estimate", job.number, learner.estimate(job.y, job.checks)))
                    last_estimate = time.monotonic()
        except Exception as error:  # the person goes on answering; the page says what is wrong
            send(("failed", f"Nothing could be learnt: {type(error).__name__}: {error}", job.number))
