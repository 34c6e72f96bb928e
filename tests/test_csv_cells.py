"""Cells that are no formulas, cannot control a terminal, and are read back."""

import csv
import io
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ledl.csv_cells import from_cell, mark_for, to_cell

FORMULA = re.compile(r"""[\s\u200c\u200d]*[=+\-@\t\r\n＝＋－＠]""")
# Pieces of which bad names are made, beside all characters; halves of surrogate pairs come from file names.
PIECES = st.sampled_from(
    [*"=+-@'\"; \t\r\n\\,|\x1b\x9b\u202e\udcff＝", "\\u003b", "\x1b[31m", "cmd|' /C calc'!A0"]
)
TEXTS = st.lists(PIECES | st.characters(exclude_categories=["Cs"]), max_size=12).map("".join)


def as_line(cells):
    """Return the line of a CSV file with these cells."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue()


@given(TEXTS)
@example("'=1+2")
@example('"=1+2"')
@example('"\\u003b"')
@example(" blanks ")
def test_text_is_read_back_from_its_cell(text):
    ((cell, _),) = csv.reader(io.StringIO(as_line([to_cell(text), "end"])))
    assert from_cell(cell) == text


@given(st.lists(TEXTS, min_size=1, max_size=4))
@example(["a;=1+2"])
@example(["\u200d=1+2"])
@example(['a;"=1+2'])
@example(["a", "b; @x"])
def test_no_cell_is_a_formula_whatever_separates_cells(texts):
    line = as_line(map(to_cell, texts))
    assert line.removesuffix("\n").replace("\u200c", "").replace("\u200d", "").isprintable()
    for separator in ",;\t":
        for row in csv.reader(io.StringIO(line), delimiter=separator):
            assert not [cell for cell in row if FORMULA.match(cell)]


def test_different_texts_have_different_cells():
    texts = ["=x", "'=x", '"=x"', '"\\"=x\\""', "\\x1b", "\x1b", "x", " x", "x ", "", '"', "'"]
    assert len({to_cell(text) for text in texts}) == len(texts)


@pytest.mark.parametrize(
    "text",
    ["cat", "Käse 2", "a-b", "C:\\photos\\new.jpg", "1.5", "日本", "o'clock", "a;b", "", "می\u200cخواهم"],
)
def test_usual_text_is_written_as_it_is(text):
    assert to_cell(text) == text


@pytest.mark.parametrize("cell", ["'s-Hertogenbosch", '"a"b', '"', "=1+2", "C:\\new\\table.jpg", "'-5"])
def test_cells_of_people_are_taken_as_they_are(cell):
    assert from_cell(f" {cell}\t") == cell


def test_only_tables_that_need_it_have_the_mark_of_utf8():
    assert mark_for(["cat", "=1+2", "\x1b", "\udcff"]) == ""  # written in ASCII
    assert f"{mark_for(['cat', 'Käse'])}path".encode() == "path".encode("utf-8-sig")
