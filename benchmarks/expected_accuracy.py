"""How near the accuracy that `LEDLClassifierCV` expects is to the truth, for 20 and 25 samples.

    python benchmarks/expected_accuracy.py                     # digits
    python benchmarks/expected_accuracy.py digits yaleb ucmerced

Samples of random classes, with their labels, and with the same labels shuffled, where the truth is chance.
"best candidate": its accuracy in cross-validation. "expected": `expected_accuracy_`. "truth": accuracy on at
most 1,000 other samples. Means over splits, %; the standard error of "expected" minus "truth"; how often the
95 % interval contains the truth, both rounded to per cent, as `ledl fit` prints them.
"""

import argparse
import warnings

import numpy as np
from threadpoolctl import threadpool_limits

from ledl import LEDLClassifierCV
from ledl.datasets import load

SHAPES = [(2, 10), (5, 5)]  # classes, and samples of each
N_TESTED = 1000


def judge(X, y, n_classes, n_per_class, is_shuffled, seed):
    rng = np.random.default_rng(seed)
    classes = rng.permutation(np.unique(y))[:n_classes]
    groups = [rng.permutation(np.flatnonzero(y == label)) for label in classes]
    train = np.concatenate([group[:n_per_class] for group in groups])
    test = rng.permutation(np.concatenate([group[n_per_class:] for group in groups]))[:N_TESTED]
    labels = rng.permutation(y[train]) if is_shuffled else y[train]
    model = LEDLClassifierCV(random_state=seed).fit(X[train], labels)
    truth = 1 / n_classes if is_shuffled else model.score(X[test], y[test])
    best = model.cv_results_["mean_test_accuracy"][model.best_index_]
    low, high = np.round(model.expected_accuracy_interval_, 2)
    return best, model.expected_accuracy_, truth, low <= round(truth, 2) <= high


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("datasets", nargs="*", default=["digits"])
    parser.add_argument("--splits", type=int, default=60)
    options = parser.parse_args()
    print("| | labels | best candidate | expected | truth | standard error | interval contains it |")
    print("|---" * 7 + "|")
    for name in options.datasets:
        data = load(name)
        for n_classes, n_per_class in SHAPES:
            for is_shuffled in (True, False):
                with threadpool_limits(1), warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    shape = n_classes, n_per_class, is_shuffled
                    seeds = range(options.splits)
                    runs = np.array([judge(data.data, data.target, *shape, seed) for seed in seeds])
                means = 100 * runs.mean(axis=0)
                error = 100 * np.std(runs[:, 1] - runs[:, 2], ddof=1) / len(runs) ** 0.5
                cells = [f"{name}, {n_classes} x {n_per_class}", "shuffled" if is_shuffled else "true"]
                cells += [f"{value:.1f}" for value in [*means[:3], error]] + [f"{means[3]:.0f}"]
                print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
