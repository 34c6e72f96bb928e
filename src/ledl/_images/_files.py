"""Images on disk: which they are, their features a few at a time, and small copies of them."""

from __future__ import annotations

import io
import os
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils import gen_batches

from ledl.arrays import Array
from ledl.datasets import load
from ledl.features import ImageError
from ledl.features._cache import content_key
from ledl.features._images import SUFFIXES, pillow, read_image, shown

# Images whose features are made, and labels told, at a time.
CHUNK = 64
MAX_NUMBERS = 2**25  # of features at a time
THUMBNAIL = 96  # pixels, the longer side


def extract(
    extractor: Any, paths: Sequence[str | os.PathLike[str]]
) -> Iterator[tuple[slice, Array, list[tuple[str, str]]]]:
    """Features of images, a few at a time; rows of NaN, and names and reasons, for those that are bad."""
    extractor = copy(extractor).set_params(on_error="skip")  # not for good
    size = max(1, min(CHUNK, MAX_NUMBERS // max(getattr(extractor, "_n_features_out", 1), 1)))
    for chunk in gen_batches(len(paths), size):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # who is skipped is told by name
            rows = extractor.transform(paths[chunk])
        bad = [(name, reason) for _, name, reason in extractor.skipped_]
        if rows.shape[1] == 0:  # none could be read
            rows = np.full((len(rows), extractor._n_features_out), np.nan, dtype=np.float32)
        yield chunk, rows, bad


def image_files(paths: Sequence[Path]) -> tuple[list[Path], list[Path]]:
    """Files as they are, and the images in folders and the folders in them, by name; and what else is there.

    Nothing that is hidden, or in a hidden folder.
    """
    found: list[Path] = []
    others: list[Path] = []
    for path in paths:
        if path.is_dir():
            for file in sorted(files_below(path)):
                (found if file.suffix.lower() in SUFFIXES else others).append(file)
        elif path.exists():
            found.append(path)
        else:
            raise FileNotFoundError(f"There is no file or folder {shown(path)}.")
    return found, others


def files_below(folder: Path) -> Iterator[Path]:
    """All files in a folder and the folders in it, through links but not in circles; nothing hidden."""
    seen = set()
    for root, folders, names in os.walk(folder, followlinks=True):
        seen.add(os.path.realpath(root))
        folders[:] = [
            name
            for name in folders
            if not name.startswith(".") and os.path.realpath(os.path.join(root, name)) not in seen
        ]
        yield from (Path(root, name) for name in names if not name.startswith("."))


def absolute(path: str | os.PathLike[str]) -> Path:
    """From the root, without dots; links keep their names."""
    return Path(os.path.abspath(path))


def relative_name(path: str | os.PathLike[str]) -> str:
    """Class and file: what stays the same when a folder of classes moves."""
    return shown("/".join(absolute(path).parts[-2:]))


def digest(path: Path) -> str | None:
    """sha256 of the content; None where it cannot be read, which is told when it is decoded."""
    try:
        return content_key(path)
    except (OSError, ImageError):
        return None


def trained_on(known: Sequence[tuple[str, str]], paths: Sequence[Path]) -> tuple[list[bool], int]:
    """For each image whether it was trained on; and how many others are copies of such.

    `known`: for each training image its name and the sha256 of its content. An image is one of them if it has
    the content: as many of each content as there were, those with the name first.
    """
    digests = [digest(path) for path in paths]
    left = Counter(content for _, content in known)
    names = set(known)
    order = sorted(range(len(paths)), key=lambda i: (relative_name(paths[i]), digests[i]) not in names)
    seen = [False] * len(paths)
    n_copies = 0
    for i in order:
        content = digests[i]
        if content is not None and content in left:
            seen[i] = left[content] > 0
            left[content] -= 1
            n_copies += not seen[i]
    return seen, n_copies


def write_dataset(name: str, folder: str | os.PathLike[str]) -> int:
    """Write a dataset of pictures as a folder of images for each class, and tell how many."""
    root = Path(folder)
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise FileExistsError(f"{shown(root)} is there and not an empty folder. Choose another name.")
    data = load(name)
    if "images" not in data:
        raise ValueError(
            f"The dataset {name!r} holds features, not pictures. Those with pictures are digits, usps, yaleb "
            "and pie."
        )
    low, high = data.images.min(), data.images.max()
    pictures = np.round((data.images - low) * (255 / (high - low))).astype(np.uint8)
    for j, label in enumerate(data.target_names):
        (root / str(label)).mkdir(parents=True)
        for i in np.flatnonzero(data.target == j):
            pillow().Image.fromarray(pictures[i]).save(root / str(label) / f"{i:05d}.png")
    return len(pictures)


def thumbnail(path: str) -> Array:
    """A small JPEG of an image, as bytes."""
    image = read_image(path, "RGB")
    image.thumbnail((THUMBNAIL, THUMBNAIL))
    out = io.BytesIO()
    image.save(out, "JPEG", quality=85)
    return np.frombuffer(out.getvalue(), dtype=np.uint8)
