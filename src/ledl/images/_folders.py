"""Find images in folders, with labels from the folders' names or from a table."""

from __future__ import annotations

import csv
import os
import unicodedata
from collections.abc import Sequence
from numbers import Integral
from pathlib import Path

import numpy as np
from sklearn.utils import Bunch

from ledl.arrays import Array
from ledl.images._extractors import height_and_width
from ledl.images._reading import (
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
    """List or read labelled images: ``path/class/*.jpg``, or a flat folder with a table of labels.

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
    for name, value, known in (("color", color, ("rgb", "gray")), ("on_error", on_error, ("raise", "skip"))):
        if value not in known:
            raise ValueError(f"{name}={value!r} must be {known[0]!r} or {known[1]!r}.")
    pair = None if size is None else height_and_width(size)
    if pair is not None and not (len(pair) == 2 and all(isinstance(x, Integral) and x > 0 for x in pair)):
        raise ValueError(f"size={size!r} must be a number of pixels, or a height and a width.")
    root = Path(path)
    if not root.is_dir():
        if root.exists():
            raise NotADirectoryError(
                f"{shown(root)} is a file, but a folder of images is needed. Unpack it if it is an archive."
            )
        raise FileNotFoundError(
            f"There is no folder {shown(root.absolute())}. Give the one that holds the images."
        )
    by_file = _labels_from_folders(root) if labels is None else _labels_from_table(root, Path(labels))
    files = sorted(by_file, key=lambda file: (by_file[file], str(file)))
    names = sorted(set(by_file.values()))
    numbers = {name: j for j, name in enumerate(names)}
    target = np.array([numbers[by_file[file]] for file in files], dtype=np.int64)
    skipped = Skipped()
    if not decode:
        return Bunch(filenames=[str(f) for f in files], target=target, target_names=names, skipped=skipped)

    shapes: dict[Path, tuple[int, ...]] = {}

    def decoded(file: Path) -> Array:
        image = read_image(file, "RGB" if color == "rgb" else "L", max_pixels=max_pixels)
        pixels = np.asarray(image if pair is None else image.resize((int(pair[1]), int(pair[0]))))
        shapes[file] = pixels.shape
        first = next(iter(shapes))
        if pixels.shape != shapes[first]:  # told at once: those that follow need not be read
            raise ValueError(
                f"Images have different sizes: {shown(first)} {shapes[first]}, {shown(file)} {pixels.shape}. "
                "Give size=(height, width)."
            )
        return pixels

    read = try_each(files, decoded, on_error, skipped)
    kept = [i for i, image in enumerate(read) if image is not None]
    empty = set(range(len(names))) - set(target[kept].tolist())
    if empty:
        raise ImageError(
            f"Of the class {names[min(empty)]!r} no image could be read. Replace its files or remove it."
        )
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


def image_files(paths: Sequence[Path]) -> tuple[list[Path], list[Path]]:
    """Return files as they are, and the images in folders at any depth, by name; and what else is there.

    Through links, but not in circles; nothing that is hidden, or in a hidden folder.
    """
    found: list[Path] = []
    others: list[Path] = []
    for path in paths:
        if not path.exists():
            raise FileNotFoundError(f"There is no file or folder {shown(path)}.")
        if not path.is_dir():
            found.append(path)
            continue
        below: list[Path] = []
        seen = set()
        for root, folders, names in os.walk(path, followlinks=True):
            seen.add(os.path.realpath(root))
            below += [Path(root, name) for name in names if not name.startswith(".")]
            folders[:] = [
                name
                for name in folders
                if not name.startswith(".") and os.path.realpath(os.path.join(root, name)) not in seen
            ]
        for file in sorted(below):
            (found if file.suffix.lower() in SUFFIXES else others).append(file)
    return found, others


def _labels_from_folders(root: Path) -> dict[Path, str]:
    """Return the images in the folders of a folder, each with its folder's name."""
    folders = sorted(
        (p for p in root.iterdir() if p.is_dir() and not p.name.startswith(".")), key=lambda p: p.name
    )
    if not folders:
        raise ImageError(
            f"{shown(root)} has no folders. It needs one for each class, with its images; for a flat folder "
            "give labels=, a CSV file (--labels on the command line)."
        )
    _check_names({folder.name: shown(folder) for folder in folders})
    by_file: dict[Path, str] = {}
    for folder in folders:
        if not os.access(folder, os.R_OK | os.X_OK):
            raise ImageError(f"The folder {shown(folder)} may not be read. Change its permissions.")
        own = [p for p in folder.iterdir() if p.suffix.lower() in SUFFIXES and not p.name.startswith(".")]
        if not own:
            raise ImageError(
                f"The class {folder.name!r} has no images: {shown(folder)} has no file that ends in "
                f"{', '.join(SUFFIXES)}. Add images or remove the folder."
            )
        by_file |= dict.fromkeys(own, folder.name)
    return by_file


def _labels_from_table(root: Path, table: Path) -> dict[Path, str]:
    """Return the images that a table names, each with its label."""
    table = table if table.is_absolute() or table.exists() else root / table
    try:
        with table.open(encoding="utf-8-sig", newline="") as file:
            rows = [row for row in csv.reader(file) if row]
    except (OSError, ValueError, csv.Error) as error:
        raise ImageError(
            f"The labels in {shown(table)} cannot be read: {error}. It must be CSV in UTF-8."
        ) from error
    head = [cell.strip().lower() for cell in rows[0]] if rows else []
    has_head = "filename" in head and "label" in head
    columns = (head.index("filename"), head.index("label")) if has_head else (0, 1)
    rows = rows[has_head:]
    if not rows or min(len(row) for row in rows) <= max(columns):
        raise ImageError(
            f"{shown(table)} needs a file name and a label in every line, with a comma between them."
        )
    by_file: dict[Path, str] = {}
    for line, row in enumerate(rows, 1 + has_head):
        name, label = (row[column].strip() for column in columns)
        image = Path(os.path.normpath(root / name))
        try:
            is_inside = image.resolve().is_relative_to(root.resolve())
        except (OSError, ValueError, RuntimeError):  # names that are no names, links in circles
            is_inside = False
        if not is_inside:
            raise ImageError(
                f"{shown(table)}: {name!r} is not in {shown(root)}. Names must stay inside the folder."
            )
        if not is_file(image):
            raise ImageError(
                f"{shown(table)}, line {line}: there is no file {name!r} in {shown(root)}. Correct the name; "
                "if this is a header, call its columns filename and label."
            )
        if by_file.setdefault(image, label) != label:
            raise ImageError(f"{shown(table)} gives {name!r} two labels, {by_file[image]!r} and {label!r}.")
    _check_names(dict.fromkeys(sorted(by_file.values()), shown(table)))
    return by_file


def _check_names(where: dict[str, str]) -> None:
    """Refuse classes whose names are empty or no text, look the same, or are the same on some file systems.

    `where` says for each name where it was found.
    """
    seen: dict[str, str] = {}
    for name, place in where.items():
        try:
            name.encode("utf-8")
        except UnicodeEncodeError as error:
            raise ImageError(f"The name of a class is not UTF-8: {place}. Rename it.") from error
        if not name:
            raise ImageError(f"A label in {place} is empty.")
        other = seen.setdefault(unicodedata.normalize("NFC", name).casefold().strip(), name)
        if other is not name:
            raise ImageError(
                f"Two classes have one name: {other!r} and {name!r}. Rename one, or put them together."
            )
