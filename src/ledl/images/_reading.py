"""Read untrusted images from files and folders.

An image is returned decoded and upright, or an ImageError says why it cannot be used. Labels of the images in a
folder come from the names of its folders, or from a table.
"""

from __future__ import annotations

import csv
import hashlib
import os
import unicodedata
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from numbers import Integral
from pathlib import Path
from threading import Lock
from types import SimpleNamespace
from typing import Any, TypeAlias

import numpy as np
from sklearn.utils import Bunch

from ledl.arrays import Array

# A path, an array of bytes (height, width) or (height, width, 1, 3 or 4), or a PIL image.
Source: TypeAlias = Any

# Formats that are decoded, whatever the file is called. Pillow's decoders of other formats are little tested.
FORMATS = ("JPEG", "PNG", "TIFF", "BMP", "GIF", "WEBP", "PPM")
SUFFIXES = (".jpg", ".jpeg", ".png", ".tif", ".tiff", ".bmp", ".gif", ".webp", ".ppm", ".pgm")
# An image with more pixels may be an attempt to fill the memory. (Pillow's own limit is higher.)
MAX_PIXELS = 2**26
# JPEG files are decoded at least this many times as large as they are needed, so that resizing can average.
MARGIN = 2


class ImageError(ValueError):
    """An image cannot be used. The message has its name and the reason.

    Examples
    --------
    >>> import numpy as np
    >>> from ledl.features import ImageError, PixelFeatures
    >>> try:
    ...     PixelFeatures().fit_transform([np.zeros((64, 48))])
    ... except ImageError as error:
    ...     print("uint8" in str(error))
    True
    """


def pillow() -> Any:
    """Return the package PIL. Raise an ImportError that says how to install it if it is missing."""
    try:
        import PIL.Image
    except ImportError as error:
        raise ImportError(
            "Reading images needs Pillow. Install it with: pip install 'ledl[images]'."
        ) from error
    PIL.Image.init()  # registers all formats
    return PIL


def shown(path: str | os.PathLike[str]) -> str:
    """Return a path as text that can be printed, even if the path is not valid UTF-8."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def height_and_width(size: int | tuple[int, int]) -> tuple[int, int]:
    """Return a size as a pair. One number means a square. Raise ValueError for anything else."""
    pair = size if isinstance(size, tuple) else (size, size)
    if len(pair) != 2 or not all(isinstance(side, Integral) and side > 0 for side in pair):
        raise ValueError(f"size={size!r} must be a number of pixels, or a height and a width.")
    return int(pair[0]), int(pair[1])


# Shared by all threads: how many read an image now, and the filter that ignores Pillow's warnings meanwhile.
_READING = SimpleNamespace(lock=Lock(), n_readers=0, filter=None)


@contextmanager
def _quiet_pillow() -> Iterator[None]:
    """Ignore Pillow's warnings while any thread reads an image.

    Pillow warns about files that it can read (a broken EXIF entry), or that are refused here with a better
    message. If warnings are errors, such a file could not be read. Filters belong to the process, and
    `warnings.catch_warnings` in several threads can leave them changed for ever. So threads that read at the
    same time share one filter.
    """
    with _READING.lock:
        # A test or a user may have replaced all filters since the last reader.
        if _READING.filter not in warnings.filters:
            # The comment in the pattern distinguishes it from an equal filter of the user.
            warnings.filterwarnings("ignore", module=r"PIL\.(?#ledl)")
            _READING.filter = warnings.filters[0]
        _READING.n_readers += 1
    try:
        yield
    finally:
        with _READING.lock:
            _READING.n_readers -= 1
            if _READING.n_readers == 0:
                with suppress(ValueError):
                    warnings.filters.remove(_READING.filter)  # type: ignore[attr-defined]


def read_image(
    source: Source,
    mode: str,
    *,
    max_pixels: int = MAX_PIXELS,
    name: str | None = None,
    shrink_to: int | None = None,
) -> Any:
    """Return a PIL image, decoded, upright (EXIF), in `mode` "RGB" or "L".

    If the caller will shrink the image to this shorter side, `shrink_to`, a large JPEG file is decoded at a
    half, a quarter or an eighth of its size, which is faster. It is still at least `MARGIN` times as large.

    Raises ImageError if the source is not an image, is incomplete, or has more than `max_pixels` pixels.
    """
    PIL = pillow()
    name = name or (shown(source) if isinstance(source, str | os.PathLike) else "an image")
    image = None
    with _quiet_pillow():
        try:
            if isinstance(source, PIL.Image.Image):
                image = source
            elif isinstance(source, np.ndarray):
                is_plain = source.shape[2:] in ((), (1,), (3,), (4,))
                if source.size == 0 or source.dtype != np.uint8 or source.ndim < 2 or not is_plain:
                    raise ImageError(
                        f"{name} is an array of type {source.dtype} with shape {source.shape}. An image "
                        "must have type uint8 (0 to 255) and shape (height, width) or (height, width, 3). "
                        "Convert it."
                    )
                image = PIL.Image.fromarray(source[:, :, 0] if source.shape[2:] == (1,) else source)
            elif not os.path.isfile(source):  # reading a pipe could wait for ever
                raise ImageError(f"{name} is not a file, or you may not read it.")
            else:
                with Path(source).open("rb") as file:
                    image = PIL.Image.open(file, formats=FORMATS)
                    if image.width * image.height > max_pixels:
                        raise ImageError(
                            f"{name} has {image.width} x {image.height} pixels, more than max_pixels="
                            f"{max_pixels}. If you trust the file, increase max_pixels."
                        )
                    if shrink_to is not None:  # Pillow does nothing if the format cannot do it
                        image.draft(None, (MARGIN * shrink_to, MARGIN * shrink_to))
                    image.load()
            return _converted(image, mode)
        except ImageError:
            raise
        except PIL.UnidentifiedImageError as error:
            raise ImageError(
                f"{name} is not an image, or its format is not supported. Supported: {', '.join(FORMATS)}."
            ) from error
        except PIL.Image.DecompressionBombError as error:
            raise ImageError(f"{name} has too many pixels to be decoded safely: {error}.") from error
        except Exception as error:  # decoders raise many types
            raise ImageError(f"{name} cannot be decoded: {error}. Replace or remove the file.") from error
        finally:
            if image is not None and image is not source:
                image.close()


def _converted(image: Any, mode: str) -> Any:
    """Return an image upright, on white where it is transparent, with 8 bits a channel, in `mode`."""
    PIL = pillow()
    turns = PIL.Image.Transpose
    by_orientation = {
        2: turns.FLIP_LEFT_RIGHT,
        3: turns.ROTATE_180,
        4: turns.FLIP_TOP_BOTTOM,
        5: turns.TRANSPOSE,
        6: turns.ROTATE_270,
        7: turns.TRANSVERSE,
        8: turns.ROTATE_90,
    }
    turn = None
    with suppress(Exception):  # broken EXIF data raise many types of errors
        turn = by_orientation.get(image.getexif().get(0x0112))
    if turn is not None:
        image = image.transpose(turn)
    if image.mode.startswith(("I", "F")):  # more than 8 bits per pixel; PIL would clip the values
        values = np.asarray(image, dtype=np.float32)
        if not np.isfinite(values).all():
            raise ValueError("some of its pixels are NaN or infinite")
        # Values are 16-bit, unless all of them are at most 255, or at most 1.
        tops = (65535,) if image.mode.startswith("I;16") else (1, 255, 65535)
        top = next((top for top in tops if values.max() <= top), 65535)
        image = PIL.Image.fromarray(np.uint8(np.clip(values, 0, top) * np.float32(255 / top) + np.float32(0.5)))
    if image.mode in ("P", "PA", "LA", "RGBA") or "transparency" in image.info:
        image = image.convert("RGBA")
        image = PIL.Image.alpha_composite(PIL.Image.new("RGBA", image.size, "white"), image)
    return image.convert(mode)


def median_short_side(paths: Sequence[str | os.PathLike[str]], n: int = 50) -> float | None:
    """Return the median of the shorter sides of at most `n` images. Only their headers are read.

    The images are spread over the list. None if no image can be read.
    """
    sides = []
    for i in np.unique(np.linspace(0, len(paths) - 1, min(n, len(paths))).astype(int)):
        with suppress(Exception), _quiet_pillow(), Path(paths[i]).open("rb") as file:  # as in read_image
            sides.append(min(pillow().Image.open(file, formats=FORMATS).size))
    return float(np.median(sides)) if sides else None


def content_key(source: Source) -> str:
    """Return the sha256 of a file's bytes, or of an image's pixels."""
    if isinstance(source, str | os.PathLike):
        if not os.path.isfile(source):  # reading a pipe could wait for ever
            raise ImageError(f"{shown(source)} is not a file, or you may not read it.")
        with Path(source).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    image = read_image(source, "RGB")  # as the network sees it: with palette and orientation applied
    return hashlib.sha256(f"RGB {image.size}".encode() + image.tobytes()).hexdigest()


def as_sources(X: Any) -> list[Source]:
    """Return images from any sequence, array or pandas object as a list of paths, arrays and PIL images."""
    PIL = pillow()
    one = isinstance(X, str | bytes | os.PathLike | PIL.Image.Image)
    if one or (isinstance(X, np.ndarray) and X.dtype.kind not in "OUS" and X.ndim < 3):
        if isinstance(X, str | os.PathLike) and Path(X).is_dir():
            raise ValueError(
                f"X is a folder, {shown(X)}. Give the files in it: ledl.datasets.load_image_folder(X, "
                "decode=False).filenames."
            )
        raise ValueError(
            "X is one image or path, or a matrix. Give a list of paths, of uint8 arrays (height, width[, 3]), "
            "or of PIL images."
        )
    if hasattr(X, "to_numpy"):  # pandas: by position, not by label
        X = X.to_numpy()
    if isinstance(X, np.ndarray) and X.dtype.kind in "OUS":
        X = X.reshape(-1)
    sources = list(X)
    for i, source in enumerate(sources):
        if not isinstance(source, str | os.PathLike | np.ndarray | PIL.Image.Image):
            raise ValueError(
                f"Image {i} is a {type(source).__name__}. Give paths, uint8 arrays, or PIL images."
            )
    return sources


class Skipped(list[tuple[int, str, str]]):
    """List the images that could not be read: number, name and reason of each."""

    @contextmanager
    def catch(self, number: int, source: Source, on_error: str) -> Iterator[None]:
        """Turn an ImageError in the block into an entry, or raise it if `on_error` is "raise"."""
        try:
            yield
        except ImageError as error:
            is_path = isinstance(source, str | os.PathLike)
            if on_error == "raise":
                if is_path:
                    raise
                raise ImageError(f"Image {number}: {error}") from error
            self.append((number, shown(source) if is_path else f"image {number}", str(error)))

    def warn(self, n: int, outcome: str) -> None:
        """Warn once about all entries. `n` is the number of all images, `outcome` what happened to these."""
        if self:
            first = "; ".join(reason for _, _, reason in self[:3])
            more = f"; and {len(self) - 3} more" if len(self) > 3 else ""
            warnings.warn(
                f"{len(self)} of {n} images could not be read and {outcome}: {first}{more}",
                UserWarning,
                stacklevel=3,
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
    """Return labelled images, or only their names: ``path/class/*.jpg``, or a flat folder and a table.

    Parameters
    ----------
    path : path
        A folder with one folder of images per class; or, with `labels`, a folder of images.
    labels : path, default=None
        A CSV file in UTF-8 with a file name (relative to `path`) and a label per line. If the first line has
        the words ``filename`` and ``label``, it names the columns. Otherwise they are the first two columns.
        A relative path is first searched in the current folder, then in `path`.
    size : int or (height, width), default=None
        Images are resized to this size. The aspect ratio is not kept. If None, all images must have the same
        size.
    color : {"rgb", "gray"}, default="rgb"
        Three values per pixel, or one.
    decode : bool, default=True
        Read the images. If False, only list them, for example for `ledl.features.ResNetFeatures`, which reads
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
        `decode`; ``skipped``, a list of (number, name, reason).

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
    by_file = _labels_from_folders(root) if labels is None else _labels_from_table(root, Path(labels))
    files = sorted(by_file, key=lambda file: (by_file[file], str(file)))
    unique, target = np.unique([by_file[file] for file in files], return_inverse=True)
    names = unique.tolist()
    skipped = Skipped()
    if not decode:
        return Bunch(filenames=[str(f) for f in files], target=target, target_names=names, skipped=skipped)
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
        images=images,
        data=images.reshape(len(images), -1).astype(np.float32),
        skipped=skipped,
    )


def image_files(paths: Sequence[Path]) -> tuple[list[Path], list[Path]]:
    """Return the images among files and folders, and the other files in the folders.

    A file is taken as it is. A folder is searched at any depth, in the order of names, for files with the
    ending of an image. Links are followed, but not in circles. Hidden files and folders are left out.
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
            f"{shown(root)} has no folders. It needs one folder of images per class. For a folder without "
            "folders, give a CSV file of labels (labels=, or --labels on the command line)."
        )
    _check_names({folder.name: shown(folder) for folder in folders})
    by_file: dict[Path, str] = {}
    for folder in folders:
        if not os.access(folder, os.R_OK | os.X_OK):
            raise ImageError(f"You may not read the folder {shown(folder)}. Change its permissions.")
        own = [p for p in folder.iterdir() if p.suffix.lower() in SUFFIXES and not p.name.startswith(".")]
        if not own:
            raise ImageError(
                f"The class {folder.name!r} has no images. {shown(folder)} has no file that ends in "
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
            f"The labels in {shown(table)} cannot be read: {error}. The file must be CSV in UTF-8."
        ) from error
    head = [cell.strip().lower() for cell in rows[0]] if rows else []
    has_head = "filename" in head and "label" in head
    columns = (head.index("filename"), head.index("label")) if has_head else (0, 1)
    rows = rows[has_head:]
    if not rows or min(len(row) for row in rows) <= max(columns):
        raise ImageError(
            f"{shown(table)} must have a file name and a label in every line, with a comma between them."
        )
    by_file: dict[Path, str] = {}
    for line, row in enumerate(rows, 1 + has_head):
        name, label = (row[column].strip() for column in columns)
        image = Path(os.path.normpath(root / name))
        try:
            is_inside = image.resolve().is_relative_to(root.resolve())
        except (OSError, ValueError, RuntimeError):  # invalid names, links in circles
            is_inside = False
        if not is_inside:
            raise ImageError(
                f"{shown(table)}: {name!r} is not in {shown(root)}. All files must be inside the folder."
            )
        if not os.path.isfile(image):
            raise ImageError(
                f"{shown(table)}, line {line}: there is no file {name!r} in {shown(root)}. Correct the name. "
                "If this line is a header, call its columns filename and label."
            )
        if by_file.setdefault(image, label) != label:
            raise ImageError(f"{shown(table)} gives {name!r} two labels, {by_file[image]!r} and {label!r}.")
    _check_names(dict.fromkeys(sorted(by_file.values()), shown(table)))
    return by_file


def _check_names(where: dict[str, str]) -> None:
    """Raise ImageError if names of classes are empty, not UTF-8, or equal on some file systems.

    `where` maps each name to the place where it was found.
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
                f"Two classes have the same name: {other!r} and {name!r}. Rename one, or join them."
            )
