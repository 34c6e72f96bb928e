"""Tie a worker process to its parent.

A new worker imports this module before it does anything else, so the module must be light: until the import is
done, a worker does not notice that its parent is gone.
"""

from __future__ import annotations

import os
import signal
import time
from threading import Thread

POLL = 0.2  # seconds between two looks at the parent


def follow(parent: int, *code: str) -> None:
    """Make a new worker ignore Ctrl-C, which its parent handles, and exit when its parent is gone.

    joblib's workers would go on, and a reader of the parent's output would wait for them. `code` has digests of
    what the worker will import: joblib takes old workers for the next run only if these are the same.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:  # another process has adopted the worker of a parent that is gone
        time.sleep(POLL)
    os._exit(1)
