"""How the times of fit and predict grow with samples n, features d, classes c and atoms K.

    python benchmarks/slopes.py [LEDL CRC SRC dense search] [--quick] [--iterations 10] [--other FOLDER/src]

A slope is the exponent of the growth since the row above: 1 means in proportion. LEDL and the search run so
many iterations, whatever their tolerance says; `--iterations 0` means the defaults. Seconds are those of the
processor, with one BLAS thread, the least of up to five runs: other programs on the machine matter little.
`--other` is the folder of another version of the package. It is measured turn about, in a process of its own.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import time
import warnings
from typing import NamedTuple

# Samples that are predicted at a time.
NEW = 64


class Shape(NamedTuple):
    """Samples, features, classes and atoms; no number of atoms means the default."""

    n: int
    d: int
    c: int
    K: int | None = None


def few_shot(c):
    return Shape(5 * c, 512, c)


# For each method what is varied, the shapes, and how many of them --quick takes.
CLASSES = 10, 20, 50, 100, 200, 400, 800
SWEEPS = {
    "LEDL": [
        ("n", [Shape(n, 64, 10, 2000) for n in (800, 1600, 3200, 6400, 12800)], 3),
        ("d", [Shape(500, d, 10) for d in (64, 256, 1024, 4096)], 2),
        ("c", [few_shot(c) for c in CLASSES], 3),
        ("K", [Shape(1000, 64, 10, K) for K in (250, 500, 1000, 2000, 4000)], 3),
    ],
    "CRC": [
        ("n", [Shape(n, 64, 2) for n in (1000, 2000, 4000, 8000, 16000)], 3),
        ("d", [Shape(500, d, 10) for d in (64, 256, 1024, 4096)], 2),
        ("c", [few_shot(c) for c in CLASSES], 3),
    ],
    "SRC": [
        ("n", [Shape(n, 64, 2) for n in (1000, 2000, 4000, 8000)], 4),
        ("d", [Shape(500, d, 10) for d in (64, 256, 1024, 4096)], 2),
        ("c", [few_shot(c) for c in CLASSES], 3),
    ],
    # SRC with the least alpha of its grid: nearly as many non-zeros as features.
    "dense": [("n", [Shape(n, 16, 20) for n in (700, 1400, 2800)], 2)],
    "search": [
        ("n", [Shape(n, 512, 10) for n in (50, 100, 200, 400)], 2),
        ("d", [Shape(50, d, 10) for d in (64, 512, 4096)], 2),
        ("c", [few_shot(c) for c in CLASSES[:4]], 2),
    ],
}


def serve():
    """Measure what lines of JSON ask for, by method, shape and iterations: seconds of fit and predictions."""
    warnings.simplefilter("ignore")
    for method in SWEEPS:
        measure(method, Shape(30, 20, 3), 2)  # compiles
    print("ready", flush=True)
    for line in sys.stdin:
        method, shape, iterations = json.loads(line)
        print(json.dumps(measure(method, Shape(*shape), iterations)), flush=True)


def measure(method, shape, iterations):
    from ledl import CRCClassifier, LEDLClassifier, LEDLClassifierCV, SRCClassifier

    X, y = samples(shape, 0)
    options = {"max_iter": iterations, "tol": 0} if iterations else {}
    model = {
        "LEDL": LEDLClassifier(n_components=shape.K, random_state=0, **options),
        "CRC": CRCClassifier(),
        "SRC": SRCClassifier(),
        "dense": SRCClassifier(alpha=2**-12),
        "search": LEDLClassifierCV(n_components=shape.K, random_state=0, **options),
    }[method]
    fit = cpu_seconds(model.fit, X, y)
    new = samples(shape, 1)[0]
    return fit, cpu_seconds(model.predict, new[:NEW]), cpu_seconds(model.predict, new[:1])


def samples(shape, seed):
    """Return samples around a centre for each class, and their classes."""
    import numpy as np

    centres, rng = np.random.default_rng(0).random((shape.c, shape.d)), np.random.default_rng(1 + seed)
    y = rng.permutation(np.arange(shape.n) % shape.c)
    return centres[y] + 0.7 * rng.random((shape.n, shape.d)), y


def cpu_seconds(work, *arguments):
    times = []
    while len(times) < 5 and sum(times) < 1:
        start = time.process_time()
        work(*arguments)
        times.append(time.process_time() - start)
    return min(times)


class Version:
    """A version of the package in a process of its own, and its last figures."""

    def __init__(self, source):
        threads = {f"{name}_NUM_THREADS": "1" for name in ("OPENBLAS", "MKL", "OMP")}
        path = {} if source is None else {"PYTHONPATH": source}
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--serve"],
            env={**os.environ, **threads, **path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._process.stdout.readline()
        self._last = None

    def cells(self, method, over, shape, iterations):
        """Return the times of fit, and of predictions of many and of one, with slopes, as cells of a table."""
        print(json.dumps([method, shape, iterations]), file=self._process.stdin, flush=True)
        times, size = json.loads(self._process.stdout.readline()), getattr(shape, over)
        slopes = ["", "", ""]
        if self._last is not None and self._last[0] == (method, over):
            _, before, then = self._last
            pairs = zip(times, then, strict=True)
            slopes = [f"{math.log(now / t) / math.log(size / before):.1f}" for now, t in pairs]
        self._last = (method, over), size, times
        texts = f"{times[0]:.3f}", f"{1e3 * times[1]:.1f}", f"{1e3 * times[2]:.1f}"
        return " | ".join(f"{text} | {slope}" for text, slope in zip(texts, slopes, strict=True))

    def close(self):
        self._process.stdin.close()
        self._process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("methods", nargs="*", metavar="METHOD", help=", ".join(SWEEPS))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--other", metavar="FOLDER/src")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve()
        return
    versions = [Version(None)] + ([Version(options.other)] if options.other else [])
    names = ["", "other: "][: len(versions)]
    measured = "fit, s", f"predict {NEW}, ms", "predict 1, ms"
    columns = [f"{name}{what} | slope" for name in names for what in measured]
    print(f"| method | over | n, d, c, K | {' | '.join(columns)} |")
    print("|---" * (3 + 6 * len(versions)) + "|")
    for method in options.methods or SWEEPS:
        for over, shapes, n_quick in SWEEPS[method]:
            for shape in shapes[:n_quick] if options.quick else shapes:
                sizes = ", ".join("default" if size is None else f"{size:,}" for size in shape)
                cells = [version.cells(method, over, shape, options.iterations) for version in versions]
                print(f"| {method} | {over} | {sizes} | {' | '.join(cells)} |", flush=True)
    for version in versions:
        version.close()


if __name__ == "__main__":
    main()
