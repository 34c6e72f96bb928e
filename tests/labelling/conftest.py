"""Folders of digits, and sessions about them."""

import contextlib

import pytest

from helpers.digits import write_digits
from ledl.labelling import Options, opened


@pytest.fixture
def folder(tmp_path):
    """Return a folder with 36 images in three folders."""
    return write_digits(tmp_path / "digits") / "known"


@pytest.fixture
def open_folder():
    """Return a function that opens the labels of a folder, closes those it has opened before, and reports."""
    with contextlib.ExitStack() as stack:

        def open_it(folder, *, keep=False, **options):
            if not keep:
                stack.pop_all().close()
            lines = []
            given = Options(folder, **{"labels": ["none"], **options})
            session = stack.enter_context(opened(given, lines.append))
            session.lines = lines
            return session

        yield open_it
