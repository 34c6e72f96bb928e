"""Answer what the page may ask: which images, what they are called, what the model thinks. No HTTP here."""

from __future__ import annotations

import io
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ledl.arrays import Array
from ledl.files import read_regular, write_atomically
from ledl.image_models import thumbnail
from ledl.images import (
    LONGEST_LABEL,
    is_answer,
    read_image,
    shown,
    simplified,
)
from ledl.labelling._store import (
    BY,
    NAME,
    Answer,
    Change,
    Class,
    Image,
    Store,
    StoreError,
)
from ledl.labelling._worker import Job, Task, Worker
from ledl.text import JOINERS, is_printable, without_joiners

if TYPE_CHECKING:
    from ledl.lessons import Estimate, Lesson

VIEWS = ("ask", "check", "doubtful", "all")
STATES = ("labelled", "unlabelled", "skipped")
MOST_CLASSES = 1000
MOST_QUESTIONS = 500
FORECAST = 50  # labels more
FEWEST_CHECKS = 5  # of an estimate: "100 %" of one random check would say nothing
LARGE_SIDE = 1600  # pixels
LARGEST_THUMBNAIL = 2**20  # bytes, far more than one has


class RefusedError(ValueError):
    """A request that cannot be done. The message says why, and what can."""


class UnknownError(RefusedError):
    """A request about an image or a class that is not there."""


class Asked(NamedTuple):
    """Hold a lesson in terms of the images of the session."""

    lesson: Lesson
    classes: Array  # ids of the classes, in the order of the columns
    labels: Array  # (n_images,) what it has learnt from: ids of classes, 0 where there was no label
    number: int  # 0 if it is no model yet: less than two classes
    seconds: float


def is_below(top: str, path: str | Path) -> bool:
    """Return whether a file lies in a folder, behind all links. `top` is the folder behind all links."""
    return Path(os.path.realpath(path)).is_relative_to(top)


def alike(name: str) -> str:
    """Return what is the same for names of classes that read the same."""
    return simplified(without_joiners(name))


class Session:
    """Hold what is known about all images of a folder in arrays, so that each request is quick.

    All methods may be called from any thread. What changes something has stored it when it returns.
    """

    def __init__(
        self,
        folder: Path,
        store: Store,
        images: list[Image],
        unreadable: list[tuple[str, str]],
        extractor: Any,
        *,
        is_writer: bool = True,
    ) -> None:
        self.folder, self.store, self.is_writer = folder, store, is_writer
        self.lock = threading.RLock()
        self.on_change: Callable[[], object] = int  # called after each change, with the lock
        self.revision = int(time.time() * 1000)  # grows over restarts, too
        self.images, self.n = sorted(images, key=lambda image: image.path), len(images)
        self.names = [shown(image.path) for image in self.images]
        self.place = {image.id: i for i, image in enumerate(self.images)}
        self.unreadable = unreadable
        self.is_readable = np.ones(self.n, dtype=bool)
        self.extractor, self.top = extractor, os.path.realpath(folder)
        self.worker: Worker | None = None
        # What the images are called.
        self.label = np.zeros(self.n, dtype=np.int64)  # ids of classes, 0 for none
        self.is_skipped = np.zeros(self.n, dtype=bool)
        self.view = np.full(self.n, "", dtype=object)
        self.classes = store.classes()
        for answer in store.answers():
            self._apply(answer)
        self.undo_stack, self.redo_stack = store.stacks()
        # Random checks: an order of all images that only the seed of the store and their numbers decide.
        self.seed = store.get("seed")
        keys = [blake2b(f"{self.seed} {image.id}".encode(), digest_size=8).digest() for image in self.images]
        self.random_order = sorted(range(self.n), key=keys.__getitem__)
        self.rank = np.argsort(self.random_order)
        self.drawn = dict.fromkeys(self.place[key] for key in store.checks() if key in self.place)
        # What was learnt.
        self.progress: dict[str, Any] = {"done": 0, "total": self.n, "ready": False, "what": "", "error": None}
        self.notice: str | None = None
        self.rows = np.empty(0, dtype=np.int64)  # the image of each row of features
        self.row_of = np.full(self.n, -1)
        self.asked: Asked | None = None
        self.suggestion, self.second = np.zeros(self.n, dtype=np.int64), np.zeros(self.n, dtype=np.int64)
        self.probability = np.zeros(self.n, dtype=np.float32)
        self.doubt = dict[int, int]()  # images and what the model would call them, most doubtful first
        self.job = self.learnt_job = 0
        self.jobs: dict[int, Array] = {}  # the labels of lessons that are not learnt yet
        self.curve, n_labels = store.curve(), int((self.label > 0).sum())
        self.estimate = self.curve[-1] if self.curve and self.curve[-1][0] == n_labels else None

    # What a person says

    def answer(
        self,
        images: Sequence[int],
        label: int | None = None,
        *,
        new_class: str | None = None,
        skip: bool = False,
        view: str = "all",
        model: int | None = None,
        key: str | None = None,
    ) -> dict[str, Any]:
        """Store one label for images, or that nobody can say (`skip`), or take their labels away.

        `new_class` is the name of a class, which is made if there is none. `key` names the request: sent again
        because the answer to it was lost, it is stored once.
        """
        with self.lock:
            positions = [self.position(image) for image in dict.fromkeys(images)]
            if key is not None and self.store.has_key(key):
                items = [self.image(i) for i in positions]
                return {"revision": self.revision, "items": items, "class": items[0]["label"]}
            change = Change("", [], [])
            if new_class is not None:
                label = self._named(new_class) or self._add_class(change, new_class)
            elif label is not None:
                self._class(label)
            images = list(dict.fromkeys(images))
            change.answers.extend(Answer(key, label, skip, view, model) for key in images)
            name = next((c.name for c in (*change.classes, *self.classes.values()) if c.id == label), "")
            what = f"“{name}”" if label else "“cannot say”" if skip else "no label"
            n = f"{len(images)} images" if len(images) > 1 else self.names[self.place[images[0]]]
            done = self.do("do", change._replace(words=f"{n}: {what}"), key)
            return {**done, "class": label}

    def add_class(self, name: str) -> dict[str, Any]:
        """Store a new class."""
        with self.lock:
            change = Change("", [], [])
            key = self._add_class(change, name)
            return {
                **self.do("do", change._replace(words=f"new class “{change.classes[0].name}”")),
                "class": key,
            }

    def rename_class(self, key: int, name: str) -> dict[str, Any]:
        """Store another name of a class."""
        with self.lock:
            old, new = self._class(key), self.checked_name(name, besides=key)
            words = f"“{old.name}” renamed to “{new}”"
            return {**self.do("do", Change(words, [], [old._replace(name=new)])), "class": key}

    def merge_class(self, key: int, into: int) -> dict[str, Any]:
        """Give all images of a class to another class."""
        with self.lock:
            old, new = self._class(key), self._class(into)
            if key == into:
                raise RefusedError(f"“{old.name}” cannot be merged into itself. Choose another class.")
            # Also images that are gone: they may come back.
            answers = [a._replace(label=into) for a in self.store.answers() if a.label == key]
            words = f"“{old.name}” merged into “{new.name}”"
            gone = old._replace(gone=True, merged_into=into)
            done = self.do("do", Change(words, answers, [gone]))
            for guess in (self.suggestion, self.second):
                guess[guess == key] = into
            return {**done, "class": into}

    def delete_class(self, key: int) -> dict[str, Any]:
        """Take away a class that no image has."""
        with self.lock:
            old = self._class(key)
            n = sum(answer.label == key for answer in self.store.answers())
            if n:
                raise RefusedError(
                    f"“{old.name}” has {n} image{'s' if n > 1 else ''}. Give them another label first, or "
                    "merge the class into another one."
                )
            return self.do("do", Change(f"“{old.name}” deleted", [], [old._replace(gone=True)]))

    def undo(self) -> dict[str, Any]:
        """Take back the last request of the person."""
        with self.lock:
            if not self.undo_stack:
                raise RefusedError("There is nothing to undo.")
            return self._done(self.store.undo(*self.undo_stack[-1]), self.undo_stack, self.redo_stack)

    def redo(self) -> dict[str, Any]:
        """Repeat what was undone last."""
        with self.lock:
            if not self.redo_stack:
                raise RefusedError("There is nothing to redo.")
            return self._done(self.store.redo(*self.redo_stack[-1]), self.redo_stack, self.undo_stack)

    def do(
        self,
        kind: str,
        change: Change,
        key: str | None = None,
        settings: Mapping[str, str] = MappingProxyType({}),
    ) -> dict[str, Any]:
        """Store a change, and settings with it, then follow it."""
        batch = self.store.add(kind, change, key=key, settings=settings)
        self.redo_stack.clear()
        if kind == "do":
            self.undo_stack.append((batch, change.words))
        else:
            self.undo_stack.clear()
        return self._done(change)

    def _done(
        self,
        change: Change,
        source: list[tuple[int, str]] | None = None,
        target: list[tuple[int, str]] | None = None,
    ) -> dict[str, Any]:
        """Follow a change that is stored, and learn from it. Undo and redo move it between their lists."""
        if source is not None and target is not None:
            target.append(source.pop())
        for fact in change.classes:
            self.classes[fact.id] = fact
        touched = [i for answer in change.answers if (i := self._apply(answer)) is not None]
        self._changed()
        if touched:
            self.learn()
        return {"revision": self.revision, "items": [self.image(i) for i in touched]}

    def _apply(self, answer: Answer) -> int | None:
        i = self.place.get(answer.image)
        if i is not None:
            self.label[i], self.is_skipped[i] = answer.label or 0, answer.skipped
            self.view[i] = answer.view
        return i

    def _changed(self) -> None:
        self.revision += 1
        self.on_change()

    def position(self, key: int) -> int:
        """Return the position of the image with a number, or raise UnknownError."""
        if key not in self.place:
            raise UnknownError(f"There is no image with the number {key}. Load the page again.")
        return self.place[key]

    def _class(self, key: int) -> Class:
        found = self.classes.get(key)
        if found is None or found.gone:
            raise UnknownError(f"There is no class with the number {key}. Load the page again.")
        return found

    def _add_class(self, change: Change, name: str) -> int:
        if sum(not c.gone for c in self.classes.values()) >= MOST_CLASSES:
            raise RefusedError(
                f"There are {MOST_CLASSES} classes already, which is the limit. Merge some first."
            )
        key = len(self.classes) + 1
        change.classes.append(Class(key, self.checked_name(name)))
        return key

    def checked_name(self, name: str, besides: int = 0) -> str:
        """Return the name of a class without blanks at its ends. Raise RefusedError if it cannot be one."""
        name = name.strip().strip(JOINERS)
        if not name or not is_printable(name):
            raise RefusedError(
                "A class needs a name, of letters that can be printed and in one line. Type another."
            )
        if len(name) > LONGEST_LABEL:
            raise RefusedError(
                f"The name “{name[:40]}…” has {len(name):,} characters, but {LONGEST_LABEL} is the "
                "limit. Shorten it."
            )
        if is_answer(without_joiners(name)):
            raise RefusedError(f"“{name}” is kept for images that get no class. Type another name.")
        other = self._named(name, besides)
        if other is not None:
            how = " To join the two, merge one into the other." if besides else ""
            raise RefusedError(f"There is a class “{self.classes[other].name}” already.{how}")
        return name

    def _named(self, name: str, besides: int = 0) -> int | None:
        """Return the class with this name, or one that reads the same, or None."""
        same = (c.id for c in self.classes.values() if alike(c.name) == alike(name) and not c.gone)
        return next((key for key in same if key != besides), None)

    # What the page shows

    def image(self, i: int) -> dict[str, Any]:
        """Return what is known about the image at a position."""
        label, suggestion, second = (self._live(x[i]) for x in (self.label, self.suggestion, self.second))
        has_guess = label is None and suggestion is not None
        return {
            "id": self.images[i].id,
            "name": self.names[i],
            "label": label,
            "by": BY.get(self.view[i], "person") if label is not None else None,
            "skipped": bool(self.is_skipped[i]),
            "suggestion": suggestion if has_guess else None,
            "probability": round(float(self.probability[i]), 4) if has_guess else None,
            "second": second if has_guess else None,
            "check": i in self.drawn,
            "doubt": self._live(self.doubt.get(i, 0)) if self._is_doubtful(i) else None,
        }

    def _live(self, key: Any) -> int | None:
        found = self.classes.get(int(key))
        return None if found is None or found.gone else found.id

    def followed(self, key: int) -> int:
        """Return the class into which a class was merged, or itself, or 0 if it is gone."""
        found = self.classes[key]
        while found.merged_into is not None:
            found = self.classes[found.merged_into]
        return 0 if found.gone else found.id

    def _is_doubtful(self, i: int) -> bool:
        """Return whether the model contradicts a label that nobody has looked at again since."""
        asked = self.asked
        is_old = asked is not None and asked.labels[i] == self.label[i] != 0
        return (
            is_old and i in self.doubt and self.view[i] != "doubtful" and self._live(self.doubt[i]) is not None
        )

    def state(self) -> dict[str, Any]:
        """Return all that the page shows beside images."""
        with self.lock:
            is_open = self._is_open
            counts = Counter(self.label[(self.label > 0) & self.is_readable].tolist())
            guesses = Counter(self.suggestion[is_open].tolist())
            examples: dict[int, list[int]] = {}
            for i in np.flatnonzero((self.label > 0) & self.is_readable).tolist():
                shown_now = examples.setdefault(int(self.label[i]), [])
                if len(shown_now) < 4:
                    shown_now.append(self.images[i].id)
            asked, place = self.asked, self.store.place.absolute()
            return {
                "revision": self.revision,
                "folder": shown(self.folder.absolute()),
                "store": None if place == self.folder.absolute() / NAME else shown(place),
                "n_images": int(self.is_readable.sum()),
                "n_labelled": int(((self.label > 0) & self.is_readable).sum()),
                "n_skipped": int((self.is_skipped & self.is_readable).sum()),
                "n_doubtful": len(self.find("doubtful")),
                "unreadable": [list(pair) for pair in self.unreadable],
                "classes": [
                    {
                        "id": c.id,
                        "name": c.name,
                        "count": counts[c.id],
                        "n_suggested": guesses[c.id],
                        "examples": examples.get(c.id, []),
                    }
                    for c in self.classes.values()
                    if not c.gone
                ],
                "features": dict(self.progress),
                "model": None
                if asked is None or not asked.number
                else {
                    "number": asked.number,
                    "labels": int((asked.labels > 0).sum()),
                    "seconds": round(asked.seconds, 3),
                    "method": asked.lesson.method,
                },
                "learning": self.learnt_job < self.job,
                "estimate": None
                if self.estimate is None
                else dict(zip(("accuracy", "low", "high", "n_checks"), self.estimate[1:], strict=True)),
                "curve": [
                    dict(zip(("labels", "accuracy", "low", "high"), point, strict=False))
                    for point in self.curve
                ],
                "forecast": forecast(self.curve),
                "can_undo": self.undo_stack[-1][1] if self.undo_stack else None,
                "can_redo": self.redo_stack[-1][1] if self.redo_stack else None,
                "notice": self.notice,
            }

    def questions(self, n: int = 24, exclude: Collection[int] = ()) -> dict[str, Any]:
        """Return the images to ask about next: the most useful first, and random checks among them."""
        with self.lock:
            from ledl.lessons import mix

            left_out = {self.place[key] for key in exclude if key in self.place}
            n_checks, is_open = int(self._random_checks().sum()), self._is_open
            is_open[list(left_out)] = False
            asked = self.asked
            order = (
                [] if asked is None else self.rows[np.asarray(asked.lesson.questions, dtype=np.int64)].tolist()
            )
            rest = self.random_order
            if asked is not None and asked.number:
                rest = np.argsort(self.probability, kind="stable").tolist()
            useful = [i for i in dict.fromkeys([*order, *rest]) if is_open[i] and i not in self.drawn]
            by_lot = [i for i in self.random_order if is_open[i]]
            first = {*by_lot[: n // 3 + 1]}
            checks = [i for i in by_lot if i in first or i in self.drawn]
            mixed = mix([i for i in useful if i not in first], checks, n, n_checks)
            drawn = [int(i) for i, is_check in mixed if is_check and i not in self.drawn]
            if drawn and self.is_writer:
                self.store.add_checks([self.images[i].id for i in drawn])
                self.drawn |= dict.fromkeys(drawn)
            number = None if asked is None or not asked.number else asked.number
            return {"model": number, "items": [self.image(int(i)) for i, _ in mixed]}

    @property
    def _is_open(self) -> Array:
        """Say for each image whether a person may still be asked for its label."""
        return (self.label == 0) & ~self.is_skipped & self.is_readable

    def _random_checks(self) -> Array:
        """Say for each image whether it is a check with an answer, in a random sample of all images.

        Checks are the first images of a random order. New images, and those that are open again, lie anywhere
        in it: only the checks before the first open image are a sample of all, and not of others.
        """
        is_check = np.zeros(self.n, dtype=bool)
        is_check[list(self.drawn)] = True
        return is_check & (self.rank < self.rank[self._is_open].min(initial=self.n))

    def forget_curve(self, joined: Iterable[int]) -> None:
        """Begin another curve if images that have joined must be checked: the old one is of those before."""
        is_open = self._is_open
        last = max((self.rank[i] for i in self.drawn if not is_open[i]), default=-1)
        if any(is_open[i] and self.rank[i] < last for i in map(self.place.__getitem__, joined)):
            self.store.forget_curve()
            self.curve, self.estimate = [], None

    def find(
        self, view: str = "all", label: int | None = None, state: str | None = None, search: str = ""
    ) -> list[int]:
        """Return the positions of the images of a view, in its order."""
        with self.lock:
            is_in = self.is_readable.copy()
            if label is not None:
                self._class(label)
            if state is not None:
                states = (self.label > 0, (self.label == 0) & ~self.is_skipped, self.is_skipped)
                is_in &= dict(zip(STATES, states, strict=True))[state]
            if view == "check":
                is_in &= (self.label == 0) & ~self.is_skipped & (self.suggestion > 0)
                is_in &= (self.suggestion == label) | (label is None)
                order = np.argsort(-self.probability, kind="stable").tolist()
            elif view == "doubtful":
                is_in &= (self.label == label) | (label is None)
                order = [i for i in self.doubt if self._is_doubtful(i)]
            else:
                is_open = (self.label == 0) & ~self.is_skipped
                named = np.where(is_open, self.suggestion, self.label)  # labels, and suggestions without one
                is_in &= (named == label) | (label is None)
                order = list(range(self.n))
            words = search.casefold()
            return [i for i in order if is_in[i] and (not words or words in self.names[i].casefold())]

    def ids(self, positions: Iterable[int]) -> list[int]:
        """Return the numbers of images by which the page names them."""
        return [self.images[i].id for i in positions]

    def mark(self, i: int) -> str:
        """Return what no other image has, also of other labels, nor this one before it was changed."""
        image = self.images[i]
        text = f"{self.seed} {image.id} {image.size} {image.mtime}"
        return blake2b(text.encode(), digest_size=12).hexdigest()

    def picture(self, i: int) -> bytes:
        """Return an image as a small JPEG file, which is made once."""
        image, path = self.images[i], self._path(i)
        folder = self.store.place / "thumbs" / str(image.id // 1000)
        file = folder / f"{image.id}-{image.size:x}-{image.mtime:x}.jpg"
        with suppress(OSError):
            return read_regular(file, LARGEST_THUMBNAIL)
        content: bytes = thumbnail(path, self.extractor.max_pixels).tobytes()
        with suppress(OSError):  # a full disk: it is made again the next time
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomically(file, content)
        return content

    def large_picture(self, i: int) -> bytes:
        """Return an image as a JPEG file."""
        image = read_image(
            self._path(i), "RGB", max_pixels=self.extractor.max_pixels, name=self.names[i], shrink_to=LARGE_SIDE
        )
        image.thumbnail((LARGE_SIDE, LARGE_SIDE))
        out = io.BytesIO()
        image.save(out, "JPEG", quality=90)
        return out.getvalue()

    def _path(self, i: int) -> str:
        """Return where an image is: below the folder, behind all links."""
        path = str(self.folder / self.images[i].path)
        if not is_below(self.top, path):  # it was changed into a link since
            raise UnknownError(f"{self.names[i]} is a link to a file outside the folder. It is not shown.")
        return path

    def explain(self, key: int) -> dict[str, Any]:
        """Return why the model thinks so about an image."""
        with self.lock:
            i = self.position(key)
            asked, found = self.asked, self.image(i)
            row = int(self.row_of[i])
            answer: dict[str, Any] = {"image": found, "ranking": [], "because": [], "text": "", "model": None}
            if asked is None or not asked.number or row < 0:
                what = "It cannot be read." if not self.is_readable[i] else "Nothing was learnt yet. "
                more = "Give labels of two classes, and wait a moment." if self.is_readable[i] else ""
                return {**answer, "text": what + more}
            names = {key: c.name for key, c in self.classes.items()}
        shares = asked.lesson.probabilities[row]
        ranking: list[dict[str, Any]] = [
            {"class": self._live(asked.classes[j]), "probability": round(float(shares[j]), 4)}
            for j in np.argsort(-shares, kind="stable")[:5]
        ]
        rows, amounts = asked.lesson.influence(row)
        total = float(np.sum(amounts)) or 1.0
        because = [
            {
                "image": self.image(int(self.rows[r])),
                "share": round(float(a) / total, 4),
                "class": self._live(asked.labels[self.rows[r]]),
            }
            for r, a in list(zip(rows, amounts, strict=True))[:6]
            if a > 0
        ]
        best = ranking[0]
        text = f"It looks like “{names.get(best['class'] or 0, '')}” ({best['probability']:.0%})."
        if asked.labels[i]:
            text = f"Its label is “{names[int(asked.labels[i])]}”, so the model does not guess."
        if because:
            text += " The labelled images that count most here are shown, with their shares."
        return {**answer, "ranking": ranking, "because": because, "text": text, "model": asked.number}

    # What is learnt

    def start(self) -> None:
        """Start the process that makes features and learns."""
        self.worker = Worker(self.task(), self.report)

    def task(self) -> Task:
        """Return what a worker works on."""
        return Task(self.store.place, self.folder.absolute(), self.images, self.extractor)

    def close(self) -> None:
        """End the process that learns."""
        if self.worker is not None:
            self.worker.close()

    def learn(self) -> None:
        """Ask for a lesson of the labels as they are now."""
        with self.lock:
            if self.worker is not None and self.progress["ready"] and len(self.rows):
                self.worker.learn(self.next_job())

    def next_job(self) -> Job:
        """Return what is known now, to learn from it."""
        with self.lock:
            self.job += 1
            labels = self.label.copy()
            y = np.where(labels > 0, labels, -1)[self.rows]  # ids, so that a class stays the same class
            is_check = self._random_checks()
            self.jobs = {number: job for number, job in self.jobs.items() if number > self.learnt_job}
            self.jobs[self.job] = labels
            return Job(self.job, y, np.flatnonzero(is_check[self.rows] & (y >= 0)))

    def report(self, word: str, *what: Any) -> None:
        """Take in a message of the worker."""
        with self.lock:
            try:
                getattr(self, f"_on_{word}")(*what)
            except StoreError as error:  # a full disk: the thread that listens goes on, and so does learning
                self.notice = str(error)
            self._changed()

    def _on_progress(self, done: int, total: int, text: str) -> None:
        self.progress |= {"done": done, "total": total, "what": text}

    def _on_unreadable(self, bad: list[tuple[int, str]]) -> None:
        known = {name for name, _ in self.unreadable}
        for key, reason in bad:
            i = self.place[key]
            self.is_readable[i] = False
            if self.names[i] not in known:
                path = shown(self.folder.absolute() / self.images[i].path)
                self.unreadable.append((self.names[i], reason.replace(path, self.names[i])))

    def _on_ready(self, ids: list[int], contents: list[tuple[int, str]]) -> None:
        self.rows = np.array([self.place[key] for key in ids], dtype=np.int64)
        self.row_of[self.rows] = np.arange(len(ids))
        error = None if ids else "No image can be read, so nothing can be learnt."
        self.progress |= {"ready": True, "done": self.progress["total"], "error": error}
        self.learn()
        self._on_contents(contents)

    def _on_contents(self, contents: list[tuple[int, str]]) -> None:
        if self.is_writer:
            self.store.note_contents(contents)

    def _on_lesson(self, job: int, lesson: Lesson, seconds: float) -> None:
        # Not the classes of all labels: of copies of an image with different labels, one label counts.
        labels, classes = self.jobs.pop(job), lesson.classes
        self.learnt_job = job
        shares, number = lesson.probabilities, 0
        if shares.shape[1] > 1:
            n_labels = int((labels > 0).sum())
            number = self.store.add_lesson(n_labels, seconds, lesson.method) if self.is_writer else 1
        self.suggestion[:] = self.second[:] = 0
        self.probability[:] = 0
        if number:
            order = np.argsort(-shares, axis=1, kind="stable")
            is_new = labels[self.rows] == 0
            rows = self.rows[is_new]
            self.suggestion[rows], self.second[rows] = classes[order[is_new, 0]], classes[order[is_new, 1]]
            self.probability[rows] = shares.max(axis=1)[is_new]
            for gone in [c.id for c in self.classes.values() if c.gone]:
                for guess in (self.suggestion, self.second):
                    guess[guess == gone] = self.followed(gone)
        self.asked = Asked(lesson, classes, labels, number, seconds)
        doubtful, others = self.rows[lesson.doubtful], classes[lesson.doubtful_suggestions]
        self.doubt = dict(zip(doubtful.tolist(), others.tolist(), strict=True))
        self.notice = None  # what was wrong is over

    def _on_estimate(self, job: int, found: Estimate | None) -> None:
        # As after an undo, or with new images: better none than an old one.
        self.estimate = None
        if self.asked is None or not self.asked.number or found is None or found.n_checks < FEWEST_CHECKS:
            return
        values = (*map(float, found[:3]), int(found.n_checks))
        if self.is_writer:
            self.store.add_estimate(self.asked.number, *values)
        n_labels = int((self.asked.labels > 0).sum())
        self.estimate = (n_labels, *values)
        self.curve = [point for point in self.curve if point[0] != n_labels] + [self.estimate]

    def _on_failed(self, text: str, job: int | None = None) -> None:
        self.learnt_job = self.job if job is None else job
        self.notice = text
        if not self.progress["ready"]:
            self.progress["error"] = text

    def _on_died(self, why: str, is_final: bool) -> None:
        lost = f"The process that learns has ended ({why})."
        self.progress["ready"] = False
        if not is_final:
            self.notice = f"{lost} It was started again. Your answers are stored."
            return
        self.notice = f"{lost} It was started again once, and ended again. Your answers are stored."
        self.progress["error"] = f"{self.notice} To learn again, restart ledl label."
        self.learnt_job = self.job


def forecast(curve: Sequence[Sequence[float]]) -> dict[str, Any] | None:
    """Return what some more labels would bring: errors fall by a power of the number of labels.

    None unless there are three numbers of labels, the last at least half as large again as the first.
    """
    labels, accuracy = (np.array([point[k] for point in curve], dtype=float) for k in (0, 1))
    if len(np.unique(labels)) < 3 or labels.max() < 1.5 * labels.min():
        return None
    slope, start = np.polyfit(np.log(labels), np.log(np.clip(1 - accuracy, 0.5 / labels, None)), 1)
    more = int(labels.max()) + FORECAST
    now = accuracy[labels.argmax()]
    reached = 1 - np.exp(start + min(float(slope), 0.0) * np.log(more))
    return {"labels": FORECAST, "accuracy": round(float(max(now, reached)), 4)}
