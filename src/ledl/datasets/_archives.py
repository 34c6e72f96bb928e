"""Archives from strangers: unpacked whole or not at all, and nowhere but in their folder."""

from __future__ import annotations

import tarfile
import tempfile
import zipfile
from pathlib import Path, PurePosixPath
from typing import IO

# More than any dataset here unpacks to, and more files.
MAX_BYTES, MAX_FILES = 2**34, 10**6


class ArchiveError(ValueError):
    """An archive that is broken, or that would write where it must not."""


def extract(archive: Path, folder: Path, inner: str = "", *, max_bytes: int = MAX_BYTES) -> list[Path]:
    """Unpack a .zip or .tar.gz into `folder`; gives the new files and folders at its top.

    `inner` is an archive in the archive that is unpacked in its place. Members with absolute names, "..",
    links or devices are refused, and so is what unpacks to more than `max_bytes`. All is first unpacked
    beside its place, so that an interrupt leaves nothing half-written under a final name; what is there
    already stays.
    """
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
        made = []
        for path in sorted(source.iterdir()):
            if not (folder / path.name).exists():
                path.rename(folder / path.name)
                made.append(folder / path.name)
    return made


def _unpack(archive: Path, folder: Path, max_bytes: int) -> None:
    folder.mkdir()
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as file:
                _unpack_zip(file, folder, archive, max_bytes)
        else:
            with tarfile.open(archive) as file:
                _unpack_tar(file, folder, archive, max_bytes)
    except (
        zipfile.BadZipFile,
        tarfile.TarError,
        EOFError,
        OSError,
        RuntimeError,
        NotImplementedError,
    ) as error:
        raise ArchiveError(f"{archive} cannot be unpacked: {error}. Get it again.") from error


def _unpack_zip(file: zipfile.ZipFile, folder: Path, archive: Path, max_bytes: int) -> None:
    members = file.infolist()
    _check([(member.filename, member.file_size) for member in members], archive, max_bytes)
    left = max_bytes
    for member in members:
        if (member.external_attr >> 28) == 0xA:
            raise ArchiveError(
                f"{archive}: {member.filename} is a link, which is not unpacked. Get another copy."
            )
        if not member.is_dir():
            with file.open(member) as stream:
                left -= _write(stream, folder / member.filename, archive, left)


def _unpack_tar(file: tarfile.TarFile, folder: Path, archive: Path, max_bytes: int) -> None:
    members = file.getmembers()
    _check([(member.name, member.size) for member in members], archive, max_bytes)
    left = max_bytes
    for member in members:
        if not (member.isreg() or member.isdir()):
            raise ArchiveError(
                f"{archive}: {member.name} is a link or device, which is not unpacked. Get another copy."
            )
        stream = file.extractfile(member) if member.isreg() else None
        if stream is not None:
            left -= _write(stream, folder / member.name, archive, left)


def _check(members: list[tuple[str, int]], archive: Path, max_bytes: int) -> None:
    for name, _ in members:
        path = PurePosixPath(name.replace("\\", "/"))
        if path.is_absolute() or ".." in path.parts or ":" in path.parts[0:1]:
            raise ArchiveError(f"{archive}: {name!r} would be written outside of its folder. Get another copy.")
    total = sum(size for _, size in members)
    if total > max_bytes or len(members) > MAX_FILES:
        raise ArchiveError(
            f"{archive} claims {len(members)} files of {total:,} bytes, more than the {max_bytes:,} that are "
            "unpacked."
        )


def _write(stream: IO[bytes], path: Path, archive: Path, left: int) -> int:
    """Copy a member, which may be larger than it claims."""
    path.parent.mkdir(parents=True, exist_ok=True)
    written = 0
    with path.open("wb") as out:
        while chunk := stream.read(2**20):
            written += len(chunk)
            if written > left:
                raise ArchiveError(f"{archive}: {path.name} unpacks to more than it claims.")
            out.write(chunk)
    return written
