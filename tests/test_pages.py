"""Pages are made from templates: values are escaped, none may be missing, and nothing is loaded."""

import sys

import pytest

from ledl.pages import data_uri, environment, render


@pytest.fixture
def templates(monkeypatch):
    """Return a dict for templates besides those of the package."""
    from jinja2 import ChoiceLoader, DictLoader

    found = {}
    overlay = environment().overlay(loader=ChoiceLoader([DictLoader(found), environment().loader]))
    monkeypatch.setattr("ledl.pages.environment", lambda: overlay)
    return found


def test_a_page_is_the_base_with_its_own_blocks(templates):
    templates["own.html"] = (
        '{% extends "base.html" %}{% block title %}{{ name }}{% endblock %}{% block body %}<p>{{ name }}</p>'
        "{% endblock %}{% block script %}<script>{{ code|safe }}</script>{% endblock %}"
    )
    page = render("own.html", name="<b>'\"&", code="1 < 2")
    assert page.startswith("<!doctype html>\n")
    assert page.endswith("</html>\n")
    assert "<title>&lt;b&gt;&#39;&#34;&amp;</title>" in page
    assert "<p>&lt;b&gt;&#39;&#34;&amp;</p>" in page
    assert "<script>1 < 2</script>" in page
    assert "prefers-color-scheme: dark" in page
    assert page == render("own.html", name="<b>'\"&", code="1 < 2")


def test_a_value_or_a_block_that_is_missing_is_an_error(templates):
    from jinja2 import TemplateError, UndefinedError

    templates["value.html"] = "{{ absent }}"
    with pytest.raises(UndefinedError, match="absent"):
        render("value.html")
    with pytest.raises(TemplateError, match="title"):
        render("base.html")


def test_images_become_addresses():
    assert data_uri(b"\x89PNG", "png") == "data:image/png;base64,iVBORw=="


def test_without_jinja2_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    environment.cache_clear()
    with pytest.raises(ImportError, match=r"Jinja2: pip install 'ledl\[cli\]'"):
        render("report.html")
