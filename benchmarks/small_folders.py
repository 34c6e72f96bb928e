"""What labels teach in small folders: few samples, most of them without labels.

    LEDL_DATA=FOLDER python benchmarks/small_folders.py [ucmerced digits usps yaleb] [--draws 4]

Accuracy on the samples without labels, in %: of the suggestions of ``ledl label`` (`Learner`), of
`SemiSupervisedClassifier` with one label of each class and with more, and of `LEDLClassifierCV` in it, which
has the labels alone. Means over draws, with 1, 2, and 3 and a few more labels of each class. For another
version set PYTHONPATH.
"""

import argparse
import warnings

import numpy as np

from ledl import SemiSupervisedClassifier
from ledl.datasets import load
from ledl.lessons import Learner

FOLDERS = ((4, 8), (5, 6), (4, 12), (10, 10), (4, 15), (4, 30))  # classes, samples of each


def accuracies(X, y, n_classes, n_each, seed):
    """Return the accuracies of one draw, for 1, 2 and 3 labels of each class: (3, 3)."""
    rng = np.random.default_rng(seed)
    classes = rng.permutation(np.unique(y))[:n_classes]
    rows = np.concatenate([rng.permutation(np.flatnonzero(y == label))[:n_each] for label in classes])
    truth, found = np.repeat(np.arange(n_classes), n_each), []
    for n_labels in (1, 2, 3):
        is_labelled = np.arange(len(rows)) % n_each < n_labels
        if n_labels == 3:
            is_labelled[rng.permutation(len(rows))[:n_classes]] = True
        partly, others = np.where(is_labelled, truth, -1), ~is_labelled
        lesson = Learner(X[rows]).learn(partly)
        model = SemiSupervisedClassifier(random_state=0).fit(X[rows], partly)
        answers = (
            lesson.classes[lesson.probabilities.argmax(axis=1)],
            model.transduction_,
            model.estimator_.predict(X[rows]),
        )
        found.append([np.mean((one == truth)[others]) for one in answers])
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("datasets", nargs="*", default=["ucmerced", "digits", "usps", "yaleb"])
    parser.add_argument("--draws", type=int, default=4)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| folder | dataset | ledl label | semi-supervised, one label | more labels | supervised |")
    print("|---|---|---|---|---|---|")
    for name in options.datasets:
        data = load(name)
        for folder in FOLDERS:
            draws = [accuracies(data.data, data.target, *folder, seed) for seed in range(options.draws)]
            mean = 100 * np.mean(draws, axis=0)
            cells = (mean[:, 0].mean(), mean[0, 1], mean[1:, 1].mean(), mean[:, 2].mean())
            texts = " | ".join(f"{cell:.1f}" for cell in cells)
            print(f"| {folder[0]} x {folder[1]} | {name} | {texts} |", flush=True)


if __name__ == "__main__":
    main()
