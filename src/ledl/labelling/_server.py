"""Serve the page on this machine alone: who may ask, and what a request means.

Nobody else gets in. The server listens on 127.0.0.1, and every request needs the token, a Host of this machine,
and no foreign Origin. Images are sent newly encoded, and only those that the session knows.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from hashlib import blake2b
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route
from uvicorn import Config, Server

from ledl.files import write_atomically
from ledl.images import ImageError
from ledl.labelling._export import summary_page, table
from ledl.labelling._session import MOST_QUESTIONS, STATES, VIEWS, RefusedError, Session, UnknownError
from ledl.labelling._store import ADDRESS, StoreError

HOSTS = {"127.0.0.1", "localhost", "::1"}
LARGEST_BODY = 2**21  # bytes: the numbers of 200,000 images
LONGEST_WAIT = 25.0  # seconds
MOST_IMAGES = 1000  # in one answer
LONGEST_KEY = 64  # letters of the name that the page gives to a request
KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


def reply(value: Any, status: int = 200) -> Response:
    """Return a value as JSON that is never kept by a browser."""
    headers = {"Cache-Control": "no-store"}
    return Response(json.dumps(value, allow_nan=False), status, headers, "application/json")


class Guard:
    """Let only those requests through that come from the page, or from a person who has the token."""

    def __init__(self, app: Any, token: str) -> None:
        self.app, self.token = app, token
        # Cookies belong to a host whatever the port is, so that each store needs one of its own.
        self.cookie = f"ledl-{blake2b(token.encode(), digest_size=6).hexdigest()}"

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_safely(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] += [(k.lower().encode(), v.encode()) for k, v in HEADERS.items()]
            await send(message)

        request = Request(scope)
        answer = self._refusal(request) or self._entrance(request) or self.app
        await answer(scope, receive, send_safely)

    def _is_token(self, given: str | None) -> bool:
        return given is not None and secrets.compare_digest(given.encode(errors="replace"), self.token.encode())

    def _refusal(self, request: Request) -> Response | None:
        """Return why a request is refused, or None."""
        headers = request.headers
        if len(headers.getlist("host")) != 1 or _host(headers["host"]) not in HOSTS:
            return reply({"error": "This server answers under the names 127.0.0.1 and localhost only."}, 403)
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        # A page on another port of this machine is of the same site. It may have a link to the page, no more.
        is_foreign = site == "cross-site" or (
            site == "same-site" and headers.get("sec-fetch-mode") != "navigate"
        )
        if origin not in (None, f"http://{headers['host']}") or is_foreign:
            return reply({"error": "Another page has asked. Only the page of ledl label may."}, 403)
        given = [request.query_params.get("token") if request.url.path == "/" else None]
        given += [request.cookies.get(self.cookie), headers.get("x-ledl-token")]
        if not any(map(self._is_token, given)):
            text = "The token is missing or wrong. Open the whole address that ledl label has printed."
            return reply({"error": text}, 403)
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if request.method not in ("GET", "HEAD") and kind != "application/json":
            return reply({"error": "Send JSON, with the content type application/json."}, 415)
        return None

    def _entrance(self, request: Request) -> Response | None:
        """Return the answer to the address with the token: a cookie, and the page without the token."""
        if request.url.path != "/" or "token" not in request.query_params:
            return None
        answer = RedirectResponse("/", 303, {"Cache-Control": "no-store"})
        year = 365 * 24 * 3600
        answer.set_cookie(self.cookie, self.token, year, path="/", httponly=True, samesite="strict")
        return answer


def _host(given: str) -> str:
    """Return the name in a Host, without the port, or "" if it is none."""
    with suppress(ValueError):
        parts = urlsplit(f"//{given}")
        _ = parts.port  # raises if it is no number
        if parts.netloc == given and "@" not in given:
            return parts.hostname or ""
    return ""


# What a request says. Everything is checked: it may be anything.


def number(text: Any, name: str, low: int = 0, high: int = 2**53) -> int:
    """Return a whole number in text or JSON, or raise RefusedError."""
    is_text = isinstance(text, str) and text.isascii() and text.isdecimal() and len(text) <= 16
    if is_text or (isinstance(text, int) and not isinstance(text, bool)):
        value = int(text)
        if low <= value <= high:
            return value
    raise RefusedError(f"{name} must be a whole number from {low} to {high}.")


def numbers(text: str, name: str) -> list[int]:
    """Return whole numbers with commas between them."""
    return [number(part, name) for part in text.split(",") if part]


def one_of(text: Any, name: str, known: tuple[str, ...]) -> str:
    """Return a word that is one of those that are known."""
    if not isinstance(text, str) or text not in known:
        raise RefusedError(f"{name} must be one of {', '.join(known)}.")
    return text


def text_of(body: dict[str, Any], name: str) -> str:
    """Return a text in JSON."""
    if not isinstance(body.get(name), str):
        raise RefusedError(f"{name} must be a text.")
    return str(body[name])


def key_of(body: dict[str, Any]) -> str:
    """Return the name that the page gives to a request."""
    key = text_of(body, "key")
    if not key.isascii() or not 0 < len(key) <= LONGEST_KEY:
        raise RefusedError(f"key must have 1 to {LONGEST_KEY} plain letters or digits.")
    return key


async def body_of(request: Request) -> dict[str, Any]:
    """Return the JSON object in a request."""
    content = b""
    async for part in request.stream():
        content += part
        if len(content) > LARGEST_BODY:
            raise HTTPException(
                413, f"The request has more than {LARGEST_BODY} bytes. Send fewer images at a time."
            )
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise RefusedError("Send one JSON object.")
    return found


class Pages:
    """Answer the requests of the page, each by a method."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.revisions = asyncio.Condition()
        self.is_closing = False
        self.static = {
            f"/static/{file.name}": file for file in files("ledl.labelling").joinpath("static").iterdir()
        }

    def app(self, token: str) -> Guard:
        """Return the application."""
        reads: dict[str, Callable[[Request], Any]] = {
            "/": self.page,
            "/static/{name}": self.file,
            "/api/questions": self.questions,
            "/api/images": self.images,
            "/api/ids": self.ids,
            "/api/explain/{id}": self.explain,
            "/api/export/labels.csv": self.labels,
            "/api/export/summary.html": self.summary,
            "/thumb/{id}": self.thumb,
            "/image/{id}": self.image,
        }
        writes: dict[str, Callable[[dict[str, Any], dict[str, Any]], Any]] = {
            "/api/answers": self.answers,
            "/api/undo": lambda body, path: self.session.undo(),
            "/api/redo": lambda body, path: self.session.redo(),
            "/api/classes": lambda body, path: self.session.add_class(text_of(body, "name")),
            "/api/classes/{id}": self.rename,
            "/api/classes/{id}/merge": self.merge,
            "/api/classes/{id}/delete": self.delete,
        }
        routes = [Route("/api/state", self.state)]
        routes += [Route(path, _in_thread(function)) for path, function in reads.items()]
        routes += [Route(path, _from_json(function), methods=["POST"]) for path, function in writes.items()]
        kinds = (RefusedError, StoreError, ImageError, HTTPException, ClientDisconnect)
        handlers = dict.fromkeys(kinds, _refused)
        return Guard(Starlette(routes=routes, exception_handlers=handlers), token)

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Notify those who wait for a change, from whatever thread it comes."""

        def wake() -> None:
            with suppress(RuntimeError):  # the server is ending
                loop.call_soon_threadsafe(lambda: loop.create_task(self._wake()))

        self.session.on_change = wake

    async def _wake(self) -> None:
        async with self.revisions:
            self.revisions.notify_all()

    async def close(self) -> None:
        """Answer those who wait, so that the server can end."""
        self.is_closing = True
        await self._wake()

    async def state(self, request: Request) -> Response:
        """Answer what there is, at once or after the next change."""
        query = request.query_params
        after = number(query["after"], "after") if "after" in query else None
        try:
            wait = min(max(float(query.get("wait", LONGEST_WAIT)), 0.0), LONGEST_WAIT)
        except ValueError:
            raise RefusedError("wait must be a number of seconds.") from None
        if after is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(wait), self.revisions:
                    await self.revisions.wait_for(lambda: self.is_closing or self.session.revision != after)
        return reply(await run_in_threadpool(self.session.state))

    def page(self, request: Request) -> Response:
        return self._file("/static/index.html")

    def file(self, request: Request) -> Response:
        return self._file(request.url.path)

    def _file(self, path: str) -> Response:
        """Answer a file of the page: one of a few whose names are known."""
        kind = KINDS.get(Path(path).suffix)
        if path not in self.static or kind is None:
            raise UnknownError("There is no such file.")
        return Response(self.static[path].read_bytes(), 200, {"Cache-Control": "no-cache"}, kind)

    def questions(self, request: Request) -> Any:
        query = request.query_params
        n = number(query.get("n", "24"), "n", 1, MOST_QUESTIONS)
        return self.session.questions(n, {*numbers(query.get("exclude", ""), "exclude")})

    def _found(self, request: Request) -> list[int]:
        query = request.query_params
        label = number(query["class"], "class") if "class" in query else None
        state = one_of(query["state"], "state", STATES) if "state" in query else None
        view = one_of(query.get("view", "all"), "view", VIEWS[1:])
        return self.session.find(view, label, state, query.get("search", ""))

    def images(self, request: Request) -> Any:
        query = request.query_params
        offset = number(query.get("offset", "0"), "offset")
        limit = number(query.get("limit", "200"), "limit", 1, MOST_IMAGES)
        if "ids" in query:  # images that the page shows already, in its order
            place = self.session.place
            found = [place[key] for key in numbers(query["ids"], "ids") if key in place]
        else:
            found = self._found(request)
        with self.session.lock:
            items = [self.session.image(i) for i in found[offset : offset + limit]]
        return {"total": len(found), "items": items}

    def ids(self, request: Request) -> Any:
        return {"ids": self.session.ids(self._found(request))}

    def explain(self, request: Request) -> Any:
        return self.session.explain(number(request.path_params["id"], "The number of the image"))

    def labels(self, request: Request) -> Response:
        folder = self.session.folder.absolute()  # nobody knows where the table will lie
        return _download(table(self.session, folder).encode(), "text/csv", "labels.csv")

    def summary(self, request: Request) -> Response:
        return _download(summary_page(self.session).encode(), "text/html", "summary.html")

    def thumb(self, request: Request) -> Response:
        """Answer a small picture, which is made once."""
        return self._jpeg(request, self.session.picture)

    def image(self, request: Request) -> Response:
        """Answer a large picture, newly encoded: a file is never sent as something that it is not."""
        return self._jpeg(request, self.session.large_picture)

    def _jpeg(self, request: Request, picture: Callable[[int], bytes]) -> Response:
        """Answer a picture, or that the browser has it.

        The number of an image says nothing: other labels, whose page had this port before, have it, too. So the
        browser asks every time whether it has the picture of this store, image, size and time of change.
        """
        i = self.session.position(number(request.path_params["id"], "The number of the image"))
        mark = f'"{self.session.mark(i)}"'
        headers = {"Cache-Control": "private, no-cache", "ETag": mark}
        if request.headers.get("if-none-match") == mark:
            return Response(None, 304, headers)
        return Response(picture(i), 200, headers, "image/jpeg")

    def answers(self, body: dict[str, Any], path: dict[str, Any]) -> Any:
        """Store what the person says about some images."""
        images, label, new = body.get("images"), body.get("class"), body.get("new_class")
        skip, model, key = body.get("skip") or False, body.get("model"), body.get("key")
        if not isinstance(images, list) or not images:
            raise RefusedError("images must be a list with the numbers of one or more images.")
        if skip not in (True, False) or (label is not None) + (new is not None) + bool(skip) > 1:
            raise RefusedError("Give one of class, new_class and skip.")
        return self.session.answer(
            [number(key, "The number of an image") for key in images],
            None if label is None else number(label, "class"),
            new_class=None if new is None else text_of(body, "new_class"),
            skip=bool(skip),
            view=one_of(body.get("view", "all"), "view", VIEWS),
            model=None if model is None else number(model, "model"),
            key=None if key is None else key_of(body),
        )

    def rename(self, body: dict[str, Any], path: dict[str, Any]) -> Any:
        return self.session.rename_class(number(path["id"], "The number of the class"), text_of(body, "name"))

    def merge(self, body: dict[str, Any], path: dict[str, Any]) -> Any:
        key = number(path["id"], "The number of the class")
        return self.session.merge_class(key, number(body.get("into"), "into"))

    def delete(self, body: dict[str, Any], path: dict[str, Any]) -> Any:
        return self.session.delete_class(number(path["id"], "The number of the class"))


def _download(content: bytes, kind: str, name: str) -> Response:
    headers = {"Content-Disposition": f'attachment; filename="{name}"', "Cache-Control": "no-store"}
    return Response(content, 200, headers, kind)


def _in_thread(function: Callable[[Request], Any]) -> Callable[[Request], Awaitable[Response]]:
    """Return a handler that runs a function in a thread, and answers what it returns."""

    async def handle(request: Request) -> Response:
        found = await run_in_threadpool(function, request)
        return found if isinstance(found, Response) else reply(found)

    return handle


def _from_json(
    function: Callable[[dict[str, Any], dict[str, Any]], Any],
) -> Callable[[Request], Awaitable[Response]]:
    """Return a handler that gives the JSON of a request to a function, and answers what it returns."""

    async def handle(request: Request) -> Response:
        body = await body_of(request)
        return reply(await run_in_threadpool(function, body, request.path_params))

    return handle


async def _refused(request: Request, error: Exception) -> Response:
    """Answer in plain words why a request cannot be done."""
    if isinstance(error, HTTPException):
        words = {404: "There is nothing under this address.", 405: "This address wants another method."}
        return reply({"error": words.get(error.status_code, error.detail)}, error.status_code)
    # Nothing was stored if the disk is full: 409, because no other request will do better until it is not.
    status = (
        404 if isinstance(error, UnknownError | ImageError) else 409 if isinstance(error, StoreError) else 400
    )
    return reply({"error": str(error)}, status)


class Announced(Server):
    """Serve, and say so as soon as it answers."""

    def __init__(self, config: Config, pages: Pages, announce: Callable[[], None]) -> None:
        super().__init__(config)
        self.pages, self.announce = pages, announce

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self.pages.watch(asyncio.get_running_loop())
        await super().startup(sockets)
        if self.started:
            self.announce()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self.pages.close()
        await super().shutdown(sockets)


def listen(port: int | None, kept: str) -> socket.socket:
    """Return a socket on 127.0.0.1: on this port, or the one of the last time, or any that is free."""
    for wanted in [port] if port is not None else [*([int(kept)] if kept.isdecimal() else []), 0]:
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        if os.name == "posix":  # elsewhere this would allow two servers on a port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", wanted))
            listener.listen(128)
        except OSError as error:
            listener.close()
            reason = error.strerror
            continue
        return listener
    raise OSError(f"The port {port} cannot be used: {reason}. Give another one with --port, or leave it out.")


def serve(session: Session, *, port: int | None = None, announce: Callable[[str], None] = print) -> None:
    """Serve the page until Ctrl-C. `announce` gets its address once it answers."""
    store = session.store
    with listen(port, store.get("port")) as listener:
        own = listener.getsockname()[1]
        token = store.get("token")
        address = f"http://127.0.0.1:{own}/?token={token}"
        store.set(port=str(own))

        def answers_now() -> None:
            write_atomically(store.place / ADDRESS, address.encode())
            with suppress(PermissionError):  # a disk that knows no access rights
                (store.place / ADDRESS).chmod(0o600)
            announce(address)

        pages = Pages(session)
        config = Config(
            pages.app(token),
            log_level="error",
            access_log=False,
            ws="none",
            lifespan="off",
            http="h11",
            loop="asyncio",
            server_header=False,
            timeout_graceful_shutdown=2,
        )
        session.start()
        Announced(config, pages, answers_now).run(sockets=[listener])
