"""How much accuracy a class loses because its label comes first.

    python benchmarks/class_order.py [--dataset pie] [--rule ridge] [--renumberings 8]

LEDL is trained on the first split, five samples a class, with the classes numbered at random. The accuracy of
each class is compared with its own mean over the numberings. PYTHONPATH=OLD/src measures another version.
"""

import argparse
import warnings

import numpy as np

from ledl import LEDLClassifier
from ledl.datasets import few_shot_splits, load


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--dataset", default="pie")
    parser.add_argument("--rule", default="ridge")
    parser.add_argument("--renumberings", type=int, default=8)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    data = load(options.dataset)
    X, y = data.data, data.target
    train, test = next(few_shot_splits(y, n_per_class=5))
    n_classes = y.max() + 1
    numbers = np.array([np.random.default_rng(k).permutation(n_classes) for k in range(options.renumberings)])
    accuracy = np.empty(numbers.shape)
    for own, number in zip(accuracy, numbers, strict=True):
        model = LEDLClassifier(rule=options.rule, random_state=0).fit(X[train], number[y[train]])
        hits = model.predict(X[test]) == number[y[test]]
        own[:] = np.bincount(y[test], hits, n_classes) / np.bincount(y[test], minlength=n_classes)
    difference = 100 * (accuracy - accuracy.mean(axis=0))
    tenth = max(1, n_classes // 10)
    print(f"{options.dataset}, {options.rule}: accuracy {100 * accuracy.mean():.1f} %")
    groups = {"label 0": numbers == 0, "first tenth": numbers < tenth, "others": numbers >= tenth}
    for name, rows in groups.items():
        error = difference[rows].std() / rows.sum() ** 0.5
        print(f"{name:12} {difference[rows].mean():+.1f} ± {error:.1f} points")


if __name__ == "__main__":
    main()
