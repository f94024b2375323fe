"""The page in a notebook: the frame sends its requests to the kernel, here this process, and needs no server."""

from __future__ import annotations

import base64
import functools
import http.server
import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import atomizer_io as aio
from browser import browser
from chromium import Chromium

anywidget = pytest.importorskip("anywidget", reason="the extra `notebook` is not installed")

HARNESS = """<!doctype html><html><link rel="icon" href="data:,"><body><div id="cell"></div><script type="module">
import widget from "./notebook.js";
const files = await (await fetch("files.json")).json();
const handlers = new Set();
const model = {
  get: name => ({ files, height: 600 })[name],
  on: (_, handler) => handlers.add(handler),
  off: (_, handler) => handlers.delete(handler),
  send: message => kernel(JSON.stringify(message)),
};
window.deliver = (message, text) => {
  const bytes = Uint8Array.from(atob(text), letter => letter.charCodeAt(0));
  handlers.forEach(handler => handler(message, [new DataView(bytes.buffer)]));
};
widget.render({ model, el: document.getElementById("cell") });
</script></body></html>"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *values: Any) -> None:
        """Nothing."""


@pytest.mark.filterwarnings("ignore")
def test_the_page_runs_on_messages_of_the_kernel(files: list, model: Path, tmp_path: Path) -> None:
    browser()
    page = aio.view(model, files)
    sent: list[tuple[dict, list[bytes]]] = []
    page.send = lambda message, buffers: sent.append((message, buffers))
    (tmp_path / "notebook.js").write_text(type(page)._esm if isinstance(type(page)._esm, str) else page._esm)
    (tmp_path / "files.json").write_text(json.dumps(page.files))
    (tmp_path / "index.html").write_text(HARNESS)
    handler = functools.partial(Quiet, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with Chromium(tmp_path / "profile", (900, 700)) as tab:
            tab.call("Runtime.addBinding", name="kernel")
            tab.open(f"http://127.0.0.1:{server.server_address[1]}/index.html")
            end = time.monotonic() + 60
            ready = "document.querySelector('iframe')?.contentDocument?.body?.dataset.ready"
            while not tab.run(ready) and time.monotonic() < end:
                for text in tab.bound:
                    page._handle_custom_msg(json.loads(text), [])
                tab.bound.clear()
                for message, buffers in sent:
                    content = base64.b64encode(buffers[0]).decode()
                    tab.run(f"deliver({json.dumps(message)}, '{content}')")
                sent.clear()
            assert tab.run(ready), tab.noise
            assert (
                tab.run("document.querySelector('iframe').contentDocument.querySelectorAll('#legend button').length")
                == 3
            )
            assert not tab.noise, tab.noise
        server.shutdown()
