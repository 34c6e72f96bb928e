"""What kernel="hellinger" costs beside a linear model of square roots: time, memory and size of the file.

    OPENBLAS_NUM_THREADS=1 python benchmarks/roots.py

Both are the same model. Seconds are those of the processor, the least of three fits.
"""

import tempfile
import time
import tracemalloc
from pathlib import Path

import numpy as np

import ledl


def measure(model, X, y):
    """Return seconds of fit, seconds of 500 predictions, MB at the peak of fit, MB of the file; and labels."""
    seconds = []
    for _ in range(3):
        start = time.process_time()
        model.fit(X, y)
        seconds.append(time.process_time() - start)
    start = time.process_time()
    labels = model.predict(X[:500])
    seconds_to_predict = time.process_time() - start
    tracemalloc.start()
    model.fit(X, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "model.ledl")
        ledl.save(model, file)
        return np.array([min(seconds), seconds_to_predict, peak / 1e6, file.stat().st_size / 1e6]), labels


def main():
    print(
        "| method | samples | fit, s | predict 500, s | peak, MB | file, MB | ratios to linear on roots "
        "| equal labels |"
    )
    print("|---|---|---|---|---|---|---|---|")
    rng = np.random.default_rng(0)
    for n in (4000, 8000):
        y = np.arange(n) % 10
        X = np.abs(rng.normal(size=(n, 64)) + 2 * rng.normal(size=(10, 64))[y])
        for cls, settings in (
            (ledl.LEDLClassifier, {"max_iter": 10, "tol": 0, "random_state": 0}),
            (ledl.CRCClassifier, {}),
        ):
            linear, expected = measure(cls(kernel="linear", **settings), np.sqrt(X), y)
            roots, labels = measure(cls(kernel="hellinger", **settings), X, y)
            cells = [f"{value:.3g}" for value in roots]
            ratios = ", ".join(f"{ratio:.2f}" for ratio in roots / linear)
            print(
                "|",
                " | ".join([cls.__name__, f"{n:,}", *cells, ratios, f"{np.mean(labels == expected):.1%}"]),
                "|",
            )


if __name__ == "__main__":
    main()
