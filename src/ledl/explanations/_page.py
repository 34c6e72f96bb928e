"""An explanation as an HTML page: the pictures and numbers that ``templates/explanation.html`` shows.

The figure of `ExplanationDisplay` shows the same pictures.
"""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from ledl.arrays import Array
from ledl.explanations._words import (
    bars,
    kind_of_scores,
    neighbor_notes,
    percent,
    reasons,
    score_bars,
    terms,
    to_text,
    vocabulary,
)
from ledl.images import FORMATS, MAX_PIXELS, ImageError, Source, pillow, read_image
from ledl.images import shown as printable
from ledl.pages import data_uri, render

if TYPE_CHECKING:
    from ledl.explanations._explain import Explanation  # it writes itself as a page

Anchors: TypeAlias = Sequence[tuple[int, int, int]]

# Colours below zero, at zero and above zero. They differ in lightness, too, not only in hue.
GREY: Anchors = [(240, 130, 40), (0, 0, 0), (255, 255, 255)]
BLUE_AND_ORANGE: Anchors = [(240, 130, 40), (0, 0, 0), (70, 160, 250)]

N_CLASSES = 5  # at the top of the page
N_ATOMS = 10
N_CARRIERS = 5  # labelled samples whose labels spread, at the top of the page
LEAST_SHARE = 0.005  # atoms that change the lead by less than this share of a score are grouped as "other"
TINY_SIDE = 64  # pixels of pictures up to this side are shown as squares
SMALL_BYTES = 24_000  # JPEG and PNG files up to this size go into the page as they are; larger ones are shrunk
SIGNATURES = {"jpeg": b"\xff\xd8\xff", "png": b"\x89PNG\r\n\x1a\n"}


class Pictures(NamedTuple):
    """Images that go with the numbers of an explanation; each may be missing.

    Parameters
    ----------
    sample : path, PIL image, bytes of a JPEG or PNG file, or array of uint8, default=None
        The image that was classified.

    shape : tuple (height, width) or (height, width, 3), default=None
        The shape of the images if features are pixels. Atoms and the reconstruction are then drawn.

    training : sequence of such images, default=None
        The training images, in the order of `fit`; None for one that there is no picture of.

    names : sequence of str, default=None
        The names of the training images, in the same order.

    Examples
    --------
    >>> from ledl.explanations import Pictures
    >>> Pictures(shape=(8, 8)).training is None
    True
    """

    sample: Source | None = None
    shape: tuple[int, ...] | None = None
    training: Sequence[Source | None] | None = None
    names: Sequence[str] | None = None


NO_PICTURES = Pictures()


class Gallery:
    """Give the pictures of one explanation, None where one is missing.

    Raises ValueError if the shape does not fit the features, or if a list is too short for the training samples
    that are shown.
    """

    def __init__(self, explanation: Explanation, pictures: Pictures) -> None:
        self.explanation, self.pictures = explanation, pictures
        shape, n_features = pictures.shape, explanation.sample.size
        if shape is not None and (
            len(shape) not in (2, 3) or (len(shape) == 3 and shape[2] != 3) or np.prod(shape) != n_features
        ):
            raise ValueError(
                f"shape={tuple(shape)} does not fit a sample with {n_features} features. Give (height, width) "
                "or (height, width, 3) if features are pixels, and None if they are not."
            )
        near = explanation.neighbors, explanation.against_neighbors, explanation.atom_neighbors
        n_seen = 1 + max(numbers.max(initial=-1) for numbers in near)
        for name, given in [("training", pictures.training), ("names", pictures.names)]:
            if given is not None and len(given) < n_seen:
                raise ValueError(
                    f"{name} has {len(given)} entries, but the explanation shows training sample {n_seen - 1}. "
                    "Give one entry for each row of X in fit, in the same order."
                )

    def sample(self) -> Picture | None:
        """Return the image that was classified, or draw it if features are pixels."""
        source, shape = self.pictures.sample, self.pictures.shape
        if source is None and shape is not None:
            return Picture(grey_picture(self.explanation.sample, shape), "The sample", is_drawn=True)
        return None if source is None else Picture(source, "The sample")

    def atom(self, k: int) -> Picture | None:
        """Return atom k as a picture if features are pixels."""
        shape, atoms = self.pictures.shape, self.explanation.atoms
        if shape is None or atoms is None:
            return None
        return Picture(signed_picture(atoms[k], shape), f"Atom {k}", is_drawn=True)

    def atom_or_nearest(self, k: int) -> Picture | None:
        """Return atom k as a picture, or the training image that is most like it."""
        near = self.near_atom(k)
        return self.atom(k) or (self.training(near[0]) if near else None)

    def near_atom(self, k: int) -> list[int]:
        """Return the numbers of the training samples that are most like atom k."""
        return [i for i in self.explanation.atom_neighbors[k].tolist() if i >= 0]

    def training(self, i: int) -> Picture | None:
        """Return training image i, or draw the atom that it is."""
        if self.pictures.training is not None:
            source = self.pictures.training[i]
            return None if source is None else Picture(source, f"Training image {i}")
        rows = self.explanation.atom_rows
        return None if rows is None else next(map(self.atom, np.flatnonzero(rows == i).tolist()), None)

    def training_name(self, i: int) -> str:
        """Return the name of training sample i, without folders."""
        return f"training sample {i}" if self.pictures.names is None else file_name(self.pictures.names[i])

    def drawings(self) -> list[Picture]:
        """Return the sample, the mixture of all atoms, those of the best class and of `against`, the rest."""
        explanation, shape = self.explanation, self.pictures.shape
        if shape is None or explanation.reconstruction is None or explanation.atoms is None:
            return []
        sample = np.asarray(explanation.sample, dtype=np.float64)
        limits = sample.min(), sample.max()
        raw = explanation.codes @ explanation.atoms
        # Bring atoms to the scale of the sample; the reconstruction has it already.
        scale = raw @ explanation.reconstruction / (raw @ raw) if raw.any() else 1.0
        amounts = scale * explanation.codes[:, None] * explanation.atoms
        shown = explanation.classes[explanation.compared[: 1 if explanation.against is None else 2]]
        parts = [(label, amounts[explanation.atom_classes == label].sum(axis=0)) for label in shown]
        left = sample - explanation.reconstruction
        if len(shape) == 3:
            left = left.reshape(tuple(shape)).mean(axis=2)
        top = max(limits[1] - limits[0], 1e-300) / 2
        drawn = [
            ("the image as the model sees it", grey_picture(sample, shape, limits)),
            ("rebuilt from all atoms", grey_picture(explanation.reconstruction, shape, limits)),
            *(
                (f"rebuilt from atoms of {label!s} alone", grey_picture(part, shape, limits))
                for label, part in parts
            ),
            (
                "remainder: blue is missing, orange is too much",
                signed_picture(left, shape[:2], BLUE_AND_ORANGE, top),
            ),
        ]
        return [Picture(array, caption, is_drawn=True) for caption, array in drawn]


class Picture(NamedTuple):
    """One image with its name for captions and error messages."""

    source: Source
    name: str
    is_drawn: bool = False

    def opened(self, side: int | None = None) -> Any:
        """Return a PIL image in RGB, at most `side` pixels wide and high; raise ImageError if that fails."""
        PIL, source, name = pillow(), self.source, self.name
        if isinstance(source, bytes):
            try:
                source = PIL.Image.open(io.BytesIO(source), formats=FORMATS)
            except Exception as error:  # decoders raise many kinds
                raise ImageError(f"{name} cannot be read as an image: {error}. Leave it out.") from error
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
    """Return the last part of a path of any system, in characters that can be printed."""
    return printable(path).replace("\\", "/").rstrip("/").rsplit("/", 1)[-1]


def grey_picture(values: Array, shape: Sequence[int], limits: tuple[float, float] | None = None) -> Array:
    """Return pixels as bytes, black at the lower limit and white at the upper; by default from min to max."""
    values = np.asarray(values, dtype=np.float64)
    low, high = limits or (values.min(), values.max())
    scaled = (values - low) / (high - low if high > low else 1.0)
    return np.uint8(np.round(255 * np.clip(scaled, 0, 1))).reshape(tuple(shape))


def signed_picture(values: Array, shape: Sequence[int], anchors: Anchors = GREY, top: float = 0) -> Array:
    """Return values around zero as colours, (height, width, 3); `top` is the brightest, by default the largest.

    Values in three colours are stretched from black to white, since no colour is left for negative values.
    """
    if len(shape) == 3:
        return grey_picture(values, shape)
    values = np.asarray(values, dtype=np.float64)
    top = top or np.abs(values).max() or 1.0
    level = np.clip(values.reshape(tuple(shape)) / top, -1, 1)
    channels = [np.interp(level, [-1, 0, 1], channel) for channel in zip(*anchors, strict=True)]
    return np.uint8(np.round(np.stack(channels, axis=-1)))


def page(
    explanation: Explanation,
    pictures: Pictures = NO_PICTURES,
    *,
    title: str | None = None,
    model_note: Sequence[tuple[str, str]] = (),
) -> str:
    """Return an explanation as an HTML page (extra ``cli``).

    Parameters
    ----------
    explanation : Explanation
        The result of `ledl.explain`.

    pictures : Pictures
        Images of the sample and of the training samples.

    title : str, default=None
        The line above the answer. By default it is the name of the sample's file, if there is one.

    model_note : sequence of (term, text)
        Facts about the model for the end of the page.

    Returns
    -------
    html : str
        The page.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from ledl import SRCClassifier, explain
    >>> from ledl.explanations import Pictures, page
    >>> X, y = load_digits(return_X_y=True)
    >>> model = SRCClassifier().fit(X[:100], y[:100])
    >>> html = page(explain(model, X[100]), Pictures(shape=(8, 8)), title="digit 100")
    >>> html.startswith("<!doctype html>"), "<h1>4" in html
    (True, True)
    """
    gallery = Gallery(explanation, pictures)
    if title is None and isinstance(pictures.sample, str | os.PathLike):
        title = file_name(pictures.sample)
    compared, used = explanation.compared, explanation.decisive_atoms
    base, scores = explanation.base[compared], explanation.scores[compared]
    parts = explanation.contributions[:, compared]

    # Atoms that count for the two classes: the first are shown one by one, the others together.
    counts = parts[used].any(axis=1)
    scale = max(np.abs(base).max(), np.abs(scores).max())
    n_single = min(N_ATOMS, int(np.sum(np.abs(explanation.margins) >= LEAST_SHARE * scale)))
    atoms, others = np.split(used[counts], [n_single])
    levels = np.cumsum([base, *parts[atoms], parts[others].sum(axis=0)], axis=0)
    limits = min(levels.min(), 0.0), max(levels.max(), 0.0)
    top = np.abs(parts[atoms]).max(initial=0.0)

    kind = kind_of_scores(explanation)
    lead, lead_decimals = float(scores[0] - scores[1]), explanation._decimals
    if lead > 0:  # even a small lead is shown with two digits
        lead_decimals = max(lead_decimals, min(int(1 - np.floor(np.log10(lead))), 12))
    has_pictures = any(given is not None for given in pictures[:3])
    thing = "image" if has_pictures else "sample"
    probabilities = explanation.probabilities
    first_classes = explanation.ranking[:N_CLASSES].tolist()
    if compared[1] not in first_classes:
        first_classes.append(int(compared[1]))
    carriers = np.argsort(-explanation.codes, kind="stable")[:N_CARRIERS]
    return render(
        "explanation.html",
        explanation=explanation,
        gallery=gallery,
        embed=embed,
        place_bar=place_bar,
        to_text=to_text,
        title=title,
        model_note=model_note,
        thing=thing,
        lacks_pillow=has_pictures and not has_pillow(),
        # The answer.
        answer="None of these" if explanation.rejected else str(explanation.predicted),
        names=[str(explanation.classes[j]) for j in compared],
        sure=None if probabilities is None else [percent(p) for p in probabilities[compared]],
        is_close=probabilities is not None and probabilities[compared[1]] > probabilities[compared[0]] / 2,
        is_unusual=explanation.rejected or (explanation.p_value is not None and explanation.p_value < 0.1),
        share=explanation._share,
        bars=bars(explanation, thing),
        first_classes=first_classes,
        other_classes=[j for j in explanation.ranking.tolist() if j not in first_classes],
        reasons=reasons(explanation, thing),
        by_labels=explanation.rule == "labels",
        carriers=carriers[explanation.codes[carriers] > 0],
        carrier_shares=list(map(percent, explanation.codes[carriers])),
        against_shares=list(map(percent, explanation.against_similarities)),
        neighbor_notes=neighbor_notes(explanation),
        # The scores.
        terms=terms(explanation, thing),
        words=vocabulary(explanation, thing),
        kind=kind,
        score_bars=score_bars(explanation, thing),
        all_scores=[to_text(score, explanation._decimals) for score in explanation.scores],
        decimals=explanation._decimals,
        lead=lead,
        lead_decimals=lead_decimals,
        n_used=len(used),
        n_own=np.count_nonzero(explanation.atom_classes[used] == explanation.predicted),
        # The sums of the two scores. Where 0 is the best score of all, bars begin at the worst.
        base=base,
        scores=scores,
        parts=parts,
        atoms=atoms,
        levels=levels,
        sum_limits=limits,
        origin=0.0 if kind == "sums" else limits[0],
        card_limits=(-top, top),
        n_others=len(others),
        n_idle=len(used) - len(atoms) - len(others),
        drawings=gallery.drawings() if len(used) and has_pillow() else [],
    )


class Embedded(NamedTuple):
    """A picture within a page: its address, which holds all of it, and whether it has few pixels."""

    uri: str
    is_tiny: bool


def embed(picture: Picture | None, side: int) -> Embedded | None:
    """Return a picture for a page, at most `side` pixels wide and high; None without one or without Pillow."""
    if picture is None:
        return None
    data, kind = picture.source, None
    if isinstance(data, bytes) and len(data) <= SMALL_BYTES:
        kind = next((kind for kind, signature in SIGNATURES.items() if data.startswith(signature)), None)
    if not has_pillow():
        return Embedded(data_uri(data, kind), False) if kind else None
    image = picture.opened()
    size = max(image.size)
    if kind is None or size > side:
        image.thumbnail((side, side), pillow().Image.Resampling.LANCZOS)
        is_small_array = isinstance(data, np.ndarray) and image.width * image.height <= TINY_SIDE**2
        file, kind = io.BytesIO(), "png" if is_small_array or size <= TINY_SIDE else "jpeg"
        image.save(file, kind, quality=85, optimize=True)
        data = file.getvalue()
    return Embedded(data_uri(data, kind), size <= TINY_SIDE)


def place_bar(begin: float, end: float, limits: tuple[float, float]) -> tuple[float, float, float]:
    """Return in % of a track between limits where a bar begins, its width, and where zero is."""
    low, high = limits
    span = high - low if high > low else np.inf
    left, right, zero = np.clip(100 * (np.array([*sorted([begin, end]), 0.0]) - low) / span, 0, 100).tolist()
    return left, right - left, zero
