"""What runs on the workers of a Dask cluster: steps of blocks, whose codes lie in files of the worker."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable
from copy import deepcopy
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ledl.arrays import Array
from ledl.samples._memory import Block, Step, add, spans_of

# Makes what steps work on of rows and their norms.
Prepare = Callable[[Array, Array], Array]


class Outcome(NamedTuple):
    """What blocks hand back: sums, or the numbers of those that are not where they should be."""

    sums: Any
    lost: tuple[int, ...] = ()
    changed: bool = False  # whether there are new codes


class Place(NamedTuple):
    """A block as its worker knows it."""

    fit: str
    number: int
    first: int
    size: int
    n_features: int
    block_size: int


def make_chunk(recipe: bytes, parts: list[Any]) -> Array:
    """On a worker: the samples of a chunk."""
    from dask.local import get_sync

    graph, names, key = pickle.loads(recipe)
    there = dict(zip(names, parts, strict=True))
    return np.asarray(there[key] if key in there else get_sync({**graph, **there}, key))


def add_outcomes(*outcomes: Outcome) -> Outcome:
    """Those of several blocks."""
    lost = tuple(i for outcome in outcomes for i in outcome.lost)
    if lost:
        return Outcome(None, lost)
    first, *others = outcomes
    # The outcomes stay as they are, should they be asked for again.
    return Outcome(reduce(add, (outcome.sums for outcome in others), deepcopy(first.sums)), (), first.changed)


def take_step(
    recipe: bytes,
    parts: list[Any],
    known: tuple[Array, Array],
    place: Place,
    before: int,
    after: int,
    step: Step[Any],
    prepare: Prepare,
) -> Outcome:
    """On a worker: a step of a block whose codes have changed `before` times, piece by piece."""
    samples, (labels, norms), codes = make_chunk(recipe, parts), known, WorkerCodes(place.fit)
    if samples.shape != (place.size, place.n_features):
        raise ValueError(f"it has the shape {samples.shape}, but X says {(place.size, place.n_features)}")
    total: Any = None
    for i, j in spans_of(place.size, place.block_size):
        first = place.first + i
        if not codes.has(first, before):
            return Outcome(None, (place.number,))
        X = prepare(samples[i:j], norms[i:j])
        old = Block(X, labels[i:j], first, *codes.read(first, before))
        new, sums = step(old)
        changed = new.Z is not old.Z
        if changed:
            codes.write(first, after, new.Z, new.L)
        total = sums if total is None else add(total, sums)
    return Outcome(total, (), changed)


def send_codes(place: Place, version: int) -> Outcome:
    """On a worker: Z and L of a block."""
    codes, found = WorkerCodes(place.fit), []
    for i, _ in spans_of(place.size, place.block_size):
        if not codes.has(place.first + i, version):
            return Outcome(None, (place.number,))
        found.append(codes.read(place.first + i, version))
    return Outcome(tuple(np.concatenate(parts) for parts in zip(*found, strict=True)))


def set_codes(first: int, Z: Array, L: Array, block: Block) -> tuple[Block, tuple[int]]:
    """The step that gives a block codes, which are those of samples from `first` on."""
    rows = slice(block.first - first, block.first - first + len(block.X))
    return block._replace(Z=Z[rows], L=L[rows]), (0,)


# On a worker: for a worker and a fit, how often the codes of the block with that first sample have changed.
_VERSIONS: dict[tuple[str, str], dict[int, int]] = {}


class WorkerCodes:
    """The codes that a worker has of a fit, in files that go with the worker."""

    def __init__(self, fit: str) -> None:
        from distributed import get_worker

        worker = get_worker()
        self._folder = Path(worker.local_directory) / f"ledl-{fit}"
        self._key = worker.address, fit

    def has(self, first: int, version: int) -> bool:
        return version == 0 or _VERSIONS.get(self._key, {}).get(first) == version

    def read(self, first: int, version: int) -> tuple[Array, Array] | tuple[None, None]:
        if version == 0:
            return None, None
        with self._path(first).open("rb") as file:
            return np.load(file), np.load(file)

    def write(self, first: int, version: int, Z: Array, L: Array) -> None:
        versions = _VERSIONS.setdefault(self._key, {})
        versions.pop(first, None)  # until all is written
        self._folder.mkdir(exist_ok=True)
        path = self._path(first)
        with path.open("r+b" if path.exists() else "wb") as file:  # pages of an old file are used again
            np.save(file, Z)
            np.save(file, L)
        versions[first] = version

    def _path(self, first: int) -> Path:
        return self._folder / f"{first}.npy"


def forget_codes(fit: str, dask_worker: Any) -> None:
    """On a worker: let go of all that belongs to a fit."""
    _VERSIONS.pop((dask_worker.address, fit), None)
    shutil.rmtree(Path(dask_worker.local_directory) / f"ledl-{fit}", ignore_errors=True)
