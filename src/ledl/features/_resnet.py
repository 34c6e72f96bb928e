"""Features of a ResNet as a scikit-learn transformer."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from numbers import Integral
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import gen_batches
from sklearn.utils._param_validation import Interval, StrOptions

from ledl.arrays import Array
from ledl.features._cache import FeatureCache, content_key
from ledl.features._images import MAX_PIXELS, ImageError, Skipped, Source, as_sources, read_image, try_each
from ledl.features._networks import Network, find_network
from ledl.features._preprocessing import Preprocessing

# Stands for an image whose features are known.
KNOWN = object()
# Batches that are decoded ahead of the network.
AHEAD = 2


class ResNetFeatures(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
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
        network, preprocessing = self._network()
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
        """Features of images.

        Parameters
        ----------
        X : list of paths, uint8 arrays (height, width) or (height, width, 3), or PIL images
            The images, of any size.

        Returns
        -------
        features : ndarray of shape (n_images, n_features), float32
        """
        X = as_sources(X)
        network, preprocessing = self._network()
        cache = self._open_cache(network, preprocessing)
        # Its own list, so that another thread's `transform` does not write into it.
        self.skipped_ = skipped = Skipped()
        features: Array = None
        a_batch = max(self.batch_size // (6 if self.pyramid else 1), 1)
        for batch, keys, known, inputs in self._decoded(X, a_batch, preprocessing, cache, skipped):
            rows = self._rows(network, known, inputs, keys, cache)
            for i, row in zip(range(len(X))[batch], rows, strict=True):
                if row is not None:
                    if features is None:
                        features = np.full((len(X), len(row)), np.nan, dtype=np.float32)
                    features[i] = row
        skipped.tell(len(X), "have rows of NaN")
        return np.full((len(X), 0), np.nan, dtype=np.float32) if features is None else features

    def _rows(
        self,
        network: Network,
        known: list[Array],
        inputs: list[Array],
        keys: list[str],
        cache: FeatureCache | None,
    ) -> list[Array]:
        """Features of a batch: those known, those that the network gives, None where an image is bad."""
        new = [i for i, image in enumerate(inputs) if image is not None]
        if new:
            stacked = np.concatenate([inputs[i] for i in new])
            found = network(stacked).astype(np.float32, copy=False).reshape(len(new), -1)
            for i, row in zip(new, found, strict=True):
                known[i] = row
                if cache is not None:
                    cache.put(keys[i], row)
        return known

    def _decoded(
        self,
        X: Sequence[Source],
        a_batch: int,
        preprocessing: Preprocessing,
        cache: FeatureCache | None,
        skipped: Skipped,
    ) -> Iterator[tuple[slice, list[str], list[Array], list[Array]]]:
        """Batches with keys, known features and inputs, decoded a little ahead of the network."""

        def prepare(batch: slice) -> tuple[slice, list[str], list[Array], list[Array]]:
            sources = [X[i] for i in range(len(X))[batch]]
            keys = ["" if cache is None else _key_of(source) for source in sources]
            known = [None if cache is None or not key else cache.get(key) for key in keys]
            todo = [source if row is None else KNOWN for source, row in zip(sources, known, strict=True)]
            inputs = try_each(
                todo,
                lambda source: None if source is KNOWN else self._input(source, preprocessing),
                self.on_error,
                skipped,
                batch.start,
            )
            return batch, keys, known, inputs

        with ThreadPoolExecutor(1) as pool:
            waiting: list[Future[Any]] = []
            for batch in self._watched(list(gen_batches(len(X), a_batch)) if len(X) else []):
                waiting.append(pool.submit(prepare, batch))
                if len(waiting) > AHEAD:
                    yield waiting.pop(0).result()
            for future in waiting:
                yield future.result()

    def _input(self, source: Source, preprocessing: Preprocessing) -> Array:
        """(1, 3, size, size), or (6, 3, size, size) for a pyramid."""
        image = read_image(source, "RGB", max_pixels=self.max_pixels)
        parts = pyramid_parts(image) if self.pyramid else [image]
        return np.stack([preprocessing(part) for part in parts])

    def _network(self) -> tuple[Network, Preprocessing]:
        """The network, loaded once, and its preprocessing."""
        self._validate_params()
        loaded = getattr(self, "_loaded", None)
        if loaded is None or loaded[0] != str(self.model):
            self._loaded = loaded = str(self.model), self._find_network()
        network: Network = loaded[1]
        preprocessing = self.preprocessing or network.preprocessing
        if preprocessing is None:
            raise ValueError(
                f"How images are prepared for {Path(self.model).name} is not known. Give preprocessing=, or "
                "--preprocessing on the command line: "
                "ledl.features.IMAGENET for torchvision's networks, ledl.features.CAFFE for the original ones, "
                "or a Preprocessing of your own."
            )
        self._check_as_fitted(network, preprocessing)
        return network, preprocessing

    def _find_network(self) -> Network:
        try:
            return find_network(str(self.model))
        except FileNotFoundError as error:
            if not hasattr(self, "identity_"):
                raise
            raise FileNotFoundError(
                f"There is no network {self.model}, on whose features ({self.identity_}) this was trained. Say "
                "where it is: set_params(model=...), in a pipeline with the name of the step before it, "
                "features__model in those of ledl fit; on the command line --features."
            ) from error

    def _check_as_fitted(self, network: Network, preprocessing: Preprocessing) -> None:
        """Refuse features that are not those of `fit`, if there was one."""
        if getattr(self, "identity_", network.identity) != network.identity:
            raise ValueError(
                f"This was trained on features of {self.identity_}, but {self.model} is {network.identity}. "
                "Point to the former with set_params(model=...), or fit again."
            )
        if getattr(self, "preprocessing_", preprocessing) != preprocessing:
            raise ValueError(
                f"This was trained on images prepared by {self.preprocessing_}, but now it is {preprocessing}. "
                "Set preprocessing to the former with set_params, or fit again."
            )

    def _open_cache(self, network: Network, preprocessing: Preprocessing) -> FeatureCache | None:
        if self.cache is None:
            return None
        recipe = {"model": network.identity, "preprocessing": asdict(preprocessing), "pyramid": self.pyramid}
        return FeatureCache(self.cache, json.dumps(recipe, sort_keys=True))

    def _watched(self, batches: list[slice]) -> Iterable[slice]:
        if not self.progress:
            return batches
        try:
            from rich.progress import track
        except ImportError as error:
            raise ImportError("progress=True needs rich: pip install 'ledl[progress]'.") from error
        return track(batches, description="features")

    def __getstate__(self) -> dict[str, Any]:
        """Without the loaded network, which is loaded again where it is needed."""
        state: dict[str, Any] = super().__getstate__()
        state.pop("_loaded", None)
        return state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.no_validation = True
        return tags


def pyramid_parts(image: Any) -> list[Any]:
    """The whole image, and five crops of half its width and height."""
    width, height = (max(side // 2, 1) for side in image.size)
    right, lower = image.width - width, image.height - height
    corners = [(0, 0), (right, 0), (0, lower), (right, lower), (right // 2, lower // 2)]
    return [image, *(image.crop((x, y, x + width, y + height)) for x, y in corners)]


def _key_of(source: Source) -> str:
    """The key of a source, or nothing for one that cannot be read: decoding will say why."""
    try:
        return content_key(source)
    except (OSError, ImageError):
        return ""
