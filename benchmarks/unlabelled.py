"""What samples without labels cost, and what junk among them does.

    python benchmarks/unlabelled.py time [--datasets aid] [--device cuda]
    python benchmarks/unlabelled.py large [--samples 100000]
    python benchmarks/unlabelled.py junk [--datasets ucmerced aid caltech101] [--splits 3]

time: SemiSupervisedClassifier with all its choices, five labels of each class, all others unlabelled. Its log
has the time of each part. large: the same on Gaussian clusters with 512 features and 100 classes; only its time
and memory matter.
junk: half of the classes lose their labels while their samples stay. Accuracy on the unlabelled samples of the
other classes, and the AUROC of samples of known classes against junk, with and without the unlabelled samples.
"""

import argparse
import logging
import resource
import time
import warnings

import numpy as np
from sklearn.metrics import roc_auc_score

from ledl import RejectingClassifier, SemiSupervisedClassifier
from ledl.datasets import few_shot_splits, load


def partly(y, seed, classes=None):
    """Return labels of five samples of each class, or of these classes, and -1 for all other samples."""
    train, _ = next(few_shot_splits(y, n_per_class=5, seeds=[seed]))
    train = train if classes is None else train[np.isin(y[train], classes)]
    found = np.full(len(y), -1)
    found[train] = y[train]
    return found


def timed(X, y, device, seed):
    """Fit once, and print times, memory and accuracy."""
    labels = partly(y, seed)
    before = time.perf_counter()
    model = SemiSupervisedClassifier(random_state=seed, device=device, n_jobs=-1).fit(X, labels)
    seconds = time.perf_counter() - before
    others = labels < 0
    before = time.perf_counter()
    model.predict(X[others][:1000])
    print(
        f"all: {seconds:.1f} s; 1,000 new samples: {time.perf_counter() - before:.2f} s; {model.method_}; "
        f"accuracy {100 * (model.transduction_[others] == y[others]).mean():.1f} %; "
        f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GB",
        flush=True,
    )


def clusters(n, n_classes=100, n_features=512):
    """Return Gaussian clusters whose centres are about as far apart as samples are from their centre."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((n_classes, n_features), dtype=np.float32)
    y = np.arange(n) % n_classes
    X = 2 * rng.standard_normal((n, n_features), dtype=np.float32)
    X += centres[y]
    return X, y


def junk(name, n_splits):
    """Print accuracy on known classes and the AUROC of known against unknown samples."""
    data = load(name)
    X, y = data.data, data.target
    rows = []
    for seed in range(n_splits):
        classes = np.unique(y)
        known = np.random.default_rng(seed).permutation(classes)[: len(classes) // 2]
        labels = partly(y, seed, known)
        model = RejectingClassifier(SemiSupervisedClassifier(random_state=seed, n_jobs=-1)).fit(X, labels)
        semi = model.estimator_
        others = labels < 0
        own = others & np.isin(y, known)
        alone = RejectingClassifier(semi.estimator_).fit(X[labels >= 0], y[labels >= 0])
        is_known = np.isin(y[others], known)
        rows.append(
            (
                100 * semi.estimator_.score(X[own], y[own]),
                100 * (semi.transduction_[own] == y[own]).mean(),
                roc_auc_score(is_known, -alone.novelty(X[others])),
                roc_auc_score(is_known, -model.novelty(X[others])),
            )
        )
    means, spreads = np.mean(rows, axis=0), np.std(rows, axis=0)
    values = [f"{mean:6.1f} ± {spread:3.1f}" for mean, spread in zip(means[:2], spreads[:2], strict=True)]
    values += [f"{mean:7.3f} ± {spread:.3f}" for mean, spread in zip(means[2:], spreads[2:], strict=True)]
    print(f"{name:12s}", *values, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["time", "large", "junk"])
    parser.add_argument("--datasets", nargs="+")
    parser.add_argument("--device")
    parser.add_argument("--samples", type=int, default=100_000)
    parser.add_argument("--splits", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.what == "junk":
        print("dataset      known classes: supervised, with all samples; AUROC: supervised, with all samples")
        for name in options.datasets or ["ucmerced", "aid", "caltech101"]:
            junk(name, options.splits)
        return
    logging.basicConfig(format="%(relativeCreated)7d ms  %(message)s")
    logging.getLogger("ledl.semi_supervised").setLevel(logging.INFO)
    if options.what == "large":
        timed(*clusters(options.samples), options.device, 0)
        return
    for name in options.datasets or ["aid"]:
        data = load(name)
        for seed in (0, 1):  # the first also compiles
            timed(data.data, data.target, options.device, seed)


if __name__ == "__main__":
    main()
