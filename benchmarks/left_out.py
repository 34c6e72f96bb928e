"""Evidence for the choices of LEDLClassifierCV and the parts of LEDL, from training samples alone.

    python benchmarks/left_out.py selection|ablation [--datasets ...] [--splits N ...] [--jobs N]

For each dataset and seed a training set is drawn, five samples a class, and nothing else is looked at: no test
sample. One sample of each class is left out at a time, five folds. The figure of a split is the accuracy on the
samples left out.

selection: candidates of LEDLClassifierCV, and those with the rule "residual", are scored on all folds, as it
trains them for its choice, and with all iterations in float64. For each fold, what to take is decided by the
first scores on the other four, and judged by the second on this one. (The models that give those scores have
seen the samples of this one in training; LEDLClassifierCV chooses by all five and fits again.) "several alphas"
learns atoms at each alpha, as LEDLClassifierCV once did, and not at one for all.

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
from ledl.model_selection._batched_search import Fold, judge
from ledl.model_selection._choice import choose, choose_several, log_losses, verdict
from ledl.model_selection._ledl_cv import ALPHAS, ROUGH_ITERATIONS, ROUGH_TOL, RULES

DATASETS = ["digits", "usps", "ucmerced", "aid", "yaleb"]
N_FOLDS = 5
# The width of "rbf" for samples of norm 1, and codes as exact as labels need.
COMMON = {"gamma": 0.5, "transform_tol": 1e-5}
CANDIDATES = LEDLClassifierCV(rules=(*RULES, "residual"))._candidates()
CANDIDATES += [
    {**one, "alpha": alpha, "transform_alpha": alpha}
    for one in CANDIDATES
    for alpha in ALPHAS
    if one.get("transform_alpha") == one["alpha"] != alpha
]
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

# What is chosen from: kernels, rules, and whether atoms are learnt at several alphas.
TWO, THREE = ("linear", "hellinger"), ("linear", "hellinger", 0.25)
OLD = ("classifier", "residual", "regularized")
SETS = {
    "two powers, several alphas, without ridge": (TWO, OLD, True),
    "two powers, without ridge": (TWO, OLD, False),
    "two powers": (TWO, RULES, False),
    "three powers, without ridge": (THREE, OLD, False),
    "three powers, the paper's rule alone": (THREE, ("classifier",), False),
    "three powers, and residual": (THREE, (*RULES, "residual"), False),
    "three powers": (THREE, RULES, False),
}
DEFAULT = ("three powers", "three kinds")


def members_of(kernels, rules, several):
    """The candidates that are chosen from."""
    middle = LEDLClassifierCV()._candidates()[0]["alpha"]
    found = []
    for k, one in enumerate(CANDIDATES):
        own = one["alpha"] == middle
        if "transform_alpha" in one and several:  # atoms are learnt at the alpha of the codes
            own = one["alpha"] == one["transform_alpha"]
        if one["kernel"] in kernels and one["rule"] in rules and own:
            found.append(k)
    return found


def best_one(verdicts, kinds):
    """All weight on the candidate with the least log loss."""
    return np.eye(len(verdicts))[choose(verdicts, "log_loss")]


def by_accuracy(verdicts, kinds):
    """All weight on the candidate with the most hits."""
    return np.eye(len(verdicts))[choose(verdicts, "accuracy")]


def by_evidence(verdicts, kinds):
    """Weights proportional to the likelihood of the labels of all samples left out."""
    return softmax([-one.losses.sum() for one in verdicts])


def first_three(verdicts, kinds):
    """The three with the least log loss, alike."""
    weights = np.zeros(len(verdicts))
    weights[np.argsort([one.losses.mean() for one in verdicts], kind="stable")[:3]] = 1 / 3
    return weights


def three_kinds(verdicts, kinds):
    """The best three with different kernels or rules, alike, as LEDLClassifierCV takes them."""
    weights = np.zeros(len(verdicts))
    taken = choose_several(verdicts, "log_loss", kinds, 3)
    weights[taken] = 1 / len(taken)
    return weights


# How: what verdicts make of candidates is a weight for each, with which their log odds are averaged.
HOW = {
    "accuracy": by_accuracy,
    "best": best_one,
    "evidence": by_evidence,
    "first three": first_three,
    "three kinds": three_kinds,
}


def judged(name, seed, dtype, **settings):
    """Folds of a split, and for each candidate its models on them."""
    folds = [
        fold._replace(X=fold.X.astype(dtype), X_test=fold.X_test.astype(dtype)) for fold in folds_of(name, seed)
    ]
    models = [LEDLClassifier(random_state=seed, **settings, **candidate) for candidate in CANDIDATES]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("error", FitFailedWarning)
        return folds, judge(models, CANDIDATES, [folds] * len(models))


@memory.cache
def trials(name, seed):
    """For each fold: verdicts on the candidates from the others, their exponents on this one, its labels."""
    folds, rough = judged(name, seed, np.float32, max_iter=ROUGH_ITERATIONS, transform_tol=ROUGH_TOL)
    _, table = judged(name, seed, np.float64, **COMMON)
    found = []
    for i, fold in enumerate(folds):
        others = [j for j in range(N_FOLDS) if j != i]
        verdicts = [verdict([row[j] for j in others], [folds[j] for j in others]) for row in rough]
        verdicts = [one._replace(exponents=None) for one in verdicts]
        exponents = np.stack([log_odds(row[i].dictionary.rule, row[i].scores) for row in table])
        found.append((verdicts, exponents, np.searchsorted(table[0][i].classes_, fold.y_test)))
    return found


def result_of_choice(trials, members, weights_of):
    """Accuracy on the samples left out, %, and log loss, with the candidates `members` to choose from."""
    accuracies, losses = [], []
    kinds = [(CANDIDATES[k]["kernel"], CANDIDATES[k]["rule"]) for k in members]
    for verdicts, exponents, labels in trials:
        own = [verdicts[k] for k in members]
        weights = weights_of(own, kinds) * [one.factor for one in own]
        mixed = np.tensordot(weights, exponents[members], 1)
        accuracies.append(np.mean(mixed.argmax(axis=1) == labels))
        losses.append(np.mean(log_losses(mixed, labels, 1.0)))
    return 100 * np.mean(accuracies), np.mean(losses)


def selection(n_splits, jobs):
    names, cells = list(n_splits), [(name, seed) for name, n in n_splits.items() for seed in range(n)]
    by_cell = Parallel(jobs)(delayed(trials)(*cell) for cell in cells)
    of_name = {name: [i for i, cell in enumerate(cells) if cell[0] == name] for name in names}
    found = {
        (title, how): np.array([result_of_choice(one, members_of(*kinds), weights_of) for one in by_cell])
        for title, kinds in SETS.items()
        for how, weights_of in HOW.items()
    }
    print_row("chosen from", "by", *names, "mean", "log loss", "to the default", "p", "log loss to it", "p")
    print_row(*["---"] * (len(names) + 8))
    for key, by_split in found.items():
        means = np.array([by_split[of_name[name]].mean(axis=0) for name in names])
        accuracies, losses = (by_split - found[DEFAULT]).T
        print_row(
            *key,
            *(f"{mean:.1f}" for mean in means[:, 0]),
            f"{means[:, 0].mean():.2f}",
            f"{means[:, 1].mean():.3f}",
            signed(accuracies, 2),
            p_value(accuracies),
            signed(losses, 3),
            p_value(losses),
        )


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
