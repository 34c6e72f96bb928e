"""What a person feels at `ledl label`: how soon an answer is stored, a new model is there, the page opens.

    python benchmarks/label_server.py [N_IMAGES] [N_FEATURES] [N_CLASSES]

The server is a process of its own, as for people. Images are tiny files, and their features are put into the
store before it starts, so that nothing is measured but labelling: random blobs, one for each class. All else is
the real thing: HTTP, SQLite, the process that learns. Memory is the proportional share (PSS) of Linux.
"""

import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image as Picture

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from helpers.label_server import Running
from ledl.features import PixelFeatures
from ledl.labelling import Options, opened
from ledl.labelling._store import FeatureRows
from ledl.labelling._worker import recipe_of


def make(folder, n, d, n_classes):
    """Write tiny images, and features of them. Return the class of each image, by name."""
    rng = np.random.default_rng(0)
    folder.mkdir()
    for i in range(n):
        Picture.fromarray(rng.integers(0, 256, (8, 8), dtype=np.uint8)).save(folder / f"{i:06d}.png")
    truth = rng.integers(n_classes, size=n)
    X = rng.standard_normal((n_classes, d), dtype=np.float32)[truth]
    X = np.abs(X + rng.standard_normal((n, d), dtype=np.float32))  # as a network's: not negative
    with opened(Options(folder, ["none"], size=8), lambda line: None) as session:
        rows = FeatureRows(session.store.place, recipe_of(PixelFeatures(size=8).fit()))
        for first in range(0, n, 500):
            part = session.images[first : first + 500]
            rows.put(part, [None] * len(part), X[first : first + 500])
        rows.close()
    return {f"{i:06d}.png": int(label) for i, label in enumerate(truth)}


def memory(pid):
    """Return the memory of a process in MB."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("Pss:")).split()[1]) / 1e3


def main(n=2100, d=2048, n_classes=21):
    with tempfile.TemporaryDirectory() as top:
        folder = Path(top) / "images"
        truth = make(folder, n, d, n_classes)
        begin = time.perf_counter()
        server = Running(folder)
        page = server.ask("/")[0], server.ask("/api/questions")[0]
        assert page == (200, 200)
        print(f"{n} images, {d} features, {n_classes} classes", flush=True)
        print(
            f"  first page and questions after the start     {time.perf_counter() - begin:7.2f} s", flush=True
        )
        server.wait(lambda state: state["features"]["ready"] and not state["learning"])
        print(
            f"  features read, first questions of the engine {time.perf_counter() - begin:7.2f} s", flush=True
        )
        ids, known, names = [], {}, {}
        for item in server.ask("/api/images?limit=1000")[1]["items"]:
            names[item["id"]] = item["name"]
        for key, name in names.items():  # two of each class to begin with
            label = truth[name]
            if label not in known:
                known[label] = server.ask("/api/answers", {"images": [key], "new_class": f"class {label}"})[1][
                    "class"
                ]
            elif len(ids) < n_classes:
                server.ask("/api/answers", {"images": [key], "class": known[label]})
                ids.append(key)
        state = server.wait(lambda state: state["model"] and not state["learning"], limit=600)
        answers, models = [], []
        for k, (key, name) in enumerate([*names.items()][3 * n_classes : 3 * n_classes + 12]):
            before, start = state["model"]["number"], time.perf_counter()
            # One answer whose model is waited for, and others while it is being learnt.
            server.ask("/api/answers", {"images": [key], "class": known[truth[name]]})
            labels = server.state()["n_labelled"]
            while True:
                state = server.state()
                if state["model"]["number"] > before and state["model"]["labels"] >= labels:
                    break
                if k % 2 == 0 and len(answers) < 400:
                    one = time.perf_counter()
                    status, _ = server.ask("/api/answers", {"images": [key], "class": known[truth[name]]})
                    answers.append(time.perf_counter() - one)
                    assert status == 200
                time.sleep(0.02)
            if k % 2:
                models.append(time.perf_counter() - start)
            state = server.wait(lambda state: not state["learning"], limit=600)
        low, middle, high = 1e3 * np.quantile(answers, [0.5, 0.95, 1])
        times = f"median {low:.1f}, 95 % {middle:.1f}, most {high:.1f}"
        print(f"  answer during lessons, ms ({len(answers)}): {times}")
        print(f"  new model after an answer: median {np.median(models):.2f} s, most {max(models):.2f} s")
        print(f"  the lesson itself: {state['model']['seconds']:.2f} s ({state['model']['method']})")
        shares = [memory(pid) for pid in [server.process.pid, *server.children()]]
        print(f"  memory: server {shares[0]:.0f} MB, all its processes {sum(shares):.0f} MB", flush=True)
        server.kill()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
