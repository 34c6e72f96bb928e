"""What the commands on images do: find images, write answers one after the other, set them beside the truth.

Imported by a command that runs, since it needs what computes.
"""

from __future__ import annotations

import csv
import io
import json
import os
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias

import numpy as np
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from ledl.cli._console import PipedConsole, printable, say, tell_ignored
from ledl.datasets import load
from ledl.files import write_atomically
from ledl.image_models import REJECTED, ImageModel, Prediction, facts, standard_error, trained_on
from ledl.images import PixelFeatures, image_files, load_image_folder, pillow, shown

WIDEST_PATH = 60
WIDEST_MATRIX = 40  # classes, on a screen

# What is said of each image, and what is true, if that is known.
Answers: TypeAlias = Iterable[tuple[Prediction, str | None]]
# Images by truth and answer.
Counts: TypeAlias = Counter[tuple[str, str]]


def show_trained(trained: ImageModel, out: Path, *, is_auto: bool) -> None:
    """Tell what was done, and how good it is."""
    record, console = trained.record, PipedConsole()
    for name, text in facts(trained).items():
        if name != "classes":
            say(console, f"{name.capitalize() + ':':12s}{text}")
    for name, reason in record.skipped:
        say(console, f"{'Left out:':12s}{name}: {reason}", style="yellow")
    say(console, f"{'Model:':12s}{out} ({out.stat().st_size / 1e6:.1f} MB)")
    n_same = len(record.sha256) - len(set(record.sha256))
    if n_same:
        say(console, f"{'Note:':12s}{n_same} images have the content of another, so the accuracy is too high.")
    if is_auto and isinstance(trained.extractor, PixelFeatures):
        say(console, f"{'Note:':12s}pixels suit faces and digits; photos want a network (--features).")


def images_of(
    console: Console, paths: list[Path], labels: str | None, found: ImageModel
) -> tuple[list[Path], list[str | None]]:
    """Return the images to label, and the truth if it is known; then without those that were trained on."""
    truths: list[str | None]
    if labels is None or labels == "folder":
        files, others = image_files(paths)
        tell_ignored(console, others)
        truths = [shown(Path(os.path.abspath(file)).parent.name) if labels else None for file in files]
    elif len(paths) == 1:
        table = load_image_folder(paths[0], labels=labels, decode=False)
        files, truths = [Path(file) for file in table.filenames], [table.target_names[j] for j in table.target]
    else:
        raise ValueError(f"--labels {labels} is a table for one folder, but {len(paths)} paths are given.")
    if not files:
        raise ValueError("There are no images to label. Give image files, or folders that hold some.")
    if labels is None:
        return files, truths
    known = list(zip(found.record.files, found.record.sha256, strict=True))
    if not known:
        say(console, "The model does not say what it was trained on: accuracy may be too high.", style="yellow")
    seen, n_copies = trained_on(known, files)
    if all(seen):
        raise ValueError("The model was trained on all of these images. Give others to judge it by.")
    if any(seen):
        say(console, f"Skipped {sum(seen)} images that the model was trained on.")
    if n_copies:
        say(console, f"Copies of training images among the others: {n_copies}. They count in the accuracy.")
    kept = [i for i, is_seen in enumerate(seen) if not is_seen]
    return [files[i] for i in kept], [truths[i] for i in kept]


def counted(answers: Answers, counts: Counts, unreadable: list[str], *, mistakes: bool) -> Answers:
    """Yield the answers that are to be written, only `mistakes` or all; count them and collect errors."""
    for said, truth in answers:
        if said.error:
            unreadable.append(said.error)
        else:
            counts[truth or "", said.label] += 1
        if said.error or said.label != truth or not mistakes:
            yield said, truth


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
        told = {
            "path": said.path,
            "error": said.error or None,
            "label": said.label or None,
            "truth": None if said.error else truth,
            "ranking": [{"label": label, "score": score} for label, score in said.ranking[:top]] or None,
            "p_value": said.p_value,
        }
        told = {name: value for name, value in told.items() if value is not None}
        sys.stdout.write(f"{before}\n{json.dumps(told, ensure_ascii=False, allow_nan=False)}")
        sys.stdout.flush()
        before = ","
    sys.stdout.write("[]\n" if before == "[" else "\n]\n")


def show_accuracy(console: Console, counts: Counts, classes: list[str], *, can_reject: bool) -> None:
    """Tell the accuracy on classes that the model knows, and what became of the others."""
    n = sum(count for (truth, _), count in counts.items() if truth in classes)
    if n:
        n_right = sum(count for (truth, said), count in counts.items() if truth == said)
        accuracy, error = n_right / n, standard_error(n_right / n, n)
        told = f"Accuracy: {100 * accuracy:.1f} % ± {100 * error:.1f} ({n_right} of {n})."
        say(console, told, style="bold")
        if can_reject:
            n_refused = sum(counts[name, REJECTED] for name in classes)
            among = f"{100 * n_right / (n - n_refused):.1f} %" if n > n_refused else "nothing"
            say(
                console,
                f"Of the known classes {n_refused} of {n} ({100 * n_refused / n:.1f} %) were taken for none,\n"
                f"which counts as wrong; among those with an answer {among} is right.",
            )
    others = sorted({truth for truth, _ in counts} - set(classes))
    if others:
        names = ", ".join(others[:5]) + (", ..." if len(others) > 5 else "")
        n_refused = sum(counts[name, REJECTED] for name in others)
        what = f"{n_refused} of them were taken for none" if can_reject else "they count for nothing"
        n_other = counts.total() - n
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
        numbers = [Column(Text(printable(heads[name])), justify="right", no_wrap=True) for name in columns]
        table = Table(Column("", no_wrap=True), *numbers, box=None, padding=(0, 1, 0, 0))
        for truth in rows:
            cells = []
            for said in columns:
                style = "bold green" if truth == said else "" if counts[truth, said] else "dim"
                cells.append(Text("·" if style == "dim" else str(counts[truth, said]), style))
            table.add_row(Text(printable(truth if is_short else f"{heads.get(truth, ''):>3} {truth}")), *cells)
        Console(file=console.file, width=max(console.width, 60 + 5 * len(columns))).print(table)
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


def write_images(name: str, folder: Path) -> int:
    """Write a dataset of pictures as a folder of images for each class, and return how many."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileExistsError(f"{shown(folder)} is there and not an empty folder. Choose another name.")
    data = load(name)
    if "images" not in data:
        raise ValueError(
            f"The dataset {name!r} holds features, not pictures. Those with pictures are digits, usps, yaleb "
            "and pie."
        )
    low, high = data.images.min(), data.images.max()
    pictures = np.round((data.images - low) * (255 / (high - low))).astype(np.uint8)
    for j, label in enumerate(data.target_names):
        (folder / str(label)).mkdir(parents=True)
        for i in np.flatnonzero(data.target == j):
            pillow().Image.fromarray(pictures[i]).save(folder / str(label) / f"{i:05d}.png")
    return len(pictures)
