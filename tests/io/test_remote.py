"""Rasters on a server that a user names: the same values as on disk, read in parts, and no other host."""

from __future__ import annotations

import copy
import pickle
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

import atomizer_io as aio
from atomizer_io.data.sensors import SENTINEL2
from atomizer_io.errors import ConfigError, DataError
from atomizer_io.io import remote
from atomizer_io.io.raster_sources import RasterInput, open_rasters
from atomizer_io.io.remote import RemoteRaster, address_of
from atomizer_lab.synthetic.rasters import write_raster
from scenes import SMALL

rasterio = pytest.importorskip("rasterio")
SIDE = 64


class Files(BaseHTTPRequestHandler):
    """Serves parts of the files of a folder."""

    folder: ClassVar[Path]
    requests: ClassVar[list[tuple[str, str]]] = []

    def do_GET(self) -> None:
        """Send a part of a file, or a redirect to another host."""
        span = self.headers.get("Range", "")
        self.requests.append((self.path, span))
        name = self.path.partition("?")[0].lstrip("/")
        if name.startswith("elsewhere"):
            self.send_response(302)
            self.send_header("Location", f"http://localhost:{self.server.server_port}/scene_20210704.tif")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        path = self.folder / name.removeprefix("whole/")
        if not path.is_file():
            self.send_error(404)
            return
        content, numbers = path.read_bytes(), re.fullmatch(r"bytes=(\d+)-(\d+)", span)
        parts = numbers is not None and not name.startswith("whole")
        first, last = (int(numbers[1]), min(int(numbers[2]), len(content) - 1)) if parts else (0, len(content) - 1)
        self.send_response(206 if parts else 200)
        if parts:
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(content)}")
        self.send_header("Content-Length", str(last - first + 1))
        self.end_headers()
        self.wfile.write(content[first : last + 1])

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    Files.folder, Files.requests = tmp_path, []
    values = np.random.default_rng(0).integers(1, 4000, (2, SIDE, SIDE)).astype(np.uint16)
    place = {"crs": "EPSG:32633", "transform": rasterio.Affine(10, 0, 4e5, 0, -10, 5.8e6)}
    write_raster(tmp_path / "scene_20210704.tif", values, descriptions=["B02", "B03"], **place)
    (tmp_path / "page.tif").write_text("<VRTDataset>")
    served = ThreadingHTTPServer(("127.0.0.1", 0), Files)
    thread = threading.Thread(target=served.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{served.server_port}"
    served.shutdown()
    thread.join()
    served.server_close()


def test_a_map_of_an_address_is_that_of_the_file(server: str, tmp_path: Path) -> None:
    model = aio.create_model("atomizer_io_tiny", **SMALL, channels=SENTINEL2.pick("B02", "B03")).eval()
    here = {"path": tmp_path / "scene_20210704.tif", "sensor": "sentinel2"}
    there = here | {"path": f"{server}/scene_20210704.tif?signature=secret"}
    maps = [aio.predict_raster(model, raster, tmp_path / f"{n}.tif") for n, raster in enumerate((here, there))]
    assert maps[0].files["map.tif"].read_bytes() == maps[1].files["map.tif"].read_bytes()
    assert {path for path, _ in Files.requests} == {"/scene_20210704.tif?signature=secret"}
    assert all(span.startswith("bytes=") for _, span in Files.requests)


def test_an_address_stands_where_paths_do(server: str) -> None:
    (source,) = open_rasters([{"path": f"/vsicurl/{server}/scene_20210704.tif?key=secret", "sensor": "sentinel2"}])
    assert str(source.date) == "2021-07-04" and source.path.name == "scene_20210704.tif"
    assert str(source.path) == f"{server}/scene_20210704.tif" == str(copy.deepcopy(source.path))
    again = pickle.loads(pickle.dumps(source))
    assert again.path == source.path and again.path.url.endswith("?key=secret") and source.path.samefile(again.path)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("elsewhere.tif", "redirects to localhost: name that address"),
        ("missing.tif", "404"),
        ("page.tif", "is not one of GeoTIFF and JPEG 2000"),
        ("whole/scene_20210704.tif", "gives no parts of files"),
    ],
)
def test_what_a_server_does_wrong_is_named(server: str, name: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        open_rasters([{"path": f"{server}/{name}", "sensor": "sentinel2"}])


def test_a_closed_port_is_an_error(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "ATTEMPTS", 1)
    with pytest.raises(DataError, match="cannot be read"):
        open_rasters([{"path": "http://127.0.0.1:9/scene.tif", "sensor": "sentinel2"}])


def test_only_what_a_user_names_is_an_address(tmp_path: Path) -> None:
    assert address_of("s3://bucket/a b.tif") == "https://bucket.s3.amazonaws.com/a%20b.tif"
    assert address_of("/vsis3/bucket/key.tif") == "https://bucket.s3.amazonaws.com/key.tif"
    assert address_of("folder/scene.tif") is None and address_of("C:/scene.tif") is None
    for text in ("/vsizip/scene.zip", "ftp://host/scene.tif", "/vsicurl/file:///etc/passwd"):
        with pytest.raises(ConfigError, match="is not an address that is read"):
            address_of(text)
    with pytest.raises(DataError, match="no such file"):  # a path, as lists of scenes have them
        open_rasters([{"path": Path("https://127.0.0.1/scene.tif"), "sensor": "sentinel2"}])
    assert isinstance(RasterInput.of("https://127.0.0.1/scene.tif").path, RemoteRaster)
