"""What `LEDLClassifierCV.fit` costs, in seconds and in fits of `LEDLClassifier`.

    python benchmarks/tuning.py [--shapes yaleb caltech101 wide] [--device cuda] [--jobs N] [--repeats 3]
                                [--other FOLDER/src]

Five samples a class, all defaults; medians of the repeats, after one fit that compiles. The shapes are those of
Extended YaleB and Caltech101 (pool5), of their first split, and 203 classes of 2,050 random features. `--other`
measures another version of the library, too, in turns with this one.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

REPOSITORY = Path(__file__).parents[1]
SHAPES = ("yaleb", "caltech101", "wide")


def samples(shape):
    from ledl.datasets import few_shot_splits, load

    if shape == "wide":
        rng = np.random.default_rng(0)
        y = np.repeat(np.arange(203), 5)
        return rng.random((203, 2050))[y] + 0.3 * rng.random((len(y), 2050)), y
    data = load(shape)
    train, _ = next(few_shot_splits(data.target, n_per_class=5))
    return data.data[train].astype(np.float64), data.target[train]


def seconds_of(model, X, y):
    started = time.perf_counter()
    model.fit(X, y)
    return time.perf_counter() - started


def work(shape, where):
    """Answer each line of standard input by the seconds of one fit and of one choice."""
    import warnings

    from ledl import LEDLClassifier, LEDLClassifierCV

    warnings.simplefilter("ignore")
    X, y = samples(shape)
    few = np.flatnonzero(y < np.unique(y)[3])
    LEDLClassifierCV(random_state=0).fit(X[few], y[few])  # compiles
    for _ in sys.stdin:
        single, choice = LEDLClassifier(random_state=0, **where), LEDLClassifierCV(random_state=0, **where)
        print(json.dumps([seconds_of(single, X, y), seconds_of(choice, X, y)]), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--shapes", nargs="+", default=["yaleb"], choices=SHAPES)
    parser.add_argument("--device")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--other", help="the folder src of another version")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    options = parser.parse_args()
    where = {"device": options.device, "n_jobs": options.jobs}
    if options.work:
        work(options.work, where)
        return
    sources = {"this version": REPOSITORY / "src"}
    sources |= {"the other": Path(options.other).resolve()} if options.other else {}
    for shape in options.shapes:
        command = [sys.executable, __file__, "--work", shape, "--jobs", str(options.jobs)]
        command += ["--device", options.device] if options.device else []
        workers = {
            name: subprocess.Popen(
                command,
                env={**os.environ, "PYTHONPATH": str(source)},
                text=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
            for name, source in sources.items()
        }
        found = {name: [] for name in workers}
        for _ in range(options.repeats):
            for name, worker in workers.items():
                print(file=worker.stdin, flush=True)
                found[name].append(json.loads(worker.stdout.readline()))
        for name, worker in workers.items():
            worker.communicate()
            single, choice = np.median(found[name], axis=0)
            ratio = choice / single
            print(f"{shape:12}{name:14}one fit {single:7.2f} s, choice {choice:7.2f} s, {ratio:5.1f} fits")
        if options.other:
            both = [np.array(found[name])[:, 1] for name in workers]
            print(
                f"{shape:12}this version takes {np.median(both[0] / both[1]):.2f} of the other's time",
                flush=True,
            )


if __name__ == "__main__":
    main()
