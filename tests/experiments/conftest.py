"""Fixtures of the tests of experiments."""

import pytest

from helpers.runs import PLAN
from ledl.experiments import reproduce


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory):
    """Return the folder and outcome of a run in this process."""
    folder = tmp_path_factory.mktemp("undisturbed")
    return folder, reproduce(PLAN, folder, figures=False)
