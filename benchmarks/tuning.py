"""What `LEDLClassifierCV.fit` costs, part by part, at the shape of Extended YaleB.

    python benchmarks/tuning.py [--device cuda] [--jobs N] [--repeats 5]

Five samples a class, all defaults; the median of the repeats, after one fit that compiles. Needs the dataset
"yaleb" (docs/reproduce.md says how to get it).
"""

import argparse
import time

import numpy as np

from ledl import LEDLClassifier, LEDLClassifierCV
from ledl.datasets import few_shot_splits, load


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    where = {"device": options.device, "n_jobs": options.jobs, "random_state": 0}
    data = load("yaleb")
    train, test = next(few_shot_splits(data.target, n_per_class=5))
    X, y = data.data[train], data.target[train]

    def median_time(model):
        model.fit(X, y)
        seconds = []
        for _ in range(options.repeats):
            started = time.perf_counter()
            model.fit(X, y)
            seconds.append(time.perf_counter() - started)
        return np.median(seconds)

    print(
        f"{len(y)} samples, {X.shape[1]} features, {len(np.unique(y))} classes; median of {options.repeats}, s"
    )
    print(f"LEDLClassifier, one fit               {median_time(LEDLClassifier(**where)):8.2f}")
    for title, parameters in {
        "one kernel, the paper's rule": {"kernels": "linear", "rules": "classifier"},
        "and the residual": {"kernels": "linear", "rules": ["classifier", "residual"]},
        "and the regularised residual": {"kernels": "linear"},
        "and the Hellinger kernel (defaults)": {},
    }.items():
        model = LEDLClassifierCV(**parameters, **where)
        seconds = median_time(model)
        n = len(model.cv_results_["params"])
        print(f"{title:38s}{seconds:8.2f}   {n} candidates, {model.n_splits_} folds")
    started = time.perf_counter()
    model.predict(data.data[test])
    print(f"{f'predicting {len(test)} samples':38s}{time.perf_counter() - started:8.2f}   {model.best_params_}")


if __name__ == "__main__":
    main()
