"""The paper's datasets by name: found, read, or an answer to where to get them."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.datasets import load_digits
from sklearn.utils import Bunch

from ledl.datasets import _readers as readers
from ledl.datasets._archives import ArchiveError, extract
from ledl.datasets._registry import Entry, SourceFiles, registry
from ledl.images import Preprocessing, ResNetFeatures, content_key, load_image_folder

# The network that makes features of a dataset's images, in the folder of the data.
NETWORK_FILE = "resnet50_pool5.onnx"


class Availability(NamedTuple):
    """Whether a dataset can be loaded: a named tuple.

    Parameters
    ----------
    name : str
        As `load` takes it.
    status : {"here", "download", "ask"}
        In the folder, to be fetched by `load`, or to be had from its owners only.
    detail : str
        From where.

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
    """One of the paper's datasets, or scikit-learn's digits.

    Parameters
    ----------
    name : str
        "digits" (comes with scikit-learn), "usps", "yaleb", "pie", "ucmerced", "aid", "caltech101" (one
        vector of 2,048 values an image) or "caltech101_pyramid" (the paper's 12,288 values).
    data_home : path, default=None
        The folder that holds the files. None: the environment variable LEDL_DATA, or else the platform's
        cache folder. ``docs/datasets.md`` says which files are read.
    download : bool, default=True
        Download what is not there and may be redistributed.

    Returns
    -------
    Bunch
        ``data`` (n, d), float32 and not normalised; ``target`` (n,), int64, from 0 on; ``target_names``, a
        list; ``images`` (n, height, width) for digits, usps, yaleb and pie; ``DESCR``, with source, terms,
        citation, and how it differs from the paper's.

    Raises
    ------
    FileNotFoundError
        If the files are not there and cannot be downloaded: where to ask for them, and where to put them.

    Examples
    --------
    >>> load("digits").data.shape
    (1797, 64)
    """
    if name == "digits":
        digits = load_digits()
        names = [str(label) for label in digits.target_names]
        return Bunch(
            data=digits.data.astype(np.float32),
            target=digits.target.astype(np.int64),
            target_names=names,
            images=digits.images,
            DESCR=digits.DESCR,
        )
    entry = _entry(name)
    home = data_folder(data_home)
    source = _find(entry, home)
    if source is None and download and entry.url:
        _find_model(entry, home)  # without it images are of no use
        _download(entry, home)
        source = _find(entry, home)
    if source is None and download and entry.openml:
        samples = readers.read_openml(_fetch_openml(entry, home))
        return _bunch(entry, readers.check_samples(samples, entry.features, entry.classes, "OpenML's USPS"))
    if source is None:
        raise FileNotFoundError(_where_to_get(entry, home))
    if source.kind == "images":
        return _from_images(entry, source, home)
    paths = [home / file for file in source.names]
    samples = READERS[source.kind](paths, source)
    samples = readers.check_samples(samples, entry.features, entry.classes, str(paths[0]))
    return _bunch(entry, samples, _provenance(paths, source))


def available(*, data_home: str | os.PathLike[str] | None = None) -> list[Availability]:
    """For each dataset whether it is here, can be downloaded, or must be asked for, and from whom.

    Parameters
    ----------
    data_home : path, default=None
        As in `load`.

    Returns
    -------
    list of Availability
        Digits first, then the paper's datasets.

    Examples
    --------
    >>> available()[0]
    Availability(name='digits', status='here', detail='comes with scikit-learn')
    """
    home = data_folder(data_home)
    found = [Availability("digits", "here", "comes with scikit-learn")]
    for entry in registry().values():
        source = _find(entry, home)
        if source is not None and source.kind == "images" and not (home / NETWORK_FILE).is_file():
            detail = f"images are in {home / source.names[0]}, but features need {home / NETWORK_FILE}"
            found.append(Availability(entry.name, "ask", detail))
        elif source is not None:
            found.append(Availability(entry.name, "here", ", ".join(str(home / file) for file in source.names)))
        elif entry.url:
            detail = f"{entry.url} (its checksum is not known to us; features need {NETWORK_FILE} in {home})"
            found.append(Availability(entry.name, "download", detail))
        elif entry.openml:
            found.append(
                Availability(entry.name, "download", f"from OpenML, {entry.openml!r}; or: {entry.ask}")
            )
        else:
            found.append(Availability(entry.name, "ask", entry.ask))
    return found


def data_folder(data_home: str | os.PathLike[str] | None = None) -> Path:
    """Return the folder that datasets are looked for in.

    Parameters
    ----------
    data_home : path, default=None
        As in `load`.

    Returns
    -------
    Path
        `data_home`, or else that of the environment variable LEDL_DATA, or else the platform's cache folder for
        ledl.

    Examples
    --------
    >>> data_folder("data").name
    'data'
    """
    given = data_home or os.environ.get("LEDL_DATA")
    if given:
        return Path(given).expanduser()
    if os.name == "nt":
        return Path(os.environ.get("LOCALAPPDATA", "~")).expanduser() / "ledl" / "Cache"
    if os.uname().sysname == "Darwin":
        return Path("~/Library/Caches/ledl").expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "ledl"


READERS: dict[str, Callable[[list[Path], SourceFiles], readers.Samples]] = {
    "npz": lambda paths, source: readers.read_npz(paths[0], source.key),
    "faces_mat": lambda paths, source: readers.read_faces_mat(paths[0]),
    "zip_train": lambda paths, source: readers.read_zip_train(paths),
    "libsvm": lambda paths, source: readers.read_libsvm(paths),
}


def _entry(name: str) -> Entry:
    if name not in registry():
        known = ", ".join(["digits", *registry()])
        raise ValueError(f"There is no dataset {name!r}; the known ones are {known}.")
    return registry()[name]


def _find(entry: Entry, home: Path) -> SourceFiles | None:
    """The first form of the dataset that is there, whole."""
    for source in entry.files:
        paths = [home / file for file in source.names]
        if all(path.is_dir() if source.kind == "images" else path.is_file() for path in paths):
            return source
    return None


def _provenance(paths: list[Path], source: SourceFiles) -> str:
    """Which files were read, and whether they are those that we know."""
    lines = []
    for path, known in zip(paths, source.sha256 or [""] * len(paths), strict=True):
        digest = content_key(path)
        judged = (
            "as known" if digest == known else "not the one we know" if known else "none known to compare with"
        )
        lines.append(f"File: {path.name}, sha256 {digest} ({judged}).")
    return "\n".join(lines) + "\n"


def _bunch(entry: Entry, samples: readers.Samples, provenance: str = "") -> Bunch:
    n_classes = int(samples.target.max()) + 1 if len(samples.target) else 0
    names = (
        list(entry.target_names) if len(entry.target_names) == n_classes else [str(j) for j in range(n_classes)]
    )
    images = {} if samples.images is None else {"images": samples.images}
    return Bunch(
        data=samples.data,
        target=samples.target,
        target_names=names,
        **images,
        DESCR=entry.description + provenance,
    )


def _from_images(entry: Entry, source: SourceFiles, home: Path) -> Bunch:
    """Features of class folders of images, each computed once."""
    model = _find_model(entry, home)
    listing = load_image_folder(home / source.names[0], decode=False)
    described = model.with_suffix(".json")
    preprocessing = Preprocessing.from_json(described.read_text("utf-8")) if described.is_file() else None
    extractor = ResNetFeatures(
        model, preprocessing=preprocessing, pyramid=source.pyramid, cache=home / "features"
    )
    data = extractor.fit_transform(listing.filenames)
    if (len(data), len(listing.target_names)) != (entry.samples, entry.classes) and not source.pyramid:
        warnings.warn(
            f"{home / source.names[0]} has {len(data)} images of {len(listing.target_names)} classes, but "
            f"{entry.name!r} has {entry.samples} of {entry.classes}.",
            stacklevel=3,
        )
    return Bunch(
        data=data,
        target=listing.target,
        target_names=listing.target_names,
        filenames=listing.filenames,
        DESCR=f"{entry.description}Features: {extractor.identity_}, {extractor.preprocessing_.to_json()}\n",
    )


def _find_model(entry: Entry, home: Path) -> Path:
    model = home / NETWORK_FILE
    if not model.is_file():
        raise FileNotFoundError(
            f"The images of {entry.name!r} need {model}, which makes features of them and is not there. Put an "
            "ONNX file of ResNet-50 up to its last pooling there, and, unless it is the known one, its "
            f"preprocessing beside it as {model.with_suffix('.json').name} (docs/datasets.md); or extract "
            "features yourself with ledl.features.ResNetFeatures."
        )
    return model


def _download(entry: Entry, home: Path) -> None:
    """The archive, by pooch, and its images; nothing under a final name before it is complete."""
    try:
        import pooch
    except ImportError as error:
        raise ImportError(
            f"Downloading {entry.name!r} needs pooch: pip install 'ledl[download]'. Or "
            f"{_where_to_get(entry, home)}"
        ) from error
    home.mkdir(parents=True, exist_ok=True)
    known = f"sha256:{entry.archive_sha256}" if entry.archive_sha256 else None
    try:
        archive = Path(pooch.retrieve(entry.url, known_hash=known, fname=entry.archive, path=home))
    except ValueError as error:  # what pooch raises for another checksum
        raise ArchiveError(f"{entry.url} is not what it was: {error}. Nothing was kept.") from error
    except OSError as error:
        raise FileNotFoundError(f"{_where_to_get(entry, home)} (Download: {error})") from error
    if not known:
        warnings.warn(
            f"{archive} was downloaded, but its checksum is not known to us; compare sha256 "
            f"{content_key(archive)}.",
            stacklevel=3,
        )
    try:
        extract(archive, home, entry.inner, only=entry.only)
    except ArchiveError:
        archive.unlink()  # or it would be taken for good the next time
        raise


def _fetch_openml(entry: Entry, home: Path) -> Any:
    from sklearn.datasets import fetch_openml

    try:
        return fetch_openml(entry.openml, version="active", data_home=home, as_frame=False, parser="liac-arff")
    except Exception as error:  # no network, no such dataset, a file that is not what it should be
        raise FileNotFoundError(f"{_where_to_get(entry, home)} (OpenML: {error})") from error


def _where_to_get(entry: Entry, home: Path) -> str:
    forms = " or ".join(" and ".join(source.names) for source in entry.files)
    return (
        f"The dataset {entry.name!r} is read from {forms} in {home}, but none is there. {entry.ask} Put the "
        "files there, or set data_home or the environment variable LEDL_DATA to the folder that holds them. "
        f"Terms: {entry.terms}"
    )
