"""The model card, and models that are pushed to a hub: a server on this machine takes what its client sends."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

import atomizer_io as aio
from atomizer_io.errors import CheckpointError
from atomizer_io.models.storage import seal_again
from runs import trained, write_floods
from scenes import SMALL


def test_a_card_has_what_was_read_and_scored_and_is_no_part_of_the_seal(tmp_path: Path) -> None:
    best = trained(write_floods(tmp_path, epochs=1), "floods") / "best"
    text = (best / "README.md").read_text()
    assert text.startswith("---\nlibrary_name: atomizer-io\npipeline_tag: image-segmentation\n")
    assert "| sentinel2 | B01, B02," in text and "0 dry, 1 water" in text
    assert "sen1floods11; 3 steps, seed 0." in text and "\n| val | 0." in text
    before = (best / "model.safetensors").read_bytes()
    seal_again(best)
    assert (best / "README.md").read_text() == text and (best / "model.safetensors").read_bytes() == before
    (best / "README.md").write_text("our own words")
    aio.load_model(best).save_pretrained(best)
    assert (best / "README.md").read_text() == "our own words"
    aio.load_model(best)


class Hub(BaseHTTPRequestHandler):
    """What the client of the hub needs to make a repository and to put small files into it."""

    files: ClassVar[dict[str, bytes]] = {}

    def do_POST(self) -> None:
        """Reply as the hub does."""
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        url = f"http://{self.headers['Host']}/someone/water"
        reply: dict[str, Any] = {"errors": [], "warnings": []}  # of the model card
        if self.path == "/api/repos/create":
            reply = {"url": url}
        elif "/preupload/" in self.path:
            names = [file["path"] for file in json.loads(body)["files"]]
            reply = {"files": [{"path": name, "uploadMode": "regular", "shouldIgnore": False} for name in names]}
        elif "/commit/" in self.path:
            lines = [json.loads(line) for line in body.splitlines()]
            parts = [line["value"] for line in lines if line["key"] == "file"]
            self.files.update({part["path"]: base64.b64decode(part["content"]) for part in parts})
            reply = {"commitUrl": f"{url}/commit/{'a' * 40}", "commitOid": "a" * 40}
        content = json.dumps(reply).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Hub]]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    yield Hub
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_pushed_model_is_the_saved_one(tmp_path: Path, hub: type[Hub]) -> None:
    model = aio.create_model("atomizer_io_tiny", **SMALL)
    assert model.push_to_hub("someone/water", token="hf_test").endswith(f"/commit/{'a' * 40}")
    model.save_pretrained(tmp_path / "saved")
    assert hub.files == {path.name: path.read_bytes() for path in (tmp_path / "saved").iterdir()}
    with pytest.raises(CheckpointError, match=r"did not take the model as 'not a/name'"):
        model.push_to_hub("not a/name", token="hf_test")
