"""Who may use the server: whoever has the address, from this machine, and no page of another origin."""

from __future__ import annotations

import contextlib
import http.client
import json

import pytest

from atomizer_io.viewer.server import Server


def reply(server: Server, path: str = "/api/scene", method: str = "POST", **headers: str) -> tuple[int, bytes]:
    own = {name.replace("_", "-"): value for name, value in headers.items()}
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)) as connection:
        connection.request(method, path, b"{}" if method == "POST" else None, own)
        response = connection.getresponse()
        return response.status, response.read()


def test_only_the_page_with_the_token_gets_anything(server: Server) -> None:
    token = server.token
    host = f"127.0.0.1:{server.port}"
    assert server.socket.getsockname()[0] == "127.0.0.1"
    status, body = reply(server, X_Atomizer_Token=token, Origin=f"http://{host}")
    assert status == 200 and json.loads(body)["kind"] == "rasters"
    refused = [
        {},  # another user of this machine
        {"X_Atomizer_Token": "x" + token[1:]},
        {"X_Atomizer_Token": token, "Host": f"evil.example:{server.port}"},  # DNS rebinding
        {"X_Atomizer_Token": token, "Host": "127.0.0.1"},
        {"X_Atomizer_Token": token, "Origin": "http://evil.example"},  # CSRF
        {"X_Atomizer_Token": token, "Origin": "null"},
        {"X_Atomizer_Token": token, "Sec_Fetch_Site": "cross-site"},
        {"Origin": f"http://{host}"},
    ]
    for headers in refused:
        status, body = reply(server, **headers)
        assert status == 403 and b"classes" not in body, headers
    assert reply(server, "/", "GET", Host="evil.example")[0] == 403


@pytest.mark.parametrize("path", ["/../session.py", "/%2e%2e/session.py", "/..%2fserver.py", "//etc/passwd"])
def test_no_other_file_is_served(server: Server, path: str) -> None:
    assert reply(server, path, "GET")[0] in (404, 405)


def test_nonsense_gets_a_sentence(server: Server) -> None:
    for path in ("/api/at", "/api/layer", "/api/import", "/api/fit"):
        status, body = reply(server, path, X_Atomizer_Token=server.token)
        assert status == 400 and json.loads(body)["error"]
