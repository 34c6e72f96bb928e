"""The paper's other methods: accuracy at fixed weights, and time on Extended YaleB.

    python benchmarks/rivals.py accuracy [DATASET ...] [--jobs N]
    python benchmarks/rivals.py select [DATASET ...] [--jobs N]
    python benchmarks/rivals.py time [--jobs N]

Eight splits, five training samples a class, all others tested. In `accuracy` the weights are fixed
beforehand: nothing is chosen. `select` chooses CRC's kernel, rule and alpha by five-fold cross-validation in
the training samples of each split. Needs the prepared datasets (LEDL_DATA). `time` fits and predicts once a
method at its defaults, after a first call that compiles, with N threads.
"""

import argparse
import time

import numpy as np
from joblib import Parallel, delayed
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, StratifiedKFold

from ledl import (
    CRCClassifier,
    CSDLClassifier,
    DKSVDClassifier,
    LCKSVDClassifier,
    LEDLClassifier,
    SRCClassifier,
)
from ledl.datasets import few_shot_splits, load

# Powers of two of alpha for SRC, CRC and the comparison of CSDL with SRC.
ALPHAS = {"usps": (-4, -2, -5), "ucmerced": (-10, -3, -5), "yaleb": (-10, -10, -8), "pie": (-10, -6, -8)}


def methods(name):
    src, crc, csdl = (2.0**power for power in ALPHAS[name])
    yield f"SRC, {src:g}", SRCClassifier(alpha=src)
    yield f"CRC, {crc:g}", CRCClassifier(alpha=crc)
    if name == "yaleb":
        yield f"CRC regularized, {2.0**-8:g}", CRCClassifier(alpha=2**-8, rule="regularized")
    yield f"SRC, {csdl:g}", SRCClassifier(alpha=csdl)
    yield f"CSDL, {csdl:g}", CSDLClassifier(alpha=csdl)


def run_split(name, model, seed):
    dataset = load(name)
    X, y = dataset.data, dataset.target
    train, test = next(few_shot_splits(y, seeds=[seed]))
    model = clone(model)
    if "random_state" in model.get_params():
        model.set_params(random_state=seed)
    times = [time.perf_counter()]
    model.fit(X[train], y[train])
    times.append(time.perf_counter())
    accuracy = model.score(X[test], y[test])
    times.append(time.perf_counter())
    return 100 * accuracy, *np.diff(times)


def measure_accuracy(datasets, jobs):
    print("| dataset | method, alpha | accuracy, % |\n|---|---|---|")
    for name in datasets:
        for label, model in methods(name):
            results = Parallel(jobs)(delayed(run_split)(name, model, seed) for seed in range(8))
            accuracy = np.array(results)[:, 0]
            print(f"| {name} | {label} | {accuracy.mean():.1f} ± {accuracy.std(ddof=1):.1f} |", flush=True)


def select_split(name, kernels, seed):
    dataset = load(name)
    X, y = dataset.data, dataset.target
    train, test = next(few_shot_splits(y, seeds=[seed]))
    grid = {"kernel": kernels, "rule": ["residual", "regularized"], "alpha": 2.0 ** np.arange(-10, 2)}
    folds = StratifiedKFold(5, shuffle=True, random_state=seed)
    search = GridSearchCV(CRCClassifier(), grid, cv=folds).fit(X[train], y[train])
    chosen = search.best_params_
    text = f"{chosen['kernel']} {chosen['rule']} 2^{np.log2(chosen['alpha']):.0f}"
    return 100 * search.score(X[test], y[test]), text


def measure_selected(datasets, jobs):
    print("| dataset | kernels to choose from | accuracy, % | chosen |\n|---|---|---|---|")
    for name in datasets:
        for kernels in (["linear"], ["linear", "hellinger"]):
            results = Parallel(jobs)(delayed(select_split)(name, kernels, seed) for seed in range(8))
            accuracy = np.array([r[0] for r in results])
            text = ", ".join(r[1] for r in results)
            figure = f"{accuracy.mean():.1f} ± {accuracy.std(ddof=1):.1f}"
            print(f"| {name} | {', '.join(kernels)} | {figure} | {text} |", flush=True)


def measure_time(jobs):
    models = [
        SRCClassifier(),
        CRCClassifier(),
        CSDLClassifier(),
        DKSVDClassifier(),
        LCKSVDClassifier(),
        LEDLClassifier(),
        SRCClassifier(kernel="rbf"),
        CRCClassifier(kernel="rbf"),
        CSDLClassifier(kernel="rbf"),
        LEDLClassifier(kernel="rbf"),
    ]
    print("| method | fit, s | predict 2,224 samples, s | accuracy, % |\n|---|---|---|---|")
    for model in models:
        model.set_params(n_jobs=jobs)
        run_split("yaleb", model, 1)
        accuracy, fit_time, predict_time = run_split("yaleb", model, 0)
        name = str(model).replace(f"n_jobs={jobs}", "").replace(", )", ")")
        print(f"| {name} | {fit_time:.2f} | {predict_time:.2f} | {accuracy:.1f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=["accuracy", "select", "time"])
    parser.add_argument("datasets", nargs="*", default=list(ALPHAS), metavar="DATASET")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    if options.what == "accuracy":
        measure_accuracy(options.datasets, options.jobs)
    elif options.what == "select":
        measure_selected(options.datasets, options.jobs)
    else:
        measure_time(options.jobs)


if __name__ == "__main__":
    main()
