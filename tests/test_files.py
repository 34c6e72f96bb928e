"""Files that are complete or not there."""

import os
import stat

import pytest

from ledl.files import write_atomically


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


def test_others_may_read_as_the_mask_allows(tmp_path):
    before = os.umask(0o022)
    try:
        write_atomically(tmp_path / "file", lambda file: file.write(b"x"))
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o644


def test_a_link_stays_one(tmp_path):
    (tmp_path / "target").write_bytes(b"old")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    write_atomically(tmp_path / "link", lambda file: file.write(b"new"))
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_bytes() == b"new"


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"There is no folder .*nowhere for a\.txt\. Create it"):
        write_atomically(tmp_path / "nowhere" / "a.txt", b"text")
