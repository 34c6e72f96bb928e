"""List the images in folders, with their labels: from the names of folders, or from a table.

Folders of people are messy. Whatever is found and not used is returned, too, with the reason.
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from sklearn.utils import Bunch

from ledl.arrays import Array
from ledl.images._reading import (
    MAX_PIXELS,
    SUFFIXES,
    ImageError,
    Skipped,
    content_if_readable,
    height_and_width,
    read_image,
    shown,
)
from ledl.images._tables import find_table, read_labels

# What was found and is not used: a file or a folder, and the reason.
Unused: TypeAlias = list[tuple[Path, str]]

# Answers that are no classes. `ledl predict --sort-into` makes folders with these names.
UNSURE, REJECTED = "unsure", "none of these"
ADVICE = "To use the names of folders for other images, add --labels folder."  # to who trains
FOLDER = "folder"  # in place of a table of labels: the names of the class folders
# What archives and systems leave behind, beside names that begin with a dot.
LEFTOVERS = {"__macosx", "thumbs.db", "desktop.ini", "@eadir", "$recycle.bin", "system volume information"}


def load_image_folder(
    path: str | os.PathLike[str],
    *,
    labels: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
    unlabelled: Sequence[str | os.PathLike[str]] = (),
    size: int | tuple[int, int] | None = None,
    color: str = "rgb",
    decode: bool = True,
    max_pixels: int = MAX_PIXELS,
    on_error: str = "raise",
) -> Bunch:
    """Return labelled images, or only their names: ``path/class/*.jpg``, or a folder and a table.

    Parameters
    ----------
    path : path
        A folder with one folder of images per class, at any depth below it; or, with `labels`, a folder of
        images.
    labels : path, "folder", or list of these, default=None
        "folder", the default, stands for the names of the class folders. A path is a CSV file with a path and
        a label per line, such as ``ledl predict --format csv`` writes. If the first line has the words
        ``path`` (or ``filename``) and ``label``, it names the columns. Otherwise they are the first two
        columns. Paths are relative to `path`, to the table, or to the current folder. An image without a label
        is unlabelled. The table itself is first searched in the current folder, then in `path`. In a list with
        "folder", tables correct the labels of folders, and add images that may lie outside `path`. The last
        table that names an image counts.
    unlabelled : list of paths, default=()
        Folders, or files, of images without labels. The name of such a folder inside `path` is no class.
    size : int or (height, width), default=None
        Images are resized to this size. The aspect ratio is not kept. If None, all images must have the same
        size.
    color : {"rgb", "gray"}, default="rgb"
        Three values per pixel, or one.
    decode : bool, default=True
        Read the images. If False, only list them, for example for `ledl.features.NetworkFeatures`, which reads
        a few at a time.
    max_pixels : int, default=2**26
        Larger images are refused before they are decoded.
    on_error : {"raise", "skip"}, default="raise"
        Reaction to an image that cannot be read: "raise" stops. "skip" leaves the image out, lists it in
        ``skipped`` and warns.

    Returns
    -------
    Bunch
        ``filenames``, a list of paths sorted by class and name; ``target`` (n,), int64;
        ``target_names``, a list; ``images`` (n, height, width[, 3]), uint8, and ``data`` (n, d), float32, if
        `decode`; ``unlabelled``, a list of paths: all images below `unlabelled`, and those that a table names
        without a label; ``skipped``, a list of (number, name, reason); ``unused``, a list of (path, reason) of
        everything else that was found; ``notes``, a list of remarks for a person;
        ``added``, a list of paths: the images among ``filenames`` that tables add to those of class folders.

    Raises
    ------
    ImageError
        If an image cannot be read, or if the folder has another layout.

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
    root = Path(path)
    if not root.is_dir():
        if root.exists():
            raise NotADirectoryError(
                f"{shown(root)} is a file. Give a folder of images. If the file is an archive, unpack it first."
            )
        raise FileNotFoundError(
            f"There is no folder {shown(root.absolute())}. Give the folder with the images."
        )
    unused: Unused = []
    notes: list[str] = []
    given = [labels or FOLDER] if labels is None or isinstance(labels, str | os.PathLike) else list(labels)
    tables = [find_table(root, table) for table in given if table != FOLDER]
    free, inner = _without_labels(root, unlabelled, unused)
    by_file = _by_folder(root, inner, unused, notes) if FOLDER in given else {}
    in_folders = {*by_file}
    of_none = _add_tables(root, tables, by_file, unused, notes, has_folders=FOLDER in given) if tables else []
    free |= {os.path.realpath(file): file for file, label in by_file.items() if not label}
    for image in [*of_none, *equal_files(free.values(), of_none)]:
        free.pop(os.path.realpath(image), None)
    unused = [(file, reason) for file, reason in dict(unused).items() if os.path.realpath(file) not in free]
    files = sorted((file for file in by_file if by_file[file]), key=lambda file: (by_file[file], str(file)))
    added = [str(file) for file in files if in_folders and file not in in_folders]
    unique, target = np.unique([by_file[file] for file in files], return_inverse=True)
    names = unique.tolist()
    skipped = Skipped()
    if not decode:
        return Bunch(
            filenames=[str(file) for file in files],
            target=target,
            target_names=names,
            unlabelled=[str(file) for file in free.values()],
            skipped=skipped,
            unused=unused,
            notes=notes,
            added=added,
        )
    read: dict[int, Array] = {}
    for number, file in enumerate(files):
        with skipped.catch(number, file, on_error):
            image = read_image(file, "RGB" if color == "rgb" else "L", max_pixels=max_pixels)
            read[number] = np.asarray(image if pair is None else image.resize(pair[::-1]))
            first = next(iter(read))
            if read[number].shape != read[first].shape:  # raised at once, before all others are read
                raise ValueError(
                    f"Images have different sizes: {shown(files[first])} {read[first].shape}, {shown(file)} "
                    f"{read[number].shape}. Give size=(height, width)."
                )
    kept = list(read)
    empty = set(range(len(names))) - set(target[kept].tolist())
    if empty:
        raise ImageError(
            f"No image of the class {names[min(empty)]!r} can be read. Replace its files or remove the class."
        )
    images = np.stack(list(read.values()))
    skipped.warn(len(files), "were left out")
    return Bunch(
        filenames=[str(files[i]) for i in kept],
        target=target[kept],
        target_names=names,
        unlabelled=[str(file) for file in free.values()],
        images=images,
        data=images.reshape(len(images), -1).astype(np.float32),
        skipped=skipped,
        unused=unused,
        notes=notes,
        added=added,
    )


def image_files(paths: Sequence[Path]) -> tuple[list[Path], Unused]:
    """Return the images among files and folders, and what else is in the folders, with the reason.

    A file is taken as it is. A folder is searched at any depth, in the order of names, for files with the
    ending of an image. Links are followed, but no folder is searched twice.
    """
    found: list[Path] = []
    unused: Unused = []
    for path in paths:
        if not path.exists():
            raise FileNotFoundError(f"There is no file or folder {shown(path)}.")
        if not path.is_dir():
            found.append(path)
            continue
        below: list[Path] = []
        seen = {os.path.realpath(path)}
        refused: list[OSError] = []
        for root, folders, names in os.walk(path, followlinks=True, onerror=refused.append):
            for name in sorted(folders):
                folder = Path(root, name)
                real = os.path.realpath(folder)
                if is_hidden(name):
                    unused.append((folder, "hidden, or made by a system"))
                elif real in seen:
                    unused.append((folder, "a link to a folder that is searched anyway"))
                else:
                    seen.add(real)
                    continue
                folders.remove(name)
            folders.sort()
            below += [Path(root, name) for name in names]
        unused += [(Path(error.filename), "you may not read this folder") for error in refused]
        for file in sorted(below):
            if is_hidden(file.name):
                unused.append((file, "hidden, or made by a system"))
            elif file.suffix.lower() in SUFFIXES:
                found.append(file)
            else:
                unused.append((file, "no image, by the ending of the name"))
    return found, unused


def equal_files(
    images: Iterable[str | os.PathLike[str]], files: Iterable[str | os.PathLike[str]]
) -> dict[Any, list[Any]]:
    """Return the files that have the content of an image, for each image of which there are some.

    Only contents of files with the size of an image are read. What cannot be read, or is
    the only file of its size, is equal to nothing.
    """
    content_of: Any = cache(content_if_readable)
    by_size: dict[int, list[Any]] = {}
    for file in files:
        with suppress(OSError):
            by_size.setdefault(os.path.getsize(file), []).append(file)
    contents: dict[int, dict[str | None, list[Any]]] = {}  # of the files of a size
    found = {}
    for image in images:
        with suppress(OSError):
            size = os.path.getsize(image)
            if by_size.get(size, [image]) == [image]:
                continue
            if size not in contents:
                contents[size] = {}
                for file in by_size[size]:
                    contents[size].setdefault(content_of(file), []).append(file)
            content = content_of(image)
            if content is not None and content in contents[size]:
                found[image] = contents[size][content]
    return found


def labels_of_tables(
    root: Path, tables: Iterable[Path], files: Iterable[Path], *, anywhere: bool
) -> dict[Path, str]:
    """Return the labels of images in tables, "" if blank. The last table that speaks of an image counts.

    If they may lie `anywhere`, a table that names a copy of `files` elsewhere, such as one that was sorted,
    speaks of these; but not if it gives several labels to one content, so that both are used, and reported.
    """
    files, given = {*files}, dict[Path, str]()
    for table in tables:
        said = read_labels(root, table, anywhere=anywhere)
        same = equal_files([image for image in said if image not in files], files) if anywhere else {}
        copies: dict[Path, list[Path]] = {}  # by the first file of each content
        for image, equal in same.items():
            copies.setdefault(equal[0], []).append(image)
        for images in copies.values():
            of_copies = {said[image] for image in images}
            labels = {file: (of_copies | {said.get(file, "")}) - {""} for file in same[images[0]]}
            if all(len(found) < 2 for found in labels.values()):
                for image in images:
                    del said[image]
                    given.pop(image, None)
                said |= {file: next(iter(found), "") for file, found in labels.items()}
        given |= said
    return given


def unused_lines(unused: Unused) -> list[str]:
    """Return one line of text for each reason: the reason, the number of files, and some of their names."""
    by_reason: dict[str, list[str]] = {}
    for path, reason in unused:
        by_reason.setdefault(reason, []).append(shown(path).replace("\n", "\\n"))
    return [
        f"Not used ({reason}): {len(names)}: {', '.join(names[:5])}"
        + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        for reason, names in by_reason.items()
    ]


def is_hidden(name: str) -> bool:
    """Return if a name is hidden, or one that archives and systems leave behind."""
    return name.startswith(".") or name.lower() in LEFTOVERS


def simplified(name: str) -> str:
    """Return a name as some file systems compare it."""
    return unicodedata.normalize("NFC", name).casefold().strip()


def is_answer(name: str) -> bool:
    """Return if a name is that of an answer which is no class, also in other letters."""
    return simplified(name) in (UNSURE, REJECTED)


def _without_labels(
    root: Path, paths: Sequence[str | os.PathLike[str]], unused: Unused
) -> tuple[dict[str, Path], set[str]]:
    """Return images without labels by their real paths, and the real paths of those that lie inside a folder.

    Inside are files and folders below `root`, but not `root` itself, nor what it lies in.
    """
    free: dict[str, Path] = {}
    inner: set[str] = set()
    for path in map(Path, paths):
        found, others = image_files([path])
        unused += others
        if not found:
            raise ImageError(f"{shown(path)} has no images. Give a folder of images without labels.")
        is_inside = Path(os.path.realpath(root)) in Path(os.path.realpath(path)).parents
        for file in found:
            real = os.path.realpath(file)
            free.setdefault(real, file)
            inner |= {real} if is_inside else set()
    return free, inner


def _by_folder(root: Path, no_names: set[str], unused: Unused, notes: list[str]) -> dict[Path, str]:
    """Return the images below the folders of a folder, each with the name of its class folder.

    The name is "" for images whose real paths are in `no_names`.
    """
    found, others = image_files([root])
    unused += others
    by_file: dict[Path, str] = {}
    for file in found:
        name, *rest = file.relative_to(root).parts
        if os.path.realpath(file) in no_names:
            by_file[file] = ""
        elif not rest:
            unused.append((file, "beside the class folders"))
        elif is_answer(name):
            unused.append((file, f"{name!r} is an answer of ledl predict, not a class"))
        else:
            by_file[file] = name
    of_class: dict[str, list[Path]] = {}
    for file, name in by_file.items():
        if name:
            of_class.setdefault(name, []).append(file)
    classes = sorted(of_class)
    if not classes:
        what = f"{len(found)} images, but no folders with images" if found else "no images"
        raise ImageError(
            f"{shown(root)} has {what}. It needs one folder of images per class. For images without class "
            "folders, give a CSV file of labels (labels=, or --labels on the command line)."
        )
    left_out = {path for path, _ in unused}
    used = {file.relative_to(root).parts[0] for file in by_file}
    for folder in sorted(root.iterdir()):
        is_used = folder.name in used or is_answer(folder.name)
        if folder.is_dir() and folder not in left_out and not is_used:
            unused.append((folder, "a class folder without images"))
    check_names({name: shown(root / name) for name in classes})
    for name in classes:
        inner = _parent_of_classes(of_class[name])
        if inner is not None and len(classes) == 1:
            raise ImageError(f"{shown(root)} has only one class, {name!r}. Did you mean {shown(inner)}?")
        if inner is not None:
            notes.append(
                f"Most images of the class {name!r} are in folders below its folder. If these are the classes, "
                f"did you mean {shown(inner)}?"
            )
            break
    return by_file


def _parent_of_classes(files: list[Path]) -> Path | None:
    """Return the innermost folder with all the images, if most of them lie in several folders below it."""
    inner = Path(os.path.commonpath([file.parent for file in files]))
    below = [file.relative_to(inner).parts[0] for file in files if file.parent != inner]
    return inner if len(set(below)) > 1 and 2 * len(below) > len(files) else None


def _add_tables(
    root: Path,
    tables: list[Path],
    by_file: dict[Path, str],
    unused: Unused,
    notes: list[str],
    *,
    has_folders: bool,
) -> list[Path]:
    """Give images the labels of tables, in place of the names of their folders if they have some.

    The label is "" if it is blank in the table. Return the images that are of no class, by a table.
    """
    names = {*by_file.values()} - {""}
    given = labels_of_tables(root, tables, by_file, anywhere=has_folders)
    said = " and ".join(map(shown, tables))
    n_new = n_other = n_blank = 0
    for image, label in given.items():
        old = by_file.pop(image, "")
        if is_answer(label):
            unused.append((image, f"{label!r} is an answer of ledl predict, not a class"))
        else:
            by_file[image] = label
            n_new += bool(label and not old)
            n_other += bool(label and old) and old != label
            n_blank += bool(old and not label)
    labelled = {image: label for image, label in by_file.items() if label}
    if not labelled:
        raise ImageError(f"{said} has no labels: all {len(given)} images in it are unlabelled, or of no class.")
    classes = sorted(set(labelled.values()))
    check_names(dict.fromkeys(classes, said))
    if has_folders:
        new = ", ".join(repr(name) for name in classes if name not in names)
        lost = ", ".join(repr(name) for name in sorted(names - {*classes}))
        notes.append(
            f"Labels are from folders and from {said}, which counts for images in both: {n_other} labels of "
            f"folders changed, {n_new} images added{', with new classes: ' * bool(new)}{new}."
        )
        if n_blank:
            notes.append(f"{n_blank} images lose the label of their folder, because it is blank in {said}.")
        if lost:
            notes.append(f"No image has the label of these folders any more: {lost}. They are no classes.")
    else:
        found, others = image_files([root])
        unused += others
        unused += [(image, "not in the table") for image in found if image not in given]
        names_of = {image: image.relative_to(root).parts[0] for image in labelled if image.parent != root}
        if {*names_of.values()} & {*classes}:
            n_other = sum(name != labelled[image] for image, name in names_of.items())
            notes.append(
                f"Labels are from {said}, not from folders: {n_other} of {len(labelled)} images have a label "
                "that is not the name of their folder."
            )
            notes.append(ADVICE)
    real = {os.path.realpath(table) for table in tables}
    unused[:] = [
        (path, reason) for path, reason in unused if path not in by_file and os.path.realpath(path) not in real
    ]
    return [image for image, label in given.items() if simplified(label) == REJECTED]


def check_names(where: dict[str, str]) -> None:
    """Raise ImageError if names of classes are not UTF-8, or equal on some file systems.

    `where` maps each name to the place where it was found.
    """
    seen: dict[str, str] = {}
    for name, place in where.items():
        try:
            name.encode("utf-8")
        except UnicodeEncodeError as error:
            raise ImageError(f"The name of a class is not UTF-8: {place}. Rename it.") from error
        other = seen.setdefault(simplified(name), name)
        if other is not name:
            raise ImageError(
                f"Two classes have the same name: {other!r} and {name!r}. Rename one, or join them."
            )
