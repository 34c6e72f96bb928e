"""One pass of partial_fit against the batch fit, and the evidence for its constants.

    python benchmarks/stream.py accuracy [--shuffles 8]
    python benchmarks/stream.py choose
    python benchmarks/stream.py after_fit

The first 5,000 samples of USPS in a fixed random order are the training samples. "accuracy" tests on all the
others; its shuffles are of the 5,000. "choose" and "after_fit" never see the others: they hold out a fifth of
the 5,000, five times over (and of digits likewise). 200 atoms, the estimator's default weights; the batch fit
has 15 iterations. "±" is the standard deviation over shuffles, but the standard error over folds. Needs the
prepared USPS (LEDL_DATA).
"""

import argparse
import time

import numpy as np
from sklearn.base import clone
from sklearn.datasets import load_digits

from ledl import LEDLClassifier
from ledl.datasets import load
from ledl.solvers import stream as solver

N_TRAIN, N_ATOMS, FOLDS = 5000, 200, 5


def pool():
    """Training samples and their labels; the others, and theirs."""
    usps = load("usps")
    order = np.random.default_rng(0).permutation(len(usps.target))
    train, test = order[:N_TRAIN], order[N_TRAIN:]
    return usps.data[train], usps.target[train], usps.data[test], usps.target[test]


def folds(X, y):
    parts = np.array_split(np.random.default_rng(1).permutation(len(y)), FOLDS)
    for i, held_out in enumerate(parts):
        train = np.concatenate(parts[:i] + parts[i + 1 :])
        yield X[train], y[train], X[held_out], y[held_out]


def batch_fit(X, y, seed):
    model = LEDLClassifier(n_components=N_ATOMS, max_iter=15, tol=0, random_state=seed)
    return model.fit(X, y)


def one_pass(X, y, size, seed):
    model, classes = LEDLClassifier(n_components=N_ATOMS, random_state=seed), np.unique(y)
    for first in range(0, len(y), size):
        model.partial_fit(X[first : first + size], y[first : first + size], classes=classes)
    return model


def timed(function, *arguments):
    start = time.perf_counter()
    found = function(*arguments)
    return found, time.perf_counter() - start


def accuracy(shuffles):
    X, y, X_test, y_test = pool()
    one_pass(X[:200], y[:200], 100, 0).predict(X[:10])  # compiles
    batch_fit(X[:500], y[:500], 0)
    rows = {size: [] for size in (10, 100, 500, 1000)}
    for seed in range(shuffles):
        order = np.random.default_rng(seed).permutation(N_TRAIN)
        batch, batch_time = timed(batch_fit, X[order], y[order], seed)
        expected = 100 * batch.score(X_test, y_test)
        for size, found in rows.items():
            model, seconds = timed(one_pass, X[order], y[order], size, seed)
            score = 100 * model.score(X_test, y_test)
            found.append((expected, batch_time, score, seconds, score - expected))
    print("| batches of | batch fit, % | one pass, % | difference, points | batch fit, s | one pass, s |")
    print("|---|---|---|---|---|---|")
    for size, found in rows.items():
        expected, batch_time, score, seconds, difference = np.transpose(found)
        means = [f"{x.mean():+.2f} ± {x.std(ddof=1):.2f}" for x in (expected, score, difference)]
        print(
            f"| {size} | {means[0][1:]} | {means[1][1:]} | {means[2]} | {np.median(batch_time):.2f} "
            f"| {np.median(seconds):.2f} |"
        )


def choose():
    X, y, _, _ = pool()
    sets = {"USPS": list(folds(X, y)), "digits": list(folds(*load_digits(return_X_y=True)))}
    expected = {
        name: [batch_fit(X, y, 0).score(X_out, y_out) for X, y, X_out, y_out in parts]
        for name, parts in sets.items()
    }
    settings = [(100, steps, forgetting) for steps in (1, 3, 5, 10, 20) for forgetting in (0, 1, 2, 4)]
    settings += [(size, 10, forgetting) for size in (10, 400, 1000) for forgetting in (1, 2)]
    print("| batches of | code steps | exponent | " + " | ".join(f"{name}, points" for name in sets) + " |")
    print("|---|---|---|" + "---|" * len(sets))
    for size, solver.CODE_STEPS, solver.FORGETTING in settings:
        cells = []
        for name, parts in sets.items():
            scores = [one_pass(X, y, size, 0).score(X_out, y_out) for X, y, X_out, y_out in parts]
            difference = 100 * (np.array(scores) - expected[name])
            error = difference.std(ddof=1) / FOLDS**0.5
            cells.append(f"{difference.mean():+.2f} ± {error:.2f}")
        print(f"| {size} | {solver.CODE_STEPS} | {solver.FORGETTING} | {' | '.join(cells)} |", flush=True)


def after_fit():
    """Accuracy of a model fitted on some samples, then on a stream: atoms held where they are, or not."""
    X, y, _, _ = pool()
    n_fitted = 2000
    ways = {"held": n_fitted, "empty sums": 0}  # as if it had been fitted on so many samples
    print("| batches of | sums in place of the fit's | fit, % | 1 batch, % | 5 batches, % | all, % |")
    print("|---|---|---|---|---|---|")
    fitted = [
        (batch_fit(X[:n_fitted], y[:n_fitted], 0), X, y, X_out, y_out) for X, y, X_out, y_out in folds(X, y)
    ]
    for size in (10, 100):
        for way, n in ways.items():
            rows = [go_on(model, n, X[n_fitted:], y[n_fitted:], size, *out) for model, X, y, *out in fitted]
            cells = " | ".join(f"{x:.1f}" for x in 100 * np.mean(rows, axis=0))
            print(f"| {size} | {way} | {cells} |", flush=True)


def go_on(fitted, n_samples, X, y, size, X_out, y_out):
    model = clone(fitted)
    vars(model).update(vars(fitted), _n_samples=n_samples)
    scores = [model.score(X_out, y_out)]
    for i, first in enumerate(range(0, len(y), size)):
        model.partial_fit(X[first : first + size], y[first : first + size])
        if i in (0, 4):
            scores.append(model.score(X_out, y_out))
    return [*scores, model.score(X_out, y_out)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["accuracy", "choose", "after_fit"])
    parser.add_argument("--shuffles", type=int, default=8)
    options = parser.parse_args()
    work = {"accuracy": lambda: accuracy(options.shuffles), "choose": choose, "after_fit": after_fit}
    work[options.what]()


if __name__ == "__main__":
    main()
