"""Peak memory of sparse_encode on many samples, over input and output.

    python benchmarks/coding_memory.py [--samples 1000000] [--threads 2] [--omp]

256-dimensional float64 samples coded on 500 random atoms with sparse_output=True.
"""

import argparse
import resource
import time

import numpy as np

from coding import random_problem
from ledl import sparse_encode


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--samples", type=int, default=1_000_000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--omp", action="store_true", help="orthogonal matching pursuit instead of the lasso")
    options = parser.parse_args()
    few, D = random_problem(256, 500, n=10_000)
    X = np.empty((options.samples, 256))
    for first in range(0, options.samples, len(few)):
        last = min(first + len(few), options.samples)
        X[first:last] = few[: last - first]
    settings = {"n_nonzero_coefs": 10} if options.omp else {"alpha": 0.1}
    settings |= {"sparse_output": True, "n_jobs": options.threads}
    sparse_encode(X[:5000], D, **settings)  # compile
    before, start = peak(), time.perf_counter()
    codes = sparse_encode(X, D, **settings)
    seconds = time.perf_counter() - start
    size = codes.data.nbytes + codes.indices.nbytes + codes.indptr.nbytes
    print(
        f"{len(X):,} samples in {seconds:.0f} s; input {X.nbytes / 1e6:,.0f} MB, output {size / 1e6:,.0f} MB, "
        f"peak over both {(peak() - before - size) / 1e6:,.0f} MB"
    )


if __name__ == "__main__":
    main()
