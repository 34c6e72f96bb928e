"""Runs of `ledl reproduce` for tests: a small plan, and what its folder holds."""

import csv
import time

from ledl.experiments import Plan

PLAN = Plan(("digits",), ("crc", "ridge", "ledl"), "cv", n_per_class=3, n_splits=3)
N_CELLS = 9
TIMES = ("select_seconds", "fit_seconds", "predict_seconds")


def table(folder):
    """Return the table without its times."""
    with (folder / "table.csv").open(newline="") as file:
        return [{k: v for k, v in row.items() if k not in TIMES} for row in csv.DictReader(file)]


def cell_files(folder):
    """Return the finished cells, and when they were written."""
    return {path: path.stat().st_mtime_ns for path in (folder / "cells").glob("*/*.json")}


def without_times(result):
    """Return the result of a cell without its times."""
    return {name: value for name, value in result.items() if not name.endswith("seconds")}


def until(condition, seconds=120):
    """Wait for a condition, and return its last value."""
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    return condition()
