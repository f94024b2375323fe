"""The local server of the page: 127.0.0.1 only, with a token, for no other host name and no other origin.

The token is in the fragment of the address, which browsers do not send; the page sends it as a header with every
request. So a page of another origin, which can neither read the token nor set the header, cannot drive the server, and
another user of the machine cannot read a scene.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import secrets
import socket
import threading
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from atomizer_io.errors import AtomizerError, printable
from atomizer_io.texts import json_text, parse_json

HOST, PAGE = "127.0.0.1", Path(__file__).parent / "page"
JSON, BYTES = "application/json", "application/octet-stream"
TOKEN, MOST_BYTES = "x-atomizer-token", 16 << 20
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; worker-src 'self' blob:; style-src 'self'; "
    "img-src 'self' blob: data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def application(session: Any, port: int, token: str) -> Any:
    """Return the ASGI application of a session."""
    from starlette.applications import Starlette
    from starlette.routing import Mount, Route
    from starlette.staticfiles import StaticFiles

    lock = threading.Lock()  # one computation at a time: each uses all cores

    def route(name: str, call: Callable[[Mapping[str, Any]], Any]) -> Any:
        return Route(f"/api/{name}", endpoint(call, lock), methods=["POST"])

    routes: list[Any] = [route(name, call) for name, call in session.calls().items()]
    routes.append(Mount("/", StaticFiles(directory=PAGE, html=True)))
    return guarded(Starlette(routes=routes), port, token)


def endpoint(call: Callable[[Mapping[str, Any]], Any], lock: threading.Lock) -> Callable[[Any], Awaitable[Any]]:
    """Return what handles one request, whose content is JSON."""
    from starlette.concurrency import run_in_threadpool
    from starlette.responses import Response

    def work(content: bytes) -> Response:
        try:
            values = parse_json(content or b"{}")
        except ValueError:
            values = None
        with lock:
            status, kind, body = replied(call, values)
        return Response(body, status, media_type=kind)

    async def handle(request: Any) -> Response:
        content = b""
        async for part in request.stream():
            content += part
            if len(content) > MOST_BYTES:
                return Response(json_text({"error": "this is too large for the page"}), 413)
        return await run_in_threadpool(work, content)

    return handle


def replied(call: Callable[[Mapping[str, Any]], Any], values: Any) -> tuple[int, str, bytes]:
    """Return status, media type and content for a request: JSON, arrays behind a line of JSON, bytes, or a sentence."""
    try:
        if not isinstance(values, dict):
            raise AtomizerError("a request is an object: load the page again")
        result = call(values)
    except AtomizerError as error:
        text = str(error)
    except (ValueError, TypeError, KeyError) as error:
        text = f"this request makes no sense ({type(error).__name__}): load the page again"
    except OSError as error:
        text = f"{error.filename or 'a file'}: {error.strerror or error}"
    else:
        return 200, *content_of(result)
    return 400, JSON, json_text({"error": printable(text)}).encode()


def content_of(result: Any) -> tuple[str, bytes]:
    """Return the media type and the content of what a request came to."""
    if isinstance(result, bytes):
        return BYTES, result
    if not isinstance(result, tuple):
        return JSON, json_text(result).encode()
    facts, arrays = result
    listed = [{"name": name, "type": str(array.dtype), "bytes": array.nbytes} for name, array in arrays.items()]
    head = json_text({**facts, "arrays": listed}).encode() + b"\n"
    return BYTES, head + b"".join(np.ascontiguousarray(array).tobytes() for array in arrays.values())


def guarded(app: Any, port: int, token: str) -> Any:
    """Return an application that refuses other hosts, other origins, and requests without the token."""
    hosts = {f"{HOST}:{port}".encode(), f"localhost:{port}".encode()}
    origins = {b"http://" + host for host in hosts}

    def refusal(scope: Any) -> str | None:
        headers = scope["headers"]
        values = {
            name: [value for key, value in headers if key == name] for name in (b"host", b"origin", TOKEN.encode())
        }
        if len(values[b"host"]) != 1 or values[b"host"][0] not in hosts:
            return f"this server is http://{HOST}:{port} only"
        if any(origin not in origins for origin in values[b"origin"]):
            return "pages of other origins cannot use this server"
        if not scope["path"].startswith("/api/"):
            return None
        if (b"sec-fetch-site", b"cross-site") in headers:
            return "pages of other origins cannot use this server"
        tokens = values[TOKEN.encode()]
        right = len(tokens) == 1 and hmac.compare_digest(tokens[0], token.encode())
        return None if right else "the token is missing or wrong: open the address that the command printed"

    async def call(scope: Any, receive: Any, send: Any) -> None:
        from starlette.responses import Response

        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await app(scope, receive, send)
            return

        async def with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [
                    *message["headers"],
                    *((name.lower().encode(), value.encode()) for name, value in HEADERS.items()),
                ]
            await send(message)

        if (text := refusal(scope)) is not None:
            await Response(json.dumps({"error": text}), 403, media_type="application/json")(
                scope, receive, with_headers
            )
            return
        await app(scope, receive, with_headers)

    return call


class Server:
    """A server in a thread of its own, for as long as its ``with`` block lasts."""

    def __init__(self, session: Any, port: int = 0) -> None:
        self.session, self.token = session, secrets.token_urlsafe(24)
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self.socket.bind((HOST, port))
        except OSError as error:
            raise AtomizerError(f"port {port} is not free: choose another with --port, or leave it out") from error
        self.socket.listen()  # who comes before the server runs waits
        self.port = self.socket.getsockname()[1]

    @property
    def address(self) -> str:
        """The address of the page, with the token."""
        return f"http://{HOST}:{self.port}/#{self.token}"

    def __enter__(self) -> Server:
        import uvicorn

        app = application(self.session, self.port, self.token)
        settings = uvicorn.Config(app, log_level="error", access_log=False, server_header=False, lifespan="off")
        self.server = uvicorn.Server(settings)
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self.socket]}, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.server.should_exit = True
        self.thread.join(10)
        with contextlib.suppress(OSError):
            self.socket.close()
