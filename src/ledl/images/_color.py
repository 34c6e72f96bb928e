"""Describe the colours and textures of images by histograms, without a network."""

from __future__ import annotations

from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from ledl.arrays import Array
from ledl.images._extractors import ImageTransformer
from ledl.images._reading import MAX_PIXELS, Skipped, Source, as_sources, pillow, read_image

SIDE = 128  # images are resized to a square of this size
HUES, SATURATIONS, VALUES = 8, 4, 8
DIRECTIONS, STRENGTHS = 4, 8
SCALES = (1, 2, 4)  # distances of neighbours, and sides of the squares that are averaged before gradients
# The eight neighbours of a pixel, in a circle.
CIRCLE = ((-1, -1), (-1, 0), (-1, 1), (0, 1), (1, 1), (1, 0), (1, -1), (0, -1))


def uniform_patterns() -> Array:
    """Return the number, 0 to 58, of each of the 256 patterns of brighter and darker neighbours.

    Patterns in which all brighter neighbours are side by side have numbers of their own. The last number is for
    all others, which are mostly noise.
    """
    bits = np.arange(256)[:, None] >> np.arange(8) & 1
    is_uniform = (bits != np.roll(bits, 1, axis=1)).sum(axis=1) <= 2
    return np.where(is_uniform, np.cumsum(is_uniform) - 1, is_uniform.sum())


PATTERNS = uniform_patterns()
N_FEATURES = HUES * SATURATIONS * VALUES + len(SCALES) * (PATTERNS.max() + 1 + DIRECTIONS * STRENGTHS)


class ColorFeatures(ImageTransformer):
    """Return histograms of colours, local patterns and gradients, one row of norm 1 per image.

    Images are resized to 128 x 128 pixels. The 529 values are square roots of shares of the pixels: by hue,
    saturation and value (8 x 4 x 8); by local binary pattern, that is which neighbours at a distance of 1, 2
    and 4 are brighter (59 uniform patterns each); by direction and strength of the gradient at three scales
    (4 x 8 each). The place in the image does not matter.

    Parameters
    ----------
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

    See Also
    --------
    NetworkFeatures : The last layer of a network, which is much better for photos.

    Examples
    --------
    >>> import numpy as np
    >>> from ledl.features import ColorFeatures
    >>> red, blue = np.zeros((2, 64, 48, 3), dtype=np.uint8)
    >>> red[:, :, 0] = blue[:, :, 2] = 200
    >>> features = ColorFeatures().fit_transform([red, blue])
    >>> (features @ features.T).round(2)  # the same texture, but no common colour
    array([[1.  , 0.67],
           [0.67, 1.  ]], dtype=float32)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "max_pixels": [Interval(Integral, 1, None, closed="left")],
        "on_error": [StrOptions({"raise", "skip"})],
    }
    _n_features_out = int(N_FEATURES)

    def __init__(self, *, max_pixels: int = MAX_PIXELS, on_error: str = "raise") -> None:
        self.max_pixels = max_pixels
        self.on_error = on_error

    def fit(self, X: Any = None, y: Any = None) -> ColorFeatures:
        """Check the parameters; there is nothing to learn.

        Parameters
        ----------
        X, y : None
            Ignored.

        Returns
        -------
        self : ColorFeatures
        """
        self._validate_params()
        return self

    def transform(self, X: list[Source]) -> Array:
        """Return the histograms of images.

        Parameters
        ----------
        X : list of paths, uint8 arrays (height, width) or (height, width, 3), or PIL images
            Images of any size.

        Returns
        -------
        features : ndarray of shape (n_images, 529), float32
        """
        self._validate_params()
        # A new list, so that `transform` in another thread does not write into it.
        self.skipped_ = skipped = Skipped()
        sources = as_sources(X)
        features = np.full((len(sources), self._n_features_out), np.nan, dtype=np.float32)
        for i, source in enumerate(sources):
            with skipped.catch(i, source, self.on_error):
                image = read_image(source, "RGB", max_pixels=self.max_pixels, shrink_to=SIDE)
                features[i] = histograms(image.resize((SIDE, SIDE), pillow().Image.Resampling.BICUBIC))
        skipped.warn(len(sources), "have rows of NaN")
        return features


def histograms(image: Any) -> Array:
    """Return the features of an RGB image of the right size: colours, patterns and gradients count the same."""
    gray = np.asarray(image.convert("L"), dtype=np.float32)
    textures = [local_patterns(gray, scale) for scale in SCALES] + [gradients(gray, scale) for scale in SCALES]
    joined = np.concatenate([colors(image), *(texture / len(SCALES) for texture in textures)])
    return np.sqrt(joined / 3)


def shares(bins: Array, n_bins: int) -> Array:
    """Return the share of the pixels in each bin."""
    return np.bincount(bins.reshape(-1), minlength=n_bins) / bins.size


def colors(image: Any) -> Array:
    """Return the shares of pixels by hue, saturation and value."""
    hsv = np.asarray(image.convert("HSV"), dtype=np.intp)
    numbers = (HUES, SATURATIONS, VALUES)
    bins = hsv * numbers // 256
    return shares(np.ravel_multi_index(tuple(np.moveaxis(bins, 2, 0)), numbers), int(np.prod(numbers)))


def local_patterns(gray: Array, distance: int) -> Array:
    """Return the shares of pixels by the pattern of neighbours, at a distance, that are at least as bright."""
    inner = SIDE - 2 * distance
    center = gray[distance:-distance, distance:-distance]
    codes = np.zeros(center.shape, dtype=np.intp)
    for bit, (down, right) in enumerate(CIRCLE):
        y, x = distance * (1 + down), distance * (1 + right)
        codes |= (gray[y : y + inner, x : x + inner] >= center).astype(np.intp) << bit
    return shares(PATTERNS[codes], int(PATTERNS.max()) + 1)


def gradients(gray: Array, scale: int) -> Array:
    """Return the shares of pixels by direction and strength of the gradient, after averaging small squares."""
    side = SIDE // scale
    means = gray.reshape(side, scale, side, scale).mean(axis=(1, 3))
    down, right = np.gradient(means)
    directions = (np.arctan2(down, right) / np.pi % 1 * DIRECTIONS).astype(np.intp) % DIRECTIONS
    strengths = np.log2(1 + np.hypot(down, right)).astype(np.intp).clip(max=STRENGTHS - 1)
    return shares(directions * STRENGTHS + strengths, DIRECTIONS * STRENGTHS)
