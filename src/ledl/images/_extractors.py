"""Make features of images as scikit-learn transformers: pixels, or the last layer of a ResNet."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from numbers import Integral
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.preprocessing import normalize
from sklearn.utils._param_validation import Interval, StrOptions

from ledl.arrays import Array
from ledl.files import write_atomically
from ledl.images._networks import Network, OnnxNetwork, Preprocessing, TorchvisionNetwork
from ledl.images._reading import (
    MAX_PIXELS,
    ImageError,
    Skipped,
    Source,
    as_sources,
    content_key,
    height_and_width,
    pillow,
    read_image,
    try_each,
)

# Batches that are decoded ahead of the network.
AHEAD = 2


class ImageTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """A transformer that takes images, which scikit-learn need not check, and learns nothing from them."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.no_validation = True
        return tags


class PixelFeatures(ImageTransformer):
    """Pixels of images of one size, in a row.

    Parameters
    ----------
    size : int or tuple (height, width), default=32
        Images are brought to this size: 32 for the paper's faces, 16 for its digits.

    crop : {"none", "square"}, default="none"
        "square": take the middle square first, so that the aspect is kept. "none": the whole image, its
        aspect not kept.

    color : {"gray", "rgb"}, default="gray"
        One value a pixel, or three.

    normalize : bool, default=True
        Scale rows to norm 1. A black image stays zero.

    max_pixels : int, default=2**26
        Larger images are refused before they are decoded.

    on_error : {"raise", "skip"}, default="raise"
        What to do with an image that cannot be read: stop, or give a row of NaN, list it in `skipped_` and
        warn.

    Attributes
    ----------
    skipped_ : list of tuples (number, name, reason)
        The images that the last `transform` could not read; where several threads share the extractor, the
        one that began last. Rows of NaN tell the same of each.

    Examples
    --------
    >>> import numpy as np
    >>> from ledl.features import PixelFeatures
    >>> image = np.full((64, 48, 3), 200, dtype=np.uint8)
    >>> PixelFeatures(size=16).fit_transform([image]).shape
    (1, 256)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "size": [Interval(Integral, 1, None, closed="left"), tuple],
        "crop": [StrOptions({"none", "square"})],
        "color": [StrOptions({"gray", "rgb"})],
        "normalize": ["boolean"],
        "max_pixels": [Interval(Integral, 1, None, closed="left")],
        "on_error": [StrOptions({"raise", "skip"})],
    }

    def __init__(
        self,
        *,
        size: int | tuple[int, int] = 32,
        crop: str = "none",
        color: str = "gray",
        normalize: bool = True,
        max_pixels: int = MAX_PIXELS,
        on_error: str = "raise",
    ) -> None:
        self.size = size
        self.crop = crop
        self.color = color
        self.normalize = normalize
        self.max_pixels = max_pixels
        self.on_error = on_error

    def fit(self, X: Any = None, y: Any = None) -> PixelFeatures:
        """Check the parameters; there is nothing to learn.

        Parameters
        ----------
        X, y : None
            Of no effect.

        Returns
        -------
        self : PixelFeatures
        """
        self._validate_params()
        return self

    def transform(self, X: list[Source]) -> Array:
        """Return the pixels of images.

        Parameters
        ----------
        X : list of paths, uint8 arrays (height, width) or (height, width, 3), or PIL images
            The images, of any size.

        Returns
        -------
        features : ndarray of shape (n_images, height * width) or (n_images, height * width * 3), float32
        """
        self._validate_params()
        if isinstance(self.size, tuple) and (len(self.size) != 2 or min(self.size) < 1):
            raise ValueError(f"size={self.size} must be a number, or a height and a width.")
        # Its own list, so that another thread's `transform` does not write into it.
        self.skipped_ = skipped = Skipped()
        rows = try_each(as_sources(X), self._pixels, self.on_error, skipped)
        missing = np.full(self._n_features_out, np.nan, dtype=np.float32)
        features = np.array([missing if row is None else row for row in rows], dtype=np.float32)
        features = features.reshape(len(rows), len(missing))
        skipped.tell(len(rows), "have rows of NaN")
        if self.normalize:
            good = ~np.isnan(features).any(axis=1)
            if good.any():
                features[good] = normalize(features[good])
        return features

    def _pixels(self, source: Source) -> Array:
        """Return the pixels of one image, in a row."""
        image = read_image(source, "L" if self.color == "gray" else "RGB", max_pixels=self.max_pixels)
        if self.crop == "square":
            side = min(image.size)
            left, top = (image.width - side) // 2, (image.height - side) // 2
            image = image.crop((left, top, left + side, top + side))
        height, width = height_and_width(self.size)
        return np.asarray(image.resize((width, height), pillow().Image.Resampling.BILINEAR)).reshape(-1)

    @property
    def _n_features_out(self) -> int:
        height, width = height_and_width(self.size)
        return height * width * (1 if self.color == "gray" else 3)


class ResNetFeatures(ImageTransformer):
    """The last pooling layer of a ResNet-50: 2,048 values an image, or 12,288 for a pyramid.

    Parameters
    ----------
    model : path of an ONNX file, or name of a torchvision network
        An ONNX file with an input (n, 3, height, width) and an output (n, features), or a map (n, features,
        h, w) whose mean is taken; or a name such as "resnet50" where torchvision is installed.

    pyramid : bool, default=False
        Features of the whole image and of five crops of half its size, side by side: left upper, right upper,
        left lower, right lower, centre (the paper's features for Caltech101).

    preprocessing : Preprocessing, default=None
        What is done to an image first. None: what is known to belong to the model; a model of which nothing is
        known needs one.

    batch_size : int, default=16
        Images that the network sees at once, crops counted apart.

    cache : path, default=None
        A folder for features of images that were seen before, by their content, the model and its
        preprocessing. What was finished before an interrupt is not computed again.

    max_pixels : int, default=2**26
        Larger images are refused before they are decoded.

    on_error : {"raise", "skip"}, default="raise"
        What to do with an image that cannot be read: stop, or give a row of NaN, list it in `skipped_` and
        warn.

    progress : bool, default=False
        Show a progress bar (extra ``progress``).

    Attributes
    ----------
    preprocessing_ : Preprocessing
        The one that `fit` found.

    identity_ : str
        Checksum or name of the model that `fit` found. From then on features of another model or preprocessing
        are refused, until the next `fit`; without `fit`, `transform` takes what there is.

    skipped_ : list of tuples (number, name, reason)
        The images that the last `transform` could not read; where several threads share the extractor, the
        one that began last. Rows of NaN tell the same of each.

    See Also
    --------
    PixelFeatures : Pixels themselves.

    Examples
    --------
    No weights come with the package, so this example asks for a file that is not there:

    >>> from ledl.features import IMAGENET, ResNetFeatures
    >>> features = ResNetFeatures("resnet50.onnx", preprocessing=IMAGENET, cache="features")
    >>> features.transform(["photos/cat/1.jpg"])  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    FileNotFoundError: There is no model file resnet50.onnx.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "model": [str, os.PathLike],
        "pyramid": ["boolean"],
        "preprocessing": [Preprocessing, None],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "cache": [str, os.PathLike, None],
        "max_pixels": [Interval(Integral, 1, None, closed="left")],
        "on_error": [StrOptions({"raise", "skip"})],
        "progress": ["boolean"],
    }

    def __init__(
        self,
        model: str | os.PathLike[str],
        *,
        pyramid: bool = False,
        preprocessing: Preprocessing | None = None,
        batch_size: int = 16,
        cache: str | os.PathLike[str] | None = None,
        max_pixels: int = MAX_PIXELS,
        on_error: str = "raise",
        progress: bool = False,
    ) -> None:
        self.model = model
        self.pyramid = pyramid
        self.preprocessing = preprocessing
        self.batch_size = batch_size
        self.cache = cache
        self.max_pixels = max_pixels
        self.on_error = on_error
        self.progress = progress

    def fit(self, X: Any = None, y: Any = None) -> ResNetFeatures:
        """Load the model and check that it goes with its preprocessing; there is nothing to learn.

        Parameters
        ----------
        X, y : None
            Of no effect.

        Returns
        -------
        self : ResNetFeatures
        """
        for name in ("identity_", "preprocessing_"):  # of an earlier fit
            self.__dict__.pop(name, None)
        network, preprocessing = self._loaded_network()
        size = preprocessing.size
        try:
            features = network(np.zeros((2, 3, size, size), dtype=np.float32))
        except Exception as error:  # ONNX Runtime's own, of several kinds
            raise ValueError(
                f"{self.model} does not take two images of {size} x {size} pixels at once: {error}. Give a "
                "preprocessing of its size, and export it for any number of images."
            ) from error
        self._n_features_out = features.shape[1] * (6 if self.pyramid else 1)
        self.preprocessing_, self.identity_ = preprocessing, network.identity
        return self

    def transform(self, X: Sequence[Source]) -> Array:
        """Return the features of images.

        Parameters
        ----------
        X : list of paths, uint8 arrays (height, width) or (height, width, 3), or PIL images
            The images, of any size.

        Returns
        -------
        features : ndarray of shape (n_images, n_features), float32
        """
        sources = as_sources(X)
        network, preprocessing = self._loaded_network()
        cache = None
        if self.cache is not None:
            recipe = {
                "model": network.identity,
                "preprocessing": asdict(preprocessing),
                "pyramid": self.pyramid,
            }
            cache = FeatureCache(self.cache, json.dumps(recipe, sort_keys=True))
        # Its own list, so that another thread's `transform` does not write into it.
        self.skipped_ = skipped = Skipped()
        prepare_one = partial(self._prepare, preprocessing=preprocessing, cache=cache)

        def prepare(batch: slice) -> list[Any]:
            return try_each(sources[batch], prepare_one, self.on_error, skipped, batch.start)

        size = max(self.batch_size // (6 if self.pyramid else 1), 1)
        batches = [slice(i, i + size) for i in range(0, len(sources), size)]
        watched: Iterable[slice] = batches
        if self.progress:
            try:
                from rich.progress import track
            except ImportError as error:
                raise ImportError("progress=True needs rich: pip install 'ledl[progress]'.") from error
            watched = track(batches, description="features")
        features: Array = None
        for batch, prepared in zip(batches, _computed_ahead(prepare, watched), strict=True):
            good = [(i, *image) for i, image in enumerate(prepared, batch.start) if image is not None]
            rows = {i: row for i, _, row, _ in good}
            new = [(i, key, inputs) for i, key, row, inputs in good if row is None]
            if new:
                made = network(np.concatenate([inputs for _, _, inputs in new])).astype(np.float32, copy=False)
                for (i, key, _), row in zip(new, made.reshape(len(new), -1), strict=True):
                    rows[i] = row
                    if cache is not None:
                        cache.put(key, row)
            for i, row in rows.items():
                if features is None:
                    features = np.full((len(sources), len(row)), np.nan, dtype=np.float32)
                features[i] = row
        skipped.tell(len(sources), "have rows of NaN")
        return np.full((len(sources), 0), np.nan, dtype=np.float32) if features is None else features

    def _prepare(
        self, source: Source, *, preprocessing: Preprocessing, cache: FeatureCache | None
    ) -> tuple[str, Array | None, Array | None]:
        """Return the key of an image in the cache, its features if they are there, else the network's input.

        The input is (1, 3, size, size), or (6, 3, size, size) for a pyramid.
        """
        key = ""
        if cache is not None:
            with suppress(OSError, ImageError):  # decoding will say why
                key = content_key(source)
                features = cache.get(key)
                if features is not None:
                    return key, features, None
        image = read_image(source, "RGB", max_pixels=self.max_pixels)
        parts = pyramid_parts(image) if self.pyramid else [image]
        return key, None, np.stack([preprocessing(part) for part in parts])

    def _loaded_network(self) -> tuple[Network, Preprocessing]:
        """Return the network, loaded once, and its preprocessing; refuse others than those of `fit`."""
        self._validate_params()
        name = str(self.model)
        if getattr(self, "_loaded", ("",))[0] != name:
            try:
                network = OnnxNetwork(Path(name)) if name.endswith(".onnx") else TorchvisionNetwork(name)
            except FileNotFoundError as error:
                if not hasattr(self, "identity_"):
                    raise
                raise FileNotFoundError(
                    f"There is no network {name}, on whose features ({self.identity_}) this was trained. Say "
                    "where it is: set_params(model=...), in a pipeline with the name of the step before it, "
                    "features__model in those of ledl fit; on the command line --features."
                ) from error
            self._loaded: tuple[str, Network] = name, network
        network = self._loaded[1]
        preprocessing = self.preprocessing or network.preprocessing
        if preprocessing is None:
            raise ValueError(
                f"How images are prepared for {Path(name).name} is not known. Give preprocessing=, or "
                "--preprocessing on the command line: "
                "ledl.features.IMAGENET for torchvision's networks, ledl.features.CAFFE for the original ones, "
                "or a Preprocessing of your own."
            )
        if getattr(self, "identity_", network.identity) != network.identity:
            raise ValueError(
                f"This was trained on features of {self.identity_}, but {name} is {network.identity}. "
                "Point to the former with set_params(model=...), or fit again."
            )
        if getattr(self, "preprocessing_", preprocessing) != preprocessing:
            raise ValueError(
                f"This was trained on images prepared by {self.preprocessing_}, but now it is {preprocessing}. "
                "Set preprocessing to the former with set_params, or fit again."
            )
        return network, preprocessing

    def __getstate__(self) -> dict[str, Any]:
        """Without the loaded network, which is loaded again where it is needed."""
        state: dict[str, Any] = super().__getstate__()
        state.pop("_loaded", None)
        return state


def pyramid_parts(image: Any) -> list[Any]:
    """Return the whole image, and five crops of half its width and height."""
    width, height = (max(side // 2, 1) for side in image.size)
    right, lower = image.width - width, image.height - height
    corners = [(0, 0), (right, 0), (0, lower), (right, lower), (right // 2, lower // 2)]
    return [image, *(image.crop((x, y, x + width, y + height)) for x, y in corners)]


def _computed_ahead(work: Callable[[slice], Any], items: Iterable[slice]) -> Iterator[Any]:
    """Yield what `work` makes of each item in a thread, a few items ahead of who asks."""
    with ThreadPoolExecutor(1) as pool:
        waiting: deque[Future[Any]] = deque()
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) > AHEAD:
                yield waiting.popleft().result()
        for future in waiting:
            yield future.result()


class FeatureCache:
    """Features of images in a folder: one small .npy file an image, under its final name only when complete.

    `recipe` is text that says how features are made: what changes them must change it.
    """

    def __init__(self, folder: str | os.PathLike[str], recipe: str) -> None:
        self._folder = Path(folder).expanduser() / hashlib.sha256(recipe.encode()).hexdigest()[:16]
        if not (self._folder / "recipe.json").exists():
            self._folder.mkdir(parents=True, exist_ok=True)
            write_atomically(self._folder / "recipe.json", lambda file: file.write(recipe.encode()))
        self._writable = True

    def get(self, key: str) -> Array | None:
        """Return the features of that key, None unless they are there and whole."""
        try:
            with self._path(key).open("rb") as file:
                features = np.load(file, allow_pickle=False)
        except (OSError, ValueError, EOFError, MemoryError):
            return None
        return features if features.ndim == 1 and features.dtype == np.float32 else None

    def put(self, key: str, features: Array) -> None:
        """Write the features of that key; warn once if that cannot be done."""
        path = self._path(key)
        try:
            path.parent.mkdir(exist_ok=True)
            write_atomically(path, lambda file: np.save(file, features, allow_pickle=False))
        except OSError as error:
            if self._writable:
                warnings.warn(f"Features are not kept in {self._folder}: {error}.", stacklevel=3)
            self._writable = False

    def _path(self, key: str) -> Path:
        return self._folder / key[:2] / f"{key}.npy"
