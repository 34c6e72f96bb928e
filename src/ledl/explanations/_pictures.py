"""Pictures for explanations: of samples, atoms and training images, as arrays and for an HTML page."""

from __future__ import annotations

import base64
import io
import os
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ledl.arrays import Array
from ledl.explanations._explain import Explanation
from ledl.images import FORMATS, MAX_PIXELS, ImageError, Source, pillow, read_image, shown

Anchors: TypeAlias = Sequence[tuple[int, int, int]]

SIGNATURES = {b"\xff\xd8\xff": "image/jpeg", b"\x89PNG\r\n\x1a\n": "image/png"}
# Bytes up to here go into the page as they are; larger ones are shrunk.
SMALL_BYTES = 24_000
SAMPLE_SIDE, LARGE_SIDE, SMALL_SIDE = 512, 224, 96
# Below zero, zero, above zero: no colour is told from another by its hue alone.
GREY: Anchors = [(240, 130, 40), (0, 0, 0), (255, 255, 255)]
BLUE_AND_ORANGE: Anchors = [(240, 130, 40), (0, 0, 0), (70, 160, 250)]


class Pictures(NamedTuple):
    """What there is to look at beside the numbers of an explanation; all of it may be missing.

    Parameters
    ----------
    sample : path, PIL image, bytes of a JPEG or PNG file, or array of uint8, default=None
        The image that was classified.

    shape : tuple (height, width) or (height, width, 3), default=None
        If features are pixels: atoms and the reconstruction are then drawn as pictures.

    training : sequence of such images, default=None
        The training images, in the order of `fit`.

    names : sequence of str, default=None
        What the training images are called, in the same order.

    Examples
    --------
    >>> from ledl.explanations import Pictures
    >>> Pictures(shape=(8, 8)).training is None
    True
    """

    sample: Source | None = None
    shape: tuple[int, ...] | None = None
    training: Sequence[Source] | None = None
    names: Sequence[str] | None = None


def check_pictures(explanation: Explanation, pictures: Pictures) -> None:
    """Raise ValueError for a shape that the features do not have, and for lists that are too short."""
    shape, n_features = pictures.shape, explanation.sample.size
    if shape is not None and (
        len(shape) not in (2, 3) or (len(shape) == 3 and shape[2] != 3) or np.prod(shape) != n_features
    ):
        raise ValueError(
            f"shape={tuple(shape)} is not that of a sample with {n_features} features. Give (height, width) or "
            "(height, width, 3) where features are pixels, and None where they are not."
        )
    n_seen = 1 + max(explanation.neighbors.max(initial=-1), explanation.atom_neighbors.max(initial=-1))
    for name in ("training", "names"):
        given = getattr(pictures, name)
        if given is not None and len(given) < n_seen:
            raise ValueError(
                f"{name} has {len(given)} entries, but training sample {n_seen - 1} has a part in the "
                "explanation. Give one for each row of the X that fit was given, in its order."
            )


def has_pillow() -> bool:
    """Whether images can be decoded and encoded."""
    try:
        pillow()
    except ImportError:
        return False
    return True


def shown_decimals(explanation: Explanation) -> int:
    """How many decimals to give of what the two best scores are made of: three, or four, digits in all."""
    best = explanation.ranking[:2]
    scale = np.abs([explanation.base[best], explanation.scores[best]]).max()
    return int(np.clip(3 - round(np.log10(scale)), 0, 9)) if scale > 0 else 3


def grey_picture(values: Array, shape: Sequence[int], low: float, high: float) -> Array:
    """Pixels as bytes, black at `low` and white at `high`."""
    scaled = (np.asarray(values, dtype=np.float64) - low) / (high - low if high > low else 1.0)
    return np.uint8(np.round(255 * np.clip(scaled, 0, 1))).reshape(tuple(shape))


def signed_picture(values: Array, shape: Sequence[int], anchors: Anchors = GREY, top: float = 0) -> Array:
    """Values about zero as colours, (height, width, 3); `top` is the brightest, by default the largest.

    Values in three colours are stretched from black to white: there is no fourth for what is below zero.
    """
    values = np.asarray(values, dtype=np.float64)
    if len(shape) == 3:
        return grey_picture(values, shape, values.min(), values.max())
    top = top or np.abs(values).max() or 1.0
    level = np.clip(values.reshape(tuple(shape)) / top, -1, 1)
    channels = [np.interp(level, [-1, 0, 1], channel) for channel in zip(*anchors, strict=True)]
    return np.uint8(np.round(np.stack(channels, axis=-1)))


class Drawing(NamedTuple):
    """A picture and what it shows."""

    caption: str
    picture: Array


def reconstruction_drawings(explanation: Explanation, shape: Sequence[int]) -> list[Drawing]:
    """The sample, what all atoms make of it, what those of the best class do, and what is left over."""
    if explanation.reconstruction is None or explanation.atoms is None:
        return []
    sample = np.asarray(explanation.sample, dtype=np.float64)
    low, high = sample.min(), sample.max()
    raw = explanation.codes @ explanation.atoms
    # The reconstruction is in the sample's scale, atoms have their own.
    scale = raw @ explanation.reconstruction / (raw @ raw) if raw.any() else 1.0
    own = explanation.atom_classes == explanation.predicted
    part = scale * explanation.codes[own] @ explanation.atoms[own]
    left = sample - explanation.reconstruction
    if len(shape) == 3:
        left = left.reshape(tuple(shape)).mean(axis=2)
    return [
        Drawing("the sample, as the model sees it", grey_picture(sample, shape, low, high)),
        Drawing("drawn by all atoms", grey_picture(explanation.reconstruction, shape, low, high)),
        Drawing(f"drawn by atoms of {explanation.predicted!s} alone", grey_picture(part, shape, low, high)),
        Drawing(
            "left over: blue is missing, orange too much",
            signed_picture(left, shape[:2], BLUE_AND_ORANGE, top=max(high - low, 1e-300) / 2),
        ),
    ]


def sample_array(explanation: Explanation, shape: Sequence[int]) -> Array:
    """The sample as a picture, where features are pixels."""
    return grey_picture(explanation.sample, shape, explanation.sample.min(), explanation.sample.max())


def opened(source: Source, name: str, max_pixels: int = MAX_PIXELS) -> Any:
    """A PIL image in RGB, from anything that `Pictures` takes."""
    if not isinstance(source, bytes):
        return read_image(source, "RGB", max_pixels=max_pixels, name=None if is_path(source) else name)
    PIL = pillow()
    try:
        image = PIL.Image.open(io.BytesIO(source), formats=FORMATS)
        if image.width * image.height <= max_pixels:
            return read_image(image, "RGB", name=name)
    except ImageError:
        raise
    except Exception as error:  # decoders raise many kinds
        raise ImageError(f"{name} is not an image that can be read: {error}. Leave it out.") from error
    raise ImageError(
        f"{name} claims {image.width} x {image.height} pixels, more than {max_pixels}. Leave it out."
    )


def is_path(source: Source) -> bool:
    """Whether an image is given by the name of its file."""
    return isinstance(source, str | os.PathLike)


def file_name(path: str | os.PathLike[str]) -> str:
    """The last part of a path, of whatever system, in characters that can be printed."""
    return shown(path).replace("\\", "/").rstrip("/").rsplit("/", 1)[-1]


def shrunk(image: Any, side: int) -> Any:
    """At most `side` pixels wide and high."""
    if max(image.size) <= side:
        return image
    image = image.copy()
    image.thumbnail((side, side), pillow().Image.Resampling.LANCZOS)
    return image


class Encoded(NamedTuple):
    """An image for a page."""

    uri: str
    is_tiny: bool  # so few pixels that they are best shown as squares


def data_uri(data: bytes, kind: str) -> str:
    """Bytes as an address that holds them."""
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def encoded(source: Source, side: int, name: str) -> Encoded | None:
    """An image for a page, at most `side` pixels wide and high; None if that takes Pillow and it is missing."""
    if isinstance(source, bytes) and len(source) <= SMALL_BYTES and side > SMALL_SIDE:
        kind = next((kind for begin, kind in SIGNATURES.items() if source.startswith(begin)), None)
        if kind is not None:
            return Encoded(data_uri(source, kind), is_tiny=False)
    if not has_pillow():
        return None
    image = opened(source, name)
    is_tiny = max(image.size) <= 64
    file, small = io.BytesIO(), shrunk(image, side)
    if is_tiny or (isinstance(source, np.ndarray) and small.size[0] * small.size[1] <= 4096):
        small.save(file, "PNG", optimize=True)
        return Encoded(data_uri(file.getvalue(), "image/png"), is_tiny)
    small.save(file, "JPEG", quality=85, optimize=True)
    return Encoded(data_uri(file.getvalue(), "image/jpeg"), is_tiny)


class Gallery:
    """The pictures of one explanation, encoded for a page when they are asked for."""

    def __init__(self, explanation: Explanation, pictures: Pictures) -> None:
        check_pictures(explanation, pictures)
        self.explanation, self.pictures = explanation, pictures
        self.lacks_pillow = (
            pictures.sample is not None or pictures.shape is not None or pictures.training is not None
        ) and not has_pillow()

    @property
    def draws_atoms(self) -> bool:
        """Whether atoms are pictures themselves."""
        return self.pictures.shape is not None and self.explanation.atoms is not None

    def sample(self) -> Encoded | None:
        """The image that was classified, large."""
        source, shape = self.pictures.sample, self.pictures.shape
        if source is None and shape is not None:
            source = sample_array(self.explanation, shape)
        return None if source is None else encoded(source, SAMPLE_SIDE, "The sample")

    def atom(self, k: int, side: int = LARGE_SIDE) -> Encoded | None:
        """An atom as a picture, where features are pixels."""
        if self.pictures.shape is None or self.explanation.atoms is None:
            return None
        return encoded(signed_picture(self.explanation.atoms[k], self.pictures.shape), side, f"Atom {k}")

    def training(self, i: int, side: int = LARGE_SIDE) -> Encoded | None:
        """Training image i; one that is an atom is drawn from it."""
        if self.pictures.training is None:
            return self.atom(i, side) if self.explanation.atoms_are_samples else None
        return encoded(self.pictures.training[i], side, f"Training image {i}")

    def drawing(self, drawing: Drawing) -> Encoded | None:
        """A picture that was made here."""
        return encoded(drawing.picture, LARGE_SIDE, drawing.caption)

    def name(self, i: int) -> str:
        """What training sample i is called."""
        return f"training sample {i}" if self.pictures.names is None else file_name(self.pictures.names[i])
