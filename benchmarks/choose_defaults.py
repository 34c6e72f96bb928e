"""Evidence for the defaults of the classifiers, from training samples alone.

    python benchmarks/choose_defaults.py weights|loop|stop|ridge|src|crc|csdl|dksvd [--datasets ...] [--jobs N]

The first four are of LEDLClassifier; that of D-KSVD is good for LC-KSVD, which is the same at another weight.

For each dataset one training set is drawn (five samples a class, seed 0) and cross-validated inside: five
folds, one sample a class left out in each. No test sample is looked at. Finished cells are kept in
.cache/, so a second start goes on where the first one ended. docs/defaults.md holds what it printed.
"""

import argparse
import itertools
import warnings

import numpy as np
import pandas as pd
from joblib import Memory, Parallel, delayed
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import StratifiedKFold

from ledl import CRCClassifier, CSDLClassifier, DKSVDClassifier, LEDLClassifier, SRCClassifier
from ledl.datasets import few_shot_splits, load

DATASETS = ["digits", "usps", "yaleb", "pie", "ucmerced", "aid", "caltech101"]
memory = Memory(".cache/choose_defaults", verbose=0)


def powers(*exponents):
    return [2.0**e for e in exponents]


# What a first round of the study of weights chose; the second, with LOOP, chose (2**2, 2**-11, 2**-6).
WEIGHTS = {"label_weight": powers(0), "code_weight": powers(-11), "alpha": powers(-7)}

# What the other two chose.
LOOP = {"init": ["class"], "max_iter": [100], "tol": [1e-3]}

STUDIES = {
    # The three weights.
    "weights": {
        "label_weight": powers(-6, -3, 0, 2),
        "code_weight": powers(-14, -11, -8),
        "alpha": powers(-10, -8, -7, -6, -5, -4),
        **LOOP,
    },
    # Start and number of iterations, at the weights of the first round.
    "loop": {**WEIGHTS, "init": ["class", "random"], "max_iter": [10, 30, 100, 300], "tol": [0.0]},
    # The stopping tolerance, likewise.
    "stop": {**WEIGHTS, "tol": [1e-5, 1e-4, 1e-3, 1e-2], "max_iter": [300]},
    # The ridge codes of the rule "regularized", at the defaults of the rest.
    "ridge": {"rule": ["regularized"], "ridge_alpha": powers(-7, -5, -3, -1, 1), **LOOP},
    "src": {"alpha": powers(*range(-12, -1))},
    "crc": {"rule": ["residual", "regularized"], "alpha": powers(*range(-12, 3))},
    "csdl": {"alpha": powers(*range(-10, -2)), "max_iter": [10, 30, 100]},
    "dksvd": {
        "n_nonzero_coefs": [2, 3, 5, 7, 10, 15, 20, 30, 40],
        "label_weight": powers(-6, -3, 0, 3),
        "max_iter": [10, 30],
    },
}
RIVALS = {
    "src": SRCClassifier,
    "crc": CRCClassifier,
    "csdl": CSDLClassifier,
    "dksvd": DKSVDClassifier,
}


@memory.cache
def cross_validate(name, repeat, settings, method=LEDLClassifier):
    """Correct predictions, samples, and mean iterations of one cross-validation in the training set."""
    dataset = load(name)
    train, _ = next(few_shot_splits(dataset.target))
    X, y = dataset.data[train], dataset.target[train]
    folds = StratifiedKFold(5, shuffle=True, random_state=repeat)
    right, n_iter = 0, []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for fit, held_out in folds.split(X, y):
            model = method(**settings)
            if "random_state" in model.get_params():
                model.set_params(random_state=repeat)
            model.fit(X[fit], y[fit])
            right += int(np.sum(model.predict(X[held_out]) == y[held_out]))
            n_iter.append(getattr(model, "n_iter_", 0))
    return right, len(y), float(np.mean(n_iter))


def n_repeats(name):
    """More repeats where there are few samples to be wrong on."""
    return {"caltech101": 1, "pie": 2}.get(name, 4)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("study", choices=STUDIES)
    parser.add_argument("--datasets", nargs="+", default=DATASETS, metavar="DATASET")
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    grid = STUDIES[options.study]
    candidates = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    cells = [
        (name, repeat, settings)
        for name in options.datasets
        for repeat in range(n_repeats(name))
        for settings in candidates
    ]
    method = RIVALS.get(options.study, LEDLClassifier)
    results = Parallel(options.jobs)(delayed(cross_validate)(*cell, method) for cell in cells)
    rows = [
        {"dataset": name, **settings, "accuracy": 100 * right / total, "iterations": n_iter}
        for (name, _, settings), (right, total, n_iter) in zip(cells, results, strict=True)
    ]
    frame = pd.DataFrame(rows)
    varied = [name for name, values in grid.items() if len(values) > 1]
    by_dataset = frame.pivot_table(index=varied, columns="dataset", values="accuracy", sort=False)
    by_dataset = by_dataset[options.datasets]
    by_dataset["mean loss"] = (by_dataset.max() - by_dataset).mean(axis=1)
    by_dataset["iterations"] = frame.groupby(varied)["iterations"].mean()
    print(by_dataset.sort_values("mean loss").round(1).reset_index().to_string(index=False))


if __name__ == "__main__":
    main()
