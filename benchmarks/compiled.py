"""What compiled loops pay: an outer iteration, and test-time codes, with and without numba.

    OPENBLAS_NUM_THREADS=1 python benchmarks/compiled.py

At the YaleB shape; medians of five, turn about. "Plain" is what arrays of other libraries get.
"""

import sys
import time
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from speed import SMALL, our_seconds

from helpers.plain_codes import active_set_plain
from helpers.problems import make_problem
from ledl.solvers import compiled
from ledl.solvers.lasso import lasso


def seconds(function):
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def report(what, ours, plain):
    print(f"{what}: compiled {1e3 * ours:.1f} ms, plain {1e3 * plain:.1f} ms, ratio {plain / ours:.1f}")


def iteration_seconds(problem):
    """Compiled and plain, turn about."""
    find, times = compiled.find, []
    for _ in range(5):
        for choose in (find, lambda name, array: None):
            compiled.find = choose
            times.append(np.median(our_seconds(problem)))
    compiled.find = find
    return np.median(times[::2]), np.median(times[1::2])


def main():
    problem = make_problem(*SMALL[1])
    with threadpool_limits(1, "blas"):
        report("outer iteration", *iteration_seconds(problem))
        atoms, X = problem.start.B, problem.coordinates
        G, rhs, squares = atoms @ atoms.T, X @ atoms.T, np.sum(X**2, axis=1)
        lasso(G, rhs[:1], squares[:1], 2**-8, 1e-6)  # compile
        ours = [seconds(lambda: lasso(G, rhs, squares, 2**-8, 1e-6)) for _ in range(5)]
        samples = list(zip(rhs, squares, strict=True))
        plain = seconds(lambda: [active_set_plain(G, *x, 2**-8, 1e-6, 10_000, False) for x in samples])
        report(f"{len(X)} lasso codes", np.median(ours), plain)


if __name__ == "__main__":
    main()
