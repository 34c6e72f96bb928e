"""LEDL on scikit-learn's digits, five labelled images of each: accuracy, time, and pictures.

    python examples/digits.py [FOLDER]

Saves convergence.png and atoms.png in FOLDER (default: demo).
"""

import sys
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from ledl import LEDLClassifier
from ledl.datasets import few_shot_splits, load

OBJECTIVE = r"$\|X-SB\|^2+\lambda\|H-SW\|^2+\omega\|Q-SA\|^2+2\epsilon\|S\|_1$"


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
    ax.set(xlabel="iteration", ylabel="value", yscale="log", title="LEDL on digits, five images a class")
    figure.legend(loc="outside lower center", ncols=3, fontsize=8)
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
            ax.imshow(atom.reshape(shape), cmap="gray_r", vmin=0)
            ax.set(xticks=[], yticks=[])
        row[0].set_ylabel(label, rotation=0, labelpad=10, va="center")
    figure.suptitle("Learnt atoms, a row for each class")
    return figure


def main(folder):
    digits = load("digits")
    accuracies, times = [], []
    for seed, (train, test) in enumerate(few_shot_splits(digits.target)):
        model = LEDLClassifier(random_state=seed)
        start = time.perf_counter()
        model.fit(digits.data[train], digits.target[train])
        times.append(time.perf_counter() - start)
        accuracies.append(100 * model.score(digits.data[test], digits.target[test]))
    print("LEDL on scikit-learn's digits: 5 training images a class, all others tested, 8 random splits")
    print(f"accuracy  {np.mean(accuracies):.1f} ± {np.std(accuracies, ddof=1):.1f} %")
    print(f"fit       {np.median(times):.2f} s a split ({times[0]:.1f} s the first: it compiles or loads code)")
    print(f"model     {len(model.components_)} atoms, {model.n_iter_} iterations, ended by {model.stopped_by_}")
    folder.mkdir(parents=True, exist_ok=True)
    for name, figure in [("convergence", draw_convergence(model)), ("atoms", draw_atoms(model, (8, 8)))]:
        path = folder / f"{name}.png"
        figure.savefig(path, dpi=130)
        print(f"saved     {path.resolve()}")


if __name__ == "__main__":
    plt.switch_backend("agg")
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo"))
