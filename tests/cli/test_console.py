"""What all commands print to people and programs, and how they end."""

import errno
import io
import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from helpers.commands import FAST, LEDL, run, run_in_terminal
from helpers.digits import NAMES
from ledl.__main__ import main
from ledl.cli import app

QUICK = ["--methods", "1-nn", "--splits", "1", "--no-figures", "--jobs", "1"]


def test_version_and_no_command():
    assert run("--version").stdout.startswith("ledl 0.")
    assert "reproduce" in run().stdout


def test_the_shell_completes_commands_methods_and_datasets():
    for words, expected in (
        ("ledl pr", "predict"),
        ("ledl fit photos --method lck", "lcksvd"),
        ("ledl reproduce ya", "yaleb"),
        ("ledl datasets us", "usps"),
    ):
        asked = {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" ")), "_LEDL_COMPLETE": "complete_bash"}
        done = CliRunner().invoke(app, [], env=asked, prog_name="ledl")
        assert expected in done.stdout.split()


def test_whatever_is_not_used_is_listed(folder, model, tmp_path):
    mixed = tmp_path / "mixed"
    shutil.copytree(folder / "known", mixed)
    for name in ("notes.txt", ".hidden"):
        (mixed / "null" / name).write_bytes(b"")
    for done in (
        run("predict", model, mixed),
        run("predict", model, mixed, "--labels", "folder"),
        run("fit", mixed, "-o", tmp_path / "m.ledl", *FAST),
    ):
        assert done.returncode == 0
        assert f"Not used (hidden, or made by a system): 1: {mixed / 'null' / '.hidden'}\n" in done.stderr
        assert f"(no image, by the ending of the name): 1: {mixed / 'null' / 'notes.txt'}\n" in done.stderr


def test_names_cannot_control_the_terminal(folder, tmp_path, monkeypatch):
    odd = tmp_path / "odd"
    for name, new in zip(NAMES, ["\x1b[31mred", "b\xe9", "c"], strict=True):
        shutil.copytree(folder / "known" / name, odd / new)
    out = tmp_path / "m.ledl"
    assert run("fit", odd, "-o", out, "--per-class", "6", *FAST).returncode == 0
    for done in (run("info", out), run("predict", out, odd, "--labels", "folder")):
        assert done.returncode == 0
        assert "\x1b" not in done.stdout
    # A terminal without letters such as é gets escapes.
    printed = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(printed, encoding="ascii"))
    monkeypatch.setattr(sys, "argv", ["ledl", "predict", str(out), str(odd), "--labels", "folder"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    sys.stdout.flush()
    assert "Accuracy" in printed.getvalue().decode("ascii")
    assert "b\\xe9" in printed.getvalue().decode("ascii")


def test_a_closed_pipe_prints_no_error(folder, model, tmp_path):
    for i in range(10):
        shutil.copytree(folder / "known", tmp_path / str(i))
    words = [*LEDL, "predict", str(model), str(tmp_path), "--format", "csv"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode != 0


def run_unread(*words):
    """Run a command whose reader is gone before the first line. Return its status and stderr."""
    words = [*LEDL, *map(str, words)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.stdout.close()
        printed = process.stderr.read()
    return process.returncode, printed


def test_fit_writes_all_files_also_if_nobody_reads_its_lines(folder, tmp_path):
    outputs = [tmp_path / name for name in ("model.ledl", "labels.csv", "page.html")]
    words = [word for pair in zip(("-o", "--write-labels", "--page"), outputs, strict=True) for word in pair]
    _, printed = run_unread("fit", folder / "known", "--unlabelled", folder / "others", *words, *FAST)
    assert [path.exists() for path in outputs] == [True] * 3, printed


def test_label_writes_all_files_also_if_nobody_reads_its_lines(folder, tmp_path):
    outputs = [tmp_path / name for name in ("labels.csv", "page.html", "model.ledl", "sorted")]
    words = [word for path in outputs for word in ("--export", path)]
    words += ["--size", "8", "--store", tmp_path / "labels"]
    status, printed = run_unread("label", folder / "known", *words)
    assert (status, [path.exists() for path in outputs]) == (0, [True] * 4), printed


@pytest.mark.parametrize("form", ["table", "csv", "json"])
def test_predict_writes_all_files_also_if_nobody_reads_its_lines(folder, model, tmp_path, form):
    whole = ["predict", model, folder / "known", "--labels", "folder", "--format", form]
    outputs = {}
    for name, ends in (("read", lambda *words: run(*words).returncode), ("unread", run_unread)):
        place = tmp_path / name
        place.mkdir()
        files = place / "sorted", place / "page.html", place / "matrix.csv"
        ended = ends(*whole, "--sort-into", files[0], "--page", files[1], "--confusion", files[2])
        images = sorted(str(path.relative_to(place)) for path in files[0].rglob("*"))
        assert images
        outputs[name] = files[1].exists(), files[2].read_text(), images
    assert outputs["read"] == outputs["unread"]
    status, printed = ended
    assert (status, "Copied into folders" in printed) == (0, True)


@pytest.mark.parametrize("option", ["--sort-into", "--page", "--confusion"])
def test_predict_writes_one_file_also_if_nobody_reads_its_lines(folder, model, tmp_path, option):
    words = ["predict", model, folder / "known", "--labels", "folder", option, tmp_path / "output.html"]
    _, printed = run_unread(*words)
    assert (tmp_path / "output.html").exists(), printed


def test_what_was_done_is_said_also_if_the_page_cannot_be_written(folder, model, tmp_path, monkeypatch, capfd):
    def fail(path, content, **how):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    monkeypatch.setattr("ledl.cli._images.write_atomically", fail)
    known, out, page = str(folder / "known"), tmp_path / "m.ledl", str(tmp_path / "p.html")
    for words, said in (
        (["fit", known, "-o", str(out), "--page", page, *FAST], ["Accuracy:", f"Model:      {out}"]),
        (
            [
                "predict",
                str(model),
                known,
                "--labels",
                "folder",
                "--sort-into",
                str(tmp_path / "s"),
                "--page",
                page,
            ],
            ["Accuracy:", "Copied into folders"],
        ),
    ):
        monkeypatch.setattr(sys, "argv", ["ledl", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capfd.readouterr()
        assert ended.value.code == 2
        assert all(line in printed.out + printed.err for line in said), printed
        assert printed.err.splitlines()[-1].startswith(f"Error: {page} cannot be written: No space left")
    assert out.exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize(
    "words",
    [
        ["predict", "MODEL", "IMAGE", "--format", "csv"],
        ["reproduce", *QUICK, "--out", "OUT"],
        ["reproduce", *QUICK, "--out", "OUT", "--json"],
        ["--help"],
        ["fit", "--help"],
        ["--version"],
    ],
)
def test_a_full_disk_behind_a_redirect_is_one_line(folder, model, tmp_path, words):
    places = {"MODEL": model, "IMAGE": folder / "known" / "null" / "00.png", "OUT": tmp_path}
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*LEDL, *(str(places.get(word, word)) for word in words)],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
        )
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("Error: The output cannot be written: No space left")
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_all_exports_are_written_though_nothing_can_be_printed(folder, tmp_path):
    shutil.copytree(folder / "known", tmp_path / "known")
    outs = [tmp_path / "a.csv", tmp_path / "b.html"]
    words = ["label", tmp_path / "known", "--size", "8", "--labels", "folder"]
    words += [word for out in outs for word in ("--export", out)]
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*LEDL, *map(str, words)], stdout=full, stderr=subprocess.PIPE, text=True, timeout=120
        )
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("Error: The output cannot be written: No space left")
    assert all(out.exists() for out in outs)


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["fit", "KNOWN", *FAST, "-o"], "new.ledl"),
        (["predict", "MODEL", "KNOWN", "--page"], "page.html"),
        (["explain", "MODEL", "IMAGE", "-o"], "page.html"),
    ],
    ids=["fit", "predict", "explain"],
)
def test_a_full_disk_is_said_with_the_name_of_the_file_and_the_remedy(
    folder, model, tmp_path, monkeypatch, words, name
):
    def fill(*args):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("ledl.files._give_access", fill)
    places = {"MODEL": model, "KNOWN": folder / "known", "IMAGE": folder / "known" / "null" / "00.png"}
    done = run(*(places.get(word, word) for word in words), tmp_path / name)
    assert done.returncode == 2
    text = f"{(tmp_path / name).resolve()} cannot be written: No space left on device. Make room, or"
    assert f"Error: {text} write it elsewhere." in done.stderr


def test_a_disk_that_is_read_only_is_said_with_the_remedy(tmp_path, monkeypatch):
    def refuse(path, *args, **options):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    monkeypatch.setattr(Path, "mkdir", refuse)
    done = run("datasets", "digits", "-o", tmp_path / "d")
    assert done.returncode == 2
    reason = "cannot be written: Read-only file system. Write it elsewhere."
    assert done.stderr == f"Error: {tmp_path / 'd' / '0'} {reason}\n"


def test_output_that_the_shell_has_closed_is_not_missed(folder, model):
    image = folder / "known" / "null" / "00.png"
    words = shlex.join([*LEDL, "predict", str(model), str(image), "--format", "csv"])
    done = subprocess.run(["sh", "-c", f"{words} >&-"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_ctrl_c_ends_cleanly(folder, model, tmp_path):
    image = folder / "known" / "null" / "00.png"
    for i in range(2000):  # so many lines do not fit into a pipe: the command waits for a reader
        os.link(image, tmp_path / f"{i:050d}.png")
    process = subprocess.Popen(
        [*LEDL, "predict", str(model), str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, printed = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Stopped." in printed
    assert "Traceback" not in printed


def test_without_typer_the_message_names_the_extra():
    code = "import sys; sys.modules['typer'] = None; from ledl.__main__ import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "pip install 'ledl[cli]'" in done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="no such terminals there")
def test_results_go_where_the_shell_sends_them_also_beside_a_bar(folder, model, tmp_path):
    """The bar's library would send what is printed beside it to the terminal, and leave the file empty."""
    out, words = tmp_path / "out.csv", ["predict", model, folder / "known"]
    status, seen = run_in_terminal(*words, "--format", "csv", cwd=tmp_path, out=out)
    assert status == 0
    assert out.read_text() == run(*words, "--format", "csv").stdout
    assert "images" in seen  # the bar
    assert "00.png" not in seen
    status, seen = run_in_terminal(*words, cwd=tmp_path, out=Path(os.devnull))
    assert status == 0
    assert "images" in seen  # nothing else is seen
    assert "00.png" not in seen
    status, seen = run_in_terminal(*words, cwd=tmp_path)
    assert status == 0
    assert seen.replace("\r\n", "\n") == run(*words).stdout  # and no bar among them
    status, seen = run_in_terminal(*words, "--review", "2", cwd=tmp_path)
    lines = run(*words, "--review", "2").stdout
    assert status == 0
    assert lines in seen.replace("\r\n", "\n")
    assert seen.index("images") < seen.rindex("images") < seen.index(lines.split()[0])  # the bar ends before
    shell = shlex.join(map(str, [*LEDL, *words])) + " | cat"
    status, seen = run_in_terminal("-c", shell, program=["sh"], cwd=tmp_path)
    assert status == 0
    assert seen.replace("\r\n", "\n") == run(*words).stdout
