"""Turn images into features with scikit-learn transformers: pixels, or the last layer of a network."""

from __future__ import annotations

import hashlib
import io
import json
import os
import warnings
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict
from numbers import Integral
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.preprocessing import normalize
from sklearn.utils._param_validation import Interval, StrOptions

from ledl.arrays import Array
from ledl.files import UNFINISHED, open_regular, remove_abandoned, write_atomically
from ledl.images._efficientnet import NAME as EFFICIENTNET
from ledl.images._efficientnet import EfficientNetLite0
from ledl.images._networks import MAX_BATCH, Network, OnnxNetwork, Preprocessing, TorchvisionNetwork
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
)
from ledl.parallel import in_threads

DECODERS = 2  # threads that read images for a network


class ImageTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Base of the extractors. scikit-learn does not validate their input, and `fit` learns nothing from it."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.no_validation = True
        return tags


class PixelFeatures(ImageTransformer):
    """Resize images and return their pixels, one row per image.

    Parameters
    ----------
    size : int or tuple (height, width), default=32
        Images are resized to this size. The paper has 32 for faces and 16 for digits.

    crop : {"none", "square"}, default="none"
        "square" crops the image to its middle square first, which keeps the aspect ratio. "none" resizes the
        full image and does not keep the aspect ratio.

    color : {"gray", "rgb"}, default="gray"
        One value per pixel, or three.

    normalize : bool, default=True
        Scale each row to norm 1. The row of a black image stays zero.

    max_pixels : int, default=2**26
        Larger images are refused before they are decoded.

    on_error : {"raise", "skip"}, default="raise"
        Reaction to an image that cannot be read: "raise" stops. "skip" gives a row of NaN, lists the image in
        `skipped_` and warns.

    Attributes
    ----------
    skipped_ : list of tuples (number, name, reason)
        Images that the last `transform` could not read. If several threads share the extractor, those of the
        thread that began last; the rows of NaN are right in every thread.

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
            Ignored.

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
            Images of any size.

        Returns
        -------
        features : ndarray of shape (n_images, height * width) or (n_images, height * width * 3), float32
        """
        self._validate_params()
        # A new list, so that `transform` in another thread does not write into it.
        self.skipped_ = skipped = Skipped()
        sources, (height, width) = as_sources(X), height_and_width(self.size)
        features = np.full((len(sources), self._n_features_out), np.nan, dtype=np.float32)
        for i, source in enumerate(sources):
            with skipped.catch(i, source, self.on_error):
                image = read_image(
                    source,
                    "L" if self.color == "gray" else "RGB",
                    max_pixels=self.max_pixels,
                    shrink_to=max(height, width),
                )
                if self.crop == "square":
                    side = min(image.size)
                    left, top = (image.width - side) // 2, (image.height - side) // 2
                    image = image.crop((left, top, left + side, top + side))
                resized = image.resize((width, height), pillow().Image.Resampling.BILINEAR)
                features[i] = np.asarray(resized).reshape(-1)
        skipped.warn(len(sources), "have rows of NaN")
        good = ~np.isnan(features).any(axis=1)
        if self.normalize and good.any():
            features[good] = normalize(features[good])
        return features

    @property
    def _n_features_out(self) -> int:
        height, width = height_and_width(self.size)
        return height * width * (1 if self.color == "gray" else 3)


class NetworkFeatures(ImageTransformer):
    """Return the last layer of a network, such as the 2,048 values of ResNet-50, or six times as many.

    Parameters
    ----------
    model : path of an ONNX file, or name of a network
        An ONNX file with an input (n, 3, height, width) and an output (n, features), a map (n, features, h,
        w) whose mean is taken, or tokens (n, tokens, features), of which the class token is taken, or the
        mean if there is none; "efficientnet_lite0" where the extra ``photos`` is installed; or a name such as
        "resnet50" where torchvision is installed.

    pyramid : bool, default=False
        Join the features of the full image and of five crops of half its width and height: upper left, upper
        right, lower left, lower right, centre (the paper's features for Caltech101).

    preprocessing : Preprocessing, default=None
        How an image becomes the input of the network. If None, the preprocessing that is known for this model;
        an unknown model needs one.

    batch_size : int, default=16
        Largest number of images that the network gets at once. Each crop counts as an image. There are fewer if
        their inputs would take more than 32 MiB.

    cache : path, default=None
        Folder that keeps features for the next time, keyed by the content of the image, the model and the
        preprocessing. After an interruption the finished images are not computed again.

    max_pixels : int, default=2**26
        Larger images are refused before they are decoded.

    on_error : {"raise", "skip"}, default="raise"
        Reaction to an image that cannot be read: "raise" stops. "skip" gives a row of NaN, lists the image in
        `skipped_` and warns.

    progress : bool, default=False
        Show a progress bar (extra ``progress``).

    Attributes
    ----------
    preprocessing_ : Preprocessing
        Preprocessing found by `fit`.

    identity_ : str
        Checksum or name of the model found by `fit`. After `fit`, `transform` raises an error if the model or
        the preprocessing has changed. Without `fit` it takes any model.

    output_ : str
        Output of the network that `fit` chose, and how it is pooled.

    skipped_ : list of tuples (number, name, reason)
        Images that the last `transform` could not read. If several threads share the extractor, those of the
        thread that began last; the rows of NaN are right in every thread.

    See Also
    --------
    PixelFeatures : The pixels themselves.
    ColorFeatures : Colours and textures, without a network.

    Examples
    --------
    This example asks for a file that does not exist:

    >>> from ledl.features import IMAGENET, NetworkFeatures
    >>> features = NetworkFeatures("resnet50.onnx", preprocessing=IMAGENET, cache="features")
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

    def fit(self, X: Any = None, y: Any = None) -> NetworkFeatures:
        """Load the model and check that it accepts its preprocessing; there is nothing to learn.

        Parameters
        ----------
        X, y : None
            Ignored.

        Returns
        -------
        self : NetworkFeatures
        """
        for name in ("identity_", "preprocessing_", "output_"):  # of an earlier fit
            self.__dict__.pop(name, None)
        if self.cache is not None:  # here and not for each chunk of images: it looks at all that is kept
            remove_abandoned(Path(self.cache).expanduser(), f"*/*/{UNFINISHED}")
        network, preprocessing = self._loaded_network()
        size = preprocessing.size
        features = network(np.zeros((2, 3, size, size), dtype=np.float32))  # raises an error if it cannot
        self._n_features_out = features.shape[1] * (6 if self.pyramid else 1)
        self.preprocessing_, self.identity_, self.output_ = preprocessing, network.identity, network.output
        return self

    def transform(self, X: Sequence[Source]) -> Array:
        """Return the features of images.

        Parameters
        ----------
        X : list of paths, uint8 arrays (height, width) or (height, width, 3), or PIL images
            Images of any size.

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
        # A new list, so that `transform` in another thread does not write into it.
        self.skipped_ = skipped = Skipped()
        n_parts = 6 if self.pyramid else 1
        n_bytes = n_parts * 3 * preprocessing.size**2 * np.dtype(np.float32).itemsize
        size = max(min(self.batch_size // n_parts, MAX_BATCH // n_bytes), 1)
        starts: Iterable[int] = range(0, len(sources), size)
        if self.progress:
            try:
                from rich.progress import track
            except ImportError as error:
                raise ImportError("progress=True needs rich: pip install 'ledl[progress]'.") from error
            starts = track(starts, description="features")
        features: Array = None
        # Threads decode the next batches while the network works.
        for prepared in in_threads(
            lambda i: self._prepare(sources[i : i + size], i, skipped, preprocessing, cache), starts, DECODERS
        ):
            rows: dict[int, Any] = {i: row for i, _, row, _ in prepared}
            new = [(i, key, inputs) for i, key, row, inputs in prepared if row is None]
            if new:
                made = network(np.concatenate([inputs for _, _, inputs in new]))
                for (i, key, _), row in zip(new, made.reshape(len(new), -1), strict=True):
                    rows[i] = row
                    if cache is not None:
                        cache.put(key, row)
            for i, row in rows.items():
                if features is None:
                    features = np.full((len(sources), len(row)), np.nan, dtype=np.float32)
                features[i] = row
        skipped.sort()
        skipped.warn(len(sources), "have rows of NaN")
        return np.full((len(sources), 0), np.nan, dtype=np.float32) if features is None else features

    def _prepare(
        self,
        sources: Sequence[Source],
        first: int,
        skipped: Skipped,
        preprocessing: Preprocessing,
        cache: FeatureCache | None,
    ) -> list[tuple[int, str, Array | None, Array | None]]:
        """Return number, cache key, cached features and network input of each image that can be read.

        An image has either features or an input, (1, 3, size, size), or (6, 3, size, size) for a pyramid.
        The number of the first image is `first`.
        """
        prepared = []
        for number, source in enumerate(sources, first):
            with skipped.catch(number, source, self.on_error):
                key, features, inputs = "", None, None
                if cache is not None:
                    with suppress(OSError, ImageError):  # decoding will raise it again, with the reason
                        key = content_key(source, is_image=True)
                        features = cache.get(key, getattr(self, "_n_features_out", None))
                if features is None:
                    side = (preprocessing.resize or preprocessing.size) * (2 if self.pyramid else 1)
                    image = read_image(source, "RGB", max_pixels=self.max_pixels, shrink_to=side)
                    parts = pyramid_parts(image) if self.pyramid else [image]
                    inputs = np.stack([preprocessing(part) for part in parts])
                prepared.append((number, key, features, inputs))
        return prepared

    def _loaded_network(self) -> tuple[Network, Preprocessing]:
        """Return the network, loaded once, and its preprocessing. Raise if they are not those of `fit`."""
        self._validate_params()
        name = str(self.model)
        network: Network
        if getattr(self, "_loaded", (None,))[0] != name:
            try:
                network = open_network(name)
            except FileNotFoundError as error:
                if not hasattr(self, "identity_"):
                    raise
                raise FileNotFoundError(
                    f"There is no network {name}. The model was trained on its features ({self.identity_}). "
                    "Say where the network is: set_params(model=...), for a pipeline of ledl fit "
                    "set_params(features__model=...), on the command line --features."
                ) from error
            self._loaded: tuple[str, Network] = name, network
        network = self._loaded[1]
        if getattr(self, "identity_", network.identity) != network.identity:
            raise ValueError(
                f"This was trained on features of {self.identity_}, but {name} is {network.identity}. "
                "Give the first one: set_params(model=...), for a pipeline of ledl fit "
                "set_params(features__model=...), on the command line --features. Or fit again."
            )
        preprocessing = self.preprocessing or network.preprocessing
        if preprocessing is None:
            raise ValueError(
                f"The preprocessing of {Path(name).name} is not known. Give preprocessing= (--preprocessing on "
                "the command line): ledl.features.IMAGENET (imagenet) for networks of torchvision, "
                "ledl.features.CAFFE (caffe) for the original ResNets, or your own Preprocessing."
            )
        if getattr(self, "preprocessing_", preprocessing) != preprocessing:
            raise ValueError(
                f"This was trained on images prepared by {self.preprocessing_}, but now it is {preprocessing}. "
                "Use the first one with set_params(preprocessing=...), or fit again."
            )
        network.check(preprocessing.size)  # before any image is decoded
        return network, preprocessing

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the loaded network, which is loaded again when it is needed."""
        state: dict[str, Any] = super().__getstate__()
        state.pop("_loaded", None)
        return state


def open_network(name: str) -> Network:
    """Return the network in an ONNX file, or the one with this name."""
    if name.endswith(".onnx"):
        return OnnxNetwork(Path(name))
    return EfficientNetLite0() if name == EFFICIENTNET else TorchvisionNetwork(name)


def pyramid_parts(image: Any) -> list[Any]:
    """Return the full image, and five crops of half its width and height."""
    width, height = (max(side // 2, 1) for side in image.size)
    right, lower = image.width - width, image.height - height
    corners = [(0, 0), (right, 0), (0, lower), (right, lower), (right // 2, lower // 2)]
    return [image, *(image.crop((x, y, x + width, y + height)) for x, y in corners)]


class FeatureCache:
    """Keep features of images in a folder, one .npy file per image. A file appears only when it is complete.

    A checksum of name and features follows the array.

    `recipe` is text that describes how features are made. Whatever changes the features must change the recipe.
    """

    def __init__(self, folder: str | os.PathLike[str], recipe: str) -> None:
        self._folder = Path(folder).expanduser() / hashlib.sha256(recipe.encode()).hexdigest()[:16]
        try:
            if not (self._folder / "recipe.json").exists():
                self._folder.mkdir(parents=True, exist_ok=True)
                write_atomically(self._folder / "recipe.json", recipe.encode())
        except OSError as error:
            raise OSError(
                f"cache={str(folder)!r} cannot keep features: {error.strerror or error}. Choose another "
                "folder, or leave it out."
            ) from error
        self._writable = True

    def get(self, key: str, n_features: int | None) -> Array | None:
        """Return the features of a key, or None if they are missing or damaged."""
        try:
            with open_regular(self._path(key)) as file:
                features: Array = np.lib.format.read_array(file, allow_pickle=False)
                is_whole = file.read() == _checksum(key, features)
        except Exception:  # damaged headers raise many types
            return None
        is_plain = features.ndim == 1 and features.dtype == np.float32 and np.isfinite(features).all()
        return features if is_whole and is_plain and n_features in (None, len(features)) else None

    def put(self, key: str, features: Array) -> None:
        """Write the features of a key. Warn once if they cannot be written."""
        path = self._path(key)
        try:
            path.parent.mkdir(exist_ok=True)
            content = io.BytesIO()
            np.save(content, features, allow_pickle=False)
            write_atomically(path, content.getvalue() + _checksum(key, features))
        except OSError as error:
            if self._writable:
                warnings.warn(
                    f"Features cannot be kept in {self._folder}: {error.strerror or error}.", stacklevel=3
                )
            self._writable = False

    def _path(self, key: str) -> Path:
        return self._folder / key[:2] / f"{key}.npy"


def _checksum(key: str, features: Array) -> bytes:
    return hashlib.sha256(key.encode() + features.tobytes()).digest()
