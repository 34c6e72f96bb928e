"""How well samples of classes that a model has never seen are told from those of its own.

    python benchmarks/rejection.py                      # digits
    python benchmarks/rejection.py digits usps yaleb pie ucmerced aid
    python benchmarks/rejection.py --on-training digits # on training samples alone: what the default rests on

Five training samples of each class of a random half of the classes; all other samples of these (at most 1,000)
and of the other half (at most 1,000) are judged by `RejectingClassifier` at its defaults. Eight splits, mean ±
standard deviation. AUC, %: how often a sample of an unknown class is more novel than one of a known class.
"""

import argparse
import warnings

import numpy as np
from sklearn.metrics import roc_auc_score
from threadpoolctl import threadpool_limits

from ledl import CRCClassifier, CSDLClassifier, LEDLClassifier, RejectingClassifier, SRCClassifier
from ledl.datasets import few_shot_splits, load
from ledl.rejection import MEASURES

MODELS = {
    "LEDL": LEDLClassifier(random_state=0),
    "SRC": SRCClassifier(),
    "CRC": CRCClassifier(),
    "CSDL-SRC": CSDLClassifier(random_state=0),
}
REJECT = 0.05
N_JUDGED = 1000


def split(y, seed):
    """Training samples of known classes, and samples of known and of unknown classes to judge."""
    rng = np.random.default_rng(seed)
    known = rng.permutation(y.max() + 1)[: (y.max() + 2) // 2]
    train, test = next(few_shot_splits(y, n_per_class=5, seeds=[seed]))
    strangers = train[~np.isin(y[train], known)]
    is_known = np.isin(y[test], known)
    judged = [rng.permutation(test[mask])[:N_JUDGED] for mask in (is_known, ~is_known)]
    return train[np.isin(y[train], known)], strangers, *judged


def judge(model, X, y, seed, on_training):
    train, strangers, known, unknown = split(y, seed)
    fitted = RejectingClassifier(model, reject=REJECT).fit(X[train], y[train])
    found = {}
    for measure in MEASURES:
        fitted.set_params(measure=measure)
        if on_training:
            usual, strange = fitted._unlikeness(fitted.evidence_), fitted.novelty(X[strangers])
        else:
            usual, strange = fitted.novelty(X[known]), fitted.novelty(X[unknown])
        truth = np.repeat([0, 1], [len(usual), len(strange)])
        found[measure] = roc_auc_score(truth, np.concatenate([usual, strange]))
    if not on_training:
        fitted.set_params(measure="both")
        found["known rejected"] = np.mean(fitted.p_values(X[known]) <= REJECT)
        found["unknown rejected"] = np.mean(fitted.p_values(X[unknown]) <= REJECT)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("datasets", nargs="*", default=["digits"])
    parser.add_argument("--on-training", action="store_true")
    parser.add_argument("--splits", type=int, default=8)
    options = parser.parse_args()
    names = [f"AUC, {measure}" for measure in MEASURES]
    if not options.on_training:
        names += [f"known rejected at {REJECT}, %", f"unknown rejected at {REJECT}, %"]
    print("| | " + " | ".join(names) + " |\n" + "|---" * (1 + len(names)) + "|")
    for name in options.datasets:
        data = load(name)
        for title, model in MODELS.items():
            with threadpool_limits(1), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                runs = [
                    list(judge(model, data.data, data.target, seed, options.on_training).values())
                    for seed in range(options.splits)
                ]
            means, spreads = 100 * np.mean(runs, axis=0), 100 * np.std(runs, axis=0)
            cells = [f"{m:.1f} ± {s:.1f}" for m, s in zip(means, spreads, strict=True)]
            print(f"| {name}, {title} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
