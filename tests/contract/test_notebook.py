"""What a notebook shows: explanations, estimators with links, results in a few lines."""

import html
import re

import matplotlib as mpl
import numpy as np
import pytest
from sklearn.base import clone

import ledl
from helpers.digits import few_digits
from helpers.models import ESTIMATORS, make
from ledl import BatchedSearchCV, RejectingClassifier, SemiSupervisedClassifier, explanations
from ledl.experiments import Plan, reproduce
from ledl.explanations import Pictures
from ledl.plots import ExplanationDisplay

mpl.use("agg")


@pytest.fixture(scope="module")
def explanation():
    X, y, new, _ = few_digits(1)
    return ledl.explain(make("ledl", random_state=0).fit(X, y), new[0])


def test_an_explanation_is_its_page(explanation, tmp_path):
    shown = explanation._repr_html_()
    assert re.fullmatch(r"<iframe [^<>]*></iframe>", shown)  # all of the page is escaped
    explanation.to_html(tmp_path / "why.html")
    inside = html.unescape(re.search(r'srcdoc="([^"]*)"', shown)[1])
    assert inside == (tmp_path / "why.html").read_text()
    assert "Explanation(" in repr(explanation)


def test_without_the_extra_an_explanation_is_text(explanation, monkeypatch):
    def missing(*args, **options):
        raise ImportError("jinja2")

    monkeypatch.setattr(explanations._explain, "page", missing)
    assert explanation._repr_html_() is None


def test_an_explanation_draws_itself(explanation):
    display = explanation.plot(Pictures(shape=(8, 8)), n_atoms=3)
    assert isinstance(display, ExplanationDisplay)
    assert len(display.axes_["atoms"]) == 3
    figure = mpl.figure.Figure()
    assert explanation.plot(figure=figure).figure_ is figure


@pytest.mark.parametrize("name", [name for name in ESTIMATORS if name != "nearest-subspace"])
def test_estimators_link_to_their_page(name, monkeypatch):
    monkeypatch.setenv("LEDL_DOCS", "https://docs.example.org/ledl/")
    kind = type(ESTIMATORS[name]).__name__
    for model in (make(name), RejectingClassifier(make(name))):
        address = f"https://docs.example.org/ledl/api/ledl.{type(model).__name__}.html"
        assert f'href="{address}"' in model._repr_html_()
    assert f"api/ledl.{kind}.html" in RejectingClassifier(make(name))._repr_html_()


def test_links_are_to_the_documentation_that_there_is(monkeypatch, tmp_path):
    models = [BatchedSearchCV(make("crc"), {}), SemiSupervisedClassifier(), make("nearest-subspace")]
    monkeypatch.setenv("LEDL_DOCS", str(tmp_path))
    links = [model._get_doc_link() for model in models]
    assert links == [
        f"{tmp_path.as_uri()}/api/ledl.BatchedSearchCV.html",
        f"{tmp_path.as_uri()}/api/ledl.SemiSupervisedClassifier.html",
        "",  # not a class of the library
    ]


def test_results_are_printed_in_a_few_lines(tmp_path):
    outcome = reproduce(Plan(methods=("crc", "1-nn"), select="defaults", n_splits=2), tmp_path, figures=False)
    printed = str(outcome)
    assert len(printed) < 500
    assert "1 table, 0 pictures" in printed
    assert "best: digits: 1-nn" in printed
    assert str(tmp_path / "report.html") in printed
    assert "3 failures" in repr(type(outcome)([], [], [], [], ["a", "b", "c"], None))


@pytest.mark.parametrize("name", ["ledl", "crc-regularized", "src", "lcksvd", "ledl-cv"])
def test_a_sample_of_zeros_warns(name):
    X, y, new, _ = few_digits(3)
    model = make(name, random_state=0).fit(X, y)
    model.predict(new)  # without a warning, which would be an error here
    new = np.concatenate([new, np.zeros((2, 64))])
    for method in ("predict", "decision_function", "transform"):
        with pytest.warns(UserWarning, match=r"2 of 5 samples are all zero.*their answers say nothing"):
            getattr(clone(model).fit(X, y), method)(new)
