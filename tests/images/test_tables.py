"""Tables of labels, as people, spreadsheets and ledl predict write them."""

import os
import shutil
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ledl.csv_cells import to_cell
from ledl.datasets import load_image_folder
from ledl.features import ImageError
from ledl.images import _tables, read_labels


@pytest.fixture
def photos(tmp_path):
    for k, name in enumerate(("a.png", "b.png", "sub/c.png", "Käse.png")):
        path = tmp_path / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((6, 8, 3), 100 + k, np.uint8)).save(path)
    return tmp_path / "photos"


def labels_of(photos, table):
    found = load_image_folder(photos, labels=table, decode=False)
    names = [os.path.relpath(file, photos) for file in found.filenames]
    return dict(zip(names, [found.target_names[j] for j in found.target], strict=True))


def test_columns_have_names_or_are_the_first_two(photos):
    table = photos / "labels.csv"
    expected = {"a.png": "cat", "b.png": "dog", "sub/c.png": "dog"}
    for text in (
        "label,filename\ndog,b.png\ncat,a.png\ndog,sub/c.png\n",
        "b.png,dog\na.png,cat\nsub/c.png,dog\n",
        "score,Path,note,LABEL\n0.5,b.png,x,dog\n\n0.7,a.png,,cat\n,,,\n1,./sub/c.png,y,dog,more\n",
    ):
        table.write_text(text)
        assert labels_of(photos, table) == expected
        assert labels_of(photos, "labels.csv") == expected  # in the folder of images


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_tables_of_spreadsheets_are_understood(encoding, separator, end, photos, tmp_path):
    rows = [("path", "label", "score"), ("Käse.png", "größer, kleiner", "0,5"), ("a.png", "b;c", "")]
    quoted = [[f'"{cell}"' if {*",;"} & {*cell} else cell for cell in row] for row in rows]
    (tmp_path / "t.csv").write_bytes(end.join(map(separator.join, quoted)).encode(encoding))
    assert labels_of(photos, tmp_path / "t.csv") == {"Käse.png": "größer, kleiner", "a.png": "b;c"}


@pytest.mark.parametrize("first", ["sep=;", "SEP=;\r", '"sep=;"', "sep=\t", "sep=|"])
def test_the_separator_that_a_table_names(first, photos, tmp_path):
    table, separator = tmp_path / "t.csv", first.strip('"\r')[-1]
    table.write_text(f"{first}\npath{separator}label\na.png{separator}a,b\nb.png{separator}c\n")
    assert labels_of(photos, table) == {"a.png": "a,b", "b.png": "c"}
    table.write_text(f"{first}\npath{separator}label\nnone.png{separator}a\n")
    with pytest.raises(ImageError, match="line 3"):
        labels_of(photos, table)


@pytest.mark.parametrize("end", ["\r", "\n", "\r\n"])
def test_the_line_with_the_separator_may_end_in_any_way(end, photos, tmp_path):
    (tmp_path / "t.csv").write_bytes(f"sep=;{end}path;label{end}a.png;a,b{end}gone.png;c{end}".encode())
    with pytest.raises(ImageError, match=r"line 4: there is no image 'gone.png'"):
        labels_of(photos, tmp_path / "t.csv")
    (tmp_path / "t.csv").write_bytes(f"sep=;{end}a.png;a,b{end}b.png;c, d{end}".encode())
    assert labels_of(photos, tmp_path / "t.csv") == {"a.png": "a,b", "b.png": "c, d"}


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_what_else_may_separate_cells_is_in_all_lines(separator, photos, tmp_path):
    """Without a header: decimal commas, and labels with semicolons."""
    os.rename(photos / "b.png", photos / "b;,.png")
    rows = [("a.png", "cat; big", "0,75"), ("b;,.png", "dog; small", "0,25")]
    for order in (rows, rows[::-1]):
        quoted = [[f'"{cell}"' if separator in cell else cell for cell in row] for row in order]
        (tmp_path / "t.csv").write_text("\n".join(map(separator.join, quoted)))
        assert labels_of(photos, tmp_path / "t.csv") == {"a.png": "cat; big", "b;,.png": "dog; small"}


@pytest.mark.parametrize("how", [shutil.copy, os.symlink])
def test_a_table_corrects_copies_of_the_images_that_it_names(how, photos, tmp_path):
    """Such as those that `ledl predict --sort-into` has made."""
    for name in ("cat", "dog"):
        (tmp_path / "sorted" / name).mkdir(parents=True)
    how(photos / "a.png", tmp_path / "sorted" / "cat" / "a.png")
    how(photos / "b.png", tmp_path / "sorted" / "dog" / "b.png")
    table = tmp_path / "t.csv"
    for label in ("dog", "", "none of these"):
        table.write_text(f"path,label\nphotos/a.png,{label}\nphotos/sub/c.png,cat\n")
        found = load_image_folder(tmp_path / "sorted", labels=["folder", table], decode=False)
        names = [Path(file).name for file in found.filenames]
        assert names == ["c.png", *["a.png"] * (label == "dog"), "b.png"]
        assert [found.target_names[j] for j in found.target[1:]] == ["dog"] * len(names[1:])
        assert [Path(file).name for file in found.unlabelled] == ["a.png"] * (label == "")
        assert [Path(file).name for file in found.added] == ["c.png"]
    # A table that contradicts itself: both are used, and the contradiction is reported.
    of_copy, of_image = "sorted/cat/a.png,cat\n", "photos/a.png,dog\n"
    table.write_text(f"path,label\n{of_copy}{of_image}")
    found = load_image_folder(tmp_path / "sorted", labels=["folder", table], decode=False)
    labels = {file: found.target_names[j] for file, j in zip(found.filenames, found.target, strict=True)}
    assert [labels[file] for file in sorted(labels) if Path(file).name == "a.png"] == ["dog", "cat"]
    (tmp_path / "second.csv").write_text("path,label\nphotos/a.png,cat\n")  # which settles it
    found = load_image_folder(
        tmp_path / "sorted", labels=["folder", table, tmp_path / "second.csv"], decode=False
    )
    assert [Path(file).parent.name for file in found.filenames] == ["cat", "dog"]
    for first, second in ((of_copy, of_image), (of_image, of_copy)):  # of several tables the last one counts
        table.write_text(f"path,label\n{first}")
        (tmp_path / "second.csv").write_text(f"path,label\n{second}")
        tables = ["folder", table, tmp_path / "second.csv"]
        found = load_image_folder(tmp_path / "sorted", labels=tables, decode=False)
        assert [Path(file).parent.name for file in found.filenames] == ["cat", "dog"]
        labels = dict(zip(found.filenames, found.target, strict=True))
        assert found.target_names[labels[str(tmp_path / "sorted" / "cat" / "a.png")]] == second.strip()[-3:]


def test_path_counts_more_than_other_names_of_its_column(photos, tmp_path):
    (tmp_path / "t.csv").write_text("filename,path,label\na.png,b.png,cat\n")
    assert labels_of(photos, tmp_path / "t.csv") == {"b.png": "cat"}


def test_an_image_elsewhere_is_one_image_however_its_path_is_written(photos, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "class" / "cat").mkdir(parents=True)
    shutil.copy(photos / "b.png", "class/cat")
    Path("link").symlink_to(photos)
    for first, second in (("./photos", photos), (photos, "link"), ("link", "photos/../photos")):
        Path("1.csv").write_text(f"path,label\n{first}/a.png,cat\n")
        for label in ("dog", "", "none of these"):
            Path("2.csv").write_text(f"path,label\n{second}/a.png,{label}\n")
            found = load_image_folder("class", labels=["folder", "1.csv", "2.csv"], decode=False)
            names = [Path(file).name for file in found.filenames]
            assert [Path(file).name for file in found.added] == ["a.png"] * (label == "dog")
            assert names == (["b.png", "a.png"] if label == "dog" else ["b.png"])  # the last table counts
            assert [Path(file).name for file in found.unlabelled] == ["a.png"] * (label == "")
        Path("2.csv").write_text(f"path,label\n{first}/a.png,cat\n{second}/a.png,dog\n")
        with pytest.raises(ImageError, match="has two labels"):
            load_image_folder("class", labels=["folder", "2.csv"], decode=False)


def test_paths_begin_at_the_folder_the_table_or_here(photos, tmp_path, monkeypatch):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for table, name in (
        (elsewhere / "t.csv", "a.png"),  # from the folder
        (tmp_path / "t.csv", "./photos/a.png"),  # from the table
        (elsewhere / "t.csv", "./photos/a.png"),  # from the current folder
        (elsewhere / "t.csv", str(photos / "a.png")),
    ):
        table.write_text(f"path,label\n{name},cat\n")
        monkeypatch.chdir(tmp_path if name.startswith("./") and table.parent == elsewhere else "/")
        assert labels_of(photos, table) == {"a.png": "cat"}
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("path,label\n./photos/a.png,cat\n")
    assert labels_of("photos", "t.csv") == {"a.png": "cat"}
    (tmp_path / "link").symlink_to(photos)
    assert labels_of("link", "t.csv") == {"a.png": "cat"}


def test_a_path_with_two_meanings_is_refused(photos, tmp_path):
    (photos / "photos").mkdir()
    os.rename(photos / "b.png", photos / "photos" / "a.png")
    (tmp_path / "t.csv").write_text("path,label\nphotos/a.png,cat\n")
    with pytest.raises(ImageError, match=r"line 2: 'photos/a.png' may be .*photos/photos/a.png and "):
        labels_of(photos, tmp_path / "t.csv")


def test_blank_labels_are_no_labels(photos):
    (photos / "t.csv").write_text("path,label\na.png,cat\nb.png, \nsub/c.png\n")
    found = load_image_folder(photos, labels="t.csv", decode=False)
    assert [os.path.relpath(file, photos) for file in found.filenames] == ["a.png"]
    assert [os.path.relpath(path, photos) for path in found.unlabelled] == ["b.png", "sub/c.png"]
    assert not any("label" in reason for _, reason in found.unused)


def test_classes_that_would_be_formulas_are_read_back(photos):
    (photos / "t.csv").write_text(f'path,label\na.png,"{to_cell("=1+2").replace(chr(34), chr(34) * 2)}"\n')
    assert labels_of(photos, "t.csv") == {"a.png": "=1+2"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("../secret.png,cat\n", r"line 1: the image '../secret.png' is not in .* --labels folder"),
        ("path,label\na.png,cat\n\n\na.png,dog\n", "line 5: 'a.png' has two labels, 'cat' and 'dog'"),
        ("a.png\n", "must have a path and a label in every line"),
        ("a.png,\n", "has no labels: all 1 images in it are unlabelled"),
        ("", "must have a path and a label"),
        (
            f"a.png,{'x' * 300}\nb.png,cat\n",
            "line 1: the label 'x*'... has 300 characters, but 255 is the limit",
        ),
        ("path,label\n,cat\n", "line 2: there is a label, 'cat', but no path"),
        ("a.png,Cat\nb.png,cat\n", "Two classes have the same name: 'Cat' and 'cat'"),
        ("a.png,dog\ngone.png,cat\n", "line 2: there is no image 'gone.png'"),
        ("path,label\na.png,dog\n%s,cat\n" % ("x" * 5000), "line 3: there is no image 'x{200}'. Paths"),
        ('path,label\n"""a\\u0000.png""",cat\n', r"line 2: there is no image 'a\\x00.png'"),
        ('path,label\n"""a\\ud800.png""",cat\n', r"line 2: there is no image 'a\\ud800.png'"),
        ('a.png,cat\nb.png,"dog\nsub/c.png,dog\n', "line 2: a quotation mark is not closed.* Remove it"),
        ('path,label,note\na.png,cat,"x\nb.png,dog,\n', "line 2: a quotation mark is not closed"),
        ('a.png,cat\nb.png,"dog', "line 2: a quotation mark is not closed"),
        (
            'a.png,cat\nb.png,"dog\nsub/c.png,"a, b"\n',
            r"line 2: the label 'dog\\nsub/c.png,a' has a line break",
        ),
        ('a.png,cat\r"b.png,dog\rsub/c.png",dog\r', r"line 2: there is no image 'b.png,dog\\rsub/c.png'"),
        ('a.png,cat\nb.png,"' + "x,y\n" * 50_000, "line 2 has no end .*Close its quotation mark"),
        ("aa," * 400_000, r"line 1 has no end \(1,048,576 characters or more\). Close its quotation mark"),
        ("a.png,cat\n" + '"\n",' * 300_000, r"line 2 has no end \(1,048,576 characters or more\)"),
        ("\n" * 999_999 + "gone.png,cat", "line 1000000: there is no image"),
        ("a,b\n" * 1_000_001, "has more than 1,000,000 lines. Leave out those that you do not need"),
        ("path,label\n", "must have a path and a label"),
        ("PK\x03\x04\0\0", "cannot be read: it is not text. In a spreadsheet, save the table as CSV"),
    ],
)
def test_bad_tables_are_reported_with_the_line(text, message, photos):
    (photos.parent / "secret.png").write_bytes((photos / "a.png").read_bytes())
    (photos / "labels.csv").write_text(text)
    with pytest.raises(ImageError, match=message):
        load_image_folder(photos, labels="labels.csv")


def test_quotation_marks_that_are_closed_are_understood(photos):
    os.rename(photos / "b.png", photos / "b\nb.png")
    rows = [
        '"a.png",""',
        '"b\nb.png","a ""big"" cat"',
        'sub/c.png,"dog" 2',
        'Käse.png,5" pipe,"a\nnote"',
        '"a.png",cat\n',
    ]
    (photos / "t.csv").write_text("\n".join(rows))
    expected = {"a.png": "cat", "b\nb.png": 'a "big" cat', "sub/c.png": "dog 2", "Käse.png": '5" pipe'}
    assert labels_of(photos, "t.csv") == expected
    (photos / "t.csv").write_text(
        f'path,label\na.png,"{to_cell("a" + chr(10) + "b").replace(chr(34), chr(34) * 2)}"\n'
    )
    assert labels_of(photos, "t.csv") == {"a.png": "a\nb"}  # as ledl predict writes it


def test_paths_that_no_system_allows_are_not_looked_for(photos, monkeypatch):
    """Of each of their parts the system would be asked."""
    (photos / "t.csv").write_text(f"{'/a' * 3000},cat\n")
    monkeypatch.setattr(os.path, "realpath", lambda path, **options: pytest.fail(path))
    with pytest.raises(ImageError, match="line 1: there is no image"):
        read_labels(photos, photos / "t.csv")


def test_only_one_line_of_a_table_is_in_memory(photos, monkeypatch):
    monkeypatch.setattr(_tables, "LARGEST_TABLE", 2**20)
    (photos / "t.csv").write_text("path,label\na.png,cat\n" + ",,x\n" * 100_000)
    tracemalloc.start()
    assert read_labels(photos, photos / "t.csv") == {photos / "a.png": "cat"}
    assert tracemalloc.get_traced_memory()[1] < 2**22
    tracemalloc.stop()


def test_a_missing_table_is_reported(photos):
    with pytest.raises(ImageError, match=r"no table gone.csv, neither here nor in .*downloads"):
        load_image_folder(photos, labels="gone.csv")


@pytest.mark.parametrize("kind", ["pipe", "device", "hole"])
def test_tables_that_never_end_are_refused(photos, kind):
    table = photos / "labels.csv"
    if kind == "pipe":
        os.mkfifo(table)
    elif kind == "device":
        table.symlink_to("/dev/zero")
    else:
        table.write_bytes(b"")
        os.truncate(table, 2**40)
    reason = (
        r"has more than 67 MB\. Give a smaller file"
        if kind == "hole"
        else "is a folder, a device or a pipe. Give"
    )
    with pytest.raises(ImageError, match=f"labels.csv cannot be read: .*{reason}"):
        load_image_folder(photos, labels="labels.csv")
