"""Peak memory of fit at the Caltech pyramid shape, and of the searches, in multiples of the data's size.

    python benchmarks/memory.py

tracemalloc sees what NumPy and Python allocate after X and y are there.
"""

import tracemalloc

import numpy as np
from sklearn.model_selection import GridSearchCV

from ledl import BatchedSearchCV, LEDLClassifier, LEDLClassifierCV


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
    X, y = rng.random((100, 50_000), dtype=np.float32), np.arange(100) % 10
    plain = LEDLClassifier(max_iter=12, tol=0)
    grid = {"kernel": ["linear", "hellinger", 0.25], "alpha": [2.0**-4, 2.0**-6]}
    for search in (
        LEDLClassifierCV(max_iter=12, tol=0, random_state=0),  # the peak depends on the kernels chosen
        BatchedSearchCV(plain, grid),
        GridSearchCV(plain, grid),
    ):
        tracemalloc.start()
        search.fit(X, y)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        print(f"{type(search).__name__}, 100 x 50000: ratio {peak / X.nbytes:.1f}")
    X, y = rng.random((500, 1000)), np.arange(500) % 20
    for n_candidates in (4, 48):
        grid = {"alpha": np.geomspace(0.05, 0.3, n_candidates)}
        search = BatchedSearchCV(LEDLClassifier(max_iter=1, tol=0), grid, refit=False)
        tracemalloc.start()
        search.fit(X, y)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        print(f"BatchedSearchCV, 500 x 1000, {n_candidates} candidates: peak {peak / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
