"""What the choice of settings does if some classes have one sample, which can never be left out to test it.

    LEDL_DATA=FOLDER python benchmarks/single_samples.py [usps ucmerced yaleb] [--draws 5]

Accuracy, in %, of `LEDLClassifierCV`, of `LEDLClassifier` with its defaults, of CRC, and of
`SemiSupervisedClassifier`, which has the test samples without labels; mean over draws of classes and samples.
For another version set PYTHONPATH.
"""

import argparse
import warnings

import numpy as np

from ledl import CRCClassifier, LEDLClassifier, LEDLClassifierCV, SemiSupervisedClassifier
from ledl.datasets import load

COUNTS = ((1, 5), (1, 1, 5), (1, 1, 5, 5), (1,) * 5 + (5,) * 5, (5, 5, 5))
MOST_TESTED = 300


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


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("datasets", nargs="*", default=["usps", "ucmerced", "yaleb"])
    parser.add_argument("--draws", type=int, default=5)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| samples of the classes | dataset | chosen | defaults | CRC | semi-supervised |")
    print("|---|---|---|---|---|---|")
    for name in options.datasets:
        data = load(name)
        for counts in COUNTS:
            rows = [accuracies(data.data, data.target, counts, seed) for seed in range(options.draws)]
            cells = " | ".join(f"{100 * value:.1f}" for value in np.mean(rows, axis=0))
            print(f"| {', '.join(map(str, counts))} | {name} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
