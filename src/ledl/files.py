"""Write files that are complete or not there, and read only what is a file."""

from __future__ import annotations

import os
import secrets
import stat
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO

# Pattern of the names of files that are being written: a digest of the name that they will get, and random
# digits. They are short, whatever that name is.
UNFINISHED = f".{'[0-9a-f]' * 16}-{'[0-9a-f]' * 16}.part"
# Such a file belongs to a killed writer if nobody has written to it for so many seconds.
ABANDONED_AFTER = 3600.0


def place_for(
    path: str | os.PathLike[str], *, through_links: bool = True
) -> tuple[Path, os.stat_result | None]:
    """Return where a file is or will be, behind all links, and the state of the file that is there, or None.

    Unless it is `through_links`, a link in its place counts as nothing, and will be replaced.

    Raise OSError if a file cannot be written there: in place of a folder, a device, a pipe, a socket or a file
    that is write-protected, or in a folder that does not exist or is read-only.
    """
    is_link = not through_links and os.path.islink(path)
    place = Path(os.path.abspath(path) if is_link else os.path.realpath(path))
    if not place.parent.is_dir():
        raise FileNotFoundError(f"There is no folder {place.parent} for {place.name}. Create it first.")
    try:
        found = None if is_link else place.stat()
    except FileNotFoundError:
        found = None
    if found is not None and stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(f"{path} is a folder. Give the name of a file in it.")
    if found is not None and not stat.S_ISREG(found.st_mode):
        raise FileExistsError(f"{path} exists and is not a regular file. Choose another name, or delete it.")
    if found is not None and not os.access(place, os.W_OK):  # the folder alone would let it be replaced
        raise PermissionError(
            f"{path} is write-protected. Choose another name, or allow yourself to write to it."
        )
    try:
        tempfile.TemporaryFile(dir=place.parent).close()
    except OSError as error:
        raise PermissionError(
            f"Cannot write to the folder {place.parent}: {error.strerror}. Choose another folder."
        ) from error
    return place, found


def unfinished(place: Path) -> Path:
    """Return a new name for a file while it is written, next to the name that it will get."""
    return place.with_name(f"{_begin_of_unfinished(place)}{secrets.token_hex(8)}.part")


def write_atomically(
    path: Path, content: bytes | Callable[[BinaryIO], Any], *, through_links: bool = False
) -> None:
    """Write a file completely, or leave it as it was if anything fails.

    A file keeps its access rights. `content` holds the bytes, or it is a function that writes them to the open
    file that it gets. Only a name that the user gave is written `through_links`: another folder that the user
    works in may come from a stranger, with links to files of the user.
    """
    place, old = place_for(path, through_links=through_links)
    temporary = unfinished(place)
    # Nobody can read it who could not read the old file. For a new file the system applies the umask.
    mode = 0o666 if old is None else 0o600 | old.st_mode & 0o777
    file = open(temporary, "x+b", opener=partial(os.open, mode=mode))  # noqa: SIM115
    try:
        with file:
            new = os.fstat(file.fileno())
            if isinstance(content, bytes):
                file.write(content)
            else:
                content(file)
        _give_access(temporary, old or new)
        temporary.replace(place)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno and error.filename is None:
            error.filename = str(place)  # a full disk is reported without a name
        raise


def remove_unfinished(path: str | os.PathLike[str], seconds: float = 0) -> None:
    """Delete what killed writers of a file have left, if nobody has written to it for so many seconds.

    A writer that still runs gets a FileNotFoundError. The time grows with the number of files in the folder.
    """
    place = Path(os.path.realpath(path))
    remove_abandoned(place.parent, f"{_begin_of_unfinished(place)}*", seconds)


def remove_abandoned(folder: Path, pattern: str = UNFINISHED, seconds: float = ABANDONED_AFTER) -> None:
    """Delete what killed writers of any files have left in a folder, if it is as old as that."""
    for part in folder.glob(pattern):
        with suppress(OSError):  # somebody else was faster, or it is somebody else's
            found = part.lstat()
            # A copy has the time of its original; the second time is the system's.
            if time.time() - max(found.st_mtime, found.st_ctime) >= seconds:
                part.unlink()


def open_regular(path: Path) -> BinaryIO:
    """Open a file to read it. Raise OSError if it is a device or a pipe, which may block or never end."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(f"{path} is a folder, a device or a pipe. Give a file.")
    return path.open("rb")


def read_regular(path: Path, most: int) -> bytes:
    """Return the content of a file. Raise OSError if it is none, or if it has more than `most` bytes."""
    with open_regular(path) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(f"{path} has more than {most / 1e6:,.0f} MB. Give a smaller file.")
    return content


def _begin_of_unfinished(place: Path) -> str:
    return f".{blake2b(os.fsencode(place.name), digest_size=8).hexdigest()}-"


def _give_access(path: Path, like: os.stat_result) -> None:
    """Give a file the mode of another one, and as far as possible its owner and its group."""
    mode, refused = like.st_mode & 0o777, (AttributeError, OSError)  # not on every platform
    with suppress(*refused):
        os.chown(path, like.st_uid, -1)
    try:
        os.chown(path, -1, like.st_gid)
    except refused:  # another group may do what everybody may
        mode = mode & 0o707 | (mode & 0o007) << 3
    if path.stat().st_mode & 0o777 != mode:
        with suppress(PermissionError):  # a disk that knows no access rights: all files there have the same
            path.chmod(mode)
