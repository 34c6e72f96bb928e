"""Unpack untrusted archives."""

import gzip
import tarfile
import zipfile

import pytest

from ledl.datasets import ArchiveError, _archives, extract


def make_zip(path, members):
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members:
            archive.writestr(name, content)


def test_archives_are_unpacked_completely(tmp_path):
    make_zip(tmp_path / "good.zip", [("top/a.txt", "a"), ("top/sub/b.txt", "b")])
    made = extract(tmp_path / "good.zip", tmp_path / "out")
    assert made == [tmp_path / "out" / "top"]
    assert (tmp_path / "out" / "top" / "sub" / "b.txt").read_text() == "b"
    with tarfile.open(tmp_path / "good.tar.gz", "w:gz") as tar:
        tar.add(tmp_path / "out" / "top", "again")
    extract(tmp_path / "good.tar.gz", tmp_path / "out")
    assert (tmp_path / "out" / "again" / "a.txt").read_text() == "a"
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["again", "top"]


def link(kind):
    info = tarfile.TarInfo("top/link")
    info.type, info.linkname = kind, "/etc/passwd"
    return info


@pytest.mark.parametrize(
    "kind", ["..", "absolute", "zip link", "symlink", "hard link", "device", "bomb", "text", "cut"]
)
def test_dangerous_archives_leave_nothing(kind, tmp_path):
    path, out = tmp_path / "bad.archive", tmp_path / "out"
    if kind in ("..", "absolute"):
        make_zip(path, [("top/a.txt", "a"), ("../evil.txt" if kind == ".." else "/tmp/evil.txt", "x")])
    elif kind == "zip link":
        info = zipfile.ZipInfo("top/link")
        info.external_attr = 0o120777 << 16
        make_zip(path, [("top/a.txt", "a"), (info, "/etc/passwd")])
    elif kind in ("symlink", "hard link", "device"):
        types = {"symlink": tarfile.SYMTYPE, "hard link": tarfile.LNKTYPE, "device": tarfile.CHRTYPE}
        with tarfile.open(path, "w:gz") as tar:
            tar.addfile(link(types[kind]))
    elif kind == "bomb":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("zeros", bytes(3 * 10**6))
    elif kind == "text":
        path.write_text("not an archive")
    else:
        with tarfile.open(path, "w:gz") as tar:
            tar.add(__file__, "top/a.py")
        path.write_bytes(path.read_bytes()[:900])
    with pytest.raises(ArchiveError, match=r"bad.archive"):
        extract(path, out, max_bytes=10**6)
    assert not list(out.iterdir())
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bad.archive", "out"]


@pytest.mark.parametrize("name", ["C:/evil.txt", "C:evil", "..\\evil", "\\\\host\\share\\evil", "a/../../evil"])
def test_names_that_lead_elsewhere_on_any_system(name, tmp_path):
    make_zip(tmp_path / "bad.zip", [(name, "x")])
    with pytest.raises(ArchiveError, match="outside of the folder"):
        extract(tmp_path / "bad.zip", tmp_path / "out")


def test_headers_and_numbers_of_files_count_too(tmp_path, monkeypatch):
    with tarfile.open(tmp_path / "header.tar.gz", "w:gz", format=tarfile.PAX_FORMAT) as tar:
        info = tarfile.TarInfo("a")
        info.pax_headers = {"comment": "x" * (2 * 10**7)}
        tar.addfile(info)
    with pytest.raises(ArchiveError, match="bytes at once"):
        extract(tmp_path / "header.tar.gz", tmp_path / "out", max_bytes=1000)
    monkeypatch.setattr(_archives, "MAX_FILES", 3)
    make_zip(tmp_path / "many.zip", [(f"{i}.txt", "x") for i in range(5)])
    with pytest.raises(ArchiveError, match="more than 3 files"):
        extract(tmp_path / "many.zip", tmp_path / "out")
    assert not list((tmp_path / "out").iterdir())


def test_the_checksum_at_the_end_is_verified(tmp_path):
    with tarfile.open(tmp_path / "good.tar", "w") as tar:
        tar.add(__file__, "top/a.py")
    packed = bytearray(gzip.compress((tmp_path / "good.tar").read_bytes()))
    packed[-8] ^= 1  # of the checksum itself
    (tmp_path / "bad.tar.gz").write_bytes(packed)
    with pytest.raises(ArchiveError, match="cannot be unpacked"):
        extract(tmp_path / "bad.tar.gz", tmp_path / "out")


def test_only_the_wanted_folder_is_unpacked(tmp_path):
    make_zip(tmp_path / "a.zip", [("wanted/a.txt", "a"), ("resnet50_pool5.onnx", "planted")])
    assert extract(str(tmp_path / "a.zip"), str(tmp_path / "out"), only="wanted") == [
        tmp_path / "out" / "wanted"
    ]
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["wanted"]
    with pytest.raises(ArchiveError, match="has no other"):
        extract(tmp_path / "a.zip", tmp_path / "out", only="other")
