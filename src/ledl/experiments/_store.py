"""Finished cells on disk: one small JSON file each, complete or not there."""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import re
import subprocess
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ledl.files import write_atomically

PACKAGES = ("ledl", "numpy", "scipy", "scikit-learn", "numba", "joblib", "threadpoolctl")
# A temporary file that old belongs to nobody: its writer was killed.
ABANDONED_AFTER = 24 * 3600.0
TEMPORARY = re.compile(r"\.[0-9a-f]{32}\.json\.\w+")  # the name of a cell, and what tempfile adds


class Store:
    """A folder of finished cells.

    A cell is known by `identity`, a mapping of all that decides its result; whatever changes the result must
    change it. Any number of processes may read and write: a file appears under its name only when it is
    complete, and two that compute the same cell write the same result.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)

    def get(self, identity: Mapping[str, Any]) -> dict[str, Any] | None:
        """What is known of that cell, or None; a file that is not what we wrote counts as none."""
        try:
            entry = json.loads(self._path(identity).read_text("utf-8"))
        except (OSError, ValueError, RecursionError):
            return None
        if not isinstance(entry, dict) or entry.get("identity") != plain(identity):
            return None
        result = entry.get("result")
        return result if is_result(result) else None

    def put(self, identity: Mapping[str, Any], result: Mapping[str, Any]) -> None:
        """Keep a result, unless another process was faster."""
        if self.get(identity) is not None:
            return
        path = self._path(identity)
        path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"identity": plain(identity), "result": result}, allow_nan=False)
        write_atomically(path, lambda file: file.write(text.encode()))

    def write_run_record(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Who ran what, when and where: a file of its own for every start. The record."""
        started = datetime.now(UTC)
        path = self.folder / "runs" / f"{started:%Y%m%dT%H%M%S.%f}-{os.getpid()}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        record = {"started": started.isoformat(timespec="seconds"), "options": options, **environment()}
        write_atomically(path, lambda file: file.write(json.dumps(record, indent=2).encode()))
        return record

    def sweep(self) -> None:
        """Remove what killed writers of cells left behind, long ago."""
        for path in self.folder.glob("cells/*/.*"):
            try:
                old = time.time() - path.stat().st_mtime > ABANDONED_AFTER
                if old and TEMPORARY.fullmatch(path.name):
                    path.unlink()
            except OSError:  # somebody else was faster
                continue

    def _path(self, identity: Mapping[str, Any]) -> Path:
        digest = hashlib.sha256(json.dumps(plain(identity), sort_keys=True).encode()).hexdigest()
        kind = "-".join(str(identity[name]) for name in ("dataset", "method"))
        return self.folder / "cells" / kind / f"{digest[:32]}.json"


def is_result(result: Any) -> bool:
    """Whether that is what `run_cell` gives: files may come from strangers, or be damaged."""
    if not isinstance(result, dict):
        return False
    numbers = ("accuracy", "fit_seconds", "predict_seconds", "seconds")
    labels = result.get("predicted")
    return (
        all(_is_number(result.get(name)) for name in numbers)
        and result["accuracy"] <= 1
        and _is_number(result.get("agreement", 0.0))
        and all(type(result.get(name)) is int for name in ("n_test", "n_shared"))
        and isinstance(labels, list)
        and len(labels) == result["n_test"]
        and all(type(label) is int for label in labels)
        and isinstance(result.get("settings"), dict)
        and _is_list_of_text(result.get("warnings"))
        and isinstance(result.get("made_by", {}), dict)
        and _is_list_of_text(list(result.get("made_by", {}).values()))
    )


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value < math.inf


def _is_list_of_text(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)


def environment() -> dict[str, Any]:
    """Versions, commit and machine."""
    return {
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in PACKAGES}},
        "commit": _commit(),
        "machine": {"system": platform.platform(), "processor": _processor(), "cores": os.cpu_count()},
    }


def plain(identity: Mapping[str, Any]) -> Any:
    """As JSON gives it back: tuples are lists, and what JSON does not know is its description."""
    return json.loads(json.dumps(identity, default=repr))


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _commit() -> str:
    """Of the source tree that runs, "+" for changes that are not committed; "" where there is none."""
    here = Path(__file__).parent
    try:
        head = _git(here, "rev-parse", "HEAD")
        return head + ("+" if _git(here, "status", "--porcelain", "--", str(here.parent)) else "")
    except (OSError, subprocess.SubprocessError):
        return ""


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
    return done.stdout.strip()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration, IndexError):
        return platform.processor() or platform.machine()
