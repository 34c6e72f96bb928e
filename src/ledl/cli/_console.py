"""What the commands share: how they speak, fail, and show that they are at work."""

from __future__ import annotations

import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

INTERRUPTED = 130  # the shell's exit status for Ctrl-C
FAILED = 2
SOME_UNREADABLE = 1


class PipedConsole(Console):
    """One that raises when nobody reads any more; rich's own would end the program with a status of failure."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def printable(text: str) -> str:
    """Return text without what would command a terminal."""
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


def say(console: Console, text: str, style: str = "") -> None:
    """Print text as it is: brackets in a path are no markup, and a long line is for the terminal to wrap.

    But for what would command the terminal: names come from strangers' files.
    """
    console.print(printable(text), style=style, markup=False, highlight=False, soft_wrap=True)


def check_out(out: Path, name: str) -> None:
    """Refuse at once what could not be written in the end; `name` is one that a file could have."""
    if out.is_dir():
        raise IsADirectoryError(f"{out} is a folder. Give the name of a file, {out / name} for one.")
    if out.exists() and not out.is_file():
        raise FileExistsError(f"{out} is there and no plain file. Choose another name.")
    parent = out.resolve().parent
    if not parent.is_dir():
        raise FileNotFoundError(f"There is no folder {parent} for {out.name}. Make it first.")
    try:
        tempfile.TemporaryFile(dir=parent).close()
    except OSError as error:
        raise PermissionError(
            f"Nothing can be written to {parent}: {error.strerror}. Choose another."
        ) from None


def tell_ignored(console: Console, others: Sequence[Path]) -> None:
    """Say which files are no images by their names: a photo of another format may be one of them."""
    if others:
        counts = Counter(other.suffix.lower() or "no ending" for other in others)
        told = ", ".join(f"{n} {ending}" for ending, n in counts.most_common(5))
        say(console, f"Not looked at, for their endings: {told}.", style="yellow")


@contextmanager
def errors_told(console: Console) -> Iterator[None]:
    """Tell what goes wrong in a line, and in the exit status."""
    try:
        yield
    except KeyboardInterrupt:
        say(console, "Stopped.")
        raise typer.Exit(INTERRUPTED) from None
    except BrokenPipeError:  # who reads our output has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nor may Python flush it in the end
        raise typer.Exit(INTERRUPTED) from None
    except (ValueError, TypeError, OSError, ImportError, MemoryError) as error:
        say(console, f"Error: {error}", style="red")
        raise typer.Exit(FAILED) from None


@contextmanager
def bar(console: Console, what: str) -> Iterator[Callable[[int, int], None]]:
    """Yield a function that shows how many are done, of how many; quiet where there is no terminal."""
    if not console.is_terminal:
        yield lambda done, total: None
        return
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
