"""Every public name says what it is, what it takes, what it returns, and how it is used.

The examples are run by doctest, which pytest collects from the package.
"""

import ast
import inspect
from importlib import import_module
from pathlib import Path

import pytest
from numpydoc.validate import validate

MODULES = [
    "ledl",
    "ledl.datasets",
    "ledl.features",
    "ledl.plots",
    "ledl.explanations",
    "ledl.persistence",
    "ledl.experiments",
]
ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference.rst"
VERBS = set((ROOT / "tests" / "helpers" / "verbs.txt").read_text("utf-8").split())

# numpydoc's codes: no docstring, no summary or one of several lines; parameters that are missing, unknown, out
# of order, without type or description, badly written; sections that are unknown or out of order.
EVERYWHERE = {"GL03", "GL06", "GL07", "GL08", "SS01", "SS06", "PR01", "PR02", "PR03", "PR04", "PR07", "PR10"}
# No section on what is returned, and no example.
RETURNS, EXAMPLES = "RT01", "EX01"


def public_names():
    """Classes and functions as users import them."""
    for module_name in MODULES:
        module = import_module(module_name)
        for name in module.__all__:
            found = getattr(module, name)
            if inspect.isclass(found) or inspect.isroutine(found):
                yield f"{module_name}.{name}", found


def public_methods():
    """Methods of public classes that this package wrote, inherited ones among them."""
    for name, found in public_names():
        for method in dir(found) if inspect.isclass(found) else []:
            written = inspect.unwrap(getattr(found, method)) if callable(getattr(found, method)) else None
            if not method.startswith("_") and getattr(written, "__module__", "").startswith("ledl"):
                yield f"{name}.{method}"


PUBLIC = dict(public_names())


def faults(name, codes):
    described = validate(name)
    found = {(code, text) for code, text in described["errors"] if code in codes}
    if "\nYields\n" in described["docstring"]:
        found = {fault for fault in found if fault[0] != RETURNS}
    return sorted(found)


def test_the_walk_finds_what_is_public():
    assert {"ledl.LEDLClassifier", "ledl.plots.AtomsDisplay", "ledl.datasets.load"} <= set(PUBLIC)
    assert "ledl.LEDLClassifier.fit" in set(public_methods())


@pytest.mark.parametrize("name", PUBLIC)
def test_names_are_described(name):
    assert not faults(name, EVERYWHERE | {EXAMPLES, RETURNS})


@pytest.mark.parametrize("name", list(public_methods()))
def test_methods_are_described(name):
    assert not faults(name, EVERYWHERE | {RETURNS})


@pytest.mark.parametrize("module", MODULES)
def test_the_reference_has_every_public_name(module):
    listed = set(REFERENCE.read_text("utf-8").split())
    names = {name.removeprefix(f"{module}.") for name in PUBLIC if name.rpartition(".")[0] == module}
    names |= {name for name in import_module(module).__all__ if name.isupper()}
    assert names <= listed, f"not in docs/reference.rst: {sorted(names - listed)}"


def without_a_verb(source):
    """Yield functions whose docstring does not begin with a verb. Properties are nouns."""
    for node in ast.walk(ast.parse(source)):
        names = {getattr(d, "attr", getattr(d, "id", "")) for d in getattr(node, "decorator_list", [])}
        if isinstance(node, ast.FunctionDef) and not names & {"property", "cached_property"}:
            words = (ast.get_docstring(node) or "Return").split()
            if words[0].strip(",.:;`") not in VERBS:
                yield f"{node.name}: {' '.join(words[:8])}"


def test_docstrings_of_functions_begin_with_a_verb():
    files = sorted((ROOT / "src").rglob("*.py"))
    assert not [f"{file.name}, {fault}" for file in files for fault in without_a_verb(file.read_text("utf-8"))]


def test_a_docstring_without_a_verb_is_found():
    source = 'def f():\n    "The codes."\n\n@property\ndef p(self):\n    "The codes."\n'
    assert list(without_a_verb(source)) == ["f: The codes."]


def test_a_poor_docstring_is_found(monkeypatch):
    monkeypatch.setattr(PUBLIC["ledl.sparse_encode"], "__doc__", "Codes.\n")
    codes = {code for code, _ in faults("ledl.sparse_encode", EVERYWHERE | {EXAMPLES, RETURNS})}
    assert {"PR01", EXAMPLES, RETURNS} <= codes
