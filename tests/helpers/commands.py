"""Run commands in this process, which is faster than a new one."""

import contextlib
import os
import subprocess
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


def run_in_terminal(*words, cwd, out=None, program=LEDL):
    """Run a command as in a shell, with stdout in the file `out`, or on the terminal, too.

    Return its status and what the terminal got.
    """
    terminal, its_side = os.openpty()
    with contextlib.ExitStack() as opened:
        stdout = its_side if out is None else opened.enter_context(out.open("wb"))
        process = subprocess.Popen(
            [*program, *map(str, words)],
            cwd=cwd, stdin=its_side, stdout=stdout, stderr=its_side,
            env={**os.environ, "LEDL_DATA": "/nowhere", "TERM": "xterm", "COLUMNS": "60"},
        )  # fmt: skip
        os.close(its_side)
        seen = b""
        with contextlib.suppress(OSError):  # Linux has an error for the end
            while part := os.read(terminal, 2**16):
                seen += part
        os.close(terminal)
    return process.wait(timeout=60), seen.decode()
