"""Keep the answers of a person on disk: every request is one transaction, and nothing is ever overwritten.

The history only grows. What an image is called now is its last answer, and undo is a new fact that says again
what was said before. So SIGKILL at any moment loses nothing that was acknowledged.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
import stat
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from functools import cache, partial
from graphlib import CycleError, TopologicalSorter
from hashlib import blake2b
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from ledl.arrays import Array
from ledl.files import write_atomically
from ledl.images import ImageError, content_key, shown

FORMAT = 2  # of the tables; a newer one is refused. 1 has no checksums
NAME = ".ledl-labels"  # of the folder in the folder of images
LABELS, BACKUP, LOCK, ADDRESS = "labels.sqlite", "labels-copy.sqlite", "lock.sqlite", "address"
OLD_BACKUP = "labels-at-last-start.sqlite"  # of format 1
# What SQLite reports if the disk is full or read-only, or the file is in use: it is not damaged then.
NOT_DAMAGED = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_READONLY,
}
ADVICE = (
    "Look whether the disk is full or read-only, or whether the file belongs to somebody else, and try again."
)
CHECKSUM = 16  # bytes
SETTINGS = 0  # their number among the checksums, the others are of batches
# Views of answers that are not a person's.
BY = {"folder": "folder", "table": "table"}

SUMS = "CREATE TABLE sums(batch INTEGER PRIMARY KEY, sum TEXT NOT NULL)"
TABLES = f"""
{SUMS};
CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE images(id INTEGER PRIMARY KEY, path BLOB UNIQUE NOT NULL, size INTEGER NOT NULL,
    mtime INTEGER NOT NULL, content TEXT, gone INTEGER NOT NULL DEFAULT 0);
CREATE TABLE batches(id INTEGER PRIMARY KEY, at REAL NOT NULL, kind TEXT NOT NULL, target INTEGER,
    words TEXT NOT NULL, key TEXT UNIQUE);
CREATE TABLE answers(id INTEGER PRIMARY KEY, batch INTEGER NOT NULL, image INTEGER NOT NULL, class INTEGER,
    skipped INTEGER NOT NULL, view TEXT NOT NULL, model INTEGER);
CREATE INDEX answers_of_image ON answers(image, id);
CREATE INDEX answers_of_batch ON answers(batch);
CREATE TABLE classes(id INTEGER PRIMARY KEY, batch INTEGER NOT NULL, class INTEGER NOT NULL,
    name TEXT NOT NULL, gone INTEGER NOT NULL, merged_into INTEGER);
CREATE TABLE checks(id INTEGER PRIMARY KEY, image INTEGER UNIQUE NOT NULL, at REAL NOT NULL);
CREATE TABLE lessons(number INTEGER PRIMARY KEY, at REAL NOT NULL, labels INTEGER NOT NULL,
    seconds REAL NOT NULL, method TEXT NOT NULL, accuracy REAL, low REAL, high REAL, checks INTEGER);
"""

# Finds rows that this module did not write, and settings that are no options: a store may come from a stranger.
STRANGE = """
SELECT 1 FROM images WHERE typeof(path)!='blob' OR typeof(size)!='integer' OR typeof(mtime)!='integer'
    OR typeof(content) NOT IN ('text', 'null') UNION ALL
SELECT 1 FROM classes WHERE typeof(class)!='integer' OR class NOT BETWEEN 1 AND 1000000000
    OR typeof(name)!='text' OR merged_into NOT IN (SELECT class FROM classes) UNION ALL
SELECT 1 FROM answers WHERE typeof(image)!='integer' OR typeof(view)!='text'
    OR class IS NOT NULL AND class NOT IN (SELECT class FROM classes) UNION ALL
SELECT 1 FROM meta WHERE typeof(key)!='text' OR typeof(value)!='text' UNION ALL
SELECT 1 FROM meta WHERE (key IN ('curve_after', 'max_pixels', 'port') OR substr(key, 1, 5)='word ')
    AND (value='' OR value GLOB '*[^0-9]*' OR length(value)>15 OR key='port' AND value+0>65535
    OR key='max_pixels' AND value+0>178956970) UNION ALL
SELECT 1 FROM meta WHERE key='size' AND value!='' AND (value GLOB '*[^0-9]*' OR length(value)>4
    OR value+0 NOT BETWEEN 1 AND 4096) UNION ALL
SELECT 1 FROM batches WHERE typeof(words)!='text' OR typeof(kind)!='text' UNION ALL
SELECT 1 FROM lessons WHERE labels NOT BETWEEN 0 AND 1000000000 OR accuracy NOT BETWEEN 0 AND 1
    OR low NOT BETWEEN 0 AND 1 OR high NOT BETWEEN 0 AND 1 OR checks NOT BETWEEN 0 AND 1000000000 LIMIT 1
"""


class StoreError(ValueError):
    """The labels cannot be opened or written. The message says what to do."""


class BusyError(StoreError):
    """Another process has the labels open to write."""


class Image(NamedTuple):
    """An image that the store knows."""

    id: int
    path: str  # relative to the folder, as the system spells it
    size: int
    mtime: int
    gone: bool = False


class Answer(NamedTuple):
    """What was said about an image. Neither a class nor skipped: its label was taken away."""

    image: int
    label: int | None
    skipped: bool
    view: str
    model: int | None = None


class Class(NamedTuple):
    """A class. One that is gone was deleted, undone or merged into another."""

    id: int
    name: str
    gone: bool = False
    merged_into: int | None = None


class Change(NamedTuple):
    """Hold what one request has said, with the words for it."""

    words: str
    answers: list[Answer]
    classes: list[Class]


def schema_of(db: sqlite3.Connection) -> dict[str, tuple[str, str]]:
    """Return what a file has by name, as type and SQL: tables, indexes, or views and triggers of a stranger."""
    rows = db.execute(
        "SELECT name, type, sql FROM sqlite_master WHERE sql IS NOT NULL "
        "AND NOT (type='table' AND name GLOB 'sqlite_stat[0-9]')"  # of ANALYZE, which some programs run
    )
    return {name: (kind, sql) for name, kind, sql in rows}


@cache
def our_schema() -> dict[str, tuple[str, str]]:
    """Return what a file of this format has."""
    with closing(sqlite3.connect(":memory:")) as db:
        db.executescript(TABLES)
        return schema_of(db)


def sums_of(db: sqlite3.Connection, since: int = 0) -> dict[int, str]:
    """Return a checksum of each batch from this one on, with the classes and answers in it."""
    sums = dict[int, str]()
    for table, key in (("batches", "id"), ("classes", "batch"), ("answers", "batch")):
        rows = db.execute(f"SELECT {key}, * FROM {table} WHERE {key}>=? ORDER BY {key}, id", (since,))
        for batch, *row in rows:
            sums[batch] = checksum(f"{sums.get(batch)} {row!a}".encode()).hex()
    return sums


def is_damage(error: sqlite3.Error) -> bool:
    """Return whether an error means that a file is damaged, and not that the disk is full or the like."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF not in NOT_DAMAGED


def checksum(content: bytes) -> bytes:
    """Return a checksum of a content."""
    return blake2b(content, digest_size=CHECKSUM).digest()


@contextmanager
def stored(place: Path) -> Iterator[None]:
    """Report what keeps a block from storing something, such as a full disk, in plain words."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        raise StoreError(
            f"Not stored: {error}. Look whether the disk of {shown(place)} is full or read-only, and try again."
        ) from error


def place_of(folder: Path, given: Path | None = None) -> Path:
    """Return the folder for the labels of a folder of images, and make it, for its owner alone.

    It lies in the folder of images, or among the user's data if nothing can be written there. Labels that are
    in one of the two places stay there, also if the rights of the folder have changed.
    """
    from platformdirs import user_data_path

    inside = folder / NAME
    key = blake2b(os.fsencode(os.path.realpath(folder)), digest_size=8).hexdigest()
    outside = user_data_path("ledl", appauthor=False) / "labels" / key
    if given is None:
        is_there = [os.path.exists(place / LABELS) or copy_in(place) is not None for place in (inside, outside)]
        if all(is_there) and not inside.samefile(outside):
            raise StoreError(
                f"There are two sets of labels of {shown(folder)}, in {shown(inside)} and in {shown(outside)}. "
                "Say which one with --store, or move the other away."
            )
        if is_there[0] or not is_there[1]:
            try:
                return _made(inside)
            except OSError as error:
                if inside.is_dir():
                    raise StoreError(
                        f"The labels of {shown(folder)} are in {shown(inside)}, but nothing can be written "
                        f"there: {error.strerror}. Allow it, or copy this folder and give the copy with "
                        "--store."
                    ) from error
    place = given or outside
    try:
        return _made(place)
    except OSError as error:
        raise StoreError(
            f"Labels cannot be written to {shown(place)}: {error.strerror}. Choose another folder with --store."
        ) from error


def check_files(place: Path) -> None:
    """Raise StoreError if something is no file where labels and features are: SQLite would write through links.

    Labels that come with the images of a stranger could name any file of the user, or a pipe.
    """
    # What cannot be opened is reported when it is needed.
    with suppress(OSError), os.scandir(place) as found:
        for entry in found:
            with suppress(FileNotFoundError):  # SQLite has deleted a file of its own
                mode = entry.stat(follow_symlinks=False).st_mode
                if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
                    raise StoreError(
                        f"{shown(entry.path)} is a link or a pipe. Labels are kept in files alone: remove it, "
                        "or give another folder with --store."
                    )


def copy_in(place: Path) -> Path | None:
    """Return the copy of the labels in a folder, if there is one."""
    return next((place / name for name in (BACKUP, OLD_BACKUP) if os.path.exists(place / name)), None)


def _made(place: Path) -> Path:
    """Make a folder for its owner alone. Raise OSError if nothing can be written there."""
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    probe = place / f".{secrets.token_hex(8)}"
    probe.touch()
    probe.unlink()
    return place


@contextmanager
def alone(place: Path) -> Iterator[None]:
    """Hold the lock of a store, which ends with this process. Raise BusyError if it is taken."""
    check_files(place)
    try:
        opened = sqlite3.connect(place / LOCK, timeout=0, isolation_level=None)
    except sqlite3.OperationalError as error:
        raise StoreError(f"{shown(place / LOCK)} cannot be opened: {error}. {ADVICE}") from error
    with closing(opened) as lock:
        try:
            lock.execute("BEGIN EXCLUSIVE")
        except sqlite3.DatabaseError as error:
            if is_damage(error):
                raise StoreError(f"{shown(place / LOCK)} is damaged ({error}). Delete this file.") from error
            if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise StoreError(f"{shown(place / LOCK)} cannot be written: {error}. {ADVICE}") from error
            with suppress(OSError):
                raise BusyError((place / ADDRESS).read_text("utf-8").strip()) from error
            raise BusyError("") from error
        (place / ADDRESS).unlink(missing_ok=True)  # of a server that was killed
        try:
            yield
        finally:
            (place / ADDRESS).unlink(missing_ok=True)


class Store:
    """Open the labels in a folder, or begin them. Call its methods from one thread at a time."""

    def __init__(self, place: Path, *, read_only: bool = False) -> None:
        self.place, self.file, self._is_writer = place, place / LABELS, False
        check_files(place)
        check_files(place / "thumbs")
        if read_only and not self.file.exists():
            raise self._no_labels()
        uri = f"{self.file.absolute().as_uri()}?mode={'ro' if read_only else 'rwc'}"
        try:
            with ExitStack() as opened:
                self.db = sqlite3.connect(
                    uri, uri=True, timeout=5, isolation_level=None, check_same_thread=False
                )
                # To see whether it is deleted. Closing a file lets go of SQLite's locks on it; not this way.
                self._held = os.open(self.file, getattr(os, "O_PATH", os.O_RDONLY))
                opened.callback(self.close)
                if not read_only:
                    with suppress(PermissionError):  # of another owner, or a disk that knows no access rights
                        os.chmod(self.file, 0o600)
                    self.db.execute("PRAGMA journal_mode=WAL")
                    self.db.execute("PRAGMA synchronous=FULL")
                self._begin(read_only)
                self.db.execute("BEGIN")  # all is read as it is now, also beside a page that writes
                self._check()
                if not read_only:  # a reader goes on with the labels as they are now
                    self.db.execute("COMMIT")
                    # What was said since is in a file of its own, whose damage SQLite takes for its end.
                    self.db.execute("PRAGMA wal_checkpoint")
                    if self.get("format") != str(FORMAT):
                        with self._transaction():
                            self.db.execute(SUMS)
                            self._store_sums(sums_of(self.db))
                            self.set(format=str(FORMAT))
                    self._back_up()
                self._is_writer = not read_only
                opened.pop_all()
        except sqlite3.DatabaseError as error:
            raise self._damaged(error) from error
        except UnicodeDecodeError as error:  # of a name in an error of SQLite
            raise self._damaged(sqlite3.DatabaseError("it is damaged")) from error

    def _begin(self, read_only: bool) -> None:
        """Make the tables if there are none. Raise an error if they must have been there."""
        if self.db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            return
        if copy_in(self.place):  # which must not be replaced by a copy of nothing
            raise sqlite3.DatabaseError("it was lost, or is empty")
        if read_only:
            raise self._no_labels()
        with self._transaction():
            for statement in TABLES.split(";")[:-1]:
                self.db.execute(statement)
            self.set(format=str(FORMAT), seed=secrets.token_hex(8), token=secrets.token_urlsafe(24))

    def _check(self) -> None:
        """Raise an error if the tables are damaged, older than their copy, or of a newer version."""
        in_copy = self._sums_in_copy()  # first: what is read here is of one moment, and the copy is not newer
        schema, ours = schema_of(self.db), dict(our_schema())
        # Views and triggers of a stranger would act if the tables were read, or written to.
        found = self.get("format") if schema.get("meta") == ours["meta"] else ""
        if not found.isdecimal():
            raise sqlite3.DatabaseError("it is not a table of ledl label")
        if int(found) > FORMAT:
            raise StoreError(
                f"{shown(self.file)} was written by a newer ledl (format {found}, this one knows {FORMAT}). "
                "Update ledl, or begin elsewhere with --store DIR."
            )
        if int(found) < FORMAT:
            del ours["sums"]
        if schema != ours:
            raise sqlite3.DatabaseError("it has other tables than those of ledl label")
        faults = [fault for (fault,) in self.db.execute("PRAGMA integrity_check(1)") if fault != "ok"]
        if faults:
            raise sqlite3.DatabaseError(faults[0])
        sums = sums_of(self.db)
        if int(found) == FORMAT:
            stored_sums = dict(self.db.execute("SELECT batch, sum FROM sums"))
            if stored_sums != sums | {SETTINGS: self._sum_of_settings()}:
                raise sqlite3.DatabaseError("what it says is not what was stored")
        if not in_copy.items() <= sums.items():
            raise sqlite3.DatabaseError(f"it lacks answers of {BACKUP} (remove that one if you mean it so)")
        for table in ("images", "checks", "lessons"):  # without checksums; what is no text raises
            deque(self.db.execute(f"SELECT * FROM {table}"), maxlen=0)
        merged = {one.id: [one.merged_into] for one in self.classes().values() if one.merged_into is not None}
        try:
            TopologicalSorter(merged).prepare()
        except CycleError:
            raise sqlite3.DatabaseError("classes are merged in a circle") from None
        try:
            self.stacks()
        except IndexError:
            raise sqlite3.DatabaseError("it undoes what was not said") from None
        if self.db.execute(STRANGE).fetchone():
            raise sqlite3.DatabaseError("it has rows that ledl label does not write")

    def _no_labels(self) -> StoreError:
        return StoreError(f"There are no labels yet in {shown(self.place)}. Begin with ledl label FOLDER.")

    def _sums_in_copy(self) -> dict[int, str]:
        """Return the checksums of batches in the copy of the labels, without those of damaged batches."""
        uri = f"{(self.place / BACKUP).absolute().as_uri()}?mode=ro&immutable=1"
        # Otherwise there is none, or it is damaged.
        with suppress(sqlite3.Error, UnicodeDecodeError), closing(sqlite3.connect(uri, uri=True)) as db:
            if schema_of(db) == our_schema():
                return dict(sums_of(db).items() & set(db.execute("SELECT batch, sum FROM sums")))
        return {}

    def _sum_of_settings(self) -> str:
        """Return a checksum of the settings and of the schema."""
        rows = self.db.execute(
            "SELECT key, value FROM meta UNION ALL SELECT 'table ' || name, sql FROM sqlite_master "
            "WHERE name NOT LIKE 'sqlite%' ORDER BY 1"
        )
        return checksum(ascii(rows.fetchall()).encode()).hex()

    def _store_sums(self, sums: Mapping[int, str]) -> None:
        self.db.executemany("INSERT OR REPLACE INTO sums VALUES(?, ?)", sums.items())

    def _damaged(self, error: sqlite3.DatabaseError) -> StoreError:
        if not is_damage(error):
            return StoreError(
                f"{shown(self.file)} cannot be opened: {error}. {ADVICE} The labels are as they were."
            )
        backup = copy_in(self.place)
        there = "a copy of your own, if you have one,"
        if backup:
            there = f"{shown(backup)}, which is of the last start or end of ledl label,"
        return StoreError(
            f"{shown(self.file)} cannot be read: {error}. Move it, {LABELS}-wal and {LABELS}-shm to another "
            f"folder, and copy {there} to {LABELS}. Or move the folder {shown(self.place)} away to begin again."
        )

    def _back_up(self) -> None:
        """Keep a copy of the labels, which were just found to be in order."""
        part = self.place / f"{BACKUP}.part"
        part.unlink(missing_ok=True)
        with closing(sqlite3.connect(part)) as copy:
            self.db.backup(copy)
        with suppress(PermissionError):
            part.chmod(0o600)
        part.replace(self.place / BACKUP)
        (self.place / OLD_BACKUP).unlink(missing_ok=True)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Store the block as a whole, or not at all. A full disk is an error in plain words."""
        with stored(self.place):
            try:
                self.db.execute("BEGIN IMMEDIATE")
                if self.is_deleted:
                    raise StoreError(
                        f"Not stored: the labels in {shown(self.place)} were deleted, or moved to another "
                        "disk, while they were open. End ledl label with Ctrl-C, and start it again."
                    )
                yield
                self.db.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    self.db.execute("ROLLBACK")
                raise

    def close(self) -> None:
        """Close the file, and keep a copy of the labels, if they are in order and there is room for it."""
        if self._is_writer:
            self._is_writer = False
            with suppress(sqlite3.Error, OSError, StoreError):
                # The name may be that of other labels by now.
                if os.path.samestat(os.fstat(self._held), os.stat(self.file)):
                    self._check()
                    self._back_up()
        self.db.close()
        if self._held >= 0:
            os.close(self._held)
            self._held = -1

    @property
    def is_deleted(self) -> bool:
        """Say whether the file has no name any more: what SQLite writes to it then is lost."""
        try:
            return os.fstat(self._held).st_nlink == 0
        except OSError:  # a disk of another machine
            return True

    def get(self, key: str, default: str = "") -> str:
        """Return a setting of this store."""
        found = self.db.execute("SELECT value FROM meta WHERE key=?", (key,)).fetchone()
        return default if found is None else str(found[0])

    def set(self, **values: str) -> None:
        """Store settings, all or none."""
        for text in (*values, *values.values()):
            try:
                text.encode()
            except UnicodeEncodeError:
                raise StoreError(
                    f"{shown(text)} cannot be kept for the next time, because it is not UTF-8. Rename it."
                ) from None
        with nullcontext() if self.db.in_transaction else self._transaction():
            self.db.executemany("INSERT OR REPLACE INTO meta VALUES(?, ?)", values.items())
            self._store_sums({SETTINGS: self._sum_of_settings()})

    def words(self) -> dict[str, int]:
        """Return which classes the words of folders and tables meant when they came: ids by source and word."""
        rows = self.db.execute("SELECT substr(key, 6), value FROM meta WHERE substr(key, 1, 5)='word '")
        return {word: int(value) for word, value in rows}

    # Images

    def sync(self, folder: Path, found: dict[str, tuple[int, int]]) -> list[Image]:
        """Take in the images that are there now: path, size and time of change. Return all that are known.

        Missing ones are marked as gone. A file that is new or has changed, and has the content of a missing or
        changed one, is that one: it was renamed, perhaps to the name of another.
        """
        known = {image.path: image for image in self.images()}
        # Images that are not, or not for sure, where they were.
        astray = {path: image for path, image in known.items() if found.get(path) != (image.size, image.mtime)}
        contents = self.contents()
        sizes = {image.size for image in astray.values() if image.id in contents}
        now = dict[str, str]()
        for path, (size, _) in found.items():
            if size in sizes and (path in astray or path not in known):
                with suppress(OSError, ImageError):  # the features will report it
                    now[path] = content_key(folder / path, is_image=True)
        read = [(content, os.fsencode(path)) for path, content in now.items()]
        for path in [path for path in now if path in astray and now[path] == contents.get(astray[path].id)]:
            del now[path], astray[path]  # only its time has changed
        by_content: dict[str, list[Image]] = {}
        for image in astray.values():
            by_content.setdefault(contents.get(image.id, ""), []).append(image)
        moved = {path: by_content[content].pop(0) for path, content in now.items() if by_content.get(content)}
        left = {image.id for image in moved.values()} | {known[path].id for path in moved if path in known}
        # An image that was gone, and whose name another one has now: cameras begin again at IMG_0001.
        left |= {
            image.id
            for path, image in astray.items()
            if image.gone and path in found and (found[path][0] != image.size or image.id in contents)
        }
        with self._transaction():
            self.db.execute("UPDATE images SET gone=1")
            # A name that no file has: for a moment, or until an image whose place was taken is found again.
            self.db.executemany(
                "UPDATE images SET path=? WHERE id=?", [(b"\0%d" % key, key) for key in sorted(left)]
            )
            for path, image in moved.items():
                self.db.execute("UPDATE images SET path=? WHERE id=?", (os.fsencode(path), image.id))
            # The content of a file that has changed is not known until it is read, here or for its features.
            self.db.executemany(
                "INSERT INTO images(path, size, mtime) VALUES(?, ?, ?) ON CONFLICT(path) DO UPDATE SET gone=0, "
                "content=CASE WHEN size=excluded.size AND mtime=excluded.mtime THEN content END, "
                "size=excluded.size, mtime=excluded.mtime",
                [(os.fsencode(path), *what) for path, what in found.items()],
            )
            self.db.executemany("UPDATE images SET content=? WHERE path=?", read)
        return self.images()

    def images(self) -> list[Image]:
        """Return all images that were ever found."""
        rows = self.db.execute("SELECT id, path, size, mtime, gone FROM images ORDER BY id")
        return [Image(key, os.fsdecode(path), size, mtime, bool(gone)) for key, path, size, mtime, gone in rows]

    def contents(self) -> dict[int, str]:
        """Return the sha256 of images by their ids, as far as it is known."""
        return dict(self.db.execute("SELECT id, content FROM images WHERE content IS NOT NULL"))

    def note_contents(self, contents: Iterable[tuple[int, str]]) -> None:
        """Store the sha256 of images, by which renamed ones are recognised."""
        with self._transaction():
            self.db.executemany(
                "UPDATE images SET content=? WHERE id=?", [(content, key) for key, content in contents]
            )

    # What a person says

    def classes(self) -> dict[int, Class]:
        """Return all classes that there ever were, by id."""
        rows = self.db.execute("SELECT class, name, gone, merged_into FROM classes ORDER BY id")
        return {row[0]: _class(row) for row in rows}

    def names(self) -> list[tuple[str, int]]:
        """Return all names that classes ever had, with their ids, the newest last."""
        return self.db.execute("SELECT name, class FROM classes ORDER BY id").fetchall()

    def answers(self) -> list[Answer]:
        """Return the last answer for each image."""
        rows = self.db.execute(
            "SELECT image, class, skipped, view, model FROM answers JOIN "
            "(SELECT max(id) AS id FROM answers GROUP BY image) USING(id)"
        )
        return [_answer(row) for row in rows]

    def add(
        self,
        kind: str,
        change: Change,
        target: int | None = None,
        *,
        key: str | None = None,
        settings: Mapping[str, str] = MappingProxyType({}),
    ) -> int:
        """Store a change of a kind: do, undo, redo or import. It is on disk when this returns its number.

        `key` is the sender's name for the request, by which `has_key` knows it if it is sent again. `settings`
        are stored with it: both or none.
        """
        with self._transaction():
            if settings:
                self.set(**settings)
            batch = self.db.execute(
                "INSERT INTO batches(at, kind, target, words, key) VALUES(?, ?, ?, ?, ?)",
                (time.time(), kind, target, change.words, key),
            ).lastrowid
            self.db.executemany(
                "INSERT INTO classes(batch, class, name, gone, merged_into) VALUES(?, ?, ?, ?, ?)",
                [(batch, *fact) for fact in change.classes],
            )
            self.db.executemany(
                "INSERT INTO answers(batch, image, class, skipped, view, model) VALUES(?, ?, ?, ?, ?, ?)",
                [(batch, *answer) for answer in change.answers],
            )
            self._store_sums(sums_of(self.db, int(batch or 0)))
        return int(batch or 0)

    def stacks(self) -> tuple[list[tuple[int, str]], list[tuple[int, str]]]:
        """Return what can be undone and what can be redone: numbers and words, the next one last.

        What the folders or a table have said is not a request of the person, and nothing before it is undone.
        """
        undo: list[tuple[int, str]] = []
        redo: list[tuple[int, str]] = []
        for key, kind, words in self.db.execute("SELECT id, kind, words FROM batches ORDER BY id"):
            if kind == "undo":
                redo.append(undo.pop())
            elif kind == "redo":
                undo.append(redo.pop())
            else:
                redo.clear()
                if kind == "do":
                    undo.append((key, words))
                else:
                    undo.clear()
        return undo, redo

    def undo(self, batch: int, words: str) -> Change:
        """Say again what was said before a change."""
        answers = [
            _answer(
                (
                    image,
                    *(
                        self._before("class, skipped, view, model", "answers", "image", image, batch)
                        or (None, 0, "undo", None)
                    ),
                )
            )
            for (image,) in self.db.execute(
                "SELECT DISTINCT image FROM answers WHERE batch=?", (batch,)
            ).fetchall()
        ]
        changed = self.db.execute("SELECT class, name FROM classes WHERE batch=? ORDER BY id DESC", (batch,))
        classes = [
            _class(
                (
                    key,
                    *(
                        self._before("name, gone, merged_into", "classes", "class", key, batch)
                        or (name, 1, None)
                    ),
                )
            )
            for key, name in changed.fetchall()
        ]
        change = Change(words, answers, classes)
        self.add("undo", change, batch)
        return change

    def _before(self, what: str, table: str, key: str, item: int, batch: int) -> Any:
        """Return the last fact about an item before a change, or None."""
        query = f"SELECT {what} FROM {table} WHERE {key}=? AND batch<? ORDER BY id DESC LIMIT 1"
        return self.db.execute(query, (item, batch)).fetchone()

    def redo(self, batch: int, words: str) -> Change:
        """Say again what a change has said."""
        rows = self.db.execute(
            "SELECT image, class, skipped, view, model FROM answers WHERE batch=? ORDER BY id", (batch,)
        )
        facts = self.db.execute(
            "SELECT class, name, gone, merged_into FROM classes WHERE batch=? ORDER BY id", (batch,)
        )
        change = Change(words, [_answer(row) for row in rows], [_class(row) for row in facts])
        self.add("redo", change, batch)
        return change

    # Random checks, and what was learnt

    def checks(self) -> list[int]:
        """Return the images that were drawn as checks, in this order."""
        return [image for (image,) in self.db.execute("SELECT image FROM checks ORDER BY id")]

    def has_key(self, key: str) -> bool:
        """Return whether a request with this key is stored."""
        return self.db.execute("SELECT 1 FROM batches WHERE key = ?", (key,)).fetchone() is not None

    def add_checks(self, images: Sequence[int]) -> None:
        """Store that images were drawn as checks."""
        with self._transaction():
            self.db.executemany(
                "INSERT INTO checks(image, at) VALUES(?, ?)", [(image, time.time()) for image in images]
            )

    def add_lesson(self, labels: int, seconds: float, method: str) -> int:
        """Store that something was learnt, and return its number."""
        with self._transaction():
            return int(
                self.db.execute(
                    "INSERT INTO lessons(at, labels, seconds, method) VALUES(?, ?, ?, ?)",
                    (time.time(), labels, seconds, method),
                ).lastrowid
                or 0
            )

    def add_estimate(self, number: int, accuracy: float, low: float, high: float, checks: float) -> None:
        """Store how good a lesson is."""
        with self._transaction():
            self.db.execute(
                "UPDATE lessons SET accuracy=?, low=?, high=?, checks=? WHERE number=?",
                (accuracy, low, high, checks, number),
            )

    def curve(self) -> list[tuple[Any, ...]]:
        """Return labels, accuracy, interval and checks of lessons: the last for each number of labels."""
        return self.db.execute(
            "SELECT labels, accuracy, low, high, checks FROM lessons JOIN (SELECT max(number) AS number FROM "
            "lessons WHERE accuracy IS NOT NULL AND number>? GROUP BY labels) USING(number) ORDER BY number",
            (int(self.get("curve_after", "0")),),
        ).fetchall()

    def forget_curve(self) -> None:
        """Begin another curve, because the lessons so far were about other images."""
        (last,) = self.db.execute("SELECT max(number) FROM lessons").fetchone()
        self.set(curve_after=str(last or 0))


def _answer(row: Sequence[Any]) -> Answer:
    image, label, skipped, view, model = row
    return Answer(image, label, bool(skipped), view, model)


def _class(row: Sequence[Any]) -> Class:
    key, name, gone, merged_into = row
    return Class(key, name, bool(gone), merged_into)


class FeatureRows:
    """Keep the features of images by their ids, so that they are made once, in a file for each extractor.

    A row counts as long as size and time of change of the file are the same. It ends with a checksum.
    """

    def __init__(self, place: Path, recipe: str) -> None:
        (place / "features").mkdir(mode=0o700, exist_ok=True)
        check_files(place / "features")
        self.file = place / "features" / f"{blake2b(recipe.encode(), digest_size=8).hexdigest()}.sqlite"
        with stored(place):
            try:
                self._open()
            except sqlite3.DatabaseError as error:
                if not is_damage(error):
                    raise
                for end in ("", "-wal", "-shm"):  # features can be made again
                    Path(f"{self.file}{end}").unlink(missing_ok=True)
                self._open()
        write_atomically(self.file.with_suffix(".txt"), recipe.encode())

    def _open(self) -> None:
        """Open the file, or begin it. Raise sqlite3.DatabaseError if it is damaged."""
        self.db = sqlite3.connect(self.file, timeout=5)
        # Damaged text is not what the checksum was made of.
        self.db.text_factory = partial(str, encoding="utf-8", errors="replace")
        self.db.execute("PRAGMA journal_mode=WAL")
        self.db.execute("PRAGMA synchronous=NORMAL")
        self.db.execute(
            "CREATE TABLE IF NOT EXISTS rows(image INTEGER PRIMARY KEY, size INTEGER, mtime INTEGER, "
            "content TEXT, row BLOB)"
        )
        (fault,) = self.db.execute("PRAGMA quick_check(1)").fetchone()
        if fault != "ok":
            raise sqlite3.DatabaseError(fault)

    def close(self) -> None:
        """Close the file."""
        self.db.close()

    def known(self, images: Sequence[Image], read: Callable[[Image], str | None]) -> set[int]:
        """Return the ids of those images that have features. `read` returns the sha256 of an image.

        It is asked for if only the time of change is another one, as in a copy of the folder. Damaged rows do
        not count.
        """
        rows = self.db.execute("SELECT image, size, mtime, content, row FROM rows")
        there = {
            image: (size, mtime, content)
            for image, size, mtime, content, row in rows
            if isinstance(row, bytes) and row == _with_checksum(image, size, content, row[:-CHECKSUM])
        }
        found, copies = set(), []
        for image in images:
            size, mtime, content = there.get(image.id, (None, None, None))
            if (size, mtime) == (image.size, image.mtime):
                found.add(image.id)
            elif size == image.size and content is not None and read(image) == content:
                copies.append((image.mtime, image.id))
        with stored(self.file.parent), self.db:
            self.db.executemany("UPDATE rows SET mtime=? WHERE image=?", copies)
        return found | {key for _, key in copies}

    def contents(self, ids: Sequence[int]) -> list[tuple[int, str]]:
        """Return the sha256 of images, as far as it is known."""
        known = dict(self.db.execute("SELECT image, content FROM rows WHERE content IS NOT NULL"))
        return [(key, known[key]) for key in ids if key in known]

    def put(self, images: Sequence[Image], contents: Sequence[str | None], rows: Array) -> None:
        """Store the features of images, and the sha256 of their files."""
        with stored(self.file.parent), self.db:
            for image, content, row in zip(images, contents, rows.astype(np.float32), strict=True):
                whole = _with_checksum(image.id, image.size, content, row.tobytes())
                what = image.id, image.size, image.mtime, content, whole
                self.db.execute("INSERT OR REPLACE INTO rows VALUES(?, ?, ?, ?, ?)", what)

    def matrix(self, ids: Sequence[int]) -> Array:
        """Return the features of images, (n, d), float32."""
        X = np.empty((len(ids), 0), dtype=np.float32)
        place = {key: i for i, key in enumerate(ids)}
        for image, row in self.db.execute("SELECT image, row FROM rows"):
            if image in place:
                values = np.frombuffer(row[:-CHECKSUM], dtype=np.float32)
                if not X.shape[1]:
                    X = np.empty((len(ids), len(values)), dtype=np.float32)
                X[place[image]] = values
        return X


def _with_checksum(image: int, size: int, content: str | None, row: bytes) -> bytes:
    """Return the features of an image with a checksum of these and of what they are of."""
    return row + checksum(f"{image} {size} {content} ".encode() + row)
