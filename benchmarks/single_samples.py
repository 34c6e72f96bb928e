"""What the choice of settings does if some classes have one sample, which can never be left out to test it.

    LEDL_DATA=FOLDER python benchmarks/single_samples.py [usps ucmerced yaleb digits] [--draws 5] [--frequent]

Accuracy, in %, of `LEDLClassifierCV`, of `LEDLClassifier` with its defaults, of CRC, and of
`SemiSupervisedClassifier`, which has the test samples without labels; mean over draws of classes and samples.
For another version set PYTHONPATH.

With --frequent, labels are as frequent as their classes, which are not equally frequent: some samples are drawn
and labelled. It compares `SemiSupervisedClassifier` with itself where every label spreads as much as any other,
and with the supervised classifier in it.
"""

import argparse
import warnings
from itertools import product

import numpy as np

from ledl import CRCClassifier, LEDLClassifier, LEDLClassifierCV, SemiSupervisedClassifier
from ledl import semi_supervised as module
from ledl.datasets import load

COUNTS = (
    (1, 5),
    (1, 1, 5),
    (1, 1, 5, 5),
    (1,) * 5 + (5,) * 5,
    (1,) * 5 + (3,) * 5,
    (1, 20, 20),
    (1, 100, 100),
    (5, 5, 5),
)
MOST_TESTED = 300
SIZES = ((90, 10), (190, 10), (160, 80, 40, 20, 10), (90, 10, 10, 10, 10, 10))
SHARES = (0.1, 0.3)


def accuracies(X, y, counts, seed):
    rng = np.random.default_rng(seed)
    classes = rng.permutation(np.unique(y))[: len(counts)]
    members = [rng.permutation(np.flatnonzero(y == label)) for label in classes]
    train = np.concatenate([own[:n] for own, n in zip(members, counts, strict=True)])
    test = rng.permutation(np.concatenate([own[n:] for own, n in zip(members, counts, strict=True)]))[
        :MOST_TESTED
    ]
    models = LEDLClassifierCV(random_state=0), LEDLClassifier(random_state=0), CRCClassifier()
    found = [np.mean(model.fit(X[train], y[train]).predict(X[test]) == y[test]) for model in models]
    both = np.concatenate([y[train], np.full(len(test), -1)])
    semi = SemiSupervisedClassifier(random_state=0).fit(X[np.concatenate([train, test])], both)
    return [*found, np.mean(semi.transduction_[len(train) :] == y[test])]


def frequent_accuracies(X, y, sizes, share, seed):
    rng = np.random.default_rng(seed)
    classes = rng.permutation(np.unique(y))[: len(sizes)]
    fit = min(1, np.unique(y, return_counts=True)[1].min() / max(sizes))
    some = [
        rng.permutation(np.flatnonzero(y == c))[: max(3, int(n * fit))]
        for c, n in zip(classes, sizes, strict=True)
    ]
    rows = rng.permutation(np.concatenate(some))
    n = max(8, int(share * len(rows)))
    if len(np.unique(y[rows[:n]])) < 2:
        return None
    partly = np.concatenate([y[rows[:n]], np.full(len(rows) - n, -1)])
    found, usual = [], (module.BALANCES, module.UNKNOWN_BALANCE)
    for module.BALANCES, module.UNKNOWN_BALANCE in (usual, ((0.0,), 0.0)):
        model = SemiSupervisedClassifier(random_state=0).fit(X[rows], partly)
        found.append(np.mean(model.transduction_[n:] == y[rows[n:]]))
    module.BALANCES, module.UNKNOWN_BALANCE = usual
    return [*found, model.estimator_.score(X[rows[n:]], y[rows[n:]])]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("datasets", nargs="*", default=["usps", "ucmerced", "yaleb", "digits"])
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--frequent", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.frequent:
        print(
            "| sizes of the classes | labelled | dataset | semi-supervised | every label alike | supervised |"
        )
        print("|---|---|---|---|---|---|")
        for name in options.datasets:
            data = load(name)
            for sizes, share in product(SIZES, SHARES):
                rows = [
                    frequent_accuracies(data.data, data.target, sizes, share, seed)
                    for seed in range(options.draws)
                ]
                cells = " | ".join(f"{100 * v:.1f}" for v in np.mean([row for row in rows if row], axis=0))
                print(f"| {', '.join(map(str, sizes))} | {share:.0%} | {name} | {cells} |", flush=True)
        return
    print("| samples of the classes | dataset | chosen | defaults | CRC | semi-supervised |")
    print("|---|---|---|---|---|---|")
    for name in options.datasets:
        data = load(name)
        smallest = np.unique(data.target, return_counts=True)[1].min()
        for counts in (one for one in COUNTS if max(one) < smallest):
            rows = [accuracies(data.data, data.target, counts, seed) for seed in range(options.draws)]
            cells = " | ".join(f"{100 * value:.1f}" for value in np.mean(rows, axis=0))
            print(f"| {', '.join(map(str, counts))} | {name} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
