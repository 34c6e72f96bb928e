"""Peak memory of fit at the Caltech pyramid shape, in multiples of the data's size.

    python benchmarks/memory.py

tracemalloc sees what NumPy and Python allocate after X and y are there.
"""

import tracemalloc

import numpy as np

from ledl import LEDLClassifier


def main():
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(102), 5)
    LEDLClassifier(max_iter=1, tol=0).fit(rng.random((20, 30)), y[:20])  # compile
    X = rng.random((510, 12288))
    for init in ("class", "random"):
        tracemalloc.start()
        LEDLClassifier(max_iter=12, tol=0, init=init).fit(X, y)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        print(
            f"fit(510 x 12288, K = 1020, init={init!r}): peak {peak / 1e6:.0f} MB, X {X.nbytes / 1e6:.0f} MB, "
            f"ratio {peak / X.nbytes:.2f}"
        )


if __name__ == "__main__":
    main()
