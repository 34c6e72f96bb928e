"""Evidence for the choices of LEDLClassifierCV and the parts of LEDL, from training samples alone.

    python benchmarks/left_out.py selection|ablation [--datasets ...] [--splits N ...] [--jobs N]

For each dataset and seed a training set is drawn, five samples a class, and nothing else is looked at: no test
sample. One sample of each class is left out at a time, five folds. The figure of a split is the accuracy on the
samples left out.

selection: all candidates of LEDLClassifierCV, and the kernel "rbf", are scored on all folds. For each fold,
what to take is decided by the scores on the other four, and judged on this one. (The models that give those
scores have seen the samples of this one in training; LEDLClassifierCV chooses by all five and fits again.)

ablation: one thing at a time is changed from a reference.

Samples have norm 1, which changes nothing for the kernels "linear" and "hellinger": they are normalised anyway.
p is that of the paired t-test over splits. Finished cells are kept in .cache/, so a second start goes on where
the first one ended; delete .cache/left_out after a change of the library.
"""

import argparse
import warnings

import numpy as np
from joblib import Memory, Parallel, delayed
from scipy.special import softmax
from scipy.stats import ttest_1samp
from sklearn.exceptions import ConvergenceWarning, FitFailedWarning
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import normalize

from ledl import LEDLClassifier, LEDLClassifierCV
from ledl.datasets import few_shot_splits, load
from ledl.dictionary import log_odds
from ledl.model_selection import KERNELS, Fold, choose, judge, verdict

DATASETS = ["digits", "usps", "ucmerced", "aid", "yaleb"]
N_FOLDS = 5
# The width of "rbf" for samples of norm 1, and codes as exact as labels need.
COMMON = {"gamma": 0.5, "transform_tol": 1e-5}
CANDIDATES = LEDLClassifierCV(kernels=(*KERNELS, "rbf"))._candidates()
memory = Memory(".cache/left_out", verbose=0)


@memory.cache
def training_set(name, seed):
    """Samples, of norm 1, and labels: all that is seen of a dataset."""
    dataset = load(name)
    train, _ = next(few_shot_splits(dataset.target, n_per_class=5, seeds=[seed]))
    return normalize(dataset.data[train]), dataset.target[train]


def folds_of(name, seed):
    """The training set of a split in folds, one sample a class left out in each."""
    X, y = training_set(name, seed)
    parts = StratifiedKFold(N_FOLDS, shuffle=True, random_state=seed).split(X, y)
    return [Fold(X[fit], y[fit], X[out], y[out], out) for fit, out in parts]


# Selection.

# What is chosen from, by kernel and rule.
SETS = {
    "linear": lambda kernel, rule: kernel == "linear",
    "linear, Hellinger": lambda kernel, rule: kernel in KERNELS,
    "linear, Hellinger, rbf": lambda kernel, rule: True,
    'linear, Hellinger; rule "classifier"': lambda kernel, rule: kernel in KERNELS and rule == "classifier",
    'linear, Hellinger; without "residual"': lambda kernel, rule: kernel in KERNELS and rule != "residual",
}
DEFAULT = ("linear, Hellinger", "log_loss")


def one_by(selection):
    """All weight on the candidate that LEDLClassifierCV would take."""
    return lambda verdicts: np.eye(len(verdicts))[choose(verdicts, selection)]


def by_evidence(verdicts):
    """Weights proportional to the likelihood of the labels of all samples left out."""
    return softmax([-one.losses.sum() for one in verdicts])


def first_three(verdicts):
    """The three with the least log loss, alike."""
    weights = np.zeros(len(verdicts))
    weights[np.argsort([one.losses.mean() for one in verdicts], kind="stable")[:3]] = 1 / 3
    return weights


# How: what verdicts make of candidates is a weight for each, with which their log odds are averaged.
HOW = {
    "accuracy": one_by("accuracy"),
    "log_loss": one_by("log_loss"),
    "average": by_evidence,
    "first three": first_three,
}


@memory.cache
def trials(name, seed):
    """For each fold: verdicts on the candidates from the others, their exponents on this one, its labels."""
    folds = folds_of(name, seed)
    models = [LEDLClassifier(random_state=seed, **COMMON, **candidate) for candidate in CANDIDATES]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("error", FitFailedWarning)
        table = judge(models, CANDIDATES, folds)
    found = []
    for i, fold in enumerate(folds):
        others = [j for j in range(N_FOLDS) if j != i]
        verdicts = [verdict([row[j] for j in others], [folds[j] for j in others]) for row in table]
        exponents = np.stack([log_odds(row[i].dictionary.rule, row[i].scores) for row in table])
        found.append((verdicts, exponents, np.searchsorted(table[0][i].model.classes_, fold.y_test)))
    return found


def accuracy_of_choice(trials, members, weights_of):
    """Accuracy on the samples left out, %, where one has the candidates `members` to choose from."""
    accuracies = []
    for verdicts, exponents, labels in trials:
        own = [verdicts[k] for k in members]
        weights = weights_of(own) * [one.factor for one in own]
        mixed = np.tensordot(weights, exponents[members], 1)
        accuracies.append(np.mean(mixed.argmax(axis=1) == labels))
    return 100 * np.mean(accuracies)


def selection(n_splits, jobs):
    names, cells = list(n_splits), [(name, seed) for name, n in n_splits.items() for seed in range(n)]
    by_cell = Parallel(jobs)(delayed(trials)(*cell) for cell in cells)
    of_name = {name: [i for i, cell in enumerate(cells) if cell[0] == name] for name in names}
    found = {}
    for title, belongs in SETS.items():
        members = [k for k, one in enumerate(CANDIDATES) if belongs(one["kernel"], one["rule"])]
        for how, weights_of in HOW.items():
            found[title, how] = np.array([accuracy_of_choice(one, members, weights_of) for one in by_cell])
    print_row("chosen from", "by", *names, "mean")
    print_row(*["---"] * (len(names) + 3))
    for key, by_split in found.items():
        means = [by_split[of_name[name]].mean() for name in names]
        print_row(*key, *(f"{mean:.1f}" for mean in means), f"{np.mean(means):.2f}")
    print(f"\nDifference to {DEFAULT[0]} by {DEFAULT[1]}, points, and p over {len(cells)} splits:\n")
    print_row("chosen from", "by", "difference", "p")
    print_row(*["---"] * 4)
    for key, by_split in found.items():
        if key != DEFAULT:
            differences = by_split - found[DEFAULT]
            print_row(*key, signed(differences, 2), p_value(differences))


# Ablation.

REFERENCE = {"kernel": "hellinger"}
# The random start knows no kernel.
LINEAR = {"kernel": "linear"}
# A title, what is changed, and from what. "atoms": for each training sample of the fold, two by default.
CHANGES = [
    ('rule="residual"', {"rule": "residual"}, REFERENCE),
    ('rule="regularized"', {"rule": "regularized"}, REFERENCE),
    ('kernel="linear"', LINEAR, REFERENCE),
    ('kernel="rbf"', {"kernel": "rbf"}, REFERENCE),
    ('kernel="linear", init="random"; from kernel="linear"', {"init": "random"}, LINEAR),
    ("n_components=n", {"atoms": 1}, REFERENCE),
    ("n_components=4n", {"atoms": 4}, REFERENCE),
    ("label_weight=0", {"label_weight": 0.0}, REFERENCE),
    ("label_weight=2**-3", {"label_weight": 2.0**-3}, REFERENCE),
    ("label_weight=16", {"label_weight": 16.0}, REFERENCE),
    ("code_weight=0", {"code_weight": 0.0}, REFERENCE),
    ("code_weight=2**-8", {"code_weight": 2.0**-8}, REFERENCE),
    ("alpha=2**-4", {"alpha": 2.0**-4}, REFERENCE),
    ("alpha=2**-8", {"alpha": 2.0**-8}, REFERENCE),
    ("max_iter=15", {"max_iter": 15}, REFERENCE),
]


@memory.cache
def cross_validate(name, seed, settings):
    """Accuracy on the samples left out, %."""
    settings = dict(settings)
    atoms = settings.pop("atoms", None)
    accuracies = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for fold in folds_of(name, seed):
            model = LEDLClassifier(random_state=seed, **COMMON, **settings)
            model.set_params(n_components=None if atoms is None else atoms * len(fold.y))
            accuracies.append(model.fit(fold.X, fold.y).score(fold.X_test, fold.y_test))
    return 100 * float(np.mean(accuracies))


def ablation(n_splits, jobs):
    names = list(n_splits)
    settings = [REFERENCE, LINEAR] + [{**base, **change} for _, change, base in CHANGES if change != LINEAR]
    cells = [(name, seed, one) for name in names for seed in range(n_splits[name]) for one in settings]
    accuracies = Parallel(jobs)(delayed(cross_validate)(*cell) for cell in cells)
    found = {(name, seed, repr(one)): value for (name, seed, one), value in zip(cells, accuracies, strict=True)}

    def by_split(name, one):
        return np.array([found[name, seed, repr(one)] for seed in range(n_splits[name])])

    print_row("changed", *names, "all splits")
    print_row(*["---"] * (len(names) + 2))
    for title, base in [("reference, accuracy, %", REFERENCE), ('kernel="linear", accuracy, %', LINEAR)]:
        parts = [by_split(name, base) for name in names]
        print_row(title, *(f"{part.mean():.1f}" for part in [*parts, np.concatenate(parts)]))
    for title, change, base in CHANGES:
        differences = [by_split(name, {**base, **change}) - by_split(name, base) for name in names]
        print_row(title, *map(with_p, differences), with_p(np.concatenate(differences)))


def with_p(differences):
    """The mean difference, and in brackets p."""
    return f"{signed(differences, 1)} ({p_value(differences)})"


def signed(differences, digits):
    """The mean; what rounds to zero has no minus."""
    return f"{round(float(np.mean(differences)), digits) + 0.0:+.{digits}f}"


def p_value(differences):
    """Of the paired t-test; there is none for differences that are all the same."""
    same = len(differences) < 2 or np.ptp(differences) < 1e-9  # of percentages, which are rounded
    return "-" if same else f"{ttest_1samp(differences, 0).pvalue:.2g}"


def print_row(*entries):
    print("|", " | ".join(entries), "|")


COMMANDS = {"selection": selection, "ablation": ablation}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("--datasets", nargs="+", default=DATASETS, metavar="DATASET")
    parser.add_argument("--splits", type=int, nargs="+", default=[8], help="one number, or one a dataset")
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    names, splits = options.datasets, options.splits
    if len(splits) not in (1, len(names)) or min(splits) < 1:
        parser.error(f"--splits {splits}: give a number from 1 on, or one for each of {len(names)} datasets.")
    n_splits = dict(zip(names, splits if len(splits) > 1 else splits * len(names), strict=True))
    COMMANDS[options.command](n_splits, options.jobs)


if __name__ == "__main__":
    main()
