"""LEDL on scikit-learn's digits, five labelled images of each: accuracy, convergence, atoms, codes.

    python examples/digits.py [FOLDER]

Saves three pictures in FOLDER (default: .). All methods side by side: ``ledl reproduce``.
"""

import sys
from pathlib import Path

from ledl import LEDLClassifier
from ledl.datasets import few_shot_splits, load
from ledl.plots import AtomsDisplay, CodesDisplay, ConvergenceDisplay

folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
folder.mkdir(parents=True, exist_ok=True)

digits = load("digits")
train, test = next(few_shot_splits(digits.target, n_per_class=5))
model = LEDLClassifier(alpha=2**-4, random_state=0).fit(digits.data[train], digits.target[train])
print(f"accuracy on {len(test)} test images: {model.score(digits.data[test], digits.target[test]):.3f}")
print(f"{len(model.components_)} atoms, {model.n_iter_} iterations, ended by {model.stopped_by_}")

ConvergenceDisplay.from_estimator(model).figure_.savefig(folder / "convergence.png")
AtomsDisplay.from_estimator(model, (8, 8)).figure_.savefig(folder / "atoms.png")
few = test[::350]
CodesDisplay.from_estimator(model, digits.data[few], digits.target[few]).figure_.savefig(folder / "codes.png")
