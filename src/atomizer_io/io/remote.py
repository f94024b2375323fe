"""A raster on a server, read in ranges of bytes by Python: GDAL itself has no network.

The address is one that a user names, never one that stands in a file, and its host is the only one that is contacted: a
redirect to another is refused.
"""

from __future__ import annotations

import functools
import io
import os
import re
import sys
import urllib.error
import urllib.request
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from atomizer_io.errors import ConfigError, DataError

SCHEMES = ("http", "https")
HEAD = 1024
BLOCK, KEPT = 1 << 19, 64  # bytes of a request, and how many of these blocks a process keeps
TIMEOUT_S, ATTEMPTS = 60, 3


def address_of(text: str) -> str | None:
    """Return the address that a user names (``https://``, ``s3://``, ``/vsicurl/``, ``/vsis3/``), None for a path.

    ``s3://bucket/key`` is the public address of the bucket.
    """
    bucket = re.match(r"(?:s3://|/vsis3/)([^/]+)/(.+)", text)
    if bucket is not None:
        return f"https://{bucket[1]}.s3.amazonaws.com/{quote(bucket[2])}"
    address = text.removeprefix("/vsicurl/")
    parts = urlsplit(address)
    if parts.scheme in SCHEMES and parts.hostname:
        return address
    if address != text or text.startswith("/vsi") or re.match(r"[a-z0-9]{2,}://", text):
        raise ConfigError(
            f"{text} is not an address that is read: rasters on a server are named by https://, http:// or s3:// (a "
            "private bucket by a signed https:// address), others are to be downloaded"
        )
    return None


class RemoteRaster(type(Path())):  # type: ignore[misc]
    """The address of a raster where paths are expected. Shown without its query, which may hold a signature."""

    url = ""  # of paths that were derived from one

    def __new__(cls, url: str) -> RemoteRaster:
        """Make a path of the last part of an address."""
        path: RemoteRaster = super().__new__(cls, _name(url))
        path.url = url
        return path

    if sys.version_info >= (3, 12):  # where a path takes its parts here

        def __init__(self, url: str) -> None:
            super().__init__(_name(url))

        def with_segments(self, *segments: Any) -> Path:
            """Make derived paths plain ones."""
            return Path(*segments)

    def __str__(self) -> str:
        return self.url.partition("?")[0] or super().__str__()

    def __reduce__(self) -> tuple[Any, ...]:
        return (RemoteRaster, (self.url,))

    def __eq__(self, value: object) -> bool:
        return isinstance(value, RemoteRaster) and value.url == self.url

    def __hash__(self) -> int:
        return hash(self.url)

    def absolute(self) -> RemoteRaster:
        """Return the address itself."""
        return self

    def is_file(self, **_: Any) -> bool:
        """Return False: this is no file of this machine."""
        return False

    def samefile(self, path: Any) -> bool:
        """Whether both are one address."""
        return self == path

    @property
    def size(self) -> int:
        """The number of bytes, as the server gives it."""
        return self._first()[1]

    def head(self) -> bytes:
        """Return the first bytes, by which the kind of a file is recognised."""
        return self._first()[0][:HEAD]

    def _first(self) -> tuple[bytes, int]:
        try:
            return _block(self.url, 0)
        except (OSError, HTTPException, ValueError) as error:
            raise DataError(self, f"cannot be read: {error}") from error

    def open_bytes(self, path: str, mode: str = "rb") -> io.RawIOBase:
        """Open the bytes for rasterio; no file but this one exists on the server."""
        if os.path.basename(path) != self.name or mode != "rb":
            raise FileNotFoundError(path)
        return _Bytes(self.url, self.size)


class _Bytes(io.RawIOBase):
    """The bytes of an address, of which blocks are requested when they are read."""

    def __init__(self, url: str, size: int) -> None:
        self.url, self.size, self.place = url, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        self.place = (0, self.place, self.size)[whence] + offset
        return self.place

    def tell(self) -> int:
        return self.place

    def readinto(self, buffer: Any) -> int:
        count = min(len(buffer), max(0, self.size - self.place))
        done = 0
        while done < count:
            number, skipped = divmod(self.place + done, BLOCK)
            part = _block(self.url, number)[0][skipped : skipped + count - done]
            buffer[done : done + len(part)] = part
            done += len(part)
        self.place += count
        return count


class _OneHost(urllib.request.HTTPRedirectHandler):
    """Follows a redirect to the same host only."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        """Refuse another host, or another scheme."""
        old, new = urlsplit(req.full_url), urlsplit(newurl)
        if new.hostname != old.hostname or new.scheme not in SCHEMES:
            raise OSError(f"the server redirects to {new.hostname}: name that address if you trust it")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


_client = urllib.request.OpenerDirector()
for _handler in (
    urllib.request.ProxyHandler,
    urllib.request.HTTPHandler,
    urllib.request.HTTPSHandler,
    urllib.request.HTTPDefaultErrorHandler,
    urllib.request.HTTPErrorProcessor,
    _OneHost,
):
    _client.add_handler(_handler())


@functools.lru_cache(maxsize=KEPT)
def _block(url: str, number: int) -> tuple[bytes, int]:
    """Return a block of an address, and the number of bytes of the whole."""
    first = number * BLOCK
    request = urllib.request.Request(url, headers={"Range": f"bytes={first}-{first + BLOCK - 1}"})
    for attempt in range(ATTEMPTS):
        try:
            with _client.open(request, timeout=TIMEOUT_S) as response:
                span = re.fullmatch(r"bytes (\d+)-(\d+)/(\d+)", response.headers.get("Content-Range", ""))
                if span is None or int(span[1]) != first:
                    raise ValueError("the server gives no parts of files (HTTP ranges): download it")
                content = response.read(BLOCK)
                if len(content) != int(span[2]) + 1 - first:
                    raise OSError("the connection ended early")
                return content, int(span[3])
        except urllib.error.HTTPError as error:
            if error.code < 500 or attempt == ATTEMPTS - 1:
                raise
        except (TimeoutError, ConnectionError, HTTPException):
            if attempt == ATTEMPTS - 1:
                raise
    raise AssertionError("unreachable")


def _name(url: str) -> str:
    return urlsplit(url).path.rstrip("/").rpartition("/")[2] or "raster"
