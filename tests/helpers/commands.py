"""Run commands in this process, which is faster than a new one."""

import contextlib
import sys
import warnings
from types import SimpleNamespace

from typer.testing import CliRunner

from ledl.cli import app

LEDL = [sys.executable, "-m", "ledl"]
ENVIRONMENT = {"COLUMNS": "100", "NO_COLOR": "1", "LEDL_DATA": "/nowhere"}
# Options of ledl fit for tests that need any model.
FAST = ["--size", "8", "--method", "crc"]


def run(*words, cwd=".", env=()):
    """Run a command in this process, which is faster than a new one."""
    with contextlib.chdir(cwd), warnings.catch_warnings():
        warnings.simplefilter("default")  # as for users; pytest turns warnings into errors
        done = CliRunner().invoke(app, [str(word) for word in words], env={**ENVIRONMENT, **dict(env)})
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return SimpleNamespace(returncode=done.exit_code, stdout=done.stdout, stderr=done.stderr)
