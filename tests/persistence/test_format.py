"""Read files that are damaged or no models at all: every one raises an error that says why."""

import json
import math
import os
import pickle
import re
import resource
import subprocess
import sys
import time
import tracemalloc
import zipfile
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from safetensors.numpy import load_file
from safetensors.numpy import save as save_tensors
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from helpers.model_files import (
    assert_same,
    fitted,
    packed,
    resealed,
    table_of,
    unpacked,
    with_table,
)
from ledl import (
    CRCClassifier,
    ModelFileError,
    RejectingClassifier,
    SRCClassifier,
    load,
    save,
)
from ledl.files import UNFINISHED
from ledl.persistence import _tree, read
from ledl.persistence._format import read_file, write_file

HERE = Path(__file__).parent


def message_of(path, changed):
    """Return the error that a file with these bytes raises."""
    path.write_bytes(changed)
    with pytest.raises(ModelFileError) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path} ")
    assert str(caught.value).endswith(".")
    return str(caught.value)


def test_files_are_those_of_safetensors(path):
    arrays = [np.arange(6.0).reshape(2, 3), np.array(True), np.zeros((0, 3), np.int16), np.array(["a", "bc"])]
    arrays += [np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3)), np.array(7, np.uint64)]
    write_file(path, {"model": "\u00e4"}, arrays)
    tensors = load_file(path)
    length = int.from_bytes(path.read_bytes()[:8], "little")
    metadata = json.loads(path.read_bytes()[8 : 8 + length])["__metadata__"]
    assert len(save_tensors(tensors, metadata)) == len(path.read_bytes())
    assert_same(read_file(path)[1], arrays)


def test_a_killed_save_leaves_only_what_the_next_one_finds(path):
    """Whatever a save writes is under a name of our own."""
    seen = set()
    before = sys.getprofile()
    sys.setprofile(lambda *_: seen.update(os.listdir(path.parent)))
    try:
        save(CRCClassifier().fit(np.eye(4), [0, 0, 1, 1]), path)
    finally:
        sys.setprofile(before)
    assert {name for name in seen if not fnmatch(name, UNFINISHED)} <= {path.name}
    assert len(seen) == 2


def test_the_next_save_deletes_what_was_left_an_hour_ago(path, monkeypatch):
    program = "import os, sys; from pathlib import Path; from ledl.files import write_atomically; "
    program += "write_atomically(Path(sys.argv[1]), lambda file: os._exit(0))"
    for name in (path, path, path.with_name("another")):
        subprocess.run([sys.executable, "-c", program, name], check=True)
    parts = sorted(path.parent.glob(UNFINISHED), key=lambda part: part.stat().st_mtime_ns)
    later = time.time() + 3700
    os.utime(parts[1], (later, later))
    monkeypatch.setattr(time, "time", lambda: later)
    save(CRCClassifier().fit(np.eye(4), [0, 0, 1, 1]), path)
    assert set(path.parent.iterdir()) == {path, *parts[1:]}


def test_files_that_are_no_models_are_distinguished(path, content, tmp_path):
    with zipfile.ZipFile(tmp_path / "zip", "w") as archive:
        archive.writestr("a", "b")
    header, tensors = unpacked(content)
    flipped = bytearray(content)
    flipped[-100] ^= 4
    files = {
        "is empty or cut off: it has 0 bytes": b"",
        "is empty or cut off: it has 6 bytes": content[:6],
        "made by an older version of ledl. Train": (HERE / "old_format.ledl").read_bytes(),
        "is a pickle, which can run any code": pickle.dumps([1]),
        "is a zip archive": (tmp_path / "zip").read_bytes(),
        "is an HDF5 file": b"\x89HDF\r\n\x1a\n" + bytes(100),
        "is not a model file": b"hello, this is text",
        "is a safetensors file, but not a model of ledl": save_tensors({"conv1.weight": np.ones((3, 3))}),
        "is cut off or damaged (Error while deserializing header: incomplete": content[:-1000],
        "is cut off or damaged (Error while deserializing header: invalid header length": content[:100],
        "checksum or its metadata do not match": bytes(flipped),
        "has format 4, but this version of ledl knows only format 3": packed({**header, "format": 4}, tensors),
        "has format 2, which does not exist": packed({**header, "format": 2}, tensors),
        "has format 'x', which does not exist": packed({**header, "format": "x"}, tensors),
        "has format True, which does not exist": packed({**header, "format": True}, tensors),
        "has a header of 18,446,744,073,709,551,615 bytes": b"\xff" * 8 + content[8:],
        "has a header of 16,777,217 bytes": (2**24 + 1).to_bytes(8, "little") + content[8:],
    }
    messages = {expected: message_of(path, changed) for expected, changed in files.items()}
    for expected, message in messages.items():
        assert expected in message
    assert len(set(messages.values())) == len(messages)


def test_a_model_whose_header_begins_like_a_pickle_is_one(path):
    model, _ = fitted("crc")
    for n_spaces in range(0, 256, 8):
        save(model, path, info=" " * n_spaces)
        if path.read_bytes()[:1] == b"\x80":
            break
    assert path.read_bytes()[:1] == b"\x80"
    assert read(path).info == " " * n_spaces


def test_paths_that_are_no_files(tmp_path):
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "gone.ledl")
    with pytest.raises(ModelFileError, match="is a folder"):
        load(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ModelFileError, match="a device or a pipe"):
        load(tmp_path / "pipe")
    with pytest.raises(FileNotFoundError):
        save(CRCClassifier(), tmp_path / "gone" / "model.ledl")


def test_a_full_disk_is_an_error_of_the_system(path, content):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(OSError, match=r"File too large: .*model.ledl"):
            save(fitted("crc")[0], path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == content
    assert list(path.parent.iterdir()) == [path]


def test_the_same_model_gives_the_same_bytes(path, content):
    save(load(path), path, info=None)
    assert path.read_bytes() == content


def test_arrays_of_every_type_and_layout(path):
    grid = np.arange(6).reshape(2, 3)
    arrays = [
        *(grid.astype(dtype) for dtype in ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")),
        *(grid.astype(dtype) for dtype in ("f2", "f4", "f8", "U1", "U7")),
        *(grid.astype(dtype) for dtype in (">i2", ">f8", ">U5")),
        *(np.array(value) for value in (True, 2**63, -1.5, "höhe")),  # without axes
        np.array([2**64 - 1], np.uint64),
        np.zeros((0, 5)), np.zeros((3, 0, 2), np.uint8), np.zeros((0, 2), "U3"), np.zeros(0, bool),
        np.asfortranarray(grid), np.asfortranarray(grid.astype("U3")), np.zeros((2, 3, 4), order="F"),
        grid[:, ::2], grid.T[::-1], grid.T[:2], np.array(["a\x00b", "\U0010ffff"]),
    ]  # fmt: skip
    write_file(path, {}, arrays)
    _, found = read_file(path)
    for array, again in zip(arrays, found, strict=True):
        assert_same(again, array.astype(array.dtype.newbyteorder("=")))
        assert again.shape == array.shape
        if array.dtype.kind != "U":
            turned = array.ndim > 1 and abs(array.strides[0]) < abs(array.strides[-1])
            assert again.flags.f_contiguous if turned else again.flags.c_contiguous


def test_other_programs_can_read_the_arrays(path):
    write_file(path, {}, [np.asfortranarray(np.eye(2, 3)), np.array(["ab", "c"])])
    tensors = load_file(path)
    assert_array_equal(tensors["0.T"], np.eye(3, 2))
    assert_array_equal(tensors["1.text"], [[97, 98], [99, 0]])


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.array([1j]), "holds complex128, but files hold only"),
        (np.zeros(2, np.longdouble), "holds (float128|float96|longdouble)"),
        (np.array(["2026-01-01"], "datetime64[D]"), "holds datetime64"),
        (np.array([b"a"]), "holds bytes8"),
        (np.zeros(2, "f8,i4"), "holds "),
        (np.zeros((1,) * 33), "has 33 axes, but 32 is the limit"),
        (np.zeros((0, 2**21)), r"has the shape \(0, 2097152\), which is too large for an array without values"),
    ],
)
def test_arrays_that_files_do_not_hold(array, message, path):
    with pytest.raises(ModelFileError, match=message):
        save(CRCClassifier(), path, info=array)


@pytest.mark.parametrize(
    ("keys", "value", "message"),
    [
        (("0", "shape"), [2**40, 2**40], "is cut off or damaged"),
        (("0", "shape"), [2**20, 2**20], "is cut off or damaged"),
        (("0", "shape"), [-1, -108], "is cut off or damaged"),
        (("0", "shape"), [1.5], "is cut off or damaged"),
        (("0", "shape"), "x", "is cut off or damaged"),
        (("0", "dtype"), "O", "is cut off or damaged"),
        (("0", "dtype"), "BOOL", "is cut off or damaged"),
        (("0", "data_offsets"), [0, 2**40], "is cut off or damaged"),
        (("0", "data_offsets"), [8, 872], "is cut off or damaged"),
        (("1", "data_offsets"), [0, 864], "is cut off or damaged"),
        (("__metadata__",), 3, "is cut off or damaged"),
        (("__metadata__", "ledl"), 3, "is cut off or damaged"),
        (("__metadata__",), {}, "not a model of ledl"),
        (("__metadata__", "more"), "x", "checksum or its metadata do not match"),
        (("__metadata__", "ledl"), "", "has invalid JSON"),
        (("more",), {"dtype": "C64", "shape": [0], "data_offsets": [0, 0]}, "has 5 arrays, but no 4"),
        (("-1",), {"dtype": "F64", "shape": [0], "data_offsets": [0, 0]}, "has 5 arrays, but no 4"),
        (("0.T",), {"dtype": "F64", "shape": [0], "data_offsets": [0, 0]}, "has 5 arrays, but no 4"),
        (("4",), {"dtype": "C64", "shape": [0], "data_offsets": [0, 0]}, "array 4 that holds C64"),
        (("4",), {"dtype": "BF16", "shape": [0], "data_offsets": [0, 0]}, "array 4 that holds BF16"),
        (("4",), {"dtype": "F64", "shape": [0, 2**40], "data_offsets": [0, 0]}, "array 4 .*too large"),
        (("4",), {"dtype": "F64", "shape": [1] * 40 + [0], "data_offsets": [0, 0]}, "array 4 that has 41 axes"),
        (("4.text",), {"dtype": "F32", "shape": [0, 1], "data_offsets": [0, 0]}, "not rows of characters"),
        (("4.text",), {"dtype": "U32", "shape": [1, 0], "data_offsets": [0, 0]}, "not rows of characters"),
        (("4",), {"dtype": "F64", "shape": [0], "data_offsets": [0, 0]}, "arrays that nothing refers to"),
    ],
)  # fmt: skip
def test_tampered_tables_are_refused_with_a_reason(keys, value, message, path, content):
    table, data = table_of(content)
    assert set(table) == {"__metadata__", "0", "1", "2", "3"}
    node = table
    for key in keys[:-1]:
        node = node[key]
    node[keys[-1]] = value
    assert re.search(message, message_of(path, resealed(with_table(table, data))))


def test_a_string_of_a_number_is_no_text(path):
    write_file(path, {}, [np.array(["abc"])])
    table, _ = table_of(path.read_bytes())
    for shape in ([], [2**20 + 1]):
        table["0.text"] |= {"shape": shape, "data_offsets": [0, 4 * math.prod(shape)]}
        path.write_bytes(resealed(with_table(table, bytes(4 * math.prod(shape)))))
        with pytest.raises(ModelFileError, match="not rows of characters"):
            read_file(path)


def test_invalid_json_is_refused(path, content):
    _, tensors = unpacked(content)
    for text, message in {
        "[" * 10**5: "invalid JSON",
        '{"format": NaN}': "invalid JSON .NaN is not a number in JSON",
        '{"format": 3, "format": 3}': "invalid JSON .a name occurs twice",
        "9" * 5000: "invalid JSON",
        "{": "invalid JSON",
        "": "invalid JSON",
        "[]": "JSON without names",
        "{}": "has format None, which does not exist",
    }.items():
        assert re.search(message, message_of(path, packed(text, tensors)))
    for table in (b"[" * 10**5, b"{" + b'"a":{' * 10**4, b"{\xff", b"{", b"{}", b'{"a":{}}'):
        assert re.search("cut off or damaged|not a model", message_of(path, with_table(table, b"")))


def test_invalid_truth_values_and_characters_are_refused(path):
    model, _ = fitted("crc")
    truth = np.array([True] * 64)
    save(model, path, info=truth)
    assert "neither true nor false" in message_of(path, resealed(path.read_bytes()[:-1] + b"\x02"))
    for characters in (b"\xff\xff\xff\xff", b"\x00\x00\x11\x00"):
        write_file(path, {}, [np.array(["x" * 16])])
        path.write_bytes(resealed(path.read_bytes()[:-4] + characters))
        with pytest.raises(ModelFileError, match="characters that do not exist"):
            read_file(path)


def test_a_flipped_bit_in_any_byte_is_found(path):
    write_file(path, {"model": "x"}, [np.arange(4.0), np.array(["ä"]), np.array([True, False])])
    content = path.read_bytes()
    for place in range(len(content)):
        flipped = bytearray(content)
        flipped[place] ^= 1 << place % 8
        path.write_bytes(flipped)
        with pytest.raises(ModelFileError):
            read_file(path)


def peak_of_loading(path):
    tracemalloc.start()
    try:
        with suppress(ModelFileError):
            load(path)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_no_file_takes_many_times_its_size(path, content):
    X = np.linspace(1, 2, 20_000)[:, None]
    save(SRCClassifier(normalize=False).fit(X, np.arange(20_000) % 2), path)
    assert peak_of_loading(path) < 20 * 2**20  # its Gram matrix would be 3.2 GB
    header, tensors = unpacked(content)
    text = json.dumps({**header, "info": "here"})
    for part in ("[[],[]],", '{"":{}},', '"","",', "1e5,"):
        bomb = '{"list":[' + part * (2**17 // len(part)) + "1]}"
        path.write_bytes(packed(text.replace('"here"', bomb), tensors))
        assert peak_of_loading(path) < 64 * path.stat().st_size


@pytest.mark.parametrize(
    "wrap",
    [
        lambda model: model,
        lambda model: make_pipeline(StandardScaler(), model),
        lambda model: RejectingClassifier(make_pipeline(StandardScaler(), model)),
    ],
    ids=["plain", "pipeline", "wrapped"],
)
def test_models_that_share_arrays_keep_no_more_than_there_is_room_for(path, monkeypatch, wrap):
    """A Gram matrix of 2 MB for each: a file of some kB could take any memory."""
    monkeypatch.setattr(_tree, "MAX_MADE", 2**23)
    X, y = np.random.default_rng(0).normal(size=(500, 2)), np.arange(500) % 2
    model = wrap(SRCClassifier()).fit(X, y)
    save(model, path, info=[model] * 40)
    tracemalloc.start()
    found = read(path)
    assert tracemalloc.get_traced_memory()[0] < 2**24
    tracemalloc.stop()
    for one in (found.model, *found.info):
        assert_array_equal(one.predict(X[:9]), model.predict(X[:9]))


def test_large_arrays_are_read_once(path, traced):
    write_file(path, {}, [np.zeros((1000, 2000)), np.zeros((1000, 1000), order="F")])
    written = tracemalloc.get_traced_memory()[1]
    assert written < 1.1 * path.stat().st_size  # the arrays themselves
    tracemalloc.reset_peak()
    _, arrays = read_file(path)
    assert tracemalloc.get_traced_memory()[1] < 1.1 * path.stat().st_size
    assert len(arrays) == 2
