"""LEDL on a Dask cluster of one and of two worker processes, and what a pass costs beside its work.

    python benchmarks/cluster.py [--samples 100000] [--rounds 5]

Float32 samples of 1024 features in 100 classes (a random direction for each, and noise), in 8 chunks that lie
on the workers; 512 atoms. Workers have one thread, of one BLAS thread. A round fits three iterations on one
worker and then on two; the faster of the last two iterations counts. The overhead is that of an iteration on
two workers with 256 samples a chunk, atoms being as large as before: nearly all of it is sending steps and
sums. The same samples in this process stand beside it.
"""

import argparse
import os
import statistics
import time
import warnings

os.environ |= {"OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}

import dask.array as da
import numpy as np
from distributed import Client, LocalCluster, wait

from ledl import LEDLClassifier
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
    """Seconds of each iteration but the first."""
    ends, atom_step = [], solver.atom_step

    def timed_step(*arguments):
        found = atom_step(*arguments)
        ends.append(time.perf_counter())
        return found

    solver.atom_step = timed_step
    try:
        LEDLClassifier(n_components=ATOMS, max_iter=max_iter, tol=0, random_state=0).fit(X, y)
    finally:
        solver.atom_step = atom_step
    return np.diff(ends)


def on_workers(n_workers, n, max_iter):
    options = {"threads_per_worker": 1, "processes": True, "memory_limit": 0, "dashboard_address": ":0"}
    with LocalCluster(n_workers=n_workers, **options) as cluster, Client(cluster):
        X, y = samples(n).persist(), np.arange(n // CHUNKS * CHUNKS) % CLASSES
        wait(X)
        iterations(X, y, 1)  # compiles on every worker
        return iterations(X, y, max_iter)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    ratios = []
    for i in range(options.rounds):
        one, two = (min(on_workers(n, options.samples, 3)) for n in (1, 2))
        ratios.append(one / two)
        print(
            f"round {i}: one worker {one:.2f} s an iteration, two {two:.2f} s, {ratios[-1]:.2f} times",
            flush=True,
        )
    print(f"two workers: {statistics.median(ratios):.2f} times one (median of {options.rounds})")
    few = 256 * CHUNKS
    cluster = statistics.median(on_workers(2, few, 30))
    here = statistics.median(iterations(samples(few).compute(), np.arange(few) % CLASSES, 30))
    told = f"{1e3 * cluster:.0f} ms on two workers, {1e3 * here:.0f} ms in this process"
    print(f"an iteration on {few} samples: {told}")


if __name__ == "__main__":
    warnings.simplefilter("error")
    main()
