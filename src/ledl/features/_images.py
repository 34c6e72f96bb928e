"""Images from files that nobody has checked: decoded and turned upright, or what is wrong with them."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Any, TypeAlias

import numpy as np

from ledl.arrays import Array

# A path, an array of bytes (height, width) or (height, width, 1, 3 or 4), or a PIL image.
Source: TypeAlias = Any

# Formats that are decoded, whatever a file's name says; others have decoders that few people ever tested.
FORMATS = ("JPEG", "PNG", "TIFF", "BMP", "GIF", "WEBP", "PPM")
SUFFIXES = (".jpg", ".jpeg", ".png", ".tif", ".tiff", ".bmp", ".gif", ".webp", ".ppm", ".pgm")
# A file that claims more is out to fill the memory, or worth asking about. (Pillow has a limit of its own,
# above.)
MAX_PIXELS = 2**26


class ImageError(ValueError):
    """An image that cannot be used: its name and the reason.

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
    """PIL.Image, or how to get it."""
    try:
        import PIL.Image
        import PIL.ImageOps
    except ImportError as error:
        raise ImportError(
            "Reading images needs Pillow. Install it with: pip install 'ledl[images]'."
        ) from error
    PIL.Image.init()  # else only some of the formats are known
    return PIL


def shown(path: str | os.PathLike[str]) -> str:
    """A path that can be printed, even if its bytes are no text."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


class _PillowWarnings:
    """Pillow's warnings, ignored while anybody reads an image.

    They are about files that are read all the same (a broken EXIF entry), or that are refused with a reason of
    our own; and where warnings are errors they would decide which files can be read. Filters belong to the
    process: `warnings.catch_warnings` in several threads would leave them changed for ever, so those who read
    at the same time share one filter.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._readers = 0
        self._filter: Any = None

    @contextmanager
    def ignored(self) -> Iterator[None]:
        with self._lock:
            # Not always there: a test or a user may have set other filters since.
            if self._filter not in warnings.filters:
                # The comment makes it ours: a filter like it that the user has set is not to be removed.
                warnings.filterwarnings("ignore", module=r"PIL\.(?#ledl)")
                self._filter = warnings.filters[0]
            self._readers += 1
        try:
            yield
        finally:
            with self._lock:
                self._readers -= 1
                if self._readers == 0:
                    with suppress(ValueError):
                        warnings.filters.remove(self._filter)  # type: ignore[attr-defined]


quiet_pillow = _PillowWarnings().ignored


def read_image(source: Source, mode: str, *, max_pixels: int = MAX_PIXELS, name: str | None = None) -> Any:
    """A PIL image, decoded, upright (EXIF), in `mode` "RGB" or "L".

    Raises ImageError for whatever is not an image, is cut off, or claims more than `max_pixels` pixels.
    """
    PIL = pillow()
    name = name or (shown(source) if isinstance(source, str | os.PathLike) else "an image")
    with quiet_pillow():
        return _read(source, mode, max_pixels, name, PIL)


def _read(source: Source, mode: str, max_pixels: int, name: str, PIL: Any) -> Any:
    if isinstance(source, np.ndarray):
        image = _from_array(source, name)
    elif isinstance(source, PIL.Image.Image):
        image = source
    else:
        image = _open(source, name, max_pixels)
    try:
        return _in_mode(_upright(image), mode)
    except Exception as error:  # decoders raise many kinds
        raise ImageError(f"{name} cannot be decoded: {error}. Replace the file or leave it out.") from error
    finally:
        if image is not source:
            image.close()


def _open(path: str | os.PathLike[str], name: str, max_pixels: int) -> Any:
    PIL = pillow()
    if not is_file(path):  # a pipe would wait for ever
        raise ImageError(f"{name} is not a file, or may not be read.")
    try:
        with Path(path).open("rb") as file:
            image = PIL.Image.open(file, formats=FORMATS)
            if image.width * image.height > max_pixels:
                raise ImageError(
                    f"{name} claims {image.width} x {image.height} pixels, more than max_pixels={max_pixels}. "
                    "If it is what it claims, raise max_pixels."
                )
            image.load()
    except ImageError:
        raise
    except PIL.UnidentifiedImageError as error:
        raise ImageError(
            f"{name} is not an image, or of a format that is not read (those are {', '.join(FORMATS)})."
        ) from error
    except PIL.Image.DecompressionBombError as error:
        raise ImageError(f"{name} claims more pixels than can be decoded safely: {error}.") from error
    except Exception as error:  # decoders raise many kinds
        raise ImageError(f"{name} cannot be decoded: {error}. Replace the file or leave it out.") from error
    return image


def is_file(path: str | os.PathLike[str]) -> bool:
    """Whether a path is a regular file; False if that cannot be known."""
    try:
        return Path(path).is_file()
    except (OSError, ValueError):
        return False


def _upright(image: Any) -> Any:
    """Turned as its EXIF data say; nothing else of them is looked at, and broken ones are left alone."""
    turns = pillow().Image.Transpose
    by_orientation = {
        2: turns.FLIP_LEFT_RIGHT,
        3: turns.ROTATE_180,
        4: turns.FLIP_TOP_BOTTOM,
        5: turns.TRANSPOSE,
        6: turns.ROTATE_270,
        7: turns.TRANSVERSE,
        8: turns.ROTATE_90,
    }
    try:
        turn = by_orientation.get(image.getexif().get(0x0112))
    except Exception:  # what broken EXIF data raise is of many kinds
        turn = None
    return image if turn is None else image.transpose(turn)


def _from_array(array: Array, name: str) -> Any:
    if (
        array.size == 0
        or array.dtype != np.uint8
        or array.ndim not in (2, 3)
        or (array.ndim == 3 and array.shape[2] not in (1, 3, 4))
    ):
        raise ImageError(
            f"{name} is an array of {array.dtype} with shape {array.shape}; images are of uint8, 0 to 255, "
            "with shape (height, width) or (height, width, 3). Scale and convert it."
        )
    return pillow().Image.fromarray(array[:, :, 0] if array.ndim == 3 and array.shape[2] == 1 else array)


def _in_mode(image: Any, mode: str) -> Any:
    if image.mode.startswith(("I", "F")):  # more than 8 bits a pixel, which PIL would clip
        values = np.asarray(image, dtype=np.float32)
        if not np.isfinite(values).all():
            raise ValueError("some of its pixels are NaN or infinite")
        # 16 bits, unless the values are those of bytes, or from 0 to 1.
        top = (
            65535.0
            if image.mode.startswith("I;16")
            else next(t for t in (1, 255, 65535) if values.max() <= t or t == 65535)
        )
        image = pillow().Image.fromarray(
            np.uint8(np.clip(values, 0, top) * np.float32(255 / top) + np.float32(0.5))
        )
    if image.mode in ("P", "PA", "LA", "RGBA") or "transparency" in image.info:  # what is transparent is white
        image = image.convert("RGBA")
        white = pillow().Image.new("RGBA", image.size, "white")
        image = pillow().Image.alpha_composite(white, image)
    return image.convert(mode)


class Skipped(list[tuple[int, str, str]]):
    """Number, name and reason of each image that was left out."""

    def tell(self, n: int, what_now: str, stacklevel: int = 3) -> None:
        """One warning for all: `what_now` becomes of them."""
        if self:
            first = "; ".join(reason for _, _, reason in self[:3])
            more = f"; and {len(self) - 3} more" if len(self) > 3 else ""
            warnings.warn(
                f"{len(self)} of {n} images could not be read and {what_now}: {first}{more}",
                UserWarning,
                stacklevel=stacklevel,
            )


def as_sources(X: Any) -> list[Source]:
    """Images as a list: of paths, arrays and PIL images, from whatever holds them."""
    PIL = pillow()
    one = isinstance(X, str | bytes | os.PathLike | PIL.Image.Image)
    if one or (isinstance(X, np.ndarray) and X.dtype.kind not in "OUS" and X.ndim < 3):
        if isinstance(X, str | os.PathLike) and Path(X).is_dir():
            raise ValueError(
                f"X is a folder, {shown(X)}; give the files in it: ledl.datasets.load_image_folder(X, "
                "decode=False).filenames."
            )
        raise ValueError(
            "X is one image or path, or a matrix; give a list of paths, of arrays (height, width[, 3]) of "
            "uint8, or of PIL images."
        )
    if hasattr(X, "to_numpy"):  # pandas: by position, not by label
        X = X.to_numpy()
    if isinstance(X, np.ndarray) and X.dtype.kind in "OUS":
        X = X.reshape(-1)
    sources = list(X)
    for i, source in enumerate(sources):
        if not isinstance(source, str | os.PathLike | np.ndarray | PIL.Image.Image):
            raise ValueError(
                f"Image {i} is a {type(source).__name__}; give paths, arrays of uint8, or PIL images."
            )
    return sources


def try_each(
    sources: Sequence[Source], work: Callable[[Source], Any], on_error: str, skipped: Skipped, first: int = 0
) -> list[Any]:
    """What `work` makes of each source; None, and an entry in `skipped`, for a bad one if so asked."""
    results = []
    for number, source in enumerate(sources, first):
        try:
            results.append(work(source))
        except ImageError as error:
            if on_error == "raise":
                if isinstance(source, str | os.PathLike):
                    raise
                raise ImageError(f"Image {number}: {error}") from error
            name = shown(source) if isinstance(source, str | os.PathLike) else f"image {number}"
            skipped.append((number, name, str(error)))
            results.append(None)
    return results
