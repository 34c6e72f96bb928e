"""How many labels a person gives until a set is right, with a person who is simulated.

    python benchmarks/labels.py run [--datasets ucmerced yaleb usps aid caltech101] [--starts 5] [--jobs 2]
    python benchmarks/labels.py run --from nothing
    python benchmarks/labels.py table [--out labels.jsonl]
    python benchmarks/labels.py intervals [--datasets ucmerced yaleb usps aid] [--starts 25] [--jobs 2]

run: the person starts with one random label of each class, or with none at all ("nothing": the classes are
found on the way), and answers ten questions at a time, among them the random checks of the page, until 95 % of
all samples have the right label, given or suggested (AID: 90 %). The model, the questions and the checks are
those of `ledl label`. Rivals ask in another way: in random order, by the entropy or the margin of the
probabilities, or for the sample that is farthest from all labels (k-center). Each has the same model, and also
logistic regression on the same coordinates, with its C chosen by cross-validation; each has the same checks.
Finished runs are in the file, and are not done again.
table: labels until the target, mean over the starts; a run that does not reach it counts with the budget.
intervals: the estimate of the page at 50, 100 and 150 labels: how often its 90 % interval has the truth, and
how wide it is.
"""

import argparse
import json
import multiprocessing
import os
import time
import warnings
from concurrent.futures import ProcessPoolExecutor, as_completed

import numpy as np
from scipy.stats import entropy, gmean
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import pairwise_distances_argmin_min
from sklearn.model_selection import GridSearchCV, StratifiedKFold

from ledl.arrays import to_host
from ledl.datasets import load
from ledl.lessons import Learner, mix

# The share that must be right, and the most labels that are given.
TARGETS = {
    "ucmerced": (0.95, 311),
    "yaleb": (0.95, 304),
    "usps": (0.95, 300),
    "caltech101": (0.95, 902),
    "aid": (0.9, 480),
    "pie": (0.95, 918),
    "digits": (0.95, 150),
}
BATCH = 10
STRATEGIES = ("ours", "random", "entropy", "margin", "k-center")
MODELS = ("ours", "logistic")


class Logistic:
    """Learn by logistic regression, with the coordinates and the questions of a Learner."""

    def __init__(self, learner):
        Z = to_host(learner.space.Z)[learner.copy_of]
        self.learner, self.Z = learner, Z / np.sqrt((Z**2).sum(axis=1).mean())
        self.n_chosen = 0
        self.model = LogisticRegression(C=100.0, max_iter=200, tol=1e-3, warm_start=True)

    def learn(self, y):
        known = np.flatnonzero(y >= 0)
        counts = np.bincount(y[known])
        classes = np.unique(y[known])
        several = known[counts[y[known]] > 2]
        if len(several) > 20 and len(known) > 1.5 * self.n_chosen and len(np.unique(y[several])) > 1:
            grid = {"C": [1.0, 10.0, 100.0, 1000.0]}
            search = GridSearchCV(clone(self.model), grid, cv=StratifiedKFold(3, shuffle=True, random_state=0))
            self.model.set_params(**search.fit(self.Z[several], y[several]).best_params_)
            self.n_chosen = len(known)
        if len(classes) != len(getattr(self.model, "classes_", classes)):
            self.model = clone(self.model)  # which cannot start from other classes
        P = self.model.fit(self.Z[known], y[known]).predict_proba(self.Z)
        P[known] = np.eye(len(classes))[np.searchsorted(classes, y[known])]
        return classes, P


def asked(strategy, Z, y, P, lesson, rng):
    """Return samples without labels, the most useful first."""
    is_open = y < 0
    if strategy == "ours" and lesson is not None:
        return lesson.questions
    if strategy == "random" or not P.shape[1]:
        return rng.permutation(np.flatnonzero(is_open))
    if strategy == "k-center":
        distance, found = pairwise_distances_argmin_min(Z, Z[~is_open])[1], []
        for _ in range(2 * BATCH):
            found.append(int(distance.argmax()))
            distance = np.minimum(distance, np.linalg.norm(Z - Z[found[-1]], axis=1))
        return np.array(found)
    largest = np.sort(P, axis=1)
    use = entropy(P, axis=1) if strategy == "entropy" else largest[:, -2] - largest[:, -1]
    return np.argsort(np.where(is_open, -use, np.inf), kind="stable")[: is_open.sum()]


def simulate(task):
    """Return the curve of a run: the number of labels, the share that is right, the seconds of the lesson."""
    name, strategy, model, start, beginning, device, at = task
    warnings.simplefilter("ignore")
    data = load(name)
    X, truth = data.data, data.target
    rng = np.random.default_rng(start)
    target, budget = TARGETS[name]
    before = time.perf_counter()
    learner = Learner(X, device=device, n_jobs=1)
    prepared = time.perf_counter() - before
    logistic = Logistic(learner) if model == "logistic" else None
    Z = to_host(learner.space.Z)[learner.copy_of]
    y = np.full(len(X), -1)
    if beginning == "classes":
        for label in np.unique(truth):
            y[rng.choice(np.flatnonzero(truth == label))] = label
    order, checks, curve, estimates = rng.permutation(len(X)), [], [], []
    while True:
        before = time.perf_counter()
        lesson = learner.learn(y) if logistic is None or len(np.unique(y)) < 3 else None
        classes, P = logistic.learn(y) if lesson is None else (lesson.classes, lesson.probabilities)
        seconds = time.perf_counter() - before
        said = classes[P.argmax(axis=1)] if P.shape[1] else np.full(len(X), -1)
        right = np.where(y >= 0, y, said) == truth
        n_labels = int((y >= 0).sum())
        curve.append((n_labels, float(right.mean()), round(seconds, 3), len(classes)))
        found = learner.estimate(y, checks) if at else None  # after every lesson, as on the page
        if n_labels in at:
            estimates.append((n_labels, float(right[y < 0].mean()), *(found or (None,) * 4)))
        if n_labels >= max(at) if at else right.mean() >= target or n_labels >= budget:
            return {"task": task[:5], "curve": curve, "estimates": estimates, "prepared": round(prepared, 2)}
        n = min(BATCH, min([one - n_labels for one in at if one > n_labels], default=BATCH))
        drawn = order[y[order] < 0][:n].tolist()
        useful = [i for i in asked(strategy, Z, y, P, lesson, rng).tolist() if i not in drawn]
        batch = mix(useful, drawn, n, len(checks))
        checks += [i for i, is_check in batch if is_check or strategy == "random"]
        rows = [i for i, _ in batch]
        y[rows] = truth[rows]


def run_all(tasks, out, jobs):
    """Run what is not in the file yet, and add it there."""
    done = {tuple(one["task"]) for one in results(out)}
    tasks = [task for task in tasks if task[:5] not in done]
    # The longest first.
    tasks.sort(key=lambda task: -TARGETS[task[0]][1])
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        for number, future in enumerate(as_completed([pool.submit(simulate, task) for task in tasks]), 1):
            found = future.result()
            with open(out, "a", encoding="utf-8") as file:
                file.write(json.dumps(found) + "\n")
            print(f"{number}/{len(tasks)}", *found["task"], *found["curve"][-1][:2], flush=True)


def results(out):
    """Return what is in the file."""
    if not os.path.exists(out):
        return []
    with open(out, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def table(out):
    """Print labels until the target: mean ± std over starts, and geometric means of means over the datasets."""
    found = {}
    for one in results(out):
        name, strategy, model, _, beginning = one["task"]
        curve, (target, budget) = one["curve"], TARGETS[name]
        n_labels = curve[-1][0] if curve[-1][1] >= target else budget
        found.setdefault((beginning, model, strategy), {}).setdefault(name, []).append(
            (n_labels, curve[-1][1] >= target, [row[2] for row in curve])
        )
    for beginning in ("classes", "nothing"):
        rows = {key: row for key, row in found.items() if key[0] == beginning}
        if not rows:
            continue
        names = [name for name in TARGETS if any(name in row for row in rows.values())]
        print(f"\nstart: {'one label of each class' if beginning == 'classes' else 'nothing'}")
        print(f"{'model, questions':22s}", *(f"{name:>16s}" for name in names), "  geometric mean")
        for (_, model, strategy), row in sorted(rows.items(), reverse=True):
            cells = []
            for name in names:
                runs = row.get(name, [])
                values = [value for value, _, _ in runs]
                missed = sum(not is_reached for _, is_reached, _ in runs)
                text = f"{np.mean(values):.0f} ± {np.std(values):.0f}" if runs else "-"
                cells.append(f"{text + '*' * (missed > 0):>16s}")
            means = [np.mean([value for value, _, _ in row[name]]) for name in names if name in row]
            print(f"{model + ', ' + strategy:22s}", *cells, f"{gmean(means):12.0f}")
        print("* the target was not reached in every run, which then counts with the budget")
        for name in names:
            times = [t for row in rows.values() for _, _, all_times in row.get(name, []) for t in all_times]
            most = np.quantile(times, 0.95)
            print(f"{name}: a lesson takes {np.median(times):.2f} s, 95 of 100 at most {most:.2f} s")


def intervals(out):
    """Print how often the interval has the truth, how wide it is, and the mean error of the estimate."""
    found = {}
    for one in results(out):
        for n_labels, truth, share, low, high, n_checks in one["estimates"]:
            if share is not None:
                row = (low <= truth <= high, high - low, share - truth, n_checks)
                found.setdefault((one["task"][0], n_labels), []).append(row)
    print("dataset      labels  runs  has the truth  mean width  widest  mean error  checks")
    for (name, n_labels), rows in sorted(found.items()):
        is_in, width, error, n_checks = np.array(rows, dtype=float).T
        print(
            f"{name:12s} {n_labels:6d} {len(rows):5d} {100 * is_in.mean():12.0f} % {100 * width.mean():11.1f} "
            f"{100 * width.max():7.1f} {100 * error.mean():+11.1f} {n_checks.mean():7.1f}"
        )
    rows = [row for found_rows in found.values() for row in found_rows]
    if rows:
        print(f"all: {100 * np.mean([row[0] for row in rows]):.0f} % of {len(rows)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["run", "table", "intervals"])
    parser.add_argument("--datasets", nargs="+", choices=list(TARGETS))
    parser.add_argument("--strategies", nargs="+", default=list(STRATEGIES), choices=STRATEGIES)
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=MODELS)
    parser.add_argument("--starts", type=int)
    parser.add_argument("--from", dest="beginning", choices=["classes", "nothing"], default="classes")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--device")
    parser.add_argument("--out")
    options = parser.parse_args()
    out = options.out or ("intervals.jsonl" if options.what == "intervals" else "labels.jsonl")
    if options.what == "table":
        table(out)
        return
    if options.what == "intervals":
        names, pairs, at = (
            options.datasets or ["ucmerced", "yaleb", "usps", "aid"],
            [("ours", "ours")],
            (50, 100, 150),
        )
    else:
        names, at = options.datasets or ["ucmerced", "yaleb", "usps", "caltech101", "aid"], ()
        pairs = [(strategy, model) for model in options.models for strategy in options.strategies]
    starts = options.starts or (25 if at else 5)
    tasks = [
        (name, strategy, model, start, options.beginning, options.device, at)
        for start in range(starts)
        for name in names
        for strategy, model in pairs
        if (strategy, model) != ("ours", "logistic")
    ]
    run_all(tasks, out, options.jobs)
    (intervals if at else table)(out)


if __name__ == "__main__":
    main()
