"""What the page may ask, without a page: labels at hand, questions, views, names."""

import shutil
from collections import Counter

import numpy as np
import pytest

from ledl.images import ImageError
from ledl.labelling._export import learn_here
from ledl.labelling._export import table as text_of
from ledl.labelling._session import MOST_CLASSES, RefusedError, UnknownError, forecast
from ledl.labelling._store import StoreError
from ledl.labelling._worker import prepare
from ledl.lessons import Estimate, Learner


def labels_of(session):
    """Return the names and origins of all labels."""
    found = {}
    for i, name in enumerate(session.names):
        image = session.image(i)
        if image["label"] is not None:
            found[name] = session.classes[image["label"]].name, image["by"]
    return found


def ids_of(session, *names):
    return [session.images[session.names.index(name)].id for name in names]


# Labels at hand


def test_names_of_folders_are_labels(folder, open_folder):
    shutil.copy(folder / "null/00.png", folder / "loose.png")
    for name in ("unsure", "unsorted"):
        (folder / name).mkdir()
        shutil.copy(folder / "null/00.png", folder / name / "x.png")
    session = open_folder(folder, labels=None)
    found = labels_of(session)
    assert Counter(found.values()) == {(n, "folder"): 12 for n in ("eins [1]", "null", "zwei")}
    assert "loose.png" not in found
    assert not {"unsure/x.png", "unsorted/x.png"} & set(found)
    assert any("36 images" in line and "--labels none" in line for line in session.lines)
    assert session.state()["can_undo"] is None  # nobody has asked for it


@pytest.mark.parametrize("names", [["DCIM", "b"], ["2023-01", "2023-02"], ["100CANON", "101CANON"], ["only"]])
def test_names_of_cameras_and_dates_are_no_labels_unless_asked_for(folder, open_folder, names):
    for i, name in enumerate(names):
        (folder.parent / "camera" / name).mkdir(parents=True)
        shutil.copy(folder / f"null/0{i}.png", folder.parent / "camera" / name / "1.png")
    session = open_folder(folder.parent / "camera", labels=None)
    assert labels_of(session) == {}
    assert any("--labels folder" in line for line in session.lines)
    session = open_folder(folder.parent / "camera", labels=["folder"])
    assert {label for label, _ in labels_of(session).values()} == set(names)


def test_a_flat_folder_hears_nothing_of_folders_unless_it_asks(folder, open_folder):
    assert not [line for line in open_folder(folder / "null", labels=None).lines if "folders" in line]
    assert [line for line in open_folder(folder / "null", labels=["folder"]).lines if "0 images" in line]


def test_the_choice_is_kept_and_can_be_changed(folder, open_folder):
    session = open_folder(folder, labels=["folder"])
    session.answer(ids_of(session, "null/00.png"), new_class="mine")
    assert len(labels_of(open_folder(folder, labels=None))) == 36
    assert labels_of(open_folder(folder, labels=["none"])) == {"null/00.png": ("mine", "person")}
    assert len(labels_of(open_folder(folder, labels=["folder"]))) == 36
    with pytest.raises(RefusedError, match="Leave out"):
        open_folder(folder, labels=["none", "folder"])


def test_a_table_counts_more_than_folders_and_a_person_more_than_both(folder, open_folder, tmp_path):
    table = tmp_path / "labels.csv"
    table.write_text("path,label\nnull/00.png,first\nnull/01.png,first\nnull/02.png,\nnull/03.png,unsure\n")
    session = open_folder(folder, labels=["folder", str(table)])
    found = labels_of(session)
    assert found["null/00.png"] == ("first", "table")
    assert found["null/04.png"] == ("null", "folder")
    assert not {"null/02.png", "null/03.png"} & set(found)  # blank, and an answer that is no class
    session.answer(ids_of(session, "null/00.png"), new_class="mine")
    session.answer(ids_of(session, "null/04.png"))  # takes the label away

    table.write_text("path,label\nnull/00.png,second\nnull/01.png,second\nnull/04.png,second\n")
    found = labels_of(open_folder(folder, labels=["folder", str(table)]))
    assert found["null/00.png"] == ("mine", "person")
    assert found["null/01.png"] == ("second", "table")
    assert "null/04.png" not in found
    assert found["null/02.png"] == ("null", "folder")  # no longer in the table
    table.unlink()
    assert labels_of(open_folder(folder, labels=None)) == found  # the table was read, and is not needed again


def test_none_of_these_in_a_table_is_an_answer(folder, open_folder, tmp_path):
    table = tmp_path / "labels.csv"
    table.write_text("path,label\nnull/00.png,a\nnull/01.png,None of these\nzwei/02.png,none of these\n")
    session = open_folder(folder, labels=[str(table)])
    assert "2 images get no label. The table calls them 'unsure' or 'none of these'." in session.lines
    skipped = [session.names[i] for i in session.find(state="skipped")]
    assert skipped == ["null/01.png", "zwei/02.png"]
    assert labels_of(session) == {"null/00.png": ("a", "table")}
    assert not {*ids_of(session, *skipped)} & {image["id"] for image in session.questions(36)["items"]}
    session.answer(ids_of(session, "zwei/02.png"), new_class="b")  # counts more
    session = open_folder(folder, labels=[str(table)])
    assert labels_of(session)["zwei/02.png"] == ("b", "person")
    assert "1 images get no label. The table calls them 'unsure' or 'none of these'." in session.lines
    table.write_text(text_of(session, session.folder))  # its own export says the same
    session = open_folder(folder, labels=[str(table)])
    assert [session.names[i] for i in session.find(state="skipped")] == ["null/01.png"]
    table.write_text("path,label\nnull/00.png,a\n")
    session = open_folder(folder, labels=[str(table)])
    assert session.find(state="skipped") == []


def test_a_table_that_takes_labels_of_folders_away_is_remembered(folder, open_folder, tmp_path):
    table = tmp_path / "labels.csv"
    table.write_text("path,label\nnull/00.png,\nnull/01.png,unsure\nnull/02.png,other\nnull/03.png,a\x07b\n")
    first = labels_of(open_folder(folder, labels=["folder", str(table)]))
    assert not {"null/00.png", "null/01.png", "null/03.png"} & set(first)  # the last is no name
    table.unlink()
    again = open_folder(folder, labels=None)
    assert labels_of(again) == first
    assert again.store.db.execute("SELECT count(*) FROM batches").fetchone() == (1,)  # nothing new
    folders = {name: (name.split("/")[0], "folder") for name in again.names}
    session = open_folder(folder, labels=["folder"])  # not the table any more
    assert labels_of(session) == folders
    assert session.find(state="skipped") == []


def test_folders_do_not_undo_a_merge_or_a_new_name(folder, open_folder, tmp_path):
    session = open_folder(folder, labels=["folder"])
    one, null, two = session.classes
    session.rename_class(two, "second")
    session.merge_class(one, null)
    session.merge_class(null, two)
    shutil.copy(folder / "null/00.png", folder / "null/new.png")
    again = open_folder(folder, labels=None)
    assert Counter(labels_of(again).values()) == {("second", "folder"): 37}
    assert [c.name for c in again.classes.values() if not c.gone] == ["second"]
    (tmp_path / "known.csv").write_text("path,label\nnull/01.png,NULL\n")
    again = open_folder(folder, labels=[str(tmp_path / "known.csv")])
    assert labels_of(again) == {"null/01.png": ("second", "table")}
    assert labels_of(open_folder(folder, labels=None)) == {"null/01.png": ("second", "table")}


def test_a_merge_that_is_undone_after_a_restart_stays_undone(folder, open_folder):
    session = open_folder(folder, labels=["folder"])
    said = labels_of(session)
    one, null, _ = session.classes
    session.merge_class(one, null)
    session = open_folder(folder, labels=None)
    assert labels_of(session) != said
    session.undo()
    assert labels_of(session) == said
    assert labels_of(open_folder(folder, labels=None)) == said


@pytest.mark.parametrize("kind", ["folder", "table"])
def test_names_that_are_used_again_change_no_label_at_hand(kind, folder, open_folder, tmp_path):
    """The folders have each other's names, which a person mends on the page."""
    source = "folder"
    if kind == "table":
        source = tmp_path / "known.csv"
        lines = [f"{path},{path.split('/')[0]}\n" for path in labels_of(open_folder(folder, labels=["folder"]))]
        source.write_text("".join(lines))
    session = open_folder(folder, labels=[str(source)])
    one, null, two = session.classes
    for key, name in ((null, "x"), (two, "null"), (null, "zwei")):
        session.rename_class(key, name)
    session.rename_class(one, "uno")
    session.add_class("eins [1]")
    said = labels_of(session)
    assert said["null/00.png"] == ("zwei", kind)
    for labels in (None, [str(source)]):
        assert labels_of(open_folder(folder, labels=labels)) == said
    open_folder(folder, labels=["none"])
    session = open_folder(folder, labels=[str(source)])
    assert labels_of(session) == said
    own = tmp_path / "own.csv"  # another table, with the names of now
    own.write_text(text_of(session, session.folder))
    assert labels_of(open_folder(folder, labels=[str(own)])) == {k: (v, "table") for k, (v, _) in said.items()}


def test_a_table_alone_means_no_folders(folder, open_folder, tmp_path):
    table = tmp_path / "labels.csv"
    table.write_text("null/00.png,a\nzwei/00.png,b\n")
    assert len(labels_of(open_folder(folder, labels=["folder"]))) == 36
    assert labels_of(open_folder(folder, labels=[str(table)])) == {
        "null/00.png": ("a", "table"),
        "zwei/00.png": ("b", "table"),
    }
    table.write_text("missing.png,a\n")
    with pytest.raises(ImageError, match="line 1"):
        open_folder(folder, labels=[str(table)])


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


def test_folders_with_nothing_to_label(tmp_path, open_folder):
    with pytest.raises(RefusedError, match="does not exist"):
        open_folder(tmp_path / "missing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(RefusedError, match="no images"):
        open_folder(tmp_path / "empty")
    (tmp_path / "file").write_text("")
    with pytest.raises(RefusedError, match="is a file"):
        open_folder(tmp_path / "file")
    (tmp_path / "broken").mkdir()
    for k in range(3):
        (tmp_path / "broken" / f"{k}.png").write_bytes(b"not an image")
    session = open_folder(tmp_path / "broken")
    learn_here(session)
    state = session.state()
    assert [name for name, _ in state["unreadable"]] == ["0.png", "1.png", "2.png"]
    assert state["n_images"] == 0
    assert "No image can be read" in state["features"]["error"]
    assert session.questions()["items"] == []


def test_one_image_is_enough_to_label(folder, tmp_path, open_folder):
    (tmp_path / "one").mkdir()
    shutil.copy(folder / "null/00.png", tmp_path / "one" / "0.png")
    session = open_folder(tmp_path / "one")
    learn_here(session)
    session.answer(ids_of(session, "0.png"), new_class="a")
    assert session.state()["n_labelled"] == 1


def test_thumbnails_do_not_become_images(folder, open_folder):
    for store in (folder, folder / "labels", folder / "null/labels"):
        with pytest.raises(RefusedError, match="elsewhere"):
            open_folder(folder, store=store)
        assert store == folder or not store.exists()
    for _ in range(2):
        session = open_folder(folder, store=folder / ".mine")
        session.picture(0)
        assert session.n == 36


def test_links_out_of_the_folder_are_listed_and_not_shown(folder, tmp_path, open_folder):
    secret = tmp_path / "secret.png"
    shutil.copy(folder / "null/00.png", secret)
    (folder / "link.png").symlink_to(secret)
    (folder / "inside.png").symlink_to(folder / "null/00.png")
    session = open_folder(folder)
    assert [name for name, _ in session.state()["unreadable"]] == ["link.png"]
    assert "inside.png" in session.names
    i = session.names.index("null/01.png")
    (folder / "null/01.png").unlink()
    (folder / "null/01.png").symlink_to(secret)  # while the server runs
    for look in (session.picture, session.large_picture):
        with pytest.raises(UnknownError, match="outside"):
            look(i)


def test_images_are_never_changed(folder, open_folder):
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.rglob("*.png")}
    session = open_folder(folder)
    taught(session)
    session.picture(0)
    session.merge_class(1, 2)
    session.undo()
    assert {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in before} == before
    assert np.array_equal(sorted(before), sorted(p for p in folder.rglob("*.png")))


def test_features_that_cannot_be_made_are_not_kept(folder, open_folder, tmp_path):
    assert open_folder(folder, size=8).extractor.size == 8
    (tmp_path / "net.onnx").write_bytes(b"no network")
    with pytest.raises((ValueError, OSError, ImportError), match=r"net\.onnx"):
        open_folder(folder, features=str(tmp_path / "net.onnx"))
    assert open_folder(folder).extractor.size == 8
    store = open_folder(folder).store
    store.set(features=str(tmp_path / "gone.onnx"), size="")
    store.close()
    with pytest.raises(RefusedError, match=r"of the last time cannot be made: .*gone.onnx.*--features"):
        open_folder(folder)
    with pytest.raises(RefusedError, match="is a file"):
        open_folder(folder, store=tmp_path / "net.onnx")
