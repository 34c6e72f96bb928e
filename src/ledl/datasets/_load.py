"""Load the paper's datasets by name, or say where to get them."""

from __future__ import annotations

import os
import tomllib
import warnings
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import numpy as np
import sklearn.datasets
from sklearn.utils import Bunch

from ledl.datasets._archives import ArchiveError, extract
from ledl.datasets._readers import READERS, as_usps
from ledl.images import NetworkFeatures, Preprocessing, content_key, load_image_folder

# Name of the network that turns images of a dataset into features, in the data folder.
NETWORK_FILE = "resnet50_pool5.onnx"

# Defaults of a dataset and of its files in `registry.toml`, which explains the keys.
OPTIONAL = {"target_names": (), "openml": "", "url": "", "archive_sha256": "", "inner": "", "only": ""}
OPTIONAL_OF_FILES = {"key": "", "sha256": (), "pyramid": False}


@cache
def registry() -> dict[str, Bunch]:
    """Return the entries of `registry.toml`: all datasets except scikit-learn's digits."""
    here = files("ledl.datasets")
    found = {}
    for name, values in tomllib.loads((here / "registry.toml").read_text("utf-8")).items():
        info = found[name] = Bunch(name=name, **(OPTIONAL | values))
        if isinstance(info.target_names, str):
            info.target_names = (here / info.target_names).read_text("utf-8").split()
        info.files = [Bunch(**(OPTIONAL_OF_FILES | form)) for form in info.files]
        info.description = (
            f"{info.title}\n\nSamples: {info.samples}, classes: {info.classes}.\nTerms: {info.terms}\n"
            f"Source: {info.ask}\nCite: {info.citation}\nDiffers from the paper's: {info.differs}\n"
        )
    return found


class Availability(NamedTuple):
    """Say if a dataset can be loaded: a named tuple.

    Parameters
    ----------
    name : str
        Name of the dataset for `load`.
    status : {"here", "download", "ask"}
        "here": it is in the folder. "download": `load` downloads it. "ask": only its owners can give it to you.
    detail : str
        The files, the address, or whom to ask.

    Examples
    --------
    >>> from ledl.datasets import available
    >>> [one.name for one in available() if one.status == "here"][0]
    'digits'
    """

    name: str
    status: str
    detail: str


def load(name: str, *, data_home: str | os.PathLike[str] | None = None, download: bool = True) -> Bunch:
    """Return one of the paper's datasets, or scikit-learn's digits.

    Parameters
    ----------
    name : str
        "digits" (part of scikit-learn), "usps", "yaleb", "pie", "ucmerced", "aid", "caltech101" (2,048 values
        per image) or "caltech101_pyramid" (the paper's 12,288 values).
    data_home : path, default=None
        Folder with the files. If None, the folder in the environment variable LEDL_DATA, or else the user's
        cache folder. ``docs/datasets.md`` has the names of the files.
    download : bool, default=True
        Download missing files, if their terms allow redistribution.

    Returns
    -------
    Bunch
        ``data`` (n, d), float32 and not normalised; ``target`` (n,), int64, from 0; ``target_names``, a
        list; ``images`` (n, height, width) for digits, usps, yaleb and pie; ``DESCR``, with source, terms,
        citation and differences from the paper's dataset.

    Raises
    ------
    FileNotFoundError
        If the files are missing and cannot be downloaded. The message says where to get them and where to put
        them.

    Examples
    --------
    >>> load("digits").data.shape
    (1797, 64)
    """
    if name == "digits":
        digits = sklearn.datasets.load_digits()
        return Bunch(
            data=digits.data.astype(np.float32),
            target=digits.target.astype(np.int64),
            target_names=[str(label) for label in digits.target_names],
            images=digits.images,
            DESCR=digits.DESCR,
        )
    if name not in registry():
        raise ValueError(
            f"There is no dataset {name!r}. The datasets are {', '.join(['digits', *registry()])}."
        )
    info, home = registry()[name], data_folder(data_home)
    source = _find(info, home)
    if source is None and download and info.url:
        _find_model(info, home)  # before the download, which is useless without it
        _download(info, home)
        source = _find(info, home)
    if source is not None and source.kind == "images":
        return _features_of_images(info, source, home)
    description = info.description
    if source is not None:
        paths = [home / file for file in source.names]
        where, (data, target, images) = str(paths[0]), READERS[source.kind](paths, source.key)
        for path, known in zip(paths, source.sha256 or [""] * len(paths), strict=True):
            digest = content_key(path)
            other = "not the known file" if known else "the original's is not known"
            description += f"File: {path.name}, sha256 {digest} ({'as known' if digest == known else other}).\n"
    elif download and info.openml:
        options = {"version": "active", "as_frame": False, "parser": "liac-arff"}
        try:
            found = sklearn.datasets.fetch_openml(info.openml, data_home=home, **options)
        except Exception as error:  # no internet, no such dataset, a wrong file
            raise FileNotFoundError(f"{_where_to_get(info, home)} (OpenML: {error})") from error
        # OpenML has 256 values from -1 to 1, and labels "1" to "10".
        values, labels = (np.asarray(array, dtype=np.float64) for array in (found.data, found.target))
        where, (data, target, images) = "OpenML's USPS", as_usps(values, labels - 1)
    else:
        raise FileNotFoundError(_where_to_get(info, home))
    reason = ""
    if not len(data) or data.shape[1] != info.features:
        reason = f"samples of shape {data.shape}, but the dataset has {info.features} features"
    elif not np.isfinite(data).all():
        reason = "NaN or infinite features"
    elif target.dtype.kind not in "iuf" or (target != np.round(target)).any() or target.min() < 0:
        reason = "labels that are not 0, 1, ..."
    elif target.max() >= info.classes:
        reason = f"the label {target.max()}, but the dataset has {info.classes} classes"
    if reason:
        raise ValueError(f"{where} has {reason}. Get or create the file again.")
    n_classes = int(target.max()) + 1
    return Bunch(
        data=data,
        target=target.astype(np.int64),
        target_names=list(
            info.target_names if len(info.target_names) == n_classes else map(str, range(n_classes))
        ),
        **({} if images is None else {"images": images}),
        DESCR=description,
    )


def available(*, data_home: str | os.PathLike[str] | None = None) -> list[Availability]:
    """Return for each dataset if it is here, can be downloaded, or must be asked for, and whom to ask.

    Parameters
    ----------
    data_home : path, default=None
        Folder with the files, as in `load`.

    Returns
    -------
    list of Availability
        Digits first, then the paper's datasets.

    Examples
    --------
    >>> available()[0]
    Availability(name='digits', status='here', detail='part of scikit-learn')
    """
    found = [Availability("digits", "here", "part of scikit-learn")]
    try:
        home = data_folder(data_home)
    except ImportError as error:
        return found + [Availability(name, "ask", str(error)) for name in registry()]
    for info in registry().values():
        source = _find(info, home)
        if source is not None and source.kind == "images" and not (home / NETWORK_FILE).is_file():
            status = "ask"
            detail = f"the images are in {home / source.names[0]}, but {home / NETWORK_FILE} is missing"
        elif source is not None:
            status, detail = "here", ", ".join(str(home / file) for file in source.names)
        elif info.url:
            status = "download"
            detail = f"{info.url} (the checksum is not known; {NETWORK_FILE} must be in {home})"
        elif info.openml:
            status, detail = "download", f"{info.openml!r} from OpenML. Or: {info.ask}"
        else:
            status, detail = "ask", info.ask
        found.append(Availability(info.name, status, detail))
    return found


def data_folder(data_home: str | os.PathLike[str] | None = None) -> Path:
    """Return the folder with the datasets.

    Parameters
    ----------
    data_home : path, default=None
        Folder with the files, as in `load`.

    Returns
    -------
    Path
        `data_home`, or else the folder in the environment variable LEDL_DATA, or else the user's cache folder
        for ledl, which platformdirs finds (extras ``download``, ``images`` and ``cli``).

    Raises
    ------
    ImportError
        If no folder is given and platformdirs is not installed.

    Examples
    --------
    >>> data_folder("data").name
    'data'
    """
    given = data_home or os.environ.get("LEDL_DATA")
    if given:
        return Path(given).expanduser()
    try:
        from platformdirs import user_cache_path
    except ImportError as error:
        raise ImportError(
            "There is no data folder. Set the environment variable LEDL_DATA, or data_home, to a folder; or "
            "install platformdirs, which finds the default folder: pip install 'ledl[download]'."
        ) from error
    return user_cache_path("ledl", appauthor=False)


def _find(info: Bunch, home: Path) -> Bunch | None:
    """Return the first form of the dataset with all its files in the folder, or None."""
    for source in info.files:
        exists = Path.is_dir if source.kind == "images" else Path.is_file
        if all(exists(home / file) for file in source.names):
            return source
    return None


def _features_of_images(info: Bunch, source: Bunch, home: Path) -> Bunch:
    """Return the features of class folders of images. Each image is computed once."""
    model, folder = _find_model(info, home), home / source.names[0]
    listing = load_image_folder(folder, decode=False)
    described = model.with_suffix(".json")
    preprocessing = Preprocessing.from_json(described.read_text("utf-8")) if described.is_file() else None
    extractor = NetworkFeatures(
        model, preprocessing=preprocessing, pyramid=source.pyramid, cache=home / "features"
    )
    data = extractor.fit_transform(listing.filenames)
    if (len(data), len(listing.target_names)) != (info.samples, info.classes) and not source.pyramid:
        warnings.warn(
            f"{folder} has {len(data)} images of {len(listing.target_names)} classes, but the dataset "
            f"{info.name!r} has {info.samples} images of {info.classes} classes.",
            stacklevel=3,
        )
    return Bunch(
        data=data,
        target=listing.target,
        target_names=listing.target_names,
        filenames=listing.filenames,
        DESCR=f"{info.description}Features: {extractor.identity_}, {extractor.preprocessing_.to_json()}\n",
    )


def _find_model(info: Bunch, home: Path) -> Path:
    """Return the path of the network, or raise FileNotFoundError if it is missing."""
    model = home / NETWORK_FILE
    if not model.is_file():
        raise FileNotFoundError(
            f"The features of {info.name!r} need the network {model}, which is missing. Put an ONNX file of "
            "ResNet-50 up to its last pooling layer there. If it is your own network, put its preprocessing "
            f"next to it as {model.with_suffix('.json').name} (docs/datasets.md). Or extract features yourself "
            "with ledl.features.NetworkFeatures."
        )
    return model


def _download(info: Bunch, home: Path) -> None:
    """Download the archive with pooch and unpack it. Files appear only when they are complete."""
    try:
        import pooch
    except ImportError as error:
        raise ImportError(
            f"Downloading {info.name!r} needs pooch: pip install 'ledl[download]'. Or get the files yourself. "
            f"{_where_to_get(info, home)}"
        ) from error
    home.mkdir(parents=True, exist_ok=True)
    known = f"sha256:{info.archive_sha256}" if info.archive_sha256 else None
    try:
        archive = Path(pooch.retrieve(info.url, known_hash=known, fname=info.archive, path=home))
    except ValueError as error:  # raised by pooch if the checksum differs
        raise ArchiveError(f"{info.url} has changed: {error}. The download was deleted.") from error
    except OSError as error:
        raise FileNotFoundError(f"{_where_to_get(info, home)} (Download: {error})") from error
    if not known:
        warnings.warn(
            f"{archive} was downloaded, but the right checksum is not known. Compare its sha256 with another "
            f"source: {content_key(archive)}.",
            stacklevel=3,
        )
    try:
        extract(archive, home, info.inner, only=info.only)
    except ArchiveError:
        archive.unlink()  # else it would be used again the next time
        raise


def _where_to_get(info: Bunch, home: Path) -> str:
    """Return text that says which files are missing, where to get them and where to put them."""
    forms = " or ".join(" and ".join(source.names) for source in info.files)
    return (
        f"The dataset {info.name!r} is not here: {forms} must be in {home}. {info.ask} Put the files there, or "
        "set data_home or the environment variable LEDL_DATA to the folder that has them. "
        f"Terms: {info.terms}"
    )
