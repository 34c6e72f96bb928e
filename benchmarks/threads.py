"""An outer iteration with one BLAS thread and with all: why `fit` holds BLAS to one thread for few atoms.

    python benchmarks/threads.py

Medians of seven iterations, turn about.
"""

import os
import sys
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from speed import our_seconds

from helpers.problems import make_problem


def main():
    n_cores = os.cpu_count()
    print(f"| samples x features, atoms | 1 thread, ms | {n_cores} threads, ms |\n|---|---|---|")
    for counts, d, K in [([5] * 38, 1024, 380), ([5] * 102, 2048, 1020), ([10] * 100, 1000, 2000)]:
        problem = make_problem(counts, d, K)
        times = {1: [], n_cores: []}
        for _ in range(2):
            for n_threads, collected in times.items():
                with threadpool_limits(n_threads, "blas"):
                    collected.append(np.median(our_seconds(problem, 8)))
        one, all_of_them = (1e3 * min(collected) for collected in times.values())
        print(f"| {sum(counts)} x {d}, {K} | {one:.1f} | {all_of_them:.1f} |", flush=True)


if __name__ == "__main__":
    main()
