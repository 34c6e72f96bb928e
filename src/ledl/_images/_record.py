"""How a model was made: kept in its file, and not trusted when it comes back."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field, fields
from numbers import Real
from typing import Any

import numpy as np

from ledl.arrays import Array
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
        """Training images of each class."""
        return Counter(self.labels)

    @property
    def accuracy_text(self) -> str:
        """The accuracy in cross-validation, and how far to trust it."""
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
        """The settings, if they were chosen."""
        if not self.settings:
            return "default settings"
        values = {name: v if isinstance(v, str) else f"{v:.4g}" for name, v in self.settings.items()}
        told = ", ".join(f"{name.split('__')[-1]}={value}" for name, value in values.items())
        return f"{told} (by cross-validation)"

    def as_info(self) -> dict[str, Any]:
        """As a model file keeps it."""
        return {"kind": KIND, **asdict(self)}

    @classmethod
    def from_info(cls, info: Any) -> Record:
        """What a file has kept: nothing if it is no record; ModelFileError for one that was tampered with."""
        if type(info) is not dict or info.get("kind") != KIND:
            return cls()
        names = {f.name for f in fields(cls)}
        try:
            found = cls(**{name: value for name, value in info.items() if name in names})
            good = _is_record(found)
        except (AttributeError, TypeError, ValueError):
            good = False
        if not good:
            raise ModelFileError(
                "The record of the model's training is not what ledl fit writes. Use the model from Python "
                "with ledl.load, or train it again."
            )
        return found


def standard_error(share: float, n: int) -> float:
    """Of a share of n, by Agresti and Coull: none is certain, not even 0 and 1."""
    middle = (share * n + 2) / (n + 4)
    return float((middle * (1 - middle) / (n + 4)) ** 0.5)


def _is_record(found: Record) -> bool:
    lists = [found.files, found.sha256, found.labels, found.skipped, *found.skipped, found.thumbnails or []]
    if not all(type(part) is list for part in lists) or type(found.settings) is not dict:
        return False
    texts = [found.made, found.method, found.select, *found.files, *found.sha256, *found.labels]
    texts += [text for pair in found.skipped for text in pair] + list(found.settings)
    n = len(found.labels)
    numbers: list[Any] = [found.seed, found.cv_folds]
    numbers += [value for value in (found.per_class, found.cv_accuracy) if value is not None]
    pictures = found.thumbnails or []
    return (
        all(isinstance(text, str) for text in texts)
        and all(isinstance(value, Real) for value in numbers)
        and all(isinstance(value, Real | str) for value in found.settings.values())
        and all(len(pair) == 2 for pair in found.skipped)
        and len(found.files) == len(found.sha256) == n
        and (found.cv_accuracy is None or (0 <= found.cv_accuracy <= 1 and n > 0))
        and (found.thumbnails is None or len(pictures) == n)
        and all(isinstance(p, np.ndarray) and p.dtype == np.uint8 and p.ndim == 1 for p in pictures)
    )
