"""Accuracy of LEDL at the paper's weights: eight splits, five training samples a class.

    python benchmarks/accuracy.py [DATASET ...] [--jobs N]

Everything but (lambda, omega, epsilon) is the estimator's default; all remaining samples are tested.
Needs the prepared datasets (LEDL_DATA). A sanity check, not a selection: nothing is chosen here.
"""

import argparse
import time

import numpy as np
from joblib import Parallel, delayed

from ledl import LEDLClassifier
from ledl.datasets import few_shot_splits, load

# Powers of two of (lambda, omega, epsilon), and the paper's table 1.
PAPER = {
    "usps": ((-4, -8, -5), 81.1),
    "ucmerced": ((0, -9, -6), 80.7),
    "yaleb": ((-3, -11, -8), 81.3),
    "pie": ((-3, -11, -8), 77.7),
}


def run_split(name, seed):
    dataset = load(name)
    X, y = dataset.data, dataset.target
    train, test = next(few_shot_splits(y, seeds=[seed]))
    lam, omega, epsilon = (2.0**power for power in PAPER[name][0])
    model = LEDLClassifier(label_weight=lam, code_weight=omega, alpha=epsilon, random_state=seed)
    times = [time.perf_counter()]
    model.fit(X[train], y[train])
    times.append(time.perf_counter())
    accuracy = model.score(X[test], y[test])
    times.append(time.perf_counter())
    fit_time, predict_time = np.diff(times)
    return 100 * accuracy, fit_time, 1e3 * predict_time / len(test), model.n_iter_


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("datasets", nargs="*", default=list(PAPER), metavar="DATASET")
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    print("| dataset | accuracy, % | paper, % | fit, s | predict, ms a sample | iterations |")
    print("|---|---|---|---|---|---|")
    for name in options.datasets:
        results = Parallel(options.jobs)(delayed(run_split)(name, seed) for seed in range(8))
        accuracy, fit_time, predict_time, n_iter = np.transpose(results)
        print(
            f"| {name} | {accuracy.mean():.1f} ± {accuracy.std(ddof=1):.1f} | {PAPER[name][1]} "
            f"| {np.median(fit_time):.2f} | {np.median(predict_time):.2f} | {np.median(n_iter):.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
