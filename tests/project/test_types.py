"""Types as an editor sees them: mypy on a user's script."""

import re
import subprocess
import sys

import pytest

pytest.importorskip("mypy", reason="needs the group lint")

SCRIPT = """
import numpy as np
from ledl import BatchedSearchCV, CRCClassifier, LEDLClassifier, LEDLClassifierCV, RejectingClassifier, explain
from ledl import SemiSupervisedClassifier

X, y = np.ones((10, 4)), np.arange(10) % 2
model = LEDLClassifier(alpha=0.1, rule="residual").fit(X, y, sample_weight=np.ones(10))
reveal_type(model)
reveal_type(model.predict(X))
reveal_type(model.components_)
reveal_type(model.history_["objective"])
reveal_type(CRCClassifier().fit(X, y).transform(X))
reveal_type(LEDLClassifierCV().fit(X, y).predict_proba(X))
reveal_type(RejectingClassifier(model).fit(X, y))
reveal_type(BatchedSearchCV(model, {}).fit(X, y))
reveal_type(RejectingClassifier(model).fit(X, y).components_)
reveal_type(RejectingClassifier(model).fit(X, y).p_values(X))
reveal_type(BatchedSearchCV(model, {}).fit(X, y).history_)
reveal_type(LEDLClassifierCV().fit(X, y).atom_classes_)
reveal_type(SemiSupervisedClassifier().fit(X, y).predict(X))
reveal_type(explain(model, X[0]).plot())
LEDLClassifier(rule="nearest")
LEDLClassifierCV(rules=["nearest"])
LEDLClassifier(class_weight="equal")
LEDLClassifier().fit(X)
"""
FOUND = [
    "LEDLClassifier",
    "ndarray",
    "ndarray",
    "ndarray",
    "ndarray",
    "ndarray",
    "RejectingClassifier",
    "BatchedSearchCV",
    "ndarray",
    "ndarray",
    "dict",
    "ndarray",
    "ndarray",
    "ExplanationDisplay",
]


def test_an_editor_knows_what_a_script_has(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "mypy.ini").write_text("[mypy]\nignore_missing_imports = true\n")
    command = [sys.executable, "-m", "mypy", "script.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    revealed = re.findall(r'type is "([\w.]+)', done.stdout)
    assert [kind.rpartition(".")[2] for kind in revealed] == FOUND, done.stdout
    errors = re.findall(r"script.py:(\d+): error: (.*)", done.stdout)
    assert [number for number, _ in errors] == ["22", "23", "24", "25"], done.stdout
    assert "'classifier', 'residual', 'regularized'" in errors[0][1]
