"""Write answers one after the other, for people, as CSV, as JSON; and set them beside the truth.

Imported by ``ledl predict`` when it has something to do: it needs what computes.
"""

from __future__ import annotations

import csv
import io
import json
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ledl.cli._console import PipedConsole, printable, say
from ledl.files import write_atomically
from ledl.image_models import REJECTED, Prediction, standard_error

WIDEST_PATH = 60
WIDEST_MATRIX = 40  # classes, on a screen

# What is said of each image, and what is true, if that is known.
Answers: TypeAlias = Iterable[tuple[Prediction, str | None]]
# Images by truth and answer.
Counts: TypeAlias = Counter[tuple[str, str]]


def write_lines(answers: Answers, top: int, path_width: int, label_width: int) -> None:
    """Write answers for people: path, label, scores, and the truth beside a mistake."""
    people = PipedConsole()
    for said, truth in answers:
        if not said.error:
            ranking = ", ".join(f"{name} {score:.3f}" for name, score in said.ranking[:top])
            mistake = "" if truth in (None, said.label) else f"  not {truth}!"
            path = f"{said.path:{min(path_width, WIDEST_PATH)}s}"
            say(people, f"{path}  {said.label:{label_width}s}  {ranking}{mistake}")


def write_csv(answers: Answers, top: int, *, has_truth: bool, has_p_value: bool) -> None:
    """Write answers as rows, after a head; images that cannot be read have none."""
    lines = csv.writer(sys.stdout, lineterminator="\n")
    classes = [f"{what}_{i}" for i in range(1, top + 1) for what in ("class", "score")]
    lines.writerow(["path", "label", *["truth"] * has_truth, *["p_value"] * has_p_value, *classes])
    for said, truth in answers:
        if not said.error:
            p_value = "" if said.p_value is None else f"{said.p_value:.4g}"
            pairs = [x for label, score in said.ranking[:top] for x in (label, f"{score:.6g}")]
            lines.writerow([said.path, said.label, *[truth] * has_truth, *[p_value] * has_p_value, *pairs])
            sys.stdout.flush()


def write_json(answers: Answers, top: int) -> None:
    """Write answers as a list of objects, those of images that cannot be read among them."""
    before = "["
    for said, truth in answers:
        if said.error:
            found: dict[str, object] = {"path": said.path, "error": said.error}
        else:
            found = {"path": said.path, "label": said.label}
            found |= {} if truth is None else {"truth": truth}
            found["ranking"] = [{"label": label, "score": score} for label, score in said.ranking[:top]]
            found |= {} if said.p_value is None else {"p_value": said.p_value}
        sys.stdout.write(f"{before}\n{json.dumps(found, ensure_ascii=False, allow_nan=False)}")
        sys.stdout.flush()
        before = ","
    sys.stdout.write("[]\n" if before == "[" else "\n]\n")


def show_accuracy(console: Console, counts: Counts, classes: list[str], *, can_reject: bool) -> None:
    """Tell the accuracy on classes that the model knows, and what became of the others."""
    n = sum(count for (truth, _), count in counts.items() if truth in classes)
    n_other = counts.total() - n
    others = sorted({truth for truth, _ in counts} - set(classes))
    if n:
        n_right = sum(count for (truth, said), count in counts.items() if truth == said)
        accuracy = n_right / n
        error = standard_error(accuracy, n)
        told = f"Accuracy: {100 * accuracy:.1f} % ± {100 * error:.1f} ({n_right} of {n})."
        say(console, told, style="bold")
        if can_reject:
            n_refused = sum(counts[name, REJECTED] for name in classes)
            share = 100 * n_refused / n
            say(console, f"Of the known classes {n_refused} of {n} ({share:.1f} %) were taken for none,")
            among = f"{100 * n_right / (n - n_refused):.1f} %" if n > n_refused else "nothing"
            say(console, f"which counts as wrong; among those with an answer {among} is right.")
    if n_other:
        names = ", ".join(others[:5]) + (", ..." if len(others) > 5 else "")
        n_refused = sum(counts[name, REJECTED] for name in others)
        what = f"{n_refused} of them were taken for none" if can_reject else "they count for nothing"
        say(console, f"{n_other} images are in folders that are no class of the model ({names}); {what}.")


def axes(counts: Counts, classes: list[str]) -> tuple[list[str], list[str]]:
    """Return rows and columns of the confusion matrix: all classes that are tested, all that are answers."""
    truths, said = ({pair[i] for pair in counts} for i in (0, 1))
    rows = [name for name in classes if name in truths] + sorted(truths - set(classes))
    return rows, [name for name in [*classes, REJECTED] if name in truths | said]


def show_confusions(console: Console, counts: Counts, classes: list[str]) -> None:
    """Tell the confusion matrix, if it fits on a screen, and the commonest mistakes."""
    rows, columns = axes(counts, classes)
    if not rows:
        return
    if len(columns) <= WIDEST_MATRIX:
        say(console, "\nConfusion matrix: rows are the truth, columns the answers.")
        # Names of classes over the columns where they are short, or numbers.
        is_short = max(len(name) for name in columns if name != REJECTED) <= 4
        heads = {name: name if is_short else str(i) for i, name in enumerate(columns, start=1)}
        heads |= {REJECTED: "none"} if REJECTED in heads else {}
        shown = Table(box=None, padding=(0, 1, 0, 0))
        shown.add_column("", no_wrap=True)
        for name in columns:
            shown.add_column(Text(printable(heads[name])), justify="right", no_wrap=True)
        for truth in rows:
            cells = []
            for said in columns:
                style = "bold green" if truth == said else "" if counts[truth, said] else "dim"
                cells.append(Text("·" if style == "dim" else str(counts[truth, said]), style))
            shown.add_row(Text(printable(truth if is_short else f"{heads.get(truth, ''):>3} {truth}")), *cells)
        Console(file=console.file, width=max(console.width, 60 + 5 * len(columns))).print(shown)
        untested = ", ".join(f"{heads[name]}: {name}" for name in columns if name not in [*rows, REJECTED])
        if untested and not is_short:
            say(console, f"Columns of answers that no tested image has for truth: {untested}.")
    else:
        say(console, f"With {len(columns)} classes the confusion matrix is for a file: --confusion FILE.csv.")
    wrong = [(-n, truth, said) for (truth, said), n in counts.items() if truth in classes and truth != said]
    if wrong:
        say(console, "\nCommonest mistakes:")
    for n, truth, said in sorted(wrong)[:5]:
        say(console, f"{-n:4d}  {truth} taken for {said}")


def write_confusions(counts: Counts, classes: list[str], path: Path) -> None:
    """Write the confusion matrix as a CSV file."""
    rows, columns = axes(counts, classes)
    out = io.StringIO()
    lines = csv.writer(out, lineterminator="\n")
    lines.writerow(["truth", *columns])
    lines.writerows([truth, *(counts[truth, said] for said in columns)] for truth in rows)
    write_atomically(path, lambda file: file.write(out.getvalue().encode()))
