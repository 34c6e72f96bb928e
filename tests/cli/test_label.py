"""The command `ledl label`: how it starts, ends and fails. tests/labelling has what is behind it."""

import builtins
import shutil
import socket

import pytest

from helpers.commands import run
from helpers.digits import write_digits
from helpers.label_server import Running


@pytest.fixture
def images(tmp_path):
    return write_digits(tmp_path) / "known"


def test_it_ends_with_ctrl_c_and_says_how_to_go_on(images, tmp_path):
    server = Running(images, "--labels", "none", "--size", "8", "--store", tmp_path / "store")
    status, out, err = server.stop()
    assert status == 0
    assert "Traceback" not in err
    assert f"Labels:  {tmp_path / 'store'}" in out
    assert f"ledl label {images} --store {tmp_path / 'store'}" in out
    assert "--export labels.csv" in out
    assert not (tmp_path / "store" / "address").exists()


def test_the_address_answers_when_it_is_printed(images):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = Running(images, "--port", port)
    try:
        assert server.port == port
        assert server.ask("/")[0] == 200
    finally:
        server.kill()


def test_a_taken_port_is_an_error_in_plain_words(images):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = run("label", images, "--no-browser", "--port", port)
    assert done.returncode == 2
    assert f"The port {port} cannot be used" in done.stderr


def test_without_the_extra_the_error_names_it(images, monkeypatch):
    real = builtins.__import__

    def without(name, *rest):
        if name.split(".")[0] == "uvicorn":
            raise ModuleNotFoundError(f"No module named {name!r}", name="uvicorn")
        return real(name, *rest)

    import sys

    for name in [
        name for name in sys.modules if name.startswith("ledl.labelling") or name.split(".")[0] == "uvicorn"
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", without)
    done = run("label", images, "--no-browser")
    assert done.returncode == 2
    assert "pip install 'ledl[label]'" in done.stderr
    assert not (images / ".ledl-labels").exists()


def test_errors_come_before_anything_is_written(images, tmp_path):
    for words, text in (
        ([tmp_path / "missing"], "does not exist"),
        ([images / "null" / "00.png"], "is a file"),
        ([images, "--unsure", "0.5"], "--export DIR"),
        ([images, "--features", "color", "--size", "8"], "--features pixels"),
        ([images, "--labels", "missing.csv"], "no table"),
        ([images, "--export", tmp_path / "no" / "labels.csv"], "no folder"),
    ):
        done = run("label", *words, "--no-browser")
        assert done.returncode == 2, words
        assert text in done.stderr
        assert "Traceback" not in done.stderr
    (tmp_path / "empty").mkdir()
    assert "no images" in run("label", tmp_path / "empty").stderr
    assert list((tmp_path / "empty").iterdir()) == []


def test_labels_of_a_table_without_a_page(images, tmp_path):
    (tmp_path / "known.csv").write_text("path,label\nnull/00.png,zero\nzwei/00.png,two\n")
    out = tmp_path / "labels.csv"
    done = run("label", images, "--labels", tmp_path / "known.csv", "--size", "8", "--export", out)
    assert done.returncode == 0, done.stderr
    assert out.read_text().count(",table,") == 2
    assert out.read_text().count(",model,") == 34
    shutil.rmtree(images / ".ledl-labels")


def test_exports_are_said_also_if_a_later_one_fails(images, tmp_path):
    (tmp_path / "known.csv").write_text("path,label\nnull/00.png,zero\n")
    out, folder = tmp_path / "out.csv", tmp_path / "sorted"
    folder.mkdir()
    (folder / "zero").write_text("a file in the place of a class")
    words = ["--labels", tmp_path / "known.csv", "--size", "8", "--export", out, "--export", folder]
    done = run("label", images, *words)
    assert done.returncode == 2
    assert f"Labels: {out}" in done.stdout
    assert "zero is a file, not a folder" in done.stderr.splitlines()[-1]
    assert out.exists()
    shutil.rmtree(images / ".ledl-labels")


def test_an_export_does_not_replace_what_it_reads(images, tmp_path):
    table = tmp_path / "known.csv"
    table.write_text("path,label,note\nnull/00.png,null,mine\n")
    before = table.read_text()
    twice = ["--export", "a.csv", "--export", tmp_path / "a.csv"]
    for options in (["--labels", table, "--export", table], twice):
        done = run("label", images, *options, cwd=tmp_path)
        assert done.returncode == 2
        assert "would replace the file of another option" in done.stderr
    assert table.read_text() == before
    assert not (tmp_path / "a.csv").exists()
