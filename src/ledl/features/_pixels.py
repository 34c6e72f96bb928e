"""Pixels as features, as the paper has them for faces and digits."""

from __future__ import annotations

from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.preprocessing import normalize
from sklearn.utils._param_validation import Interval, StrOptions

from ledl.arrays import Array
from ledl.features._images import MAX_PIXELS, Skipped, Source, as_sources, pillow, read_image, try_each


class PixelFeatures(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
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
        """Pixels of images.

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
        height, width = self.size if isinstance(self.size, tuple) else (self.size, self.size)
        n_values = self._n_features_out
        # Its own list, so that another thread's `transform` does not write into it.
        self.skipped_ = skipped = Skipped()
        rows = try_each(
            as_sources(X), lambda source: self._pixels(source, (width, height)), self.on_error, skipped
        )
        missing = np.full(n_values, np.nan, dtype=np.float32)
        features = np.array([missing if row is None else row for row in rows], dtype=np.float32)
        features = features.reshape(len(rows), n_values)
        skipped.tell(len(rows), "have rows of NaN")
        if self.normalize and len(rows):
            good = ~np.isnan(features).any(axis=1)
            if good.any():
                features[good] = normalize(features[good])
        return features

    @property
    def _n_features_out(self) -> int:
        height, width = self.size if isinstance(self.size, tuple) else (self.size, self.size)
        return height * width * (1 if self.color == "gray" else 3)

    def _pixels(self, source: Source, size: tuple[int, int]) -> Array:
        image = read_image(source, "L" if self.color == "gray" else "RGB", max_pixels=self.max_pixels)
        if self.crop == "square":
            side = min(image.size)
            left, top = (image.width - side) // 2, (image.height - side) // 2
            image = image.crop((left, top, left + side, top + side))
        return np.asarray(image.resize(size, pillow().Image.Resampling.BILINEAR)).reshape(-1)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.no_validation = True
        return tags
