"""LC-KSVD against dictlearn's LC-KSVD and D-KSVD, all chosen by cross-validation in the training samples.

    python benchmarks/lcksvd.py accuracy [--cells digits:5 ...] [--splits N] [--jobs N] [--select-peers]
    python benchmarks/lcksvd.py time

A cell is dataset:samples a class. Ours chooses sparsity and weights from a grid by five-fold cross-validation
in the training samples of each split. dictlearn's are taken as its documentation has them: the start that it
recommends ("trained"), weights of 1, as many non-zeros as a tenth of the features (but no more than a class
has atoms, which it refuses), its own numbers of iterations; with --select-peers they choose from the same
grid too (hours at 50 a class). `time`: fits at one sparsity and weight side by side, the median of several;
dictlearn once with its own 10 iterations and once with as many as ours. Needs dictlearn; all but digits need
the prepared datasets (LEDL_DATA).
"""

import argparse
import itertools
import time
import warnings
from functools import partial

import numpy as np
from dictlearn.classification import DDLClassifier, LCDLClassifier
from joblib import Parallel, delayed
from sklearn.model_selection import RepeatedStratifiedKFold
from sklearn.preprocessing import normalize

from ledl import LCKSVDClassifier
from ledl.datasets import few_shot_splits, load

NONZEROS = [2, 5, 10, 20, 40]
WEIGHTS = [2.0**-6, 2.0**-3, 1.0]
CELLS = ["digits:5", "digits:50", "usps:5", "yaleb:5", "pie:5"]
# Up to so many training samples cross-validation is repeated four times: it has few to be wrong on.
SMALL = 100
PEER_CELLS = ["digits:5", "digits:50"]


def ours(nonzeros, weight, y, seed):
    return LCKSVDClassifier(
        n_nonzero_coefs=nonzeros, label_weight=weight, code_weight=weight, random_state=seed
    )


def lcdl(nonzeros, weight, init, y, seed, **options):
    a_class = np.bincount(y).min()
    return LCDLClassifier(
        a_class,
        n_nonzero_coefs=nonzeros,
        alpha=weight,
        beta=weight,
        init_method=init,
        random_state=seed,
        **options,
    )


def ddl(nonzeros, weight, init, y, seed, **options):
    return DDLClassifier(
        len(y), n_nonzero_coefs=nonzeros, alpha=weight, init_method=init, random_state=seed, **options
    )


GRIDS = {
    "ledl LC-KSVD": (ours, [NONZEROS, WEIGHTS]),
    "dictlearn LC-KSVD, chosen": (lcdl, [NONZEROS, WEIGHTS, ["trained", "random"]]),
    "dictlearn D-KSVD, chosen": (ddl, [NONZEROS, WEIGHTS, ["trained", "random"]]),
    "dictlearn LC-KSVD, as documented": (lcdl, [["documented"], [1.0], ["trained"]]),
    "dictlearn D-KSVD, as documented": (ddl, [["documented"], [1.0], ["trained"]]),
}


def score(make, X, y, train, test, seed):
    """Accuracy; nothing where dictlearn refuses more non-zeros than a class has atoms."""
    try:
        return make(y=y[train], seed=seed).fit(X[train], y[train]).score(X[test], y[test])
    except ValueError as error:
        if "n_nonzero_coefs" not in str(error):
            raise
        return -1.0


def run_split(method, dataset, per_class, seed):
    """Test accuracy of the setting that cross-validation chose, and that setting."""
    warnings.simplefilter("ignore")
    make, grid = GRIDS[method]
    data = load(dataset)
    X, y = normalize(data.data.astype(np.float64)), data.target
    train, test = next(few_shot_splits(y, n_per_class=per_class, seeds=[seed]))
    settings = list(itertools.product(*grid))
    repeats = 4 if len(train) <= SMALL else 1
    folds = list(
        RepeatedStratifiedKFold(n_splits=5, n_repeats=repeats, random_state=seed).split(X[train], y[train])
    )
    if len(settings) == 1:
        nonzeros = min(X.shape[1] // 10, per_class)
        best = (nonzeros, *settings[0][1:])
        return 100 * score(partial(make, *best), X, y, train, test, seed), best
    means = [
        np.mean([score(partial(make, *setting), X, y, train[a], train[b], seed) for a, b in folds])
        for setting in settings
    ]
    best = settings[int(np.argmax(means))]
    return 100 * score(partial(make, *best), X, y, train, test, seed), best


def measure_accuracy(cells, splits, jobs, select_peers):
    print("| data | method | accuracy, % | non-zeros and weights chosen |\n|---|---|---|---|")
    for cell in cells:
        dataset, per_class = cell.split(":")
        peers = [name for name in GRIDS if name.endswith("chosen" if select_peers else "documented")]
        for method in ["ledl LC-KSVD", *(peers if cell in PEER_CELLS else [])]:
            results = Parallel(jobs)(
                delayed(run_split)(method, dataset, int(per_class), seed) for seed in range(splits)
            )
            accuracy, chosen = np.array([r[0] for r in results]), [r[1][:2] for r in results]
            text = ", ".join(f"{t} {w:g}" for t, w in chosen)
            print(
                f"| {cell} | {method} | {accuracy.mean():.1f} ± {accuracy.std(ddof=1):.1f} | {text} |",
                flush=True,
            )


def measure_time():
    print("| data | method | fit, ms | times ours |\n|---|---|---|---|")
    for cell in PEER_CELLS:
        per_class = int(cell.split(":")[1])
        data = load("digits")
        train, _ = next(few_shot_splits(data.target, n_per_class=per_class))
        X, y = normalize(data.data[train].astype(np.float64)), data.target[train]
        models = {
            "ledl LC-KSVD (20 + 30 iterations)": ours(5, 1.0, y, 0),
            "dictlearn LC-KSVD, trained (20 + 10)": lcdl(5, 1.0, "trained", y, 0),
            "dictlearn LC-KSVD, trained (20 + 30)": lcdl(5, 1.0, "trained", y, 0, max_iter=30),
            "dictlearn LC-KSVD, random (10)": lcdl(5, 1.0, "random", y, 0),
            "dictlearn D-KSVD, trained (20 + 10)": ddl(5, 1.0, "trained", y, 0),
            "dictlearn D-KSVD, random (10)": ddl(5, 1.0, "random", y, 0),
        }
        times = {name: [] for name in models}
        for _ in range(6):  # in turn, so that a busy machine slows all
            for name, model in models.items():
                start = time.perf_counter()
                model.fit(X, y)
                times[name].append(time.perf_counter() - start)
        medians = {name: np.median(values[1:]) for name, values in times.items()}
        first = next(iter(medians.values()))
        for name, value in medians.items():
            print(f"| {cell} | {name} | {1e3 * value:.1f} | {value / first:.1f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=["accuracy", "time"])
    parser.add_argument("--cells", nargs="+", default=CELLS, metavar="CELL")
    parser.add_argument("--splits", type=int, default=8)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--select-peers", action="store_true")
    options = parser.parse_args()
    if options.what == "accuracy":
        measure_accuracy(options.cells, options.splits, options.jobs, options.select_peers)
    else:
        measure_time()


if __name__ == "__main__":
    main()
