"""LEDL on a Dask cluster of one and of two worker processes, and what a pass costs beside its work.

    python benchmarks/cluster.py [--samples 100000] [--rounds 5]

Float32 samples of 1024 features in 100 classes (a random direction for each, and noise), in 8 chunks that lie
on the workers; 512 atoms. Workers have one thread, of one BLAS thread. A round fits three iterations on one
worker and then on two; the faster of the last two iterations counts. The overhead is what an iteration on two
workers takes beyond the time that the busier of them works on its blocks (256 samples each, atoms as large as
before), and the client on the atoms: sending the step, waiting, fetching and adding sums.
"""

import argparse
import os
import statistics
import time
import warnings
from contextlib import contextmanager

os.environ |= {"OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}

import dask.array as da
import numpy as np
from distributed import Client, LocalCluster, get_task_stream, wait

from ledl import LEDLClassifier
from ledl.samples import ClusterBlocks
from ledl.solvers import ledl as solver

FEATURES, ATOMS, CLASSES, CHUNKS = 1024, 512, 100, 8


def make(first, rows):
    """Samples of a chunk, whose first has that number."""
    centres = np.random.default_rng(0).standard_normal((CLASSES, FEATURES), dtype=np.float32)
    labels = np.arange(first, first + rows) % CLASSES
    noise = np.random.default_rng(first + 1).standard_normal((rows, FEATURES), dtype=np.float32)
    return centres[labels] + noise


def samples(n):
    rows = n // CHUNKS

    def read(block_info=None):
        (first, _), _ = block_info[None]["array-location"]
        return make(first, rows)

    return da.map_blocks(read, chunks=((rows,) * CHUNKS, (FEATURES,)), dtype=np.float32)


def iterations(X, y, max_iter):
    """When iterations ended."""
    ends, sweep = [], solver.sweep

    def timed_step(*arguments):
        found = sweep(*arguments)
        ends.append(time.time())
        return found

    solver.sweep = timed_step
    try:
        LEDLClassifier(n_components=ATOMS, max_iter=max_iter, tol=0, random_state=0).fit(X, y)
    finally:
        solver.sweep = sweep
    return np.array(ends)


@contextmanager
def timed_passes():
    """When passes over the blocks began and ended."""
    map_sum, spans = ClusterBlocks.map_sum, []

    def timed(self, step):
        begin = time.time()
        found = map_sum(self, step)
        spans.append((begin, time.time()))
        return found

    ClusterBlocks.map_sum = timed
    yield spans
    ClusterBlocks.map_sum = map_sum


def on_workers(n_workers, n, max_iter):
    """Seconds of iterations after the first, and of each what is not work on blocks."""
    options = {"threads_per_worker": 1, "processes": True, "memory_limit": 0, "dashboard_address": ":0"}
    with LocalCluster(n_workers=n_workers, **options) as cluster, Client(cluster) as client:
        X, y = samples(n).persist(), np.arange(n // CHUNKS * CHUNKS) % CLASSES
        wait(X)
        iterations(X, y, 1)  # compiles on every worker
        with get_task_stream(client) as stream, timed_passes() as passes:
            ends = iterations(X, y, max_iter)
    steps = [task for task in stream.data if task["key"].startswith("take_step")]
    spans = [
        (task["worker"], span) for task in steps for span in task["startstops"] if span["action"] == "compute"
    ]
    others = []
    for begin, end in passes[-max_iter:-1]:
        work = {}
        for worker, span in spans:
            inside = begin < span["start"] < end
            work[worker] = work.get(worker, 0.0) + inside * (span["stop"] - span["start"])
        others.append(end - begin - max(work.values()))
    return np.diff(ends), others


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    ratios = []
    for i in range(options.rounds):
        one, two = (min(on_workers(n, options.samples, 3)[0]) for n in (1, 2))
        ratios.append(one / two)
        print(
            f"round {i}: one worker {one:.2f} s an iteration, two {two:.2f} s, {ratios[-1]:.2f} times",
            flush=True,
        )
    if ratios:
        print(f"two workers: {statistics.median(ratios):.2f} times one (median of {options.rounds})")
    seconds, others = on_workers(2, 256 * CHUNKS, 30)
    told = f"{1e3 * statistics.median(others):.0f} ms, of {1e3 * statistics.median(seconds):.0f} ms in all"
    print(f"overhead of an iteration on {256 * CHUNKS} samples: {told}")


if __name__ == "__main__":
    warnings.simplefilter("error")
    main()
