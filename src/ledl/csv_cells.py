"""Text in the cells of CSV tables, which spreadsheets open and `ledl fit --labels` reads again.

Names of files and classes may come from strangers. A spreadsheet runs a cell that begins with =, + or the like,
and a terminal obeys control characters. Such text is written as a JSON string, in quotes: "=1+2". All other
text is written as it is. So each text has one cell, and each cell that was written has one text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from contextlib import suppress

from ledl.text import JOINERS, is_printable

# What must not stand at the beginning of a cell: formulas, also in the wide letters of East Asia, and quotes,
# which some spreadsheets remove. Where cells are separated by semicolons, a cell may begin after one.
UNSAFE = re.compile(rf"""(^|;)[\s"'{JOINERS}]*[=+\-@＝＋－＠]|^["']""")

MARK = "\ufeff"  # at the beginning of a file: it is UTF-8. Excel takes it for another encoding without it


def mark_for(texts: Iterable[str]) -> str:
    """Return what a table with these texts begins with: `MARK`, or nothing if all cells are ASCII.

    Excel needs the mark, and plain readers may take it for a part of the first cell. ASCII needs none.
    """
    return "" if all(to_cell(text).isascii() for text in texts) else MARK


def to_cell(text: str) -> str:
    """Return text as a cell that can be printed, is no formula, and gives the text back to `from_cell`."""
    if is_printable(text) and text == text.strip() and not UNSAFE.search(text):
        return text
    return json.dumps(text, ensure_ascii=not is_printable(text)).replace(";", r"\u003b")


def from_cell(cell: str) -> str:
    """Return the text in a cell of `to_cell`, or of anybody else, without blanks at the ends."""
    cell = cell.strip()
    if cell.startswith('"'):
        with suppress(ValueError):  # somebody's own quotes
            return str(json.loads(cell))
    return cell
