"""Nothing that was acknowledged is lost, and undo is exact."""

import contextlib
import errno
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import tempfile
import types
from functools import partial
from pathlib import Path

import numpy as np
import PIL.Image
import pytest

from ledl.images import content_key
from ledl.labelling import _opening, _store
from ledl.labelling._export import learn_here, write
from ledl.labelling._session import RefusedError
from ledl.labelling._store import (
    BACKUP,
    LABELS,
    NAME,
    OLD_BACKUP,
    SETTINGS,
    Answer,
    BusyError,
    Change,
    Class,
    FeatureRows,
    Image,
    Store,
    StoreError,
    alone,
    place_of,
)


def shown_state(session):
    """Return labels and classes as the page shows them."""
    labels = {session.names[i]: session.image(i)["label"] for i in range(session.n)}
    skipped = {session.names[i] for i in range(session.n) if session.image(i)["skipped"]}
    return labels, skipped, {c.id: c.name for c in session.classes.values() if not c.gone}


def act(session, rng):
    """Do something at random. Return False if it was refused."""
    classes = shown_state(session)[2]
    ids = [session.images[i].id for i in rng.choice(session.n, rng.integers(1, 5), replace=False)]
    live = sorted(classes)
    some = int(rng.choice(live)) if live else 0
    try:
        match int(rng.integers(7)):
            case 0:
                session.answer(ids, new_class=f"class {rng.integers(1000)}")
            case 1 | 2:
                session.answer(ids, some or None)
            case 3:
                session.answer(ids, skip=True)
            case 4:
                session.rename_class(some, f"name {rng.integers(1000)}")
            case 5:
                session.merge_class(some, int(rng.choice(live)) if live else 0)
            case 6:
                session.delete_class(some)
    except RefusedError:
        return False
    return True


def test_undo_and_redo_are_exact_also_after_a_restart(folder, open_folder, rng):
    session = open_folder(folder)
    past, future = [shown_state(session)], []  # the oracle: plain copies of all states
    n_undone = 0
    for _ in range(300):
        what = rng.random()
        if what < 0.55:
            if act(session, rng):
                past.append(shown_state(session))
                future = []
        elif what < 0.75:
            if len(past) > 1:
                session.undo()
                future.append(past.pop())
                n_undone += 1
            else:
                with pytest.raises(RefusedError, match="nothing to undo"):
                    session.undo()
        elif what < 0.95:
            if future:
                session.redo()
                past.append(future.pop())
            else:
                with pytest.raises(RefusedError, match="nothing to redo"):
                    session.redo()
        else:
            session = open_folder(folder)
        assert shown_state(session) == past[-1]
    assert n_undone > 30


def test_the_history_is_never_overwritten(folder, open_folder):
    session = open_folder(folder)
    first = session.images[0].id
    session.answer([first], new_class="a")
    session.answer([first], new_class="b")
    session.undo()
    rows = session.store.db.execute("SELECT class FROM answers WHERE image=? ORDER BY id", (first,)).fetchall()
    assert rows == [(1,), (2,), (1,)]


def test_a_full_disk_acknowledges_nothing(folder, open_folder):
    session = open_folder(folder)
    ids = [image.id for image in session.images]
    session.answer(ids[:1], new_class="a")
    before = shown_state(session), session.revision
    (n_pages,) = session.store.db.execute("PRAGMA page_count").fetchone()
    session.store.db.execute(f"PRAGMA max_page_count={n_pages}")
    for _ in range(100):
        try:
            session.answer(ids, 1)
        except StoreError as error:
            refusal = str(error)
            break
        before = shown_state(session), session.revision
    assert "Not stored" in refusal
    assert "full" in refusal
    assert (shown_state(session), session.revision) == before
    session.store.db.execute("PRAGMA max_page_count=1000000")
    session.answer(ids[:1], 1)  # it goes on once there is room
    assert shown_state(open_folder(folder)) == before[0]


def test_renamed_removed_and_new_images(folder, open_folder):
    from ledl.labelling._export import learn_here

    session = open_folder(folder)
    by_name = {name: session.images[i].id for i, name in enumerate(session.names)}
    moved, lost, changed = "null/00.png", "null/01.png", "zwei/02.png"
    learn_here(session)  # contents are stored with the features
    session.answer([by_name[moved]], new_class="moved")
    session.answer([by_name[lost]], new_class="lost")
    session.answer([by_name[changed]], new_class="changed")
    (folder / moved).rename(folder / "elsewhere.png")
    kept = (folder / lost).rename(folder.parent / "kept.png")
    shutil.copy(folder / "zwei/03.png", folder / changed)
    shutil.copy(folder / "zwei/04.png", folder / "zwei/new.png")

    session = open_folder(folder)
    now = {name: session.image(i) for i, name in enumerate(session.names)}
    assert now["elsewhere.png"]["id"] == by_name[moved]
    assert session.classes[now["elsewhere.png"]["label"]].name == "moved"
    assert moved not in now
    assert lost not in now
    assert session.classes[now[changed]["label"]].name == "changed"
    assert now["zwei/new.png"]["label"] is None  # the content of an image that is still there
    assert now["zwei/new.png"]["id"] not in by_name.values()

    kept.rename(folder / lost)
    session = open_folder(folder)
    now = {name: session.image(i) for i, name in enumerate(session.names)}
    assert session.classes[now[lost]["label"]].name == "lost"


def test_images_are_recognised_if_features_were_not_ready(folder, open_folder, tmp_path):
    """Contents that were known, or read at the start, were forgotten when files were copied."""
    session = open_folder(folder)
    learn_here(session)
    wanted = label_each(session)
    session.store.close()
    copied = shutil.copytree(folder, tmp_path / "copy")
    for file in copied.rglob("*.png"):
        os.utime(file, (0, 0))
    assert labels_by_content(open_folder(copied)) == wanted  # and it ends before there are features
    places = [path for path in copied.iterdir() if path.is_dir() and path.name != NAME]
    (copied / "deeper").mkdir()
    for place in places:
        place.rename(copied / "deeper" / place.name)
    assert labels_by_content(open_folder(copied)) == wanted


def test_contents_are_stored_as_features_are_made(folder, open_folder):
    session = open_folder(folder)
    image, other = session.images[:2]
    session.answer([image.id, other.id], new_class="kept")
    session.report("contents", [(image.id, content_key(folder / image.path, is_image=True))])
    for one in (image, other):
        (folder / one.path).rename(folder / f"{one.id}.png")
    session = open_folder(folder)
    assert [session.names[i] for i in range(session.n) if session.label[i]] == [f"{image.id}.png"]
    assert any("Labelled images that are not there any more: 1." in line for line in session.lines)


def test_pictures_of_different_labels_have_different_marks(folder, open_folder, tmp_path):
    first = open_folder(folder, store=tmp_path / "first")
    marks = {first.mark(i) for i in range(first.n)}
    assert len(marks) == first.n
    second = open_folder(folder, store=tmp_path / "second")
    assert second.images[0].id == 1
    assert not marks & {second.mark(i) for i in range(second.n)}
    os.utime(folder / second.images[0].path, (0, 0))
    changed = open_folder(folder, store=tmp_path / "second")
    assert changed.mark(0) != second.mark(0)


def label_each(session):
    """Give every image a class of its own name, and return the labels by content."""
    for i, name in enumerate(session.names):
        session.answer([session.images[i].id], new_class=name)
    return labels_by_content(session)


def labels_by_content(session):
    images = [(session.folder / image.path).read_bytes() for image in session.images]
    names = [session.classes[session.image(i)["label"]].name for i in range(session.n)]
    return dict(zip(images, names, strict=True))


@pytest.mark.parametrize("how", ["shifted", "swapped", "touched and copied"])
def test_labels_follow_images_that_take_the_names_of_others(folder, open_folder, how):
    from ledl.labelling._export import learn_here

    session = open_folder(folder)
    learn_here(session)
    said = label_each(session)
    ids = {(folder / image.path).read_bytes(): image.id for image in session.images}
    a, b = folder / "null/00.png", folder / "null/01.png"
    if how == "shifted":  # each file gets the name of the next one
        files = sorted((folder / "null").iterdir(), reverse=True)
        for file, new in zip(files, [folder / "null/last.png", *files], strict=False):
            file.rename(new)
    elif how == "swapped":
        a.rename(folder / "away")
        b.rename(a)
        (folder / "away").rename(b)
    else:
        os.utime(a)
        shutil.copy(a, folder / "null/0 copy.png")  # comes first
    session = open_folder(folder)
    if how == "touched and copied":
        assert session.image(session.names.index("null/0 copy.png"))["label"] is None
        (folder / "null/0 copy.png").unlink()
        session = open_folder(folder)
    assert labels_by_content(session) == said
    assert {(folder / image.path).read_bytes(): image.id for image in session.images} == ids


def test_an_image_whose_name_was_taken_comes_back_with_its_label(folder, open_folder):
    from ledl.labelling._export import learn_here

    session = open_folder(folder)
    learn_here(session)
    said = label_each(session)
    a, b = folder / "null/00.png", folder / "null/01.png"
    b.rename(folder.parent / "b.png")
    a.rename(b)
    open_folder(folder)
    (folder.parent / "b.png").rename(folder / "back.png")
    session = open_folder(folder)
    assert labels_by_content(session) == said


def test_a_store_is_of_one_folder(folder, open_folder, tmp_path):
    store, other = tmp_path / "store", tmp_path / "other"
    session = open_folder(folder, store=store)
    said = label_each(session)
    shutil.copytree(folder, other)
    for file in (other / "null").iterdir():  # another image of the same name
        shutil.copy(folder / "zwei" / file.name, file)
    with pytest.raises(RefusedError, match="labels of"):
        open_folder(other, store=store)
    link = tmp_path / "link"
    link.symlink_to(folder)
    assert labels_by_content(open_folder(link, store=store)) == said
    shutil.rmtree(other)
    folder.rename(other)  # the same images elsewhere
    session = open_folder(other, store=store)
    assert labels_by_content(session) == said
    assert any("not there any more" in line for line in session.lines)
    session = open_folder(other)  # a store in the folder goes with it, also where both are copied
    session.answer([session.images[0].id], new_class="inside")
    open_folder(other)
    copy = Path(shutil.copytree(other, tmp_path / "copy"))
    assert open_folder(copy).label[0]


def test_a_full_disk_is_not_taken_for_damage(folder, open_folder, monkeypatch):
    """Whoever puts the copy of the last start back loses what was said since."""
    open_folder(folder)

    def fail(store):
        (n_pages,) = store.db.execute("PRAGMA page_count").fetchone()
        store.db.execute(f"PRAGMA max_page_count={n_pages}")
        store.db.execute("CREATE TABLE more AS SELECT zeroblob(100000)")

    monkeypatch.setattr(Store, "_back_up", fail)
    with pytest.raises(StoreError, match="full") as raised:
        open_folder(folder)
    assert BACKUP not in str(raised.value)
    assert "damaged" not in str(raised.value)


def test_settings_on_a_full_disk(folder, open_folder):
    store = open_folder(folder).store
    (n_pages,) = store.db.execute("PRAGMA page_count").fetchone()
    store.db.execute(f"PRAGMA max_page_count={n_pages}")
    with pytest.raises(StoreError, match="Not stored"):
        store.set(labels="x" * 100_000)


def test_a_merge_reaches_images_that_are_away(folder, open_folder):
    session = open_folder(folder)
    ids = [image.id for image in session.images]
    session.answer(ids[:1], new_class="a")
    session.answer(ids[1:2], new_class="b")
    name = session.names[0]
    away = (folder / name).rename(folder.parent / "away.png")
    session = open_folder(folder)
    with pytest.raises(RefusedError, match="has 1 image"):
        session.delete_class(1)
    session.merge_class(1, 2)
    away.rename(folder / name)
    session = open_folder(folder)
    assert session.image(session.names.index(name))["label"] == 2


def test_only_the_owner_can_look(folder, open_folder):
    session = open_folder(folder)
    assert stat.S_IMODE((folder / NAME).stat().st_mode) == 0o700
    assert stat.S_IMODE(session.store.file.stat().st_mode) == 0o600


def test_one_writer_at_a_time(folder, open_folder):
    open_folder(folder)
    with pytest.raises(BusyError, match="another process"):
        open_folder(folder, keep=True)


def test_the_lock_ends_with_a_killed_process(tmp_path):
    code = "import sys; from pathlib import Path; from ledl.labelling._store import alone\n"
    code += f"with alone(Path({str(tmp_path)!r})):\n    print('held', flush=True); sys.stdin.read()"
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout.readline() == b"held\n"
    with pytest.raises(BusyError), alone(tmp_path):
        pass
    child.kill()
    child.communicate()
    with alone(tmp_path):
        pass


def test_another_image_with_the_name_of_one_that_was_gone_is_new(folder, open_folder):
    """Cameras begin again at IMG_0001; the label must not come back without its image."""
    session = open_folder(folder, size=8)
    learn_here(session)  # the contents are known then
    first, second = folder / "null/00.png", folder / "null/01.png"
    ids = {
        path: session.images[session.names.index(str(path.relative_to(folder)))].id for path in (first, second)
    }
    session.answer([*ids.values()], new_class="kept")
    content = first.read_bytes()
    first.unlink()
    os.utime(second, (1e9, 1e9))
    assert open_folder(folder).n == 35
    shutil.copy(folder / "zwei/05.png", first)
    session = open_folder(folder)
    i = session.names.index("null/00.png")
    assert session.image(i)["label"] is None
    assert session.images[i].id != ids[first]
    assert session.image(session.names.index("null/01.png"))["label"] is not None  # only its time has changed
    (folder / "again.png").write_bytes(content)
    session = open_folder(folder)
    assert session.images[session.names.index("again.png")].id == ids[first]
    assert session.image(session.names.index("again.png"))["label"] is not None


def test_a_newer_format_is_refused(folder, open_folder):
    open_folder(folder).store.set(format="99")
    with pytest.raises(StoreError, match="newer ledl"):
        open_folder(folder)


@pytest.mark.parametrize("damage", ["text", "middle", "empty table", "empty", "missing"])
def test_a_damaged_file_is_named_with_the_remedy(folder, open_folder, damage):
    session = open_folder(folder)
    session.answer([session.images[0].id], new_class="kept")
    file = session.store.file
    session.store.close()  # the copy has the label
    if damage == "text":
        file.write_text("no database\n" * 1000)
    elif damage == "empty":
        file.write_bytes(b"")
    elif damage == "missing":
        file.unlink()
    elif damage == "middle":
        content = bytearray(file.read_bytes())
        content[4096:] = os.urandom(len(content) - 4096)
        file.write_bytes(content)
    else:
        db = sqlite3.connect(file)
        db.execute("DELETE FROM meta")
        db.commit()
        db.close()
    for _ in range(2):  # the copy stays as it is
        with pytest.raises(StoreError, match=BACKUP):
            open_folder(folder)
    for name in (LABELS, f"{LABELS}-wal", f"{LABELS}-shm"):
        (folder / NAME / name).unlink(missing_ok=True)
    shutil.copy(folder / NAME / BACKUP, file)  # what the error says
    session = open_folder(folder)
    assert session.classes[session.image(0)["label"]].name == "kept"


def test_a_flipped_bit_never_changes_what_was_said(tmp_path):
    """Whatever bit it is: the labels are those that were stored, or it is an error that names the copy."""

    def said(place):
        store = Store(place)
        try:
            images = [(image.id, image.path) for image in store.images()]
            return images, store.answers(), store.names(), store.stacks(), store.words(), store.get("token")
        finally:
            store.close()

    place, copy = tmp_path / "labels", tmp_path / "copy"
    place.mkdir()
    store = Store(place)
    store.sync(tmp_path, {f"{k}.png": (k, k) for k in range(100)})
    store.add("do", Change("cat", [], [Class(1, "cat"), Class(2, "dog")]), settings={"word folder cat": "1"})
    for k in range(1, 100):
        store.add("do", Change(f"{k}", [Answer(k, k % 2 + 1, False, "ask", 1)], []), key=f"{k:09d}")
    store.close()
    whole, expected, n_refused = (place / LABELS).read_bytes(), said(place), 0
    for k in range(300):
        rng = np.random.default_rng(k)
        content = np.frombuffer(whole, np.uint8).copy()
        content[rng.integers(len(content))] ^= 1 << rng.integers(8)
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(place, copy)
        (copy / LABELS).write_bytes(content)
        try:
            found = said(copy)
        except StoreError as error:
            advice = str(error)
        else:
            assert found == expected
            continue
        assert BACKUP in advice or "newer ledl" in advice
        assert (copy / BACKUP).read_bytes() == (place / BACKUP).read_bytes()
        n_refused += 1
    assert n_refused > 30


def test_checksums_are_the_same_in_every_python(tmp_path, monkeypatch):
    """Which letters repr() escapes depends on the version of Python: checksums are made of ASCII."""
    hashed = []
    monkeypatch.setattr(_store, "checksum", lambda content: hashed.append(content) or b"")
    place = tmp_path / "\U0001fae8"
    place.mkdir()
    store = Store(place)
    change = Change("\U0001fae8 1.jpg", [Answer(1, 1, False, "ask")], [Class(1, "\U0001fae8")])
    store.add("do", change, settings={"word \U0001fae8": "1"})
    assert any(b"U0001fae8" in content for content in hashed)
    assert all(content.isascii() for content in hashed)
    store.close()


def test_a_copy_is_kept_at_the_end_unless_the_labels_are_damaged(folder, open_folder, tmp_path):
    session = open_folder(folder)
    session.answer([session.images[0].id], new_class="kept")
    session.store.close()
    with contextlib.closing(sqlite3.connect(folder / NAME / BACKUP)) as copy:
        assert copy.execute("SELECT name FROM classes").fetchall() == [("kept",)]
    shutil.copytree(folder, folder.with_name("other"))
    session = open_folder(folder)
    session.answer([session.images[1].id], new_class="more")
    folder.rename(folder.with_name("renamed"))
    folder.with_name("other").rename(folder)
    session.store.close()
    with contextlib.closing(sqlite3.connect(folder / NAME / BACKUP)) as copy:
        assert copy.execute("SELECT count(*) FROM classes").fetchone() == (1,)
    shutil.copytree(folder, folder.with_name("again"))
    for k, damage in enumerate(["UPDATE classes SET name='flip'", "UPDATE images SET path='flip' || id"]):
        damaged = Path(shutil.copytree(folder.with_name("again"), tmp_path / str(k)))
        session = open_folder(damaged)
        session.store.db.execute(damage)
        session.store.close()
        with contextlib.closing(sqlite3.connect(damaged / NAME / BACKUP)) as copy:
            assert copy.execute("SELECT name FROM classes").fetchall() == [("kept",)]
            assert copy.execute("SELECT count(*) FROM images WHERE path LIKE 'flip%'").fetchone() == (0,)


def test_labels_that_are_older_than_their_copy_are_refused(folder, open_folder):
    """The last part of them was lost: what was said after it would be overwritten in the copy, too."""
    session = open_folder(folder)
    session.answer([session.images[0].id], new_class="kept")
    session.store.close()
    file, copy = folder / NAME / LABELS, folder / NAME / BACKUP
    old = file.read_bytes()
    session = open_folder(folder)
    session.answer([session.images[1].id], new_class="more")
    session.store.close()
    whole = copy.read_bytes()
    file.write_bytes(old)
    with pytest.raises(StoreError, match=f"lacks answers of {BACKUP}"):
        open_folder(folder)
    with pytest.raises(StoreError, match=f"lacks answers of {BACKUP}"):
        Store(folder / NAME, read_only=True)
    assert copy.read_bytes() == whole
    with contextlib.closing(sqlite3.connect(copy)) as damaged, damaged:  # then it says nothing about the labels
        damaged.execute("UPDATE answers SET class=1")
    assert open_folder(folder).state()["n_labelled"] == 1


@pytest.mark.parametrize(
    "change", ["images SET content=CAST(x'61ff' AS TEXT)", "lessons SET method=CAST(x'ff' AS TEXT)"]
)
def test_text_that_is_none_is_damage_before_the_copy_is_replaced(folder, open_folder, change):
    session = open_folder(folder)
    session.store.db.execute("INSERT INTO lessons VALUES(1, 0, 1, 0, 'x', NULL, NULL, NULL, NULL)")
    session.store.close()
    with contextlib.closing(sqlite3.connect(folder / NAME / LABELS)) as db, db:
        db.execute(f"UPDATE {change}")
    copy = (folder / NAME / BACKUP).read_bytes()
    with pytest.raises(StoreError, match=f"cannot be read: Could not decode .* copy .*{BACKUP}"):
        open_folder(folder)
    assert (folder / NAME / BACKUP).read_bytes() == copy


def test_a_start_keeps_what_a_killed_process_said(folder, open_folder, tmp_path):
    """SQLite takes damage in what it has written last for the end of it, without an error."""
    session = open_folder(folder)
    session.answer([session.images[0].id], new_class="kept")
    killed = Path(shutil.copytree(folder, tmp_path / "killed"))
    open_folder(killed)
    again = Path(shutil.copytree(killed, tmp_path / "again"))
    (again / NAME / f"{LABELS}-wal").unlink()
    assert open_folder(again).state()["n_labelled"] == 1


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE classes SET merged_into=3-class, gone=1",
        "UPDATE classes SET merged_into=77",
        "UPDATE classes SET name=x'00ff'",
        "UPDATE classes SET class=1099511627776",
        "UPDATE answers SET class=77",
        "UPDATE images SET path='text'",
        "UPDATE batches SET kind='undo'",
        "UPDATE batches SET kind='redo'",
        "INSERT INTO meta VALUES('curve_after', '99999999999999999999')",
        "INSERT INTO meta VALUES('port', '70000')",
        "INSERT INTO meta VALUES('max_pixels', 'many')",
        "INSERT INTO meta VALUES('max_pixels', '178956971')",
        "INSERT INTO meta VALUES('size', '4097')",
        "INSERT INTO meta VALUES('size', '16000')",
        "INSERT INTO meta VALUES('size', '0')",
        "INSERT INTO meta VALUES('word cat', '')",
        "INSERT INTO meta VALUES('word cat', x'31')",
        "INSERT INTO lessons VALUES(1, 0, 'x', 0, '', 7, 0, 1, 5)",
        "INSERT INTO lessons VALUES(1, 1, 5, 1, 'm', 0.5, 9e999, 0, 3)",
        "INSERT INTO lessons VALUES(1, 1, 5, 1, 'm', 0.5, 0, 'high', 3)",
        "INSERT INTO lessons VALUES(1, 1, 5, 1, 'm', 0.5, 0, 1, 9e999)",
        "UPDATE batches SET words=x'00'",
    ],
)
def test_stores_that_say_what_no_page_says_are_refused(tmp_path, change):
    """Their checksums may be right: whoever makes such a file can make these, too."""
    store = Store(tmp_path)
    store.sync(tmp_path, {"a.png": (1, 1)})
    store.add("do", Change("", [Answer(1, 1, False, "ask")], [Class(1, "cat"), Class(2, "dog")]))
    store.db.executescript(f"{change};")
    store._store_sums(_store.sums_of(store.db) | {SETTINGS: store._sum_of_settings()})
    store.close()
    with pytest.raises(
        StoreError, match=r"merged in a circle|undoes what was not said|rows that ledl label does not write"
    ):
        Store(tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        "CREATE TRIGGER t AFTER INSERT ON answers BEGIN UPDATE answers SET class=3-class; END",
        "CREATE VIEW batches_since AS SELECT * FROM batches",
        "CREATE TRIGGER t BEFORE INSERT ON answers BEGIN SELECT RAISE(IGNORE); END",
        "DROP TABLE lessons; CREATE VIEW lessons AS "
        "WITH RECURSIVE n(number) AS (SELECT 1 UNION ALL SELECT 1 FROM n) SELECT number FROM n",
        "DROP TABLE meta; CREATE VIEW meta AS SELECT 'format' AS key, '2' AS value",
        "DROP INDEX answers_of_batch; CREATE UNIQUE INDEX answers_of_batch ON answers(batch)",
        "UPDATE meta SET value='0' WHERE key='format'",
    ],
)
def test_files_with_tables_of_a_stranger_are_refused(tmp_path, change):
    """They would change what a person says, or take for ever."""
    Store(tmp_path).close()
    labels = (tmp_path / LABELS).read_bytes()
    with contextlib.closing(sqlite3.connect(tmp_path / LABELS)) as db:
        db.executescript(change)
    for read_only in (False, True):
        with pytest.raises(StoreError, match=r"not a table of ledl|other tables than"):
            Store(tmp_path, read_only=read_only)
    (tmp_path / LABELS).replace(tmp_path / BACKUP)  # where it says nothing about the labels
    (tmp_path / LABELS).write_bytes(labels)
    Store(tmp_path).close()


@pytest.mark.parametrize("what", ["link", "pipe"])
@pytest.mark.parametrize("of_features", [False, True])
def test_labels_of_a_stranger_do_not_write_through_links(folder, open_folder, tmp_path, what, of_features):
    """Photos may come with labels, and these with links to files of the user."""
    session = open_folder(folder)
    file, begin = session.store.file, partial(open_folder, folder)
    if of_features:
        begin = partial(FeatureRows, session.store.place, "a recipe")
        file = begin().file
    session.store.close()
    victim = tmp_path / "of the user"
    for name in (file.name, f"{file.name}-wal", BACKUP, file.with_suffix(".txt").name):
        odd, kept = file.with_name(name), tmp_path / "kept"
        if odd.exists():
            odd.rename(kept)
        victim.write_bytes(b"precious")
        victim.chmod(0o644)
        if what == "link":
            odd.symlink_to(victim)
        else:
            os.mkfifo(odd)
        with pytest.raises(StoreError, match=f"{name} is a link or a pipe.*remove it"):
            begin()
        assert (victim.read_bytes(), stat.S_IMODE(victim.stat().st_mode)) == (b"precious", 0o644)
        odd.unlink()
        if kept.exists():
            kept.rename(odd)
    begin()


@pytest.mark.parametrize("kind", ["skipped", "blank"])
def test_answers_before_there_is_any_class_are_no_damage(folder, open_folder, tmp_path, kind):
    """NULL is not in an empty set, SQL says, and the labels were called damaged."""
    labels = ["none"]
    if kind == "blank":
        names = sorted(path.relative_to(folder) for path in folder.rglob("*.png"))
        (tmp_path / "todo.csv").write_text("path,label\n" + "".join(f"{name},\n" for name in names))
        labels = [str(tmp_path / "todo.csv")]
    session = open_folder(folder, labels=labels)
    if kind == "skipped":
        session.answer([session.images[0].id], skip=True)
    n_said = len(session.store.answers())
    assert n_said > 0
    assert len(open_folder(folder).store.answers()) == n_said


@pytest.mark.parametrize("year", [9_999_999_999, -9_999_999_999])
def test_images_may_have_any_time(folder, open_folder, monkeypatch, year):
    """SQLite holds nanoseconds up to the year 2262."""
    changed, stat_of = [], Path.stat

    def of_another_time(path, **options):
        found = stat_of(path, **options)
        if path.suffix != ".png":
            return found
        changed.append(path)
        ns = {"st_mtime_ns": year * 10**9}
        return types.SimpleNamespace(**{n: getattr(found, n) for n in dir(found) if n.startswith("st_")} | ns)

    monkeypatch.setattr(Path, "stat", of_another_time)
    session = open_folder(folder)
    session.answer([session.images[0].id], new_class="kept")
    assert open_folder(folder).state()["n_labelled"] == 1
    assert changed


def test_folders_of_pictures_are_no_links(folder, open_folder, tmp_path):
    session = open_folder(folder)
    session.picture(0)
    (thumbs,) = (session.store.place / "thumbs").iterdir()
    session.store.close()
    thumbs.rename(tmp_path / "elsewhere")
    thumbs.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match="thumbs/0 is a link or a pipe"):
        open_folder(folder)


def test_statistics_of_other_programs_are_no_strange_tables(folder, open_folder):
    session = open_folder(folder)
    session.answer([session.images[0].id], new_class="kept")
    session.store.close()
    with contextlib.closing(sqlite3.connect(folder / NAME / LABELS)) as db, db:
        db.execute("ANALYZE")
    assert open_folder(folder).state()["n_labelled"] == 1


def test_labels_without_checksums_get_some(folder, open_folder, tmp_path):
    """Those of format 1."""
    session = open_folder(folder)
    session.answer([session.images[0].id], new_class="kept")
    session.store.db.execute("DROP TABLE sums")
    session.store.db.execute("UPDATE meta SET value='1' WHERE key='format'")
    session.store.close()
    (folder / NAME / BACKUP).rename(folder / NAME / OLD_BACKUP)
    labels = (folder / NAME / LABELS).rename(tmp_path / "labels")
    for content in (None, b"", b"damaged"):
        if content is not None:
            (folder / NAME / LABELS).write_bytes(content)
        with pytest.raises(StoreError, match=rf"cannot be read: .*copy .*{OLD_BACKUP}"):
            open_folder(folder)
    shutil.copy(labels, folder / NAME / LABELS)
    session = open_folder(folder)
    assert not (folder / NAME / OLD_BACKUP).exists()
    assert session.store.get("format") == "2"
    assert session.classes[session.image(0)["label"]].name == "kept"
    session.answer([session.images[1].id], new_class="newer")
    session.store.close()
    newest = (folder / NAME / LABELS).read_bytes()
    shutil.copy(labels, folder / NAME / LABELS)  # from a copy of one's own, without what was said since
    with pytest.raises(StoreError, match=f"lacks answers of {BACKUP}"):
        open_folder(folder)
    (folder / NAME / LABELS).write_bytes(newest)
    session = open_folder(folder)
    session.store.db.execute("UPDATE answers SET class=7")
    session.store.close()
    with pytest.raises(StoreError, match="not what was stored"):
        open_folder(folder)


def test_names_that_are_not_utf8(folder, open_folder):
    nasty = os.fsdecode(b"bad \xff name.png")
    try:
        shutil.copy(folder / "null/00.png", folder / nasty)
    except OSError:
        pytest.skip("this file system has only names in UTF-8")
    session = open_folder(folder)
    i = next(i for i, image in enumerate(session.images) if image.path == nasty)
    session.answer([session.images[i].id], new_class="a")
    assert session.names[i].isprintable()
    session = open_folder(folder)
    assert session.image(next(i for i, image in enumerate(session.images) if image.path == nasty))["label"] == 1


@contextlib.contextmanager
def as_plain_user():
    """Be a user who may not write everywhere, as root may."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_read_only_folder_has_its_labels_elsewhere(monkeypatch):
    with tempfile.TemporaryDirectory() as top:
        os.chmod(top, 0o755)
        folder, home = Path(top, "images"), Path(top, "home")
        folder.mkdir(mode=0o555)
        home.mkdir()
        home.chmod(0o777)
        monkeypatch.setenv("XDG_DATA_HOME", str(home))
        with as_plain_user():
            place = place_of(folder)
        assert place.is_relative_to(home)
        assert stat.S_IMODE(place.stat().st_mode) == 0o700
        assert not (folder / NAME).exists()
        (folder / NAME).mkdir()  # labels from a time when it was not read-only
        with as_plain_user(), pytest.raises(StoreError, match="--store"):
            place_of(folder)


def test_labels_of_a_folder_that_was_read_only_are_found_again(folder, open_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    refused = PermissionError(errno.EACCES, "Permission denied")
    make, inside = _store._made, folder / NAME

    def as_read_only(place):
        if place == inside:
            raise refused
        return make(place)

    with monkeypatch.context() as patched:
        patched.setattr(_store, "_made", as_read_only)
        session = open_folder(folder)
        session.answer([session.images[0].id], new_class="mine")
        assert session.store.place.is_relative_to(tmp_path / "home")
    session = open_folder(folder)  # it can be written to now
    assert [c.name for c in session.classes.values()] == ["mine"]
    assert not inside.exists()
    (tmp_path / "home").rename(tmp_path / "away")
    open_folder(folder)
    (tmp_path / "away").rename(tmp_path / "home")
    with pytest.raises(StoreError, match=r"two sets of labels.*--store"):
        open_folder(folder)


@pytest.fixture
def no_labels_in_folders(tmp_path, monkeypatch):
    """Let no folder of images be written to, so that labels are among the user's data."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    make = _store._made

    def as_read_only(place):
        if place.name == NAME:
            raise PermissionError(errno.EACCES, "Permission denied")
        return make(place)

    monkeypatch.setattr(_store, "_made", as_read_only)


@pytest.mark.usefixtures("no_labels_in_folders")
def test_labels_of_a_read_only_folder_at_another_path_are_named(folder, open_folder, tmp_path, monkeypatch):
    """A memory card is mounted elsewhere: its labels are among the user's data, and known by the old path."""

    def of_several_users(at, **options):
        if at == nobodys:
            raise PermissionError(errno.EACCES, "Permission denied")
        return Store(at, **options)

    session = open_folder(folder)
    said, place = label_each(session), session.store.place
    learn_here(session)
    card = folder.rename(tmp_path / "card")
    for _ in range(2):
        with pytest.raises(RefusedError, match=rf"To go on with them: --store .*{place.name}"):
            open_folder(card)
    assert not list(place.parent.glob(f"*/{LABELS}"))[1:]  # nothing was begun
    assert labels_by_content(open_folder(card, store=place)) == said
    with pytest.raises(RefusedError, match=place.name):
        open_folder(card)
    for file in card.rglob("*.png"):  # another card, with files as long as those
        content = file.read_bytes()
        file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    nobodys = place.with_name("0")  # of somebody else
    monkeypatch.setattr(_opening, "Store", of_several_users)
    nobodys.mkdir()
    assert not open_folder(card).store.answers()


@pytest.mark.usefixtures("no_labels_in_folders")
@pytest.mark.parametrize("why", ["the original is there", "few of them are here", "nothing was labelled"])
def test_labels_of_other_read_only_folders_do_not_keep_from_beginning(folder, open_folder, tmp_path, why):
    session = open_folder(folder)
    if why != "nothing was labelled":
        session.answer([session.images[0].id], new_class="mine")
    learn_here(session)
    names = [image.path for image in session.images]
    session.store.close()
    card = tmp_path / "card"
    if why == "the original is there":
        shutil.copytree(folder, card)
    else:
        folder.rename(card)
    for name in names[1:] if why == "few of them are here" else ():
        (card / name).unlink()
    assert not open_folder(card).store.answers()


def test_other_images_at_the_same_path_do_not_get_labels(folder, open_folder, tmp_path):
    """A memory card, and another one: IMG_0001 is another image."""
    store = tmp_path / "store"
    session = open_folder(folder, store=store, size=8)
    session.answer([session.images[0].id], new_class="mine")
    learn_here(session)
    for file in folder.rglob("*.png"):
        os.utime(file, (1, 1))
    session = open_folder(folder, store=store)  # only times have changed
    assert (session.label > 0).sum() == 1
    learn_here(session)
    pixels = np.random.default_rng(0).integers(0, 255, (8, 8, 3), dtype=np.uint8)
    for i, file in enumerate(sorted(folder.rglob("*.png"))):
        PIL.Image.fromarray(pixels + np.uint8(i)).save(file)
    with pytest.raises(RefusedError, match="labels of other images"):
        open_folder(folder, store=store)


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        (sqlite3.SQLITE_BUSY, BusyError, "^$"),
        (sqlite3.SQLITE_FULL, StoreError, "cannot be written: .*disk is full"),
        (sqlite3.SQLITE_NOTADB, StoreError, "is damaged"),
    ],
)
def test_a_lock_that_cannot_be_had_is_not_always_taken(tmp_path, monkeypatch, code, kind, words):
    error = sqlite3.OperationalError("no")
    error.sqlite_errorcode = code

    class Connection:
        def execute(self, query):
            raise error

        def close(self):
            pass

    monkeypatch.setattr(sqlite3, "connect", lambda *args, **options: Connection())
    with pytest.raises(kind, match=words) as caught, _store.alone(tmp_path):
        pass
    assert type(caught.value) is kind


def test_a_disk_without_access_rights(folder, open_folder, tmp_path, monkeypatch):
    """As a disk that was mounted for everybody: files belong to somebody else, and chmod is refused."""

    def refuse(path, mode, **options):
        raise PermissionError(errno.EPERM, "Operation not permitted", str(path))

    monkeypatch.setattr(os, "chmod", refuse)
    monkeypatch.setattr(shutil, "copystat", refuse)
    session = open_folder(folder, labels=["folder"], size=8)
    write(
        session, [tmp_path / name for name in ("labels.csv", "model.ledl", "sorted")], say=print, report=print
    )
    assert len(list((tmp_path / "sorted").rglob("*.png"))) == 36
    write(session, [tmp_path / "labels.csv"], say=print, report=print)  # once more, over the old one
    assert (tmp_path / "labels.csv").read_text().count(",folder,") == 36


def test_no_place_for_labels_at_all(folder, monkeypatch):
    def refuse(place):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(_store, "_made", refuse)
    with pytest.raises(StoreError, match="another folder with --store"):
        place_of(folder)


def test_a_store_of_ones_own_choice(folder, open_folder, tmp_path):
    session = open_folder(folder, store=tmp_path / "deep" / "store")
    assert session.store.place == tmp_path / "deep" / "store"
    assert not (folder / NAME).exists()


def test_stored_places_differ_by_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    taken = tmp_path / "a"
    taken.mkdir()
    (taken / NAME).write_text("a file in the way")
    other = tmp_path / "b"
    other.mkdir()
    (other / NAME).write_text("a file in the way")
    assert place_of(taken) != place_of(other)
    assert place_of(taken) == place_of(taken)


def test_features_are_those_of_the_same_file(tmp_path, rng):
    rows, again, other = (FeatureRows(tmp_path, recipe) for recipe in ("pixels", "pixels", "color"))
    images = [Image(7, "a", 10, 1), Image(3, "b", 20, 2)]
    X = rng.random((2, 5), dtype=np.float32)
    rows.put(images, ["x", None], X)
    changed = images[1]._replace(mtime=3)
    assert again.known([images[0], changed], {"b": "y"}.get) == {7}
    copied = images[0]._replace(mtime=3)  # as in a copy of the folder
    assert again.known([copied], lambda image: "y") == set()
    assert again.known([copied], lambda image: "x") == {7}
    assert again.known([copied], lambda image: None) == {7}  # its time is known now
    np.testing.assert_array_equal(again.matrix([3, 7]), X[::-1])
    assert again.contents([3, 7]) == [(7, "x")]
    assert other.known(images, lambda image: "x") == set()
    for opened in (rows, again, other):
        opened.close()


@pytest.mark.parametrize("key", ["token", "word folder cat"])
def test_changed_settings_are_damage(tmp_path, key):
    store = Store(tmp_path)
    store.set(**{"word folder cat": "1"})
    store.db.execute("UPDATE meta SET value='2' WHERE key=?", (key,))
    store.db.close()
    with pytest.raises(StoreError, match="not what was stored"):
        Store(tmp_path)


@pytest.mark.parametrize("change", ["size=11", "image=4", "content='y'", "content=CAST(x'ff' AS TEXT)"])
def test_features_with_another_name_or_content_do_not_count(tmp_path, change):
    rows = FeatureRows(tmp_path, "pixels")
    rows.put([Image(3, "a", 10, 1)], ["x"], np.ones((1, 5), dtype=np.float32))
    with rows.db:
        rows.db.execute(f"UPDATE rows SET {change}")
    images = [Image(3, "a", 10, 1), Image(3, "a", 11, 1), Image(4, "a", 10, 1)]
    assert not any(rows.known([image], lambda image: "x") for image in images)
    rows.close()


def test_a_flipped_bit_never_changes_features(tmp_path, rng):
    images, X = [Image(k, f"{k}", 10, 1) for k in range(50)], rng.random((50, 20), dtype=np.float32)
    rows = FeatureRows(tmp_path, "pixels")
    rows.put(images, ["x"] * 50, X)
    rows.close()
    whole, n_missing = rows.file.read_bytes(), 0
    for _ in range(200):
        content = np.frombuffer(whole, np.uint8).copy()
        content[rng.integers(len(content))] ^= 1 << rng.integers(8)
        rows.file.write_bytes(content)
        again = FeatureRows(tmp_path, "pixels")
        ids = sorted(again.known(images, lambda image: "x"))
        n_missing += len(ids) < 50
        np.testing.assert_array_equal(again.matrix(ids), X[ids] if ids else np.empty((0, 0)))
        assert again.contents(ids) == [(key, "x") for key in ids]
        again.close()
    assert n_missing > 50


@pytest.mark.parametrize("damage", ["text", "middle"])
def test_damaged_features_are_made_again(tmp_path, rng, damage):
    rows = FeatureRows(tmp_path, "pixels")
    images = [Image(k, f"{k}", 10, 1) for k in range(200)]
    rows.put(images, ["x"] * 200, rng.random((200, 50), dtype=np.float32))
    rows.close()
    content = bytearray(b"no database\n" * 1000 if damage == "text" else rows.file.read_bytes())
    if damage == "middle":
        content[4096:12288] = os.urandom(8192)
    rows.file.write_bytes(content)
    again = FeatureRows(tmp_path, "pixels")
    assert again.known(images, lambda image: "x") == set()
    again.put(images[:1], ["x"], np.ones((1, 50), dtype=np.float32))
    assert again.known(images, lambda image: "x") == {0}
    (n_pages,) = again.db.execute("PRAGMA page_count").fetchone()
    again.db.execute(f"PRAGMA max_page_count={n_pages}")
    with pytest.raises(StoreError, match="full"):
        again.put(images, ["x"] * 200, rng.random((200, 5000), dtype=np.float32))
    again.close()


def test_a_reader_sees_what_the_writer_has_said(folder, open_folder):
    session = open_folder(folder)
    session.answer([session.images[0].id], new_class="a")
    reader = Store(session.store.place, read_only=True)
    session.answer([session.images[1].id], new_class="b")  # all that a reader sees is of one moment
    assert reader.answers() == [Answer(session.images[0].id, 1, False, "all")]
    assert [one.name for one in reader.classes().values()] == ["a"]
    with pytest.raises(StoreError, match="Not stored"):
        reader.add("do", Change("", [Answer(1, None, True, "all")], []))
    reader.close()


def test_a_reader_opens_the_labels_as_they_were_at_one_moment(folder, open_folder, monkeypatch):
    """It compares them with their checksums, and a page may store an answer between the two."""
    session, sums = open_folder(folder), Store._sum_of_settings

    def sum_after_an_answer(store):
        if store is not session.store:
            session.answer([session.images[0].id], new_class="a")
        return sums(store)

    monkeypatch.setattr(Store, "_sum_of_settings", sum_after_an_answer)
    Store(session.store.place, read_only=True).close()
    assert session.state()["n_labelled"] == 1


def test_a_reader_of_labels_that_are_just_begun(tmp_path):
    (tmp_path / LABELS).touch()
    with pytest.raises(StoreError, match="There are no labels yet"):
        Store(tmp_path, read_only=True)


def test_labels_that_are_deleted_while_they_are_open_take_no_answer(folder, open_folder):
    """SQLite goes on writing to a file without a name, which is lost. Another name is no harm."""
    session = open_folder(folder)
    ids = [image.id for image in session.images]
    place = session.store.place
    place.rename(place.with_name(".elsewhere"))
    session.answer(ids[:1], new_class="a")
    place.with_name(".elsewhere").rename(place)
    shutil.rmtree(place)
    with pytest.raises(StoreError, match=r"Not stored: the labels in .* were deleted"):
        session.answer(ids[1:2], 1)
    assert session.state()["n_labelled"] == 1
    assert session.store.is_deleted


def test_settings_are_stored_with_their_change_or_not_at_all(folder, open_folder):
    store = open_folder(folder).store
    image = store.images()[0].id
    with pytest.raises(StoreError, match="Not stored"):
        store.add("import", Change("", [Answer(image, 1, None, "all")], []), settings={"labels": "a.csv"})
    assert store.get("labels") == "none"
    store.add("import", Change("", [Answer(image, 1, False, "all")], []), settings={"labels": "a.csv"})
    assert store.get("labels") == "a.csv"


def test_settings_that_are_not_utf8_are_refused(tmp_path):
    store = Store(tmp_path)
    with pytest.raises(StoreError, match=r"not UTF-8. Rename it"):
        store.set(labels="bad \udcff.csv")
    assert store.get("labels") == ""
    store.close()


def test_settings_are_one_transaction(folder, open_folder):
    """Each one alone would wait for the disk: thousands of words of a table would take minutes."""
    store, begun = open_folder(folder).store, []
    store.db.set_trace_callback(lambda text: begun.append(text) if text.startswith("BEGIN") else None)
    store.set(**{f"word {k}": "1" for k in range(100)})
    assert len(begun) == 1
    assert len(store.words()) == 100


def test_closing_other_labels_of_this_folder_lets_go_of_no_lock(folder, open_folder):
    locks = Path("/proc/locks")
    if not locks.exists():
        pytest.skip("locks are listed in /proc")
    store = open_folder(folder).store
    number = f":{store.file.stat().st_ino} "
    before = [line for line in locks.read_text().splitlines() if number in line]
    Store(store.place, read_only=True).close()
    after = [line for line in locks.read_text().splitlines() if number in line]
    assert len(before) == len(after) > 0
