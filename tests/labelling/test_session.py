"""What the page may ask, without a page: labels at hand, questions, views, names."""

import shutil

import numpy as np
import pytest

from helpers.labels import ids_of, labels_of
from ledl.labelling._export import learn_here
from ledl.labelling._session import MOST_CLASSES, RefusedError, UnknownError, forecast
from ledl.labelling._store import StoreError
from ledl.labelling._worker import prepare
from ledl.lessons import Estimate, Learner


def test_undo_stops_at_labels_at_hand(folder, open_folder):
    session = open_folder(folder)
    session.answer(ids_of(session, "null/00.png"), new_class="mine")
    session = open_folder(folder, labels=["folder"])
    assert labels_of(session)["null/00.png"] == ("mine", "person")
    with pytest.raises(RefusedError, match="nothing to undo"):
        session.undo()
    session.answer(ids_of(session, "null/01.png"), skip=True)
    session.undo()
    assert labels_of(session)["null/01.png"] == ("null", "folder")  # also who said so


# Names


@pytest.mark.parametrize(
    "name",
    [
        "<script>alert(1)</script>",
        "=1+2",
        "../../etc",
        "a/b",
        "x" * 255,
        "Ünïcode 猫",
        "'; DROP TABLE meta; --",
        "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",  # Persian, with a non-joiner
        "\U0001f469\u200d\U0001f33e",  # an emoji of two that are joined
    ],
)
def test_names_that_look_dangerous_are_only_text(folder, open_folder, name):
    session = open_folder(folder)
    key = session.add_class(f"  {name} ")["class"]
    assert open_folder(folder).classes[key].name == name


@pytest.mark.parametrize(
    "name", ["", "  ", "a\nb", "\x1b[31m", "\ud800", "x" * 256, "unsure", "None of these", "a\u202eb"]
)
def test_names_that_cannot_be(folder, open_folder, name):
    session = open_folder(folder)
    with pytest.raises(RefusedError):
        session.add_class(name)
    assert session.classes == {}


def test_joiners_alone_make_no_name_and_no_other_name(folder, open_folder):
    session = open_folder(folder)
    session.add_class("\u200dcat\u200c")
    assert [c.name for c in session.classes.values()] == ["cat"]
    for name in ("c\u200cat", "\u200c\u200d", "un\u200dsure"):
        with pytest.raises(RefusedError):
            session.add_class(name)
    session.answer(ids_of(session, "null/00.png"), new_class="c\u200dat")
    assert labels_of(session) == {"null/00.png": ("cat", "person")}


def test_a_name_is_unique_and_the_error_says_how_to_merge(folder, open_folder):
    session = open_folder(folder)
    session.add_class("Straße")
    with pytest.raises(RefusedError, match="already"):
        session.add_class("STRASSE")
    other = session.add_class("other")["class"]
    with pytest.raises(RefusedError, match="merge"):
        session.rename_class(other, "straße")
    session.rename_class(1, "STRASSE")  # its own
    with pytest.raises(RefusedError, match="itself"):
        session.merge_class(1, 1)
    with pytest.raises(UnknownError):
        session.merge_class(1, 99)
    session.merge_class(1, other)
    assert session.add_class("Strasse")["class"] == 3  # the name is free again


def test_an_answer_takes_the_class_that_has_the_name(folder, open_folder):
    session = open_folder(folder)
    first, second = (image.id for image in session.images[:2])
    made = session.answer([first], new_class="Straße")["class"]
    assert session.answer([second], new_class=" STRASSE ")["class"] == made
    assert [c["count"] for c in session.state()["classes"]] == [2]


def test_a_request_that_is_sent_again_is_stored_once(folder, open_folder):
    session = open_folder(folder)
    first, second = (image.id for image in session.images[:2])
    done = session.answer([first], new_class="a", key="one")
    again = session.answer([first], new_class="a", key="one")
    assert (again["items"], again["class"]) == (done["items"], done["class"])
    session.answer([second], skip=True, key="two")
    session.undo()
    session = open_folder(folder)  # the server was started again in between
    assert session.answer([second], skip=True, key="two")["items"][0]["skipped"] is False  # it stays undone
    assert session.answer([first], new_class="a", key="one")["items"] == done["items"]
    session.undo()
    assert labels_of(session) == {}
    assert session.state()["can_undo"] is None


def test_there_is_a_limit_of_classes(folder, open_folder, monkeypatch):
    monkeypatch.setattr("ledl.labelling._session.MOST_CLASSES", 3)
    session = open_folder(folder)
    for k in range(3):
        session.add_class(f"class {k}")
    with pytest.raises(RefusedError, match="limit"):
        session.add_class("one more")
    assert MOST_CLASSES >= 256


# Questions and views


def test_random_checks_are_among_the_questions_and_stay_until_they_are_answered(folder, open_folder):
    session = open_folder(folder)
    first = session.questions(12)["items"]
    checks = [k for k, image in enumerate(first) if image["check"]]
    assert checks == [2, 5, 8, 11]
    drawn = [first[k]["id"] for k in checks]
    assert session.store.checks() == drawn
    order = [session.images[i].id for i in session.random_order]
    assert drawn == order[:4]  # the order is the store's, whatever is asked
    session.answer(drawn[:1], new_class="a")
    session.answer(drawn[1:2], skip=True)
    session = open_folder(folder)
    again = session.questions(12)["items"]
    assert [image["id"] for image in again if image["check"]] == [*drawn[2:], *order[4:6]]
    assert not {drawn[0], drawn[1]} & {image["id"] for image in again}
    assert session.image(session.position(drawn[0]))["check"]


def test_questions_leave_out_what_the_page_has(folder, open_folder):
    session = open_folder(folder)
    first = {image["id"] for image in session.questions(10)["items"]}
    second = {image["id"] for image in session.questions(500, exclude=first)["items"]}
    assert not first & second
    assert first | second == {image.id for image in session.images}
    session.answer(sorted(first | second), skip=True)
    assert session.questions()["items"] == []


def taught(session, n=2):
    """Label some images of each folder by its name, and learn."""
    for name in ("eins [1]", "null", "zwei"):
        session.answer(ids_of(session, *[f"{name}/{k:02d}.png" for k in range(n)]), new_class=name)
    learn_here(session)


def test_suggestions_and_the_views_of_them(folder, open_folder):
    session = open_folder(folder)
    taught(session)
    state = session.state()
    assert state["model"]["labels"] == state["n_labelled"] == 6
    assert sum(c["n_suggested"] for c in state["classes"]) == 30
    assert {c["name"]: len(c["examples"]) for c in state["classes"]} == {"eins [1]": 2, "null": 2, "zwei": 2}
    for c in state["classes"]:
        found = [session.image(i) for i in session.find("check", c["id"])]
        assert len(found) == c["n_suggested"]
        assert all(image["suggestion"] == c["id"] and image["label"] is None for image in found)
        sure = [image["probability"] for image in found]
        assert sure == sorted(sure, reverse=True)
    right = sum(
        session.classes[session.image(i)["suggestion"]].name == session.names[i].split("/")[0]
        for i in session.find(state="unlabelled")
    )
    assert right > 20  # zeros, ones and twos are easy
    assert [session.names[i] for i in session.find(search="ZWEI/0")] == [f"zwei/{k:02d}.png" for k in range(10)]
    labelled, suggested = session.find(label=1, state="labelled"), session.find("check", 1)
    assert len(labelled) == 2
    assert session.find(label=1) == sorted([*labelled, *suggested])
    assert session.find(label=1, state="unlabelled") == sorted(suggested)
    assert len(session.find(state="labelled")) == 6
    session.merge_class(1, 2)
    assert all(session.image(i)["suggestion"] in (2, 3) for i in session.find(state="unlabelled"))


def test_a_lesson_that_comes_after_merges_suggests_the_class_that_is_left(folder, open_folder):
    session = open_folder(folder)
    taught(session)
    learner = Learner(prepare(session.task(), lambda message: session.report(*message)))
    job = session.next_job()
    session.merge_class(3, 1)
    session.merge_class(1, 2)
    session.report("lesson", job.number, learner.learn(job.y), 0.0)
    assert {session.image(i)["suggestion"] for i in session.find(state="unlabelled")} == {2}


def test_an_image_that_joins_later_keeps_all_names_right(folder, open_folder):
    open_folder(folder)
    shutil.copy(folder / "null/00.png", folder / "a first one.png")
    session = open_folder(folder)
    assert [image.path for image in session.images] == sorted(image.path for image in session.images)
    assert session.names == [image.path for image in session.images]
    assert [session.image(i)["name"] for i in session.find(search="first")] == ["a first one.png"]


def test_copies_with_different_labels_do_not_shift_the_classes(folder, open_folder):
    for copy in ("x.png", "y.png", "z.png"):
        shutil.copy(folder / "null/11.png", folder / copy)
    session = open_folder(folder)
    session.answer(ids_of(session, "x.png"), new_class="alone")  # its only label, which the copy's outweighs
    session.answer(ids_of(session, "y.png"), new_class="null")
    taught(session, 4)
    names = {i: session.classes[session.suggestion[i]].name for i in session.find(state="unlabelled")}
    assert names[session.names.index("z.png")] == "null"
    right = sum(name == session.names[i].split("/")[0] for i, name in names.items())
    assert right > 20
    assert "alone" not in names.values()


def test_a_full_disk_or_a_failed_lesson_does_not_end_learning(folder, open_folder, monkeypatch):
    session = open_folder(folder)
    taught(session)
    before = session.suggestion.copy()
    learner = Learner(prepare(session.task(), lambda message: session.report(*message)))
    with monkeypatch.context() as patch:

        def full(*_):
            raise StoreError("Not stored: the disk is full.")

        patch.setattr(session.store, "add_lesson", full)
        patch.setattr(session.store, "note_contents", full)
        session.report("ready", [image.id for image in session.images], [])
        job = session.next_job()
        session.report("lesson", job.number, learner.learn(job.y), 0.0)
    state = session.state()
    assert "full" in state["notice"]
    assert state["features"]["ready"]
    assert not state["learning"]
    assert (session.suggestion == before).all()

    failed, waiting = session.next_job(), session.next_job()
    session.report("failed", "Nothing could be learnt.", failed.number)
    assert session.state()["learning"]  # the other one is still to come
    session.next_job()
    session.report("lesson", waiting.number, learner.learn(waiting.y), 0.0)
    assert session.state()["notice"] is None


def test_an_explanation_names_labelled_images_and_shares(folder, open_folder):
    session = open_folder(folder)
    assert "Nothing was learnt" in session.explain(session.images[5].id)["text"]
    taught(session)
    found = session.explain(ids_of(session, "null/05.png")[0])
    assert found["ranking"][0]["class"] == found["image"]["suggestion"]
    assert sum(part["probability"] for part in found["ranking"]) == pytest.approx(1, abs=0.01)
    assert found["because"]
    for part in found["because"]:
        assert part["image"]["label"] == part["class"]
        assert 0 < part["share"] <= 1
    with pytest.raises(UnknownError):
        session.explain(10**9)


def test_a_label_that_was_looked_at_again_is_not_doubtful_any_more(folder, open_folder):
    session = open_folder(folder)
    taught(session, 8)
    i = session.names.index("null/00.png")
    session.doubt = {i: 3, session.names.index("zwei/11.png"): 1}  # the second has no label
    assert session.find("doubtful") == [i]
    assert session.image(i)["doubt"] == 3
    session.answer([session.images[i].id], session.image(i)["label"], view="doubtful")
    assert session.find("doubtful") == []
    session.undo()
    assert session.find("doubtful") == [i]
    session.answer([session.images[i].id], 3)
    assert session.find("doubtful") == []


def test_revisions_grow_over_restarts(folder, open_folder):
    session = open_folder(folder)
    before = session.revision
    session.answer([session.images[0].id], new_class="a")
    assert session.revision > before
    assert open_folder(folder).revision > session.revision


# The forecast


def test_the_forecast_continues_a_power_law():
    curve = [(n, 1 - 2.0 * n**-0.7, 0, 1, 10) for n in (40, 60, 90, 120)]
    assert forecast(curve)["accuracy"] == pytest.approx(1 - 2.0 * 170**-0.7, abs=1e-3)


def test_there_is_no_forecast_from_too_little_and_none_that_falls():
    assert forecast([]) is None
    assert forecast([(10, 0.5, 0, 1, 3), (20, 0.6, 0, 1, 3)]) is None
    assert forecast([(10, 0.5, 0, 1, 3), (11, 0.6, 0, 1, 3), (12, 0.6, 0, 1, 3)]) is None
    falling = [(10, 0.9, 0, 1, 3), (20, 0.8, 0, 1, 3), (40, 0.7, 0, 1, 3)]
    assert forecast(falling)["accuracy"] >= 0.7


def test_an_estimate_needs_some_checks_and_the_last_one_counts(folder, open_folder):
    session = open_folder(folder)
    for n in (2, 3, 2):  # the last answers are undone
        session.answer(ids_of(session, *[f"null/{k:02d}.png" for k in range(n)]), new_class="null")
        session.answer(ids_of(session, "zwei/00.png"), new_class="zwei")
        if n == 2 and session.curve:
            session.answer(ids_of(session, "null/02.png"))
        learn_here(session)
        session.report("estimate", 0, Estimate(0.1 * n, 0.0, 1.0, 4))
        assert session.state()["estimate"] is None
        session.report("estimate", 0, Estimate(0.1 * n + 0.05 * len(session.curve), 0.0, 1.0, 5))
    assert session.state()["estimate"]["accuracy"] == pytest.approx(0.3)
    assert open_folder(folder).state()["estimate"]["accuracy"] == pytest.approx(0.3)


def test_an_estimate_is_kept_with_its_curve(folder, open_folder):
    session = open_folder(folder)
    checks = [image["id"] for image in session.questions(36)["items"] if image["check"]]
    names = {session.names[session.position(key)].split("/")[0] for key in checks}
    for name in sorted(names):
        session.answer(
            [k for k in checks if session.names[session.position(k)].startswith(name)], new_class=name
        )
    taught_before = session.state()["n_labelled"]
    session.answer(ids_of(session, "null/00.png"), 1)
    learn_here(session)
    estimate = session.state()["estimate"]
    assert 0 <= estimate["low"] <= estimate["accuracy"] <= estimate["high"] <= 1
    assert estimate["n_checks"] == len(checks)
    again = open_folder(folder).state()
    assert again["estimate"] == estimate
    assert [point["labels"] for point in again["curve"]] == [session.state()["n_labelled"]]
    assert taught_before == len(checks)


def answer_checks(session, n, every=True):
    """Answer the checks among n questions by their folders, or only every second one, and return their ids."""
    items = [one for one in session.questions(n)["items"] if one["check"]]
    for one in items if every else items[::2]:
        session.answer([one["id"]], new_class=one["name"].split("/")[0])
    return [one["id"] for one in items]


def counted_checks(session):
    """Return the images whose answers tell how good the suggestions are."""
    prepare(session.task(), lambda message: session.report(*message))
    return session.rows[session.next_job().checks].tolist()


def test_new_images_are_checked_before_there_is_an_estimate_again(folder, open_folder):
    """Checks of the images before are no random sample of all images."""
    open_folder(folder, size=8).store.set(seed="1")  # which images are drawn
    session = open_folder(folder)
    answer_checks(session, 36)
    learn_here(session)
    old = len(session.next_job().checks)
    assert session.state()["estimate"]["n_checks"] == old >= 10
    shutil.copytree(folder.parent / "others" / "sieben", folder / "sieben")
    session = open_folder(folder)
    state = session.state()
    assert state["estimate"] is None
    assert state["curve"] == []
    assert len(counted_checks(session)) < old
    n_asked = 0
    while len(counted_checks(session)) <= old:
        # Half of the checks of a request stay open, and are drawn before others in the next one.
        new = [session.position(key) for key in answer_checks(session, 12, every=n_asked % 2 == 1)]
        n_asked += 1
        assert n_asked < 30
        assert new
        # Those that count are the first of the random order: none that is open is left out among them.
        place = {i: k for k, i in enumerate(session.random_order)}
        last = max((place[i] for i in counted_checks(session)), default=-1)
        assert all(session.label[i] > 0 for i in range(session.n) if place[i] < last)
    assert any(session.images[i].id > 36 for i in counted_checks(session))
    learn_here(session)
    assert session.state()["estimate"]["n_checks"] == len(session.next_job().checks) > old
    assert open_folder(folder).state()["estimate"] is not None


@pytest.mark.parametrize("how", ["labelled", "away", "from a table"])
def test_images_that_are_open_again_are_checked_before_there_is_an_estimate(how, folder, open_folder, tmp_path):
    """They were not among those that checks were drawn from."""
    others = folder / "sieben"
    shutil.copytree(folder.parent / "others" / "sieben", others)
    (tmp_path / "t.csv").write_text("path,label\n" + "".join(f"sieben/{k:02d}.png,x\n" for k in range(12)))
    open_folder(folder, size=8).store.set(seed="1")  # which images are drawn
    if how == "away":
        others.rename(tmp_path / "away")
    session = open_folder(folder, labels=[str(tmp_path / "t.csv")] if how == "from a table" else ["none"])
    if how == "labelled":
        session.answer(ids_of(session, *[f"sieben/{k:02d}.png" for k in range(12)]), new_class="x")
    answer_checks(session, 36)
    assert len(counted_checks(session)) >= 10
    if how == "labelled":
        session.answer(ids_of(session, *[f"sieben/{k:02d}.png" for k in range(12)]))
    if how == "away":
        (tmp_path / "away").rename(others)
    session = open_folder(folder)
    learn_here(session)
    assert len(counted_checks(session)) < 5
    assert session.state()["estimate"] is None


def test_a_new_name_of_all_images_is_no_new_draw(folder, open_folder):
    session = open_folder(folder, size=8)
    answer_checks(session, 36)
    learn_here(session)
    before = session.state()["estimate"], {session.images[i].id for i in counted_checks(session)}
    for image in list(folder.rglob("*.png")):
        image.rename(image.with_name(f"new-{image.name}"))
    session = open_folder(folder)
    assert {session.images[i].id for i in counted_checks(session)} == before[1]
    assert session.state()["estimate"] == before[0]


def test_an_old_estimate_goes_with_the_labels_it_is_of(folder, open_folder):
    session = open_folder(folder, size=8)
    answer_checks(session, 36)
    learn_here(session)
    assert session.state()["estimate"] is not None
    n = len(session.undo_stack)
    for _ in range(n):
        session.undo()
    learn_here(session)
    assert session.state()["estimate"] is None
    assert open_folder(folder).state()["estimate"] is None


def test_thumbnails_do_not_become_images(folder, open_folder):
    for store in (folder, folder / "labels", folder / "null/labels"):
        with pytest.raises(RefusedError, match="elsewhere"):
            open_folder(folder, store=store)
        assert store == folder or not store.exists()
    for _ in range(2):
        session = open_folder(folder, store=folder / ".mine")
        session.picture(0)
        assert session.n == 36


def test_images_are_never_changed(folder, open_folder):
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.rglob("*.png")}
    session = open_folder(folder)
    taught(session)
    session.picture(0)
    session.merge_class(1, 2)
    session.undo()
    assert {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in before} == before
    assert np.array_equal(sorted(before), sorted(p for p in folder.rglob("*.png")))
