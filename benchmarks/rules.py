"""LEDL's rules: accuracy and time of one fitted model read in three ways, at default settings but
for ridge_alpha=2**-3.

    python benchmarks/rules.py [DATASET ...]

Eight splits, five training samples a class, all others tested; nothing is chosen. `digits` needs no files, the
others do (LEDL_DATA). Times are of `predict`, with one thread, after a call that compiles.
"""

import argparse
import time

import numpy as np
from sklearn.datasets import load_digits

from ledl import LEDLClassifier
from ledl.datasets import few_shot_splits, load

RULES = ("classifier", "residual", "regularized")


def samples(name):
    """Samples and labels."""
    if name == "digits":
        return load_digits(return_X_y=True)
    data = load(name)
    return data.data, data.target


def measure(X, y, train, test):
    """For each rule the accuracy in %, and milliseconds a sample."""
    model = LEDLClassifier(ridge_alpha=2**-3, random_state=0).fit(X[train], y[train])
    found = []
    for rule in RULES:
        model.set_params(rule=rule).predict(X[test[:2]])
        started = time.perf_counter()
        labels = model.predict(X[test])
        seconds = time.perf_counter() - started
        found.append((100 * np.mean(labels == y[test]), 1e3 * seconds / len(test)))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("datasets", nargs="*", default=["digits", "usps", "yaleb"])
    for name in parser.parse_args().datasets:
        X, y = samples(name)
        found = np.array([measure(X, y, *split) for split in few_shot_splits(y)])
        for rule, mean, spread in zip(RULES, found.mean(axis=0), found.std(axis=0), strict=True):
            print(
                f"{name:10s} {rule:12s} {mean[0]:5.1f} ± {spread[0]:.1f} %  {mean[1]:8.3f} ms a sample",
                flush=True,
            )


if __name__ == "__main__":
    main()
