"""Seconds of the first sparse_encode of a process: on a fresh machine, where it compiles, and after.

    python benchmarks/first_call.py

Each in a process of its own, after `from ledl import sparse_encode`, with an empty cache of compiled code and
then with what the first left there. The import of numba is part of the call.
"""

import os
import subprocess
import sys
import tempfile

CALL = """
import time, numpy as np
from ledl import sparse_encode
rng = np.random.default_rng(0)
D = rng.standard_normal((500, 256)); D /= np.linalg.norm(D, axis=1, keepdims=True)
X = rng.standard_normal((100, 256))
start = time.perf_counter()
sparse_encode(X, D, **{options})
print(time.perf_counter() - start)
"""
KINDS = {
    "lasso": {"alpha": 1.0},
    "lasso, tol=1e-4": {"alpha": 1.0, "tol": 1e-4},
    "lasso, ADMM": {"alpha": 1.0, "solver": "admm"},
    "OMP": {"n_nonzero_coefs": 10},
}


def seconds(options, cache):
    command = [sys.executable, "-c", CALL.format(options=options)]
    environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
    return float(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)


def main():
    print("| call | fresh machine, s | later process, s |\n|---|---|---|")
    for name, options in KINDS.items():
        with tempfile.TemporaryDirectory() as cache:
            fresh, later = seconds(options, cache), min(seconds(options, cache) for _ in range(3))
        print(f"| {name} | {fresh:.1f} | {later:.2f} |", flush=True)


if __name__ == "__main__":
    main()
