"""Tasks that say where they run; a module of its own, so that workers can import it."""

import os


def process(number):
    """Return the number, and the process that this runs in."""
    return number, os.getpid()
