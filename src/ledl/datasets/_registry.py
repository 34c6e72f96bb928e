"""What is known of each dataset: `registry.toml`."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple


class SourceFiles(NamedTuple):
    """One form in which a dataset may lie in a folder."""

    kind: str
    names: tuple[str, ...]
    key: str = ""  # of the samples in an .npz file
    sha256: tuple[str, ...] = ()  # empty if we never held the files
    pyramid: bool = False


class Entry(NamedTuple):
    """A dataset."""

    name: str
    title: str
    features: int
    samples: int
    classes: int
    terms: str
    citation: str
    differs: str
    ask: str
    files: tuple[SourceFiles, ...]
    target_names: tuple[str, ...] = ()
    openml: str = ""
    url: str = ""  # only where redistribution is allowed
    archive: str = ""
    archive_sha256: str = ""  # empty if we never held the archive
    inner: str = ""  # an archive in the archive
    only: str = ""  # the folder in it that is wanted

    @property
    def description(self) -> str:
        """The text of ``DESCR``."""
        return (
            f"{self.title}\n\nSamples: {self.samples}, classes: {self.classes}.\nTerms: {self.terms}\n"
            f"Source: {self.ask}\nCite: {self.citation}\nDiffers from the paper's: {self.differs}\n"
        )


@cache
def registry() -> dict[str, Entry]:
    """All datasets but scikit-learn's digits."""
    here = files("ledl.datasets")
    table = tomllib.loads((here / "registry.toml").read_text("utf-8"))
    entries = {}
    for name, values in table.items():
        names: Any = values.pop("target_names", ())
        if isinstance(names, str):
            names = (here / names).read_text("utf-8").split()
        sources = [_source(file) for file in values.pop("files")]
        entries[name] = Entry(name=name, files=tuple(sources), target_names=tuple(names), **values)
    return entries


def _source(values: dict[str, Any]) -> SourceFiles:
    fields: dict[str, Any] = {name: tuple(x) if isinstance(x, list) else x for name, x in values.items()}
    return SourceFiles(**fields)
