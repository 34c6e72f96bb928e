"""Seconds per outer iteration: ledl against the plain transcription of the paper (tests/helpers/reference.py).

    OPENBLAS_NUM_THREADS=1 python benchmarks/speed.py [--quick]        (make bench sets the threads)

Both run from the same start, turn about, in one process with one BLAS thread; medians of five iterations, the
first of each left out (it compiles and warms caches). The transcription computes no objective, ledl its whole
history. Then how ledl's time grows with the features and with the atoms. --quick leaves out the large shape.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from helpers.problems import make_problem

WEIGHTS = {"lam": 2**-3, "omega": 2**-11, "epsilon": 2**-8}
SMALL = "YaleB (190 x 1024, K = 380)", ([5] * 38, 1024, 380)
LARGE = "Caltech pyramid (510 x 12288, K = 1020)", ([5] * 102, 12288, 1020)


def our_seconds(problem, n_iter=11):
    """Times of single iterations of ledl, without the first."""
    times = [time.perf_counter()]

    def tick(iteration, record, state):
        times.append(time.perf_counter())
        return False

    problem.solve(max_iter=n_iter, callback=tick, **WEIGHTS)
    return np.diff(times)[1:]


def compare(problem, repeats=5):
    """Times of both, turn about."""
    oracle = problem.oracle_iterations(n_iter=repeats + 1, **WEIGHTS)
    next(oracle)
    theirs, ours = [], []
    for _ in range(repeats):
        start = time.perf_counter()
        next(oracle)
        theirs.append(time.perf_counter() - start)
        ours.append(np.median(our_seconds(problem)))
    return np.median(theirs), np.median(ours)


def flops(problem):
    """Multiplications and additions of one iteration where samples and columns are fewer than atoms."""
    n = len(problem.X)
    K, q = problem.start.M.shape
    return K * q**2 + q**3 / 3 + 2 * n * q**2 + 8 * n * K * q


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    with threadpool_limits(1, "blas"):
        square = np.random.default_rng(0).random((1500, 1500))
        start = time.perf_counter()
        square @ square
        peak = 2 * 1500**3 / (time.perf_counter() - start)
        print(f"A product of two 1500 x 1500 matrices runs at {peak / 1e9:.0f} GFlop/s here.\n")
        print("| shape | transcription, ms | ledl, ms | ratio | ledl, GFlop/s |")
        print("|---|---|---|---|---|")
        for name, shape in [SMALL] if options.quick else [SMALL, LARGE]:
            problem = make_problem(*shape)
            theirs, ours = compare(problem)
            rate = flops(problem) / ours / 1e9
            print(
                f"| {name} | {1e3 * theirs:.1f} | {1e3 * ours:.2f} | {theirs / ours:.1f} | {rate:.0f} |",
                flush=True,
            )
        print("\n| features (510 samples, K = 1020) | ledl, ms |\n|---|---|")
        by_features = {}
        for d in (510, 12288):
            by_features[d] = np.median(our_seconds(make_problem([5] * 102, d, 1020)))
            print(f"| {d} | {1e3 * by_features[d]:.1f} |")
        print(f"\nRatio of the two: {by_features[12288] / by_features[510]:.2f}")
        print(
            "\n| atoms (190 samples, 1024 features) | ledl, ms | exponent since the row above |\n|---|---|---|"
        )
        before = None
        for K in (190, 380, 760, 1520):
            now = np.median(our_seconds(make_problem([5] * 38, 1024, K)))
            growth = "" if before is None else f"{np.log2(now / before):.2f}"
            print(f"| {K} | {1e3 * now:.1f} | {growth} |", flush=True)
            before = now


if __name__ == "__main__":
    main()
