"""Read images from files that nobody has checked: decoded and upright, or an ImageError that says why not."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Any, TypeAlias

import numpy as np

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
    """Return the package PIL, or raise an ImportError that says how to get it."""
    try:
        import PIL.Image
    except ImportError as error:
        raise ImportError(
            "Reading images needs Pillow. Install it with: pip install 'ledl[images]'."
        ) from error
    PIL.Image.init()  # else only some of the formats are known
    return PIL


def shown(path: str | os.PathLike[str]) -> str:
    """Return a path as text that can be printed, even if its bytes are no text."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def is_file(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is a regular file; False if that cannot be known."""
    try:
        return Path(path).is_file()
    except (OSError, ValueError):
        return False


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
    """Return a PIL image, decoded, upright (EXIF), in `mode` "RGB" or "L".

    Raises ImageError for whatever is not an image, is cut off, or claims more than `max_pixels` pixels.
    """
    PIL = pillow()
    name = name or (shown(source) if isinstance(source, str | os.PathLike) else "an image")
    image = None
    with quiet_pillow():
        try:
            if isinstance(source, PIL.Image.Image):
                image = source
            elif isinstance(source, np.ndarray):
                is_plain = source.shape[2:] in ((), (1,), (3,), (4,))
                if source.size == 0 or source.dtype != np.uint8 or source.ndim < 2 or not is_plain:
                    raise ImageError(
                        f"{name} is an array of {source.dtype} with shape {source.shape}; images are of uint8, "
                        "0 to 255, with shape (height, width) or (height, width, 3). Scale and convert it."
                    )
                image = PIL.Image.fromarray(source[:, :, 0] if source.shape[2:] == (1,) else source)
            elif not is_file(source):  # a pipe would wait for ever
                raise ImageError(f"{name} is not a file, or may not be read.")
            else:
                with Path(source).open("rb") as file:
                    image = PIL.Image.open(file, formats=FORMATS)
                    if image.width * image.height > max_pixels:
                        raise ImageError(
                            f"{name} claims {image.width} x {image.height} pixels, more than max_pixels="
                            f"{max_pixels}. If it is what it claims, raise max_pixels."
                        )
                    image.load()
            return _converted(image, mode)
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
    with suppress(Exception):  # what broken EXIF data raise is of many kinds; nothing else of them is read
        turn = by_orientation.get(image.getexif().get(0x0112))
    if turn is not None:
        image = image.transpose(turn)
    if image.mode.startswith(("I", "F")):  # more than 8 bits a pixel, which PIL would clip
        values = np.asarray(image, dtype=np.float32)
        if not np.isfinite(values).all():
            raise ValueError("some of its pixels are NaN or infinite")
        # 16 bits, unless the values are those of bytes, or from 0 to 1.
        tops = (65535,) if image.mode.startswith("I;16") else (1, 255, 65535)
        top = next((top for top in tops if values.max() <= top), 65535)
        image = PIL.Image.fromarray(np.uint8(np.clip(values, 0, top) * np.float32(255 / top) + np.float32(0.5)))
    if image.mode in ("P", "PA", "LA", "RGBA") or "transparency" in image.info:
        image = image.convert("RGBA")
        image = PIL.Image.alpha_composite(PIL.Image.new("RGBA", image.size, "white"), image)
    return image.convert(mode)


def content_key(source: Source) -> str:
    """Return the sha256 of a file's bytes, or of an image's pixels."""
    if isinstance(source, str | os.PathLike):
        if not is_file(source):  # a pipe would wait for ever
            raise ImageError(f"{shown(source)} is not a file, or may not be read.")
        with Path(source).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    image = read_image(source, "RGB")  # what the network will see, palette and orientation included
    return hashlib.sha256(f"RGB {image.size}".encode() + image.tobytes()).hexdigest()


def as_sources(X: Any) -> list[Source]:
    """Return images as a list of paths, arrays and PIL images, from whatever holds them."""
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


class Skipped(list[tuple[int, str, str]]):
    """Number, name and reason of each image that was left out."""

    def tell(self, n: int, what_now: str) -> None:
        """Warn once of all of them, of `n` images; `what_now` becomes of them."""
        if self:
            first = "; ".join(reason for _, _, reason in self[:3])
            more = f"; and {len(self) - 3} more" if len(self) > 3 else ""
            warnings.warn(
                f"{len(self)} of {n} images could not be read and {what_now}: {first}{more}",
                UserWarning,
                stacklevel=3,
            )


def try_each(
    sources: Sequence[Source], work: Callable[[Source], Any], on_error: str, skipped: Skipped, first: int = 0
) -> list[Any]:
    """Return what `work` makes of each source; None, and an entry in `skipped`, for a bad one if so asked."""
    results = []
    for number, source in enumerate(sources, first):
        try:
            results.append(work(source))
        except ImageError as error:
            is_path = isinstance(source, str | os.PathLike)
            if on_error == "raise":
                if is_path:
                    raise
                raise ImageError(f"Image {number}: {error}") from error
            skipped.append((number, shown(source) if is_path else f"image {number}", str(error)))
            results.append(None)
    return results
