"""A program that decompresses the points of one LAZ file after the other, and may die of a broken one.

``laz_guard`` starts it by its path, so that nothing but lazrs is imported. Requests are lines of JSON on standard
input: ``{"path", "start", "vlr", "everything", "memory"}`` opens a file, of which x and y alone may do;
``{"points", "size"}`` requests points of ``size`` bytes. Each reply is a length of 8 bytes and as many bytes; a
negative length announces a message of error.
"""

from __future__ import annotations

import json
import signal
import struct
import sys
from typing import Any, BinaryIO

PIECE = 1 << 20  # bytes of points that are handed over at once


def serve(requests: BinaryIO, replies: BinaryIO) -> None:
    """Serve requests until there are no more."""
    decompressor: Any = None
    for line in requests:
        request = json.loads(line)
        try:
            if "path" in request:
                decompressor = _opened(request)
            else:
                _hand_over(decompressor, request["points"], request["size"], replies)
        except BaseException as error:  # a panic of the decompressor is no Exception
            message = f"{type(error).__name__}: {error}".encode()[:1000]
            replies.write(struct.pack("<q", -len(message)) + message)
        replies.flush()


def _opened(request: dict[str, Any]) -> Any:
    import lazrs  # type: ignore[import-untyped]

    _limit(request["memory"])
    file = open(request["path"], "rb")  # noqa: SIM115 - the decompressor keeps it
    file.seek(request["start"])
    selection = lazrs.SELECTIVE_DECOMPRESS_XY_RETURNS_CHANNEL
    if request["everything"]:
        selection = lazrs.SELECTIVE_DECOMPRESS_ALL
    return lazrs.LasZipDecompressor(file, bytes.fromhex(request["vlr"]), lazrs.DecompressionSelection(selection))


def _hand_over(decompressor: Any, points: int, size: int, replies: BinaryIO) -> None:
    if decompressor is None:
        return  # the error of opening was reported already
    at_once = max(1, PIECE // size)
    while points:
        piece = bytearray(min(points, at_once) * size)
        decompressor.decompress_many(piece)
        replies.write(struct.pack("<q", len(piece)))
        replies.write(piece)
        points -= len(piece) // size


def _limit(memory: int) -> None:
    """Make an allocation that no sound file needs fail here, before the machine runs out of memory."""
    try:
        import resource
    except ImportError:  # there is none on Windows
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    soft = memory if hard == resource.RLIM_INFINITY else min(memory, hard)
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    serve(sys.stdin.buffer, sys.stdout.buffer)
