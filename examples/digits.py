"""All methods on scikit-learn's digits, five labelled images of each: accuracy, time, and LEDL's pictures.

    python examples/digits.py [FOLDER]

Saves convergence.png and atoms.png in FOLDER (default: demo).
"""

import sys
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

from ledl import (
    CRCClassifier,
    CSDLClassifier,
    DKSVDClassifier,
    LCKSVDClassifier,
    LEDLClassifier,
    SRCClassifier,
)
from ledl.datasets import few_shot_splits, load

OBJECTIVE = r"objective $\|X-SB\|^2+\lambda\|H-SW\|^2+\omega\|Q-SA\|^2+2\epsilon\|S\|_1$ at the sparse codes"


def draw_convergence(model):
    """The augmented objective and its larger terms over the iterations."""
    figure, ax = plt.subplots(figsize=(7, 4.8), layout="constrained")
    iterations = np.arange(1, model.n_iter_ + 1)
    ax.plot(iterations, model.history_["augmented_objective"], color="black", label="augmented objective")
    for name, label in [
        ("data_fit", "data"), ("label_fit", "labels"), ("code_fit", "label consistency"), ("penalty", "l1"),
    ]:  # fmt: skip
        ax.plot(iterations, model.history_[name], linewidth=1, label=f"its {label} term")
    known = np.isfinite(model.history_["objective"])
    ax.plot(iterations[known], model.history_["objective"][known], "o", color="black", label=OBJECTIVE)
    ax.set(
        xlabel="iteration",
        ylabel="objective and its terms",
        yscale="log",
        title="LEDL on digits, five images a class",
    )
    figure.legend(loc="outside lower center", ncols=2, fontsize=8)
    return figure


def draw_atoms(model, shape):
    """Every atom as an image, a row for each class."""
    classes = list(model.classes_)
    per_class = len(model.components_) // len(classes)
    figure, axes = plt.subplots(
        len(classes), per_class, figsize=(0.62 * per_class, 0.62 * len(classes)), layout="constrained"
    )
    for row, label in zip(axes, classes, strict=True):
        for ax, atom in zip(row, model.components_[model.atom_classes_ == label], strict=True):
            largest = np.abs(atom).max()
            ax.imshow(atom.reshape(shape), cmap="RdGy", vmin=-largest, vmax=largest)
            ax.set(xticks=[], yticks=[])
        row[0].set_ylabel(label, rotation=0, labelpad=10, va="center")
    figure.suptitle("Learnt atoms, a row for each class (grey positive, red negative)")
    return figure


def run(dataset, make_model):
    """Accuracies and fit times over the eight splits, and the last model."""
    accuracies, times = [], []
    for seed, (train, test) in enumerate(few_shot_splits(dataset.target)):
        model = make_model(seed)
        start = time.perf_counter()
        model.fit(dataset.data[train], dataset.target[train])
        times.append(time.perf_counter() - start)
        accuracies.append(100 * model.score(dataset.data[test], dataset.target[test]))
    return np.array(accuracies), np.array(times), model


def main(folder):
    digits = load("digits")
    print("scikit-learn's digits: 5 training images a class, all others tested, 8 random splits\n")
    print("at its defaults      accuracy, %   fit, s")
    methods = {
        "logistic regression": lambda seed: LogisticRegression(max_iter=1000),
        "nearest neighbour": lambda seed: make_pipeline(Normalizer(), KNeighborsClassifier(1)),
        "SRC": lambda seed: SRCClassifier(),
        "CRC": lambda seed: CRCClassifier(),
        "CSDL-SRC": lambda seed: CSDLClassifier(random_state=seed),
        "D-KSVD": lambda seed: DKSVDClassifier(random_state=seed),
        "LC-KSVD": lambda seed: LCKSVDClassifier(random_state=seed),
        "LEDL": lambda seed: LEDLClassifier(random_state=seed),
    }
    for name, make_model in methods.items():
        accuracies, times, model = run(digits, make_model)
        print(f"{name:20} {accuracies.mean():.1f} ± {accuracies.std(ddof=1):.1f}    {np.median(times):.3f}")
    print(f"\nThe first LEDL fit took {times[0]:.1f} s: it compiles code, or loads what was compiled before.")
    print(f"{len(model.components_)} atoms, {model.n_iter_} iterations, ended by {model.stopped_by_}. Saved:")
    folder.mkdir(parents=True, exist_ok=True)
    for name, figure in [("convergence", draw_convergence(model)), ("atoms", draw_atoms(model, (8, 8)))]:
        path = folder / f"{name}.png"
        figure.savefig(path, dpi=130)
        print(f"  {path.resolve()}")


if __name__ == "__main__":
    plt.switch_backend("agg")
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo"))
