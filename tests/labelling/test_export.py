"""What comes out of the labels: a table, folders, a model, a page."""

import csv
import io
import shutil

import numpy as np
import pytest
from PIL import Image

import ledl
from helpers.commands import run
from helpers.label_server import Running
from ledl.images import read_labels
from ledl.labelling import write
from ledl.labelling._export import learn_here, said, summary_page, table
from ledl.labelling._session import RefusedError
from ledl.lessons import Learner

NASTY = "<script>alert(1)</script>"


def ids_of(session, *names):
    return [session.images[session.names.index(name)].id for name in names]


@pytest.fixture
def session(folder, open_folder):
    """Return a session with labels of a person, a nasty name, and one image that nobody can tell."""
    found = open_folder(folder, size=8)
    for name, label in (("eins [1]", "=1+1"), ("null", NASTY), ("zwei", "two")):
        found.answer(ids_of(found, *[f"{name}/{k:02d}.png" for k in range(4)]), new_class=label)
    found.answer(ids_of(found, "zwei/11.png"), skip=True)
    return found


def test_the_table_says_who_said_what_and_is_read_again(session, folder, tmp_path):
    learn_here(session)
    text = table(session, session.folder)
    rows = {row["path"]: row for row in csv.DictReader(io.StringIO(text))}
    assert len(rows) == 36
    assert rows[str(folder / "null/00.png")] == {
        "path": str(folder / "null/00.png"),
        "label": NASTY,
        "by": "person",
        "probability": "1",
        "second": "",
    }
    assert rows[str(folder / "zwei/11.png")]["by"] == "skipped"
    assert rows[str(folder / "zwei/11.png")]["label"] == "unsure"
    assert {row["by"] for row in rows.values()} == {"person", "model", "skipped"}
    assert all(0 < float(row["probability"]) <= 1 for row in rows.values() if row["by"] == "model")
    assert not any(cell.startswith("=") for row in rows.values() for cell in row.values())  # no formula
    (tmp_path / "labels.csv").write_text(text)
    again = read_labels(folder, tmp_path / "labels.csv")
    assert again[folder / "eins [1]/00.png"] == "=1+1"
    assert sum(label == "two" for label in again.values()) == sum(
        row["label"] == "two" for row in rows.values()
    )


def test_the_table_is_not_taken_for_images_of_another_folder(folder, tmp_path):
    """Both folders have the same names, with other images."""
    shutil.copytree(folder, tmp_path / "second")
    for image, other in zip(["null", "zwei"], ["zwei", "null"], strict=True):
        shutil.rmtree(tmp_path / "second" / image)
        shutil.copytree(folder / other, tmp_path / "second" / image)
    shutil.copytree(folder, tmp_path / "first")
    for file in (tmp_path / "second").glob("*/*.png"):
        Image.fromarray(255 - np.asarray(Image.open(file))).save(file)
    done = run("label", "second", "--size", "8", "--export", "labels.csv", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "./second/null/00.png,null,folder" in (tmp_path / "labels.csv").read_text()
    words = ["--labels", "folder", "--labels", "labels.csv", "--size", "8", "--method", "crc"]
    done = run("fit", "first", "-o", "m.ledl", *words, cwd=tmp_path)
    assert "0 labels of folders changed, 36 images added" in " ".join(done.stderr.split())


def test_suggestions_are_as_sure_as_the_random_checks_say(folder, open_folder):
    open_folder(folder, size=8).store.set(seed="0")  # which images are drawn
    session = open_folder(folder)
    for i, image in enumerate(session.questions(18)["items"]):  # labels that have nothing to do with the images
        session.answer([image["id"]], new_class=f"{i % 3}")
    X = learn_here(session)
    assert session.state()["estimate"]["accuracy"] < 0.7
    sure = np.mean([row.probability for row in said(session) if row.by == "model"])
    job = session.next_job()
    first = Learner(X).learn(job.y).probabilities[job.y < 0].max(axis=1).mean()  # takes 90 % for granted
    assert sure < first - 0.1


def test_images_are_sorted_and_stay_where_they_are(session, folder, tmp_path):
    before = sorted(folder.rglob("*.png"))
    lines = []
    with pytest.raises(RefusedError, match="Rename it on the page"):
        write(session, [tmp_path / "sorted"], say=lines.append, report=print)
    assert not (tmp_path / "sorted").exists()
    session.rename_class(2, "zero")
    with pytest.raises(RefusedError, match="elsewhere"):
        write(session, [folder / "sorted"], say=lines.append, report=print)
    write(session, [tmp_path / "sorted"], unsure=0.0, say=lines.append, report=print)
    assert sorted(folder.rglob("*.png")) == before
    places = {path.relative_to(tmp_path / "sorted").as_posix() for path in (tmp_path / "sorted").rglob("*.png")}
    assert len(places) == 36
    assert {f"zero/{k:02d}.png" for k in range(4)} <= places
    assert any(place.startswith("unsure/11") for place in places)
    session.rename_class(3, "zwo")
    write(session, [tmp_path / "sorted"], unsure=0.0, say=lines.append, report=print)
    assert "lie in another folder there" in lines[-1]
    assert f"{tmp_path / 'sorted' / 'two'}" in lines[-1]
    assert not (tmp_path / "sorted" / "zwo").exists()
    write(session, [tmp_path / "unsure"], unsure=1.0, say=lines.append, report=print)
    n_unsure = sum(row.by == "skipped" or (row.probability or 0) < 1 for row in said(session))
    assert len(list((tmp_path / "unsure" / "unsure").iterdir())) == n_unsure > 10


def test_images_are_not_moved(folder, tmp_path):
    """Without the images of its labels, a second run would know less than the first."""
    before = sorted(folder.rglob("*.png"))
    done = run("label", folder, "--size", "8", "--sort-by", "move", "--export", tmp_path / "sorted")
    assert done.returncode == 2
    assert "'move' is not one of 'copy', 'link'" in " ".join(done.stderr.replace("│", " ").split())
    done = run("label", folder, "--size", "8", "--sort-by", "link", "--export", tmp_path / "sorted")
    assert done.returncode == 0, done.stderr
    assert sorted(folder.rglob("*.png")) == before
    assert all(path.is_symlink() for path in (tmp_path / "sorted").rglob("*.png"))


def test_a_model_predicts_new_images(session, folder, tmp_path):
    lines = []
    write(session, [tmp_path / "model.ledl"], say=lines.append, report=print)
    done = run("predict", tmp_path / "model.ledl", folder / "zwei", "--format", "csv")
    assert done.returncode == 0, done.stderr
    labels = [row["label"] for row in csv.DictReader(io.StringIO(done.stdout))]
    assert labels.count("two") > 8
    facts = run("info", tmp_path / "model.ledl", "--json").stdout
    assert '"unlabelled files": [' in facts
    model = ledl.load(tmp_path / "model.ledl")
    assert set(model.classes_) == {"=1+1", NASTY, "two"}
    assert isinstance(getattr(model[-1], "estimator_", model[-1]), ledl.SemiSupervisedClassifier)


def test_it_says_what_takes_minutes_and_what_is_finished(session, tmp_path, monkeypatch):
    """Choosing settings of a model may take so long that people stop the command."""
    monkeypatch.setattr("ledl.labelling._export.MANY_IMAGES", 3)
    said = []
    monkeypatch.setattr("ledl.labelling._export.write_model", lambda *_: said.append("works"))
    write(session, [tmp_path / "l.csv", tmp_path / "m.ledl"], say=said.append, report=said.append)
    assert [line.split(" ")[0] for line in said] == ["Labels:", "Choosing", "works", "Model:"]


def test_a_model_needs_two_classes(folder, open_folder, tmp_path):
    session = open_folder(folder)
    with pytest.raises(RefusedError, match="two classes"):
        write(session, [tmp_path / "model.ledl"], say=print, report=print)
    with pytest.raises(RefusedError, match="may end in"):
        write(session, [tmp_path / "labels.xls"], say=print, report=print)
    with pytest.raises(RefusedError, match="among the labels themselves"):
        write(session, [session.store.place / "labels.csv"], say=print, report=print)
    write(session, [tmp_path / "labels.csv"], say=print, report=print)  # all without a label
    assert {row["by"] for row in csv.DictReader(io.StringIO((tmp_path / "labels.csv").read_text()))} == {""}


def test_the_page_has_pictures_and_no_scripts(session):
    learn_here(session)
    page = summary_page(session)
    assert NASTY not in page
    assert "&lt;script&gt;" in page
    assert "data:image/" in page
    assert "12 by a person" in page
    assert "http" not in page.replace("http-equiv", "")
    assert "The least sure suggestions" in page


def test_what_cannot_be_read_is_named(folder, open_folder, tmp_path):
    for name in ("broken.png", "null/broken.png"):  # the second has a label
        (folder / name).write_bytes(b"no image")
    session = open_folder(folder, labels=["folder"], size=8)
    lines = []
    write(
        session,
        [tmp_path / name for name in ("labels.csv", "page.html", "sorted")],
        say=lines.append,
        report=print,
    )
    assert [path.name for path in (tmp_path / "sorted").rglob("broken*")] == []
    assert {c["name"]: c["count"] for c in session.state()["classes"]}["null"] == 12
    assert any("broken.png" in line for line in lines)
    assert "broken.png" in (tmp_path / "page.html").read_text()
    assert "broken.png" not in (tmp_path / "labels.csv").read_text()
    assert {row["by"] for row in csv.DictReader(io.StringIO((tmp_path / "labels.csv").read_text()))} == {
        "folder"
    }


def test_the_command_writes_everything_while_the_page_is_open(folder, tmp_path):
    server = Running(folder, "--labels", "none", "--size", "8")
    try:
        server.wait(lambda state: state["features"]["ready"])
        ids = server.ask("/api/ids")[1]["ids"]
        server.ask("/api/answers", {"images": ids[:4], "new_class": "a"})
        server.ask("/api/answers", {"images": ids[-4:], "new_class": "b"})
        out = [tmp_path / name for name in ("labels.csv", "page.html", "model.ledl", "sorted")]
        done = run("label", folder, *[word for path in out for word in ("--export", path)])
        assert done.returncode == 0, done.stderr
        assert all(path.exists() for path in out)
        assert (tmp_path / "labels.csv").read_text().count(",person,") == 8
        assert server.state()["n_labelled"] == 8
        done = run("label", folder, "--export", tmp_path / "more.csv", "--labels", "nowhere.csv")
        assert done.returncode == 2
        assert "is open" in done.stderr
        assert not (tmp_path / "more.csv").exists()
        assert server.ask("/api/answers", {"images": ids[4:5], "class": 1})[0] == 200
    finally:
        server.kill()
    shutil.rmtree(folder / ".ledl-labels" / "features")  # they are made again
    (tmp_path / "labels.csv").unlink()
    assert run("label", folder, "--export", tmp_path / "labels.csv").returncode == 0
    assert (tmp_path / "labels.csv").read_text().count(",person,") == 9
