"""Text of strangers."""

import pytest

from ledl.text import is_printable, without_joiners


@pytest.mark.parametrize("text", ["cat", "می‌خواهم", "👩‍🔬", "a b", "日本"])
def test_words_of_all_languages_can_be_printed(text):
    assert is_printable(text)


@pytest.mark.parametrize("text", ["a\nb", "\x1b[31m", "a\u202eb", "\u2066a", "\x00", "a\u200bb", "\ud800"])
def test_what_changes_lines_order_or_terminals_cannot(text):
    assert not is_printable(text)


def test_joiners_are_taken_out():
    assert without_joiners("می‌خواهم") == "میخواهم"
    assert without_joiners("cat") == "cat"
