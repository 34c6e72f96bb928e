"""Who gets in, what comes out, and what survives: with a real server in a process of its own."""

import json
import os
import random
import re
import shutil
import socket
import threading
import time
from http.client import HTTPConnection, HTTPException
from importlib.resources import files

import pytest
from PIL import Image

from helpers.digits import write_digits
from helpers.label_server import Running
from ledl.images import LONGEST_LABEL
from ledl.labelling._server import _host, listen

SECRET = b"SECRET-BYTES-OUTSIDE-OF-FOLDER"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Return a folder of images, with secrets beside it and links to them in it."""
    top = tmp_path_factory.mktemp("served")
    folder = write_digits(top) / "known"
    (top / "secret.txt").write_bytes(SECRET)
    Image.new("RGB", (300, 300), "red").save(top / "secret.png")
    (folder / "link.png").symlink_to(top / "secret.png")
    (folder / "text.png").write_bytes(SECRET)
    (folder / "plain.txt").write_bytes(SECRET)
    (folder / "<img src=x onerror=alert(1)>.png").write_bytes((folder / "null/00.png").read_bytes())
    return folder


@pytest.fixture(scope="module")
def server(place):
    started = Running(place, "--labels", "none", "--size", "8")
    yield started
    started.kill()


def raw(port, content, is_whole=True):
    """Send bytes, and return all bytes that come back until the server closes. Fails if that takes long.

    A request that is not whole is one that the server must wait for, so we end it.
    """
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(content)
        if not is_whole:
            connection.shutdown(socket.SHUT_WR)
        found = b""
        try:
            while part := connection.recv(65536):
                found += part
        except ConnectionResetError:  # it has refused a request before its end
            pass
        except TimeoutError:
            pytest.fail(f"The server hangs after {content[:300]!r}, and has answered {found[:300]!r}")
    return found


def request(path, *lines):
    return "\r\n".join([f"GET {path} HTTP/1.1", *lines, "Connection: close", "", ""]).encode()


# Who gets in


def test_the_token_becomes_a_cookie(server):
    answer = raw(server.port, request(f"/?token={server.token}", "Host: localhost:9"))
    head = answer.decode().lower()
    assert head.startswith("http/1.1 303")
    assert "location: /\r\n" in head
    cookie = next(line for line in head.splitlines() if line.startswith("set-cookie"))
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    name = answer.decode().split("set-cookie: ")[1].split(";")[0]
    again = server.ask("/", headers={"X-Ledl-Token": "", "Cookie": name})
    assert again[0] == 200
    assert b"<!doctype html>" in again[1].lower()


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Ledl-Token": ""},
        {"X-Ledl-Token": "wrong"},
        {"Host": "evil.example"},
        {"Host": "127.0.0.1.evil.example"},
        {"Host": "evil@127.0.0.1"},
        {"Host": "127.0.0.1:abc"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "https://127.0.0.1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"},  # another port of this machine
    ],
    ids=str,
)
@pytest.mark.parametrize("path", ["/", "/api/state", "/thumb/1", "/static/index.html", "/nowhere"])
def test_strangers_are_refused(server, path, headers):
    status, found = server.ask(path, headers=headers)
    assert status == 403
    assert set(found) == {"error"}
    assert server.token not in json.dumps(found)


def test_the_page_gets_in_under_each_name_of_this_machine(server):
    for host in ("127.0.0.1", "localhost:8765", "[::1]:99"):
        headers = {"Host": host, "Origin": f"http://{host}", "Sec-Fetch-Site": "same-origin"}
        assert server.ask("/api/state", headers=headers)[0] == 200, host
    link = {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate"}  # in a notebook, say
    assert server.ask(f"/?token={server.token}", headers=link)[0] == 303


def test_hosts():
    assert _host("LocalHost:80") == "localhost"
    assert _host("[::1]:80") == "::1"
    for host in ("", "a/b", "a#b", "a?b", "127.0.0.1:x", "127.0.0.1:99999999", "[::1", "a@127.0.0.1"):
        assert _host(host) not in ("127.0.0.1", "localhost", "::1"), host


def test_only_json_is_written(server):
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
        assert server.ask("/api/classes", {"name": "x"}, headers={"Content-Type": kind})[0] == 415, kind
    assert server.state()["classes"] == []
    assert server.ask("/api/classes", {"name": "x" * 3_000_000})[0] == 413
    assert server.ask("/api/undo", method="PUT", body={})[0] == 405


def test_answers_are_protected_from_being_something_else(server):
    answer = raw(server.port, request("/api/state", "Host: localhost", f"X-Ledl-Token: {server.token}"))
    head = answer.split(b"\r\n\r\n")[0].decode().lower()
    assert "x-content-type-options: nosniff" in head
    assert "default-src 'self'" in head
    assert "frame-ancestors 'none'" in head
    assert "access-control" not in head


# What comes out


def test_pictures_are_newly_encoded(server, place):
    state = server.wait(lambda state: state["features"]["ready"])
    names = {name for name, _ in state["unreadable"]}
    assert names == {"link.png", "text.png"}
    ids = server.ask("/api/ids")[1]["ids"]
    assert len(ids) == state["n_images"] == 37
    for kind in ("thumb", "image"):
        status, found = server.ask(f"/{kind}/{ids[0]}")
        assert status == 200
        assert found.startswith(b"\xff\xd8")
    items = server.ask("/api/images?limit=1000")[1]["items"]
    assert "<img src=x onerror=alert(1)>.png" in {item["name"] for item in items}
    unknown = max(ids) + 1000
    assert server.ask(f"/thumb/{unknown}")[0] == 404


def test_a_browser_asks_whether_it_has_the_picture(server):
    """Another folder may have had this port, and numbers begin at 1 in each: pictures were of the other."""
    key = server.ask("/api/ids")[1]["ids"][0]
    for kind in ("thumb", "image"):
        connection = HTTPConnection("127.0.0.1", server.port, timeout=60)
        connection.request("GET", f"/{kind}/{key}", headers={"X-Ledl-Token": server.token})
        answer = connection.getresponse()
        mark = answer.getheader("etag")
        assert "no-cache" in answer.getheader("cache-control")
        assert len(answer.read()) > 100
        connection.close()
        assert server.ask(f"/{kind}/{key}", headers={"If-None-Match": mark}) == (304, b"")
        assert server.ask(f"/{kind}/{key}", headers={"If-None-Match": '"another"'})[0] == 200


def test_the_state_waits_for_a_change(server):
    now = server.wait(lambda state: state["features"]["ready"] and not state["learning"])["revision"]
    revision = None
    while revision != now:  # an estimate comes after its lesson
        revision, now = now, server.ask(f"/api/state?after={now}&wait=2")[1]["revision"]
    found = {}
    waiter = threading.Thread(
        target=lambda: found.update(server.ask(f"/api/state?after={revision}&wait=20")[1])
    )
    waiter.start()
    time.sleep(0.3)
    assert not found
    server.ask("/api/classes", {"name": "news"})
    waiter.join(20)
    assert found["revision"] > revision
    assert [c["name"] for c in found["classes"]] == ["news"]
    now = server.state()["revision"]
    assert server.ask(f"/api/state?after={now}&wait=0.1")[1]["revision"] >= now
    server.ask("/api/undo", {})


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/answers", {}),
        ("/api/answers", {"images": []}),
        ("/api/answers", {"images": [True]}),
        ("/api/answers", {"images": ["1"], "class": {}}),
        ("/api/answers", {"images": [10**30], "skip": True}),
        ("/api/answers", {"images": [1], "class": 1, "skip": True}),
        ("/api/answers", {"images": [1], "skip": True, "view": "nowhere"}),
        ("/api/answers", {"images": [1], "skip": True, "model": "x"}),
        ("/api/answers", {"images": [1], "new_class": 5}),
        ("/api/answers", {"images": [1], "skip": True, "key": "\ud800"}),
        ("/api/answers", {"images": [1], "skip": True, "key": "x" * 65}),
        ("/api/classes", {"name": None}),
        ("/api/classes/1/merge", {"into": None}),
        ("/api/images?limit=0", None),
        ("/api/images?limit=1001", None),
        ("/api/images?view=ask", None),
        ("/api/images?class=-1", None),
        ("/api/questions?n=0", None),
        ("/api/questions?exclude=1,x", None),
        ("/api/state?after=x", None),
        ("/api/state?after=1&wait=x", None),
    ],
)
def test_requests_that_mean_nothing_are_refused_in_words(server, path, body):
    before = server.state()["n_skipped"]
    status, found = server.ask(path, body)
    assert status in (400, 404), found
    assert found["error"].endswith(".")
    assert server.state()["n_skipped"] == before


def test_images_by_their_numbers_come_in_the_order_asked_for(server):
    ids = server.ask("/api/ids")[1]["ids"]
    status, found = server.ask(f"/api/images?ids={ids[3]},{ids[0]},999999,{ids[1]}")
    assert status == 200
    assert [item["id"] for item in found["items"]] == [ids[3], ids[0], ids[1]]
    assert found["total"] == 3


def test_downloads(server):
    for name in ("labels.csv", "summary.html"):
        status, found = server.ask(f"/api/export/{name}")
        assert status == 200
        assert found
        assert b"<img src=x" not in found or name == "labels.csv"


# Anything at all

SEGMENTS = [
    *("", ".", "..", "%2e%2e", "..%2f..", "%00", "~", "etc", "passwd", "secret.txt", "known", "\\..\\", "%ff"),
    *("api", "state", "answers", "images", "ids", "explain", "classes", "merge", "delete", "undo", "thumb"),
    *(
        "image",
        "static",
        "index.html",
        "export",
        "labels.csv",
        "1",
        "2",
        "-1",
        "9" * 30,
        "9" * 5000,
        "1e3",
        "nan",
    ),
]
PATHS = [
    *("/", "/api/state", "/api/questions", "/api/images", "/api/ids", "/api/explain/1", "/api/explain/40"),
    *(
        "/api/export/labels.csv",
        "/thumb/1",
        "/thumb/38",
        "/image/2",
        "/static/index.html",
        "/static/../_server.py",
    ),
    *("/static/..%2f_server.py", "/static//etc/passwd", "/../secret.txt", "/thumb/../../secret.png"),
]
WRITES = ["/api/answers", "/api/undo", "/api/redo", "/api/classes", "/api/classes/1", "/api/classes/1/merge"]
WRITES += ["/api/classes/2/delete", "/api/classes/99"]
KEYS = ["images", "class", "new_class", "skip", "view", "model", "key", "name", "into", "__proto__", ""]
QUERY = ["n", "exclude", "view", "class", "state", "search", "offset", "limit", "after", "wait", "token"]


def anything(draw, depth=0):
    """Return a value that JSON has."""
    kind = draw.randrange(9 if depth < 3 else 6)
    if kind == 6:
        return [anything(draw, depth + 1) for _ in range(draw.randrange(4))]
    if kind >= 7:
        return {draw.choice(KEYS): anything(draw, depth + 1) for _ in range(draw.randrange(5))}
    text = "".join(draw.choice("aé\u202e\0\n\ud800😀<'\"=;/.") for _ in range(draw.randrange(6)))
    numbers = [0, 1, 2, 3, -1, 10**30, 0.5, float("inf"), float("nan"), 2**63]
    return [None, True, draw.choice(numbers), draw.choice(numbers), text, draw.choice(["ask", "all", "check"])][
        kind
    ]


def fuzzed(draw, token):
    """Return the bytes of a request that may be nearly right or nonsense, and whether it has an end."""
    is_write = draw.random() < 0.45
    path = draw.choice(WRITES if is_write else PATHS)
    if draw.random() < 0.3:
        path = "/" + "/".join(draw.choice(SEGMENTS) for _ in range(draw.randrange(1, 5)))
    if draw.random() < 0.4:
        values = ["1", "2,3", "", "x", "-5", "%ff", "%00", "1e400", "a" * 3000, "ask", "check", "labelled", "٣"]
        pairs = [f"{draw.choice(QUERY)}={draw.choice(values)}" for _ in range(draw.randrange(1, 4))]
        path += "?" + "&".join(pair for pair in pairs if not pair.startswith("wait"))
    body = b""
    if is_write:
        value = {draw.choice(KEYS): anything(draw) for _ in range(draw.randrange(5))}
        if draw.random() < 0.4:
            value |= {"images": [draw.randrange(1, 45) for _ in range(draw.randrange(1, 4))]}
        body = json.dumps(value).encode()
        body = draw.choice([body] * 6 + [b"[" * 100_000, b"\xff\xfe", body[:-3], b"9" * 5000, b"null", b""])
    method = (
        draw.choice(["POST"] * 8 + ["PUT", "DELETE"])
        if is_write
        else draw.choice(["GET"] * 8 + ["HEAD", "OPTIONS"])
    )
    lines = [f"Host: {draw.choice(['localhost'] * 9 + ['evil', '', '127.0.0.1:x'])}"]
    lines += ["Content-Type: application/json"] * (draw.random() < 0.95)
    lines += [f"X-Ledl-Token: {token}"] * (token is not None)
    lines += [
        draw.choice(["Origin: null", "Origin: http://localhost", "Cookie: a=\xff; =;", "Expect: 100-continue"])
    ] * (draw.random() < 0.15)
    length = len(body) + draw.choice([0] * 20 + [-1, 5])
    lines += [f"Content-Length: {length}"] * is_write
    head = f"{method} {path} HTTP/1.1\r\n" + "\r\n".join(lines) + "\r\nConnection: close\r\n\r\n"
    content = head.encode("utf-8") + body
    is_whole = not is_write or length <= len(body)
    if draw.random() < 0.03:
        is_whole = False
        content = bytes(draw.randrange(256) for _ in range(200))
    if draw.random() < 0.03:
        is_whole = False
        at = draw.randrange(len(content))
        content = content[:at] + bytes([draw.randrange(256)]) + content[at + 1 :]
    return content, is_whole


def check_fuzzed(server, n, seed):
    draw = random.Random(seed)
    statuses = {}
    for k in range(n):
        content, is_whole = fuzzed(draw, server.token)
        answer = raw(server.port, content, is_whole)
        assert answer or not is_whole, content
        status = int(answer.split(b" ")[1]) if answer else 0
        assert status < 500, (k, content[:500], answer[:500])
        assert SECRET not in answer, content
        assert b"root:" not in answer, content
        statuses[status] = statuses.get(status, 0) + 1
        if k % 3 == 0:
            answer = raw(server.port, content.replace(server.token.encode(), b"x" * 32), is_whole)
            assert not answer or answer.split(b" ")[1].startswith(b"4"), (content[:500], answer[:500])
    assert statuses.get(200, 0) > n // 10, statuses  # some were right
    assert statuses.get(0, 0) < n // 5, statuses
    assert server.state()["features"]["error"] is None
    assert "Traceback" not in server.complaints()


@pytest.fixture
def fuzzed_server(tmp_path):
    top = tmp_path / "fuzzed"
    folder = write_digits(top) / "known"
    (top / "secret.txt").write_bytes(SECRET)
    (folder / "text.png").write_bytes(SECRET)
    started = Running(folder, "--labels", "none", "--size", "8")
    started.wait(lambda state: state["features"]["ready"])
    yield started
    started.kill()


def test_requests_of_any_kind_never_break_the_server(fuzzed_server):
    check_fuzzed(fuzzed_server, 300, seed=1)


@pytest.mark.slow
def test_thousands_of_requests_of_any_kind_never_break_the_server(fuzzed_server):
    check_fuzzed(fuzzed_server, 5000, seed=2)


# What survives


def check_kills(folder, n_kills, seed):
    """Kill a server at random moments of a person's work. What was acknowledged must be there afterwards."""
    draw = random.Random(seed)
    truth, in_doubt, n_acknowledged = {}, {}, 0
    names = None
    for _ in range(n_kills):
        server = Running(folder, "--labels", "none", "--size", "8")
        state = server.state()
        ids = server.ask("/api/ids")[1]["ids"]
        names = {c["id"]: c["name"] for c in state["classes"]}
        found = {
            item["id"]: names.get(item["label"]) for item in server.ask("/api/images?limit=1000")[1]["items"]
        }
        for key, label in found.items():
            assert label in {truth.get(key), *in_doubt.get(key, ())}, (key, label, truth.get(key))
            truth[key] = label
        in_doubt = {}
        killer = threading.Timer(draw.uniform(0.05, 1.5), server.process.kill)
        killer.start()
        try:
            while True:
                some, name = draw.sample(ids, draw.randrange(1, 4)), f"class {draw.randrange(5)}"
                known = {c["name"]: c["id"] for c in server.state()["classes"]}
                what = {"class": known[name]} if name in known else {"new_class": name}
                in_doubt = {key: {name} for key in some}  # sent, and not yet acknowledged
                status, _ = server.ask("/api/answers", {"images": some, **what})
                assert status == 200
                truth |= dict.fromkeys(some, name)
                n_acknowledged += 1
        except (OSError, ConnectionError, json.JSONDecodeError, HTTPException):
            pass
        killer.join()
        server.kill()
    server = Running(folder, "--labels", "none", "--size", "8")
    names = {c["id"]: c["name"] for c in server.state()["classes"]}
    for item in server.ask("/api/images?limit=1000")[1]["items"]:
        label = names.get(item["label"])
        assert label in {truth.get(item["id"]), *in_doubt.get(item["id"], ())}
    status, out, _ = server.stop()
    assert status == 0
    assert n_acknowledged > n_kills
    return out


def test_no_acknowledged_answer_is_lost_when_the_server_is_killed(tmp_path):
    check_kills(write_digits(tmp_path) / "known", 3, seed=0)


@pytest.mark.slow
def test_no_acknowledged_answer_is_lost_in_twenty_kills(tmp_path):
    check_kills(write_digits(tmp_path) / "known", 20, seed=1)


def test_a_tab_goes_on_after_a_kill(tmp_path):
    folder = write_digits(tmp_path) / "known"
    first = Running(folder, "--labels", "none", "--size", "8")
    ids = first.ask("/api/ids")[1]["ids"]
    first.ask("/api/answers", {"images": ids[:2], "new_class": "a"})
    first.kill()
    second = Running(folder)
    assert second.address == first.address
    assert second.state()["n_labelled"] == 2
    second.kill()


def test_a_second_server_is_refused_with_the_address_of_the_first(server, place):
    from helpers.commands import run

    done = run("label", place, "--no-browser")
    assert done.returncode == 2
    assert server.address in done.stderr


def test_ports():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match="--port"):
            listen(port, "")
        with listen(None, str(port)) as other:  # the port of the last time is taken
            assert other.getsockname()[1] != port
    with listen(None, str(port)) as again:
        assert again.getsockname() == ("127.0.0.1", port)


def test_a_full_disk_is_no_acknowledgement(tmp_path):
    """Nobody can write to the file of the labels: as on a full disk, the answer is refused, and not shown."""
    folder = write_digits(tmp_path) / "known"
    server = Running(folder, "--labels", "none", "--size", "8")
    try:
        server.wait(lambda state: state["features"]["ready"])
        ids = server.ask("/api/ids")[1]["ids"]
        assert server.ask("/api/answers", {"images": ids[:1], "new_class": "a"})[0] == 200
        resource = pytest.importorskip("resource")
        if not hasattr(resource, "prlimit"):
            pytest.skip("limits of other processes need Linux")
        size = sum(path.stat().st_size for path in (folder / ".ledl-labels").glob("labels.sqlite*"))
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (size // 4, resource.RLIM_INFINITY))
        status, found = 200, None
        for _ in range(200):
            status, found = server.ask("/api/answers", {"images": ids, "class": 1})
            if status != 200:
                break
            shutil.disk_usage(folder)
        assert status == 409
        assert "Not stored" in found["error"]
        n_labelled = server.state()["n_labelled"]
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        assert server.ask("/api/answers", {"images": ids[:1], "class": 1})[0] == 200
        assert n_labelled in (1, len(ids))
    finally:
        server.kill()
    assert os.path.exists(folder / ".ledl-labels" / "labels.sqlite")


def test_labels_that_vanish_under_an_open_page_are_reported(tmp_path):
    folder = write_digits(tmp_path) / "known"
    server = Running(folder, "--labels", "none", "--size", "8")
    ids = server.ask("/api/ids")[1]["ids"]
    assert server.ask("/api/answers", {"images": ids[:1], "new_class": "a"})[0] == 200
    shutil.rmtree(folder / ".ledl-labels")
    status, found = server.ask("/api/answers", {"images": ids[1:2], "class": 1})
    assert status == 409
    assert "were deleted" in found["error"]
    assert server.state()["n_labelled"] == 1
    status, said, complaints = server.stop()
    assert status == 2
    assert "All answers are in" not in said
    assert "not in" in complaints


def test_fields_of_the_page_take_the_longest_name():
    pages = [file.read_text() for file in (files("ledl.labelling") / "static").iterdir()]
    limits = [int(limit) for page in pages for limit in re.findall(r"maxlength\W+(\d+)", page)]
    assert limits == [LONGEST_LABEL] * 2
