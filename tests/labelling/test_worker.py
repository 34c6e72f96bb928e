"""The process that learns: the newest labels only, restarts, and that it never outlives the server."""

import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from helpers.label_server import Running
from ledl.features import PixelFeatures
from ledl.labelling._store import Image
from ledl.labelling._worker import Job, Task, Worker, make_features, recipe_of

needs_proc = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="children are found in /proc")


@pytest.fixture
def task(folder, tmp_path):
    place = tmp_path / "store"
    place.mkdir()
    names = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.png"))
    (folder / "broken.png").write_bytes(b"not an image")
    names.append("broken.png")
    states = [(folder / name).stat() for name in names]
    images = [
        Image(k + 10, name, s.st_size, s.st_mtime_ns)
        for k, (name, s) in enumerate(zip(names, states, strict=True))
    ]
    return Task(place, folder, images, PixelFeatures(size=8))


class Messages(list):
    """Collect messages of a worker, and wait for one."""

    def __init__(self):
        super().__init__()
        self.news = threading.Condition()

    def __call__(self, *message):
        with self.news:
            self.append(message)
            self.news.notify_all()

    def wait(self, is_there, limit=120):
        with self.news:
            assert self.news.wait_for(lambda: any(map(is_there, self)), limit), list(self)
            return next(filter(is_there, self))


def test_features_are_made_once_and_the_unreadable_are_named(task):
    sent = []
    ids, rows = make_features(task, sent.append)
    assert ids == [image.id for image in task.images[:-1]]
    X = PixelFeatures(size=8).fit().transform([task.folder / image.path for image in task.images[:-1]])
    np.testing.assert_array_equal(rows.matrix(ids), X)
    rows.close()
    (bad,) = [message[1] for message in sent if message[0] == "unreadable"]
    assert [key for key, _ in bad] == [task.images[-1].id]
    assert sent[-1][:3] == ("progress", 37, 37)
    contents = [one for message in sent if message[0] == "contents" for one in message[1]]
    assert [key for key, _ in contents] == ids
    # To do are the unreadable one, and what has changed: a copy of the folder changes times alone.
    for n_known, other in ((36, {"mtime": 0}), (35, {"mtime": 0, "size": 1})):
        sent.clear()
        changed = task.images[0]._replace(**other)
        again, rows = make_features(task._replace(images=[changed, *task.images[1:]]), sent.append)
        rows.close()
        assert again == ids
        assert ("progress", n_known, 37) in [message[:3] for message in sent]


def test_other_features_have_another_recipe():
    recipes = {recipe_of(PixelFeatures(size=size, color=color)) for size in (8, 9) for color in ("gray", "rgb")}
    assert len(recipes) == 4
    assert recipe_of(PixelFeatures(max_pixels=10)) == recipe_of(PixelFeatures())


def test_the_newest_labels_are_learnt_and_a_dead_process_is_started_again_once(task):
    messages = Messages()
    worker = Worker(task, messages)
    try:
        (_, ids, contents) = messages.wait(lambda m: m[0] == "ready")
        assert len(ids) == len(contents) == 36
        y = np.full(36, -1)
        y[[0, 12, 24]] = 0, 1, 2
        for number in range(1, 40):
            worker.learn(Job(number, y, np.empty(0, int)))
        _, _, lesson, _ = messages.wait(lambda m: m[0] == "lesson" and m[1] == 39)
        assert lesson.probabilities.shape == (36, 3)
        assert sum(m[0] == "lesson" for m in messages) < 39  # most were replaced by newer ones
        os.kill(worker.process.pid, signal.SIGKILL)
        _, why, is_final = messages.wait(lambda m: m[0] == "died")
        assert "memory" in why
        assert not is_final
        messages.clear()
        messages.wait(lambda m: m[0] == "ready")
        worker.learn(Job(40, y, np.empty(0, int)))
        messages.wait(lambda m: m[0] == "lesson" and m[1] == 40)
        os.kill(worker.process.pid, signal.SIGKILL)
        assert messages.wait(lambda m: m[0] == "died")[2]
    finally:
        worker.close()
    assert not worker.process.is_alive()


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="Windows")
def test_a_process_that_still_imports_does_not_hear_of_ctrl_c(task, capfd):
    messages = Messages()
    worker = Worker(task, messages)
    try:
        os.kill(worker.process.pid, signal.SIGINT)  # at once
        messages.wait(lambda m: m[0] == "ready")
        assert not [m for m in messages if m[0] == "died"]
        assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])  # of this process
        assert "Traceback" not in capfd.readouterr().err
    finally:
        worker.close()


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False


@needs_proc
def test_no_process_outlives_a_killed_server(folder):
    server = Running(folder, "--labels", "none", "--size", "8")
    server.wait(lambda state: state["features"]["ready"])
    children = server.children()
    assert children
    server.kill()
    end = time.monotonic() + 20
    while any(map(is_running, children)):
        assert time.monotonic() < end
        time.sleep(0.05)


@needs_proc
def test_the_page_is_told_that_the_process_has_died(folder):
    server = Running(folder, "--labels", "none", "--size", "8")
    try:
        server.wait(lambda state: state["features"]["ready"])
        (worker,) = [
            pid for pid in server.children() if "spawn_main" in Path(f"/proc/{pid}/cmdline").read_text()
        ]
        ids = server.ask("/api/ids")[1]["ids"]
        os.kill(worker, signal.SIGKILL)
        state = server.wait(lambda state: state["notice"])
        assert "started again" in state["notice"]
        assert server.ask("/api/answers", {"images": ids[:3], "new_class": "a"})[0] == 200
        assert server.ask("/api/answers", {"images": ids[20:23], "new_class": "b"})[0] == 200
        server.wait(lambda state: state["model"] and state["model"]["labels"] == 6 and not state["notice"])
    finally:
        server.kill()
