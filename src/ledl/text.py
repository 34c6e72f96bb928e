"""Text of strangers: what of it may be shown as it is."""

from __future__ import annotations

# They join letters, or keep them apart: Persian words and some emoji need them. They change no order.
JOINERS = "\u200c\u200d"
_WITHOUT = str.maketrans("", "", JOINERS)


def without_joiners(text: str) -> str:
    """Return text without the characters that nobody sees and that only join letters or keep them apart."""
    return text.translate(_WITHOUT)


def is_printable(text: str) -> bool:
    """Return whether text can be printed in one line: `str.isprintable`, and joiners are fine."""
    return without_joiners(text).isprintable()
