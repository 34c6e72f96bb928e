"""Read untrusted images from files.

An image is returned decoded and upright, or an ImageError says why it cannot be used.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from itertools import islice
from numbers import Integral
from pathlib import Path
from threading import Lock
from types import SimpleNamespace
from typing import Any, BinaryIO, Literal, TypeAlias

import numpy as np

# A path, an array of bytes (height, width) or (height, width, 1, 3 or 4), or a PIL image.
Source: TypeAlias = Any

# Formats that are decoded, whatever the file is called. Pillow's decoders of other formats are little tested.
FORMATS = ("JPEG", "PNG", "TIFF", "BMP", "GIF", "WEBP", "PPM")
# Formats that not every Pillow reads: how to tell one by the first bytes of a file, and what it needs.
OPTIONAL = {
    "AVIF": ((b"avif", b"avis"), "Reading AVIF needs a Pillow with AVIF: pip install --upgrade pillow."),
    "HEIF": (
        (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"),
        "It is a HEIC photo. Reading it needs the extra heic: pip install 'ledl[heic]'. Or save it as JPEG.",
    ),
}
SUFFIXES = (
    *(".jpg", ".jpeg", ".jfif", ".png", ".tif", ".tiff", ".bmp", ".gif", ".webp", ".ppm", ".pgm"),
    *(".avif", ".heic", ".heif", ".hif"),
)
# An image with more pixels may be an attempt to fill the memory. (Pillow's own limit is higher.)
MAX_PIXELS = 2**26
# Pillow's tables for shrinking a side have some 50 bytes for each of its pixels.
LONGEST_SIDE = 2**20
# Of an image of more than 8 bits: how many pixels tell what is white, and the share that may not exceed it.
SOME_PIXELS, NEARLY_ALL = 2**20, 0.999
# Bytes of the largest image file, which such an image does not need.
LARGEST_IMAGE = 2**31
# A JPEG file may paint its pixels again and again, a hundred bytes each time; encoders need some ten scans. The
# pattern finds a marker with a length, or the end of the image, and not those that are among the pixels.
MOST_SCANS, MARKER = 100, re.compile(rb"\xff[\xc0-\xcf\xd9-\xfe]")
START_OF_SCAN, END_OF_IMAGE = 0xDA, 0xD9
BLOCK = 2**20  # bytes that are read at a time
# Encoders write a few dozen markers of other kinds. EXIF data have 64 kB, but may come in parts.
MOST_MARKERS, MOST_EXIF = 10_000, 2**20
# Pillow makes a fraction of each rational number in a TIFF file, of which no tag needs more than a few.
MOST_TAGS, MOST_RATIONALS, RATIONALS = 65_535, 10_000, (5, 10)
# In AVIF files, items have a number and a type; the largest grids have some hundred parts.
MOST_ITEMS, EXIF_ITEM = 100_000, re.compile(rb"infe(?:.{8})?(?:\x02...(..)|\x03...(....))..Exif", re.DOTALL)
# Pillow copies a block for each comment among pixels that are written as text.
MOST_COMMENTS = 1000
# Pillow reads each number of pixels as text with lines of Python, and each run of a coded BMP file. So it does
# with pixels whose largest value is unusual, which are read here instead.
LARGEST_TEXT, MOST_CODED_PIXELS = 2**24, 2**24
# How often an image is read from its file: less often if it has parts of at least half a kilobyte.
MOST_READS = 1_000_000
TOO_MUCH_WORK = (
    "has {}, so decoding may take very long. If you trust the file, open it in another program and save it"
    " again."
)
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
    _register_heic()
    return PIL


@cache
def _register_heic() -> None:
    """Allow Pillow to read HEIC photos if pillow-heif, the extra ``heic``, is installed."""
    with suppress(ImportError):
        import pillow_heif

        pillow_heif.register_heif_opener()


def _why_unknown(path: Source) -> str:
    """Return why Pillow does not know the format of a file, and what to do."""
    with Path(path).open("rb") as file:
        start = file.read(12)
    if not start:
        return "is empty: it has no bytes. Replace or remove the file."
    for form, (brands, remedy) in OPTIONAL.items():
        if start[4:8] == b"ftyp" and start[8:12] in brands and form not in pillow().Image.OPEN:
            return f"cannot be read here. {remedy}"
    return f"is not an image, or its format is not supported. Supported: {', '.join([*FORMATS, *OPTIONAL])}."


def shown(path: str | os.PathLike[str]) -> str:
    """Return a path as text that can be printed, even if the path is not valid UTF-8."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def height_and_width(size: int | tuple[int, int]) -> tuple[int, int]:
    """Return a size as a pair. One number means a square. Raise ValueError for anything else."""
    pair = size if isinstance(size, tuple) else (size, size)
    if len(pair) != 2 or not all(isinstance(side, Integral) and side > 0 for side in pair):
        raise ValueError(f"size={size!r} must be a number of pixels, or a height and a width.")
    return int(pair[0]), int(pair[1])


class _CountedFile(io.BufferedReader):
    """Refuse files with millions of tiny parts, each of which takes Pillow some lines of Python."""

    def __init__(self, path: Source, max_pixels: int, title: str) -> None:
        super().__init__(io.FileIO(path))
        self.title, self.n_left = title, MOST_READS * max(1, max_pixels // MAX_PIXELS)

    def read(self, size: int | None = -1, /) -> bytes:
        self.n_left -= 1
        if self.n_left < 0:
            raise ImageError(f"{self.title} {TOO_MUCH_WORK.format('millions of tiny parts')}")
        return super().read(size)


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
                _check_size(source)
                with _opened(source, max_pixels, name) as (image, file):
                    if image.width * image.height > max_pixels:
                        raise ImageError(
                            f"{name} has {image.width} x {image.height} pixels, more than {max_pixels}. If you "
                            "trust the file, increase max_pixels (--max-pixels on the command line)."
                        )
                    if max(image.size) > LONGEST_SIDE:
                        raise ImageError(
                            f"{name} has {image.width} x {image.height} pixels, and no side may be longer than "
                            f"{LONGEST_SIDE}. Cut it into parts."
                        )
                    _check_work(image, file, name, max_pixels)
                    if shrink_to is not None:  # Pillow does nothing if the format cannot do it
                        image.draft(None, (MARGIN * shrink_to, MARGIN * shrink_to))
                    if image.tile and image.tile[0][0] == "ppm":
                        image = PIL.Image.frombytes(image.mode, image.size, _scaled_pixels(image, file))
                    image.load()
            return _converted(image, mode)
        except ImageError:
            raise
        except PIL.UnidentifiedImageError as error:
            raise ImageError(f"{name} {_why_unknown(source)}") from error
        except PIL.Image.DecompressionBombError as error:
            raise ImageError(f"{name} has too many pixels to be decoded safely: {error}.") from error
        except Exception as error:  # decoders raise many types
            raise ImageError(f"{name} cannot be decoded: {error}. Replace or remove the file.") from error
        finally:
            if image is not None and image is not source:
                image.close()


@contextmanager
def _opened(path: Source, max_pixels: int, title: str) -> Iterator[tuple[Any, _CountedFile]]:
    """Yield a PIL image whose pixels are not decoded yet, and its file. Errors name it by its title."""
    with _CountedFile(path, max_pixels, title) as file:
        start, reason = file.read(2), None
        if start == b"\xff\xd8":
            reason = _why_much_work(file)
        elif start in (b"II", b"MM"):
            reason = _why_much_work_tiff(file, "little" if start == b"II" else "big")
        elif file.read(6)[2:] == b"ftyp":
            reason = _why_much_work_avif(file.read())
        if reason:
            raise ImageError(f"{title} {TOO_MUCH_WORK.format(reason)}")
        file.seek(0)
        yield pillow().Image.open(file, formats=_formats()), file


def _check_work(image: Any, file: _CountedFile, name: str, max_pixels: int) -> None:
    """Raise ImageError if a small file asks for far more work than its pixels need."""
    reason, size = None, os.fstat(file.fileno()).st_size
    coder = image.tile[0][0] if image.tile else None
    if image.format == "TIFF":
        exif = image.getexif()
        for directory in pillow().TiffTags.TAGS_V2_GROUPS:  # Pillow would decode all that they have, to keep it
            if directory in exif:
                del exif[directory]
        # Tiles may be larger than the image, and share one block of bytes.
        width, height = (int(image.tag_v2.get(tag) or 1) for tag in (0x0142, 0x0143))
        n_pixels = -(-image.width // width) * width * -(-image.height // height) * height
        # Of strips and of tiles. Old programs wrote too large ones.
        counts = (np.ravel(image.tag_v2.get(tag, ())) for tag in (0x0117, 0x0145))
        n_bytes = sum(min(int(n), size) for some in counts for n in some)
        if n_pixels > 2 * max(max_pixels, MAX_PIXELS):
            reason = f"{n_pixels:,} pixels in its tiles"
        elif n_bytes > 2 * size + BLOCK:
            reason = "tiles or strips that share their bytes"
    elif coder == "ppm_plain":
        file.seek(0)
        if size > LARGEST_TEXT:
            reason = f"more than {LARGEST_TEXT / 1e6:.0f} MB of pixels as text"
        elif file.read().count(b"#") > MOST_COMMENTS:
            reason = f"more than {MOST_COMMENTS} comments"
    elif coder == "bmp_rle":
        file.n_left = 2 * size  # two for each run
        if max(image.width * image.height, size) > MOST_CODED_PIXELS:
            reason = f"{image.width} x {image.height} pixels in runs"
    if reason:
        raise ImageError(f"{name} {TOO_MUCH_WORK.format(reason)}")


def _why_much_work(file: BinaryIO) -> str | None:
    """Return why a JPEG file asks for far more work than its pixels need, if it does."""
    n_scans = n_markers = n_exif = 0
    content, at = file.read(BLOCK), 0
    while True:
        marker = MARKER.search(content, at)
        if marker is None or marker.end() + 8 > len(content):  # it may begin at the end of the block
            block = file.read(BLOCK)
            if block:
                content, at = (content[-1:] if marker is None else content[marker.start() :]) + block, 0
                continue
            if marker is None:
                return None
        kind, at = content[marker.end() - 1], marker.end()
        length = int.from_bytes(content[at : at + 2], "big")
        n_scans += kind == START_OF_SCAN
        n_markers += kind != START_OF_SCAN
        n_exif += length * content.startswith(b"Exif", at + 2)
        if n_scans > MOST_SCANS:
            return f"more than {MOST_SCANS} scans"
        if n_markers > MOST_MARKERS:
            return f"more than {MOST_MARKERS} markers"
        if n_exif > MOST_EXIF:
            return "more than 1 MB of EXIF data"
        if kind == END_OF_IMAGE:
            if n_scans:
                return None
            continue  # of tables alone, after which the image may follow
        at += length  # what it has
        if at >= len(content):
            file.seek(at - len(content), os.SEEK_CUR)
            content, at = file.read(BLOCK), 0


def _why_much_work_tiff(file: BinaryIO, order: Literal["little", "big"]) -> str | None:
    """Return why the tags of the first image in a TIFF file ask for far too much work, if they do."""
    is_large = file.read(2)[:1] == b"+"  # BigTIFF, as Pillow tells it
    width, n_width = (8, 8) if is_large else (4, 2)
    file.seek(width)
    file.seek(int.from_bytes(file.read(width), order))
    n_tags, size = int.from_bytes(file.read(n_width), order), 4 + 2 * width
    if n_tags > MOST_TAGS:
        return f"more than {MOST_TAGS} tags"
    tags = file.read(n_tags * size)
    for i in range(0, len(tags), size):
        kind, n = (int.from_bytes(tags[i + a : i + b], order) for a, b in ((2, 4), (4, 4 + width)))
        if kind in RATIONALS and n > MOST_RATIONALS:
            return f"a tag of more than {MOST_RATIONALS} fractions"
    return None


def _why_much_work_avif(content: bytes) -> str | None:
    """Return why the EXIF data of an AVIF or HEIC file ask for far too much work, if they do.

    If the image is turned, Pillow writes them anew. They are items of the type Exif, and boxes `iloc` have the
    sizes of items (ISO/IEC 14496-12). These count wherever they are: none can be hidden in another box.
    """
    items = list(islice(EXIF_ITEM.finditer(content), MOST_ITEMS))
    exif = {int.from_bytes(found[1] or found[2]) for found in items}
    n_bytes, n_read, view = 0, len(items), memoryview(content)
    for found in re.finditer(b"iloc", content) if exif else ():
        n_read += 1
        if n_read > MOST_ITEMS:
            break
        begin, at = found.start() - 4, found.end()
        size = int.from_bytes(view[begin : begin + 4])
        if size == 1:  # a long number follows
            size, at = int.from_bytes(view[at : at + 8]), at + 8
        box = view[at : begin + size if size else None]
        if begin + size > len(content) or len(box) < 8 or box[0] > 2:
            continue  # these letters are among pixels
        version, (n_offset, n_length), (n_base, n_index) = box[0], divmod(box[4], 16), divmod(box[5], 16)
        long, more = 2 + 2 * (version == 2), 2 * (version > 0)
        skipped = n_offset + n_index * (version > 0)
        n_items, at = int.from_bytes(box[6 : 6 + long]), 6 + long
        for _ in range(n_items):
            item, at = int.from_bytes(box[at : at + long]), at + long + more + 2 + n_base
            n_extents, at = int.from_bytes(box[at : at + 2]), at + 2
            n_read += 1 + n_extents
            if at > len(box) or n_read > MOST_ITEMS:
                break
            for _ in range(n_extents):
                at += skipped + n_length
                n_bytes += int.from_bytes(box[at - n_length : at]) * (item in exif)
    if n_read > MOST_ITEMS:
        return f"more than {MOST_ITEMS} parts"
    return "more than 1 MB of EXIF data" if n_bytes > MOST_EXIF else None


def _scaled_pixels(image: Any, file: BinaryIO) -> bytes:
    """Return the pixels of a PPM or PGM file whose largest value is not that of its type, scaled to it."""
    _, _, offset, (_, largest) = image.tile[0]
    dtype = np.dtype(">u2" if largest > 255 else "u1")
    n_bytes = image.width * image.height * len(image.getbands()) * dtype.itemsize
    file.seek(offset)
    content = file.read(n_bytes)
    if len(content) < n_bytes:
        raise ValueError("image file is truncated")
    top, kind = (65535, np.int32) if image.mode == "I" else (255, np.uint8)
    scaled = np.rint(np.arange(largest + 1) / largest * top).astype(kind)
    return bytes(scaled[np.minimum(np.frombuffer(content, dtype), largest)])


def _formats() -> list[str]:
    """Return the names of the formats that images may have here."""
    return [name for name in (*FORMATS, *OPTIONAL) if name in pillow().Image.OPEN]


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
    is_negative = getattr(image, "tag_v2", {}).get(0x0106) == 0  # a TIFF whose zero is white
    if len(image.info.get("exif") or b"") > MOST_EXIF:
        raise ValueError("it has more than 1 MB of EXIF data")
    turn = None
    with suppress(Exception):  # broken EXIF data raise many types of errors
        turn = by_orientation.get(image.getexif().get(0x0112))
    if turn is not None:
        image = image.transpose(turn)
    if image.mode.startswith(("I", "F")):  # more than 8 bits per pixel; PIL would clip the values
        values = np.asarray(image, dtype=np.float32)
        if not np.isfinite(values).all():
            raise ValueError("some of its pixels are NaN or infinite")
        # Cameras have 8, 10, 12, 14 or 16 bits, and images of floats often end at 1. White is the least of
        # these that nearly all pixels do not exceed: one that shines must not make the others black.
        tops = (1,) * (image.mode in ("I", "F")) + (255, 1023, 4095, 16383, 65535)
        most = np.quantile(values.ravel()[:: 1 + values.size // SOME_PIXELS], NEARLY_ALL)
        top = next((top for top in tops if most <= top), 65535)
        pixels = np.uint8(np.clip(values, 0, top) * np.float32(255 / top) + np.float32(0.5))
        image = PIL.Image.fromarray(255 - pixels if is_negative else pixels)  # PIL inverts 8 bits alone
    if image.mode == "LAB":  # Pillow knows the way to RGB alone
        image = image.convert("RGB")
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
        if not os.path.isfile(paths[i]):  # it may be a pipe, which would be waited for
            continue
        with (
            suppress(Exception),
            _quiet_pillow(),
            _opened(paths[i], MAX_PIXELS, "") as (image, _),
        ):  # as in read_image
            sides.append(min(image.size))
    return float(np.median(sides)) if sides else None


def _check_size(path: str | os.PathLike[str]) -> None:
    """Raise ImageError if a file is larger than any image, so that it is not read to its end."""
    size = os.path.getsize(path)
    if size > LARGEST_IMAGE:
        raise ImageError(f"{shown(path)} has {size / 1e9:,.0f} GB, more than an image. Remove the file.")


def content_key(source: Source, *, is_image: bool = False) -> str:
    """Return the sha256 of a file's bytes, or of an image's pixels.

    A file that `is_image` is refused if it is larger than any image.
    """
    if isinstance(source, str | os.PathLike):
        if not os.path.isfile(source):  # reading a pipe could wait for ever
            raise ImageError(f"{shown(source)} is not a file, or you may not read it.")
        if is_image:
            _check_size(source)
        with Path(source).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    image = read_image(source, "RGB")  # as the network sees it: with palette and orientation applied
    return hashlib.sha256(f"RGB {image.size}".encode() + image.tobytes()).hexdigest()


def content_if_readable(path: str | os.PathLike[str]) -> str | None:
    """Return the sha256 of an image file, or None if it cannot be read, which decoding will report."""
    with suppress(OSError, ImageError):
        return content_key(path, is_image=True)
    return None


def as_sources(X: Any) -> list[Source]:
    """Return images from any sequence, array or pandas object as a list of paths, arrays and PIL images."""
    PIL = pillow()
    one = isinstance(X, str | bytes | os.PathLike | PIL.Image.Image)
    if isinstance(X, np.ndarray) and X.dtype.kind not in "OUS":
        # Images that are 3 or 4 pixels wide are none: these are the colours of one image.
        one = X.ndim < 3 or (X.ndim == 3 and X.shape[2] in (3, 4) and X.shape[1] > 4)
    if one:
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
