"""Record how a model was made: kept in its file, and not trusted when it comes back."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np

from ledl.arrays import Array
from ledl.images import ImageError, content_key, shown
from ledl.persistence import ModelFileError

KIND = "ledl fit"


@dataclass(frozen=True)
class Record:
    """What was trained on, how, and how well it did; all of it empty for a model that was made elsewhere."""

    made: str = ""  # date and time, UTC
    method: str = ""
    settings: dict[str, Any] = field(default_factory=dict)  # those that were chosen
    select: str = "defaults"
    chosen_features: bool = False  # by cross-validation
    per_class: int | None = None
    seed: int = 0
    cv_accuracy: float | None = None
    cv_folds: int = 0
    files: list[str] = field(default_factory=list)  # class/name of the training images
    sha256: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    skipped: list[list[str]] = field(default_factory=list)  # names and reasons
    thumbnails: list[Array] | None = None  # JPEG files, as bytes

    @property
    def counts(self) -> Counter[str]:
        """Return the number of training images of each class."""
        return Counter(self.labels)

    @property
    def accuracy_text(self) -> str:
        """Return the accuracy in cross-validation in words, and how far to trust it."""
        if self.cv_accuracy is None:
            return "not known: a class has one image only" if self.labels else "not known"
        error = standard_error(self.cv_accuracy, len(self.labels))
        chosen = ["settings"] * bool(self.settings) + ["features"] * self.chosen_features
        optimistic = f"; a little too high, since {' and '.join(chosen)} were chosen on the same images"
        return (
            f"{100 * self.cv_accuracy:.1f} % ± {100 * error:.1f} in {self.cv_folds}-fold cross-validation"
            f"{optimistic if chosen else ''}"
        )

    @property
    def settings_text(self) -> str:
        """Return the settings in words, if they were chosen."""
        if not self.settings:
            return "default settings"
        values = {name: v if isinstance(v, str) else f"{v:.4g}" for name, v in self.settings.items()}
        told = ", ".join(f"{name.split('__')[-1]}={value}" for name, value in values.items())
        return f"{told} (by cross-validation)"

    def as_info(self) -> dict[str, Any]:
        """Return the record as a model file keeps it."""
        return {"kind": KIND, **asdict(self)}

    @classmethod
    def from_info(cls, info: Any) -> Record:
        """Return what a file has kept, nothing if it is no record; raise ModelFileError if it is damaged."""
        if type(info) is not dict or info.get("kind") != KIND:
            return cls()
        names = {f.name for f in fields(cls)}
        try:
            found = cls(**{name: value for name, value in info.items() if name in names})
            good = found._is_sound()
        except (AttributeError, TypeError, ValueError):
            good = False
        if not good:
            raise ModelFileError(
                "The record of the model's training is not what ledl fit writes. Use the model from Python "
                "with ledl.load, or train it again."
            )
        return found

    def _is_sound(self) -> bool:
        """Return whether all is of its type, and of one length."""
        pictures = self.thumbnails or []
        lists = [self.files, self.sha256, self.labels, self.skipped, *self.skipped, pictures]
        if not all(type(part) is list for part in lists) or type(self.settings) is not dict:
            return False
        texts = [self.made, self.method, self.select, *self.files, *self.sha256, *self.labels, *self.settings]
        texts += [text for pair in self.skipped for text in pair]
        optional = [value for value in (self.per_class, self.cv_accuracy) if value is not None]
        n = len(self.labels)
        return (
            all(isinstance(text, str) for text in texts)
            and all(isinstance(value, Real) for value in [self.seed, self.cv_folds, *optional])
            and all(isinstance(value, Real | str) for value in self.settings.values())
            and all(len(pair) == 2 for pair in self.skipped)
            and len(self.files) == len(self.sha256) == n
            and (self.cv_accuracy is None or (0 <= self.cv_accuracy <= 1 and n > 0))
            and (self.thumbnails is None or len(pictures) == n)
            and all(isinstance(p, np.ndarray) and p.dtype == np.uint8 and p.ndim == 1 for p in pictures)
        )


def standard_error(share: float, n: int) -> float:
    """Return that of a share of n, by Agresti and Coull: none is certain, not even 0 and 1."""
    middle = (share * n + 2) / (n + 4)
    return float((middle * (1 - middle) / (n + 4)) ** 0.5)


def relative_name(path: str | os.PathLike[str]) -> str:
    """Return class and file: what stays the same when a folder of classes moves."""
    return shown("/".join(Path(os.path.abspath(path)).parts[-2:]))


def trained_on(known: Sequence[tuple[str, str]], paths: Sequence[Path]) -> tuple[list[bool], int]:
    """Return for each image whether it was trained on; and how many others are copies of such.

    `known`: for each training image its name and the sha256 of its content. An image is one of them if it has
    the content: as many of each content as there were, those with the name first.
    """
    contents: list[str | None] = []
    for path in paths:
        try:
            contents.append(content_key(path))
        except (OSError, ImageError):  # told when it is decoded
            contents.append(None)
    left = Counter(content for _, content in known)
    names = set(known)
    seen = [False] * len(paths)
    n_copies = 0
    for i in sorted(range(len(paths)), key=lambda i: (relative_name(paths[i]), contents[i]) not in names):
        content = contents[i]
        if content is not None and content in left:
            seen[i] = left[content] > 0
            left[content] -= 1
            n_copies += not seen[i]
    return seen, n_copies
