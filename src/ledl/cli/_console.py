"""Print text, errors and progress of the commands."""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import stat
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ledl.text import is_printable

# Exit statuses; the first is the shell's for Ctrl-C.
INTERRUPTED, FAILED, SOME_UNREADABLE = 130, 2, 1
# Errors of a full disk. If it is behind a redirect of the shell, they have no name of a file.
NO_ROOM = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)

# Parameters of the library that are options of the commands, and the names that differ.
PARAMETER = re.compile(
    r"(?<!set_params\()\b(against|cache|dask|device|max_pixels|model|n_per_class|n_splits|out|reject|select)=('[^']*'|[^\s,;:]*[^\s,;:.])"
)
OTHER_NAMES = {"model": "features", "n_splits": "splits"}


class PipedConsole(Console):
    """Raise BrokenPipeError when the reader of the output is gone; rich's console would exit."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


class SteadyConsole(Console):
    """Print on stdout what was done; print nothing more when the reader of the output is gone."""

    def on_broken_pipe(self) -> None:
        close_stdout()


def visible(text: str) -> str:
    """Return text in one line with control characters escaped, so that it cannot control the terminal."""
    return "".join(c if is_printable(c) else c.encode("unicode_escape").decode() for c in text)


def to_json(value: Any) -> str:
    """Return JSON in one line. It is readable if stdout takes UTF-8 and all can be printed, else escaped."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    is_utf8 = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    return text if is_utf8 and is_printable(text) else json.dumps(value, allow_nan=False)


def as_options(text: str) -> str:
    """Return a message of the library with parameters, such as n_per_class=5, as options: --n-per-class 5."""

    def to_option(found: re.Match[str]) -> str:
        name = OTHER_NAMES.get(found[1], found[1].replace("_", "-"))
        return f"no --{name}" if found[2] == "None" else f"--{name} {found[2].strip(chr(39))}"

    return PARAMETER.sub(to_option, text)


def say(console: Console, text: str, style: str = "") -> None:
    """Print text as it is, without markup and without line breaks of our own.

    Control characters are escaped, because names come from untrusted files. Line breaks are not: names that may
    have some must be made `visible` first.
    """
    lines = "\n".join(map(visible, text.split("\n")))
    console.print(lines, style=style, markup=False, highlight=False, soft_wrap=True)


def close_stdout() -> None:
    """Send what is printed on stdout nowhere, also what Python flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def errors_reported(console: Console, stopped: str = "Stopped.") -> Iterator[None]:
    """Print an error in one line, or the text `stopped` after Ctrl-C, and exit with a status."""
    try:
        yield
    except KeyboardInterrupt:
        say(console, stopped)
        raise typer.Exit(INTERRUPTED) from None
    except BrokenPipeError:  # the reader of the output is gone
        close_stdout()
        raise typer.Exit(INTERRUPTED) from None
    except (ValueError, TypeError, OSError, ImportError, MemoryError) as error:
        text = str(error) or "There is not enough memory. Use smaller or fewer images."
        if isinstance(error, OSError) and error.errno in (*NO_ROOM, errno.EROFS):
            what = error.filename or "The output"
            remedy = "Make room, or write it" if error.errno in NO_ROOM else "Write it"
            text = f"{what} cannot be written: {error.strerror}. {remedy} elsewhere."
        say(console, f"Error: {as_options(text)}", style="red")
        try:
            sys.stdout.flush()
        except (AttributeError, OSError):  # Python would try again at exit, and end with another status
            close_stdout()
        raise typer.Exit(FAILED) from None


@contextmanager
def warnings_as_notes(console: Console) -> Iterator[None]:
    """Print the warnings of a block after it, each once; also if it fails: they may give the reasons."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            yield
        finally:
            # The parameters that this warning of scikit-learn names are not options of commands.
            stopped = "Training stopped a little before the best model. The accuracy is that of such models."
            is_late = [found.category.__name__ == "ConvergenceWarning" for found in caught]
            texts = [
                stopped if late else str(found.message) for late, found in zip(is_late, caught, strict=True)
            ]
            for text in dict.fromkeys(texts):
                say(console, f"Note: {as_options(text)}", style="yellow")


@contextmanager
def bar(console: Console, what: str, *, prints: bool = False) -> Iterator[Callable[[int, int], None]]:
    """Yield a function that shows the numbers of finished and of all items. Silent without a terminal.

    Also where the block `prints` results one by one to a terminal or a pipe: they show how far it is.
    """
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    is_silent = not console.is_terminal
    if prints and not is_silent:
        try:
            out = sys.stdout.fileno()
            is_silent = os.isatty(out) or stat.S_ISFIFO(os.fstat(out).st_mode)
        except (AttributeError, OSError):  # it is closed
            is_silent = True
    # Without the redirect, which would send stdout to the terminal of stderr, and not to the user's file.
    progress = Progress(*columns, console=console, transient=True, redirect_stdout=False, disable=is_silent)
    with progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


class Lines(logging.Handler):
    """Print what a logger says, in lines above a bar."""

    def __init__(self, console: Console) -> None:
        super().__init__(logging.INFO)
        self.console = console

    def emit(self, record: logging.LogRecord) -> None:
        say(self.console, record.getMessage(), style="dim")


@contextmanager
def shown_log(console: Console, name: str) -> Iterator[None]:
    """Print what the logger of this name says at level INFO. Silent without a terminal, as bars are."""
    logger, lines = logging.getLogger(name), Lines(console)
    level = logger.level
    if console.is_terminal:
        logger.addHandler(lines)
        logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(lines)
        logger.setLevel(level)
