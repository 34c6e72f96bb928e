"""Features of images on disk, by the content of the image and how they were made."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ledl.arrays import Array
from ledl.features._images import Source, pillow


class FeatureCache:
    """One small .npy file an image; written under its final name only when complete.

    `recipe` is text that says how features are made: what changes them must change it.
    """

    def __init__(self, folder: str | os.PathLike[str], recipe: str) -> None:
        key = hashlib.sha256(recipe.encode()).hexdigest()[:16]
        self._folder = Path(folder).expanduser() / key
        self._folder.mkdir(parents=True, exist_ok=True)
        write_atomically(self._folder / "recipe.json", lambda file: file.write(recipe.encode()))

    def get(self, key: str, n_values: int | None) -> Array | None:
        """The features of that key, if they are there and whole."""
        try:
            with self._path(key).open("rb") as file:
                features = np.load(file, allow_pickle=False)
        except (OSError, ValueError, EOFError):
            return None
        whole = features.ndim == 1 and features.dtype == np.float32 and n_values in (None, len(features))
        return features if whole else None

    def put(self, key: str, features: Array) -> None:
        path = self._path(key)
        path.parent.mkdir(exist_ok=True)
        write_atomically(path, lambda file: np.save(file, features, allow_pickle=False))

    def _path(self, key: str) -> Path:
        return self._folder / key[:2] / f"{key}.npy"


def content_key(source: Source) -> str:
    """sha256 of a file's bytes, or of an image's pixels."""
    if isinstance(source, str | os.PathLike):
        with Path(source).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    if isinstance(source, pillow().Image.Image):
        return hashlib.sha256(f"{source.mode} {source.size}".encode() + source.tobytes()).hexdigest()
    array = np.ascontiguousarray(source)
    return hashlib.sha256(f"{array.dtype} {array.shape}".encode() + array.tobytes()).hexdigest()


def write_atomically(path: Path, write: Callable[[BinaryIO], Any]) -> None:
    """A file that is either as it was or complete, whatever happens on the way."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
