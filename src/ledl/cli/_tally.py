"""Answers beside the truth: accuracy, confusion matrix, the commonest mistakes."""

from __future__ import annotations

import csv
import io
from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ledl.cli._console import printable, say
from ledl.files import write_atomically

REJECTED = "none of these"
WIDEST_MATRIX = 40  # classes, on a screen


class Tally:
    """What was said, beside what is true."""

    def __init__(self, classes: list[str], *, can_reject: bool) -> None:
        self.classes, self.can_reject = classes, can_reject
        self.counts: Counter[tuple[str, str]] = Counter()  # of truth and answer

    def add(self, truth: str, answer: str) -> None:
        self.counts[truth, answer] += 1

    def count(self, *, known: bool, answer: str | None = None) -> int:
        """Images of known classes, or of others, with any answer or that."""
        return sum(
            n
            for (truth, said), n in self.counts.items()
            if (truth in self.classes) == known and answer in (None, said)
        )

    @property
    def n_right(self) -> int:
        return sum(n for (truth, said), n in self.counts.items() if truth == said)

    @property
    def mistakes(self) -> list[tuple[str, str, int]]:
        """Truth, answer and number, the commonest first."""
        wrong = [
            (*pair, n) for pair, n in self.counts.items() if pair[0] in self.classes and pair[0] != pair[1]
        ]
        return sorted(wrong, key=lambda mistake: (-mistake[2], mistake))

    @property
    def axes(self) -> tuple[list[str], list[str]]:
        """Rows and columns of the matrix: all classes that are tested, and all that are answers."""
        truths, said = ({pair[i] for pair in self.counts} for i in (0, 1))
        rows = [name for name in self.classes if name in truths] + sorted(truths - set(self.classes))
        return rows, [name for name in [*self.classes, REJECTED] if name in truths | said]


def show_accuracy(console: Console, tally: Tally) -> None:
    """The accuracy on classes that the model knows, and what became of the others."""
    from ledl._images import standard_error

    n, n_other = tally.count(known=True), tally.count(known=False)
    if n:
        accuracy = tally.n_right / n
        error = standard_error(accuracy, n)
        told = f"Accuracy: {100 * accuracy:.1f} % ± {100 * error:.1f} ({tally.n_right} of {n})."
        say(console, told, style="bold")
    if n and tally.can_reject:
        n_refused = tally.count(known=True, answer=REJECTED)
        say(
            console,
            f"Of the known classes {n_refused} of {n} ({100 * n_refused / n:.1f} %) were taken for none,",
        )
        among = f"{100 * tally.n_right / (n - n_refused):.1f} %" if n > n_refused else "nothing"
        say(console, f"which counts as wrong; among those with an answer {among} is right.")
    if n_other:
        others = sorted({truth for truth, _ in tally.counts} - set(tally.classes))
        names = ", ".join(others[:5]) + (", ..." if len(others) > 5 else "")
        n_refused = tally.count(known=False, answer=REJECTED)
        what = f"{n_refused} of them were taken for none" if tally.can_reject else "they count for nothing"
        say(console, f"{n_other} images are in folders that are no class of the model ({names}); {what}.")


def show_confusions(console: Console, tally: Tally) -> None:
    """The matrix, if it fits on a screen, and the commonest mistakes."""
    rows, columns = tally.axes
    if not rows:
        return
    if len(columns) <= WIDEST_MATRIX:
        say(console, "\nConfusion matrix: rows are the truth, columns the answers.")
        show_matrix(console, tally, rows, columns)
    else:
        say(console, f"With {len(columns)} classes the confusion matrix is for a file: --confusion FILE.csv.")
    if tally.mistakes:
        say(console, "\nCommonest mistakes:")
    for truth, said, n in tally.mistakes[:5]:
        say(console, f"{n:4d}  {truth} taken for {said}")


def show_matrix(console: Console, tally: Tally, rows: list[str], columns: list[str]) -> None:
    """With the names of classes over the columns where they are short, or numbers."""
    is_short = max(len(name) for name in columns if name != REJECTED) <= 4
    heads = {name: name if is_short else str(i) for i, name in enumerate(columns, start=1)}
    heads |= {REJECTED: "none"} if REJECTED in heads else {}
    shown = Table(box=None, padding=(0, 1, 0, 0))
    shown.add_column("", no_wrap=True)
    for name in columns:
        shown.add_column(Text(printable(heads[name])), justify="right", no_wrap=True)
    for truth in rows:
        cells = [_cell(tally.counts[truth, said], truth == said) for said in columns]
        shown.add_row(Text(printable(truth if is_short else f"{heads.get(truth, ''):>3} {truth}")), *cells)
    Console(file=console.file, width=max(console.width, 60 + 5 * len(columns))).print(shown)
    untested = ", ".join(f"{heads[name]}: {name}" for name in columns if name not in [*rows, REJECTED])
    if untested and not is_short:
        say(console, f"Columns of answers that no tested image has for truth: {untested}.")


def _cell(n: int, is_right: bool) -> Text:
    return Text(str(n), "bold green") if is_right else Text(str(n)) if n else Text("·", "dim")


def write_confusions(tally: Tally, path: Path) -> None:
    """The matrix as a CSV file."""
    rows, columns = tally.axes
    out = io.StringIO()
    lines = csv.writer(out, lineterminator="\n")
    lines.writerow(["truth", *columns])
    lines.writerows([truth, *(tally.counts[truth, said] for said in columns)] for truth in rows)
    write_atomically(path, lambda file: file.write(out.getvalue().encode()))
