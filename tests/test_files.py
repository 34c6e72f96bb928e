"""Files that are complete or not there."""

import errno
import os
import socket
import stat
import subprocess
import sys
import threading

import pytest

from ledl.files import UNFINISHED, open_regular, read_regular, remove_unfinished, write_atomically


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_a_failed_write_leaves_what_was_there_and_nothing_else(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def fail(file):
        file.write(b"half")
        raise RuntimeError("disk")

    with pytest.raises(RuntimeError):
        write_atomically(path, fail)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_is_reported_with_the_name_of_the_file(tmp_path):
    def fail(file):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(OSError, match=r"No space left on device: '.*/file'"):
        write_atomically(tmp_path / "file", fail)


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_a_new_file_gets_the_rights_that_the_mask_allows(tmp_path, monkeypatch, mask, mode):
    def replace(file):
        (tmp_path / "other").write_bytes(b"x")
        (tmp_path / "other").chmod(0o600)
        (tmp_path / "other").replace(file.name)

    before = os.umask(mask)
    try:
        with monkeypatch.context() as patch:
            patch.delattr(os, "umask")  # to change it, even for a moment, changes the files of other threads
            write_atomically(tmp_path / "file", b"x")
            write_atomically(tmp_path / "replaced", replace)
    finally:
        os.umask(before)
    assert mode_of(tmp_path / "file") == mode_of(tmp_path / "replaced") == mode


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o640, 0o666, 0o755])
def test_an_old_file_keeps_its_rights_and_nobody_sees_more_meanwhile(tmp_path, mode):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    path.chmod(mode)
    seen = []

    def write(file):
        seen.append(os.fstat(file.fileno()).st_mode & 0o077)
        file.write(b"new")

    write_atomically(path, write)
    assert (path.read_bytes(), mode_of(path)) == (b"new", mode)
    assert seen[0] & ~mode == 0


@pytest.mark.skipif(os.getuid() != 0, reason="only root may give files away")
def test_owner_and_group_stay(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    os.chown(path, 1234, 5678)
    path.chmod(0o640)
    write_atomically(path, b"new")
    assert (path.stat().st_uid, path.stat().st_gid, mode_of(path)) == (1234, 5678, 0o640)


@pytest.mark.parametrize(("mode", "later"), [(0o640, 0o600), (0o664, 0o644), (0o600, 0o600)])
def test_a_group_that_cannot_stay_gives_its_rights_to_no_other(tmp_path, monkeypatch, mode, later):
    def refuse(path, uid, gid):
        raise PermissionError

    path = tmp_path / "file"
    path.write_bytes(b"old")
    path.chmod(mode)
    monkeypatch.setattr(os, "chown", refuse)
    write_atomically(path, b"new")
    assert (path.read_bytes(), mode_of(path)) == (b"new", later)


def test_a_file_that_is_write_protected_is_not_replaced(tmp_path, monkeypatch):
    path, link = tmp_path / "file", tmp_path / "link"
    write_atomically(path, b"old")
    link.symlink_to(path)
    # Root may write to everything, so ask as somebody else would be answered.
    monkeypatch.setattr(os, "access", lambda place, mode: mode != os.W_OK or place != path.resolve())
    for name in (path, link):
        with pytest.raises(PermissionError, match=f"{name} is write-protected. Choose another name, or allow"):
            write_atomically(name, b"new", through_links=True)
    write_atomically(tmp_path / "new", b"new")
    assert (path.read_bytes(), {*tmp_path.iterdir()}) == (b"old", {path, link, tmp_path / "new"})


def test_only_files_are_replaced_or_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    with socket.socket(socket.AF_UNIX) as ours:
        ours.bind(str(tmp_path / "socket"))
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
    (tmp_path / "device").symlink_to("/dev/null")
    for name in ("pipe", "socket", "link", "device"):
        before = (tmp_path / name).lstat()
        with pytest.raises(FileExistsError, match=f"{name} exists and is not a regular file. Choose another"):
            write_atomically(tmp_path / name, b"text", through_links=True)
        with pytest.raises(OSError, match=f"{name} is a folder, a device or a pipe"):
            open_regular(tmp_path / name)
        assert (tmp_path / name).lstat() == before
    with pytest.raises(IsADirectoryError, match="folder is a folder"):
        write_atomically(tmp_path / "folder", b"text")
    with pytest.raises(OSError, match="is a folder, a device or a pipe"):
        open_regular(tmp_path / "folder")
    assert len(list(tmp_path.iterdir())) == 5


@pytest.mark.parametrize("name", ["x" * 250, "x" * 255, "\u00e4" * 125, " .", "-", "a\nb", "\udcff", "*?[a]"])
def test_any_legal_name_will_do(tmp_path, name):
    for content in (b"first", b"second"):
        write_atomically(tmp_path / name, content)
        with open_regular(tmp_path / name) as file:
            assert file.read() == content
    assert len(list(tmp_path.iterdir())) == 1


def test_writers_at_the_same_time_leave_one_complete_file(tmp_path):
    def write(letter):
        for _ in range(50):
            write_atomically(tmp_path / "file", letter * 100_000)

    threads = [threading.Thread(target=write, args=(letter,)) for letter in (b"a", b"b", b"c")]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        if (tmp_path / "file").exists():
            content = (tmp_path / "file").read_bytes()
            assert content == content[:1] * 100_000
    assert len(list(tmp_path.iterdir())) == 1


def test_what_killed_writers_have_left_is_removed_and_nothing_else(tmp_path):
    program = "import os, sys; from pathlib import Path; from ledl.files import write_atomically; "
    program += "write_atomically(Path(sys.argv[1]), lambda file: os._exit(0))"
    for name in ("file", "another"):
        subprocess.run([sys.executable, "-c", program, tmp_path / name], check=True)
    (tmp_path / ".file.part").write_bytes(b"")
    left = set(tmp_path.glob(UNFINISHED))
    assert len(left) == 2
    remove_unfinished(tmp_path / "file")
    assert len(set(tmp_path.glob(UNFINISHED)) & left) == 1
    remove_unfinished(tmp_path / "another")
    assert [path.name for path in tmp_path.iterdir()] == [".file.part"]


def test_files_are_read_up_to_a_size(tmp_path):
    (tmp_path / "file").write_bytes(b"12345")
    assert read_regular(tmp_path / "file", 5) == b"12345"
    with pytest.raises(OSError, match=r"file has more than 0 MB. Give a smaller file"):
        read_regular(tmp_path / "file", 4)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="pipe is a folder, a device or a pipe"):
        read_regular(tmp_path / "pipe", 5)


def test_a_link_stays_one_where_the_user_gave_its_name(tmp_path):
    (tmp_path / "target").write_bytes(b"old")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    write_atomically(tmp_path / "link", lambda file: file.write(b"new"), through_links=True)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_bytes() == b"new"


def test_other_links_are_replaced(tmp_path):
    """A folder of a stranger may have some to files of the user."""
    (tmp_path / "target").write_bytes(b"old")
    for name, target in (("link", "target"), ("empty", "nothing"), ("circle", "circle")):
        (tmp_path / name).symlink_to(target)
        write_atomically(tmp_path / name, b"new")
        assert (tmp_path / name).read_bytes() == b"new"
        assert not (tmp_path / name).is_symlink()
    assert (tmp_path / "target").read_bytes() == b"old"
    assert not (tmp_path / "nothing").exists()
    (tmp_path / "folder").mkdir()
    (tmp_path / "way").symlink_to("folder")
    write_atomically(tmp_path / "way" / "file", b"new")  # a link on the way is none in its place
    assert (tmp_path / "folder" / "file").read_bytes() == b"new"


def test_a_link_to_nothing_makes_its_target_and_a_circle_is_refused(tmp_path):
    (tmp_path / "link").symlink_to("target")
    write_atomically(tmp_path / "link", b"new", through_links=True)
    assert (tmp_path / "target").read_bytes() == b"new"
    (tmp_path / "circle").symlink_to("circle")
    with pytest.raises(OSError, match="levels of symbolic links"):
        write_atomically(tmp_path / "circle", b"new", through_links=True)
    assert (tmp_path / "circle").is_symlink()


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"There is no folder .*nowhere for a\.txt\. Create it"):
        write_atomically(tmp_path / "nowhere" / "a.txt", b"text")
