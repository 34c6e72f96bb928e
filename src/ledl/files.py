"""Write files that are complete or not there."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO


def write_atomically(path: Path, content: bytes | Callable[[BinaryIO], Any]) -> None:
    """Write a file completely, or leave it as it was if anything fails. A link stays a link.

    `content` holds the bytes, or it is a function that writes them to the open file that it gets. The function
    may also replace the file at `file.name`.
    """
    path = path.resolve()
    if not path.parent.is_dir():
        raise FileNotFoundError(f"There is no folder {path.parent} for {path.name}. Create it first.")
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        os.close(handle)
        with temporary.open("wb") as file:
            if isinstance(content, bytes):
                file.write(content)
            else:
                content(file)
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)  # others may read a shared cache
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
