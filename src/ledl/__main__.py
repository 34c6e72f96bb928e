"""The command ``ledl``, and ``python -m ledl``."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main() -> None:
    """Run the command line, or say what it needs."""
    try:
        from ledl.cli import NO_ROOM, app
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich", "click"):
            raise
        sys.exit(f"The command line needs {error.name}: pip install 'ledl[cli]'.")
    except KeyboardInterrupt:  # commands handle their own
        sys.exit(130)
    if sys.stdout is None:  # the shell has closed it
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):  # that of an old terminal may not know all letters
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        app(prog_name="ledl")
    except OSError as error:  # of help, and of the version: commands report their own
        if error.errno not in NO_ROOM:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python would flush it at exit
        print(f"Error: The output cannot be written: {error.strerror}.", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
