"""Model files that hold data and no code.

`save` and `load` for our estimators and the scikit-learn ones that go with them. A file cannot run anything,
whoever wrote it; docs/model_files.md says what it holds.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

from ledl.persistence._format import ModelFileError, read_file, write_file
from ledl.persistence._tree import VERSIONS, Decoder, Encoder, versions_in_words

__all__ = ["ModelFileError", "Stored", "load", "read", "save"]


class Stored(NamedTuple):
    """What a file holds; `read` gives it.

    Parameters
    ----------
    model : estimator
        The model.
    info : None, number, str, array, or list, tuple or dict of these
        What was given to `save`.
    versions : dict of str
        Of the packages that wrote it.

    Examples
    --------
    >>> from ledl.persistence import Stored
    >>> Stored("a model", None, {"ledl": "0.1.0"}).versions["ledl"]
    '0.1.0'
    """

    model: Any
    info: Any  # what was given to `save`
    versions: dict[str, str]  # of the packages that wrote it


def save(model: Any, path: str | os.PathLike[str], *, info: Any = None) -> None:
    """Store a model in a file.

    Parameters
    ----------
    model : estimator
        One of ours, or one of scikit-learn's `Pipeline`, `Normalizer`, `StandardScaler`, `MinMaxScaler`, `PCA`,
        `LogisticRegression`, `RidgeClassifier`, `LinearSVC` and `LinearDiscriminantAnalysis`; fitted or not.
    path : path
        The file. It is replaced as a whole or left as it was.
    info : optional
        What else to keep with it: None, truth values, numbers, strings, NumPy arrays of these, and lists,
        tuples and dicts of all that.

    Raises
    ------
    ModelFileError
        Where something cannot be stored, such as a kernel that is a function. Nothing is written then.

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
        raise ModelFileError(f"model is of type {name}, not an estimator. Give it as info with one.")
    header = {
        "versions": VERSIONS,
        "model": encoder.encode(model, name),
        "info": encoder.encode(info, "info"),
    }
    try:  # what cannot be loaded is not written
        _restore(header, encoder.arrays, "Fit it again")
    except ModelFileError as error:
        raise ModelFileError(f"{name} cannot be stored: its file {error}.") from error.__cause__
    write_file(Path(path), header, encoder.arrays)


def load(path: str | os.PathLike[str]) -> Any:
    """Return the model in a file.

    Parameters
    ----------
    path : path
        A file that `save` wrote, here or elsewhere. Whoever wrote it, it cannot run code.

    Returns
    -------
    model : estimator
        Its predictions are those of the model that was saved.

    Raises
    ------
    ModelFileError
        Where the file is no model file, is damaged, or is of a version that is not known here.

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
    """Return all that is in a file: as `load`, with what was kept with the model.

    Parameters
    ----------
    path : path
        A file that `save` wrote.

    Returns
    -------
    stored : Stored
        ``model``, ``info``, and ``versions``, of the packages that wrote it.

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


def _restore(header: dict[str, Any], arrays: list[Any], advice: str) -> Stored:
    """Return what a header and arrays stand for; `advice` is for errors, with a place for the versions."""
    versions: Any = header.get("versions")
    words = [word for item in versions.items() for word in item] if type(versions) is dict else [None]
    if not all(type(word) is str and len(word) < 50 and word.isprintable() for word in words):
        raise ModelFileError("does not say by which versions it was written. Save the model again")
    decoder = Decoder(arrays, versions, advice.format(versions_in_words(versions)))
    try:
        model, info = (decoder.decode(header[name], name) for name in ("model", "info"))
    except KeyError as error:
        raise ModelFileError(f"has no {error}. Save the model again") from None
    if not hasattr(model, "get_params"):
        raise ModelFileError("has no estimator as its model. Save the model again")
    if len(decoder.used) < len(arrays):
        raise ModelFileError("has arrays that nothing refers to. Save the model again")
    return Stored(model, info, versions)
