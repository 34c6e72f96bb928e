"""Pages of explanations: judged from the parsed HTML, number by number and picture by picture."""

import base64
import io
import re
import sys
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import PIL.Image
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from helpers.models import make
from ledl import RejectingClassifier, explain
from ledl.datasets import few_shot_splits, load
from ledl.explanations import Pictures, page
from ledl.explanations._page import Gallery, Picture, signed_picture
from ledl.features import ImageError

NAMES = ["ledl", "src", "crc", "crc-regularized", "csdl", "ledl-rbf"]
VOID = {"meta", "img", "br"}


class Reader(HTMLParser):
    """Parse a page into elements with attributes and text; every tag that opens must close."""

    def __init__(self, text):
        super().__init__()
        self.open, self.elements = [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        element = {"tag": tag, "text": "", "in": [e["tag"] for e in self.open], **dict(attrs)}
        element["parents"] = list(self.open)
        self.elements.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_endtag(self, tag):
        assert self.open.pop()["tag"] == tag

    def handle_data(self, data):
        for element in self.open:
            element["text"] += data

    def all(self, tag, **attributes):
        return [
            e for e in self.elements if e["tag"] == tag and all(e.get(k) == v for k, v in attributes.items())
        ]

    def inside(self, parent, tag):
        return [e for e in self.elements if e["tag"] == tag and any(p is parent for p in e["parents"])]

    def section(self, name):
        found = self.all("section", id=name)
        return found[0] if found else None

    def pictures(self, parent=None):
        images = self.all("img") if parent is None else self.inside(parent, "img")
        return [PIL.Image.open(io.BytesIO(base64.b64decode(e["src"].split(",")[1]))) for e in images]


@pytest.fixture(scope="module")
def digits():
    data = load("digits")
    train, test = next(few_shot_splits(data.target, n_per_class=4))
    return data.data, data.target, train, test


@pytest.fixture(scope="module", params=NAMES)
def explanation(request, digits):
    X, y, train, test = digits
    return explain(make(request.param, random_state=0).fit(X[train], y[train]), X[test[100]])


@pytest.fixture(scope="module")
def by_samples(digits):
    X, y, train, test = digits
    return explain(make("src").fit(X[train], y[train]), X[test[100]])


def as_images(X):
    return [np.uint8(np.round(x.reshape(8, 8) * 255 / 16)) for x in X]


def jpeg(side=40, **options):
    values = np.random.default_rng(0).integers(0, 255, (side, side, 3), dtype=np.uint8)
    file = io.BytesIO()
    PIL.Image.fromarray(values).save(file, "JPEG", **options)
    return file.getvalue()


def numbers(reader, element):
    """Return the exact numbers of a row, and the numbers as shown."""
    found = reader.inside(element, "data")
    return [float(e["value"]) for e in found], [float(e["text"].replace("−", "-")) for e in found]


def waterfall(reader):
    (table,) = reader.all("table", **{"class": "waterfall"})
    rows = [(row["class"], *numbers(reader, row)) for row in reader.inside(table, "tr") if "class" in row]
    return [r[0] for r in rows], np.array([r[1] for r in rows]), np.array([r[2] for r in rows])


def test_the_waterfall_adds_up_to_the_score(explanation):
    kinds, exact, shown = waterfall(Reader(page(explanation)))
    best = explanation.ranking[:2]
    assert (kinds[0], kinds[-1]) == ("base", "total")
    assert_allclose(exact[0], explanation.base[best])
    assert_allclose(exact[-1], explanation.scores[best])
    assert_allclose(exact[:-1].sum(axis=0), exact[-1], atol=1e-9 * np.abs(exact).max())
    half_a_digit = 0.5 * 10.0 ** -max(len(f"{v:.10g}".partition(".")[2]) for v in shown.ravel())
    assert_allclose(shown, exact, atol=1.01 * half_a_digit)
    assert_allclose(shown[:-1].sum(axis=0), shown[-1], atol=1.01 * half_a_digit * len(shown))


def test_bars_lie_where_their_numbers_say(explanation):
    reader = Reader(page(explanation))
    (table,) = reader.all("table", **{"class": "waterfall"})
    _, exact, _ = waterfall(reader)
    levels = np.cumsum(exact[:-1], axis=0)
    low, high = min(levels.min(), 0), max(levels.max(), 0)
    rows = [row for row in reader.inside(table, "tr") if row.get("class", "").startswith("step")]
    n_bars = 0
    for i, row in enumerate(rows, 1):
        for column, cell in enumerate(reader.inside(row, "td")):
            for bar in reader.inside(cell, "i"):
                if bar["class"] == "zero":
                    continue
                n_bars += 1
                left, width = map(float, re.findall(r"[\d.]+(?=%)", bar["style"]))
                ends = np.sort(levels[i - 1 : i + 1, column])
                assert_allclose([left, left + width], 100 * (ends - low) / (high - low), atol=0.011)
                assert bar["class"] == ("plus" if exact[i, column] >= 0 else "minus")
    assert n_bars >= len(rows)


def class_table(reader, table):
    """Return names, exact values and lengths of bars of a table of classes."""
    rows = reader.inside(table, "tr")[1:]
    names = [reader.inside(row, "th")[0]["text"] for row in rows]
    values = [float(reader.inside(row, "data")[0]["value"]) for row in rows]
    styles = [[e["style"] for e in reader.inside(row, "i")] for row in rows]
    return names, values, [float(re.findall(r"width:([\d.]+)%", s[0])[0]) if s else 0.0 for s in styles]


def test_answer_and_scores(explanation):
    reader = Reader(page(explanation))
    assert [e["text"] for e in reader.all("h1")] == [str(explanation.predicted)]
    top, rest, scores = reader.all("table", **{"class": "classes"})
    best_first = [str(c) for c in explanation.classes[explanation.ranking]]
    assert class_table(reader, top)[0] == best_first[:5]
    assert class_table(reader, rest)[0] == best_first[5:]
    assert rest["in"].count("details") == 1
    names, values, lengths = class_table(reader, scores)
    assert names == best_first
    assert_allclose(values, np.sort(explanation.scores)[::-1])
    assert lengths[0] > lengths[1]
    assert (np.diff(lengths) <= 0).all()
    assert class_table(reader, top)[2] + class_table(reader, rest)[2] == lengths
    assert "This model gives no probabilities" in reader.inside(top, "caption")[0]["text"]
    lead = float(reader.inside(reader.all("span", id="lead")[0], "data")[0]["value"])
    assert_allclose(lead, values[0] - values[1])


@pytest.mark.parametrize("rule", ["classifier", "residual", "regularized"])
def test_probabilities_are_the_bars_of_the_head(rule, digits):
    X, y, train, test = digits
    model = make("ledl-cv", rules=rule, random_state=0).fit(X[train], y[train])
    p = model.predict_proba(X[test[100:101]])[0]
    reader = Reader(page(explain(model, X[test[100]])))
    assert reader.all("h1")[0]["text"] == f"{p.argmax()}, {100 * p.max():.0f} % sure"
    names, values, lengths = class_table(reader, reader.all("table")[0])
    assert names == [str(j) for j in np.argsort(-p)[:5]]
    assert_allclose(values, np.sort(p)[::-1][:5], rtol=1e-5)  # these are in float32
    assert_allclose(lengths, 100 * np.array(values), atol=0.0051)


def test_the_answer_and_the_look_alikes_come_first_and_the_arithmetic_is_folded(explanation, digits):
    X, _, train, _ = digits
    reader = Reader(page(explanation, Pictures(shape=(8, 8), training=as_images(X[train]))))
    order = [e for e in reader.elements if e["tag"] in ("img", "h1", "section", "details")]
    kinds = [e.get("id", e["tag"]) for e in order if "arithmetic" not in [p.get("id") for p in e["parents"]]]
    assert kinds[:4] == ["img", "h1", "details", "near"]
    assert kinds[4:-2] == ["img"] * len(explanation.neighbors)
    assert kinds[-2:] == ["why", "arithmetic"]
    (folded,) = reader.all("details", id="arithmetic")
    assert "open" not in folded
    assert reader.inside(folded, "summary")[0]["text"].startswith("The arithmetic")
    for name in ("sum", "atoms", "scores", "cosines", "fit", "read"):
        assert any(parent is folded for parent in reader.section(name)["parents"])
    before = "".join(e["text"] for e in [*reader.all("header"), reader.section("near"), reader.section("why")])
    assert not re.search(r"\b(atom|code)", before)
    meanings = {e["text"] for e in reader.inside(folded, "dt")}
    assert meanings == {"Atom", "Code"}


def test_another_class_than_the_runner_up_is_compared(digits):
    X, y, train, test = digits
    model = make("ledl-cv", random_state=0).fit(X[train], y[train])
    p = model.predict_proba(X[test[100:101]])[0]
    asked = p.argsort()[0]  # far from the first five
    found = explain(model, X[test[100]], against=asked)
    images = as_images(X[train])
    reader = Reader(page(found, Pictures(shape=(8, 8), training=images)))
    assert class_table(reader, reader.all("table")[0])[0] == [*(str(j) for j in np.argsort(-p)[:5]), str(asked)]
    assert reader.all("title")[0]["text"] == f"Why {p.argmax()} and not {asked}?"
    assert reader.inside(reader.section("why"), "h2")[0]["text"] == f"Why {p.argmax()} and not {asked}?"
    pictures = reader.pictures(reader.section("near-against"))
    assert len(pictures) == 4
    for picture, i in zip(pictures, found.against_neighbors, strict=True):
        assert y[train[i]] == asked
        assert_array_equal(np.asarray(picture.convert("L")), images[i])
    _, exact, _ = waterfall(reader)
    assert_allclose(exact[-1], found.scores[[p.argmax(), asked]])
    assert_allclose(exact[:-1].sum(axis=0), exact[-1], atol=1e-9 * np.abs(exact).max())
    cosines, _ = numbers(reader, reader.section("cosines"))
    assert_allclose(cosines, [*found.similarities, *found.against_similarities])


def test_bars_of_sums_grow_with_the_score(explanation):
    """Scores of residuals are negative: their bars begin at the worst score, not at 0."""
    reader = Reader(page(explanation))
    (total,) = reader.all("tr", **{"class": "total"})
    bars = [reader.inside(cell, "i")[-1] for cell in reader.inside(total, "td")]
    first, second = (float(re.findall(r"width:([\d.]+)%", bar["style"])[0]) for bar in bars)
    assert first > second


def test_cards_describe_their_atoms(explanation):
    reader = Reader(page(explanation, Pictures(shape=(8, 8))))
    cards = reader.all("article")
    atoms = [int(card["id"].split("-")[1]) for card in cards]
    assert_array_equal(atoms, explanation.decisive_atoms[: len(atoms)])
    assert 0 < len(cards) <= 10
    for k, card in zip(atoms, cards, strict=True):
        assert reader.inside(card, "h3")[0]["text"] == str(explanation.atom_classes[k])
        code = float(reader.inside(card, "b")[0]["text"].replace("−", "-"))
        assert abs(code - explanation.codes[k]) < 6e-4
        exact, _ = numbers(reader, card)
        assert_allclose(exact, explanation.contributions[k, explanation.ranking[:2]])
        for element, value in zip(reader.inside(card, "data"), exact, strict=True):
            assert element["text"].startswith(
                "+" if value >= 5e-3 else "−" if value <= -5e-3 else ("+", "−", "0")
            )
        pictures = reader.pictures(card)
        if explanation.atoms is None:
            assert pictures == []
        else:
            drawn = np.asarray(pictures[0].convert("RGB"))
            assert_array_equal(drawn, signed_picture(explanation.atoms[k], (8, 8)))


def test_links_lead_to_cards(explanation):
    reader = Reader(page(explanation))
    ids = [e["id"] for e in reader.elements if "id" in e]
    assert len(set(ids)) == len(ids)
    assert {e["href"] for e in reader.all("a")} == {f"#{card['id']}" for card in reader.all("article")}


def test_nothing_comes_from_elsewhere_and_everything_has_a_text(explanation, digits):
    X, _, train, _ = digits
    text = page(explanation, Pictures(shape=(8, 8), training=as_images(X[train])))
    reader = Reader(text)
    assert "script" not in {e["tag"] for e in reader.elements}
    assert "link" not in {e["tag"] for e in reader.elements}
    without_images = re.sub(r"data:image/[a-z]+;base64,[\w+/=]+", "", text)
    assert not re.search(r"https?:|//|url\(|@import", without_images)
    assert all("alt" in e for e in reader.all("img"))
    assert all(reader.inside(table, "caption") for table in reader.all("table"))
    assert len(reader.pictures()) > 10
    assert len(text) < 200_000
    assert text == page(explanation, Pictures(shape=(8, 8), training=as_images(X[train])))


def test_drawings_add_up(by_samples):
    """The sample is what the atoms draw and what they leave; the part of the best class is a part of it."""
    drawings = [d.source.astype(float) for d in Gallery(by_samples, Pictures(shape=(8, 8))).drawings()]
    sample, rebuilt, part, left = drawings
    assert_allclose(sample, 255 * by_samples.sample.reshape(8, 8) / by_samples.sample.max(), atol=0.51)
    inside = (by_samples.reconstruction >= 0) & (by_samples.reconstruction <= by_samples.sample.max())
    more_blue = (left[..., 2] - left[..., 0]).ravel()
    difference = (sample - rebuilt).ravel()
    assert (np.sign(more_blue) == np.sign(difference))[inside & (np.abs(difference) > 2)].all()
    own = by_samples.atom_classes == by_samples.predicted
    norm = np.linalg.norm(by_samples.sample)
    expected = norm * by_samples.codes[own] @ by_samples.atoms[own] / by_samples.sample.max()
    assert_allclose(part.ravel(), 255 * np.clip(expected, 0, 1), atol=0.51)
    reader = Reader(page(by_samples, Pictures(shape=(8, 8))))
    assert len(reader.pictures(reader.section("drawn"))) == 4


def test_training_images_stand_behind_learnt_atoms(digits):
    X, y, train, test = digits
    images = as_images(X[train])
    found = explain(make("ledl-rbf", random_state=0).fit(X[train], y[train]), X[test[100]])
    names = [f"folder/digit{i}.png" for i in train]
    reader = Reader(
        page(found, Pictures(as_images(X[test[100:101]])[0], None, images, names), title="number 100")
    )
    for card in reader.all("article"):
        k = int(card["id"].split("-")[1])
        pictures = [np.asarray(image.convert("L")) for image in reader.pictures(card)]
        assert len(pictures) == 4
        for picture, i in zip(pictures, found.atom_neighbors[k], strict=False):
            assert_array_equal(picture, images[i])
        assert f"digit{train[found.atom_neighbors[k, 0]]}.png" in card["text"]
    near = reader.section("near")
    for picture, i in zip(reader.pictures(near), found.neighbors, strict=True):
        assert_array_equal(np.asarray(picture.convert("L")), images[i])
    cosines, _ = numbers(reader, reader.section("cosines"))
    assert_allclose(cosines, found.similarities)
    assert reader.all("p", **{"class": "kicker"})[0]["text"] == "number 100"


def test_samples_that_are_atoms_are_drawn_as_neighbors(by_samples, digits):
    X, _, train, _ = digits
    reader = Reader(page(by_samples, Pictures(shape=(8, 8))))
    pictures = reader.pictures(reader.section("near"))
    for picture, i in zip(pictures, by_samples.neighbors, strict=True):
        x = X[train[i]].reshape(8, 8)
        assert_allclose(np.asarray(picture.convert("L")), 255 * x / x.max(), atol=0.51)


def test_two_classes(digits):
    X, y, train, test = digits
    few, other = train[y[train] < 2], test[y[test] == 1][0]
    model = make("ledl", random_state=0).fit(X[few], np.where(y[few] == 0, "good", "defect"))
    reader = Reader(page(explain(model, X[other])))
    assert reader.all("h1")[0]["text"] == "defect"
    assert len(reader.all("table", **{"class": "classes"})) == 2  # none for more classes
    _, exact, _ = waterfall(reader)
    assert_allclose(exact[-1, 1] - exact[-1, 0], model.decision_function(X[[other]])[0], rtol=1e-5)


def test_small_pictures_keep_their_pixels(by_samples, digits):
    """Given as arrays or as files, they are not blurred; larger ones are shown as photographs."""
    _, _, train, _ = digits
    for source, is_tiny in [(np.zeros((8, 8), np.uint8), True), (jpeg(40), True), (jpeg(100), False)]:
        reader = Reader(page(by_samples, Pictures(training=[source] * len(train))))
        large = [e for card in reader.all("article") for e in reader.inside(card, "img")]
        assert {e.get("class") == "tiny" for e in large} == {is_tiny}


def test_a_hundred_classes():
    rng = np.random.default_rng(0)
    X, y = rng.random((200, 30)), np.repeat(np.arange(100), 2)
    reader = Reader(page(explain(make("crc").fit(X, y), X[7] + 0.01)))
    assert reader.all("summary")[0]["text"] == "95 more classes"
    (idle,) = [e["text"] for e in reader.all("p") if "more atoms are used" in e["text"]]
    assert idle.startswith("196 more atoms are used")


@pytest.mark.filterwarnings("ignore:.*samples are all zero:UserWarning")
@pytest.mark.parametrize("name", ["ledl", "src"])
def test_a_sample_without_atoms(name, digits):
    X, y, train, _ = digits
    found = explain(make(name, random_state=0).fit(X[train], y[train]), np.zeros(64))
    reader = Reader(page(found, Pictures(shape=(8, 8))))
    assert (
        "The model knows nothing that is like this image" in reader.all("p", **{"class": "warning"})[0]["text"]
    )
    assert reader.section("sum") is None
    assert reader.section("atoms") is None
    assert reader.section("drawn") is None
    assert reader.section("near") is None
    assert reader.all("p", **{"class": "lead"})[0]["text"] == "level with 1"
    assert reader.inside(reader.all("table")[0], "i") == []


def test_rejected_and_not(digits):
    X, y, train, test = digits
    known = train[y[train] < 5]
    model = RejectingClassifier(make("src"), reject=0.1).fit(X[known], y[known])
    p = model.p_values(X[test])
    for i, title in [(test[p.argmin()], "None of these"), (test[p.argmax()], None)]:
        found = explain(model, X[i])
        reader = Reader(page(found))
        assert reader.all("h1")[0]["text"] == (title or str(found.predicted))
        (words,) = [e["text"] for e in reader.all("p", id="typical")]
        assert words.startswith("Unusual: only " if title else "Typical: ")
        assert ("none of the classes" in words) == (title is not None)
        why = reader.inside(reader.section("why"), "h2")[0]["text"]
        assert why == (f"Why is {found.predicted} the nearest?" if title else f"Why {found.predicted}?")
        share = float(re.search(r"([\d.]+) % of the training samples fit their class no better", words)[1])
        assert abs(share / 100 - found.p_value) < 0.006
    (doubted,) = Reader(page(replace(found, p_value=0.032))).all("p", id="typical")
    assert doubted["text"] == "Unusual: only 3.2 % of the training samples fit their class no better."


def test_names_of_strangers_are_text(digits, tmp_path):
    X, y, train, test = digits
    evil = np.array([f"<script>alert({i})</script>\"'&amp; {'long ' * 40}" for i in range(10)])
    model = make("src").fit(X[train], evil[y[train]])
    names = [f'"><img src=x onerror=alert({i})>' for i in train]
    found = explain(model, X[test[100]])
    pictures = Pictures(shape=(8, 8), names=names, training=as_images(X[train]))
    reader = Reader(page(found, pictures, title="<i>title</i>", model_note=[("<b>", "<u>\udcff")]))
    assert reader.all("h1")[0]["text"] == found.predicted
    assert not {"script", "u"} & {e["tag"] for e in reader.elements}
    assert all(e["src"].startswith("data:image/") and "onerror" not in e for e in reader.all("img"))
    (footer,) = reader.all("footer")
    assert {e["text"] for e in reader.inside(footer, "dd")} == {"<u>\\udcff"}
    assert reader.all("title")[0]["text"].startswith("<i>title</i>: <script>")
    found.to_html(tmp_path / "page.html", model_note=[("<b>", "<u>\udcff")])  # no text in UTF-8
    assert "&lt;u&gt;\\udcff" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_small_files_are_embedded_as_they_are_and_others_shrunk(by_samples, digits, tmp_path):
    _, _, train, _ = digits
    small, large = jpeg(), jpeg(900)
    PIL.Image.fromarray(np.zeros((300, 700), dtype=np.uint8)).save(tmp_path / "a.bmp")
    used = by_samples.decisive_atoms
    training = [small] * len(train)
    training[used[0]], training[used[1]] = large, tmp_path / "a.bmp"
    text = page(by_samples, Pictures(sample=large, training=training))
    reader = Reader(text)
    assert base64.b64encode(small).decode() in text
    assert base64.b64encode(large).decode() not in text
    pictures = reader.pictures()
    assert pictures[0].size == (512, 512)
    assert max(max(picture.size) for picture in pictures[1:]) == 224
    assert {reader.pictures(card)[0].size for card in reader.all("article")[:3]} == {
        (224, 224),
        (224, 96),
        (40, 40),
    }
    assert len(text) < 1_000_000


def test_an_image_that_is_given_is_left_as_it_is(by_samples, digits):
    _, _, train, _ = digits
    image = PIL.Image.new("RGB", (900, 700))
    page(by_samples, Pictures(sample=image, training=[image] * len(train)))
    assert image.size == (900, 700)


def test_the_name_of_the_file_is_the_title(by_samples, tmp_path):
    PIL.Image.fromarray(np.zeros((30, 20), dtype=np.uint8)).save(tmp_path / "x & y.png")
    by_samples.to_html(tmp_path / "page.html", sample=tmp_path / "x & y.png")
    reader = Reader((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert reader.all("p", **{"class": "kicker"})[0]["text"] == "x & y.png"
    assert str(tmp_path) not in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_what_cannot_be_drawn_is_refused_before_anything_is_written(by_samples, tmp_path):
    path = tmp_path / "page.html"
    path.write_text("before")
    for given, message in [
        ({"shape": (8, 9)}, r"shape=\(8, 9\).*64 features"),
        ({"shape": (64,)}, r"shape=\(64,\)"),
        ({"names": ["a"]}, r"names has 1 entries.*order"),
        ({"training": [b""]}, r"training has 1 entries"),
    ]:
        with pytest.raises(ValueError, match=message):
            by_samples.to_html(path, **given)
    with pytest.raises(ImageError, match="The sample cannot be read as an image"):
        by_samples.to_html(path, sample=b"\xff\xd8\xffno more than a signature" * 2000)
    with pytest.raises(ImageError, match=r"gone\.png is not a file"):
        by_samples.to_html(path, sample=tmp_path / "gone.png")
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_without_pillow(by_samples, monkeypatch, digits):
    _, _, train, _ = digits
    small = jpeg()
    with monkeypatch.context() as patch:
        for name in ("PIL", "PIL.Image"):
            patch.setitem(sys.modules, name, None)
        bare = Reader(page(by_samples, Pictures(shape=(8, 8))))
        some = Reader(page(by_samples, Pictures(training=[small] * len(train))))
        none = Reader(page(by_samples))
    assert bare.pictures() == []
    assert "Pillow is not installed" in bare.all("footer")[0]["text"]
    assert len(bare.all("article")) == len(none.all("article")) > 0
    assert len(some.pictures()) > 5  # they need no decoder
    assert "Pillow" not in none.all("footer")[0]["text"]


def test_pictures_in_colour():
    rng = np.random.default_rng(0)
    X, y = rng.random((20, 4 * 5 * 3)), np.repeat(np.arange(4), 5)
    found = explain(make("src").fit(X, y), X[3] * 0.9 + 0.02)
    reader = Reader(page(found, Pictures(shape=(4, 5, 3))))
    sample = np.asarray(reader.pictures()[0])
    spread = found.sample.max() - found.sample.min()
    assert_allclose(sample.ravel(), 255 * (found.sample - found.sample.min()) / spread, atol=0.51)
    assert {picture.size for picture in reader.pictures(reader.section("drawn"))} == {(5, 4)}


def test_a_tiny_lead_does_not_look_like_none(by_samples):
    first, second = by_samples.ranking[:2]
    contributions = by_samples.contributions.copy()
    surplus = by_samples.scores[first] - by_samples.scores[second] - 2e-6
    contributions[np.flatnonzero(contributions[:, first])[0], first] -= surplus
    scores = by_samples.base + contributions.sum(axis=0)
    found = replace(by_samples, contributions=contributions, scores=scores)
    (lead,) = Reader(page(found)).all("span", id="lead")
    assert lead["text"] == "0.0000020"


def test_bytes_that_claim_many_pixels_are_refused(monkeypatch):
    content = io.BytesIO()
    PIL.Image.new("L", (40, 30)).save(content, "PNG")
    monkeypatch.setattr("ledl.explanations._page.MAX_PIXELS", 1200)
    assert Picture(content.getvalue(), "small").opened().size == (40, 30)
    monkeypatch.setattr("ledl.explanations._page.MAX_PIXELS", 1199)
    with pytest.raises(ImageError, match="40 x 30 pixels"):
        Picture(content.getvalue(), "large").opened()
