"""Unpack untrusted archives: completely or not at all, and only into the given folder."""

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

# Limits of an archive. All datasets here are smaller.
MAX_BYTES, MAX_FILES = 2**33, 200_000
# Found by the first bytes. Any other file is read as a plain .tar.
DECOMPRESSORS: dict[bytes, Any] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ": lzma.open}


class ArchiveError(ValueError):
    """An archive is broken, or would write outside its folder.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from ledl.datasets import ArchiveError, extract
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     broken = Path(folder) / "images.zip"
    ...     _ = broken.write_bytes(b"not an archive")
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
    """Unpack an untrusted archive, completely or not at all.

    Absolute names, "..", links and devices are refused, and so are archives that unpack to more than
    `max_bytes`. The archive is unpacked in a temporary folder first, so that an interruption leaves no
    incomplete files. Existing files and folders are kept.

    Parameters
    ----------
    archive : path
        A .zip or .tar file (.tar.gz, .tar.bz2, .tar.xz).
    folder : path
        Folder to unpack into. It is created if needed.
    inner : str, default=""
        Name of an archive in the archive, which is unpacked instead.
    only : str, default=""
        Name of the only file or folder at the top to unpack.
    max_bytes : int, default=2**33
        Most bytes that the archive may unpack to.

    Returns
    -------
    list of Path
        New files and folders at the top.

    Raises
    ------
    ArchiveError
        If the archive is broken, too large, or not the expected one.

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
                raise ArchiveError(f"{archive} has no {inner}. It is not the expected archive.")
            source = Path(scratch) / "inner"
            _unpack(outer / inner, source, max_bytes)
        if not (source / only).exists():
            raise ArchiveError(f"{archive} has no {only}. It is not the expected archive.")
        wanted = [path for path in sorted(source.iterdir()) if only in ("", path.name)]
        return [path.rename(folder / path.name) for path in wanted if not (folder / path.name).exists()]


def _unpack(archive: Path, folder: Path, max_bytes: int) -> None:
    """Unpack an archive into a new folder. Raise ArchiveError if it is broken or dangerous."""
    folder.mkdir()
    root, left = folder.resolve(), max_bytes
    try:
        with closing(_members(archive, max_bytes)) as members:
            for n_members, (name, content) in enumerate(members, start=1):
                if n_members > MAX_FILES:
                    raise ValueError(f"it has more than {MAX_FILES:,} files")
                path, windows = PurePosixPath(name.replace("\\", "/")), PureWindowsPath(name)
                strange = (
                    path.is_absolute() or ".." in path.parts or windows.drive or windows.root or ":" in name
                )
                if strange or not (root / path).resolve().is_relative_to(root):
                    raise ValueError(f"{name!r} would be written outside of the folder")
                if content is None:
                    continue
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                with content, (root / path).open("wb") as out:
                    while chunk := content.read(2**20):  # the size in the header may be wrong
                        left -= len(chunk)
                        if left < 0:
                            raise ValueError(f"it unpacks to more than the allowed {max_bytes:,} bytes")
                        out.write(chunk)
    except Exception as error:  # broken archives raise many types of errors
        raise ArchiveError(f"{archive} cannot be unpacked: {error}. Get another copy.") from error


def _members(archive: Path, max_bytes: int) -> Generator[tuple[str, IO[bytes] | None]]:
    """Yield name and content (None for a folder) of each member. Raise ValueError for links and devices."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as file:
            for member in file.infolist():
                if (member.external_attr >> 28) == 0xA:
                    raise ValueError(f"{member.filename} is a link, which is not allowed")
                yield member.filename, None if member.is_dir() else file.open(member)
        return
    with archive.open("rb") as plain:
        start = plain.read(6)
    decompress = next((o for magic, o in DECOMPRESSORS.items() if start.startswith(magic)), open)
    with decompress(archive, "rb") as unbounded:
        # The limit has room for names and padding.
        stream: Any = _Bounded(unbounded, 2 * max_bytes + 2**24)
        with tarfile.open(fileobj=stream, mode="r|") as tar:
            for entry in tar:
                if not (entry.isreg() or entry.isdir()):
                    raise ValueError(f"{entry.name} is a link or device, which is not allowed")
                yield entry.name, tar.extractfile(entry) if entry.isreg() else None
        while stream.read(2**20):  # to the end of the file, which has the checksum
            pass


class _Bounded:
    """Limit the bytes that can be read from a stream, headers included, so that they cannot fill the memory.

    tarfile uses only the method `read`.
    """

    def __init__(self, stream: IO[bytes], most: int) -> None:
        self._stream, self._left = stream, most

    def read(self, size: int = -1) -> bytes:
        if size < 0 or size > self._left:
            raise ValueError(f"it needs {size:,} bytes at once, or more bytes in total than allowed")
        data = self._stream.read(size)
        self._left -= len(data)
        return data
