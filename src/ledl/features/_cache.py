"""Features of images on disk, by the content of the image and how they were made."""

from __future__ import annotations

import hashlib
import os
import warnings
from pathlib import Path

import numpy as np

from ledl.arrays import Array
from ledl.features._images import ImageError, Source, is_file, read_image, shown
from ledl.files import write_atomically


class FeatureCache:
    """One small .npy file an image; written under its final name only when complete.

    `recipe` is text that says how features are made: what changes them must change it.
    """

    def __init__(self, folder: str | os.PathLike[str], recipe: str) -> None:
        key = hashlib.sha256(recipe.encode()).hexdigest()[:16]
        self._folder = Path(folder).expanduser() / key
        if not (self._folder / "recipe.json").exists():
            self._folder.mkdir(parents=True, exist_ok=True)
            write_atomically(self._folder / "recipe.json", lambda file: file.write(recipe.encode()))
        self._writable = True

    def get(self, key: str) -> Array | None:
        """The features of that key, if they are there and whole."""
        try:
            with self._path(key).open("rb") as file:
                features = np.load(file, allow_pickle=False)
        except (OSError, ValueError, EOFError, MemoryError):
            return None
        return features if features.ndim == 1 and features.dtype == np.float32 else None

    def put(self, key: str, features: Array) -> None:
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


def content_key(source: Source) -> str:
    """sha256 of a file's bytes, or of an image's pixels."""
    if isinstance(source, str | os.PathLike):
        if not is_file(source):  # a pipe would wait for ever
            raise ImageError(f"{shown(source)} is not a file, or may not be read.")
        with Path(source).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    image = read_image(source, "RGB")  # what the network will see, palette and orientation included
    return hashlib.sha256(f"RGB {image.size}".encode() + image.tobytes()).hexdigest()
