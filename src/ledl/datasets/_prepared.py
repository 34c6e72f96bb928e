"""The paper's datasets, from prepared .npz files in the folder that LEDL_DATA names."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.utils import Bunch

# name: file and the key of its samples
PREPARED = {
    "usps": ("usps_16x16.npz", "features"),
    "yaleb": ("yaleb_32x32.npz", "images"),
    "pie": ("cmu_pie_32x32.npz", "images"),
    "ucmerced": ("ucmerced_resnet50_pool5.npz", "features"),
    "aid": ("aid_resnet50_pool5.npz", "features"),
    "caltech101": ("caltech101_resnet50_pool5.npz", "features"),
    "caltech101_pyramid": ("caltech101_resnet50_spm20.npz", "features"),
}


def load(name: str, *, data_home: str | os.PathLike[str] | None = None) -> Bunch:
    """One of the paper's datasets, or scikit-learn's digits.

    Parameters
    ----------
    name : str
        "digits" (comes with scikit-learn), "usps" (usps_16x16.npz), "yaleb" (yaleb_32x32.npz), "pie"
        (cmu_pie_32x32.npz), "ucmerced" (ucmerced_resnet50_pool5.npz), "aid" (aid_resnet50_pool5.npz),
        "caltech101" (caltech101_resnet50_pool5.npz) or "caltech101_pyramid" (caltech101_resnet50_spm20.npz).
    data_home : path, default=None
        The folder with the prepared .npz files. None: the environment variable LEDL_DATA.

    Returns
    -------
    Bunch
        ``data`` (n, d), float32 and not normalised; ``target`` (n,), int64; ``images`` (n, height, width)
        for digits, usps, yaleb and pie.

    Examples
    --------
    >>> load("digits").data.shape
    (1797, 64)
    """
    if name == "digits":
        digits = load_digits()
        return Bunch(data=digits.data.astype(np.float32), target=digits.target, images=digits.images)
    if name not in PREPARED:
        known = ", ".join(["digits", *PREPARED])
        raise ValueError(f"There is no dataset {name!r}; the known ones are {known}.")
    file, key = PREPARED[name]
    return _read(_find(name, file, data_home), key)


def _find(name: str, file: str, data_home: str | os.PathLike[str] | None) -> Path:
    home = data_home or os.environ.get("LEDL_DATA")
    if not home:
        raise FileNotFoundError(
            f"The dataset {name!r} is read from {file}, but no folder is named. Set the environment variable "
            "LEDL_DATA, or data_home, to the folder that holds it."
        )
    path = Path(home).expanduser() / file
    if not path.is_file():
        raise FileNotFoundError(
            f"The dataset {name!r} is read from {path}, which does not exist. Put the file there, or set "
            "LEDL_DATA or data_home to the folder that holds it."
        )
    return path


def _read(path: Path, key: str) -> Bunch:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            samples, target = arrays[key], arrays["target"]
            images = arrays.get("images", None)
    except (ValueError, KeyError, EOFError, OSError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"{path} is not a prepared dataset: {error}. It must be an .npz file with the arrays {key!r} and "
            "'target', none of them of objects."
        ) from error
    data = samples.reshape(len(samples), -1).astype(np.float32)
    if len(data) != len(target):
        raise ValueError(f"{path} has {len(data)} samples but {len(target)} labels; make the file again.")
    bunch = Bunch(data=data, target=target.astype(np.int64))
    return bunch if images is None else Bunch(**bunch, images=images)
