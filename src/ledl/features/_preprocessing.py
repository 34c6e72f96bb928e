"""What is done to an image before a network sees it: a value that travels with the features."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ledl.arrays import Array
from ledl.features._images import pillow


@dataclass(frozen=True)
class Preprocessing:
    """From an RGB image to the network's input (3, size, size).

    Parameters
    ----------
    size : int
        Height and width of the input.
    resize : int or None
        The shorter side is brought to this length and the middle `size` x `size` taken; None: the whole image
        is brought to `size` x `size`, its aspect not kept.
    resample : {"bilinear", "bicubic", "lanczos", "nearest", "box"}
        The filter, Pillow's: all but "nearest" average when they shrink.
    channels : {"RGB", "BGR"}
        Their order.
    scale : float
        Bytes are multiplied by this first.
    mean, std : three floats each
        Subtracted, then divided by, in the order of `channels`.

    Examples
    --------
    >>> from ledl.features import CAFFE, Preprocessing
    >>> Preprocessing.from_json(CAFFE.to_json()) == CAFFE
    True
    >>> import PIL.Image
    >>> CAFFE(PIL.Image.new("RGB", (640, 480))).shape
    (3, 224, 224)
    """

    size: int = 224
    resize: int | None = None
    resample: str = "bilinear"
    channels: str = "RGB"
    scale: float = 1 / 255
    mean: tuple[float, float, float] = (0.0, 0.0, 0.0)
    std: tuple[float, float, float] = (1.0, 1.0, 1.0)

    def __post_init__(self) -> None:
        if self.channels not in ("RGB", "BGR"):
            raise ValueError(f"channels={self.channels!r} must be 'RGB' or 'BGR'.")
        if self.resample.upper() not in ("BILINEAR", "BICUBIC", "LANCZOS", "NEAREST", "BOX"):
            raise ValueError(f"resample={self.resample!r} must be bilinear, bicubic, lanczos, nearest or box.")
        if self.size < 1 or (self.resize is not None and self.resize < self.size):
            raise ValueError(
                f"size={self.size} and resize={self.resize} must be positive, resize at least size."
            )

        numbers = [self.scale, *self.mean, *self.std]
        if len(numbers) != 7 or not np.isfinite(numbers).all() or 0 in self.std:
            raise ValueError(
                f"scale={self.scale}, mean={self.mean} and std={self.std} must be one, three and three "
                "finite numbers, std without zeros."
            )

    def __call__(self, image: Any) -> Array:
        """The input of a PIL image in mode RGB: (3, size, size), float32."""
        resample = getattr(pillow().Image.Resampling, self.resample.upper())
        if self.resize is None:
            image = image.resize((self.size, self.size), resample)
        else:
            # As torchvision does it, but only what is kept is made, however long the image is.
            shorter = min(image.size)
            size = [self.resize * side // shorter for side in image.size]
            corner = [round((side - self.size) / 2) for side in size]
            shares = [old / new for old, new in zip(image.size, size, strict=True)]
            left, top = (start * share for start, share in zip(corner, shares, strict=True))
            right, bottom = ((start + self.size) * share for start, share in zip(corner, shares, strict=True))
            box = (left, top, min(right, image.width), min(bottom, image.height))
            image = image.resize((self.size, self.size), resample, box=box)
        pixels = np.asarray(image, dtype=np.float32)
        if self.channels == "BGR":
            pixels = pixels[:, :, ::-1]
        mean, std = (np.asarray(values, dtype=np.float32) for values in (self.mean, self.std))
        scaled = (pixels * np.float32(self.scale) - mean) / std
        return np.ascontiguousarray(scaled.transpose(2, 0, 1))

    @classmethod
    def from_json(cls, text: str) -> Preprocessing:
        """The value of `to_json`.

        Parameters
        ----------
        text : str
            What `to_json` gave.

        Returns
        -------
        Preprocessing
        """
        values = json.loads(text)
        for name in ("mean", "std"):
            values[name] = tuple(values[name])
        return cls(**values)

    def to_json(self) -> str:
        """As text, the same for the same value.

        Returns
        -------
        str
            A JSON object with sorted keys.
        """
        return json.dumps(asdict(self), sort_keys=True)


# The original (Caffe) networks of He et al.: whole image, BGR, means of the channels.
CAFFE = Preprocessing(channels="BGR", scale=1.0, mean=(103.939, 116.779, 123.68))
# torchvision's.
IMAGENET = Preprocessing(resize=256, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
