"""Write what was labelled: placeholder of the first version."""

from __future__ import annotations

from typing import Any


def write_table(session: Any) -> str:
    """Return the labels as a table."""
    return ""


def summary_page(session: Any) -> str:
    """Return the labels as a page."""
    return ""


def export(session: Any) -> None:
    """Write the labels to files."""
