"""Model selection: BatchedSearchCV beside scikit-learn's GridSearchCV, the same candidates, folds and scores.

    python benchmarks/selection.py [--data digits yaleb ...] [--device cuda] [--jobs 1] [--rounds 3]
    python benchmarks/selection.py --batches

Five samples a class, five folds, float64; LEDL at 24 weights, SRC at 12, CRC at 24. Both searches use `--jobs`
threads or processes, with one BLAS thread each: on shared cores BLAS's own wait for each other, which would
make GridSearchCV look far worse than it is. With a device only the batched search runs there. The two
alternate; the median of the rounds is printed, and whether the scores agree. `--batches` prints the time
against the numbers in a batch of NumPy.
"""

import argparse
import time
import warnings

import numpy as np
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from threadpoolctl import threadpool_limits

from ledl import BatchedSearchCV, CRCClassifier, LEDLClassifier, SRCClassifier
from ledl.datasets import few_shot_splits, load
from ledl.model_selection import _batched_search as selection


def powers(*exponents):
    return [2.0**exponent for exponent in exponents]


SEARCHES = {
    "LEDL": (
        LEDLClassifier(random_state=0),
        {"alpha": powers(-4, -6, -8), "label_weight": powers(-6, -3, 0, 2), "code_weight": powers(-11, -8)},
    ),
    "SRC": (SRCClassifier(), {"alpha": powers(*range(-1, -13, -1))}),
    "CRC": (CRCClassifier(), {"alpha": powers(*range(1, -11, -1)), "rule": ["residual", "regularized"]}),
}


def samples(name):
    data = load(name)
    train, _ = next(few_shot_splits(data.target, n_per_class=5))
    return data.data[train].astype(np.float64), data.target[train]


def seconds_of(search, X, y):
    started = time.perf_counter()
    search.fit(X, y)
    return time.perf_counter() - started


def searches(kind, arguments):
    model, grid = SEARCHES[kind]
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    plain = GridSearchCV(model, grid, cv=folds, refit=False, n_jobs=arguments.jobs)
    placed = model.__class__(**{**model.get_params(), "n_jobs": arguments.jobs, "device": arguments.device})
    return plain, BatchedSearchCV(placed, grid, cv=folds, refit=False)


def compare(name, kind, arguments):
    X, y = samples(name)
    plain, batched = searches(kind, arguments)
    batched.fit(X, y)  # compiles
    times = np.array(
        [[seconds_of(search, X, y) for search in (plain, batched)] for _ in range(arguments.rounds)]
    )
    slow, fast = np.median(times, axis=0)
    scores = [search.cv_results_["mean_test_score"] for search in (plain, batched)]
    differs = np.abs(scores[0] - scores[1]).max()
    n_fits = 5 * len(scores[0])
    print(f"{name:10} {kind:5} {n_fits:4} fits: GridSearchCV {slow:7.2f} s, batched {fast:7.2f} s, ratio "
          f"{slow / fast:5.1f}; scores differ by {differs:.1g}", flush=True)  # fmt: skip


def batches(name, arguments):
    X, y = samples(name)
    for kind in SEARCHES:
        _, batched = searches(kind, arguments)
        batched.fit(X, y)
        found = []
        for exponent in range(10, 22, 2):
            selection.BATCH = 2**exponent
            found.append(
                f"2^{exponent}: {min(seconds_of(batched, X, y) for _ in range(arguments.rounds)):.2f} s"
            )
        print(f"{name:10} {kind:5} {', '.join(found)}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", nargs="+", default=["digits", "yaleb", "ucmerced"])
    parser.add_argument("--device")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batches", action="store_true")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    with threadpool_limits(1):
        for name in arguments.data:
            if arguments.batches:
                batches(name, arguments)
                continue
            for kind in SEARCHES:
                compare(name, kind, arguments)


if __name__ == "__main__":
    main()
