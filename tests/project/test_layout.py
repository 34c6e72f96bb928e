"""Tests lie where one looks for them: `src/ledl/PACKAGE/_module.py` has `tests/PACKAGE/test_module.py`."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE, TESTS = ROOT / "src" / "ledl", ROOT / "tests"

# Modules whose tests have another name, and why.
ELSEWHERE = {
    "__main__.py": "cli/test_console.py",  # all that it does is to start the command line
    "estimators/_base.py": "contract",  # shared by all classifiers, and tested on all of them
    "methods.py": "experiments/test_cells.py",
}
# Modules that only say what others do.
FACADES = {"__init__.py", "features.py"}


def test_a_module_with_logic_has_a_test_file():
    missing = []
    for path in sorted(SOURCE.rglob("*.py")):
        body = ast.parse(path.read_text()).body
        has_logic = any(isinstance(node, ast.FunctionDef | ast.ClassDef) for node in body)
        if path.name in FACADES or not has_logic:
            continue
        module = path.relative_to(SOURCE)
        expected = ELSEWHERE.get(str(module), module.parent / f"test_{module.name.removeprefix('_')}")
        if not (TESTS / expected).exists():
            missing.append(f"{module}: tests/{expected}")
    assert not missing
