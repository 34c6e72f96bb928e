"""The command ``ledl``, and ``python -m ledl``."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main() -> None:
    """Run the command line, or say what it needs."""
    try:
        from ledl.cli import app
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich", "click"):
            raise
        sys.exit(f"The command line needs {error.name}: pip install 'ledl[cli]'.")
    if sys.stdout is None:  # the shell has closed it
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):  # that of an old terminal may not know all letters
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    app(prog_name="ledl")


if __name__ == "__main__":
    main()
