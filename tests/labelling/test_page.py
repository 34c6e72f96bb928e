"""The page of `ledl label`, as a person uses it: a real server, a real browser, and mostly keys.

With LEDL_PICTURES=docs/images the pictures of the docs are written again.
"""

import itertools
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits

from helpers.label_server import Running

sync_api = pytest.importorskip("playwright.sync_api", reason="needs Playwright: the group test")
expect = sync_api.expect

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
N = 400  # images; enough for models, few enough for a test
TRUTH = dict(zip((f"{i:04d}.png" for i in range(N)), load_digits().target.astype(str).tolist(), strict=False))
WORDS = {"0": "zero", "1": "one", "2": "two", "3": "three", "4": "four", "5": "five"}
NASTY = """<img src=x onerror="document.title='owned'"> & 'שלום' {{7*7}} `"""
OVERRIDE = "gnp\u202eexe"  # shown, it would turn what follows it


def write_images(folder, n):
    folder.mkdir()
    images = load_digits().images
    for i in range(n):
        padded = np.pad(images[i % len(images)], 2)
        picture = Image.fromarray(np.uint8(255 - 15.9 * padded))
        picture.resize((48, 48), Image.Resampling.BICUBIC).save(folder / f"{i:04d}.png")
    return folder


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    return write_images(tmp_path_factory.mktemp("page") / "digits", N)


@pytest.fixture(scope="module")
def browser():
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip(f"needs a browser: none of {', '.join(BROWSERS)} is on the PATH")
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path)
        yield started
        started.close()


@pytest.fixture
def start(digits, tmp_path):
    """Return a function that starts the server, on the same labels each time."""
    running = []

    def start(folder=digits):
        store = ("--labels", "none", "--store", tmp_path / "labels", "--features", "pixels", "--size", 12)
        running.append(Running(folder, *store))
        return running[-1]

    yield start
    for server in running:
        if server.process.poll() is None:
            server.kill()


@pytest.fixture
def visit(browser):
    """Return a function that opens a page. At the end, nothing must have gone wrong in it."""
    problems = []
    contexts = []

    def visit(server, hash_="", **options):
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **options})
        context.set_default_timeout(30_000)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda said: problems.append(said.text) if said.type == "error" else None)
        page.goto(server.address)
        if hash_:
            page.locator('#views [aria-current="true"]').wait_for()  # it has written its own hash
            page.goto(f"http://127.0.0.1:{server.port}/#{hash_}")
            page.reload()
        return page

    yield visit
    for context in contexts:
        context.close()
    # Requests that fail while there is no server, or that are refused, are said by the browser, too.
    assert [problem for problem in problems if "Failed to load resource" not in problem] == []


def current(page):
    """Return the number and the name of the image with the cursor."""
    tile = page.locator(".tile.current[aria-label]")
    tile.wait_for()
    return int(tile.get_attribute("data-id")), tile.get_attribute("title")


def class_names(page):
    return page.locator("#classes bdi.name").all_inner_texts()


def press_label(page, name):
    """Label the image with the cursor by keys alone: by the key of the class, or by typing its name."""
    known = class_names(page)
    if name in known:
        keys = page.locator("#classes li").nth(known.index(name)).locator("kbd")
        page.keyboard.press(keys.first.inner_text())
        return
    if not page.locator("#name:focus").count():
        page.keyboard.press("+")
    page.keyboard.type(name)
    page.keyboard.press("Enter")


def answer_questions(page, n, names=TRUTH.get):
    """Answer n questions; return what was said about which image."""
    said = {}
    for _ in range(n):
        key, file = current(page)
        assert file not in said, "asked twice"
        press_label(page, names(file))
        said[file] = names(file)
        expect(page.locator(f"#tile-{key}.current")).to_have_count(0)
    return said


def stored(server):
    """Return the labels that the server has, by file."""
    names = {one["id"]: one["name"] for one in server.state()["classes"]}
    status, found = server.ask("/api/images?view=all&state=labelled&limit=1000")
    assert status == 200
    return {image["name"]: names[image["label"]] for image in found["items"]}


def teach(server, n, names=TRUTH.get):
    """Label the first n images without the page, and wait for the model."""
    ids = {image["name"]: image["id"] for image in server.ask("/api/images?limit=1000")[1]["items"]}
    groups = {}
    for file in itertools.islice(ids, n):
        groups.setdefault(names(file), []).append(ids[file])
    for name, images in groups.items():
        made = server.ask("/api/classes", {"name": name})[1]["class"]
        status, _ = server.ask("/api/answers", {"images": images, "class": made, "view": "all", "model": None})
        assert status == 200
    return server.wait(lambda state: state["model"] is not None and state["model"]["labels"] == n)


def count_labelled(page, n):
    expect(page.locator("#labelled")).to_have_text(f"{n:,}")


def test_fifty_labels_by_keyboard_alone_with_a_reload_in_the_middle(start, visit):
    server = start()
    page = visit(server)
    expect(page.get_by_role("heading", name="Type a name for what you see")).to_be_visible()
    expect(page.locator("#name")).to_be_focused()
    said = answer_questions(page, 25)
    expect(page.locator("#first")).to_be_hidden()
    page.reload()
    said |= answer_questions(page, 25)
    assert len(said) == 50
    count_labelled(page, 50)
    assert stored(server) == said
    # The estimate comes after its lesson: that of earlier labels may still stand when nothing is being learnt.
    state = server.wait(lambda state: state["curve"] and state["curve"][-1]["labels"] == 50)
    low, high = (round(100 * state["estimate"][key]) for key in ("low", "high"))
    words = page.locator("#accuracy")
    expect(words).to_have_text(re.compile(r"About \d+ % of the suggestions are right"))
    expect(words).to_contain_text(f"({low} to {high} %, from {state['estimate']['n_checks']} random checks)")


def test_a_kill_of_the_server_loses_nothing_and_the_page_goes_on(start, visit):
    server = start()
    page = visit(server)
    said = answer_questions(page, 6)
    count_labelled(page, 6)
    server.kill()
    said |= answer_questions(page, 3)
    banner = page.get_by_role("alert").filter(has_text="The server does not answer")
    expect(banner).to_contain_text("3 answers are kept here")
    expect(page.locator(".tile.saving")).to_have_count(3)
    again = start()
    assert again.port == server.port
    expect(banner).to_be_hidden()
    expect(page.locator(".tile.saving")).to_have_count(0)
    count_labelled(page, 9)
    assert stored(again) == said
    said |= answer_questions(page, 4)
    count_labelled(page, 13)
    assert stored(again) == said


def test_answers_outlive_a_reload_while_they_wait(start, visit):
    server = start()
    page = visit(server)
    said = answer_questions(page, 4)
    count_labelled(page, 4)
    page.route("**/api/answers", lambda route: route.abort())
    said |= answer_questions(page, 2, lambda file: said and next(iter(said.values())))
    page.unroute("**/api/answers")
    page.reload()
    count_labelled(page, 6)
    assert stored(server) == said


def test_a_name_is_typed_although_its_first_letter_is_a_key(start, visit):
    server = start()
    page = visit(server)
    said = {}
    for name in ("green", "green", "gravel"):  # from the second on, g is the key of "green"
        key, file = current(page)
        page.keyboard.type(name, delay=20)
        if said:
            expect(page.locator("#name")).to_have_value(name)
            expect(page.locator(f"#tile-{key}.current")).to_have_count(1)
        page.keyboard.press("Enter")
        said[file] = name
        expect(page.locator(f"#tile-{key}.current")).to_have_count(0)
    count_labelled(page, 3)
    assert stored(server) == said


def test_one_key_undoes_and_one_redoes(start, visit):
    server = start()
    page = visit(server)
    said = answer_questions(page, 3)
    count_labelled(page, 3)
    _, file = current(page)
    page.keyboard.press("-")
    expect(page.locator("#total")).to_contain_text("1 “cannot say”")
    page.keyboard.press("Backspace")
    expect(page.locator("#total")).not_to_contain_text("cannot say")
    expect(page.locator(".tile.current")).to_have_attribute("title", file)
    page.keyboard.press("Backspace")
    count_labelled(page, 2)
    last = list(said)[-1]
    expect(page.locator(".tile.current")).to_have_attribute("title", last)
    expect(page.get_by_role("status").last).to_contain_text("Undone")
    assert stored(server) == {name: said[name] for name in said if name != last}
    page.keyboard.press("Shift+Backspace")
    count_labelled(page, 3)
    assert stored(server) == said


def test_a_nasty_name_is_text_and_a_refused_one_brings_its_image_back(start, visit):
    server = start()
    page = visit(server)
    key, _ = current(page)
    page.keyboard.type(NASTY)
    page.keyboard.press("Enter")
    name = page.locator("#classes bdi.name")
    expect(name).to_have_text(NASTY)
    expect(page.locator(f"#tile-{key} bdi.given")).to_have_text(NASTY)
    assert list(stored(server).values()) == [NASTY]
    page.locator(".more").focus()
    page.keyboard.press("Enter")  # the sheet that changes the class shows it, too
    expect(page.get_by_role("dialog").locator("bdi")).to_have_text(NASTY)
    page.keyboard.press("Escape")
    assert page.locator("[onerror]").count() == 0
    assert "owned" not in page.title()

    page.locator("#grid").focus()
    key, _ = current(page)
    page.keyboard.press("+")
    page.keyboard.insert_text(OVERRIDE)
    page.keyboard.press("Enter")
    refusal = page.get_by_role("alert").filter(has_text="not labelled")
    _, why = server.ask("/api/classes", {"name": OVERRIDE})
    expect(refusal).to_contain_text(why["error"])
    assert current(page)[0] == key
    expect(page.locator(f"#tile-{key}")).not_to_have_class(re.compile("answered"))
    assert list(stored(server).values()) == [NASTY]


def test_what_is_seen_in_check_is_confirmed_with_one_key(start, visit):
    server = start()
    state = teach(server, 60)
    page = visit(server, "check")
    ticked = page.locator(".tile.ticked")
    ticked.first.wait_for()
    chosen = int(page.locator("#which").input_value())
    most = max(one["n_suggested"] for one in state["classes"])
    assert [one["n_suggested"] for one in state["classes"] if one["id"] == chosen] == [most]
    asked = server.ask(f"/api/ids?view=check&class={chosen}")[1]["ids"]
    expect(ticked).to_have_count(min(40, most))
    shown = [int(tile.get_attribute("data-id")) for tile in ticked.all()]
    assert shown == asked[: len(shown)]
    page.keyboard.press("ArrowRight")
    page.keyboard.press("-")  # the second is not confirmed
    expect(ticked).to_have_count(len(shown) - 1)
    page.keyboard.press("Enter")
    count_labelled(page, 60 + len(shown) - 1)
    labels = {image["id"]: image for image in server.ask("/api/images?limit=1000")[1]["items"]}
    assert {labels[key]["label"] for key in shown[:1] + shown[2:]} == {chosen}
    assert labels[shown[1]]["label"] is None
    assert labels[shown[1]]["skipped"]
    page.keyboard.press("Backspace")  # one request, one key
    count_labelled(page, 60)


def test_a_range_is_selected_with_shift_and_labelled_at_once(start, visit):
    server = start()
    state = teach(server, 30)
    page = visit(server, "all")
    page.locator(".tile.current[aria-label]").wait_for()
    for key in ("ArrowDown", "ArrowDown", "Shift+ArrowRight", "Shift+ArrowRight", "Shift+ArrowDown"):
        page.keyboard.press(key)
    selected = page.locator(".tile[aria-selected=true]")
    keys = [int(tile.get_attribute("data-id")) for tile in selected.all()]
    expect(page.locator("#accept")).to_contain_text(f"({len(keys)})")
    order = server.ask("/api/ids?view=all")[1]["ids"]
    first = order.index(keys[0])
    assert keys == order[first : first + len(keys)]
    assert len(keys) > 4
    page.keyboard.press(page.locator("#classes kbd").first.inner_text())
    expect(page.get_by_role("status").last).to_contain_text(f"{len(keys)} images: labelled")
    expect(page.locator(".tile.saving")).to_have_count(0)
    found = server.ask(f"/api/images?ids={','.join(map(str, keys))}")[1]["items"]
    assert {image["label"] for image in found} == {state["classes"][0]["id"]}


def test_doubtful_labels_are_changed_or_kept(start, visit):
    wrong = {"0010.png": "1", "0011.png": "0"}  # a 0 and a 1
    server = start()
    teach(server, 120, lambda file: wrong.get(file, TRUTH[file]))
    n = server.wait(lambda state: state["n_doubtful"] >= 2)["n_doubtful"]
    found = server.ask("/api/images?view=doubtful")[1]["items"]
    assert {image["name"] for image in found[:2]} == set(wrong)
    page = visit(server, "doubtful")
    expect(page.locator("#doubts")).to_have_text(str(n))
    changed = current(page)[1]
    page.keyboard.press("Enter")
    kept = current(page)[1]
    page.keyboard.press("Shift+Enter")
    assert {changed, kept} == set(wrong)
    expect(page.locator(".tile.saving")).to_have_count(0)
    server.wait(lambda state: not state["learning"])
    labels = stored(server)
    assert labels[changed] == TRUTH[changed]
    assert labels[kept] == wrong[kept]
    left = {image["name"] for image in server.ask("/api/images?view=doubtful")[1]["items"]}
    assert not left & set(wrong)


def test_a_new_model_changes_suggestions_and_moves_nothing(start, visit):
    server = start()
    before = teach(server, 20)["model"]["labels"]
    page = visit(server)
    current(page)
    places = [(tile.get_attribute("data-id"), tile.bounding_box()) for tile in page.locator(".tile").all()]
    assert len(places) == 10
    answer_questions(page, 2)
    here = current(page)
    # The model of both answers: there may be one of the first alone before it.
    server.wait(lambda state: state["model"]["labels"] == before + 2 and not state["learning"])
    expect(page.locator("#doing")).to_have_text(f"Learnt from {before + 2} labels.")
    assert [
        (tile.get_attribute("data-id"), tile.bounding_box()) for tile in page.locator(".tile").all()
    ] == places
    assert current(page) == here
    items = server.ask(f"/api/images?ids={','.join(key for key, _ in places)}")[1]["items"]
    for image in (image for image in items if image["label"] is None):
        number = page.locator(f"#tile-{image['id']} .number")
        expect(number).to_have_text(f"{int(100 * image['probability'] + 0.5)} %")


def test_a_filter_finds_labels_and_suggestions_and_outlives_its_class(start, visit):
    server = start()
    state = teach(server, 60)
    page = visit(server)
    page.get_by_role("button", name="All", exact=True).click()
    one = state["classes"][0]
    page.locator("#of").select_option(str(one["id"]))
    expect(page.locator("#about")).to_have_text(
        f"{one['count'] + one['n_suggested']} images. Those with “?” are suggestions."
    )
    guesses = page.locator(".tile .guess")
    guesses.first.wait_for()
    assert {*guesses.all_inner_texts()} == {one["name"]}
    other = state["classes"][1]["id"]
    assert server.ask(f"/api/classes/{one['id']}/merge", {"into": other})[0] == 200
    expect(page.locator("#about")).to_have_text(f"{N} images")
    expect(page.locator("#of")).to_have_value("")
    expect(page.locator("#said")).not_to_contain_text("There is no class")


def test_the_page_says_that_all_is_done(start, visit, tmp_path):
    server = start(write_images(tmp_path / "few", 12))
    page = visit(server)
    answer_questions(page, 12, names=lambda file: WORDS.get(TRUTH[file], "more"))
    expect(page.locator("#empty")).to_contain_text("Every image has an answer")
    expect(page.locator("#about")).to_have_text("")


def test_only_what_is_visible_is_in_the_page(tmp_path, start, visit):
    n = 3000
    server = start(write_images(tmp_path / "many", n))
    page = visit(server, "all")
    asked = []
    page.on("request", lambda request: asked.append(request.url) if "/thumb/" in request.url else None)
    tiles = page.locator(".tile")
    current(page)
    assert tiles.first.get_attribute("aria-setsize") == str(n)
    assert 10 < tiles.count() < 100
    page.keyboard.press("End")
    expect(page.locator(".tile.current")).to_have_attribute("aria-posinset", str(n))
    expect(page.locator(".tile.current")).to_be_in_viewport()
    for _ in range(20):
        page.mouse.move(400, 400)
        page.mouse.wheel(0, -1500)
        assert tiles.count() < 100
    page.keyboard.press("Home")
    expect(page.locator(".tile.current")).to_have_attribute("aria-posinset", "1")
    expect(page.locator(".tile.current img")).to_have_js_property("complete", True)
    assert len(asked) < n / 2
    page.keyboard.press("/")
    page.keyboard.type("277")
    expect(page.locator("#about")).to_have_text("13 images")  # 0277, 1277, 2277 and 2770 to 2779


def test_the_large_view_says_why_and_takes_labels(start, visit):
    server = start()
    teach(server, 30)
    page = visit(server)
    key, file = current(page)
    page.keyboard.press("Space")
    large = page.get_by_role("region", name="Large view")
    expect(large.get_by_role("heading", name=file)).to_be_visible()
    _, why = server.ask(f"/api/explain/{key}")
    expect(large.locator(".bars li")).to_have_count(len(why["ranking"]))
    expect(large.locator(".because img")).to_have_count(len(why["because"]))
    expect(large.get_by_text(why["text"])).to_be_visible()
    press_label(page, TRUTH[file])
    expect(large.get_by_role("heading", name=file)).to_have_count(0)  # the next image
    assert current(page)[0] != key
    page.keyboard.press("Space")
    expect(large).to_be_hidden()
    expect(page.locator("#grid")).to_be_focused()
    count_labelled(page, 31)
    assert stored(server)[file] == TRUTH[file]


def test_classes_are_renamed_and_merged_by_keys(start, visit):
    server = start()
    teach(server, 30)
    page = visit(server)
    current(page)
    first, second = (row.inner_text() for row in page.locator("#classes bdi.name").all()[:2])
    before = list(stored(server).values())
    page.get_by_role("button", name=f"Rename, merge or delete {first}", exact=True).focus()
    page.keyboard.press("Enter")
    page.keyboard.type(second)  # the old name is selected
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("merge")
    page.keyboard.press("Control+A")
    page.keyboard.type("nought")
    page.keyboard.press("Enter")
    expect(page.locator("#classes bdi.name").first).to_have_text("nought")
    expect(page.get_by_role("dialog")).to_be_hidden()  # the list may know it before the sheet does
    page.get_by_role("button", name="Rename, merge or delete nought").focus()
    page.keyboard.press("Enter")
    page.get_by_role("combobox", name="Merge into").focus()
    page.keyboard.type(second)
    page.get_by_role("button", name="Merge", exact=True).focus()
    page.keyboard.press("Enter")
    expect(page.locator("#classes").get_by_text("nought")).to_have_count(0)
    expect(page.get_by_role("dialog")).to_be_hidden()
    after = list(stored(server).values())
    assert after.count(second) == before.count(first) + before.count(second)
    for _ in range(2):
        page.keyboard.press("Backspace")
    expect(page.locator("#classes bdi.name").first).to_have_text(first)
    assert list(stored(server).values()) == before


def test_a_second_enter_does_not_rename_twice(start, visit):
    server = start()
    teach(server, 30)
    page = visit(server)
    current(page)
    asked = []

    def slow(route):
        asked.append(route.request.url)
        page.wait_for_timeout(500)
        route.continue_()

    page.route(re.compile(r"/api/classes/\d+$"), slow)
    first = class_names(page)[0]
    page.get_by_role("button", name=f"Rename, merge or delete {first}", exact=True).click()
    page.keyboard.type("nought")
    for _ in range(3):
        page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_hidden()
    expect(page.locator("#classes bdi.name").first).to_have_text("nought")
    page.keyboard.press("Backspace")
    expect(page.locator("#classes bdi.name").first).to_have_text(first)
    assert len(asked) == 1


def test_the_help_sheet(start, visit):
    page = visit(start())
    current(page)
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    sheet = page.get_by_role("dialog", name="Keys")
    expect(sheet).to_be_visible()
    for what in ("Enter", "Backspace", "Space", "Delete"):
        expect(sheet.locator("kbd", has_text=what).first).to_be_visible()
    page.keyboard.press("Escape")
    expect(sheet).to_be_hidden()
    expect(page.locator("#grid")).to_be_focused()


def test_export_offers_downloads_and_commands(start, visit, digits, tmp_path):
    server = start()
    teach(server, 30)
    page = visit(server)
    page.get_by_role("button", name="Export").click()
    with page.expect_download() as download:
        page.get_by_role("link", name="labels.csv").click()
    table = Path(download.value.path()).read_text()
    assert len(table.splitlines()) == N + 1
    expect(page.get_by_role("dialog").locator("code").first).to_have_text(
        f"ledl label {digits} --store {tmp_path / 'labels'} --export sorted/"
    )


KEYS_OF = """async ([names, before]) => {
  const { giveKeys } = await import("/static/keys.js");
  return giveKeys(names.map((name, id) => ({ id, name })), before);
}"""


def test_keys_come_from_names_and_stay(start, visit):
    page = visit(start())

    def keys(names, before=None):
        given = page.evaluate(KEYS_OF, [names, before or {}])
        return given, [(one.get("digit"), one.get("letter")) for one in given.values()]

    given, pairs = keys(["cat", "car", "Äpfel"])
    assert pairs == [("1", "c"), ("2", "r"), ("3", "a")]
    _, pairs = keys(["cat", "car", "Äpfel", "rat", "apple pie"], given)
    assert pairs[:3] == [("1", "c"), ("2", "r"), ("3", "a")]  # fingers need not learn anew
    assert pairs[3:] == [("4", "t"), ("5", "p")]
    assert keys(["3", "0", "x"])[1] == [("3", None), ("0", None), (None, "x")]  # a digit means its class
    _, pairs = keys([f"class {i}" for i in range(40)])
    taken = [key for pair in pairs for key in pair if key]
    assert len(taken) == len(set(taken)) == 35  # nine digits, all letters
    assert all(any(pair) for pair in pairs[:26])


CONTRASTS = """() => {
  const numbers = (color) => (color.match(/[\\d.]+/g) ?? []).map(Number);
  const light = (rgb) => {
    const linear = (v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    const [r, g, b] = rgb.map((v) => linear(v / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const below = (node) => {
    for (; node; node = node.parentElement) {
      const [r, g, b, a = 1] = numbers(getComputedStyle(node).backgroundColor);
      if (a === 1) return [r, g, b];
    }
    return [255, 255, 255];
  };
  const found = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const node = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || !node.checkVisibility()) continue;
    if (node.closest(":disabled, noscript, option")) continue;
    const [a, b] = [light(numbers(getComputedStyle(node).color).slice(0, 3)), light(below(node))];
    found.push([texts.currentNode.data.trim(), (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)]);
  }
  return found;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_is_easy_to_read_in_both_schemes(scheme, start, visit):
    server = start()
    teach(server, 30)
    page = visit(server, color_scheme=scheme)
    current(page)
    paper = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(255, 255, 255)") == (scheme == "light")
    for key in ("Enter", "Space", "Shift+C", "?"):
        page.keyboard.press(key)
        found = page.evaluate(CONTRASTS)
        assert len(found) > 30
        assert [pair for pair in found if pair[1] < 4.5] == []  # WCAG's AA


def test_screen_readers_get_names(start, visit):
    server = start()
    teach(server, 30)
    page = visit(server)
    _, file = current(page)
    images = page.get_by_role("listbox", name="Images")
    expect(images.get_by_role("option")).to_have_count(10)
    expect(images.get_by_role("option", selected=True)).to_have_accessible_name(
        re.compile(rf"{file}, suggested \d, \d+ % sure")
    )
    assert images.get_attribute("aria-activedescendant") == f"tile-{current(page)[0]}"
    for role in ("button", "textbox", "combobox", "slider"):
        for one in page.get_by_role(role).all():
            expect(one).to_have_accessible_name(re.compile(r"\S"))
    page.keyboard.press("Enter")
    expect(page.get_by_role("status").last).to_have_text(re.compile("1 image: labelled"))


def test_every_part_fits_a_narrow_window(start, visit):
    server = start()
    teach(server, 30, lambda file: f"Vaccinium myrtillus, leaves and fruit, plot number {TRUTH[file]}")
    page = visit(server, viewport={"width": 390, "height": 844})
    current(page)
    assert page.evaluate("() => document.documentElement.scrollWidth") == 390
    for part in ("#views", "#grid", "#accept", "#name", "#classes"):
        box = page.locator(part).bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390
        assert box["y"] + box["height"] <= 844
    page.locator("#classes .class").first.click()
    count_labelled(page, 31)


def test_pictures_of_the_docs(start, visit, tmp_path):
    """Take the pictures of the docs. They are written to the folder LEDL_PICTURES if that is given."""
    server = start()
    page = visit(server, viewport={"width": 1120, "height": 720})
    for n in (10, 20, 30, 40):
        answer_questions(page, 10, lambda file: WORDS.get(TRUTH[file], "six or more"))
        if n > 10:  # ten answers have too few random checks for an estimate
            server.wait(lambda state, n=n: state["curve"] and state["curve"][-1]["labels"] == n)
    expect(page.locator("#accuracy")).to_contain_text("random checks")
    expect(page.locator("#doing")).to_have_text("Learnt from 40 labels.")
    expect(page.locator("#curve").get_by_role("img")).to_have_accessible_name(re.compile(r"at \d+, .* at 40\."))
    place = Path(os.environ.get("LEDL_PICTURES", tmp_path))
    for name, keys in {"ask": (), "large": ("Space",), "check": ("Space", "Shift+C")}.items():
        for key in keys:
            page.keyboard.press(key)
        if name == "check":
            page.locator(".tile.ticked").nth(20).wait_for()
        if name == "large":
            page.locator(".because img").first.wait_for()
        page.wait_for_function("() => [...document.images].every((image) => image.complete || !image.src)")
        file = tmp_path / f"label_{name}.png"
        page.screenshot(path=file)
        with Image.open(file) as picture:
            assert picture.size == (1120, 720)
            assert len(np.unique(np.asarray(picture.convert("L")))) > 50
            small = picture.convert("RGB").quantize(128, Image.Quantize.MAXCOVERAGE)  # keeps rare colours
            small.save(place / file.name, optimize=True)
