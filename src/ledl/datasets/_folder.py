"""Images in folders, with labels from the folders' names or from a table."""

from __future__ import annotations

import csv
import os
import unicodedata
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils import Bunch

from ledl.arrays import Array
from ledl.features._images import (
    MAX_PIXELS,
    SUFFIXES,
    ImageError,
    Skipped,
    is_file,
    read_image,
    shown,
    try_each,
)


def load_image_folder(
    path: str | os.PathLike[str],
    *,
    labels: str | os.PathLike[str] | None = None,
    size: int | tuple[int, int] | None = None,
    color: str = "rgb",
    decode: bool = True,
    max_pixels: int = MAX_PIXELS,
    on_error: str = "raise",
) -> Bunch:
    """Labelled images: ``path/class/*.jpg``, or a flat folder with a table of labels.

    Parameters
    ----------
    path : path
        A folder with a folder of images for each class; or, with `labels`, a folder of images.
    labels : path, default=None
        A CSV file, UTF-8, with a file name (relative to `path`) and a label a line. A first line with the
        words ``filename`` and ``label`` says which column is which; without it they are the first two. A
        relative path is looked for here, then in `path`.
    size : int or (height, width), default=None
        Images are brought to this size, their aspect not kept. None: all must have one size already.
    color : {"rgb", "gray"}, default="rgb"
        Three values a pixel, or one.
    decode : bool, default=True
        Read the images. False: only list them, unread, for `ledl.features.ResNetFeatures`, which reads a few
        at a time.
    max_pixels : int, default=2**26
        Larger images are refused before they are decoded.
    on_error : {"raise", "skip"}, default="raise"
        What to do with an image that cannot be read: stop, or leave it out, list it in ``skipped`` and warn.

    Returns
    -------
    Bunch
        ``filenames``, a list of paths in the order of their classes and names; ``target`` (n,), int64;
        ``target_names``, a list; ``images`` (n, height, width[, 3]), uint8, and ``data`` (n, d), float32, if
        `decode`; ``skipped``, a list of (number, name, reason).

    Raises
    ------
    ImageError
        For an image that cannot be read, and for a folder that is not laid out like this.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from ledl.datasets import load_image_folder
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name in ("cat/1.jpg", "cat/2.jpg", "dog/1.jpg"):
    ...         (Path(folder) / name).parent.mkdir(exist_ok=True)
    ...         _ = (Path(folder) / name).write_bytes(b"not read yet")
    ...     photos = load_image_folder(folder, decode=False)
    >>> photos.target_names, photos.target
    (['cat', 'dog'], array([0, 0, 1]))
    """
    size = _checked_options(color, on_error, size)
    root = Path(path)
    if not root.is_dir():
        if root.exists():
            raise NotADirectoryError(
                f"{shown(root)} is a file, but a folder of images is needed. Unpack it if it is an archive."
            )
        raise FileNotFoundError(
            f"There is no folder {shown(root.absolute())}. Give the one that holds the images."
        )
    files, target, names = _from_table(root, Path(labels)) if labels is not None else _from_folders(root)
    skipped = Skipped()
    if not decode:
        return Bunch(filenames=[str(f) for f in files], target=target, target_names=names, skipped=skipped)

    first: list[tuple[Path, tuple[int, ...]]] = []

    def decoded(file: Path) -> Array:
        image = read_image(file, "RGB" if color == "rgb" else "L", max_pixels=max_pixels)
        pixels = np.asarray(image if size is None else image.resize((size[1], size[0])))
        first.append((file, pixels.shape))
        if pixels.shape != first[0][1]:  # told at once: those that follow need not be read
            (one, its_size), (other, other_size) = first[0], first[-1]
            raise ValueError(
                f"Images have different sizes: {shown(one)} {its_size}, {shown(other)} {other_size}. Give "
                "size=(height, width)."
            )
        return pixels

    read = try_each(files, decoded, on_error, skipped)
    kept = [i for i, image in enumerate(read) if image is not None]
    _check_left(target, kept, names)
    images = np.stack([read[i] for i in kept])
    skipped.tell(len(files), "were left out")
    return Bunch(
        filenames=[str(files[i]) for i in kept],
        target=target[kept],
        target_names=names,
        images=images,
        data=images.reshape(len(images), -1).astype(np.float32),
        skipped=skipped,
    )


def _checked_options(color: str, on_error: str, size: Any) -> tuple[int, int] | None:
    """The size as height and width."""
    for name, value, known in (("color", color, ("rgb", "gray")), ("on_error", on_error, ("raise", "skip"))):
        if value not in known:
            raise ValueError(f"{name}={value!r} must be {known[0]!r} or {known[1]!r}.")
    if size is None:
        return None
    pair = (size, size) if isinstance(size, Integral) else size
    if (
        not isinstance(pair, tuple)
        or len(pair) != 2
        or not all(isinstance(x, Integral) and int(x) > 0 for x in pair)
    ):
        raise ValueError(f"size={size!r} must be a number of pixels, or a height and a width.")
    return int(pair[0]), int(pair[1])


def _from_folders(root: Path) -> tuple[list[Path], Array, list[str]]:
    folders = sorted(
        (p for p in root.iterdir() if p.is_dir() and not p.name.startswith(".")), key=lambda p: p.name
    )
    if not folders:
        raise ImageError(
            f"{shown(root)} has no folders. It needs one for each class, with its images; for a flat folder "
            "give labels=, a CSV file (--labels on the command line)."
        )
    names = [_checked_name(folder.name, shown(folder)) for folder in folders]
    _check_distinct(names)
    files: list[Path] = []
    target: list[int] = []
    for j, folder in enumerate(folders):
        if not os.access(folder, os.R_OK | os.X_OK):
            raise ImageError(f"The folder {shown(folder)} may not be read. Change its permissions.")
        own = sorted(
            (p for p in folder.iterdir() if p.suffix.lower() in SUFFIXES and not p.name.startswith(".")),
            key=lambda p: p.name,
        )
        if not own:
            raise ImageError(
                f"The class {names[j]!r} has no images: {shown(folder)} has no file that ends in "
                f"{', '.join(SUFFIXES)}. Add images or remove the folder."
            )
        files += own
        target += [j] * len(own)
    return files, np.array(target, dtype=np.int64), names


def _from_table(root: Path, table: Path) -> tuple[list[Path], Array, list[str]]:
    table = table if table.is_absolute() or table.exists() else root / table
    try:
        with table.open(encoding="utf-8-sig", newline="") as file:
            rows = [row for row in csv.reader(file) if row]
    except (OSError, ValueError, csv.Error) as error:
        raise ImageError(
            f"The labels in {shown(table)} cannot be read: {error}. It must be CSV in UTF-8."
        ) from error
    first = [cell.strip().lower() for cell in rows[0]] if rows else []
    columns = (0, 1)
    if "filename" in first and "label" in first:
        columns, rows = (first.index("filename"), first.index("label")), rows[1:]
    first_line = 1 + (columns != (0, 1) or first[:2] == ["filename", "label"])
    if not rows or min(len(row) for row in rows) <= max(columns):
        raise ImageError(
            f"{shown(table)} needs a file name and a label in every line, with a comma between them."
        )
    by_file: dict[Path, str] = {}
    for line, row in enumerate(rows, first_line):
        name, label = row[columns[0]].strip(), _checked_name(row[columns[1]].strip(), shown(table))
        image = Path(os.path.normpath(root / name))
        if _is_inside(image, root) and not is_file(image):
            raise ImageError(
                f"{shown(table)}, line {line}: there is no file {name!r} in {shown(root)}. Correct the name; "
                "if this is a header, call its columns filename and label."
            )
        if not _is_inside(image, root):
            raise ImageError(
                f"{shown(table)}: {name!r} is not in {shown(root)}. Names must stay inside the folder."
            )
        if by_file.setdefault(image, label) != label:
            raise ImageError(f"{shown(table)} gives {name!r} two labels, {by_file[image]!r} and {label!r}.")
    names = sorted(set(by_file.values()))
    _check_distinct(names)
    files = sorted(by_file, key=lambda file: (by_file[file], str(file)))
    return files, np.array([names.index(by_file[file]) for file in files], dtype=np.int64), names


def _is_inside(path: Path, root: Path) -> bool:
    try:
        return path.resolve().is_relative_to(root.resolve())
    except (OSError, ValueError, RuntimeError):  # names that are no names, links in circles
        return False


def _checked_name(name: str, where: str) -> str:
    """A class's name, which must be text that is not empty."""
    try:
        name.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ImageError(f"The name of a class is not UTF-8: {where}. Rename it.") from error
    if not name:
        raise ImageError(f"A label in {where} is empty.")
    return name


def _check_distinct(names: list[str]) -> None:
    """Refuse two classes whose names look the same, or are the same on some file systems."""
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(unicodedata.normalize("NFC", name).casefold().strip(), name)
        if other is not name:
            raise ImageError(
                f"Two classes have one name: {other!r} and {name!r}. Rename one, or put them together."
            )


def _check_left(target: Array, kept: list[int], names: list[str]) -> None:
    empty = np.flatnonzero(np.bincount(target[kept], minlength=len(names)) == 0)
    if empty.size:
        raise ImageError(
            f"Of the class {names[empty[0]]!r} no image could be read. Replace its files or remove it."
        )
