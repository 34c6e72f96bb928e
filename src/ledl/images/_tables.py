"""Read tables of labels, as people and spreadsheets write them, and as `ledl predict --format csv` does."""

from __future__ import annotations

import codecs
import csv
import io
import os
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from unicodedata import normalize

from ledl.csv_cells import from_cell
from ledl.files import read_regular
from ledl.images._reading import ImageError, shown

# Names of the columns; the first that is there counts.
PATHS, LABELS = ("path", "filename"), ("label",)
# The first line of some tables of Excel, whatever ends it.
SEPARATOR = re.compile(r'"?sep=([,;\t|])"?[^\S\r\n]*(?![^\r\n])', re.IGNORECASE)
LONGEST_LABEL = 255  # characters, as for names of folders
# Bytes of a table, its lines, and characters of a line with the cells that go on in those below.
LARGEST_TABLE, MOST_LINES, LONGEST_LINE = 2**26, 1_000_000, 2**20
LONGEST_PATH = 4096  # characters, more than any system allows
SOME_ROWS = 20  # whose paths tell which character separates
END = "\0"  # follows the text of a table, which has none. It is in a cell only if that does not end before.


def find_table(root: Path, table: str | os.PathLike[str]) -> Path:
    """Return where a table is: at its path from the current folder, or else from the folder of images."""
    found = next((path for path in (Path(table), root / table) if path.exists()), None)
    if found is None:
        raise ImageError(
            f"There is no table {shown(table)}, neither here nor in {shown(root)}. Give its path. If a browser "
            "has saved it, it is in its folder of downloads."
        )
    return found


def read_labels(root: Path, table: Path, *, anywhere: bool = False) -> dict[Path, str]:
    """Return the images in a folder, or `anywhere`, that a table names, with their labels, which may be empty.

    Raise ImageError with the number of the line that cannot be understood.
    """
    (in_path, in_label), rows = _rows(root, table)
    by_file: dict[Path, str] = {}
    line = 0
    for line, row in rows:
        if row[-1].endswith(END):
            raise ImageError(
                f"{shown(table)}, line {line}: a quotation mark is not closed, so that all lines after it "
                "belong to one cell. Remove it, or close it."
            )
        name, label = (from_cell(row[i]) if i < len(row) else "" for i in (in_path, in_label))
        where = f"{shown(table)}, line {line}"
        if not name and not label:
            continue
        if not name:
            raise ImageError(f"{where}: there is a label, {label!r}, but no path. Add the path.")
        if in_label < len(row) and {*"\r\n"} & {*row[in_label].strip()}:
            raise ImageError(
                f"{where}: the label {label[:40]!r} has a line break. Perhaps a quotation mark before it is "
                "not closed. Remove the mark, or the line break."
            )
        if len(label) > LONGEST_LABEL:
            raise ImageError(
                f"{where}: the label {label[:40]!r}... has {len(label):,} characters, but {LONGEST_LABEL} is "
                "the limit. Shorten it."
            )
        images = _images_named(root, table, name, anywhere)
        if not images and (anywhere or not _images_named(root, table, name, True)):
            raise ImageError(
                f"{where}: there is no image {name[:200]!r}. Paths begin at {shown(root)}, at the table or at "
                "the current folder. If this line is a header, call its columns path and label."
            )
        if not images:
            raise ImageError(
                f"{where}: the image {name!r} is not in {shown(root)}. Give the folder with all images of the "
                f"table. (ledl fit also trains on class folders and a table together: --labels folder --labels "
                f"{shown(table)}.)"
            )
        if len(images) > 1:
            both = " and ".join(map(shown, images))
            raise ImageError(f"{where}: {name!r} may be {both}. Write the whole path, from /.")
        if label and by_file.get(images[0], "") not in ("", label):
            raise ImageError(f"{where}: {name!r} has two labels, {by_file[images[0]]!r} and {label!r}.")
        by_file[images[0]] = label or by_file.get(images[0], "")
    if not line:
        raise ImageError(
            f"{shown(table)} must have a path and a label in every line, with a comma between them, or a first "
            "line with the names of columns: path, label."
        )
    return by_file


def _columns(head: list[str]) -> tuple[int, int] | None:
    """Return the numbers of the columns of paths and of labels, or None if this line does not name them."""
    names = [cell.strip().lower() for cell in head]
    found = [next((names.index(name) for name in known if name in names), None) for known in (PATHS, LABELS)]
    return None if found[0] is None or found[1] is None else (found[0], found[1])


def _rows(root: Path, table: Path) -> tuple[tuple[int, int], Iterator[tuple[int, list[str]]]]:
    """Return the numbers of the columns of paths and of labels, and the lines of a table below a header.

    Commas, semicolons or tabs separate. They do in a header, or else in most lines. If several do, the first
    paths tell: cells may have commas, too. There are no lines if none has two cells.
    """
    try:
        content = read_regular(table, LARGEST_TABLE)
        encoding = _encoding(content)
        text = content.decode(encoding)
        if "\0" in text:
            raise ValueError("it is not text")
    except (OSError, ValueError) as error:
        raise ImageError(
            f"The labels in {shown(table)} cannot be read: {str(error).rstrip('.')}. In a spreadsheet, save "
            "the table as CSV (UTF-8)."
        ) from error
    hint = SEPARATOR.match(text)
    del text  # which may take four times as much memory as the table
    split = partial(_split, table, content, encoding, hint.end() if hint else 0)
    best: Iterator[tuple[int, list[str]]] = iter(())
    best_fit = (0, False)
    for separator in hint[1] if hint else ",;\t":
        paths: list[str] = []
        n_split, rows = 0, split(separator)
        for _, row in rows:
            if not paths and (columns := _columns(row)):
                return columns, rows
            n_split += len(row) > 1 or row[-1].endswith(END)
            if len(paths) < SOME_ROWS:
                paths.append(from_cell(row[0]))
        fit = (n_split, any(_images_named(root, table, path, True) for path in paths))
        if n_split and fit > best_fit:
            best, best_fit = split(separator), fit
    return (0, 1), best


def _split(
    table: Path, content: bytes, encoding: str, begin: int, separator: str
) -> Iterator[tuple[int, list[str]]]:
    """Yield the lines of a table that are not blank, from a character on: number of the first line, and cells.

    If the last cell does not end, it has `END` at its end. Only one line is in memory at a time.
    """
    n_characters, first = 0, 1  # since the last row

    def lines() -> Iterator[str]:
        nonlocal n_characters
        file = io.TextIOWrapper(io.BytesIO(content), encoding, newline="")
        file.read(begin)
        for n, line in enumerate(iter(partial(file.readline, LONGEST_LINE), ""), 1):
            n_characters += len(line)
            if n > MOST_LINES:
                raise ImageError(
                    f"{shown(table)} has more than {MOST_LINES:,} lines. Leave out those that you do not need, "
                    "or make several tables of it."
                )
            if n_characters >= LONGEST_LINE:
                raise csv.Error(f"{LONGEST_LINE:,} characters or more")
            yield line
        yield END

    reader = csv.reader(lines(), delimiter=separator)
    try:
        for row in reader:
            if "".join(row).strip() and row != [END]:
                yield first, row
            n_characters, first = 0, reader.line_num + 1
    except csv.Error as error:
        raise ImageError(
            f"{shown(table)}, line {first} has no end ({error}). Close its quotation mark, or shorten the line."
        ) from error


def _encoding(content: bytes) -> str:
    """Return the encoding of a table: UTF-16 by its mark, UTF-8 if it is valid, else Windows-1252."""
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        return "cp1252"
    return "utf-8-sig"


def _images_named(root: Path, table: Path, name: str, anywhere: bool) -> list[Path]:
    """Return the files in a folder, or `anywhere`, that a table may mean by a path: one, none or several."""
    if len(name) > LONGEST_PATH:
        return []
    top = os.path.abspath(root)
    found: dict[str, Path] = {}
    try:
        if b"\0" in os.fsencode(name):  # which no system allows
            return []
    except UnicodeEncodeError:  # half a character
        return []
    # In archives of some systems ü is two letters.
    for spelled in dict.fromkeys([name, normalize("NFC", name), normalize("NFD", name)]):
        bases = (root, table.parent, Path())
        for given in dict.fromkeys(os.path.abspath(base / spelled) for base in bases):
            path = given
            if not Path(path).is_relative_to(top):  # a link may lead to the folder
                path = os.path.join(top, os.path.relpath(os.path.realpath(path), os.path.realpath(top)))
            image = root / os.path.relpath(path, top)
            if Path(os.path.abspath(image)).is_relative_to(top) and os.path.isfile(image):
                found[os.path.abspath(image)] = image
            elif anywhere and os.path.isfile(given):  # one path, however it is written
                folder = os.path.realpath(os.path.dirname(given))
                near = os.path.relpath(folder) if Path(folder).is_relative_to(os.getcwd()) else folder
                found[folder] = Path(near, os.path.basename(given))
        if found:
            break
    return list(found.values())
