"""LEDL on a feature matrix on disk that memory cannot hold, against the largest that it can.

    python benchmarks/out_of_core.py FOLDER [--samples 2400000] [--threads 2]

Makes float32 features of 2048 dimensions in FOLDER (kept for the next run), which also takes the codes, Z and L
of 256 atoms: 25 GB at 2.4 million samples; where the disk has less, fewer samples, said so. Samples are of 100
classes: a random direction for each, and noise. "In memory" is the largest n whose features, a scaled copy and
codes take 70 % of the memory that is free. Each fit is a process of its own, of three iterations, of which the
faster of the last two counts. Anonymous memory is what the process alone has; files that the system caches are
not.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np

FEATURES, ATOMS, CLASSES, CHUNK = 2048, 256, 100, 50_000
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


def make(path, n):
    """Features on disk, unless they are there."""
    shape = (n, FEATURES)
    if path.exists() and np.load(path, mmap_mode="r").shape == shape:
        return
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((CLASSES, FEATURES), dtype=np.float32)
    X = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=shape)
    for first in range(0, n, CHUNK):
        rows = np.arange(first, min(first + CHUNK, n))
        X[rows] = centres[rows % CLASSES] + rng.standard_normal((len(rows), FEATURES), dtype=np.float32)
    X.flush()


def free_memory():
    with open("/proc/meminfo") as memory:
        return next(int(line.split()[1]) for line in memory if line.startswith("MemAvailable")) * 1024


def anonymous():
    """GB of memory that the process alone has."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssAnon")) / 1e6


def fit(path, n, threads, in_memory):
    """Seconds of each of three iterations but the first, of the whole fit, and the peak of memory."""
    from ledl import LEDLClassifier
    from ledl.solvers import ledl as solver

    X, y = np.load(path, mmap_mode="r")[:n], np.arange(n) % CLASSES
    X = np.array(X) if in_memory else X
    options = {"n_components": ATOMS, "tol": 0, "n_jobs": threads, "random_state": 0}
    LEDLClassifier(**options, max_iter=1).fit(np.array(X[:4096]), y[:4096])  # compiles
    peak, done, ends, sweep = [0.0], threading.Event(), [], solver.sweep

    def watch():
        while not done.wait(0.02):
            peak[0] = max(peak[0], anonymous())

    def timed_step(*arguments):
        found = sweep(*arguments)
        ends.append(time.perf_counter())
        return found

    solver.sweep = timed_step
    watcher = threading.Thread(target=watch)
    watcher.start()
    start = time.perf_counter()
    LEDLClassifier(**options, max_iter=3, batch_size=8192 if in_memory else None).fit(X, y)
    seconds = time.perf_counter() - start
    done.set()
    watcher.join()
    print(json.dumps({"iterations": np.diff(ends).tolist(), "fit": seconds, "peak": peak[0]}))


def run(path, n, threads, in_memory):
    words = [sys.executable, __file__, "--fit", str(path), str(n), str(threads), str(int(in_memory))]
    environment = {**os.environ, **ONE_THREAD, "TMPDIR": str(path.parent)}
    done = subprocess.run(words, capture_output=True, text=True, env=environment, check=True)
    found = json.loads(done.stdout)
    an_iteration = min(found["iterations"])
    where = "in memory" if in_memory else f"on disk, {threads} threads"
    print(
        f"{n:,} samples, {4 * n * FEATURES / 1e9:.1f} GB {where}: {an_iteration:.1f} s an iteration, "
        f"{n / an_iteration:,.0f} samples a second; fit of 3 {found['fit']:.0f} s; anonymous memory "
        f"{found['peak']:.2f} GB",
        flush=True,
    )
    return n / an_iteration


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--samples", type=int, default=2_400_000)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    options = parser.parse_args()
    room = int(0.9 * shutil.disk_usage(options.folder).free) // (4 * (FEATURES + 2 * ATOMS))
    there = list(options.folder.glob("features-*.npy"))
    n = options.samples if there else min(options.samples, room)
    if n < options.samples:
        print(f"The disk has room for {n:,} samples only, not {options.samples:,}.")
    path = options.folder / f"features-{n}.npy"
    make(path, n)
    memory = run(path, min(n, int(0.7 * free_memory()) // (4 * 2 * (FEATURES + ATOMS))), options.threads, True)
    disk = run(path, n, options.threads, False)
    print(f"ratio of the rates a sample: {disk / memory:.2f}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--fit"]:
        path, n, threads, in_memory = sys.argv[2:]
        fit(Path(path), int(n), int(threads), bool(int(in_memory)))
    else:
        main()
