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
from itertools import chain, count
from pathlib import Path

from ledl.files import place_for, remove_abandoned, unfinished
from ledl.images._folders import REJECTED, UNSURE, Unused, check_names, is_hidden
from ledl.images._reading import content_key, shown
from ledl.text import is_printable

# Names that Windows keeps for devices, with any ending.
DEVICES = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.IGNORECASE)
NUMBERED = re.compile(r" \(\d+\)$")  # what is added to names that are taken
LONGEST_NAME = 255  # bytes, on nearly all file systems


@dataclass(slots=True)
class Alike:
    """Files of one size and one name, apart from numbers."""

    new: list[Path] = field(default_factory=list)
    read: dict[str, list[Path]] = field(default_factory=dict)  # by `content_key`


class Sorter:
    """Put images into the folders of their classes below `folder`, which is made when it is needed.

    `how` is "copy", "link" (a symbolic link) or "move". Raise an error now, before anything is written, if a
    class cannot be the name of a folder, or if nothing can be written there. `former` has names that classes
    had before: images in such folders are named by `summary`.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        classes: Sequence[str],
        how: str = "copy",
        former: Sequence[str] = (),
    ) -> None:
        self.folder, self.how = Path(folder), how
        self.names = [*classes, UNSURE, REJECTED]
        self.counts: Counter[str] = Counter()  # images by name
        self.n_there = 0  # images that were there already
        self.astray: list[Path] = []  # copies of images in the folders of other classes, from an earlier time
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
        # What is sorted already, by the names that it may have had, and its size.
        self._before: defaultdict[tuple[str, int], Alike] = defaultdict(Alike)
        for home in (self.folder / name for name in dict.fromkeys([*self.names, *former])):
            remove_abandoned(home)
            for path in sorted(home.iterdir()) if home.is_dir() else ():
                for name in {path.name, NUMBERED.sub("", path.stem) + path.suffix} if path.is_file() else ():
                    self._before[name, path.stat().st_size].new.append(path)
        # Images of one name get numbers: how many are taken in a folder, and the files there by their size.
        self._n_taken: Counter[tuple[Path, str]] = Counter()
        self._taken: defaultdict[tuple[Path, str, int], Alike] = defaultdict(Alike)
        self._key = cache(content_key)  # reads a file once

    def leave_out(self, files: Sequence[Path]) -> tuple[list[bool], Unused]:
        """Return for each image if it is not to be sorted, and these as what is not used, with the reason.

        An image may be in the folder of a class already. One that is to be moved can be moved only once,
        however often it is given, also by links. Raise PermissionError if images cannot be moved.
        """
        homes = {Path(os.path.realpath(self.folder / name)) for name in self.names}
        parents = {file.parent: Path(os.path.realpath(file.parent)) for file in files}
        inside = {parent for parent, real in parents.items() if homes & {real, *real.parents}}
        reasons = [f"sorted into {shown(self.folder)} already" * (file.parent in inside) for file in files]
        if self.how == "move":
            for parent in parents.keys() - inside:
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
        return {name for name, _ in self._before} if self.how == "move" else set()

    def put(self, image: str | os.PathLike[str], name: str) -> Path:
        """Put an image into the folder of a class, `UNSURE` or `REJECTED`, under a name that is free.

        Return where the image is now: there if it was moved, else where it was.
        """
        source, home = Path(image), self.folder / name
        try:
            size = source.stat().st_size
            self.astray += [
                path
                for path in self._like(source, self._before.get((source.name, size), Alike()))
                if path.parent != home and path.is_file() and filecmp.cmp(source, path, shallow=False)
            ]
            home.mkdir(parents=True, exist_ok=True)
            for target in self._targets(source, home, size):
                if self.how != "link" and _is_link_to(source, target):
                    target.unlink()  # the image comes in place of a link from an earlier time
                elif target.is_file() and filecmp.cmp(source, target, shallow=False):
                    if self.how == "move" and _are_two_names(source, target):
                        source.unlink(missing_ok=True)  # a move that was cut off, or ends elsewhere
                    else:
                        self.n_there += 1
                    break
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
        if self.astray:
            first = ", ".join(map(shown, self.astray[:3])) + ", ..." * (len(self.astray) > 3)
            text += (
                f" {len(self.astray)} of them also lie in the folder of another class, where they were sorted "
                f"before: {first}. Delete them there, or sort into an empty folder."
            )
        return text

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
