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
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
        try:
            if isinstance(content, bytes):
                file.write(content)
            else:
                content(file)
            file.close()
            umask = os.umask(0)
            os.umask(umask)
            Path(file.name).chmod(0o666 & ~umask)  # others may read a shared cache
            Path(file.name).replace(path)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise
