"""How far the probabilities of LEDLClassifierCV are from the truth, on samples that were not trained on.

    python benchmarks/calibration.py [--datasets ucmerced usps yaleb] [--splits 8]

Five samples of each class are trained on, all others tested. The probabilities of the answers of all splits are
sorted and cut into ten bins of equal counts. The expected calibration error is the mean over the bins of
|mean probability - share of right answers|, in points. The last column: of the 40 least sure of 210 random test
samples, how many times more are wrong than of 40 random ones, in the mean over the splits.
"""

import argparse
import warnings

import numpy as np

from ledl import LEDLClassifierCV
from ledl.datasets import few_shot_splits, load


def calibration_error(sure, right, n_bins=10):
    """Return the expected calibration error in bins of equal counts."""
    bins = np.array_split(np.argsort(sure, kind="stable"), n_bins)
    gaps = [abs(sure[own].mean() - right[own].mean()) * len(own) for own in bins]
    return sum(gaps) / len(sure)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="+", default=["ucmerced", "usps", "yaleb"])
    parser.add_argument("--splits", type=int, default=8)
    parser.add_argument("--most", type=int, default=3000, help="test samples of a split, drawn at random")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print("dataset     accuracy  mean probability  calibration error  wrong among the least sure")
    for name in options.datasets:
        data = load(name)
        X, y = data.data, data.target
        sure, right, ratios = [], [], []
        for seed, (train, test) in enumerate(few_shot_splits(y, n_per_class=5, seeds=range(options.splits))):
            rng = np.random.default_rng(seed)
            test = rng.permutation(test)[: options.most]
            model = LEDLClassifierCV(random_state=seed, n_jobs=-1).fit(X[train], y[train])
            P = model.predict_proba(X[test])
            sure.append(P.max(axis=1))
            right.append(model.classes_[P.argmax(axis=1)] == y[test])
            few = rng.permutation(len(test))[:210]
            least = few[np.argsort(sure[-1][few])[:40]]
            ratios.append((~right[-1][least]).mean() / max((~right[-1][few]).mean(), 1 / 210))
        sure, right = np.concatenate(sure), np.concatenate(right)
        print(
            f"{name:10s}  {100 * right.mean():7.1f}  {100 * sure.mean():15.1f}"
            f"  {100 * calibration_error(sure, right):17.1f}  {np.mean(ratios):25.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
