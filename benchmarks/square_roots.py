"""How much of LEDLClassifierCV's lead is the square roots: the others on square roots, too.

    python benchmarks/square_roots.py [--datasets ...] [--methods ...] [--splits 8] [--jobs N]

The protocol of ``ledl reproduce --select cv`` (five samples a class, settings chosen by cross-validation in the
training samples, all others tested), with the square roots of all features in place of the features. Test
accuracies, for information: nothing is chosen by them.
"""

import argparse
import warnings

import numpy as np
import pandas as pd
from joblib import Memory, Parallel, delayed
from sklearn.model_selection import GridSearchCV

from ledl.arrays import row_factorization
from ledl.datasets import few_shot_splits, load
from ledl.experiments import METHODS
from ledl.experiments._cells import folds

memory = Memory(".cache/square_roots", verbose=0)


@memory.cache
def accuracy(dataset, method, seed):
    warnings.simplefilter("ignore")
    data = load(dataset)
    train, test = next(few_shot_splits(data.target, n_per_class=5, seeds=[seed]))
    X, y = np.sqrt(data.data.astype(np.float64)), data.target
    samples = X[train] / np.linalg.norm(X[train], axis=1, keepdims=True)
    if len(train) < X.shape[1]:  # in their span: the same inner products in fewer features
        samples = row_factorization(samples)[0]
    model, cv = METHODS[method].make(seed=seed), folds(y[train], 5, seed)
    search = GridSearchCV(model, dict(METHODS[method].grid), cv=cv, refit=False)
    settings = search.fit(samples, y[train]).best_params_
    return METHODS[method].make(settings, seed).fit(X[train], y[train]).score(X[test], y[test])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--datasets", nargs="+", default=["yaleb", "pie", "ucmerced", "aid", "caltech101", "usps"]
    )
    parser.add_argument("--methods", nargs="+", default=["crc", "crc-regularized", "ridge", "lda"])
    parser.add_argument("--splits", type=int, default=8)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    table = pd.DataFrame(index=[METHODS[name].title for name in options.methods])
    for dataset in options.datasets:
        jobs = [(dataset, method, seed) for method in options.methods for seed in range(options.splits)]
        found = Parallel(options.jobs)(delayed(accuracy)(*job) for job in jobs)
        rates = 100 * np.reshape(found, (len(options.methods), options.splits))
        table[dataset] = [f"{row.mean():.1f} ± {row.std(ddof=1):.1f}" for row in rates]
        print(table.to_markdown(), "\n", flush=True)


if __name__ == "__main__":
    main()
