"""Find images, print predictions one by one, and compare them with the true labels.

Imported only when a command runs, because it needs heavy modules.
"""

from __future__ import annotations

import csv
import io
import os
import shutil
import sys
from bisect import insort
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, partial
from operator import attrgetter
from pathlib import Path
from typing import TextIO, TypeAlias

import numpy as np
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from ledl.cli._console import PipedConsole, say, to_json, visible
from ledl.csv_cells import mark_for, to_cell
from ledl.datasets import load
from ledl.files import write_atomically
from ledl.image_models import ImageModel, Prediction, trained_on, with_interval
from ledl.images import (
    ADVICE,
    REJECTED,
    UNSURE,
    Sorter,
    Unused,
    find_table,
    image_files,
    labels_of_tables,
    load_image_folder,
    pillow,
    shown,
    simplified,
    unused_lines,
)
from ledl.model_selection import wilson_interval

WIDEST_PATH = 60  # characters
WIDEST_MATRIX = 40  # classes that fit on a screen

# Number of images by true label and answer.
Counts: TypeAlias = Counter[tuple[str, str]]


class Results:
    """Count predictions as they come, and keep those to look at: the memory does not grow with their number."""

    def __init__(self, n_review: int, n_examples: int = 0) -> None:
        self.n_review, self.n_examples = n_review, n_examples
        self.counts = Counts()
        self.unreadable: list[str] = []  # the errors
        self.review: list[Prediction] = []  # the least sure images, the least sure first
        self.examples: dict[str, list[Prediction]] = {}  # the surest images of each answer, the surest last

    def collect(self, answers: Iterable[Prediction]) -> Iterator[Prediction]:
        """Yield predictions after they were counted."""
        for said in answers:
            if said.error:
                self.unreadable.append(said.error)
            else:
                self.counts[said.truth or "", said.label] += 1
                insort(self.review, said, key=attrgetter("sureness"))
                del self.review[self.n_review :]
                best = self.examples.setdefault(said.label, [])
                insort(best, said, key=attrgetter("sureness"))
                del best[: max(len(best) - self.n_examples, 0)]
            yield said


def images_of(
    console: Console, paths: list[Path], labels: list[str], found: ImageModel, sorter: Sorter | None = None
) -> tuple[list[Path], list[str | None]]:
    """Return the images and their true labels.

    With true labels, the training images are left out. With a sorter, images that are sorted already are.
    """
    truths: list[str | None]
    notes: list[str] = []
    classes = [*map(str, found.parts.classifier.classes_)]
    moved = set() if sorter is None else sorter.moved_before()
    gone = [path for path in paths if path.name in moved and not path.exists()]
    if gone and sorter is not None:
        raise FileNotFoundError(
            f"{len(gone)} of {len(paths)} paths are not there, such as {shown(gone[0])}. An earlier run may "
            f"have moved them: {shown(sorter.folder)} has images of these names. Leave them out."
        )
    if not labels:
        files, unused = image_files(paths)
        truths = [None] * len(files)
    elif {*labels} == {"folder"}:
        files, truths, unused = _labels_of_folders(paths, classes)
    elif len(paths) > 1:
        table_name = next(name for name in labels if name != "folder")
        raise ValueError(f"--labels {table_name} is a table for one folder, but there are {len(paths)} paths.")
    elif "folder" in labels:
        files, truths, unused = _labels_of_folders(paths, classes, has_tables=True)
        truth_of = dict(zip(files, truths, strict=True))
        tables = [find_table(paths[0], name) for name in labels if name != "folder"]
        for image, label in labels_of_tables(paths[0], tables, files, anywhere=True).items():
            if image not in truth_of and not image.is_relative_to(paths[0]):
                unused.append((image, f"in a table, but not in {shown(paths[0])}"))
            elif not label or simplified(label) == UNSURE:
                unused.append((image, "no label in the table"))
                truth_of.pop(image, None)
            else:
                truth_of[image] = class_named(label, [*classes, REJECTED]) or label
        files, truths = [*truth_of], [*truth_of.values()]
        unused = [(file, reason) for file, reason in unused if file not in truth_of]
    else:
        table = load_image_folder(paths[0], labels=labels, decode=False)
        names = [class_named(name, classes) or name for name in table.target_names]
        files, truths = [Path(file) for file in table.filenames], [names[j] for j in table.target]
        unused = [*table.unused, *((Path(file), "no label in the table") for file in table.unlabelled)]
        notes = [note for note in table.notes if note != ADVICE]
    once: dict[str, int] = {}  # each image once, where folders and files overlap
    for i, file in enumerate(files):
        once.setdefault(os.path.abspath(file), i)
    unused = [*unused, *((files[i], "given twice") for i in sorted({*range(len(files))} - {*once.values()}))]
    files, truths = [files[i] for i in once.values()], [truths[i] for i in once.values()]
    there: Unused = []
    if sorter is not None:
        is_there, there = sorter.leave_out(files)
        unused = [*unused, *there]
        new = [i for i, is_in in enumerate(is_there) if not is_in]
        files, truths = [files[i] for i in new], [truths[i] for i in new]
    for line in [*unused_lines(unused), *notes]:
        say(console, line, style="yellow")
    if not files and there and sorter is not None:
        raise ValueError(
            f"All {len(there)} images are in folders of {shown(sorter.folder)} already. To sort them again, "
            "give another folder with --sort-into. To sort a folder there that is none of a class, give it as "
            "a path itself."
        )
    if not files and moved and sorter is not None:
        raise ValueError(
            "There are no images. An earlier run may have moved them: there are some in folders of "
            f"{shown(sorter.folder)}. Nothing was changed."
        )
    if not files:
        raise ValueError("There are no images. Give image files, or folders with images.")
    if not labels:
        return files, truths
    known = list(zip(found.record.files, found.record.sha256, strict=True))
    if not known:
        say(console, "The training images of this model are not known. The accuracy may be too high.", "yellow")
    seen, n_changed = trained_on(known, files)
    if all(seen):
        raise ValueError("The model was trained on all of these images. Give other images to test it.")
    if any(seen):
        copies = ", or copies of them" * (sum(seen) > len(known))
        say(console, f"Skipped {sum(seen)} training images of the model{copies}.")
    if n_changed:
        say(
            console,
            f"{n_changed} images have the names of training images, but other contents. If a program has "
            "changed these files, such as their tags, they are training images, and the accuracy is too high. "
            "If they are other images, as in folders for training and for tests, all is well.",
            style="yellow",
        )
    kept = [i for i, is_seen in enumerate(seen) if not is_seen]
    return [files[i] for i in kept], [truths[i] for i in kept]


def class_named(name: str, classes: Sequence[str]) -> str | None:
    """Return the class with a name, or the only one that differs in its letters alone: composed, capital."""
    if name in classes:
        return name
    wanted = simplified(name)
    alike = [one for one in classes if simplified(one) == wanted]
    return alike[0] if len(alike) == 1 else None


def _labels_of_folders(
    paths: list[Path], classes: list[str], *, has_tables: bool = False
) -> tuple[list[Path], list[str | None], Unused]:
    """Return images, the names of their class folders, and what is not used.

    The class folder is the topmost folder below the given path that has the name of a class; or the path
    itself, if it has such a name; or else the topmost folder, whose name the model does not know.
    """
    files: list[Path] = []
    truths: list[str | None] = []
    unused: Unused = []
    n_loose = 0
    class_of = cache(partial(class_named, classes=classes))
    for path in paths:
        found, others = image_files([path])
        unused += others
        whole = Path(os.path.abspath(path))
        for file in found:
            below = list(file.relative_to(path).parts[:-1]) or [whole.parent.name] * (file == path)
            folders = [*below, whole.name]
            known = [name for name in folders if name in classes]
            known = known or [name for one in folders if (name := class_of(one))]
            if not known and not below:
                unused.append((file, f"in no class folder, and {whole.name!r} is no class of the model"))
                n_loose += 1
                continue
            truth = [*known, *below][0]
            if not known and simplified(truth) == UNSURE:
                unused.append((file, f"{truth!r} is an answer of ledl predict, not a true label"))
                continue
            files.append(file)
            is_other = not known and simplified(truth) == REJECTED  # in other letters
            truths.append(REJECTED if is_other else shown(truth))
    if n_loose and not files and not has_tables:
        raise ValueError(
            f"--labels folder needs class folders, but all {n_loose} images lie directly in {shown(paths[0])}, "
            "which is no class of the model. Give a table of labels, or leave --labels out."
        )
    return files, truths, unused


def sort_answers(answers: Iterable[Prediction], sorter: Sorter, unsure: float | None) -> Iterator[Prediction]:
    """Yield predictions after their images were put into folders: of the class, or `UNSURE`, or `REJECTED`.

    They have the paths where the images are then.
    """
    for said in answers:
        if unsure is not None and said.probability is None and not said.error:
            raise ValueError("This model gives no probabilities, which --unsure needs. Leave --unsure out.")
        if not said.error:
            is_unsure = unsure is not None and said.probability is not None and said.probability < unsure
            place = sorter.put(said.path, UNSURE if is_unsure and said.label != REJECTED else said.label)
            said = said._replace(path=os.fspath(place))
        yield said


def write_answers(
    answers: Iterable[Prediction],
    form: str,
    *,
    top: int = 3,
    widths: tuple[int, int] = (0, 0),
    has_truth: bool = False,
    has_probability: bool = True,
    has_p_value: bool = False,
    mistakes: bool = False,
    mark: str = "",
    out: TextIO | None = None,
) -> None:
    """Print each prediction at once, or only `mistakes`, to stdout or `out`.

    A "table" has path and label, padded to `widths`, probabilities or scores, and the true label after a
    mistake. "csv" has a header, and cells that `ledl fit --labels` reads, in UTF-8 after `mark`. "json" also
    lists images that cannot be read.
    """
    out = out or sys.stdout
    people, lines, before = PipedConsole(), csv.writer(out, lineterminator="\n"), "["
    value = "probability" if has_probability else "score"
    if form == "csv":
        if isinstance(out, io.TextIOWrapper):
            out.reconfigure(encoding="utf-8")  # whatever a terminal here has
        out.write(mark)
        more = {"truth": has_truth, "probability": has_probability, "p_value": has_p_value}
        classes = [f"{what}_{i}" for i in range(1, top + 1) for what in ("class", value)]
        lines.writerow(["path", "label", *(name for name, is_there in more.items() if is_there), *classes])
    for said in answers:
        truth = said.truth
        if mistakes and not said.error and not said.is_wrong:
            continue
        ranking = said.ranking[:top]
        if form == "json":
            fields = {
                "path": shown(said.path),
                "error": said.error or None,
                "label": said.label or None,
                "truth": None if said.error else truth,
                "probability": said.probability,
                "ranking": [{"label": label, value: number} for label, number in ranking] or None,
                "p_value": said.p_value if has_p_value else None,
            }
            fields = {name: value for name, value in fields.items() if value is not None}
            out.write(f"{before}\n{to_json(fields)}")
            before = ","
        elif form == "csv" and not said.error:
            numbers = [said.probability] * has_probability + [said.p_value] * has_p_value
            pairs = [x for label, score in ranking for x in (to_cell(label), f"{score:.6g}")]
            names = [os.path.join(".", said.path), said.label, *[truth or ""] * has_truth]
            texts = ["" if number is None else f"{number:.4g}" for number in numbers]
            lines.writerow([*map(to_cell, names), *texts, *pairs])
        elif not said.error:
            form_of = "{} {:.0%}" if has_probability else "{} {:.3f}"
            scores = ", ".join(form_of.format(*pair) for pair in ranking)
            mistake = f"  wrong, should be {truth}" if said.is_wrong else ""
            path = f"{visible(shown(said.path)):{min(widths[0], WIDEST_PATH)}s}"
            say(people, visible(f"{path}  {visible(said.label):{widths[1]}s}  {scores}{mistake}"))
        out.flush()
    if form == "json":
        out.write("[]\n" if before == "[" else "\n]\n")


def write_labels(path: Path, answers: Sequence[Prediction], classes: list[str]) -> None:
    """Write the table of ``ledl predict --format csv`` to a file."""
    text, mark = io.StringIO(), mark_for([*(said.path for said in answers), *classes])
    write_answers(answers, "csv", top=min(3, len(classes)), mark=mark, out=text)
    write_atomically(path, text.getvalue().encode(), through_links=True)


def accuracy(counts: Counts, classes: list[str]) -> str:
    """Return the accuracy on images of the known classes as text, or "" if there are none."""
    n = sum(count for (truth, _), count in counts.items() if truth in classes)
    n_right = sum(counts[name, name] for name in classes)
    if not n:
        return ""
    return f"{with_interval(n_right / n, wilson_interval(n_right / n, n))} ({n_right} of {n})"


def sides(counts: Counts, classes: list[str]) -> tuple[list[str], list[str]]:
    """Return the names of the rows and of the columns of the confusion matrix: true labels, and answers."""
    truths, answers = ({pair[i] for pair in counts} for i in (0, 1))
    rows = [name for name in classes if name in truths] + sorted(truths - set(classes))
    return rows, [name for name in [*classes, REJECTED] if name in truths | answers]


def mistakes_in(counts: Counts, classes: list[str]) -> list[tuple[int, str, str]]:
    """Return how often an image of a known class was taken for another, the most frequent mistake first."""
    wrong = [(n, truth, said) for (truth, said), n in counts.items() if truth in classes and truth != said]
    return sorted(wrong, key=lambda found: (-found[0], *found[1:]))


def write_confusion(out: Path, counts: Counts, classes: list[str]) -> None:
    """Write the confusion matrix to a CSV file: rows are the tested classes, columns the answers."""
    rows, columns = sides(counts, classes)
    text = io.StringIO()
    matrix = ([to_cell(truth), *(counts[truth, said] for said in columns)] for truth in rows)
    csv.writer(text, lineterminator="\n").writerows([["truth", *map(to_cell, columns)], *matrix])
    write_atomically(out, (mark_for([*rows, *columns]) + text.getvalue()).encode(), through_links=True)


def show_judged(
    console: Console, counts: Counts, classes: list[str], *, can_reject: bool, is_written: bool
) -> None:
    """Print the accuracy on the known classes, the answers for other images, and the confusion matrix.

    One that is wide is only named, unless it is written to a file.
    """
    rows, columns = sides(counts, classes)
    n = sum(count for (truth, _), count in counts.items() if truth in classes)
    if n:
        n_right = sum(counts[name, name] for name in classes)
        say(console, f"Accuracy: {accuracy(counts, classes)}.", style="bold")
        if can_reject:
            n_refused = sum(counts[name, REJECTED] for name in classes)
            among = f"{100 * n_right / (n - n_refused):.1f} %" if n > n_refused else "none"
            say(
                console,
                f"{n_refused} of {n} images of known classes ({100 * n_refused / n:.1f} %) were rejected, "
                f"which counts as wrong.\n{among} of the other answers are right.",
            )
    others = sorted({truth for truth, _ in counts} - set(classes))
    if others:
        names = visible(", ".join(others[:5])) + (", ..." if len(others) > 5 else "")
        n_refused = sum(counts[name, REJECTED] for name in others)
        what = f"{n_refused} of them were rejected" if can_reject else "they do not count"
        unknown = f"{counts.total() - n} images have labels that the model does not know"
        say(console, f"{unknown} ({names}): {what}.")
    if rows and len(columns) <= WIDEST_MATRIX:
        say(console, "\nConfusion matrix: rows are true labels, columns are answers.")
        # Heads of columns are the names of classes if they are short, else numbers.
        is_short = max((len(name) for name in columns if name != REJECTED), default=0) <= 4
        heads = {name: name if is_short else str(i) for i, name in enumerate(columns, start=1)}
        heads |= {REJECTED: "none"} if REJECTED in heads else {}
        numbers = [Column(Text(visible(heads[name])), justify="right", no_wrap=True) for name in columns]
        first = Column("", no_wrap=True, max_width=50)  # a long name must not push the numbers out
        table = Table(first, *numbers, box=None, padding=(0, 1, 0, 0))
        for truth in rows:
            cells = []
            for said in columns:
                is_right = truth == said or (said == REJECTED and truth not in columns)
                style = "bold green" if is_right else "" if counts[truth, said] else "dim"
                cells.append(Text("·" if style == "dim" else str(counts[truth, said]), style))
            table.add_row(Text(visible(truth if is_short else f"{heads.get(truth, ''):>3} {truth}")), *cells)
        Console(file=console.file, width=max(console.width, 60 + 5 * len(columns))).print(table)
        untested = ", ".join(f"{heads[name]}: {name}" for name in columns if name not in [*rows, REJECTED])
        if untested and not is_short:
            say(console, visible(f"Columns without a row: {untested}."))
    elif rows and not is_written:
        say(
            console,
            f"The confusion matrix has {len(columns)} classes. Write it to a file: --confusion FILE.csv.",
        )
    wrong = mistakes_in(counts, classes)
    if wrong:
        say(console, "\nMost frequent mistakes:")
    for n, truth, said in wrong[:5]:
        say(console, visible(f"{n:4d}  {truth} predicted as {said}"))


def write_images(name: str, folder: Path) -> tuple[int, int]:
    """Write a dataset as one folder of images per class. Return the number of images and their longest side."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileExistsError(f"{shown(folder)} exists and is not an empty folder. Choose another name.")
    data = load(name)
    if "images" not in data:
        raise ValueError(
            f"The dataset {name!r} has features, not images. Datasets with images are digits, usps, yaleb and "
            "pie."
        )
    low, high = data.images.min(), data.images.max()
    pictures = np.round((data.images - low) * (255 / (high - low))).astype(np.uint8)
    homes = [folder / str(label) for label in data.target_names]
    try:
        for j, home in enumerate(homes):
            home.mkdir(parents=True)
            for i in np.flatnonzero(data.target == j):
                pillow().Image.fromarray(pictures[i]).save(home / f"{i:05d}.png")
    except BaseException:  # a full disk, Ctrl-C: nobody shall take a part for the dataset
        for home in homes:
            shutil.rmtree(home, ignore_errors=True)
        raise
    return len(pictures), max(pictures.shape[1:3])
