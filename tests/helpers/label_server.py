"""A real process of `ledl label`, and a client that says what it wants to know."""

import http.client
import json
import os
import re
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from helpers.commands import ENVIRONMENT, LEDL


class Running:
    """Start ``ledl label`` in a process of its own; `ask` is a request with the token."""

    def __init__(self, folder, *options):
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115
        self.process = subprocess.Popen(
            [*LEDL, "label", str(folder), "--no-browser", *map(str, options)],
            stdout=subprocess.PIPE,
            stderr=self.errors,  # no pipe: a full one would hold up the server
            env={**os.environ, **ENVIRONMENT, "PYTHONUNBUFFERED": "1"},
        )
        self.said, address = [], None
        while address is None:
            line = self.process.stdout.readline().decode()
            assert line, (self.said, self.complaints())
            self.said.append(line)
            address = re.search(r"http://127\.0\.0\.1:(\d+)/\?token=(\S+)", line)
        self.address, self.port, self.token = address[0], int(address[1]), address[2]

    def ask(self, path, body=None, headers=(), method=None, timeout=60):
        """Return the status and the JSON, or the bytes, of an answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            send = {"X-Ledl-Token": self.token, "Content-Type": "application/json", **dict(headers)}
            content = None if body is None else json.dumps(body).encode()
            connection.request(method or ("GET" if body is None else "POST"), path, content, send)
            answer = connection.getresponse()
            found = answer.read()
            is_json = (answer.getheader("content-type") or "").startswith("application/json")
            return answer.status, json.loads(found) if is_json else found
        finally:
            connection.close()

    def complaints(self):
        """Return what the server has printed about errors."""
        self.errors.seek(0)
        return self.errors.read().decode()

    def state(self):
        status, found = self.ask("/api/state")
        assert status == 200, found
        return found

    def wait(self, is_there, limit=120):
        """Return the first state for which something is true."""
        end = time.monotonic() + limit
        state = self.state()
        while not is_there(state):
            assert time.monotonic() < end, state
            state = self.ask(f"/api/state?after={state['revision']}&wait=5")[1]
        return state

    def children(self):
        """Return the processes that the server has started."""
        tasks = Path(f"/proc/{self.process.pid}/task")
        return [int(pid) for task in tasks.iterdir() for pid in (task / "children").read_text().split()]

    def kill(self):
        self.process.kill()
        self.process.communicate()
        self.errors.close()

    def stop(self):
        """Press Ctrl-C, and return the status and what was printed."""
        self.process.send_signal(signal.SIGINT)
        out, _ = self.process.communicate(timeout=30)
        complaints = self.complaints()
        self.errors.close()
        return self.process.returncode, "".join(self.said) + out.decode(), complaints
