"""The pictures of an explanation, given or drawn from its numbers; the page and the figure show the same."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from ledl.arrays import Array
from ledl.images import FORMATS, MAX_PIXELS, ImageError, Source, pillow, read_image, shown

if TYPE_CHECKING:
    from ledl.explanations._explanation import Explanation  # which writes itself as a page of pictures

Anchors: TypeAlias = Sequence[tuple[int, int, int]]

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


NO_PICTURES = Pictures()


class Gallery:
    """The pictures of one explanation, each None if there is none; raises ValueError if they do not fit it.

    A shape must be that of the features, and lists must reach to the last training sample that is shown.
    """

    def __init__(self, explanation: Explanation, pictures: Pictures) -> None:
        self.explanation, self.pictures = explanation, pictures
        shape, n_features = pictures.shape, explanation.sample.size
        if shape is not None and (
            len(shape) not in (2, 3) or (len(shape) == 3 and shape[2] != 3) or np.prod(shape) != n_features
        ):
            raise ValueError(
                f"shape={tuple(shape)} is not that of a sample with {n_features} features. Give (height, "
                "width) or (height, width, 3) where features are pixels, and None where they are not."
            )
        n_seen = 1 + max(explanation.neighbors.max(initial=-1), explanation.atom_neighbors.max(initial=-1))
        for name, given in [("training", pictures.training), ("names", pictures.names)]:
            if given is not None and len(given) < n_seen:
                raise ValueError(
                    f"{name} has {len(given)} entries, but training sample {n_seen - 1} has a part in the "
                    "explanation. Give one for each row of the X that fit was given, in its order."
                )

    def sample(self) -> Picture | None:
        """Return the image that was classified; where features are pixels, drawn from them if need be."""
        source, shape = self.pictures.sample, self.pictures.shape
        if source is None and shape is not None:
            return Picture(grey_picture(self.explanation.sample, shape), "The sample", is_drawn=True)
        return None if source is None else Picture(source, "The sample")

    def atom(self, k: int) -> Picture | None:
        """Return atom k as a picture, where features are pixels."""
        shape, atoms = self.pictures.shape, self.explanation.atoms
        if shape is None or atoms is None:
            return None
        return Picture(signed_picture(atoms[k], shape), f"Atom {k}", is_drawn=True)

    def atom_or_nearest(self, k: int) -> Picture | None:
        """Return atom k as a picture, or the training image that is most like it."""
        nearest = self.explanation.atom_neighbors[k, 0]
        return self.atom(k) or (self.training(nearest) if nearest >= 0 else None)

    def training(self, i: int) -> Picture | None:
        """Return training image i; one that is an atom is drawn from it."""
        if self.pictures.training is not None:
            return Picture(self.pictures.training[i], f"Training image {i}")
        return self.atom(i) if self.explanation.atoms_are_samples else None

    def training_name(self, i: int) -> str:
        """Return what training sample i is called: the last part of a path."""
        return f"training sample {i}" if self.pictures.names is None else file_name(self.pictures.names[i])

    def drawings(self) -> list[Picture]:
        """Return the sample, what all atoms make of it, what those of the best class do, and what is left."""
        explanation, shape = self.explanation, self.pictures.shape
        if shape is None or explanation.reconstruction is None or explanation.atoms is None:
            return []
        sample = np.asarray(explanation.sample, dtype=np.float64)
        limits = sample.min(), sample.max()
        raw = explanation.codes @ explanation.atoms
        # The reconstruction is in the sample's scale, atoms have their own.
        scale = raw @ explanation.reconstruction / (raw @ raw) if raw.any() else 1.0
        own = explanation.atom_classes == explanation.predicted
        part = scale * explanation.codes[own] @ explanation.atoms[own]
        left = sample - explanation.reconstruction
        if len(shape) == 3:
            left = left.reshape(tuple(shape)).mean(axis=2)
        top = max(limits[1] - limits[0], 1e-300) / 2
        drawn = [
            ("the sample, as the model sees it", grey_picture(sample, shape, limits)),
            ("drawn by all atoms", grey_picture(explanation.reconstruction, shape, limits)),
            (f"drawn by atoms of {explanation.predicted!s} alone", grey_picture(part, shape, limits)),
            (
                "left over: blue is missing, orange too much",
                signed_picture(left, shape[:2], BLUE_AND_ORANGE, top),
            ),
        ]
        return [Picture(array, caption, is_drawn=True) for caption, array in drawn]


class Picture(NamedTuple):
    """One image, and what it is called where it is shown, or where it is told that it cannot be read."""

    source: Source
    name: str
    is_drawn: bool = False

    def opened(self, side: int | None = None) -> Any:
        """Return a PIL image in RGB, at most `side` pixels wide and high; raise ImageError if it is none."""
        PIL, source, name = pillow(), self.source, self.name
        if isinstance(source, bytes):
            try:
                source = PIL.Image.open(io.BytesIO(source), formats=FORMATS)
            except Exception as error:  # decoders raise many kinds
                raise ImageError(f"{name} is not an image that can be read: {error}. Leave it out.") from error
            width, height = source.size
            if width * height > MAX_PIXELS:
                raise ImageError(
                    f"{name} claims {width} x {height} pixels, more than {MAX_PIXELS}. Leave it out."
                )
        image = read_image(source, "RGB", name=None if isinstance(source, str | os.PathLike) else name)
        if side is not None:
            image.thumbnail((side, side), PIL.Image.Resampling.LANCZOS)
        return image


def has_pillow() -> bool:
    """Return whether images can be decoded and encoded."""
    try:
        pillow()
    except ImportError:
        return False
    return True


def file_name(path: str | os.PathLike[str]) -> str:
    """Return the last part of a path, of whatever system, in characters that can be printed."""
    return shown(path).replace("\\", "/").rstrip("/").rsplit("/", 1)[-1]


def grey_picture(values: Array, shape: Sequence[int], limits: tuple[float, float] | None = None) -> Array:
    """Return pixels as bytes, black at the lower limit and white at the upper, by default the extremes."""
    values = np.asarray(values, dtype=np.float64)
    low, high = limits or (values.min(), values.max())
    scaled = (values - low) / (high - low if high > low else 1.0)
    return np.uint8(np.round(255 * np.clip(scaled, 0, 1))).reshape(tuple(shape))


def signed_picture(values: Array, shape: Sequence[int], anchors: Anchors = GREY, top: float = 0) -> Array:
    """Return values about zero as colours, (height, width, 3); `top` is the brightest, by default the largest.

    Values in three colours are stretched from black to white: there is no fourth for what is below zero.
    """
    if len(shape) == 3:
        return grey_picture(values, shape)
    values = np.asarray(values, dtype=np.float64)
    top = top or np.abs(values).max() or 1.0
    level = np.clip(values.reshape(tuple(shape)) / top, -1, 1)
    channels = [np.interp(level, [-1, 0, 1], channel) for channel in zip(*anchors, strict=True)]
    return np.uint8(np.round(np.stack(channels, axis=-1)))
