"""Put images into a folder for each class. Nothing is overwritten, and putting them again changes nothing."""

from __future__ import annotations

import filecmp
import os
import re
import shutil
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from hashlib import blake2b
from itertools import chain, count
from pathlib import Path

from ledl.files import open_regular, place_for, remove_abandoned, unfinished
from ledl.images._folders import REJECTED, UNSURE, Unused, check_names, image_files, is_hidden, simplified
from ledl.images._reading import ImageError, content_key, shown
from ledl.text import is_printable

# Names that Windows keeps for devices, with any ending.
DEVICES = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.IGNORECASE)
NUMBERED = re.compile(r" \(\d+\)$")  # what is added to names that are taken
LONGEST_NAME = 255  # bytes, on nearly all file systems
SOME_BYTES = 4096  # at three places of a file, before all of it is read


@dataclass(slots=True)
class Alike:
    """Files of one size and one name, apart from numbers."""

    new: list[Path] = field(default_factory=list)
    read: dict[str, list[Path]] = field(default_factory=dict)  # by `content_key`


class Sorter:
    """Put images into the folders of their classes below `folder`, which is made when it is needed.

    `how` is "copy", "link" (a symbolic link) or "move". Raise an error now, before anything is written, if a
    class cannot be the name of a folder, or if nothing can be written there.

    What lies in a folder below `folder` stays there, whatever name the folder has: a person may have put it
    there. But a folder among the `given` paths, or around a file among them, is there to be sorted, unless it
    is that of a class. So is what lies in `folder` before any class has one.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        classes: Sequence[str],
        how: str = "copy",
        given: Sequence[str | os.PathLike[str]] = (),
    ) -> None:
        self.folder, self.how = Path(folder), how
        self.names = [*classes, UNSURE, REJECTED]
        self.counts: Counter[str] = Counter()  # images by name
        self.n_there = 0  # images that were there already
        self.left: list[Path] = []  # what was there already, but in another folder
        for name in classes:
            reason = why_no_folder(name)
            if reason:
                raise ValueError(
                    f"The class {name!r} cannot be a folder: {reason}. Train with another name, or write a "
                    "table instead: --format csv."
                )
        check_names(dict.fromkeys(self.names, "the model"))
        first = next(path for path in (self.folder, *self.folder.absolute().parents) if path.exists())
        for place in (first, *(self.folder / name for name in self.names)):
            if place.exists() and not place.is_dir():
                raise NotADirectoryError(f"{shown(place)} is a file, not a folder. Choose another folder.")
            if place.exists():
                place_for(place / "image")  # raises if nothing can be written there
        self._top = Path(os.path.realpath(self.folder))
        self._homes = {Path(os.path.realpath(self.folder / name)) for name in self.names}
        around = (path if os.path.isdir(path) else Path(path).parent for path in given)
        self._given = {*map(Path, map(os.path.realpath, around))}
        if any(home.exists() for home in self._homes):  # else nothing was sorted there yet
            self._given = {path for path in self._given if self._top in path.parents}
        for name in self.names:
            remove_abandoned(self.folder / name)
        files = image_files([self.folder])[0] if self.folder.is_dir() else []
        there = self._sorted_among({file.parent for file in files})
        # What is sorted already, by its size; once an image has that size, by some bytes, too; and once it has
        # these, by content and folder. Images of one camera may all have the same size.
        self._unread: defaultdict[int, list[Path]] = defaultdict(list)
        self._alike: defaultdict[tuple[int, bytes], list[Path]] = defaultdict(list)
        self._read: defaultdict[tuple[int, bytes], dict[str, dict[str, Path]]] = defaultdict(dict)
        self._names_before: set[str] = set()  # also those that the images may have had
        for file in files:
            if file.parent in there:
                with suppress(OSError):  # it is gone, or a link to nothing
                    self._unread[file.stat().st_size].append(file)
                    self._names_before |= {file.name, NUMBERED.sub("", file.stem) + file.suffix}
        # Images of one name get numbers: how many are taken in a folder, and the files there by their size.
        self._n_taken: Counter[tuple[Path, str]] = Counter()
        self._taken: defaultdict[tuple[Path, str, int], Alike] = defaultdict(Alike)
        self._key = cache(content_key)  # reads a file once

    def leave_out(self, files: Sequence[Path]) -> tuple[list[bool], Unused]:
        """Return for each image if it is not to be sorted, and these as what is not used, with the reason.

        An image may be in a folder there already. One that is to be moved can be moved only once,
        however often it is given, also by links. Raise PermissionError if images cannot be moved.
        """
        parents = {file.parent for file in files}
        inside = self._sorted_among(parents)
        reasons = [inside.get(file.parent, "") for file in files]
        if self.how == "move":
            for parent in parents - inside.keys():
                if not os.access(parent, os.W_OK | os.X_OK):
                    raise PermissionError(
                        f"Images cannot be taken away from {shown(parent)}: nothing can be changed in this "
                        "folder. Copy them instead: leave --sort-by move out."
                    )
            first: dict[str, int] = {}
            for i in sorted(range(len(files)), key=lambda i: files[i].is_symlink()):  # links come last
                if first.setdefault(os.path.realpath(files[i]), i) != i:
                    reasons[i] = reasons[i] or "given twice, or a link to an image that is moved"
        unused = [(file, reason) for file, reason in zip(files, reasons, strict=True) if reason]
        return [bool(reason) for reason in reasons], unused

    def moved_before(self) -> set[str]:
        """Return the names of images that an earlier run may have moved: none, if this one does not move."""
        return self._names_before if self.how == "move" else set()

    def put(self, image: str | os.PathLike[str], name: str) -> Path:
        """Put an image into the folder of a class, `UNSURE` or `REJECTED`, under a name that is free.

        One whose content was in a folder there before is left out. Return where the image is now: there if it
        was moved, else where it was.
        """
        source, home = Path(image), self.folder / name
        try:
            size = source.stat().st_size
            for target in self._targets(source, home, size):
                if self.how != "link" and _is_link_to(source, target):
                    target.unlink()  # the image comes in place of a link from an earlier time
                elif target.is_file() and filecmp.cmp(source, target, shallow=False):
                    if self.how == "move" and _are_two_names(source, target):
                        source.unlink(missing_ok=True)  # a move that was cut off, or ends elsewhere
                    else:
                        self.n_there += 1
                    break
                elif there := self._there(source, size):
                    if simplified(name) not in there:
                        self.left.append(next(iter(there.values())))
                        return source
                    self.n_there += 1
                    break
                home.mkdir(parents=True, exist_ok=True)
                try:
                    self._place(source, target)
                    break
                except FileExistsError:
                    continue
        except OSError as error:
            raise OSError(
                f"{shown(source)} cannot be put into {shown(home)}: {error.strerror or error}. "
                f"{self.counts.total()} images were sorted before it. Remove the cause and run the command "
                "again: it continues there."
            ) from error
        self.counts[name] += 1
        return source if os.path.lexists(source) else target

    def summary(self) -> str:
        """Return how many images went where, as a sentence."""
        counts = ", ".join(f"{self.counts[name]} {name}" for name in self.names if self.counts[name])
        stay = " and stay where they were, too" if self.how == "move" else ""
        there = f" {self.n_there} of them were there already{stay}." if self.n_there else ""
        done = {"copy": "Copied", "link": "Linked", "move": "Moved"}[self.how]
        text = f"{done} into folders in {shown(self.folder)}: {counts or 'no images'}.{there}"
        if self.left:
            names = [*dict.fromkeys(map(shown, self.left))]
            first = ", ".join(names[:3]) + ", ..." * (len(names) > 3)
            text += (
                f" {len(self.left)} images lie in another folder there, perhaps moved by hand. They stay there "
                f"and were not {done.lower()} again: {first}. If you want the new answers, move them by hand, "
                "or sort into an empty folder."
            )
        return text

    def _sorted_among(self, folders: set[Path]) -> dict[Path, str]:
        """Return the folders whose images are sorted already, and why they count as such."""
        found = {}
        for folder in folders:
            around = {real := Path(os.path.realpath(folder)), *real.parents}
            if self._homes & around:
                found[folder] = f"sorted into {shown(self.folder)} already"
            elif self._top in real.parents and not self._given & around:
                found[folder] = (
                    f"in a folder of {shown(self.folder)} beside those of the classes, which is sorted only if "
                    "you give it as a path itself"
                )
        return found

    def _there(self, source: Path, size: int) -> dict[str, Path]:
        """Return files with the content of an image that were there before, one for each folder."""
        for path in self._unread.pop(size, ()):
            with suppress(OSError):  # it is gone, or nobody may read it
                self._alike[size, some_bytes(path, size)].append(path)
        key = size, some_bytes(source, size)
        for path in self._alike.pop(key, ()):
            folder = simplified(path.relative_to(self.folder).parts[0])
            with suppress(OSError, ImageError):
                self._read[key].setdefault(self._key(path), {}).setdefault(folder, path)
        found = self._read[key].get(self._key(source), {}) if key in self._read else {}
        return {folder: path for folder, path in found.items() if path.is_file()}

    def _targets(self, source: Path, home: Path, size: int) -> Iterator[Path]:
        """Yield the names that an image may get: of files that may be the same, and then free ones."""
        key = home, source.name
        targets = (
            home / (source.name if number == 1 else f"{source.stem} ({number}){source.suffix}")
            for number in count(self._n_taken[key] + 1)
        )
        for target in targets:
            if not os.path.lexists(target):
                break
            self._n_taken[key] += 1
            if target.is_file():
                self._taken[(*key, target.stat().st_size)].new.append(target)
        yield from self._like(source, self._taken.get((*key, size), Alike()))
        for free in chain([target], targets):
            yield free
            yield free  # to compare it if another process has taken the name meanwhile

    def _like(self, source: Path, files: Alike) -> list[Path]:
        """Return the files that may have the content of an image, without a look at all pairs."""
        if not files.read and len(files.new) < 2:
            return files.new  # one file is compared at once
        for path in files.new:
            if path.is_file():
                files.read.setdefault(self._key(path), []).append(path)
        files.new.clear()
        return files.read.get(self._key(source), [])

    def _place(self, source: Path, target: Path) -> None:
        """Copy, link or move a file to a name. Raise FileExistsError if the name is taken."""
        if os.path.lexists(target):
            raise FileExistsError(target)
        if self.how == "link":
            target.symlink_to(source.absolute())
            return
        if self.how == "move" and not source.is_symlink() and _link(source, target):
            _take_away(source, target)
            return
        # A reader never sees a part of a file, and a part that is left by a killed process is hidden.
        part = unfinished(target)
        try:
            shutil.copyfile(source, part)
            with suppress(PermissionError):  # some disks keep neither times nor access rights
                shutil.copystat(source, part)
            if not _link(part, target):  # this file system knows no second names
                part.rename(target)
        finally:
            part.unlink(missing_ok=True)
        if self.how == "move":
            _take_away(source, target)


def some_bytes(path: Path, size: int) -> bytes:
    """Return a digest of some bytes of a file: of its begin, its middle and its end."""
    digest = blake2b(digest_size=16)
    with open_regular(path) as file:
        for place in (0, size // 2, max(size - SOME_BYTES, 0)):
            file.seek(place)
            digest.update(file.read(SOME_BYTES))
    return digest.digest()


def why_no_folder(name: str) -> str:
    """Return why a folder cannot have the name of a class on every system, or "" if it can."""
    if name in ("", ".", ".."):
        return "it leads to another folder"
    if not is_printable(name) or {"/", "\\"} & {*name}:
        return "it has a slash or a character that cannot be printed"
    if name in (UNSURE, REJECTED):
        return "this name is kept for images that get no class"
    if is_hidden(name):
        return "such names are hidden, or kept for systems"
    if DEVICES.fullmatch(name) or name != name.strip() or name.endswith("."):
        return "Windows does not allow it"
    if len(os.fsencode(name)) > LONGEST_NAME:
        return f"it has more than {LONGEST_NAME} bytes"
    return ""


def _is_link_to(source: Path, target: Path) -> bool:
    """Return if `target` is a symbolic link to an image which is none itself."""
    return target.is_symlink() and not source.is_symlink() and target.exists() and source.samefile(target)


def _are_two_names(source: Path, target: Path) -> bool:
    """Return if these are two names of one file, and not one name that two paths lead to."""
    return (
        not source.is_symlink()
        and source.samefile(target)
        and source.stat().st_nlink > 1
        and not source.parent.samefile(target.parent)  # of a folder that is mounted twice, or a link
    )


def _take_away(source: Path, target: Path) -> None:
    """Delete an image that was put elsewhere. If that fails, it is where it was, and only there."""
    try:
        source.unlink(missing_ok=True)  # another process may have ended this move
    except OSError as error:
        if os.path.lexists(source):
            target.unlink()
        raise OSError(f"it cannot be taken away from {shown(source.parent)} ({error.strerror})") from error


def _link(source: Path, target: Path) -> bool:
    """Give a file a second name. Return False if that is not possible there, and raise if the name is taken."""
    try:
        os.link(source, target, follow_symlinks=False)
    except FileExistsError:
        raise
    except (OSError, NotImplementedError):
        return False
    return True
