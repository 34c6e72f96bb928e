"""Save and load models in files that hold data and no code.

Files hold our estimators and the scikit-learn ones that are used with them. They cannot run anything, whoever
wrote them. docs/model_files.md describes them.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

from ledl.persistence._format import ModelFileError, read_file, require, write_file
from ledl.persistence._tree import VERSIONS, Decoder, Encoder, WorkedOut, versions_in_words

__all__ = ["ModelFileError", "Stored", "load", "read", "save"]


class Stored(NamedTuple):
    """Holds the content of a file. `read` returns it.

    Parameters
    ----------
    model : estimator
        The model.
    info : None, number, str, array, or list, tuple or dict of these
        The `info` that was given to `save`.
    versions : dict of str
        Versions of the packages that wrote the file, by their names.

    Examples
    --------
    >>> from ledl.persistence import Stored
    >>> Stored("a model", None, {"ledl": "0.1.0"}).versions["ledl"]
    '0.1.0'
    """

    model: Any
    info: Any
    versions: dict[str, str]


def save(model: Any, path: str | os.PathLike[str], *, info: Any = None) -> None:
    """Store a model in a file.

    Parameters
    ----------
    model : estimator
        One of ours, or one of scikit-learn's `Pipeline`, `Normalizer`, `StandardScaler`, `MinMaxScaler`, `PCA`,
        `LogisticRegression`, `RidgeClassifier`, `LinearSVC` and `LinearDiscriminantAnalysis`; fitted or not.
    path : path
        Name of the file. An existing file is replaced completely or stays as it was.
    info : optional
        More data to keep with the model: None, truth values, numbers, strings, NumPy arrays of these, and
        lists, tuples and dicts of all these.

    Raises
    ------
    ModelFileError
        If something cannot be stored, such as a kernel that is a function. Nothing is written then.

    Examples
    --------
    >>> import ledl, tempfile
    >>> from pathlib import Path
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> model = ledl.CRCClassifier().fit(X[:50], y[:50])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ledl.save(model, Path(folder) / "digits.ledl", info={"trained on": "50 digits"})
    ...     again = ledl.load(Path(folder) / "digits.ledl")
    >>> bool((again.predict(X) == model.predict(X)).all())
    True
    """
    encoder, name = Encoder(), type(model).__name__
    if not hasattr(model, "get_params"):
        raise ModelFileError(f"model is of type {name}, not an estimator. Give it as info of an estimator.")
    header = {
        "versions": VERSIONS,
        "model": encoder.encode(model, name),
        "info": encoder.encode(info, "info"),
    }
    try:  # files that could not be loaded are not written
        _restore(header, encoder.arrays, "Fit it again", encoder.worked_out)
    except ModelFileError as error:
        raise ModelFileError(f"{name} cannot be stored: its file {error}.") from error.__cause__
    write_file(Path(path), header, encoder.arrays)


def load(path: str | os.PathLike[str]) -> Any:
    """Return the model in a file.

    Parameters
    ----------
    path : path
        Name of a file that `save` wrote, here or elsewhere. It cannot run code, whoever wrote it.

    Returns
    -------
    model : estimator
        The model. It predicts the same as the model that was saved.

    Raises
    ------
    ModelFileError
        If the file is no model file, is damaged, or has an unknown version.

    Examples
    --------
    >>> import ledl, tempfile
    >>> from pathlib import Path
    >>> model = ledl.SRCClassifier().fit([[1.0, 0.0], [0.0, 1.0]], ["east", "north"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ledl.save(model, Path(folder) / "winds.ledl")
    ...     again = ledl.load(Path(folder) / "winds.ledl")
    >>> again.predict([[0.9, 0.2]])
    array(['east'], dtype='<U5')
    """
    return read(path).model


def read(path: str | os.PathLike[str]) -> Stored:
    """Return everything that is in a file: the model, and the data that was kept with it.

    Parameters
    ----------
    path : path
        Name of a file that `save` wrote.

    Returns
    -------
    stored : Stored
        ``model``, ``info``, and ``versions`` of the packages that wrote the file.

    Raises
    ------
    ModelFileError
        In the same cases as `load`.

    Examples
    --------
    >>> import ledl, tempfile
    >>> from pathlib import Path
    >>> from ledl.persistence import read
    >>> model = ledl.SRCClassifier().fit([[1.0, 0.0], [0.0, 1.0]], ["east", "north"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ledl.save(model, Path(folder) / "winds.ledl", info={"measured": "here"})
    ...     stored = read(Path(folder) / "winds.ledl")
    >>> stored.info
    {'measured': 'here'}
    """
    path = Path(path)
    try:
        return _restore(*read_file(path), "Use the versions that wrote it, {}, or save the model again")
    except ModelFileError as error:
        raise ModelFileError(f"{path} {error}.") from error.__cause__


def _restore(
    header: dict[str, Any], arrays: list[Any], advice: str, worked_out: WorkedOut | None = None
) -> Stored:
    """Return the content that a header and arrays describe. Errors end with `advice`; "{}" becomes versions."""
    versions: Any = header.get("versions")
    words = [word for item in versions.items() for word in item] if type(versions) is dict else [None]
    require(
        all(type(word) is str and len(word) < 50 and word.isprintable() for word in words),
        "does not say which versions wrote it. Save the model again",
    )
    decoder = Decoder(arrays, versions, advice.format(versions_in_words(versions)), worked_out)
    for name in ("model", "info"):
        require(name in header, f"has no {name!r}. Save the model again")
    model, info = (decoder.decode(header[name], name) for name in ("model", "info"))
    require(hasattr(model, "get_params"), "has no estimator as its model. Save the model again")
    require(len(decoder.used) == len(arrays), "has arrays that nothing refers to. Save the model again")
    return Stored(model, info, versions)
