"""Digests of code: they change with the code, and with nothing else."""

import copy
import importlib
import json
import os
import random
import subprocess
import sys
import threading
from functools import lru_cache, partial
from pathlib import Path

import numba
import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.stats import loguniform, rv_continuous, uniform
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import make_scorer
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

from ledl.code_digests import code_digests, described
from ledl.methods import own_method


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Return a function that writes a module, and returns it, imported or loaded again."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.delitem(sys.modules, "of_a_user", raising=False)

    def write(text, load=True):
        (tmp_path / "of_a_user.py").write_text(text)
        importlib.invalidate_caches()
        known = sys.modules.get("of_a_user")
        if load:
            known = importlib.reload(known) if known else importlib.import_module("of_a_user")
        return known

    yield write
    sys.modules.pop("of_a_user", None)


TEXT = """
def distance(a, b):
    return abs(a - b).sum()


def times(n):
    def inner(a, b):
        return n * distance(a, b)

    return inner
"""


def test_a_module_is_known_by_its_text(module):
    first = code_digests(KNeighborsClassifier(metric=module(TEXT).distance))
    assert first == code_digests(KNeighborsClassifier(metric=module(TEXT).distance))
    other = code_digests(KNeighborsClassifier(metric=module(TEXT + "# more\n").distance))
    assert {name for name in first if first[name] != other[name]} == {"of_a_user"}


def test_a_file_that_was_edited_but_not_loaded_again(module):
    user = module(TEXT)
    module(TEXT.replace("n * distance", "n + distance"), load=False)
    code_digests(user.distance)  # which is as it was
    with pytest.raises(ValueError, match=r"of_a_user.py has changed since it was imported.*importlib.reload"):
        code_digests(user.times)
    module(TEXT.replace("abs(a - b)", "(a - b)"), load=False)
    with pytest.raises(ValueError, match="has changed"):  # `times` uses it
        code_digests(user.times)
    module("def distance(:", load=False)
    with pytest.raises(ValueError, match="has changed"):
        code_digests(user.distance)


def test_an_inner_function_is_known_by_what_it_got(module):
    times = module(TEXT).times
    one, two, again = (code_digests(times(n))["of_a_user"] for n in (1, 2, 1))
    assert one == again != two


def test_code_is_found_in_steps_grids_and_lists(module):
    user = module(TEXT)
    for value in (
        make_pipeline(FunctionTransformer(user.distance), SVC()),
        GridSearchCV(KNeighborsClassifier(), {"metric": ["euclidean", user.distance]}),
        [{"a": [(user.distance,)]}],
    ):
        assert "of_a_user" in code_digests(value)
    assert "of_a_user" not in code_digests(SVC())


def test_changed_code_is_another_method(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    base = "from sklearn.neighbors import KNeighborsClassifier\nclass Mine(KNeighborsClassifier):\n    pass\n"
    digests = []
    for i, text in enumerate((base, base + "# another\n", base)):
        (tmp_path / f"mine_{i}.py").write_text(text)
        digests.append(own_method(f"mine_{i}:Mine").source)
    assert digests[0] != digests[1]
    assert own_method("mine_0:Mine").source == digests[0]


def test_functions_are_a_part_of_the_code(tmp_path):
    """A script whose numbers, functions and inner functions differ: no result of one is taken for the other."""
    script = tmp_path / "study.py"
    script.write_text(
        "import sys\n"
        "from ledl.methods import own_method\n"
        "from sklearn.neighbors import KNeighborsClassifier\n"
        "factor = int(sys.argv[1])\n"
        "def helper(a, b):\n    return factor * abs(a - b).sum() * (factor in {1, 2})\n"
        "def metric(a, b):\n    return helper(a, b)\n"
        "def scaled(by):\n    def inner(a, b):\n        return by * abs(a - b).sum()\n    return inner\n"
        "class Mine(KNeighborsClassifier):\n    n = 1\n    def fit(self, X, y):\n        return metric(X, y)\n"
        "for model in (*(KNeighborsClassifier(metric=m) for m in (metric, scaled(factor))), Mine()):\n"
        "    print(own_method(model).source['__main__'])\n"
    )

    def digests(factor):
        done = subprocess.run([sys.executable, script, str(factor)], capture_output=True, text=True, check=True)
        return done.stdout.split()

    one, same, two = digests(1), digests(1), digests(2)
    assert one == same
    assert len({*one, *two}) == 6


# Ways to hold a class or a function of a module.
HOLDERS = {
    "object": lambda user: RandomizedSearchCV(SVC(), {"C": user.Values()}),
    "method": lambda user: FunctionTransformer(user.Values().rvs),
    "scorer": lambda user: GridSearchCV(SVC(), {}, scoring=make_scorer(user.measure)),
    "closure": lambda user: FunctionTransformer(closed_over(user.measure)),
    "cache": lambda user: FunctionTransformer(lru_cache(user.measure)),
    "compiled": lambda user: KNeighborsClassifier(metric=numba.njit(user.measure)),
    "in an object": lambda user: FunctionTransformer(partial(Box.give, Box([user.measure]))),
}


@pytest.mark.parametrize("hold", HOLDERS.values(), ids=HOLDERS)
def test_the_code_of_all_that_parameters_hold_counts(hold, module):
    text = "class Values:\n    def rvs(self, **more):\n        return 1.0\n"
    text += "def measure(a, b):\n    return 1.0\n"
    first = code_digests(hold(module(text)))["of_a_user"]
    assert code_digests(hold(module(text)))["of_a_user"] == first
    assert code_digests(hold(module(text.replace("1.0", "2.0"))))["of_a_user"] != first


class Box:
    """An object whose `repr` hides what it holds."""

    def __init__(self, content):
        self.content, self.me = content, self

    def give(self):
        return self.content


def closed_over(content):
    return lambda X: X @ content


# What makes a value from a number: other numbers make other values.
VALUES = {
    "distribution": lambda n: loguniform(n, 10),
    "search": lambda n: RandomizedSearchCV(SVC(), {"C": uniform(0, n)}),
    "partial": lambda n: partial(np.dot, b=np.arange(5000) == n),
    "closure": lambda n: closed_over(np.full(3, n)),
    "nested": lambda n: make_pipeline(FunctionTransformer(closed_over([n])), SVC()),
    "object": lambda n: Box({"n": [n]}),
    "method": lambda n: Box(n).give,
    "method of an array": lambda n: np.full(3, n).dot,
    "compiled": lambda n: numba.njit(closed_over(n)),
    "cache": lambda n: lru_cache(closed_over(n)),
    "generator": np.random.RandomState,
    "set": lambda n: {f"a{n}", "b", "c", "d"},
    "keys": lambda n: {(1, n): 2, 3: 4},
    "objects": lambda n: np.array([None, n], dtype=object),
    "sparse": lambda n: csr_array([[0, n]]),
    "tree": lambda n: FrozenEstimator(DecisionTreeClassifier(random_state=0).fit([[0], [n]], [0, 1])),
    "fitted": lambda n: FrozenEstimator(KNeighborsClassifier(1).fit([[0], [n]], [0, 1])),
}


class Slope(rv_continuous):
    """A distribution of a user."""

    def _pdf(self, x):
        return 2 * x


# What holds a generator whose state is nobody's setting.
GENERATORS = {
    "function": lambda: np.random.standard_normal,
    "Python's": lambda: random.random,
    "distribution": lambda: copy.deepcopy(Slope(a=0, b=1)),
}


@pytest.mark.parametrize("make", GENERATORS.values(), ids=GENERATORS)
def test_the_state_of_shared_generators_does_not_count(make):
    first = described(make())
    random.random()
    np.random.rand()  # noqa: NPY002
    assert described(make()) == first


def test_a_module_with_the_name_of_one_of_pythons_own_has_a_digest(tmp_path, monkeypatch):
    (tmp_path / "graphlib.py").write_text("def measure(a, b):\n    return 1.0\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "graphlib", raising=False)
    user = importlib.import_module("graphlib")
    assert "graphlib" in code_digests(KNeighborsClassifier(metric=user.measure))
    assert "functools" not in code_digests(partial(user.measure, 1))


@pytest.mark.parametrize("make", VALUES.values(), ids=VALUES)
def test_values_are_described_by_what_they_hold(make):
    first = described({"x": make(1)})
    assert json.loads(json.dumps(first)) == first == described({"x": make(1)})
    assert described({"x": copy.deepcopy(make(1))}) == first  # as clone makes it
    assert described({"x": make(2)}) != first


def test_descriptions_are_those_of_every_process():
    made = "t.described(t.copy.deepcopy(make(1))) for make in t.VALUES.values()"
    code = f"import test_code_digests as t; print(t.json.dumps([{made}]))"
    paths = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    found = []
    for seed in ("1", "2"):  # of the order of sets; NumPy's own generator has another state, too
        environment = {**os.environ, "PYTHONPATH": paths, "PYTHONHASHSEED": seed}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        found.append(json.loads(done.stdout))
    assert found[0] == found[1]
    assert len(found[0]) == len(VALUES)


def test_objects_that_hide_their_content_are_refused():
    with pytest.raises(ValueError, match=r"lock.*cannot be distinguished.*pickled"):
        described({"memory": threading.Lock()})
