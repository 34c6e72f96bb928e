"""The report: complete, self-contained, and right in a real browser."""

import re
import shutil
import subprocess
from html.parser import HTMLParser

import pytest

from ledl.experiments import METHODS, Plan, reproduce
from ledl.experiments._cells import run_cell
from ledl.experiments._report import find_remarks, write_page
from ledl.experiments._tables import Results

PLAN = Plan(("digits",), ("src", "crc", "lcksvd", "ledl", "logistic"), "defaults", n_per_class=2, n_splits=2)
VOID = {"meta", "img", "br"}
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    return reproduce(PLAN, tmp_path_factory.mktemp("report"))


class Checker(HTMLParser):
    """Collect the tags of a page, and those that are closed in the wrong order."""

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.problems = [], [], []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.problems.append(tag)


def test_the_page_is_well_formed_and_needs_nothing_else(outcome):
    checker = Checker()
    checker.feed(outcome.report.read_text())
    assert (checker.problems, checker.open) == ([], [])
    for tag, attributes in checker.tags:
        for name in ("src", "href"):
            assert attributes.get(name, "#").startswith(("#", "data:image/png;base64,")), (tag, attributes)
    anchors = {a["href"][1:] for tag, a in checker.tags if tag == "a"}
    assert anchors <= {a.get("id") for _, a in checker.tags}
    assert all(a.get("alt") for tag, a in checker.tags if tag == "img")
    assert sum(tag == "img" for tag, _ in checker.tags) == len(outcome.pictures) == 8


def test_only_sections_with_content_are_shown(outcome):
    def ids(**content):
        checker, given = Checker(), {"pictures": [], "remarks": [], "failures": [], **content}
        page = write_page(PLAN, outcome.tables, record={"a": "<"}, n_records=1, command="ledl <x>", **given)
        checker.feed(page)
        links = [attributes["href"][1:] for tag, attributes in checker.tags if tag == "a"]
        assert links == [a["id"] for tag, a in checker.tags if tag == "section"]
        assert "<pre>ledl &lt;x&gt;</pre>" in page
        return set(links)

    always = {table.name for table in outcome.tables} | {"how"}
    assert ids() == always
    assert ids(remarks=["a"]) == always | {"remarks"}
    assert ids(failures=["<b>"]) == always | {"failures"}
    assert ids(pictures=outcome.pictures) == always | {"figures"}


def test_the_page_names_the_best_method(outcome):
    best = max(outcome.rows, key=lambda row: row.accuracy_mean)
    lead = re.search("<p>(Highest mean accuracy: digits: .*)</p>", outcome.report.read_text())[1]
    n_level = sum(row.mark == "within noise" for row in outcome.rows)
    assert METHODS[best.method].title in lead
    assert (f"not significantly different from {n_level} other" in lead) == (n_level > 0)


def test_remarks_report_warnings_versions_and_shared_samples():
    plan = Plan(("digits",), ("crc", "src"), "defaults", n_splits=2)
    calm = {"warnings": [], "n_shared": 0, "made_by": {"commit": "a"}}
    cells = dict.fromkeys(plan.cells(), calm)
    assert find_remarks(Results(plan, cells)) == []
    (last,) = [cell for cell in cells if (cell.method, cell.seed) == ("src", 1)]
    settings = {"transform_tol": 0.01}
    cells[last] = {"warnings": ["B", "A"], "n_shared": 0, "made_by": {}, "agreement": 0.5, "settings": settings}
    (first,) = [cell for cell in cells if (cell.method, cell.seed) == ("src", 0)]
    cells[first] = {**calm, "n_shared": 3, "settings": settings}
    assert find_remarks(Results(plan, cells)) == [
        "SRC on digits: codes have a gap of at most 0.01. "
        "50.0 % of 200 labels per split are the same with a gap of 1e-06.",
        "SRC on digits: A, B in 1 of 2 splits.",
        "Cells come from 2 different commits or sets of packages. Each records its own.",
        "digits, split 0: 3 test samples are identical to a training sample.",
    ]


def test_semi_supervised_methods_have_their_tables_and_figure(tmp_path):
    plan = Plan(("digits",), ("label-propagation", "self-training-lda", "ledl-cv", "lda"), n_splits=1)
    cells = [*plan.cells(), *plan.new_sample_cells(), *plan.study_cells()]
    assert {cell.n_per_class for cell in cells} == {1, 2, 3, 5, 10}
    found = reproduce(plan, tmp_path)
    assert found.failures == []
    assert [table.name for table in found.tables] == ["accuracy", "new-samples", "labels", "settings"]
    assert "labels.png" in [picture.path.name for picture in found.pictures]
    for name in ("report.html", "table.md", "table.tex"):
        assert "Accuracy on new samples" in (tmp_path / name).read_text()
    assert "Labels of test samples choose nothing" in found.report.read_text()


def test_text_from_outside_cannot_become_markup(tmp_path, monkeypatch):
    def run(cell, device):
        if cell.method == "ridge":
            raise ValueError("<script>alert(1)</script>")
        return run_cell(cell)

    monkeypatch.setattr("ledl.experiments._cells.run_cell", run)
    plan = Plan(("digits",), ("crc", "ridge"), "defaults", n_splits=1)
    page = reproduce(plan, tmp_path, figures=False).report.read_text()
    assert "ValueError: &lt;script&gt;alert(1)" in page
    assert "<script>alert" not in page


def test_a_run_in_which_all_fails_has_no_report(tmp_path, monkeypatch):
    monkeypatch.setattr("ledl.experiments._cells.run_cell", lambda cell, device: 1 / 0)
    outcome = reproduce(Plan(("digits",), ("crc",), "defaults", n_splits=1), tmp_path, figures=False)
    assert outcome.report is None
    assert outcome.failures == ["digits, crc, split 0: ZeroDivisionError: division by zero"]


def browse(page, script, tmp_path, width=1200, *options):
    """Return the page after a script has run in it."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        pytest.skip(f"no browser: none of {', '.join(BROWSERS)} is installed")
    path = tmp_path / "page.html"
    text = page.read_text().replace("</body>", f"<script>{script}</script></body>")
    path.write_text(text)
    command = [
        browser, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-component-update",
        "--disable-background-networking", "--disable-sync", f"--user-data-dir={tmp_path / 'profile'}",
        f"--window-size={width},900", *options, "--dump-dom", path.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout


def column(dom, table, i):
    body = re.search(rf'id="{table}".*?<tbody>(.*?)</tbody>', dom, re.S).group(1)
    rows = [re.findall(r'data-value="([^"]*)"', row) for row in body.split("</tr>") if "<t" in row]
    return [row[i] for row in rows]


def test_a_click_sorts_the_table_and_a_second_one_the_other_way(outcome, tmp_path):
    """Accuracies from the highest down at first, names and times from the lowest up."""
    click = "document.querySelectorAll('#accuracy th button')[1].click();"
    for n_clicks, direction in [(1, -1), (2, 1)]:
        dom = browse(outcome.report, click * n_clicks, tmp_path)
        values = [float(value) for value in column(dom, "accuracy", 1)]
        assert values == sorted(values, key=lambda value: direction * value)
        assert ("descending" if n_clicks == 1 else "ascending") in dom
    names = "document.querySelectorAll('#accuracy th button')[0].click();"
    titles = column(browse(outcome.report, names, tmp_path), "accuracy", 0)
    assert titles == sorted(titles, key=str.lower)


def test_it_fits_a_phone_shows_its_pictures_and_knows_the_dark(outcome, tmp_path):
    script = """
    const images = [...document.images];
    document.title = JSON.stringify([
      document.documentElement.scrollWidth <= window.innerWidth,
      images.every((image) => image.complete && image.naturalWidth > 300),
      getComputedStyle(document.body).backgroundColor,
    ]);"""
    light = browse(outcome.report, script, tmp_path, 500)
    assert '<title>[true,true,"rgb(255, 255, 255)"]</title>' in light
    dark = browse(outcome.report, script, tmp_path, 500, "--blink-settings=preferredColorScheme=0")
    assert '<title>[true,true,"rgb(28, 25, 23)"]</title>' in dark
