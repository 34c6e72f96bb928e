"""Archives from strangers: unpacked whole or not at all, and nowhere but in their folder."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import tarfile
import tempfile
import zipfile
from collections.abc import Generator
from contextlib import closing
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO, Any

# More than any dataset here unpacks to, and more files.
MAX_BYTES, MAX_FILES = 2**33, 200_000
# By their first bytes; anything else is taken as a plain .tar.
DECOMPRESSORS: dict[bytes, Any] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ": lzma.open}


class ArchiveError(ValueError):
    """An archive that is broken, or that would write where it must not.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from ledl.datasets import ArchiveError, extract
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     broken = Path(folder) / "images.zip"
    ...     _ = broken.write_bytes(b"no archive")
    ...     try:
    ...         extract(broken, folder)
    ...     except ArchiveError as error:
    ...         print("cannot be unpacked" in str(error))
    True
    """


def extract(
    archive: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    inner: str = "",
    *,
    only: str = "",
    max_bytes: int = MAX_BYTES,
) -> list[Path]:
    """Unpack an archive from a stranger, whole or not at all.

    Members with absolute names, "..", links or devices are refused, and so is what unpacks to more than
    `max_bytes`. All is first unpacked beside its place, so that an interrupt leaves nothing half-written under
    a final name; what is there already stays.

    Parameters
    ----------
    archive : path
        A .zip or .tar (.gz, .bz2, .xz).
    folder : path
        Where to unpack it; made if it is not there.
    inner : str, default=""
        An archive in the archive that is unpacked in its place.
    only : str, default=""
        The one file or folder at the top that is wanted.
    max_bytes : int, default=2**33
        What it may unpack to.

    Returns
    -------
    list of Path
        The new files and folders at its top.

    Raises
    ------
    ArchiveError
        For an archive that is broken, too large, or not the one that was expected.

    Examples
    --------
    >>> import tempfile, zipfile
    >>> from pathlib import Path
    >>> from ledl.datasets import extract
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     archive = Path(folder) / "photos.zip"
    ...     with zipfile.ZipFile(archive, "w") as file:
    ...         file.writestr("photos/cat/1.jpg", b"pixels")
    ...     [path.name for path in extract(archive, Path(folder) / "unpacked")]
    ['photos']
    """
    archive, folder = Path(archive), Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".unpacking.") as scratch:
        outer = Path(scratch) / "outer"
        _unpack(archive, outer, max_bytes)
        source = outer
        if inner:
            if not (outer / inner).is_file():
                raise ArchiveError(f"{archive} has no {inner}; it is not the archive that was expected.")
            source = Path(scratch) / "inner"
            _unpack(outer / inner, source, max_bytes)
        if only and not (source / only).exists():
            raise ArchiveError(f"{archive} has no {only}; it is not the archive that was expected.")
        made = []
        for path in sorted(source.iterdir()):
            if only in ("", path.name) and not (folder / path.name).exists():
                path.rename(folder / path.name)
                made.append(folder / path.name)
    return made


def _unpack(archive: Path, folder: Path, max_bytes: int) -> None:
    """Unpack an archive into a new folder; raise ArchiveError if it is broken or would do harm."""
    folder.mkdir()
    root, left = folder.resolve(), max_bytes
    try:
        with closing(_members(archive, max_bytes)) as members:
            for n_members, (name, content) in enumerate(members, start=1):
                if n_members > MAX_FILES:
                    raise _refusal(archive, f"it has more than {MAX_FILES:,} files")
                path, windows = PurePosixPath(name.replace("\\", "/")), PureWindowsPath(name)
                strange = (
                    path.is_absolute() or ".." in path.parts or windows.drive or windows.root or ":" in name
                )
                if strange or not (root / path).resolve().is_relative_to(root):
                    raise _refusal(archive, f"{name!r} would be written outside of its folder")
                if content is None:
                    continue
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                with content, (root / path).open("wb") as out:
                    while chunk := content.read(2**20):  # it may be larger than it claims
                        left -= len(chunk)
                        if left < 0:
                            raise _refusal(
                                archive, f"it unpacks to more than the {max_bytes:,} bytes that are allowed"
                            )
                        out.write(chunk)
    except ArchiveError:
        raise
    except Exception as error:  # what broken archives raise is of many kinds
        raise ArchiveError(f"{archive} cannot be unpacked: {error}. Get it again.") from error


def _members(archive: Path, max_bytes: int) -> Generator[tuple[str, IO[bytes] | None]]:
    """Yield the name and the content, None for a folder, of each member; links and devices are refused."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as file:
            for member in file.infolist():
                if (member.external_attr >> 28) == 0xA:
                    raise _refusal(archive, f"{member.filename} is a link, which is not unpacked")
                yield member.filename, None if member.is_dir() else file.open(member)
        return
    with archive.open("rb") as plain:
        start = plain.read(6)
    decompress = next((o for magic, o in DECOMPRESSORS.items() if start.startswith(magic)), open)
    with decompress(archive, "rb") as unbounded:
        # Names and padding come on top of the contents.
        stream: Any = _Bounded(unbounded, 2 * max_bytes + 2**24)
        with tarfile.open(fileobj=stream, mode="r|") as tar:
            for entry in tar:
                if not (entry.isreg() or entry.isdir()):
                    raise _refusal(archive, f"{entry.name} is a link or device, which is not unpacked")
                yield entry.name, tar.extractfile(entry) if entry.isreg() else None
        while stream.read(2**20):  # to the end, where the checksum is
            pass


def _refusal(archive: Path, reason: str) -> ArchiveError:
    return ArchiveError(f"{archive}: {reason}. Get another copy.")


class _Bounded:
    """A stream that ends in an error rather than in a full memory: headers count too.

    tarfile needs nothing of it but `read`.
    """

    def __init__(self, stream: IO[bytes], most: int) -> None:
        self._stream, self._left = stream, most

    def read(self, size: int = -1) -> bytes:
        if size < 0 or size > self._left:
            raise ArchiveError(f"it asks for {size:,} bytes at once, or in all for more than is allowed.")
        data = self._stream.read(size)
        self._left -= len(data)
        return data
